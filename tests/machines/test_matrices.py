"""Products and Gram matrices against NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from problems import home

from smoothlink.machines.host_and_device import HOST
from smoothlink.machines.kernels import equal_pieces
from smoothlink.machines.matrices import GRAM_ROWS, Dense, Sparse, matrix, row_range

# Sums of a few dozen float32 products, each rounded to 6e-8.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def example(rng, kind, machine=HOST, n=70, d=23):
    """A matrix with empty rows and columns, its dense float64 form and weights."""
    A = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3)
    A[[0, 5, n - 1]] = 0
    A[:, [0, 3, d - 1]] = 0
    A = A.astype(np.float32)
    given = sp.csr_array(A) if kind is Sparse else A
    return machine.matrix(given), A.astype(np.float64), (rng.random(n) + 0.5).astype(np.float32)


PARTS = [
    slice(0, 70),
    slice(0, 200),
    slice(0, 9),
    slice(9, 31),
    slice(60, 200),
    slice(5, 5),
    slice(9, 4),
    slice(-3, None),
    slice(None),
]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_a_range_of_sparse_rows_is_scipys_without_what_crashes_where_memory_runs_out(rng, monkeypatch, part, index):
    A = sp.random_array((70, 23), density=0.2, format="csr", dtype=np.float32, rng=rng)
    A.indices, A.indptr = A.indices.astype(index), A.indptr.astype(index)
    expected = A[part]
    monkeypatch.delattr("scipy.sparse._compressed.get_csr_submatrix")
    found = row_range(A, part)
    assert type(found) is sp.csr_array
    assert found.shape == expected.shape
    for name in ("data", "indices", "indptr"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
        assert found.shape == A.shape or not np.shares_memory(one, getattr(A, name))


@pytest.mark.parametrize("part", [slice(None, None, 2), slice(20, 3, -1)])
def test_rows_with_a_step_are_scipys(rng, part):
    A = sp.random_array((70, 23), density=0.2, format="csr", rng=rng)
    np.testing.assert_array_equal(row_range(A, part).toarray(), A.toarray()[part])


def test_a_range_of_dense_rows_is_a_view(rng):
    A = rng.random((7, 3))
    assert np.shares_memory(row_range(A, slice(2, 5)), A[2:5])


@pytest.mark.parametrize("kind", [Sparse, Dense])
def test_the_kind_follows_the_array(rng, kind):
    A, exact, _ = example(rng, kind)
    assert isinstance(A, kind)
    assert A.shape == exact.shape


@pytest.mark.parametrize("kind", [Sparse, Dense])
@pytest.mark.parametrize("columns", [0, 1, 17])
def test_product_is_numpys(rng, kind, columns, machine):
    A, exact, _ = example(rng, kind, machine)
    B = rng.standard_normal((23, columns)).astype(np.float32)
    for _ in range(2):  # the second product uses what the first prepared
        np.testing.assert_allclose(home(A @ machine.to_device(B)), exact @ B, **CLOSE)


@pytest.mark.parametrize("kind", [Sparse, Dense])
@pytest.mark.parametrize("order", ["C", "F"])
def test_transposed_product_adds_into_what_is_there(rng, kind, order, machine):
    A, exact, _ = example(rng, kind, machine)
    R = np.asarray(rng.standard_normal((70, 6)), np.float32)
    out, given = machine.to_device(np.full((23, 6), 2, np.float32)), machine.to_device(R)
    given = given if order == "C" else machine.to_device(np.ascontiguousarray(R.T)).T
    A.T.add_product(given, out)
    A.T.add_product(given, out)
    np.testing.assert_allclose(home(out), 2 + 2 * exact.T @ R, **CLOSE)


@pytest.mark.parametrize("kind", [Sparse, Dense])
def test_gram_is_xtwx_and_its_diagonal_the_square_sums(rng, kind, machine):
    A, exact, w = example(rng, kind, machine)
    w[7] = 0
    G, squares = machine.to_device(np.full((23, 23), 3.0)), machine.to_device(np.full(23, 3.0))
    A.add_gram(machine.to_device(w), G)
    A.add_square_sums(machine.to_device(w), squares)
    G, squares = home(G), home(squares)
    np.testing.assert_allclose(G, 3 + exact.T @ (w[:, None] * exact), **CLOSE)
    np.testing.assert_allclose(squares, np.diag(G), **CLOSE)


def test_sparse_gram_is_float64_and_keeps_what_float32_would_lose():
    large, tiny = np.float32(2.0**13), np.float32(2.0**-13)  # the squares differ by 2^52
    A = matrix(sp.csr_array(np.array([[large], [tiny]])))
    G = np.zeros((1, 1))
    A.add_gram(np.ones(2, np.float32), G)
    assert G[0, 0] == 2.0**26 + 2.0**-26


def test_dense_gram_adds_parts_of_many_rows_in_float64(machine):
    A = machine.matrix(np.ones((2 * GRAM_ROWS + 1, 1), np.float32))
    G = machine.to_device(np.full((1, 1), 2.0**30))  # where float32 steps by 128
    A.add_gram(machine.to_device(np.ones(2 * GRAM_ROWS + 1, np.float32)), G)
    assert float(G[0, 0]) == 2.0**30 + 2 * GRAM_ROWS + 1


@pytest.mark.parametrize("kind", [Sparse, Dense])
def test_take_is_numpys_row_selection(rng, kind, machine):
    A, exact, _ = example(rng, kind, machine)
    taken = A.take(np.array([3, 4, 40]))
    np.testing.assert_array_equal(taken.toarray() if kind is Sparse else taken, exact[[3, 4, 40]])


@pytest.mark.parametrize("shape", [(0, 4), (3, 4), (1, 1)])
def test_a_matrix_of_zeros_gives_zeros(shape, machine):
    A = machine.matrix(sp.csr_array(shape, dtype=np.float32))
    out, G = machine.to_device(np.ones((shape[1], 2), np.float32)), machine.to_device(np.ones((shape[1], shape[1])))
    A.T.add_product(machine.to_device(np.ones((shape[0], 2), np.float32)), out)
    A.add_gram(machine.to_device(np.ones(shape[0], np.float32)), G)
    found = A @ machine.to_device(np.ones((shape[1], 2), np.float32))
    np.testing.assert_array_equal(home(found), np.zeros((shape[0], 2)))
    assert (home(out) == 1).all()
    assert (home(G) == 1).all()


def test_pieces_cut_all_rows_into_about_equal_work(rng):
    lengths = np.concatenate([rng.integers(0, 30, 5000), [20_000]])
    cuts = equal_pieces(np.concatenate([[0], np.cumsum(lengths)]))
    assert cuts[0] == 0
    assert cuts[-1] == len(lengths)
    assert (np.diff(cuts) >= 0).all()
    work = np.add.reduceat(lengths + 1, cuts[:-1][np.diff(cuts) > 0])
    share = (lengths + 1).sum() / (len(cuts) - 1)
    assert np.sort(work)[-2] <= 2 * share  # the longest row is one piece's alone


# Panels of 64 columns


@pytest.mark.parametrize("columns", [63, 64, 200])
@pytest.mark.parametrize("density", [0.005, 0.3])  # below three non-zeros per column panels are read in place
def test_products_of_many_columns_are_scipys(rng, columns, density, machine):
    n, d = 211, 97
    A = sp.random_array((n, d), density=density, rng=rng, dtype=np.float32, format="csr")
    P, R = (rng.standard_normal((rows, columns)).astype(np.float32) for rows in (d, n))
    X, out = machine.matrix(A), machine.to_device(np.ones((d, columns), np.float32))
    X.T.add_product(machine.to_device(R), out)
    np.testing.assert_allclose(home(X @ machine.to_device(P)), A.astype(np.float64) @ P, **CLOSE)
    np.testing.assert_allclose(home(out), 1 + A.T.astype(np.float64) @ R, **CLOSE)


@pytest.mark.parametrize("shape", [(0, 9), (9, 1), (1, 9), (300, 2)])
def test_odd_shapes_with_empty_rows_and_columns_keep_what_is_there(rng, shape, machine):
    A = sp.csr_array(rng.standard_normal(shape).astype(np.float32) * (rng.random(shape) < 0.5))
    P, R = (rng.standard_normal((rows, 70)).astype(np.float32) for rows in shape[::-1])
    out, X = machine.to_device(np.full((shape[1], 70), 2, np.float32)), machine.matrix(A)
    X.T.add_product(machine.to_device(R), out)
    np.testing.assert_allclose(home(X @ machine.to_device(P)), A.toarray() @ P, **CLOSE)
    np.testing.assert_allclose(home(out), 2 + A.toarray().T @ R, **CLOSE)


def test_operands_may_be_views_of_any_order_and_type(rng):
    A, exact, _ = example(rng, Sparse)
    wide = rng.standard_normal((70, 300)).astype(np.float32)
    for R in (wide[:, 10:80], wide[:, ::3], np.asfortranarray(wide), wide.astype(np.float64), wide[::-1]):
        out = np.zeros((23, 2 * R.shape[1]), R.dtype)
        A.T.add_product(R, out[:, ::2])
        np.testing.assert_allclose(out[:, ::2], exact.T @ R, **CLOSE)
        assert not out[:, 1::2].any()
        np.testing.assert_allclose(A @ R[:23], exact @ R[:23], **CLOSE)


def test_rows_transposed_in_parts_give_the_same_products(rng):
    whole, exact, w = example(rng, Sparse)
    R, G = rng.standard_normal((70, 65)).astype(np.float32), np.zeros((23, 23))
    out, parts = np.zeros((23, 65), np.float32), Sparse(whole.csr, part_rows=16)
    parts.T.add_product(R, out)
    parts.add_gram(w, G)
    assert len(parts.T.parts) == 5
    np.testing.assert_allclose(out, exact.T @ R, **CLOSE)
    np.testing.assert_allclose(G, exact.T @ (w[:, None] * exact), **CLOSE)


def test_products_repeat_to_the_last_bit_on_any_number_of_threads(rng):
    numba = pytest.importorskip("numba")
    A = sp.random_array((500, 80), density=0.2, rng=rng, dtype=np.float32, format="csr")
    R, threads = rng.standard_normal((500, 130)).astype(np.float32), numba.get_num_threads()
    sums = []
    try:
        for count in (1, threads, threads):
            numba.set_num_threads(count)
            sums.append(np.zeros((80, 130), np.float32))
            Sparse(A).T.add_product(R, sums[-1])
    finally:
        numba.set_num_threads(threads)
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_array_equal(sums[1], sums[2])
