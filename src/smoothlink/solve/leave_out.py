"""Ridge regression onto all labels from one factor: what each row is predicted without itself, and the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.arrays import to_host
from smoothlink.machines.rows import Rows
from smoothlink.solve import Solve
from smoothlink.solve.dual import KernelSolve, xb, xt_r

Array = NDArray[Any]


def held_out_smoother(rows: Rows, solve: Solve, held: Array) -> Array:
    """Returns L (h, n): L Y are the scores that held-out rows get from a ridge regression fitted without all of them.

    `solve` is of all rows. P = I - W^1/2 X (X'WX + rho)^-1 X' W^1/2 turns W^1/2 Y into the residuals of the fit to all
    rows, and P_hh^-1 (P W^1/2 Y)_h are those of rows h in a fit without them: with h = {i} the leave-one-out identity.
    """
    r = np.sqrt(rows.w.astype(np.float64))
    P = residual_rows(rows, solve, held, r)
    L = -np.asarray(scipy.linalg.solve(P[:, held], P, assume_a="pos", overwrite_b=True, check_finite=False))
    L[:, held] = 0
    L *= r
    L /= r[held, None]
    return L.astype(np.float32)


def residual_rows(rows: Rows, solve: Solve, numbers: Array, r: Array) -> Array:
    """Returns rows `numbers` (m, n) of P, r being the roots of the weights.

    Without the intercept P is rho (K + rho)^-1, so that the dual needs no product with X.
    """
    E = np.zeros((rows.n, len(numbers)))
    E[numbers, np.arange(len(numbers))] = 1
    if isinstance(solve, KernelSolve):
        E *= solve.scale
        p = solve.scale * solve.factor.solve(r[:, None].copy())[:, 0]
        return np.asarray(solve.factor.solve(E).T - np.outer(p[numbers] / solve.pivot, p))
    X = rows.take(numbers).blocks[0].X.dense_rows(0, len(numbers))
    Z = solve(np.ascontiguousarray((r[numbers, None] * X).T))
    return np.asarray((E - r[:, None] * to_host(rows.map(xb, Z))).T)


def label_weights(rows: Rows, solve: Solve, Y: sp.csr_array) -> Callable[[Array], Array]:
    """Returns the function from numbers of labels to their weights B (d, m), the intercept last.

    The dual makes (K + rho)^-1 in the memory of the factor, so this is the last use of `solve`: Y is sparse, and its
    products with the inverse cost less than solves.
    """
    r = np.sqrt(rows.w.astype(np.float64))
    T = sp.csc_array(sp.diags_array(r) @ Y)
    if not isinstance(solve, KernelSolve):

        def solved(labels: Array) -> Array:
            R = (sp.diags_array(r) @ T[:, labels]).toarray()
            B = solve(rows.sum(xt_r, R, out=(rows.d, len(labels)), dtype=np.float64))
            return to_host(B).astype(np.float32)

        return solved
    M = solve.factor.inverse()
    p = M @ r

    def multiplied(labels: Array) -> Array:
        part = T[:, labels]
        intercepts = solve.scale / solve.pivot * (part.T @ p)
        A = (part.T @ M).T - np.outer(p, intercepts)
        B: Array = rows.sum(xt_r, (r[:, None] * A).astype(np.float32), out=(rows.d, len(labels)))
        B[-1] = intercepts
        return B

    return multiplied
