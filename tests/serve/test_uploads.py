"""Tables that are uploaded, and files that are downloaded and learnt from."""

import contextlib
import io
import json
import random
import socket
import threading
import time
import zipfile

import httpx
import openpyxl
import pytest
from commands import run
from hypothesis import given, settings
from hypothesis import strategies as st
from served import TOPICS, client, listening, text_model

from smoothlink import load
from smoothlink.serve import ServerSettings
from smoothlink.serve.uploads import KINDS, label_cells, table_file, table_lines
from smoothlink.text.label_cells import guess_separator, names_in
from smoothlink.text.tables import read_table, write_table

ROWS = [["a1", 'apple, "iron"\nand plum', 3], ["ü2", "=rain()", None], ["3", "", 0.5]]
COLUMNS = ["id", "text", "year"]


def file_of(kind, columns=COLUMNS, rows=ROWS):
    made = io.BytesIO()
    write_table(made, kind, columns, rows)
    return made.getvalue()


def upload(made, name, content, **query):
    return made.post("/table", params={"name": name, **query}, content=content)


def refused(response, status):
    assert response.status_code == status, response.text
    return response.json()["reason"]


def lines_of(columns, rows, labels="labels"):
    return "\n".join(json.dumps(line) for line in [{"columns": columns, "labels": labels}, *rows]).encode()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_becomes_lines_of_json(texts, kind):
    response = upload(texts, f"Reports 2.{kind.upper()}", file_of(kind))
    head, *rows = map(json.loads, response.text.split("\n"))
    assert head["columns"] == COLUMNS
    assert [row[0] for row in rows] == ["a1", "ü2", "3"]
    assert rows[1][1] == "=rain()"
    if kind in ("jsonl", "xlsx"):
        assert [row[2] for row in rows] == [3, None, 0.5]


def test_a_file_with_a_long_name_is_read(texts):
    assert upload(texts, f"{'long ' * 50}.csv", file_of("csv")).status_code == 200


def test_a_client_that_sends_tables_slowly_leaves_room_for_others():
    head = b"POST /table?name=a.csv HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with listening(text_model()) as address, contextlib.ExitStack() as stack:
        port = int(address.rsplit(":", 1)[1])
        for _ in range(3):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20, ("127.0.0.2", 0)))
            slow.sendall(head)
        time.sleep(0.2)
        assert httpx.post(f"{address}/table?name=a.csv", content=file_of("csv"), timeout=5).status_code == 200


@pytest.mark.parametrize("encoding", ["undefined", "punycode", "IDNA", "hex", "\0", "none"])
def test_an_encoding_that_is_none_of_texts_is_refused_at_once(texts, encoding):
    content = b"text\na-" + 500_000 * b"b"  # as punycode it would take minutes
    assert "is not known" in refused(upload(texts, "a.csv", content, encoding=encoding), 422)


def test_a_line_that_would_hold_up_others_is_refused(texts):
    cell = f"[{','.join(['[]'] * 1_500_000)}]"
    assert "Line 2 has" in refused(upload(texts, "a.jsonl", f'{{"a": 1}}\n{{"a": {cell}}}'.encode()), 413)
    content = lines_of(["text", "labels"], [["a", []]]) + f"\n[{cell}, []]".encode()
    for kind in KINDS:
        assert "Line 3 has" in refused(texts.post(f"/table/file?kind={kind}", content=content), 413)


def test_cells_that_javascript_cannot_hold_are_text_or_nothing(texts):
    content = b'{"id": 12345678901234567890, "n": NaN, "text": "a", "at": [1, {"b": null}]}'
    line = upload(texts, "a.jsonl", content).text.split("\n")[1]
    assert json.loads(line) == ["12345678901234567890", None, "a", [1, {"b": None}]]


def test_a_file_of_windows_is_read_again_in_its_encoding(texts):
    content = "id;text\n1;café\n".encode("cp1252")
    assert "encoding" in refused(upload(texts, "a.csv", content), 422)
    assert json.loads(upload(texts, "a.csv", content, encoding="cp1252").text.split("\n")[1]) == ["1", "café"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.pdf", b"%PDF", "is not a table that is read here. Save it as .csv, .tsv, .jsonl, .xlsx."),
        ("a.parquet", b"PAR1", ".csv, .tsv, .jsonl, .xlsx"),
        ("a.xlsx", b"not a sheet", "cannot be read"),
        ("a.xlsx", file_of("csv"), "cannot be read"),
        ("a.csv", b"", "empty"),
        ("a.csv", b"id,text\n", "no rows"),
        ("a.csv", b"id,text\n1,2,3\n", "line 2: 3 cells, where the first line has 2"),
        ("a.csv", b"text,text\n1,2\n", "two columns that are called text"),
        ("a.csv", b"\x00\x01\x02" * 30, "not UTF-8"),
        ("a.jsonl", b"[1, 2]", "an object is wanted"),
        ("a.jsonl", b'{"text": Infinity}', "not finite"),
        ("a.jsonl", b"{", "not JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_not_a_table_is_refused_with_a_sentence(texts, name, content, reason):
    said = refused(upload(texts, name, content), 422)
    assert reason in said
    assert "\n" not in said
    assert "--" not in said


def test_an_upload_of_100_mb_is_refused_whether_or_not_it_announces_its_size(texts):
    block = b"x" * (1 << 20)
    assert "52,428,800 bytes" in refused(upload(texts, "a.csv", block * 100), 413)
    assert "52,428,800 bytes" in refused(upload(texts, "a.csv", iter([block] * 100)), 413)


def test_hundreds_of_damaged_tables_are_read_or_refused(texts):
    rng = random.Random(0)
    for i in range(400):
        kind = KINDS[i % 4]
        content = bytearray(file_of(kind) if i % 8 < 4 else lines_of(["text", "labels"], [["a", ["b"]]]))
        for _ in range(rng.randrange(1, 9)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path = f"/table?name=a.{kind}" if i % 8 < 4 else f"/table/file?kind={kind}"
        response = texts.post(path, content=bytes(content))
        assert response.status_code in (200, 413, 422), (path, bytes(content))


def test_a_sheet_that_unpacks_to_much_more_is_refused_before_it_is_unpacked():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("xl/sharedStrings.xml", b" " * 9_000_000)
    with client(text_model(), ServerSettings(max_upload=1 << 20)) as made:
        assert "more than 1 MB of text" in refused(upload(made, "a.xlsx", packed.getvalue()), 413)


def test_a_token_is_needed_for_tables(tmp_path):
    with client(text_model(), ServerSettings(token="s3cret", store=str(tmp_path))) as made:
        for path in ("/table?name=a.csv", "/table/file?kind=csv", "/corrections"):
            assert made.post(path, content=b"x").status_code == 401
        headers = {"Authorization": "Bearer s3cret"}
        assert made.post("/table?name=a.csv", content=file_of("csv"), headers=headers).status_code == 200


def test_others_are_served_while_a_table_is_read():
    rows = [[f"word{i} " * 20, i] for i in range(60_000)]
    content = file_of("csv", ["text", "n"], rows)
    with listening(text_model()) as address:
        times, done = [], threading.Event()

        def others():
            with httpx.Client(base_url=address) as made:
                while not done.is_set():
                    start = time.perf_counter()
                    assert made.post("/predict", json={"texts": ["apple"]}).status_code == 200
                    times.append(time.perf_counter() - start)

        thread = threading.Thread(target=others)
        thread.start()
        response = httpx.post(f"{address}/table?name=a.csv", content=content, timeout=60)
        done.set()
        thread.join()
    assert response.text.count("\n") == 60_000
    assert len(times) > 3
    assert max(times) < 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_uploaded_comes_back_with_its_labels(texts, kind):
    names = [["metal", "fruit"], ["weather"], []]
    rows = [[*row, labels] for row, labels in zip(ROWS, names, strict=True)]
    content = lines_of([*COLUMNS, "labels"], rows)
    response = texts.post("/table/file", params={"kind": kind}, content=content)
    table = read_table(response.content, kind)
    assert table.columns == [*COLUMNS, "labels"]
    cells = list(table)
    guess = guess_separator([row[3] for row in cells])
    assert [names_in(row[3], guess.separator, "") for row in cells] == names
    assert [row[0] for row in cells] == ["a1", "ü2", "3"]


def test_formulas_in_cells_are_text(texts):
    content = lines_of(["text", "labels"], [["=1+1", ["=2+2"]]])
    response = texts.post("/table/file?kind=xlsx", content=content)
    sheet = openpyxl.load_workbook(io.BytesIO(response.content)).worksheets[0]
    assert [cell.data_type for cell in sheet[2]] == ["s", "s"]


@settings(max_examples=200)
@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "c, d", "e; f", "g|h", "[i]", "1,2", "k l"]), unique=True, max_size=4),
        min_size=1,
    ),
    st.sampled_from([None, ",", ";", "|", " ", "list", "none"]),
)
def test_labels_in_cells_are_read_as_they_were_written(rows, separator):
    cells = label_cells(rows, separator)
    guess = guess_separator(cells)
    assert guess.clear
    assert [names_in(cell, guess.separator, "") for cell in cells] == rows


def test_the_models_own_separator_is_taken_where_it_separates():
    rows = [["a", "b"], ["b", "c"], ["c", "a"], ["a"]] * 5
    assert label_cells(rows, ";")[0] == "a;b"
    assert label_cells(rows, None)[0] == "a|b"
    assert label_cells([*rows, ["x;y"]], ";")[0] == "a|b"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "The first line must be like"),
        (b"[]", "The first line must be like"),
        (b"{", "Line 1 is not JSON"),
        (lines_of(["text"], []), "there is no column 'labels'"),
        (lines_of(["labels"], [[["a"], 3]]), "Line 2 is not a list of 1 cells"),
        (lines_of(["labels"], [["a"]]), "Line 2: the labels are not a list of texts"),
        (lines_of(["labels"], [[[3]]]), "Line 2: the labels are not a list of texts"),
        (b"[" * 100_000, "Line 1 is not JSON"),
        (lines_of(["text", "labels"], [["x" * 40_000, []]]), "of .xlsx has room for"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_not_a_labelled_table_is_refused_with_a_sentence(texts, content, reason):
    assert reason in refused(texts.post("/table/file?kind=xlsx", content=content), 422)


def test_kinds_that_are_not_written_are_refused(texts):
    assert "csv, tsv, jsonl, xlsx" in refused(texts.post("/table/file?kind=pdf", content=b""), 422)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_downloaded_file_is_learnt_from_as_it_is(tmp_path, kind):
    names = list(TOPICS)
    rows = [
        [
            f"{i}",
            " ".join(TOPICS[names[i % 5]][:3] + TOPICS[names[(i + 1 + i % 3) % 5]][:2]),
            [names[i % 5], names[(i + 1 + i % 3) % 5]],
        ]
        for i in range(60)
    ]
    path, model = tmp_path / f"tagged.{kind}", tmp_path / "model.safetensors"
    path.write_bytes(table_file(lines_of(["id", "abstract", "tags"], rows, "tags"), kind, None))
    ran = run("train", path, "--text", "abstract", "--labels", "tags", "-o", model, "--effort", "quick")
    assert ran.code == 0, ran.err
    assert sorted(load(model).classes_) == sorted(names)


def test_reading_a_table_does_not_depend_on_the_server():
    assert json.loads(table_lines(b"text\na\n", "a.csv", None, 1000).split(b"\n")[1]) == ["a"]
