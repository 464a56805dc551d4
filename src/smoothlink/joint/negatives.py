"""Joint training with sampled negatives: its step, and the numba kernels around the step's matrix products.

Exact gradients of the logistic loss cost n s c per pass. Here a batch of rows is scored for some labels only, so that
the work is matrix products: the labels that any of its rows has, a few sampled at random, and hard negatives. Rows
whose embeddings are near form a group, and a batch has some groups: the hard negatives of a group are the labels of the
highest scores at its mean, by the weights so far. A label that is scored with probability q has its score lowered by
log q while training, which makes the fitted probabilities those of all labels.

Most gradients by a score are next to nothing. Of those the step takes a random sample that stands for all, so that the
products after the scores are of a sparse matrix.

h is scaled to a fixed length, and the link is linear. Scores of a batch are stored label by label, S (m, b): the sparse
weights of a label then touch one short row. No two threads write one number, so results repeat exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import prange
from numpy.typing import NDArray

from smoothlink.joint.batches import RowBatch, RowBatches, ranges
from smoothlink.joint.joint_training import NEGATIVES, JointRows, JointState, JointWeights, sparse_weights
from smoothlink.machines.compiled import compiled
from smoothlink.machines.kernels import forward, product
from smoothlink.steps.featurize import Features
from smoothlink.steps.infer import RunningTopK

Array = NDArray[Any]

# What was best on library titles (n = 567,000, c = 25,147), 20,000 rows of the training part being held out.
EMBEDDING_LENGTH = 3.0  # of h: at 2 and 5 half a point of P@1 is lost
RATE = 0.07  # of W, V and the intercepts
LEAST_INCLUSION = 1e-4  # probability that a label is scored
CERTAIN = 30.0  # a score beyond this is certain
SMALL_GRADIENT = 0.1  # a gradient by a score below this is sampled; from 0.02 to 0.2 nothing changes
HARD_NEGATIVES = 10  # for each group
SCORED_GROUPS = 2048  # at a time


@dataclass
class SampledState(JointState):
    """The state of the weights, that of the intercepts, which take the same steps, and the hard negatives."""

    b: Array  # (c, 1)
    b_squares: Array  # (c,)
    hard: Array  # (groups, HARD_NEGATIVES) labels, or (groups, 0) before they were looked for

    @classmethod
    def begin(cls, W: Array, intercepts: Array, pattern: sp.csr_array, groups: int) -> SampledState:
        """Returns the state where W (d, k) is given, V and D are 0 and the intercepts (c,) those of the frequencies."""
        c, b = len(intercepts), intercepts.astype(np.float32)[:, None]
        V, D = np.zeros((c, W.shape[1]), np.float32), np.zeros(pattern.nnz, np.float32)
        hard = np.zeros((groups, 0), np.int32)
        return cls.start(W, V, D, b=b, b_squares=np.zeros(c, np.float32), hard=hard)


def start_weights(first: Array, H: Array, k: int, rng: np.random.Generator) -> Array:
    """Returns W (d, k): the directions (d, m) of an embedding whose rows are H (n, m), then random ones."""
    d, m = len(first), min(k, first.shape[1])
    size = np.sqrt(max(float(np.einsum("ij,ij->", H[:, :m], H[:, :m], dtype=np.float64)) / max(1, len(H)), 1e-30))
    W = rng.standard_normal((d, k), dtype=np.float32) * np.float32(EMBEDDING_LENGTH / np.sqrt(k))
    W[:, :m] = first[:, :m] * np.float32(EMBEDDING_LENGTH * np.sqrt(m / k) / size)
    return W


class SampledStep:
    """One step on a batch of rows, for the labels of its rows and some sampled ones."""

    def __init__(
        self,
        rows: JointRows,
        pattern: sp.csr_array,
        batches: RowBatches,
        state: SampledState,
        negatives: int,
        small_gradient: float = SMALL_GRADIENT,
    ) -> None:
        self.rows, self.batches, self.state = rows, batches, state
        self.negatives, self.small_gradient = negatives, small_gradient
        by_label = pattern.tocsc()  # D is ordered label by label here
        self.shape, self.indptr, self.features = by_label.shape, by_label.indptr, by_label.indices
        self.group_labels = labels_of_groups(batches, rows.Y, state.hard)
        self.log_inclusion = log_inclusion(self.group_labels, batches.per_batch, negatives)
        self.label_place = np.full(rows.Y.shape[1], -1, np.int32)  # in the batch
        self.feature_place = np.full(rows.X.shape[1] + 1, -1, np.int32)
        self.found = np.empty(0, np.int32)  # sparse weights of the batch

    def __call__(self, batch: RowBatch, rate: float) -> None:
        A, s, rows = self.rows.X, self.state, batch.rows
        group, at = ranges(self.group_labels.indptr[batch.groups], self.group_labels.indptr[batch.groups + 1])
        own = self.group_labels.indices[at]
        labels = batch_labels(own, self.rows.Y.shape[1], self.negatives, batch.rng)
        self.label_place[labels] = np.arange(len(labels))
        features, starts, places, values = by_feature(*entries(rows, A.indptr, A.indices, A.data))
        H, lengths = np.empty((len(rows), s.W.shape[1]), np.float32), np.empty(len(rows), np.float32)
        rows_dot(rows, A.indptr, A.indices, A.data, s.W, H)
        to_length(H, lengths, EMBEDDING_LENGTH)
        V = s.V[labels]
        G = V @ H.T  # (m, b)
        self.feature_place[features] = np.arange(len(features))
        where = (self.feature_place, starts, places, values)
        if len(s.D):
            ends = np.cumsum(self.indptr[labels + 1] - self.indptr[labels], dtype=np.int64)
            room = np.append(0, ends[:-1])
            if ends[-1] > len(self.found):
                self.found = np.empty(2 * ends[-1], np.int32)
            counts = add_sparse(G, labels, self.indptr, self.features, s.D, *where, room, self.found)
        self.to_gradient(G, labels, self.label_place[own], group, batch)
        if len(s.D):
            sparse_rate = NEGATIVES.sparse_rate * rate
            step_sparse(G, self.features, s.D, s.d_squares, *where, room, self.found, counts, sparse_rate)
        step_rows(s.b, s.b_squares, labels, G.sum(axis=1)[:, None], RATE * rate)
        sampled = sample_entries(G, self.small_gradient, batch.rng.random(len(labels), np.float32))
        back = sparse_product(sp.csr_array(sampled.T), V)  # (b, k)
        through_length(back, H, lengths, EMBEDDING_LENGTH)
        step_rows(s.V, s.v_squares, labels, sparse_product(sampled, H), RATE * rate)
        step_features(s.W, s.w_squares, features, starts, places, values, back, RATE * rate)
        self.label_place[labels] = -1
        self.feature_place[features] = -1

    def to_gradient(self, S: Array, labels: Array, own: Array, group: Array, batch: RowBatch) -> None:
        """Turns scores (m, b) into the gradient of the loss by them, in place: weighted probabilities less labels.

        `own` are places of labels that are always scored for the rows of `group`.
        """
        b, w, Y = self.state.b[labels, 0], self.rows.w[batch.rows], self.rows.Y
        offsets = np.repeat((b - self.log_inclusion[labels])[:, None], len(batch.groups), axis=1)
        offsets[own, group] = b[own]
        to_probabilities = class_probabilities if self.rows.softmax else probabilities
        to_probabilities(S, offsets, batch.group, w)
        row, at = ranges(Y.indptr[batch.rows], Y.indptr[batch.rows + 1])
        labels_of_row = Y.indptr[batch.rows + 1] - Y.indptr[batch.rows]
        S[self.label_place[Y.indices[at]], row] -= w[row] / (labels_of_row[row] if self.rows.softmax else np.float32(1))

    def find_hard_negatives(self) -> None:
        """Finds the labels of the highest scores at the mean of each group, of which the next batches score all."""
        s, A, b = self.state, self.rows.X, self.batches
        if self.negatives >= len(s.V):
            return
        k = min(HARD_NEGATIVES, len(s.V))
        s.hard = np.zeros((b.groups, k), np.int32)
        for first in range(0, b.groups, SCORED_GROUPS):
            starts = b.starts[first : first + SCORED_GROUPS + 1]
            rows = b.rows[starts[0] : starts[-1]]
            H, lengths = np.empty((len(rows), s.W.shape[1]), np.float32), np.empty(len(rows), np.float32)
            rows_dot(rows, A.indptr, A.indices, A.data, s.W, H)
            to_length(H, lengths, EMBEDDING_LENGTH)
            means = np.add.reduceat(H, starts[:-1] - starts[0]) / np.diff(starts)[:, None].astype(np.float32)
            scores = means @ s.V.T
            scores += s.b[:, 0]
            best = RunningTopK(len(means), k)
            best.add(scores)
            s.hard[first : first + len(means)] = best.ids
        self.group_labels = labels_of_groups(b, self.rows.Y, s.hard)
        self.log_inclusion = log_inclusion(self.group_labels, b.per_batch, self.negatives)

    def weights(self) -> JointWeights:
        """Returns the weights for embeddings of unit length; h has no intercept."""
        s, k = self.state, self.state.W.shape[1]
        return JointWeights(
            W=np.vstack([s.W, np.zeros((1, k), np.float32)]),
            features=Features(np.zeros((k, 0), np.float32), np.zeros(0, np.float32)),
            V=np.vstack([np.float32(EMBEDDING_LENGTH) * s.V.T, s.b.T]),
            D=sparse_weights(sp.csc_array((s.D, self.features, self.indptr), self.shape).tocsr()),
            normalize=True,
        )


def batch_labels(own: Array, c: int, negatives: int, rng: np.random.Generator) -> Array:
    """Returns the labels (m,) that a batch is scored for, ascending: those of its groups, and some sampled ones."""
    if negatives >= c:
        return np.arange(c, dtype=own.dtype)
    return np.unique(np.concatenate([own, rng.integers(0, c, negatives).astype(own.dtype)]))


def labels_of_groups(batches: RowBatches, Y: sp.csr_array, hard: Array) -> sp.csr_array:
    """Returns which labels (groups, c) are scored for each group: those of its rows, and its hard negatives."""
    groups, c = batches.groups, Y.shape[1]
    group, at = ranges(Y.indptr[batches.rows], Y.indptr[batches.rows + 1])
    group = np.repeat(np.arange(groups), np.diff(batches.starts))[group]
    pairs = np.concatenate([group * c + Y.indices[at], (np.arange(groups)[:, None] * c + hard).ravel()])
    pairs = np.unique(pairs)
    starts = np.searchsorted(pairs, np.arange(groups + 1) * c)
    return sp.csr_array((np.ones(len(pairs), np.int8), pairs % c, starts), (groups, c))


def log_inclusion(group_labels: sp.csr_array, per_batch: int, negatives: int) -> Array:
    """Returns log q (c,): how likely a batch is to score each label because of its other groups or by sampling."""
    groups, c = group_labels.shape
    if negatives >= c:
        return np.zeros(c, np.float32)
    share = np.bincount(group_labels.indices, minlength=c) / max(1, groups)
    missed = (1 - share) ** (per_batch - 1) * (1 - 1 / c) ** negatives
    return np.log(np.clip(1 - missed, LEAST_INCLUSION, 1)).astype(np.float32)


def by_feature(columns: Array, places: Array, values: Array) -> tuple[Array, Array, Array, Array]:
    """Returns the entries of a batch sorted by column: columns, where each starts, rows and values."""
    order = np.argsort(columns, kind="stable")
    columns = columns[order]
    starts = np.flatnonzero(np.diff(columns, prepend=-1))
    return columns[starts], np.append(starts, len(columns)), places[order], values[order]


@compiled(parallel=True, fastmath=True)
def rows_dot(rows: Array, indptr: Array, indices: Array, data: Array, W: Array, out: Array) -> None:
    """Writes X[rows] W to `out`, X in CSR."""
    k = W.shape[1]
    for i in prange(len(rows)):
        r = rows[i]
        total = out[i]
        for t in range(k):
            total[t] = 0
        for p in range(indptr[r], indptr[r + 1]):
            v, source = data[p], W[indices[p]]
            for t in range(k):
                total[t] += v * source[t]


@compiled(parallel=True, fastmath=True)
def to_length(H: Array, lengths: Array, length: float) -> None:
    """Scales the rows of H to this length, in place, and writes the `lengths` (b,) that they had; zeros stay."""
    for i in prange(len(H)):
        row, total = H[i], np.float32(0)
        for t in range(H.shape[1]):
            total += row[t] * row[t]
        lengths[i] = np.sqrt(total)
        factor = np.float32(length) / lengths[i] if total > 0 else np.float32(0)
        for t in range(H.shape[1]):
            row[t] *= factor


@compiled(parallel=True, fastmath=True)
def through_length(G: Array, H: Array, lengths: Array, length: float) -> None:
    """Turns the gradient G of scaled rows H into that of the rows before they were scaled, in place."""
    size = np.float32(length)
    for i in prange(len(H)):
        g, h, along = G[i], H[i], np.float32(0)
        for t in range(H.shape[1]):
            along += g[t] * h[t]
        along /= size * size
        factor = size / lengths[i] if lengths[i] > 0 else np.float32(0)
        for t in range(H.shape[1]):
            g[t] = (g[t] - along * h[t]) * factor


@compiled()
def entries(rows: Array, indptr: Array, indices: Array, data: Array) -> tuple[Array, Array, Array]:
    """Returns the entries of some rows of a CSR matrix: columns, positions in `rows`, values."""
    count = 0
    for r in rows:
        count += indptr[r + 1] - indptr[r]
    columns, places = np.empty(count, np.int32), np.empty(count, np.int32)
    values = np.empty(count, data.dtype)
    at = 0
    for i in range(len(rows)):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            columns[at], places[at], values[at] = indices[p], i, data[p]
            at += 1
    return columns, places, values


@compiled(parallel=True)
def add_sparse(
    S: Array,
    labels: Array,
    indptr: Array,
    features: Array,
    D: Array,
    at: Array,
    starts: Array,
    rows: Array,
    values: Array,
    room: Array,
    found: Array,
) -> Array:
    """Adds the sparse weights D of each label to S (m, b), writes which ones to `found`, and returns how many (m,).

    Feature f stands at place at[f] in the batch, if at all, and there in `rows` with `values` from its start to the
    next. Label j writes the positions of its weights in D from room[j] on.
    """
    counts = np.zeros(len(labels), np.int64)
    for j in prange(len(labels)):
        row, count = S[j], room[j]
        for p in range(indptr[labels[j]], indptr[labels[j] + 1]):  # without a branch, which few guesses would meet
            found[count] = p
            count += at[features[p]] >= 0
        for i in range(room[j], count):
            p = found[i]
            q = at[features[p]]
            for t in range(starts[q], starts[q + 1]):
                row[rows[t]] += values[t] * D[p]
        counts[j] = count - room[j]
    return counts


@compiled(parallel=True)  # not fastmath: most sums are of one or two terms, and vectors of them take longer
def step_sparse(
    G: Array,
    features: Array,
    D: Array,
    squares: Array,
    at: Array,
    starts: Array,
    rows: Array,
    values: Array,
    room: Array,
    found: Array,
    counts: Array,
    rate: float,
) -> None:
    """Moves the weights that were found against the gradient G (m, b) of the scores, in place, by Adagrad."""
    for j in prange(len(counts)):
        row = G[j]
        for i in range(room[j], room[j] + counts[j]):
            p = found[i]
            q, g = at[features[p]], np.float32(0)
            for t in range(starts[q], starts[q + 1]):
                g += values[t] * row[rows[t]]
            squares[p] += g * g
            D[p] -= np.float32(rate) * g / np.sqrt(squares[p])


@compiled(parallel=True, fastmath=True)
def probabilities(S: Array, offsets: Array, group: Array, weights: Array) -> None:
    """Turns S (m, b) into weights * sigmoid(S + offsets (m, groups) of each row's group), in place."""
    m, b = S.shape
    for j in prange(m):
        row, shift = S[j], offsets[j]
        for i in range(b):
            row[i] = weights[i] * sigmoid(row[i] + shift[group[i]])


@compiled(fastmath=True)
def sigmoid(z: Any) -> Any:
    """Returns 1 / (1 + exp(-z)), to 1e-4 of it for |z| < 10, without a call, so that loops of it are vectorised."""
    u = min(max(z, np.float32(-CERTAIN)), np.float32(CERTAIN)) * np.float32(-1 / 64)
    e = np.float32(1) + u * (np.float32(1) + u * (np.float32(1 / 2) + u * (np.float32(1 / 6) + u * np.float32(1 / 24))))
    for _ in range(6):  # exp(-z) = exp(-z / 64) ** 64
        e *= e
    return np.float32(1) / (np.float32(1) + e)


@compiled(parallel=True, fastmath=True)
def class_probabilities(S: Array, offsets: Array, group: Array, weights: Array) -> None:
    """Turns S (m, b) into weights * softmax over labels of S + offsets (m, groups) of each row's group, in place."""
    m, b = S.shape
    for i in prange(b):
        g, top, total = group[i], np.float32(-1e30), np.float32(0)
        for j in range(m):
            S[j, i] += offsets[j, g]
            top = max(top, S[j, i])
        for j in range(m):
            S[j, i] = np.exp(S[j, i] - top)
            total += S[j, i]
        for j in range(m):
            S[j, i] *= weights[i] / total


def sample_entries(G: Array, small: float, offsets: Array) -> sp.csr_array:
    """Returns a sparse matrix whose expectation is G (m, b): the entries of G, but of those below `small` a few that
    stand for all, with `small` as their size.

    Along each row one is selected wherever the sum of the sizes so far passes a multiple of `small` (systematic
    sampling from the offset (m,) in [0, 1) of the row): an entry of size g is selected with probability g / small.
    """
    starts, columns, values = sampled_entries(G, np.float32(small), offsets)
    return sp.csr_array((values, columns, starts), G.shape)


def sparse_product(A: sp.csr_array, B: Array) -> Array:
    """Returns A B on all cores."""
    out = np.empty((A.shape[0], B.shape[1]), np.float32)
    product(forward(A.indptr, A.indices, A.data, A.shape[1]), B, out)
    return out


@compiled(parallel=True)
def sampled_entries(G: Array, small: float, offsets: Array) -> tuple[Array, Array, Array]:
    """Returns the CSR arrays of `sample_entries`."""
    m, b = G.shape
    columns, values, counts = np.empty((m, b), np.int32), np.empty((m, b), np.float32), np.zeros(m + 1, np.int64)
    for j in prange(m):
        row, total, count = G[j], offsets[j] * small, 0
        for i in range(b):
            size = abs(row[i])
            value = row[i]
            if size < small:
                total += size
                if total < small:
                    continue
                total -= small
                value = small if value > 0 else -small
            columns[j, count], values[j, count] = i, value
            count += 1
        counts[j + 1] = count
    starts = np.cumsum(counts)
    some_columns, some_values = np.empty(starts[m], np.int32), np.empty(starts[m], np.float32)
    for j in prange(m):
        for i in range(counts[j + 1]):
            some_columns[starts[j] + i], some_values[starts[j] + i] = columns[j, i], values[j, i]
    return starts, some_columns, some_values


@compiled(parallel=True, fastmath=True)
def step_rows(A: Array, squares: Array, rows: Array, G: Array, rate: float) -> None:
    """Moves A[rows] by -rate G / the root of the mean squares so far (Adagrad with one rate per row), in place."""
    k = A.shape[1]
    for i in prange(len(rows)):
        r, g = rows[i], G[i]
        size = np.float32(0)
        for t in range(k):
            size += g[t] * g[t]
        squares[r] += size / np.float32(k)
        if squares[r] > 0:
            factor, row = np.float32(rate) / np.sqrt(squares[r]), A[r]
            for t in range(k):
                row[t] -= factor * g[t]


@compiled(parallel=True, fastmath=True)
def step_features(
    W: Array, squares: Array, features: Array, starts: Array, places: Array, values: Array, G: Array, rate: float
) -> None:
    """Moves the rows of W in the same way; feature i of the batch has the entries starts[i] .. starts[i + 1].

    G (b, k) is the gradient of the embedded rows.
    """
    k = W.shape[1]
    for i in prange(len(features)):
        g = np.zeros(k, np.float32)
        for p in range(starts[i], starts[i + 1]):
            v, source = values[p], G[places[p]]
            for t in range(k):
                g[t] += v * source[t]
        size = np.float32(0)
        for t in range(k):
            size += g[t] * g[t]
        f = features[i]
        squares[f] += size / np.float32(k)
        if squares[f] > 0:
            factor, row = np.float32(rate) / np.sqrt(squares[f]), W[f]
            for t in range(k):
                row[t] -= factor * g[t]
