"""Numba kernels of `grouped_codes`, which imports them at the first use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled

Array = NDArray[Any]

SERIAL = 1 << 16  # codes up to which one thread sums


@compiled(inline="always")
def _code(values: Array, i: int, j: int, packed: bool) -> Any:
    if packed:
        return np.float32(((np.int32(values[i >> 1, j]) >> np.int32(4 * (i & 1))) & np.int32(15)) - np.int32(8))
    return np.float32(values[i, j])


@compiled(parallel=True)
def decode(values: Array, scale: Array, rows: Array, group: int, packed: bool, out: Array) -> None:
    """Writes these rows of the matrix into out (len(rows), b)."""
    for p in prange(len(rows)):
        i = rows[p]
        for j in range(out.shape[1]):
            out[p, j] = _code(values, i, j, packed) * scale[i // group, j]


def row_dot(x: Array, values: Array, scale: Array, group: int, packed: bool) -> Array:
    """Returns x (a,) @ the matrix. Each column is summed in one order, whichever other columns there are: the score of
    a label is the same to the last bit among all labels and among few."""
    out = np.zeros(values.shape[1], np.float32)
    _row_dots(x, values, scale, group, packed, out, 2 * get_num_threads() if values.size > SERIAL else 1)
    return out


@compiled(parallel=True)
def _row_dots(x: Array, values: Array, scale: Array, group: int, packed: bool, out: Array, pieces: int) -> None:
    """Adds x @ the matrix to out (b,), in as many pieces of it."""
    b = len(out)
    for piece in prange(pieces):
        first, end = piece * b // pieces, (piece + 1) * b // pieces
        total = np.empty(end - first, np.float32)
        for g in range(len(scale)):
            total[:] = 0
            for i in range(g * group, min(len(x), (g + 1) * group)):
                for j in range(first, end):
                    total[j - first] += x[i] * _code(values, i, j, packed)
            for j in range(first, end):
                out[j] += scale[g, j] * total[j - first]
