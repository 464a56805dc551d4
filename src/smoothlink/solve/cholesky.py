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
    from_lower,
    like,
    on_host,
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


class Factorable:
    """A positive semi-definite matrix that is factored with one ridge after the other, in its own memory.

    The matrix stays below its diagonal, and what is above is the factor of the latest ridge: both take the memory of
    one (`from_lower` and `cholesky` say where).
    """

    def __init__(self, G: Array) -> None:
        """Takes G (d, d), in float64, which is overwritten; on the host, nothing above its diagonal is read."""
        self._G, self.squares = G, np.array(diagonal(G))  # squares: the diagonal of G
        self.latest = int(on_host(G))

    @property
    def G(self) -> Array:
        """The matrix itself; the factor in its memory is lost."""
        if self.latest:
            self.latest += 1
            self._G = from_lower(self._G, self.squares)
        return self._G

    def factor(self, rho: NDArray[Any]) -> Factor:
        """Returns the factor of G + diag(rho); where G is singular, with more ridge and a warning."""
        self.latest += 1
        for jitter in (0.0, 1e-8, 1e-6, 1e-4):
            wanted = (self.squares + rho) * (1 + jitter)
            try:
                L = cholesky(from_lower(self._G, wanted))
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
                    stacklevel=4,
                )
            return Factor(self, L)
        raise np.linalg.LinAlgError("the Gram matrix is not positive definite: are there NaN or infinite features?")


class Factor:
    """LL' = G + diag(rho), until the matrix is factored with another ridge."""

    def __init__(self, matrix: Factorable, L: Array) -> None:
        self._matrix, self._L, self._number = matrix, L, matrix.latest

    def solve(self, B: Array) -> Array:
        """Returns (LL')^-1 B in float64, in the memory of B, which is float64."""
        return cholesky_solve(self._current(), B)

    def inverse(self) -> Array:
        """Returns (LL')^-1 in float32; it is the last call."""
        L = self._current()
        self._matrix.latest += 1
        del self._matrix, self._L  # a large array, if it is nobody else's
        return cholesky_inverse(L)

    def _current(self) -> Array:
        if self._number != self._matrix.latest:
            raise RuntimeError("the matrix was factored again, in the memory of this factor")
        return self._L


class GramSystem:
    """X'WX: `at(ridge)` returns the solver of (X'WX + rho) Z = B, which the next `at` makes unusable."""

    def __init__(self, G: Array, penalize_intercept: bool = False) -> None:
        """Takes G (d, d), in float64, which is overwritten; on the host, nothing above its diagonal is read."""
        self.matrix, self.penalize_intercept = Factorable(G), penalize_intercept
        self.sums = astype(G[-1], np.float64, copy=True)  # (d,) X'w, where the last column is the intercept

    @property
    def G(self) -> Array:
        """X'WX itself; solvers become unusable."""
        return self.matrix.G

    def penalties(self, ridge: float) -> NDArray[Any]:
        """Returns rho (d,)."""
        return penalties(ridge, self.matrix.squares, penalize_intercept=self.penalize_intercept)

    def at(self, ridge: float) -> CholeskySolve:
        rho = self.penalties(ridge)
        # A column of zeros has a zero row and right-hand side in this system: any positive pivot gives it Z = 0.
        return CholeskySolve(self.matrix.factor(np.where(self.matrix.squares > 0, rho, 1.0)), rho)


class CholeskySolve:
    """B -> (X'WX + rho)^-1 B."""

    exact = True

    def __init__(self, factor: Factor, rho: NDArray[Any]) -> None:
        self.factor, self.rho = factor, rho

    def __call__(self, B: Array, *, overwrite: bool = False) -> Array:
        Z = self.factor.solve(astype(B, np.float64, copy=True))
        if not overwrite:
            return like(Z, B)
        B[...] = Z
        return B


def add_gram(block: Block, out: Array) -> None:
    """Adds X'WX of one block to out (d, d)."""
    block.X.add_gram(block.w, out)
