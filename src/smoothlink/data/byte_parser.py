"""The byte parser, in numba: lines `l1,l2 f:v f:v ...` of XMC, LSHTC and svmlight text -> arrays of a CSR matrix."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.parse_floats import number
from smoothlink.machines.compiled import compiled
from smoothlink.machines.sorting import sort_by

Bytes = NDArray[np.uint8]
Ids = NDArray[np.int32]
Places = NDArray[np.int64]
Values = NDArray[np.float32]

OK, BAD_LABEL, LABEL_RANGE, BAD_FEATURE, FEATURE_RANGE, BAD_VALUE, TOO_LARGE = range(7)

_NEWLINE, _TAB, _RETURN, _SPACE, _HASH, _PLUS, _COMMA, _DOT, _COLON, _Q, _I, _D = b"\n\t\r #+,.:qid"
_FAR = 1 << 40  # ids are cut off here: they only have to be seen to be too large


class Rules(NamedTuple):
    """What a line may hold."""

    labels: int  # label ids are below this
    lowest: int  # feature ids start here
    features: int  # and are below this
    has_labels: bool  # False: only `f:v` pairs, as in the new XMC form
    empty_is_row: bool  # a line of no bytes is a row; otherwise it needs a space at least
    svmlight: bool  # `# comment`, `qid:7`, and labels such as +1 or 3.0


class Parsed(NamedTuple):
    """Rows as they stand in the file; where code is not OK, place says at which byte the trouble is."""

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
        if ended and not rules.empty_is_row and _is_empty(buf, line, p):
            p += 1
            continue
        if rules.svmlight and p == line and not ended and buf[p] == _HASH:
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
    """Lines, colons and commas: how much room the arrays need at most."""
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
    """Does `qid:` start here? Ranking data carries it; it is no feature."""
    return p + 3 < stop and buf[p] == _Q and buf[p + 1] == _I and buf[p + 2] == _D and buf[p + 3] == _COLON


@compiled()
def _ends(buf: Bytes, p: int, stop: int, svmlight: bool) -> bool:
    """Does a token end before p?"""
    if p == stop:
        return True
    c = buf[p]
    return c in (_SPACE, _NEWLINE, _TAB, _RETURN) or (svmlight and c == _HASH)


@compiled()
def _integer(buf: Bytes, p: int, stop: int) -> tuple[int, int]:
    """The id that starts at p, or -1 where none does -> id, the place after it."""
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
    """Label ids `1,2` or `1, 2`; none where the first token is a feature -> code, place after them, their end."""
    if rules.svmlight and (buf[p] == _Q or buf[p] == _HASH):
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
    """Pairs `f:v` up to the end of the line -> code, place of the newline, their end."""
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
    """Sorts the ids of each row, the values with them -> the first row that holds one twice, or -1."""
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
