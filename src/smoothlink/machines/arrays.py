"""The few operations that NumPy and torch spell differently. An array is on the host or on a device: results are made
where it is. torch is never imported for an array of the host."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smoothlink.machines import host_cholesky
from smoothlink.machines.threads import dense_product, in_threads, single_blas_thread

Array = Any  # an array of NumPy, or a tensor of torch
HostArray = NDArray[Any]

SUM_ROWS = 65536  # products of at most so many rows are added in float64
COPY_BYTES, COPY_THREADS = 64 << 20, 4  # of a matrix that each thread copies to the host at a time; threads that do
PINNED_BYTES = 1 << 30  # up to which an array is copied through pinned memory
MIRRORED_ROWS = 256  # of a symmetric matrix that are copied together
COSINE_ROWS = 256  # whose features the host makes together, in a part of its memory
LARGEST_SCORE = 40.0  # beyond it a probability is 0 or 1 in float32


def on_host(A: Any) -> bool:
    """Returns whether this is no tensor: an array of NumPy, or one in a file."""
    return not hasattr(A, "is_sparse")


def in_parts(A: Any) -> bool:
    """Returns whether the rows of this array are in parts in other processes: `A.map(f, B)` is an array of f(A, B) of
    each part, and `A.results(f, B)` lists these."""
    return hasattr(A, "parts")


def gathered(A: Array) -> Array:
    """Returns an array in parts as one, on the host; any other as it is."""
    return np.asarray(A) if in_parts(A) else A


def to_host(A: Array) -> HostArray:
    """Returns the same numbers as an array of NumPy."""
    if on_host(A):
        return np.asarray(A)
    A = A.detach()
    return copy_to_host(A) if A.is_cuda and A.ndim == 2 and A.nbytes > COPY_BYTES else np.asarray(A.cpu().numpy())


def copy_to_host(A: Array) -> HostArray:
    """Returns a matrix of a GPU on the host, rows at a time through pinned memory by several threads: new memory of the
    host is slow to touch first, and one thread copies 1 GB/s."""
    import torch

    out = np.empty(tuple(A.shape), str(A.dtype).removeprefix("torch."))
    size = max(1, COPY_BYTES // (A.element_size() * max(1, A.shape[1])))
    torch.cuda.current_stream(A.device).synchronize()

    def copy(parts: range) -> None:
        stream: Any = torch.cuda.Stream(A.device)  # type: ignore[no-untyped-call]
        pinned = torch.empty((min(size, len(A)), A.shape[1]), dtype=A.dtype, pin_memory=A.is_cuda)
        for start in parts:
            part = A[start : start + size]
            with torch.cuda.stream(stream):
                pinned[: len(part)].copy_(part, non_blocking=True)
            stream.synchronize()
            out[start : start + size] = pinned[: len(part)].numpy()

    with ThreadPoolExecutor(COPY_THREADS) as pool:
        list(pool.map(copy, (range(i * size, len(A), COPY_THREADS * size) for i in range(COPY_THREADS))))
    return out


def to_device_of(A: Array, B: Any) -> Array:
    """Returns B, an array of the host, where A is."""
    return B if on_host(A) or not isinstance(B, np.ndarray) else copy_to_device(B, str(A.device))


def copy_to_device(A: HostArray, device: str) -> Array:
    """Returns a copy of an array of the host on a device of torch, through pinned memory where that is a GPU."""
    import torch

    if not device.startswith("cuda"):
        return torch.tensor(A, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the array may be read-only: it is only read
        whole = torch.from_numpy(np.ascontiguousarray(A))
    return whole.pin_memory().to(device, non_blocking=True) if A.nbytes <= PINNED_BYTES else whole.to(device)


def zeros(A: Array, shape: tuple[int, ...]) -> Array:
    """Returns zeros of A's type where A is."""
    return np.zeros(shape, A.dtype) if on_host(A) else A.new_zeros(shape)


def number_type(A: Array, dtype: Any) -> Any:
    """Returns NumPy's float32 or float64 as the library of A calls it."""
    if on_host(A):
        return dtype
    import torch

    return {np.float32: torch.float32, np.float64: torch.float64}[dtype]


def astype(A: Array, dtype: Any, *, copy: bool = False) -> Array:
    """Returns A as np.float32 or np.float64."""
    if in_parts(A):
        return A.map(astype, dtype)
    return A.astype(dtype, copy=copy) if on_host(A) else A.to(number_type(A, dtype), copy=copy)


def like(A: Array, B: Array) -> Array:
    """Returns A with B's type of numbers."""
    return np.asarray(A, B.dtype) if on_host(A) else A.to(B.dtype)


def contiguous(A: Array, *, copy: bool = False) -> Array:
    """Returns A with its rows one after the other in memory."""
    if in_parts(A):
        return A.map(contiguous)
    if on_host(A):
        return np.array(A, order="C") if copy else np.ascontiguousarray(A)
    return A.contiguous() if not copy or not A.is_contiguous() else A.clone()


def take_columns(A: Array, some: HostArray) -> Array:
    """Returns some columns, by number or by a mask."""
    return A[:, to_device_of(A, some)]


def take_rows(A: Array, numbers: HostArray) -> Array:
    """Returns some rows by number."""
    return A[to_device_of(A, numbers)]


def hstack(parts: list[Array]) -> Array:
    """Returns matrices side by side."""
    if in_parts(parts[0]):
        return parts[0].map(side_by_side, *parts[1:], width=sum(A.shape[1] for A in parts))
    if on_host(parts[0]):
        return np.hstack(parts)
    import torch

    return torch.hstack(parts)


def side_by_side(*parts: Array) -> Array:
    """Returns matrices side by side."""
    return hstack(list(parts))


def scale_columns(A: Array, scale: HostArray) -> Array:
    """Returns A with each column multiplied by a number: in A's memory, if A is not in parts."""
    if in_parts(A):
        return A.map(np.multiply, scale)
    A *= to_device_of(A, scale)
    return A


def diagonal(A: Array) -> HostArray:
    """Returns the diagonal of a matrix, on the host."""
    return np.diag(A) if on_host(A) else to_host(A.diagonal())


def from_lower(A: Array, d: HostArray) -> Array:
    """Returns the symmetric matrix with what A has below its diagonal and the diagonal d: on the host in A's memory."""
    if on_host(A):
        for start in range(0, len(A), MIRRORED_ROWS):
            stop = min(len(A), start + MIRRORED_ROWS)
            corner = A[start:stop, start:stop]
            corner[...] = np.tril(corner) + np.tril(corner, -1).T
            A[start:stop, stop:] = A[stop:, start:stop].T
        np.fill_diagonal(A, d)
        return A
    B = A.clone()
    B.diagonal().copy_(to_device_of(A, d))
    return B


def dot(A: Array, B: Array) -> float:
    """Returns the sum of products of all entries, in float64."""
    if in_parts(A):
        return float(sum(A.results(dot, B)))
    if on_host(A):
        return float(np.einsum("ij,ij->", A, B, dtype=np.float64))
    return float(column_dots(A, B).sum())


def column_dots(A: Array, B: Array, M: Array | None = None, *, sum_rows: int = SUM_ROWS) -> HostArray:
    """Returns a'b of each column, or a'Mb with M diagonal, in float64, on the host; devices add `sum_rows` at once."""
    if in_parts(A):
        return np.sum(A.results(column_dots, B), axis=0)
    if on_host(A):
        return np.einsum("ij,ij->j", A, B if M is None else M[:, None] * B, dtype=np.float64)
    import torch

    total = torch.zeros(A.shape[1], dtype=torch.float64, device=A.device)
    for i in range(0, len(A), sum_rows):  # the products are as large as the rows
        products = A[i : i + sum_rows] * B[i : i + sum_rows]
        products = products if M is None else products.mul_(M[i : i + sum_rows, None])
        total += products.sum(0, dtype=torch.float64)
    return to_host(total)


def extremes(A: Array) -> tuple[HostArray, HostArray]:
    """Returns the least and the largest entry of each column, on the host."""
    if in_parts(A):
        found = np.stack(A.results(extremes))
        return found[:, 0].min(axis=0), found[:, 1].max(axis=0)
    if on_host(A):
        return A.min(axis=0), A.max(axis=0)
    return to_host(A.amin(0)), to_host(A.amax(0))


def square_root(A: Array) -> Array:
    return np.sqrt(A) if on_host(A) else A.sqrt()


def unit_rows(H: Array) -> Array:
    """Returns H with each row scaled to length 1; rows of zeros stay."""
    if on_host(H):
        lengths = np.linalg.norm(H, axis=1, keepdims=True)
        return np.asarray(H / np.where(lengths > 0, lengths, 1), dtype=H.dtype)
    lengths = H.norm(dim=1, keepdim=True)
    return H / lengths.masked_fill_(lengths == 0, 1)


def sigmoid(Z: Array) -> Array:
    """Returns 1 / (1 + exp(-Z)), in place."""
    if not on_host(Z):
        return Z.sigmoid_()
    np.clip(Z, -LARGEST_SCORE, LARGEST_SCORE, out=Z)
    np.negative(Z, out=Z)
    np.exp(Z, out=Z)
    Z += 1
    return np.reciprocal(Z, out=Z)


def add_product(A: Array, B: Array, out: Array) -> None:
    """Adds A B to out."""
    if on_host(A):
        out += dense_product(A, B)
    else:
        out.addmm_(A, B)


def exponential(Z: Array) -> Array:
    """Returns exp(Z), in place."""
    return np.exp(Z, out=Z) if on_host(Z) else Z.exp_()


def log_sums(Z: Array) -> Array:
    """Returns log sum exp (b, 1) of each row."""
    if not on_host(Z):
        return Z.logsumexp(1, keepdim=True)
    top = Z.max(axis=1, keepdims=True)
    return top + np.log(np.exp(Z - top).sum(axis=1, keepdims=True))


def add_log_sums(a: Array, b: Array) -> Array:
    """Returns log(exp(a) + exp(b))."""
    return np.logaddexp(a, b) if on_host(a) else a.logaddexp(b)


def cosines(H: Any, R: Array, b: Array, out: Array) -> None:
    """Writes sqrt(2) cos(H R + b) into out (n, s), in float32: Cauchy frequencies make arguments of 1e4."""
    if on_host(out):

        def some(start: int) -> None:
            angles = H[start : start + COSINE_ROWS] @ R
            angles += b
            np.cos(angles, out=angles)
            np.multiply(angles, np.float32(np.sqrt(2)), out=out[start : start + COSINE_ROWS])

        in_threads(partial(some, start) for start in range(0, len(out), COSINE_ROWS))
        return
    import torch

    angles = torch.addmm(b, H, R)
    torch.mul(angles.cos_(), np.sqrt(2), out=out)


def empty_as(A: Array) -> Array:
    """Returns an array like A whose numbers are not set."""
    return np.empty_like(A) if on_host(A) else A.new_empty(A.shape)


def empty(A: Any, shape: tuple[int, ...]) -> Array:
    """Returns an array of float32 numbers, not set, where A is."""
    if on_host(A):
        return np.empty(shape, np.float32)
    import torch

    return torch.empty(shape, dtype=torch.float32, device=A.device)


def cholesky(A: Array) -> Array:
    """Returns the lower factor of A; raises LinAlgError where A is not positive definite.

    On the host it is a view of A's transpose: what A has below its diagonal stays, and is above that of the factor.
    """
    if on_host(A):
        A = np.ascontiguousarray(A)
        host_cholesky.factor(A)
        return A.T
    import torch

    L, failed = torch.linalg.cholesky_ex(A)
    if int(failed):
        raise np.linalg.LinAlgError("not positive definite")
    return L


def cholesky_solve(L: Array, B: Array) -> Array:
    """Returns (LL')^-1 B, in the memory of B where its columns are contiguous."""
    return host_cholesky.solve(L, B) if on_host(L) else B.cholesky_solve(L)


def cholesky_inverse(L: Array) -> Array:
    """Returns (LL')^-1 in float32; the memory of L is reused."""
    with single_blas_thread(len(L)):
        if not on_host(L):
            return L.cholesky_inverse().float()
        inverse, failed = scipy.linalg.lapack.dpotri(L, lower=1, overwrite_c=1)
    assert failed == 0, "a Cholesky factor has no zero on its diagonal"
    M = np.ascontiguousarray(inverse, np.float32)
    for i in range(1, len(M)):  # only the lower triangle is there; whole copies of it would be large
        M[:i, i] = M[i, :i]
    return M


def lower_inverse(A: HostArray) -> HostArray:
    """Returns L^-1 for a small A = LL', on the host."""
    with single_blas_thread(len(A)):
        L = scipy.linalg.cholesky(A, lower=True)
        return np.asarray(scipy.linalg.solve_triangular(L, np.eye(len(L)), lower=True))


def full_eigh(A: Array) -> tuple[HostArray, Array]:
    """Returns the eigenvalues, on the host, and the eigenvectors of a large symmetric matrix, where it is."""
    if on_host(A):
        return eigh(A)
    import torch

    lam, E = torch.linalg.eigh(A)
    return to_host(lam), E


def half_product(A: Array, B: Array | None = None) -> Array:
    """Returns A B in float32, on a GPU from half-precision factors; without B, A rounded to half precision."""
    if on_host(A) or not A.is_cuda:
        return A if B is None else dense_product(A, B)
    import torch

    A = A.bfloat16()
    return A if B is None else torch.mm(A, B.bfloat16(), out_dtype=torch.float32)


def eigh(A: Array) -> tuple[HostArray, HostArray]:
    """Returns eigenvalues, ascending, and eigenvectors of a small symmetric matrix, on the host for every machine."""
    A = to_host(A)
    with single_blas_thread(len(A)):
        lam, E = np.linalg.eigh(A)
    return lam, E
