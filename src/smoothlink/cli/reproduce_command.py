"""`smoothlink reproduce`: an experiment of the paper -> a JSON record, a page and its picture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from smoothlink.cli.screen import Screen, print_json
from smoothlink.cli.shared_options import AsJson, FitDevice, Quiet, check_device
from smoothlink.errors import SmoothLinkError


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="An experiment of the paper; without a name they are listed."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where the data sets are, if not in $SMOOTHLINK_DATA.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Folder to write to: results/NAME/DATE.json, docs/results/NAME.md and .svg. A quick run, and one that "
            "measured less than the existing record, write all three to results/NAME, as quick-DATE or partial-DATE.",
        ),
    ] = ".",
    trials: Annotated[int, typer.Option(min=1, help="Trials of each search.")] = 60,
    quick: Annotated[bool, typer.Option("--quick", help="A few rows and trials, to see that it works.")] = False,
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="The benchmarks folder of a checkout, which runs the peer libraries; not needed inside a checkout.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of holdouts, draws and features.")] = 0,
    device: FitDevice = "cpu",
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the result of each fit and search here, and take it from here where code, data and settings are "
            "the same: an interrupted run goes on.",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of the paper again, from its protocol.

    Example: smoothlink reproduce mulan --data data
    """
    try:
        from smoothlink_paper import NAMES, WITH_PEERS, experiment
    except ModuleNotFoundError as missing:
        if missing.name != "smoothlink_paper":
            raise
        raise SmoothLinkError(
            "The package smoothlink_paper, which holds the experiments, is not installed.\n"
            "It comes with smoothlink: pip install --force-reinstall smoothlink."
        ) from missing
    screen = Screen(quiet)
    if name is None:
        screen.out.print("\n".join(f"{known}: {about}" for known, about in NAMES.items()), markup=False)
        return
    if name not in NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}.", param_hint="NAME")
    if peers is not None and name not in WITH_PEERS:
        raise typer.BadParameter(f"{name} runs no peers; {', '.join(WITH_PEERS)} do.", param_hint="--peers")
    check_device(device)
    from smoothlink_paper.data_sets import root
    from smoothlink_paper.record import compared, publish, store
    from smoothlink_paper.result import keep_in
    from smoothlink_paper.runners import load_peers

    given: dict[str, Any] = {"trials": trials, "quick": quick, "seed": seed, "device": device, "notify": screen.note}
    if name in WITH_PEERS:
        given["peers"] = load_peers(None if peers is None else Path(peers))
    folder = Path(output)
    with keep_in(None if keep is None else Path(keep)) as taken:
        record = experiment(name).run(root(data), **given) | ({"kept": Counter(taken)} if taken else {})
    record = compared(record, folder, quick=quick)
    if record.get("variant") == "partial":
        screen.note(f"This run does not replace the published one: {', and '.join(record['lacks'])}.")
    made = [store(record, folder), *publish(record, folder, screen.note)]
    if as_json:
        print_json(record)
    elif not quiet:
        screen.out.print("\n".join(map(str, made)), markup=False)
