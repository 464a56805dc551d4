"""X, Y -> W, V and D trained together: logistic or softmax descent with labels that a batch of rows shares.

Exact gradients of the logistic loss cost n s c a pass. Here a batch of rows sees only the labels that any of them has
and a few drawn at random, so that the work is matrix products. A label seen with probability q has its score lowered
by log q while training, which makes the fitted probabilities those of all labels. Rows that are alike share a batch:
the labels of one are the hard negatives of the others.

The score of label l is v_l'u + b_l + x'd_l, where u is the embedding W'x at a fixed length and d_l has weights for the
features only that l was seen with: rare labels hang on single words, which few directions cannot tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.arrays import unit_rows
from smoothlink.steps.squared import prior

Array = NDArray[Any]

# What was best on library titles (n = 567,000, c = 25,147), 20,000 rows of the training part being held out.
GROUP_ROWS = 17  # alike rows that go together; 8 to 34 are as good, 69 and 276 worse
LENGTH = 3.0  # of embedded rows: at 2 and 5 half a point of P@1 is lost
RATE = 0.07  # of W and V
DIRECT_RATE = 2.0  # of D, whose squares begin at 3
DIRECT_START = 3.0
DIRECT_SHARE, DIRECT_ROWS = 0.002, 500  # features of more rows than either have no D: they say least and cost most
LEAST_SHARE = 1e-4


class Sampling(NamedTuple):
    """The knobs of the joint descent."""

    passes: int = 4
    learning_rate: float = 1.0  # times the rates above
    negatives: int = 500  # labels drawn at random for each batch
    batch: int = 544  # rows
    direct: bool = True  # whether labels have weights for single features


class LabelFeaturePairs(NamedTuple):
    """The pairs of a label and a feature that were seen in one row, label by label."""

    indptr: Array  # (c + 1,)
    features: Array  # ascending within a label


@dataclass
class JointState:
    """All that a descent needs to go on: weights, the squares of their gradients, and how many passes are done."""

    W: Array  # (d, k)
    V: Array  # (c, k)
    b: Array  # (c, 1)
    D: Array  # (pairs,)
    w_squares: Array  # (d,)
    v_squares: Array  # (c,)
    b_squares: Array  # (c,)
    d_squares: Array  # (pairs,)
    done: int = 0

    def decoder(self) -> Array:
        """V (k + 1, c) for embeddings of unit length, the constant last."""
        return np.vstack([np.float32(LENGTH) * self.V.T, self.b.T])


def start_weights(first: Array, H: Array, k: int, rng: np.random.Generator) -> Array:
    """W (d, k): the directions (d, m) of an embedding whose rows are H (n, m), and random ones, which learn as well."""
    d, m = len(first), min(k, first.shape[1])
    size = np.sqrt(max(float(np.einsum("ij,ij->", H[:, :m], H[:, :m], dtype=np.float64)) / max(1, len(H)), 1e-30))
    W = rng.standard_normal((d, k), dtype=np.float32) * np.float32(LENGTH / np.sqrt(k))
    W[:, :m] = first[:, :m] * np.float32(LENGTH * np.sqrt(m / k) / size)
    return W


def initial_state(W: Array, counts: Array, total: float, pairs: LabelFeaturePairs, *, softmax: bool) -> JointState:
    """W as it is, V and D at zero, the constant at the labels' frequencies."""
    d, k, c = *W.shape, len(counts)
    p = prior(counts, total)
    b = np.log(p / p.sum()) if softmax else np.log(p / (1 - p))
    zeros = [np.zeros(shape, np.float32) for shape in ((c, k), len(pairs.features), d, c, c)]
    V, D, w_squares, v_squares, b_squares = zeros
    d_squares = np.full(len(D), DIRECT_START, np.float32)
    return JointState(W, V, b.astype(np.float32)[:, None], D, w_squares, v_squares, b_squares, d_squares)


def cooccurring_pairs(X: sp.csr_array, Y: sp.csr_array, rows: Array) -> LabelFeaturePairs:
    """Which features (n, d) each label (n, c) was seen with in these rows, but for those that many rows have."""
    X, Y = X[rows], Y[rows]
    often = np.bincount(X.indices, minlength=X.shape[1]) > max(DIRECT_ROWS, DIRECT_SHARE * len(rows))
    X = without_columns(X, often)
    ones = (np.ones(A.nnz, np.float32) for A in (X, Y))
    X, Y = (sp.csr_array((one, A.indices, A.indptr), A.shape) for one, A in zip(ones, (X, Y), strict=True))
    P = sp.csr_array(Y.T.tocsr() @ X)
    P.sort_indices()
    return LabelFeaturePairs(P.indptr.astype(np.int64), P.indices.astype(np.int32))


def without_columns(X: sp.csr_array, columns: Array) -> sp.csr_array:
    """X without the entries of these columns."""
    keep = ~columns[X.indices]
    indptr = np.append(0, np.cumsum(keep))[X.indptr]
    return sp.csr_array((X.data[keep], X.indices[keep], indptr), X.shape)


def no_pairs(c: int) -> LabelFeaturePairs:
    return LabelFeaturePairs(np.zeros(c + 1, np.int64), np.zeros(0, np.int32))


def train_with_negatives(
    X: sp.csr_array,
    Y: sp.csr_array,
    w: Array,
    groups: list[Array],
    state: JointState,
    pairs: LabelFeaturePairs,
    *,
    softmax: bool,
    knobs: Sampling,
    seed: int,
    tell: Callable[[float], None] = lambda share: None,
) -> Iterator[JointState]:
    """The state after each pass over `groups` of alike rows, trained in place; it goes on after those done."""
    together = max(1, round(knobs.batch * len(groups) / max(1, sum(map(len, groups)))))
    a_pass = -(-len(groups) // together)
    step = Step(X, Y, w, state, pairs, unseen_logs(groups, Y, together, knobs.negatives), softmax, knobs)
    while state.done < knobs.passes:
        for i, (rows, group) in enumerate(batches(groups, together, state.done, seed)):
            number = state.done * a_pass + i
            share = number / (knobs.passes * a_pass)
            step(rows, group, knobs.learning_rate * (1 - share), np.random.default_rng([seed, 7, number]))
            if i % 64 == 0:
                tell(share)
        state.done += 1
        yield state


class Step:
    """One step of the descent on a batch of rows."""

    def __init__(
        self,
        X: sp.csr_array,
        Y: sp.csr_array,
        w: Array,
        state: JointState,
        pairs: LabelFeaturePairs,
        missed: Array,
        softmax: bool,
        knobs: Sampling,
    ) -> None:
        from smoothlink.joint import kernels_for_negatives as kernels

        self.kernels, self.X, self.Y, self.w, self.state, self.pairs = kernels, X, Y, w, state, pairs
        self.missed, self.softmax, self.negatives = missed, softmax, knobs.negatives
        self.place = np.full(Y.shape[1], -1, np.int32)  # of labels in the batch
        self.at = np.full(X.shape[1], -1, np.int32)  # of features in the batch
        self.found = np.empty(0, np.int64)  # pairs of the batch

    def __call__(self, rows: Array, group: Array, pace: float, rng: np.random.Generator) -> None:
        """Moves all weights by one step; `pace` is a multiple of the rates."""
        K, A, s = self.kernels, self.X, self.state
        labels, at, who = batch_labels(rows, self.Y, self.negatives, rng, self.place)
        words, starts, places, values = by_feature(*K.entries(rows, A.indptr, A.indices, A.data))
        H, lengths = np.empty((len(rows), s.W.shape[1]), np.float32), np.empty(len(rows), np.float32)
        K.rows_dot(rows, A.indptr, A.indices, A.data, s.W, H)
        K.to_length(H, lengths, LENGTH)
        V = s.V[labels]
        G = V @ H.T  # (m, b)
        self.at[words] = np.arange(len(words))
        where, room = (self.at, starts, places, values), self.room(labels)
        if len(s.D):
            counts = K.add_direct(G, labels, *self.pairs, s.D, *where, room, self.found)
        self.activate(G, labels, at, who, group, rows)
        back = G.T @ V
        K.through_length(back, H, lengths, LENGTH)
        if len(s.D):
            rate = DIRECT_RATE * pace
            K.step_direct(G, self.pairs.features, s.D, s.d_squares, *where, room, self.found, counts, rate)
        K.step_rows(s.V, s.v_squares, labels, G @ H, RATE * pace)
        K.step_rows(s.b, s.b_squares, labels, G.sum(axis=1)[:, None], RATE * pace)
        K.step_words(s.W, s.w_squares, words, starts, places, values, back, RATE * pace)
        self.place[labels] = -1
        self.at[words] = -1

    def room(self, labels: Array) -> Array:
        """Where the pairs of each label begin in `found`, which is made large enough."""
        ends = np.cumsum(self.pairs.indptr[labels + 1] - self.pairs.indptr[labels])
        if ends[-1] > len(self.found):
            self.found = np.empty(2 * ends[-1], np.int64)
        return np.append(0, ends[:-1])

    def activate(self, S: Array, labels: Array, at: Array, who: Array, group: Array, rows: Array) -> None:
        """Scores (m, b) -> the gradient of the loss by them, in place: weighted probabilities less labels."""
        b, w = self.state.b[labels, 0], self.w[rows]
        offsets = np.repeat((b - self.missed[labels])[:, None], group[-1] + 1, axis=1)
        offsets[at, group[who]] = b[at]  # labels of a row's own group are always seen
        to_probabilities = self.kernels.class_probabilities if self.softmax else self.kernels.probabilities
        to_probabilities(S, offsets, group, w)
        S[at, who] -= w[who] / (label_count(rows, self.Y)[who] if self.softmax else np.float32(1))


def batches(groups: list[Array], together: int, sweep: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Rows (b,) and the group (b,) of each, numbered within the batch; groups in a new order each pass."""
    order = np.random.default_rng([seed, 6, sweep]).permutation(len(groups))
    for start in range(0, len(order), together):
        part = [groups[g] for g in order[start : start + together]]
        yield np.concatenate(part), np.repeat(np.arange(len(part)), [len(rows) for rows in part])


def batch_labels(
    rows: Array, Y: sp.csr_array, negatives: int, rng: np.random.Generator, place: Array
) -> tuple[Array, Array, Array]:
    """The labels (m,) that a batch sees, and of each 1 in its rows the place of the label and of the row."""
    begins, counts = Y.indptr[rows], label_count(rows, Y)
    who = np.repeat(np.arange(len(rows)), counts)
    inside = np.arange(len(who)) - np.repeat(np.cumsum(counts) - counts, counts)
    own = Y.indices[np.repeat(begins, counts) + inside]
    if negatives < Y.shape[1]:
        drawn = rng.integers(0, Y.shape[1], negatives)
        labels = np.unique(np.concatenate([own, drawn.astype(own.dtype)]))
    else:
        labels = np.arange(Y.shape[1], dtype=own.dtype)
    place[labels] = np.arange(len(labels))
    return labels, place[own], who


def label_count(rows: Array, Y: sp.csr_array) -> Array:
    return Y.indptr[rows + 1] - Y.indptr[rows]


def unseen_logs(groups: list[Array], Y: sp.csr_array, together: int, negatives: int) -> Array:
    """log q (c,): how likely a batch is to see each label through its other groups or the random draw."""
    c = Y.shape[1]
    if negatives >= c:
        return np.zeros(c, np.float32)
    number = np.full(Y.shape[0], -1, np.int64)
    for g, rows in enumerate(groups):
        number[rows] = g
    owner = np.repeat(number, np.diff(Y.indptr))
    pairs = np.unique(owner[owner >= 0] * c + Y.indices[owner >= 0])
    share = np.bincount(pairs % c, minlength=c) / max(1, len(groups))
    missed = (1 - share) ** (together - 1) * (1 - 1 / c) ** negatives
    return np.log(np.clip(1 - missed, LEAST_SHARE, 1)).astype(np.float32)


def by_feature(columns: Array, places: Array, values: Array) -> tuple[Array, Array, Array, Array]:
    """The entries of a batch sorted by column: columns, where each begins, rows and values."""
    order = np.argsort(columns, kind="stable")
    columns = columns[order]
    begins = np.flatnonzero(np.concatenate([[True], columns[1:] != columns[:-1]])) if len(columns) else np.zeros(0, int)
    return columns[begins], np.append(begins, len(columns)), places[order], values[order]


def cluster_rows(H: Array, rows: Array, size: int, seed: int) -> list[Array]:
    """`rows` in groups of about `size` whose embeddings H (n, k) point the same way: halved by 2-means again and again.

    Each half has as many rows as the other, so the cost is n k log2(n / size), a few times.
    """
    order = np.random.default_rng([seed, 8]).permutation(rows)
    Z = unit_rows(np.ascontiguousarray(H[order], np.float32))
    parts = [np.arange(len(order))]
    for _ in range(max(0, int(np.ceil(np.log2(max(1, len(order)) / size))))):
        parts = [half for part in parts for half in split_in_two(Z, part)]
    return [np.sort(order[part]) for part in parts if len(part)]


def split_in_two(Z: Array, part: Array, rounds: int = 3) -> tuple[Array, Array]:
    """Two halves of some rows, apart along the line between their means."""
    if len(part) < 2:
        return part, part[:0]
    z, middle = Z[part], len(part) // 2
    axis = z[0] - z[1]
    cut = np.arange(len(part))
    for _ in range(rounds):
        cut = np.argpartition(z @ axis, middle)
        axis = z[cut[middle:]].mean(axis=0) - z[cut[:middle]].mean(axis=0)
    return part[cut[:middle]], part[cut[middle:]]


def sparse_weights_of(state: JointState, pairs: LabelFeaturePairs, d: int) -> sp.csr_array:
    """D (d, c), feature by feature, without the pairs that stayed at zero."""
    D = sp.csr_array((state.D, pairs.features, pairs.indptr), (len(state.V), d)).T.tocsr()
    D.eliminate_zeros()
    return D
