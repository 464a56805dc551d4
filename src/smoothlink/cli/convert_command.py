"""`smoothlink convert`: a data file -> the same data in another format."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from smoothlink.cli.data_options import known_format, read_data, reading
from smoothlink.cli.screen import Screen, print_json, size
from smoothlink.cli.shared_options import AsJson, Force, Quiet, grouped
from smoothlink.data.matching import Reading
from smoothlink.data.overwrite import writable
from smoothlink.errors import DataError


@grouped(reading=reading)
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A data file, plain or compressed.")],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="File to write; its name decides the format and the compression.")
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The format to write: xmc, xmc-new, lshtc, svmlight, arff, vw, npz or binary."
        ),
    ] = "auto",
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Convert a data file to another format or compression.

    Example: smoothlink convert mulan.arff train.txt.xz
    """
    from smoothlink.data.folder import bytes_in

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
