"""Ridge regression onto all labels from one factor: what each row is predicted without itself, and the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.arrays import cholesky, cholesky_solve, to_host
from smoothlink.machines.rows import Rows
from smoothlink.solve import Solve
from smoothlink.solve.dual import KernelSolve, xb, xt_r

Array = NDArray[Any]


class PrimalRidge:
    """The ridge regression of the factor of X'WX + rho, until the system is asked for another ridge."""

    def __init__(self, rows: Rows, solve: Solve) -> None:
        self.rows, self.solve, self.r = rows, solve, np.sqrt(rows.w.astype(np.float64))

    def residual_rows(self, numbers: Array) -> Array:
        """Returns some rows (m, n) of P = I - W^1/2 X (X'WX + rho)^-1 X' W^1/2."""
        E = np.zeros((self.rows.n, len(numbers)))
        E[numbers, np.arange(len(numbers))] = 1
        X = self.rows.take(numbers).blocks[0].X.dense_rows(0, len(numbers))
        Z = self.solve(np.ascontiguousarray((self.r[numbers, None] * X).T))
        return np.asarray((E - self.r[:, None] * to_host(self.rows.map(xb, Z))).T)

    def label_weights(self, Y: sp.csc_array) -> Array:
        """Returns the weights B (d, m) of labels Y (n, m), the intercept last."""
        R = (sp.diags_array(self.r**2) @ Y).toarray()
        B = self.solve(self.rows.sum(xt_r, R, out=(self.rows.d, Y.shape[1]), dtype=np.float64))
        return to_host(B).astype(np.float32)


class DualRidge:
    """The ridge regression of M = (K + rho)^-1, K = W^1/2 XX' W^1/2: n^2 numbers that score and weigh without a solve.

    The memory of the factor is free for another ridge.
    """

    def __init__(self, rows: Rows, solve: KernelSolve) -> None:
        self.rows, self.r, self.scale, self.pivot = rows, np.sqrt(rows.w.astype(np.float64)), solve.scale, solve.pivot
        self.M = solve.factor.inverse()  # float32
        self.p = self.M @ self.r.astype(np.float32)

    def residual_rows(self, numbers: Array) -> Array:
        """Returns some rows (m, n) of P, which without the intercept is rho M."""
        P = self.scale * self.M[numbers].astype(np.float64)
        P -= np.outer(self.scale**2 / self.pivot * self.p[numbers].astype(np.float64), self.p)
        return P

    def label_weights(self, Y: sp.csc_array) -> Array:
        """Returns the weights B (d, m) of labels Y (n, m), the intercept last; products with sparse Y are cheap."""
        T = sp.csc_array(sp.diags_array(self.r) @ Y).astype(np.float32)  # M would be copied to the type of T
        intercepts = (self.scale / self.pivot * (T.T @ self.p)).astype(np.float32)
        A = (T.T @ self.M).T
        A -= np.outer(self.p, intercepts)
        A *= self.r.astype(np.float32)[:, None]
        B: Array = self.rows.sum(xt_r, A, out=(self.rows.d, Y.shape[1]))
        B[-1] = intercepts
        return B


def fitted_ridge(rows: Rows, solve: Solve) -> PrimalRidge | DualRidge:
    """Returns the ridge regression onto any labels of a solver of all rows."""
    return DualRidge(rows, solve) if isinstance(solve, KernelSolve) else PrimalRidge(rows, solve)


def held_out_smoother(ridge: PrimalRidge | DualRidge, held: Array) -> Array:
    """Returns L (h, n): L Y are the scores that held-out rows get from a ridge regression fitted without all of them.

    P turns W^1/2 Y into the residuals of the fit to all rows, and P_hh^-1 (P W^1/2 Y)_h are those of rows h in a fit
    without them: with h = {i} the leave-one-out identity.
    """
    P = ridge.residual_rows(held)
    L = cholesky_solve(cholesky(np.ascontiguousarray(P[:, held])), P)
    L[:, held] = 0
    L *= -ridge.r
    L /= ridge.r[held, None]
    return np.asarray(L, np.float32)
