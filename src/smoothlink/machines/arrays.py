"""The few operations that differ between NumPy and torch. An array is on the host or on a device, and says so itself:
what is made of it is made there. torch is never imported for an array of the host."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smoothlink.machines.threads import calm

Array = Any  # NumPy's, or a tensor of torch
HostArray = NDArray[Any]

SUM_ROWS = 65536  # products of at most so many rows are added in float64
BROUGHT, BRINGERS = 64 << 20, 4  # bytes of a matrix that comes back at a time, and the threads that fetch it
PINNED = 1 << 30  # bytes up to which an array is sent through pinned memory


def on_host(A: Any) -> bool:
    """Whether this is no tensor: an array of NumPy, or one in a file."""
    return not hasattr(A, "is_sparse")


def to_host(A: Array) -> HostArray:
    """The same numbers as an array of NumPy."""
    if on_host(A):
        return np.asarray(A)
    A = A.detach()
    return copy_to_host(A) if A.is_cuda and A.ndim == 2 and A.nbytes > BROUGHT else np.asarray(A.cpu().numpy())


def copy_to_host(A: Array) -> HostArray:
    """A matrix of a card, rows at a time through pinned memory by several threads: new memory of the host is slow to
    touch first, and one thread alone brings 1 GB/s."""
    import torch

    out = np.empty(tuple(A.shape), str(A.dtype).removeprefix("torch."))
    size = max(1, BROUGHT // (A.element_size() * max(1, A.shape[1])))
    torch.cuda.current_stream(A.device).synchronize()

    def bring(parts: range) -> None:
        stream: Any = torch.cuda.Stream(A.device)  # type: ignore[no-untyped-call]
        pinned = torch.empty((min(size, len(A)), A.shape[1]), dtype=A.dtype, pin_memory=A.is_cuda)
        for start in parts:
            part = A[start : start + size]
            with torch.cuda.stream(stream):
                pinned[: len(part)].copy_(part, non_blocking=True)
            stream.synchronize()
            out[start : start + size] = pinned[: len(part)].numpy()

    with ThreadPoolExecutor(BRINGERS) as pool:
        list(pool.map(bring, (range(i * size, len(A), BRINGERS * size) for i in range(BRINGERS))))
    return out


def to_device_of(A: Array, B: Any) -> Array:
    """B, an array of the host, where A is."""
    return B if on_host(A) or not isinstance(B, np.ndarray) else copy_to_device(B, str(A.device))


def copy_to_device(A: HostArray, device: str) -> Array:
    """A copy of an array of the host on a device of torch, through pinned memory where that is a card."""
    import torch

    if not device.startswith("cuda"):
        return torch.tensor(A, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the array may be read-only: it is only read
        whole = torch.from_numpy(np.ascontiguousarray(A))
    return whole.pin_memory().to(device, non_blocking=True) if A.nbytes <= PINNED else whole.to(device)


def zeros(A: Array, shape: tuple[int, ...]) -> Array:
    """Zeros of A's type where A is."""
    return np.zeros(shape, A.dtype) if on_host(A) else A.new_zeros(shape)


def number_type(A: Array, dtype: Any) -> Any:
    """NumPy's float32 or float64 as A's library calls it."""
    if on_host(A):
        return dtype
    import torch

    return {np.float32: torch.float32, np.float64: torch.float64}[dtype]


def astype(A: Array, dtype: Any, *, copy: bool = False) -> Array:
    """A as np.float32 or np.float64."""
    return A.astype(dtype, copy=copy) if on_host(A) else A.to(number_type(A, dtype), copy=copy)


def like(A: Array, B: Array) -> Array:
    """A with B's type of numbers."""
    return np.asarray(A, B.dtype) if on_host(A) else A.to(B.dtype)


def contiguous(A: Array, *, copy: bool = False) -> Array:
    """A with its rows one after the other in memory."""
    if on_host(A):
        return np.array(A, order="C") if copy else np.ascontiguousarray(A)
    return A.contiguous() if not copy or not A.is_contiguous() else A.clone()


def take_columns(A: Array, some: HostArray) -> Array:
    """Some columns, by number or by a mask."""
    return A[:, to_device_of(A, some)]


def take_rows(A: Array, numbers: HostArray) -> Array:
    """Some rows by number."""
    return A[to_device_of(A, numbers)]


def hstack(parts: list[Array]) -> Array:
    """Matrices side by side."""
    if on_host(parts[0]):
        return np.hstack(parts)
    import torch

    return torch.hstack(parts)


def diagonal(A: Array) -> HostArray:
    """The diagonal of a matrix, on the host."""
    return np.diag(A) if on_host(A) else to_host(A.diagonal())


def with_diagonal(A: Array, d: HostArray) -> Array:
    """A copy of A, column by column in memory on the host, with another diagonal."""
    if on_host(A):
        B = np.array(A, order="F", copy=True)
        np.fill_diagonal(B, d)
        return B
    B = A.clone()
    B.diagonal().copy_(to_device_of(A, d))
    return B


def dot(A: Array, B: Array) -> float:
    """The sum of products of all entries, in float64."""
    if on_host(A):
        return float(np.einsum("ij,ij->", A, B, dtype=np.float64))
    return float(column_dots(A, B).sum())


def column_dots(A: Array, B: Array, M: Array | None = None) -> HostArray:
    """a'b of each column, or a'Mb with M diagonal, in float64, on the host."""
    if on_host(A):
        return np.einsum("ij,ij->j", A, B if M is None else M[:, None] * B, dtype=np.float64)
    import torch

    total = torch.zeros(A.shape[1], dtype=torch.float64, device=A.device)
    for i in range(0, len(A), SUM_ROWS):  # the products are as large as the rows
        products = A[i : i + SUM_ROWS] * B[i : i + SUM_ROWS]
        products = products if M is None else products.mul_(M[i : i + SUM_ROWS, None])
        total += products.sum(0, dtype=torch.float64)
    return to_host(total)


def extremes(A: Array) -> tuple[HostArray, HostArray]:
    """The least and the largest entry of each column, on the host."""
    if on_host(A):
        return A.min(axis=0), A.max(axis=0)
    return to_host(A.amin(0)), to_host(A.amax(0))


def square_root(A: Array) -> Array:
    return np.sqrt(A) if on_host(A) else A.sqrt()


def unit_rows(H: Array) -> Array:
    """Each row scaled to length 1; rows of zeros stay."""
    if on_host(H):
        lengths = np.linalg.norm(H, axis=1, keepdims=True)
        return np.asarray(H / np.where(lengths > 0, lengths, 1), dtype=H.dtype)
    lengths = H.norm(dim=1, keepdim=True)
    return H / lengths.masked_fill_(lengths == 0, 1)


def cosines(H: Any, R: Array, b: Array, out: Array) -> None:
    """out (n, s) = sqrt(2) cos(H R + b), in float32: Cauchy frequencies make arguments of 1e4."""
    if on_host(out):
        angles = H @ R
        angles += b
        np.cos(angles, out=angles)
        np.multiply(angles, np.float32(np.sqrt(2)), out=out)
        return
    import torch

    angles = torch.addmm(b, H, R)
    torch.mul(angles.cos_(), np.sqrt(2), out=out)


def empty_as(A: Array) -> Array:
    """Room for an array like A."""
    return np.empty_like(A) if on_host(A) else A.new_empty(A.shape)


def empty(A: Any, shape: tuple[int, ...]) -> Array:
    """Room for float32 numbers where A is."""
    if on_host(A):
        return np.empty(shape, np.float32)
    import torch

    return torch.empty(shape, dtype=torch.float32, device=A.device)


def cholesky(A: Array) -> Array:
    """The lower factor of A (float64), which is used up; LinAlgError where A is not positive definite."""
    with calm(len(A)):
        if on_host(A):
            return scipy.linalg.cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        import torch

        L, failed = torch.linalg.cholesky_ex(A)
    if int(failed):
        raise np.linalg.LinAlgError("not positive definite")
    return L


def cholesky_solve(L: Array, B: Array) -> Array:
    """(LL')^-1 B in float64; B, in float64, is used up."""
    with calm(len(L)):
        if on_host(L):
            return scipy.linalg.cho_solve((L, True), B, overwrite_b=True, check_finite=False)
        return B.cholesky_solve(L)


def cholesky_inverse(L: Array) -> Array:
    """(LL')^-1 in float32; L is used up."""
    with calm(len(L)):
        if not on_host(L):
            return L.cholesky_inverse().float()
        inverse, failed = scipy.linalg.lapack.dpotri(L, lower=1, overwrite_c=1)
    assert failed == 0, "a Cholesky factor has no zero on its diagonal"
    M = inverse.astype(np.float32)
    lower = np.tril(M, -1)
    return lower + lower.T + np.diag(np.diag(M))


def lower_inverse(A: HostArray) -> HostArray:
    """L^-1 for a small A = LL', on the host."""
    with calm(len(A)):
        L = scipy.linalg.cholesky(A, lower=True)
        return np.asarray(scipy.linalg.solve_triangular(L, np.eye(len(L)), lower=True))


def full_eigh(A: Array) -> tuple[HostArray, Array]:
    """Eigenvalues, on the host, and eigenvectors of a large symmetric matrix where it is."""
    if on_host(A):
        return eigh(A)
    import torch

    lam, E = torch.linalg.eigh(A)
    return to_host(lam), E


def half_product(A: Array, B: Array | None = None) -> Array:
    """A B in float32, on a card from halves; without B, A rounded to halves."""
    if on_host(A) or not A.is_cuda:
        return A if B is None else A @ B
    import torch

    A = A.bfloat16()
    return A if B is None else torch.mm(A, B.bfloat16(), out_dtype=torch.float32)


def eigh(A: Array) -> tuple[HostArray, HostArray]:
    """Eigenvalues, ascending, and eigenvectors of a small symmetric matrix, on the host: all machines see the same."""
    A = to_host(A)
    with calm(len(A)):
        lam, E = np.linalg.eigh(A)
    return lam, E
