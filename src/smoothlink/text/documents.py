"""Files of texts <-> documents and their labels: JSON lines, tables, Parquet, fastText lines, folders."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.files_on_disk import SUFFIXES, bare_name, load, replacing
from smoothlink.data.formats import FASTTEXT_MARK, documents_in
from smoothlink.errors import DataError, plural
from smoothlink.machines.copies import is_missing
from smoothlink.text.label_cells import NONE, Guess, guess_separator, names_in, shown, text_of, unlikely_labels

Array = NDArray[Any]

TEXT_COLUMNS, LABELS_COLUMN = ("text",), "labels"  # columns where none are named
TABLE = "table"


class DocumentSource(NamedTuple):
    """How a raw-text file is read."""

    format: str  # a key of formats.TEXT_FORMATS; TABLE: columns in memory
    text: tuple[str, ...] = ()  # columns; none: TEXT_COLUMNS
    labels: str | None = None  # column; None: LABELS_COLUMN
    separator: str | None = None  # of labels in a cell, or cells.LIST or NONE; None: guessed
    prefix: str = ""  # that labels must begin with to count
    header: bool | None = None  # whether tables have one; None: unless columns are numbers

    @property
    def columns(self) -> tuple[str, ...]:
        return self.text or (() if self.format == TABLE else TEXT_COLUMNS)

    @property
    def numbered(self) -> bool:
        """Returns whether columns of tables are known by their numbers."""
        if self.header is not None:
            return not self.header
        named = [*self.text, *([] if self.labels is None else [self.labels])]
        return bool(named) and all(name.isdecimal() for name in named)


class Documents(NamedTuple):
    """Texts and their labels, and how many had none."""

    texts: list[str]
    labels: list[list[str]]
    without_text: int
    without_labels: int
    separator: str | None  # as it was given or guessed; None: cells hold no mark, or labels are lists
    notes: tuple[str, ...] = ()  # on how labels were read
    groups: list[str] | None = None  # of documents that stay on one side of every split

    def rows(self, rows: Iterable[int]) -> Documents:
        """Returns the documents of these rows."""
        at = list(rows)
        groups = None if self.groups is None else [self.groups[i] for i in at]
        return self._replace(texts=[self.texts[i] for i in at], labels=[self.labels[i] for i in at], groups=groups)

    def usable(self, *, drop_unlabelled: bool) -> Documents:
        """Returns the documents that can be learnt from."""
        pairs = enumerate(zip(self.texts, self.labels, strict=True))
        return self.rows(i for i, (text, labels) in pairs if text and (labels or not drop_unlabelled))


def join_documents(parts: Sequence[Documents]) -> Documents:
    """Returns the documents of several files."""
    return Documents(
        [text for part in parts for text in part.texts],
        [row for part in parts for row in part.labels],
        sum(part.without_text for part in parts),
        sum(part.without_labels for part in parts),
        parts[-1].separator,
        tuple(note for part in parts for note in part.notes),
        None if parts[-1].groups is None else [group for part in parts for group in part.groups or ()],
    )


def read_documents(
    path: str, source: DocumentSource, *, text_matters: bool = True, labels_matter: bool = True
) -> Documents:
    """Returns all documents of a file; texts that are missing are empty, and so are missing lists of labels."""
    texts, cells, places = [], [], []
    seen: dict[str, None] = {}
    named = source.labels or LABELS_COLUMN
    for record in records(path, source.format, numbered=source.numbered):
        where, values = record
        if len(seen) < 100:
            seen |= dict.fromkeys(values)
        columns = source.columns if text_matters else ()
        texts.append(text_of([values.get(column) for column in columns], f"{path}, {where}"))
        cells.append(values.get(named) if labels_matter else None)
        places.append(where)
    wanted = [*(source.columns if text_matters else ()), *([named] if labels_matter else ())]
    check_columns(path, wanted, list(seen), source)
    guess = Guess(source.separator) if source.separator else guess_separator(cells)
    if not guess.clear:
        typed = {"\t": "tab"}.get(guess.mark, f'"{guess.mark}"')
        raise DataError(
            f"{path}: it is not clear whether {guess.mark!r} separates labels in {shown(guess.cells)}, "
            f"column {named}.\n"
            f"Pass --label-separator {typed} if it does, --label-separator {NONE} if such a cell is one label."
        )
    separator = guess.separator
    labels = [names_in(cell, separator, f"{path}, {where}") for cell, where in zip(cells, places, strict=True)]
    if source.prefix:
        labels = [[name for name in row if name.startswith(source.prefix)] for row in labels]
    if labels_matter and not any(labels):
        what = f"no row has a label{f' that begins with {source.prefix!r}' if source.prefix else ''}"
        raise DataError(f"{path}: {what} (column {named}).\nName the column with --labels.")
    without_text = sum(not text for text in texts) if text_matters else 0
    without_labels = sum(not row for row in labels)
    guessed = "" if source.separator else guess.described("--label-separator")
    notes = [*([guessed] if guessed else []), *unlikely_labels(cells, separator)]
    return Documents(texts, labels, without_text, without_labels, separator, tuple(notes))


def column_of(path: str, source: DocumentSource, name: str) -> list[str]:
    """Returns the values of a column of groups, as text; raises an error where a document has none."""
    found, missing, seen = [], [], dict[str, None]()
    for where, values in records(path, source.format, numbered=source.numbered):
        seen |= dict.fromkeys(values) if len(seen) < 100 else {}
        found.append(str(values.get(name)))
        missing += [where] if is_missing(values.get(name)) else []
    if name not in seen:
        there = ", ".join([f"{column:.30}" for column in list(seen)[:20]] + ["..."] * (len(seen) > 20))
        raise DataError(f"{path} has no column {name}; it has {there}.\nName one of these with --groups.")
    if missing:
        raise DataError(
            f"{path}, {missing[0]}: the column {name} has no value, as in {len(missing):,} of {len(found):,} rows.\n"
            "Give each of these rows a group of its own, such as its number, or leave --groups out."
        )
    return found


def check_columns(path: str, wanted: list[str], seen: list[str], source: DocumentSource) -> None:
    """Raises an error where the file lacks a column that was named, or those looked for where none were."""
    missing = [name for name in wanted if name not in seen]
    if not seen:
        raise DataError(f"{path} has no rows: there is nothing to read.")
    if not missing:
        return
    there = ", ".join([f"{name:.30}" for name in seen[:20]] + ["..."] * (len(seen) > 20))
    if source.numbered:
        raise DataError(
            f"{path} has no column {missing[0]}; it has {len(seen)}, numbered from 1.\nPass --text and --labels."
        )
    if set(missing) <= {*TEXT_COLUMNS, LABELS_COLUMN} and not source.text:
        remedy = "Say which hold the text and the labels: --text title,body --labels tags"
    else:
        remedy = "Pass --text and --labels with names of these, or numbers from 1 where there is no header."
    raise DataError(f"{path} has no column {missing[0]}; it has {there}.\n{remedy}")


def describe(
    path: str,
    found: Documents,
    *,
    labels_matter: bool = True,
    without_text: str = "left out",
    without_labels: str = "kept",
) -> str:
    """Returns a note on how many documents a file has, what becomes of those that lack something, and on the labels."""
    parts = [f"{path}: {plural(len(found.texts), 'document')}"]
    if found.without_text:
        parts.append(f"{found.without_text:,} without text, {without_text}")
    if labels_matter and found.without_labels:
        parts.append(f"{found.without_labels:,} without labels, {without_labels}")
    return " ".join(["; ".join(parts) + ".", *found.notes])


def as_meta(source: DocumentSource) -> dict[str, Any]:
    """Returns the JSON of a model file."""
    return {**source._asdict(), "text": list(source.text)}


def from_meta(meta: dict[str, Any] | None) -> DocumentSource | None:
    """Returns the source of the training data of a model file, where it has one."""
    if not isinstance(meta, dict) or not {"format"} <= meta.keys() <= set(DocumentSource._fields):
        return None
    return DocumentSource(**{**meta, "text": tuple(meta.get("text", ()))})


# Reading, record by record


class Record(NamedTuple):
    """One document of a file."""

    where: str  # "line 7"
    values: dict[str, Any]  # by column


def records(path: str, format: str, *, numbered: bool) -> Iterator[Record]:
    """Returns the records of a file; those of tables have columns called 1, 2, ... where they are `numbered`."""
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
    """Returns the text of a file, plain or compressed."""
    found = load(path)
    raw = found.data.tobytes()
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        what = f"the byte 0x{raw[error.start]:02x} is not UTF-8."
        remedy = f"Find out its encoding and convert it: iconv -f latin1 -t utf-8 {path} > NEW"
        raise found.error(error.start, what, remedy) from error


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields number and text of lines that are not empty. (Only line ends end a line: texts hold U+2028.)"""
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
    """Returns a tab, or what the first line of comma-separated values has most of: some use semicolons."""
    first = text[: text.find("\n")] if "\n" in text else text
    return "\t" if format == "tsv" else max(",;\t", key=first.count)


def table_rows(path: str, format: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of the last line of each row, and its cells; all rows have as many as the first."""
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
    """Yields the lines of fastText: words that begin with __label__ are labels, wherever they are."""
    for number, line in lines(path):
        words = line.split()
        labels = [word.removeprefix(FASTTEXT_MARK) for word in words if word.startswith(FASTTEXT_MARK)]
        text = " ".join(word for word in words if not word.startswith(FASTTEXT_MARK)) if labels else line
        yield Record(f"line {number}", {"text": text, "labels": labels})


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
    """Yields the files that may hold the labels of a document."""
    key = file.with_name(Path(bare_name(file)).stem + ".key")
    yield from (key, *(Path(f"{key}{suffix}") for suffix in SUFFIXES))


# Writing some of the documents of a file to others


def write_documents(path: str, source: DocumentSource, parts: Sequence[Array], targets: Sequence[str]) -> None:
    """Writes the documents of each part, given by their numbers in the file, to its target."""
    writers: dict[str, Callable[..., None]] = {"parquet": parquet_parts, "folder": folder_parts}
    writers.get(source.format, line_parts)(path, source, parts, targets)


def line_parts(path: str, source: DocumentSource, parts: Sequence[Array], targets: Sequence[str]) -> None:
    head, units = units_of(path, source)
    for rows, target in zip(parts, targets, strict=True):
        with replacing(target) as stream:
            stream.write(head.encode())
            for row in rows.tolist():
                stream.write(units[row].encode())


def units_of(path: str, source: DocumentSource) -> tuple[str, list[str]]:
    """Returns the header, and the text of each document with its line end."""
    if source.format in ("csv", "tsv"):
        mark = delimiter_of(path, source.format, content(path))
        rows = [spelled(cells, source.format, mark) for _, cells in table_rows(path, source.format)]
        return ("", rows) if source.numbered else (rows[0], rows[1:])
    if source.format == "jsonl" and content(path).lstrip().startswith("["):
        return "", [json.dumps(entry, ensure_ascii=False) + "\n" for entry in json.loads(content(path))]
    return "", [line + "\n" for _, line in lines(path)]


def spelled(cells: list[str], format: str, mark: str) -> str:
    """Returns a row of a table as a line."""
    if format == "tsv":
        return "\t".join(cells) + "\n"
    stream = io.StringIO()
    csv.writer(stream, delimiter=mark, lineterminator="\n").writerow(cells)
    return stream.getvalue()


def parquet_parts(path: str, source: DocumentSource, parts: Sequence[Array], targets: Sequence[str]) -> None:
    from pyarrow import parquet

    table = parquet.read_table(path)
    for rows, target in zip(parts, targets, strict=True):
        with replacing(target) as stream:
            parquet.write_table(table.take(rows), stream)


def folder_parts(path: str, source: DocumentSource, parts: Sequence[Array], targets: Sequence[str]) -> None:
    """Copies the files to a folder for each part."""
    found = np.array(list(documents_in(path)), dtype=object)
    for rows, target in zip(parts, targets, strict=True):
        try:
            Path(target).mkdir()
        except OSError as error:
            raise DataError(f"{target}: {error.strerror}.\nRemove it, or name another --output-folder.") from error
        for file in found[rows].tolist():
            for each in (file, *(key for key in keys_of(file) if key.is_file())):
                shutil.copyfile(each, Path(target) / each.name)
