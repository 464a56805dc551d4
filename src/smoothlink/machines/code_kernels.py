"""Numba kernels of `grouped_codes`, which imports them at the first use.

Arrays come whole, with the columns from `first` on that are wanted: rows of a slice are not contiguous for the
compiler, which then takes one number at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled

Array = NDArray[Any]

SERIAL = 1 << 16  # codes up to which one thread sums


@compiled(parallel=True)
def decode(values: Array, scale: Array, rows: Array, group: int, packed: bool, first: int, out: Array) -> None:
    """Writes these rows of the matrix, in the columns from `first` on, into out (len(rows), m)."""
    end = first + out.shape[1]
    for p in prange(len(rows)):
        i = rows[p]
        codes = values[i >> 1 if packed else i, first:end]
        factors, row = scale[i // group, first:end], out[p]
        if not packed:
            for j in range(len(row)):
                row[j] = np.float32(codes[j]) * factors[j]
        elif i & 1:
            for j in range(len(row)):
                row[j] = np.float32(np.int32(codes[j] >> 4) - np.int32(8)) * factors[j]
        else:
            for j in range(len(row)):
                row[j] = np.float32(np.int32(codes[j] & 15) - np.int32(8)) * factors[j]


def row_dot(x: Array, values: Array, scale: Array, group: int, packed: bool, first: int, m: int) -> Array:
    """Returns x (a,) @ m columns of the matrix. Each column is summed in one order, whichever other columns there are:
    the score of a label is the same to the last bit among all labels and among few."""
    out = np.zeros(m, np.float32)
    pieces = 2 * get_num_threads() if m * len(values) > SERIAL else 1
    _row_dots(x, values, scale, group, packed, first, out, pieces)
    return out


@compiled(parallel=True)
def _row_dots(
    x: Array, values: Array, scale: Array, group: int, packed: bool, first: int, out: Array, pieces: int
) -> None:
    """Adds x @ the matrix to out (m,), in as many pieces of it."""
    m = len(out)
    for piece in prange(pieces):
        low, high = piece * m // pieces, (piece + 1) * m // pieces
        start, end = first + low, first + high
        found, total = out[low:high], np.empty(high - low, np.float32)
        for g in range(len(scale)):
            total[:] = 0
            for i in range(g * group, min(len(x), (g + 1) * group), 2):
                x0, x1 = x[i], x[i + 1] if i + 1 < len(x) else np.float32(0)
                if packed:
                    both = values[i >> 1, start:end]
                    for j in range(len(total)):
                        even, odd = np.int32(both[j] & 15) - np.int32(8), np.int32(both[j] >> 4) - np.int32(8)
                        total[j] += x0 * np.float32(even) + x1 * np.float32(odd)
                else:
                    codes, others = values[i, start:end], values[min(i + 1, len(x) - 1), start:end]
                    for j in range(len(total)):
                        total[j] += x0 * np.float32(codes[j]) + x1 * np.float32(others[j])
            factors = scale[g, start:end]
            for j in range(len(total)):
                found[j] += factors[j] * total[j]
