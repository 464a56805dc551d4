"""`smoothlink predict`: a model and a data file -> the labels of each row."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from smoothlink.cli.answers import WRITERS, Ask, answers
from smoothlink.cli.data import Reading, label_names, matched, read_data, reading, writable
from smoothlink.cli.options import Device, Model, Quiet, RankBy, Strict, grouped, load_model
from smoothlink.cli.screen import Screen

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier


TOGETHER = 1 << 16  # rows that keep a device busy


def option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, show_default=False, rich_help_panel="Which labels", **more)


def asked(
    *,
    k: Annotated[
        int | None, option("-k", "--top", min=1, metavar="K", help="The K best of each row (5); of a set, at most K.")
    ] = None,
    threshold: Annotated[float | None, option(min=0, max=1, metavar="P", help="All of probability P or more.")] = None,
    f1: Annotated[bool, option("--f1", help="Label sets for a high F1 of each label (Algorithm 4).")] = False,
    sets: Annotated[bool, option("--sets", help="Those more likely than not; multiclass: the one best.")] = False,
    only: Annotated[
        list[str] | None, option(metavar="LABELS", help="Only these, by name or number: --only numpy,scipy.")
    ] = None,
    rank_by: RankBy = None,
) -> Ask:
    """Which labels are wanted of each row."""
    if (threshold is not None) + f1 + sets > 1:
        raise typer.BadParameter("these exclude each other; pass one.", param_hint="--threshold, --f1, --sets")
    return Ask(k, threshold, f1, sets, tuple(only or ()), rank_by)


@grouped(reading=reading, ask=asked)
def predict(
    model: Model,
    data: Annotated[str, typer.Argument(metavar="INPUT", help="A data file; its labels, if any, are not looked at.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="A file instead of standard output; .gz compresses."),
    ] = None,
    output_format: Annotated[
        str, typer.Option(metavar="|".join(WRITERS), help="JSON lines, tab-separated, or XMC text.")
    ] = "jsonl",
    device: Device = "cpu",
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output-format jsonl.")] = False,
    *,
    reading: Reading,
    ask: Ask,
) -> None:
    """Predict the labels of each row of a data file, with probabilities.

    Example: smoothlink predict model.safetensors test.txt.xz -k 3
    """
    form = "jsonl" if as_json else output_format
    if form not in WRITERS:
        raise typer.BadParameter(f"{form!r} is none of {'|'.join(WRITERS)}.", param_hint="--output-format")
    if output is not None:
        writable(output, model, data)
    screen = Screen(quiet)
    loaded = load_model(model, ask.rank_by, device)
    ask = ask.resolved(loaded)
    found = read_data(data, reading, screen, labels_matter=False)
    X = matched(found, data, reading, loaded, strict=strict, screen=screen).X
    with target(output) as stream:
        write(stream, loaded, X, ask, form, screen)


def write(stream: TextIO, model: SmoothLinkClassifier, X: Any, ask: Ask, form: str, screen: Screen) -> None:
    """Block after block, so that predictions never are in memory all at once."""
    names = label_names(model)
    writer = WRITERS[form]
    stream.write(writer.header(X.shape[0], len(names)))
    # No bar where the predictions themselves scroll past.
    hidden = Screen(quiet=screen.quiet or (stream is sys.stdout and sys.stdout.isatty()))
    with hidden.rows("predicting", X.shape[0]) as advance:
        for part in parts(model, X.shape[0], ask):
            for row, (labels, probabilities) in enumerate(answers(model, X[part], ask), part.start):
                stream.write(writer.line(row, labels, probabilities, names))
            advance(part.stop - part.start)


def parts(model: SmoothLinkClassifier, n: int, ask: Ask) -> Iterator[slice]:
    """Rows that are asked about together: as many as have room for their probabilities, or many where a device finds
    their best few labels."""
    from smoothlink.model import blocks

    best = model.device != "cpu" and not ask.whole and not ask.only
    return blocks(n, TOGETHER) if best else model.model_.row_blocks(n)


@contextmanager
def target(path: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when it is whole."""
    if path is None:
        yield sys.stdout
        return
    from smoothlink.steps.formats._files import replacing

    with replacing(path) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
        yield text
        text.flush()
        text.detach()
