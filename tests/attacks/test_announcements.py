"""A few bytes that announce very much are refused, and do not take the memory that they announce."""

import json
import zlib

import numpy as np
import pytest
from commands import succeed
from hostile import limited

from smoothlink.data.matrices_from_rows import Reach, check_columns
from smoothlink.data.read import convert, read, write
from smoothlink.errors import DataError

MOST = 2**31 - 2


@pytest.fixture
def file(tmp_path):
    def make(content, name="a.txt"):
        (tmp_path / name).write_text(content)
        return tmp_path / name

    read(make("1 1 1\n0 0:1\n"))  # compiled
    return make


@pytest.mark.parametrize(
    ("header", "noun"), [(f"1 3 {MOST}", "labels"), (f"1 {MOST} 3", "features"), (f"1 {1 << 25} 3", "features")]
)
def test_a_header_that_announces_far_more_columns_than_occur_is_refused(file, tmp_path, header, noun):
    path = file(f"{header}\n0 0:1 1:1\n")
    for use in (read, lambda path: convert(path, tmp_path / "a.sl")):
        with limited(), pytest.raises(DataError, match=f"{noun} are announced, and .* are below .*\\n.*--{noun} auto"):
            use(path)
    assert read(path, n_labels="auto", n_features="auto").X.shape == (1, 2)


def test_a_pair_of_files_that_announces_far_more_labels_than_occur_is_refused(file):
    path = file("1 3\n0:1\n", "a_Xf.txt")
    file(f"1 {MOST}\n0:1\n", "a_Y.txt")
    with limited(), pytest.raises(DataError, match=r"a_Y.txt: .* labels are announced"):
        read(path)


def test_an_archive_that_announces_far_more_columns_than_occur_is_refused(tmp_path):
    one = {"data": [1.0], "indices": [0], "indptr": [0, 1], "shape": [1, 1]}
    arrays = {f"{letter}_{name}": np.array(value) for letter in "XY" for name, value in one.items()}
    np.savez(tmp_path / "a.npz", **arrays | {"Y_shape": np.array([1, MOST])})
    with limited(), pytest.raises(DataError, match="labels are announced"):
        read(tmp_path / "a.npz")


def test_a_data_folder_that_announces_far_more_columns_than_occur_is_refused(file, tmp_path):
    write(read(file("1 3 3\n0 0:1\n")), tmp_path / "a.sl")
    header = json.loads((tmp_path / "a.sl" / "header.json").read_text())
    header["labels"] = MOST
    del header["header_crc32"]
    header["header_crc32"] = zlib.crc32(json.dumps(header, sort_keys=True).encode())
    (tmp_path / "a.sl" / "header.json").write_text(json.dumps(header))
    with limited(), pytest.raises(DataError, match="labels are announced"):
        read(tmp_path / "a.sl")


def test_many_columns_that_are_reached_are_read(file):
    path = file(f"1 {2**28} 3\n0 {2**28 // 50}:1\n")
    assert read(path).X.shape == (1, 2**28)


@pytest.mark.parametrize(("row", "noun"), [(f"{MOST} 1:1", "label"), (f"0 {MOST}:1", "feature")])
def test_a_few_ids_that_are_far_apart_are_refused_unless_an_option_says_that_they_are_right(file, row, noun):
    path = file(f"{row}\n", "a.svm")
    many = f"{MOST + (noun == 'label'):,} {noun}s"
    with limited(), pytest.raises(DataError, match=f"{many} are very many for the 1 entries") as raised:
        read(path)
    option = str(raised.value).split("or pass ")[1].split(" if")[0].split()
    with limited():
        assert many.split()[0] in succeed("info", path, *option).out


def test_very_many_columns_are_read_where_there_are_as_many_entries():
    found = Reach(2**28, 2**22).with_more(Reach(2**30, 2**24 - 2**22))
    assert check_columns("a", "label", 2**30, found, "") == 2**30
    with pytest.raises(DataError, match="1,073,741,824 labels are very many for the 16,777,215 entries"):
        check_columns("a", "label", 2**30, found._replace(entries=2**24 - 1), "")


@pytest.mark.parametrize("largest", [2**26 - 1, 2**26, MOST])
def test_ids_with_gaps_take_memory_by_their_number(file, largest):
    path = file(f"{largest}, 3 5:1 {largest}:2\n")
    with limited(size=32 << 20):
        data = read(path, format="lshtc")
    assert data.label_names == ["3", str(largest)]
    assert data.feature_names == ["5", str(largest)]
