"""`smoothlink reproduce`: an experiment of the paper -> a JSON record and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
        typer.Option("--output", "-o", metavar="FOLDER", help="Gets results/NAME-DATE.json and docs/results/NAME.md."),
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
    page = Path(output) / "docs" / "results" / f"{name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(module.page(record))
    if as_json:
        print_json(record)
    elif not quiet:
        screen.out.print(f"{stored}\n{page}", markup=False)
