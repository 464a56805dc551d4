"""Writing then reading is the identity, in every format and compression; any bytes give Data or a DataError."""

import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from smoothlink.data.formats import FORMATS, recognise
from smoothlink.data.matrices_from_rows import csr
from smoothlink.data.print_rows import Style, write_rows
from smoothlink.data.read import Data, align, read, write
from smoothlink.errors import DataError

quick = settings(max_examples=40, deadline=None)
float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)
SUFFIX = {"xmc": ".txt", "xmc-new": "_Xf.txt", "lshtc": ".lshtc", "svmlight": ".svm", "binary": ".sl"}


@st.composite
def datasets(draw, fewest=1, names=False):
    """A small Data, with empty rows and columns and stored zeros."""
    n, d, c = draw(st.integers(fewest, 6)), draw(st.integers(1, 12)), draw(st.integers(1, 12))

    def matrix(columns, values):
        rows = [draw(st.dictionaries(st.integers(0, columns - 1), values, max_size=columns)) for _ in range(n)]
        ids = np.array([i for row in rows for i in sorted(row)], np.int32)
        data = np.array([row[i] for row in rows for i in sorted(row)], np.float32)
        return csr(np.cumsum([0, *map(len, rows)]), ids, data, columns)

    def words(count):
        text = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=6)
        return draw(st.lists(text, min_size=count, max_size=count, unique=True)) if names else None

    return Data(matrix(d, float32s), matrix(c, st.just(1.0)), words(c), words(d))


def assert_same(a, b):
    for x, y in ((a.X, b.X), (a.Y, b.Y)):
        assert x.shape == y.shape
        assert x.dtype == y.dtype == np.float32
        np.testing.assert_array_equal(x.indptr, y.indptr)
        np.testing.assert_array_equal(x.indices, y.indices)
        np.testing.assert_array_equal(x.data.view(np.uint32), y.data.view(np.uint32))  # -0.0 is not 0.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("roundtrip")


@pytest.mark.parametrize("kind", ["xmc", "xmc-new", "npz", "binary"])
@quick
@given(data=datasets(fewest=0))
def test_formats_with_a_header_give_back_what_was_written(folder, kind, data):
    path = folder / f"a{SUFFIX.get(kind, '.npz')}"
    write(data, path, format=kind)
    assert recognise(path) == kind
    assert_same(read(path), data)


@quick
@given(data=datasets())
def test_svmlight_gives_back_what_was_written_where_the_sizes_are_told(folder, data):
    write(data, folder / "a.svm")
    back = read(folder / "a.svm", format="svmlight", n_features=data.X.shape[1], n_labels=data.Y.shape[1])
    assert_same(back, data)


@pytest.mark.parametrize("kind", ["lshtc", "vw"])
@quick
@given(data=datasets())
def test_formats_that_number_anew_give_back_what_was_written_by_name(folder, kind, data):
    write(data, folder / "a", format=kind)
    back = align(
        read(folder / "a", format=kind),
        label_names=[str(i) for i in range(data.Y.shape[1])],
        feature_names=[str(i) for i in range(data.X.shape[1])],
    )
    assert_same(back, data)


@quick
@given(data=datasets(names=True))
def test_arff_gives_back_what_was_written_but_for_zeros(folder, data):
    write(data, folder / "a.arff")
    back = read(folder / "a.arff")
    data.X.eliminate_zeros()
    assert_same(back, data)
    assert (back.label_names, back.feature_names) == (data.label_names, data.feature_names)


@pytest.mark.parametrize("kind", ["xmc", "xmc-new", "svmlight", "npz", "binary"])
@settings(max_examples=20, deadline=None)
@given(data=datasets(names=True))
def test_names_come_back_from_inside_or_from_beside(kind, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{SUFFIX.get(kind, '.npz')}"
        write(data, path, format=kind)
        sizes = {"n_labels": data.Y.shape[1], "n_features": data.X.shape[1]} if kind == "svmlight" else {}
        back = read(path, format=kind, **sizes)
        assert_same(back, data)
        assert (back.label_names, back.feature_names) == (data.label_names, data.feature_names)


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_pair_that_is_overwritten_is_the_old_one_the_new_one_or_refused(tmp_path, monkeypatch, call):
    old = Data(csr(np.array([0, 1]), np.array([0]), np.ones(1), 1), csr(np.array([0, 1]), np.array([0]), None, 2))
    new = Data(old.X * 2, csr(np.array([0, 1]), np.array([1]), None, 2))
    write(old, tmp_path / "a_Xf.txt")
    calls, replace = iter(range(1, 9)), Path.replace

    def fail(self, target):
        if next(calls) == call:
            raise OSError(5, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail)
    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(DataError, match="cannot be written: Input/output error"):
        write(new, tmp_path / "a_Xf.txt")
    monkeypatch.undo()
    if call <= 2:
        assert_same(read(tmp_path / "a_Xf.txt"), old)
    else:
        with pytest.raises(DataError, match=r"there is no such file|the half with the labels was not found"):
            read(tmp_path / "a_Xf.txt")
    write(new, tmp_path / "a_Xf.txt")
    assert_same(read(tmp_path / "a_Xf.txt"), new)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a_Xf.txt", "a_Y.txt"]


def test_a_write_that_is_refused_leaves_no_names_behind(tmp_path):
    one = csr(np.array([0, 1]), np.array([0]), np.ones(1), 1)
    data = Data(one, one, ["label"], ["feature"])
    with pytest.raises(DataError, match="second file"):
        write(data, tmp_path / "a.txt", format="xmc-new")
    with pytest.raises(DataError, match="line break"):
        write(data._replace(feature_names=["a\nb"]), tmp_path / "a.txt", format="xmc")
    assert not list(tmp_path.iterdir())


def test_lshtc_names_that_are_ids_come_back(tmp_path):
    data = Data(csr(np.array([0, 2]), np.array([0, 1]), np.ones(2), 2), csr(np.array([0, 1]), np.array([1]), None, 2))
    data = data._replace(label_names=["7", "5"], feature_names=["900", "30"])
    write(data, tmp_path / "a", format="lshtc")
    assert (tmp_path / "a").read_text() == "5 900:1 30:1\n"
    assert_same(align(read(tmp_path / "a", format="lshtc"), label_names=["7", "5"], feature_names=["900", "30"]), data)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".bz2", ".zst"])
def test_compression_follows_the_suffix_and_is_seen_without_it(tmp_path, suffix):
    rng = np.random.default_rng(0)
    X = sparse.random_array((300, 50), density=0.2, rng=rng, dtype=np.float32).tocsr()
    data = Data(csr_sorted(X), csr_sorted((X > 0.5).astype(np.float32)))
    write(data, tmp_path / f"a.txt{suffix}")
    (tmp_path / f"a.txt{suffix}").rename(tmp_path / "renamed")
    start = (tmp_path / "renamed").read_bytes()[:4]
    assert (start == b"300 ") == (suffix == "")
    assert_same(read(tmp_path / "renamed"), data)


def csr_sorted(matrix):
    matrix.sort_indices()
    return csr(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1])


def test_writing_in_pieces_changes_nothing():
    X = csr_sorted(sparse.random_array((40, 30), density=0.3, rng=np.random.default_rng(0), dtype=np.float32).tocsr())
    data = Data(X, csr_sorted((X > 0.4).astype(np.float32)))
    whole, pieces = BytesIO(), BytesIO()
    write_rows(whole, data.X, data.Y, Style())
    write_rows(pieces, data.X, data.Y, Style(), entries_at_a_time=3)
    assert pieces.getvalue() == whole.getvalue()


TEXT = [b"1 2 3\n", b"2 3\n", b"1,2", b" 0:1", b"|a b:2", b"\n", b",", b":", b"1e999", b"\x1f\x8b\x08", b"PK\x03\x04",
        b"@relation '-C 1'\n", b"@attribute a {0,1}\n", b"@data\n", b"{0 1}\n", b"'", b"\\", b"#", b"-", b"qid:",
        b"\xfd7zXZ\0", b"BZh91AY&SY", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"%", b"nan", b" ", b"0", b"\r\n"]  # fmt: skip


@pytest.mark.parametrize("kind", ["auto", *FORMATS])
@settings(max_examples=100, deadline=None)
@given(content=st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(TEXT), max_size=12).map(b"".join)))
def test_any_bytes_give_data_or_a_data_error(folder, kind, content):
    path = folder / "any_Xf"
    path.write_bytes(content)
    (folder / "any_Y").write_bytes(content)
    try:
        data = read(path, format=kind, threads=2)
    except DataError as e:
        message = str(e)
    else:
        message = ""
        assert data.X.shape[0] == data.Y.shape[0]
        data.X.check_format(full_check=True)
        data.Y.check_format(full_check=True)
        assert np.isfinite(data.X.data).all()
    assert message.count("\n") <= 1


@pytest.mark.parametrize("kind", ["xmc", "npz", "arff", "vw", "svmlight"])
@settings(max_examples=40, deadline=None)
@given(data=datasets(), changes=st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=2)), max_size=4))
def test_a_sound_file_with_bytes_changed_gives_data_or_a_data_error(folder, kind, data, changes):
    path = folder / "damaged"
    write(data, path, format=kind)
    content = bytearray(path.read_bytes())
    for place, new in changes:
        content[place % len(content) : place % len(content) + 1] = new
        content = content or bytearray(b" ")
    path.write_bytes(content)
    try:
        data = read(path, format=kind)
    except DataError:
        return
    data.X.check_format(full_check=True)
    data.Y.check_format(full_check=True)
