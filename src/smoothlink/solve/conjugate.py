"""Ridge systems by preconditioned conjugate gradients: only products with X and X', for large d."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.arrays import Array, contiguous, empty_as, like, take_columns, to_device_of, zeros
from smoothlink.machines.cg_updates import advance, curvature, turn, weighted_squares
from smoothlink.machines.rows import Block, Rows
from smoothlink.solve.nystrom import Correction, Sketch, correction
from smoothlink.solve.ridge import diagonal, penalties

HostArray = NDArray[Any]

TINY = np.finfo(np.float64).tiny
PRECONDITIONERS = ("auto", "diagonal", "nystrom")
FEW_ITERATIONS = 30  # up to which the diagonal alone is as fast as the correction
TRIAL_RANK, TRIAL_LEVEL = 16, 10.0  # a first look: eigenvalues this large, where the mean of all is 1, can be removed


@dataclass(frozen=True)
class ConjugateGradient:
    """Right-hand sides advance in groups, each with its own step.

    The preconditioner is the diagonal, or the diagonal with a correction of low rank (randomized Nystrom; Frangella,
    Tropp and Udell 2021) which costs as much as some iterations of `rank` columns. It helps where features go together;
    word counts do not (decision 0009). "auto" looks when the first group of columns took many iterations.
    """

    tol: float = 1e-3  # a column stops when |residual| <= tol |right-hand side|, weighted by the inverse diagonal
    iterations: int = 200
    preconditioner: str = "auto"
    rank: int = 200  # of the correction
    group: int | None = None  # columns that advance together; None: as many as the machine of the rows likes best

    def __post_init__(self) -> None:
        if self.preconditioner not in PRECONDITIONERS:
            raise ValueError(
                f"preconditioner is {self.preconditioner!r}; possible are {', '.join(map(repr, PRECONDITIONERS))}."
            )

    def prepare(self, rows: Rows, *, penalize_constant: bool = False) -> GradientSystem:
        return GradientSystem(self, rows, diagonal(rows), penalize_constant)


class GradientSystem:
    """X and what preconditions it: `at(ridge)` gives the solver of (X'WX + rho) Z = B."""

    def __init__(
        self, knobs: ConjugateGradient, rows: Rows, squares: HostArray, penalize_constant: bool = False
    ) -> None:
        self.knobs, self.rows, self.penalize_constant = knobs, rows, penalize_constant
        self.squares = squares  # (d,) diagonal of X'WX
        self._sketches: dict[int, Sketch] = {}

    def at(self, ridge: float) -> GradientSolve:
        return GradientSolve(self, penalties(ridge, self.squares, penalize_constant=self.penalize_constant))

    def sketch(self, scale: HostArray, rank: int) -> Sketch:
        """X'WX times Gaussian columns, scaled by the first ridge that asks: one product serves all ridges."""
        if rank not in self._sketches:
            shape = len(scale), min(rank, len(scale))
            draws = np.random.default_rng(0).standard_normal(shape, dtype=np.float32) * scale[:, None]
            probes = self.rows.place(draws)
            self._sketches[rank] = Sketch(probes, self.rows.columnwise(xt_xp, probes, len(scale)))
        return self._sketches[rank]


@dataclass
class Group:
    """Columns that advance together."""

    columns: HostArray  # (g,) their numbers
    goal: HostArray  # (g,) the squared residual that is small enough
    z: Array  # (d, g) the solution so far
    r: Array  # (d, g) its residual
    p: Array  # (d, g) the direction to go
    zeta: HostArray  # (g,) r'Mr with the whole preconditioner M
    size: HostArray  # (g,) r'Mr with its diagonal alone, which `tol` speaks of

    def keep(self, some: HostArray) -> None:
        """Lets the other columns go, of one array after the other: they are large."""
        for name in ("z", "r", "p"):
            setattr(self, name, contiguous(take_columns(getattr(self, name), some)))
        self.columns, self.goal = self.columns[some], self.goal[some]
        self.zeta, self.size = self.zeta[some], self.size[some]


class GradientSolve:
    """B -> (X'WX + rho)^-1 B, to a relative residual of `tol`."""

    def __init__(self, system: GradientSystem, rho: HostArray) -> None:
        self.system, self.knobs, self.rows, self.rho = system, system.knobs, system.rows, rho
        pivots = system.squares + rho
        self.inverse = np.where(pivots > 0, 1 / np.where(pivots > 0, pivots, 1), 0).astype(np.float32)
        self.inverse_diagonal, self.ridge = self.rows.place(self.inverse), self.rows.place(rho.astype(np.float32))
        self.correction: Correction | None = None
        self.flat = False  # whether a look found no large eigenvalues to remove
        self.iterations = 0  # the most that a column of the last solve took
        self.products = 0  # columns times iterations of the last solve
        self.residual = 0.0  # the largest of the last solve

    def __call__(self, B: Array, start: Array | None = None, *, overwrite: bool = False) -> Array:
        """Z (d, m), in place of B if asked; `start` is a guess of it, such as the solution at a neighbouring ridge."""
        if self.rows.partitions_columns and start is None:
            return self._partitioned(B)
        self.iterations, self.products, self.residual, unfinished = 0, 0, 0.0, 0
        Z, m, width = B if overwrite else empty_as(B), B.shape[1], self.knobs.group or self.rows.columns(len(B))
        for c in range(0, m, width):
            self._precondition(m - c)
            part = slice(c, c + width)
            begun = self._begin(contiguous(B[:, part], copy=True), None if start is None else start[:, part])
            unfinished += self._advance(begun, Z[:, part])
        self._warn(unfinished)
        return Z

    def _partitioned(self, B: Array) -> Array:
        """The same, some columns on each machine that has all rows."""
        effort, Z = self.rows.over_columns(solved_columns, B, self.recipe)
        self.took(effort)
        return Z

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.knobs, self.system.squares, self.rho)

    @property
    def effort(self) -> HostArray:
        """What the last solve took: iterations, products, residual."""
        return np.array([self.iterations, self.products, self.residual])

    def took(self, effort: HostArray) -> None:
        """Takes note of what a solve elsewhere took: `effort` for each column."""
        iterations, products, residual = effort.max(axis=1)
        self.iterations, self.products, self.residual = int(iterations), int(products), float(residual)
        self._warn(int(np.count_nonzero(effort[2] > self.knobs.tol)))

    def _precondition(self, left: int) -> None:
        """Makes the correction if it is asked for, or if for so many columns it should save more than it costs."""
        if self.correction is not None or self.knobs.preconditioner == "diagonal" or self.flat:
            return
        if self.knobs.preconditioner == "auto":
            if self.iterations <= FEW_ITERATIONS or self.iterations * left <= 4 * self.knobs.rank:
                return
            self.flat = bool(np.mean(self._correction(TRIAL_RANK).levels) < TRIAL_LEVEL)
            if self.flat:
                return
        self.correction = self._correction(self.knobs.rank)

    def _correction(self, rank: int) -> Correction:
        root = np.sqrt(self.inverse)
        return correction(self.system.sketch(root, rank), self.rho.astype(np.float32), root)

    def _advance(self, group: Group, Z: Array) -> int:
        """Solves a group of columns into Z; returns how many had to stop early."""
        shares = np.zeros(len(group.columns))  # of the squared residual in what is allowed
        for count in range(self.knobs.iterations + 1):
            left = group.size > group.goal
            stop = count == self.knobs.iterations or not left.any()
            if stop or 2 * np.count_nonzero(left) <= len(left):  # columns leave by halves: odd widths are slow
                Z[:, to_device_of(Z, group.columns)] = group.z
                shares[group.columns] = group.size / np.maximum(group.goal, TINY)
                group.keep(left)
            if stop:
                break
            self._iterate(group)
        self.iterations = max(self.iterations, count)
        self.residual = max(self.residual, self.knobs.tol * float(np.sqrt(shares.max(initial=0.0))))
        return int(np.count_nonzero(left))

    def _begin(self, r: Array, start: Array | None) -> Group:
        """Columns whose right-hand sides r are their first residuals; r is used up."""
        M, count = self.inverse_diagonal, r.shape[1]
        z = zeros(r, r.shape) if start is None else contiguous(like(start, r), copy=True)
        size = weighted_squares(r, M)
        goal = self.knobs.tol**2 * size
        if start is not None:
            r -= self.rows.columnwise(xt_xp, z, len(z))
            r -= self.ridge[:, None] * z
            size = weighted_squares(r, M)
        zeta, p = size, M[:, None] * r
        if self.correction is not None:
            zeta, coefficients = self.correction(r, size)
            p += self.correction.V @ coefficients
        return Group(np.arange(count), goal, z, r, p, zeta, size)

    def _iterate(self, g: Group) -> None:
        """One step of every column: z along p, then the next direction."""
        M, Ap = self.inverse_diagonal, self.rows.columnwise(xt_xp, g.p, len(g.p))
        step = g.zeta / np.maximum(curvature(g.p, Ap, self.ridge), TINY)  # adds rho p to Ap
        g.size = advance(g.z, g.r, g.p, Ap, M, step)
        before, g.zeta, corrected = g.zeta, g.size, None
        if self.correction is not None:
            g.zeta, coefficients = self.correction(g.r, g.size)
            corrected = self.correction.V @ coefficients
        turn(g.p, g.r, M, g.zeta / np.maximum(before, TINY))
        if corrected is not None:
            g.p += corrected
        self.products += len(g.columns)

    def _warn(self, unfinished: int) -> None:
        if unfinished:
            warnings.warn(
                f"{unfinished} conjugate-gradient columns stopped after {self.knobs.iterations} iterations at a "
                f"relative residual of {self.residual:.1e} (wanted {self.knobs.tol:.1e}). A larger ridge converges "
                "faster; ConjugateGradient(iterations=...) allows more.",
                RuntimeWarning,
                stacklevel=3,
            )


class Recipe(NamedTuple):
    """A solver without its rows: it can be sent to where they are."""

    knobs: ConjugateGradient
    squares: HostArray
    rho: HostArray

    def over(self, rows: Rows) -> GradientSolve:
        return GradientSolve(GradientSystem(self.knobs, rows, self.squares), self.rho)


def solved_columns(rows: Rows, B: Array, recipe: Recipe) -> tuple[HostArray, Array]:
    """What some columns took, and their Z."""
    solve = recipe.over(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the caller knows of all columns
        Z = solve(B)
    return np.outer(solve.effort, np.ones(B.shape[1])), Z


def xt_xp(block: Block, P: Array, out: Array) -> None:
    """Adds X'WXP of one block into out (d, m)."""
    XP = block.X @ P
    XP *= block.w[:, None]
    block.X.T.add_product(XP, out)
