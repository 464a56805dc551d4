"""A Triton kernel for the maxima of groups of labels on a card: scores are read once, and never written again."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

Tensor = torch.Tensor
GROUPS = 8  # of labels per program
EACH = 4  # rows per program, so that scales and intercepts are read once for them


@triton.jit
def _maxima(
    Z: tl.tensor,
    row: tl.tensor,
    scale: tl.tensor,
    intercept: tl.tensor,
    tops: tl.tensor,
    sums: tl.tensor,
    temperature: tl.tensor,
    rows: tl.tensor,
    groups: tl.tensor,
    stride: tl.tensor,
    SUMS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    EACH: tl.constexpr,
) -> None:
    g = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    j = g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    inside = g < groups
    within = inside[:, None] & (j >= 0)
    scales = tl.load(scale + j, mask=within, other=0.0)
    intercepts = tl.load(intercept + j, mask=within, other=0.0)
    for r in range(EACH):
        i = tl.program_id(0).to(tl.int64) * EACH + r
        here = i < rows
        z = tl.load(Z + i * stride + j, mask=within & here, other=0.0)
        s = z * tl.load(row + i, mask=here, other=0.0) * scales + intercepts
        top = tl.max(s, axis=1)
        invalid = tl.max((s != s).to(tl.int32), axis=1)  # a maximum may pass over NaN
        tl.store(tops + i * groups + g, tl.where(invalid > 0, float("nan"), top), mask=inside & here)
        if SUMS:
            base = tl.where(top == float("-inf"), 0.0, top)
            total = tl.sum(tl.exp((s - base[:, None]) * temperature), axis=1)
            tl.store(sums + i * groups + g, base * temperature + tl.log(total), mask=inside & here)


def triton_maxima(
    Z: Tensor, row: Tensor, scale: Tensor, intercept: Tensor, temperature: float | None, group: int
) -> tuple[Tensor, Tensor | None]:
    """Returns `device_weights.group_maxima` of products Z (b, m), m a multiple of `group`, a power of two."""
    b, groups = len(Z), Z.shape[1] // group
    tops = torch.empty((b, groups), device=Z.device)
    sums = tops if temperature is None else torch.empty_like(tops)
    grid: Any = (triton.cdiv(b, EACH), triton.cdiv(groups, GROUPS))
    heat = 1.0 if temperature is None else temperature
    device_of: Any = torch.cuda.device_of
    with device_of(Z):
        _maxima[grid](
            *(Z, row, scale, intercept, tops, sums, heat, b, groups, Z.stride(0)),
            *(temperature is not None, group, GROUPS, EACH),
        )
    return tops, None if temperature is None else sums
