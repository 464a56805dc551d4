"""V (s + 1, c) on a device, for predictions: scores for the host, or the k best labels without leaving the device.

On a card V is held in halves (float16), each column and each row of features scaled by a power of two, and products of
halves are summed in float32; the constant is added in float32. On the processor all is float32, scaled in the same way.
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
from smoothlink.machines.device_sparse_weights import DeviceSparseWeights
from smoothlink.machines.half_precision import Half
from smoothlink.machines.host_and_device import Device
from smoothlink.machines.shards import Shards
from smoothlink.machines.sparse_weights import SparseWeights

Tensor = torch.Tensor
HostArray = NDArray[Any]

ROWS = 8192  # that are scored together: more do not make a product faster
GROUP = 128  # labels whose maximum is looked at before they are
FEATURES = 8  # features are padded to a multiple of this: rows of halves must begin at multiples of 16 bytes
MOST_SCORES = 1 << 30  # numbers of a block, well within 32 bits
SENT_BYTES = 256 << 20  # of V at a time
LAST = (1 << 31) - 1  # label
EXPONENT = 0x7F800000  # bits of a float32
LEAST = 2.0**-50  # scale


class ScaledFeatures(NamedTuple):
    """Features as the products want them: without the constant, each row divided by a power of two."""

    values: Tensor  # (b, S), of V's type
    scale: Tensor  # (b,) float32
    X: Any = None  # (b, d + 1) the rows themselves, on the host, where labels have weights for single features


class TopOnDevice(NamedTuple):
    """The k best labels of some rows, on the device, where they may still be in the making."""

    keys: Tensor  # (b, k)
    totals: Tensor | None  # (b,) log sum exp of the tempered scores of all labels
    spoilt: Tensor  # (b,) rows with a score that is NaN

    def fetch(self) -> tuple[HostArray, HostArray, HostArray | None]:
        """Label ids (b, k), scores (b, k) and totals (b,) on the host."""
        spoilt = int(self.spoilt.sum())
        if spoilt:
            raise DataError(
                f"{spoilt} of {len(self.spoilt)} rows have scores that are NaN. Check the features and the model."
            )
        scores, ids = unpack_keys(self.keys)
        return to_host(ids), to_host(scores), None if self.totals is None else to_host(self.totals)


class DeviceWeights:
    """V on a device. Labels never seen, and those that only pad the matrix, have a constant of minus infinity."""

    def __init__(self, V: HostArray | Half, unseen: HostArray, machine: Device, D: SparseWeights | None = None) -> None:
        self.shape, self.machine = (int(V.shape[0]), int(V.shape[1])), machine
        (s, c), wide = (self.shape[0] - 1, self.shape[1]), round_up(self.shape[1], GROUP)
        kind = torch.float16 if machine.half else torch.float32
        self.values = torch.zeros((round_up(s, FEATURES), wide), dtype=kind, device=machine.name)
        self.scale = torch.ones(wide, device=machine.name)
        for labels in slices(c, max(GROUP, SENT_BYTES // (4 * max(1, s)))):
            self._take(V, labels)
        constant = np.full(wide, -np.inf, np.float32)
        last = V.rows(np.array([s]))[0] if isinstance(V, Half | Shards) else V[s]
        constant[:c] = np.where(unseen, -np.inf, last)
        self.constant = copy_to_device(constant, machine.name)
        self.pairs = None if D is None else DeviceSparseWeights(D, machine)

    def _take(self, V: HostArray | Half, labels: slice) -> None:
        """Some columns of V, without the constant's row."""
        s = self.shape[0] - 1
        if isinstance(V, Half) and self.values.dtype == torch.float16:
            self.values[:s, labels] = copy_to_device(V.values[:s, labels], self.machine.name)
            self.scale[labels] = copy_to_device(V.scale[labels], self.machine.name)
            return
        A = copy_to_device(V.wide(labels)[:s] if isinstance(V, Half | Shards) else V[:s, labels], self.machine.name)
        self.scale[labels] = powers(A.abs().amax(0))
        self.values[:s, labels] = A.div_(self.scale[labels])

    def see(self, Phi: Tensor, X: Any = None) -> ScaledFeatures:
        """Features (b, s + 1), the constant last, and where there are weights D the rows X (b, d + 1)."""
        s = Phi.shape[1] - 1
        scale = powers(Phi[:, :s].abs().amax(1))
        values = torch.zeros((len(Phi), len(self.values)), dtype=self.values.dtype, device=Phi.device)
        values[:, :s] = Phi[:, :s] / scale[:, None]
        return ScaledFeatures(values, scale, X)

    def left(self, Phi: ScaledFeatures, labels: Any, out: HostArray | None = None) -> HostArray:
        """Scores (b, m) of these labels without X D, on the host, as `Half.left`; never-seen ones: minus infinity."""
        if isinstance(labels, slice):
            start, stop, _ = labels.indices(self.shape[1])
            highest_keys, m = start // FEATURES * FEATURES, stop - start
            some: Any = slice(highest_keys, round_up(stop, FEATURES))
        else:
            start, highest_keys, m = 0, 0, len(labels)
            some = copy_to_device(np.append(labels, np.zeros(-m % FEATURES, np.int64)), self.machine.name)
        Z = product(Phi.values, self.values[:, some])
        S = to_host(finished(Z, Phi.scale, self.scale[some], self.constant[some])[:, start - highest_keys :][:, :m])
        if out is None:
            return np.ascontiguousarray(S)
        out[:] = S
        return out

    def best(self, Phi: ScaledFeatures, k: int, temperature: float | None = None) -> TopOnDevice:
        """The k best labels of each row, with the rows' totals where scores have a temperature."""
        b = len(Phi.values)
        keys = totals = None
        spoilt = torch.zeros(b, dtype=torch.bool, device=Phi.scale.device)
        for labels in self.label_blocks(b):
            Z = product(Phi.values, self.values[:, labels])
            scale, constant = self.scale[labels], self.constant[labels]
            if self.pairs is not None:
                self.pairs.add(Z, Phi.X, Phi.scale, scale, labels.start, self.machine.scores())
            tops, sums = maxima(Z, Phi.scale, scale, constant, temperature)
            spoilt |= tops.isnan().any(1)
            if sums is not None:
                part = sums.logsumexp(1)
                totals = part if totals is None else totals.logaddexp(part)
            new = contenders(Z, Phi.scale, scale, constant, tops, labels.start, k)
            keys = new if keys is None else highest_keys(torch.hstack([keys, new]), k)
        assert keys is not None
        return TopOnDevice(keys[:, : self.shape[1]], totals, spoilt)

    def normalisers(self, Phi: ScaledFeatures, temperature: float) -> HostArray:
        """log sum exp (b,) over all labels of the tempered scores, on the host."""
        totals = self.best(Phi, 1, temperature).totals
        assert totals is not None
        return to_host(totals)

    def row_blocks(self, n: int, k: int) -> Iterator[slice]:
        """Rows whose features, and the scores of whose best groups of labels, take an eighth of a block."""
        wide = 32 * min(self.values.shape[1], GROUP * k) + 16 * len(self.values)  # bytes a row
        yield from slices(n, max(1, min(ROWS, self.machine.scores() // (8 * wide))))

    def label_blocks(self, rows: int) -> Iterator[slice]:
        """Labels whose scores for so many rows are a block: as few blocks as can be, about equally wide."""
        wide = self.values.shape[1]
        most = max(GROUP, min(self.machine.scores() // 4, MOST_SCORES) // rows // GROUP * GROUP)
        yield from slices(wide, round_up(-(-wide // -(-wide // most)), GROUP))


def product(A: Tensor, B: Tensor) -> Tensor:
    """A B in float32, of halves or of float32 numbers."""
    return torch.mm(A, B, out_dtype=torch.float32) if A.dtype == torch.float16 else A @ B


def finished(Z: Tensor, row: Tensor, scale: Tensor, constant: Tensor) -> Tensor:
    """Scores of products Z (b, m), in place. The scales are powers of two: only the constant rounds."""
    return Z.mul_(row[:, None]).mul_(scale).add_(constant)


def maxima(
    Z: Tensor, row: Tensor, scale: Tensor, constant: Tensor, temperature: float | None
) -> tuple[Tensor, Tensor | None]:
    """Of each group of labels the highest score (b, g), NaN where one is, and log sum exp of the tempered scores."""
    if Z.is_cuda and find_spec("triton") is not None:
        from smoothlink.machines.triton_maxima import maxima as fused

        return fused(Z, row, scale, constant, temperature, GROUP)
    S = finished(Z.clone(), row, scale, constant).view(len(Z), -1, GROUP)
    return S.amax(2), None if temperature is None else (S * temperature).logsumexp(2)


def contenders(Z: Tensor, row: Tensor, scale: Tensor, constant: Tensor, tops: Tensor, start: int, k: int) -> Tensor:
    """Keys (b, k) of the k best labels of a block that begins with label `start`; of all where they are fewer.

    They are in the k best groups by maximum, the lower group first where maxima are equal: each of these has a label
    that comes before all labels of any other group.
    """
    b, groups = tops.shape
    lanes = torch.arange(GROUP, device=Z.device)
    if groups <= 2 * k:
        return highest_keys(
            pack_keys(finished(Z, row, scale, constant), start + torch.arange(Z.shape[1], device=Z.device)), k
        )
    _, which = unpack_keys(highest_keys(pack_keys(tops, torch.arange(groups, device=Z.device)), k))
    S = Z.view(b, groups, GROUP)[torch.arange(b, device=Z.device)[:, None], which]  # (b, k, GROUP)
    S.mul_(row[:, None, None]).mul_(scale.view(groups, GROUP)[which]).add_(constant.view(groups, GROUP)[which])
    ids = start + which[:, :, None] * GROUP + lanes
    return highest_keys(pack_keys(S, ids).flatten(1), k)


def pack_keys(S: Tensor, ids: Tensor) -> Tensor:
    """Whole numbers that are ordered as scores are, and where these are equal as ids from high to low."""
    bits = (S + 0.0).view(torch.int32)  # + 0: minus zero is zero
    ordered = bits ^ ((bits >> 31) & LAST)
    return (ordered.long() << 32) | (LAST - ids)


def unpack_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The scores and the ids of keys."""
    ordered = (keys >> 32).int()
    return (ordered ^ ((ordered >> 31) & LAST)).view(torch.float32), LAST - (keys & 0xFFFFFFFF)


def highest_keys(keys: Tensor, k: int) -> Tensor:
    """The k highest keys of each row, in order."""
    return keys.topk(min(k, keys.shape[1]), dim=1).values


def powers(largest: Tensor) -> Tensor:
    """The powers of two next above these numbers; 1 where they are 0, and none so small that what it divides
    overflows."""
    scale = (largest.view(torch.int32) & EXPONENT).view(torch.float32) * 2
    return scale.masked_fill_(scale == 0, 1).clamp_(min=LEAST)


def round_up(n: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-n // step) * step


def slices(n: int, size: int) -> Iterator[slice]:
    """0 .. n in slices of at most `size`."""
    yield from (slice(start, min(n, start + size)) for start in range(0, n, size))
