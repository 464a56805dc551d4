"""Sparse feature weights of labels: a matrix D (d + 1, c) in CSR, whose products are added to scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SEARCHED_SHARE = 16  # fewer labels than one in so many are looked for in the row of each feature


class SparseWeights(NamedTuple):
    """D in CSR; the last feature is the intercept, which has no weights here."""

    indptr: Array  # (d + 2,) int64
    labels: Array  # int32, ascending within a feature
    values: Array  # float32

    @property
    def size(self) -> int:
        return len(self.values)

    def add(self, S: Array, X: Any, labels: slice | Array, c: int) -> None:
        """Adds X D (b, m) of these labels to S, X (b, d + 1) being sparse rows. The products of a label are summed in
        the order of the features, and then added, however many labels these are."""
        from smoothlink.machines import prediction_kernels as kernels

        if isinstance(labels, slice):
            start, _, _ = labels.indices(c)
            kernels.add_sparse(S, X.indptr, X.indices, X.data, *self, start)
        elif len(labels) * SEARCHED_SHARE < c:
            kernels.add_sparse_to_some(S, X.indptr, X.indices, X.data, *self, labels)
        else:
            part = np.zeros((len(S), c), np.float32)
            kernels.add_sparse(part, X.indptr, X.indices, X.data, *self, 0)
            S += part[:, labels]

    def products(self, X: Any, c: int) -> Array:
        """Returns X D (b, c)."""
        from smoothlink.machines import prediction_kernels as kernels

        found = np.zeros((X.shape[0], c), np.float32)
        if len(found) == 1:  # without waking other threads
            kernels.sum_sparse(found[0], X.indices, X.data, *self, 0)
        else:
            self.add(found, X, slice(None), c)
        return found

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
