"""What parsers of others raise becomes one message, and what no file can hold is read as something that can."""

import json
import os

import numpy as np
import pytest
from hostile import limited, npy

from smoothlink.data.read import Data, read, write
from smoothlink.errors import DataError
from smoothlink.text.documents import DocumentSource, read_documents
from smoothlink.text.tables import parquet_cells, read_table

DEEP = "[" * 100_000


@pytest.mark.parametrize("content", ['{"text": ' + DEEP, DEEP, "[" + DEEP, '{"text": ' + DEEP + "]" * len(DEEP) + "}"])
def test_json_that_is_nested_too_deep_is_refused(content):
    with pytest.raises(DataError, match="this is not JSON"):
        list(read_table(content.encode(), "jsonl"))


@pytest.mark.parametrize("cell", [DEEP, DEEP + "]" * len(DEEP), "[1e999]", f"[{'1' * 400}]", "[{}]", "[[1]]"])
def test_a_cell_that_holds_no_numbers_is_refused(tmp_path, cell):
    path = tmp_path / "a.csv"
    path.write_text(f'text,labels,v\na,b,"{cell}"\n')
    with pytest.raises(DataError):
        read_documents(str(path), DocumentSource("csv", numbers=("v",)))


@pytest.mark.parametrize("cell", [DEEP, DEEP + "]" * len(DEEP), "[{[]: 1}]", "[0x" + "f" * 9000 + "]", "[lambda: 0]"])
def test_a_cell_that_holds_no_list_of_labels_is_refused(tmp_path, cell):
    path = tmp_path / "a.csv"
    path.write_text(f'text,labels\na,"{cell}"\n')
    with pytest.raises(DataError):
        read_documents(str(path), DocumentSource("csv", separator="list"))


def test_halves_of_surrogate_pairs_are_read_as_replacement_characters(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(r'{"text": "a \ud800 \ud83d\ude00", "labels": ["\udc00"], "\ud800": {"\ud801": "\ud800"}}' + "\n")
    found = read_documents(str(path), DocumentSource("jsonl"), all_columns=True)
    assert found.texts == ["a \ufffd \U0001f600"]
    assert found.labels == [["\ufffd"]]
    json.dumps(found.kept, ensure_ascii=False).encode()


def test_halves_of_surrogate_pairs_in_cells_that_spell_lists_are_replacement_characters_too(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,labels\na,"[""x\\ud800"", ""\\ud83d\\ude00""]"\n')
    found = read_documents(str(path), DocumentSource("csv", separator="list"))
    assert found.labels == [["x\ufffd", "\U0001f600"]]


@pytest.fixture
def parquet(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def make(**columns):
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        return read_documents(str(tmp_path / "a.parquet"), DocumentSource("parquet"), all_columns=True)

    make.pa = pa
    return make


@pytest.mark.parametrize(
    ("kind", "number"),
    [("timestamp[ms]", 2**62), ("timestamp[ns]", 2**62 + 1), ("duration[s]", 2**62), ("date32[day]", 2**31 - 1)],
)
def test_times_in_parquet_that_python_has_none_for_are_numbers(parquet, kind, number):
    pa = parquet.pa
    of_type = {"date32[day]": pa.date32(), "duration[s]": pa.duration("s")}
    type_ = of_type.get(kind) or pa.timestamp(kind[10:12])
    stored = pa.array([number], pa.int32() if kind == "date32[day]" else pa.int64()).view(type_)
    found = parquet(text=["a"], labels=["b"], other=stored)
    cell = found.kept.rows[0][2]
    assert cell == number or (kind == "timestamp[ns]" and str(cell).startswith("2116-"))  # where pandas is installed
    assert found.texts == ["a"]


def test_text_in_parquet_that_is_not_utf_8_is_refused(parquet):
    pa = parquet.pa
    offsets = pa.py_buffer(np.array([0, 2], np.int32))
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    with pytest.raises(DataError, match="the Parquet file cannot be read"):
        parquet(text=text, labels=["b"])


@pytest.mark.parametrize("place", [7, -1])
def test_a_text_in_parquet_that_is_not_in_its_dictionary_is_refused(place):
    pa = pytest.importorskip("pyarrow")
    column = pa.DictionaryArray.from_arrays(pa.array([0, place], pa.int32()), pa.array(["a"]), safe=False)
    with pytest.raises(pa.ArrowInvalid):
        parquet_cells(column)


def test_a_parquet_file_of_more_rows_than_it_has_room_for_is_refused(parquet):
    same = parquet.pa.array(np.zeros(20_000_000, np.int8))
    with limited(), pytest.raises(DataError, match=r"20,000,000 rows in [\d,]* bytes are no documents"):
        parquet(text=same, labels=same)


@pytest.mark.parametrize("kind", ["U1", "M8[s]", "V3", [("a", "i4")], "complex64"])
def test_matrices_of_other_types_than_numbers_are_refused(tmp_path, kind):
    np.savez(tmp_path / "a.npz", X=np.zeros((1, 1), kind), Y=np.ones((1, 1)))
    with pytest.raises(DataError, match="only numbers can be read"):
        read(tmp_path / "a.npz")


def test_half_floats_are_read(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.full((1, 1), 0.5, np.float16), Y=np.ones((1, 1)))
    assert read(tmp_path / "a.npz").X.toarray() == [[0.5]]


@pytest.fixture
def folder(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((1, 1)), Y=np.ones((1, 1)))
    data = read(tmp_path / "a.npz")
    write(Data(data.X, data.Y, ["a"], ["b"]), tmp_path / "a.sl")
    return tmp_path / "a.sl"


HEADERS = [
    *(b"{'descr': '<i8', 'fortran_order': False, 'shape': (2,", b"{'descr': [('a', '<i8', 99)], 'shape': (2,)}"),
    *(b"{'descr': '<i8', 'fortran_order': False, 'shape': (9999999999999999999999,)}", b"(" * 900, b"'" * 99),
    *(b"{'descr': '<i8', 'fortran_order': False, 'shape': (-2,)}", b"{'descr': '" + b"i" * 90 + b"', 'shape': (2,)}"),
    *(b"{'descr': 'O', 'fortran_order': False, 'shape': (2,)}", b"\n  \n \\ \n '''"),
    *(b"{**{}}", b"[" + b"-" * 900 + b"1]", b"\xff" * 99),
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_damaged_headers_of_arrays_are_refused(folder, header):
    (folder / "x_indptr.npy").write_bytes(npy(header, np.array([0, 1]).tobytes()))
    with pytest.raises(DataError, match=r"x_indptr.npy: not as it should be"):
        read(folder)


@pytest.mark.parametrize("name", ["header", "label_names", "feature_names"])
def test_a_data_folder_with_json_that_is_nested_too_deep_is_refused(folder, name):
    (folder / f"{name}.json").write_text(DEEP)
    with pytest.raises(DataError):
        read(folder)


def test_a_pipe_or_a_device_in_place_of_a_file_is_refused_and_not_waited_for(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    os.mkfifo(tmp_path / "label.xml")
    (tmp_path / "a.arff").write_text("@relation a\n@attribute a numeric\n@data\n1\n")
    (folder / "y_indices.npy").unlink()
    os.mkfifo(folder / "y_indices.npy")
    with limited():
        for path in (tmp_path / "pipe.txt", "/dev/zero", "/dev/null"):
            with pytest.raises(DataError, match="is a pipe or a device, not a file"):
                read(path)
        with pytest.raises(DataError, match=r"y_indices.npy: not as it should be \(it is no file\)"):
            read(folder)
        with pytest.raises(DataError, match="no XML next to the file"):
            read(tmp_path / "a.arff")
