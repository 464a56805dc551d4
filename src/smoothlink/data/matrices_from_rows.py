"""CSR matrices: built from parsed arrays, checked where they come from outside, ids made contiguous."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from smoothlink.errors import DataError
from smoothlink.machines.rows_in_files import check_sparse

LARGEST_ID = np.iinfo(np.int32).max  # ids are 32-bit, so sizes go up to this
_TABLE = 1 << 20  # ids below this, or below four times their number, are made contiguous with a table, else by sorting
# Columns that any file may announce, and that any may have; or so many times those that its ids reach, or its entries.
ANNOUNCED_COLUMNS, MOST_COLUMNS, FAR_MORE = 1 << 24, 1 << 28, 64


def fits(value: float) -> bool:
    """Returns whether it is finite as a float32, to which what is just beyond the largest one rounds down."""
    return abs(value) < 2.0**128 - 2.0**103


def csr(ptr: NDArray[Any], ids: NDArray[Any], values: NDArray[Any] | None, columns: int) -> csr_array:
    """Returns a float32 CSR matrix of sorted, unique ids without a further check; values None: ones."""
    index: Any = np.int32 if len(ids) <= LARGEST_ID else np.int64
    if values is None:
        values = np.ones(len(ids), np.float32)
    matrix = csr_array(
        (values.astype(np.float32, copy=False), ids.astype(index, copy=False), ptr.astype(index, copy=False)),
        shape=(len(ptr) - 1, columns),
    )
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def contiguous(ids: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Returns ids with gaps counted from 0 in their order, and the id of each number."""
    if not len(ids):
        return ids, np.empty(0, np.int64)
    if ids.max() >= max(_TABLE, 4 * len(ids)):
        kept, ranks = np.unique(ids, return_inverse=True)
        return ranks.astype(np.int32), kept.astype(np.int64)
    seen = np.zeros(int(ids.max()) + 1, np.bool_)
    seen[ids] = True
    table = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    return table[ids], np.flatnonzero(seen)


class Reach(NamedTuple):
    """What the ids of a matrix need."""

    columns: int = 0  # one more than the largest id
    entries: int = 0

    @classmethod
    def of(cls, ids: NDArray[Any]) -> Reach:
        return cls(int(ids.max(initial=-1)) + 1, len(ids))

    def with_more(self, other: Reach) -> Reach:
        return Reach(max(self.columns, other.columns), self.entries + other.entries)


def check_columns(path: str, noun: str, columns: int, found: Reach, remedy: str) -> int:
    """Returns how many columns there are; raises an error where the ids do not come near, or are few and far apart.

    A few bytes of a file would otherwise ask for the memory of arrays with a place for each column.
    """
    if columns > ANNOUNCED_COLUMNS and columns > FAR_MORE * found.columns:
        what = f"{columns:,} {noun}s are announced, and the ids of those that occur are below {found.columns:,}."
        raise DataError(f"{path}: {what}\n{remedy}")
    if columns > MOST_COLUMNS and columns > FAR_MORE * found.entries:
        what = f"{columns:,} {noun}s are very many for the {found.entries:,} entries of the matrix."
        raise DataError(f"{path}: {what}\n{remedy}")
    return columns


def checked(matrix: Any, what: str, *, binary: bool) -> csr_array:
    """Returns a sparse or dense matrix as sorted float32 CSR; raises an error for what a Data cannot hold."""
    matrix = matrix if issparse(matrix) else np.asarray(matrix)
    if matrix.dtype.kind not in "bifu":
        raise DataError(f"{what} has values of type {matrix.dtype}; only numbers can be read.")
    matrix = matrix.astype(np.float64) if matrix.dtype.kind == "f" and matrix.dtype.itemsize == 2 else matrix
    matrix = csr_array(check_sparse(matrix, what))
    if max(matrix.shape) > LARGEST_ID:
        raise DataError(f"{what} has shape {matrix.shape}; up to {LARGEST_ID} rows and columns can be read.")
    before = matrix.nnz
    matrix = _rounded(matrix, what)
    matrix.sum_duplicates()
    if matrix.nnz != before:
        raise DataError(f"{what} holds an entry twice: {before} entries, {matrix.nnz} places.\nSum or drop them first.")
    if binary:
        matrix.eliminate_zeros()
        if not (matrix.data == 1).all():
            odd = matrix.data[matrix.data != 1][0]
            raise DataError(f"{what} holds {odd}; a label is there (1) or not (0).\nThreshold the values first.")
    return csr(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1])


def _rounded(matrix: csr_array, what: str) -> csr_array:
    with np.errstate(over="ignore"):
        rounded = csr_array((matrix.data.astype(np.float32), matrix.indices, matrix.indptr), matrix.shape, copy=True)
    if not np.isfinite(rounded.data).all():
        odd = matrix.data[~np.isfinite(rounded.data)][0]
        raise DataError(f"{what} holds {odd}; values must be finite 32-bit numbers.\nReplace or drop it first.")
    return rounded
