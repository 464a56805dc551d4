"""Label sets: ranks against a full sort, F1 sets against brute force over all subsets of rows."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smoothlink.errors import DataError
from smoothlink.steps.infer import (
    RunningTopK,
    TopK,
    above_half,
    f1_cut,
    f1_thresholds,
    propensities,
    sets_at,
    top_k,
    topk_csr,
)

TIED = st.sampled_from([-np.inf, -1.0, 0.0, -0.0, 0.25, 0.5, 1.0, np.inf])
PROBABILITY = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def full_sort(scores, k):
    order = np.argsort(-np.asarray(scores, np.float64), axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(np.asarray(scores), order, axis=1)


# The k best


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=40), elements=TIED), st.integers(1, 50))
@settings(max_examples=150, deadline=None)
def test_the_k_best_are_the_head_of_a_stable_sort_whatever_the_ties(scores, k):
    found = top_k(scores, k)
    order, values = full_sort(scores, k)
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_array_equal(found.values, values)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8, bool])
@pytest.mark.parametrize("digits", [1, 8])
def test_grouped_columns_find_the_same_k_best_in_wide_blocks(rng, dtype, digits):
    scores = np.round(10 * rng.random((20, 3001)), digits).astype(dtype)
    for k in (1, 5, 30, 3001):
        np.testing.assert_array_equal(top_k(scores, k).indices, full_sort(scores, k)[0])


def test_the_k_best_of_a_transposed_view_are_those_of_its_copy(rng):
    scores = rng.random((300, 40)).T
    np.testing.assert_array_equal(top_k(scores, 3).indices, top_k(scores.copy(), 3).indices)


def test_a_block_without_rows_or_labels_has_no_best():
    assert top_k(np.empty((0, 4)), 2).indices.shape == (0, 2)
    assert top_k(np.empty((3, 0)), 2).indices.shape == (3, 0)


def test_a_nan_score_and_a_k_of_zero_are_refused(rng):
    scores = rng.random((4, 400))
    scores[2, 399] = np.nan
    with pytest.raises(DataError, match="1 of 1600 scores are NaN"):
        top_k(scores, 3)
    with pytest.raises(DataError, match="k >= 1"):
        top_k(scores, 0)


def test_topk_rows_are_stacked_in_order_of_rank_and_zeros_stay(rng):
    scores = np.zeros((5, 7))
    scores[:, 6], scores[:, 2] = 2, 1
    matrix = topk_csr((top_k(block, 4) for block in np.split(scores, [2])), 7)
    assert matrix.shape == (5, 7)
    assert matrix.nnz == 20
    assert not matrix.has_sorted_indices
    assert matrix.indices.dtype == np.int32
    np.testing.assert_array_equal(matrix.indices.reshape(5, 4), [[6, 2, 0, 1]] * 5)
    np.testing.assert_array_equal(matrix.data.reshape(5, 4), [[2, 1, 0, 0]] * 5)


def test_no_blocks_and_no_labels_stack_to_empty_matrices():
    assert topk_csr([], 3).shape == (0, 3)
    assert topk_csr([TopK(np.empty((2, 0), int), np.empty((2, 0)))], 0).shape == (2, 0)


# Sets at 1/2


def test_exactly_one_half_is_not_above_one_half():
    sets = above_half(np.array([[0.5, 0.5000001, 0.2], [0.0, 0.1, 0.4]]))
    np.testing.assert_array_equal(sets.toarray(), [[0, 1, 0], [0, 0, 0]])
    assert sets.dtype == np.int64
    with pytest.raises(DataError, match="NaN"):
        above_half(np.array([[0.1, np.nan]]))


# Algorithm 4


def expected_f1(z, chosen, n_plus, weights=None):
    w = np.ones(len(z)) if weights is None else weights
    return 2 * (w * z)[chosen].sum() / (n_plus + w[chosen].sum())


def best_of_all_sets(z, n_plus, weights=None):
    rows = range(len(z))
    return max(expected_f1(z, list(s), n_plus, weights) for m in rows for s in combinations(rows, m + 1))


def algorithm_4(z, frequency):
    """As the paper prints it."""
    z = np.sort(z.astype(np.float64))[::-1]
    return z[np.argmax(2 * np.cumsum(z) / (frequency * len(z) + np.arange(1, len(z) + 1)))]


@given(hnp.arrays(np.float64, st.integers(1, 8), elements=PROBABILITY), st.floats(0.01, 1))
@settings(max_examples=100, deadline=None)
def test_no_set_of_rows_has_a_higher_expected_f1(z, frequency):
    chosen = sets_at(z[:, None], [f1_cut(z, frequency)]).toarray()[:, 0] > 0
    found = expected_f1(z, chosen, frequency * len(z))
    assert found == pytest.approx(best_of_all_sets(z, frequency * len(z)), rel=1e-12)


@given(
    hnp.arrays(np.float64, 6, elements=PROBABILITY),
    hnp.arrays(np.float64, 6, elements=st.sampled_from([0.0, 0.5, 1.0, 3.0])),
    st.floats(0.01, 1),
)
@settings(max_examples=60, deadline=None)
def test_no_set_of_weighted_rows_has_a_higher_expected_f1(z, weights, frequency):
    n_plus = frequency * weights.sum()
    cut = f1_cut(z, frequency, weights)
    chosen = (z >= cut) & (z > 0)
    found = expected_f1(z, chosen, n_plus, weights) if n_plus else 0
    assert found == pytest.approx(best_of_all_sets(z, n_plus, weights) if n_plus else 0, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("skew", [0.01, 0.3, 2.0])
def test_thresholds_are_those_of_the_printed_algorithm(rng, dtype, skew):
    Z = np.maximum(rng.beta(skew, 2, (2000, 9)), 1e-7).astype(dtype)
    frequencies = Z.mean(axis=0, dtype=np.float64)
    expected = [algorithm_4(z, f) for z, f in zip(Z.T, frequencies, strict=True)]
    np.testing.assert_array_equal(f1_thresholds(Z, frequencies), expected)
    assert (sets_at(Z, expected).sum(axis=0) >= 1).all()


def test_a_weight_of_two_is_the_row_twice_and_a_weight_of_zero_is_no_row(rng):
    Z = rng.random((50, 4))
    frequencies, weights = np.array([0.01, 0.1, 0.3, 0.9]), rng.integers(0, 3, 50)
    twice = f1_thresholds(np.repeat(Z, weights, axis=0), frequencies)
    np.testing.assert_array_equal(f1_thresholds(Z, frequencies, weights), twice)


def test_labels_without_training_rows_and_rows_without_probability_are_never_predicted():
    Z = np.array([[0.9, 0.0, 0.9], [0.8, 0.0, 0.0], [0.7, 0.0, 0.0]])
    thresholds = f1_thresholds(Z, [0, 0.5, 0.9])
    np.testing.assert_array_equal(thresholds, [np.inf, np.inf, 0.9])
    np.testing.assert_array_equal(sets_at(Z, thresholds).toarray(), [[0, 0, 1], [0, 0, 0], [0, 0, 0]])
    assert sets_at(np.zeros((2, 1)), [0.0]).nnz == 0
    assert f1_cut(np.empty(0), 0.5) == np.inf


def test_blocks_of_labels_have_the_thresholds_of_the_whole(rng):
    Z, frequencies = rng.random((30, 12)), rng.random(12)
    parts = [f1_thresholds(Z[:, s], frequencies[s]) for s in (slice(0, 5), slice(5, 12))]
    np.testing.assert_array_equal(np.concatenate(parts), f1_thresholds(Z, frequencies))
    assert f1_thresholds(Z[:, :0], []).shape == (0,)


def test_f1_inference_refuses_scores_and_wrong_shapes():
    with pytest.raises(DataError, match=r"range from -1 to 2.*np.clip"):
        f1_thresholds(np.array([[-1.0], [2.0]]), [0.5])
    with pytest.raises(DataError, match="nan"):
        f1_thresholds(np.array([[0.1], [np.nan]]), [0.5])
    with pytest.raises(DataError, match="one frequency per column"):
        f1_thresholds(np.zeros((3, 2)), [0.5])
    with pytest.raises(DataError, match="one weight per row"):
        f1_thresholds(np.zeros((3, 2)), [0.5, 0.5], weights=[1, 1])


# Propensities


def test_inverse_propensities_are_the_formula_of_jain_et_al():
    C = (np.log(1000) - 1) * 2.5**0.55
    np.testing.assert_allclose(propensities([0, 1, 100], 1000), [1 + C * (m + 1.5) ** -0.55 for m in (0, 1, 100)])
    assert propensities([1], 1000)[0] == pytest.approx(np.log(1000))  # N_l = 1: C (1 + b)^-a = ln N - 1
    assert (np.diff(propensities(np.arange(50), 1000, a=0.6, b=2.6)) < 0).all()


def test_tiny_training_sets_have_propensity_one():
    np.testing.assert_array_equal(propensities([0, 1, 2], 2), [1, 1, 1])


# Blocks of labels


@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=40), elements=TIED.map(np.float32)),
    st.sampled_from([1, 3, 64, 65, 90]),
    st.integers(1, 50),
)
@settings(max_examples=150, deadline=None)
def test_the_best_of_blocks_of_labels_are_the_best_of_all_whatever_the_ties(scores, k, step):
    ranking = RunningTopK(len(scores), k)
    for start in range(0, scores.shape[1], step):
        part = scores[:, start : start + step]
        ranking.add(part, 2 * part)
    order, values = full_sort(scores, k)
    np.testing.assert_array_equal(ranking.best().indices, order)
    np.testing.assert_array_equal(ranking.best().values, 2 * values)


@pytest.mark.parametrize("k", [4, 100])
def test_wide_blocks_on_all_threads_rank_like_one_sort(rng, k):
    scores = np.round(rng.random((300, 900)), 2)  # many ties
    ranking = RunningTopK(300, k)
    for part in np.split(scores, [400, 401], axis=1):
        ranking.add(part)
    np.testing.assert_array_equal(ranking.best().indices, full_sort(scores, k)[0])
    with pytest.raises(DataError, match="300 of 30000 scores are NaN"):
        ranking.add(np.where(np.arange(100) == 7, np.nan, scores[:, :100]))
