"""The labels that a model predicts for rows, written as JSON, tables (CSV, TSV, Parquet, XLSX) or XMC text."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TextIO

from smoothlink.errors import DataError

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier

DEFAULT_K = 5  # labels per row where nothing else is requested
DEVICE_ROWS = 1 << 16  # rows at a time that fill a device


Prediction = tuple[int, list[int], list[float]]  # row, labels, probabilities


class LabelRequest(NamedTuple):
    """Which labels are wanted of each row."""

    k: int | None = None  # at most so many; None: BEST, or the whole set
    threshold: float | None = None  # those of at least this probability
    f1: bool = False  # those for a high F1 of each label
    sets: bool = False  # those at the model's own thresholds
    only: tuple[Any, ...] = ()  # names or numbers; resolved: positions
    rank_by: str = "probability"

    @property
    def wants_sets(self) -> bool:
        """Returns whether all labels of a set are wanted, not the best few."""
        return self.threshold is not None or self.f1 or self.sets

    def resolved(self, model: SmoothLinkClassifier) -> LabelRequest:
        """Returns the same with positions for the names in `only`. Where nothing else is requested, a model that was
        trained for an aim gives its sets."""
        from smoothlink.data.matching import label_names

        own = self.k is None and not self.wants_sets and model.model_.has_aim
        names = [str(name) for name in label_names(model)]
        place = {name: j for j, name in reversed(list(enumerate(names)))}
        found = [j for text in self.only for j in positions(text, place, len(names))]
        return self._replace(only=tuple(dict.fromkeys(found)), sets=self.sets or own)


def positions(text: str, place: dict[str, int], c: int) -> list[int]:
    """Returns the labels that a text names: one name, one number, or several of these with commas between them."""
    if text in place:
        return [place[text]]
    if text.isdecimal() and int(text) < c:
        return [int(text)]
    if "," in text:
        return [j for part in text.split(",") for j in positions(part.strip(), place, c)]
    raise DataError(f"the model knows no label {text!r}; it has {c}. `smoothlink info` shows some.")


def predicted_labels(
    model: SmoothLinkClassifier, X: Any, request: LabelRequest
) -> Iterator[tuple[list[int], list[float]]]:
    """Yields the labels of each row and their probabilities, the best first."""
    if not request.wants_sets and not request.only:
        ranked = model.predict_topk(X, k=request.k or DEFAULT_K, rank_by=request.rank_by)
        ptr, labels, probabilities = ranked.indptr, ranked.indices, ranked.data
    else:
        ptr, labels, probabilities = selected(model, X, request)
    for start, stop in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
        yield labels[start:stop].tolist(), probabilities[start:stop].tolist()


def selected(model: SmoothLinkClassifier, X: Any, request: LabelRequest) -> tuple[Any, Any, Any]:
    """Returns row pointers, labels and probabilities of the labels requested, the best of each row first."""
    import numpy as np

    from smoothlink.predict import label_gains, predict_scores

    among = np.array(request.only, np.int64) if request.only else np.arange(model.model_.n_labels)
    P = model.predict_proba(X, labels=among)
    worth = P * label_gains(model.model_)[among] if request.rank_by == "psp" else P
    rows, columns = np.nonzero(members(model, X, P, among, request))
    worth = worth[rows, columns]
    order = np.lexsort((-worth, rows))
    if ((np.diff(rows[order]) == 0) & (np.diff(worth[order]) == 0)).any():  # equal ones are ranked by score
        scores = model._run_prediction(model._validated_rows(X), predict_scores, among)
        order = np.lexsort((-scores[rows, columns], -worth, rows))
    rows, columns = rows[order], columns[order]
    first = np.searchsorted(rows, np.arange(len(P)))
    most = request.k or (len(among) if request.wants_sets else DEFAULT_K)
    kept = np.arange(len(rows)) - first[rows] < most
    rows, columns = rows[kept], columns[kept]
    return np.searchsorted(rows, np.arange(len(P) + 1)), among[columns], P[rows, columns]


def members(model: SmoothLinkClassifier, X: Any, P: Any, among: Any, request: LabelRequest) -> Any:
    """Returns which of the labels `among`, of probabilities P, belong to the set of each row."""
    import numpy as np
    import scipy.sparse as sp

    if request.threshold is not None:
        return request.threshold <= P
    if request.f1:
        return sp.csr_array(model.predict_f1(X))[:, among].toarray() > 0
    if request.sets and model.model_.multiclass:  # the best of all labels, which may be none of these
        return among == model.predict_topk(X, k=1).indices[:, None]
    return model.thresholds_[among] <= P if request.sets else np.ones(P.shape, bool)


class TextWriter(NamedTuple):
    """A format of text: a header, lines for each row, and an end."""

    suffixes: tuple[str, ...]  # of files in it
    line: Callable[[int, list[int], list[float], list[Any]], str]  # of row, labels, probabilities and all names
    header: Callable[[int, int], str] = lambda rows, labels: ""
    end: str = ""


class BinaryWriter(NamedTuple):
    """A binary format, which goes to a file."""

    suffixes: tuple[str, ...]
    needs: str  # the library that writes it
    write: Callable[[IO[bytes], Iterator[Prediction], list[Any]], None]


def json_line(row: int, labels: list[int], probabilities: list[float], names: list[Any]) -> str:
    """Returns {"row": 0, "labels": [{"label": "scipy", "probability": 0.93}, ...]}"""
    pairs = zip(labels, probabilities, strict=True)
    predicted = [{"label": names[j], "probability": round(p, 6)} for j, p in pairs]
    return json.dumps({"row": row, "labels": predicted}, ensure_ascii=False) + "\n"


def tab_lines(row: int, labels: list[int], probabilities: list[float], names: list[Any]) -> str:
    """Returns row, label, probability: a line for each label."""
    pairs = zip(labels, probabilities, strict=True)
    return "".join(f"{row}\t{one_cell(names[j])}\t{p:.6g}\n" for j, p in pairs)


def one_cell(name: Any) -> str:
    """Returns a name without tabs and line ends."""
    return re.sub(r"[\t\r\n]", " ", str(name))


def xmc_line(row: int, labels: list[int], probabilities: list[float], names: list[Any]) -> str:
    """Returns label:probability, by number, the best first: the form of the XMC repository's label files."""
    return " ".join(f"{j}:{p:.6g}" for j, p in zip(labels, probabilities, strict=True)) + "\n"


def comma_lines(row: int, labels: list[int], probabilities: list[float], names: list[Any]) -> str:
    """Returns row, label, probability with commas: a line for each label, quoted where a name needs it."""
    stream = io.StringIO()
    pairs = zip(labels, probabilities, strict=True)
    csv.writer(stream, lineterminator="\n").writerows((row, names[j], f"{p:.6g}") for j, p in pairs)
    return stream.getvalue()


def array_item(row: int, labels: list[int], probabilities: list[float], names: list[Any]) -> str:
    """Returns the JSON line as an item of an array."""
    return (",\n" if row else "") + json_line(row, labels, probabilities, names).rstrip("\n")


def write_parquet(stream: IO[bytes], found: Iterator[Prediction], names: list[Any]) -> None:
    """Writes a table of row, label and probability, a line for each label."""
    import pyarrow
    from pyarrow import parquet

    numbers = all(isinstance(name, int) for name in names)
    kinds = {"row": pyarrow.int64(), "label": pyarrow.int64() if numbers else pyarrow.string()}
    schema = pyarrow.schema({**kinds, "probability": pyarrow.float32()})
    with parquet.ParquetWriter(stream, schema) as writer:
        while block := list(itertools.islice(found, DEVICE_ROWS)):
            rows = [row for row, labels, _ in block for _ in labels]
            predicted = [names[j] if numbers else str(names[j]) for _, labels, _ in block for j in labels]
            probabilities = [p for _, _, of_row in block for p in of_row]
            writer.write_table(pyarrow.table([rows, predicted, probabilities], schema=schema))


def write_xlsx(stream: IO[bytes], found: Iterator[Prediction], names: list[Any]) -> None:
    """Writes a sheet of row, label and probability, a line for each label."""
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell

    book = Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    sheet.append(list(COLUMNS))
    lines = ((row, j, p) for row, labels, probabilities in found for j, p in zip(labels, probabilities, strict=True))
    for count, (row, j, p) in enumerate(lines, 2):
        if count > SHEET_LINES:
            raise DataError(f"A sheet of .xlsx has room for {SHEET_LINES:,} lines, and there are more.\nWrite .csv.")
        name = names[j]
        if isinstance(name, str):  # as text even where it begins like a formula
            name = WriteOnlyCell(sheet, NOT_IN_SHEETS.sub(" ", name))
            name.data_type = "s"
        sheet.append([row, name, round(p, 6)])
    book.save(stream)


SHEET_LINES = 1 << 20
NOT_IN_SHEETS = re.compile(r"[\x00-\x1f]")  # no sheet may hold them
COLUMNS = ("row", "label", "probability")
WRITERS: dict[str, TextWriter | BinaryWriter] = {
    "jsonl": TextWriter((".jsonl", ".ndjson"), json_line),
    "json": TextWriter((".json",), array_item, lambda rows, labels: "[\n", "\n]\n"),
    "csv": TextWriter((".csv",), comma_lines, lambda rows, labels: ",".join(COLUMNS) + "\n"),
    "tsv": TextWriter((".tsv", ".tab"), tab_lines, lambda rows, labels: "\t".join(COLUMNS) + "\n"),
    "parquet": BinaryWriter((".parquet",), "pyarrow", write_parquet),
    "xlsx": BinaryWriter((".xlsx",), "openpyxl", write_xlsx),
    "xmc": TextWriter((".txt",), xmc_line, lambda rows, labels: f"{rows} {labels}\n"),
}


def format_of(path: str | None, given: str | None) -> str:
    """Returns the format to write: the one given, else by the name of the file; they must agree."""
    from smoothlink.data.files_on_disk import bare_name

    name = "" if path is None else bare_name(path).lower()
    named = next((form for form, writer in WRITERS.items() if name.endswith(writer.suffixes)), None)
    if given is not None and named not in (None, given):
        raise DataError(f"{path} is named as {named}, and --output-format is {given}.\nLeave out one of them.")
    form = given or named or ("jsonl" if path is None else None)
    if form is None:
        endings = ", ".join(suffix for writer in WRITERS.values() for suffix in writer.suffixes)
        raise DataError(
            f"{path}: the name does not say in which format to write.\n"
            f"Possible endings are {endings}; or pass --output-format {'|'.join(WRITERS)}."
        )
    check_library(form)
    return form


def check_library(form: str) -> None:
    """Raises an error if the library that writes a format is not installed."""
    writer = WRITERS[form]
    if isinstance(writer, BinaryWriter) and importlib.util.find_spec(writer.needs) is None:
        raise DataError(f"Writing {form} needs {writer.needs}.\nType: pip install 'smoothlink[text]'")


def write(
    path: str | None,
    model: SmoothLinkClassifier,
    X: Any,
    request: LabelRequest,
    form: str,
    advance: Callable[[int], None],
) -> None:
    """Writes predictions to a file, or text to standard output, block after block, so that they never are in memory all
    at once. A file appears when it is whole; `advance` gets the number of rows done."""
    from smoothlink.data.files_on_disk import replacing
    from smoothlink.data.matching import label_names

    def found() -> Iterator[Prediction]:
        for part in parts(model, X.shape[0], request):
            for row, predicted in enumerate(predicted_labels(model, X[part], request), part.start):
                yield row, *predicted
            advance(part.stop - part.start)

    names, writer = label_names(model), WRITERS[form]
    if isinstance(writer, BinaryWriter):
        if path is None:
            raise DataError(f"{form} goes to a file, not to standard output.\nName one with -o.")
        with replacing(path) as raw:
            writer.write(raw, found(), names)
        return
    with target(path) as stream:
        stream.write(writer.header(X.shape[0], len(names)))
        stream.writelines(writer.line(*prediction, names) for prediction in found())
        stream.write(writer.end)


def parts(model: SmoothLinkClassifier, n: int, request: LabelRequest) -> Iterator[slice]:
    """Returns blocks of rows to predict at a time: as many as have room for their probabilities, or many where a device
    finds their best few labels."""
    from smoothlink.model import blocks

    best = model.device != "cpu" and not request.wants_sets and not request.only
    return blocks(n, DEVICE_ROWS) if best else model.model_.row_blocks(n)


@contextmanager
def target(path: str | None) -> Iterator[TextIO]:
    """Yields standard output, or a file that appears when it is whole."""
    if path is None:
        yield sys.stdout
        return
    from smoothlink.data.files_on_disk import replacing

    with replacing(path) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
        yield text
        text.flush()
        text.detach()
