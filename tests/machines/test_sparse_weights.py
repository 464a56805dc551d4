"""Sparse weights of labels against SciPy's products."""

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.machines.sparse_weights import SparseWeights


@pytest.fixture(params=[None, "float16", "int8"], ids=str)
def parts(rng, request):
    """Rows X (7, 20), weights D (20, 11) and scores S (7, 11)."""
    X = sp.random_array((7, 20), density=0.3, rng=rng, dtype=np.float32, format="csr")
    D = sp.random_array((20, 11), density=0.4, rng=rng, dtype=np.float32, format="csr")
    D.sort_indices()
    sparse = SparseWeights(D.indptr.astype(np.int64), D.indices.astype(np.int32), D.data)
    if request.param is not None:
        sparse = sparse.stored(request.param, 11)
        D = sp.csr_array((sparse.weights(), D.indices, D.indptr), D.shape)
    return X, D.toarray(), sparse, rng.standard_normal((7, 11)).astype(np.float32)


def test_fewer_bits_move_no_weight_by_more_than_half_a_scale(rng):
    D = sp.random_array((20, 11), density=0.4, rng=rng, dtype=np.float32, format="csr")
    exact = SparseWeights(D.indptr.astype(np.int64), D.indices.astype(np.int32), D.data)
    for dtype, kind in (("float16", np.int16), ("int8", np.int8), ("int4", np.int8)):
        found = exact.stored(dtype, 11)
        assert (found.labels.dtype, found.values.dtype) == (np.uint16, kind)
        assert (np.abs(found.weights() - D.data) <= 0.501 * np.repeat(found.scale, np.diff(found.indptr))).all()
        np.testing.assert_allclose(found.of(np.arange(20), np.arange(11)), D.toarray(), atol=1 / 200)
        again = found.stored(None, 70_000)
        assert again.labels.dtype == np.int32
        np.testing.assert_array_equal(again.weights(), found.weights())
        assert found.stored("float32", 11).scale is None


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
