"""`smoothlink update`, `forget` and `add-labels`: rows and labels that come to a model and go from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from smoothlink.cli.data_options import reading
from smoothlink.cli.screen import Screen, print_json
from smoothlink.cli.shared_options import AsJson, Model, Quiet, Strict, grouped
from smoothlink.data.matching import Reading, label_names, matched, matched_labels, names_in, unnamed
from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from smoothlink.living.living_file import LivingFile

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
                        told = living.update(found.rows, found.labels, names=found.names)
                finally:
                    added += [path] if living.journal.checksum != before else []
                show(told, screen, as_json=as_json)
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
                told = living.forget(found.rows, found.labels)
            show(told, screen, as_json=as_json)


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
        told = living.add_labels(new if living.classifier.label_names_ is not None else len(new))
        living.save()
    show(told, screen, as_json=as_json)


def read_rows(living: LivingFile, path: str, how: Reading, screen: Screen, *, strict: bool) -> FileRows:
    """The rows and labels of a file, read as those that the model was trained on."""
    from smoothlink.text.documents import describe, from_meta, read_documents

    how, model = how.for_model(living.model, path), living.classifier
    if how.text_format(path) is not None:
        if model is living.model:
            raise DataError(f"{path} holds texts, and the model was trained on feature vectors.\nPass such a file.")
        found = read_documents(path, how.source(path, from_meta(living.model.source_)))
        screen.note(describe(path, found))
        return FileRows(found.texts, found.labels, None)
    data = how.read(path, model=living.model, note=screen.note)
    screen.note(f"{path}: {plural(data.X.shape[0], 'row')}, {plural(data.Y.shape[1], 'label')}.")
    data = matched_labels(data, path, model)
    data = matched(data, path, model, strict=strict, note=screen.note)
    c = len(label_names(model))
    if not model._indicator:
        raise DataError(
            f"{path}: the model was fitted to class ids in Python.\nUse its methods update and forget there."
        )
    from scipy.sparse import csr_array

    Y = csr_array((data.Y.data, data.Y.indices, data.Y.indptr), (data.Y.shape[0], max(c, data.Y.shape[1])))
    named = model.label_names_ is not None and data.label_names is not None
    new = data.label_names[c:] if named and data.label_names is not None else list(range(c, Y.shape[1]))
    return FileRows(data.X, Y, new)


def show(told: dict[str, Any], screen: Screen, *, as_json: bool) -> None:
    """Prints the report of what came and went."""
    from smoothlink.living.changes import described

    if as_json:
        print_json(told)
    else:
        for text in described(told):
            screen.note(text)
