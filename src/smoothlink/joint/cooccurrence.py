"""Which labels occur with which features: the pattern of the sparse weights, from rows in memory or in files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import prange
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled
from smoothlink.machines.matrices import row_range
from smoothlink.machines.rows_in_files import SparseFile
from smoothlink.machines.sorting import sort_by

Array = NDArray[Any]

READ_ROWS = 65536  # at a time
PARTS = 64  # of the features, one thread each


class Cooccurrence(NamedTuple):
    """Features that a weight may have, the rows of each, and how many labels each occurs with."""

    starts: Array  # (d + 1,) where the rows of each feature begin
    rows: Array  # int32
    Y: sp.csr_array
    indptr: Array  # (d + 1,) where the labels of each feature begin

    def labels(self) -> Array:
        """Returns the labels of all features, those of one ascending."""
        found = np.empty(self.indptr[-1], np.int32)
        write_labels(self.starts, self.rows, self.Y.indptr, self.Y.indices, self.Y.shape[1], self.indptr, found)
        return found


def find(X: Any, Y: sp.csr_array, rows: Array, features: int, frequent: float, most: int) -> Cooccurrence:
    """Returns with which labels the first columns of X, its features, occur in some rows: those of no more than
    `frequent` rows, and none where the pairs of a feature and a label in one row are more than `most`."""
    d, c = X.shape[1], Y.shape[1]
    of_row, counts, pairs = np.diff(Y.indptr), np.zeros(d, np.int64), np.zeros(d)
    for numbers, A in pieces(X, rows):
        counts += np.bincount(A.indices, minlength=d)
        pairs += np.bincount(A.indices, np.repeat(of_row[numbers], np.diff(A.indptr)), d)
    kept = counts <= frequent
    kept[features:] = False
    if pairs[:features].sum() > most:
        kept[:] = False
    starts = np.append(0, np.cumsum(np.where(kept, counts, 0)))
    at, of_feature = starts[:-1].copy(), np.empty(starts[-1], np.int32)
    for numbers, A in pieces(X, rows) if len(of_feature) else ():
        write_rows(A.indptr, A.indices, numbers, kept, at, of_feature)
    found = np.zeros(d, np.int64)
    count_labels(starts, of_feature, Y.indptr, Y.indices, c, found)
    index: Any = np.int32 if found.sum() < 2**31 else np.int64
    return Cooccurrence(starts, of_feature, Y, np.append(0, np.cumsum(found)).astype(index))


def pieces(X: Any, rows: Array) -> Iterator[tuple[Array, sp.csr_array]]:
    """Yields the numbers of some of these rows, and their entries, in memory."""
    if isinstance(X, SparseFile):
        for start in range(0, len(X.order), READ_ROWS):
            numbers = X.order[start : start + READ_ROWS]
            yield numbers, X.read(numbers)
        return
    for start in range(0, X.shape[0], READ_ROWS):
        first, last = np.searchsorted(rows, [start, start + READ_ROWS])
        if first < last:
            yield rows[first:last], row_range(X, slice(start, start + READ_ROWS))[rows[first:last] - start]


@compiled()
def write_rows(indptr: Array, indices: Array, numbers: Array, kept: Array, at: Array, out: Array) -> None:
    """Writes the numbers of the rows of a CSR matrix to `out`, for each feature from `at` on, which it moves."""
    for i in range(len(numbers)):
        for p in range(indptr[i], indptr[i + 1]):
            f = indices[p]
            if kept[f]:
                out[at[f]] = numbers[i]
                at[f] += 1


@compiled(parallel=True)
def count_labels(starts: Array, rows: Array, indptr: Array, indices: Array, c: int, out: Array) -> None:
    """Writes how many distinct labels (CSR) the rows of each feature have to `out` (d,)."""
    d = len(out)
    for part in prange(PARTS):
        seen = np.full(c, -1, np.int32)
        for f in range(part * d // PARTS, (part + 1) * d // PARTS):
            count = 0
            for i in range(starts[f], starts[f + 1]):
                for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
                    if seen[indices[p]] != f:
                        seen[indices[p]] = f
                        count += 1
            out[f] = count


@compiled(parallel=True)
def write_labels(
    starts: Array, rows: Array, indptr: Array, indices: Array, c: int, label_starts: Array, out: Array
) -> None:
    """Writes the distinct labels of each feature's rows to `out`, ascending, from its place in `label_starts` on."""
    d, labels = len(starts) - 1, np.arange(c)
    for part in prange(PARTS):
        seen = np.full(c, -1, np.int32)
        for f in range(part * d // PARTS, (part + 1) * d // PARTS):
            at = label_starts[f]
            for i in range(starts[f], starts[f + 1]):
                for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
                    if seen[indices[p]] != f:
                        seen[indices[p]] = f
                        out[at] = indices[p]
                        at += 1
            sort_by(labels, out[label_starts[f] : at])
