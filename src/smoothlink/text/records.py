"""Raw-text files, record by record: JSON lines, tables, Parquet, fastText lines, a folder of documents."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from smoothlink.data.files_on_disk import SUFFIXES, bare_name, head, load
from smoothlink.errors import DataError

MARK = "__label__"
FORMATS = {
    "jsonl": "JSON, an object a line, or one list of objects",
    "csv": "comma-separated values, with a header unless columns are numbers",
    "tsv": "tab-separated values, without quotes, with a header unless columns are numbers",
    "parquet": "Parquet (pip install 'smoothlink[text]')",
    "fasttext": f"fastText: lines `{MARK}x {MARK}y text`",
    "folder": "a folder of .txt files, the labels of each in a .key file, one a line",
}
ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


class Record(NamedTuple):
    """One document as it stands in its file."""

    where: str  # "line 7"
    values: dict[str, Any]  # by column


def recognise(path: str) -> str | None:
    """The raw-text format of a file or folder by its first bytes, else by its name; None where it is none of them."""
    if Path(path).is_dir():
        return "folder" if any(documents_in(path)) else None
    start = head(path, 1 << 12).removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(MARK.encode()):
        return "fasttext"
    if start.startswith((b"{", b"[{")):
        return "jsonl"
    return ENDINGS.get(Path(bare_name(path)).suffix.lower())


def records(path: str, format: str, *, numbered: bool) -> Iterator[Record]:
    """The records of a file; those of tables have columns called 1, 2, ... where they are `numbered`."""
    match format:
        case "jsonl":
            return json_records(path)
        case "csv" | "tsv":
            return table_records(path, format, numbered)
        case "parquet":
            return parquet_records(path)
        case "fasttext":
            return marked_records(path)
        case _:
            return folder_records(path)


def content(path: str) -> str:
    """The text of a file, plain or compressed."""
    found = load(path)
    raw = found.data.tobytes()
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        what = f"the byte 0x{raw[error.start]:02x} is not UTF-8."
        remedy = f"Find out its encoding and convert it: iconv -f latin1 -t utf-8 {path} > NEW"
        raise found.error(error.start, what, remedy) from error


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of the lines that say something. (Only line ends end a line: texts hold U+2028.)"""
    for number, line in enumerate(io.StringIO(content(path), newline=None), 1):
        if line.strip():
            yield number, line.rstrip("\n")


def json_records(path: str) -> Iterator[Record]:
    text = content(path)
    if text.lstrip().startswith("["):
        yield from json_list(path, text)
        return
    for number, line in lines(path):
        try:
            found = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{path}, line {number}: this is not JSON ({error}): {line[:60]!r}\nMend the line, or take it out."
            ) from error
        yield as_record(path, f"line {number}", found)


def json_list(path: str, text: str) -> Iterator[Record]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path}: this is not JSON ({error}).\nMend the file.") from error
    for number, entry in enumerate(found, 1):
        yield as_record(path, f"entry {number}", entry)


def as_record(path: str, where: str, found: Any) -> Record:
    if not isinstance(found, dict):
        kind = type(found).__name__
        raise DataError(f'{path}, {where}: an object is wanted, such as {{"text": ...}}, and a {kind} came.')
    return Record(where, found)


def delimiter_of(path: str, format: str, text: str) -> str:
    """A tab, or what the first line of comma-separated values has most of: some use semicolons."""
    first = text[: text.find("\n")] if "\n" in text else text
    return "\t" if format == "tsv" else max(",;\t", key=first.count)


def table_rows(path: str, format: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the last line of each row, and its cells; all rows have as many as the first."""
    csv.field_size_limit(sys.maxsize)
    text = content(path)
    quotes: Any = {"quoting": csv.QUOTE_NONE} if format == "tsv" else {"strict": True}
    table = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(path, format, text), **quotes)
    width = 0
    try:
        for cells in table:
            width = width or len(cells)
            if cells and len(cells) != width:
                raise DataError(
                    f"{path}, line {table.line_num}: {len(cells)} cells, where the first line has {width}.\n"
                    "Mend the line; in .csv files a cell with a separator or a line end in it needs quotes."
                )
            if cells:
                yield table.line_num, cells
    except csv.Error as error:
        raise DataError(f"{path}, line {table.line_num}: {error}.\nMend the quotes of the line.") from error


def table_records(path: str, format: str, numbered: bool) -> Iterator[Record]:
    names: list[str] = []
    for number, cells in table_rows(path, format):
        if not names:
            names = [str(j) for j in range(1, len(cells) + 1)] if numbered else [cell.strip() for cell in cells]
            if not numbered:
                continue
        yield Record(f"line {number}", dict(zip(names, cells, strict=True)))


def parquet_records(path: str) -> Iterator[Record]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise DataError(f"{path}: Parquet needs pyarrow.\nType: pip install 'smoothlink[text]'") from error
    try:
        file = parquet.ParquetFile(path)
        row = 0
        for batch in file.iter_batches():
            for values in batch.to_pylist():
                row += 1
                yield Record(f"row {row}", values)
    except (ArrowException, OSError) as error:
        raise DataError(f"{path}: the Parquet file cannot be read ({error}).\nMake or fetch it again.") from error


def marked_records(path: str) -> Iterator[Record]:
    """fastText: words that begin with __label__ are labels, wherever they stand."""
    for number, line in lines(path):
        words = line.split()
        labels = [word.removeprefix(MARK) for word in words if word.startswith(MARK)]
        said = " ".join(word for word in words if not word.startswith(MARK)) if labels else line
        yield Record(f"line {number}", {"text": said, "labels": labels})


def documents_in(folder: str) -> Iterator[Path]:
    """The .txt files of a folder, in order."""
    yield from sorted(p for p in Path(folder).iterdir() if Path(bare_name(p)).suffix == ".txt" and p.is_file())


def folder_records(path: str) -> Iterator[Record]:
    found = list(documents_in(path)) if Path(path).is_dir() else []
    if not found:
        raise DataError(f"{path} is no folder with .txt files.\nName one, or another --format.")
    for file in found:
        key = next((p for p in keys_of(file) if p.is_file()), None)
        empty = file.stat().st_size == 0
        labels = (
            None if key is None else [] if not key.stat().st_size else [line.strip() for _, line in lines(str(key))]
        )
        yield Record(file.name, {"text": "" if empty else content(str(file)), "labels": labels})


def keys_of(file: Path) -> Iterator[Path]:
    """Where the labels of a document may be."""
    key = file.with_name(Path(bare_name(file)).stem + ".key")
    yield from (key, *(Path(f"{key}{suffix}") for suffix in SUFFIXES))
