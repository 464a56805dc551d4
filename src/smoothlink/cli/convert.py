"""`smoothlink convert`: a data file -> the same data in another format."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from smoothlink.cli.data import Reading, known_format, read_data, reading, writable
from smoothlink.cli.options import AsJson, Quiet, grouped
from smoothlink.cli.screen import Screen, print_json, size
from smoothlink.errors import DataError


@grouped(reading=reading)
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A data file, plain or compressed.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="Its name says format and compression.")],
    to: Annotated[
        str, typer.Option(metavar="NAME", help="The format to write: xmc, xmc-new, lshtc, svmlight, arff, vw or npz.")
    ] = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Convert a data file to another format or compression.

    Example: smoothlink convert mulan.arff train.txt.xz
    """
    from smoothlink.steps.read import write

    writable(target, source)
    kind = format_of(target, to)
    screen = Screen(quiet)
    data = read_data(source, reading, screen)
    if kind == "lshtc" and (data.label_names or data.feature_names):
        screen.note("LSHTC files hold numbers only: names that are not whole numbers become column numbers.")
    with screen.working(f"writing {target}"):
        write(data, target, format=kind)
    if as_json:
        (n, d), c = data.X.shape, data.Y.shape[1]
        print_json({"path": target, "rows": n, "features": d, "labels": c, "bytes": os.path.getsize(target)})
    else:
        screen.note(f"{target}: {size(os.path.getsize(target))} written.")


def format_of(target: str, to: str) -> str:
    """The format to write, known before anything is read."""
    from smoothlink.steps.read import FORMATS, _format_by_name

    if to != "auto":
        return known_format("--to", to)
    try:
        return _format_by_name(target)
    except DataError as error:
        what = str(error).splitlines()[0]
        raise DataError(f"{what}\nPass --to with one of {', '.join(FORMATS)}.") from error
