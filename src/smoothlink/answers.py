"""What a model says of some rows, how it is spelled (JSON lines, tab-separated values, XMC text) and written."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from smoothlink.errors import DataError

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier

BEST = 5  # labels a row where nothing else is asked for
TOGETHER = 1 << 16  # rows that keep a device busy


class Ask(NamedTuple):
    """Which labels are wanted of each row."""

    k: int | None = None  # at most so many; None: BEST, or the whole set
    threshold: float | None = None  # those of at least this probability
    f1: bool = False  # those at the model's thresholds
    sets: bool = False  # those more likely than not
    only: tuple[Any, ...] = ()  # names or numbers; resolved: positions
    rank_by: str = "probability"

    @property
    def whole(self) -> bool:
        """Whether all labels of a set are wanted, not the best few."""
        return self.threshold is not None or self.f1 or self.sets

    def resolved(self, model: SmoothLinkClassifier) -> Ask:
        """The same with positions for the names in `only`."""
        from smoothlink.datafiles import label_names

        names = [str(name) for name in label_names(model)]
        place = {name: j for j, name in reversed(list(enumerate(names)))}
        found = [j for text in self.only for j in positions(text, place, len(names))]
        return self._replace(only=tuple(dict.fromkeys(found)))


def positions(text: str, place: dict[str, int], c: int) -> list[int]:
    """The labels that a text names: one name, one number, or several of these with commas between them."""
    if text in place:
        return [place[text]]
    if text.isdecimal() and int(text) < c:
        return [int(text)]
    if "," in text:
        return [j for part in text.split(",") for j in positions(part.strip(), place, c)]
    raise DataError(f"the model knows no label {text!r}; it has {c}. `smoothlink info` shows some.")


def answers(model: SmoothLinkClassifier, X: Any, ask: Ask) -> Iterator[tuple[list[int], list[float]]]:
    """The labels of each row and their probabilities, the best first."""
    if not ask.whole and not ask.only:
        ranked = model.predict_topk(X, k=ask.k or BEST, rank_by=ask.rank_by)
        ptr, labels, probabilities = ranked.indptr, ranked.indices, ranked.data
    else:
        ptr, labels, probabilities = selected(model, X, ask)
    for start, stop in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
        yield labels[start:stop].tolist(), probabilities[start:stop].tolist()


def selected(model: SmoothLinkClassifier, X: Any, ask: Ask) -> tuple[Any, Any, Any]:
    """Row pointers, labels and probabilities of the labels asked for, the best of each row first."""
    import numpy as np

    from smoothlink.predict import label_gains

    among = np.array(ask.only, np.int64) if ask.only else np.arange(model.model_.n_labels)
    P = model.predict_proba(X, labels=among)
    worth = P * label_gains(model.model_)[among] if ask.rank_by == "psp" else P
    rows, columns = np.nonzero(members(model, X, P, among, ask))
    order = np.lexsort((-worth[rows, columns], rows))
    rows, columns = rows[order], columns[order]
    first = np.searchsorted(rows, np.arange(len(P)))
    most = ask.k or (len(among) if ask.whole else BEST)
    kept = np.arange(len(rows)) - first[rows] < most
    rows, columns = rows[kept], columns[kept]
    return np.searchsorted(rows, np.arange(len(P) + 1)), among[columns], P[rows, columns]


def members(model: SmoothLinkClassifier, X: Any, P: Any, among: Any, ask: Ask) -> Any:
    """Which of the labels `among`, of probabilities P, belong to the set of each row."""
    import numpy as np
    import scipy.sparse as sp

    if ask.threshold is not None:
        return ask.threshold <= P
    if ask.f1:
        return sp.csr_array(model.predict_f1(X))[:, among].toarray() > 0
    if ask.sets and model.model_.multiclass:  # the best of all labels, which may be none of these
        return among == model.predict_topk(X, k=1).indices[:, None]
    return P > 0.5 if ask.sets else np.ones(P.shape, bool)


class Writer(NamedTuple):
    """A spelling of predictions."""

    suffix: str  # of files in it
    header: Callable[[int, int], str]  # of rows and labels
    line: Callable[[int, list[int], list[float], list[Any]], str]  # of row, labels, probabilities and all names


def json_line(row: int, labels: list[int], probabilities: list[float], names: list[Any]) -> str:
    """{"row": 0, "labels": [{"label": "scipy", "probability": 0.93}, ...]}"""
    pairs = zip(labels, probabilities, strict=True)
    said = [{"label": names[j], "probability": round(p, 6)} for j, p in pairs]
    return json.dumps({"row": row, "labels": said}, ensure_ascii=False) + "\n"


def tab_lines(row: int, labels: list[int], probabilities: list[float], names: list[Any]) -> str:
    """row, label, probability: a line for each label."""
    pairs = zip(labels, probabilities, strict=True)
    return "".join(f"{row}\t{one_cell(names[j])}\t{p:.6g}\n" for j, p in pairs)


def one_cell(name: Any) -> str:
    """A name without tabs and line ends."""
    return re.sub(r"[\t\r\n]", " ", str(name))


def xmc_line(row: int, labels: list[int], probabilities: list[float], names: list[Any]) -> str:
    """label:probability, by number, the best first: the form of the XMC repository's label files."""
    return " ".join(f"{j}:{p:.6g}" for j, p in zip(labels, probabilities, strict=True)) + "\n"


WRITERS = {
    "jsonl": Writer(".jsonl", lambda rows, labels: "", json_line),
    "tsv": Writer(".tsv", lambda rows, labels: "row\tlabel\tprobability\n", tab_lines),
    "xmc": Writer(".txt", lambda rows, labels: f"{rows} {labels}\n", xmc_line),
}


def write(
    stream: TextIO, model: SmoothLinkClassifier, X: Any, ask: Ask, form: str, advance: Callable[[int], None]
) -> None:
    """Block after block, so that predictions never are in memory all at once; `advance` is told of rows done."""
    from smoothlink.datafiles import label_names

    names, writer = label_names(model), WRITERS[form]
    stream.write(writer.header(X.shape[0], len(names)))
    for part in parts(model, X.shape[0], ask):
        for row, (labels, probabilities) in enumerate(answers(model, X[part], ask), part.start):
            stream.write(writer.line(row, labels, probabilities, names))
        advance(part.stop - part.start)


def parts(model: SmoothLinkClassifier, n: int, ask: Ask) -> Iterator[slice]:
    """Rows that are asked about together: as many as have room for their probabilities, or many where a device finds
    their best few labels."""
    from smoothlink.model import blocks

    best = model.device != "cpu" and not ask.whole and not ask.only
    return blocks(n, TOGETHER) if best else model.model_.row_blocks(n)


@contextmanager
def target(path: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when it is whole."""
    if path is None:
        yield sys.stdout
        return
    from smoothlink.steps.formats._files import replacing

    with replacing(path) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
        yield text
        text.flush()
        text.detach()
