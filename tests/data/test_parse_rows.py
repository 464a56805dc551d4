"""XMC, LSHTC and svmlight text: small files by hand, scikit-learn as oracle, threads against one thread."""

import io

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from smoothlink.data import xmc
from smoothlink.data.read import Options, read, write
from smoothlink.errors import DataError


@pytest.fixture
def file(tmp_path):
    """Writes a file -> its path."""

    def make(content, name="train.txt"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def rows(matrix):
    """A sparse matrix as a list of {column: value}."""
    parts = [slice(a, b) for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)]
    return [dict(zip(matrix.indices[s].tolist(), matrix.data[s].tolist(), strict=True)) for s in parts]


def label_sets(data):
    return [list(row) for row in rows(data.Y)]


XMC = "6 4 3\n0,2 0:1 3:-2.5\n 1:0.5\n2:1e-2\n1\n\n2,1 3:4 0:7\n"
XMC_X = [{0: 1, 3: -2.5}, {1: 0.5}, {2: np.float32(0.01)}, {}, {}, {0: 7, 3: 4}]
XMC_Y = [[0, 2], [], [], [1], [], [1, 2]]


@pytest.mark.parametrize(
    "content",
    [XMC, XMC.removesuffix("\n"), XMC.replace("\n", "\r\n"), XMC + "\n\n \n", "\ufeff" + XMC, XMC.replace(" ", "\t")],
    ids=["plain", "no final newline", "crlf", "blank lines at the end", "byte order mark", "tabs"],
)
def test_xmc_rows_may_lack_labels_or_features_or_both(file, content):
    data = read(file(content))
    assert data.X.shape == (6, 4)
    assert data.Y.shape == (6, 3)
    assert rows(data.X) == XMC_X
    assert label_sets(data) == XMC_Y
    assert data.X.dtype == data.Y.dtype == np.float32
    assert data.X.has_canonical_format
    assert (data.Y.data == 1).all()


def test_a_header_of_no_rows_is_an_empty_matrix(file):
    data = read(file("0 4 3\n"))
    assert data.X.shape == (0, 4)
    assert data.Y.shape == (0, 3)


def test_counting_the_columns_overrules_the_header(file):
    data = read(file("1 9 9\n4 2:1\n"), n_labels="auto", n_features="auto")
    assert (data.X.shape, data.Y.shape) == ((1, 3), (1, 5))
    data = read(file("1 2 2\n4 2:1\n"), n_labels=7, n_features=8)
    assert (data.X.shape, data.Y.shape) == ((1, 8), (1, 7))


def test_xmc_in_two_files_is_xmc_in_one(file):
    file("3 3\n0:1 2:1.0000\n\n1:1 2:0\n", "trn_X_Y.txt")
    data = read(file("3 4\n1:0.5\n0:1 3:2\n\n", "trn_X_Xf.txt"))
    one = read(file("3 4 3\n0,2 1:0.5\n 0:1 3:2\n1\n"))
    assert rows(data.X) == rows(one.X)
    assert rows(data.Y) == rows(one.Y)
    assert (data.X.shape, data.Y.shape) == (one.X.shape, one.Y.shape)


def test_the_labels_of_a_pair_may_lie_elsewhere(file):
    labels = file("1 3\n2:1\n", "elsewhere")
    assert label_sets(read(file("1 4\n1:0.5\n", "features"), labels_path=labels)) == [[2]]


def test_the_labels_of_a_compressed_pair_are_found(file):
    import gzip

    file(gzip.compress(b"1 3\n2:1\n"), "tst_X_Y.txt.gz")
    assert label_sets(read(file("1 4\n1:0.5\n", "tst_X_Xf.txt"))) == [[2]]


@pytest.mark.parametrize("title", ["", "Data\n", "Data\r\n"])
def test_lshtc_ids_are_counted_anew_and_become_the_names(file, title):
    data = read(file(title + "314523, 165538 7:1 1250536:3\n165538 9:2\n \n8:1\n"), format="lshtc")
    assert data.label_names == ["165538", "314523"]
    assert data.feature_names == ["7", "8", "9", "1250536"]
    assert label_sets(data) == [[0, 1], [0], [], []]
    assert rows(data.X) == [{0: 1, 3: 3}, {2: 2}, {}, {1: 1}]


def test_ids_near_the_largest_are_counted_anew_too(file):
    data = read(file("5, 2147483646 3:1 2147483640:1\n"), format="lshtc")
    assert data.label_names == ["5", "2147483646"]
    assert data.feature_names == ["3", "2147483640"]


def test_svmlight_comments_queries_and_decimal_labels_are_understood(file):
    content = "# a comment\n1,2 qid:3 1:0.5 4:2 # 7:1\n+3.0 2:1#c\n\r\nqid:1 1:1\nqid:2\n"
    data = read(file(content), format="svmlight")
    assert label_sets(data) == [[1, 2], [3], [], []]
    assert rows(data.X) == [{0: 0.5, 3: 2}, {1: 1}, {0: 1}, {}]


def test_blank_lines_and_comments_of_svmlight_are_no_rows_as_in_scikit_learn(file):
    path = file("0 1:5\n \n1 2:5\n\t\r\n  # a comment\n\n2 1:1\n  \n \t", "a.svm")
    expected, labels = load_svmlight_file(str(path), multilabel=True)
    data = read(path)
    np.testing.assert_array_equal(data.X.toarray(), expected.toarray())
    assert label_sets(data) == [[int(label) for label in row] for row in labels] == [[0], [1], [2]]


def test_a_row_of_nothing_is_written_to_svmlight_so_that_scikit_learn_reads_it_too(file, tmp_path):
    write(read(file("3 2 2\n0 1:5\n \n1\n", "a.txt")), tmp_path / "b.svm")
    expected, labels = load_svmlight_file(str(tmp_path / "b.svm"), multilabel=True, n_features=2)
    np.testing.assert_array_equal(expected.toarray(), [[0, 5], [0, 0], [0, 0]])
    assert labels == [(0,), (), (1,)]


def test_svmlight_features_count_from_one_unless_a_zero_occurs(file):
    assert rows(read(file("0 1:5\n", "a.svm")).X) == [{0: 5}]
    assert rows(read(file("0 0:4 1:5\n", "a.svm")).X) == [{0: 4, 1: 5}]
    assert rows(read(file("0 1:5\n", "a.svm"), zero_based=True).X) == [{1: 5}]
    assert read(file("0 1:5 4:1\n", "a.svm"), n_features=4).X.shape == (1, 4)
    assert read(file("0 1:5 4:1\n", "a.svm"), n_features=9, n_labels=3).Y.shape == (1, 3)


@pytest.mark.parametrize("zero_based", [True, False, None])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_svmlight_is_read_as_scikit_learn_reads_it(file, zero_based, density):
    rng = np.random.default_rng(int(10 * density))
    X = rng.normal(size=(40, 9)) * (rng.random((40, 9)) < density)
    Y = rng.random((40, 5)) < 0.4
    Y[:, 0] = True  # scikit-learn skips rows that are blank
    buffer = io.BytesIO()
    dump_svmlight_file(X, Y.astype(int), buffer, multilabel=True, zero_based=bool(zero_based))
    path = file(buffer.getvalue(), "a.svm")
    expected, labels = load_svmlight_file(
        str(path), multilabel=True, zero_based="auto" if zero_based is None else zero_based, n_features=9
    )
    data = read(path, zero_based=zero_based, n_features=9)
    np.testing.assert_array_equal(data.X.toarray(), expected.toarray().astype(np.float32))
    assert label_sets(data) == [sorted(int(label) for label in row) for row in labels]


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_cutting_the_file_for_threads_changes_nothing(file, threads):
    rng = np.random.default_rng(1)
    lines = [
        ",".join(map(str, rng.choice(50, rng.integers(0, 4), replace=False)))
        + "".join(f" {i}:{rng.normal():.17g}" for i in rng.choice(90, rng.integers(0, 9), replace=False))
        for _ in range(400)
    ]
    path = file("400 90 50\n" + "\n".join(lines) + "\n")
    whole = read(path, threads=1)
    cut = xmc.read(str(path), Options(threads=threads, chunk_bytes=100))
    for a, b in ((whole.X, cut.X), (whole.Y, cut.Y)):
        np.testing.assert_array_equal(a.indptr, b.indptr)
        np.testing.assert_array_equal(a.indices, b.indices)
        np.testing.assert_array_equal(a.data, b.data)


def test_of_errors_in_several_pieces_the_first_is_reported(file):
    path = file("60 2 2\n" + "0 0:1\n" * 29 + "0 0:x\n" + "0 0:1\n" * 29 + "0 0:y\n")
    with pytest.raises(DataError, match="line 31: 'x' in '0:x'"):
        xmc.read(str(path), Options(threads=4, chunk_bytes=10))


def test_numbers_beyond_the_fast_path_are_read_by_float(file):
    words = ["1e-300", "1.00000005960464477539062500000000000001", "0." + "0" * 300 + "1e300", "16777217.0000000000001"]
    line = " ".join(f"{9 - i}:{word}" for i, word in enumerate(words))
    data = read(file(f"0 {line} qid:4 # 3:4\n", "a.svm"), zero_based=True)
    assert rows(data.X)[0] == {9 - i: float(np.float32(float(word))) for i, word in enumerate(words)}
