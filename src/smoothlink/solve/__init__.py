"""Ridge systems: `solver.prepare(rows).at(ridge)` maps right-hand sides to solutions of (X'WX + rho) Z = B."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from smoothlink.machines.rows import Rows
from smoothlink.solve.cholesky import Cholesky
from smoothlink.solve.conjugate import ConjugateGradient
from smoothlink.solve.dual import DualCholesky

__all__ = ["Cholesky", "ConjugateGradient", "DualCholesky", "Solve", "Solver", "System", "choose_solver"]


class Solve(Protocol):
    """B (d, m) -> (X'WX + rho)^-1 B, in the memory of B where it is free to be overwritten."""

    rho: NDArray[Any]  # (d,)

    def __call__(self, B: NDArray[Any], *, overwrite: bool = False) -> NDArray[Any]: ...


class System(Protocol):
    """The prepared X'WX, for any ridge."""

    def at(self, ridge: float) -> Solve: ...


class Solver(Protocol):
    """A way to solve ridge systems, with its own knobs."""

    def prepare(self, rows: Rows, *, penalize_constant: bool = False) -> System: ...


# Rates of two cores in operations a second (decision 0009); those of dense products and of vectors are estimates. Only
# ratios matter. A sparse Gram matrix jumps about in memory: a pair of non-zeros costs as much as 200 dense operations.
FACTOR_RATE = 40e9  # of Cholesky factors and solves, float64
DENSE_RATE = 120e9  # of float32 matrix products
PANEL_RATE = 9.6e9  # of products with sparse X and X'
PAIR_RATE = 0.5e9  # of pairs of non-zeros in a sparse Gram matrix
KERNEL_RATE = 1.2e9  # of non-zeros times rows in a sparse kernel matrix
VECTOR_RATE = 1e9  # of numbers in the (d, m) arrays of an iteration
LARGEST_CHOLESKY = 20_000  # columns, or rows: 3.2 GB in float64
EXPECTED_ITERATIONS = 20


def choose_solver(n: int, d: int, columns: int, entries: int) -> Solver:
    """The solver that predicted cost favours for two solves of `columns` columns; X (n, d) has `entries` non-zeros."""
    costs = predicted_seconds(n, d, columns, entries)
    return min(costs, key=lambda solver: costs[solver])


def predicted_seconds(n: int, d: int, columns: int, entries: int) -> dict[Solver, float]:
    """Seconds of each solver that fits in memory, on two cores."""
    dense = entries >= n * d
    apply = 4.0 * entries * columns / (DENSE_RATE if dense else PANEL_RATE)  # X'(XP)
    update = float(d) * columns / VECTOR_RATE
    costs: dict[Solver, float] = {ConjugateGradient(): 2 * EXPECTED_ITERATIONS * (apply + 3 * update)}
    if d <= LARGEST_CHOLESKY:
        gram = 2.0 * n * d * d / DENSE_RATE if dense else entries * (entries / max(1, n)) / PAIR_RATE
        costs[Cholesky()] = gram + (d**3 / 3 + 4.0 * d * d * columns) / FACTOR_RATE
    if n <= min(d, LARGEST_CHOLESKY):
        kernel = n * float(entries) / (DENSE_RATE / 4 if dense else KERNEL_RATE) + n * d / VECTOR_RATE
        factor = (n**3 / 3 + 4.0 * n * n * columns) / FACTOR_RATE
        costs[DualCholesky()] = kernel + factor + 2 * (4 * apply + 4 * update)  # products in float64
    return costs
