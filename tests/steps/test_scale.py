"""Scaling: unit rows, unit variance, and ones for the intercept, the same for sparse and dense rows; what "auto" is."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler, normalize

from smoothlink.errors import DataError
from smoothlink.steps.scale import ColumnStatistics, choose_scaling, inverse_lengths, one_more_each, with_intercept


def table(rng, n=60, d=7):
    """Columns of very different size and mean, none of them zero."""
    return (rng.standard_normal((n, d)) * 10.0 ** np.arange(-2, d - 2) + 5).astype(np.float32)


def text(rng, n=60, d=40, density=0.1):
    A = sp.random_array((n, d), density=density, rng=rng, dtype=np.float32, format="csr")
    return sp.csr_array(A)


def dense(A):
    return A.toarray() if sp.issparse(A) else A


def numbers_and_categories(rng, sizes, n=400, categories=10, levels=10, zeros=0.0):
    """Numbers of these sizes beside categories, each with a column for every level; up to a fifth is not zero."""
    numbers = rng.standard_normal((n, len(sizes))) * np.asarray(sizes) * (rng.random((n, len(sizes))) >= zeros)
    one_hot = rng.integers(0, levels, (n, categories))[:, :, None] == np.arange(levels)
    return sp.csr_array(np.hstack([numbers, one_hot.reshape(n, -1)]))


def counts(rng, n=400, d=300, words=60):
    """Counts of words by Zipf's law, in documents of very different length."""
    p = 1 / (np.arange(d) + 3)
    return sp.csr_array(rng.multinomial(1 + (words * rng.gamma(3, size=n) / 3).astype(int), p / p.sum()).astype(float))


def tfidf(rng):
    A = counts(rng)
    idf = np.log(A.shape[0] / np.maximum(np.bincount(A.indices, minlength=A.shape[1]), 1)) + 1
    return sp.csr_array(normalize(A.multiply(idf)))


TEXTS = {
    "TF-IDF": tfidf,
    "counts": counts,
    "words that occur": lambda rng: (counts(rng) > 0).astype(np.float32),
    "hashed words": lambda rng: sp.csr_array(tfidf(rng) @ sp.diags_array(rng.choice([-1.0, 1.0], 300))),
    "long documents": lambda rng: counts(rng, n=200, d=5000, words=1500),
    "one-hot columns": lambda rng: numbers_and_categories(rng, []),
    "as many words in each row": lambda rng: sp.csr_array(np.eye(50)[rng.integers(0, 50, (200, 5))].sum(axis=1)),
}
TABLES = {
    "dense": lambda rng: sp.csr_array(table(rng)),
    "numbers of one size": lambda rng: numbers_and_categories(rng, np.ones(10)),
    "numbers that are often zero": lambda rng: numbers_and_categories(rng, np.ones(10), zeros=0.4),
    "small numbers": lambda rng: numbers_and_categories(rng, np.full(10, 1e-3)),
    "one large number": lambda rng: numbers_and_categories(rng, [1000.0]),
    "text and a year": lambda rng: sp.csr_array(sp.hstack([tfidf(rng), rng.integers(1990, 2026, (400, 1))])),
    "text and a large constant": lambda rng: sp.csr_array(sp.hstack([tfidf(rng), np.full((400, 1), 1e6)])),
}


@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_auto_scales_what_is_like_text_to_unit_rows(rng, make):
    scaling = choose_scaling(make(rng))
    assert (scaling.kind, scaling.dense) == ("unit", False)
    assert scaling.reason.startswith("X looks like text, so rows have unit length: ")


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_auto_scales_the_columns_of_tables_to_unit_variance(rng, make):
    A = make(rng)
    scaling = choose_scaling(A)
    assert (scaling.kind, scaling.dense) == ("variance", True)
    assert scaling.reason.startswith("X looks like a table, so columns have unit variance: ")
    scaled = scaling(A)[:, :-1]
    varies = A.toarray().std(axis=0) > 0
    np.testing.assert_allclose(scaled.std(axis=0), varies, atol=1e-5)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-5)


@pytest.mark.parametrize("make", [counts, lambda rng: numbers_and_categories(rng, [1, 10, 100])])
def test_auto_does_not_depend_on_the_unit_of_x_nor_on_the_order_of_rows_and_columns(rng, make):
    A = make(rng)
    kinds = {choose_scaling(B).kind for B in (A, A * 1e-6, A * 1e9, A[::-1], A[:, ::-1])}
    assert len(kinds) == 1


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
    assert sp.issparse(scaled) == (sp.issparse(A) and kind != "variance")


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


def wide(rng):
    """More columns than a sparse table may have to become dense."""
    return text(rng, d=1200)


def test_the_columns_of_a_wide_sparse_x_have_mean_square_one_and_zeros_stay(rng):
    A = wide(rng)
    scaled = choose_scaling(A, "variance")(A)
    assert sp.issparse(scaled)
    assert scaled.nnz == A.nnz + 60
    squares = (scaled.toarray()[:, :-1] ** 2).mean(axis=0)
    np.testing.assert_allclose(squares[A.toarray().any(axis=0)], 1, rtol=1e-5)


def test_a_column_of_a_wide_sparse_x_that_is_never_zero_is_centred(rng):
    A = sp.csr_array(sp.hstack([wide(rng), rng.normal(2000, 10, (60, 1))]))
    scaled = choose_scaling(A)(A)
    assert sp.issparse(scaled)
    year = scaled.toarray()[:, 1200]
    assert (year.mean(), year.std()) == pytest.approx((0, 1), abs=1e-5)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_far_from_zero_are_standardised_in_float64(rng, store, weighted):
    exact = rng.standard_normal((500, 3))
    w = rng.random(500) if weighted else np.ones(500)
    X = store(1e8 + exact)
    scaled = choose_scaling(X, "auto", w)(X)
    exact -= np.average(exact, axis=0, weights=w)
    np.testing.assert_allclose(scaled[:, :-1], exact / np.sqrt(np.average(exact**2, axis=0, weights=w)), atol=1e-5)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("size", [1e-300, 1e-23, 1e20, 1e300])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_unit_rows_do_not_depend_on_the_size_of_a_row(rng, store, size, kind):
    if kind == np.float32 and not 1e-30 < size < 1e30:
        pytest.skip("float32 holds no such values")
    A = text(rng).toarray()
    scaling = choose_scaling(store(A), "unit")
    B = (A.astype(np.float64) * size).astype(kind)
    np.testing.assert_allclose(dense(scaling(store(B))), dense(scaling(store(A))), rtol=1e-5)


@pytest.mark.parametrize("make", [table, wide])
def test_a_value_too_large_for_float32_is_refused_unless_scaling_makes_it_small(rng, make):
    A = make(rng).astype(np.float64) * 1e100
    with pytest.raises(DataError, match="too large for 32-bit numbers"):
        choose_scaling(A, "none")(A)
    for kind in ("unit", "variance"):
        assert np.isfinite(dense(choose_scaling(A, kind)(A))).all()
    with pytest.raises(DataError, match="too large for 64-bit numbers"):
        choose_scaling(A * 1e100, "variance")


@pytest.mark.parametrize("make", [table, text, counts])
@pytest.mark.parametrize("store", [dense, sp.csr_array])
def test_statistics_of_parts_add_up_to_those_of_all_rows(rng, make, store):
    A = store(make(rng))
    w = rng.random(A.shape[0])
    whole, *parts = (ColumnStatistics.of(A[part], w[part]) for part in (slice(None), slice(23), slice(23, None)))
    added = parts[0] + parts[1]
    for name in ("rows", "weight", "entries", "mean", "scatter", "counts", "rounding"):
        np.testing.assert_allclose(getattr(added, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


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
    mean, spread = ColumnStatistics.of(A, w).moments()
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


def test_pointers_beyond_32_bits_become_64_bits():
    last = np.iinfo(np.int32).max
    for end, kind in ((last - 2, np.int32), (last - 1, np.int64)):
        found = one_more_each(np.array([0, 5, end], np.int32))
        assert (found.tolist(), found.dtype) == ([0, 6, end + 2], kind)


def test_an_unknown_scale_is_answered_with_those_there_are(rng):
    with pytest.raises(ValueError, match="possible are 'auto', 'none', 'unit' and 'variance'"):
        choose_scaling(table(rng), "standard")
