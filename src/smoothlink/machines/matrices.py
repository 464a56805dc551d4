"""The matrices that a block of rows may hold, with the same few products: dense ones on any machine, sparse ones on the
host. device_matrices.py has the sparse ones of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.arrays import Array, add_product, astype, like, on_host, take_rows, to_host
from smoothlink.machines.threads import dense_product

if TYPE_CHECKING:
    from smoothlink.machines.kernels import CSR

HostArray = NDArray[Any]

# Float32 products of at most this many rows are added in float64: a longer sum loses digits.
GRAM_ROWS = 8192

# Rows of X that are transposed together: features read the rows of R from all over it, so it must fit the caches.
PART_ROWS = 65536


def row_range(A: Any, part: slice) -> Any:
    """Returns some rows, as A[part] does, but raises an error where there is no memory for consecutive sparse ones, and
    returns A itself where they are all.

    SciPy ends the process there, at least up to 1.17: get_csr_submatrix, by which it takes ranges of rows, writes to
    arrays without looking whether it got them.
    """
    if type(A) is not sp.csr_array or part.step not in (None, 1):  # one in files reads its own
        return A[part]
    start, stop, _ = part.indices(A.shape[0])
    stop = max(start, stop)
    if stop - start == A.shape[0]:
        return A
    indptr = A.indptr[start : stop + 1]
    entries = slice(indptr[0], indptr[-1])
    arrays = A.data[entries].copy(), A.indices[entries].copy(), indptr - indptr[0]
    return sp.csr_array(arrays, shape=(stop - start, A.shape[1]))


class Sparse:
    """CSR with its transpose prepared once: `X @ B` and `X.T.add_product(R, out)` on all cores."""

    def __init__(self, A: sp.csr_array, part_rows: int = PART_ROWS) -> None:
        self.csr, self.part_rows = A, part_rows
        self.shape: tuple[int, int] = A.shape
        self._forward: CSR | None = None
        self._transpose: SparseTranspose | None = None

    def __reduce__(self) -> Any:
        """Pickles the matrix, without what was prepared of it."""
        return Sparse, (self.csr,)

    def release(self) -> None:
        """Frees what was prepared for products, which can be made again."""
        self._forward = self._transpose = None

    @property
    def T(self) -> SparseTranspose:
        if self._transpose is None:
            self._transpose = SparseTranspose(self.csr, self.part_rows)
        return self._transpose

    @property
    def forward(self) -> CSR:
        from smoothlink.machines import kernels

        if self._forward is None:
            A = self.csr
            self._forward = kernels.forward(A.indptr, A.indices, A.data, A.shape[1])
        return self._forward

    @property
    def nbytes(self) -> int:
        """Returns the bytes that it holds once it is prepared for products."""
        arrays = [*self.forward, *(array for part in self.T.parts for array in part)]
        return sum({id(array): array.nbytes for array in arrays}.values())

    def __matmul__(self, B: HostArray) -> HostArray:
        from smoothlink.machines import kernels

        out = np.empty((self.shape[0], B.shape[1]), dtype=B.dtype)
        kernels.product(self.forward, np.ascontiguousarray(B), out)
        return out

    def take(self, numbers: HostArray) -> sp.csr_array:
        """Returns some rows, on the host."""
        return self.csr[numbers]

    def dense_rows(self, start: int, stop: int) -> HostArray:
        """Returns some rows, dense."""
        rows: HostArray = row_range(self.csr, slice(start, stop)).toarray()
        return rows

    def add_gram(self, w: HostArray, out: HostArray) -> None:
        """Adds X' diag(w) X to out (d, d)."""
        from smoothlink.machines import kernels

        for start, t in zip(self.T.starts, self.T.parts, strict=True):
            A = row_range(self.csr, slice(start, start + self.part_rows))
            part = w[start : start + self.part_rows]
            kernels.csr_add_gram(*t[:5], A.indptr, A.indices, A.data, part, out)

    def add_kernel(self, w: HostArray, out: HostArray) -> None:
        """Adds X diag(w) X' to out (n, n): the Gram matrix of the transpose."""
        from smoothlink.machines import kernels

        T = self.csr.tocsc()
        kernels.csr_add_gram(*self.forward[:5], T.indptr, T.indices, T.data, w, out)

    def add_square_sums(self, w: HostArray, out: HostArray) -> None:
        """Adds the diagonal of X' diag(w) X to out (d,)."""
        A = self.csr
        weights = np.repeat(w, np.diff(A.indptr))
        out += np.bincount(A.indices, weights=weights * A.data.astype(np.float64) ** 2, minlength=A.shape[1])

    def add_column_sums(self, w: HostArray, out: HostArray) -> None:
        """Adds X'w to out (d,)."""
        A = self.csr
        out += np.bincount(A.indices, weights=np.repeat(w, np.diff(A.indptr)) * A.data, minlength=A.shape[1])

    def add_part(self, part: slice, columns: slice | HostArray, R: HostArray, out: HostArray) -> None:
        """Adds A'R to out (m, s) for A = X[part, columns]."""
        every = isinstance(columns, slice) and columns == slice(0, self.shape[1])
        if every and part == slice(0, self.shape[0]):
            self.T.add_product(R, out)
            return
        A = row_range(self.csr, part)
        Sparse(A if every else A[:, columns]).T.add_product(R, out)


class SparseTranspose:
    """X' in CSR, some rows of X at a time, without columns that are empty there: small even where d is millions."""

    def __init__(self, A: sp.csr_array, part_rows: int) -> None:
        from smoothlink.machines import kernels

        self.starts = range(0, max(1, A.shape[0]), part_rows)
        self.parts = []
        for start in self.starts:
            part = row_range(A, slice(start, start + part_rows))
            T = part.tocsc()  # the CSC arrays of A are the CSR arrays of A'
            self.parts.append(kernels.backward(T.indptr, T.indices, T.data, part.shape[0]))

    def add_product(self, R: HostArray, out: HostArray) -> None:
        """Adds X' R to out (d, m)."""
        from smoothlink.machines import kernels

        R = np.ascontiguousarray(R)
        for start, part in zip(self.starts, self.parts, strict=True):
            kernels.add_product(part, R[start : start + self.starts.step], out)


class Dense:
    """A float32 array, of the host or of a device, with the products of `Sparse`."""

    def __init__(self, A: Array) -> None:
        self.array = A
        self.shape: tuple[int, int] = (A.shape[0], A.shape[1])
        self.nbytes: int = A.nbytes

    def release(self) -> None:
        """Does nothing: nothing was prepared."""

    @property
    def T(self) -> DenseTranspose:
        return DenseTranspose(self.array)

    def __matmul__(self, B: Array) -> Array:
        return dense_product(like(self.array, B), B)

    def take(self, numbers: HostArray) -> HostArray:
        """Returns some rows, on the host."""
        return to_host(take_rows(self.array, numbers))

    def dense_rows(self, start: int, stop: int) -> Array:
        """Returns some rows."""
        return self.array[start:stop]

    def add_gram(self, w: Array, out: Array) -> None:
        """Adds X' diag(w) X to out (d, d)."""
        for start in range(0, len(self.array), GRAM_ROWS):
            part = self.array[start : start + GRAM_ROWS]
            out += part.T @ (part * w[start : start + GRAM_ROWS, None])

    def add_square_sums(self, w: Array, out: Array) -> None:
        """Adds the diagonal of X' diag(w) X to out (d,)."""
        if on_host(self.array):  # a third of the time of the loop, without copies in float64
            out += np.einsum("ij,ij,i->j", self.array, self.array, w.astype(np.float64))
            return
        for start in range(0, len(self.array), GRAM_ROWS):
            part = astype(self.array[start : start + GRAM_ROWS], np.float64)
            out += astype(w[start : start + GRAM_ROWS], np.float64) @ (part * part)


class DenseTranspose:
    """X'."""

    def __init__(self, A: Array) -> None:
        self.array = A

    def add_product(self, R: Array, out: Array) -> None:
        """Adds X' R to out (d, m)."""
        add_product(like(self.array.T, R), R, out)


Matrix = Sparse | Dense


def matrix(A: Any) -> Matrix:
    """Returns an array or a sparse matrix of the host with its products."""
    return Sparse(A) if sp.issparse(A) else Dense(np.ascontiguousarray(A))
