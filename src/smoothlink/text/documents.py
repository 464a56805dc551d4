"""Files of texts <-> documents and their labels: JSON lines, tables, Parquet, fastText lines, folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.files_on_disk import SUFFIXES, bare_name, load_bytes, replacing
from smoothlink.data.formats import FASTTEXT_MARK, documents_in
from smoothlink.errors import DataError, plural
from smoothlink.text.label_cells import NONE, Guess, guess_separator, names_in, shown, text_of, unlikely_labels
from smoothlink.text.tables import Row, Table, decode, lines_of, read_table, write_table

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

    def rows(self, rows: Iterable[int]) -> Documents:
        """Returns the documents of these rows."""
        at = list(rows)
        return self._replace(texts=[self.texts[i] for i in at], labels=[self.labels[i] for i in at])

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
    )


def read_documents(
    path: str, source: DocumentSource, *, text_matters: bool = True, labels_matter: bool = True
) -> Documents:
    """Returns all documents of a file; texts that are missing are empty, and so are missing lists of labels."""
    texts, cells, places = [], [], []
    named = source.labels or LABELS_COLUMN
    table = open_documents(path, source)
    wanted = [*(source.columns if text_matters else ()), *([named] if labels_matter else ())]
    check_columns(path, wanted, table.columns, source)
    at = [table.columns.index(name) for name in wanted]
    in_text, in_labels = (at[:-1], at[-1]) if labels_matter else (at, None)
    for where, values in table.rows:
        texts.append(text_of([values[j] for j in in_text], f"{path}, {where}"))
        cells.append(None if in_labels is None else values[in_labels])
        places.append(where)
    if not texts:
        raise DataError(f"{path} has no rows: there is nothing to read.")
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
    notes = [*table.notes, *([guessed] if guessed else []), *unlikely_labels(cells, separator)]
    return Documents(texts, labels, without_text, without_labels, separator, tuple(notes))


def check_columns(path: str, wanted: list[str], seen: list[str], source: DocumentSource) -> None:
    """Raises an error where the file lacks a column that was named, or those looked for where none were."""
    missing = [name for name in wanted if name not in seen]
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


# Reading


def open_documents(path: str, source: DocumentSource) -> Table:
    """Returns the documents of a file as the rows of a table."""
    match source.format:
        case "fasttext":
            return marked_documents(path)
        case "folder":
            return documents_of_folder(path)
        case kind:
            return read_table(path, kind, header=not source.numbered)


def marked_documents(path: str) -> Table:
    """Returns the lines of fastText: words that begin with __label__ are labels, wherever they are."""

    def rows(text: str) -> Iterator[Row]:
        for number, line in lines_of(text):
            words = line.split()
            labels = [word.removeprefix(FASTTEXT_MARK) for word in words if word.startswith(FASTTEXT_MARK)]
            kept = " ".join(word for word in words if not word.startswith(FASTTEXT_MARK)) if labels else line
            yield Row(f"line {number}", [kept, labels])

    text, notes = decode(load_bytes(path).tobytes(), path)
    return Table(path, ["text", "labels"], rows(text), notes)


def documents_of_folder(path: str) -> Table:
    """Returns the .txt files of a folder, and the labels in the .key file of each."""
    found = list(documents_in(path)) if Path(path).is_dir() else []
    if not found:
        raise DataError(f"{path} is no folder with .txt files.\nName one, or another --format.")

    def content(file: Path) -> str:
        return decode(load_bytes(str(file)).tobytes(), str(file))[0] if file.stat().st_size else ""

    def rows() -> Iterator[Row]:
        for file in found:
            key = next((p for p in keys_of(file) if p.is_file()), None)
            labels = None if key is None else [line.strip() for _, line in lines_of(content(key))]
            yield Row(file.name, [content(file), labels])

    return Table(path, ["text", "labels"], rows())


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
    text = decode(load_bytes(path).tobytes(), path)[0]
    if source.format == "jsonl" and text.lstrip().startswith("["):
        units = [json.dumps(entry, ensure_ascii=False) for entry in json.loads(text)]
    else:
        units = [line for _, line in lines_of(text)]
    for rows, target in zip(parts, targets, strict=True):
        with replacing(target) as stream:
            stream.writelines(f"{units[row]}\n".encode() for row in rows.tolist())


def table_parts(path: str, source: DocumentSource, parts: Sequence[Array], targets: Sequence[str]) -> None:
    table = open_documents(path, source)
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
        try:
            Path(target).mkdir()
        except OSError as error:
            raise DataError(f"{target}: {error.strerror}.\nRemove it, or name another --output-folder.") from error
        for file in found[rows].tolist():
            for each in (file, *(key for key in keys_of(file) if key.is_file())):
                shutil.copyfile(each, Path(target) / each.name)
