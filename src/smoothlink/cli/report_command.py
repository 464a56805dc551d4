"""`smoothlink report`: a model and test files -> one HTML page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import reading
from smoothlink.cli.evaluate_command import as_object as metrics_of
from smoothlink.cli.screen import Screen, print_json, size
from smoothlink.cli.shared_options import (
    AsJson,
    Force,
    Measuring,
    Model,
    Naming,
    Quiet,
    Tests,
    grouped,
    load_model,
    measuring,
    naming,
)
from smoothlink.data.matching import Reading
from smoothlink.data.overwrite import writable
from smoothlink.errors import plural

if TYPE_CHECKING:
    from smoothlink.metrics.reliability import Reliability
    from smoothlink.reports.measurements import Measured


@grouped(measuring=measuring, reading=reading, names=naming)
def report(
    model: Model,
    data: Tests,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write the page.")
    ] = "report.html",
    labels_csv: Annotated[
        str | None,
        typer.Option("--labels-csv", metavar="FILE", help="Where to write the table of all labels as CSV as well."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page, if not the name of the model.")] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    measuring: Measuring,
    reading: Reading,
    names: Naming,
) -> None:
    """Write a page on how good a model is: metrics, calibration, thresholds, labels and rows, in one HTML file.

    Example: smoothlink report model.safetensors test.txt.xz -o report.html
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.reports.labelled_rows import labelled_rows_in_files
    from smoothlink.reports.pages import PageOptions
    from smoothlink.reports.report_page import make_report

    screen, paths = Screen(quiet), expanded(data)
    writable(output, model, *paths, kind="page", force=force)
    if labels_csv is not None:
        writable(labels_csv, model, output, *paths, kind="data", force=force)
    measuring.check(model)
    named = names.applied(load_model(model, measuring.rank_by, measuring.device), screen)
    options = PageOptions(measuring.bootstraps, measuring.seed)
    with screen.working("measuring"):
        rows = labelled_rows_in_files(model, paths, how=reading, note=screen.note, **measuring.predicting)
        rows = rows._replace(model=named)
        made = make_report(rows, title or os.path.basename(model), files_text(paths), options)
    made.save(output)
    screen.note(f"{output}: {size(len(made.html.encode()))}. Open it in a browser.")
    if labels_csv is not None:
        made.save_labels(labels_csv)
        screen.note(f"{labels_csv}: {plural(len(made.measured.names), 'label')}.")
    if as_json:
        print_json(as_object(made.measured))


def files_text(paths: list[str]) -> str:
    """Returns what test files are called on a page."""
    first = os.path.basename(paths[0])
    return first if len(paths) == 1 else f"{first} and {plural(len(paths) - 1, 'other')}"


def as_object(found: Measured) -> dict[str, Any]:
    """Returns the numbers of the page in JSON's types."""
    from smoothlink.reports.label_table import label_table

    columns = label_table(found)
    return {
        **metrics_of(found.evaluation),
        "ece_top_bins": bins(found.top),
        "ece_pairs": found.pairs.error,
        "ece_pairs_bins": bins(found.pairs),
        "thresholds": {name: values.tolist() for name, values in found.thresholds._asdict().items()},
        "by_frequency": [group._asdict() for group in found.groups],
        "labels": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "confused": [
            {"true": found.labels[one.true], "predicted": found.labels[one.predicted], "rows": one.rows, "of": one.of}
            for one in found.confused
        ],
    }


def bins(found: Reliability) -> list[dict[str, float]]:
    each = zip(*(values.tolist() for values in found), strict=True)
    return [{"predicted": predicted, "true": true, "cases": mass} for predicted, true, mass in each]
