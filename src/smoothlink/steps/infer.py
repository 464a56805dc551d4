"""Scores -> label sets: the k best, those above 1/2, and the sets that maximise F1 (Algorithm 4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from smoothlink.errors import DataError

Array = NDArray[Any]


class TopK(NamedTuple):
    """The k best labels of each row, best first; equal scores: the lower label id first."""

    indices: Array  # (b, k) label ids
    values: Array  # (b, k) their scores


def top_k(scores: Array, k: int) -> TopK:
    """The k highest scores of each row of a dense block (b, c); all c where c < k."""
    scores = np.asarray(scores)
    if not np.issubdtype(scores.dtype, np.floating):
        scores = scores.astype(np.float64)
    if k < 1:
        raise DataError(f"k = {k}: a row has at least 1 best label. Pass k >= 1.")
    b, c = scores.shape
    k = min(k, c)
    if not b * k:
        return TopK(np.empty((b, k), np.int64), np.empty((b, k), scores.dtype))
    if np.isnan(scores.max()):
        raise DataError(f"{np.isnan(scores).sum()} of {scores.size} scores are NaN. Check the features and the model.")
    entries = np.flatnonzero(_contenders(scores, k))
    rows, values = entries // c, scores.ravel()[entries]
    order = np.lexsort((-values, rows))  # stable: equal scores stay in the order of their ids
    first = np.searchsorted(rows, np.arange(b))  # (b,) where each row begins
    best = order[first[:, None] + np.arange(k)]
    return TopK(entries[best] % c, values[best])


def _contenders(scores: Array, k: int) -> Array:
    """A mask (b, c) that holds the k best of each row and not many more, for a few passes over memory.

    Cut the columns into groups: the k-th best group maximum is a bound from below on the k-th best score, and less
    than k groups hold anything above it. (This is 5 times faster than argpartition at c = 25,000.)
    """
    size = max(1, min(64, scores.shape[1] // (8 * k)))  # columns a group; those left over need no group
    groups = scores.shape[1] // size
    heads = scores[:, : size * groups].reshape(len(scores), size, groups).max(axis=1) if size > 1 else scores
    bound = np.partition(heads, groups - k, axis=1)[:, groups - k, None]
    mask = np.asarray(scores >= bound)
    crowded = np.flatnonzero(np.count_nonzero(mask, axis=1) > k * size)  # many equal the bound: k of those suffice
    equal = scores[crowded] == bound[crowded]
    mask[crowded] &= ~equal | (np.cumsum(equal, axis=1, dtype=np.int32) <= k)
    return mask


def topk_csr(blocks: Iterable[TopK], n_labels: int) -> csr_array:
    """Stacks blocks of rows into one CSR (n, n_labels) with k entries a row, in *descending order of score*.

    So `P.indices.reshape(n, -1)` are the ranked labels. The price is that indices are not sorted by label
    (`has_sorted_indices` is False), and that `sort_indices()` loses the order. A score of 0 stays an explicit entry.
    """
    parts = list(blocks)
    n, k = sum(len(part.indices) for part in parts), (parts[0].indices.shape[1] if parts else 0)
    width = _index_type(n * k, n_labels)
    indices = np.concatenate([np.empty(0, width), *(part.indices.ravel().astype(width) for part in parts)])
    values = np.concatenate([part.values.ravel() for part in parts]) if parts else np.empty(0)
    return csr_array((values, indices, k * np.arange(n + 1, dtype=width)), (n, n_labels))


def above_half(probabilities: Array) -> csr_array:
    """The 0/1 sets (CSR, b x c) of labels with probability strictly above 1/2, the best for Hamming loss."""
    probabilities = np.asarray(probabilities)
    if probabilities.size and np.isnan(probabilities.max()):
        raise DataError(
            f"{np.isnan(probabilities).sum()} of {probabilities.size} probabilities are NaN. Check the model."
        )
    return _indicator(probabilities > 0.5)


def f1_cut(z: Array, frequency: float, weights: Array | None = None) -> float:
    """Algorithm 4 for one label: the cut on the probabilities z (n,) whose set {z >= cut} has the highest expected F1.

    `frequency` is the label's share of the training rows: n+ = frequency * n positives are expected. A label with
    n+ = 0, and one without a positive z, is never predicted: its cut is infinite. Rows may have weights (n,).
    """
    z, w = np.asarray(z, np.result_type(z, np.float32)), np.ones(len(z)) if weights is None else weights
    n_plus = float(frequency * w.sum())
    wz = w * z
    if n_plus <= 0 or not wz.any():
        return float("inf")
    rows = _worth_sorting(z, w, wz, n_plus)
    rows = rows[np.argsort(-z[rows], kind="stable")]
    m = np.argmax(2 * np.cumsum(wz[rows]) / (n_plus + np.cumsum(w[rows])))
    return float(z[rows[m]])


def _worth_sorting(z: Array, w: Array, wz: Array, n_plus: float) -> Array:
    """The rows that the best set can hold: those with z at least half its F1 (some 300 of 66,000).

    Adding z to a set S of F1 = 2 sum(z) / (n+ + |S|) raises it only if 2z > F1, and the F1 of any set is a bound
    from below: first that of the best row alone, then that of the rows it leaves.
    """

    def half_f1(rows: Array) -> float:
        return float(wz[rows].sum() / (n_plus + w[rows].sum())) * (1 - 1e-6)  # the slack covers float32

    rows = np.flatnonzero(z >= half_f1(np.argmax(wz, keepdims=True)))
    return np.asarray(rows[z[rows] >= half_f1(rows)])


def f1_thresholds(Z: Array, frequencies: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """`f1_cut` for each label of a block: Z (n, b) probabilities, frequencies (b,) -> thresholds (b,)."""
    Z, frequencies = np.asarray(Z), np.asarray(frequencies, np.float64)
    w = np.ones(len(Z)) if weights is None else np.asarray(weights, np.float64)
    if frequencies.shape != Z.shape[1:] or w.shape != Z.shape[:1]:
        raise DataError(
            f"Z is {Z.shape}, frequencies {frequencies.shape}, weights {w.shape}. "
            "Pass one frequency a column and one weight a row."
        )
    if Z.size and not (Z.min() >= 0 and Z.max() <= 1 + 1e-6):  # the slack covers a float32 softmax
        raise DataError(
            f"F1 inference needs probabilities in [0, 1]; these range from {Z.min():.4g} to {Z.max():.4g}. "
            "Pass predict_proba, or clip scores with np.clip(Z, 0, 1)."
        )
    step = max(1, 2**21 // max(1, len(Z)))  # labels at a time, so that the transposed copy stays in the cache
    columns = (z for j in range(0, Z.shape[1], step) for z in np.ascontiguousarray(Z[:, j : j + step].T))
    return np.array([f1_cut(z, float(f), w) for z, f in zip(columns, frequencies, strict=True)], np.float64)


def sets_at(Z: Array, thresholds: ArrayLike) -> csr_array:
    """The 0/1 sets (CSR, n x b) where z >= the label's threshold and z > 0."""
    Z, cut = np.asarray(Z), np.asarray(thresholds, np.float64)
    return _indicator((cut <= Z) & (Z > 0))


def _indicator(chosen: Array) -> csr_array:
    """A dense mask as CSR of int64 ones (the type of scikit-learn's indicators; int8 would overflow in S'S)."""
    rows, indices = np.nonzero(chosen)
    width = _index_type(len(indices), chosen.shape[1])
    indptr = np.searchsorted(rows, np.arange(len(chosen) + 1)).astype(width)
    return csr_array((np.ones(len(indices), np.int64), indices.astype(width), indptr), chosen.shape)


def _index_type(*largest: int) -> type[np.int32] | type[np.int64]:
    """The integers of a CSR: 32 bits where they suffice, because scikit-learn refuses 64 in places."""
    return np.int32 if max(largest) < 2**31 else np.int64


def propensities(label_counts: ArrayLike, n: int, a: float = 0.55, b: float = 1.5) -> Array:
    """Inverse propensities q (c,) = 1 + C (N_l + b)^-a, C = (ln n - 1)(b + 1)^a, of Jain et al. (2016).

    `label_counts` N_l and `n` are of the training set; N_l may be 0. C is taken as 0 for n < e, where it would be
    negative. (a, b) is (.5, .4) by custom for Wikipedia sets and (.6, 2.6) for Amazon ones.
    """
    C = max(0.0, np.log(max(n, 1)) - 1) * (b + 1) ** a
    return np.asarray(1 + C * (np.asarray(label_counts, np.float64) + b) ** -a)
