"""The rows of an ARFF file, in numba: dense `1,0,?` or sparse `{3 1, 7 yes}` -> attribute numbers and values."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.byte_parser import _end_of_line, _integer, _skip_spaces
from smoothlink.data.parse_floats import number
from smoothlink.machines.compiled import compiled

Bytes = NDArray[np.uint8]

OK, BAD_INDEX, INDEX_RANGE, NOT_CLOSED, WRONG_COUNT = range(5)
_NEWLINE, _DOUBLE, _PERCENT, _SINGLE, _COMMA, _BACKSLASH, _OPEN, _CLOSE = b"\n\"%',\\{}"


class Cells(NamedTuple):
    """Cells row by row; where code is not OK, place says at which byte the trouble is."""

    code: int
    place: int
    starts: NDArray[np.int64]  # the byte where each row's line starts
    is_sparse: NDArray[np.bool_]  # (n,) the row is in braces: cells not named have their attribute's first value
    ptr: NDArray[np.int64]
    attributes: NDArray[np.int32]
    values: NDArray[np.float32]  # NaN: not a plain number
    words: NDArray[np.int64]  # the byte where the text of each NaN starts, in the same order


@compiled()
def parse_cells(buf: Bytes, start: int, width: int) -> Cells:
    """The rows of `width` attributes from byte `start` on; blank and % lines are no rows."""
    stop = len(buf)
    lines, cells = _count(buf, start, stop)
    starts, is_sparse, ptr = np.empty(lines, np.int64), np.empty(lines, np.bool_), np.zeros(lines + 1, np.int64)
    attributes, values, words = np.empty(cells, np.int32), np.empty(cells, np.float32), np.empty(cells, np.int64)
    rows, k, n_words, p, code = 0, 0, 0, start, OK
    while p < stop:
        line = p
        p = _skip_spaces(buf, p, stop)
        if p == stop or buf[p] == _NEWLINE or buf[p] == _PERCENT:
            p = _end_of_line(buf, p, stop) + 1
            continue
        is_sparse[rows] = buf[p] == _OPEN
        if is_sparse[rows]:
            code, p, k, n_words = _sparse_row(buf, p + 1, stop, width, attributes, values, words, k, n_words)
        else:
            code, p, k, n_words = _dense_row(buf, p, stop, width, attributes, values, words, k, n_words)
        if code != OK:
            break
        starts[rows] = line
        rows += 1
        ptr[rows] = k
        p += 1
    return Cells(code, p, starts[:rows], is_sparse[:rows], ptr[: rows + 1], attributes[:k], values[:k], words[:n_words])


@compiled()
def _count(buf: Bytes, start: int, stop: int) -> tuple[int, int]:
    lines, commas = 1, 0
    for p in range(start, stop):
        lines += buf[p] == _NEWLINE
        commas += buf[p] == _COMMA
    return lines, lines + commas


@compiled()
def _dense_row(
    buf: Bytes,
    p: int,
    stop: int,
    width: int,
    attributes: NDArray[np.int32],
    values: NDArray[np.float32],
    words: NDArray[np.int64],
    k: int,
    n_words: int,
) -> tuple[int, int, int, int]:
    """`v,v,v` -> code, place of the newline, end of the cells, end of the words."""
    line, first = p, k
    while True:
        if k - first == width:
            return WRONG_COUNT, line, k, n_words
        at = _skip_spaces(buf, p, stop)
        values[k], p = _value(buf, at, stop, False)
        if np.isnan(values[k]):
            words[n_words] = at
            n_words += 1
        attributes[k] = k - first
        k += 1
        if p == stop or buf[p] == _NEWLINE:
            return (OK if k - first == width else WRONG_COUNT), (p if k - first == width else line), k, n_words
        p += 1


@compiled()
def _sparse_row(
    buf: Bytes,
    p: int,
    stop: int,
    width: int,
    attributes: NDArray[np.int32],
    values: NDArray[np.float32],
    words: NDArray[np.int64],
    k: int,
    n_words: int,
) -> tuple[int, int, int, int]:
    """`i v, i v}` -> code, place of the newline, end of the cells, end of the words."""
    first = k
    p = _skip_spaces(buf, p, stop)
    while p < stop and (buf[p] != _CLOSE or k > first):
        at = p
        attribute, p = _integer(buf, p, stop)
        if attribute < 0 or p == stop or buf[p] == _COMMA or _skip_spaces(buf, p, stop) == p:
            return BAD_INDEX, at, k, n_words
        if attribute >= width:
            return INDEX_RANGE, at, k, n_words
        at = _skip_spaces(buf, p, stop)
        values[k], p = _value(buf, at, stop, True)
        if np.isnan(values[k]):
            words[n_words] = at
            n_words += 1
        attributes[k] = attribute
        k += 1
        if p == stop or buf[p] != _COMMA:
            break
        p = _skip_spaces(buf, p + 1, stop)
    if p == stop or buf[p] != _CLOSE:
        return NOT_CLOSED, p - 1, k, n_words
    p = _skip_spaces(buf, p + 1, stop)
    if p < stop and buf[p] != _NEWLINE:
        return NOT_CLOSED, p, k, n_words
    return OK, p, k, n_words


@compiled()
def _value(buf: Bytes, p: int, stop: int, sparse: bool) -> tuple[np.float32, int]:
    """A cell -> its number or NaN, the place of the comma, brace or newline after it."""
    is_number, x, end = number(buf, p, stop)
    end = _skip_spaces(buf, end, stop)
    if is_number and np.isfinite(x) and _stops(buf, end, stop, sparse):
        return x, end
    if p < stop and (buf[p] == _SINGLE or buf[p] == _DOUBLE):
        quote, p = buf[p], p + 1
        while p < stop and buf[p] != quote and buf[p] != _NEWLINE:
            p += 2 if buf[p] == _BACKSLASH and p + 1 < stop and buf[p + 1] != _NEWLINE else 1
    while not _stops(buf, p, stop, sparse):
        p += 1
    return np.float32(np.nan), p


@compiled()
def _stops(buf: Bytes, p: int, stop: int, sparse: bool) -> bool:
    return p >= stop or buf[p] == _COMMA or buf[p] == _NEWLINE or (sparse and buf[p] == _CLOSE)
