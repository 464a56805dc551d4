"""`smoothlink evaluate`: a model and test files -> metrics with 90 % intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from smoothlink.cli.data_options import reading
from smoothlink.cli.screen import Screen, print_json, table
from smoothlink.cli.shared_options import (
    AsJson,
    Cluster,
    Groups,
    Measuring,
    Model,
    Quiet,
    Tests,
    dashboard,
    grouped,
    measuring,
    on_cluster,
)
from smoothlink.data.matching import Reading
from smoothlink.errors import plural
from smoothlink.metrics.names import meaning, metric_of

if TYPE_CHECKING:
    from smoothlink.metrics.evaluate import Evaluation


@grouped(measuring=measuring, reading=reading)
def evaluate(
    model: Model,
    data: Tests,
    groups: Groups = None,
    cluster: Cluster = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    measuring: Measuring,
    reading: Reading,
) -> None:
    """Measure a model on test files, with 90 % intervals over all their rows.

    Example: smoothlink evaluate model.safetensors test.txt.xz
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.file_evaluation import evaluate_files

    screen = Screen(quiet)
    if groups is not None and cluster is not None:
        raise typer.BadParameter("a cluster reads no groups; leave one of them out.", param_hint="--groups, --cluster")
    measuring.check(model)
    paths = expanded(data)
    intervals: dict[str, Any] = {"bootstraps": measuring.bootstraps, "seed": measuring.seed}
    with on_cluster(cluster, screen):
        dashboard(screen)
        with screen.working("evaluating"):
            given: dict[str, Any] = {"how": reading, "groups": groups, "note": screen.note}
            result = evaluate_files(model, paths, **given, **intervals, **measuring.predicting)
    where = paths[0] if len(paths) == 1 else f"{paths[0]} and {plural(len(paths) - 1, 'other')}"
    if text := result.training_rows_note:
        screen.note(f"{where}: {text}")
    if result.n_unknown_labels:
        labels, pairs = plural(result.n_unknown_labels, "label"), plural(result.n_unknown_pairs, "pair")
        screen.note(f"{where}: {labels} unknown to the model, in {pairs} of row and label: they count as misses.")
    if as_json:
        print_json(as_object(result))
    else:
        show(result, screen)


def as_object(result: Evaluation) -> dict[str, Any]:
    """Returns metrics by name, then the counts, in JSON's types."""
    metrics: dict[str, Any] = {key: metric._asdict() for key, metric in result.metrics.items()}
    return metrics | {
        "rows": result.n_rows,
        "unknown_labels": result.n_unknown_labels,
        "unknown_pairs": result.n_unknown_pairs,
        "training_rows": result.n_training_rows,
    }


def show(result: Evaluation, screen: Screen) -> None:
    """Prints the metrics in groups: those of each ranking metric, then the others."""
    shown = table("metric", ">value", ">90 % interval", "meaning", title=plural(result.n_rows, "row"))
    group = None
    for key, value, interval in result.table():
        found = metric_of(key).name if metric_of(key).at_k else ""
        if group not in (None, found):
            shown.add_section()
        group = found
        shown.add_row(key, value, interval, f"[dim]{meaning(key)}")
    screen.out.print()
    screen.out.print(shown)
