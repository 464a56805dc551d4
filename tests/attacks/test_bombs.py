"""Small files that become large ones are refused before they are large."""

import io
import json
import zipfile

import numpy as np
import pytest
from hostile import COMPRESS, archive, limited, npy, npy_of

from smoothlink.cli.train_command import tuned_settings
from smoothlink.data.formats import recognise
from smoothlink.data.read import convert, read, sizes
from smoothlink.errors import DataError
from smoothlink.text.documents import distinct
from smoothlink.text.tables import read_table

ZEROS = bytes(32 << 20)


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """Readers that are compiled and imported."""
    path = tmp_path_factory.mktemp("ready") / "a.txt"
    path.write_text("1 1 1\n0 0:1\n")
    read(path)


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_file_is_recognised_without_decompressing_all_of_it(tmp_path, ready, kind):
    path = tmp_path / f"a.txt.{kind}"
    path.write_bytes(COMPRESS[kind](b"1 1 1\n0 0:1\n" + ZEROS))
    with limited(size=24 << 20):
        assert recognise(path) == "xmc"
        assert sizes(path)[:3] == (1, 1, 1)


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_small_compressed_file_that_becomes_a_large_one_is_refused(tmp_path, ready, kind):
    path = tmp_path / f"a.txt.{kind}"
    path.write_bytes(COMPRESS[kind](b"1 1 1\n0 0:1\n") + 8 * COMPRESS[kind](ZEROS))
    with limited(), pytest.raises(DataError, match="a small compressed file that becomes more than 128 MiB"):
        read(path)


def test_it_is_refused_wherever_it_is_read(tmp_path, ready):
    (tmp_path / "data.txt").write_text("1 1 1\n0 0:1\n")
    bomb = COMPRESS["zst"](b"1 1 1\n0 0:1\n") + 8 * COMPRESS["zst"](ZEROS)
    for name in ("a.txt.zst", "labels.txt.zst", "p.json"):
        (tmp_path / name).write_bytes(bomb)
    uses = [
        lambda: convert(tmp_path / "a.txt.zst", tmp_path / "a.sl"),
        lambda: read(tmp_path / "data.txt"),  # with the names of labels
        lambda: read_table(tmp_path / "a.txt.zst", "csv"),
        lambda: tuned_settings(str(tmp_path / "p.json"), None),
    ]
    for use in uses:
        with limited(), pytest.raises(DataError, match="a small compressed file that becomes more than 128 MiB"):
            use()
    assert not (tmp_path / "a.sl").exists()


@pytest.mark.parametrize("kind", COMPRESS)
def test_several_members_with_padding_between_and_behind_them_are_one_file(tmp_path, ready, kind):
    path = tmp_path / f"a.txt.{kind}"
    compress, padding = COMPRESS[kind], bytes(8)
    path.write_bytes(compress(b"2 1 1\n0 ") + padding + compress(b"0:1\n") + compress(b"0 0:2\n") + padding)
    with limited():
        assert read(path).X.toarray().tolist() == [[1], [2]]


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_very_many_empty_members_are_read_in_time_that_grows_with_their_number_alone(tmp_path, ready, kind):
    path = tmp_path / f"a.txt.{kind}"
    empty = COMPRESS[kind](b"")
    path.write_bytes(empty * ((1 << 20) // len(empty)) + COMPRESS[kind](b"1 1 1\n0 0:1\n"))
    with limited(seconds=2.5):
        assert read(path).X.shape == (1, 1)


def test_much_text_that_is_well_compressed_is_read(tmp_path, ready):
    rows = 1 << 20
    path = tmp_path / "a.txt.gz"
    path.write_bytes(COMPRESS["gz"](f"{rows} 9 9\n".encode() + b"0 0:1 3:0.25\n" * rows))
    assert path.stat().st_size * 300 < 13 * rows
    assert read(path).X.shape == (rows, 9)


def parts(**changed):
    """The arrays of an .npz with one row, one feature and one label."""
    one = {"data": np.ones(1, np.float32), "indices": np.zeros(1, np.int32), "indptr": [0, 1], "shape": [1, 1]}
    sound = {f"{letter}_{name}.npy": npy_of(array) for letter in "XY" for name, array in one.items()}
    return sound | {f"{name}.npy": content for name, content in changed.items()}


def test_arff_that_leaves_out_very_many_ones_is_refused(tmp_path):
    many = "".join(f"@attribute a{i} {{x,y,z}}\n" for i in range(1500))
    header = f"@relation 'r: -C 1'\n@attribute a {{0,1}}\n{many}@data\n"
    (tmp_path / "a.arff").write_text(header + "{0 1}\n" * 10)
    assert read(tmp_path / "a.arff").X.nnz == 15_000
    (tmp_path / "a.arff").write_text(header + "{0 1}\n" * 15_000)
    with limited(), pytest.raises(DataError, match="leave out up to 22,500,000 first values"):
        read(tmp_path / "a.arff")


def test_an_archive_that_becomes_a_large_one_is_refused(tmp_path, ready):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(ZEROS)},)}}"
    (tmp_path / "a.npz").write_bytes(archive(parts(**{f"more_{i}": npy(header, ZEROS) for i in range(5)})))
    with limited(), pytest.raises(DataError, match="a small compressed file that becomes more than 160 MiB"):
        read(tmp_path / "a.npz")


def test_a_parquet_file_that_names_one_long_text_in_many_rows_is_refused(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    once = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5000, np.int32)), pa.array(["a" * (1 << 20)]))
    parquet.write_table(pa.table({"text": once.cast(pa.dictionary(pa.int32(), pa.string()))}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 18
    with limited(), pytest.raises(DataError, match="a small compressed file that becomes more than 129 MiB"):
        list(read_table(tmp_path / "a.parquet", "parquet"))


def test_a_sheet_that_becomes_a_large_one_is_refused():
    content = archive({f"xl/worksheets/sheet{i}.xml": ZEROS for i in range(5)})
    with limited(), pytest.raises(DataError, match="a small compressed file that becomes more than 160 MiB"):
        read_table(content, "xlsx")


def test_a_sheet_with_a_cell_at_the_far_end_of_each_row_is_refused():
    openpyxl = pytest.importorskip("openpyxl")
    book, made = openpyxl.Workbook(), io.BytesIO()
    book.active["XFD1"] = book.active["A2"] = "a"
    book.save(made)
    table = read_table(made.getvalue(), "xlsx")
    assert (len(table.columns), [len(cells) for cells in table]) == (16384, [16384])
    for row in range(3, 200):
        book.active[f"XFD{row}"] = "a"
    made = io.BytesIO()
    book.save(made)
    assert len(made.getvalue()) < 1 << 15
    with limited(), pytest.raises(DataError, match=r"of 2,[\d,]* cells .* are filled.\n.*the far end"):
        read_table(made.getvalue(), "xlsx")


def test_a_sheet_whose_row_numbers_leave_out_billions_of_rows_is_refused():
    openpyxl = pytest.importorskip("openpyxl")
    book, made = openpyxl.Workbook(), io.BytesIO()
    book.active["A1"] = book.active["A2"] = "a"
    book.save(made)
    with zipfile.ZipFile(made) as whole:
        files = {name: whole.read(name) for name in whole.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    files[sheet] = files[sheet].replace(b'<row r="2"', b'<row r="4444444444"')
    with limited(), pytest.raises(DataError, match=r"of 2,[\d,]* cells 1 are filled"):
        read_table(archive(files), "xlsx")


@pytest.mark.parametrize("form", ["lines", "list"])
def test_objects_that_have_each_another_key_are_refused(form):
    objects = [json.dumps({f"key {i}": 1, "text": "a"}) for i in range(20_000)]
    content = "\n".join(objects) if form == "lines" else f"[{','.join(objects)}]"
    with limited(), pytest.raises(DataError, match=r"of 400,020,000 cells 40,000 are filled.\n.*keys"):
        read_table(content.encode(), "jsonl")


def test_a_parquet_file_of_very_many_empty_cells_is_refused(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    nothing = {f"column {i}": pa.nulls(100_000, pa.int8()) for i in range(200)}
    parquet.write_table(pa.table({"text": ["a"] * 100_000} | nothing), tmp_path / "a.parquet")
    with limited(), pytest.raises(DataError, match=r"20,100,000 cells in [\d,]* bytes are no documents"):
        read_table(tmp_path / "a.parquet", "parquet")


def test_very_many_columns_of_one_name_are_told_apart_at_once():
    with limited():
        assert distinct(["a"] * 20_000 + ["a 3", "b"])[-4:] == ["a 19999", "a 20000", "a 3 2", "b"]
