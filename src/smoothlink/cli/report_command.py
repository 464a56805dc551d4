"""`smoothlink report`: a model and test files -> one HTML page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import reading
from smoothlink.cli.evaluate_command import as_object as metrics_of
from smoothlink.cli.screen import Screen, print_json, size
from smoothlink.cli.shared_options import AsJson, Device, Force, Model, Quiet, RankBy, Strict, grouped, load_model
from smoothlink.data.matching import Reading
from smoothlink.data.overwrite import writable
from smoothlink.errors import plural

if TYPE_CHECKING:
    from smoothlink.metrics.reliability import Reliability
    from smoothlink.reports.measurements import Measured

Tests = Annotated[
    list[str], typer.Argument(metavar="TEST", help="Data files with the true labels; * in a name fits all.")
]
Bootstraps = Annotated[int, typer.Option(min=0, help="Draws of rows behind the intervals; 0: none.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of these draws, and of the rows shown.")]


@grouped(reading=reading)
def report(
    model: Model,
    data: Tests,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write the page.")
    ] = "report.html",
    title: Annotated[str | None, typer.Option(help="Title of the page, if not the name of the model.")] = None,
    bootstraps: Bootstraps = 1000,
    seed: Seed = 0,
    rank_by: RankBy = "probability",
    device: Device = "cpu",
    strict: Strict = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
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
    load_model(model, rank_by, device)  # raises errors that name the option
    given: dict[str, Any] = {"rank_by": rank_by, "how": reading, "strict": strict, "device": device}
    with screen.working("measuring"):
        rows = labelled_rows_in_files(model, paths, note=screen.note, **given)
        made = make_report(rows, title or os.path.basename(model), files_text(paths), PageOptions(bootstraps, seed))
    made.save(output)
    screen.note(f"{output}: {size(len(made.html.encode()))}. Open it in a browser.")
    if as_json:
        print_json(as_object(made.measured))


def files_text(paths: list[str]) -> str:
    """Returns what test files are called on a page."""
    first = os.path.basename(paths[0])
    return first if len(paths) == 1 else f"{first} and {plural(len(paths) - 1, 'other')}"


def as_object(found: Measured) -> dict[str, Any]:
    """Returns the numbers of the page in JSON's types."""
    c = found.counts
    return {
        **metrics_of(found.evaluation),
        "ece_top_bins": bins(found.top),
        "ece_pairs": found.pairs.error,
        "ece_pairs_bins": bins(found.pairs),
        "thresholds": {name: values.tolist() for name, values in found.thresholds._asdict().items()},
        "by_frequency": [group._asdict() for group in found.groups],
        "labels": [
            {
                "label": name,
                "training_rows": c.train[j],
                "true": c.true[j],
                "expected": c.expected[j],
                "predicted": c.sets[j],
                "right": c.hits[j],
            }
            for j, name in enumerate(found.names)
        ],
        "confused": [
            {"true": found.names[one.true], "predicted": found.names[one.predicted], "rows": one.rows, "of": one.of}
            for one in found.confused
        ],
    }


def bins(found: Reliability) -> list[dict[str, float]]:
    each = zip(*(values.tolist() for values in found), strict=True)
    return [{"predicted": predicted, "true": true, "cases": mass} for predicted, true, mass in each]
