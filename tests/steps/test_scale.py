"""Scaling: unit rows, unit variance, and ones for the intercept, the same for sparse and dense rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler, normalize

from smoothlink.steps.scale import choose_scaling, column_moments, inverse_lengths, with_intercept


def table(rng, n=60, d=7):
    """Columns of very different size and mean, none of them zero."""
    return (rng.standard_normal((n, d)) * 10.0 ** np.arange(-2, d - 2) + 5).astype(np.float32)


def text(rng, n=60, d=40, density=0.1):
    A = sp.random_array((n, d), density=density, rng=rng, dtype=np.float32, format="csr")
    return sp.csr_array(A)


def dense(A):
    return A.toarray() if sp.issparse(A) else A


def test_auto_scales_text_to_unit_rows_and_tables_to_unit_variance(rng):
    scaling = choose_scaling(text(rng))
    assert (scaling.kind, scaling.dense) == ("unit", False)
    scaling = choose_scaling(table(rng))
    assert (scaling.kind, scaling.dense) == ("variance", True)


def test_the_choice_does_not_depend_on_how_x_is_stored(rng):
    for A in (text(rng), text(rng, density=0.5)):
        a, b = choose_scaling(A), choose_scaling(A.toarray())
        assert (a.kind, a.dense) == (b.kind, b.dense)
        np.testing.assert_allclose(dense(a(A)), dense(b(A.toarray())), atol=1e-6)
        np.testing.assert_allclose(dense(a(A)), dense(a(A.toarray())), atol=1e-6)


@pytest.mark.parametrize("kind", ["none", "unit", "variance"])
@pytest.mark.parametrize("make", [text, table])
def test_the_last_column_is_ones_and_everything_is_float32(rng, kind, make):
    A = make(rng)
    scaled = choose_scaling(A, kind)(A)
    assert scaled.dtype == np.float32
    assert scaled.shape == (60, A.shape[1] + 1)
    np.testing.assert_array_equal(dense(scaled)[:, -1], 1)
    assert sp.issparse(scaled) == sp.issparse(A)


@pytest.mark.parametrize("make", [text, table])
def test_none_leaves_the_features_alone(rng, make):
    A = make(rng)
    np.testing.assert_array_equal(dense(choose_scaling(A, "none")(A))[:, :-1], dense(A))


@pytest.mark.parametrize("make", [text, table])
def test_unit_rows_are_scikit_learns(rng, make):
    A = make(rng)
    if sp.issparse(A):
        A = sp.csr_array(sp.vstack([A, sp.csr_array((1, 40), dtype=np.float32)]))  # a row without features stays so
    scaled = dense(choose_scaling(A, "unit")(A))[:, :-1]
    np.testing.assert_allclose(scaled, dense(normalize(A)), atol=1e-6)


def test_unit_variance_is_scikit_learns_standard_scaler(rng):
    A = table(rng)
    new = table(rng)
    scaling, peer = choose_scaling(A, "variance"), StandardScaler().fit(A.astype(np.float64))
    for B in (A, new):
        np.testing.assert_allclose(scaling(B)[:, :-1], peer.transform(B.astype(np.float64)), atol=2e-4)


def test_sparse_columns_are_scaled_to_mean_square_one_and_zeros_stay(rng):
    A = text(rng)
    scaled = choose_scaling(A, "variance")(A)
    assert sp.issparse(scaled)
    assert scaled.nnz == A.nnz + 60
    squares = (scaled.toarray()[:, :-1] ** 2).mean(axis=0)
    np.testing.assert_allclose(squares[A.toarray().any(axis=0)], 1, rtol=1e-5)


def test_a_constant_column_becomes_zero(rng):
    A = table(rng)
    A[:, 2] = 1e6
    A[:, 3] = 0
    scaled = choose_scaling(A, "variance")(A)
    assert np.isfinite(scaled).all()
    np.testing.assert_array_equal(scaled[:, 2:4], 0)


@pytest.mark.parametrize("make", [text, table])
@pytest.mark.parametrize("kind", ["auto", "variance"])
def test_a_row_seen_several_times_is_a_row_of_that_weight(rng, make, kind):
    A = make(rng)
    times = rng.integers(0, 4, 60)
    seen = choose_scaling(A[np.repeat(np.arange(60), times)], kind)
    weighed = choose_scaling(A, kind, times.astype(np.float32))
    assert (seen.kind, seen.dense) == (weighed.kind, weighed.dense)
    np.testing.assert_allclose(weighed.shift, seen.shift, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weighed.factor, seen.factor, rtol=1e-4)


@pytest.mark.parametrize("make", [text, table])
def test_column_moments_are_numpys(rng, make):
    A = make(rng)
    w = rng.random(60)
    mean, spread = column_moments(A, w)
    D = dense(A).astype(np.float64)
    exact = np.average(D, axis=0, weights=w)
    np.testing.assert_allclose(mean, exact, atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(spread, np.sqrt(np.average((D - exact) ** 2, axis=0, weights=w)), atol=1e-5, rtol=1e-5)


def test_inverse_lengths_of_nothing_are_zero():
    np.testing.assert_array_equal(inverse_lengths(np.array([4.0, 0.0])), [0.5, 0])


@pytest.mark.parametrize("n", [0, 1, 5])
def test_with_intercept_is_hstack(rng, n):
    A = text(rng, n=max(n, 1))[:n]
    np.testing.assert_array_equal(with_intercept(A).toarray(), np.hstack([A.toarray(), np.ones((n, 1))]))
    assert with_intercept(A).has_sorted_indices


def test_an_unknown_scale_is_answered_with_those_there_are(rng):
    with pytest.raises(ValueError, match="possible are 'auto', 'none', 'unit' and 'variance'"):
        choose_scaling(table(rng), "standard")
