"""`smoothlink evaluate`: a model and a test file -> metrics with 90 % intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data import Reading, label_names, matched, matched_labels, read_data, reading
from smoothlink.cli.options import AsJson, Device, Model, Quiet, RankBy, Strict, grouped, load_model
from smoothlink.cli.screen import Screen, plural, print_json, table
from smoothlink.errors import DataError

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.steps.bootstrap import Metric
    from smoothlink.steps.evaluate import Evaluation
    from smoothlink.steps.read import Data

MEANINGS = {
    "p": "of the first {k}, the share that is true",
    "ndcg": "the same, earlier places counting more",
    "psp": "P@{k} with rare labels counting more",
    "psndcg": "nDCG@{k} with rare labels counting more",
    "hamming": "share of all (row, label) pairs that are wrong",
    "micro_f1": "F1 of all pairs, at probability 1/2",
    "macro_f1": "mean F1 of the labels, at probability 1/2",
    "example_f1": "mean F1 of the rows, at probability 1/2",
    "macro_f1_alg4": "mean F1 of the labels, by Algorithm 4",
    "error": "share of rows whose first label is wrong",
    "logloss": "mean over rows, natural logarithm",
    "ece_top": "calibration error of the first label's probability",
}


@grouped(reading=reading)
def evaluate(
    model: Model,
    data: Annotated[str, typer.Argument(metavar="TEST", help="A data file with the true labels.")],
    bootstraps: Annotated[int, typer.Option(min=0, help="Draws of rows behind the intervals; 0: none.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of these draws.")] = 0,
    rank_by: RankBy = None,
    device: Device = "cpu",
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Measure a model on a test file, with 90 % intervals.

    Example: smoothlink evaluate model.safetensors test.txt.xz
    """
    screen = Screen(quiet)
    loaded = load_model(model, rank_by, device)
    found = matched_labels(read_data(data, reading, screen), data, reading, loaded)
    found = matched(found, data, reading, loaded, strict=strict, screen=screen)
    if not found.Y.nnz:
        raise DataError(
            f"{data} has no row with a label: there is nothing to measure.\nTo label it: smoothlink predict."
        )
    with screen.working("evaluating"):
        result = loaded.evaluate(found.X, truth(found, data, loaded), bootstraps=bootstraps, seed=seed)
    if result.n_unknown_labels:
        labels, pairs = plural(result.n_unknown_labels, "label"), plural(result.n_unknown_pairs, "pair")
        screen.note(f"{data} has {labels} unknown to the model, in {pairs} of row and label: they count as misses.")
    if as_json:
        print_json(as_object(result))
    else:
        show(result, screen)


def truth(data: Data, path: str, model: SmoothLinkClassifier) -> Any:
    """The true labels as the model was given its own: a 0/1 matrix, or one class id a row."""
    import numpy as np

    if model._indicator:
        return data.Y
    counts = np.diff(data.Y.indptr)
    if (counts != 1).any():
        row = int(np.argmax(counts != 1))
        raise DataError(f"{path}: row {row} has {plural(int(counts[row]), 'label')}; the model gives each row one.")
    names = np.array(data.label_names if data.label_names is not None else range(data.Y.shape[1]))
    classes = np.array([str(name) for name in label_names(model)])
    # Names are compared as text; a class the model does not know keeps a place that no class has.
    place = {name: j for j, name in enumerate(classes.tolist())}
    at = np.array([place.get(str(name), len(classes)) for name in names[data.Y.indices].tolist()])
    unknown = "?" if model.classes_.dtype.kind in "UO" else model.classes_.max() + 1
    return np.append(model.classes_, [unknown])[at]


def as_object(result: Evaluation) -> dict[str, Any]:
    """Metrics by name, then the counts."""
    metrics: dict[str, Any] = {key: metric._asdict() for key, metric in result.metrics.items()}
    return metrics | {
        "rows": result.n_rows,
        "unknown_labels": result.n_unknown_labels,
        "unknown_pairs": result.n_unknown_pairs,
    }


def show(result: Evaluation, screen: Screen) -> None:
    shown = table("metric", ">value", ">90 % interval", "meaning", title=plural(result.n_rows, "row"))
    family = None
    for key, metric in result.metrics.items():
        name, _, k = key.partition("@")
        if family not in (None, name) and (k or (family or "").startswith("psndcg")):
            shown.add_section()
        family = name
        shown.add_row(key, f"{metric.value:.4f}", interval(metric), f"[dim]{MEANINGS.get(name, '').format(k=k)}")
    screen.out.print()
    screen.out.print(shown)


def interval(metric: Metric) -> str:
    """low - high, or nothing where none was drawn."""
    return "" if metric.low != metric.low else f"{metric.low:.4f} - {metric.high:.4f}"
