"""Tables in files: what is written in any kind is read again as it was."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothlink.errors import DataError
from smoothlink.text.tables import KINDS, kind_of, read_table, write_sheet, write_table

COLUMNS = ["id", "Titel", "tags"]
CELLS = [
    [7, 'A "quoted", title; with\nline end', "a|b"],
    [8, "größer, ｆｕｌｌ", "=1+1"],
    [9, "", None],
]
LIBRARIES = {"parquet": "pyarrow", "xlsx": "openpyxl"}
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _library(request):
    """Skips a kind whose library is not installed."""
    called = getattr(request.node, "callspec", None)
    kind = called.params.get("kind") if called else None
    if kind in LIBRARIES:
        pytest.importorskip(LIBRARIES[kind])


def as_text(rows):
    return [["" if cell is None else str(cell) for cell in row] for row in rows]


@kinds
@pytest.mark.parametrize("target", ["path", "compressed", "stream"])
def test_what_is_written_is_read_again(tmp_path, kind, target):
    cells = (
        [[c.replace("\n", " ") if isinstance(c, str) else c for c in row] for row in CELLS] if kind == "tsv" else CELLS
    )
    if target == "stream":
        stream = io.BytesIO()
        write_table(stream, kind, COLUMNS, cells)
        found = read_table(stream.getvalue(), kind)
        again = read_table(io.BytesIO(stream.getvalue()), kind)
        assert list(again) == [row.cells for row in found.rows]
        return
    path = tmp_path / (f"a.{kind}" if target == "path" else f"a.{kind}.gz")
    write_table(path, kind, COLUMNS, iter(cells))
    assert kind_of(str(path)) == kind
    found = read_table(path, kind)
    assert found.columns == COLUMNS
    assert as_text(found) == as_text(cells)


@kinds
def test_lists_are_lists_where_the_kind_has_them_and_json_elsewhere(kind):
    stream = io.BytesIO()
    write_table(stream, kind, ["tags"], [[["a", "b, c"]], [["ü"]]])
    cells = [row[0] for row in read_table(stream.getvalue(), kind)]
    assert [json.loads(cell) if isinstance(cell, str) else cell for cell in cells] == [["a", "b, c"], ["ü"]]


@kinds
def test_a_table_without_rows_has_its_columns_or_none(kind):
    stream = io.BytesIO()
    write_table(stream, kind, COLUMNS, [])
    if kind == "jsonl":
        assert stream.getvalue() == b""
    else:
        found = read_table(stream.getvalue(), kind)
        assert (found.columns, list(found)) == (COLUMNS, [])


@kinds
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40))
def test_any_text_stays_in_its_cell(kind, text):
    stream = io.BytesIO()
    write_table(stream, kind, ["a", "b"], [["x", text], ["y", "z"]])
    rows = list(read_table(stream.getvalue(), kind))
    assert len(rows) == 2
    assert [row[0] for row in rows] == ["x", "y"]
    if kind in ("jsonl", "parquet"):
        assert rows[0][1] == text


def test_parquet_keeps_types_and_mixed_columns_become_text(monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("smoothlink.text.tables.BLOCK_ROWS", 2)
    stream = io.BytesIO()
    rows = [[1, None, [], 1], [2, None, [], 2], [3, 0.5, ["a"], "text"], [4, 1.5, ["b"], [3]]]
    write_table(stream, "parquet", ["n", "x", "tags", "mixed"], rows)
    found = list(read_table(stream.getvalue(), "parquet"))
    assert [row[:3] for row in found] == [row[:3] for row in rows]
    assert [row[3] for row in found] == ["1", "2", "text", "[3]"]


def test_a_sheet_is_read_as_excel_shows_it():
    openpyxl = pytest.importorskip("openpyxl")
    from datetime import date, datetime

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Books"
    for row in [["title", None, "year", None], [None, None, None], ["A", 3, date(2020, 5, 1)], ["B", 2.5, None, "x"]]:
        sheet.append(row)
    sheet.append([datetime(2020, 5, 1, 12, 30), True, "Z"])
    book.create_sheet("Notes")
    stream = io.BytesIO()
    book.save(stream)
    table = read_table(stream.getvalue(), "xlsx")
    assert table.columns == ["title", "column 2", "year", "column 4"]
    rows = list(table.rows)
    assert [row.where for row in rows] == ["row 3", "row 4", "row 5"]
    assert [row.cells for row in rows] == [
        ["A", 3, "2020-05-01", None],
        ["B", 2.5, None, "x"],
        ["2020-05-01 12:30:00", True, "Z", None],
    ]
    assert table.notes == ("The sheet Books is read, not Notes.",)


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("xlsx", b"PK\x03\x04 cut short", "a.xlsx: the XLSX file cannot be read"),
        ("xlsx", b"\xd0\xcf\x11\xe0 old", "an old .xls, or has a password.\nSave it as .xlsx"),
        ("parquet", b"PAR1 cut short", "the Parquet file cannot be read"),
        ("csv", b"", "the file is empty"),
        (
            "csv",
            "Straße,x\n".encode("cp1252"),
            "line 1: the byte 0xdf is not UTF-8.\nIn cp1252, the encoding of Windows",
        ),
        ("csv", b"a,b\nc,M\xfcller", "it is 'Müller'. If that is right, pass --encoding cp1252."),
        ("csv", b"a,b\nc,\x81\xff", "Pass another --encoding"),
        ("csv", "a,b\n1,2".encode("utf-16-le"), "pass --encoding utf-16-le or utf-16-be"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(kind, content, message):
    with pytest.raises(DataError) as error:
        list(read_table(content, kind, name=f"a.{kind}"))
    assert message in str(error.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "cp1252"])
def test_encodings_are_recognised_or_named(encoding):
    content = "title,tags\nGröße,a\n".encode(encoding)
    named = encoding in ("utf-16-be", "cp1252")
    table = read_table(content, "csv", encoding=encoding if named else None)
    assert table.columns == ["title", "tags"]
    assert list(table) == [["Größe", "a"]]
    assert table.notes == (() if named or encoding.startswith("utf-8") else (f"It is {encoding.upper()}.",))


def test_an_encoding_that_does_not_exist_or_fit_is_said():
    with pytest.raises(DataError, match="encoding 'cp12' is not known"):
        read_table(b"a", "csv", encoding="cp12")
    with pytest.raises(DataError, match=r"the byte 0xfc is not ascii.\nPass another --encoding"):
        read_table(b"M\xfcller", "csv", encoding="ascii")


@pytest.mark.parametrize("first", ["a;b;c\n", "sep=;\na;b;c\n"])
def test_cells_are_separated_by_what_the_first_line_says(first):
    table = read_table(f"{first}1;2,5;3\n".encode(), "csv")
    assert (table.columns, table.delimiter, list(table)) == (["a", "b", "c"], ";", [["1", "2,5", "3"]])


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        ([["id", "text", "tags"], ["1", "some words here", "a"]], True),
        ([["ISBN", "Schlagwort"], ["978", "Boot"], ["979", "Schiff"]], True),
        ([["Aufsatz", "Thema"], ["Some longer text of words", "Boot"], ["Another text of some words", "Schiff"]], True),
        ([["apple pear", "fruit"], ["iron zinc", "metal"]], False),
        ([["apple", "fruit"], ["iron", "metal"]], False),
        ([["text", "Paris, France"], ["text", "Rome, Italy"]], False),
        ([["7", "iron zinc copper"], ["8", "apple plum"]], False),
        ([["title", ""], ["iron", "metal"]], False),
        ([["", "title", "tags"], ["0", "iron", "metal"]], True),
        ([["Swamplandia!", "4747,7956"], ["Elementary number theory today", "1333"]], False),
        ([["text", "tags"]], True),
    ],
)
def test_a_first_row_that_looks_like_a_header_is_one(rows, header):
    content = "".join("\t".join(row) + "\n" for row in rows).encode()
    table = read_table(content, "tsv", header=None)
    assert table.header == header
    assert len(list(table)) == len(rows) - header
    assert ("--no-header says otherwise" in "".join(table.notes)) == header


def test_the_first_row_of_a_sheet_without_a_header_is_none():
    pytest.importorskip("openpyxl")
    stream = io.BytesIO()
    write_table(stream, "xlsx", ["1", "2"], [[7, "iron"], [8, "plum"]], header=False)
    assert not read_table(stream.getvalue(), "xlsx", header=None).header


def test_a_cell_that_a_sheet_cannot_hold_is_refused_by_its_column():
    pytest.importorskip("openpyxl")
    with pytest.raises(DataError, match=r"Row 1 of body has 40,000 characters, .*32,767.\nWrite .csv"):
        write_table(io.BytesIO(), "xlsx", ["body"], [["x" * 40_000]])


def test_a_name_that_says_no_kind_of_table_is_refused():
    assert [kind_of(name) for name in ("a.TSV.xz", "b.ndjson", "c.pq")] == ["tsv", "jsonl", "parquet"]
    with pytest.raises(DataError, match=r"a.xls: .*\nPossible endings are .csv"):
        kind_of("a.xls")


@pytest.mark.parametrize("kind", ["parquet", "xlsx"])
def test_a_library_that_is_missing_is_named(monkeypatch, kind):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for call in (lambda: read_table(b"x", kind), lambda: write_table(io.BytesIO(), kind, [], [])):
        with pytest.raises(DataError, match=rf"needs {LIBRARIES[kind]}.\nType: pip install 'smoothlink\[text\]'"):
            call()


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_blank_lines_are_no_rows_and_nothing_else_is_no_table(kind):
    assert list(read_table(b"a\n\nb\n\n", kind)) == [["b"]]
    with pytest.raises(DataError, match="has no rows"):
        read_table(b"\n\n", kind)


def test_one_list_of_objects_is_written_as_json():
    stream = io.BytesIO()
    write_table(stream, "json", COLUMNS, CELLS)
    assert json.loads(stream.getvalue()) == [dict(zip(COLUMNS, row, strict=True)) for row in CELLS]


def test_more_rows_than_a_sheet_has_room_for_are_refused():
    pytest.importorskip("openpyxl")
    for header in (True, False):
        write_sheet(io.BytesIO(), ["a"], [["x"]] * (4 - header), header=header, most_rows=4)
        with pytest.raises(DataError, match="room for 4 rows"):
            write_sheet(io.BytesIO(), ["a"], [["x"]] * (5 - header), header=header, most_rows=4)
