"""What lies between the two products of an SGD step on a GPU, in one kernel each (Triton).

Unfused, each of some ten operations would read and write the b x c scores, or the s x c weights, once more.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

Tensor = torch.Tensor
on_gpu_of: Any = torch.cuda.device_of  # kernels are launched on the current GPU otherwise
TILE_WIDTH = 1024  # numbers of a row per program


@triton.jit
def _activate(  # type: ignore[no-untyped-def]  # Triton reads annotations as code
    Z,
    P,
    intercept,
    prior,
    w,
    total,
    columns,
    z_stride,
    p_stride,
    SOFTMAX: tl.constexpr,
    WIDTH: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = j < columns
    z = tl.load(Z + i * z_stride + j, mask=inside, other=0.0).to(tl.float32)
    z += tl.load(intercept + j, mask=inside, other=0.0)
    if SOFTMAX:
        p = tl.exp(z - tl.load(total + i))
    else:
        p = 1 / (1 + tl.exp(-z))
    p = (p - tl.load(prior + j, mask=inside, other=0.0)) * tl.load(w + i)
    tl.store(P + i * p_stride + j, p.to(tl.bfloat16), mask=inside)


@triton.jit
def _advance(  # type: ignore[no-untyped-def]
    V,
    V16,
    U,
    T,
    G,
    M,
    rho,
    rate,
    momentum,
    columns,
    stride,
    g_stride,
    last,
    HAS_VELOCITY: tl.constexpr,
    WIDTH: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = j < columns
    at = i * stride + j
    v = tl.load(V + at, mask=inside, other=0.0)
    g = tl.load(T + at, mask=inside, other=0.0) - tl.load(G + i * g_stride + j, mask=inside, other=0.0)
    step = rate * tl.load(M + i) * (g - tl.load(rho + i) * v)
    if HAS_VELOCITY:
        step += momentum * tl.load(U + at, mask=inside, other=0.0)
        tl.store(U + at, step, mask=inside)
    v += step
    tl.store(V + at, v, mask=inside)
    half = tl.where(i < last, v, 0.0)  # the intercept is added in float32
    tl.store(V16 + at, half.to(tl.bfloat16), mask=inside)


def activate(Z: Tensor, intercept: Tensor, prior: Tensor, w: Tensor, total: Tensor | None) -> Tensor:
    """Returns w (sigma(Z + intercept) - prior) in half precision: logistic, or with normalisers `total` (b, 1) softmax.

    Scores in half precision are overwritten.
    """
    b, m = Z.shape
    P = Z if Z.dtype == torch.bfloat16 else torch.empty((b, m), dtype=torch.bfloat16, device=Z.device)
    totals = w if total is None else total
    grid = (b, triton.cdiv(m, TILE_WIDTH))
    with on_gpu_of(Z):
        _activate[grid](Z, P, intercept, prior, w, totals, m, Z.stride(0), P.stride(0), total is not None, TILE_WIDTH)
    return P


def advance(
    V: Tensor,
    V16: Tensor,
    velocity: Tensor | None,
    targets: Tensor,
    G: Tensor,
    M: Tensor,
    rho: Tensor,
    rate: float,
    momentum: float,
    last: int,
) -> None:
    """Writes velocity = momentum velocity + rate M (targets - G - rho V), V += velocity, and V in half precision.

    V, V16, velocity and targets are views of arrays with rows of one length.
    """
    s, m = V.shape
    grid: Any = (s, triton.cdiv(m, TILE_WIDTH))
    U = V if velocity is None else velocity
    with on_gpu_of(V):
        _advance[grid](
            *(V, V16, U, targets, G, M, rho, rate, momentum, m, V.stride(0), G.stride(0), last),
            velocity is not None,
            TILE_WIDTH,
        )
