"""`smoothlink reproduce`: an experiment of the paper -> a JSON record, a page and its picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from smoothlink.cli.options import AsJson, Quiet
from smoothlink.cli.screen import Screen, print_json
from smoothlink.experiments import NAMES, experiment


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="; ".join(f"{k}: {v}" for k, v in NAMES.items()) + ".")],
    data: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where the data sets are, if not in $SMOOTHLINK_DATA.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Gets results/NAME-DATE.json, docs/results/NAME.md and .svg."
        ),
    ] = ".",
    trials: Annotated[int, typer.Option(min=1, help="Of each search.")] = 60,
    quick: Annotated[bool, typer.Option("--quick", help="A few rows and trials, to see that it works.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of holdout, draws and features.")] = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of the paper again, from its protocol.

    Example: smoothlink reproduce mulan --data data
    """
    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}.", param_hint="NAME")
    screen = Screen(quiet)
    from smoothlink.experiments.data import root
    from smoothlink.experiments.record import store

    module = experiment(name)
    record = module.run(root(data), trials=trials, quick=quick, seed=seed, notify=screen.note)
    stored = store(record, Path(output))
    made = publish(record, Path(output), screen.note)
    if as_json:
        print_json(record)
    elif not quiet:
        screen.out.print("\n".join(map(str, [stored, *made])), markup=False)


def publish(record: dict[str, Any], folder: Path, notify: Callable[[str], None]) -> list[Path]:
    """Writes the page of a record, and beside it the picture where the experiment has one and matplotlib is there."""
    module = experiment(record["experiment"])
    page = folder / "docs" / "results" / f"{record['experiment']}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(module.page(record))
    if not hasattr(module, "plot"):
        return [page]
    from smoothlink.experiments.plots import save

    picture = page.with_suffix(".svg")
    try:
        save(module.plot(record), picture)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "matplotlib":
            raise
        notify(f"{picture} was not drawn, which takes matplotlib: install smoothlink[report] for the picture.")
        return [page]
    return [page, picture]
