"""Sparse matrices of a device (torch), with the products of those of the host in matrices.py."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from smoothlink.machines.arrays import copy_to_device
from smoothlink.machines.matrices import GRAM_ROWS, Dense

Tensor = torch.Tensor
HostArray = NDArray[Any]

DENSE_BYTES = 1 << 28  # of sparse rows that are made dense together


def tensor_matrix(A: Any, device: str) -> DeviceSparse | Dense:
    """Returns an array or a sparse matrix of the host, or a tensor, on a device with its products."""
    if sp.issparse(A):
        return DeviceSparse(A, device)
    return Dense(copy_to_device(A, device) if isinstance(A, np.ndarray) else A)


def csr_tensor(indptr: Tensor, indices: Tensor, data: Tensor, shape: tuple[int, int]) -> Tensor:
    """Returns a sparse tensor of arrays that are known to be sound."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that its interface may change
        return torch.sparse_csr_tensor(indptr, indices, data, shape, check_invariants=False)


class DeviceSparse:
    """CSR on a device with its transpose prepared once; the matrix of the host stays for what is rare."""

    def __init__(self, A: sp.csr_array, device: str) -> None:
        self.csr, self.device = A, device
        self.shape: tuple[int, int] = A.shape

    @cached_property
    def forward(self) -> Tensor:
        A = self.csr
        parts = [
            copy_to_device(a, self.device) for a in (A.indptr.astype(np.int32), A.indices.astype(np.int32), A.data)
        ]
        return csr_tensor(parts[0], parts[1], parts[2].float(), self.shape)

    @cached_property
    def places(self) -> Tensor:
        """Returns the row of each entry."""
        counts = self.forward.crow_indices().diff()
        return torch.repeat_interleave(torch.arange(self.shape[0], dtype=torch.int32, device=self.device), counts)

    @cached_property
    def T(self) -> DeviceTranspose:
        A = self.forward
        return DeviceTranspose(transposed(self.places, A.col_indices(), A.values(), (self.shape[1], self.shape[0])))

    def release(self) -> None:
        """Frees what was prepared for products, which can be made again."""
        for name in ("forward", "places", "T"):
            self.__dict__.pop(name, None)

    @property
    def nbytes(self) -> int:
        """Returns the bytes that it holds once it is prepared for products."""
        return 24 * self.csr.nnz + 8 * sum(self.shape)

    def __matmul__(self, B: Tensor) -> Tensor:
        return of_type(self.forward, B) @ B

    def take(self, numbers: HostArray) -> sp.csr_array:
        """Returns some rows, on the host."""
        return self.csr[numbers]

    def dense_rows(self, start: int, stop: int) -> Tensor:
        """Returns some rows, dense."""
        first, last = int(self.csr.indptr[start]), int(self.csr.indptr[stop])
        A, out = self.forward, torch.zeros((stop - start, self.shape[1]), device=self.device)
        at = self.places[first:last].long() - start
        out[at, A.col_indices()[first:last].long()] = A.values()[first:last]
        return out

    def add_gram(self, w: Tensor, out: Tensor, dense_bytes: int = DENSE_BYTES) -> None:
        """Adds X' diag(w) X to out (d, d): float32 products of some rows, added in float64."""
        step = max(1, min(GRAM_ROWS, dense_bytes // (4 * max(1, self.shape[1]))))
        for start in range(0, self.shape[0], step):
            part = self.dense_rows(start, min(self.shape[0], start + step))
            out += part.T @ (part * w[start : start + step, None])

    def add_square_sums(self, w: Tensor, out: Tensor) -> None:
        """Adds the diagonal of X' diag(w) X to out (d,)."""
        values = self.forward.values().double()
        out.index_add_(0, self.forward.col_indices(), w.double()[self.places] * values * values)

    def add_column_sums(self, w: Tensor, out: Tensor) -> None:
        """Adds X'w to out (d,)."""
        values = self.forward.values().double()
        out.index_add_(0, self.forward.col_indices(), w.double()[self.places] * values)

    def add_part(self, part: slice, columns: slice | Tensor, R: Tensor, out: Tensor) -> None:
        """Adds A'R to out (m, s) for A = X[part, columns]: only columns with an entry are touched."""
        first, last = int(self.csr.indptr[part.start]), int(self.csr.indptr[part.stop])
        names, values = self.forward.col_indices()[first:last], self.forward.values()[first:last]
        places = self.places[first:last] - part.start
        if isinstance(columns, slice):
            start, stop, _ = columns.indices(self.shape[1])
            inside = (names >= start) & (names < stop)
            names = names - start
        else:
            lookup = torch.full((self.shape[1],), -1, dtype=torch.int32, device=self.device)
            lookup[columns] = torch.arange(len(columns), dtype=torch.int32, device=self.device)
            names = lookup[names]
            inside = names >= 0
        found, short = torch.unique(names[inside], return_inverse=True)
        A = transposed(places[inside], short.int(), values[inside], (len(found), len(R)))
        out[found.long()] += A @ R


class DeviceTranspose:
    """X' in CSR."""

    def __init__(self, A: Tensor) -> None:
        self.tensor = A

    def add_product(self, R: Tensor, out: Tensor) -> None:
        """Adds X' R to out (d, m)."""
        out.addmm_(of_type(self.tensor, R), R)


def transposed(places: Tensor, names: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Returns the CSR tensor of A' (m, b) from the row, column and value of each entry of A (b, m), row by row."""
    names, order = torch.sort(names, stable=True)
    indptr = torch.zeros(shape[0] + 1, dtype=torch.int32, device=names.device)
    indptr[1:] = torch.bincount(names, minlength=shape[0]).cumsum(0)
    return csr_tensor(indptr, places[order], values[order], shape)


def of_type(A: Tensor, B: Tensor) -> Tensor:
    """Returns a sparse tensor whose numbers have the type of B's."""
    if A.dtype == B.dtype:
        return A
    return csr_tensor(A.crow_indices(), A.col_indices(), A.values().to(B.dtype), (A.shape[0], A.shape[1]))
