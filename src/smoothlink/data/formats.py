"""The formats of data files: the table of them, and how a file is recognised as one of them."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from smoothlink.errors import DataError

FASTTEXT_MARK = "__label__"
OLD_EXCEL = b"\xd0\xcf\x11\xe0"  # the first bytes of .xls, and of .xlsx with a password


class Format(NamedTuple):
    """A format: what it is, and how names of files in it end."""

    description: str
    suffixes: tuple[str, ...] = ()
    module: str = ""  # of smoothlink.data, which reads it; documents are read by smoothlink.text.documents
    takes: tuple[str, ...] = ()  # the options of `read` that mean something to it
    writer: str = "write"


COUNTS = ("n_labels", "n_features")
# Rows of numbers.
FORMATS = {
    "xmc": Format(
        "XMC text: header `rows features labels`, lines `l1,l2 f:v ...`", module="xmc", takes=(*COUNTS, "labels_path")
    ),
    "xmc-new": Format(
        "XMC text in two files, trn_X_Xf.txt and trn_X_Y.txt: header `rows columns`, lines `i:v ...`",
        module="xmc",
        takes=(*COUNTS, "labels_path"),
        writer="write_pair",
    ),
    "lshtc": Format("LSHTC (Kaggle) text: lines `l1, l2 f:v ...`, ids with gaps", module="lshtc_format"),
    "svmlight": Format(
        "svmlight/LIBSVM text: lines `l1,l2 f:v ... # comment`",
        (".svm", ".svmlight", ".libsvm"),
        "svmlight",
        (*COUNTS, "zero_based"),
    ),
    "arff": Format("mulan ARFF with an XML of labels, or MEKA ARFF", (".arff",), "arff", ("labels_path",)),
    "vw": Format("Vowpal Wabbit text: lines `l1,l2 |namespace f:v f ...`", (".vw",), "vowpal_wabbit"),
    "npz": Format("NumPy: one .npz, or a pair X.npz and Y.npz", (".npz",), "npz", ("labels_path",)),
    "binary": Format("smoothlink's own: a folder of arrays that are mapped, not read", (".sl",), "folder"),
}
# Documents.
TEXT_FORMATS = {
    "jsonl": Format("JSON, an object per line, or one list of objects", (".jsonl", ".ndjson", ".json")),
    "csv": Format("comma-separated values, with a header unless columns are numbers", (".csv",)),
    "tsv": Format("tab-separated values, without quotes, with a header unless columns are numbers", (".tsv", ".tab")),
    "parquet": Format("Parquet (pip install 'smoothlink[text]')", (".parquet", ".pq")),
    "xlsx": Format("the first sheet of an Excel file, as csv (pip install 'smoothlink[text]')", (".xlsx",)),
    "lines": Format("one text on each line, to predict: a .txt file that is nothing else"),
    "fasttext": Format(f"fastText: lines `{FASTTEXT_MARK}x {FASTTEXT_MARK}y text`"),
    "folder": Format("a folder of .txt files, the labels of each in a .key file, one per line"),
}
ALL_FORMATS = FORMATS | TEXT_FORMATS
BY_CONTENT = ("vw", "lshtc", "svmlight")  # formats without a header, which a text may look like: "12:30 train to Paris"


def recognise(
    path: str | os.PathLike[str], formats: Mapping[str, Format] = ALL_FORMATS, *, lines_of_text: bool = False
) -> str:
    """Returns which of the formats a file has, by its first bytes, else by its name.

    lines_of_text: whether a .txt file is one text on each line unless it clearly is another format.
    """
    from smoothlink.data.files_on_disk import bare_name, displayed, head, shown
    from smoothlink.data.folder import is_folder

    name = os.fspath(path)
    if "binary" in formats and is_folder(name):
        return "binary"
    if "folder" in formats and os.path.isdir(name) and any(documents_in(name)):
        return "folder"
    start = head(name).removeprefix(b"\xef\xbb\xbf")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        start = start.decode("utf-16", "ignore").encode()
    if not start:
        raise DataError(f"{displayed(name)}: the file is empty.\nCheck the path, or make or fetch the file again.")
    if start[8:24] == b'{"__metadata__":':
        raise DataError(f"{name} is a model, not a data file.\nPass the data file in its place.")
    if start.startswith(OLD_EXCEL):
        raise DataError(f"{displayed(name)} is an old .xls, or has a password.\nSave it as .xlsx, without a password.")
    lines = [line.strip() for line in start.split(b"\n") if line.strip()]
    lines = lines[:-1] if len(lines) > 1 and len(start) >= 1 << 16 else lines  # the last may be cut
    kind = next((kind for kind in _candidates(name, start, lines) if kind in formats), None)
    if lines_of_text and kind in (None, *BY_CONTENT) and bare_name(name).lower().endswith(".txt"):
        return "lines"
    if kind is None and b"\0" in start[:64]:
        raise DataError(f"{name}: not UTF-8 text (UTF-16, or a binary file).\nSave it as UTF-8, or pass another file.")
    if kind is None:
        what = f"the format is not clear; it starts with '{shown(lines[0] if lines else b'')}'."
        texts = "For one text on each line pass --format lines, for a table --format csv or tsv.\n"
        raise DataError(f"{displayed(name)}: {what}\n{texts if 'lines' in formats else ''}{which_format(formats)}")
    return kind


def _candidates(name: str, start: bytes, lines: list[bytes]) -> Iterator[str | None]:
    """Yields the formats that a file may have, the surest first. (A table of texts may begin like rows of numbers.)"""
    content = start.lstrip()
    if content.startswith(b"PAR1"):
        yield "parquet"
    if start.startswith(b"PK\x03\x04") and (b"[Content_Types].xml" in start or b"xl/" in start):
        yield "xlsx"
    if content.startswith(FASTTEXT_MARK.encode()):
        yield "fasttext"
    if content.startswith((b"{", b"[{")):
        yield "jsonl"
    yield format_by_suffix(name, TEXT_FORMATS)
    if start.startswith(b"PK\x03\x04"):
        yield "npz"
    text = [line for line in lines if not line.startswith((b"%", b"#"))] or [b""]
    if re.match(rb"(?i)@relation\b", text[0]):
        yield "arff"
    if re.fullmatch(rb"\d+[ \t]+\d+[ \t]+\d+", text[0]):
        yield "xmc"
    if re.fullmatch(rb"\d+[ \t]+\d+", text[0]):
        yield "xmc-new"
    if b"|" in text[0]:
        yield "vw"
    if text[0] == b"Data" or any(re.match(rb"[\d,]+,[ \t]+\d", line) for line in text):
        yield "lshtc"
    if any(re.match(rb"([-+\d.,]+[ \t]+)?(qid|\d+):\S", line) for line in text):
        yield "svmlight"
    yield format_by_suffix(name, FORMATS)


def format_by_suffix(path: str, formats: Mapping[str, Format]) -> str | None:
    """Returns the format whose suffix a name ends with, compression aside."""
    from smoothlink.data.files_on_disk import bare_name

    name = bare_name(path).lower()
    return next((kind for kind, form in formats.items() if name.endswith(form.suffixes)), None)


def format_to_write(path: str) -> str:
    """Returns the format to write rows in: by suffix; .txt is XMC, in two files where the name says Xf."""
    from smoothlink.data.files_on_disk import bare_name

    kind, name = format_by_suffix(path, FORMATS), bare_name(path)
    if kind is None and name.lower().endswith(".txt"):
        kind = "xmc-new" if "Xf" in name else "xmc"
    if kind is None:
        raise DataError(f"{path}: the name does not say which format to write.\n{which_format(FORMATS)}")
    return kind


def which_format(formats: Mapping[str, Format]) -> str:
    """Returns the advice to name a format."""
    return f"Pass --format with one of {', '.join(formats)}."


def documents_in(folder: str) -> Iterator[Path]:
    """Yields the .txt files of a folder, in order."""
    from smoothlink.data.files_on_disk import bare_name

    yield from sorted(p for p in Path(folder).iterdir() if Path(bare_name(p)).suffix == ".txt" and p.is_file())
