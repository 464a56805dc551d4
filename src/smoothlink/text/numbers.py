"""Numbers beside a text, such as the vector of an encoder or measurements: documents with them, their features."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from smoothlink.errors import DataError, plural

Array = NDArray[Any]


class Document(str):
    """A text with numbers beside it, which is a text wherever one is wanted.

    numbers: the vector of an encoder, measurements, or both; as many for each document. One that is nan is not known,
    and None says so of all of them: they count as their mean over the training rows.
    """

    numbers: Array | None

    def __new__(cls, text: str, numbers: ArrayLike | None = None) -> Self:
        made = super().__new__(cls, text)
        made.numbers = None if numbers is None else checked_numbers(numbers)
        return made


def checked_numbers(numbers: ArrayLike) -> Array:
    """Returns a row of float32."""
    try:
        found = np.asarray(numbers, np.float32)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"The numbers of a document are {numbers!r:.60}.\nPass a list of numbers, or None.") from None
    if found.ndim != 1 or np.isinf(found).any():
        what = "infinite" if found.ndim == 1 else f"an array of {found.ndim} dimensions"
        raise DataError(f"The numbers of a document are {what}.\nPass a list of finite numbers; nan is not known.")
    return found


def numbers_in(cells: Sequence[Any], where: str) -> Array | None:
    """Returns the numbers in some cells of a row of a file: numbers, or lists of them; None where nothing is known."""
    found: list[float] = []
    for cell in cells:
        value = cell.strip() if isinstance(cell, str) else cell
        try:
            if isinstance(value, str) and value.startswith("["):
                value = json.loads(value)
            if value is None or value == "":
                if len(cells) == 1:
                    return None
                value = math.nan
            found += [
                math.nan if v is None else float(v) for v in (value if isinstance(value, list | tuple) else [value])
            ]
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise DataError(
                f"{where}: {cell!r:.60} is no number and no list of numbers.\nName columns of numbers with --numbers."
            ) from None
    return np.array(found, np.float32)


def noting(texts: Iterable[str], numbers: list[Array | None]) -> Iterator[str]:
    """Yields the texts; the numbers of each are appended to a list."""
    for text in texts:
        numbers.append(text.numbers if isinstance(text, Document) else None)
        yield text


class NumberScale(NamedTuple):
    """How numbers become features: each column less its mean, over its standard deviation; then rows of unit length."""

    mean: Array  # (m,) float32
    deviation: Array  # (m,) float32, above 0

    @classmethod
    def of(cls, numbers: Sequence[Array | None]) -> NumberScale | None:
        """Returns the scale of training rows; None where no document has numbers."""
        width = next((len(row) for row in numbers if row is not None), 0)
        if not width:
            return None
        V = stacked(numbers, width)
        known = ~np.isnan(V)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, V, 0).sum(axis=0) / count
        deviation = np.sqrt((np.where(known, V - mean, 0) ** 2).sum(axis=0) / count)
        return cls(mean.astype(np.float32), np.where(deviation > 0, deviation, 1).astype(np.float32))

    def features(self, numbers: Sequence[Array | None]) -> sp.csr_array:
        """Returns the features (n, m) of some documents; what is not known is 0."""
        V = (stacked(numbers, len(self.mean)) - self.mean) / self.deviation
        V = np.nan_to_num(V, nan=0.0)
        length = np.linalg.norm(V, axis=1, keepdims=True)
        return sp.csr_array((V / np.where(length > 0, length, 1)).astype(np.float32))


def stacked(numbers: Sequence[Array | None], width: int) -> Array:
    """Returns the numbers of all documents (n, m), float64; nan where they are not known."""
    V = np.full((len(numbers), width), np.nan)
    for i, row in enumerate(numbers):
        if row is not None and len(row) != width:
            raise DataError(
                f"Document {i} has {plural(len(row), 'number')} beside its text, and others have {width}.\n"
                "Give each document as many, or None where they are not known."
            )
        if row is not None:
            V[i] = row
    return V
