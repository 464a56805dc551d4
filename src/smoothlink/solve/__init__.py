"""Ridge systems: `solver.prepare(rows).at(ridge)` maps right-hand sides B to solutions of (X'WX + rho) Z = B."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from numpy.typing import NDArray

from smoothlink.machines.arrays import Array
from smoothlink.machines.host_and_device import HOST, Speeds
from smoothlink.machines.rows import Rows
from smoothlink.solve.cholesky import Cholesky
from smoothlink.solve.conjugate import ConjugateGradient
from smoothlink.solve.dual import DualCholesky

__all__ = [
    "NEARLY_EXACT",
    "Cholesky",
    "ConjugateGradient",
    "DualCholesky",
    "Solve",
    "Solver",
    "System",
    "choose_solver",
]


class Solve(Protocol):
    """B (d, m) -> (X'WX + rho)^-1 B, in the memory of B with `overwrite`."""

    rho: NDArray[Any]  # (d,)

    def __call__(self, B: Array, *, overwrite: bool = False) -> Array: ...


class System(Protocol):
    """The prepared X'WX, for any ridge."""

    def at(self, ridge: float) -> Solve: ...


class Solver(Protocol):
    """A way to solve ridge systems, with its own options."""

    def prepare(self, rows: Rows, *, penalize_intercept: bool = False) -> System: ...


LARGEST_CHOLESKY = 20_000  # columns, or rows: 3.2 GB in float64
EXPECTED_ITERATIONS = 20
NEARLY_EXACT = 1e-5  # tolerance of conjugate gradients in place of a factor


def choose_solver(
    n: int, d: int, columns: int, entries: int, speeds: Speeds = HOST.speeds, *, by_sums: bool = False
) -> Solver:
    """Returns the solver of least predicted cost for two solves of `columns` columns; X (n, d) has `entries` non-zeros.

    by_sums: only solvers that meet the rows through sums, as on a cluster, are possible. Where one process would factor
    the dual, conjugate gradients go on until they are nearly exact, so that both give the same model.
    """
    costs = predicted_seconds(n, d, columns, entries, speeds)
    best = min(costs, key=lambda solver: costs[solver])
    if not (by_sums and isinstance(best, DualCholesky)):
        return best
    costs = {solver: cost for solver, cost in costs.items() if not isinstance(solver, DualCholesky)}
    best = min(costs, key=lambda solver: costs[solver])
    return replace(best, tol=NEARLY_EXACT) if isinstance(best, ConjugateGradient) else best


def predicted_seconds(n: int, d: int, columns: int, entries: int, speeds: Speeds = HOST.speeds) -> dict[Solver, float]:
    """Returns the seconds of each solver that fits in memory."""
    dense = entries >= n * d
    apply = 4.0 * entries * columns / (speeds.dense if dense else speeds.panel)  # X'(XP)
    update = float(d) * columns / speeds.vector
    costs: dict[Solver, float] = {ConjugateGradient(): 2 * EXPECTED_ITERATIONS * (apply + 3 * update)}
    if d <= LARGEST_CHOLESKY:
        gram = 2.0 * n * d * d / speeds.dense
        if speeds.pair is not None and not dense:
            gram = entries * (entries / max(1, n)) / speeds.pair
        costs[Cholesky()] = gram + (d**3 / 3 + 4.0 * d * d * columns) / speeds.factor
    if n <= min(d, LARGEST_CHOLESKY):
        kernel = n * float(entries) / (speeds.dense / 4 if dense else speeds.kernel) + n * d / speeds.vector
        factor = (n**3 / 3 + 4.0 * n * n * columns) / speeds.factor
        costs[DualCholesky()] = kernel + factor + 2 * (4 * apply + 4 * update)  # products in float64
    return costs
