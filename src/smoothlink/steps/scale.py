"""X -> X with sensible scales: unit rows for text, unit variance for dense columns, and ones for the intercept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[Any]

MOMENT_ROWS = 65536  # of a sparse X that are summed at a time
DENSE_SHARE = 0.25  # of entries that are not zero: beyond it a dense array is smaller and faster


class Scaling(NamedTuple):
    """How features are scaled before the column of ones is appended; part of the model."""

    kind: str  # "none", "unit" (rows of length 1) or "variance" (columns standardised)
    shift: Array  # (d,) subtracted, only for "variance"
    factor: Array  # (d,) multiplied, only for "variance"
    dense: bool  # whether X becomes a dense array

    def __call__(self, X: Any) -> Any:
        """Returns X (n, d) scaled, with ones as column d; float32."""
        ones = np.ones((X.shape[0], 1), np.float32)
        if self.dense:
            A = X.toarray() if sp.issparse(X) else np.array(X, np.float32)
            if self.kind == "variance":
                A = (A - self.shift) * self.factor
            elif self.kind == "unit":
                A = A * inverse_lengths(np.einsum("ij,ij->i", A, A, dtype=np.float64))[:, None]
            return np.hstack([A.astype(np.float32, copy=False), ones])
        A = sp.csr_array(X, dtype=np.float32)
        if self.kind == "unit":
            squares = np.asarray(A.multiply(A).sum(axis=1)).ravel()
            data = A.data * np.repeat(inverse_lengths(squares), np.diff(A.indptr))
            A = sp.csr_array((data.astype(np.float32), A.indices, A.indptr), A.shape)
        elif self.kind == "variance":  # sparse: scaled, not centred, so that zeros stay zeros
            A = sp.csr_array((A.data * self.factor[A.indices], A.indices, A.indptr), A.shape)
        return with_intercept(A)


def choose_scaling(X: Any, kind: str = "auto", w: Array | None = None) -> Scaling:
    """Returns the scaling of this kind, or with "auto" one that suits X with row weights w (n,).

    Where more than a quarter of the entries are not zero X is a table, whose columns get unit variance; else text,
    whose rows get unit length.
    """
    if kind not in ("auto", "none", "unit", "variance"):
        raise ValueError(f"scale is {kind!r}; possible are 'auto', 'none', 'unit' and 'variance'.")
    n, d = X.shape
    w = np.ones(n) if w is None else w.astype(np.float64)
    entries = np.diff(X.indptr) if sp.issparse(X) else np.count_nonzero(X, axis=1)
    dense = bool(w @ entries > DENSE_SHARE * w.sum() * d)
    nothing = np.zeros(0, np.float32)
    if kind == "auto":
        kind = "variance" if dense else "unit"
    if kind != "variance":
        return Scaling(kind, nothing, nothing, dense)
    mean, spread = column_moments(X, w)
    if not dense:
        mean, spread = np.zeros(d), np.sqrt(spread**2 + mean**2)
    factor = np.where(spread > 1e-7 * np.maximum(np.abs(mean), 1e-30), 1 / np.where(spread > 0, spread, 1), 0)
    return Scaling(kind, mean.astype(np.float32), factor.astype(np.float32), dense)


def column_moments(X: Any, w: Array) -> tuple[Array, Array]:
    """Returns the weighted mean and standard deviation (d,) of each column, in float64."""
    share = w / w.sum()
    if sp.issparse(X):
        mean, squares = np.zeros(X.shape[1]), np.zeros(X.shape[1])
        for start in range(0, X.shape[0], MOMENT_ROWS):  # the rows may be in a file
            A = X[start : start + MOMENT_ROWS]
            data, shares = A.data.astype(np.float64), np.repeat(share[start : start + MOMENT_ROWS], np.diff(A.indptr))
            mean += np.bincount(A.indices, shares * data, X.shape[1])
            squares += np.bincount(A.indices, shares * data**2, X.shape[1])
        return mean, np.sqrt(np.maximum(squares - mean**2, 0))
    mean = share @ X
    return mean, np.sqrt(share @ (X - mean) ** 2)


def inverse_lengths(squares: Array) -> Array:
    """Returns 1 / sqrt of squared lengths; 0 for rows of zeros."""
    return np.where(squares > 0, 1 / np.sqrt(np.where(squares > 0, squares, 1)), 0).astype(np.float32)


def with_intercept(A: sp.csr_array) -> sp.csr_array:
    """Returns CSR with a column of ones appended, without a sort: the new entry is the last of its row."""
    n, d = A.shape
    indptr = A.indptr + np.arange(n + 1, dtype=A.indptr.dtype)
    indices = np.empty(A.nnz + n, A.indices.dtype)
    data = np.empty(A.nnz + n, np.float32)
    last = indptr[1:] - 1
    old = np.ones(A.nnz + n, bool)
    old[last] = False
    indices[old], indices[last] = A.indices, d
    data[old], data[last] = A.data, 1
    return sp.csr_array((data, indices, indptr), (n, d + 1))
