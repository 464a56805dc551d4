"""What stands in the label column -> lists of label names."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Sequence
from itertools import islice
from numbers import Integral
from typing import Any

from smoothlink.errors import DataError

SEPARATORS = ("|", ";", ",", "\t")  # that may be guessed
LIST = "list"  # cells such as ["a", "b"]
LOOKED_AT = 2000  # cells


def guess_separator(cells: Iterable[Any]) -> str | None:
    """What separates the labels in cells of text, where it is obvious: cut there, the same names turn up again.

    ("Paris, France" in every tenth cell is no such case: cut, there are more names than before.)
    """
    texts = set(islice((cell for cell in cells if isinstance(cell, str) and cell.strip()), LOOKED_AT))
    if texts and all(text.strip().startswith("[") and text.strip().endswith("]") for text in texts):
        return LIST
    pieces = {mark: {name for text in texts for name in cut(text, mark)} for mark in SEPARATORS}
    fewer = [mark for mark in SEPARATORS if any(mark in text for text in texts) and len(pieces[mark]) < len(texts)]
    return min(fewer, key=lambda mark: len(pieces[mark])) if fewer else None


def cut(text: str, separator: str | None) -> list[str]:
    """The names in a cell."""
    parts = [text] if separator is None else text.split() if separator == " " else text.split(separator)
    return [name for part in parts if (name := part.strip())]


def names_in(cell: Any, separator: str | None, where: str) -> list[str]:
    """The label names of one cell: a list, a text to be cut, one number, or nothing."""
    if cell is None or cell != cell:  # NaN
        return []
    if isinstance(cell, str):
        return listed(cell, where) if separator == LIST and cell.strip() else cut(cell, separator)
    if isinstance(cell, list | tuple):
        return [one_name(name, where) for name in cell]
    return [one_name(cell, where)]


def one_name(name: Any, where: str) -> str:
    if isinstance(name, bool) or not isinstance(name, str | Integral):
        raise DataError(
            f"{where}: the label {name!r:.60} is a {type(name).__name__}.\nLabels are text or whole numbers."
        )
    return str(name)


def listed(cell: str, where: str) -> list[str]:
    """Names of a cell that spells a list, as JSON or as Python does; nothing is run."""
    try:
        found = json.loads(cell)
    except ValueError:
        try:
            found = ast.literal_eval(cell)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise DataError(
                f"{where}: this is no list of labels: {cell[:60]!r}\nMend it, or pass --label-separator."
            ) from error
    if not isinstance(found, list | tuple):
        raise DataError(f"{where}: this is no list of labels: {cell[:60]!r}\nMend it, or pass --label-separator.")
    return [one_name(name, where) for name in found]


def text_of(values: Sequence[Any], where: str) -> str:
    """The texts of one document as one."""
    found = []
    for value in values:
        if value is None or value != value:
            continue
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            found += value
        elif isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
            found.append(str(value))
        else:
            kind = type(value).__name__
            raise DataError(f"{where}: the text is a {kind}: {value!r:.60}\nName columns of text with --text.")
    return "\n".join(part for part in found if part.strip())
