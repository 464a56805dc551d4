"""Ridge systems by Cholesky factorisation: the Gram matrix is summed once and factored for each ridge."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smoothlink.machines.rows import Block, Rows
from smoothlink.machines.threads import calm
from smoothlink.solve.ridge import penalties

Array = NDArray[Any]

# Right-hand sides are float32: beside a pivot this small (as a share of its diagonal) their rounding would be the
# answer. One-hot features without a ridge gave weights of 3e7 that way, and no warning.
LEAST_PIVOT = 1e-10


@dataclass(frozen=True)
class Cholesky:
    """Exact solves with X'WX + rho; the cost is d^3 / 3 for a factor and d^2 for each right-hand side."""

    def prepare(self, rows: Rows, *, penalize_constant: bool = False) -> GramSystem:
        G = rows.sum(add_gram, out=(rows.d, rows.d), dtype=np.float64)
        return GramSystem(G, penalize_constant)


@dataclass(frozen=True)
class GramSystem:
    """X'WX: `at(ridge)` gives the solver of (X'WX + rho) Z = B."""

    G: Array  # (d, d) float64
    penalize_constant: bool = False

    def at(self, ridge: float) -> CholeskySolve:
        squares = np.diag(self.G)
        rho = penalties(ridge, squares, penalize_constant=self.penalize_constant)
        # A dead column has a zero row, column and right-hand side: any positive pivot gives it Z = 0.
        return CholeskySolve(factor(self.G, np.where(squares > 0, rho, 1.0)), rho)


class CholeskySolve:
    """B -> (X'WX + rho)^-1 B."""

    def __init__(self, L: Array, rho: Array) -> None:
        self.L, self.rho = L, rho

    def __call__(self, B: Array, *, overwrite: bool = False) -> Array:
        with calm(len(B)):
            Z = scipy.linalg.cho_solve((self.L, True), B.astype(np.float64), overwrite_b=True, check_finite=False)
        if overwrite:
            B[...] = Z
        return B if overwrite else np.asarray(Z, dtype=B.dtype)

    def inverse(self) -> Array:
        """(X'WX + rho)^-1 in float32; uses up the factor, so it is the last call."""
        with calm(len(self.L)):
            inverse, failed = scipy.linalg.lapack.dpotri(self.L, lower=1, overwrite_c=1)
        assert failed == 0, "a Cholesky factor has no zero on its diagonal"
        M = inverse.astype(np.float32)
        lower = np.tril(M, -1)
        self.L = np.zeros((0, 0))
        return lower + lower.T + np.diag(np.diag(M))


def add_gram(block: Block, out: Array) -> None:
    block.X.add_gram(block.w, out)


def factor(G: Array, rho: Array) -> Array:
    """The lower Cholesky factor of G + diag(rho), with a little more ridge, and a warning, where G is singular."""
    for jitter in (0.0, 1e-8, 1e-6, 1e-4):
        A = np.array(G, order="F", copy=True)
        diagonal = (np.diag(G) + rho) * (1 + jitter)
        A[np.diag_indices_from(A)] = diagonal
        try:
            with calm(len(A)):
                L = scipy.linalg.cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
        pivots = np.diag(L) ** 2 / diagonal
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
        return np.asarray(L)
    raise np.linalg.LinAlgError("the Gram matrix is not positive definite: are there NaN or infinite features?")
