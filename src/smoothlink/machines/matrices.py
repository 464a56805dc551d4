"""The two kinds of matrix a block of rows may hold, sparse and dense, with the same few products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

if TYPE_CHECKING:
    from smoothlink.machines.kernels import CSR

Array = NDArray[Any]

# Float32 products of at most this many rows are added in float64 (DESIGN: a longer sum loses digits).
GRAM_ROWS = 8192

PART_ROWS = 65536  # of X that are transposed together


class Sparse:
    """CSR with its transpose prepared once: `X @ B` and `X.T.add_product(R, out)` on all cores."""

    def __init__(self, A: sp.csr_array) -> None:
        self.csr = A
        self.shape: tuple[int, int] = A.shape
        self._forward: CSR | None = None
        self._transpose: _SparseTranspose | None = None

    def __reduce__(self) -> Any:
        """What is sent is the matrix, not what was prepared of it."""
        return Sparse, (self.csr,)

    def release(self) -> None:
        """Forgets what was prepared for products, which can be made again."""
        self._forward = self._transpose = None

    @property
    def T(self) -> _SparseTranspose:
        if self._transpose is None:
            self._transpose = _SparseTranspose(self.csr)
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
        """What it holds once it is prepared for products."""
        arrays = [*self.forward, *(array for part in self.T.parts for array in part)]
        return sum({id(array): array.nbytes for array in arrays}.values())

    def __matmul__(self, B: Array) -> Array:
        from smoothlink.machines import kernels

        out = np.empty((self.shape[0], B.shape[1]), dtype=B.dtype)
        kernels.product(self.forward, np.ascontiguousarray(B), out)
        return out

    def take(self, numbers: Array) -> sp.csr_array:
        return self.csr[numbers]

    def dense_rows(self, start: int, stop: int) -> Array:
        """Some rows, dense."""
        rows: Array = self.csr[start:stop].toarray()
        return rows

    def add_gram(self, w: Array, out: Array) -> None:
        """out (d, d) += X' diag(w) X."""
        from smoothlink.machines import kernels

        for start, t in zip(self.T.starts, self.T.parts, strict=True):
            A = self.csr[start : start + PART_ROWS] if len(self.T.parts) > 1 else self.csr
            part = w[start : start + PART_ROWS]
            kernels.csr_add_gram(*t[:5], A.indptr, A.indices, A.data, part, out)

    def add_square_sums(self, w: Array, out: Array) -> None:
        """out (d,) += the diagonal of X' diag(w) X."""
        A = self.csr
        weights = np.repeat(w, np.diff(A.indptr))
        out += np.bincount(A.indices, weights=weights * A.data.astype(np.float64) ** 2, minlength=A.shape[1])

    def add_column_sums(self, w: Array, out: Array) -> None:
        """out (d,) += X'w."""
        A = self.csr
        out += np.bincount(A.indices, weights=np.repeat(w, np.diff(A.indptr)) * A.data, minlength=A.shape[1])

    def add_part(self, part: slice, columns: slice | Array, R: Array, out: Array) -> None:
        """out (m, s) += A'R for A = X[part, columns]."""
        every = isinstance(columns, slice) and columns == slice(0, self.shape[1])
        if every and part == slice(0, self.shape[0]):
            self.T.add_product(R, out)
            return
        A = self.csr[part]
        Sparse(A if every else A[:, columns]).T.add_product(R, out)


class _SparseTranspose:
    """X' in CSR, some rows of X at a time, with only their columns that are not empty: small even where d is millions.

    Features read the rows of R from all over it, so it must not outgrow the caches.
    """

    def __init__(self, A: sp.csr_array) -> None:
        from smoothlink.machines import kernels

        self.starts = range(0, max(1, A.shape[0]), PART_ROWS)
        self.parts = []
        for start in self.starts:
            part = A[start : start + PART_ROWS] if len(self.starts) > 1 else A
            T = part.tocsc()  # the CSC arrays of A are the CSR arrays of A'
            self.parts.append(kernels.backward(T.indptr, T.indices, T.data, part.shape[0]))

    def add_product(self, R: Array, out: Array) -> None:
        """out (d, m) += X' R."""
        from smoothlink.machines import kernels

        R = np.ascontiguousarray(R)
        for start, part in zip(self.starts, self.parts, strict=True):
            kernels.add_product(part, R[start : start + PART_ROWS], out)


class Dense:
    """A float32 array with the products of `Sparse`."""

    def __init__(self, A: Array) -> None:
        self.array = A
        self.shape: tuple[int, int] = (A.shape[0], A.shape[1])
        self.nbytes: int = A.nbytes

    def release(self) -> None:
        """Nothing was prepared."""

    @property
    def T(self) -> _DenseTranspose:
        return _DenseTranspose(self.array)

    def __matmul__(self, B: Array) -> Array:
        product: Array = self.array @ B
        return product

    def take(self, numbers: Array) -> Array:
        rows: Array = self.array[numbers]
        return rows

    def dense_rows(self, start: int, stop: int) -> Array:
        rows: Array = self.array[start:stop]
        return rows

    def add_gram(self, w: Array, out: Array) -> None:
        for start in range(0, len(self.array), GRAM_ROWS):
            part = self.array[start : start + GRAM_ROWS]
            out += part.T @ (part * w[start : start + GRAM_ROWS, None])

    def add_square_sums(self, w: Array, out: Array) -> None:
        out += np.einsum("ij,ij,i->j", self.array, self.array, w.astype(np.float64))


class _DenseTranspose:
    def __init__(self, A: Array) -> None:
        self.array = A

    def add_product(self, R: Array, out: Array) -> None:
        out += self.array.T @ R


Matrix = Sparse | Dense


def matrix(A: Any) -> Matrix:
    """The kind that suits A."""
    return Sparse(A) if sp.issparse(A) else Dense(np.ascontiguousarray(A))
