"""Sparse feature weights of labels: a matrix D (d + 1, c) in CSR, whose products are added to scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class SparseWeights(NamedTuple):
    """D in CSR; the last feature is the intercept, which has no weights here."""

    indptr: Array  # (d + 2,) int64
    labels: Array  # int32, ascending within a feature
    values: Array  # float32

    @property
    def size(self) -> int:
        return len(self.values)

    def add(self, S: Array, X: Any, labels: slice | Array, c: int) -> None:
        """Adds X D (b, m) of these labels to S, X (b, d + 1) being sparse rows."""
        from smoothlink.machines import prediction_kernels as kernels

        if isinstance(labels, slice):
            start, stop, _ = labels.indices(c)
            kernels.add_sparse(S, X.indptr, X.indices, X.data, *self, start, stop)
            return
        some, place = np.unique(labels, return_inverse=True)
        at = np.full(c, -1, np.int64)
        at[some] = np.arange(len(some))
        part = np.zeros((len(S), len(some)), np.float32)
        kernels.add_sparse_to_some(part, X.indptr, X.indices, X.data, *self, at)
        S += part[:, place]

    def of(self, features: Array, labels: Array) -> Array:
        """Returns the weights (p, m) of these labels for these features."""
        found = np.zeros((len(features), len(labels)), np.float32)
        for out, i in zip(found, features.tolist(), strict=True):
            start, stop = self.indptr[i], self.indptr[i + 1]
            mine = self.labels[start:stop]
            at = np.minimum(np.searchsorted(mine, labels), max(0, len(mine) - 1))
            if len(mine):
                out[:] = np.where(mine[at] == labels, self.values[start:stop][at], 0)
        return found
