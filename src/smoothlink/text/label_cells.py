"""The cells of a label column -> lists of label names."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

from smoothlink.errors import DataError, plural

SEPARATORS = ("|", ";", "\t", ",")  # that may be guessed; the comma last, since labels themselves may hold it
RARE_SEPARATORS = ("/", "&", "+", "·", "•", " ")  # that also stand in names: never taken, but asked about
LIST, NONE = "list", "none"  # cells such as ["a", "b"]; cells that are one label each
# By samples of 20 to 2,000 rows (tests/text/test_separators.py).
LEAST_SEPARATED = 0.1  # of the cells with a mark, those whose pieces turn up in other cells
LEAST_REPEATED = 0.4  # of the rows with a mark, those whose cell recurs, its pieces only in it
LEAST_MARKED = 0.1  # of the cells, those with a mark that names seldom hold
LEAST_ASKED = 0.5  # of the cells, those with a rare separator; of these, those whose pieces turn up in other cells
LEAST_UNIQUE = 0.2  # of the rows, those whose cell no other has: whole cells would teach little
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, which escapes can spell and no file can hold
LONGEST_NUMBER = 10_000  # bits of a label that is a number; Python spells no longer ones
LONGEST_NAME = 100  # characters; lines of a cell that are longer are text


class Guess(NamedTuple):
    """How labels are written in cells of text."""

    separator: str | None  # a mark, LIST or NONE; None: no cell holds a mark, or it is not clear whether it separates
    mark: str = ""  # that was looked at
    cells: tuple[str, ...] = ()  # two that hold it

    @property
    def clear(self) -> bool:
        return self.separator is not None or not self.mark

    def described(self, option: str) -> str:
        """Returns a sentence on what was guessed and the option that says otherwise; nothing where no mark was seen."""
        if self.separator is None:
            return ""
        how = {
            LIST: "Labels are read as lists, it seems",
            "\n": "Labels are separated by line ends, it seems",
            " ": "Labels are URIs separated by spaces, it seems",
            NONE: f"Cells such as {shown(self.cells[:1])} are one label each, it seems",
        }.get(self.separator, f"Labels are separated by {self.separator!r}, it seems")
        return f"{how}; {option} says otherwise."


def shown(cells: Iterable[str]) -> str:
    return " and ".join(f"{cell!r:.60}" for cell in cells)


def guess_separator(cells: Iterable[Any]) -> Guess:
    """Returns what separates the labels in cells of text: the first mark at which cells clearly separate."""
    counts = Counter(text for cell in cells if isinstance(cell, str) and (text := cell.strip()))
    if counts and all(text.startswith("[") and text.endswith("]") for text in counts):
        return Guess(LIST)
    for mark, separates in (("\n", is_name), (" ", is_uri)):
        marked = [text for text in counts if mark in text]
        if marked and all(separates(name) for text in marked for name in split_cell(text, mark)):
            return Guess(mark, mark, shortest(marked))
    whole = Guess(None)
    for mark in SEPARATORS:
        marked = [text for text in counts if mark in text]
        if not marked:
            continue
        found = Guess(classify_mark(mark, marked, counts), mark, shortest(marked))
        if found.separator == mark:
            return found
        whole = found if whole.clear else whole
    unique = sum(count == 1 for count in counts.values())
    if whole.mark or unique < LEAST_UNIQUE * counts.total():
        return whole
    for mark in RARE_SEPARATORS:
        moving = moving_pieces(mark, counts)
        marked = [text for text in counts if len(split_cell(text, mark)) > 1]
        separated = sum(moving[text] >= 2 for text in marked)
        if marked and len(marked) >= LEAST_ASKED * len(counts) and separated >= LEAST_ASKED * len(marked):
            return Guess(None, mark, shortest(marked))
    return whole


def is_name(text: str) -> bool:
    return len(text) <= LONGEST_NAME


def is_uri(text: str) -> bool:
    return re.match(r"<?\w+://", text) is not None


def shortest(cells: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(cells, key=len)[:2])


def moving_pieces(mark: str, counts: Iterable[str]) -> dict[str, int]:
    """Returns the number of pieces of each cell that turn up at another place too, or on their own."""
    pieces = {text: split_cell(text, mark) for text in counts}
    place: dict[str, tuple[int, int] | None] = {}  # pieces before and behind; None: it differs
    for names in pieces.values():
        for i, name in enumerate(names):
            position = (i, len(names) - i)
            if place.setdefault(name, position) != position:
                place[name] = None
    return {text: sum(place[name] is None for name in names) for text, names in pieces.items()}


def classify_mark(mark: str, marked: list[str], counts: Counter[str]) -> str | None:
    """Returns the mark if it separates labels, NONE if cells that hold it are one label each, None if it is not clear.

    The pieces of a list turn up in other cells at other places, or on their own. Those of one label do not: in "Paris,
    France" and "Smith, John" each piece has its place. Where pieces are too rare to turn up again, three or more around
    a mark that names seldom hold (or a comma without a space) say that cells are lists; cells that recur whole, their
    pieces nowhere else, that they are not.
    """
    pieces = {text: split_cell(text, mark) for text in marked}
    moving = moving_pieces(mark, counts)
    longest = max(len(pieces[text]) for text in marked)
    numbers = all(name.isdecimal() for text in marked for name in pieces[text])
    within = sum(bool(re.search(r"\d,\d", text)) for text in marked)
    if mark == "," and 2 * within > len(marked) and not (numbers and longest >= 3):
        return None  # 4,5 may be a decimal number, 1,2-dichloroethane is one name
    separated = sum(moving[text] >= 2 for text in marked)
    if separated and separated >= LEAST_SEPARATED * len(marked):
        return mark
    repeated = sum(counts[text] for text in marked if counts[text] > 1 and not moving[text])
    if not separated and repeated >= LEAST_REPEATED * sum(counts[text] for text in marked):
        return NONE
    unlike_names = mark != "," or numbers or not any(", " in text for text in marked)
    return mark if unlike_names and longest >= 3 and len(marked) >= LEAST_MARKED * len(counts) else None


def unlikely_labels(cells: Iterable[Any], separator: str | None) -> list[str]:
    """Returns sentences on labels that have spaces around them, and on lists whose labels look like several in one."""
    lists = [cell for cell in cells if isinstance(cell, list | tuple)]
    names = [name for row in lists for name in row if isinstance(name, str)]
    if separator in (None, NONE):
        names += [cell for cell in cells if isinstance(cell, str)]
    padded = [name for name in names if name.strip() and name != name.strip()]
    found = []
    if padded:
        spaced = f"{plural(len(padded), 'label')} had spaces around, such as {padded[0]!r:.60}"
        found.append(f"{spaced}; the spaces are removed.")
    among = guess_separator(name for row in lists for name in row)
    if among.separator in SEPARATORS or not among.clear:
        found.append(
            f"Lists hold labels such as {shown(among.cells)}, each read as one label; cut them if they are more."
        )
    return found


def split_cell(text: str, separator: str | None) -> list[str]:
    """Returns the names in a cell."""
    whole = separator in (None, NONE)
    parts = [text] if whole else text.split() if separator == " " else text.split(separator)
    return [name for part in parts if (name := without_brackets(part.strip()))]


def without_brackets(name: str) -> str:
    """Returns a name; a URI in angle brackets, as RDF writes it, without them."""
    return name[1:-1] if re.fullmatch(r"<[A-Za-z][A-Za-z0-9+.-]*:[^<>\s]+>", name) else name


def names_in(cell: Any, separator: str | None, where: str) -> list[str]:
    """Returns the label names of one cell: a list, a text to be cut, one number, or nothing."""
    if cell is None or cell != cell:  # NaN
        return []
    if isinstance(cell, str):
        return names_in_text(cell, separator, where)
    return names_of_list(cell if isinstance(cell, list | tuple) else [cell], where)


def names_in_text(cell: str, separator: str | None, where: str) -> list[str]:
    """Returns the names in a cell that is cut, or that spells a list as JSON or as Python does; nothing is run."""
    if separator != LIST or not cell.strip():
        return split_cell(cell, separator)
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(cell)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            found = None
    if not isinstance(found, list | tuple):
        remedy = 'Mend it, or name what separates labels: --label-separator ",", label_separator=",".'
        raise DataError(f"{where}: this is no list of labels: {cell[:60]!r}\n{remedy}")
    return names_of_list(found, where)


def names_of_list(names: Iterable[Any], where: str) -> list[str]:
    """Returns label names as text, without the spaces around them; empty ones are none."""
    for name in names:
        if isinstance(name, int) and name.bit_length() > LONGEST_NUMBER:
            raise DataError(f"{where}: a label is a number of {name.bit_length():,} bits.\nWrite it in quotes.")
        if isinstance(name, bool) or not isinstance(name, str | Integral):
            what = f"the label {name!r:.60} is a {type(name).__name__}"
            raise DataError(f"{where}: {what}.\nLabels are text or whole numbers.")
    return [SURROGATE.sub("\ufffd", text) for name in names if (text := str(name).strip())]


def text_of(values: Sequence[Any], where: str, remedy: str = "Name columns of text with --text.") -> str:
    """Returns the texts of one document as one."""
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
            raise DataError(f"{where}: the text is a {kind}: {value!r:.60}\n{remedy}")
    return "\n".join(part for part in found if part.strip())
