"""Rows -> text, in numba: `l1,l2 f:v f:v`, with the separators and the spelling of ids that a format wants."""

from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from smoothlink.data.decimal_floats import put_float, put_integer
from smoothlink.machines.compiled import compiled

Bytes = NDArray[np.uint8]


class Style(NamedTuple):
    """The separators around ids and values."""

    opening: bytes = b""
    between_labels: bytes = b","
    after_labels: bytes = b" "
    between_features: bytes = b" "
    before_value: bytes = b":"
    closing: bytes = b"\n"
    no_entries: bytes = b""  # in place of the labels and features of a row that has none
    first: int = 0  # the number of the first feature


class Separators(NamedTuple):
    """The byte parts of a Style, as arrays."""

    opening: Bytes
    between_labels: Bytes
    after_labels: Bytes
    between_features: Bytes
    before_value: Bytes
    closing: Bytes
    no_entries: Bytes


class CsrArrays(NamedTuple):
    """The arrays of a CSR matrix."""

    ptr: NDArray[np.int32]
    ids: NDArray[np.int32]
    values: NDArray[np.float32]


class Spelling(NamedTuple):
    """How ids are written: spelling i is bytes[ends[i - 1]:ends[i]]; none: the id itself."""

    ends: NDArray[np.int64]
    bytes: Bytes

    @classmethod
    def of(cls, words: list[str] | None) -> "Spelling":
        encoded = [word.encode() for word in words or []]
        ends = np.cumsum(np.array([len(word) for word in encoded], np.int64))
        return cls(ends, np.frombuffer(b"".join(encoded), np.uint8))

    def longest(self) -> int:
        return int(np.diff(self.ends, prepend=0).max(initial=10))


def write_rows(
    stream: IO[bytes],
    X: csr_array,
    Y: csr_array,
    style: Style,
    labels: list[str] | None = None,
    features: list[str] | None = None,
    entries_at_a_time: int = 1 << 19,
) -> None:
    """Writes one line per row."""
    spellings = Spelling.of(labels), Spelling.of(features)
    parts = Separators(*(np.frombuffer(part, np.uint8) for part in style[:-1]))
    around = sum(len(part) for part in parts)
    width_label, width_feature = (spelling.longest() + around for spelling in spellings)
    x, y = CsrArrays(X.indptr, X.indices, X.data), CsrArrays(Y.indptr, Y.indices, Y.data)
    entries = X.indptr.astype(np.int64) + Y.indptr
    row, n = 0, X.shape[0]
    while row < n:
        end = int(np.searchsorted(entries, entries[row] + entries_at_a_time)) - 1
        end = min(max(end, row + 1), row + entries_at_a_time, n)
        n_labels, n_values = int(y.ptr[end] - y.ptr[row]), int(x.ptr[end] - x.ptr[row])
        out = np.empty(n_labels * width_label + n_values * (width_feature + 16) + (end - row) * around, np.uint8)
        size = _put_rows(out, row, end, x, y, parts, style.first, *spellings)
        stream.write(out[:size].data)
        row = end


@compiled()
def _put(out: Bytes, p: int, part: Bytes) -> int:
    for i in range(len(part)):
        out[p + i] = part[i]
    return p + len(part)


@compiled()
def _put_id(out: Bytes, p: int, number: int, first: int, spelling: Spelling) -> int:
    if len(spelling.ends) == 0:
        return put_integer(out, p, number + first)
    start = spelling.ends[number - 1] if number > 0 else 0
    return _put(out, p, spelling.bytes[start : spelling.ends[number]])


@compiled()
def _put_rows(
    out: Bytes,
    row: int,
    end: int,
    x: CsrArrays,
    y: CsrArrays,
    parts: Separators,
    first: int,
    label_spelling: Spelling,
    feature_spelling: Spelling,
) -> int:
    """Writes the text of some rows; returns how many bytes it took."""
    p = 0
    for i in range(row, end):
        p = _put(out, p, parts.opening)
        for j in range(y.ptr[i], y.ptr[i + 1]):
            if j > y.ptr[i]:
                p = _put(out, p, parts.between_labels)
            p = _put_id(out, p, y.ids[j], 0, label_spelling)
        p = _put(out, p, parts.after_labels)
        for j in range(x.ptr[i], x.ptr[i + 1]):
            if j > x.ptr[i]:
                p = _put(out, p, parts.between_features)
            p = _put_id(out, p, x.ids[j], first, feature_spelling)
            p = _put(out, p, parts.before_value)
            p = put_float(out, p, x.values[j])
        if x.ptr[i] == x.ptr[i + 1] and y.ptr[i] == y.ptr[i + 1]:
            p = _put(out, p, parts.no_entries)
        p = _put(out, p, parts.closing)
    return p
