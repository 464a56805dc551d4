"""`smoothlink compare`: two models on the same test files, with paired differences."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import reading
from smoothlink.cli.report_command import Bootstraps, Seed, Tests, named
from smoothlink.cli.screen import Screen, plain_text, print_json, size, table
from smoothlink.cli.shared_options import AsJson, Device, Force, Quiet, RankBy, Strict, grouped, load_model
from smoothlink.data.matching import Reading
from smoothlink.data.overwrite import writable
from smoothlink.errors import plural
from smoothlink.metrics.names import better

if TYPE_CHECKING:
    from smoothlink.reports.comparison import Comparison


@grouped(reading=reading)
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A model file.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    data: Tests,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="An HTML page too.", show_default=False)
    ] = None,
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
    """Put two models side by side: the difference of each metric on the same rows, and whether it is chance.

    Example: smoothlink compare old.safetensors new.safetensors test.txt.xz
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.reports.comparison import compared
    from smoothlink.reports.report_page import Drawn
    from smoothlink.reports.test_data import trial_in_files

    screen, paths = Screen(quiet), expanded(data)
    if output is not None:
        writable(output, first, second, *paths, kind="page", force=force)
    for model in (first, second):
        load_model(model, rank_by, device)
    asked: dict[str, Any] = {"rank_by": rank_by, "how": reading, "strict": strict, "device": device}
    with screen.working("measuring"):
        trials = (
            trial_in_files(first, paths, note=screen.note, **asked),
            trial_in_files(second, paths, **asked),
        )
        found = compared(trials, told_apart(first, second), named(paths), Drawn(bootstraps, seed))
    if output is not None:
        found.save(output)
        screen.note(f"{output}: {size(len(found.html.encode()))}. Open it in a browser.")
    print_json(as_object(found)) if as_json else show(found, screen)


def told_apart(first: str, second: str) -> tuple[str, str]:
    """Names of the models: those of their files, or where these are alike, of their paths."""
    short = tuple(os.path.basename(path).removesuffix(".safetensors") for path in (first, second))
    return (short[0], short[1]) if short[0] != short[1] else (f"{first} (A)", f"{second} (B)")


def as_object(found: Comparison) -> dict[str, Any]:
    """Both values and the difference of each metric."""
    metrics = {key: {side: m._asdict() for side, m in pair._asdict().items()} for key, pair in found.metrics.items()}
    return {
        "first": found.names[0],
        "second": found.names[1],
        "metrics": metrics,
        "first_label_right": found.agreement._asdict(),
        "rows": found.measured[0].n,
    }


def show(found: Comparison, screen: Screen) -> None:
    """The better value in bold where the difference is more than chance."""
    rows = plural(found.measured[0].n, "row")
    shown = table("metric", *(f">{name}" for name in found.names), ">difference", ">90 % interval", title=rows)
    for key, (first, second, d) in found.metrics.items():
        if key.partition("@")[2] not in ("", "1", "3", "5"):
            continue
        who = better(key, d)
        values = [
            f"[bold]{m.value:.4f}[/]" if who == side else f"{m.value:.4f}" for m, side in ((first, 1), (second, -1))
        ]
        interval = "" if d.low != d.low else f"{d.low:+.4f} to {d.high:+.4f}"
        shown.add_row(key, *values, f"{d.value:+.4f}", interval)
    screen.out.print()
    screen.out.print(shown)
    a = found.agreement
    text = (
        f"First label right: both {a.both:,}, only {found.names[0]} {a.first:,}, only {found.names[1]} {a.second:,}, "
    )
    screen.out.print(plain_text(f"{text}neither {a.neither:,}."))
