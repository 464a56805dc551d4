"""Data files for a model: read as one was told, their columns matched to the model's.

Nothing heavy is imported before a file is read: the command line asks for `Reading` to show its help.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from smoothlink.data.read import Data
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink
    from smoothlink.text.documents import Source

BY_NAME = ("vw", "lshtc")  # formats whose column numbers mean nothing outside the file

Note = Callable[[str], None]


class Reading(NamedTuple):
    """How a data file is read: the options of `smoothlink.read`, and files of names; for texts, their columns."""

    format: str = "auto"
    labels: int | str | None = None  # how many, or of raw-text files the column they are in
    features: int | str | None = None
    labels_file: str | None = None
    zero_based: bool | None = None
    label_names: str | None = None
    feature_names: str | None = None
    text: tuple[str, ...] = ()  # the columns of texts
    label_separator: str | None = None
    label_prefix: str = ""
    header: bool | None = None

    def format_of(self, path: str) -> str:
        from smoothlink.data.read import recognise

        return self.text_format(path) or (recognise(path) if self.format == "auto" else self.format)

    def text_format(self, path: str) -> str | None:
        """The format of a raw-text file; None where rows of numbers are meant."""
        from smoothlink.data.files_on_disk import shown
        from smoothlink.text.records import FORMATS, recognise

        if self.format != "auto":
            return self.format if self.format in FORMATS else None
        found = recognise(path)
        if found is None and self.text:
            first = shown(os.path.basename(path).encode())
            raise DataError(
                f"{path}: the name '{first}' does not say what it holds.\nPass --format {'|'.join(FORMATS)}."
            )
        return found

    def source(self, path: str, trained: Source | None = None) -> Source:
        """How the documents of a raw-text file are told apart: as was said, else as those a model was trained on."""
        from smoothlink.text.documents import Source

        format = self.text_format(path)
        if format is None:
            raise DataError(f"{path}: the format {self.format_of(path)} holds no texts.\nLeave --text out.")
        for name in ("features", "labels_file", "zero_based", "label_names", "feature_names"):
            if getattr(self, name) is not None:
                flag = "--zero-based/--one-based" if name == "zero_based" else f"--{name.replace('_', '-')}"
                raise DataError(f"{path}: {flag} means nothing to the format {format}.\nLeave it out.")
        known = trained if trained is not None and trained.format == format else Source(format)
        given: dict[str, Any] = {
            "text": self.text,
            "labels": None if self.labels is None else str(self.labels),
            "separator": self.label_separator,
            "prefix": self.label_prefix,
            "header": self.header,
        }
        return known._replace(**{name: value for name, value in given.items() if value not in (None, (), "")})

    def options(self, *, labels_matter: bool = True) -> dict[str, Any]:
        """What `smoothlink.read` is told; how many labels there are means nothing where they do not matter."""
        if isinstance(self.labels, str) and self.labels != "auto":
            raise DataError(f"--labels {self.labels} is neither auto nor a number.\nOnly raw-text files have columns.")
        return {
            "format": self.format,
            "labels_path": self.labels_file,
            "n_labels": self.labels if labels_matter else "auto",
            "n_features": self.features,
            "zero_based": self.zero_based,
        }

    def read(self, path: str, *, labels_matter: bool = True, model: Any = None, note: Note | None = None) -> Data:
        """Reads the data in a file, with the names that were given.

        An svmlight file for a model counts its features as those that the model was trained on. Where that, or a guess,
        is not what the file itself shows, `note` is told.
        """
        from smoothlink.data.read import read

        format = self.text_format(path)
        if format is not None:
            raise DataError(
                f"{path} holds texts (format {format}), and rows of numbers are wanted here.\n"
                "`smoothlink train` makes a text model of it, which `predict` and `evaluate` take such files for."
            )
        self.check_rows(path)
        trained = getattr(inside(model), "zero_based_", None)
        known = self.zero_based is not None or trained is None or self.format_of(path) != "svmlight"
        how = self if known else self._replace(zero_based=trained)
        data = read(path, **how.options(labels_matter=labels_matter))
        if self.zero_based is None and note is not None:
            if how.zero_based is None and data.zero_based is False:
                note(guess(path))
            elif how.zero_based and not (data.X.indices == 0).any():
                note(f"{path}: features count from 0, as in training, but none is 0; --one-based overrides.")
        if self.label_names is not None and labels_matter:
            data = data._replace(label_names=names_in(self.label_names, data.Y.shape[1], "label"))
        if self.feature_names is not None:
            data = data._replace(feature_names=names_in(self.feature_names, data.X.shape[1], "feature"))
        return data

    def check_rows(self, path: str) -> None:
        """Whether nothing was said that only raw-text files can mean."""
        given = {
            "--text": self.text,
            "--label-separator": self.label_separator,
            "--label-prefix": self.label_prefix,
            "--header/--no-header": self.header,
        }
        for flag, value in given.items():
            if value not in (None, (), ""):
                raise DataError(f"{path} holds rows of numbers, not texts: {flag} means nothing.\nLeave it out.")

    @property
    def others(self) -> list[str]:
        """The files that are read beside the data."""
        return [path for path in (self.labels_file, self.label_names, self.feature_names) if path is not None]

    def absolute(self) -> Reading:
        """The same for processes that started in other folders."""
        names = ("labels_file", "label_names", "feature_names")
        return self._replace(**{n: os.path.abspath(v) for n in names if (v := getattr(self, n)) is not None})

    def for_many(self, paths: Sequence[str]) -> Reading:
        """The same, if it can be meant for each of these files."""
        if self.labels_file is not None and len(paths) > 1:
            raise DataError(
                f"{self.labels_file} holds the labels of one file, and there are {len(paths)}.\n"
                "Leave --labels-file out where they are found by name, or convert each pair to one file."
            )
        return self


def guess(path: str) -> str:
    """Returns what to say of svmlight files that do not show where their features start."""
    return f"{path}: no feature is 0, so features are taken to count from 1; --zero-based overrides."


def inside(model: Any) -> SmoothLinkClassifier:
    """The classifier of a text model, or the classifier itself."""
    return getattr(model, "classifier_", model)


def read_for(
    model: SmoothLinkClassifier | TextSmoothLink, path: str, how: Reading, *, labels_matter: bool = True, note: Note
) -> Data:
    """The rows of a file for a model: texts become rows by the features of a text model."""
    if how.text_format(path) is None:
        return how.read(path, labels_matter=labels_matter, model=model, note=note)
    from smoothlink.text.classifier import TextSmoothLink
    from smoothlink.text.rows_of_texts import text_data

    if not isinstance(model, TextSmoothLink):
        raise DataError(
            f"{path} holds texts, and the model was trained on rows of numbers.\nTrain one on texts: --text."
        )
    return text_data(model, path, how, labels_matter=labels_matter, note=note)


def names_in(path: str, count: int | None, noun: str) -> list[str]:
    """The lines of a file of names, as many as there are columns; None: any number."""
    from smoothlink.data.files_on_disk import load

    try:
        names = load(path).data.tobytes().decode().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: the names are not UTF-8 ({error.reason}).\nSave the file as UTF-8.") from error
    if count is not None and len(names) != count:
        raise DataError(
            f"{path} has {len(names)} lines, and the data has {plural(count, noun)}.\n"
            f"Name each {noun} on a line of its own, or leave --{noun}-names out."
        )
    return names


def joined(paths: Sequence[str], found: Iterable[Data]) -> Data:
    """The rows of several files, which must agree on their columns, as those of one."""
    from smoothlink.distributed.input_files import check_alike, counted_from_zero, header_of
    from smoothlink.machines.rows import stack

    parts = list(found)
    if len(parts) == 1:
        return parts[0]
    check_alike(paths, [header_of(data) for data in parts])
    X, Y = stack([data.X for data in parts]), stack([data.Y for data in parts])
    return parts[0]._replace(X=X, Y=Y, zero_based=counted_from_zero(parts))


def matched(data: Data, path: str, how: Reading, model: SmoothLinkClassifier, *, strict: bool, note: Note) -> Data:
    """The data with the features of the model: by name where both have names, else by number.

    Features unknown to the model are left out, with a note or (strict) an error; those the file lacks are zeros.
    """
    from smoothlink.data.read import align

    names = list(model.feature_names_in_) if hasattr(model, "feature_names_in_") else None
    if by_name(data.feature_names, names, "feature", path, how):
        data = align(data, feature_names=names)
    elif names is not None and data.feature_names is None:
        note(f"{path} does not name its features: they are taken by number.")
    return data._replace(X=fitted(data, path, model.n_features_in_, strict, note), feature_names=names)


def matched_labels(data: Data, path: str, how: Reading, model: SmoothLinkClassifier) -> Data:
    """The data with the labels of the model first, by name or by number, and those unknown to it behind."""
    from smoothlink.data.read import align

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


@contextmanager
def unnamed() -> Iterator[None]:
    """Columns were matched to the model by their names: scikit-learn need not miss those."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield


def fitted(data: Data, path: str, d: int, strict: bool, note: Note) -> Any:
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
        note(f"{what}: ignored.")
        return csr_array(X[:, :d])
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], d))


def truth(data: Data, path: str, model: SmoothLinkClassifier) -> Any:
    """The true labels as the model was given its own: a 0/1 matrix, or one class id a row."""
    import numpy as np

    if model._indicator:
        return data.Y
    counts = np.diff(data.Y.indptr)
    if (counts != 1).any():
        row = int(np.argmax(counts != 1))
        raise DataError(f"{path}: row {row} has {plural(int(counts[row]), 'label')}; the model gives each row one.")
    names = np.array(data.label_names if data.label_names is not None else range(data.Y.shape[1]))
    classes = np.array([str(name) for name in label_names(model)])
    # Names are compared as text; a class the model does not know keeps a place that no class has.
    place = {name: j for j, name in enumerate(classes.tolist())}
    at = np.array([place.get(str(name), len(classes)) for name in names[data.Y.indices].tolist()])
    unknown = "?" if model.classes_.dtype.kind in "UO" else model.classes_.max() + 1
    return np.append(model.classes_, [unknown])[at]


def label_names(model: SmoothLinkClassifier) -> list[Any]:
    """What each label is called: its name, else its class id or number."""
    return model.label_names_ if model.label_names_ is not None else model.classes_.tolist()
