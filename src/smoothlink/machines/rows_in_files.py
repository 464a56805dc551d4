"""Rows in files: matrices and arrays that are read a block at a time, and whose memory is then freed.

Blocks are read, not mapped: pages of a mapped file count as memory of the process until the system wants them back.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError
from smoothlink.machines.host_and_device import HOST, Machine

Array = NDArray[Any]

CHECKED_ENTRIES = 1 << 22  # at a time
PIECE_BYTES = 16 << 20  # of an array that are read at a time
COLUMN_ROWS = 4096  # of a file that are read at a time for one column
MAPPED_ROWS = 256  # that are touched before a mapped file leaves memory: each brings up to 64 KiB around it


def mapped_file(array: Array) -> mmap.mmap | None:
    """Returns the mapped file that an array is a view of, or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def release_pages(array: Array) -> None:
    """Lets what was read or written of a mapped file leave memory; its content stays."""
    file = mapped_file(array)
    if file is not None and hasattr(mmap, "MADV_DONTNEED"):
        file.madvise(mmap.MADV_DONTNEED)


def pieces(array: Array, size: int = PIECE_BYTES) -> Iterator[Array]:
    """Yields rows, or entries, in pieces of about `size` bytes; those of a mapped file leave memory again."""
    step = max(1, size * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), step):
        yield array[start : start + step]
        release_pages(array)


def scratch(shape: tuple[int, ...], dtype: Any, piece_bytes: int = PIECE_BYTES) -> Array:
    """Returns room for an array: in a temporary file, which goes with it, where that is larger than a piece."""
    if math.prod(shape) * np.dtype(dtype).itemsize <= piece_bytes:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        allocate(file, math.prod(shape) * np.dtype(dtype).itemsize, tempfile.gettempdir())
        return np.memmap(file, dtype, "r+", shape=shape)


def allocate(file: IO[bytes], size: int, name: str) -> None:
    """Gives a new file its room on disk, or raises an error that names it: the system ends a process (SIGBUS) that
    writes to a mapped page for which the disk has no room."""
    try:
        if hasattr(os, "posix_fallocate") and size:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):  # where the file system cannot
            file.truncate(0)
            raise OSError(error.errno, os.strerror(error.errno or 0), name) from error
    file.truncate(size)


class MappedMatrix(sp.csr_array):
    """A CSR matrix over memory-mapped arrays. A slice of rows is read; anything else is as in scipy."""

    @classmethod
    def over(cls, indptr: Array, indices: Array, data: Array | None, columns: int) -> MappedMatrix:
        """Returns the matrix of these arrays as they are, without a copy; data None: ones.

        scipy's constructor would copy 32-bit indices to 64 bits where there are more than 2^31 entries.
        """
        A = cls((len(indptr) - 1, columns), dtype=np.float32)
        A.indptr, A.indices = indptr, indices
        A.data = np.broadcast_to(np.float32(1), len(indices)) if data is None else data
        A.has_sorted_indices = A.has_canonical_format = True
        return A

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and key.step in (None, 1):
            start, stop, _ = key.indices(self.shape[0])
            return self._read(start, max(start, stop))
        return super().__getitem__(key)

    def _read(self, start: int, stop: int) -> sp.csr_array:
        """Returns rows start .. stop in memory, without stored zeros."""
        indptr = np.array(self.indptr[start : stop + 1])
        begin, end = int(indptr[0]), int(indptr[-1])
        index: Any = np.int32 if end - begin < 2**31 else np.int64
        parts = piece(self.data, begin, end), piece(self.indices, begin, end), (indptr - begin).astype(index)
        A = sp.csr_array(parts, (stop - start, self.shape[1]))
        A.has_sorted_indices = A.has_canonical_format = True
        if not A.data.all():
            A.eliminate_zeros()
        return A

    def sound(self) -> bool:
        """Returns whether every index is that of a column, those of a row ascend, and every value is finite.

        Products rely on it, and would read or write outside of their arrays otherwise.
        """
        return self.checksums() is not None

    def checksums(self) -> tuple[int, int] | None:
        """Returns the CRC-32 of the indices and of the values from one reading, None where they are not sound."""
        crcs = 0, 0
        for start in range(0, len(self.indices), CHECKED_ENTRIES):
            end = min(len(self.indices), start + CHECKED_ENTRIES)
            indices, data = piece(self.indices, start, end), piece(self.data, start, end)
            if indices.min() < 0 or indices.max() >= self.shape[1] or not np.isfinite(data).all():
                return None
            crcs = zlib.crc32(indices.data, crcs[0]), zlib.crc32(data.data, crcs[1])
            ascends = np.diff(indices) > 0
            first = np.searchsorted(self.indptr, [start + 1, end])  # rows that begin within, whose first may be less
            begins = self.indptr[first[0] : first[1]] - (start + 1)
            ascends[begins[begins < len(ascends)]] = True
            if not ascends.all():
                return None
        return crcs


def check_sparse(A: Any, name: str) -> Any:
    """Returns a sparse matrix whose arrays fit together, and what is not sparse as it is; raises DataError otherwise.

    Compiled code trusts indices, and would read or write outside of its arrays. A mapped matrix was looked through when
    it was read.
    """
    if not sp.issparse(A) or A.ndim != 2 or isinstance(A, MappedMatrix):
        return A
    A = A if A.format in ("csr", "csc") else A.tocoo()
    if A.format == "coo":
        fits = all(len(at) == len(A.data) and _below(at, size) for at, size in zip(A.coords, A.shape, strict=True))
    else:
        major, minor = A.shape if A.format == "csr" else A.shape[::-1]
        ptr, entries = A.indptr, len(A.indices)
        fits = len(ptr) == major + 1 and ptr[0] == 0 and ptr[-1] <= entries == len(A.data)
        fits = fits and bool((ptr[1:] >= ptr[:-1]).all()) and _below(A.indices[: ptr[-1]], minor)
    if not fits:
        raise DataError(
            f"{name} is a sparse matrix whose indices do not fit its shape {A.shape[0]} x {A.shape[1]}.\n"
            f"Make it again; {name}.check_format() says what is wrong."
        )
    return A


def _below(indices: Array, size: int) -> bool:
    return not len(indices) or bool(indices.min() >= 0 and indices.max() < size)


def piece(array: Array, begin: int, end: int) -> Array:
    """Returns array[begin:end] in memory of its own."""
    if isinstance(array, np.memmap) and array.filename is not None and array.ndim == 1:
        place = array.offset + begin * array.itemsize
        return np.fromfile(array.filename, array.dtype, end - begin, offset=place)
    return np.array(array[begin:end])


@dataclass
class Budget:
    """How many bytes of blocks may stay once they were made; None: all of them."""

    left: int | None

    def reserve(self, X: Any) -> bool:
        """Returns whether the budget has room for this block, and if so reserves it."""
        if self.left is None:
            return True
        fits = self.left > 0 and bool(X.nbytes <= self.left)  # to count the bytes prepares X for products
        self.left -= X.nbytes if fits else 0
        return fits

    def free(self, X: Any) -> None:
        """Gives the bytes of a block back."""
        if self.left is not None:
            self.left += X.nbytes


class ScaledRows:
    """X (n, d) scaled and with the column of the intercept, one block of rows at a time; the whole is never made."""

    def __init__(self, X: Any, scaling: Callable[[Any], Any], keep: int) -> None:
        self.X, self.scaling, self.budget = X, scaling, Budget(keep)
        self.shape: tuple[int, int] = (X.shape[0], X.shape[1] + 1)
        self.nnz: int = (X.nnz if sp.issparse(X) else X.size) + X.shape[0]

    def block(self, part: slice, machine: Machine = HOST) -> LazyBlock:
        """Returns these rows, which stay in memory once read where the budget allows."""
        return LazyBlock(self.X, part, self.scaling, self.budget, machine)


class LazyBlock:
    """Some consecutive rows of a matrix that is in a file, on another machine, or not yet scaled."""

    def __init__(
        self,
        source: Any,
        part: slice,
        prepare: Callable[[Any], Any] | None = None,
        budget: Budget | None = None,
        machine: Machine = HOST,
    ) -> None:
        self.source, self.part, self.prepare, self.budget, self.machine = source, part, prepare, budget, machine
        self.loaded: Any = None

    def load(self) -> Any:
        """Returns the rows as a Matrix, which stays in memory where the budget allows."""
        if self.loaded is not None:
            return self.loaded
        whole = type(self.source) in (np.ndarray, sp.csr_array) and self.part == slice(0, self.source.shape[0])
        A = self.source if whole else self.source[self.part]
        found = self.machine.matrix(A if self.prepare is None else self.prepare(A))
        if self.budget is not None and self.budget.reserve(found):
            self.loaded = found
        return found

    def release(self) -> None:
        """Frees the memory of the rows."""
        if self.budget is not None and self.loaded is not None:
            self.budget.free(self.loaded)
            self.loaded = None


def load(X: Any) -> Any:
    """Returns the Matrix of a block's inputs, which may be lazy."""
    return X.load() if isinstance(X, LazyBlock) else X


ENTRY = np.dtype([("column", np.int32), ("value", np.float32)])


class SparseFile:
    """Sparse rows in a temporary file, in an order in which they will be read: neighbours are one read."""

    def __init__(self, order: Array, lengths: Array, columns: int, folder: str | os.PathLike[str] | None) -> None:
        """Makes room for the rows `order` (m,) of those that have `lengths` (n,) entries."""
        self.order, self.shape = order, (len(lengths), columns)
        self.place = np.full(len(lengths), -1, np.int64)  # in the file
        self.place[order] = np.arange(len(order))
        self.starts = np.append(0, np.cumsum(lengths[order], dtype=np.int64))
        self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        allocate(self.file, ENTRY.itemsize * self.nnz, os.fspath(folder or tempfile.gettempdir()))

    def write(self, first: int, A: sp.csr_array) -> None:
        """Writes those of the rows first, first + 1, ... that have a place; A is these rows."""
        entries = np.empty(A.nnz, ENTRY)
        entries["column"], entries["value"] = A.indices, A.data
        place = self.place[first : first + A.shape[0]]
        numbers = np.flatnonzero(place >= 0)
        numbers = numbers[np.argsort(place[numbers])]
        for number, start in zip(numbers.tolist(), self.starts[place[numbers]].tolist(), strict=True):
            self.file.seek(ENTRY.itemsize * start)
            part = entries[A.indptr[number] : A.indptr[number + 1]]
            if self.file.write(part.data) != part.nbytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read(self, numbers: Array) -> sp.csr_array:
        """Returns some rows in memory, in this order."""
        place = self.place[numbers]
        indptr = np.append(0, np.cumsum(self.starts[place + 1] - self.starts[place]))
        entries = np.empty(indptr[-1], ENTRY)
        runs = np.append(np.flatnonzero(np.diff(place, prepend=-2) != 1), len(place))
        for start, end in zip(runs[:-1].tolist(), runs[1:].tolist(), strict=True):
            room = entries[indptr[start] : indptr[end]]
            self.file.seek(ENTRY.itemsize * int(self.starts[place[start]]))
            if self.file.readinto(room.data) != room.nbytes:
                raise OSError("the temporary file of the rows was cut short")
        parts = entries["value"].copy(), entries["column"].copy(), indptr.astype(np.int32)
        return sp.csr_array(parts, (len(numbers), self.shape[1]))

    @property
    def nnz(self) -> int:
        return int(self.starts[-1])


class FileArray:
    """A float32 array (n, m) in a file: slices of rows are read and written, a few rows may be taken by number."""

    dtype = np.dtype(np.float32)

    def __init__(self, path: str | os.PathLike[str], shape: tuple[int, int]) -> None:
        self.path, self.shape = os.fspath(path), shape
        size = 4 * shape[0] * shape[1]
        if not os.path.exists(self.path) or os.path.getsize(self.path) != size:
            with open(self.path, "wb") as file:
                allocate(file, size, self.path)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        return 4 * self.shape[0] * self.shape[1]

    def __getitem__(self, key: Any) -> Array:
        width = self.shape[1]
        if isinstance(key, slice):
            start, stop, _ = key.indices(len(self))
            count = max(0, stop - start) * width
            return np.fromfile(self.path, self.dtype, count, offset=4 * start * width).reshape(-1, width)
        numbers, mapped = np.asarray(key), self.mapped()
        found = np.empty((len(numbers), width), np.float32)
        for rows in self._some_rows(mapped, len(numbers)):
            found[rows] = mapped[numbers[rows]]
        return found

    @staticmethod
    def _some_rows(mapped: Array, count: int) -> Iterator[slice]:
        """Yields a few rows at a time; what was touched of the mapped file then leaves memory."""
        for start in range(0, count, MAPPED_ROWS):
            yield slice(start, start + MAPPED_ROWS)
            release_pages(mapped)

    def __setitem__(self, key: slice, rows: Array) -> None:
        start, stop, _ = key.indices(len(self))
        assert rows.shape == (stop - start, self.shape[1])
        with open(self.path, "r+b") as file:
            file.seek(4 * start * self.shape[1])
            np.ascontiguousarray(rows, np.float32).tofile(file)

    def put_columns(self, part: slice, columns: Array) -> None:
        """Writes some columns of every row."""
        mapped = np.memmap(self.path, self.dtype, "r+", shape=self.shape)
        for rows in self._some_rows(mapped, len(self)):
            mapped[rows, part] = columns[rows]

    def columns(self, part: slice) -> Array:
        """Returns some columns of every row."""
        mapped = self.mapped()
        return np.concatenate([np.array(mapped[rows, part]) for rows in self._some_rows(mapped, len(self))])

    def mapped(self) -> Array:
        """Returns the array mapped, read-only."""
        return np.memmap(self.path, self.dtype, "r", shape=self.shape)

    def column(self, number: int) -> Array:
        """Returns one column (n,)."""
        column = np.empty(len(self), np.float32)
        for start in range(0, len(self), COLUMN_ROWS):
            column[start : start + COLUMN_ROWS] = self[start : start + COLUMN_ROWS][:, number]
        return column

    def flush(self) -> None:
        """Waits until what was written is on disk."""
        with open(self.path, "r+b") as file:
            os.fsync(file.fileno())

    @property
    def T(self) -> TransposedFile:
        return TransposedFile(self)


class TransposedFile:
    """The transpose (m, n) of an array in a file, which reads `[:, labels]` and `[-1]`."""

    def __init__(self, file: FileArray) -> None:
        self.file = file
        self.shape: tuple[int, int] = (file.shape[1], file.shape[0])

    def __getitem__(self, key: Any) -> Array:
        if isinstance(key, tuple):
            return self.file[key[1]].T
        return self.file.column(key)


def new_file_array(path: str | os.PathLike[str], shape: tuple[int, int]) -> FileArray:
    """Returns a new array of zeros in a file."""
    if os.path.exists(path):
        os.unlink(path)
    return FileArray(path, shape)
