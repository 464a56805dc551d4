"""The pattern of the sparse weights is that of X'Y, however X is stored."""

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.joint import cooccurrence
from smoothlink.joint.joint_training import sparse_pattern
from smoothlink.machines.rows_in_files import SparseFile


def made(rng, n=400, d=60, c=30):
    X = sp.random_array((n, d), density=0.1, format="csr", rng=rng, dtype=np.float32)
    Y = sp.random_array((n, c), density=0.1, format="csr", rng=rng, dtype=np.float32)
    return sp.csr_array(sp.hstack([X, np.ones((n, 1), np.float32)], format="csr")), Y


def in_file(X, rows, rng, folder):
    """These rows without their intercepts in a file, in a random order."""
    file = SparseFile(rng.permutation(rows), np.diff(X.indptr) - 1, X.shape[1], folder)
    for start in (0, 150):
        file.write(start, X[start : start + 150 if start == 0 else X.shape[0]][:, :-1])
    return file


@pytest.mark.parametrize("stored", ["memory", "file"])
@pytest.mark.parametrize("frequent", [1, 40, 400])
def test_it_is_the_pattern_of_the_product_without_frequent_features(rng, tmp_path, stored, frequent):
    X, Y = made(rng)
    rows = np.sort(rng.choice(X.shape[0], 300, replace=False))
    A = in_file(X, rows, rng, tmp_path) if stored == "file" else X
    found = cooccurrence.find(A, Y, rows, X.shape[1] - 1, frequent, 10**6)
    product = (X[rows].astype(bool).T.astype(np.int32) @ Y[rows].astype(bool).astype(np.int32)).tolil()
    product[np.bincount(X[rows].indices, minlength=X.shape[1]) > frequent] = 0
    product[-1] = 0
    expected = sp.csr_array(product)
    expected.eliminate_zeros()
    expected.sort_indices()
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.labels(), expected.indices)


def test_too_many_pairs_are_none(rng):
    X, Y = made(rng)
    rows = np.arange(X.shape[0])
    pairs = int((np.diff(X.indptr) - 1) @ np.diff(Y.indptr))
    assert sparse_pattern(X, Y, rows, 1.0, most=pairs).nnz
    assert not sparse_pattern(X, Y, rows, 1.0, most=pairs - 1).nnz


def test_rows_of_a_file_are_read_in_any_order(rng, tmp_path):
    X, _ = made(rng)
    rows = rng.permutation(X.shape[0])[:300]
    file = in_file(X, np.sort(rows), rng, tmp_path)
    for numbers in (rows, rows[:1], rows[:0], file.order[5:90]):
        read = file.read(numbers)
        np.testing.assert_array_equal(read.toarray()[:, :-1], X[numbers].toarray()[:, :-1])
    assert file.nnz == X[rows].nnz - 300
    file.file.truncate(100)
    with pytest.raises(OSError, match="cut short"):
        file.read(rows)
