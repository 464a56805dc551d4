"""Files -> X, Y and names, and back."""

from collections.abc import Sequence
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from smoothlink.data.formats import COUNTS, FORMATS, format_to_write, recognise, which_format
from smoothlink.errors import DataError

FilePath = str | PathLike[str]
Count = int | Literal["auto"] | None
# Names of labels and features in files of their own; the second is that of the XMC repository's new form.
NAME_FILES = {"label": ("labels.txt", "Y.txt"), "feature": ("features.txt", "Xf.txt")}
_FLAGS = {
    "labels_path": "--labels-file",
    "n_labels": "--labels",
    "n_features": "--features",
    "zero_based": "--zero-based/--one-based",
}


class Data(NamedTuple):
    """Examples with their labels."""

    X: csr_array  # (n, d) float32, indices sorted and unique
    Y: csr_array  # (n, c) float32 ones, indices sorted and unique
    label_names: list[str] | None = None  # c
    feature_names: list[str] | None = None  # d
    zero_based: bool | None = None  # whether an svmlight file counts features from 0; None: it is not known
    format: str | None = None  # of the file


class FileSizes(NamedTuple):
    """The sizes and names in the header of a file."""

    rows: int
    features: int
    labels: int
    entries: int | None = None  # of X; None: only the rows would tell
    label_names: list[str] | None = None
    feature_names: list[str] | None = None


class Options(NamedTuple):
    """The options of `read` that a format may take."""

    labels_path: str | None = None
    n_labels: Count = None
    n_features: Count = None
    zero_based: bool | None = None
    threads: int | None = None
    chunk_bytes: int = 2 << 20  # a thread gets at least so much text; below, starting it costs more than it brings


def read(
    path: FilePath,
    *,
    format: str = "auto",
    labels_path: FilePath | None = None,
    n_labels: Count = None,
    n_features: Count = None,
    zero_based: bool | None = None,
    threads: int | None = None,
) -> Data:
    """Returns the data in a file of any format in FORMATS, plain or compressed.

    n_labels, n_features: None takes the header's word, or counts where there is no header; "auto" counts in any case
    (largest id + 1); a number is the number. labels_path: the second file of formats that have two, found by name
    where possible. zero_based: for svmlight, whether features count from 0; None guesses so if a
    feature 0 occurs. The result's zero_based says what was used: pass it for the test file. Names come from the file,
    or from labels.txt and features.txt in the same folder where their lines match.
    """
    name, kind, options = _request(path, format, labels_path, n_labels, n_features, zero_based, threads)
    data: Data = _module(kind).read(name, options)._replace(format=kind)
    if data.label_names is None:
        data = data._replace(label_names=read_names(name, "label", data.Y.shape[1]))
    if data.feature_names is None:
        data = data._replace(feature_names=read_names(name, "feature", data.X.shape[1]))
    return data


def sizes(path: FilePath, **options: Any) -> FileSizes | None:
    """Returns sizes and names of what `read` would read, from the first line or a header; None where rows must be
    counted."""
    name, kind, parsed = _request(path, **options)
    look = getattr(_module(kind), "sizes", None)
    found: FileSizes | None = None if look is None else look(name, parsed)
    if found is None:
        return None
    labels = found.label_names or read_names(name, "label", found.labels)
    return found._replace(
        label_names=labels, feature_names=found.feature_names or read_names(name, "feature", found.features)
    )


def first_rows(path: FilePath, count: int, **options: Any) -> csr_array:
    """Returns X of the first rows that `read` would read, without the others where the format allows it."""
    from smoothlink.data import xmc

    name, kind, parsed = _request(path, **options)
    options["format"] = kind
    found = sizes(path, **options)
    stream = xmc.Stream(name, parsed, 64 << 20) if kind == "xmc" and found is not None else None
    if stream is None or found is None or stream.header.labels is None:
        return read(path, **options).X[:count]
    X = next(stream.parts())[0][:count]
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], found.features))


def _request(
    path: FilePath,
    format: str = "auto",
    labels_path: FilePath | None = None,
    n_labels: Count = None,
    n_features: Count = None,
    zero_based: bool | None = None,
    threads: int | None = None,
) -> tuple[str, str, Options]:
    """Returns the path as text, its format, and options that mean something to that."""
    name = fspath(path)
    kind = recognise(path, FORMATS) if format == "auto" else format
    labels = None if labels_path is None else fspath(labels_path)
    options = Options(labels, n_labels, n_features, zero_based, threads)
    _module(kind)
    for option, flag in _FLAGS.items():
        given = getattr(options, option)
        if given is None or (given == "auto" and option in COUNTS):
            continue
        if option not in FORMATS[kind].takes:
            raise DataError(
                f"{name}: {flag} means nothing to the format {kind}.\nLeave it out, or pass another --format."
            )
        if option in COUNTS and not (isinstance(given, int) and 0 <= given < 2**31):
            raise DataError(f"{flag} {given} is not a number of columns.\nPass {flag} auto, or a number from 0 on.")
    return name, kind, options


def _module(kind: str) -> Any:
    if kind not in FORMATS:
        raise DataError(f"there is no format {kind!r}.\n{which_format(FORMATS)}")
    return import_module(f"smoothlink.data.{FORMATS[kind].module}")


def write(data: Data, path: FilePath, *, format: str = "auto") -> None:
    """Writes a data file, compressed where the name ends so; the old file stays until the new one is whole.

    Names go inside where the format has a place for them, else to labels.txt and features.txt in the same folder.
    """
    write_for(path, data, path, format=format)


def write_for(target: FilePath, data: Data, path: FilePath, *, format: str = "auto") -> None:
    """Writes a data file that will be moved to `target`, and files of names beside that."""
    from smoothlink.data.files_on_disk import replacing
    from smoothlink.data.matrices_from_rows import checked

    name = fspath(path)
    kind = format_to_write(name) if format == "auto" else format
    module = _module(kind)
    X, Y = checked(data.X, "X", binary=False), checked(data.Y, "Y", binary=True)
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"X has {X.shape[0]} rows, Y {Y.shape[0]}.\nPair X with the labels of the same rows.")
    name_files: list[tuple[Path, bytes]] = []  # all is checked before anything is written, and names follow the data
    for noun, names, count in (("label", data.label_names, Y.shape[1]), ("feature", data.feature_names, X.shape[1])):
        if names is not None and len(names) != count:
            raise DataError(f"{len(names)} {noun} names for {count} {noun}s.\nGive one name each, or None.")
        if names and FORMATS[kind].module in ("xmc", "svmlight"):
            name_files += _name_file(fspath(target), noun, names)
    getattr(module, FORMATS[kind].writer)(data._replace(X=X, Y=Y), name)
    for file, content in name_files:
        with replacing(str(file)) as stream:
            stream.write(content)


def convert(
    path: FilePath,
    target: FilePath,
    *,
    format: str = "auto",
    to: str = "auto",
    n_labels: Count = None,
    n_features: Count = None,
    text_bytes: int = 64 << 20,
) -> tuple[int, int, int] | None:
    """Writes the data folder of an XMC text, some bytes of text at a time, so that the data is never whole in memory.

    Returns None, and does nothing, where this pair of formats cannot: then `read` and `write` do. Else returns how
    many rows, features and labels there are.
    """
    from smoothlink.data import folder, xmc

    name, goal = fspath(path), fspath(target)
    kind = recognise(path, FORMATS) if format == "auto" else format
    if kind != "xmc" or (format_to_write(goal) if to == "auto" else to) != "binary":
        return None
    stream = xmc.Stream(name, _request(path, kind, None, n_labels, n_features)[2], text_bytes)
    if stream.header.labels is None:
        return None

    def columns() -> folder.Columns:
        d, c = stream.columns()
        return folder.Columns(d, c, read_names(name, "label", c), read_names(name, "feature", d))

    return folder.write_parts(stream.parts(), goal, columns)


def read_names(path: str, noun: str, count: int) -> list[str] | None:
    """Returns the names of labels or features in a file next to a data file; None where no file has `count` lines."""
    from smoothlink.data.files_on_disk import bare_name, compressed_variants

    for name in NAME_FILES[noun]:
        if name == bare_name(path) or not count:
            continue
        for file in compressed_variants(Path(path).with_name(name)):
            lines = _lines(file)
            if len(lines) == count:
                return [_decoded(file, number, line) for number, line in enumerate(lines, 1)]
    return None


def _name_file(path: str, noun: str, names: Sequence[str]) -> list[tuple[Path, bytes]]:
    """Returns the file of names to write next to a data file; none where it is there. Others are not overwritten."""
    from smoothlink.data.files_on_disk import compressed_variants

    target = Path(path).with_name(NAME_FILES[noun][0])
    odd = next((name for name in names if "\n" in name or name.endswith("\r")), None)
    if odd is not None:
        raise DataError(
            f"{target}: the name {odd!r} holds a line break.\nRename it, or write npz, which holds any name."
        )
    content = "".join(f"{name}\n" for name in names).encode()
    for file in compressed_variants(target):
        if _lines(file) != content.split(b"\n")[:-1]:
            raise DataError(f"{file} is there already and holds other names.\nWrite into another folder, or move it.")
        return []
    return [(target, content)]


def _lines(path: Path) -> list[bytes]:
    from smoothlink.data.files_on_disk import load

    if path.stat().st_size == 0:
        return []
    lines = load(str(path)).data.tobytes().split(b"\n")
    return [line.removesuffix(b"\r") for line in (lines if lines[-1] else lines[:-1])]


def _decoded(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as e:
        raise DataError(f"{path}, line {number}: the name is not UTF-8 ({e.reason}).\nSave the file as UTF-8.") from e


def align(data: Data, *, label_names: Sequence[str] | None = None, feature_names: Sequence[str] | None = None) -> Data:
    """Returns the data with its columns in the order of these names, those of a training set say; others follow."""
    X, Y, labels, features = data[:4]
    if label_names is not None:
        Y, labels = _aligned(Y, labels, label_names, "label")
    if feature_names is not None:
        X, features = _aligned(X, features, feature_names, "feature")
    return data._replace(X=X, Y=Y, label_names=labels, feature_names=features)


def _aligned(M: csr_array, names: list[str] | None, order: Sequence[str], noun: str) -> tuple[csr_array, list[str]]:
    from smoothlink.data.matrices_from_rows import csr

    if names is None:
        raise DataError(
            f"the {noun}s have no names to align.\nPut them in a {noun}s.txt next to the file, one per line."
        )
    for listed in (names, order):
        if len(set(listed)) < len(listed):
            twin = next(name for name in listed if list(listed).count(name) > 1)
            raise DataError(f"two {noun}s are named {twin!r}.\nGive each its own name to align columns by name.")
    place = {name: i for i, name in enumerate(order)}
    for name in names:
        place.setdefault(name, len(place))
    table = np.array([place[name] for name in names], np.int64)
    moved = csr(M.indptr, table[M.indices].astype(np.int32), M.data, len(place))
    moved.has_sorted_indices = False
    moved.sort_indices()
    return moved, list(place)
