"""Lines `l1,l2 f:v f:v ...` of XMC, LSHTC and svmlight text -> the arrays of CSR matrices.

The bytes are parsed by numba, on as many threads as help (benchmarks/reading.py: ten times scikit-learn's speed);
an error names the line, and what is wrong with it.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.decimal_floats import number
from smoothlink.data.files_on_disk import Text, shown
from smoothlink.data.matrices_from_rows import LARGEST_ID, Reach, check_columns
from smoothlink.data.read import Options
from smoothlink.errors import DataError
from smoothlink.machines.compiled import compiled
from smoothlink.machines.sorting import sort_by

Bytes = NDArray[np.uint8]
Ids = NDArray[np.int32]
Places = NDArray[np.int64]
Values = NDArray[np.float32]


class ColumnLimit(NamedTuple):
    """How many ids of a kind there are, and where that is from: "header", "option", or "" where they are counted."""

    noun: str  # label or feature
    size: int = LARGEST_ID
    source: str = ""

    @classmethod
    def of(cls, noun: str, option: int | str | None, header: int | None = None) -> ColumnLimit:
        if isinstance(option, int):
            return cls(noun, option, "option")
        if option is None and header is not None:
            return cls(noun, header, "header")
        return cls(noun)

    def columns(self, path: str, found: Reach) -> int:
        """Returns the number of columns: as given, or as announced, or one more than the largest id."""
        if self.source == "option":
            return self.size
        columns, option = self.size if self.source else found.columns, f"--{self.noun}s"
        wrong = f"Fix the header, pass {option} auto to count them" if self.source else "Fix the ids"
        return check_columns(path, self.noun, columns, found, f"{wrong}, or pass {option} {columns} if that is right.")

    def outside(self, number: int, lowest: int = 0) -> tuple[str, str]:
        """Returns an id out of range, as a message and its remedy."""
        what, option = f"{self.noun} {number} is outside {lowest}..{self.size - 1 + lowest}", f"--{self.noun}s"
        if self.source == "header":
            return (
                f"{what} (the header announces {self.size} {self.noun}s).",
                f"Fix the header, or pass {option} auto to count them.",
            )
        if self.source == "option":
            return f"{what} ({option} is {self.size}).", f"Pass a larger {option}, or {option} auto to count them."
        return f"{what} (the largest id possible is {LARGEST_ID - 1}).", f"Give the {self.noun}s smaller ids."


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


def parse(
    text: Text, start: int, grammar: Grammar, labels: ColumnLimit, features: ColumnLimit, options: Options
) -> Table:
    """Returns all rows from byte `start` on; raises an error that names the first line in trouble."""
    top = min(features.size + grammar.lowest, LARGEST_ID)
    rules = Rules(labels.size, grammar.lowest, top, grammar.has_labels, grammar.empty_is_row, grammar.svmlight)

    def parse_chunk(bounds: tuple[int, int]) -> Table | DataError:
        parsed = parse_rows(text.data, *bounds, rules)
        if parsed.code != OK:
            return _trouble(text, parsed.code, parsed.place, grammar, labels, features)
        return _finish(text, parsed, grammar, features)

    chunks = _chunks(text, start, options)
    if len(chunks) == 1:
        tables = [parse_chunk(chunks[0])]
    else:
        with ThreadPoolExecutor(len(chunks)) as pool:
            tables = list(pool.map(parse_chunk, chunks))
    return _joined(tables)


def _chunks(text: Text, start: int, options: Options) -> list[tuple[int, int]]:
    """Returns the bounds of pieces of about equal size, cut after newlines, one for each thread."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    size = len(text.data)
    pieces = max(1, min(options.threads or cores, (size - start) // options.chunk_bytes))
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
    """Returns row pointers of pieces -> of the whole: the row lengths one after the other, summed up."""
    joined = np.zeros(1 + sum(len(p) - 1 for p in pointers), np.int64)
    np.cumsum(np.concatenate([np.diff(p) for p in pointers]), out=joined[1:])
    return joined


def _finish(text: Text, parsed: Parsed, grammar: Grammar, features: ColumnLimit) -> Table | DataError:
    """Reads the numbers that the fast path left open by float(), and sorts rows; returns an error for an id twice."""
    table = Table(*parsed[2:])
    for row in np.unique(np.searchsorted(table.ptr, np.flatnonzero(np.isnan(table.values)), side="right")) - 1:
        if not _read_slowly(text, table, int(row), grammar):
            entries = slice(table.ptr[row], table.ptr[row + 1])
            feature = table.ids[entries][~np.isfinite(table.values[entries])][0]
            return text.error(int(table.starts[row]), f"the value of feature {feature} is too large.", _FLOAT_RANGE)
    row = order_rows(table.ptr, table.ids, table.values)
    if row >= 0:
        return _twice(text, table.starts[row], features.noun, table.ids[table.ptr[row] : table.ptr[row + 1]])
    row = order_rows(table.label_ptr, table.labels, np.empty(len(table.labels), np.float32))
    if row >= 0:
        ids = table.labels[table.label_ptr[row] : table.label_ptr[row + 1]]
        return _twice(text, table.starts[row], "label", ids)
    return table


def _read_slowly(text: Text, table: Table, row: int, grammar: Grammar) -> bool:
    """Fills in the values of one row that are NaN; returns False where one does not fit a float32."""
    a, b, start = int(table.ptr[row]), int(table.ptr[row + 1]), int(table.starts[row])
    line = text.slice(start, text.end_of_line(start))
    line = line.partition(b"#")[0] if grammar.svmlight else line
    pairs = [token for token in line.split() if b":" in token and not token.startswith(b"qid:")]
    with np.errstate(over="ignore"):
        for i in range(a, b):
            if np.isnan(table.values[i]):
                table.values[i] = np.float32(float(pairs[i - a].partition(b":")[2]))
    return bool(np.isfinite(table.values[a:b]).all())


def _twice(text: Text, place: int, noun: str, ids: NDArray[np.int32]) -> DataError:
    number = ids[1:][ids[1:] == ids[:-1]][0]
    return text.error(int(place), f"{noun} {number} is twice in this row.", f"Name each {noun} once per row.")


# What is wrong with a line

_OTHER_FORMAT = "Fix the line, or pass --format if the file is of another kind."
_FLOAT_RANGE = "Values must be finite 32-bit numbers, up to 3.4e38."


def _trouble(
    text: Text, code: int, place: int, grammar: Grammar, labels: ColumnLimit, features: ColumnLimit
) -> DataError:
    """Returns the error for the parser's code and place: what came, what is possible, what to type."""
    line = text.slice(place, min(text.end_of_line(place), place + 200))
    token = line.split(maxsplit=1)[0] if line.split() else b""
    noun, word = features.noun, shown(token)
    if code == BAD_LABEL:
        word = word.split(",")[0]
        if word.removeprefix("-").isdigit():
            return text.error(place, f"label {word} is negative.", "Number the labels from 0.")
        return text.error(place, f"'{word}' is neither a label id nor a feature `index:value`.", _OTHER_FORMAT)
    if code == LABEL_RANGE:
        return text.error(place, *labels.outside(_leading_int(token)))
    if code == BAD_FEATURE:
        if token.startswith(b"-") and token[1:2].isdigit():
            index = word.partition(":")[0]
            return text.error(place, f"{noun} {index} is negative.", f"Number the {noun}s from {grammar.lowest}.")
        return text.error(place, f"'{word}' is not a {noun} `index:value`.", _OTHER_FORMAT)
    if code == FEATURE_RANGE and _leading_int(token) < grammar.lowest:
        what = f"{noun} 0 in a file of one-based {noun}s."
        return text.error(place, what, "Leave --one-based out, or train the model with --zero-based.")
    if code == FEATURE_RANGE:
        return text.error(place, *features.outside(_leading_int(token), grammar.lowest))
    value = word.partition(":")[2]
    if code == BAD_VALUE and value.lower().lstrip("+-") not in ("nan", "inf", "infinity"):
        return text.error(place, f"'{value}' in '{word}' is not a number.", "Write it as 1, -0.5 or 2.5e-3.")
    trouble = "not finite" if code == BAD_VALUE else "too large"
    return text.error(place, f"the value of '{word}' is {trouble}.", _FLOAT_RANGE)


def _leading_int(token: bytes) -> int:
    digits = token.lstrip(b"+")
    digits = digits[: len(digits) - len(digits.lstrip(b"0123456789"))]
    return int(digits[:100])


# The bytes, in numba

OK, BAD_LABEL, LABEL_RANGE, BAD_FEATURE, FEATURE_RANGE, BAD_VALUE, TOO_LARGE = range(7)

_NEWLINE, _TAB, _RETURN, _SPACE, _HASH, _PLUS, _COMMA, _DOT, _COLON, _Q, _I, _D = b"\n\t\r #+,.:qid"
_FAR = 1 << 40  # larger ids are not counted out: they are too large in any case


class Rules(NamedTuple):
    """What a line may hold."""

    labels: int  # label ids are below this
    lowest: int  # feature ids start with this
    features: int  # and are below this
    has_labels: bool  # False: only `f:v` pairs, as in the new XMC form
    empty_is_row: bool  # a line of no bytes is a row; otherwise it needs a space at least
    svmlight: bool  # blank lines are no rows, even with spaces; `# comment`, `qid:7`, and labels such as +1 or 3.0


class Parsed(NamedTuple):
    """Rows in the order of the file; where code is not OK, place is the byte of the trouble."""

    code: int
    place: int
    starts: Places  # the byte where each row's line starts
    label_ptr: Places
    labels: Ids
    ptr: Places
    ids: Ids
    values: Values  # NaN: a number too long for the fast path


@compiled()
def parse_rows(buf: Bytes, start: int, stop: int, rules: Rules) -> Parsed:
    """Reads the lines between two bytes; start is at the start of a line."""
    lines, colons, commas = _count(buf, start, stop)
    starts = np.empty(lines, np.int64)
    label_ptr, ptr = np.zeros(lines + 1, np.int64), np.zeros(lines + 1, np.int64)
    labels = np.empty(commas + lines, np.int32)
    ids, values = np.empty(colons, np.int32), np.empty(colons, np.float32)
    rows, n_labels, n_values, p, code = 0, 0, 0, start, OK
    while p < stop:
        line = p
        p = _skip_spaces(buf, p, stop)
        ended = p == stop or buf[p] == _NEWLINE
        if ended and not rules.empty_is_row and (rules.svmlight or _is_empty(buf, line, p)):
            p += 1
            continue
        if rules.svmlight and not ended and buf[p] == _HASH:
            p = _end_of_line(buf, p, stop) + 1
            continue
        if rules.has_labels and not ended:
            code, p, n_labels = _labels(buf, p, stop, rules, labels, n_labels)
            if code != OK:
                break
        code, p, n_values = _features(buf, p, stop, rules, ids, values, n_values)
        if code != OK:
            break
        starts[rows] = line
        rows += 1
        label_ptr[rows], ptr[rows] = n_labels, n_values
        p += 1
    return Parsed(
        code,
        p,
        starts[:rows],
        label_ptr[: rows + 1],
        labels[:n_labels],
        ptr[: rows + 1],
        ids[:n_values],
        values[:n_values],
    )


@compiled()
def _count(buf: Bytes, start: int, stop: int) -> tuple[int, int, int]:
    """Returns how many lines, colons and commas there are: how much room the arrays need at most."""
    lines, colons, commas = 1, 0, 0
    for p in range(start, stop):
        lines += buf[p] == _NEWLINE
        colons += buf[p] == _COLON
        commas += buf[p] == _COMMA
    return lines, colons, commas


@compiled()
def _skip_spaces(buf: Bytes, p: int, stop: int) -> int:
    while p < stop and (buf[p] == _SPACE or buf[p] == _TAB or buf[p] == _RETURN):
        p += 1
    return p


@compiled()
def _end_of_line(buf: Bytes, p: int, stop: int) -> int:
    while p < stop and buf[p] != _NEWLINE:
        p += 1
    return p


@compiled()
def _is_empty(buf: Bytes, line: int, p: int) -> bool:
    return p == line or (p == line + 1 and buf[line] == _RETURN)


@compiled()
def _is_query(buf: Bytes, p: int, stop: int) -> bool:
    """Returns whether `qid:` starts at p. Ranking data carries it; it is no feature."""
    return p + 3 < stop and buf[p] == _Q and buf[p + 1] == _I and buf[p + 2] == _D and buf[p + 3] == _COLON


@compiled()
def _ends(buf: Bytes, p: int, stop: int, svmlight: bool) -> bool:
    """Returns whether a token ends before p."""
    if p == stop:
        return True
    c = buf[p]
    return c in (_SPACE, _NEWLINE, _TAB, _RETURN) or (svmlight and c == _HASH)


@compiled()
def _integer(buf: Bytes, p: int, stop: int) -> tuple[int, int]:
    """Returns the id that starts at p, or -1 where none does, and the place after it."""
    start, value = p, 0
    while p < stop:
        digit: Any = np.int64(buf[p]) - 48
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit if value < _FAR else value
        p += 1
    return (value, p) if p > start else (-1, p)


@compiled()
def _labels(buf: Bytes, p: int, stop: int, rules: Rules, out: Ids, k: int) -> tuple[int, int, int]:
    """Parses label ids `1,2`, none where the first token is a feature; returns code, place after them, their end."""
    if rules.svmlight and buf[p] == _Q:
        return OK, p, k
    first = k
    while True:
        at = p
        if rules.svmlight and p < stop and buf[p] == _PLUS:
            p += 1
        label, p = _integer(buf, p, stop)
        if label < 0:
            return BAD_LABEL, at, k
        if k == first and p < stop and buf[p] == _COLON:
            return OK, at, k
        if rules.svmlight and p < stop and buf[p] == _DOT:
            p += 1
            while p < stop and buf[p] == 48:
                p += 1
        more = p < stop and buf[p] == _COMMA
        if not more and not _ends(buf, p, stop, rules.svmlight):
            return BAD_LABEL, at, k
        if label >= rules.labels:
            return LABEL_RANGE, at, k
        out[k] = label
        k += 1
        if not more:
            return OK, p, k
        p = _skip_spaces(buf, p + 1, stop)


@compiled()
def _features(buf: Bytes, p: int, stop: int, rules: Rules, ids: Ids, values: Values, k: int) -> tuple[int, int, int]:
    """Parses features `f:v` up to the end of the line; returns code, place of the newline, their end."""
    while True:
        p = _skip_spaces(buf, p, stop)
        if p == stop or buf[p] == _NEWLINE:
            return OK, p, k
        if rules.svmlight and buf[p] == _HASH:
            return OK, _end_of_line(buf, p, stop), k
        if rules.svmlight and _is_query(buf, p, stop):
            while not _ends(buf, p, stop, True):
                p += 1
            continue
        at = p
        feature, p = _integer(buf, p, stop)
        if feature < 0 or p == stop or buf[p] != _COLON:
            return BAD_FEATURE, at, k
        if feature < rules.lowest or feature >= rules.features:
            return FEATURE_RANGE, at, k
        is_number, x, p = number(buf, p + 1, stop)
        if not is_number or not _ends(buf, p, stop, rules.svmlight):
            return BAD_VALUE, at, k
        if np.isinf(x):
            return TOO_LARGE, at, k
        ids[k], values[k] = feature, x
        k += 1


@compiled()
def order_rows(ptr: Places, ids: Ids, values: Values) -> int:
    """Sorts the ids of each row, the values with them; returns the first row that holds one twice, or -1."""
    for row in range(len(ptr) - 1):
        a, b = ptr[row], ptr[row + 1]
        rising = True
        for i in range(a + 1, b):
            rising = rising and ids[i - 1] < ids[i]
        if rising:
            continue
        order = np.arange(b - a)
        sort_by(ids[a:b], order)
        ids[a:b] = ids[a:b][order]
        values[a:b] = values[a:b][order]
        for i in range(a + 1, b):
            if ids[i - 1] == ids[i]:
                return row
    return -1
