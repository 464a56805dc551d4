"""The data folder: what was written comes back mapped, text becomes one block by block, and damage is said."""

import errno
import json
import sys

import numpy as np
import pytest
from scipy import sparse

from smoothlink.data import folder as binary
from smoothlink.data.atomic import REMEDIES
from smoothlink.data.formats import recognise
from smoothlink.data.read import Data, convert, read, write
from smoothlink.errors import DataError
from smoothlink.machines.rows_in_files import MappedMatrix
from smoothlink.synth import Shape, synthesise


def small(**names):
    X = sparse.csr_array(np.array([[0, 1.5, 0], [2, 0, -1]], np.float32))
    return Data(X, sparse.csr_array(np.array([[1, 0], [1, 1]], np.float32)), **names)


@pytest.fixture
def folder(tmp_path):
    write(small(), tmp_path / "a.sl")
    return tmp_path / "a.sl"


def refusal(path, **options):
    with pytest.raises(DataError) as caught:
        read(path, **options)
    return str(caught.value)


def test_the_folder_is_told_by_its_header_and_holds_plain_arrays(folder):
    assert recognise(folder) == "binary"
    assert sorted(p.name for p in folder.iterdir()) == sorted(["header.json", *(f"{a}.npy" for a in binary.ARRAYS)])
    assert np.load(folder / "x_data.npy").tolist() == [1.5, 2, -1]
    assert np.load(folder / "y_indptr.npy").tolist() == [0, 1, 3]
    header = json.loads((folder / "header.json").read_text())
    assert (header["rows"], header["features"], header["labels"], header["x_entries"]) == (2, 3, 2, 3)


def test_what_is_read_is_mapped(folder):
    data = read(folder)
    assert isinstance(data.X, MappedMatrix)
    assert isinstance(data.X.data, np.memmap)
    assert isinstance(data.Y, MappedMatrix)
    np.testing.assert_array_equal(data.X.toarray(), small().X.toarray())
    np.testing.assert_array_equal(data.Y.toarray(), small().Y.toarray())
    assert data.Y.data.tolist() == [1, 1, 1]


def test_an_older_folder_gives_way_and_anything_else_does_not(folder, tmp_path):
    write(small(label_names=["a", "b"]), folder)
    assert read(folder).label_names == ["a", "b"]
    (tmp_path / "other.sl").mkdir()
    with pytest.raises(DataError, match="is there already and is no data folder"):
        write(small(), tmp_path / "other.sl")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.sl", "other.sl"]


@pytest.mark.parametrize(("suffix", "piece"), [("", 300), (".gz", 300), (".xz", 10_000), ("", 1 << 26)])
def test_text_becomes_a_folder_block_by_block(tmp_path, suffix, piece):
    data = synthesise(Shape(features=40, labels=20, features_per_row=4), 300)
    write(data._replace(label_names=[f"l{i}" for i in range(20)]), tmp_path / f"a.txt{suffix}")
    assert convert(tmp_path / f"a.txt{suffix}", tmp_path / "a.sl", text_bytes=piece) == (300, 40, 20)
    back, known = read(tmp_path / "a.sl"), read(tmp_path / f"a.txt{suffix}")
    for a, b in ((back.X, known.X), (back.Y, known.Y)):
        for part in ("indptr", "indices", "data"):
            np.testing.assert_array_equal(getattr(a, part), getattr(b, part))
    assert back.label_names == known.label_names


def test_columns_are_counted_along_the_way(tmp_path):
    (tmp_path / "a.txt").write_text("2 9 9\n1 3:1\n0 2:1\n")
    (tmp_path / "labels.txt").write_text("no\nyes\n")
    assert convert(tmp_path / "a.txt", tmp_path / "a.sl", n_labels="auto", n_features="auto") == (2, 4, 2)
    assert read(tmp_path / "a.sl").label_names == ["no", "yes"]
    assert convert(tmp_path / "a.txt", tmp_path / "a.svm") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 4 3\n0 1:1\n1 2:1\n7 1:1\n", "line 4: label 7 is outside 0..2"),
        ("3 4 3\n0 1:1\n1 2:1\n", "announces 3 rows, the file has 2"),
        ("1 4 3\n0 1:1\n1 2:1\n", "announces 1 rows, the file has 2"),
        ("2 4 3\n0 1:1\n1 x:1\n", "line 3: "),
    ],
)
@pytest.mark.parametrize("piece", [8, 1 << 26])
def test_trouble_in_text_is_told_by_its_line_and_leaves_nothing(tmp_path, text, said, piece):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(DataError, match=said.replace(".", r"\.")):
        convert(tmp_path / "a.txt", tmp_path / "a.sl", text_bytes=piece)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_blank_lines_may_follow_the_rows(tmp_path):
    (tmp_path / "a.txt").write_text("2 4 3\n0 1:1\n1 2:1\n\n\n\n\n\n\n\n\n\n\n\n")
    assert convert(tmp_path / "a.txt", tmp_path / "a.sl", text_bytes=8) == (2, 4, 3)


def changed(name, values, kind=None):
    def change(folder):
        np.save(folder / f"{name}.npy", np.array(values, kind or binary.ARRAYS[name]))

    return change


def header(**other):
    def change(folder):
        known = json.loads((folder / "header.json").read_text())
        (folder / "header.json").write_text(json.dumps(known | other))

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed("x_indices", [1, 0, 3]), "hold what no row can have"),
        (changed("x_indices", [1, -1, 2]), "hold what no row can have"),
        (changed("x_indices", [1, 2, 0]), "hold what no row can have"),
        (changed("x_data", [1, np.nan, 2]), "hold what no row can have"),
        (changed("y_indices", [0, 0, 2]), "hold what no row can have"),
        (changed("x_data", [1, 2]), "do not fit the header"),
        (changed("x_indptr", [0, 1]), "do not fit the header"),
        (changed("x_indptr", [0, 7, 3]), "does not count the entries"),
        (changed("x_data", [1, 2, 3], "f8"), "not one list of float32"),
        (changed("x_data", [[1], [2], [3]]), "not one list of float32"),
        (header(rows=3), "do not fit the header"),
        (header(rows=-1), "does not describe a data folder"),
        (header(format="other"), "does not describe a data folder"),
        (header(version=2), "has version 2"),
        (lambda f: (f / "header.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "x_data.npy").unlink(), "not as it should be"),
        (lambda f: (f / "x_data.npy").write_bytes((f / "x_data.npy").read_bytes()[:-1]), "cut short"),
        (lambda f: (f / "label_names.json").write_text('["a"]'), "not a list of 2 names"),
        (lambda f: (f / "label_names.json").write_text("["), "the names cannot be read"),
    ],
)
def test_a_damaged_folder_is_refused(folder, change, said):
    without_checksums(folder)
    change(folder)
    assert said in refusal(folder)


def without_checksums(folder):
    """The folder as smoothlink 0.1.0 wrote it."""
    known = json.loads((folder / "header.json").read_text())
    del known["crc32"], known["header_crc32"]
    (folder / "header.json").write_text(json.dumps(known))


def test_a_folder_without_checksums_is_read(folder):
    without_checksums(folder)
    np.testing.assert_array_equal(read(folder).X.toarray(), small().X.toarray())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed("x_indptr", [0, 2, 3]), "x_indptr is damaged"),
        (changed("x_indices", [0, 0, 2]), "x_indices is damaged"),
        (changed("x_data", [1.5, 2, -2]), "x_data is damaged"),
        (changed("y_indptr", [0, 2, 3]), "y_indptr is damaged"),
        (changed("y_indices", [1, 0, 1]), "y_indices is damaged"),
        (lambda f: (f / "label_names.json").write_text('["a", "c"]'), "label_names is damaged"),
        (header(features=4), "header.json is damaged"),
        (header(crc32=[]), "does not describe a data folder"),
    ],
)
def test_what_could_be_rows_but_is_not_what_was_written_is_refused(folder, change, said):
    write(small(label_names=["a", "b"]), folder)
    change(folder)
    assert said in refusal(folder)


def test_every_flipped_bit_of_the_arrays_is_found(folder):
    for name in binary.ARRAYS:
        file = folder / f"{name}.npy"
        whole = file.read_bytes()
        begin = len(whole) - np.load(file).nbytes
        for at in range(8 * begin, 8 * len(whole)):
            flipped = bytearray(whole)
            flipped[at // 8] ^= 1 << at % 8
            file.write_bytes(flipped)
            refusal(folder)
        file.write_bytes(whole)
    read(folder)


def test_a_folder_without_a_header_is_no_data(tmp_path):
    assert "is a folder, not a file" in refusal(tmp_path)
    assert "has no header.json" in refusal(tmp_path, format="binary")


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the size of files are those of Linux")
def test_a_disk_that_is_full_at_any_byte_is_noticed(tmp_path, monkeypatch):
    """The last bytes of an array that have no room: no file may grow beyond a limit, as on a full disk."""
    import resource

    monkeypatch.setattr("os.fsync", lambda handle: None)
    X = sparse.csr_array(np.ones((90, 2), np.float32))  # arrays that are longer than the header
    data, before, outcomes = Data(X, X), resource.getrlimit(resource.RLIMIT_FSIZE), set()
    write(data, tmp_path / "whole.sl")
    largest = max(path.stat().st_size for path in (tmp_path / "whole.sl").iterdir())
    for limit in [*range(0, largest, 17), largest]:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            write(data, tmp_path / "a.sl")
            outcomes.add("written")
            assert limit == largest
        except DataError as error:
            outcomes.add(str(error).splitlines()[1])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert outcomes == {"written", REMEDIES[errno.EFBIG]}
    np.testing.assert_array_equal(read(tmp_path / "a.sl").X.toarray(), data.X.toarray())


def test_a_folder_says_whether_it_has_checksums(folder):
    assert binary.has_checksums(folder)
    header = json.loads((folder / "header.json").read_text())
    (folder / "header.json").write_text(json.dumps({k: v for k, v in header.items() if "crc32" not in k}))
    assert not binary.has_checksums(folder)


@pytest.mark.parametrize("letter", ["X", "Y"])
def test_rows_of_a_folder_that_no_product_may_trust_are_refused(letter):
    rows = dict(zip("XY", small()[:2], strict=True))
    binary.check_rows("a.sl", **rows)
    rows[letter].indices[0] = 99
    with pytest.raises(DataError, match=f"a.sl: {letter.lower()}_indices or"):
        binary.check_rows("a.sl", **rows)
