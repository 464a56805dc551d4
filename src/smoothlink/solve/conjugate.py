"""Ridge systems by preconditioned conjugate gradients: only products with X and X', for large d."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.arrays import (
    Array,
    column_dots,
    contiguous,
    empty_as,
    like,
    on_host,
    take_columns,
    to_device_of,
    zeros,
)
from smoothlink.machines.rows import Block, Rows
from smoothlink.machines.threads import loops_in_threads
from smoothlink.solve.nystrom import Correction, Sketch, correction
from smoothlink.solve.ridge import diagonal, penalties

HostArray = NDArray[Any]

LEAST_POSITIVE = np.finfo(np.float64).tiny
PRECONDITIONERS = ("auto", "diagonal", "nystrom")
FEW_ITERATIONS = 30  # up to which the diagonal without the correction is as fast
SHORT_LOOPS = 1 << 22  # numbers of a group, up to which its loops are too short for several threads
TRIAL_RANK, TRIAL_LEVEL = 16, 10.0  # of a small trial: eigenvalues this large, where all have mean 1, can be removed


@dataclass(frozen=True)
class ConjugateGradient:
    """Right-hand sides advance in groups, each with its own step.

    The preconditioner is the diagonal, or the diagonal with a correction of low rank (randomized Nystrom; Frangella,
    Tropp and Udell 2021) which costs as much as some iterations of `rank` columns. It helps where features are
    correlated; word counts are not (decision 0009). "auto" tries it after a group of columns that took many iterations.
    """

    tol: float = 1e-3  # a column stops when |residual| <= tol |right-hand side|, weighted by the inverse diagonal
    iterations: int = 200
    preconditioner: str = "auto"
    rank: int = 200  # of the correction
    group: int | None = None  # columns that advance together; None: as the rows say, and a group in each thread

    def __post_init__(self) -> None:
        if self.preconditioner not in PRECONDITIONERS:
            raise ValueError(
                f"preconditioner is {self.preconditioner!r}; possible are {', '.join(map(repr, PRECONDITIONERS))}."
            )

    def prepare(self, rows: Rows, *, penalize_intercept: bool = False) -> GradientSystem:
        return GradientSystem(self, rows, diagonal(rows), penalize_intercept)


class GradientSystem:
    """X and its preconditioner: `at(ridge)` returns the solver of (X'WX + rho) Z = B."""

    def __init__(
        self, options: ConjugateGradient, rows: Rows, squares: HostArray, penalize_intercept: bool = False
    ) -> None:
        self.options, self.rows, self.penalize_intercept = options, rows, penalize_intercept
        self.squares = squares  # (d,) diagonal of X'WX
        self._sketches: dict[int, Sketch] = {}

    def at(self, ridge: float) -> GradientSolve:
        return GradientSolve(self, penalties(ridge, self.squares, penalize_intercept=self.penalize_intercept))

    def sketch(self, scale: HostArray, rank: int) -> Sketch:
        """Returns X'WX times Gaussian columns, scaled for the first ridge: one product serves all ridges."""
        if rank not in self._sketches:
            probes = self.rows.to_device(sketch_probes(scale, rank))
            self._sketches[rank] = Sketch(probes, self.rows.columnwise(xt_xp, probes, len(scale)))
        return self._sketches[rank]


@dataclass
class ColumnGroup:
    """Columns that advance together."""

    columns: HostArray  # (g,) their numbers
    goal: HostArray  # (g,) the squared residual that is small enough
    z: Array  # (d, g) the solution so far
    r: Array  # (d, g) its residual
    p: Array  # (d, g) the direction to go
    zeta: HostArray  # (g,) r'Mr with the whole preconditioner M
    size: HostArray  # (g,) r'Mr with its diagonal only, which `tol` is about
    iterations: int = 0
    products: int = 0  # columns times iterations
    ratio: float = 0.0  # the largest of a squared residual to its goal, of the columns that are done

    def select(self, some: HostArray) -> None:
        """Drops the other columns, of one array after the other: they are large."""
        for name in ("z", "r", "p"):
            setattr(self, name, contiguous(take_columns(getattr(self, name), some)))
        self.columns, self.goal = self.columns[some], self.goal[some]
        self.zeta, self.size = self.zeta[some], self.size[some]


class GradientSolve:
    """B -> (X'WX + rho)^-1 B, to a relative residual of `tol`."""

    def __init__(self, system: GradientSystem, rho: HostArray) -> None:
        self.system, self.options, self.rows, self.rho = system, system.options, system.rows, rho
        pivots = system.squares + rho
        self.inverse = np.where(pivots > 0, 1 / np.where(pivots > 0, pivots, 1), 0).astype(np.float32)
        self.inverse_diagonal = self.rows.to_device(self.inverse)
        self.ridge = self.rows.to_device(rho.astype(np.float32))
        self.correction: Correction | None = None
        self.flat = False  # whether a trial found no large eigenvalues to remove
        self.iterations = 0  # the most that a column of the last solve took
        self.products = 0  # columns times iterations of the last solve
        self.residual = 0.0  # the largest of the last solve

    def __call__(self, B: Array, start: Array | None = None, *, overwrite: bool = False) -> Array:
        """Returns Z (d, m), in the memory of B with `overwrite`; `start` is a guess, such as that of another ridge."""
        if self.rows.remote and start is None:
            return self.rows.solve_columns(self, B)
        self.iterations, self.products, self.residual = 0, 0, 0.0
        Z, m, width = B if overwrite else empty_as(B), B.shape[1], self.options.group or self.rows.columns(len(B))
        effort: list[tuple[int, int, float, int]] = []  # of each group: iterations, products, residual, unfinished

        def solve(part: slice) -> None:
            group = self.begin(contiguous(B[:, part], copy=True), None if start is None else start[:, part])
            self._advance(group, Z[:, part])
            effort.append((group.iterations, group.products, self.residual_of(group), len(group.columns)))
            self.iterations = max(self.iterations, group.iterations)

        parts, short = [slice(c, c + width) for c in range(0, m, width)], self.rows.in_memory and on_host(B)
        short = short and self.options.group is None and (self.rows.n + len(B)) * width <= SHORT_LOOPS
        for number, part in enumerate(parts):
            self.precondition(m - part.start)
            if number and short:  # the first one says which preconditioner there is
                loops_in_threads(partial(solve, part) for part in parts[number:])
                break
            solve(part)
        if effort:
            iterations, products, residuals, unfinished = zip(*effort, strict=True)
            self.iterations, self.products, self.residual = max(iterations), sum(products), max(residuals)
            self._warn(sum(unfinished))
        return Z

    @property
    def recipe(self) -> Recipe:
        """Returns this solver without its rows."""
        return Recipe(self.options, self.system.squares, self.rho)

    @property
    def effort(self) -> HostArray:
        """Returns the iterations, products and residual of the last solve."""
        return np.array([self.iterations, self.products, self.residual])

    def record(self, effort: HostArray) -> None:
        """Takes the `effort` of a solve in other processes, per column, as that of the last solve."""
        iterations, products, residual = effort.max(axis=1)
        self.iterations, self.products, self.residual = int(iterations), int(products), float(residual)
        self._warn(int(np.count_nonzero(effort[2] > self.options.tol)))

    def precondition(self, left: int) -> None:
        """Makes the correction where the options say so, or for so many columns it should save more than it costs."""
        if self.correction is not None or self.options.preconditioner == "diagonal" or self.flat:
            return
        if self.options.preconditioner == "auto":
            if self.iterations <= FEW_ITERATIONS or self.iterations * left <= 4 * self.options.rank:
                return
            self.flat = bool(np.mean(self._correction(TRIAL_RANK).levels) < TRIAL_LEVEL)
            if self.flat:
                return
        self.correction = self._correction(self.options.rank)

    def _correction(self, rank: int) -> Correction:
        if self.rows.remote:
            found: Correction = self.rows.correction(self, rank)
            return found
        root = np.sqrt(self.inverse)
        return correction(self.system.sketch(root, rank), self.rho.astype(np.float32), root)

    def _advance(self, group: ColumnGroup, Z: Array) -> None:
        """Solves a group of columns into Z; those that stop early stay in it."""
        while True:
            if self.some_are_done(group):
                self.remove_done(group, Z)
            if self.all_are_done(group):
                break
            self.step(group, self.rows.columnwise(xt_xp, group.p, len(group.p)))

    def some_are_done(self, group: ColumnGroup) -> bool:
        """Returns whether to remove columns: half of them or more are done (odd widths are slow), or time is up."""
        left = np.count_nonzero(group.size > group.goal)
        return bool(2 * left <= len(group.columns)) or self._time_is_up(group)

    def remove_done(self, group: ColumnGroup, Z: Array) -> None:
        """Writes all columns of a group to theirs of Z, and keeps those that are not done."""
        Z[:, to_device_of(Z, group.columns)] = group.z
        left = group.size > group.goal
        ratios = group.size / np.maximum(group.goal, LEAST_POSITIVE)
        group.ratio = max(group.ratio, ratios[~left | self._time_is_up(group)].max(initial=0.0))
        group.select(left)

    def all_are_done(self, group: ColumnGroup) -> bool:
        """Returns whether no column is left, or time is up."""
        return not len(group.columns) or self._time_is_up(group)

    def _time_is_up(self, group: ColumnGroup) -> bool:
        return group.iterations == self.options.iterations

    def residual_of(self, group: ColumnGroup) -> float:
        """Returns the largest relative residual of the columns of a group that are done."""
        return self.options.tol * float(np.sqrt(group.ratio))

    def begin(self, r: Array, start: Array | None = None) -> ColumnGroup:
        """Returns columns whose right-hand sides r are their first residuals; the memory of r is reused."""
        M, count = self.inverse_diagonal, r.shape[1]
        z = zeros(r, r.shape) if start is None else contiguous(like(start, r), copy=True)
        size = weighted_squares(r, M)
        goal = self.options.tol**2 * size
        if start is not None:
            r -= self.rows.columnwise(xt_xp, z, len(z))
            r -= self.ridge[:, None] * z
            size = weighted_squares(r, M)
        zeta, p = size, M[:, None] * r
        if self.correction is not None:
            zeta, coefficients = self.correction(r, size)
            p += self.correction.V @ coefficients
        return ColumnGroup(np.arange(count), goal, z, r, p, zeta, size)

    def step(self, g: ColumnGroup, Ap: Array) -> None:
        """Takes one step of every column, given X'WXp, which is overwritten: z along p, then the next direction."""
        M = self.inverse_diagonal
        step = g.zeta / np.maximum(curvature(g.p, Ap, self.ridge), LEAST_POSITIVE)  # adds rho p to Ap
        g.size = advance(g.z, g.r, g.p, Ap, M, step)
        before, g.zeta, corrected = g.zeta, g.size, None
        if self.correction is not None:
            g.zeta, coefficients = self.correction(g.r, g.size)
            corrected = self.correction.V @ coefficients
        update_direction(g.p, g.r, M, g.zeta / np.maximum(before, LEAST_POSITIVE))
        if corrected is not None:
            g.p += corrected
        g.iterations, g.products = g.iterations + 1, g.products + len(g.columns)

    def _warn(self, unfinished: int) -> None:
        if unfinished:
            warnings.warn(
                f"{unfinished} conjugate-gradient columns stopped after {self.options.iterations} iterations at a "
                f"relative residual of {self.residual:.1e} (wanted {self.options.tol:.1e}). A larger ridge converges "
                "faster; ConjugateGradient(iterations=...) allows more.",
                RuntimeWarning,
                stacklevel=3,
            )


class Recipe(NamedTuple):
    """A solver without its rows: it can be sent to the processes that have them."""

    options: ConjugateGradient
    squares: HostArray
    rho: HostArray

    def over(self, rows: Rows) -> GradientSolve:
        """Returns the solver with these rows."""
        return GradientSolve(GradientSystem(self.options, rows, self.squares), self.rho)


def solved_columns(rows: Rows, B: Array, recipe: Recipe) -> tuple[HostArray, Array]:
    """Returns the effort of some columns, and their Z."""
    solve = recipe.over(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the caller knows of all columns
        Z = solve(B)
    return np.outer(solve.effort, np.ones(B.shape[1])), Z


def sketch_probes(scale: HostArray, rank: int) -> HostArray:
    """Returns Gaussian columns (d, rank), each row scaled."""
    shape = len(scale), min(rank, len(scale))
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32) * scale[:, None]


# The vector updates, column by column, where the arrays are. Sizes and steps of columns are few numbers: they stay on
# the host, in float64.


def curvature(P: Array, AP: Array, rho: Array) -> HostArray:
    """Adds rho P to AP, then returns p'Ap of each column."""
    if on_host(P):
        from smoothlink.machines.kernels import cg_curvature

        return cg_curvature(P, AP, rho)
    AP.addcmul_(rho[:, None], P)
    return column_dots(P, AP)


def advance(Z: Array, R: Array, P: Array, AP: Array, M: Array, step: HostArray) -> HostArray:
    """Adds step P to Z and subtracts step AP from R, then returns r'Mr of each column."""
    if on_host(P):
        from smoothlink.machines.kernels import cg_advance

        return cg_advance(Z, R, P, AP, M, step.astype(np.float32))
    step = to_device_of(P, step.astype(np.float32))
    Z.addcmul_(P, step)
    R.addcmul_(AP, step, value=-1)
    return column_dots(R, R, M)


def update_direction(P: Array, R: Array, M: Array, beta: HostArray) -> None:
    """Writes M R + beta P to P."""
    if on_host(P):
        from smoothlink.machines.kernels import cg_direction

        cg_direction(P, R, M, beta.astype(np.float32))
        return
    P.mul_(to_device_of(P, beta.astype(np.float32))).addcmul_(M[:, None], R)


def weighted_squares(R: Array, M: Array) -> HostArray:
    """Returns r'Mr of each column in float64, M diagonal."""
    if on_host(R):
        from smoothlink.machines.kernels import cg_curvature

        return cg_curvature(R, M[:, None] * R, np.zeros_like(M))
    return column_dots(R, R, M)


def xt_xp(block: Block, P: Array, out: Array) -> None:
    """Adds X'WXP of one block into out (d, m)."""
    XP = block.X @ P
    XP *= block.w[:, None]
    block.X.T.add_product(XP, out)
