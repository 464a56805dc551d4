"""The labels that a model predicts for rows, written as JSON, tables (CSV, TSV, Parquet, XLSX) or XMC text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from smoothlink.errors import DataError, printable

if TYPE_CHECKING:
    from smoothlink.conformal import Review
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.documents import KeptColumns

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
    coverage: float | None = None  # sets that hold all labels of a row with this probability; resolved: `threshold` too
    recall: float | None = None  # sets that hold this share of them on average; resolved: `threshold` too
    precision: float | None = None  # `sets`, and which rows have this precision on average

    @property
    def wants_sets(self) -> bool:
        """Returns whether all labels of a set are wanted, not the best few."""
        return self.threshold is not None or self.f1 or self.sets or self.guarantees

    @property
    def guarantees(self) -> bool:
        """Returns whether something is guaranteed of the sets."""
        return (self.coverage, self.recall, self.precision) != (None, None, None)

    def check(self) -> None:
        """Raises an error for what a guarantee does not go with: other sets, and parts of a set."""
        given = {"coverage": self.coverage, "recall": self.recall, "precision": self.precision}
        named = [f"--guarantee-{name}" for name, level in given.items() if level is not None]
        others: dict[str, Any] = {"--top": self.k, "--threshold": self.threshold, "--f1": self.f1, "--sets": self.sets}
        others["--only"] = self.only
        wrong = [*named[1:], *(name for name, value in others.items() if value not in (None, False, ()))]
        if named and wrong:
            raise DataError(f"{named[0]} is a promise of whole sets of its own: {wrong[0]} does not go with it.")

    def resolved(self, model: SmoothLinkClassifier) -> LabelRequest:
        """Returns the same with positions for the names in `only`. Where nothing else is requested, a model that was
        trained for an aim gives its sets."""
        from smoothlink.conformal import checked_conformal, coverage_threshold, recall_threshold, release_threshold
        from smoothlink.data.matching import label_names
        from smoothlink.vocabulary import display_names

        self.check()
        threshold = self.threshold
        try:
            if self.coverage is not None:
                threshold = coverage_threshold(checked_conformal(model.conformal_), self.coverage)
            elif self.recall is not None:
                threshold = recall_threshold(checked_conformal(model.conformal_), self.recall)
            elif self.precision is not None:
                release_threshold(checked_conformal(model.conformal_), self.precision)
        except ValueError as error:
            raise DataError(str(error)) from error
        own = self.k is None and ((not self.wants_sets and model.model_.has_aim) or self.precision is not None)
        names = [str(name) for name in label_names(model)]
        place = {name: j for known in (display_names(model), names) for j, name in reversed(list(enumerate(known)))}
        found = [j for text in self.only for j in positions(text, place, len(names))]
        return self._replace(only=tuple(dict.fromkeys(found)), threshold=threshold, sets=self.sets or own)


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
    model: SmoothLinkClassifier, X: Any, request: LabelRequest, f1_sets: Any = None
) -> Iterator[tuple[list[int], list[float]]]:
    """Yields the labels of each row and their probabilities, the best first. f1_sets (n, c): the F1 sets of rows that
    were predicted together; None: each by itself."""
    if not request.wants_sets and not request.only:
        ranked = model.predict_topk(X, k=request.k or DEFAULT_K, rank_by=request.rank_by)
        ptr, labels, probabilities = ranked.indptr, ranked.indices, ranked.data
    else:
        ptr, labels, probabilities = selected(model, X, request, f1_sets)
    for start, stop in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
        yield labels[start:stop].tolist(), probabilities[start:stop].tolist()


def selected(model: SmoothLinkClassifier, X: Any, request: LabelRequest, f1_sets: Any) -> tuple[Any, Any, Any]:
    """Returns row pointers, labels and probabilities of the labels requested, the best of each row first."""
    import numpy as np

    from smoothlink.predict import label_gains, predict_scores

    among = np.array(request.only, np.int64) if request.only else np.arange(model.model_.n_labels)
    P = model.predict_proba(X, labels=among)
    worth = P * label_gains(model.model_)[among] if request.rank_by == "psp" else P
    rows, columns = np.nonzero(members(model, X, P, among, request, f1_sets))
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


def members(model: SmoothLinkClassifier, X: Any, P: Any, among: Any, request: LabelRequest, f1_sets: Any) -> Any:
    """Returns which of the labels `among`, of probabilities P, belong to the set of each row."""
    import numpy as np
    import scipy.sparse as sp

    if request.threshold is not None:
        above = request.threshold <= P
        return above & ~model.model_.untrained[among] if request.guarantees else above
    if request.f1:
        found = model.predict_f1(X, over="thresholds") if f1_sets is None else f1_sets
        return sp.csr_array(found)[:, among].toarray() > 0
    if request.sets and model.model_.multiclass:  # the best of all labels, which may be none of these
        return among == model.predict_topk(X, k=1).indices[:, None]
    return model.thresholds_[among] <= P if request.sets else np.ones(P.shape, bool)


OUTPUT_SUFFIXES = {  # of the formats that predictions are written in; "json" is one list, "xmc" has numbers
    "jsonl": (".jsonl", ".ndjson"),
    "json": (".json",),
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "parquet": (".parquet",),
    "xlsx": (".xlsx",),
    "xmc": (".txt",),
}


class OutputForm(NamedTuple):
    """How predictions are written."""

    format: str  # a key of OUTPUT_SUFFIXES
    long: bool = False  # a row for each label of a document, instead of one for each document
    separator: str | None = None  # of labels in a cell; None, or where a name holds it: another


def table_of(
    found: Iterable[Prediction],
    names: list[Any],
    form: OutputForm,
    kept: KeptColumns | None,
    shown: list[str] | None = None,
) -> tuple[list[str], Iterator[list[Any]]]:
    """Returns the columns and rows of predictions: columns of the input or row numbers, then labels and probabilities.

    These are lists in JSON and Parquet, else texts with a separator. shown: names of the labels in a vocabulary.
    """
    first = ["row"] if kept is None else kept.names

    def cells(row: int) -> list[Any]:
        return [row] if kept is None else kept.rows[row]

    rows: Iterator[list[Any]]
    if form.long:
        own = ["label", *([] if shown is None else ["name"]), "probability"]
        rows = (
            [*cells(row), names[j], *([] if shown is None else [shown[j]]), six_digits(p)]
            for row, labels, probabilities in found
            for j, p in zip(labels, probabilities, strict=True)
        )
    elif form.format in ("json", "jsonl"):
        own, rows = ["labels"], ([*cells(row), as_objects(labels, p, names, shown)] for row, labels, p in found)
    else:
        join = list if form.format == "parquet" else joining(names, form.separator)
        columns = {"labels": (names, join)}
        if shown is not None:
            columns["names"] = shown, list if form.format == "parquet" else joining(shown, form.separator)
        own = [*columns, "probabilities"]
        rows = (
            [
                *cells(row),
                *(cell([texts[j] for j in labels]) for texts, cell in columns.values()),
                join([six_digits(p) for p in probabilities]),
            ]
            for row, labels, probabilities in found
        )
    return [*first, *(new_name(name, first) for name in own)], rows


def six_digits(p: float) -> float:
    return float(f"{p:.6g}")


def new_name(name: str, taken: list[str]) -> str:
    """Returns the name of a column, with predicted_ before it while the input has one of that name."""
    while name in taken:
        name = f"predicted_{name}"
    return name


def joining(names: list[Any], wanted: str | None) -> Callable[[list[Any]], Any]:
    """Returns the function that makes one cell of a list: with the first separator that no name holds, or a list."""
    marks = [wanted] if wanted in (";", ",", " ") else []
    mark = next((mark for mark in [*marks, "|", ";", ","] if not any(mark in str(name) for name in names)), None)
    if mark is None:
        return list
    spaced = f"{mark} " if mark in ",;" else mark
    return lambda values: spaced.join(map(str, values))


def as_objects(
    labels: list[int], probabilities: list[float], names: list[Any], shown: list[str] | None
) -> list[dict[str, Any]]:
    """Returns [{"label": "scipy", "name": "SciPy", "probability": 0.93}, ...], with the name where there are any."""
    pairs = zip(labels, probabilities, strict=True)
    if shown is None:
        return [{"label": names[j], "probability": round(p, 6)} for j, p in pairs]
    return [{"label": names[j], "name": shown[j], "probability": round(p, 6)} for j, p in pairs]


def xmc_lines(found: Iterable[Prediction], n: int, c: int) -> Iterator[str]:
    """Yields label:probability, by number, the best first, under a header: the XMC repository's label files."""
    yield f"{n} {c}\n"
    for _, labels, probabilities in found:
        yield " ".join(f"{j}:{p:.6g}" for j, p in zip(labels, probabilities, strict=True)) + "\n"


def format_of(path: str | None, given: str | None) -> str:
    """Returns the format to write: the one given, else by the name of the file; they must agree."""
    from smoothlink.data.files_on_disk import bare_name
    from smoothlink.text.tables import check_library

    name = "" if path is None else bare_name(path).lower()
    named = next((form for form, suffixes in OUTPUT_SUFFIXES.items() if name.endswith(suffixes)), None)
    if given is not None and named not in (None, given):
        raise DataError(f"{path} is named as {named}, and --output-format is {given}.\nLeave out one of them.")
    form = given or named or ("jsonl" if path is None else None)
    if form is None:
        endings = ", ".join(suffix for suffixes in OUTPUT_SUFFIXES.values() for suffix in suffixes)
        raise DataError(
            f"{path}: the name does not say in which format to write.\n"
            f"Possible endings are {endings}; or pass --output-format {'|'.join(OUTPUT_SUFFIXES)}."
        )
    check_library(form)
    return form


def write(
    path: str | None,
    model: SmoothLinkClassifier,
    X: Any,
    request: LabelRequest,
    form: OutputForm,
    advance: Callable[[int], None],
    kept: KeptColumns | None = None,
) -> None:
    """Writes predictions to a file, or text to standard output, block after block, so that they never are in memory all
    at once. A file appears when it is whole; `advance` gets the number of rows done. kept: columns of the input that go
    before the predictions; None: row numbers."""
    from smoothlink.data.files_on_disk import replacing
    from smoothlink.data.matching import label_names
    from smoothlink.text.tables import NEEDS, table_lines, write_table
    from smoothlink.vocabulary import display_names

    def found() -> Iterator[Prediction]:
        from smoothlink.machines.matrices import row_range  # the options of the command line need no arrays

        sets = model.predict_f1(X) if request.f1 else None
        for part in parts(model, X.shape[0], request):
            given = None if sets is None else sets[part]
            for row, predicted in enumerate(predicted_labels(model, row_range(X, part), request, given), part.start):
                yield row, *predicted
            advance(part.stop - part.start)
        model.model_.finish_verification()  # before the file appears

    if request.precision is not None:
        kept = with_review(model.review(X, precision=request.precision), kept)
    names, shown = label_names(model), None if model.vocabulary_ is None else display_names(model)
    if form.format in NEEDS and path is None:
        raise DataError(f"{form.format} goes to a file, not to standard output.\nName one with -o.")
    if form.format == "xmc":
        lines = xmc_lines(found(), X.shape[0], len(names))
    else:
        columns, rows = table_of(found(), names, form, kept if kept is not None and kept.names else None, shown)
        if path is not None:
            write_table(path, form.format, columns, rows)
            return
        lines = table_lines(form.format, columns, rows)
    if path is None:
        sys.stdout.writelines(map(printable, lines) if sys.stdout.isatty() else lines)
        return
    with replacing(path) as stream:
        stream.writelines(line.encode() for line in lines)


def with_review(review: Review, kept: KeptColumns | None) -> KeptColumns:
    """Returns columns with whether each row may be released, how confident the model is, and the row's place in the
    review queue."""
    from smoothlink.text.documents import KeptColumns

    n = len(review.released)
    names, rows = (["row"], [[i] for i in range(n)]) if kept is None or not kept.names else kept
    place = {int(row): i for i, row in enumerate(review.queue, 1)}
    added = [[bool(review.released[i]), six_digits(float(review.confidence[i])), place.get(i)] for i in range(n)]
    new = [new_name(name, names) for name in ("released", "confidence", "review")]
    return KeptColumns([*names, *new], [[*row, *more] for row, more in zip(rows, added, strict=True)])


def parts(model: SmoothLinkClassifier, n: int, request: LabelRequest) -> Iterator[slice]:
    """Returns blocks of rows to predict at a time: as many as have room for their probabilities, or many where a device
    finds their best few labels."""
    from smoothlink.model import blocks

    best = model.device != "cpu" and not request.wants_sets and not request.only
    return blocks(n, DEVICE_ROWS) if best else model.model_.row_blocks(n)
