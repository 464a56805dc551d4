"""`smoothlink predict`: a model and data files -> the labels of each row."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import read_rows, reading
from smoothlink.cli.screen import Screen
from smoothlink.cli.shared_options import (
    Cluster,
    Device,
    Force,
    Model,
    Naming,
    Quiet,
    RankBy,
    Strict,
    dashboard,
    grouped,
    load_model,
    naming,
    on_cluster,
)
from smoothlink.data.matching import Reading, RowsToPredict, inside, matched
from smoothlink.data.overwrite import writable
from smoothlink.data.predictions import OUTPUT_SUFFIXES, LabelRequest, OutputForm, format_of, write
from smoothlink.errors import DataError, plural
from smoothlink.parameters import LEVEL

if TYPE_CHECKING:
    from smoothlink.data.read import Data


def option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, show_default=False, rich_help_panel="Which labels", **more)


def guarantee(**more: Any) -> Any:
    return typer.Option(show_default=False, metavar="P", rich_help_panel="Sets with a guarantee", **more)


def asked(
    *,
    k: Annotated[
        int | None,
        option(
            "-k",
            "--top",
            min=1,
            metavar="K",
            help="The K best of each row; with --threshold, --f1 or --sets, at most K. Without any of these: the "
            "best 5, or --sets where the model was trained with --aim.",
        ),
    ] = None,
    threshold: Annotated[
        float | None, option(min=0, max=1, metavar="P", help="All labels of probability P or more.")
    ] = None,
    f1: Annotated[bool, option("--f1", help="Label sets for a high F1 of each label (Algorithm 4).")] = False,
    sets: Annotated[
        bool,
        option(
            "--sets",
            help="All labels from the model's own thresholds on (train --aim; 1/2 by default); multiclass: the best.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None, option(metavar="LABELS", help="Only these labels, by name or number: --only numpy,scipy.")
    ] = None,
    rank_by: RankBy = "probability",
    guarantee_coverage: Annotated[
        float | None,
        guarantee(help="Sets that hold all labels of a row with probability P (train --conformal)."),
    ] = None,
    guarantee_recall: Annotated[
        float | None, guarantee(help="Sets that hold the share P of a row's labels on average.")
    ] = None,
    guarantee_precision: Annotated[
        float | None,
        guarantee(
            help="--sets, with the columns released (rows whose labels are right to the share P on average, with "
            "probability 0.95), confidence, and review: the place of the other rows in a queue, least certain first."
        ),
    ] = None,
) -> LabelRequest:
    """Which labels are wanted of each row."""
    if (threshold is not None) + f1 + sets > 1:
        raise typer.BadParameter("these exclude each other; pass one.", param_hint="--threshold, --f1, --sets")
    promised = {"coverage": guarantee_coverage, "recall": guarantee_recall, "precision": guarantee_precision}
    for name, level in promised.items():
        if level is not None and level not in LEVEL:
            raise typer.BadParameter(f"{level:g} is not {LEVEL.number}.", param_hint=f"--guarantee-{name}")
    asked = LabelRequest(k, threshold, f1, sets, tuple(only or ()), rank_by, **promised)
    try:
        asked.check()
    except DataError as error:
        raise typer.BadParameter(str(error), param_hint="--guarantee-...") from error
    return asked


def table_option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, show_default=False, rich_help_panel="The table of predictions", **more)


@grouped(reading=reading, ask=asked, names=naming)
def predict(
    model: Model,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            show_default=False,
            help="Data files; * in a name stands for any text, - is standard input. Labels in them are ignored.",
        ),
    ] = None,
    document: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", show_default=False, help="A text to predict labels for, instead of a file; may be repeated."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write the predictions to, in the format of its name; without it or with -, standard output.",
        ),
    ] = None,
    output_folder: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder to write to: a file of predictions for each input, under its name."
        ),
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(OUTPUT_SUFFIXES),
            help="Format of the predictions, if it is not that of the output's name; else JSON lines.",
        ),
    ] = None,
    all_columns: Annotated[
        bool,
        table_option("--all-columns", help="Copy all columns of the input, not only that of --id or the row number."),
    ] = False,
    long: Annotated[
        bool, table_option("--long", help="A row for each label of a document, instead of one for each document.")
    ] = False,
    device: Device = "cpu",
    cluster: Cluster = None,
    strict: Strict = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output-format jsonl.")] = False,
    *,
    reading: Reading,
    ask: LabelRequest,
    names: Naming,
) -> None:
    """Predict the labels of each row of data files, with probabilities.

    Example: smoothlink predict model.safetensors new.xlsx --id isbn --threshold 0.5 -o tags.xlsx
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.file_prediction import check_columns, label_separator

    asked_format = "jsonl" if as_json else output_format
    if asked_format not in (None, *OUTPUT_SUFFIXES):
        known = "|".join(OUTPUT_SUFFIXES)
        raise typer.BadParameter(f"{asked_format!r} is none of {known}.", param_hint="--output-format")
    if bool(data) == bool(document):
        raise typer.BadParameter("pass data files, - for standard input, or --document TEXT.", param_hint="INPUT")
    paths = expanded(data) if data else []
    output = None if output == "-" else output
    check_target(paths, output, output_folder, cluster)
    form = format_of(output, asked_format)
    check_columns(form, reading, long=long, all_columns=all_columns, review=ask.precision is not None)
    if output is not None:
        writable(output, model, *paths, kind="data", force=force)
    screen = Screen(quiet)
    whole = names.applied(load_model(model, ask.rank_by, device), screen)
    loaded = inside(whole)
    try:
        resolved = ask.resolved(loaded)
    except DataError as error:
        if ask.guarantees:
            raise
        raise typer.BadParameter(str(error), param_hint="--only") from error
    if output_folder is None:
        if document:
            found = RowsToPredict(typed_rows(whole, document))
        else:
            found = read_rows(paths[0], reading, screen, whole, all_columns=all_columns)
        X = matched(found.data, paths[0] if paths else "--document", loaded, strict=strict, note=screen.note).X
        # No bar where the predictions themselves scroll past.
        hidden = Screen(quiet=quiet or (output is None and sys.stdout.isatty()))
        with hidden.rows("predicting", X.shape[0]) as advance:
            write(output, loaded, X, resolved, OutputForm(form, long, label_separator(whole)), advance, found.kept)
        return
    with on_cluster(cluster, screen):
        given: dict[str, Any] = {"how": reading, "strict": strict, "device": device, "force": force}
        given |= {"long": long, "all_columns": all_columns, "vocabulary": loaded.vocabulary_}
        into_folder(model, paths, output_folder, screen, form=form, ask=ask, **given)


def typed_rows(model: Any, texts: list[str]) -> Data:
    """The rows of texts from the command line."""
    from smoothlink.data.read import Data
    from smoothlink.labels import indicator
    from smoothlink.text.numbers import Document

    if inside(model) is model:
        raise typer.BadParameter("the model was trained on feature vectors, not on texts.", param_hint="--document")
    return Data(model.features_.transform([Document(text) for text in texts]), indicator([[] for _ in texts], 0))


def check_target(paths: list[str], output: str | None, folder: str | None, cluster: str | None) -> None:
    """Whether it is clear where the predictions go."""
    if folder is not None and not paths:
        raise typer.BadParameter("it is for data files; leave it out.", param_hint="--output-folder")
    if folder is None and (len(paths) > 1 or cluster is not None):
        what = plural(len(paths), "input") if len(paths) > 1 else "a cluster"
        raise typer.BadParameter(f"{what}: name a folder for the files of predictions.", param_hint="--output-folder")
    if folder is not None and output is not None:
        raise typer.BadParameter("these exclude each other; pass one.", param_hint="--output, --output-folder")


def into_folder(
    model: str, paths: list[str], folder: str, screen: Screen, *, ask: LabelRequest, form: str, **given: Any
) -> None:
    """A file of predictions for each input, on the cluster if there is one; what was written is told as it comes."""
    from smoothlink.file_prediction import Written, predict_files

    dashboard(screen)
    with screen.files("predicting", len(paths)) as advance:

        def notify(written: Written) -> None:
            for text in [*written.notes, f"{written.path}: {plural(written.rows, 'row')}."]:
                screen.note(text)
            advance(written.rows)

        predict_files(model, paths, folder, output_format=form, notify=notify, **ask._asdict(), **given)
