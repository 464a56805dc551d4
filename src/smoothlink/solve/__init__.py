"""Ridge systems: `solver.prepare(rows).at(ridge)` maps right-hand sides to solutions of (X'WX + rho) Z = B."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from smoothlink.machines.rows import Rows
from smoothlink.solve.cholesky import Cholesky
from smoothlink.solve.conjugate import ConjugateGradient

__all__ = ["Cholesky", "ConjugateGradient", "Solve", "Solver", "System", "choose_solver"]


class Solve(Protocol):
    """B (d, m) -> (X'WX + rho)^-1 B."""

    rho: NDArray[Any]  # (d,)

    def __call__(self, B: NDArray[Any]) -> NDArray[Any]: ...


class System(Protocol):
    """The prepared X'WX, for any ridge."""

    def at(self, ridge: float) -> Solve: ...


class Solver(Protocol):
    """A way to solve ridge systems, with its own knobs."""

    def prepare(self, rows: Rows, *, penalize_constant: bool = False) -> System: ...


# Measured rates, in operations a second, of dense float64 factorisations and of sparse products: only their ratio
# matters here.
DENSE_RATE, SPARSE_RATE = 40e9, 3e9
LARGEST_CHOLESKY = 20_000  # columns: 3.2 GB in float64
EXPECTED_ITERATIONS = 30


def choose_solver(rows: Rows, columns: int, entries: int) -> Solver:
    """The solver that predicted cost favours for two solves of `columns` columns; X has `entries` non-zeros."""
    n, d = rows.n, rows.d
    products = 4.0 * entries * columns / SPARSE_RATE
    costs: dict[Solver, float] = {ConjugateGradient(): 2 * EXPECTED_ITERATIONS * (products + 10 * d * columns / 2e9)}
    if d <= LARGEST_CHOLESKY:
        gram = entries * (entries / max(1, n)) / SPARSE_RATE
        costs[Cholesky()] = gram + (d**3 / 3 + 4 * d * d * columns) / DENSE_RATE
    return min(costs, key=lambda solver: costs[solver])
