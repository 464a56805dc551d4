"""Tables in files <-> rows of cells: CSV, TSV, JSON lines, Parquet and XLSX, from a path or the bytes of a file."""

from __future__ import annotations

import codecs
import contextlib
import csv
import importlib.util
import io
import itertools
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from statistics import median
from typing import IO, Any, NamedTuple

from smoothlink.data.files_on_disk import check_archive, expands, is_bomb, load_bytes, replacing
from smoothlink.data.formats import OLD_EXCEL, TEXT_FORMATS, format_by_suffix
from smoothlink.errors import DataError, plural
from smoothlink.text.label_cells import SURROGATE

KINDS = ("csv", "tsv", "jsonl", "parquet", "xlsx")
NEEDS = {"parquet": "pyarrow", "xlsx": "openpyxl"}
SHEET_ROWS, SHEET_CELL = 1 << 20, 32_767  # rows, and characters in a cell, that a sheet has room for
NOT_IN_SHEETS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # no sheet may hold them
EMPTY_CELLS, EMPTY_CELLS_EACH = 2_000_000, 200  # of a sheet or of JSON: so many, or so many for each that is filled
PARQUET_LIMITS, PARQUET_PER_BYTE = {"rows": 1_000_000, "cells": 10_000_000}, 16  # so many, or so many for each byte
BLOCK_ROWS = 1 << 16  # rows at a time that become columns of Parquet
ROWS_SAMPLED = 1000  # rows that say whether the first one is a header
WORDS_OF_TEXT = 4  # in the cells of a column, or more, where it holds texts
HEADER_WORDS = re.compile(  # usual names of columns
    "abstract|author|body|categor(y|ies)|class|content|date|description|doc|document|genre|headline|id|keywords?|labels?|"
    "language|name|notes?|question|subjects?|summary|tags?|text|title|topics?|type|url|year"
)
DOMAIN_ENCODINGS = ("idna", "punycode")  # of single names; punycode takes the square of a text's length
BYTE_ORDER_MARKS = {  # UTF-32's before UTF-16's, which it begins with
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

Source = str | os.PathLike[str] | bytes | IO[bytes]


class Row(NamedTuple):
    """One row of a table."""

    where: str  # "line 7"
    cells: list[Any]  # str, number, list or None; one for each column


@dataclass
class Table:
    """Named columns, and rows of cells that can be gone through once; to iterate over it gives the cells."""

    name: str  # of the file, as messages call it
    columns: list[str]
    rows: Iterator[Row]
    notes: tuple[str, ...] = ()  # on how it was read
    header: bool = True  # whether a row of it named the columns; else they are called 1, 2, ...
    delimiter: str = ","  # between cells of CSV

    def __iter__(self) -> Iterator[list[Any]]:
        return (row.cells for row in self.rows)


def kind_of(name: str) -> str:
    """Returns the kind of table that the name of a file says, one of KINDS."""
    tables = {kind: TEXT_FORMATS[kind] for kind in KINDS}
    kind = format_by_suffix(name, tables)
    if kind is None:
        endings = ", ".join(suffix for form in tables.values() for suffix in form.suffixes)
        raise DataError(f"{name}: the name does not say what kind of table it is.\nPossible endings are {endings}.")
    return kind


def check_library(kind: str) -> None:
    """Raises an error if the library that reads and writes a kind of table is not installed."""
    if kind in NEEDS and importlib.util.find_spec(NEEDS[kind]) is None:
        raise DataError(f"The format {kind} needs {NEEDS[kind]}.\nType: pip install 'smoothlink[text]'")


# Reading


def read_table(
    source: Source, kind: str, *, encoding: str | None = None, header: bool | None = True, name: str | None = None
) -> Table:
    """Returns the table in a file, plain or compressed, or in the bytes of one.

    encoding: of text; None: UTF-8, or UTF-16 where a byte order mark says so. header: whether the first row of CSV, TSV
    and XLSX names the columns; None: if it looks like one. name: what messages call it; None: the path.
    """
    check_library(kind)
    if isinstance(source, str | os.PathLike):
        name = name or os.fspath(source)
        raw: Any = load_bytes(os.fspath(source))
    else:
        name = name or "the table"
        raw = source if isinstance(source, bytes) else source.read()
    if not len(raw):
        raise DataError(f"{name}: the file is empty.\nCheck the path, or make or fetch the file again.")
    if kind == "parquet":
        return parquet_table(raw, name)
    if kind == "xlsx":
        return with_header(name, *sheet_rows(raw, name), header)
    text, notes = decode(bytes(raw), name, encoding)
    if kind == "jsonl":
        return json_table(text, name, notes)
    table = with_header(name, separated_rows(text, kind, name), notes, header)
    table.delimiter = delimiter_of(text, kind)
    return table


def decode(raw: bytes, name: str, encoding: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Returns the text of a file, and a note where its encoding was recognised."""
    marked = next((known for mark, known in BYTE_ORDER_MARKS.items() if raw.startswith(mark)), None)
    if encoding is None and marked is None and b"\0" in raw[:64]:
        raise DataError(
            f"{name}: not UTF-8 text (UTF-16 without a byte order mark, or a binary file).\n"
            "If it is UTF-16 pass --encoding utf-16-le or utf-16-be."
        )
    try:
        if encoding is not None:
            if codecs.lookup(encoding).name in DOMAIN_ENCODINGS:
                raise LookupError
            return raw.decode(encoding).removeprefix("\ufeff"), ()
        return raw.decode(marked or "utf-8"), () if marked in (None, "utf-8-sig") else (f"It is {marked.upper()}.",)
    except UnicodeDecodeError as error:
        used, line = encoding or marked or "UTF-8", raw.count(b"\n", 0, error.start) + 1
        what = f"{name}, line {line}: the byte 0x{raw[error.start]:02x} is not {used}."
        raise DataError(f"{what}\n{other_encoding(raw, error.start, encoding)}") from error
    except (LookupError, ValueError) as error:  # a name with a zero byte, and the encoding "undefined"
        raise DataError(
            f"The encoding {encoding!r} is not known.\n"
            "Possible are utf-8, utf-16, cp1252, latin-1 and other names that Python knows: --encoding cp1252"
        ) from error


def other_encoding(raw: bytes, place: int, given: str | None) -> str:
    """Returns the advice to name an encoding, with a word as it is in that of Windows."""
    start = max(raw.rfind(mark, 0, place) for mark in (b" ", b"\n", b"\t", b",", b";", b'"')) + 1
    try:
        word = re.split(r'[\s,;"]', raw[start : start + 40].decode("cp1252"))[0]
    except UnicodeDecodeError:
        word = ""
    if given is None and word:
        return f"In cp1252, the encoding of Windows, it is {word!r}. If that is right, pass --encoding cp1252."
    return "Pass another --encoding, such as utf-8, cp1252, latin-1 or utf-16."


def with_header(name: str, rows: Iterator[Row], notes: tuple[str, ...], header: bool | None) -> Table:
    """Returns a table whose columns the first row names, or that have numbers."""
    first = next(rows, None)
    if first is None:
        raise DataError(f"{name} has no rows: there is nothing to read.")
    if header is None:
        some = list(itertools.islice(rows, ROWS_SAMPLED))
        rows, header = itertools.chain(some, rows), looks_like_header(first.cells, [row.cells for row in some])
        if header:
            listed = ", ".join(str(cell).strip() for cell in first.cells)
            notes += (f"The first row is taken for a header ({listed}); --no-header says otherwise.",)
    if not header:
        return Table(
            name, [str(j) for j in range(1, len(first.cells) + 1)], itertools.chain([first], rows), notes, False
        )
    names = ["" if cell is None else str(cell).strip() for cell in first.cells]
    return Table(name, [text or f"column {j}" for j, text in enumerate(names, 1)], rows, notes)


def looks_like_header(first: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
    """Returns whether the first row names columns: short names that their columns do not hold again; and one
    is a usual name of a column, or stands above numbers, or all are single words where others are texts."""
    names = ["" if cell is None else str(cell).strip() for cell in first]
    named = names[1:] if not names[0] and len(names) > 1 else names  # pandas writes an index without a name
    if not all(len(name) <= 40 and "\n" not in name and re.search(r"[^\W\d_]", name) for name in named):
        return False
    columns = [[cell for cell in column if cell not in (None, "")] for column in zip(*others, strict=True)]
    columns = (columns or [[] for _ in first])[-len(named) :]
    if any(name in column for name, column in zip(named, columns, strict=True)):
        return False
    usual = any(HEADER_WORDS.fullmatch(name.lower()) for name in named)
    above_numbers = any(column and all(map(is_number, column)) for column in columns)
    words = max((median(len(str(cell).split()) for cell in column) for column in columns if column), default=0)
    return usual or above_numbers or (words >= WORDS_OF_TEXT and all(len(name.split()) == 1 for name in named))


def is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def separated_rows(text: str, kind: str, name: str) -> Iterator[Row]:
    """Yields the rows of CSV or TSV, all with as many cells as the first; `where` is the last line of a row."""
    csv.field_size_limit(sys.maxsize)
    quotes: Any = {"quoting": csv.QUOTE_NONE} if kind == "tsv" else {"strict": True}
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text, kind), **quotes)
    width = 0
    try:
        for cells in reader:
            if kind == "csv" and reader.line_num == 1 and SEPARATOR_LINE.match(text):
                continue
            width = width or len(cells)
            if cells and len(cells) != width:
                raise DataError(
                    f"{name}, line {reader.line_num}: {len(cells)} cells, where the first line has {width}.\n"
                    "Mend the line; in .csv files a cell with a separator or a line end in it needs quotes."
                )
            if cells:
                yield Row(f"line {reader.line_num}", cells)
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: {error}.\nMend the quotes of the line.") from error


SEPARATOR_LINE = re.compile(r'sep=([^"\r\n])\r?\n')  # the first line of some CSV files that Excel wrote


def delimiter_of(text: str, kind: str) -> str:
    """Returns what separates cells: a tab, or what the first line of a CSV file has most of (some use semicolons)."""
    if kind == "tsv":
        return "\t"
    named = SEPARATOR_LINE.match(text)
    first = text[: text.find("\n")] if "\n" in text else text
    return named[1] if named else max(",;\t", key=first.count)


def json_table(text: str, name: str, notes: tuple[str, ...]) -> Table:
    """Returns the table of objects, one on each line or all in one list; its columns are all keys that occur."""
    if text.lstrip().startswith("["):
        try:
            listed = json_value(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name}: this is not JSON ({error}).\nMend the file.") from error
        found = [(f"entry {number}", entry) for number, entry in enumerate(listed, 1)]
    else:
        found = [(f"line {number}", json_object(line, number, name)) for number, line in lines_of(text)]
    columns: dict[str, None] = {}
    for where, entry in found:
        if not isinstance(entry, dict):
            kind = type(entry).__name__
            raise DataError(f'{name}, {where}: an object is wanted, such as {{"text": ...}}, and a {kind} came.')
        columns |= dict.fromkeys(entry)
    filled = sum(len(entry) for _, entry in found)
    check_filled(name, len(found) * len(columns), filled, "Leave keys out that are rare.")
    return Table(
        name, list(columns), (Row(where, [as_cell(entry.get(c)) for c in columns]) for where, entry in found), notes
    )


def json_object(line: str, number: int, name: str) -> Any:
    try:
        return json_value(line)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{name}, line {number}: this is not JSON ({error}): {line[:60]!r}\nMend the line, or take it out."
        ) from error


def json_value(text: str) -> Any:
    """Returns what JSON holds; halves of surrogate pairs, which escapes can spell and no file can hold, are U+FFFD."""
    found = json.loads(text)
    return without_halves(found) if SURROGATE_ESCAPE.search(text) else found


def without_halves(value: Any) -> Any:
    if isinstance(value, dict):
        return {without_halves(key): without_halves(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_halves(item) for item in value]
    return SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Yields number and text of lines that are not empty. (Only line ends end a line: texts hold U+2028.)"""
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if line.strip():
            yield number, line.rstrip("\n")


def parquet_table(raw: Any, name: str) -> Table:
    from pyarrow import ArrowException, BufferReader, parquet, py_buffer, types

    try:
        columns = parquet.read_schema(BufferReader(py_buffer(raw)))
        # Texts that a file holds once and names in many rows stay one text in memory.
        texts = [field.name for field in columns if types.is_string(field.type) or types.is_large_string(field.type)]
        file = parquet.ParquetFile(BufferReader(py_buffer(raw)), read_dictionary=texts)
    except (ArrowException, OSError, ValueError) as error:
        raise unreadable(name, "Parquet", error) from error
    counts = {"rows": file.metadata.num_rows, "cells": file.metadata.num_rows * len(columns)}
    for noun, most in PARQUET_LIMITS.items():
        if counts[noun] > most and counts[noun] > PARQUET_PER_BYTE * len(raw):
            what = f"{counts[noun]:,} {noun} in {len(raw):,} bytes are no documents."
            raise DataError(f"{name}: {what}\nMake the file again without empty columns, or pass another one.")

    def rows() -> Iterator[Row]:
        numbers, size = itertools.count(1), 0
        try:
            for batch in file.iter_batches():
                for cells in zip(*map(parquet_cells, batch.columns), strict=True):
                    size += sum(len(cell) for cell in cells if isinstance(cell, str))
                    if is_bomb(len(raw), size):
                        raise DataError(f"{name}: {expands(size)}\nMake the file again, or pass another one.")
                    yield Row(f"row {next(numbers)}", [as_cell(cell) for cell in cells])
        except DataError:
            raise
        except (ArrowException, OSError, ValueError) as error:
            raise unreadable(name, "Parquet", error) from error

    return Table(name, columns.names, rows())


def parquet_cells(column: Any) -> list[Any]:
    """Returns the cells of a column; dates and times that Python has none for are the numbers that the file holds."""
    from pyarrow import types

    column.validate(full=True)  # the reader does not look whether a place in a dictionary is one
    if types.is_dictionary(column.type):
        known = parquet_cells(column.dictionary)
        return [None if place is None else known[place] for place in column.indices.to_pylist()]
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return list(column.view("int64" if column.type.bit_width == 64 else "int32").to_pylist())


def sheet_rows(raw: Any, name: str) -> tuple[Iterator[Row], tuple[str, ...]]:
    """Returns the rows of the first sheet that are not empty, all of one width, and a note where there are others."""
    from openpyxl import load_workbook

    content = bytes(raw)
    if content.startswith(OLD_EXCEL):
        raise DataError(f"{name} is an old .xls, or has a password.\nSave it as .xlsx, without a password.")
    try:
        check_archive(name, io.BytesIO(content))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on pictures, checks of input and other things that are not read
            book = load_workbook(io.BytesIO(content), read_only=True, data_only=True)
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # those in the file may be wrong
            cells = filled_cells(name, sheet.iter_rows(values_only=True))
    except DataError:
        raise
    except Exception as error:  # zipfile's, the XML parser's and openpyxl's own, of many types
        raise unreadable(name, "XLSX", error) from error
    width = max(map(len, cells), default=0)
    rows = (Row(f"row {number}", row + [None] * (width - len(row))) for number, row in enumerate(cells, 1) if row)
    others = [other.title for other in book.worksheets[1:]]
    read = f"The sheet {sheet.title} is read, not {', '.join(others)}."
    return rows, (read,) if others else ()


def filled_cells(name: str, rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Returns the cells of each row up to its last one with a value. (One cell at the far end of a row takes a few
    bytes of the file, and 16,384 cells of memory.)"""
    found, filled, cells = [], 0, 0
    for values in rows:
        count = max((j for j, value in enumerate(values, 1) if value not in (None, "")), default=0)
        found.append([as_cell(value) for value in values[:count]])
        filled += sum(value not in (None, "") for value in values)
        cells += max(1, len(values))  # rows that the file leaves out are empty, and there may be any number of them
        check_filled(name, cells, filled, "Delete what stands at the far end of the sheet, or save it as .csv.")
    return found


def check_filled(name: str, cells: int, filled: int, remedy: str) -> None:
    """Raises an error for a table that is nearly empty, which takes far more memory or time than its file has bytes."""
    if cells > EMPTY_CELLS and cells > EMPTY_CELLS_EACH * filled:
        raise DataError(f"{name}: of {cells:,} cells {filled:,} are filled.\n{remedy}")


def unreadable(name: str, kind: str, error: Exception) -> DataError:
    return DataError(f"{name}: the {kind} file cannot be read ({error}).\nMake or fetch it again.")


def as_cell(value: Any) -> Any:
    """Returns dates as text and what is not a number as nothing."""
    if isinstance(value, datetime) and value.time() == time() and value.tzinfo is None:
        return value.date().isoformat()
    if isinstance(value, datetime | date | time):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    return None if value != value else value


# Writing


def write_table(
    target: str | os.PathLike[str] | IO[bytes],
    kind: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    delimiter: str = ",",
    header: bool = True,
) -> None:
    """Writes a table to a file, in one step and compressed as its name says, or to a binary stream.

    kind: one of KINDS, or "json" for one list of objects. A list in a cell of CSV, TSV or XLSX is written as JSON.
    header: whether the first row of these names the columns.
    """
    check_library(kind)
    if isinstance(target, str | os.PathLike):
        with replacing(os.fspath(target)) as stream:
            write_table(stream, kind, columns, rows, delimiter=delimiter, header=header)
    elif kind == "parquet":
        write_parquet(target, columns, rows)
    elif kind == "xlsx":
        write_sheet(target, columns, rows, header=header)
    else:
        for line in table_lines(kind, columns, rows, delimiter=delimiter, header=header):
            target.write(line.encode("utf-8", "replace"))


def table_lines(
    kind: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, delimiter: str = ",", header: bool = True
) -> Iterator[str]:
    """Yields the text of a table, row by row; TSV has no quotes, so that tabs and line ends in cells become spaces."""
    headed = itertools.chain([columns] if header else [], rows)
    if kind == "jsonl":
        yield from (f"{as_json(columns, row)}\n" for row in rows)
    elif kind == "json":
        yield "["
        yield from (f"{',' if i else ''}\n{as_json(columns, row)}" for i, row in enumerate(rows))
        yield "\n]\n"
    elif kind == "tsv":
        for row in headed:
            yield "\t".join(re.sub(r"[\t\r\n]", " ", str(cell_text(cell))) for cell in row) + "\n"
    else:
        stream = io.StringIO()
        writer = csv.writer(stream, delimiter=delimiter, lineterminator="\r\n")  # cells with either are quoted
        for row in headed:
            writer.writerow(map(cell_text, row))
            yield stream.getvalue().removesuffix("\r\n") + "\n"
            stream.seek(0)
            stream.truncate()


def as_json(columns: Sequence[str], row: Sequence[Any]) -> str:
    return json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=str)


def cell_text(cell: Any) -> Any:
    """Returns a cell as CSV, TSV and XLSX can hold it: nothing, text or a number."""
    if cell is None:
        return ""
    return cell if isinstance(cell, str | int | float) else json.dumps(cell, ensure_ascii=False, default=str)


def write_parquet(stream: IO[bytes], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    def as_text(values: Sequence[Any]) -> Any:
        return pyarrow.array([None if value is None else str(cell_text(value)) for value in values], pyarrow.string())

    def as_column(values: Sequence[Any]) -> Any:
        try:
            return pyarrow.array(values)
        except pyarrow.ArrowException:  # cells of different types
            return as_text(values)

    def joined(arrays: Sequence[Any]) -> Any:
        parts = [pyarrow.table([array], names=["column"]) for array in arrays]
        try:
            return pyarrow.concat_tables(parts, promote_options="permissive")["column"]
        except pyarrow.ArrowException:  # a column of numbers that later holds text
            return pyarrow.chunked_array([as_text(array.to_pylist()) for array in arrays])

    remaining, blocks = iter(rows), []
    while block := list(itertools.islice(remaining, BLOCK_ROWS)):
        blocks.append([as_column(values) for values in zip(*block, strict=True)])
    found = [joined(arrays) for arrays in zip(*blocks, strict=True)] or [as_text([]) for _ in columns]
    parquet.write_table(pyarrow.table(found, names=list(columns)), stream)


def write_sheet(
    stream: IO[bytes],
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    header: bool,
    most_rows: int = SHEET_ROWS,
) -> None:
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell

    book = Workbook(write_only=True)
    sheet = book.create_sheet("table")

    def as_sheet_cell(value: Any, number: int, column: str) -> Any:
        value = cell_text(value)
        if not isinstance(value, str):
            return value
        if len(value) > SHEET_CELL:
            raise DataError(
                f"Row {number} of {column} has {plural(len(value), 'character')}, and a cell of .xlsx has room for "
                f"{SHEET_CELL:,}.\nWrite .csv or .parquet, or leave the column out."
            )
        cell = WriteOnlyCell(sheet, NOT_IN_SHEETS.sub(" ", value))
        cell.data_type = "s"  # also where it begins like a formula
        return cell

    with contextlib.closing(sheet):
        for number, row in enumerate(itertools.chain([columns] if header else [], rows)):
            if number == most_rows:
                raise DataError(f"A sheet of .xlsx has room for {most_rows:,} rows, and there are more.\nWrite .csv.")
            sheet.append([as_sheet_cell(value, number, name) for value, name in zip(row, columns, strict=True)])
    whole = io.BytesIO()  # zipfile seeks, which a compressed stream cannot
    book.save(whole)
    stream.write(whole.getvalue())
