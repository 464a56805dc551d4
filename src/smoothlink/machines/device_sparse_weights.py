"""Weights of labels for single features on a device: X D is added to scores, pair by pair of feature and label."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from smoothlink.machines.arrays import copy_to_device
from smoothlink.machines.host_and_device import Device
from smoothlink.machines.sparse_weights import SparseWeights

Tensor = torch.Tensor

PAIR_BYTES = 64  # that a pair takes on its way


class WeightedEntries(NamedTuple):
    """Some entries of X, and how many labels have a weight for the feature of each."""

    rows: Any
    features: Any
    x: Any
    counts: Any

    def part(self, some: slice, device: Any) -> WeightedEntries:
        """Some of them on a device."""
        return WeightedEntries(*(copy_to_device(np.ascontiguousarray(a[some]), str(device)) for a in self))


class DeviceSparseWeights:
    """D (d + 1, c) on a device."""

    def __init__(self, D: SparseWeights, machine: Device) -> None:
        self.counts = np.diff(D.indptr)  # (d + 1,) labels of each feature, on the host
        self.starts = copy_to_device(np.asarray(D.indptr[:-1], np.int64), machine.name)
        self.labels, self.values = copy_to_device(D.labels, machine.name), copy_to_device(D.values, machine.name)

    def add(self, Z: Tensor, X: Any, row: Tensor, scale: Tensor, first: int, room: int) -> None:
        """Z (b, m) += X D / (row scale) for the labels from `first` on; X (b, d + 1) are sparse rows of the host.

        So many pairs go together as take `room` bytes. A card adds them in any order: the last bits may change.
        """
        rows, features = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices.astype(np.int64)
        entries = WeightedEntries(rows, features, X.data.astype(np.float32), self.counts[features])
        ends, start = np.cumsum(entries.counts), 0
        while start < len(rows):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + room // PAIR_BYTES, side="right")))
            some = entries.part(slice(start, stop), Z.device)
            self._add_some(Z, some, int(ends[stop - 1]) - before, row, scale, first)
            start = stop

    def _add_some(self, Z: Tensor, some: WeightedEntries, total: int, row: Tensor, scale: Tensor, first: int) -> None:
        """All pairs of some entries of X, `total` in number."""
        entry = torch.repeat_interleave(torch.arange(len(some.x), device=Z.device), some.counts, output_size=total)
        starts = self.starts[some.features] - some.counts.cumsum(0) + some.counts
        at = starts[entry] + torch.arange(total, device=Z.device)
        labels, i = self.labels[at].long() - first, some.rows[entry]
        outside = (labels < 0) | (labels >= Z.shape[1])
        labels.remainder_(Z.shape[1])  # zeros are added for labels of other blocks, not all of them at one place
        values = (some.x[entry] * self.values[at]).masked_fill_(outside, 0) / (row[i] * scale[labels])
        Z.view(-1).index_add_(0, i * Z.shape[1] + labels, values)
