"""`smoothlink watch`: a model and new files without labels -> how good predictions are likely to be, and an alarm."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import read_data, reading
from smoothlink.cli.screen import Screen, plain_text, print_json, table
from smoothlink.cli.shared_options import AsJson, Device, Model, Quiet, Strict, grouped, load_model
from smoothlink.data.matching import Reading, inside, matched
from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from smoothlink.drift import Status

ALARM = 3  # the exit code
STATISTICS = {  # what raised an alarm, in words
    "top": "the probabilities of top labels",
    "frequency": "which labels are predicted",
    "length": "the length of rows in the embedding",
    "unknown": "the share of unknown words",
}


@grouped(reading=reading)
def watch(
    model: Model,
    data: Annotated[
        list[str], typer.Argument(metavar="INPUT", help="Data files, oldest first. Labels in them are ignored.")
    ],
    state: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File in which the watch goes on from call to call; it is made by the first.",
            show_default=False,
        ),
    ] = None,
    false_alarms: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Probability of an alarm over the whole watch while nothing changes; 0.01 if not given. A watch that "
            "goes on has the one it began with.",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Data as it should be, which the model was not trained on, to compare with in place of the rows that "
            "were held out in training.",
            show_default=False,
        ),
    ] = None,
    device: Device = "cpu",
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Say how good predictions for new rows are likely to be, without labels, and whether the rows have changed.

    The exit code is 3 if there is an alarm.

    Example: smoothlink watch model.safetensors monday.jsonl --state watch.json
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.data.overwrite import writable
    from smoothlink.drift import FALSE_ALARMS, Watch

    if false_alarms is not None and not 0 < false_alarms < 1:
        raise typer.BadParameter(f"{false_alarms} is not between 0 and 1.", param_hint="--false-alarms")
    goes_on = state is not None and os.path.exists(state)
    if goes_on and (false_alarms is not None or reference is not None):
        raise typer.BadParameter(
            f"{state} goes on with what it began with; leave these out, or name a new file.",
            param_hint="--false-alarms, --reference",
        )
    paths = expanded(data)
    if state is not None:
        writable(state, model, *paths, kind="watch")
    screen = Screen(quiet)
    loaded = load_model(model, device=device)
    if goes_on and state is not None:
        found = Watch.load(loaded, state)
    else:
        known = None if reference is None else rows_of(loaded, reference, reading, screen, strict=strict)
        found = Watch(loaded, FALSE_ALARMS if false_alarms is None else false_alarms, known)
    for path in paths:
        rows = rows_of(loaded, path, reading, screen, strict=strict)
        with screen.working(f"looking at {os.path.basename(path)}"):
            found.add(rows)
    inside(loaded).model_.finish_verification()
    if state is not None:
        found.save(state)
    status = found.status
    if as_json:
        print_json({**status._asdict(), "labels": [shift._asdict() for shift in status.labels]})
    else:
        show(status, screen)
    if status.alarm:
        raise typer.Exit(ALARM)


def rows_of(model: Any, path: str, how: Reading, screen: Screen, *, strict: bool) -> Any:
    """Returns the texts in a file, or its rows with the features of the model."""
    how = how.for_model(model, path)
    if inside(model) is model:
        data = read_data(path, how, screen, labels_matter=False, model=model)
        found = matched(data, path, model, strict=strict, note=screen.note).X
        count = found.shape[0]
    elif how.text_format(path) is None:
        raise DataError(f"{path} holds feature vectors, and the model was trained on texts.\nPass a file of texts.")
    else:
        from smoothlink.text.documents import from_meta, read_documents

        found = read_documents(path, how.source(path, from_meta(model.source_)), labels_matter=False).texts
        count = len(found)
    if not count:
        raise DataError(f"{path} has no rows.\nPass a file with one at least.")
    return found


def show(status: Status, screen: Screen) -> None:
    """Prints the numbers now and at training, the labels that changed most, and whether there is an alarm."""
    shown = table("", ">now", ">training", title=plural(status.rows, "row"))
    shown.add_row("expected P@1", percent(status.expected_p1), percent(status.p1_before))
    shown.add_row("expected micro-F1", percent(status.expected_f1), percent(status.f1_before))
    shown.add_row("unknown words", percent(status.unknown_words), percent(status.unknown_words_before))
    shown.add_row("median length of h", digits(status.length), digits(status.length_before))
    screen.out.print()
    screen.out.print(shown)
    labels = table("label", ">now", ">training", ">sure", title="Labels whose share changed most")
    for shift in status.labels:
        labels.add_row(
            plain_text(shift.label), percent(shift.now), percent(shift.before), f"{100 * shift.certainty:.0f} %"
        )
    screen.out.print(labels)
    why = "" if not status.alarm else ", by " + ", ".join(STATISTICS[name] for name in status.alarmed)
    rate = f"{100 * status.false_alarms:g} % of watches without a change raise one"
    screen.out.print(f"{'[bold red]Alarm[/]' if status.alarm else 'No alarm'}{why} ({rate}).")


def percent(value: float) -> str:
    return "" if value != value else f"{100 * value:.1f} %"


def digits(value: float) -> str:
    return "" if value != value else f"{value:.2f}"
