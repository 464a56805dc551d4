"""`smoothlink synth`: a shape -> a data file with made rows of that shape."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.convert_command import files_of, format_of
from smoothlink.cli.screen import Screen, print_json, size
from smoothlink.cli.shared_options import AsJson, Force, Quiet
from smoothlink.data.overwrite import writable
from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from smoothlink.synth import Shape


def synth(
    output: Annotated[
        str, typer.Argument(metavar="OUT", help="File to write; its name decides the format and the compression.")
    ],
    rows: Annotated[int, typer.Option(metavar="N", help="Number of rows.")],
    features: Annotated[int, typer.Option(metavar="D", help="Number of features.")],
    labels: Annotated[int, typer.Option(metavar="C", help="Number of labels.")],
    features_per_row: Annotated[float, typer.Option(metavar="F", help="Mean number of features per row.")],
    labels_per_row: Annotated[
        float, typer.Option(metavar="L", help="Mean number of labels per row; every row has at least one.")
    ] = 1.0,
    multiclass: Annotated[bool, typer.Option("--multiclass", help="Exactly one label per row.")] = False,
    feature_exponent: Annotated[
        float,
        typer.Option(metavar="A", help="The frequency of the r-th most frequent feature is proportional to r^-A."),
    ] = 1.0,
    label_exponent: Annotated[float, typer.Option(metavar="A", help="The same for labels.")] = 1.0,
    topics: Annotated[
        int | None,
        typer.Option(
            metavar="T",
            help="Number of latent topics that link features to labels; without it, 2 sqrt(C), at most 1000.",
        ),
    ] = None,
    test: Annotated[
        int | None, typer.Option(metavar="M", help="Number of rows for a test file of the same kind.")
    ] = None,
    test_output: Annotated[str | None, typer.Option(metavar="FILE", help="File to write the test rows to.")] = None,
    to: Annotated[str, typer.Option(metavar="NAME", help="Format to write, if it is not that of the name.")] = "auto",
    seed: Annotated[int, typer.Option(help="The same seed and shape give the same rows.")] = 0,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make data of any shape: power-law features and labels, tied by latent topics.

    Example: smoothlink synth train.txt --rows 10000 --features 5000 --labels 500 --features-per-row 40
    """
    from smoothlink.synth import Shape

    if (test is None) != (test_output is None):
        raise DataError("--test and --test-output go together.\nPass --test ROWS --test-output FILE, or neither.")
    files = [(output, 0, rows)]
    if test is not None and test_output is not None:
        files.append((test_output, rows, test))
        if os.path.abspath(output) == os.path.abspath(test_output):
            raise DataError(f"{output} is named twice.\nName another file with --test-output.")
    for path, _, _ in files:
        kind = format_of(path, to)
        for file in files_of(path, kind):
            writable(file, kind="data", force=force, folder_too=kind == "binary")
    shape = Shape(
        features=features,
        labels=labels,
        features_per_row=features_per_row,
        labels_per_row=labels_per_row,
        multiclass=multiclass,
        feature_exponent=feature_exponent,
        label_exponent=label_exponent,
        topics=topics,
        seed=seed,
    )
    shape.check_rows(*(count for _, _, count in files))
    screen = Screen(quiet)
    made = [make(shape, path, start, count, format_of(path, to), screen) for path, start, count in files]
    if as_json:
        print_json({"files": made})


def make(shape: Shape, path: str, start: int, count: int, kind: str, screen: Screen) -> dict[str, Any]:
    """Writes some rows of the stream to a file."""
    from smoothlink.data.folder import bytes_in
    from smoothlink.data.read import write
    from smoothlink.synth import synthesise

    with screen.working(f"making {path}"):
        data = synthesise(shape, count, start=start)
        write(data, path, format=kind)
    means = data.X.nnz / count, data.Y.nnz / count
    written = bytes_in(path)
    screen.note(
        f"{path}: {plural(count, 'row')}, {means[0]:.1f} features and {means[1]:.2f} labels per row; "
        f"{size(written)} written."
    )
    (n, d), c = data.X.shape, data.Y.shape[1]
    averages = {"features_per_row": means[0], "labels_per_row": means[1]}
    return {"path": path, "rows": n, "features": d, "labels": c, **averages, "bytes": written}
