"""Matrices in half the memory: float16 numbers, and for each column a power of two that makes them fit its range."""

from __future__ import annotations

import tempfile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.errors import ModelFileError
from smoothlink.machines.rows_in_files import PIECE_BYTES as PIECE
from smoothlink.machines.rows_in_files import pieces

Array = NDArray[Any]

SMALL = 1 << 14  # numbers that one thread widens before others are awake
FEW = 4  # rows up to which the halves are read as they are; more rows pay for widening them first


class Half(NamedTuple):
    """values * scale. Float16 alone ends at 6e-5, where the weights of rare labels are; its own scale gives each
    column 11 bits for all entries down to 1/16384 of its largest."""

    values: Array  # (a, b) float16, finite
    scale: Array  # (b,) float32, powers of two

    @property
    def shape(self) -> tuple[int, int]:
        return (self.values.shape[0], self.values.shape[1])

    def wide(self, columns: Any = slice(None)) -> Array:
        """These columns in float32."""
        return from_half(self.values[:, columns], self.scale[columns])

    def rows(self, numbers: Array) -> Array:
        """These rows in float32."""
        return from_half(self.values[numbers], self.scale)

    def left(self, A: Array, columns: Any = slice(None), out: Array | None = None) -> Array:
        """A @ self[:, columns] in float32."""
        if len(A) > FEW:
            return np.matmul(A, self.wide(columns), out=out)
        from smoothlink.machines import prediction_kernels as selection

        halves, scale = self.values[:, columns].view(np.uint16), np.ascontiguousarray(self.scale[columns])
        return np.stack([selection.half_dot(np.ascontiguousarray(row), halves, scale) for row in A], out=out)


def to_half(A: Array) -> Half:
    """A (a, b) with each column scaled to at most 1 and rounded to float16; many halves are in a temporary file."""
    largest = np.zeros(A.shape[1], A.dtype)
    for part in pieces(A):
        np.maximum(largest, np.abs(part).max(axis=0), out=largest)
    if not np.isfinite(largest).all():
        raise ModelFileError("The model has weights that are not finite. Fit it again with a larger ridge.")
    _, exponent = np.frexp(largest)
    scale = np.ldexp(np.float32(1), np.clip(exponent, -120, 120)).astype(np.float32)
    if A.nbytes <= PIECE:
        return Half(np.asarray(A / scale, np.float16), scale)
    with tempfile.TemporaryFile() as file:  # stays until it is not mapped any more
        for part in pieces(A):
            file.write(np.asarray(part / scale, np.float16).data)
        file.flush()
        return Half(np.memmap(file, np.float16, "r", shape=A.shape), scale)


def from_half(values: Array, scale: Array) -> Array:
    """Float16 values (a, b) times the scale of their column, in float32."""
    if values.size <= SMALL:
        return values.astype(np.float32) * scale
    from smoothlink.machines import prediction_kernels as selection

    out = np.empty(values.shape, np.float32)
    selection.widen(values.view(np.uint16), np.ascontiguousarray(scale), out)
    return out
