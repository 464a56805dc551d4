"""XMC. Old: header `n d c`, lines `l1,l2 f:v ...`. New: X and Y in two files, header `rows columns`, lines `i:v`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from smoothlink.data.atomic import replace_files
from smoothlink.data.files_on_disk import (
    Text,
    compressed_variants,
    head,
    load,
    load_pieces,
    not_written,
    other_half,
    replacing,
    shown,
)
from smoothlink.data.matrices_from_rows import LARGEST_ID, Reach, csr
from smoothlink.data.parse_rows import ColumnLimit, Grammar, Table, parse
from smoothlink.data.print_rows import Style, write_rows
from smoothlink.data.read import Data, FileSizes, Options
from smoothlink.errors import DataError

HALVES = {"Xf": "Y", "X": "Y"}
_HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})(?:[ \t]+(\d{1,18}))?[ \t\r]*\Z")


class XmcHeader(NamedTuple):
    rows: int
    columns: int
    labels: int | None  # None: the new form
    end: int  # the byte where the rows start


def read(path: str, options: Options) -> Data:
    text = load(path)
    header = _header(text)
    if header.labels is None:
        return _read_pair(text, header, options)
    if options.labels_path is not None:
        raise DataError(f"{path}: the labels are in this file.\nLeave --labels-file out.")
    labels = ColumnLimit.of("label", options.n_labels, header.labels)
    features = ColumnLimit.of("feature", options.n_features, header.columns)
    table = parse(text, header.end, Grammar(empty_is_row=True), labels, features, options)
    table = _as_announced(text, table, header)
    X = csr(table.ptr, table.ids, table.values, features.columns(path, Reach.of(table.ids)))
    return Data(X, csr(table.label_ptr, table.labels, None, labels.columns(path, Reach.of(table.labels))))


def sizes(path: str, options: Options) -> FileSizes | None:
    """Returns what the header announces, without the rows; None where columns are to be counted."""
    if "auto" in (options.n_labels, options.n_features):
        return None
    header = labels = _first_line(path)
    if header.labels is None:
        labels = _first_line(_labels_path(path, options.labels_path))
    d, c = header.columns, labels.columns if header.labels is None else header.labels
    counts = ColumnLimit.of("feature", options.n_features, d).size, ColumnLimit.of("label", options.n_labels, c).size
    return FileSizes(header.rows, *counts)


def _first_line(path: str) -> XmcHeader:
    return _header(Text(path, np.frombuffer(head(path).removeprefix(b"\xef\xbb\xbf"), np.uint8)))


class Stream:
    """The rows of an XMC text of the old form, some bytes of text at a time."""

    def __init__(self, path: str, options: Options, text_bytes: int) -> None:
        self.pieces = load_pieces(path, text_bytes)
        self.text, self.options = next(self.pieces), options
        self.header = _header(self.text)
        self.labels = ColumnLimit.of("label", options.n_labels, self.header.labels)
        self.features = ColumnLimit.of("feature", options.n_features, self.header.columns)
        self.reached = Reach(), Reach()  # by features and labels

    def columns(self) -> tuple[int, int]:
        """Returns how many features and labels there are: as given, or as found by now."""
        features, labels = self.reached
        return self.features.columns(self.text.path, features), self.labels.columns(self.text.path, labels)

    def parts(self) -> Iterator[tuple[csr_array, csr_array]]:
        """Yields blocks of rows. Blank lines may follow the rows that the header announces, nothing else."""
        text: Text | None = self.text
        start, rows = self.header.end, 0
        while text is not None:
            table = parse(text, start, Grammar(empty_is_row=True), self.labels, self.features, self.options)
            _, label_ptr, labels, ptr, ids, values = table = _without_blank_end(table, self.header.rows - rows)
            rows += len(table.starts)
            x, y = Reach.of(ids), Reach.of(labels)
            self.reached = self.reached[0].with_more(x), self.reached[1].with_more(y)
            yield csr(ptr, ids, values, x.columns), csr(label_ptr, labels, None, y.columns)
            text, start = next(self.pieces, None), 0
        _check_count(self.text.path, self.header.rows, rows)


def write(data: Data, path: str) -> None:
    with replacing(path) as stream:
        stream.write(b"%d %d %d\n" % (*data.X.shape, data.Y.shape[1]))
        write_rows(stream, data.X, data.Y, Style())


def write_pair(data: Data, path: str) -> None:
    """Writes the new form: features to `path`, labels to its other half. A kill may leave one of them alone, which
    `read` refuses, but not the features of one data set with the labels of another."""
    labels_path = other_half(path, HALVES)
    if labels_path is None:
        raise DataError(
            f"{path}: the labels go to a second file, named by putting Y for Xf.\nWrite to trn_X_Xf.txt, say."
        )
    none = csr(np.zeros(data.X.shape[0] + 1, np.int32), np.empty(0, np.int32), None, 0)
    try:
        with replace_files([path, labels_path]) as folder:
            for target, matrix in ((Path(path), data.X), (labels_path, data.Y)):
                with replacing(str(folder / target.name)) as stream:
                    stream.write(b"%d %d\n" % matrix.shape)
                    write_rows(stream, matrix, none, Style(after_labels=b""))
    except OSError as error:
        raise not_written(path, error) from error


def _header(text: Text) -> XmcHeader:
    end = text.end_of_line(0)
    match = _HEADER.match(text.slice(0, min(end, 200)))
    if not match:
        raise text.error(
            0,
            f"'{shown(text.slice(0, min(end, 200)))}' is not a header `rows features labels` or `rows columns`.",
            "Add the header, or pass --format if this is not XMC text.",
        )
    rows, columns, labels = (None if group is None else int(group) for group in match.groups())
    assert rows is not None
    assert columns is not None
    if max(columns, labels or 0) > LARGEST_ID:
        raise text.error(0, f"the header announces more than {LARGEST_ID} columns.", "Fix the header: ids are 32-bit.")
    return XmcHeader(rows, columns, labels, min(end + 1, len(text.data)))


def _as_announced(text: Text, table: Table, header: XmcHeader) -> Table:
    """Returns the rows that the header announces: blank lines may follow, nothing else."""
    table = _without_blank_end(table, header.rows)
    _check_count(text.path, header.rows, len(table.starts))
    return table


def _without_blank_end(table: Table, announced: int) -> Table:
    """Returns the table without blank lines at its end that are more than the rows announced."""
    filled = np.flatnonzero((np.diff(table.ptr) > 0) | (np.diff(table.label_ptr) > 0))
    rows = max(min(len(table.starts), announced), int(filled[-1]) + 1 if len(filled) else 0)
    starts, label_ptr, ptr = table.starts[:rows], table.label_ptr[: rows + 1], table.ptr[: rows + 1]
    return table._replace(starts=starts, label_ptr=label_ptr, ptr=ptr)


def _check_count(path: str, announced: int, rows: int) -> None:
    if rows != announced:
        remedy = "Fetch the file again if it was cut short" if rows < announced else "Remove the rows too many"
        what = f"the header announces {announced} rows, the file has {rows}."
        raise DataError(f"{path}: {what}\n{remedy}, or fix the header.")


def _read_pair(text: Text, header: XmcHeader, options: Options) -> Data:
    labels_text = load(_labels_path(text.path, options.labels_path))
    labels_header = _header(labels_text)
    if labels_header.labels is not None:
        raise labels_text.error(
            0, "a header of three numbers; labels have `rows columns`.", "Pass another --labels-file."
        )
    if labels_header.rows != header.rows:
        raise DataError(
            f"{text.path} announces {header.rows} rows, {labels_text.path} {labels_header.rows}.\n"
            "Pass the labels of the same rows with --labels-file."
        )
    features = ColumnLimit.of("feature", options.n_features, header.columns)
    labels = ColumnLimit.of("label", options.n_labels, labels_header.columns)
    X = _half(text, header, features, options)
    Y = _half(labels_text, labels_header, labels, options)
    Y = _only_ones(labels_text, Y)
    return Data(
        csr(X.ptr, X.ids, X.values, features.columns(text.path, Reach.of(X.ids))),
        csr(Y.ptr, Y.ids, None, labels.columns(labels_text.path, Reach.of(Y.ids))),
    )


def _half(text: Text, header: XmcHeader, limit: ColumnLimit, options: Options) -> Table:
    grammar = Grammar(has_labels=False, empty_is_row=True)
    return _as_announced(text, parse(text, header.end, grammar, ColumnLimit("label"), limit, options), header)


def _only_ones(text: Text, table: Table) -> Table:
    """Returns the labels whose value is 1, without those of 0; raises an error for anything else."""
    odd = np.flatnonzero((table.values != 1) & (table.values != 0))
    if len(odd):
        row = int(np.searchsorted(table.ptr, odd[0], side="right")) - 1
        what = f"label {table.ids[odd[0]]} has the value {table.values[odd[0]]:g}; a label is there (1) or not (0)."
        raise text.error(int(table.starts[row]), what, "Replace the values by 1, or leave the pair out.")
    kept = np.concatenate([[0], np.cumsum(table.values == 1)])
    return table._replace(ptr=kept[table.ptr], ids=table.ids[table.values == 1])


def _labels_path(path: str, given: str | None) -> str:
    if given is not None:
        return given
    expected = other_half(path, HALVES)
    found = next(compressed_variants(expected), None) if expected else None
    if found is None:
        seen = f"; {Path(expected).name} is not there" if expected else ""
        raise DataError(
            f"{path}: a header of two numbers is half of a pair, and the half with the labels was not found{seen}.\n"
            "Pass it with --labels-file; the path itself is that of the features."
        )
    return str(found)
