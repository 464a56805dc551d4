"""A raw-text file -> files of some of its documents each, in the same format; documents stay as they are."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.files_on_disk import replacing
from smoothlink.errors import DataError
from smoothlink.text.documents import Source
from smoothlink.text.records import content, delimiter_of, documents_in, keys_of, lines, table_rows

Array = NDArray[Any]


def write_parts(path: str, source: Source, parts: Sequence[Array], targets: Sequence[str]) -> None:
    """Writes the documents of each part, given by their numbers in the file, to its target."""
    writers: dict[str, Callable[..., None]] = {"parquet": parquet_parts, "folder": folder_parts}
    writers.get(source.format, line_parts)(path, source, parts, targets)


def line_parts(path: str, source: Source, parts: Sequence[Array], targets: Sequence[str]) -> None:
    head, units = units_of(path, source)
    for rows, target in zip(parts, targets, strict=True):
        with replacing(target) as stream:
            stream.write(head.encode())
            for row in rows.tolist():
                stream.write(units[row].encode())


def units_of(path: str, source: Source) -> tuple[str, list[str]]:
    """The header, and the text of each document with its line end."""
    if source.format in ("csv", "tsv"):
        mark = delimiter_of(path, source.format, content(path))
        rows = [spelled(cells, source.format, mark) for _, cells in table_rows(path, source.format)]
        return ("", rows) if source.numbered else (rows[0], rows[1:])
    if source.format == "jsonl" and content(path).lstrip().startswith("["):
        return "", [json.dumps(entry, ensure_ascii=False) + "\n" for entry in json.loads(content(path))]
    return "", [line + "\n" for _, line in lines(path)]


def spelled(cells: list[str], format: str, mark: str) -> str:
    """A row of a table as a line."""
    if format == "tsv":
        return "\t".join(cells) + "\n"
    stream = io.StringIO()
    csv.writer(stream, delimiter=mark, lineterminator="\n").writerow(cells)
    return stream.getvalue()


def parquet_parts(path: str, source: Source, parts: Sequence[Array], targets: Sequence[str]) -> None:
    from pyarrow import parquet

    table = parquet.read_table(path)
    for rows, target in zip(parts, targets, strict=True):
        with replacing(target) as stream:
            parquet.write_table(table.take(rows), stream)


def folder_parts(path: str, source: Source, parts: Sequence[Array], targets: Sequence[str]) -> None:
    """Copies of the files, in a folder for each part."""
    found = np.array(list(documents_in(path)), dtype=object)
    for rows, target in zip(parts, targets, strict=True):
        try:
            Path(target).mkdir()
        except OSError as error:
            raise DataError(f"{target}: {error.strerror}.\nRemove it, or name another --output-folder.") from error
        for file in found[rows].tolist():
            for each in (file, *(key for key in keys_of(file) if key.is_file())):
                shutil.copyfile(each, Path(target) / each.name)
