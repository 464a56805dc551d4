"""The two products of a prediction: rows with W, and features with V."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.arrays import on_host
from smoothlink.machines.half_precision import Half
from smoothlink.machines.matrices import matrix

Array = NDArray[Any]

MANY = 1 << 20  # numbers of V from which on one row is worth all threads


def product(Phi: Array, V: Array, out: Array | None) -> Array:
    """Phi V. Where one row meets many numbers, BLAS waits for threads that may be asleep: 7.5 ms where 1.2 suffice."""
    if len(Phi) == 1 and len(V) * V.shape[1] > MANY and out is None and V.strides[1] == V.itemsize:
        from smoothlink.machines import prediction_kernels as selection

        return selection.row_dot(Phi[0], V)[None]
    return np.matmul(Phi, V, out=out)


def project(A: Any, W: Any) -> Array:
    """A W for sparse or dense A (n, d + 1), where W is. Of halves only the rows that A needs are widened."""
    if not on_host(W):
        from smoothlink.machines.device_matrices import tensor_matrix

        return tensor_matrix(A, str(W.device)) @ W
    if isinstance(W, Half):
        if not sp.issparse(A):
            return np.asarray(A @ W.wide())
        names, place = np.unique(A.indices, return_inverse=True)
        A, W = sp.csr_array((A.data, place.astype(A.indices.dtype), A.indptr), (A.shape[0], len(names))), W.rows(names)
    return matrix(A) @ W
