"""`smoothlink vocabulary`: a model and a file of names -> the model with names of its labels."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from smoothlink.cli.screen import Screen, size
from smoothlink.cli.shared_options import Force, Language, Model, Naming, Quiet
from smoothlink.data.overwrite import writable


def vocabulary(
    model: Model,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Names of the labels by id or URI: TSV, CSV, JSON or SKOS.")
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
    language: Language = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Store the names of labels in a model, in place of those it may have; nothing is trained.

    Example: smoothlink vocabulary model.safetensors subjects.ttl --language en
    """
    from smoothlink.living.living_file import locked_for_update
    from smoothlink.modelfile import load

    screen, target = Screen(quiet), output or model
    writable(target, file, kind="model", force=force)
    with locked_for_update(target):
        named = Naming(file, language).applied(load(model), screen)
        with screen.working(f"writing {target}"):
            named.save(target)
    screen.note(f"{target}: {size(os.path.getsize(target))} written.")
