"""Joint training with sampled negatives on a device (torch): the steps of `negatives`, from the same batches, and how
rows are clustered and W starts there. On a GPU products are of half-precision numbers, with float32 weights.

How many labels and features of a batch are distinct is known on the device alone, and the host must not wait for it.
So the arrays of a batch have room for all of them to be distinct: behind the distinct ones, some come again with
gradients of zero. Small gradients are not sampled: products of whole matrices are what a device does best.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from smoothlink.joint.batches import RowBatch, RowBatches
from smoothlink.joint.finetune import SparseOnDevice, UsedWeights
from smoothlink.joint.joint_training import NEGATIVES, JointRows, JointWeights, sparse_weights
from smoothlink.joint.negatives import (
    EMBEDDING_LENGTH,
    HARD_NEGATIVES,
    RATE,
    SampledState,
    labels_of_groups,
    log_inclusion,
)
from smoothlink.machines.arrays import copy_to_device, to_host, unit_rows
from smoothlink.machines.host_and_device import Device
from smoothlink.steps.featurize import Features

HostArray = NDArray[Any]
Tensor = torch.Tensor

LABEL_MULTIPLE = 64  # labels of a batch are padded to a multiple of this: rows of halves begin at multiples of 16 bytes
LEAST_SQUARES = 1e-30  # of gradients
LARGEST_INT = (1 << 31) - 1
SPARSE_STEP_COST = 3  # of a weight that is used, over one that is in D: by the bytes that are read and written
CLUSTER_ROUNDS = 3  # of each 2-means


class DeviceSampledStep:
    """One step on a batch of rows, for the labels of its rows and some sampled ones, on a device."""

    def __init__(
        self,
        rows: JointRows,
        pattern: sp.csr_array,
        batches: RowBatches,
        state: SampledState,
        negatives: int,
        machine: Device,
    ) -> None:
        self.rows, self.batches, self.negatives, self.machine = rows, batches, negatives, machine
        self.c = rows.Y.shape[1]
        self.X, self.Y = SparseRows(rows.X, machine.name), SparseRows(rows.Y, machine.name)
        self.w = self.copy(rows.w)
        counts = np.maximum(np.diff(rows.Y.indptr), 1)
        self.label_weight = self.copy((rows.w / counts).astype(np.float32)) if rows.softmax else self.w
        self.sparse = SparseOnDevice(pattern, rows.X, machine.name)
        self.by_label = self.sparse.labels.sort(stable=True).indices  # the order of D on the host
        self.W, self.V, self.w_squares, self.v_squares = map(
            self.copy, (state.W, state.V, state.w_squares, state.v_squares)
        )
        self.b, self.b_squares = self.copy(state.b), self.copy(state.b_squares)
        self.D, self.d_squares = (self.by_feature(A) for A in (state.D, state.d_squares))
        self.D_gradient = torch.zeros_like(self.D)
        self.label_place = torch.full((self.c + 1,), -1, dtype=torch.int32, device=machine.name)  # in the batch
        self.counted = torch.arange(1, device=machine.name)
        self.hard = state.hard
        self.choose_labels()

    @property
    def state(self) -> SampledState:
        """The state on the host, in the order that the step of the host has: training may go on on either."""
        D, d_squares = (to_host(A[self.by_label]) for A in (self.D, self.d_squares))
        others = ("W", "V", "w_squares", "v_squares", "b", "b_squares")
        return SampledState(
            D=D, d_squares=d_squares, hard=self.hard, **{name: to_host(getattr(self, name)) for name in others}
        )

    def __call__(self, batch: RowBatch, rate: float) -> None:
        every = self.negatives >= self.c
        sampled = np.arange(self.c) if every else batch.rng.integers(0, self.c, self.negatives)
        ranges = [A.ranges(rows) for A, rows in self.matrices(batch)]
        pad = -(len(sampled) + (not every) * int(ranges[2].counts.sum())) % LABEL_MULTIPLE
        parts = [batch.rows, batch.group, np.append(sampled, np.full(pad, self.c)), *(A for r in ranges for A in r)]
        rows, group, others, *sent = torch.split(self.copy(np.concatenate(parts)), [len(part) for part in parts])
        totals = [int(r.counts.sum()) for r in ranges]
        x, y, of_groups = (
            A.entries(Ranges(*sent[3 * i : 3 * i + 3]), totals[i], self.numbers(totals[i]))
            for i, (A, _) in enumerate(self.matrices(batch))
        )
        scored = self.distinct(others if every else torch.cat([of_groups.columns, others]))
        self.label_place.index_copy_(0, scored.ordered, scored.number.int())
        labels = scored.values.clamp(max=self.c - 1)
        H, factors = self.embed(x)
        V, H16 = self.half(self.V.index_select(0, labels)), self.half(H)
        Z = self.product(H16, V.T)  # (b, m)
        used = self.used(batch.rows, x, Z.numel()) if len(self.D) else None
        if used is not None:
            at = used.at(Z.shape[1])
            Z.view(-1).index_add_(0, at, used.value * self.D.index_select(0, used.number))
        there = (scored.starts < len(labels)) & (scored.values < self.c)
        Z += self.offsets(labels, there, of_groups, len(batch.groups)).index_select(0, group)
        G = self.to_gradient(Z, rows, y)
        if used is not None:
            gradient = used.value * G.view(-1).index_select(0, at)
            self.step_sparse(used.number, gradient, NEGATIVES.sparse_rate * rate)
        G16 = self.half(G)
        back = self.product(G16, V)  # (b, k)
        step_rows(self.V, self.v_squares, labels, self.product(G16.T, H16), RATE * rate)
        step_rows(self.b, self.b_squares, labels, G.sum(0)[:, None], RATE * rate)
        along = (back * H).sum(1, keepdim=True).div_(EMBEDDING_LENGTH**2)
        self.step_features(x, back.addcmul_(along, H, value=-1).mul_(factors), RATE * rate)
        self.label_place.index_fill_(0, scored.ordered, -1)

    def matrices(self, batch: RowBatch) -> list[tuple[SparseRows, HostArray]]:
        """Returns what a batch is made of: matrices, and which of their rows."""
        return [(self.X, batch.rows), (self.Y, batch.rows), (self.group_labels, batch.groups)]

    def embed(self, x: RowEntries) -> tuple[Tensor, Tensor]:
        """Returns h (b, k) of a fixed length, and the factors (b, 1) that made it so."""
        H = sum_bags(x.columns, self.W, x.starts.int(), x.values)
        factors = (EMBEDDING_LENGTH / H.norm(dim=1, keepdim=True)).nan_to_num_(posinf=0.0)
        return H.mul_(factors), factors

    def offsets(self, labels: Tensor, there: Tensor, own: RowEntries, groups: int) -> Tensor:
        """Returns what is added to the scores of each group (groups, m): intercepts, for labels that are not always
        scored less the log of how likely they are, and minus infinity where there is no label."""
        b = self.b.index_select(0, labels)[:, 0].masked_fill_(~there, -float("inf"))
        found = (b - self.log_inclusion.index_select(0, labels)).repeat(groups, 1)
        place = self.label_place.index_select(0, own.columns)
        found.view(-1).index_copy_(0, own.places * len(labels) + place, b.index_select(0, place))
        return found

    def to_gradient(self, Z: Tensor, rows: Tensor, y: RowEntries) -> Tensor:
        """Returns the gradient of the loss by scores (b, m), in place: weighted probabilities less labels."""
        P = Z.softmax(1) if self.rows.softmax else Z.sigmoid_()
        w = self.w.index_select(0, rows)
        P *= w[:, None]
        w = self.label_weight.index_select(0, rows) if self.rows.softmax else w
        at = y.places * P.shape[1] + self.label_place.index_select(0, y.columns)
        P.view(-1).index_add_(0, at, w.index_select(0, y.places), alpha=-1)
        return P

    def used(self, rows: HostArray, x: RowEntries, scores: int) -> UsedWeights:
        """Returns the sparse weights that these rows use, with labels by their place; those of others have value 0.

        These arrays are the longest of a step: places among so many scores have 32 bits where they can.
        """
        places = x.places.int() if scores <= LARGEST_INT else x.places
        used = self.sparse.used(rows, places, x.columns, x.values)
        place = self.label_place.index_select(0, used.label)
        return used._replace(label=place.clamp(min=0), value=used.value * (place >= 0))

    def step_sparse(self, number: Tensor, gradient: Tensor, rate: float) -> None:
        """Moves D by Adagrad with one rate per weight: all of it, or where a batch uses few weights these; one that
        several rows use is then written more than once, the same each time."""
        self.D_gradient.index_add_(0, number, gradient)
        if SPARSE_STEP_COST * len(number) > len(self.D):
            self.d_squares.addcmul_(self.D_gradient, self.D_gradient)
            self.D.addcdiv_(self.D_gradient, self.d_squares.sqrt(), value=-rate)
            self.D_gradient.zero_()
            return
        number = number.long()
        g = self.D_gradient.index_select(0, number)
        squares = self.d_squares.index_select(0, number).addcmul_(g, g)
        moved = self.D.index_select(0, number).addcdiv_(g, squares.sqrt(), value=-rate)
        self.D.index_copy_(0, number, moved)
        self.d_squares.index_copy_(0, number, squares)
        self.D_gradient.index_fill_(0, number, 0)

    def step_features(self, x: RowEntries, G: Tensor, rate: float) -> None:
        """Moves the rows of W of a batch by the gradient G (b, k) of its embeddings."""
        found = self.distinct(x.columns)
        places, values = x.places.index_select(0, found.order), x.values.index_select(0, found.order)
        gradient = sum_bags(places, G, found.starts, values)
        step_rows(self.W, self.w_squares, found.values, gradient, rate)

    def find_hard_negatives(self) -> None:
        """Finds the labels of the highest scores at the mean of each group, of which the next batches score all."""
        if self.negatives >= self.c:
            return
        b, k, V = self.batches, min(HARD_NEGATIVES, self.c), self.half(self.V).T
        a_group = 4 * max(self.c, self.W.shape[1] * -(-int(b.starts[-1]) // max(1, b.groups)))
        step, found = max(1, self.machine.scores() // a_group), []
        for first in range(0, b.groups, step):
            starts = b.starts[first : first + step + 1]
            rows = b.rows[starts[0] : starts[-1]]
            ranges = self.X.ranges(rows)
            total = int(ranges.counts.sum())
            H, _ = self.embed(self.X.entries(Ranges(*map(self.copy, ranges)), total, self.numbers(total)))
            begins = self.copy(starts[:-1] - starts[0])
            means = torch.nn.functional.embedding_bag(self.numbers(len(rows)), H, begins, mode="mean")
            scores = self.product(self.half(means), V).add_(self.b[:, 0])
            found.append(scores.topk(k, sorted=False).indices.int())
        self.hard = to_host(torch.cat(found))
        self.choose_labels()

    def choose_labels(self) -> None:
        """Sets which labels are scored for each group, and how likely others are to be."""
        group_labels = labels_of_groups(self.batches, self.rows.Y, self.hard)
        self.group_labels = SparseRows(group_labels, self.machine.name)
        self.log_inclusion = self.copy(log_inclusion(group_labels, self.batches.per_batch, self.negatives))

    def weights(self) -> JointWeights:
        """Returns the weights for embeddings of unit length, on the host; h has no intercept."""
        k, P = self.W.shape[1], self.sparse.pattern
        W = torch.cat([self.W, self.W.new_zeros((1, k))])
        return JointWeights(
            W=to_host(W),
            features=Features(np.zeros((k, 0), np.float32), np.zeros(0, np.float32)),
            V=to_host(torch.cat([EMBEDDING_LENGTH * self.V.T, self.b.T])),
            D=sparse_weights(sp.csr_array((to_host(self.D), P.indices, P.indptr), P.shape)),
            normalize=True,
        )

    def by_feature(self, A: HostArray) -> Tensor:
        """Returns numbers of the sparse weights, which the host has label by label, feature by feature."""
        out = torch.empty(len(A), device=self.machine.name)
        out[self.by_label] = self.copy(A)
        return out

    def numbers(self, count: int) -> Tensor:
        """Returns 0, 1, .. count - 1, a view of what is made once."""
        if count > len(self.counted):
            self.counted = torch.arange(2 * count, device=self.machine.name)
        return self.counted[:count]

    def distinct(self, values: Tensor) -> Distinct:
        return distinct(values, self.numbers(len(values)))

    def copy(self, A: Any) -> Tensor:
        return copy_to_device(A, self.machine.name) if isinstance(A, np.ndarray) else A

    def half(self, A: Tensor) -> Tensor:
        return A.bfloat16() if self.machine.half else A

    def product(self, A: Tensor, B: Tensor) -> Tensor:
        return torch.mm(A, B, out_dtype=torch.float32) if self.machine.half else A @ B


class Ranges(NamedTuple):
    """Where the entries of some rows are: in a sparse matrix, and one row after the other. On the host, or a device."""

    counts: Any  # (b,)
    shifts: Any  # (b,) from the entries of these rows to those of the matrix
    starts: Any  # (b,) of each row among the entries of these rows


class RowEntries(NamedTuple):
    """The entries of some rows, one row after the other."""

    places: Tensor  # (e,) the position of the row
    columns: Tensor  # (e,) int32
    values: Tensor  # (e,)
    starts: Tensor  # (b,) of each row


class SparseRows:
    """A sparse matrix on a device. The host knows how long its rows are, so that it need not wait for the device."""

    def __init__(self, A: sp.csr_array, device: str) -> None:
        self.indptr = A.indptr.astype(np.int64)
        self.columns = copy_to_device(A.indices.astype(np.int32, copy=False), device)
        self.values = copy_to_device(A.data.astype(np.float32, copy=False), device)

    def ranges(self, rows: HostArray) -> Ranges:
        """Returns where the entries of some rows are, on the host."""
        first = self.indptr[rows]
        counts = self.indptr[rows + 1] - first
        starts = counts.cumsum() - counts
        return Ranges(counts, first - starts, starts)

    def entries(self, ranges: Ranges, total: int, numbers: Tensor) -> RowEntries:
        """Returns the entries of some rows, of which there are `total`."""
        places = torch.repeat_interleave(ranges.counts, output_size=total)
        at = numbers + ranges.shifts.index_select(0, places)
        return RowEntries(places, self.columns.index_select(0, at), self.values.index_select(0, at), ranges.starts)


class Distinct(NamedTuple):
    """The distinct ones of some values, where how many they are is not known on the host."""

    ordered: Tensor  # (e,) the values, ascending
    order: Tensor  # (e,) that puts them so
    number: Tensor  # (e,) of the distinct value that each is
    starts: Tensor  # (e,) where each distinct value starts among the ordered ones; e behind the last
    values: Tensor  # (e,) the distinct values, then some of them again


def distinct(values: Tensor, numbers: Tensor) -> Distinct:
    """Returns the distinct ones of some values (e,); `numbers` are 0 .. e - 1."""
    ordered, order = values.sort(stable=True)
    number = torch.zeros_like(numbers)
    torch.cumsum(ordered[1:] != ordered[:-1], 0, out=number[1:])
    starts = torch.searchsorted(number, numbers)
    again = torch.where(starts < len(values), starts, numbers)
    return Distinct(ordered, order, number, starts, ordered.index_select(0, again))


def sum_bags(numbers: Tensor, A: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Returns the weighted sums of the rows of A by number, from each start to the next."""
    found: Tensor = torch.nn.functional.embedding_bag(numbers, A, starts, mode="sum", per_sample_weights=weights)
    return found


def step_rows(A: Tensor, squares: Tensor, rows: Tensor, G: Tensor, rate: float) -> None:
    """Moves A[rows] by -rate G / the root of the mean squares so far (Adagrad with one rate per row), in place.

    A row may come again where its G is 0. G is overwritten.
    """
    squares.index_add_(0, rows, G.square().mean(1))
    factors = squares.index_select(0, rows).clamp_(min=LEAST_SQUARES).rsqrt_()
    A.index_add_(0, rows, G.mul_(factors[:, None]), alpha=-rate)


def start_weights(first: Tensor, H: Tensor, k: int, rng: np.random.Generator) -> Tensor:
    """Returns W (d, k): the directions (d, m) of an embedding whose rows are H (n, m), then random ones."""
    (d, m), random = first.shape, torch.Generator(first.device).manual_seed(int(rng.integers(1 << 62)))
    m = min(k, m)
    size = (H[:, :m].square().sum(dtype=torch.float64) / max(1, len(H))).sqrt().clamp(min=1e-15)
    W = torch.empty((d, k), device=first.device).normal_(std=EMBEDDING_LENGTH / np.sqrt(k), generator=random)
    W[:, :m] = first[:, :m] * (EMBEDDING_LENGTH * np.sqrt(m / k) / size)
    return W


def cluster_rows(H: Tensor, rows: HostArray, size: int, seed: int) -> list[HostArray]:
    """Returns `rows` in groups of about `size` whose embeddings H (n, k) point the same way, by repeated 2-means: all
    parts of a level at once, and each half has as many rows as the other, so that groups are as many as on the host.
    """
    order = np.random.default_rng([seed, 8]).permutation(rows)
    Z = unit_rows(H[copy_to_device(order, str(H.device))])
    parts = torch.arange(len(order), device=H.device)[None]  # (parts, rows of the largest)
    counts = torch.tensor([len(order)], device=H.device)  # of each part; at most one less than the largest
    for _ in range(max(0, int(np.ceil(np.log2(max(1, len(order)) / size))))):
        places = torch.arange(parts.shape[1], device=H.device)
        inside, half = places < counts[:, None], counts // 2
        z = Z[parts]
        axis = z[:, 0] - z[:, 1]
        for _ in range(CLUSTER_ROUNDS):
            along = torch.matmul(z, axis[:, :, None])[..., 0].masked_fill_(~inside, float("inf"))
            sorted_by = along.argsort(1)
            rank = torch.empty_like(sorted_by).scatter_(1, sorted_by, places.expand_as(sorted_by).contiguous())
            upper = 1 / (counts - half).clamp(min=1)
            lower = -1 / half.clamp(min=1)
            weight = torch.where(rank < half[:, None], lower[:, None], upper[:, None]).masked_fill_(~inside, 0)
            axis = torch.matmul(weight[:, None], z)[:, 0]
        parts = parts.gather(1, sorted_by)
        wide = places[: -(-len(places) // 2)]
        above = (half[:, None] + wide).clamp(max=len(places) - 1)
        parts = torch.stack([parts[:, : len(wide)], parts.gather(1, above)], 1).view(-1, len(wide))
        counts = torch.stack([half, counts - half], 1).view(-1)
    found = order[to_host(parts)]
    return [np.sort(part[:count]) for part, count in zip(found, to_host(counts).tolist(), strict=True) if count]
