"""Sparse weights of labels against SciPy's products."""

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.machines.sparse_weights import SparseWeights


@pytest.fixture
def parts(rng):
    """Rows X (7, 20), weights D (20, 11) and scores S (7, 11)."""
    X = sp.random_array((7, 20), density=0.3, rng=rng, dtype=np.float32, format="csr")
    D = sp.random_array((20, 11), density=0.4, rng=rng, dtype=np.float32, format="csr")
    D.sort_indices()
    sparse = SparseWeights(D.indptr.astype(np.int64), D.indices.astype(np.int32), D.data)
    return X, D.toarray(), sparse, rng.standard_normal((7, 11)).astype(np.float32)


@pytest.mark.parametrize("labels", [slice(None), slice(0, 4), slice(3, 9), slice(9, 11), slice(5, 5)], ids=str)
def test_a_block_of_labels_gets_its_part_of_the_product(parts, labels):
    X, D, sparse, S = parts
    expected = S[:, labels] + (X @ D)[:, labels]
    found = S[:, labels].copy()
    sparse.add(found, X, labels, 11)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("labels", [[2], [7, 1, 1, 10], []], ids=str)
def test_given_labels_get_theirs_in_their_order(parts, labels):
    X, D, sparse, S = parts
    some = np.array(labels, np.int64)
    found = S[:, some].copy()
    sparse.add(found, X, some, 11)
    np.testing.assert_allclose(found, S[:, some] + (X @ D)[:, some], rtol=1e-5, atol=1e-6)


def test_labels_out_of_order_write_nowhere_else(parts):
    """Of a damaged file; the numbers are then wrong, but no memory is."""
    X, _, sparse, _ = parts
    wild = sparse._replace(labels=sparse.labels[::-1].copy())
    room = np.zeros((7, 5), np.float32)
    wild.add(room[:, 1:4], X, slice(4, 7), 11)
    assert not room[:, [0, 4]].any()
