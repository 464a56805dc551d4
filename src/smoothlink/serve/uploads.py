"""Tables on their way between the page and files: a file -> lines of JSON, and lines of JSON -> a file.

Lines, not one value, so that no step holds the interpreter for long while other requests wait. The first line is an
object, each other line is the list of a row's cells.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from smoothlink.errors import DataError
from smoothlink.serve.schema import RefusedRequest
from smoothlink.text.label_cells import LIST, SEPARATORS, guess_separator, names_in
from smoothlink.text.tables import kind_of, read_table, write_table

KINDS = ("csv", "tsv", "jsonl", "xlsx")  # of files that are read and written
LARGEST_NUMBER = (1 << 53) - 1  # whole numbers up to it are exact in JavaScript
MAX_LINE = (
    4 << 20
)  # bytes of a row in JSON: other requests wait while one is parsed, and it takes twenty times the memory
UNPACKED = 4  # times the largest upload: the most that an .xlsx file, which is compressed, may become
MIME = {
    "csv": "text/csv; charset=utf-8",
    "tsv": "text/tab-separated-values; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def table_lines(content: bytes, name: str, encoding: str | None, max_size: int) -> bytes:
    """Returns the table in a file: {"columns": [...], "notes": [...]}, and a line per row."""
    lines: list[bytes] = []
    size = 0
    try:
        for line in read_lines(content, name[-100:], encoding, max_size):
            lines.append(line)
            size += len(line) + 1
            if size > max_size:
                raise too_much_text(max_size)
    except DataError as error:
        what, _, remedy = str(error).partition("\n")
        if "--encoding" in remedy:  # which the page has a field for
            remedy = "Choose its encoding and read it again."
        raise RefusedRequest(422, f"{what} {remedy}".strip()) from error
    return b"\n".join(lines)


def read_lines(content: bytes, name: str, encoding: str | None, max_size: int) -> Iterator[bytes]:
    """Yields the columns of a table, then its rows, as JSON; raises DataError where it cannot be read."""
    try:
        kind = kind_of(name)
    except DataError:
        kind = ""
    if kind not in KINDS:
        endings = ", ".join(f".{kind}" for kind in KINDS)
        raise DataError(f"{name} is not a table that is read here.\nSave it as {endings}.")
    if kind == "xlsx":
        check_unpacked(content, max_size)
    if kind == "jsonl":
        for _ in lines_of(content):
            pass
    table = read_table(content, kind, encoding=encoding, name=name)
    twice = next((column for column, n in Counter(table.columns).items() if n > 1), None)
    if twice is not None:
        raise DataError(f"{name} has two columns that are called {twice:.60}.\nRename one of them.")
    yield json.dumps({"columns": table.columns, "notes": table.notes}).encode()
    empty = True
    for where, cells in table.rows:
        empty = False
        try:
            line = json.dumps([for_browser(cell) for cell in cells], ensure_ascii=False, allow_nan=False)
            yield line.encode("utf-8", "replace")
        except ValueError as error:
            raise DataError(f"{name}, {where}: it holds a number that is not finite.\nTake it out.") from error
    if empty:
        raise DataError(f"{name} has columns and no rows.\nAdd the documents, one per row.")


def for_browser(cell: Any) -> Any:
    """Returns a cell that JavaScript can hold: what is not a number as nothing, a long whole number as text."""
    if cell != cell:
        return None
    return str(cell) if isinstance(cell, int) and abs(cell) > LARGEST_NUMBER else cell


def check_unpacked(content: bytes, max_size: int) -> None:
    """Raises RefusedRequest where a zip file says that its parts are too large; no more than it says is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            size = sum(part.file_size for part in parts.infolist())
    except Exception:  # of many types
        return  # read_table says what it is not
    if size > UNPACKED * max_size:
        raise too_much_text(max_size)


def too_much_text(max_size: int) -> RefusedRequest:
    reason = f"The table has more than {max_size >> 20} MB of text. Divide it into several files."
    return RefusedRequest(413, reason)


def table_file(content: bytes, kind: str, separator: str | None) -> bytes:
    """Returns the file of a table: {"columns": [...], "labels": "tags"}, and a line per row, whose cell of this
    column is a list of labels. `separator` is the model's own, which is taken where it separates them clearly."""
    if kind not in KINDS:
        raise RefusedRequest(422, f"kind is {kind[:20]!r}; possible are {', '.join(KINDS)}.")
    values = json_lines(content)
    columns, at = checked_head(next(values, None))
    rows: Iterable[list[Any]] = checked_rows(values, len(columns), at)
    if kind != "jsonl":
        rows = [[value if j == at else flat(value) for j, value in enumerate(row)] for row in rows]
        for row, cell in zip(rows, label_cells([row[at] for row in rows], separator), strict=True):
            row[at] = cell
    made = io.BytesIO()
    try:
        write_table(made, kind, columns, rows)
    except DataError as error:
        raise RefusedRequest(422, " ".join(str(error).splitlines())) from error
    return made.getvalue()


def checked_head(head: Any) -> tuple[list[str], int]:
    """Returns the columns and the place of the labels among them; raises RefusedRequest where there are none."""
    columns = head.get("columns") if isinstance(head, dict) else None
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise RefusedRequest(422, 'The first line must be like {"columns": ["text", "labels"], "labels": "labels"}.')
    if head.get("labels") not in columns:
        raise RefusedRequest(422, f"labels: there is no column {str(head.get('labels'))[:60]!r}.")
    return columns, columns.index(head["labels"])


def checked_rows(values: Iterable[Any], width: int, at: int) -> Iterator[list[Any]]:
    """Yields rows of so many cells, that of the labels a list of texts; raises RefusedRequest at another one."""
    for number, row in enumerate(values, 2):
        if not isinstance(row, list) or len(row) != width:
            raise RefusedRequest(422, f"Line {number} is not a list of {width} cells.")
        if not isinstance(row[at], list) or not all(isinstance(label, str) for label in row[at]):
            raise RefusedRequest(422, f"Line {number}: the labels are not a list of texts.")
        yield row


def lines_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the lines and their numbers; raises RefusedRequest at one that is too long."""
    for number, line in enumerate(io.BytesIO(content), 1):
        if len(line) > MAX_LINE:
            raise RefusedRequest(413, f"Line {number} has more than {MAX_LINE >> 20} MB. Divide the document.")
        yield number, line


def json_lines(content: bytes) -> Iterator[Any]:
    for number, line in lines_of(content):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RefusedRequest(422, f"Line {number} is not JSON in UTF-8.") from error


def flat(value: Any) -> Any:
    """Returns a cell of text or a number; lists and objects are spelled as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def label_cells(rows: Sequence[list[str]], separator: str | None) -> list[str]:
    """Returns cells from which `train` reads these labels without being told what separates them: by the first mark
    that does, else as lists."""
    marks = [mark for mark in (separator, *SEPARATORS) if mark in SEPARATORS and mark != "\t"]
    for mark in dict.fromkeys(marks):
        cells = [mark.join(row) for row in rows]
        guess = guess_separator(cells)
        clear = guess.clear and guess.separator != LIST
        if clear and [names_in(cell, guess.separator, "") for cell in cells] == list(rows):
            return cells
    return [json.dumps(row, ensure_ascii=False) if row else "" for row in rows]
