"""Ridge systems by preconditioned conjugate gradients: only products with X and X', for large d."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.rows import Block, Rows
from smoothlink.solve.ridge import diagonal, penalties

Array = NDArray[Any]

TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class ConjugateGradient:
    """All right-hand sides advance together, each with its own step; the preconditioner is the diagonal."""

    tol: float = 1e-3  # a column stops when |residual| <= tol |right-hand side|, in the preconditioned norm
    iterations: int = 200

    def prepare(self, rows: Rows, *, penalize_constant: bool = False) -> GradientSystem:
        return GradientSystem(self, rows, diagonal(rows), penalize_constant)


@dataclass(frozen=True)
class GradientSystem:
    """X and what preconditions it: `at(ridge)` gives the solver of (X'WX + rho) Z = B."""

    knobs: ConjugateGradient
    rows: Rows
    squares: Array  # (d,) diagonal of X'WX
    penalize_constant: bool = False

    def at(self, ridge: float) -> GradientSolve:
        return GradientSolve(self, penalties(ridge, self.squares, penalize_constant=self.penalize_constant))


class GradientSolve:
    """B -> (X'WX + rho)^-1 B, to a relative residual of `tol`."""

    def __init__(self, system: GradientSystem, rho: Array) -> None:
        self.knobs, self.rows, self.rho = system.knobs, system.rows, rho
        pivots = system.squares + rho
        self.inverse_diagonal = np.where(pivots > 0, 1 / np.where(pivots > 0, pivots, 1), 0).astype(np.float32)
        self.iterations = 0  # of the last solve
        self.residual = 0.0  # the largest of the last solve

    def __call__(self, B: Array) -> Array:
        from smoothlink.machines.kernels import cg_advance, cg_curvature, cg_turn

        rho, M = self.rho.astype(np.float32), self.inverse_diagonal
        Z, columns = np.zeros_like(B), np.arange(B.shape[1])  # finished columns leave the iteration
        z, r, p = np.zeros_like(B), B.copy(), M[:, None] * B
        zeta = cg_curvature(r, p, np.zeros_like(rho))  # r'Mr of each column
        goal = self.knobs.tol**2 * zeta
        self.iterations = 0
        while True:
            done = zeta <= goal
            if done.any() or self.iterations == self.knobs.iterations:
                Z[:, columns] = z
                self.residual = float(np.sqrt(np.max(zeta / np.maximum(goal, TINY), initial=0.0))) * self.knobs.tol
                z, r, p = (np.ascontiguousarray(A[:, ~done]) for A in (z, r, p))
                columns, zeta, goal = columns[~done], zeta[~done], goal[~done]
            if not len(columns) or self.iterations == self.knobs.iterations:
                break
            Ap = self.rows.sum(xt_xp, p, out=p.shape)
            step = zeta / np.maximum(cg_curvature(p, Ap, rho), TINY)  # adds rho p to Ap
            new = cg_advance(z, r, p, Ap, M, step.astype(np.float32))
            cg_turn(p, r, M, (new / np.maximum(zeta, TINY)).astype(np.float32))
            zeta = new
            self.iterations += 1
        self._warn(len(columns))
        return Z

    def _warn(self, unfinished: int) -> None:
        if unfinished:
            warnings.warn(
                f"{unfinished} conjugate-gradient columns stopped after {self.knobs.iterations} iterations at a "
                f"relative residual of {self.residual:.1e} (wanted {self.knobs.tol:.1e}). A larger ridge converges "
                "faster; ConjugateGradient(iterations=...) allows more.",
                RuntimeWarning,
                stacklevel=3,
            )


def xt_xp(block: Block, P: Array, out: Array) -> None:
    """Adds X'WXP of one block into out (d, m)."""
    XP = block.X @ P
    XP *= block.w[:, None]
    block.X.T.add_product(XP, out)
