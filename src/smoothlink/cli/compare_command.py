"""`smoothlink compare`: two models on the same test files, with paired differences."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import reading
from smoothlink.cli.report_command import files_text
from smoothlink.cli.screen import Screen, plain_text, print_json, size, table
from smoothlink.cli.shared_options import AsJson, Force, Measuring, Quiet, Tests, grouped, measuring
from smoothlink.data.matching import Reading
from smoothlink.data.overwrite import writable
from smoothlink.errors import plural
from smoothlink.metrics.names import better_side, format_value, shown_keys

if TYPE_CHECKING:
    from smoothlink.reports.comparison import Comparison


@grouped(measuring=measuring, reading=reading)
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A model file.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another model file.")],
    data: Tests,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write an HTML page to as well.", show_default=False
        ),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    measuring: Measuring,
    reading: Reading,
) -> None:
    """Compare two models on the same rows: the difference of each metric, and whether it is more than chance.

    Example: smoothlink compare old.safetensors new.safetensors test.txt.xz
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.reports.comparison import make_comparison
    from smoothlink.reports.labelled_rows import labelled_rows_in_files
    from smoothlink.reports.pages import PageOptions

    screen, paths = Screen(quiet), expanded(data)
    if output is not None:
        writable(output, first, second, *paths, kind="page", force=force)
    measuring.check(first, second)
    options = PageOptions(measuring.bootstraps, measuring.seed)
    with screen.working("measuring"):
        rows = (
            labelled_rows_in_files(first, paths, how=reading, note=screen.note, **measuring.predicting),
            labelled_rows_in_files(second, paths, how=reading, **measuring.predicting),
        )
        found = make_comparison(rows, model_names(first, second), files_text(paths), options)
    if found.note:
        screen.note(found.note)
    if output is not None:
        found.save(output)
        screen.note(f"{output}: {size(len(found.html.encode()))}. Open it in a browser.")
    print_json(as_object(found)) if as_json else show(found, screen)


def model_names(first: str, second: str) -> tuple[str, str]:
    """Returns the names of the models: those of their files, or where these are the same, of their paths."""
    short = tuple(os.path.basename(path).removesuffix(".safetensors") for path in (first, second))
    return (short[0], short[1]) if short[0] != short[1] else (f"{first} (A)", f"{second} (B)")


def as_object(found: Comparison) -> dict[str, Any]:
    """Returns both values and the difference of each metric in JSON's types."""
    metrics = {key: {side: m._asdict() for side, m in pair._asdict().items()} for key, pair in found.metrics.items()}
    return {
        "first": found.names[0],
        "second": found.names[1],
        "metrics": metrics,
        "top_label_right": found.agreement._asdict(),
        "rows": found.measured[0].n,
    }


def show(found: Comparison, screen: Screen) -> None:
    """Prints both values of each metric, the better one in bold where the difference is more than chance."""
    rows = plural(found.measured[0].n, "row")
    shown = table("metric", *(f">{name}" for name in found.names), ">difference", ">90 % interval", title=rows)
    for key in shown_keys():
        if key not in found.metrics:
            continue
        first, second, d = found.metrics[key]
        side = better_side(key, d)
        values = [
            f"[bold]{format_value(key, m.value)}[/]" if side == sign else format_value(key, m.value)
            for m, sign in ((first, 1), (second, -1))
        ]
        interval = "" if d.low != d.low else f"{format_value(key, d.low, '+')} to {format_value(key, d.high, '+')}"
        shown.add_row(key, *values, format_value(key, d.value, "+"), interval)
    screen.out.print()
    screen.out.print(shown)
    a, (one, other) = found.agreement, found.names
    text = (
        f"Top label right: both {a.both:,}, only {one} {a.first:,}, only {other} {a.second:,}, neither {a.neither:,}."
    )
    screen.out.print(plain_text(text))
