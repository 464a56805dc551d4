"""X -> X with sensible scales: unit rows for text, unit variance for the columns of tables, and ones for the intercept.

What the scaling is made of is computed in float64 from the values as they came; only scaled values become float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError
from smoothlink.machines.matrices import row_range

Array = NDArray[Any]

BLOCK_NUMBERS = 1 << 22  # that are float64 at a time
SAMPLE_ROWS, SAMPLE_PARTS = 65536, 64  # by which "auto" decides where there are more: rows may be in a file
DENSE_SHARE = 0.25  # of entries that are not zero: beyond it a dense array is smaller and faster
DENSE_TABLE = (1000, 1 << 27)  # columns and numbers up to which a sparse table becomes dense, so that it can be centred
LARGEST_POINTER = np.iinfo(np.int32).max
LEAST_SQUARE = 1e-30  # of the length of a row, from which on its square in float32 has all its digits
# Counts, TF-IDF (with or without unit length), hashed words and character triples of four text sets have at most 1.5,
# raw counts of documents of 1,500 words 2.75; ten numbers of size 1,000 among fifty entries of a row have 110.
SIZES_DIFFER = 4.0
# Spread of the number of non-zero values of a row, over its mean. Numbers and one-hot columns have 0, or .15 where ten
# of fifteen are zero in half of the rows; the same texts have .3 to 1.5.
SAME_COUNT = 0.25


@dataclass(frozen=True)
class ColumnStatistics:
    """Weighted sums over rows from which a scaling is made; those of two sets of rows can be added."""

    rows: int
    weight: float  # of the rows
    entries: Array  # (d,) weight of the values that are not zero
    mean: Array  # (d,) of these
    scatter: Array  # (d,) their squared distances from the mean
    counts: Array  # (2,) sums of the number of non-zero values of a row, and of its square
    rounding: float  # relative size of differences that rounding explains

    @classmethod
    def of(cls, X: Any, w: Array) -> ColumnStatistics:
        """Returns the statistics of rows X (n, d) with weights w (n,)."""
        none = np.zeros(X.shape[1])
        empty = cls(0, 0.0, none, none, none, np.zeros(2), 1e-7 if X.dtype == np.float32 else 1e-13)
        return reduce(
            add, (cls.of_block(row_range(X, part), w[part].astype(np.float64)) for part in row_blocks(X)), empty
        )

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")  # `fit_variance` says where squares overflow
    def of_block(cls, X: Any, w: Array) -> ColumnStatistics:
        (n, d), total = X.shape, float(w.sum())
        if sp.issparse(X):
            k, j, x = np.diff(X.indptr), X.indices, X.data.astype(np.float64)
            v = np.repeat(w, k)
            entries = np.bincount(j, v, d)
            mean = np.bincount(j, v * x, d) / np.where(entries > 0, entries, 1)
            scatter = np.bincount(j, v * (x - mean[j]) ** 2, d)
        else:
            there, A = X != 0, X.astype(np.float64)
            k, entries = there.sum(axis=1), w @ there
            mean = w @ A / np.where(entries > 0, entries, 1)
            scatter = w @ np.where(there, A - mean, 0) ** 2
        return cls(n, total, entries, mean, scatter, np.array([w @ k, w @ np.square(k, dtype=np.float64)]), 0.0)

    @np.errstate(over="ignore", invalid="ignore")
    def __add__(self, other: ColumnStatistics) -> ColumnStatistics:
        entries = self.entries + other.entries
        share = other.entries / np.where(entries > 0, entries, 1)
        apart = other.mean - self.mean
        return ColumnStatistics(
            self.rows + other.rows,
            self.weight + other.weight,
            entries,
            self.mean + share * apart,
            self.scatter + other.scatter + share * self.entries * apart**2,
            self.counts + other.counts,
            max(self.rounding, other.rounding),
        )

    @property
    def density(self) -> float:
        """The share of values that are not zero."""
        return float(self.counts[0] / max(self.weight * len(self.entries), 1e-300))

    @property
    def full(self) -> Array:
        """Which columns (d,) are zero in no row, to within the rounding of weights."""
        return np.asarray(self.entries >= self.weight * (1 - 1e-9))

    @np.errstate(over="ignore", invalid="ignore")
    def moments(self) -> tuple[Array, Array]:
        """Returns the mean and standard deviation (d,) of each column, zeros included."""
        share = np.where(self.full, 1, self.entries / max(self.weight, 1e-300))
        variance = share * (self.scatter / np.where(self.entries > 0, self.entries, 1) + (1 - share) * self.mean**2)
        return share * self.mean, np.sqrt(np.maximum(variance, 0))

    @np.errstate(over="ignore", invalid="ignore")
    def size_ratio(self) -> float:
        """Returns the root mean square of the non-zero values over the geometric mean of their columns' sizes.

        Each column counts by its entries. 1: all columns are of one size; unit rows suit them. Where one in a hundred
        values is of size 1,000 and all others are of size 1, it is 93.
        """
        used = self.entries > 0
        if not used.any():
            return 1.0
        share = self.entries[used] / self.entries.sum()
        squares = self.mean[used] ** 2 + self.scatter[used] / self.entries[used]
        return float(np.sqrt(share @ squares) / np.exp(share @ np.log(np.maximum(squares, 1e-300)) / 2))

    def has_numbers_and_categories(self) -> bool:
        """Returns whether rows have about the same number of values: numbers in most rows, and one-hot columns."""
        mean, square = self.counts / max(self.weight, 1e-300)
        if not square - mean**2 < (SAME_COUNT * mean) ** 2:
            return False
        varies = self.scatter > self.entries * (self.rounding * self.mean) ** 2
        numbers = varies & (self.entries > self.weight / 2)
        others = self.entries[~numbers]
        return bool(numbers.any() and self.entries[~numbers & ~varies].sum() > others.sum() / 2)


class Scaling(NamedTuple):
    """How features are scaled before the column of ones is appended; part of the model."""

    kind: str  # "none", "unit" (rows of length 1) or "variance" (columns standardised)
    shift: Array  # (d,) subtracted, only for "variance"; of a sparse X from the values that are not zero
    factor: Array  # (d,) multiplied, only for "variance"
    dense: bool  # whether X becomes a dense array
    reason: str = ""  # why "auto" chose it, a sentence

    def __call__(self, X: Any) -> Any:
        """Returns X (n, d) scaled, with ones as column d; float32."""
        n, d = X.shape
        if self.dense:
            out = np.ones((n, d + 1), np.float32)
            for part in row_blocks(X):
                A = row_range(X, part).toarray() if sp.issparse(X) else X[part]
                if self.kind == "variance":
                    A = (A - self.shift) * self.factor
                elif self.kind == "unit":
                    A = A / np.where(A.any(axis=1), np.abs(A).max(axis=1, initial=0).astype(np.float64), 1)[:, None]
                    A *= inverse_lengths(np.einsum("ij,ij->i", A, A))[:, None]
                out[part, :-1] = single(A, self.kind)
            return out
        A = X if isinstance(X, sp.csr_array) else sp.csr_array(X)
        if n == 1 and A.nnz:
            data = np.append(self.scale_row(A.data, A.indices), np.float32(1))
            indices = np.append(A.indices, A.indices.dtype.type(d))
            return sp.csr_array((data, indices, np.array([0, len(data)], A.indptr.dtype)), (1, d + 1))
        if self.kind == "unit" and A.dtype == np.float32:  # where squares fit, no float64 copies
            with np.errstate(over="ignore", under="ignore"):
                squares = np.asarray(A.multiply(A).sum(axis=1)).ravel()
            if np.isfinite(squares).all() and (squares[np.diff(A.indptr) > 0] > LEAST_SQUARE).all():
                data = A.data * np.repeat(inverse_lengths(squares).astype(np.float32), np.diff(A.indptr))
                return with_intercept(sp.csr_array((data, A.indices, A.indptr), A.shape))
        data = np.empty(A.nnz, np.float32)
        for part in row_blocks(A):
            indptr = A.indptr[part.start : part.stop + 1]
            entries = slice(indptr[0], indptr[-1])
            data[entries] = self.scale_entries(A.data[entries], A.indices[entries], np.diff(indptr))
        return with_intercept(sp.csr_array((data, A.indices, A.indptr), A.shape))

    def scale_entries(self, data: Array, indices: Array, counts: Array) -> Array:
        """Returns values of sparse rows scaled, float32; rows have so many of them (n,), one after the other."""
        if self.kind == "unit":
            row, data = np.repeat(np.arange(len(counts)), counts), data.astype(np.float64)
            first = (np.cumsum(counts) - counts)[counts > 0]
            largest = np.zeros(len(counts))
            largest[counts > 0] = np.maximum.reduceat(np.abs(data), first) if len(first) else 0
            data /= np.where(largest > 0, largest, 1)[row]
            data *= inverse_lengths(np.bincount(row, data**2, len(counts)))[row]
        elif self.kind == "variance":
            data = (data - self.shift[indices]) * self.factor[indices]
        return single(data, self.kind)

    def scale_row(self, data: Array, indices: Array) -> Array:
        """Returns `scale_entries` of one row that has values, in a fraction of the time."""
        if self.kind != "unit":
            return self.scale_entries(data, indices, np.array([len(data)]))
        data = data / np.abs(data).max().astype(np.float64)
        return single(data / np.sqrt(data @ data), self.kind)


def single(A: Array, kind: str) -> Array:
    """Returns scaled values as float32; raises DataError where one of them is too large for that."""
    if A.dtype == np.float32:
        return A
    with np.errstate(over="ignore"):
        found = A.astype(np.float32)
    if kind != "unit" and not np.isfinite(found).all():
        raise DataError(
            f"X holds a value too large for 32-bit numbers: {np.abs(A).max():.3g}, scaled as scale={kind!r} says.\n"
            "Clip or divide the values of its column first, or use scale='unit'."
        )
    return found


def row_blocks(X: Any) -> Iterator[slice]:
    """Yields slices of consecutive rows that hold few enough numbers to be widened to float64."""
    n, d = X.shape
    per_row = X.nnz / max(1, n) if sp.issparse(X) else d
    step = max(1, int(BLOCK_NUMBERS / max(1, per_row)))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def sample_statistics(X: Any, w: Array) -> ColumnStatistics:
    """Returns the statistics of all rows, or of runs of rows from all over X where there are many."""
    n = X.shape[0]
    if n <= SAMPLE_ROWS:
        return ColumnStatistics.of(X, w)
    starts = np.linspace(0, n - SAMPLE_ROWS // SAMPLE_PARTS, SAMPLE_PARTS).astype(int)
    parts = [slice(start, start + SAMPLE_ROWS // SAMPLE_PARTS) for start in starts]
    return reduce(add, (ColumnStatistics.of(row_range(X, part), w[part]) for part in parts))


def choose_scaling(X: Any, kind: str = "auto", w: Array | None = None) -> Scaling:
    """Returns the scaling of this kind, or with "auto" one that suits X (n, d) with row weights w (n,)."""
    w = np.ones(X.shape[0]) if w is None else w
    found = resolve_scaling(sample_statistics(X, w), kind, X.shape[0])
    return found if found.kind != "variance" else fit_variance(ColumnStatistics.of(X, w), found)


def resolve_scaling(sample: ColumnStatistics, kind: str, rows: int) -> Scaling:
    """Returns the scaling of so many rows by the statistics of some; "variance" still lacks the columns' moments.

    A table, whose columns get unit variance, is X where more than a quarter of the values are not zero, where columns
    differ much in size, so that the largest would fill rows of unit length, or where numbers stand beside one-hot
    columns. All else is like text, whose rows get unit length.
    """
    if kind not in ("auto", "none", "unit", "variance"):
        raise ValueError(f"scale is {kind!r}; possible are 'auto', 'none', 'unit' and 'variance'.")
    reason, dense, d = "", sample.density > DENSE_SHARE, len(sample.entries)
    if kind == "auto":
        filled = f"{100 * sample.density:.3g} % of the values are not zero"
        ratio, kind = sample.size_ratio(), "variance"
        if dense:
            why = filled
        elif ratio > SIZES_DIFFER:
            why = f"columns differ in size (typical values are {ratio:.3g} times smaller than the root mean square)"
        elif sample.has_numbers_and_categories():
            why = "there are columns of numbers beside columns with a single value, as many in each row"
        else:
            kind, why = "unit", f"{filled}, and columns are alike in size"
        looks = "a table, so columns have unit variance" if kind == "variance" else "text, so rows have unit length"
        reason = f"X looks like {looks}: {why}."
    columns, numbers = DENSE_TABLE
    dense = dense or (kind == "variance" and d <= columns and rows * d <= numbers)
    nothing = np.zeros(0)
    return Scaling(kind, nothing, nothing, dense, reason)


def fit_variance(statistics: ColumnStatistics, scaling: Scaling) -> Scaling:
    """Returns the scaling to unit variance with the columns' moments.

    Where X stays sparse its columns are not centred, so that zeros stay zeros; but a column that is never zero is, and
    a zero in it later counts as the mean.
    """
    mean, spread = statistics.moments()
    if not np.isfinite(spread).all():
        raise DataError(
            "The squares of some values of X are too large for 64-bit numbers, so columns cannot be scaled to unit "
            "variance.\nDivide these columns first, or use scale='unit'."
        )
    size = np.abs(mean)
    if not scaling.dense:
        full = statistics.full
        spread = np.where(full, spread, np.sqrt(spread**2 + mean**2))
        mean, size = np.where(full, mean, 0), np.where(full, size, 0)
    varies = spread > statistics.rounding * size
    factor = np.where(varies & (spread > 0), 1 / np.where(spread > 0, spread, 1), 0)
    return scaling._replace(shift=mean, factor=factor)


def inverse_lengths(squares: Array) -> Array:
    """Returns 1 / sqrt of squared lengths; 0 for rows of zeros."""
    return np.where(squares > 0, 1 / np.sqrt(np.where(squares > 0, squares, 1)), 0)


def with_intercept(A: sp.csr_array) -> sp.csr_array:
    """Returns CSR with a column of ones appended, without a sort: the new entry is the last of its row."""
    n, d = A.shape
    indptr = one_more_each(A.indptr)
    indices = np.empty(A.nnz + n, A.indices.dtype)
    data = np.empty(A.nnz + n, np.float32)
    last = indptr[1:] - 1
    old = np.ones(A.nnz + n, bool)
    old[last] = False
    indices[old], indices[last] = A.indices, d
    data[old], data[last] = A.data, 1
    return sp.csr_array((data, indices, indptr), (n, d + 1))


def one_more_each(indptr: Array) -> Array:
    """Returns the pointers (n + 1,) of rows with one more entry each, 64-bit where 32 bits do not hold the last."""
    n = len(indptr) - 1
    kind = indptr.dtype if int(indptr[-1]) + n <= LARGEST_POINTER else np.dtype(np.int64)
    return indptr.astype(kind) + np.arange(n + 1, dtype=kind)
