"""Scores -> label sets: the k best, those above 1/2, and those of maximal expected F1 (Algorithm 4)."""

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


class RankedLabels(NamedTuple):
    """The best labels of each row among some, best first."""

    ids: Array  # (b, k)
    keys: Array  # (b, k) what they were ranked by
    values: Array  # (b, k) what is shown of them


MANY_BEST = 64  # labels per row from which on sorting beats inserting


class RunningTopK:
    """The k best labels of n rows, found block by block of labels in ascending order; only n x k numbers are held."""

    def __init__(self, n: int, k: int) -> None:
        if k < 1:
            raise DataError(f"k is {k}, and a row has at least 1 best label. Pass k >= 1.")
        self.k, self.labels = k, 0  # added so far
        self.among: Array | None = None  # which labels they are, where they are not all from 0 on
        self.ids = np.empty((n, k), np.int64)
        self.keys: Array = np.empty((n, k), np.float32)  # what is ranked by
        self.values: Array = np.empty((n, k), np.float32)  # what is shown of the best

    def add(self, keys: Array, shown: Array | None = None, labels: slice | Array | None = None) -> None:
        """Adds keys (n, m) of the next m labels, or of the only ones, as an array in ascending order, and what to show
        of them, which is the keys where not given."""
        self.among = labels if isinstance(labels, np.ndarray) else None
        shown = keys if shown is None else shown
        found = min(self.labels, self.k)
        if not found:
            self.keys, self.values = np.empty_like(self.keys, keys.dtype), np.empty_like(self.values, shown.dtype)
        fine = self._insert(keys, shown, found) if self.k <= MANY_BEST else self._merge(keys, shown, found)
        self.labels += keys.shape[1]
        if not fine:
            raise DataError(f"{np.isnan(keys).sum()} of {keys.size} scores are NaN. Check the features and the model.")

    def _insert(self, keys: Array, shown: Array, found: int) -> bool:
        from smoothlink.machines import prediction_kernels as selection

        keep = selection.keep_best_serial if keys.size <= selection.SERIAL else selection.keep_best
        keys, shown = np.ascontiguousarray(keys), np.ascontiguousarray(shown)  # one compiled kernel for all
        return bool(keep(keys, shown, self.labels, self.ids, self.keys, self.values, found))

    def _merge(self, keys: Array, shown: Array, found: int) -> bool:
        """Sorts the best of these after the best so far, so that equal scores stay in the order of their ids."""
        if keys.size and np.isnan(keys.max()):
            return False
        new = _sorted_head(keys, self.k)
        old = slice(0, found)
        ids = np.hstack([self.ids[:, old], new.indices + self.labels])
        ranked = np.hstack([self.keys[:, old], new.values])
        values = np.hstack([self.values[:, old], np.take_along_axis(shown, new.indices, axis=1)])
        order = np.argsort(-ranked, axis=1, kind="stable")[:, : self.k]
        head = slice(0, order.shape[1])
        for kept, all_of in ((self.ids, ids), (self.keys, ranked), (self.values, values)):
            kept[:, head] = np.take_along_axis(all_of, order, axis=1)
        return True

    def best(self) -> TopK:
        """Returns the k best, or all labels where they are fewer."""
        found = slice(0, min(self.labels, self.k))
        ids = self.ids[:, found] if self.among is None else self.among[self.ids[:, found]]
        return TopK(ids, self.values[:, found])

    def ranked(self, first: int) -> RankedLabels:
        """Returns the best with their keys, of labels that are numbered from `first` on."""
        best = self.best()
        return RankedLabels(best.indices + first, self.keys[:, : best.indices.shape[1]], best.values)


def merge_ranked(parts: list[RankedLabels], k: int) -> RankedLabels:
    """Returns the k best of parts that follow one another in the order of their labels."""
    columns = [np.hstack(column) for column in zip(*parts, strict=True)]
    order = np.argsort(-columns[1], axis=1, kind="stable")[:, :k]  # equal scores stay in the order of their ids
    return RankedLabels(*(np.take_along_axis(column, order, axis=1) for column in columns))


def top_k(scores: Array, k: int) -> TopK:
    """Returns the k highest scores of each row of a dense block (b, c); all c where c < k."""
    scores = np.asarray(scores)
    if scores.dtype not in (np.float32, np.float64):
        scores = scores.astype(np.float32 if scores.dtype == np.float16 else np.float64)
    ranking = RunningTopK(len(scores), k)
    ranking.add(scores)
    return ranking.best()


def _sorted_head(scores: Array, k: int) -> TopK:
    """Returns `top_k` by a sort, whose cost hardly depends on k."""
    b, c = scores.shape
    k = min(k, c)
    if not b * k:
        return TopK(np.empty((b, k), np.int64), np.empty((b, k), scores.dtype))
    entries = np.flatnonzero(_contenders(scores, k))
    rows, values = entries // c, scores.ravel()[entries]
    order = np.lexsort((-values, rows))  # stable: equal scores stay in the order of their ids
    first = np.searchsorted(rows, np.arange(b))  # (b,) where each row begins
    best = order[first[:, None] + np.arange(k)]
    return TopK(entries[best] % c, values[best])


def _contenders(scores: Array, k: int) -> Array:
    """Returns a mask (b, c) of the k best of each row and not many more, from a few passes over memory.

    Cut the columns into groups: the k-th best group maximum is a bound from below on the k-th best score, and less
    than k groups hold anything above it. (This is 5 times faster than argpartition at c = 25,000.)
    """
    size = max(1, min(64, scores.shape[1] // (8 * k)))  # columns per group; those left over need no group
    groups = scores.shape[1] // size
    heads = scores[:, : size * groups].reshape(len(scores), size, groups).max(axis=1) if size > 1 else scores
    bound = np.partition(heads, groups - k, axis=1)[:, groups - k, None]
    mask = np.asarray(scores >= bound)
    crowded = np.flatnonzero(np.count_nonzero(mask, axis=1) > k * size)  # many equal the bound: k of those suffice
    equal = scores[crowded] == bound[crowded]
    mask[crowded] &= ~equal | (np.cumsum(equal, axis=1, dtype=np.int32) <= k)
    return mask


def topk_csr(blocks: Iterable[TopK], n_labels: int) -> csr_array:
    """Returns blocks of rows stacked into one CSR (n, n_labels), k entries per row in *descending order of score*.

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
    """Returns the 0/1 sets (CSR, b x c) of labels with probability strictly above 1/2, the best for Hamming loss."""
    probabilities = np.asarray(probabilities)
    if probabilities.size and np.isnan(probabilities.max()):
        raise DataError(
            f"{np.isnan(probabilities).sum()} of {probabilities.size} probabilities are NaN. Check the model."
        )
    kind = np.result_type(probabilities, np.float32).type
    return sets_at(probabilities, np.full(probabilities.shape[1], np.nextafter(kind(0.5), kind(1))))


def f1_cut(z: Array, frequency: float, weights: Array | None = None) -> float:
    """Returns the cut of probabilities z (n,) of a label whose set {z >= cut} has the best expected F1 (Algorithm 4).

    `frequency` is the label's share of the training rows: n+ = frequency * n positives are expected. A label with
    n+ = 0, and one without a positive z, is never predicted: its cut is infinite. Rows may have weights (n,).
    """
    return float(f1_thresholds(np.asarray(z)[:, None], [frequency], weights)[0])


def f1_thresholds(Z: Array, frequencies: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """Returns `f1_cut` (b,) of each label of a block: Z (n, b) are probabilities, frequencies are (b,)."""
    Z, frequencies = np.asarray(Z, np.result_type(Z, np.float32)), np.asarray(frequencies, np.float64)
    w = np.ones(len(Z)) if weights is None else np.asarray(weights, np.float64)
    if frequencies.shape != Z.shape[1:] or w.shape != Z.shape[:1]:
        raise DataError(
            f"Z is {Z.shape}, frequencies {frequencies.shape}, weights {w.shape}. "
            "Pass one frequency per column and one weight per row."
        )
    if Z.size and not (Z.min() >= 0 and Z.max() <= 1 + 1e-6):  # the slack covers a float32 softmax
        raise DataError(
            f"F1 inference needs probabilities in [0, 1]; these range from {Z.min():.4g} to {Z.max():.4g}. "
            "Pass predict_proba, or clip scores with np.clip(Z, 0, 1)."
        )
    from smoothlink.machines import prediction_kernels as selection

    cuts: Array = selection.f1_cuts(np.ascontiguousarray(Z), frequencies * w.sum(), w)
    return cuts


def sets_at(Z: Array, thresholds: ArrayLike) -> csr_array:
    """Returns the 0/1 sets (CSR, n x b) where z >= the label's threshold and z > 0."""
    from smoothlink.machines import prediction_kernels as selection

    Z = np.ascontiguousarray(Z, np.result_type(Z, np.float32))
    cuts, counts = np.ascontiguousarray(thresholds, np.float64), np.empty(len(Z), np.int64)
    selection.count_members(Z, cuts, counts)
    starts = np.append(0, np.cumsum(counts))
    width = _index_type(starts[-1], Z.shape[1])
    indices = np.empty(starts[-1], width)
    selection.list_members(Z, cuts, starts, indices)
    # int64 is the type of scikit-learn's indicators; int8 would overflow in S'S.
    return csr_array((np.ones(len(indices), np.int64), indices, starts.astype(width)), Z.shape)


def _index_type(*largest: int) -> type[np.int32] | type[np.int64]:
    """Returns the integer type of a CSR: 32 bits where they suffice, because scikit-learn refuses 64 in places."""
    return np.int32 if max(largest) < 2**31 else np.int64


def propensities(label_counts: ArrayLike, n: int, a: float = 0.55, b: float = 1.5) -> Array:
    """Returns inverse propensities q (c,) = 1 + C (N_l + b)^-a, C = (ln n - 1)(b + 1)^a, of Jain et al. (2016).

    `label_counts` N_l and `n` are of the training set; N_l may be 0. C is taken as 0 for n < e, where it would be
    negative. (a, b) is (.5, .4) by custom for Wikipedia sets and (.6, 2.6) for Amazon ones.
    """
    C = max(0.0, np.log(max(n, 1)) - 1) * (b + 1) ** a
    return np.asarray(1 + C * (np.asarray(label_counts, np.float64) + b) ** -a)
