"""Joint training with sampled negatives: its step, and the numba kernels around the step's matrix products.

Exact gradients of the logistic loss cost n s c per pass. Here a batch of rows is scored for some labels only, so that
the work is matrix products: the labels that any of its rows has, a few sampled at random, and hard negatives. Rows
whose embeddings are near form a group, and a batch has some groups: the hard negatives of a group are the labels of the
highest scores at its mean, by the weights so far. A label that is scored with probability q has its score lowered by
log q while training, which makes the fitted probabilities those of all labels.

Most gradients by a score are next to nothing. Of those the step takes a random sample that stands for all, so that all
that follows the scores but the intercepts' step is of a sparse matrix. A sparse weight whose gradient was never sampled
stays 0, and is not stored.

h is scaled to a fixed length, and the link is linear. Scores of a batch are stored label by label, S (m, b): the sparse
weights of a label then touch one short row. No two threads write one number, so results repeat exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import prange
from numpy.typing import NDArray

from smoothlink.joint.batches import RowBatch, RowBatches, ranges
from smoothlink.joint.joint_training import NEGATIVES, JointRows, JointState, JointWeights, sparse_weights
from smoothlink.machines.compiled import compiled
from smoothlink.machines.rows_in_files import SparseFile
from smoothlink.machines.sparse_weights import SparseWeights
from smoothlink.machines.threads import dense_product
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
SCORED_GROUPS, SCORES = 2048, 1 << 25  # at a time, at most
STEPPED_LABELS = 16  # at a time by one thread


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

    @classmethod
    def of_weights(cls, weights: JointWeights, pattern: sp.csr_array, groups: int) -> SampledState:
        """Returns the state of weights that `SampledStep.weights` returned, before any step; the pattern has all of
        their sparse weights."""
        D = np.zeros(pattern.nnz, np.float32)
        if weights.D is not None:
            D[sparse_places(weights.D, pattern)] = weights.D.weights()
        V = np.ascontiguousarray(weights.V[:-1].T) / np.float32(EMBEDDING_LENGTH)
        b, W = np.array(weights.V[-1:].T, np.float32), np.array(weights.W[:-1], np.float32)
        hard = np.zeros((groups, 0), np.int32)
        return cls.start(W, V, D, b=b, b_squares=np.zeros(len(b), np.float32), hard=hard)


class BatchFeatures(NamedTuple):
    """The entries of a batch of rows, feature by feature and row by row."""

    features: Array  # (f,) numbers, in the order in which they first occur
    starts: Array  # (f + 1,) where the entries of each begin
    rows: Array
    values: Array
    row_starts: Array  # (b + 1,) where the entries of each row begin
    row_places: Array  # places in `features`
    row_values: Array


class UsedWeights(NamedTuple):
    """The sparse weights that a batch uses, label by label: those of features that some row of the batch has."""

    starts: Array  # (m,) where those of each label begin
    counts: Array  # (m,)
    number: Array  # of the weight in D
    place: Array  # of its feature among those of the batch


class Sampled(NamedTuple):
    """The gradients by a score that a step takes: for each label the first few of a row of length b."""

    counts: Array  # (m,)
    rows: Array  # (m, b)
    values: Array  # (m, b)


def start_weights(first: Array, H: Array, k: int, rng: np.random.Generator) -> Array:
    """Returns W (d, k): the directions (d, m) of an embedding whose rows are H (n, m), then random ones."""
    d, m = len(first), min(k, first.shape[1])
    size = np.sqrt(max(float(np.einsum("ij,ij->", H[:, :m], H[:, :m], dtype=np.float64)) / max(1, len(H)), 1e-30))
    W = rng.standard_normal((d, k), dtype=np.float32)
    W *= np.float32(EMBEDDING_LENGTH / np.sqrt(k))
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
        self.room = np.empty((2, 0), np.int32)  # of the sparse weights that a batch uses, and of their features

    def __call__(self, batch: RowBatch, rate: float) -> None:
        s, (A, rows) = self.state, loaded_rows(self.rows.X, batch.rows)
        group, at = ranges(self.group_labels.indptr[batch.groups], self.group_labels.indptr[batch.groups + 1])
        own = self.group_labels.indices[at]
        labels = batch_labels(own, self.rows.Y.shape[1], self.negatives, batch.rng)
        self.label_place[labels] = np.arange(len(labels))
        x = batch_features(rows, A.indptr, A.indices, A.data, self.feature_place)
        H, lengths = np.empty((len(rows), s.W.shape[1]), np.float32), np.empty(len(rows), np.float32)
        embed(rows, A.indptr, A.indices, A.data, s.W, EMBEDDING_LENGTH, H, lengths)
        V = s.V[labels]
        G = dense_product(V, H.T)  # (m, b)
        used = self.add_sparse(G, labels, x)
        self.to_gradient(G, labels, self.label_place[own], group, batch)
        offsets = batch.rng.random(len(labels), np.float32)
        sampled = Sampled(np.zeros(len(labels), np.int32), np.empty(G.shape, np.int32), np.empty(G.shape, np.float32))
        step_labels(
            *(G, labels, H, x, used, self.small_gradient, offsets, sampled),
            *(s.V, s.v_squares, s.b, s.b_squares, s.D, s.d_squares),
            *(RATE * rate, NEGATIVES.sparse_rate * rate),
        )
        back = np.empty_like(H)
        gradient_of_rows(*by_row(sampled, len(rows)), V, H, lengths, EMBEDDING_LENGTH, back)
        step_features(s.W, s.w_squares, x, back, RATE * rate)
        self.label_place[labels] = -1
        self.feature_place[x.features] = -1

    def add_sparse(self, S: Array, labels: Array, x: BatchFeatures) -> UsedWeights:
        """Adds the sparse weights to the scores S (m, b), and returns which of them the batch uses."""
        ends = np.cumsum(self.indptr[labels + 1] - self.indptr[labels], dtype=np.int64)
        if ends[-1] > len(self.room[0]):
            self.room = np.empty((2, 2 * ends[-1]), np.int32)
        used = UsedWeights(np.append(0, ends[:-1]), np.zeros(len(labels), np.int64), *self.room)
        if len(self.state.D):
            add_sparse(S, labels, self.indptr, self.features, self.state.D, self.feature_place, x, used)
        return used

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
        s, b = self.state, self.batches
        if self.negatives >= len(s.V):
            return
        k = min(HARD_NEGATIVES, len(s.V))
        s.hard = np.zeros((b.groups, k), np.int32)
        step = min(SCORED_GROUPS, max(1, SCORES // len(s.V)))
        for first in range(0, b.groups, step):
            starts = b.starts[first : first + step + 1]
            A, rows = loaded_rows(self.rows.X, b.rows[starts[0] : starts[-1]])
            H, lengths = np.empty((len(rows), s.W.shape[1]), np.float32), np.empty(len(rows), np.float32)
            embed(rows, A.indptr, A.indices, A.data, s.W, EMBEDDING_LENGTH, H, lengths)
            means = group_means(H, starts - starts[0])
            scores = dense_product(means, s.V.T)
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
            D=sparse_weights(sp.csc_array((s.D, self.features, self.indptr), self.shape)),
            normalize=True,
        )


def sparse_places(D: SparseWeights, pattern: sp.csr_array) -> Array:
    """Returns where the weights D, feature by feature, are among those of a pattern (d + 1, c), label by label."""
    d, by_label = pattern.shape[0], pattern.tocsc()
    labels = np.repeat(np.arange(pattern.shape[1]), np.diff(by_label.indptr))
    features = np.repeat(np.arange(d), np.diff(D.indptr))
    return np.searchsorted(labels * d + by_label.indices, D.labels.astype(np.int64) * d + features)


def loaded_rows(X: Any, rows: Array) -> tuple[sp.csr_array, Array]:
    """Returns a matrix in memory that has these rows of X, and their numbers in it."""
    return (X.read(rows), np.arange(len(rows))) if isinstance(X, SparseFile) else (X, rows)


def batch_labels(own: Array, c: int, negatives: int, rng: np.random.Generator) -> Array:
    """Returns the labels (m,) that a batch is scored for, ascending: those of its groups, and some sampled ones."""
    if negatives >= c:
        return np.arange(c, dtype=own.dtype)
    return np.unique(np.concatenate([own, rng.integers(0, c, negatives).astype(own.dtype)]))


def labels_of_groups(batches: RowBatches, Y: sp.csr_array, hard: Array) -> sp.csr_array:
    """Returns which labels (groups, c) are scored for each group: those of its rows, and its hard negatives."""
    of_group, at = ranges(Y.indptr[batches.rows], Y.indptr[batches.rows + 1])
    of_group = np.repeat(np.arange(batches.groups), np.diff(batches.starts))[of_group]
    group = np.concatenate([of_group, np.repeat(np.arange(batches.groups), hard.shape[1])])
    label = np.concatenate([Y.indices[at], hard.ravel()])
    return sp.csr_array((np.ones(len(label), np.int32), (group, label)), (batches.groups, Y.shape[1]))


def log_inclusion(group_labels: sp.csr_array, per_batch: int, negatives: int) -> Array:
    """Returns log q (c,): how likely a batch is to score each label because of its other groups or by sampling."""
    groups, c = group_labels.shape
    if negatives >= c:
        return np.zeros(c, np.float32)
    share = np.bincount(group_labels.indices, minlength=c) / max(1, groups)
    missed = (1 - share) ** (per_batch - 1) * (1 - 1 / c) ** negatives
    return np.log(np.clip(1 - missed, LEAST_INCLUSION, 1)).astype(np.float32)


@compiled(parallel=True, fastmath=True)
def embed(
    rows: Array, indptr: Array, indices: Array, data: Array, W: Array, length: float, H: Array, lengths: Array
) -> None:
    """Writes X[rows] W to H (b, k), X in CSR, scaled to this length, and the `lengths` (b,) before; zeros stay."""
    k = W.shape[1]
    for i in prange(len(rows)):
        h = H[i]
        h[:] = 0
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            v, source = data[p], W[indices[p]]
            for t in range(k):
                h[t] += v * source[t]
        total = np.float32(0)
        for t in range(k):
            total += h[t] * h[t]
        lengths[i] = np.sqrt(total)
        factor = np.float32(length) / lengths[i] if total > 0 else np.float32(0)
        for t in range(k):
            h[t] *= factor


@compiled(parallel=True, fastmath=True)
def group_means(H: Array, starts: Array) -> Array:
    """Returns the means (groups, k) of the rows of H from each start to the next."""
    means = np.zeros((len(starts) - 1, H.shape[1]), np.float32)
    for i in prange(len(means)):
        mean, factor = means[i], np.float32(1 / max(1, starts[i + 1] - starts[i]))
        for r in range(starts[i], starts[i + 1]):
            h = H[r]
            for t in range(H.shape[1]):
                mean[t] += factor * h[t]
    return means


@compiled()
def batch_features(rows: Array, indptr: Array, indices: Array, data: Array, at: Array) -> BatchFeatures:
    """Returns the entries of some rows of a CSR matrix by feature and by row.

    Writes the place of each feature in the batch to `at`, which is -1 everywhere before.
    """
    row_starts = np.zeros(len(rows) + 1, np.int64)
    for i in range(len(rows)):
        row_starts[i + 1] = row_starts[i] + indptr[rows[i] + 1] - indptr[rows[i]]
    count, found = row_starts[-1], 0
    row_places, row_values = np.empty(count, np.int32), np.empty(count, data.dtype)
    features, starts = np.empty(count, np.int32), np.zeros(count + 1, np.int64)
    for i in range(len(rows)):
        skipped = indptr[rows[i]] - row_starts[i]
        for p in range(row_starts[i], row_starts[i + 1]):
            feature = indices[p + skipped]
            if at[feature] < 0:
                at[feature], features[found] = found, feature
                found += 1
            row_places[p], row_values[p] = at[feature], data[p + skipped]
            starts[at[feature] + 1] += 1
    features, starts = features[:found], np.cumsum(starts[: found + 1])
    next_of, places, values = starts[:-1].copy(), np.empty(count, np.int32), np.empty(count, data.dtype)
    for i in range(len(rows)):
        for p in range(row_starts[i], row_starts[i + 1]):
            t = next_of[row_places[p]]
            places[t], values[t] = i, row_values[p]
            next_of[row_places[p]] += 1
    return BatchFeatures(features, starts, places, values, row_starts, row_places, row_values)


@compiled(parallel=True)
def add_sparse(
    S: Array, labels: Array, indptr: Array, features: Array, D: Array, at: Array, x: BatchFeatures, used: UsedWeights
) -> None:
    """Adds the sparse weights D of each label to S (m, b), and writes which ones the batch uses.

    Feature f stands at place at[f] in the batch, if at all.
    """
    # Tuples are taken apart before the loop: inside, numba mixes up fields of one name.
    room, counts, number, place = used.starts, used.counts, used.number, used.place
    starts, rows, values = x.starts, x.rows, x.values
    for j in prange(len(labels)):
        row, first, count = S[j], room[j], 0
        for p in range(indptr[labels[j]], indptr[labels[j] + 1]):  # without a branch, which few guesses would meet
            number[first + count], place[first + count] = p, at[features[p]]
            count += at[features[p]] >= 0
        counts[j] = count
        for i in range(first, first + count):
            weight, q = D[number[i]], place[i]  # a test for 0 would cost more than the products
            for t in range(starts[q], starts[q + 1]):
                row[rows[t]] += values[t] * weight


@compiled(parallel=True, fastmath=True)
def probabilities(S: Array, offsets: Array, group: Array, weights: Array) -> None:
    """Turns S (m, b) into weights * sigmoid(S + offsets (m, groups) of each row's group), in place."""
    m, b = S.shape
    for j in prange(m):
        row, shift = S[j], offsets[j]
        for i in range(b):  # apart from the next loop, which would not be vectorised with it
            row[i] += shift[group[i]]
        for i in range(b):
            row[i] = weights[i] * sigmoid(row[i])


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


@compiled()
def sample_entries(row: Array, small: float, offset: float, columns: Array, values: Array) -> int:
    """Writes a sparse vector whose expectation is `row` to the first of `columns` and `values`; returns how many.

    It has the entries of the row, but of those below `small` a few that stand for all, with `small` as their size: one
    is selected wherever the sum of the sizes so far passes a multiple of `small` (systematic sampling from an offset in
    [0, 1)), so an entry of size g with probability g / small.
    """
    least, count = np.float32(small), 0
    total = np.float32(offset) * least
    for i in range(len(row)):
        size = abs(row[i])
        value = row[i]
        if size < least:
            total += size
            if total < least:
                continue
            total -= least
            value = least if value > 0 else -least
        columns[count], values[count] = i, value
        count += 1
    return count


@compiled(parallel=True, fastmath=True)
def step_labels(
    G: Array,
    labels: Array,
    H: Array,
    x: BatchFeatures,
    used: UsedWeights,
    small: float,
    offsets: Array,
    sampled: Sampled,
    V: Array,
    v_squares: Array,
    b: Array,
    b_squares: Array,
    D: Array,
    d_squares: Array,
    rate: float,
    sparse_rate: float,
) -> None:
    """Samples the gradient G (m, b) of the scores, and moves V, b and D of each label against it by Adagrad, in place.

    V has one rate per label, which is over the root of the mean squares so far.
    """
    k = H.shape[1]
    row_starts, row_places, row_values, features = x.row_starts, x.row_places, x.row_values, len(x.features)
    used_starts, used_counts, number, place = used.starts, used.counts, used.number, used.place
    counts, all_rows, all_values = sampled.counts, sampled.rows, sampled.values
    for part in prange(-(-len(labels) // STEPPED_LABELS)):
        g, of_feature = np.empty(k, np.float32), np.zeros(features, np.float32)
        for j in range(part * STEPPED_LABELS, min(len(labels), (part + 1) * STEPPED_LABELS)):
            label, rows, values = labels[j], all_rows[j], all_values[j]
            total = np.float32(0)
            for i in range(G.shape[1]):
                total += G[j, i]
            b_squares[label] += total * total
            if b_squares[label] > 0:
                b[label, 0] -= np.float32(rate) * total / np.sqrt(b_squares[label])
            count = sample_entries(G[j], small, offsets[j], rows, values)
            counts[j] = count
            g[:] = 0
            for i in range(count):
                h, value = H[rows[i]], values[i]
                for t in range(k):
                    g[t] += value * h[t]
                for p in range(row_starts[rows[i]], row_starts[rows[i] + 1]):
                    of_feature[row_places[p]] += value * row_values[p]
            size = np.float32(0)
            for t in range(k):
                size += g[t] * g[t]
            v_squares[label] += size / np.float32(k)
            if v_squares[label] > 0:
                factor, v = np.float32(rate) / np.sqrt(v_squares[label]), V[label]
                for t in range(k):
                    v[t] -= factor * g[t]
            if count and used_counts[j]:
                for i in range(used_starts[j], used_starts[j] + used_counts[j]):
                    slope = of_feature[place[i]]
                    if slope != 0:
                        p = number[i]
                        d_squares[p] += slope * slope
                        D[p] -= np.float32(sparse_rate) * slope / np.sqrt(d_squares[p])
            for i in range(count):
                for p in range(row_starts[rows[i]], row_starts[rows[i] + 1]):
                    of_feature[row_places[p]] = 0


@compiled()
def by_row(sampled: Sampled, b: int) -> tuple[Array, Array, Array]:
    """Returns the sampled gradients row by row: where each row begins, places of labels, values."""
    starts = np.zeros(b + 1, np.int64)
    for j in range(len(sampled.counts)):
        for i in range(sampled.counts[j]):
            starts[sampled.rows[j, i] + 1] += 1
    starts = np.cumsum(starts)
    at, places, values = starts[:-1].copy(), np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    for j in range(len(sampled.counts)):
        for i in range(sampled.counts[j]):
            r = sampled.rows[j, i]
            places[at[r]], values[at[r]] = j, sampled.values[j, i]
            at[r] += 1
    return starts, places, values


@compiled(parallel=True, fastmath=True)
def gradient_of_rows(
    starts: Array, places: Array, values: Array, V: Array, H: Array, lengths: Array, length: float, out: Array
) -> None:
    """Writes the gradient of the loss by X[rows] W to `out` (b, k), H being that scaled to a length from `lengths`."""
    k, size = V.shape[1], np.float32(length)
    for i in prange(len(H)):
        g, h, along = out[i], H[i], np.float32(0)
        g[:] = 0
        for p in range(starts[i], starts[i + 1]):
            value, v = values[p], V[places[p]]
            for t in range(k):
                g[t] += value * v[t]
        for t in range(k):
            along += g[t] * h[t]
        along /= size * size
        factor = size / lengths[i] if lengths[i] > 0 else np.float32(0)
        for t in range(k):
            g[t] = (g[t] - along * h[t]) * factor


@compiled(parallel=True, fastmath=True)
def step_features(W: Array, squares: Array, x: BatchFeatures, G: Array, rate: float) -> None:
    """Moves the rows of W in the same way as V's, G (b, k) being the gradient by the embedded rows."""
    k, features, starts, rows, values = W.shape[1], x.features, x.starts, x.rows, x.values
    for i in prange(len(features)):
        g = np.zeros(k, np.float32)
        for p in range(starts[i], starts[i + 1]):
            v, source = values[p], G[rows[p]]
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
