"""Ridge systems by Cholesky factorisation: the Gram matrix is summed once and factored for each ridge."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.arrays import (
    Array,
    astype,
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    diagonal,
    like,
    with_diagonal,
    zeros,
)
from smoothlink.machines.rows import Block, Rows
from smoothlink.solve.ridge import penalties

# Right-hand sides are float32: with a pivot this small (as a share of its diagonal) their rounding would be the
# solution. One-hot features without a ridge gave weights of 3e7 that way, and no warning.
LEAST_PIVOT = 1e-10


@dataclass(frozen=True)
class Cholesky:
    """Exact solves with X'WX + rho; the cost is d^3 / 3 for a factor and d^2 for each right-hand side."""

    def prepare(self, rows: Rows, *, penalize_intercept: bool = False) -> GramSystem:
        G = rows.sum(add_gram, out=(rows.d, rows.d), dtype=np.float64)
        return GramSystem(G, penalize_intercept)


@dataclass(frozen=True)
class GramSystem:
    """X'WX: `at(ridge)` returns the solver of (X'WX + rho) Z = B."""

    G: Array  # (d, d) float64
    penalize_intercept: bool = False

    def penalties(self, ridge: float) -> NDArray[Any]:
        """Returns rho (d,)."""
        return penalties(ridge, diagonal(self.G), penalize_intercept=self.penalize_intercept)

    def at(self, ridge: float) -> CholeskySolve:
        squares, rho = diagonal(self.G), self.penalties(ridge)
        # A column of zeros has a zero row and right-hand side in this system: any positive pivot gives it Z = 0.
        return CholeskySolve(factor(self.G, np.where(squares > 0, rho, 1.0)), rho)


class CholeskySolve:
    """B -> (X'WX + rho)^-1 B."""

    exact = True

    def __init__(self, L: Array, rho: NDArray[Any]) -> None:
        self.L, self.rho = L, rho

    def __call__(self, B: Array, *, overwrite: bool = False) -> Array:
        Z = cholesky_solve(self.L, astype(B, np.float64, copy=True))
        if not overwrite:
            return like(Z, B)
        B[...] = Z
        return B

    def inverse(self) -> Array:
        """Returns (X'WX + rho)^-1 in float32; it is the last call, since the memory of the factor is reused."""
        L, self.L = self.L, zeros(self.L, (0, 0))
        return cholesky_inverse(L)


def add_gram(block: Block, out: Array) -> None:
    """Adds X'WX of one block to out (d, d)."""
    block.X.add_gram(block.w, out)


def factor(G: Array, rho: NDArray[Any]) -> Array:
    """Returns the lower Cholesky factor of G + diag(rho); where G is singular, with more ridge and a warning."""
    for jitter in (0.0, 1e-8, 1e-6, 1e-4):
        wanted = (diagonal(G) + rho) * (1 + jitter)
        try:
            L = cholesky(with_diagonal(G, wanted))
        except np.linalg.LinAlgError:
            continue
        pivots = diagonal(L) ** 2 / wanted
        if not np.isfinite(pivots).all():  # LAPACK lets NaN pass
            break
        if pivots.min(initial=1.0) < LEAST_PIVOT:
            continue
        if jitter:
            warnings.warn(
                f"The ridge system is singular; {jitter:g} of its diagonal was added. A larger ridge avoids this.",
                RuntimeWarning,
                stacklevel=3,
            )
        return L
    raise np.linalg.LinAlgError("the Gram matrix is not positive definite: are there NaN or infinite features?")
