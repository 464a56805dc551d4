"""Lists of label names -> the 0/1 matrix Y, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError
from smoothlink.labels import read_indicator
from smoothlink.text.data_frames import column_names, list_names, values_of
from smoothlink.text.label_cells import NONE, names_in_text

Array = NDArray[Any]


class Named(NamedTuple):
    """Labels of n rows."""

    Y: sp.csr_array  # (n, c) float32 ones
    names: list[str]  # c


def read_labels(labels: Any, known: Sequence[str] = (), separator: str | None = NONE) -> Named:
    """Lists of names, cells of names, or a 0/1 matrix; known names come first, others in order behind them.

    A cell is cut at the separator. The columns of a matrix are called 0, 1, 2, ... unless they have known names.
    """
    if sp.issparse(labels) or getattr(labels, "ndim", 1) == 2:
        Y = read_indicator(labels)
        c = max(Y.shape[1], len(known))
        return Named(
            sp.csr_array((Y.data, Y.indices, Y.indptr), (Y.shape[0], c)), [*known, *map(str, range(len(known), c))]
        )
    columns = column_names(labels)
    if columns is not None:
        raise DataError(
            f"The labels came as a table with the columns {list_names(columns) or 'none'}.\n"
            "Pass one of its columns, such as table['tags'], or a 0/1 matrix."
        )
    rows = [as_names(row, given, separator) for row, given in enumerate(values_of(labels))]
    place = {name: j for j, name in enumerate(known)}
    for name in sorted({name for row in rows for name in row} - place.keys()):
        place[name] = len(place)
    return Named(indicator([[place[name] for name in row] for row in rows], len(place)), list(place))


def as_names(row: int, given: Any, separator: str | None) -> list[str]:
    """The label names of one row; a text is cut, a number alone is one name."""
    if isinstance(given, str):
        return names_in_text(given, separator, f"Row {row}")
    found = [given] if isinstance(given, Integral) else given
    if not isinstance(found, Iterable):
        raise DataError(f"Row {row} has the labels {given!r:.60}.\nPass a list of names for each row, [] for none.")
    names = list(found)
    for name in names:
        if type(name) is bool or not isinstance(name, str | Integral):
            what = f"{name!r:.60}, of type {type(name).__name__}"
            raise DataError(f"Row {row} has the label {what}.\nPass label names as text, or as whole numbers.")
    if len({isinstance(name, str) for name in names}) > 1:
        raise DataError(f"Row {row} mixes text and numbers as labels: {names!r:.80}.\nPass one type: str(label).")
    return [text for name in names if (text := str(name).strip())]


def indicator(rows: Iterable[Iterable[int]], c: int) -> sp.csr_array:
    """Y (n, c) of the label numbers of each row."""
    ordered = [sorted(set(row)) for row in rows]
    ptr = np.cumsum([0, *map(len, ordered)])
    indices = np.fromiter((j for row in ordered for j in row), np.int32, int(ptr[-1]))
    return sp.csr_array((np.ones(len(indices), np.float32), indices, ptr.astype(np.int32)), (len(ordered), c))


def names_of(sets: sp.csr_array, names: Array) -> list[list[str]]:
    """The names in each row of a 0/1 matrix."""
    found = names[sets.indices].tolist()
    ends = sets.indptr.tolist()
    return [found[start:stop] for start, stop in pairwise(ends)]
