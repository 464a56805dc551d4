"""`smoothlink tune`: a data file -> the best settings for each metric, in a JSON file that `train --params` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import read_data, reading
from smoothlink.cli.screen import Screen, number, print_json, table
from smoothlink.cli.shared_options import AsJson, FitDevice, Force, Quiet, check_device, grouped
from smoothlink.cli.text_options import Texts, hold_texts, read_texts, texts
from smoothlink.data.matching import Reading
from smoothlink.data.overwrite import writable
from smoothlink.errors import plural
from smoothlink.metrics.names import check_metric, format_value

if TYPE_CHECKING:
    from smoothlink.data.read import Data
    from smoothlink.search import Best, Tuned


@grouped(reading=reading, texts=texts)
def tune(
    data: Annotated[str, typer.Argument(metavar="TRAIN", help="A data file, plain or compressed.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="PARAMS", help="File to write the best settings to.")
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Metric to tune for, such as p@1 or hamming; may be repeated. The first one guides the search.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials, including those of a resumed study.")] = 60,
    sampler: Annotated[
        str,
        typer.Option(
            metavar="random|tpe", help="How settings are drawn: at random, as in the paper, or by tpe (Optuna)."
        ),
    ] = "random",
    study: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File that records the trials, so that a search that was stopped can go on."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the study in that file.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes among which trials and cores are divided.")] = 1,
    holdouts: Annotated[
        int,
        typer.Option(
            min=1, max=10, help="Number of tenths of the rows that are held out in turn; more are steadier and slower."
        ),
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the held-out rows, the draws and the random features.")] = 0,
    device: FitDevice = "cpu",
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
    texts: Texts,
) -> None:
    """Search the settings that are best on held-out rows, separately for each metric.

    Example: smoothlink tune train.txt.xz --metric hamming --trials 60 -o tuned.json
    """
    writable(output, data, kind="settings", force=force)
    try:
        metrics = [check_metric(name) for name in metric or ["p@1"]]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--metric") from None
    check_device(device)
    screen = Screen(quiet)
    found = read_either(data, reading, texts, screen)
    from smoothlink.search import tune as search

    with screen.trials(trials) as advance:

        def notify(finished: int, best: dict[str, Best]) -> None:
            advance(finished, ", ".join(f"{name} {number(b.value)}" for name, b in best.items()))

        result = search(
            found.X,
            found.Y,
            metrics=metrics,
            trials=trials,
            sampler=sampler,
            seed=seed,
            study=study,
            resume=resume,
            jobs=jobs,
            holdouts=holdouts,
            device=device,
            notify=notify,
        )
    if not result.best:
        reason = next(iter(result.failed.values()), "none was run")
        kind = MemoryError if reason.startswith("MemoryError") else ValueError
        raise kind(f"No trial succeeded. The first reason: {reason}.")
    result.save(output)
    if as_json:
        print_json(as_object(result))
    elif not quiet:
        show(result, output, screen)


def read_either(path: str, how: Reading, options: Texts, screen: Screen) -> Data:
    """Returns rows of numbers, or the features of texts by these options."""
    how = how.recognised(path)
    if not hold_texts([path], how, options):
        return read_data(path, how, screen)
    from smoothlink.data.read import Data
    from smoothlink.labels import read_labels
    from smoothlink.text.features import TextFeatures

    found, _ = read_texts([path], how, options, screen)
    given = read_labels(found.labels)
    given_features = {name: value for name, value in options.options.items() if name != "examples"}
    return Data(TextFeatures(**given_features).fit_transform(found.texts, given.Y), given.Y, given.names)


def as_object(result: Tuned) -> dict[str, Any]:
    best = {metric: b._asdict() for metric, b in result.best.items()}
    return {"best": best, "finished": result.finished, "pruned": result.pruned, "failed": result.failed}


def show(result: Tuned, output: str, screen: Screen) -> None:
    """Prints the best settings, a column for each metric."""
    names = list(dict.fromkeys(name for best in result.best.values() for name in best.params))
    shown = table("setting", *(f">{metric}" for metric in result.best))
    shown.add_row("on held-out rows", *(format_value(metric, best.value) for metric, best in result.best.items()))
    shown.add_section()
    for name in names:
        values = (best.params.get(name, "") for best in result.best.values())
        shown.add_row(name.replace("_", " "), *(v if isinstance(v, str) else text(v) for v in values))
    screen.out.print()
    screen.out.print(shown)
    failed = f", {len(result.failed)} failed" if result.failed else ""
    screen.out.print(f"{plural(result.finished, 'trial')} finished, {result.pruned} pruned{failed}.")
    first = next(iter(result.best))
    screen.out.print(f"Next: smoothlink train TRAIN --params {output} --params-for {first} -o MODEL", markup=False)


def text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else number(value)
