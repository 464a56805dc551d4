"""`smoothlink evaluate`: a model and test files -> metrics with 90 % intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import reading
from smoothlink.cli.screen import Screen, print_json, table
from smoothlink.cli.shared_options import (
    AsJson,
    Cluster,
    Device,
    Model,
    Quiet,
    RankBy,
    Strict,
    dashboard,
    grouped,
    load_model,
    on_cluster,
)
from smoothlink.data.matching import Reading
from smoothlink.errors import plural
from smoothlink.metrics.names import format_value, meaning, metric_of

if TYPE_CHECKING:
    from smoothlink.metrics.bootstrap import Metric
    from smoothlink.metrics.evaluate import Evaluation


@grouped(reading=reading)
def evaluate(
    model: Model,
    data: Annotated[
        list[str],
        typer.Argument(metavar="TEST", help="Data files with the true labels; * in a name fits all."),
    ],
    bootstraps: Annotated[int, typer.Option(min=0, help="Draws of rows behind the intervals; 0: none.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of these draws.")] = 0,
    rank_by: RankBy = "probability",
    device: Device = "cpu",
    cluster: Cluster = None,
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Measure a model on test files, with 90 % intervals over all their rows.

    Example: smoothlink evaluate model.safetensors test.txt.xz
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.file_evaluation import evaluate_files

    screen = Screen(quiet)
    load_model(model, rank_by, device)  # raises errors that name the option
    paths = expanded(data)
    given: dict[str, Any] = {"rank_by": rank_by, "how": reading, "strict": strict, "device": device}
    with on_cluster(cluster, screen):
        dashboard(screen)
        with screen.working("evaluating"):
            result = evaluate_files(model, paths, bootstraps=bootstraps, seed=seed, note=screen.note, **given)
    if result.n_unknown_labels:
        labels, pairs = plural(result.n_unknown_labels, "label"), plural(result.n_unknown_pairs, "pair")
        where = paths[0] if len(paths) == 1 else f"{paths[0]} and {plural(len(paths) - 1, 'other')}"
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
    }


def show(result: Evaluation, screen: Screen) -> None:
    """Prints the metrics in groups: those of each ranking metric, then the others."""
    shown = table("metric", ">value", ">90 % interval", "meaning", title=plural(result.n_rows, "row"))
    group = None
    for key, metric in result.metrics.items():
        found = metric_of(key).name if metric_of(key).at_k else ""
        if group not in (None, found):
            shown.add_section()
        group = found
        shown.add_row(key, format_value(key, metric.value), interval(key, metric), f"[dim]{meaning(key)}")
    screen.out.print()
    screen.out.print(shown)


def interval(key: str, metric: Metric) -> str:
    """Returns low - high, or nothing where none was drawn."""
    return "" if metric.low != metric.low else f"{format_value(key, metric.low)} - {format_value(key, metric.high)}"
