"""V (s + 1, c) in several files of some labels each, as the workers of a cluster wrote them: mapped, never whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

RUN = re.compile(r"-V-([0-9a-f]{8})-\d{5}-of-\d{5}\.safetensors$")


class Shards:
    """Parts side by side, with the products of `Half`."""

    dtype = np.dtype(np.float32)

    def __init__(self, parts: list[Array], files: list[Path], checksums: list[int]) -> None:
        self.parts, self.files, self.checksums = parts, files, checksums
        self.edges = np.cumsum([0, *(part.shape[1] for part in parts)])
        self.shape: tuple[int, int] = (int(parts[0].shape[0]), int(self.edges[-1]))

    def wide(self, columns: Any = slice(None)) -> Array:
        """These columns."""
        numbers = np.arange(self.shape[1])[columns]
        out = np.empty((self.shape[0], len(numbers)), np.float32)
        for part, mine, inside in self._owned(numbers):
            out[:, mine] = part[:, inside]
        return out

    def rows(self, numbers: Array) -> Array:
        """These rows."""
        return np.hstack([part[numbers] for part in self.parts])

    def left(self, A: Array, columns: Any = slice(None), out: Array | None = None) -> Array:
        """A @ self[:, columns]."""
        numbers = np.arange(self.shape[1])[columns]
        out = np.empty((len(A), len(numbers)), np.float32) if out is None else out
        for part, mine, inside in self._owned(numbers):
            out[:, mine] = A @ part[:, inside]
        return out

    def _owned(self, numbers: Array) -> Iterator[tuple[Array, Any, Any]]:
        """Each part that some columns are in, which of them, and where they are there: slices where possible."""
        owner = np.searchsorted(self.edges, numbers, side="right") - 1
        for i, part in enumerate(self.parts):
            mine = np.flatnonzero(owner == i)
            if len(mine):
                yield part, as_slice(mine), as_slice(numbers[mine] - self.edges[i])


def as_slice(numbers: Array) -> Any:
    """Consecutive numbers as a slice, which makes no copy."""
    first, last = int(numbers[0]), int(numbers[-1])
    whole = last - first + 1 == len(numbers) and bool((np.diff(numbers) == 1).all())
    return slice(first, last + 1) if whole else numbers


def shard_names(stem: str, run: str, count: int) -> list[str]:
    """Names of the files of one fit beside the model file `stem`. The run makes them new, so that those of the model
    that is there already stay as they are until its file is replaced."""
    return [f"{stem}-V-{run}-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
