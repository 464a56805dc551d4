"""Data files for commands: reading them as the options say, and matching their columns to those of a model."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from smoothlink.cli.screen import Screen, plural, size
from smoothlink.errors import DataError

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.steps.read import Data

PANEL = "Reading the data"
BY_NAME = ("vw", "lshtc")  # formats whose column numbers mean nothing outside the file


class Reading(NamedTuple):
    """How a data file is read."""

    format: str
    labels: int | str | None
    features: int | str | None
    labels_file: str | None
    zero_based: bool | None
    label_names: str | None
    feature_names: str | None

    def format_of(self, path: str) -> str:
        from smoothlink.steps.read import recognise

        return recognise(path) if self.format == "auto" else self.format


def option(*names: str, help: str, metavar: str | None = None) -> Any:
    """A reader option: its default is part of its help."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, rich_help_panel=PANEL)


def reading(
    *,
    format: Annotated[
        str,
        option(metavar="NAME", help="xmc, xmc-new, lshtc, svmlight, arff, vw, npz or binary; else it is recognised."),
    ] = "auto",
    labels: Annotated[
        str | None, option(metavar="auto|N", help="How many labels there are, if not as the header says; auto counts.")
    ] = None,
    features: Annotated[str | None, option(metavar="auto|N", help="How many features there are, likewise.")] = None,
    labels_file: Annotated[
        str | None, option(metavar="FILE", help="The labels, where they are in a file of their own.")
    ] = None,
    zero_based: Annotated[
        bool | None, option("--zero-based/--one-based", help="The first feature of svmlight files; else it is guessed.")
    ] = None,
    label_names: Annotated[
        str | None, option(metavar="FILE", help="Names of the labels, one a line; else labels.txt beside the data.")
    ] = None,
    feature_names: Annotated[
        str | None, option(metavar="FILE", help="Names of the features, one a line; else features.txt.")
    ] = None,
) -> Reading:
    """The reader options of a command."""
    counts = count("--labels", labels), count("--features", features)
    if format != "auto":
        known_format("--format", format)
    return Reading(format, *counts, labels_file, zero_based, label_names, feature_names)


def known_format(option: str, name: str) -> str:
    from smoothlink.steps.read import FORMATS

    if name not in FORMATS:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(FORMATS)}.", param_hint=option)
    return name


def count(option: str, text: str | None) -> int | str | None:
    """A number of columns, or auto."""
    if text is None or text == "auto":
        return text
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is neither auto nor a number.", param_hint=option)
    return int(text)


def read_data(path: str, how: Reading, screen: Screen, *, labels_matter: bool = True) -> Data:
    """The data in a file, and a note on what was read and how fast."""
    from smoothlink.steps.formats.binary import bytes_in
    from smoothlink.steps.read import read

    began = time.perf_counter()
    with screen.working(f"reading {os.path.basename(path)}"):
        data = read(
            path,
            format=how.format,
            labels_path=how.labels_file,
            n_labels=how.labels if labels_matter else "auto",  # type: ignore[arg-type]
            n_features=how.features,  # type: ignore[arg-type]
            zero_based=how.zero_based,
        )
    if how.label_names is not None and labels_matter:
        data = data._replace(label_names=names_in(how.label_names, data.Y.shape[1], "label"))
    if how.feature_names is not None:
        data = data._replace(feature_names=names_in(how.feature_names, data.X.shape[1], "feature"))
    seconds, (n, d), c = time.perf_counter() - began, data.X.shape, data.Y.shape[1]
    counts = ", ".join([plural(n, "row"), plural(d, "feature"), *([plural(c, "label")] if labels_matter else [])])
    how_read = f"read in {seconds:.1f} s ({size(bytes_in(path) / max(seconds, 1e-9))}/s)"
    screen.note(f"{path}: {counts}; {'mapped' if os.path.isdir(path) else how_read}.")
    return data


def names_in(path: str, count: int, noun: str) -> list[str]:
    """The lines of a file of names."""
    from smoothlink.steps.formats._files import load

    try:
        names = load(path).data.tobytes().decode().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: the names are not UTF-8 ({error.reason}).\nSave the file as UTF-8.") from error
    if len(names) != count:
        raise DataError(
            f"{path} has {len(names)} lines, and the data has {plural(count, noun)}.\n"
            f"Name each {noun} on a line of its own, or leave --{noun}-names out."
        )
    return names


def matched(data: Data, path: str, how: Reading, model: SmoothLinkClassifier, *, strict: bool, screen: Screen) -> Data:
    """The data with the features of the model: by name where both have names, else by number.

    Features unknown to the model are left out, with a note or (strict) an error; those the file lacks are zeros.
    """
    from smoothlink.steps.read import align

    names = list(model.feature_names_in_) if hasattr(model, "feature_names_in_") else None
    if by_name(data.feature_names, names, "feature", path, how):
        data = align(data, feature_names=names)
    elif names is not None and data.feature_names is None:
        screen.note(f"{path} does not name its features: they are taken by number.")
    return data._replace(X=fitted(data, path, model.n_features_in_, strict, screen), feature_names=names)


def matched_labels(data: Data, path: str, how: Reading, model: SmoothLinkClassifier) -> Data:
    """The data with the labels of the model first, by name or by number, and those unknown to it behind."""
    from smoothlink.steps.read import align

    named = model.label_names_ is not None or not model._indicator
    known = [str(name) for name in label_names(model)] if named else None
    return align(data, label_names=known) if by_name(data.label_names, known, "label", path, how) else data


def by_name(names: list[str] | None, known: list[str] | None, noun: str, path: str, how: Reading) -> bool:
    """Whether columns are to be aligned by name."""
    kind = how.format_of(path)
    if kind in BY_NAME and known is None:
        raise DataError(
            f"{path}: the format {kind} knows each {noun} by its name only, and the model has no {noun} names.\n"
            f"Train on a file that names its {noun}s, or pass --{noun}-names to train."
        )
    return names is not None and known is not None and names != known


def fitted(data: Data, path: str, d: int, strict: bool, screen: Screen) -> Any:
    """X with exactly d columns."""
    from scipy.sparse import csr_array

    X = data.X
    extra = X.shape[1] - d
    if extra > 0:
        lost = int((X.indices >= d).sum())
        if lost == X.nnz > 0:
            raise DataError(f"{path} has no feature that the model knows.\nIs it the file, and the model, you mean?")
        what = f"{path} has {plural(extra, 'feature')} unknown to the model, with {plural(lost, 'value')}"
        if strict:
            raise DataError(f"{what}.\nLeave --strict out to ignore them, or use the file's own model.")
        screen.note(f"{what}: ignored.")
        return csr_array(X[:, :d])
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], d))


def label_names(model: SmoothLinkClassifier) -> list[Any]:
    """What each label is called: its name, else its class id or number."""
    return model.label_names_ if model.label_names_ is not None else model.classes_.tolist()


def writable(path: str, *inputs: str, folder_too: bool = False) -> str:
    """The path, if a file, or with `folder_too` a data folder, can be written there; said before hours of work."""
    from smoothlink.steps.formats.binary import is_folder

    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise DataError(f"{path}: the folder {folder} does not exist.\nType: mkdir -p {folder}")
    if os.path.isdir(path) and not (folder_too and is_folder(path)):
        raise DataError(f"{path} is a folder.\nName a file in it.")
    if not os.access(folder, os.W_OK):
        raise DataError(f"{path}: the folder {folder} is not writable.\nName a file in a folder of yours.")
    for other in inputs:
        if os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other):
            raise DataError(f"{path} would be written over what is read.\nName another file.")
    return path
