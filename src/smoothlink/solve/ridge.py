"""The relative ridge: one value means about the same on any data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.rows import Block, Rows

Array = NDArray[Any]


def diagonal(rows: Rows) -> Array:
    """The diagonal (d,) of X'WX in float64, from one pass over the blocks; the last column is the constant."""
    return rows.sum(square_sums, out=(rows.d,), dtype=np.float64)


def square_sums(block: Block, out: Array) -> None:
    block.X.add_square_sums(block.w, out)


def penalties(ridge: float, squares: Array, *, penalize_constant: bool = False) -> Array:
    """rho (d,) = ridge * trace / r over the columns other than the constant that are not all zero, r of them.

    The constant is free and not counted. With `penalize_constant` it counts and is penalised and r is the number
    of columns, as in the authors' code.
    """
    if penalize_constant:
        return np.full(len(squares), ridge * squares.mean())
    alive = np.count_nonzero(squares[:-1])
    rho = np.full(len(squares), ridge * squares[:-1].sum() / max(1, alive))
    rho[-1] = 0.0
    return rho
