"""`smoothlink recalibrate`: a model and labelled files that it does not know -> the model with new guarantees."""

from __future__ import annotations

import os
import warnings
from typing import Annotated

import typer

from smoothlink.cli.data_options import reading
from smoothlink.cli.screen import Screen, size
from smoothlink.cli.shared_options import Force, Model, Quiet, Strict, grouped
from smoothlink.data.matching import Reading
from smoothlink.data.overwrite import writable
from smoothlink.errors import plural


@grouped(reading=reading)
def recalibrate(
    model: Model,
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            help="Labelled data files that were used for nothing else: neither for training nor for choosing a model.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write the model to. Without it, MODEL is overwritten.",
            show_default=False,
        ),
    ] = None,
    strict: Strict = False,
    force: Force = False,
    quiet: Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Compute a model's guarantees anew, from labelled rows that it does not know; nothing is trained.

    Example: smoothlink recalibrate model.safetensors new.jsonl
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.living.living_file import locked_for_update
    from smoothlink.reports.labelled_rows import labelled_rows_in_files

    screen, target, paths = Screen(quiet), output or model, expanded(data)
    writable(target, *paths, kind="model", force=force)
    with (
        locked_for_update(target),
        warnings.catch_warnings(record=True) as caught,
        screen.working("computing guarantees"),
    ):
        warnings.simplefilter("always", UserWarning)
        rows = labelled_rows_in_files(model, paths, how=reading, strict=strict, note=screen.note)
        conformal = rows.classifier._recalibrate(rows.X, rows.Y).conformal_
        rows.model.save(target)
    for warning in caught:
        screen.note(str(warning.message))
    assert conformal is not None
    written = size(os.path.getsize(target))
    screen.note(f"{target}: guarantees from {plural(conformal.n, 'row')}; {written} written.")
