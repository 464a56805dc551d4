"""svmlight/LIBSVM text, multilabel: lines `l1,l2 f:v ... # comment`, no header; features count from 0 or from 1."""

import numpy as np

from smoothlink.data.files_on_disk import Text, load, replacing
from smoothlink.data.matrices_from_rows import Reach, csr
from smoothlink.data.parse_rows import ColumnLimit, Grammar, Table, parse
from smoothlink.data.print_rows import Style, write_rows
from smoothlink.data.read import Data, Options


def read(path: str, options: Options) -> Data:
    """Returns the data of a file; label ids are taken as they are."""
    text = load(path)
    labels, features = ColumnLimit.of("label", options.n_labels), ColumnLimit.of("feature", options.n_features)
    table, zero_based = _parsed(text, labels, features, options)
    ids = table.ids - np.int32(zero_based is False)
    return Data(
        csr(table.ptr, ids, table.values, features.columns(path, Reach.of(ids))),
        csr(table.label_ptr, table.labels, None, labels.columns(path, Reach.of(table.labels))),
        zero_based=zero_based,
    )


def write(data: Data, path: str) -> None:
    """Features count from 1, as LIBSVM wants them, unless those read did not; empty last columns leave no trace.

    A row without labels and features gets the number of a query: blank lines are no rows.
    """
    with replacing(path) as stream:
        write_rows(stream, data.X, data.Y, Style(first=0 if data.zero_based else 1, no_entries=b"qid:0"))


def _parsed(text: Text, labels: ColumnLimit, features: ColumnLimit, options: Options) -> tuple[Table, bool | None]:
    """Returns the table, and whether features count from 0: by the option, else if a feature 0 occurs."""
    if options.zero_based is not None:
        lowest = 0 if options.zero_based else 1
        return parse(text, 0, Grammar(svmlight=True, lowest=lowest), labels, features, options), options.zero_based
    either = features._replace(size=features.size + 1) if features.source else features
    table = parse(text, 0, Grammar(svmlight=True), labels, either, options)
    guess = bool(table.ids.min() == 0) if len(table.ids) else None
    if features.source and guess and table.ids.max(initial=0) >= features.size:
        parse(text, 0, Grammar(svmlight=True), labels, features, options)  # raises, with the line
    return table, guess
