"""Files of texts <-> documents and their labels: JSON lines, tables, Parquet, fastText lines, folders."""

from __future__ import annotations

import fnmatch
import io
import itertools
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.files_on_disk import SUFFIXES, bare_name, displayed, load_bytes, replacing
from smoothlink.data.formats import FASTTEXT_MARK, documents_in
from smoothlink.errors import DataError, plural
from smoothlink.machines.copies import is_missing
from smoothlink.text.data_frames import list_names
from smoothlink.text.label_cells import LIST, NONE, Guess, guess_separator, names_in, shown, text_of, unlikely_labels
from smoothlink.text.numbers import Document, numbers_in
from smoothlink.text.tables import KINDS, Row, Table, decode, json_value, lines_of, read_table, write_table

Array = NDArray[Any]

TEXT_COLUMNS, LABELS_COLUMN = ("text",), "labels"  # columns where none are named
TABLE = "table"
POSITIONAL = ("csv", "tsv", "xlsx")  # formats whose columns have a number, and perhaps a header
LONGEST_COLUMN_NAME = 60  # characters
ROWS_SHOWN = 100  # rows that say which columns may hold texts, in a message
FEWEST_WORDS = 3  # per cell of a column of texts, on average
LABEL_NAMES = re.compile(r"(?i)categor|class|genre|keyword|label|subject|tag|topic")
MARKS = {"1": True, "true": True, "x": True, "0": False, "false": False, "": False}  # in a column that is one label


class DocumentSource(NamedTuple):
    """How a raw-text file is read."""

    format: str  # a key of formats.TEXT_FORMATS; TABLE: columns in memory
    text: tuple[str, ...] = ()  # columns; none: TEXT_COLUMNS
    labels: tuple[str, ...] = ()  # columns, * fitting anything; none: LABELS_COLUMN
    separator: str | None = None  # of labels in a cell, or label_cells.LIST or NONE; None: guessed
    prefix: str = ""  # that labels must begin with to count
    header: bool | None = None  # whether tables have one; None: yes, unless columns are numbers and it looks like none
    id: str | None = None  # column that says which document it is
    id_optional: bool = False  # whether a file may lack it: it was named for another file, in training
    encoding: str | None = None  # of text; None: recognised
    numbers: tuple[str, ...] = ()  # columns of numbers beside the text

    @property
    def columns(self) -> tuple[str, ...]:
        return self.text or (() if self.format == TABLE else TEXT_COLUMNS)

    @property
    def label_columns(self) -> tuple[str, ...]:
        return self.labels or (LABELS_COLUMN,)

    def for_format(self, format: str) -> DocumentSource:
        """Returns how a file of another format is read: by the same columns, where they have names."""
        known = self._replace(id_optional=self.id is not None)
        if format == self.format:
            return known
        names = (*self.text, *self.labels, *self.numbers)
        positions = any(name.isdecimal() for name in names)
        named = format in KINDS and (self.format in KINDS or self.format == TABLE) and not positions
        if not named and not (format in POSITIONAL and self.format in POSITIONAL):
            return DocumentSource(format)
        separator = None if self.separator == LIST else self.separator  # lists may be real ones there
        return known._replace(format=format, separator=separator, header=self.header if positions else None)


# What a model file stores. Not the encoding: another file in another one would be read wrongly without a word.
STORED = ("format", "text", "labels", "separator", "prefix", "header", "id", "numbers")


def as_meta(source: DocumentSource) -> dict[str, Any]:
    """Returns the JSON of a model file."""
    found = {name: getattr(source, name) for name in STORED}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def from_meta(meta: dict[str, Any] | None) -> DocumentSource | None:
    """Returns the source of the training data of a model file, where it has one."""
    if not isinstance(meta, dict) or not {"format"} <= meta.keys() <= set(STORED):
        return None
    labels = meta.get("labels") or ()  # one name or None in files of 0.2
    columns = {name: tuple(meta.get(name, ())) for name in ("text", "numbers")}
    columns["labels"] = (labels,) if isinstance(labels, str) else tuple(labels)
    return DocumentSource(**{**meta, **columns})


class KeptColumns(NamedTuple):
    """Cells of documents that go with their predictions."""

    names: list[str]
    rows: list[list[Any]]  # for each document, a cell for each name


class Documents(NamedTuple):
    """Texts and their labels, and how many had none."""

    texts: list[str]
    labels: list[list[str]]
    without_text: int
    without_labels: int
    source: DocumentSource  # as it was read: columns by name where there is a header, the separator as given or guessed
    notes: tuple[str, ...] = ()  # on how it was read
    kept: KeptColumns = KeptColumns([], [])
    groups: list[str] | None = None  # of documents that stay on one side of every split

    @property
    def separator(self) -> str | None:
        """Returns what separates labels; None: cells hold no mark, or labels are lists."""
        return self.source.separator

    @property
    def ids(self) -> list[Any] | None:
        """Returns which document each is, where a column says so."""
        if self.source.id not in self.kept.names:
            return None
        place = self.kept.names.index(self.source.id)
        return [cells[place] for cells in self.kept.rows]

    def rows(self, rows: Iterable[int]) -> Documents:
        """Returns the documents of these rows."""
        at = list(rows)
        kept = self.kept._replace(rows=[self.kept.rows[i] for i in at]) if self.kept.names else self.kept
        groups = None if self.groups is None else [self.groups[i] for i in at]
        texts, labels = [self.texts[i] for i in at], [self.labels[i] for i in at]
        return self._replace(texts=texts, labels=labels, kept=kept, groups=groups)

    def usable(self, *, drop_unlabelled: bool) -> Documents:
        """Returns the documents that can be learnt from."""
        pairs = enumerate(zip(self.texts, self.labels, strict=True))
        return self.rows(i for i, (text, labels) in pairs if text and (labels or not drop_unlabelled))


def join_documents(parts: Sequence[Documents]) -> Documents:
    """Returns the documents of several files; columns are kept where all have the same."""
    names = parts[0].kept.names if all(part.kept.names == parts[0].kept.names for part in parts) else []
    return Documents(
        [text for part in parts for text in part.texts],
        [row for part in parts for row in part.labels],
        sum(part.without_text for part in parts),
        sum(part.without_labels for part in parts),
        parts[-1].source,
        tuple(note for part in parts for note in part.notes),
        KeptColumns(names, [cells for part in parts for cells in part.kept.rows] if names else []),
        None if parts[-1].groups is None else [group for part in parts for group in part.groups or ()],
    )


def describe(
    path: str,
    found: Documents,
    *,
    labels_matter: bool = True,
    without_text: str = "left out",
    without_labels: str = "kept",
) -> str:
    """Returns a note on how many documents a file has, what becomes of those that lack something, and on the labels."""
    parts = [f"{displayed(path)}: {plural(len(found.texts), 'document')}"]
    if found.without_text:
        parts.append(f"{found.without_text:,} without text, {without_text}")
    if labels_matter and found.without_labels:
        parts.append(f"{found.without_labels:,} without labels, {without_labels}")
    return " ".join(["; ".join(parts) + ".", *found.notes])


# Reading


def read_documents(
    path: str,
    source: DocumentSource,
    *,
    text_matters: bool = True,
    labels_matter: bool = True,
    all_columns: bool = False,
) -> Documents:
    """Returns all documents of a file; texts that are missing are empty, and so are missing lists of labels.

    The id of each is kept, with all_columns all of its cells.
    """
    table = open_documents(path, source, text_matters=text_matters, labels_matter=labels_matter)
    in_text, in_labels = find_columns(table, source, text_matters=text_matters, labels_matter=labels_matter)
    in_id, notes = find_id(table, source), list(table.notes)
    in_numbers = find_numbers(table, source) if text_matters else []
    if source.id is not None and in_id is None:
        notes.append(f"It has no column {source.id}: rows are numbered.")
    kept = list(range(len(table.columns))) if all_columns else [] if in_id is None else [in_id]
    texts, cells, places, rows = [], [], [], []
    for where, values in table.rows:
        text = text_of([values[j] for j in in_text], f"{table.name}, {where}")
        if in_numbers:
            text = Document(text, numbers_in([values[j] for j in in_numbers], f"{table.name}, {where}"))
        texts.append(text)
        cells.append([values[j] for j in in_labels])
        places.append(f"{table.name}, {where}")
        rows.append([values[j] for j in kept])
    if not texts:
        raise DataError(f"{table.name} has no rows: there is nothing to read.")
    names = [table.columns[j] for j in in_labels]
    labels, separator, more = labels_in_cells(table.name, cells, places, names, source.separator)
    if source.prefix:
        labels = [[name for name in row if name.startswith(source.prefix)] for row in labels]
    if labels_matter and not any(labels):
        what = f"no row has a label{f' that begins with {source.prefix!r}' if source.prefix else ''}"
        raise DataError(f"{table.name}: {what} (column {', '.join(names)}).\nName the column with --labels.")
    read = source._replace(separator=separator)
    if table.header and len(set(table.columns)) == len(table.columns):
        if in_text and all(name.isdecimal() for name in source.columns):
            read = read._replace(text=tuple(table.columns[j] for j in in_text))
        if names and all(name.isdecimal() for name in source.label_columns):
            read = read._replace(labels=tuple(names))
        if in_numbers:
            read = read._replace(numbers=tuple(table.columns[j] for j in in_numbers))
    if in_id is not None:
        read = read._replace(id=table.columns[in_id])
    return Documents(
        texts,
        labels,
        sum(not text for text in texts) if text_matters else 0,
        sum(not row for row in labels),
        read,
        (*notes, *more),
        KeptColumns(distinct([table.columns[j] for j in kept]), rows if kept else []),
    )


def distinct(names: list[str]) -> list[str]:
    """Returns the names of columns, the second of one name with a 2 behind it and so on."""
    found: dict[str, None] = {}
    numbers = {name: itertools.count(2) for name in names}
    for name in names:
        one = name
        while one in found:
            one = f"{name} {next(numbers[name])}"
        found[one] = None
    return list(found)


def find_columns(
    table: Table, source: DocumentSource, *, text_matters: bool, labels_matter: bool
) -> tuple[list[int], list[int]]:
    """Returns the places of the columns of text and of labels; an error names those that the file has."""
    wanted = source.label_columns
    if ",".join(wanted) in table.columns:  # one name with commas in it
        wanted = (",".join(wanted),)
    fitting = {name: fnmatch.filter(table.columns, name) for name in wanted if "*" in name}
    wanted = tuple(one for name in wanted for one in (fitting.get(name) or [name]))
    text = {name: place_of(table, source, name) for name in (source.columns if text_matters else ())}
    labels = {name: place_of(table, source, name) for name in (wanted if labels_matter else ())}
    absent = [name for name, place in [*text.items(), *labels.items()] if place is None]
    if absent:
        raise missing_columns(table, source, absent[0], text=None in text.values(), labels=None in labels.values())
    return [j for j in text.values() if j is not None], [j for j in labels.values() if j is not None]


def place_of(table: Table, source: DocumentSource, name: str) -> int | None:
    """Returns the place of a column that is given by its name, or by its number from 1; None where there is none."""
    if table.columns.count(name) > 1:
        numbers = " and ".join(str(j) for j, other in enumerate(table.columns, 1) if other == name)
        raise DataError(f"{table.name} has several columns {name}: {numbers}.\nName one by its number, or rename them.")
    if name in table.columns:
        return table.columns.index(name)
    fits = source.format in POSITIONAL and name.isdecimal() and 0 < int(name) <= len(table.columns)
    return int(name) - 1 if fits else None


def column_of(path: str, source: DocumentSource, name: str) -> list[str]:
    """Returns the values of a column of groups, as text; raises an error where a document has none."""
    table = open_documents(path, source)
    place = place_of(table, source, name)
    if place is None:
        raise DataError(
            f"{table.name} has no column {name}; it has {list_names(table.columns)}.\nName one of these with --groups."
        )
    found, missing = [], []
    for where, values in table.rows:
        found.append(str(values[place]))
        missing += [where] if is_missing(values[place]) else []
    if missing:
        raise DataError(
            f"{table.name}, {missing[0]}: the column {name} has no value, as in {len(missing):,} of {len(found):,} "
            "rows.\nGive each of these rows a group of its own, such as its number, or leave --groups out."
        )
    return found


def find_id(table: Table, source: DocumentSource) -> int | None:
    """Returns the place of the column that says which document it is, if one was named; in training it may have been
    named for another file."""
    found = None if source.id is None else place_of(table, source, source.id)
    if source.id is not None and found is None and not source.id_optional:
        raise DataError(
            f"{table.name} has no column {source.id}; it has {list_names(table.columns)}.\nPass another --id."
        )
    return found


def find_numbers(table: Table, source: DocumentSource) -> list[int]:
    """Returns the places of the columns of numbers beside the text; an error names the columns that the file has."""
    found = {name: place_of(table, source, name) for name in source.numbers}
    absent = next((name for name, place in found.items() if place is None), None)
    if absent is not None:
        raise DataError(
            f"{table.name} has no column {absent}; it has {list_names(table.columns)}.\n"
            "Name columns of numbers with --numbers."
        )
    return [place for place in found.values() if place is not None]


def missing_columns(table: Table, source: DocumentSource, name: str, *, text: bool, labels: bool) -> DataError:
    """Returns the error for a column that is not there, with options that name columns which are."""
    rows = [row.cells for row in itertools.islice(table.rows, ROWS_SHOWN)]
    if not rows:
        return DataError(f"{table.name} has no rows: there is nothing to read.")
    if not table.columns:
        return DataError(
            f"{table.name} has no columns: its rows have no fields.\nPass rows with a text and its labels."
        )
    used = () if text else source.text  # of the columns of the text, none holds the labels
    left = [i for i, column in enumerate(table.columns) if column not in used] or range(len(table.columns))
    names = [table.columns[i] for i in left]
    in_text, in_labels = likely_columns(names, [[row[i] for i in left] for row in rows])
    if not text:
        in_labels = in_labels or names
    there = list_names(table.columns) if table.header else f"{len(table.columns)}, numbered from 1"
    absent = f"{table.name} has no column {name}; it has {there}."
    by_number = source.format in POSITIONAL and table.header
    typed = [("--text", in_text)] * text + [("--labels", in_labels)] * (labels and bool(in_labels))
    if by_number and max(len(column) for _, columns in typed for column in columns) > LONGEST_COLUMN_NAME:
        typed = [(option, [str(table.columns.index(column) + 1) for column in columns]) for option, columns in typed]
        absent += " The first line looks like a document, not like names of columns."
    options = " ".join(f"{option} {shlex.quote(','.join(columns))}" for option, columns in typed)
    what = " and ".join(["the text"] * text + ["the labels"] * labels)
    if by_number:
        what += " (by number from 1, where there is no header)"
    return DataError(f"{absent}\nSay which hold {what}, such as: {options}")


def likely_columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[str]]:
    """Returns the columns that may hold texts, and the one that may hold labels, if there are several columns."""
    columns = {
        name: [cell for cell in column if cell not in (None, "")]
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    words = {name: sum(len(str(c).split()) for c in column) / max(1, len(column)) for name, column in columns.items()}
    lists = [n for n in names if any(isinstance(c, list) for c in columns[n]) or guess_separator(columns[n]).separator]
    longest = max((name for name in names if name not in lists), key=lambda name: words[name], default=names[0])
    others = [name for name in names if name != longest]
    labels = [*(name for name in others if LABEL_NAMES.search(name)), *lists, *others[::-1]][:1]
    texts = [name for name in names if name not in (*labels, *lists) and words[name] >= FEWEST_WORDS]
    return texts or [longest], labels


def labels_in_cells(
    path: str, rows: list[list[Any]], places: list[str], names: list[str], given: str | None
) -> tuple[list[list[str]], str | None, list[str]]:
    """Returns the labels of each row, what separates those in a cell, and what there is to say of them.

    Several columns that hold marks such as 0 and 1 are a label each; else all hold labels.
    """
    if len(names) > 1 and given is None and all(mark_in(cell) is not None for row in rows for cell in row):
        found = [[name for name, cell in zip(names, row, strict=True) if mark_in(cell)] for row in rows]
        return found, None, [f"The columns {list_names(names)} hold 0 and 1: each is a label."]
    cells = [cell for row in rows for cell in row]
    guess = Guess(given) if given else guess_separator(cells)
    if not guess.clear:
        typed = {"\t": "tab"}.get(guess.mark, f'"{guess.mark}"')
        raise DataError(
            f"{path}: it is not clear whether {guess.mark!r} separates labels in {shown(guess.cells)}, "
            f"column {', '.join(names)}.\n"
            f"Pass --label-separator {typed} if it does, --label-separator {NONE} if such a cell is one label."
        )
    labels = [
        list(dict.fromkeys(name for cell in row for name in names_in(cell, guess.separator, where)))
        for row, where in zip(rows, places, strict=True)
    ]
    guessed = "" if given else guess.described("--label-separator")
    return labels, guess.separator, [*([guessed] if guessed else []), *unlikely_labels(cells, guess.separator)]


def mark_in(cell: Any) -> bool | None:
    """Returns whether a column that is one label marks a row; None where the cell is no mark."""
    text = "" if cell is None else str(cell).strip().lower().removesuffix(".0")  # as pandas writes columns with gaps
    return None if isinstance(cell, list | tuple) else MARKS.get(text)


def open_documents(
    path: str, source: DocumentSource, *, text_matters: bool = True, labels_matter: bool = True
) -> Table:
    """Returns the documents of a file as the rows of a table."""
    match source.format:
        case "fasttext":
            return marked_documents(path, source.encoding)
        case "folder":
            return documents_of_folder(path, source.encoding)
        case "lines":
            text, notes = decode(load_bytes(path).tobytes(), displayed(path), source.encoding)
            lines = enumerate(io.StringIO(text), 1)  # also empty ones, so that row numbers are those of lines
            rows = (Row(f"line {number}", [line.rstrip("\n")]) for number, line in lines)
            return Table(displayed(path), ["text"], rows, notes)
        case kind:
            wanted = (*(source.columns if text_matters else ()), *(source.label_columns if labels_matter else ()))
            numbers = all(name.isdecimal() for name in wanted)
            header = source.header if source.header is not None or numbers else True
            return read_table(path, kind, encoding=source.encoding, header=header, name=displayed(path))


def marked_documents(path: str, encoding: str | None) -> Table:
    """Returns the lines of fastText: words that begin with __label__ are labels, wherever they are."""

    def rows(text: str) -> Iterator[Row]:
        for number, line in lines_of(text):
            words = line.split()
            labels = [word.removeprefix(FASTTEXT_MARK) for word in words if word.startswith(FASTTEXT_MARK)]
            kept = " ".join(word for word in words if not word.startswith(FASTTEXT_MARK)) if labels else line
            yield Row(f"line {number}", [kept, labels])

    text, notes = decode(load_bytes(path).tobytes(), displayed(path), encoding)
    return Table(displayed(path), ["text", "labels"], rows(text), notes)


def documents_of_folder(path: str, encoding: str | None) -> Table:
    """Returns the .txt files of a folder, and the labels in the .key file of each."""
    found = list(documents_in(path)) if Path(path).is_dir() else []
    if not found:
        raise DataError(f"{path} is no folder with .txt files.\nName one, or another --format.")

    def content(file: Path) -> str:
        return decode(load_bytes(str(file)).tobytes(), str(file), encoding)[0] if file.stat().st_size else ""

    def rows() -> Iterator[Row]:
        for file in found:
            key = next((p for p in keys_of(file) if p.is_file()), None)
            labels = None if key is None else [line.strip() for _, line in lines_of(content(key))]
            yield Row(file.name, [file.name, content(file), labels])

    return Table(path, ["file", "text", "labels"], rows())


def keys_of(file: Path) -> Iterator[Path]:
    """Yields the files that may hold the labels of a document."""
    key = file.with_name(Path(bare_name(file)).stem + ".key")
    yield from (key, *(Path(f"{key}{suffix}") for suffix in SUFFIXES))


# Writing some of the documents of a file to others


def write_documents(path: str, source: DocumentSource, parts: Sequence[Array], targets: Sequence[str]) -> None:
    """Writes the documents of each part, given by their numbers in the file, to its target."""
    writers: dict[str, Callable[..., None]] = {"parquet": parquet_parts, "folder": folder_parts}
    writers |= dict.fromkeys(("jsonl", "fasttext"), line_parts)
    writers.get(source.format, table_parts)(path, source, parts, targets)


def line_parts(path: str, source: DocumentSource, parts: Sequence[Array], targets: Sequence[str]) -> None:
    """Copies lines as they are; the objects of one list become a line each."""
    text = decode(load_bytes(path).tobytes(), path, source.encoding)[0]
    if source.format == "jsonl" and text.lstrip().startswith("["):
        units = [json.dumps(entry, ensure_ascii=False) for entry in json_value(text)]
    else:
        units = [line for _, line in lines_of(text)]
    for rows, target in zip(parts, targets, strict=True):
        with replacing(target) as stream:
            stream.writelines(f"{units[row]}\n".encode() for row in rows.tolist())


def table_parts(path: str, source: DocumentSource, parts: Sequence[Array], targets: Sequence[str]) -> None:
    table = open_documents(path, source, text_matters=False)
    cells = list(table)
    for rows, target in zip(parts, targets, strict=True):
        chosen = (cells[row] for row in rows.tolist())
        write_table(target, source.format, table.columns, chosen, delimiter=table.delimiter, header=table.header)


def parquet_parts(path: str, source: DocumentSource, parts: Sequence[Array], targets: Sequence[str]) -> None:
    """Takes rows without making Python's values of them, so that columns keep their types."""
    from pyarrow import BufferReader, parquet, py_buffer

    table = parquet.read_table(BufferReader(py_buffer(load_bytes(path))))
    for rows, target in zip(parts, targets, strict=True):
        with replacing(target) as stream:
            parquet.write_table(table.take(rows), stream)


def folder_parts(path: str, source: DocumentSource, parts: Sequence[Array], targets: Sequence[str]) -> None:
    """Copies the files to a folder for each part."""
    found = np.array(list(documents_in(path)), dtype=object)
    for rows, target in zip(parts, targets, strict=True):
        Path(target).mkdir()
        for file in found[rows].tolist():
            for each in (file, *(key for key in keys_of(file) if key.is_file())):
                shutil.copyfile(each, Path(target) / each.name)
