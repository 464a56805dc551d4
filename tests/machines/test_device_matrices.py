"""Matrices of a device, method by method, against those of the host."""

import numpy as np
import pytest
import scipy.sparse as sp
from problems import home

pytest.importorskip("torch", reason="torch is not installed")

from smoothlink.machines.device_matrices import DeviceSparse
from smoothlink.machines.host_and_device import HOST, find_machine
from smoothlink.machines.matrices import Dense, Sparse

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SHAPES = [(70, 23), (1, 5), (0, 6), (4, 0)]

DEVICE = find_machine("torch")

pytestmark = pytest.mark.usefixtures("as_on_a_card")


def pair(rng, kind, shape=(70, 23)):
    """A matrix with empty rows and columns on the host and on a device."""
    A = (rng.standard_normal(shape) * (rng.random(shape) < 0.3)).astype(np.float32)
    A[::7], A[:, ::5] = 0, 0
    given = sp.csr_array(A) if kind is Sparse else A
    return HOST.matrix(given), DEVICE.matrix(given)


def check_equal(f, host, device, *arrays):
    """f(matrix, *arrays) is the same on both; it may write into its arrays."""
    known, found = (f(A, *(m.to_device(a.copy()) for a in arrays)) for A, m in ((host, HOST), (device, DEVICE)))
    assert home(found).dtype == known.dtype
    np.testing.assert_allclose(home(found), known, **CLOSE)


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("host", "device"), [(Sparse, DeviceSparse), (Dense, Dense)])
def test_a_device_has_every_method_of_the_host(rng, host, device):
    known, found = pair(rng, host)
    assert type(known) is host
    assert type(found) is device
    assert public(known) - public(found) - {"part_rows", "add_kernel"} == set()
    assert public(known.T) - public(found.T) - {"starts", "parts"} == set()
    assert found.shape == known.shape


@pytest.mark.parametrize("kind", [Sparse, Dense])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_those_of_the_host_whatever_the_type_of_the_other_side(rng, kind, shape, dtype):
    pairs = pair(rng, kind, shape)
    B, R = (rng.standard_normal((side, 6)).astype(dtype) for side in shape[::-1])
    check_equal(lambda A, B: A @ B, *pairs, B)
    check_equal(lambda A, wide: A @ wide[:, ::2], *pairs, B)
    check_equal(added, *pairs, R, np.full((shape[1], 6), 2, dtype))
    check_equal(lambda A, R, out: added(A, R.T, out), *pairs, np.ascontiguousarray(R.T), np.zeros((shape[1], 6), dtype))


def added(A, R, out):
    A.T.add_product(R, out)
    return out


@pytest.mark.parametrize("kind", [Sparse, Dense])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_squares_and_columns_are_those_of_the_host(rng, kind, shape):
    pairs, w = pair(rng, kind, shape), rng.random(shape[0]).astype(np.float32)
    for name in ("add_gram", "add_square_sums", "add_column_sums")[: 3 if kind is Sparse else 2]:

        def total(A, w, out, name=name):
            getattr(A, name)(w, out)
            return out

        check_equal(total, *pairs, w, np.full((shape[1],) * (1 + (name == "add_gram")), 3.0))


def test_a_gram_matrix_of_rows_made_dense_a_few_at_a_time_is_that_of_the_host(rng):
    (host, device), w = pair(rng, Sparse), rng.random(70).astype(np.float32)
    known, found = np.zeros((23, 23)), DEVICE.zeros((23, 23), np.float64)
    host.add_gram(w, known)
    device.add_gram(DEVICE.to_device(w), found, dense_bytes=100)
    np.testing.assert_allclose(home(found), known, **CLOSE)


@pytest.mark.parametrize("kind", [Sparse, Dense])
def test_rows_taken_or_made_dense_are_those_of_the_host(rng, kind):
    known, found = pair(rng, kind)
    for part in ((0, 70), (7, 20), (5, 5), (69, 70)):
        np.testing.assert_array_equal(home(found.dense_rows(*part)), known.dense_rows(*part))
    for numbers in (np.array([3, 4, 40]), np.zeros(0, np.int64)):
        a, b = known.take(numbers), found.take(numbers)
        assert type(a) is type(b)
        np.testing.assert_array_equal(b.toarray() if kind is Sparse else b, a.toarray() if kind is Sparse else a)


COLUMNS = {
    "all": slice(0, 23),
    "some": slice(4, 11),
    "none": slice(5, 5),
    "empty ones": slice(0, 1),
    "by number": np.array([2, 3, 11, 22]),
    "in any order": np.array([22, 0, 7]),
    "no number": np.zeros(0, np.int64),
}


@pytest.mark.parametrize("part", [slice(0, 70), slice(10, 33), slice(7, 8), slice(70, 70)], ids=str)
@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
def test_a_product_with_part_of_the_rows_and_labels_is_numpys(rng, part, columns):
    known, found = pair(rng, Sparse)
    exact = known.csr[part].toarray()[:, columns].T
    R = rng.standard_normal((part.stop - part.start, 5)).astype(np.float32)
    for A, machine in ((known, HOST), (found, DEVICE)):
        out = machine.to_device(np.ones((len(exact), 5), np.float32))
        A.add_part(part, machine.to_device(columns), machine.to_device(R), out)
        np.testing.assert_allclose(home(out), 1 + exact @ R, **CLOSE)


@pytest.mark.parametrize("kind", [Sparse, Dense])
def test_a_matrix_says_how_much_memory_it_takes_on_the_device(rng, kind):
    _, found = pair(rng, kind)
    found.T.add_product(DEVICE.zeros((70, 2), np.float32), DEVICE.zeros((23, 2), np.float32))
    _ = found @ DEVICE.zeros((23, 2), np.float32)
    if kind is Dense:
        assert found.nbytes == 4 * 70 * 23
        return
    held = [found.places]
    for A in (found.forward, found.T.tensor):
        held += [A.crow_indices(), A.col_indices(), A.values()]
    assert sum(a.nbytes for a in held) <= found.nbytes <= 1.5 * sum(a.nbytes for a in held)


def test_read_only_rows_are_copied_without_a_warning(recwarn):
    A = np.ones((3, 2), np.float32)
    A.flags.writeable = False
    found = DEVICE.matrix(A)
    assert float((found @ DEVICE.to_device(np.ones((2, 1), np.float32))).sum()) == 6
    assert not recwarn
