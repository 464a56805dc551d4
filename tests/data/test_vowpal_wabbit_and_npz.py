"""Vowpal Wabbit text and NumPy archives, by hand."""

import os
import pickle

import numpy as np
import pytest
from scipy import sparse

from smoothlink.data.read import Data, align, read, write
from smoothlink.errors import DataError


def refusal(path, **options):
    with pytest.raises(DataError) as caught:
        read(path, **options)
    return str(caught.value).replace(str(path.parent) + os.sep, "")


VW = """1,3 2.0 'tag|text the:2 cat sat |n:0.5 x:4 y
3 | the ^odd
 |text cat cat
10 1 0.5 other|text the:-1e-2

'tag |text
"""


def test_vw_names_become_ids_as_they_are_met(tmp_path):
    path = tmp_path / "train.vw"
    path.write_text(VW)
    data = read(path)
    assert data.label_names == ["1", "3", "10"]
    assert data.feature_names == ["text^the", "text^cat", "text^sat", "n^x", "n^y", "the", "^odd"]
    np.testing.assert_array_equal(data.Y.toarray(), [[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(
        data.X.toarray(),
        np.array(
            [
                [2, 1, 1, 2, 0.5, 0, 0],
                [0, 0, 0, 0, 0, 1, 1],
                [0, 2, 0, 0, 0, 0, 0],
                [-0.01, 0, 0, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0],
            ],
            np.float32,
        ),
    )


def test_vw_labels_that_are_words_keep_the_order_they_are_met_in(tmp_path):
    path = tmp_path / "train.vw"
    path.write_text("sea,beach | a\nbeach | b\n")
    assert read(path).label_names == ["sea", "beach"]


BAD_VW = {
    "no bar": ("1 a b\n", "line 1: the line has no bar `|`"),
    "label touches the bar": ("1 | a\n3|a b\n", "line 2: '3' touches the bar, which makes it a tag"),
    "costs": ("1:0.5 | a\n", "'1:0.5' is not a list of labels"),
    "comma at the end": ("1, | a\n", "'1,' is not a list of labels"),
    "label twice": ("1,1 | a\n", "a label is twice in '1,1'"),
    "importance not a number": ("1 x | a\n", "'x' is not a number"),
    "value not a number": ("1 | a:1:2\n", "'1:2' is not a number"),
    "value with an underscore": ("1 | a:1_0\n", "'1_0' is not a number"),
    "value missing": ("1 | a:\n", "'' is not a number"),
    "value not finite": ("1 | a:nan\n", "the value nan is not a finite 32-bit number"),
    "value too large": ("1 | a:1e39\n", "the value 1e+39 is not a finite"),
    "product too large": ("1 |n:1e30 a:1e30\n", "the value 1e+60 is not a finite"),
    "sum too large": ("1 | a:3e38 a:3e38\n", "sum to more than 3.4e38"),
    "feature without a name": ("1 | :1\n", "':1' is a feature without a name"),
    "not utf-8": (b"1 | a\n1 | caf\xe9\n", "line 2: the text is not UTF-8"),
    "empty": (b"", "the file is empty"),
}


@pytest.mark.parametrize("case", BAD_VW)
def test_bad_vw_is_refused(tmp_path, case):
    content, expected = BAD_VW[case]
    path = tmp_path / "a.vw"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert expected in refusal(path, format="vw")


def small(label_names=None, feature_names=None):
    X = sparse.csr_array(np.array([[0, 1.5, 0], [2, 0, -1]], np.float32))
    Y = sparse.csr_array(np.array([[1, 0], [1, 1]], np.float32))
    return Data(X, Y, label_names, feature_names)


@pytest.mark.parametrize(
    "features", [["a", "b", "c"], ["n^a", "n^b", "n^c"], ["n^a", "m^a", "a"], ["a^", "^b", "é"], None]
)
def test_vw_columns_come_back_by_name(tmp_path, features):
    data = small(["sea", "sand"], features)
    write(data, tmp_path / "a.vw")
    back = align(read(tmp_path / "a.vw"), label_names=["sea", "sand"], feature_names=features or ["0", "1", "2"])
    np.testing.assert_array_equal(back.X.toarray(), data.X.toarray())
    np.testing.assert_array_equal(back.Y.toarray(), data.Y.toarray())


@pytest.mark.parametrize("name", ["", "a b", "a|b", "a:b", "a\nb"])
def test_names_that_vw_cannot_hold_are_refused(tmp_path, name):
    for data in (small(["x", name]), small(None, ["x", "y", name])):
        with pytest.raises(DataError, match="cannot be written in VW text"):
            write(data, tmp_path / "a.vw")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_a_pair_of_scipy_files_is_read(tmp_path, form):
    data = small()
    sparse.save_npz(tmp_path / "trainX.npz", data.X.astype(np.float64).asformat(form))
    sparse.save_npz(tmp_path / "trainY.npz", data.Y.astype(bool).asformat(form))
    sparse.save_npz(tmp_path / "other.npz", data.Y[::-1].asformat(form))
    back = read(tmp_path / "trainX.npz")
    np.testing.assert_array_equal(back.X.toarray(), data.X.toarray())
    np.testing.assert_array_equal(back.Y.toarray(), data.Y.toarray())
    other = read(tmp_path / "trainX.npz", labels_path=tmp_path / "other.npz")
    np.testing.assert_array_equal(other.Y.toarray(), data.Y.toarray()[::-1])


def test_dense_arrays_named_X_and_Y_are_read(tmp_path):
    np.savez(tmp_path / "a.npz", X=small().X.toarray(), Y=small().Y.toarray().astype(int))
    back = read(tmp_path / "a.npz")
    np.testing.assert_array_equal(back.X.toarray(), small().X.toarray())
    np.testing.assert_array_equal(back.Y.toarray(), small().Y.toarray())


class Bomb:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("pwned",))


def test_loading_an_archive_never_runs_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "a.npz", X=np.array([Bomb()], object), Y=np.ones((1, 1)))
    assert "is not a complete .npz archive of plain arrays" in refusal(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Bomb()))
    assert "is not a complete .npz archive" in refusal(tmp_path / "b.npz")
    assert not (tmp_path / "pwned").exists()


def parts(**changed):
    arrays = {}
    for letter, matrix in (("X", small().X), ("Y", small().Y)):
        arrays |= {f"{letter}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}
    return arrays | changed


BAD_NPZ = {
    "index out of range": ({"X_indices": [1, 0, 3]}, "an index is out of range"),
    "negative index": ({"X_indices": [1, -1, 2]}, "an index is out of range"),
    "falling pointers": ({"X_indptr": [0, 5, 3]}, "indptr does not count"),
    "pointers too short": ({"X_indptr": [0, 3]}, "indptr does not count"),
    "pointers not integers": ({"X_indptr": [0.0, 1.0, 3.0]}, "not lists of integers"),
    "index twice": ({"X_indices": [1, 2, 2]}, "X holds an entry twice"),
    "not finite": ({"X_data": [1, np.nan, 3]}, "X holds nan; values must be finite"),
    "beyond float32": ({"X_data": [1, 1e39, 3]}, "X holds 1e+39"),
    "words": ({"X_data": ["a", "b", "c"]}, "only numbers can be read"),
    "label neither 0 nor 1": ({"Y_data": [1, 2, 1]}, "Y holds 2.0; a label is there (1) or not (0)"),
    "shape of one number": ({"X_shape": [2]}, "does not hold a sound sparse matrix"),
    "shape too large": ({"X_shape": [2, 2**40]}, "its shape is 2 x 1099511627776"),
    "other rows": ({"Y_indptr": [0, 3], "Y_shape": [1, 2], "Y_indices": [0, 1, 1]}, "entry twice"),
    "rows differ": ({"Y_indptr": [0, 0, 0, 3], "Y_shape": [3, 5], "Y_indices": [0, 1, 2]}, "X has 2 rows, Y 3"),
    "names too few": ({"label_names": np.frombuffer(b'["a"]', np.uint8)}, "label_names is not a list of 2 names"),
    "names not utf-8": ({"label_names": np.frombuffer(b'["\xe9", ""]', np.uint8)}, "label_names that are not UTF-8"),
    "form": ({"format": np.array(b"bsr")}, "only csr and csc can be read"),
    "X of one dimension": ({"X": np.ones(3)}, "X has 1 dimensions"),
}


@pytest.mark.parametrize("case", BAD_NPZ)
def test_a_bad_archive_is_refused(tmp_path, case):
    changed, expected = BAD_NPZ[case]
    np.savez(tmp_path / "a.npz", **parts(**changed))
    assert expected in refusal(tmp_path / "a.npz")


def test_an_archive_without_its_labels_is_refused(tmp_path):
    sparse.save_npz(tmp_path / "X.npz", small().X)
    assert "the labels were not found; Y.npz is not there.\nPass them with --labels-file" in refusal(tmp_path / "X.npz")
    np.savez(tmp_path / "b.npz", X=np.ones((2, 2)))
    assert "no array Y_data; there are: X" in refusal(tmp_path / "b.npz")
    assert "Leave --labels-file out" in refusal(tmp_path / "b.npz", labels_path="y.npz")


def test_an_archive_cut_short_is_refused(tmp_path):
    write(small(), tmp_path / "a.npz")
    content = (tmp_path / "a.npz").read_bytes()
    for size in (0, 1, 10, 100, len(content) - 1):
        (tmp_path / "a.npz").write_bytes(content[:size])
        assert refusal(tmp_path / "a.npz", format="npz")
