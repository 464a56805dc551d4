"""Matrices of small whole numbers: int8, or int4 with two in a byte, and a scale for each group of them.

GROUP rows of a column are a group. Codes are round(entry / scale) for a scale of the group's largest entry over the
largest code, so no entry moves by more than half a scale. A scale is a bfloat16: the upper half of a float32. So few
bits make code * scale exact in float32, and the codes of what was decoded those that were there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.errors import ModelFileError
from smoothlink.machines.rows_in_files import PIECE_BYTES, release_pages, scratch

Array = NDArray[Any]

GROUP = 64  # rows of a column with one scale: its two bytes add 1/32 to int8, 1/16 to int4
LARGEST = {"int8": 127, "int4": 7}
TINY = np.float32(1e-30)  # a scale is not less
SERIAL = 1 << 14  # entries up to which NumPy is done before other threads are awake


class Codes(NamedTuple):
    """A matrix (a, b)."""

    values: Array  # (a, b) int8; or (ceil(a / 2), b) uint8, whose low half is the code of an even row plus 8
    scale: Array  # (ceil(a / GROUP), b) float32, of which the lower 16 bits are 0
    rows: int  # a

    @property
    def packed(self) -> bool:
        return self.values.dtype == np.uint8


def quantize_groups(A: Array, dtype: str, piece_bytes: int = PIECE_BYTES) -> Codes:
    """Returns the codes of A (a, b), in a temporary file where they are many; `dtype` is int8 or int4."""
    (a, b), top = A.shape, LARGEST[dtype]
    shape, kind = ((a, b), np.int8) if dtype == "int8" else ((-(-a // 2), b), np.uint8)
    values = scratch(shape, kind, piece_bytes)
    scale = np.empty((-(-a // GROUP), b), np.float32)
    for g, start in enumerate(range(0, a, GROUP)):
        part = np.asarray(A[start : start + GROUP])
        largest = np.abs(part).max(axis=0)
        if not np.isfinite(largest).all():
            raise ModelFileError("The model has weights that are not finite. Fit it again with a larger ridge.")
        mantissa, exponent = np.frexp(np.maximum(largest / top, TINY))
        scale[g] = np.ldexp(np.rint(mantissa * 2**8), exponent - 8)  # the largest code stays `top`
        codes = np.rint(part / scale[g]).astype(np.int8)
        if dtype == "int8":
            values[start : start + GROUP] = codes
        else:
            codes = np.concatenate([codes, np.zeros((len(codes) % 2, b), np.int8)]).astype(np.uint8) + np.uint8(8)
            values[start // 2 : start // 2 + len(codes) // 2] = codes[::2] | codes[1::2] << np.uint8(4)
        release_pages(A)
        release_pages(values)
    return Codes(values, scale, a)


def upper_half(scale: Array) -> Array:
    """Returns scales as a file holds them, in 16 bits."""
    return (scale.view(np.uint32) >> 16).astype(np.uint16)


def from_upper_half(bits: Array) -> Array:
    """Returns the scales that `upper_half` made of scales."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def decode(codes: Codes, rows: Array, columns: Any = slice(None)) -> Array:
    """Returns these rows and columns of the matrix in float32."""
    values, scale, first, m = _some_columns(codes, columns)
    if len(rows) * m > SERIAL:
        from smoothlink.machines import code_kernels

        out = np.empty((len(rows), m), np.float32)
        code_kernels.decode(values, scale, np.asarray(rows, np.int64), GROUP, codes.packed, first, out)
        return out
    values, scale = values[:, first : first + m], scale[:, first : first + m]
    if codes.packed:
        shift = (4 * (rows % 2)).astype(np.uint8)[:, None]
        small = (values[rows // 2] >> shift & np.uint8(15)).view(np.int8) - np.int8(8)
    else:
        small = values[rows]
    return np.asarray(small.astype(np.float32) * scale[rows // GROUP])


def row_dot(x: Array, codes: Codes, columns: Any = slice(None)) -> Array:
    """Returns x (a,) float32 @ these columns of the matrix, in one pass over the codes."""
    from smoothlink.machines import code_kernels

    values, scale, first, m = _some_columns(codes, columns)
    return code_kernels.row_dot(x, values, scale, GROUP, codes.packed, first, m)


def _some_columns(codes: Codes, columns: Any) -> tuple[Array, Array, int, int]:
    """Returns codes and scales with contiguous rows, the first of these columns in them, and how many they are."""
    if isinstance(columns, slice):
        first, stop, step = columns.indices(codes.values.shape[1])
        if step == 1:
            return codes.values, codes.scale, first, max(0, stop - first)
        columns = np.arange(first, stop, step)
    return codes.values.take(columns, axis=1), codes.scale.take(columns, axis=1), 0, len(columns)
