"""Vowpal Wabbit text: `label[,label] [importance] ['tag]|namespace f:v f ...`; names become ids as they are met.

Feature f of namespace ns is named `ns^f`, of the nameless one `f`. A namespace's weight (`|ns:0.5`) multiplies its
values. A feature that occurs twice in a row counts with the sum of its values, as in Vowpal Wabbit. Importances and
tags are checked and dropped: a Data has no place for them.
"""

from array import array
from typing import NamedTuple

import numpy as np

from smoothlink.data.files_on_disk import Text, load, replacing
from smoothlink.data.matrices_from_rows import csr, fits
from smoothlink.data.print_rows import Style, write_rows
from smoothlink.data.read import Data, Options
from smoothlink.errors import DataError


class _LineError(Exception):
    """What is wrong with a line and what helps; `read` adds the line's number."""


class _Rows(NamedTuple):
    """What was read so far: word -> id, and the ids of the rows one after the other."""

    vocabulary: dict[bytes, int]
    ptr: "array[int]"
    ids: "array[int]"
    values: "array[float]"

    @classmethod
    def empty(cls) -> "_Rows":
        return cls({}, array("q", [0]), array("i"), array("f"))


def read(path: str, options: Options) -> Data:
    text = load(path)
    labels, features = _Rows.empty(), _Rows.empty()
    content = text.data.tobytes()
    _check_encoding(text, content)
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            try:
                before, bar, after = line.partition(b"|")
                if not bar:
                    raise _LineError("the line has no bar `|`.", "Write `label | feature:value ...`, or pass --format.")
                _add_labels(before, labels)
                _add_features(after, features)
            except _LineError as e:
                what, remedy = e.args
                raise DataError(f"{path}, line {number}: {what}\n{remedy}") from None
    return _data(labels, features)


def write(data: Data, path: str) -> None:
    """Writes names where there are any, else column numbers; `read` and `align` bring the columns back."""
    for noun, names in (("label", data.label_names), ("feature", data.feature_names)):
        _check_names(path, noun, names)
    namespace, words = _spelled(data.feature_names)
    with replacing(path) as stream:
        style = Style(after_labels=b" |" + namespace + b" ")
        write_rows(stream, data.X, data.Y, style, data.label_names, words)


def _check_encoding(text: Text, content: bytes) -> None:
    try:
        content.decode()
    except UnicodeDecodeError as e:
        raise text.error(e.start, f"the text is not UTF-8 ({e.reason}).", "Save the file as UTF-8.") from e


def _add_labels(before: bytes, rows: _Rows) -> None:
    """Adds what is before the bar: labels, importance, tag."""
    words = before.split()
    if words and not words[-1].startswith(b"'") and not before[-1:].isspace():
        if len(words) == 1:
            raise _LineError(
                f"{_shown(words[0])} touches the bar, which makes it a tag.",
                "Put a space before the bar if it is a label, or a ' before it if it is a tag.",
            )
        words.pop()
    words = [word for word in words if not word.startswith(b"'")]
    found = words[0].split(b",") if words else []
    for label in found:
        if not label or b":" in label:
            raise _LineError(
                f"{_shown(words[0])} is not a list of labels.", "Write labels as 1 or 1,2; costs cannot be read."
            )
        rows.ids.append(rows.vocabulary.setdefault(label, len(rows.vocabulary)))
        rows.values.append(1.0)
    if len(set(found)) < len(found):
        raise _LineError(f"a label is twice in {_shown(words[0])}.", "Name each label once per row.")
    for weight in words[1:]:
        _number(weight)
    rows.ptr.append(len(rows.ids))


def _add_features(after: bytes, rows: _Rows) -> None:
    """Adds what is after the first bar: namespaces and their features."""
    vocabulary, ids, values = rows.vocabulary, rows.ids, rows.values
    for part in after.split(b"|"):
        words = part.split()
        prefix, weight = b"", 1.0
        if words and not part[:1].isspace():
            name, colon, scale = words.pop(0).partition(b":")
            prefix, weight = (name + b"^" if name else b""), (_number(scale) if colon else 1.0)
        for word in words:
            name, colon, value = word.partition(b":")
            if not name:
                raise _LineError(
                    f"{_shown(word)} is a feature without a name.", "Write features as name or name:value."
                )
            ids.append(vocabulary.setdefault(prefix + name, len(vocabulary)))
            values.append(_fitting(_number(value) * weight if colon else weight))
    rows.ptr.append(len(ids))


def _number(word: bytes) -> float:
    try:
        if b"_" in word:
            raise ValueError
        return _fitting(float(word))
    except ValueError:
        raise _LineError(f"{_shown(word)} is not a number.", "Write it as 1, -0.5 or 2.5e-3.") from None


def _fitting(value: float) -> float:
    if not fits(value):
        raise _LineError(f"the value {value:g} is not a finite 32-bit number.", "Values go up to 3.4e38.")
    return value


def _data(labels: _Rows, features: _Rows) -> Data:
    label_names, order = _ordered([word.decode() for word in labels.vocabulary])
    X = csr(np.array(features.ptr), np.array(features.ids), np.array(features.values), len(features.vocabulary))
    X.has_canonical_format = X.has_sorted_indices = False
    X.sum_duplicates()
    if not np.isfinite(X.data).all():
        raise DataError("the values of a feature that is repeated in a row sum to more than 3.4e38.\nScale them down.")
    label_ids = order[np.array(labels.ids, np.int64)].astype(np.int32)
    Y = csr(np.array(labels.ptr), label_ids, None, len(label_names))
    Y.has_sorted_indices = False
    Y.sort_indices()
    return Data(X, Y, label_names, [word.decode() for word in features.vocabulary])


def _ordered(names: list[str]) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Returns label names in numeric order where all are numbers, else as met, and the new place of each old one."""
    order = np.arange(len(names))
    if all(name.isascii() and name.isdigit() and len(name) < 19 for name in names):
        order = np.argsort(np.array([int(name) for name in names], np.int64), kind="stable")
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    return [names[i] for i in order], place


def _shown(word: bytes) -> str:
    return f"'{word[:40].decode('utf-8', 'replace')}'"


def _check_names(path: str, noun: str, names: list[str] | None) -> None:
    forbidden = set(" \t\n\r\x0b\x0c|:") | (set(",'") if noun == "label" else set())
    for name in names or []:
        if not name or forbidden & set(name):
            raise DataError(
                f"{path}: the {noun} name {name!r} cannot be written in VW text (empty, or with a space, : or |).\n"
                "Rename it, or write another format."
            )


def _spelled(names: list[str] | None) -> tuple[bytes, list[str] | None]:
    """Returns the namespace that all names `ns^f` have, and the words; else each word has a bar of its own."""
    if names is None:
        return b"", None
    parts = [_split(name) for name in names]
    spaces = {space for space, _ in parts}
    if len(spaces) <= 1:
        return "".join(spaces).encode(), [word for _, word in parts]
    return b"", [f"|{space} {word}" for space, word in parts]


def _split(name: str) -> tuple[str, str]:
    space, caret, word = name.partition("^")
    return (space, word) if space and caret and word else ("", name)
