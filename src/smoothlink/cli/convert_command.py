"""`smoothlink convert`: a data file -> the same data in another format, or a model file -> the same in fewer bits."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from smoothlink.cli.data_options import known_format, read_data, reading
from smoothlink.cli.info_command import is_model
from smoothlink.cli.screen import Screen, print_json, size
from smoothlink.cli.shared_options import AsJson, Dtype, Force, Quiet, check_dtype, grouped
from smoothlink.data.matching import Reading
from smoothlink.data.overwrite import writable
from smoothlink.errors import DataError


@grouped(reading=reading)
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A data file, plain or compressed, or a model file.")],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="File to write; its name decides the format and the compression.")
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The format to write: xmc, xmc-new, lshtc, svmlight, arff, vw, npz or binary."
        ),
    ] = "auto",
    dtype: Dtype = None,
    prune: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Share of the sparse weights of a model's labels to leave out, the smallest first.",
            show_default=False,
        ),
    ] = 0.0,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Convert a data file to another format or compression, or a model to smaller numbers.

    Example: smoothlink convert mulan.arff train.txt.xz

    Example: smoothlink convert model.safetensors small.safetensors --dtype int8
    """
    from smoothlink.data.folder import bytes_in

    check_dtype(dtype)
    if is_model(source):
        writable(target, source, kind="model", force=force)
        convert_model(source, target, dtype, prune, Screen(quiet), as_json=as_json)
        return
    if dtype is not None or prune:
        raise DataError(f"{source} is not a model, and --dtype and --prune are for one.\nLeave them out.")
    kind = format_of(target, to)
    for path in files_of(target, kind):
        writable(path, source, kind="data", force=force, folder_too=kind == "binary")
    screen = Screen(quiet)
    n, d, c = convert_in_blocks(source, target, kind, reading, screen) or read_and_write(
        source, target, kind, reading, screen
    )
    written = bytes_in(target)
    if as_json:
        print_json({"path": target, "rows": n, "features": d, "labels": c, "bytes": written})
    else:
        screen.note(f"{target}: {size(written)} written.")


def convert_model(source: str, target: str, dtype: str | None, prune: float, screen: Screen, *, as_json: bool) -> None:
    """Writes a model with its weights in other numbers, or without `dtype` as they are, and without some of them."""
    from smoothlink.modelfile import load

    with screen.working(f"writing {target}"):
        load(source).save(target, dtype=dtype, prune=prune)
    before, after = (os.path.getsize(path) for path in (source, target))
    if as_json:
        print_json({"path": target, "dtype": dtype, "bytes": after, "bytes_before": before})
    else:
        screen.note(f"{target}: {size(after)} written, where {source} has {size(before)}.")


def convert_in_blocks(source: str, target: str, kind: str, how: Reading, screen: Screen) -> tuple[int, int, int] | None:
    """Text to a data folder block by block, where nothing but the rows has to be known."""
    from smoothlink.data.read import convert

    if kind != "binary" or how.label_names or how.feature_names or how.labels_file:
        return None
    with screen.working(f"writing {target}"):
        counts: dict[str, Any] = {"n_labels": how.labels, "n_features": how.features}
        return convert(source, target, format=how.format, to=kind, **counts)


def read_and_write(source: str, target: str, kind: str, how: Reading, screen: Screen) -> tuple[int, int, int]:
    """All rows read, then written."""
    from smoothlink.data.read import write

    data = read_data(source, how, screen)
    if kind == "lshtc" and (data.label_names or data.feature_names):
        screen.note("LSHTC files hold numbers only: names that are not whole numbers become column numbers.")
    with screen.working(f"writing {target}"):
        write(data, target, format=kind)
    return (*data.X.shape, data.Y.shape[1])


def format_of(target: str, to: str) -> str:
    """The format to write, known before anything is read."""
    from smoothlink.data.formats import FORMATS, format_to_write

    if to != "auto":
        return known_format("--to", to)
    try:
        return format_to_write(target)
    except DataError as error:
        what = str(error).splitlines()[0]
        raise DataError(f"{what}\nPass --to with one of {', '.join(FORMATS)}.") from error


def files_of(target: str, kind: str) -> list[str]:
    """Return the file that a format writes under this name, and the one with the labels where it writes a pair."""
    from smoothlink.data.files_on_disk import other_half
    from smoothlink.data.xmc import HALVES

    labels = other_half(target, HALVES) if kind == "xmc-new" else None
    return [target] if labels is None else [target, str(labels)]
