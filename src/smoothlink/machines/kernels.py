"""Numba kernels: sparse @ dense on all cores, the updates of conjugate gradients and of SGD, hashes of rows.

Every parallel loop is over rows and no two write to one output row, so results repeat exactly. Imported at the first
product, never by `import smoothlink`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled
from smoothlink.machines.simd import VECTOR_WIDTH, axpy, load, store, zeros

Array = NDArray[Any]

# Threads get pieces of rows with equal non-zeros: power-law columns would leave one thread all the work.
PIECES_PER_THREAD = 16


def equal_pieces(indptr: Array) -> Array:
    """Returns row numbers that cut a CSR matrix into pieces of about equal work (non-zeros plus rows)."""
    rows = len(indptr) - 1
    count = min(max(rows, 1), PIECES_PER_THREAD * get_num_threads())
    work = indptr - indptr[0] + np.arange(rows + 1)
    cuts = np.searchsorted(work, np.linspace(0, work[-1], count + 1)[1:-1])
    return np.concatenate([[0], cuts, [rows]]).astype(np.int64)


class CSR(NamedTuple):
    """A sparse matrix A as the kernels take it."""

    cuts: Array  # row numbers, from `equal_pieces`
    indptr: Array
    indices: Array
    data: Array
    names: Array  # the rows of the output that its rows stand for, all different
    used: Array  # its columns that are not empty, the most frequent first
    places: Array  # `indices` as places in `used`


def forward(indptr: Array, indices: Array, data: Array, columns: int) -> CSR:
    """Returns a CSR matrix of so many columns, prepared for products."""
    counts = np.bincount(indices, minlength=columns)
    used = np.flatnonzero(counts)
    used = used[np.argsort(-counts[used], kind="stable")]
    place = np.zeros(columns, np.int32)
    place[used] = np.arange(len(used))
    return CSR(equal_pieces(indptr), indptr, indices, data, np.arange(len(indptr) - 1), used, place[indices])


def backward(indptr: Array, indices: Array, data: Array, rows: int) -> CSR:
    """Returns the CSC arrays of a matrix of so many rows as its transpose in CSR, without empty rows."""
    names = np.flatnonzero(np.diff(indptr))
    indptr = np.append(indptr[:-1][names], indptr[-1])
    return CSR(equal_pieces(indptr), indptr, indices, data, names, np.arange(rows), indices)


# Products of many columns go by panels of 64. Their sums stay in registers, and rows of 256 bytes keep the frequent
# columns of text in the nearest caches. Panels side by side in a wide array collide there and miss the page tables, so
# each is copied to an array of its own first, the frequent rows together: 2.6 ns for 16 sums against 4.1.
READS_PER_ROW = 3  # non-zeros per row of a panel, from which on the copy pays


def product(A: CSR, B: Array, out: Array) -> None:
    """Writes A B into out; B and out are (., m)."""
    for c, indices, panel, b in panels(A, B, out):
        panel_dot(A.cuts, A.indptr, indices, A.data, panel, b, out, c)
    csr_dot(A.cuts, A.indptr, A.indices, A.data, B, out, whole_panels(A, B, out))


def add_product(A: CSR, B: Array, out: Array) -> None:
    """Adds A B to out[A.names]."""
    for c, indices, panel, b in panels(A, B, out):
        panel_add_dot(A.cuts, A.indptr, indices, A.data, A.names, panel, b, out, c)
    csr_add_dot(A.cuts, A.indptr, A.indices, A.data, A.names, B, out, whole_panels(A, B, out))


def whole_panels(A: CSR, B: Array, out: Array) -> int:
    """Returns how many columns go by panels: the others, and other types than float32, go one by one."""
    lanes = all(x.dtype == np.float32 and x.strides[-1] == 4 for x in (A.data, B, out))
    return B.shape[1] // VECTOR_WIDTH * VECTOR_WIDTH if lanes else 0


def panels(A: CSR, B: Array, out: Array) -> Iterator[tuple[int, Array, Array, int]]:
    """Yields (column of out, indices, array that they index, column there) of each whole panel."""
    columns = whole_panels(A, B, out)
    if B.shape[1] == VECTOR_WIDTH or len(A.data) < READS_PER_ROW * len(A.used):  # one panel needs no copy
        yield from ((c, A.indices, B, c) for c in range(0, columns, VECTOR_WIDTH))
    elif columns:
        panel = np.empty((len(A.used), VECTOR_WIDTH), np.float32)
        for c in range(0, columns, VECTOR_WIDTH):
            copy_panel(B, A.used, c, panel)
            yield c, A.places, panel, 0


@compiled(parallel=True)
def copy_panel(B: Array, used: Array, c: int, panel: Array) -> None:
    """Writes B[used, c : c + 64] to panel."""
    for i in prange(len(used)):
        store(panel, i, 0, load(B, used[i], c))


@compiled(parallel=True, fastmath=True)
def panel_dot(cuts: Array, indptr: Array, indices: Array, data: Array, B: Array, b: int, out: Array, c: int) -> None:
    """Writes A B[:, b : b + 64] to out[:, c : c + 64], A in CSR."""
    for piece in prange(len(cuts) - 1):
        for i in range(cuts[piece], cuts[piece + 1]):
            total = zeros()
            for p in range(indptr[i], indptr[i + 1]):
                total = axpy(data[p], load(B, indices[p], b), total)
            store(out, i, c, total)


@compiled(parallel=True, fastmath=True)
def panel_add_dot(
    cuts: Array, indptr: Array, indices: Array, data: Array, names: Array, B: Array, b: int, out: Array, c: int
) -> None:
    """Adds A B[:, b : b + 64] to out[names, c : c + 64], A in CSR."""
    for piece in prange(len(cuts) - 1):
        for i in range(cuts[piece], cuts[piece + 1]):
            total = load(out, names[i], c)
            for p in range(indptr[i], indptr[i + 1]):
                total = axpy(data[p], load(B, indices[p], b), total)
            store(out, names[i], c, total)


@compiled(parallel=True, fastmath=True)
def csr_dot(cuts: Array, indptr: Array, indices: Array, data: Array, B: Array, out: Array, first: int) -> None:
    """Writes A B to out from column `first` on, A in CSR."""
    m = B.shape[1] - first
    if not m:
        return
    for piece in prange(len(cuts) - 1):
        for i in range(cuts[piece], cuts[piece + 1]):
            row = out[i, first:]
            for t in range(m):
                row[t] = 0
            for p in range(indptr[i], indptr[i + 1]):
                v = data[p]
                source = B[indices[p], first:]
                for t in range(m):
                    row[t] += v * source[t]


@compiled(parallel=True, fastmath=True)
def csr_add_dot(
    cuts: Array, indptr: Array, indices: Array, data: Array, names: Array, B: Array, out: Array, first: int
) -> None:
    """Adds A B to out[names] from column `first` on, A in CSR."""
    m = B.shape[1] - first
    if not m:
        return
    for piece in prange(len(cuts) - 1):
        for i in range(cuts[piece], cuts[piece + 1]):
            row = out[names[i], first:]
            for p in range(indptr[i], indptr[i + 1]):
                v = data[p]
                source = B[indices[p], first:]
                for t in range(m):
                    row[t] += v * source[t]


@compiled(parallel=True)
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
    """Adds X' diag(w) X to out for CSR X and its transpose: each thread owns some rows of `out` (float64)."""
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


@compiled(parallel=True, fastmath=True)
def cg_curvature(P: Array, AP: Array, rho: Array) -> Array:
    """Adds rho P to AP, then returns p'Ap of each column."""
    d, m = P.shape
    partial = np.zeros((STRIPES, m))
    for stripe in prange(STRIPES):
        total = partial[stripe]
        for i in range(stripe * d // STRIPES, (stripe + 1) * d // STRIPES):
            for j in range(m):
                AP[i, j] += rho[i] * P[i, j]
                total[j] += P[i, j] * AP[i, j]
    return partial.sum(axis=0)


@compiled(parallel=True, fastmath=True)
def cg_advance(Z: Array, R: Array, P: Array, AP: Array, M: Array, step: Array) -> Array:
    """Adds step P to Z and subtracts step AP from R, then returns r'Mr of each column."""
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


@compiled(parallel=True, fastmath=True)
def cg_direction(P: Array, R: Array, M: Array, beta: Array) -> None:
    """Writes M R + beta P to P."""
    d, m = P.shape
    for i in prange(d):
        for j in range(m):
            P[i, j] = M[i] * R[i, j] + beta[j] * P[i, j]


@compiled(parallel=True, fastmath=True)
def sgd_advance(
    V: Array, velocity: Array, targets: Array, G: Array, M: Array, rho: Array, eta: float, momentum: float
) -> None:
    """Writes momentum velocity + eta M (targets - G - rho V) to the velocity, and adds it to V.

    M is diagonal: a column, or one for each label. In one loop, since six NumPy ones took a third of a pass.
    """
    s, m = V.shape
    for i in prange(s):
        for j in range(m):
            step = np.float32(M[i, j] if M.shape[1] > 1 else M[i, 0]) * (targets[i, j] - G[i, j] - rho[i, 0] * V[i, j])
            moved = np.float32(momentum) * velocity[i, j] + np.float32(eta) * step
            velocity[i, j] = moved
            V[i, j] += moved


@compiled()
def hash_sparse_rows(indptr: Array, indices: Array, data: Array, out: Array) -> None:
    """Puts the hash of each row into `out`: a sum over its entries, so that their order does not matter."""
    for i in range(len(out)):
        total = np.uint64(0)
        for at in range(indptr[i], indptr[i + 1]):
            if data[at] != 0:
                total += entry_hash(indices[at], data[at])
        out[i] = total


@compiled()
def hash_dense_rows(X: Array, out: Array) -> None:
    """Puts the hash of each row of a dense array into `out`."""
    for i in range(len(out)):
        total = np.uint64(0)
        for j in range(X.shape[1]):
            if X[i, j] != 0:
                total += entry_hash(j, X[i, j])
        out[i] = total


@compiled()
def entry_hash(column: int, value: float) -> Any:
    """Returns a well-mixed hash of a column and its value: splitmix64's finaliser."""
    x = np.float64(value).view(np.uint64) + np.uint64(column + 1) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled(parallel=True)
def leaf_sums(
    X: Array, roots: Array, feature: Array, threshold: Array, children: Array, values: Array, out: Array
) -> None:
    """Adds to out (n, k) the values of the leaves that each row of X (n, d) falls into, one of each tree."""
    for i in prange(len(X)):
        for node in roots:
            while feature[node] >= 0:
                node = children[node, 0] if X[i, feature[node]] <= threshold[node] else children[node, 1]
            for j in range(values.shape[1]):
                out[i, j] += values[node, j]
