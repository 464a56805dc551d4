"""V (s + 1, c) on a device, for predictions: scores for the host, or the k best labels without leaving the device.

On a card V is held in float16, each column and each row of features scaled by a power of two, and products of float16
are summed in float32; the intercept is added in float32. On the processor all is float32, scaled in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from smoothlink.errors import DataError
from smoothlink.machines.arrays import copy_to_device, to_host
from smoothlink.machines.device_matrices import tensor_matrix
from smoothlink.machines.host_and_device import Device
from smoothlink.machines.sparse_weights import SparseWeights

Tensor = torch.Tensor
HostArray = NDArray[Any]

FEATURE_MULTIPLE = 8  # features are padded to a multiple of this: rows of float16 must begin at multiples of 16 bytes
PAIR_BYTES = 64  # that a pair of a feature and a label takes while its weight is added
MAPPED_SCORES = 1 << 24  # that become log-odds at a time
SMALLEST_GAP = 1e-30  # between knots
LAST_LABEL = (1 << 31) - 1
EXPONENT = 0x7F800000  # bits of a float32
LEAST_SCALE = 2.0**-50


class BlockSizes(NamedTuple):
    """How much of V and of the scores is taken together."""

    rows: int = 8192  # that are scored together: more do not make a product faster
    group: int = 128  # labels whose maximum is compared before they are
    scores: int = 1 << 30  # numbers of a block, well within 32 bits
    copied_bytes: int = 256 << 20  # of V at a time


class DeviceProjection:
    """W (d + 1, k) on a device."""

    def __init__(self, W: HostArray, machine: Device) -> None:
        self.shape = (int(W.shape[0]), int(W.shape[1]))
        self.W = copy_to_device(W, machine.name)

    def project(self, A: Any) -> Tensor:
        """Returns A W (n, k) on the device for sparse or dense rows A (n, d + 1) of the host."""
        found: Tensor = tensor_matrix(A, str(self.W.device)) @ self.W
        return found


class ScaledFeatures(NamedTuple):
    """Features as the products take them: without the intercept, each row divided by a power of two."""

    values: Tensor  # (b, S), of V's type
    scale: Tensor  # (b,) float32
    X: Any = None  # (b, d + 1) the rows themselves, on the host, where labels have sparse weights


class TopOnDevice(NamedTuple):
    """The k best labels of some rows, on the device, where they may still be in the making."""

    keys: Tensor  # (b, k)
    totals: Tensor | None  # (b,) log sum exp of the tempered scores of all labels
    invalid: Tensor  # (b,) rows with a score that is NaN

    def fetch(self) -> tuple[HostArray, HostArray, HostArray | None]:
        """Returns label ids (b, k), scores (b, k) and totals (b,) on the host."""
        invalid = int(self.invalid.sum())
        if invalid:
            raise DataError(
                f"{invalid} of {len(self.invalid)} rows have scores that are NaN. Check the features and the model."
            )
        scores, ids = unpack_keys(self.keys)
        return to_host(ids), to_host(scores), None if self.totals is None else to_host(self.totals)


class DeviceWeights:
    """V on a device. Labels without training rows, and those that only pad the matrix, have an intercept of minus
    infinity."""

    def __init__(
        self,
        V: Any,  # smoothlink.weights.Weights
        untrained: HostArray,
        machine: Device,
        D: SparseWeights | None = None,
        maps: LabelMaps | None = None,
        sizes: BlockSizes | None = None,
    ) -> None:
        self.shape, self.machine, self.sizes = (int(V.shape[0]), int(V.shape[1])), machine, sizes or BlockSizes()
        (s, c), padded = (self.shape[0] - 1, self.shape[1]), round_up(self.shape[1], self.sizes.group)
        kind = torch.float16 if machine.half else torch.float32
        self.values = torch.zeros((round_up(s, FEATURE_MULTIPLE), padded), dtype=kind, device=machine.name)
        self.scale = torch.ones(padded, device=machine.name)
        intercepts = np.full(padded, -np.inf, np.float32)
        for labels in slices(c, max(self.sizes.group, self.sizes.copied_bytes // (4 * max(1, s)))):
            intercepts[labels] = self._copy(V, labels)
        intercepts[:c][untrained] = -np.inf
        self.intercepts = copy_to_device(intercepts, machine.name)
        self.sparse = None if D is None else DeviceSparseWeights(D, machine)
        self.maps = None if maps is None else DeviceLabelMaps(maps, padded, machine)

    def _copy(self, V: Any, labels: slice) -> HostArray:
        """Copies some columns of V; returns their last row, the intercepts."""
        s, halves = self.shape[0] - 1, V.halves(labels) if self.machine.half else None
        if halves is not None:
            values, scale = halves
            self.values[:s, labels] = copy_to_device(values[:s], self.machine.name)
            self.scale[labels] = copy_to_device(scale, self.machine.name)
            return np.asarray(values[s].astype(np.float32) * scale)
        columns = V.columns(labels)
        A = copy_to_device(columns[:s], self.machine.name)
        self.scale[labels] = powers(A.abs().amax(0))
        self.values[:s, labels] = A.div_(self.scale[labels])
        return np.asarray(columns[s])

    def scale_features(self, Phi: Tensor, X: Any = None) -> ScaledFeatures:
        """Returns features (b, s + 1), the intercept last, and where there are sparse weights the rows X (b, d + 1)."""
        s = Phi.shape[1] - 1
        scale = powers(Phi[:, :s].abs().amax(1))
        values = torch.zeros((len(Phi), len(self.values)), dtype=self.values.dtype, device=Phi.device)
        values[:, :s] = Phi[:, :s] / scale[:, None]
        return ScaledFeatures(values, scale, X)

    def scores(self, Phi: ScaledFeatures, labels: Any, out: HostArray | None = None) -> HostArray:
        """Returns scores (b, m) of these labels without X D, on the host; untrained labels have minus infinity."""
        if isinstance(labels, slice):
            start, stop, _ = labels.indices(self.shape[1])
            aligned, m = start // FEATURE_MULTIPLE * FEATURE_MULTIPLE, stop - start
            some: Any = slice(aligned, round_up(stop, FEATURE_MULTIPLE))
        else:
            start, aligned, m = 0, 0, len(labels)
            some = copy_to_device(np.append(labels, np.zeros(-m % FEATURE_MULTIPLE, np.int64)), self.machine.name)
        Z = product(Phi.values, self.values[:, some])
        S = to_host(rescaled(Z, Phi.scale, self.scale[some], self.intercepts[some])[:, start - aligned :][:, :m])
        if out is None:
            return np.ascontiguousarray(S)
        out[:] = S
        return out

    def top_k(self, Phi: ScaledFeatures, k: int, temperature: float | None = None) -> TopOnDevice:
        """Returns the k best labels of each row, by their log-odds where labels have maps, with the rows' totals where
        scores have a temperature."""
        b, group = len(Phi.values), self.sizes.group
        keys = totals = None
        invalid = torch.zeros(b, dtype=torch.bool, device=Phi.scale.device)
        for labels in self.label_blocks(b):
            Z = product(Phi.values, self.values[:, labels])
            row, scale, intercepts = Phi.scale, self.scale[labels], self.intercepts[labels]
            if self.sparse is not None:
                self.sparse.add(Z, Phi.X, row, scale, labels.start, self.machine.scores())
            if self.maps is not None:
                self.maps.apply(Z, row, scale, intercepts, labels)
                row, scale, intercepts = torch.ones_like(row), torch.ones_like(scale), torch.zeros_like(intercepts)
            tops, sums = group_maxima(Z, row, scale, intercepts, temperature, group)
            invalid |= tops.isnan().any(1)
            if sums is not None:
                part = sums.logsumexp(1)
                totals = part if totals is None else totals.logaddexp(part)
            new = best_keys(Z, row, scale, intercepts, tops, labels.start, k)
            keys = new if keys is None else highest_keys(torch.hstack([keys, new]), k)
        assert keys is not None
        return TopOnDevice(keys[:, : self.shape[1]], totals, invalid)

    def normalisers(self, Phi: ScaledFeatures, temperature: float) -> HostArray:
        """Returns log sum exp (b,) over all labels of the tempered scores, on the host."""
        totals = self.top_k(Phi, 1, temperature).totals
        assert totals is not None
        return to_host(totals)

    def row_blocks(self, n: int, k: int) -> Iterator[slice]:
        """Yields rows whose features, and the scores of whose best groups of labels, take an eighth of a block."""
        row_bytes = 32 * min(self.values.shape[1], self.sizes.group * k) + 16 * len(self.values)
        yield from slices(n, max(1, min(self.sizes.rows, self.machine.scores() // (8 * row_bytes))))

    def label_blocks(self, rows: int) -> Iterator[slice]:
        """Yields labels whose scores for so many rows are a block: as few blocks as can be, about equally wide."""
        width, group = self.values.shape[1], self.sizes.group
        most = max(group, min(self.machine.scores() // 4, self.sizes.scores) // rows // group * group)
        yield from slices(width, round_up(-(-width // -(-width // most)), group))


class LabelMaps(NamedTuple):
    """The log-odds of each label: a + b s + e f0 + r f1 + t f2, the f interpolated at sign(s) log(1 + |s| / tiny), or
    at s clipped to -40 .. 40 where tiny is 0."""

    knots: HostArray  # (m,) ascending
    values: HostArray  # (3, m)
    labels: HostArray  # (5, c) a, b, e, r and t
    tiny: float


class DeviceLabelMaps:
    """The maps of labels on a device."""

    def __init__(self, maps: LabelMaps, padded: int, machine: Device) -> None:
        """Copies the maps for so many labels, of which those that only pad the matrix keep an intercept of minus
        infinity."""
        labels = np.ones((5, padded)) * [[0.0], [1.0], [0.0], [0.0], [0.0]]
        labels[:, : maps.labels.shape[1]] = maps.labels
        self.labels, self.knots, self.values = (
            copy_to_device(np.asarray(values, np.float32), machine.name) for values in (labels, maps.knots, maps.values)
        )
        self.tiny, self.last = maps.tiny, len(maps.knots) - 1

    def apply(self, Z: Tensor, row: Tensor, scale: Tensor, intercepts: Tensor, labels: slice) -> None:
        """Makes products Z (b, m) log-odds, in place; minus infinity stays."""
        a, b, *weights = self.labels[:, labels]
        for rows in slices(len(Z), max(1, MAPPED_SCORES // Z.shape[1])):
            S = rescaled(Z[rows], row[rows], scale, intercepts)
            t = torch.sign(S) * torch.log1p(S.abs() / self.tiny) if self.tiny else S
            right = torch.searchsorted(self.knots, t).clamp_(0, self.last)
            left = (right - 1).clamp_(min=0)
            gap = (self.knots[right] - self.knots[left]).clamp_(min=SMALLEST_GAP)
            share = ((t - self.knots[left]) / gap).clamp_(0, 1)
            S.mul_(b).add_(a)
            for weight, values in zip(weights, self.values, strict=True):
                S.add_(torch.lerp(values[left], values[right], share).mul_(weight))


class WeightedEntries(NamedTuple):
    """Some entries of X, and how many labels have a weight for the feature of each."""

    rows: Any
    features: Any
    x: Any
    counts: Any

    def on_device(self, some: slice, device: Any) -> WeightedEntries:
        """Returns some of them on a device."""
        return WeightedEntries(*(copy_to_device(np.ascontiguousarray(a[some]), str(device)) for a in self))


class DeviceSparseWeights:
    """The sparse feature weights D (d + 1, c) of labels on a device."""

    def __init__(self, D: SparseWeights, machine: Device) -> None:
        self.counts = np.diff(D.indptr)  # (d + 1,) labels of each feature, on the host
        self.starts = copy_to_device(np.asarray(D.indptr[:-1], np.int64), machine.name)
        self.labels = copy_to_device(np.asarray(D.labels, np.int32), machine.name)
        self.values = copy_to_device(D.weights(), machine.name)

    def add(self, Z: Tensor, X: Any, row: Tensor, scale: Tensor, first: int, room: int) -> None:
        """Adds X D / (row scale) to Z (b, m) for the labels from `first` on; X (b, d + 1) are sparse rows of the host.

        So many pairs of a feature and a label are added together as take `room` bytes. A card adds them in any order:
        the last bits may change.
        """
        rows, features = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices.astype(np.int64)
        entries = WeightedEntries(rows, features, X.data.astype(np.float32), self.counts[features])
        ends, start = np.cumsum(entries.counts), 0
        while start < len(rows):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + room // PAIR_BYTES, side="right")))
            some = entries.on_device(slice(start, stop), Z.device)
            self._add_some(Z, some, int(ends[stop - 1]) - before, row, scale, first)
            start = stop

    def _add_some(self, Z: Tensor, some: WeightedEntries, total: int, row: Tensor, scale: Tensor, first: int) -> None:
        """Adds all pairs of some entries of X, `total` in number."""
        entry = torch.repeat_interleave(torch.arange(len(some.x), device=Z.device), some.counts, output_size=total)
        starts = self.starts[some.features] - some.counts.cumsum(0) + some.counts
        at = starts[entry] + torch.arange(total, device=Z.device)
        labels, i = self.labels[at].long() - first, some.rows[entry]
        outside = (labels < 0) | (labels >= Z.shape[1])
        labels.remainder_(Z.shape[1])  # zeros are added for labels of other blocks, not all of them at one place
        values = (some.x[entry] * self.values[at]).masked_fill_(outside, 0) / (row[i] * scale[labels])
        Z.view(-1).index_add_(0, i * Z.shape[1] + labels, values)


def product(A: Tensor, B: Tensor) -> Tensor:
    """Returns A B in float32, of float16 or of float32 numbers."""
    return torch.mm(A, B, out_dtype=torch.float32) if A.dtype == torch.float16 else A @ B


def rescaled(Z: Tensor, row: Tensor, scale: Tensor, intercepts: Tensor) -> Tensor:
    """Makes products Z (b, m) scores, in place. The scales are powers of two: only the intercept rounds."""
    return Z.mul_(row[:, None]).mul_(scale).add_(intercepts)


def group_maxima(
    Z: Tensor, row: Tensor, scale: Tensor, intercepts: Tensor, temperature: float | None, group: int
) -> tuple[Tensor, Tensor | None]:
    """Returns of each group of labels the highest score (b, g), NaN where one is, and log sum exp of the tempered
    scores."""
    if Z.is_cuda and find_spec("triton") is not None:
        from smoothlink.machines.triton_maxima import triton_maxima

        return triton_maxima(Z, row, scale, intercepts, temperature, group)
    S = rescaled(Z.clone(), row, scale, intercepts).view(len(Z), -1, group)
    return S.amax(2), None if temperature is None else (S * temperature).logsumexp(2)


def best_keys(Z: Tensor, row: Tensor, scale: Tensor, intercepts: Tensor, tops: Tensor, start: int, k: int) -> Tensor:
    """Returns keys (b, k) of the k best labels of a block that begins with label `start`; of all where they are fewer.

    They are in the k best groups by maximum, the lower group first where maxima are equal: each of these has a label
    that comes before all labels of any other group.
    """
    (b, groups), device = tops.shape, Z.device
    group = Z.shape[1] // groups
    if groups <= 2 * k:
        S = rescaled(Z, row, scale, intercepts)
        return highest_keys(pack_keys(S, start + torch.arange(Z.shape[1], device=device)), k)
    _, which = unpack_keys(highest_keys(pack_keys(tops, torch.arange(groups, device=device)), k))
    S = Z.view(b, groups, group)[torch.arange(b, device=device)[:, None], which]  # (b, k, group)
    S.mul_(row[:, None, None]).mul_(scale.view(groups, group)[which]).add_(intercepts.view(groups, group)[which])
    ids = start + which[:, :, None] * group + torch.arange(group, device=device)
    return highest_keys(pack_keys(S, ids).flatten(1), k)


def pack_keys(S: Tensor, ids: Tensor) -> Tensor:
    """Returns whole numbers that are ordered as scores are, and where these are equal as ids from high to low."""
    bits = (S + 0.0).view(torch.int32)  # + 0: minus zero is zero
    ordered = bits ^ ((bits >> 31) & LAST_LABEL)
    return (ordered.long() << 32) | (LAST_LABEL - ids)


def unpack_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the scores and the ids of keys."""
    ordered = (keys >> 32).int()
    return (ordered ^ ((ordered >> 31) & LAST_LABEL)).view(torch.float32), LAST_LABEL - (keys & 0xFFFFFFFF)


def highest_keys(keys: Tensor, k: int) -> Tensor:
    """Returns the k highest keys of each row, in order."""
    return keys.topk(min(k, keys.shape[1]), dim=1).values


def powers(largest: Tensor) -> Tensor:
    """Returns the powers of two next above these numbers; 1 where they are 0, and none so small that what it divides
    overflows."""
    scale = (largest.view(torch.int32) & EXPONENT).view(torch.float32) * 2
    return scale.masked_fill_(scale == 0, 1).clamp_(min=LEAST_SCALE)


def round_up(n: int, step: int) -> int:
    """Returns the next multiple of a step."""
    return -(-n // step) * step


def slices(n: int, size: int) -> Iterator[slice]:
    """Yields 0 .. n in slices of at most `size`."""
    yield from (slice(start, min(n, start + size)) for start in range(0, n, size))
