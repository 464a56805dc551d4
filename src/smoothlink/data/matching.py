"""Data files for a model: read by the options of a command, their columns matched to the model's.

Nothing heavy is imported before a file is read: the command line needs `Reading` to show its help.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from smoothlink.data.read import Data
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink
    from smoothlink.text.documents import DocumentSource, KeptColumns
    from smoothlink.types import FittedModel

BY_NAME = ("vw", "lshtc")  # formats whose column numbers mean nothing outside the file

Note = Callable[[str], None]


class Reading(NamedTuple):
    """How a data file is read: the options of `smoothlink.read`, and files of names; for texts, their columns."""

    format: str = "auto"
    labels: int | str | None = None  # how many, or of raw-text files the columns they are in
    features: int | str | None = None
    labels_file: str | None = None
    zero_based: bool | None = None
    label_names: str | None = None
    feature_names: str | None = None
    text: tuple[str, ...] = ()  # the columns of texts
    label_separator: str | None = None
    label_prefix: str = ""
    header: bool | None = None
    id: str | None = None  # the column that says which document it is
    encoding: str | None = None
    numbers: tuple[str, ...] = ()  # the columns of numbers beside texts

    def format_of(self, path: str) -> str:
        """Returns the format of a file: the one given, else as its first bytes and its name show."""
        from smoothlink.data.formats import ALL_FORMATS, TEXT_FORMATS, recognise

        return recognise(path, TEXT_FORMATS if self.text else ALL_FORMATS) if self.format == "auto" else self.format

    def recognised(self, *paths: str) -> Reading:
        """Returns the same with the format of these files, so that each is opened once to find out; or "auto" where
        they differ."""
        found = {self.format_of(path) for path in paths}
        return self._replace(format=found.pop()) if len(found) == 1 else self

    def with_common_first_index(self, *paths: str) -> Reading:
        """Returns the same for files that go together: a feature 0 in an svmlight file settles where all count from."""
        from smoothlink.data.read import read

        if self.zero_based is not None or any(self.format_of(path) != "svmlight" for path in paths):
            return self
        options = self._replace(format="svmlight").options()
        return self._replace(zero_based=any(read(path, **options).zero_based for path in paths))

    def for_model(self, model: FittedModel, path: str) -> Reading:
        """Returns the same with the format of a file for a model; for one of texts a .txt file may be lines of text."""
        from smoothlink.data.formats import recognise

        if self.format != "auto" or self.text or inside(model) is model:
            return self.recognised(path)
        return self._replace(format=recognise(path, lines_of_text=True))

    def text_format(self, path: str) -> str | None:
        """Returns the format of a file of texts; None where it holds rows of numbers."""
        from smoothlink.data.formats import TEXT_FORMATS

        kind = self.format_of(path)
        return kind if kind in TEXT_FORMATS else None

    def source(self, path: str, trained: DocumentSource | None = None) -> DocumentSource:
        """Returns how the documents of a file are read: as the options say, else as those a model was trained on."""
        from smoothlink.data.formats import TEXT_FORMATS
        from smoothlink.text.documents import DocumentSource

        format = self.format_of(path)
        if format not in TEXT_FORMATS:
            raise DataError(f"{path}: the format {format} holds no texts.\nLeave --text out.")
        for name in ("features", "labels_file", "zero_based", "label_names", "feature_names"):
            if getattr(self, name) is not None:
                flag = "--zero-based/--one-based" if name == "zero_based" else f"--{name.replace('_', '-')}"
                raise DataError(f"{path}: {flag} means nothing to the format {format}.\nLeave it out.")
        known = DocumentSource(format) if trained is None else trained.for_format(format)
        given: dict[str, Any] = {
            "text": self.text,
            "labels": () if self.labels is None else tuple(part.strip() for part in str(self.labels).split(",")),
            "separator": self.label_separator,
            "prefix": self.label_prefix,
            "header": self.header,
            "id": self.id,
            "id_optional": None if self.id is None else False,
            "encoding": self.encoding,
            "numbers": self.numbers,
        }
        return known._replace(**{name: value for name, value in given.items() if value not in (None, (), "")})

    def options(self, *, labels_matter: bool = True) -> dict[str, Any]:
        """Returns the arguments of `smoothlink.read`; the number of labels is left out where they do not matter."""
        if isinstance(self.labels, str) and self.labels != "auto":
            raise DataError(f"--labels {self.labels} is neither auto nor a number.\nOnly raw-text files have columns.")
        return {
            "format": self.format,
            "labels_path": self.labels_file,
            "n_labels": self.labels if labels_matter else "auto",
            "n_features": self.features,
            "zero_based": self.zero_based,
        }

    def read(
        self, path: str, *, labels_matter: bool = True, model: FittedModel | None = None, note: Note | None = None
    ) -> Data:
        """Returns the data in a file, with the names that were given.

        An svmlight file for a model counts its features as those that the model was trained on. Where that, or a guess,
        is not what the file itself shows, `note` gets a message.
        """
        from smoothlink.data.formats import TEXT_FORMATS
        from smoothlink.data.read import read

        format = self.format_of(path)
        if format in TEXT_FORMATS:
            raise DataError(
                f"{path} holds texts (format {format}), and feature vectors are needed here.\n"
                "`smoothlink train` makes a text model of it, which `predict` and `evaluate` take such files for."
            )
        self.check_rows(path)
        trained = getattr(inside(model), "zero_based_", None)
        how = self._replace(format=format)
        if self.zero_based is None and trained is not None and format == "svmlight":
            how = how._replace(zero_based=trained)
        data = read(path, **how.options(labels_matter=labels_matter))
        if self.zero_based is None and note is not None:
            if how.zero_based is None and data.zero_based is False:
                note(one_based_guess(path))
            elif how.zero_based and not (data.X.indices == 0).any():
                note(f"{path}: features count from 0, as in training, but none is 0; --one-based overrides.")
        if self.label_names is not None and labels_matter:
            data = data._replace(label_names=names_in(self.label_names, data.Y.shape[1], "label"))
        if self.feature_names is not None:
            data = data._replace(feature_names=names_in(self.feature_names, data.X.shape[1], "feature"))
        return data

    def check_rows(self, path: str) -> None:
        """Raises an error for an option that only files of texts have."""
        given = {
            "--text": self.text,
            "--label-separator": self.label_separator,
            "--label-prefix": self.label_prefix,
            "--header/--no-header": self.header,
            "--id": self.id,
            "--encoding": self.encoding,
            "--numbers": self.numbers,
        }
        for flag, value in given.items():
            if value not in (None, (), ""):
                raise DataError(f"{path} holds feature vectors, and {flag} is for texts.\nLeave it out.")

    @property
    def others(self) -> list[str]:
        """Returns the files that are read together with the data."""
        return [path for path in (self.labels_file, self.label_names, self.feature_names) if path is not None]

    def absolute(self) -> Reading:
        """Returns the same for processes that started in other folders."""
        names = ("labels_file", "label_names", "feature_names")
        return self._replace(**{n: os.path.abspath(v) for n in names if (v := getattr(self, n)) is not None})

    def for_many(self, paths: Sequence[str]) -> Reading:
        """Returns the same; raises an error where it cannot be meant for each of these files."""
        if self.labels_file is not None and len(paths) > 1:
            raise DataError(
                f"{self.labels_file} holds the labels of one file, and there are {len(paths)}.\n"
                "Leave --labels-file out where they are found by name, or convert each pair to one file."
            )
        return self


def one_based_guess(path: str) -> str:
    """Returns the message on svmlight files that do not show where their features start."""
    return f"{path}: no feature is 0, so features are taken to count from 1; --zero-based overrides."


def inside(model: Any) -> SmoothLinkClassifier:
    """Returns the classifier of a text model, or the classifier itself."""
    return getattr(model, "classifier_", model)


class RowsToPredict(NamedTuple):
    """Rows for a model, and what goes with the predictions."""

    data: Data
    kept: KeptColumns | None = None  # the id of each document, or all its columns


def read_for(
    model: SmoothLinkClassifier | TextSmoothLink,
    path: str,
    how: Reading,
    *,
    labels_matter: bool = True,
    all_columns: bool = False,
    note: Note,
) -> RowsToPredict:
    """Returns the rows of a file for a model; documents become rows by the features of a text model, all in order."""
    how = how.for_model(model, path)
    if how.text_format(path) is None:
        if all_columns:
            raise DataError(f"{path} holds rows of numbers, not columns: --all-columns means nothing.\nLeave it out.")
        return RowsToPredict(how.read(path, labels_matter=labels_matter, model=model, note=note))
    from smoothlink.data.read import Data
    from smoothlink.labels import read_labels
    from smoothlink.text.classifier import TextSmoothLink
    from smoothlink.text.documents import describe, from_meta, read_documents

    if not isinstance(model, TextSmoothLink):
        raise DataError(
            f"{path} holds texts, and the model was trained on feature vectors.\n"
            "Train a model on texts, or pass a file of feature vectors."
        )
    source = how.source(path, from_meta(model.source_))
    found = read_documents(path, source, labels_matter=labels_matter, all_columns=all_columns)
    note(describe(path, found, labels_matter=labels_matter, without_text="which get the labels' frequencies"))
    given = read_labels(found.labels, model.classes_.tolist())
    return RowsToPredict(Data(model.features_.transform(found.texts), given.Y, given.names, None), found.kept)


def read_groups(
    paths: Sequence[str], how: Reading, name: str, n: int, trained: DocumentSource | None = None
) -> list[str]:
    """Returns the group of each of the n rows of files: a column of texts; of rows of numbers, the lines of a file."""
    if how.text_format(paths[0]) is not None:
        from smoothlink.text.documents import column_of

        return [group for path in paths for group in column_of(path, how.source(path, trained), name)]
    if not os.path.exists(name):
        raise DataError(
            f"{paths[0]} holds rows of numbers, which have no column {name}, and there is no file of this name.\n"
            "Pass a file with the group of each row on a line of its own: --groups groups.txt"
        )
    found = names_in(name, None, "group")
    empty = [number for number, line in enumerate(found, 1) if not line.strip()]
    if len(found) != n or empty:
        what = f"{name} has {plural(len(found), 'line')}, and there are {plural(n, 'row')}"
        what = what if not empty else f"{name}, line {empty[0]}: the line is empty, as are {len(empty):,} in all"
        raise DataError(f"{what}.\nWrite the group of each row on a line of its own.")
    return found


def names_in(path: str, count: int | None, noun: str) -> list[str]:
    """Returns the lines of a file of names, as many as there are columns; None: any number."""
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


def join_rows(paths: Sequence[str], found: Iterable[Data]) -> Data:
    """Returns the rows of several files, which must agree on their columns, as those of one."""
    from smoothlink.distributed.input_files import check_alike, counted_from_zero, header_of
    from smoothlink.machines.rows import stack

    parts = list(found)
    if len(parts) == 1:
        return parts[0]
    check_alike(paths, [header_of(data) for data in parts])
    X, Y = stack([data.X for data in parts]), stack([data.Y for data in parts])
    return parts[0]._replace(X=X, Y=Y, zero_based=counted_from_zero(parts))


def matched(data: Data, path: str, model: SmoothLinkClassifier, *, strict: bool, note: Note) -> Data:
    """Returns the data with the features of the model: by name where both have names, else by number.

    Features unknown to the model are left out, with a note or (strict) an error; those the file lacks are zeros.
    """
    from smoothlink.data.read import align

    names = list(model.feature_names_in_) if hasattr(model, "feature_names_in_") else None
    if by_name(data.feature_names, names, "feature", path, data.format):
        data = align(data, feature_names=names)
    elif names is not None and data.feature_names is None:
        note(f"{path} does not name its features: they are taken by number.")
    return data._replace(X=with_columns(data.X, path, model.n_features_in_, strict, note), feature_names=names)


def matched_labels(data: Data, path: str, model: SmoothLinkClassifier) -> Data:
    """Returns the data with the labels of the model first, by name or by number, and those unknown to it behind."""
    from smoothlink.data.read import align

    named = model.label_names_ is not None or not model._indicator
    known = [str(name) for name in label_names(model)] if named else None
    return align(data, label_names=known) if by_name(data.label_names, known, "label", path, data.format) else data


def by_name(names: list[str] | None, known: list[str] | None, noun: str, path: str, kind: str | None) -> bool:
    """Returns whether columns of a file of this format are to be aligned by name."""
    if kind in BY_NAME and known is None:
        raise DataError(
            f"{path}: the format {kind} knows each {noun} by its name only, and the model has no {noun} names.\n"
            f"Train on a file that names its {noun}s, or pass --{noun}-names to train."
        )
    return names is not None and known is not None and names != known


@contextmanager
def unnamed() -> Iterator[None]:
    """Silences scikit-learn's warning of missing names: columns were matched to the model by their names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield


def with_columns(X: csr_array, path: str, d: int, strict: bool, note: Note) -> csr_array:
    """Returns X with exactly d columns."""
    from scipy.sparse import csr_array

    extra = X.shape[1] - d
    if extra > 0:
        lost = int((X.indices >= d).sum())
        if lost == X.nnz > 0:
            raise DataError(
                f"{path} has no feature that the model knows.\nCheck that the file and the model belong together."
            )
        what = f"{path} has {plural(extra, 'feature')} unknown to the model, with {plural(lost, 'value')}"
        if strict:
            raise DataError(f"{what}.\nLeave --strict out to ignore them, or use the file's own model.")
        note(f"{what}: ignored.")
        return csr_array(X[:, :d])
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], d))


def truth(data: Data, path: str, model: SmoothLinkClassifier) -> Any:
    """Returns the true labels in the form that the model was fitted to: a 0/1 matrix, or one class id per row."""
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
    """Returns what each label is called: its name, else its class id or number."""
    return model.label_names_ if model.label_names_ is not None else model.classes_.tolist()
