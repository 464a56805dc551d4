"""LSHTC (Kaggle) text: lines `l1, l2 f:v ...`, no header; ids have gaps, are counted anew, and become the names."""

import re

from smoothlink.data.files_on_disk import load, replacing
from smoothlink.data.matrices_from_rows import LARGEST_ID, contiguous, csr
from smoothlink.data.parse_rows import ColumnLimit, Grammar, parse
from smoothlink.data.print_rows import Style, write_rows
from smoothlink.data.read import Data, Options

_ID = re.compile(r"(?:0|[1-9]\d{0,9})\Z")


def read(path: str, options: Options) -> Data:
    text = load(path)
    end = text.end_of_line(0)
    is_title = text.slice(0, min(end, 20)).strip() == b"Data"  # Kaggle's train.csv starts so
    start = end + 1 if is_title else 0
    table = parse(text, start, Grammar(), ColumnLimit("label"), ColumnLimit("feature"), options)
    labels, label_ids = contiguous(table.labels)
    features, feature_ids = contiguous(table.ids)
    return Data(
        csr(table.ptr, features, table.values, len(feature_ids)),
        csr(table.label_ptr, labels, None, len(label_ids)),
        [str(i) for i in label_ids],
        [str(i) for i in feature_ids],
    )


def write(data: Data, path: str) -> None:
    """Writes names that are ids as ids; for others their column numbers."""
    with replacing(path) as stream:
        write_rows(
            stream, data.X, data.Y, Style(between_labels=b", "), _ids(data.label_names), _ids(data.feature_names)
        )


def _ids(names: list[str] | None) -> list[str] | None:
    """Returns the names where all are distinct ids that `read` gives back, else None."""
    if names and len(set(names)) == len(names) and all(_ID.match(name) and int(name) < LARGEST_ID for name in names):
        return names
    return None
