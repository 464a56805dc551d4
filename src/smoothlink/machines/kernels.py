"""Numba kernels: sparse @ dense on all cores. Every loop over rows is parallel and none shares an output row,
so results repeat exactly. Imported at the first product, never by `import smoothlink`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads, njit, prange
from numpy.typing import NDArray

Array = NDArray[Any]

# Rows are dealt to threads in pieces of equal non-zeros: power-law columns would leave one thread all the work.
PIECES_PER_THREAD = 16


def pieces(indptr: Array) -> Array:
    """Row numbers that cut a CSR matrix into pieces of about equal work (non-zeros plus rows)."""
    rows = len(indptr) - 1
    count = min(max(rows, 1), PIECES_PER_THREAD * get_num_threads())
    work = indptr - indptr[0] + np.arange(rows + 1)
    cuts = np.searchsorted(work, np.linspace(0, work[-1], count + 1)[1:-1])
    return np.concatenate([[0], cuts, [rows]]).astype(np.int64)


@njit(parallel=True, fastmath=True, cache=True, nogil=True)
def csr_dot(cuts: Array, indptr: Array, indices: Array, data: Array, B: Array, out: Array) -> None:
    """out = A B, A in CSR."""
    m = B.shape[1]
    for piece in prange(len(cuts) - 1):
        for i in range(cuts[piece], cuts[piece + 1]):
            row = out[i]
            for t in range(m):
                row[t] = 0
            for p in range(indptr[i], indptr[i + 1]):
                v = data[p]
                source = B[indices[p]]
                for t in range(m):
                    row[t] += v * source[t]


@njit(parallel=True, fastmath=True, cache=True, nogil=True)
def csr_add_dot(cuts: Array, indptr: Array, indices: Array, data: Array, names: Array, B: Array, out: Array) -> None:
    """out[names] += A B, A in CSR: `names` are the rows of `out` that A's rows stand for, all different."""
    m = B.shape[1]
    for piece in prange(len(cuts) - 1):
        for i in range(cuts[piece], cuts[piece + 1]):
            row = out[names[i]]
            for p in range(indptr[i], indptr[i + 1]):
                v = data[p]
                source = B[indices[p]]
                for t in range(m):
                    row[t] += v * source[t]


@njit(parallel=True, cache=True, nogil=True)
def csr_add_gram(
    cuts: Array,
    t_indptr: Array,
    t_indices: Array,
    t_data: Array,
    names: Array,
    indptr: Array,
    indices: Array,
    data: Array,
    w: Array,
    out: Array,
) -> None:
    """out += X' diag(w) X for CSR X and its transpose: each thread owns some rows of `out` (float64)."""
    for piece in prange(len(cuts) - 1):
        for f in range(cuts[piece], cuts[piece + 1]):
            row = out[names[f]]
            for p in range(t_indptr[f], t_indptr[f + 1]):
                i = t_indices[p]
                v = np.float64(t_data[p]) * w[i]
                if v == 0.0:
                    continue
                for q in range(indptr[i], indptr[i + 1]):
                    row[indices[q]] += v * data[q]


# The vector updates of conjugate gradients, each in one pass over its (d, m) arrays. Dot products of columns are
# added in float64 by stripes of rows, and the stripes in order, so that results repeat exactly.

STRIPES = 64


@njit(parallel=True, fastmath=True, cache=True, nogil=True)
def cg_curvature(P: Array, AP: Array, rho: Array) -> Array:
    """AP += rho P in place, then p'Ap of each column."""
    d, m = P.shape
    partial = np.zeros((STRIPES, m))
    for stripe in prange(STRIPES):
        total = partial[stripe]
        for i in range(stripe * d // STRIPES, (stripe + 1) * d // STRIPES):
            for j in range(m):
                AP[i, j] += rho[i] * P[i, j]
                total[j] += P[i, j] * AP[i, j]
    return partial.sum(axis=0)


@njit(parallel=True, fastmath=True, cache=True, nogil=True)
def cg_advance(Z: Array, R: Array, P: Array, AP: Array, M: Array, step: Array) -> Array:
    """Z += step P and R -= step AP in place, then r'Mr of each column."""
    d, m = P.shape
    partial = np.zeros((STRIPES, m))
    for stripe in prange(STRIPES):
        total = partial[stripe]
        for i in range(stripe * d // STRIPES, (stripe + 1) * d // STRIPES):
            for j in range(m):
                Z[i, j] += step[j] * P[i, j]
                R[i, j] -= step[j] * AP[i, j]
                total[j] += M[i] * R[i, j] * R[i, j]
    return partial.sum(axis=0)


@njit(parallel=True, fastmath=True, cache=True, nogil=True)
def cg_turn(P: Array, R: Array, M: Array, beta: Array) -> None:
    """P = M R + beta P in place."""
    d, m = P.shape
    for i in prange(d):
        for j in range(m):
            P[i, j] = M[i] * R[i, j] + beta[j] * P[i, j]
