"""Data files for commands: read as the options say, with notes on what was read."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.screen import Screen, size
from smoothlink.data.matching import Reading, RowsToPredict, join_rows, read_for
from smoothlink.errors import plural

if TYPE_CHECKING:
    from smoothlink.data.read import Data
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink

READING_PANEL = "Reading the data"


def option(*names: str, help: str, metavar: str | None = None) -> Any:
    """A reader option: its default is part of its help."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, rich_help_panel=READING_PANEL)


def reading(
    *,
    format: Annotated[
        str,
        option(
            metavar="NAME",
            help="Format of the data files, if it is not recognised. Feature vectors: xmc, xmc-new, lshtc, svmlight, "
            "arff, vw, npz or binary. Texts: jsonl, csv, tsv, parquet, xlsx, lines, fasttext or folder.",
        ),
    ] = "auto",
    text: Annotated[
        str | None,
        option(
            metavar="COLUMNS",
            help="Columns that hold the text, by name or number: --text title,body. Without it: text.",
        ),
    ] = None,
    numbers: Annotated[
        str | None,
        option(
            metavar="COLUMNS",
            help="Columns of numbers to learn from besides the text: --numbers vector (a list of numbers in each row) "
            "or --numbers year,pages. Without it: as in training, or none.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        option(
            metavar="COLUMNS|auto|N",
            help="Columns that hold the labels of each document, or that are 0 or 1 for a label each: --labels tags, "
            "--labels a,b,c, --labels 'topic_*'. For feature vectors, the number of labels. "
            "Without it: labels, or as the header says.",
        ),
    ] = None,
    label_separator: Annotated[
        str | None,
        option(
            metavar="TEXT",
            help="Text between the labels of a cell, such as \",\". list: cells like \\['a', 'b']. none: a cell is one "
            "label. Without it, the separator is guessed, and the guess is printed.",
        ),
    ] = None,
    label_prefix: Annotated[
        str, option(metavar="TEXT", help="Use only the labels that begin with this text: --label-prefix topics:.")
    ] = "",
    header: Annotated[
        bool | None,
        option(
            "--header/--no-header",
            help="Whether tables have a header line; without it, they have one, unless columns are given by number and "
            "the first line looks like the others.",
        ),
    ] = None,
    id: Annotated[
        str | None,
        option(
            metavar="COLUMN", help="Column that says which document it is. A model stores its name, as of the others."
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        option(
            metavar="NAME", help="Encoding of files of texts, such as cp1252. Without it: UTF-8, or UTF-16 by its mark."
        ),
    ] = None,
    features: Annotated[
        str | None, option(metavar="auto|N", help="Number of features, if it is not as the header says.")
    ] = None,
    labels_file: Annotated[
        str | None, option(metavar="FILE", help="File with the labels, where they are not in the data file.")
    ] = None,
    zero_based: Annotated[
        bool | None,
        option(
            "--zero-based/--one-based",
            help="Whether features of svmlight files count from 0 or 1; without it, as in training, or guessed.",
        ),
    ] = None,
    label_names: Annotated[
        str | None,
        option(
            metavar="FILE",
            help="File with the names of the labels, one per line; without it, labels.txt in the same folder.",
        ),
    ] = None,
    feature_names: Annotated[
        str | None,
        option(
            metavar="FILE",
            help="File with the names of the features, one per line; without it, features.txt in the same folder.",
        ),
    ] = None,
) -> Reading:
    """The reader options of a command."""
    columns = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if format != "auto":
        known_format("--format", format, texts=True)
    if labels is not None and labels.startswith("-"):
        raise typer.BadParameter(f"{labels!r} is neither a column, auto nor a number.", param_hint="--labels")
    given: int | str | None = int(labels) if labels is not None and labels.isdecimal() else labels
    return Reading(
        format=format,
        labels=given,
        features=count("--features", features),
        labels_file=labels_file,
        zero_based=zero_based,
        label_names=label_names,
        feature_names=feature_names,
        text=columns,
        label_separator=separator(label_separator),
        label_prefix=label_prefix,
        header=header,
        id=id,
        encoding=encoding,
        numbers=tuple(name.strip() for name in (numbers or "").split(",") if name.strip()),
    )


def known_format(option: str, name: str, *, texts: bool = False) -> str:
    from smoothlink.data.formats import ALL_FORMATS, FORMATS

    known = ALL_FORMATS if texts else FORMATS
    if name not in known:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}.", param_hint=option)
    return name


def separator(text: str | None) -> str | None:
    """What was typed for it: a tab can hardly be."""
    return {"\\t": "\t", "tab": "\t", "space": " "}.get(text, text) if text else None


def count(option: str, text: str | None) -> int | str | None:
    """A number of columns, or auto."""
    if text is None or text == "auto":
        return text
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is neither auto nor a number.", param_hint=option)
    return int(text)


def read_data(path: str, how: Reading, screen: Screen, *, labels_matter: bool = True, model: Any = None) -> Data:
    """The data in a file, and a note on what was read and how fast."""
    from smoothlink.data.folder import bytes_in

    began = time.perf_counter()
    with screen.working(f"reading {os.path.basename(path)}"):
        data = how.read(path, labels_matter=labels_matter, model=model, note=screen.note)
    seconds, (n, d), c = time.perf_counter() - began, data.X.shape, data.Y.shape[1]
    counts = ", ".join([plural(n, "row"), plural(d, "feature"), *([plural(c, "label")] if labels_matter else [])])
    how_read = f"read in {seconds:.1f} s ({size(bytes_in(path) / max(seconds, 1e-9))}/s)"
    screen.note(f"{path}: {counts}; {'mapped' if os.path.isdir(path) else how_read}.")
    return data


def read_rows(
    path: str, how: Reading, screen: Screen, model: SmoothLinkClassifier | TextSmoothLink, *, all_columns: bool
) -> RowsToPredict:
    """The rows of a file for a model, labels left out."""
    how = how.for_model(model, path)
    if how.text_format(path) is None and not all_columns:
        return RowsToPredict(read_data(path, how, screen, labels_matter=False, model=model))
    with screen.working(f"reading {os.path.basename(path)}"):
        return read_for(model, path, how, labels_matter=False, all_columns=all_columns, note=screen.note)


def read_several(paths: list[str], how: Reading, screen: Screen, model: Any = None) -> Data:
    """The rows of several files as those of one; for a model as those that it was trained on."""
    how = how.for_many(paths)
    found = [read_data(path, how, screen, model=model) for path in paths]
    if {data.zero_based for data in found} >= {True, False}:  # a feature 0 of one file settles it for all
        again = how._replace(zero_based=True)
        found = [
            read_data(path, again, screen) if data.zero_based is False else data
            for path, data in zip(paths, found, strict=True)
        ]
    return join_rows(paths, found)
