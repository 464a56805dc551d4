"""Reading as a whole: formats told apart, names beside the file, columns aligned, real data, safe writing."""

import bz2
import gzip
import lzma
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import zstandard
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from smoothlink.data.files_on_disk import expanded
from smoothlink.data.formats import ALL_FORMATS, FORMATS, recognise
from smoothlink.data.read import Data, align, convert, first_rows, read, sizes, write
from smoothlink.errors import DataError

REAL = Path(os.environ.get("SMOOTHLINK_DATA", Path(__file__).parents[3] / "shared" / "data"))
COMPRESS = [bytes, gzip.compress, lzma.compress, bz2.compress, zstandard.ZstdCompressor().compress]
XMC = b"2 4 3\n0,2 0:1 3:-2.5\n1 1:0.5\n"

real_data = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data in {REAL}; set SMOOTHLINK_DATA")


def small(**names):
    X = sparse.csr_array(np.array([[0, 1.5, 0], [2, 0, -1]], np.float32))
    return Data(X, sparse.csr_array(np.array([[1, 0], [1, 1]], np.float32)), **names)


def test_files_are_named_one_by_one_or_by_a_pattern(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b1", "b2", "a[1]", "a1"):
        (tmp_path / name).touch()
    assert expanded(["b*", Path("a[1]"), "s3://c/*"]) == ["b1", "b2", "a[1]", "s3://c/*"]
    with pytest.raises(DataError, match=r"No file fits c\*"):
        expanded("c*")
    with pytest.raises(DataError, match="No data file was named"):
        expanded([])


@pytest.mark.parametrize("use", [read, lambda path, format: convert(path, f"{path}.sl", format=format)])
def test_an_empty_file_and_utf_16_are_refused_whole_and_in_pieces(tmp_path, use):
    for content, message in ((b"", "is empty"), (b"\xef\xbb\xbf", "is empty"), ("1 1".encode("utf-16"), "is UTF-16")):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(DataError, match=message):
            use(tmp_path / "a", format="xmc")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"ab\0cd\n")
    with pytest.raises(DataError, match="not UTF-8 text"):
        recognise(tmp_path / "a")


def test_only_xmc_text_in_one_file_is_converted_in_pieces(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"2 4\n0:1\n\n")
    assert convert(tmp_path / "a.txt", tmp_path / "a.sl", format="xmc") is None
    assert convert(tmp_path / "a.txt", tmp_path / "a.npz", format="xmc") is None


LOOKS = {
    "xmc": [XMC, b"0 0 0\n"],
    "xmc-new": [b"2 4\n0:1\n\n"],
    "lshtc": [b"Data\n1 2:3\n", b"5 1:1\n314523, 165538 7:1\n"],
    "svmlight": [b"1,2 3:4\n", b"# comment\n+1 qid:3 1:2\n", b" 3:4\n", b"3 1:2 # a | b\n"[:6] + b"\n"],
    "arff": [b"% hello\n@RELATION x\n", b"\n@relation 'a'\n"],
    "vw": [b"1,2 |a b\n", b"| b\n"],
    "npz": [b"PK\x03\x04"],
}


@pytest.mark.parametrize("compress", COMPRESS)
@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "binary"])  # which is a folder
def test_a_format_is_recognised_by_its_content_whatever_its_name(tmp_path, kind, compress):
    for content in LOOKS[kind]:
        (tmp_path / "file.xz").write_bytes(compress(content))
        assert recognise(tmp_path / "file.xz") == kind


@pytest.mark.parametrize("compress", COMPRESS)
def test_compression_is_recognised_by_its_content_whatever_the_name(tmp_path, compress):
    (tmp_path / "train.txt").write_bytes(compress(XMC))
    assert read(tmp_path / "train.txt").X.shape == (2, 4)


@pytest.mark.parametrize("compress", COMPRESS[1:])
def test_a_file_compressed_in_members_is_their_sum(tmp_path, compress):
    (tmp_path / "train.txt").write_bytes(compress(XMC[:10]) + compress(XMC[10:]))
    assert read(tmp_path / "train.txt").X.nnz == 3


def test_every_format_has_a_module_and_a_description():
    assert all(len(form.description) < 100 for form in ALL_FORMATS.values())
    assert all(import_module(f"smoothlink.data.{form.module}").read for form in FORMATS.values())


def test_importing_the_reader_does_not_load_numba():
    code = "import sys, smoothlink.data.read; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_estimator_needs_no_library_for_rare_compression():
    code = "import sys; sys.modules['zstandard'] = None; import smoothlink.estimator, smoothlink.data.files_on_disk"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_beside_the_file_are_taken_where_their_number_matches(tmp_path):
    (tmp_path / "train.txt").write_bytes(XMC)
    (tmp_path / "labels.txt.xz").write_bytes(lzma.compress("sea\r\nsand\n\u2028é".encode()))
    (tmp_path / "features.txt").write_text("a\nb\nc\nd\ne\n")
    data = read(tmp_path / "train.txt")
    assert data.label_names == ["sea", "sand", "\u2028é"]
    assert data.feature_names is None
    (tmp_path / "features.txt").write_text("")
    (tmp_path / "Xf.txt").write_text("a\nb\nc\nd")
    assert read(tmp_path / "train.txt").feature_names == ["a", "b", "c", "d"]


def test_names_beside_the_file_must_be_utf8(tmp_path):
    (tmp_path / "train.txt").write_bytes(XMC)
    (tmp_path / "labels.txt").write_bytes(b"sea\ncaf\xe9\nsand\n")
    with pytest.raises(DataError, match=r"labels.txt, line 2: the name is not UTF-8 .*\nSave the file as UTF-8."):
        read(tmp_path / "train.txt")


def test_names_beside_the_file_are_never_overwritten(tmp_path):
    write(small(label_names=["sea", "sand"]), tmp_path / "train.txt")
    write(small(label_names=["sea", "sand"]), tmp_path / "test.txt")
    with pytest.raises(DataError, match=r"labels.txt is there already and holds other names"):
        write(small(label_names=["sea", "sky"]), tmp_path / "valid.txt")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["labels.txt", "test.txt", "train.txt"]
    assert (tmp_path / "labels.txt").read_text() == "sea\nsand\n"


def test_names_with_a_line_break_are_refused_where_a_line_is_a_name(tmp_path):
    with pytest.raises(DataError, match="holds a line break"):
        write(small(label_names=["sea", "a\nb"]), tmp_path / "train.txt")


def test_aligning_puts_known_names_first_and_keeps_the_others(tmp_path):
    data = align(small(label_names=["b", "a"]), label_names=["a", "x"])
    assert data.label_names == ["a", "x", "b"]
    np.testing.assert_array_equal(data.Y.toarray(), [[0, 0, 1], [1, 0, 1]])
    assert data.Y.has_sorted_indices
    with pytest.raises(DataError, match="two labels are named 'a'"):
        align(small(label_names=["a", "a"]), label_names=["a"])
    with pytest.raises(DataError, match="the features have no names to align"):
        align(small(), feature_names=["a"])


def test_what_a_data_cannot_hold_is_not_written(tmp_path):
    good = small()
    for bad, message in (
        (good._replace(X=good.X * np.float32(np.nan)), "X holds nan"),
        (good._replace(Y=good.Y * np.float32(2)), "Y holds 2.0"),
        (good._replace(Y=sparse.csr_array((2, 2**40))), "Y has shape"),
        (good._replace(X=good.X[:1]), "X has 1 rows, Y 2"),
        (good._replace(label_names=["a"]), "1 label names for 2 labels"),
        (good._replace(feature_names=["a"]), "1 feature names for 3 features"),
    ):
        with pytest.raises(DataError, match=message):
            write(bad, tmp_path / "a.txt")
    with pytest.raises(DataError, match="the name does not say which format to write"):
        write(good, tmp_path / "a.csv")
    with pytest.raises(DataError, match="there is no format 'csv'"):
        write(good, tmp_path / "a.csv", format="csv")
    with pytest.raises(DataError, match="named by putting Y for Xf"):
        write(good, tmp_path / "a.txt", format="xmc-new")
    assert not list(tmp_path.iterdir())


def test_unsorted_matrices_are_written_sorted_and_left_as_they_are(tmp_path):
    X = sparse.csr_array((np.array([1.0, 2.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    write(Data(X, sparse.csr_array(np.ones((1, 1)))), tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "1 3 1\n0 0:2 2:1\n"
    assert X.indices.tolist() == [2, 0]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    write(small(), tmp_path / "a.txt")
    before = (tmp_path / "a.txt").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("smoothlink.data.xmc.write_rows", full)
    with pytest.raises(DataError, match="cannot be written: No space left on device"):
        write(small(), tmp_path / "a.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_bytes() == before
    with pytest.raises(DataError, match="cannot be written: No such file or directory"):
        write(small(), tmp_path / "nowhere" / "a.txt")


SIZES = {
    "bibtex": (4880, 1836, 159),
    "aloi": (97200, 128, 1000),
    "yeast": (1500, 103, 14),
    "go-seq": (1692, 529, 4133),
    "citeulike-t": (20780, 20000, 52946),
}


@real_data
@pytest.mark.parametrize("name", SIZES)
def test_real_sets_have_the_sizes_their_pages_say(name):
    path = REAL / name / "train.txt.xz"
    if not path.exists():
        pytest.skip(f"{name} is not in {REAL}")
    data = read(path)
    n, d, c = SIZES[name]
    assert (data.X.shape, data.Y.shape) == ((n, d), (n, c))
    if (path.parent / "labels.txt.xz").exists():
        assert len(data.label_names) == c


@real_data
@pytest.mark.parametrize("name", ["bibtex", "yeast"])
def test_a_real_set_without_its_header_is_what_scikit_learn_reads(tmp_path, name):
    content = lzma.decompress((REAL / name / "train.txt.xz").read_bytes())
    (tmp_path / "a.svm").write_bytes(content.partition(b"\n")[2])
    X, labels = load_svmlight_file(str(tmp_path / "a.svm"), multilabel=True, zero_based=True)
    (tmp_path / "a.txt").write_bytes(content)
    data = read(tmp_path / "a.txt", n_features="auto")
    np.testing.assert_array_equal(data.X.indptr, X.indptr)
    np.testing.assert_array_equal(data.X.indices, X.indices)
    np.testing.assert_array_equal(data.X.data, X.data.astype(np.float32))
    parts = np.split(data.Y.indices, data.Y.indptr[1:-1])
    assert [part.tolist() for part in parts] == [sorted(map(int, row)) for row in labels]


@real_data
def test_a_real_set_survives_every_format(tmp_path):
    data = read(REAL / "emotions" / "train.txt.xz")
    for kind, name in (("xmc", "a.txt"), ("xmc-new", "a_Xf.txt.zst"), ("npz", "a.npz"), ("arff", "a.arff.gz")):
        write(data, tmp_path / name, format=kind)
        back = read(tmp_path / name)
        assert abs(back.X - data.X).nnz == abs(back.Y - data.Y).nnz == 0
        assert (back.label_names, back.feature_names) == (data.label_names, data.feature_names)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "trn_X_Xf.txt", "a.sl"])
def test_sizes_and_first_rows_are_those_of_the_whole(tmp_path, name):
    write(small(), tmp_path / name)
    (tmp_path / "labels.txt").write_text("x\ny\n")
    data, found = read(tmp_path / name), sizes(tmp_path / name)
    assert found[:3] == (2, 3, 2)
    assert found.label_names == data.label_names == ["x", "y"]
    assert found.entries in (None, 3)
    np.testing.assert_array_equal(first_rows(tmp_path / name, 1).toarray(), data.X.toarray()[:1])


def test_sizes_are_as_asked_and_unknown_where_columns_are_counted(tmp_path):
    write(small(), tmp_path / "a.txt")
    assert sizes(tmp_path / "a.txt", n_features=7)[:3] == (2, 7, 2)
    assert sizes(tmp_path / "a.txt", n_labels="auto") is None
    assert first_rows(tmp_path / "a.txt", 1, n_features="auto").shape == (1, 3)
    write(small(), tmp_path / "a.svm")
    assert sizes(tmp_path / "a.svm") is None
