"""Ridge systems by Cholesky factorisation of the n x n kernel matrix, for fewer rows than features."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.arrays import Array, astype, contiguous, empty_as
from smoothlink.machines.matrices import Sparse
from smoothlink.machines.rows import Block, Rows
from smoothlink.solve.cholesky import Factorable
from smoothlink.solve.ridge import diagonal, penalties

HostArray = NDArray[Any]

KERNEL_ROWS, DENSE_BYTES = 256, 1 << 27  # of X that are made dense together, at most, in float32 and in float64
LEAST_DUAL_RIDGE = 1e-7


@dataclass(frozen=True)
class DualCholesky:
    """Exact solves from (K + rho)^-1, K = W^1/2 X X' W^1/2; the cost is n^3 / 3 for a factor and n^2 per right-hand
    side. The intercept is not penalised, so it is not in K: it is eliminated.
    """

    def prepare(self, rows: Rows, *, penalize_intercept: bool = False) -> KernelSystem:
        return KernelSystem(rows, kernel_matrix(rows), diagonal(rows), penalize_intercept)


class KernelSystem:
    """W^1/2 X X' W^1/2 without the intercept: `at(ridge)` returns the solver of (X'WX + rho) Z = B, which the next
    `at` makes unusable."""

    def __init__(self, rows: Rows, K: Array, squares: HostArray, penalize_intercept: bool = False) -> None:
        """Takes K (n, n), in float64, which is overwritten, and the diagonal (d,) of X'WX."""
        self.rows, self.K, self.squares, self.penalize_intercept = rows, Factorable(K), squares, penalize_intercept

    def at(self, ridge: float) -> KernelSolve:
        rho = penalties(ridge, self.squares, penalize_intercept=self.penalize_intercept)
        if rho[0] <= 0 and self.squares[:-1].any():
            warnings.warn(
                f"DualCholesky needs a ridge above 0 and uses {LEAST_DUAL_RIDGE:g}. Cholesky needs none.",
                RuntimeWarning,
                stacklevel=3,
            )
            rho = penalties(LEAST_DUAL_RIDGE, self.squares, penalize_intercept=self.penalize_intercept)
        return KernelSolve(self, rho)


class KernelSolve:
    """B -> (X'WX + rho)^-1 B.

    With A0 = X0'WX0 + rho of the features without the intercept and s = X0'W1, the intercept is
    z_c = (b_c - s'A0^-1 b_0) / (w + rho_c - s'A0^-1 s), and the other weights are A0^-1 (b_0 - s z_c).
    """

    exact = True

    def __init__(self, system: KernelSystem, rho: HostArray) -> None:
        self.rows, self.rho = system.rows, rho
        self.scale = rho[0] if rho[0] > 0 else 1.0  # features that are all zero need no ridge
        self.factor = system.K.factor(np.full(self.rows.n, self.scale))
        w = self.rows.w.astype(np.float64)
        self.root = self.rows.to_device(np.sqrt(w)[:, None])
        s = self.rows.sum(xt_r, w[:, None], out=(self.rows.d, 1), dtype=np.float64)
        s[-1] = 0
        self.slopes = self._without_intercept(s)  # (d, 1) A0^-1 s
        self.pivot = system.squares[-1] + rho[-1] - float(s[:, 0] @ self.slopes[:, 0])

    def __call__(self, B: Array, *, overwrite: bool = False) -> Array:
        out = B if overwrite else empty_as(B)
        group = self.rows.columns(self.rows.d)  # at a time: five arrays (d, group) in float64 are held
        for part in (slice(start, start + group) for start in range(0, B.shape[1], group)):
            others = astype(B[:, part], np.float64, copy=True)
            others[-1] = 0
            intercept = (B[-1, part] - self.slopes[:, 0] @ others) / self.pivot
            Z = self._without_intercept(others)
            Z -= self.slopes * intercept
            Z[-1] = intercept
            out[:, part] = Z
        return out

    def _without_intercept(self, B: Array) -> Array:
        """Returns A0^-1 B = (B - X0'W^1/2 (K + rho)^-1 W^1/2 X0 B) / rho; both are 0 at the intercept."""
        R = self.root * self.rows.map(xb, B)
        R = self.factor.solve(R)
        Z = (B - self.rows.sum(xt_r, self.root * R, out=tuple(B.shape), dtype=np.float64)) / self.scale
        Z[-1] = 0
        return Z


def kernel_matrix(rows: Rows) -> Array:
    """Returns K (n, n) = W^1/2 X0 X0' W^1/2 in float64."""
    K = rows.machine.zeros((rows.n, rows.n), np.float64)
    if not rows.remote and len(rows.blocks) == 1 and isinstance(rows.blocks[0].X, Sparse):
        rows.blocks[0].X.add_kernel(np.append(np.ones(rows.d - 1), 0.0), K)
    else:
        fill_by_dense_rows(K, rows)
    root = rows.to_device(np.sqrt(rows.w.astype(np.float64)))
    K *= root
    K *= root[:, None]
    return K


def fill_by_dense_rows(K: Array, rows: Rows) -> None:
    """Writes X0 X0' to K (n, n), some rows of X at a time as a dense matrix."""
    count = max(1, min(KERNEL_ROWS, DENSE_BYTES // (12 * rows.d)))
    for block in rows.each():
        for first in range(0, len(block.w), count):
            last = min(first + count, len(block.w))
            part = contiguous(astype(block.X.dense_rows(first, last), np.float64).T, copy=True)
            part[-1] = 0
            K[:, block.start + first : block.start + last] = rows.map(xb, part)


def xb(block: Block, B: Array) -> Array:
    """Returns XB of one block."""
    return block.X @ B


def xt_r(block: Block, R: Array, out: Array) -> None:
    """Adds X'R of one block into out (d, m); R has a row for each of all rows."""
    block.X.T.add_product(R[block.start : block.start + len(block.w)], out)
