"""`smoothlink update`, `forget`, `add-labels` and `refresh`: rows and labels that come to a model and go from it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from smoothlink.cli.data_options import read_several, reading
from smoothlink.cli.screen import Screen, print_json
from smoothlink.cli.shared_options import AsJson, Groups, Model, Quiet, Strict, grouped
from smoothlink.cli.text_options import Texts, hold_texts, read_texts
from smoothlink.data.matching import (
    Reading,
    inside,
    label_names,
    matched,
    matched_labels,
    names_in,
    read_groups,
    unnamed,
)
from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from smoothlink.data.read import Data
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.living.living_file import LivingFile
    from smoothlink.types import FittedModel

Rows = Annotated[
    list[str],
    typer.Argument(metavar="DATA", help="Data files with labels, as for train; * in a name stands for any text."),
]


class FileRows(NamedTuple):
    """The rows of a file as a model takes them."""

    rows: Any  # texts, or X
    labels: Any
    names: list[Any] | None  # of labels that are new, where the labels are a matrix


@grouped(reading=reading)
def update(
    model: Model,
    data: Rows,
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Add rows, and labels that they bring, to a model that was trained with --updatable.

    Example: smoothlink update model.safetensors new.jsonl
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.living.living_file import LivingFile

    screen = Screen(quiet)
    with LivingFile(model) as living:
        added: list[str] = []
        try:
            for path in expanded(data):
                found, before = read_rows(living, path, reading, screen, strict=strict), living.journal.checksum
                try:
                    with screen.working(f"adding {path}"), unnamed():
                        outcome = living.update(found.rows, found.labels, names=found.names)
                finally:
                    added += [path] if living.journal.checksum != before else []
                show(outcome, screen, as_json=as_json)
            with screen.working(f"writing {model}"):
                living.save()
        except Exception:
            if added:
                typer.echo(
                    f"{', '.join(added)}: the model or its journal has these rows: do not add them again.", err=True
                )
            raise


@grouped(reading=reading)
def forget(
    model: Model,
    data: Rows,
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Remove rows, with what only they had, from a model that was trained with --updatable.

    Example: smoothlink forget model.safetensors rows.jsonl
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.living.living_file import LivingFile

    screen = Screen(quiet)
    with LivingFile(model) as living:
        for path in expanded(data):
            found = read_rows(living, path, reading, screen, strict=strict)
            if found.names:
                raise DataError(f"{path}: no row of the model has the label {found.names[0]!r}. Nothing was changed.")
            with screen.working(f"forgetting {path}"), unnamed():
                outcome = living.forget(found.rows, found.labels)
            show(outcome, screen, as_json=as_json)


def add_labels(
    model: Model,
    names: Annotated[str, typer.Argument(metavar="NAMES", help="A file with the names of new labels, one per line.")],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Add labels that no row has yet to a model that was trained with --updatable.

    Example: smoothlink add-labels model.safetensors names.txt
    """
    from smoothlink.living.living_file import LivingFile

    screen = Screen(quiet)
    new = [line.strip() for line in names_in(names, None, "label") if line.strip()]
    with LivingFile(model) as living:
        outcome = living.add_labels(new if living.classifier.label_names_ is not None else len(new))
        living.save()
    show(outcome, screen, as_json=as_json)


@grouped(reading=reading)
def refresh(
    model: Model,
    data: Rows,
    groups: Groups = None,
    drop_unlabelled: Annotated[
        bool, typer.Option("--drop-unlabelled", help="Leave documents without labels out of training.")
    ] = False,
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Fit a model anew to all rows that it is to have, with the settings that its training selected.

    Example: smoothlink refresh model.safetensors docs.jsonl new.jsonl
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.living.living_file import LivingFile
    from smoothlink.modelfile import load
    from smoothlink.text.documents import from_meta

    screen, paths = Screen(quiet), expanded(data)
    fitted: Any = load(model)
    with LivingFile(model) if inside(fitted)._living is not None else nullcontext() as living:
        fitted = fitted if living is None else living.model
        how = reading.for_model(fitted, paths[0])
        asked = Texts({}, drop_unlabelled)
        check_kind(fitted, paths[0], texts=(textual := hold_texts(paths, how, asked)))
        if textual:
            trained = from_meta(fitted.source_)
            texts, _ = read_texts(paths, how, asked, screen, groups, trained)
            fit = partial(fitted.refresh, texts.texts, texts.labels, groups=texts.groups)
        else:
            rows = read_several(paths, how, screen, fitted)
            if not rows.X.shape[0]:
                raise DataError(f"{paths[0]} has no rows: there is nothing to learn from.")
            found = vectors_for(fitted, rows, paths[0], screen, strict=strict)
            together = None if groups is None else read_groups(paths, how, groups, rows.X.shape[0])
            fit = partial(fitted._refresh, found.rows, found.labels, found.names, None, together)
        with screen.steps() as notify, unnamed():
            fitted._notify, fitted._note = notify, screen.note
            fit()
        del fitted._notify, fitted._note
        fitted.summary_["data"] = [os.path.basename(path) for path in paths]
        with screen.working(f"writing {model}"):
            if living is None:
                fitted.save(model)
            else:
                living.save()
    show(fitted.summary_["living"], screen, as_json=as_json)


def read_rows(living: LivingFile, path: str, how: Reading, screen: Screen, *, strict: bool) -> FileRows:
    """The rows and labels of a file, read as those that the model was trained on."""
    from smoothlink.text.documents import describe, from_meta, read_documents

    how, model = how.for_model(living.model, path), living.classifier
    if how.text_format(path) is not None:
        check_kind(living.model, path, texts=True)
        found = read_documents(path, how.source(path, from_meta(living.model.source_)))
        screen.note(describe(path, found))
        return FileRows(found.texts, found.labels, None)
    data = how.read(path, model=living.model, note=screen.note)
    screen.note(f"{path}: {plural(data.X.shape[0], 'row')}, {plural(data.Y.shape[1], 'label')}.")
    return vectors_for(model, data, path, screen, strict=strict)


def check_kind(model: FittedModel, path: str, *, texts: bool) -> None:
    """Raises an error where a file holds texts and the model takes feature vectors, or the other way round."""
    if texts and inside(model) is model:
        raise DataError(f"{path} holds texts, and the model was trained on feature vectors.\nPass such a file.")
    if not texts and inside(model) is not model:
        raise DataError(f"{path} holds feature vectors, and the model was trained on texts.\nPass such a file.")


def vectors_for(model: SmoothLinkClassifier, data: Data, path: str, screen: Screen, *, strict: bool) -> FileRows:
    """Feature vectors that were read, with the columns of the model and its labels first."""
    data = matched_labels(data, path, model)
    data = matched(data, path, model, strict=strict, note=screen.note)
    c = len(label_names(model))
    if not model._indicator:
        raise DataError(
            f"{path}: the model was fitted to class ids in Python.\nUse its methods update, forget and refresh there."
        )
    from scipy.sparse import csr_array

    Y = csr_array((data.Y.data, data.Y.indices, data.Y.indptr), (data.Y.shape[0], max(c, data.Y.shape[1])))
    named = model.label_names_ is not None and data.label_names is not None
    new = data.label_names[c:] if named and data.label_names is not None else list(range(c, Y.shape[1]))
    return FileRows(data.X, Y, new)


def show(outcome: dict[str, Any], screen: Screen, *, as_json: bool) -> None:
    """Prints the report of what came and went."""
    from smoothlink.living.changes import described

    if as_json:
        print_json(outcome)
    else:
        for text in described(outcome):
            screen.note(text)
