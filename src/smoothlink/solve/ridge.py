"""The relative ridge: one value means about the same on any data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.rows import Block, Rows

Array = NDArray[Any]


def diagonal(rows: Rows) -> Array:
    """Returns the diagonal (d,) of X'WX in float64, from one pass over the blocks; the last is the intercept's."""
    return rows.sum(square_sums, out=(rows.d,), dtype=np.float64)


def square_sums(block: Block, out: Array) -> None:
    """Adds the diagonal of X'WX of one block to out (d,)."""
    block.X.add_square_sums(block.w, out)


def penalties(ridge: float, squares: Array, *, penalize_intercept: bool = False) -> Array:
    """Returns rho (d,) = ridge * trace / r over the r columns, other than the intercept's, that are not all zero.

    The intercept is neither counted nor penalised. With `penalize_intercept` it is both, and r is the number of all
    columns, as in the authors' code.
    """
    if penalize_intercept:
        return np.full(len(squares), ridge * squares.mean())
    used = np.count_nonzero(squares[:-1])
    rho = np.full(len(squares), ridge * squares[:-1].sum() / max(1, used))
    rho[-1] = 0.0
    return rho
