"""Sparse feature weights of labels: a matrix D (d + 1, c) in CSR, whose products are added to scores.

In a model file the numbers of labels may have 16 bits, and the weights may be whole numbers times a scale of their
feature: rows are multiplied by the scales, and weights are used as they are stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.errors import ModelFileError
from smoothlink.machines.grouped_codes import TINY

Array = NDArray[Any]

CODES = {"float16": np.int16, "int8": np.int8, "int4": np.int8}  # of the weights, by the type of the dense ones
SEARCHED_SHARE = 16  # fewer labels than one in so many are looked for in the row of each feature


class SparseWeights(NamedTuple):
    """D in CSR; the last feature is the intercept, which has no weights here."""

    indptr: Array  # (d + 2,) int64
    labels: Array  # int32 or uint16, ascending within a feature
    values: Array  # float32, int16 or int8
    scale: Array | None = None  # (d + 1,) float32, of the whole numbers

    @property
    def size(self) -> int:
        return len(self.values)

    def add(self, S: Array, X: Any, labels: slice | Array, c: int) -> None:
        """Adds X D (b, m) of these labels to S, X (b, d + 1) being sparse rows. The products of a label are summed in
        the order of the features, and then added, however many labels these are."""
        from smoothlink.machines import prediction_kernels as kernels

        x = X.data if self.scale is None else X.data * self.scale[X.indices]
        if isinstance(labels, slice):
            start, _, _ = labels.indices(c)
            kernels.add_sparse(S, X.indptr, X.indices, x, *self[:3], start)
        elif len(labels) * SEARCHED_SHARE < c:
            kernels.add_sparse_to_some(S, X.indptr, X.indices, x, *self[:3], labels)
        else:
            part = np.zeros((len(S), c), np.float32)
            kernels.add_sparse(part, X.indptr, X.indices, x, *self[:3], 0)
            S += part[:, labels]

    def products(self, X: Any, c: int) -> Array:
        """Returns X D (b, c)."""
        from smoothlink.machines import prediction_kernels as kernels

        found = np.zeros((X.shape[0], c), np.float32)
        if len(found) == 1:  # without waking other threads
            x = X.data if self.scale is None else X.data * self.scale[X.indices]
            kernels.sum_sparse(found[0], X.indices, x, *self[:3], 0)
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
        return found if self.scale is None else found * self.scale[features, None]

    def weights(self) -> Array:
        """Returns the weights of all entries in float32."""
        if self.scale is None:
            return self.values
        return self.values * np.repeat(self.scale, np.diff(self.indptr))

    def without_smallest(self, share: float) -> SparseWeights:
        """Returns the same without this share of the entries, those of the smallest weights."""
        if not share:
            return self
        kept = np.ones(self.size, bool)
        kept[np.argsort(np.abs(self.weights()), kind="stable")[: int(share * self.size)]] = False
        return self.take(kept)

    def without(self, features: Array, labels: Array) -> Array:
        """Returns which entries (size,) are those of neither these features nor these labels."""
        rows = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        return ~(np.isin(rows, features) | np.isin(self.labels, labels))

    def take(self, kept: Array) -> SparseWeights:
        """Returns the entries that a mask (size,) says."""
        indptr = np.append(0, np.cumsum(kept))[self.indptr]
        return self._replace(indptr=indptr, labels=self.labels[kept], values=self.values[kept])

    def stored(self, dtype: str | None, c: int) -> SparseWeights:
        """Returns the same with labels in 16 bits where they fit, and the weights in the bits of `dtype` or as they
        are."""
        labels = self.labels.astype(np.uint16 if c <= 1 << 16 else np.int32, copy=False)
        if dtype is None:
            return self._replace(labels=labels)
        if dtype == "float32":
            return SparseWeights(self.indptr, labels, self.weights())
        kind, values, counts = np.dtype(CODES[dtype]), self.weights(), np.diff(self.indptr)
        largest, some = np.zeros(len(counts), np.float32), counts > 0
        largest[some] = np.maximum.reduceat(np.abs(values), self.indptr[:-1][some])
        if not np.isfinite(largest).all():
            raise ModelFileError("The model has weights that are not finite. Fit it again with a larger ridge.")
        scale = np.maximum(largest / (2 ** (8 * kind.itemsize - 1) - 1), TINY).astype(np.float32)
        return SparseWeights(self.indptr, labels, np.rint(values / np.repeat(scale, counts)).astype(kind), scale)
