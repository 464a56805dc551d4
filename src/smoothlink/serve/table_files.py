"""Tables in the bytes of files <-> rows of cells: CSV, TSV, JSON lines and XLSX."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from smoothlink.errors import DataError

KINDS = ("csv", "tsv", "jsonl", "xlsx")
NOT_IN_SHEETS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
SHEET_CELL = 32_767  # characters that a cell of a sheet has room for


class Row(NamedTuple):
    """One row of a table."""

    where: str  # "line 7"
    cells: list[Any]


@dataclass
class Table:
    """Named columns, and rows that can be gone through once; to iterate over it gives the cells."""

    columns: list[str]
    rows: Iterator[Row]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[list[Any]]:
        return (row.cells for row in self.rows)


def kind_of(name: str) -> str:
    """Returns the kind of table that the name of a file says."""
    kind = name.lower().rpartition(".")[2]
    if kind not in KINDS:
        endings = ", ".join(f".{kind}" for kind in KINDS)
        raise DataError(f"{name}: the name does not say what kind of table it is.\nPossible endings are {endings}.")
    return kind


def read_table(source: bytes, kind: str, *, encoding: str | None = None, name: str = "the table") -> Table:
    """Returns the table in the bytes of a file."""
    if not source:
        raise DataError(f"{name}: the file is empty.\nMake or fetch it again.")
    if kind == "xlsx":
        rows = sheet_rows(source, name)
    else:
        try:
            text = source.decode(encoding or "utf-8-sig")
        except (UnicodeDecodeError, LookupError) as error:
            raise DataError(f"{name}: not UTF-8 text ({error}).\nPass another --encoding, such as cp1252.") from error
        if "\0" in text:
            raise DataError(f"{name}: not UTF-8 text.\nPass another --encoding, such as utf-16.")
        if kind == "jsonl":
            return json_table(text, name)
        rows = separated_rows(text, kind, name)
    header = next(rows, None)
    if header is None:
        raise DataError(f"{name} has no rows: there is nothing to read.")
    columns = ["" if cell is None else str(cell).strip() for cell in header.cells]
    return Table([text or f"column {j}" for j, text in enumerate(columns, 1)], rows)


def separated_rows(text: str, kind: str, name: str) -> Iterator[Row]:
    """Yields the rows of CSV or TSV, all with as many cells as the first."""
    csv.field_size_limit(sys.maxsize)
    first = text.partition("\n")[0]
    quotes: Any = {"quoting": csv.QUOTE_NONE} if kind == "tsv" else {"strict": True}
    mark = "\t" if kind == "tsv" else max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, **quotes)
    width = 0
    try:
        for cells in reader:
            width = width or len(cells)
            if cells and len(cells) != width:
                what = f"{len(cells)} cells, where the first line has {width}"
                raise DataError(f"{name}, line {reader.line_num}: {what}.\nMend the line, or its quotes.")
            if cells:
                yield Row(f"line {reader.line_num}", cells)
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: {error}.\nMend the quotes of the line.") from error


def json_table(text: str, name: str) -> Table:
    """Returns the table of objects, one on each line; its columns are all keys that occur."""
    found = []
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name}, line {number}: this is not JSON.\nMend the line, or take it out.") from error
        if not isinstance(entry, dict):
            raise DataError(f'{name}, line {number}: an object is wanted, such as {{"text": ...}}.')
        found.append((f"line {number}", entry))
    columns = list(dict.fromkeys(key for _, entry in found for key in entry))
    return Table(columns, (Row(where, [entry.get(column) for column in columns]) for where, entry in found))


def sheet_rows(content: bytes, name: str) -> Iterator[Row]:
    """Returns the rows of the first sheet that are not empty, all of one width."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise DataError("The format xlsx needs openpyxl.\nType: pip install 'smoothlink[text]'") from error
    try:
        sheet = load_workbook(io.BytesIO(content), read_only=True, data_only=True).worksheets[0]
        sheet.reset_dimensions()  # those in the file may be wrong
        cells = [[sheet_cell(value) for value in row] for row in sheet.iter_rows(values_only=True)]
    except Exception as error:  # zipfile's, the XML parser's and openpyxl's own, of many types
        raise DataError(f"{name}: the XLSX file cannot be read ({error}).\nMake or fetch it again.") from error
    width = max((j for row in cells for j, cell in enumerate(row, 1) if cell not in (None, "")), default=0)
    return (
        Row(f"row {number}", (row + [None] * width)[:width])
        for number, row in enumerate(cells, 1)
        if any(cell not in (None, "") for cell in row)
    )


def sheet_cell(value: Any) -> Any:
    """Returns numbers and text as they are, all else, such as dates, as text."""
    return value if value is None or isinstance(value, str | int | float) else str(value)


def write_table(target: IO[bytes], kind: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table to a binary stream."""
    if kind == "xlsx":
        write_sheet(target, columns, rows)
    elif kind == "jsonl":
        for row in rows:
            line = json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False)
            target.write(line.encode("utf-8", "replace") + b"\n")
    else:
        stream = io.StringIO(newline="")
        if kind == "tsv":
            for row in [columns, *rows]:
                cells = ("" if cell is None else str(cell) for cell in row)
                stream.write("\t".join(re.sub(r"[\t\r\n]", " ", cell) for cell in cells) + "\n")
        else:
            csv.writer(stream, lineterminator="\n").writerows([columns, *rows])
        target.write(stream.getvalue().encode("utf-8", "replace"))


def write_sheet(target: IO[bytes], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell

    book = Workbook(write_only=True)
    sheet = book.create_sheet("table")

    def as_cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if len(value) > SHEET_CELL:
            raise DataError(f"A cell of .xlsx has room for {SHEET_CELL:,} characters.\nWrite .csv.")
        cell = WriteOnlyCell(sheet, NOT_IN_SHEETS.sub(" ", value))
        cell.data_type = "s"  # also where it begins like a formula
        return cell

    with closing(sheet):
        for row in [columns, *rows]:
            sheet.append([as_cell(value) for value in row])
    book.save(target)
