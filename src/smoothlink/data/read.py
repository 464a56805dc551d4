"""Files -> X, Y and names, and back: which formats there are, how they are told apart, what they give."""

import re
from collections.abc import Sequence
from importlib import import_module
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from smoothlink.errors import DataError

FilePath = str | PathLike[str]
Count = int | Literal["auto"] | None


class Data(NamedTuple):
    """Examples with their labels."""

    X: csr_array  # (n, d) float32, indices sorted and unique
    Y: csr_array  # (n, c) float32 ones, indices sorted and unique
    label_names: list[str] | None = None  # c
    feature_names: list[str] | None = None  # d
    zero_based: bool | None = None  # whether an svmlight file counts features from 0; None: nothing says so


class Sizes(NamedTuple):
    """What a file says of itself before its rows are read."""

    rows: int
    features: int
    labels: int
    entries: int | None = None  # of X; None: only the rows would tell
    label_names: list[str] | None = None
    feature_names: list[str] | None = None


class Options(NamedTuple):
    """What `read` was told beyond the path."""

    labels_path: str | None = None
    n_labels: Count = None
    n_features: Count = None
    zero_based: bool | None = None
    threads: int | None = None


class Format(NamedTuple):
    """A format: the module that reads it, what it is, and which options mean something to it."""

    module: str
    description: str
    takes: tuple[str, ...] = ()
    writer: str = "write"
    suffixes: tuple[str, ...] = ()


_COUNTS = ("n_labels", "n_features")
FORMATS: dict[str, Format] = {
    "xmc": Format("xmc", "XMC text: header `rows features labels`, lines `l1,l2 f:v ...`", (*_COUNTS, "labels_path")),
    "xmc-new": Format(
        "xmc",
        "XMC text in two files, trn_X_Xf.txt and trn_X_Y.txt: header `rows columns`, lines `i:v ...`",
        (*_COUNTS, "labels_path"),
        writer="write_pair",
    ),
    "lshtc": Format("lshtc", "LSHTC (Kaggle) text: lines `l1, l2 f:v ...`, ids with gaps"),
    "svmlight": Format(
        "svmlight",
        "svmlight/LIBSVM text: lines `l1,l2 f:v ... # comment`",
        (*_COUNTS, "zero_based"),
        suffixes=(".svm", ".svmlight", ".libsvm"),
    ),
    "arff": Format("arff", "mulan ARFF with an XML of labels, or MEKA ARFF", ("labels_path",), suffixes=(".arff",)),
    "vw": Format("vw", "Vowpal Wabbit text: lines `l1,l2 |namespace f:v f ...`", suffixes=(".vw",)),
    "npz": Format("npz", "NumPy: one .npz, or a pair X.npz and Y.npz", ("labels_path",), suffixes=(".npz",)),
    "binary": Format("binary", "smoothlink's own: a folder of arrays that are mapped, not read", suffixes=(".sl",)),
}
_FLAGS = {
    "labels_path": "--labels-file",
    "n_labels": "--labels",
    "n_features": "--features",
    "zero_based": "--zero-based/--one-based",
}


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
    """Reads a data file of any format in FORMATS, plain or compressed.

    n_labels, n_features: None takes the header's word, or counts where there is no header; "auto" counts in any case
    (largest id + 1); a number is the number. labels_path: the second file of formats that have two, found by name
    where possible. zero_based: for svmlight, whether features count from 0; None guesses so if a
    feature 0 occurs. The result's zero_based says what was used: pass it for the test file. Names come from the file,
    or from labels.txt and features.txt beside it where their lines match.
    """
    from smoothlink.data.column_names import beside

    name, kind, options = _asked(path, format, labels_path, n_labels, n_features, zero_based, threads)
    data: Data = _module(kind).read(name, options)
    if data.label_names is None:
        data = data._replace(label_names=beside(name, "labels", data.Y.shape[1]))
    if data.feature_names is None:
        data = data._replace(feature_names=beside(name, "features", data.X.shape[1]))
    return data


def sizes(
    path: FilePath,
    *,
    format: str = "auto",
    labels_path: FilePath | None = None,
    n_labels: Count = None,
    n_features: Count = None,
    zero_based: bool | None = None,
    threads: int | None = None,
) -> Sizes | None:
    """Sizes and names of what `read` would read, from the first line or a header; None where rows must be counted."""
    from smoothlink.data.column_names import beside

    name, kind, options = _asked(path, format, labels_path, n_labels, n_features, zero_based, threads)
    look = getattr(_module(kind), "sizes", None)
    found: Sizes | None = None if look is None else look(name, options)
    if found is None:
        return None
    labels = found.label_names or beside(name, "labels", found.labels)
    return found._replace(
        label_names=labels, feature_names=found.feature_names or beside(name, "features", found.features)
    )


def first_rows(path: FilePath, count: int, **options: Any) -> csr_array:
    """X of the first rows that `read` would read, without the others where the format allows it."""
    from smoothlink.data import xmc

    found = sizes(path, **options)
    name, kind, told = _asked(path, **{**_UNASKED, **options})
    stream = xmc.Stream(name, told) if kind == "xmc" and found is not None else None
    if stream is None or found is None or stream.header.labels is None:
        return read(path, **options).X[:count]
    X = next(stream.parts())[0][:count]
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], found.features))


_UNASKED: dict[str, Any] = {"format": "auto", **Options()._asdict()}


def _asked(
    path: FilePath,
    format: str,
    labels_path: FilePath | None,
    n_labels: Count,
    n_features: Count,
    zero_based: bool | None,
    threads: int | None,
) -> tuple[str, str, Options]:
    """The path as text, its format, and options that mean something to that."""
    name = fspath(path)
    kind = recognise(path) if format == "auto" else format
    labels = None if labels_path is None else fspath(labels_path)
    options = Options(labels, n_labels, n_features, zero_based, threads)
    _check_options(name, kind, options)
    return name, kind, options


def write(data: Data, path: FilePath, *, format: str = "auto") -> None:
    """Writes a data file, compressed where the name ends so; the old file stays until the new one is whole.

    Names go inside where the format has a place for them, else to labels.txt and features.txt beside the file.
    """
    from smoothlink.data.column_names import content_beside, write_beside
    from smoothlink.data.matrices_from_rows import checked

    name = fspath(path)
    kind = _format_by_name(name) if format == "auto" else format
    module, writer = _module(kind), FORMATS[kind].writer
    X, Y = checked(data.X, "X", binary=False), checked(data.Y, "Y", binary=True)
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"X has {X.shape[0]} rows, Y {Y.shape[0]}.\nPair X with the labels of the same rows.")
    sidecars = []  # all is checked before anything is written, and names follow the data
    for noun, names, count in (("label", data.label_names, Y.shape[1]), ("feature", data.feature_names, X.shape[1])):
        if names is not None and len(names) != count:
            raise DataError(f"{len(names)} {noun} names for {count} {noun}s.\nGive one name each, or None.")
        if names and module.__name__.endswith((".xmc", ".svmlight")):
            sidecars.append(content_beside(name, f"{noun}s", names))
    getattr(module, writer)(data._replace(X=X, Y=Y), name)
    write_beside(file for file in sidecars if file is not None)


def recognise(path: FilePath) -> str:
    """The name of the file's format, from its first bytes, else from its name."""
    from smoothlink.data.files_on_disk import bare_name, head, shown
    from smoothlink.data.folder import is_folder

    name = fspath(path)
    if is_folder(name):
        return "binary"
    start = head(name).removeprefix(b"\xef\xbb\xbf")
    if not start:
        raise DataError(f"{name}: the file is empty.\nCheck the path, or make or fetch the file again.")
    if start.startswith(b"PK\x03\x04"):
        return "npz"
    if start[8:24] == b'{"__metadata__":':
        raise DataError(f"{name} is a model, not a data file.\nPass the data file in its place.")
    lines = [line.strip() for line in start.split(b"\n") if line.strip()]
    lines = lines[:-1] if len(lines) > 1 and len(start) >= 1 << 16 else lines  # the last may be cut
    kind = _format_by_lines(lines) or _suffix_format(bare_name(name))
    if kind is None and (start.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in start[:64]):
        raise DataError(f"{name}: not UTF-8 text (UTF-16, or a binary file).\nSave it as UTF-8, or pass another file.")
    if kind is None:
        what = f"the format is not clear; it starts with '{shown(lines[0] if lines else b'')}'."
        raise DataError(f"{name}: {what}\n{_which_format()}")
    return kind


def convert(
    path: FilePath,
    target: FilePath,
    *,
    format: str = "auto",
    to: str = "auto",
    n_labels: Count = None,
    n_features: Count = None,
) -> tuple[int, int, int] | None:
    """Writes the data folder of an XMC text block by block, so that the data is never whole in memory.

    None, and nothing done, where this pair of formats cannot: then `read` and `write` do. Else rows, features, labels.
    """
    from smoothlink.data import folder as binary
    from smoothlink.data import xmc
    from smoothlink.data.column_names import beside

    name, goal = fspath(path), fspath(target)
    kind = recognise(path) if format == "auto" else format
    if kind != "xmc" or (_format_by_name(goal) if to == "auto" else to) != "binary":
        return None
    _check_options(name, kind, Options(None, n_labels, n_features))
    stream = xmc.Stream(name, Options(None, n_labels, n_features))
    if stream.header.labels is None:
        return None

    def columns() -> binary.Columns:
        d, c = stream.columns()
        return binary.Columns(d, c, beside(name, "labels", c), beside(name, "features", d))

    return binary.write_parts(stream.parts(), goal, columns)


def align(data: Data, *, label_names: Sequence[str] | None = None, feature_names: Sequence[str] | None = None) -> Data:
    """The same data with its columns in the order of these names, those of a training set say; others follow."""
    X, Y, labels, features = data[:4]
    if label_names is not None:
        Y, labels = _aligned(Y, labels, label_names, "label")
    if feature_names is not None:
        X, features = _aligned(X, features, feature_names, "feature")
    return data._replace(X=X, Y=Y, label_names=labels, feature_names=features)


def _aligned(M: csr_array, names: list[str] | None, order: Sequence[str], noun: str) -> tuple[csr_array, list[str]]:
    from smoothlink.data.matrices_from_rows import csr

    if names is None:
        raise DataError(f"the {noun}s have no names to align.\nPut them in a {noun}s.txt beside the file, one a line.")
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


def _module(kind: str) -> Any:
    if kind not in FORMATS:
        raise DataError(f"there is no format {kind!r}.\n{_which_format()}")
    return import_module(f"smoothlink.data.{FORMATS[kind].module}")


def _which_format() -> str:
    return f"Pass --format with one of {', '.join(FORMATS)}."


def _check_options(path: str, kind: str, options: Options) -> None:
    _module(kind)
    for option, flag in _FLAGS.items():
        given = getattr(options, option)
        if given is None or (given == "auto" and option in _COUNTS):
            continue
        if option not in FORMATS[kind].takes:
            raise DataError(
                f"{path}: {flag} means nothing to the format {kind}.\nLeave it out, or pass another --format."
            )
        if option in _COUNTS and not (isinstance(given, int) and 0 <= given < 2**31):
            raise DataError(f"{flag} {given} is not a number of columns.\nPass {flag} auto, or a number from 0 on.")


def _format_by_lines(lines: list[bytes]) -> str | None:
    """The format that lines of text show: by header, by bar, by `1, 2`, by `index:value`."""
    text = [line for line in lines if not line.startswith((b"%", b"#"))] or [b""]
    if re.match(rb"(?i)@relation\b", text[0]):
        return "arff"
    if re.fullmatch(rb"\d+[ \t]+\d+[ \t]+\d+", text[0]):
        return "xmc"
    if re.fullmatch(rb"\d+[ \t]+\d+", text[0]):
        return "xmc-new"
    if b"|" in text[0]:
        return "vw"
    if text[0] == b"Data" or any(re.match(rb"[\d,]+,[ \t]+\d", line) for line in text):
        return "lshtc"
    if any(re.match(rb"([-+\d.,]+[ \t]+)?(qid|\d+):\S", line) for line in text):
        return "svmlight"
    return None


def _suffix_format(name: str) -> str | None:
    return next((kind for kind, form in FORMATS.items() if name.lower().endswith(form.suffixes)), None)


def _format_by_name(path: str) -> str:
    """The format to write: by suffix; .txt is XMC, in two files where the name says Xf."""
    from smoothlink.data.files_on_disk import bare_name

    name = bare_name(path)
    kind = _suffix_format(name) if "." in name else None
    if kind is None and name.lower().endswith(".txt"):
        kind = "xmc-new" if "Xf" in name else "xmc"
    if kind is None:
        raise DataError(f"{path}: the name does not say which format to write.\n{_which_format()}")
    return kind
