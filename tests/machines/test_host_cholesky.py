"""Cholesky factors by halves on several threads: the factor of LAPACK, in the same memory."""

import numpy as np
import pytest
import scipy.linalg

from smoothlink.machines import host_cholesky
from smoothlink.machines.host_cholesky import FACTORED_COLUMNS, SOLVED_COLUMNS


def positive(n, kind=np.float64, seed=0):
    X = np.random.default_rng(seed).standard_normal((n + 20, n))
    return (X.T @ X + np.eye(n)).astype(kind)


@pytest.mark.parametrize("n", [1, 7, FACTORED_COLUMNS, FACTORED_COLUMNS + 1, 2 * FACTORED_COLUMNS + 3])
@pytest.mark.parametrize(("kind", "close"), [(np.float64, 1e-13), (np.float32, 1e-5)])
def test_the_factor_is_that_of_lapack_and_the_matrix_stays_on_the_other_side(n, kind, close):
    A = positive(n, kind)
    L = A.copy()
    host_cholesky.factor(L)
    wanted = scipy.linalg.cholesky(A.astype(np.float64), lower=True)
    assert np.abs(np.tril(L.T) - wanted).max() <= close * np.abs(wanted).max()
    assert np.array_equal(np.tril(L, -1), np.tril(A, -1))


@pytest.mark.parametrize("place", [0, -1])
def test_a_matrix_that_is_not_positive_definite_is_refused_in_either_half(place):
    A = positive(FACTORED_COLUMNS + 100)
    A[place, place] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        host_cholesky.factor(A)


@pytest.mark.parametrize("columns", [1, SOLVED_COLUMNS + 1])
def test_a_factor_solves_in_the_memory_of_columns(columns):
    A = positive(FACTORED_COLUMNS + 50)
    B = np.asfortranarray(np.random.default_rng(1).standard_normal((len(A), columns)))
    sides, L = B.copy(), A.copy()
    host_cholesky.factor(L)
    Z = host_cholesky.solve(L.T, B)
    assert Z is B
    assert np.abs(A @ Z - sides).max() < 1e-9
