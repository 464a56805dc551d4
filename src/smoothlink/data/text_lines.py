"""Lines of `l1,l2 f:v ...` -> a table: the byte parser on as many threads as help, its troubles put in words."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data import byte_parser as _bytes
from smoothlink.data.byte_parser import Parsed, Rules
from smoothlink.data.files_on_disk import Text, shown
from smoothlink.data.matrices_from_rows import LARGEST
from smoothlink.errors import DataError

_CHUNK = 1 << 21  # a thread gets at least this many bytes; below, starting it costs more than it brings


class Limit(NamedTuple):
    """How many ids of a kind there are, and who says so: "header", "option", or "" where they are counted."""

    noun: str  # label or feature
    size: int = LARGEST
    source: str = ""

    @classmethod
    def of(cls, noun: str, option: int | str | None, header: int | None = None) -> "Limit":
        if isinstance(option, int):
            return cls(noun, option, "option")
        if option is None and header is not None:
            return cls(noun, header, "header")
        return cls(noun)

    def count(self, ids: NDArray[np.int32]) -> int:
        """The number of columns: as said, or one more than the largest id."""
        return self.size if self.source else int(ids.max(initial=-1)) + 1

    def outside(self, number: int, lowest: int = 0) -> tuple[str, str]:
        """An id out of range, as a message and its remedy."""
        what, option = f"{self.noun} {number} is outside {lowest}..{self.size - 1 + lowest}", f"--{self.noun}s"
        if self.source == "header":
            return (
                f"{what} (the header announces {self.size} {self.noun}s).",
                f"Fix the header, or pass {option} auto to count them.",
            )
        if self.source == "option":
            return f"{what} ({option} says {self.size}).", f"Pass a larger {option}, or {option} auto to count them."
        return f"{what} (the largest id possible is {LARGEST - 1}).", f"Give the {self.noun}s smaller ids."


class Table(NamedTuple):
    """Rows with sorted, unique ids."""

    starts: NDArray[np.int64]  # the byte where each row's line starts
    label_ptr: NDArray[np.int64]
    labels: NDArray[np.int32]
    ptr: NDArray[np.int64]
    ids: NDArray[np.int32]
    values: NDArray[np.float32]


class Grammar(NamedTuple):
    """What the lines of a format look like."""

    has_labels: bool = True
    empty_is_row: bool = False
    svmlight: bool = False
    lowest: int = 0  # the id of the first feature


def parse(text: Text, start: int, grammar: Grammar, labels: Limit, features: Limit, threads: int | None) -> Table:
    """All rows from byte `start` on; a DataError names the first line in trouble."""
    top = min(features.size + grammar.lowest, LARGEST)
    rules = Rules(labels.size, grammar.lowest, top, grammar.has_labels, grammar.empty_is_row, grammar.svmlight)

    def work(bounds: tuple[int, int]) -> Table | DataError:
        parsed = _bytes.parse_rows(text.data, *bounds, rules)
        if parsed.code != _bytes.OK:
            return _trouble(text, parsed.code, parsed.place, grammar, labels, features)
        return _settled(text, parsed, grammar, features)

    chunks = _chunks(text, start, threads or _cores())
    if len(chunks) == 1:
        tables = [work(chunks[0])]
    else:
        with ThreadPoolExecutor(len(chunks)) as pool:
            tables = list(pool.map(work, chunks))
    return _joined(tables)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chunks(text: Text, start: int, threads: int) -> list[tuple[int, int]]:
    """Pieces of about equal size, cut after newlines."""
    size = len(text.data)
    pieces = max(1, min(threads, (size - start) // _CHUNK))
    cuts = [text.end_of_line(start + i * (size - start) // pieces) + 1 for i in range(1, pieces)]
    bounds = [start, *(min(cut, size) for cut in cuts), size]
    return list(pairwise(bounds))


def _joined(tables: list[Table | DataError]) -> Table:
    good: list[Table] = []
    for table in tables:
        if isinstance(table, DataError):
            raise table
        good.append(table)
    if len(good) == 1:
        return good[0]
    starts, label_ptr, labels, ptr, ids, values = zip(*good, strict=True)
    return Table(
        np.concatenate(starts),
        _joined_pointers(label_ptr),
        np.concatenate(labels),
        _joined_pointers(ptr),
        np.concatenate(ids),
        np.concatenate(values),
    )


def _joined_pointers(pointers: tuple[NDArray[np.int64], ...]) -> NDArray[np.int64]:
    """Row pointers of pieces -> of the whole: the row lengths one after the other, summed up."""
    joined = np.zeros(1 + sum(len(p) - 1 for p in pointers), np.int64)
    np.cumsum(np.concatenate([np.diff(p) for p in pointers]), out=joined[1:])
    return joined


def _settled(text: Text, parsed: Parsed, grammar: Grammar, features: Limit) -> Table | DataError:
    """Numbers that the fast path left open are read by float(), then rows are sorted and twins reported."""
    table = Table(*parsed[2:])
    for row in np.unique(np.searchsorted(table.ptr, np.flatnonzero(np.isnan(table.values)), side="right")) - 1:
        if not _read_slowly(text, table, int(row), grammar):
            return _trouble_in_row(text, table, int(row))
    row = _bytes.order_rows(table.ptr, table.ids, table.values)
    if row >= 0:
        return _twice(text, table.starts[row], features.noun, table.ids[table.ptr[row] : table.ptr[row + 1]])
    row = _bytes.order_rows(table.label_ptr, table.labels, np.empty(len(table.labels), np.float32))
    if row >= 0:
        ids = table.labels[table.label_ptr[row] : table.label_ptr[row + 1]]
        return _twice(text, table.starts[row], "label", ids)
    return table


def _pairs(text: Text, table: Table, row: int, grammar: Grammar) -> list[bytes]:
    """The tokens `f:v` of a row, in the order of the file."""
    start = int(table.starts[row])
    line = text.slice(start, text.end_of_line(start))
    line = line.partition(b"#")[0] if grammar.svmlight else line
    return [token for token in line.split() if b":" in token and not token.startswith(b"qid:")]


def _read_slowly(text: Text, table: Table, row: int, grammar: Grammar) -> bool:
    """Fills in the values of one row that are NaN; False where one does not fit a float32."""
    a, b = int(table.ptr[row]), int(table.ptr[row + 1])
    pairs = _pairs(text, table, row, grammar)
    with np.errstate(over="ignore"):
        for i in range(a, b):
            if np.isnan(table.values[i]):
                table.values[i] = np.float32(float(pairs[i - a].partition(b":")[2]))
    return bool(np.isfinite(table.values[a:b]).all())


def _trouble_in_row(text: Text, table: Table, row: int) -> DataError:
    a, b = int(table.ptr[row]), int(table.ptr[row + 1])
    feature = table.ids[a:b][~np.isfinite(table.values[a:b])][0]
    return text.error(int(table.starts[row]), f"the value of feature {feature} is too large.", _FLOAT_RANGE)


def _twice(text: Text, place: int, noun: str, ids: NDArray[np.int32]) -> DataError:
    number = ids[1:][ids[1:] == ids[:-1]][0]
    return text.error(int(place), f"{noun} {number} stands twice in this row.", f"Name each {noun} once a row.")


_OTHER_FORMAT = "Fix the line, or pass --format if the file is of another kind."
_FLOAT_RANGE = "Values must be finite 32-bit numbers, up to 3.4e38."


def _trouble(text: Text, code: int, place: int, grammar: Grammar, labels: Limit, features: Limit) -> DataError:
    """The parser's code and place -> what came, what is possible, what to type."""
    line = text.slice(place, min(text.end_of_line(place), place + 200))
    token = line.split(maxsplit=1)[0] if line.split() else b""
    noun, word = features.noun, shown(token)
    match code:
        case _bytes.BAD_LABEL:
            word = word.split(",")[0]
            if word.removeprefix("-").isdigit():
                return text.error(place, f"label {word} is negative.", "Number the labels from 0.")
            return text.error(place, f"'{word}' is neither a label id nor a feature `index:value`.", _OTHER_FORMAT)
        case _bytes.LABEL_RANGE:
            return text.error(place, *labels.outside(_leading_int(token)))
        case _bytes.BAD_FEATURE:
            if token.startswith(b"-") and token[1:2].isdigit():
                index = word.partition(":")[0]
                return text.error(place, f"{noun} {index} is negative.", f"Number the {noun}s from {grammar.lowest}.")
            return text.error(place, f"'{word}' is not a {noun} `index:value`.", _OTHER_FORMAT)
        case _bytes.FEATURE_RANGE:
            return text.error(place, *_range(features, _leading_int(token), grammar))
        case _bytes.BAD_VALUE:
            value = word.partition(":")[2]
            if value.lower().lstrip("+-") in ("nan", "inf", "infinity"):
                return text.error(place, f"the value of '{word}' is not finite.", _FLOAT_RANGE)
            return text.error(place, f"'{value}' in '{word}' is not a number.", "Write it as 1, -0.5 or 2.5e-3.")
        case _:
            return text.error(place, f"the value of '{word}' is too large.", _FLOAT_RANGE)


def _range(features: Limit, number: int, grammar: Grammar) -> tuple[str, str]:
    if number < grammar.lowest:
        return (
            f"{features.noun} 0 in a file of one-based {features.noun}s.",
            "Leave --one-based out, or train the model with --zero-based.",
        )
    return features.outside(number, grammar.lowest)


def _leading_int(token: bytes) -> int:
    digits = token.lstrip(b"+")
    digits = digits[: len(digits) - len(digits.lstrip(b"0123456789"))]
    return int(digits[:100])
