"""The vector updates of conjugate gradients, column by column, on the host (numba) or where the arrays are (torch).

Sizes and steps of columns are few numbers and stay on the host, in float64.
"""

from __future__ import annotations

import numpy as np

from smoothlink.machines.arrays import Array, HostArray, column_dots, on_host, to_device_of


def curvature(P: Array, AP: Array, rho: Array) -> HostArray:
    """AP += rho P in place, then p'Ap of each column."""
    if on_host(P):
        from smoothlink.machines.kernels import cg_curvature

        return cg_curvature(P, AP, rho)
    AP.addcmul_(rho[:, None], P)
    return column_dots(P, AP)


def advance(Z: Array, R: Array, P: Array, AP: Array, M: Array, step: HostArray) -> HostArray:
    """Z += step P and R -= step AP in place, then r'Mr of each column."""
    if on_host(P):
        from smoothlink.machines.kernels import cg_advance

        return cg_advance(Z, R, P, AP, M, step.astype(np.float32))
    step = to_device_of(P, step.astype(np.float32))
    Z.addcmul_(P, step)
    R.addcmul_(AP, step, value=-1)
    return column_dots(R, R, M)


def turn(P: Array, R: Array, M: Array, beta: HostArray) -> None:
    """P = M R + beta P in place."""
    if on_host(P):
        from smoothlink.machines.kernels import cg_turn

        cg_turn(P, R, M, beta.astype(np.float32))
        return
    P.mul_(to_device_of(P, beta.astype(np.float32))).addcmul_(M[:, None], R)


def weighted_squares(R: Array, M: Array) -> HostArray:
    """r'Mr of each column in float64, M diagonal."""
    if on_host(R):
        from smoothlink.machines.kernels import cg_curvature

        return cg_curvature(R, M[:, None] * R, np.zeros_like(M))
    return column_dots(R, R, M)
