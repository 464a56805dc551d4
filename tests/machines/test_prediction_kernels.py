"""The kernels of prediction against NumPy, bit for bit or to a stated rounding."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothlink.machines import prediction_kernels as kernels

SCORES = st.one_of(st.floats(-5, 5, width=32), st.sampled_from([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-30]))


def interpolated(S, knots, values, tiny):
    S = np.asarray(S, np.float64)
    with np.errstate(invalid="ignore"):
        t = np.sign(S) * np.log1p(np.abs(S) / tiny) if tiny else np.clip(S, -40, 40)
    return np.where(np.isnan(S), np.nan, np.interp(t, knots, values))  # which forgets NaN where there is one knot


@given(
    st.lists(SCORES, min_size=1, max_size=50),
    st.lists(st.sampled_from(np.linspace(-9, 9, 40).tolist()), min_size=1, max_size=30),  # often the same twice
    st.sampled_from([0.0, 1e-4]),
)
@settings(max_examples=150, deadline=None)
def test_the_map_is_that_of_numpy_wherever_the_knots_lie(scores, knots, tiny):
    knots, values = np.sort(knots), np.linspace(0.1, 0.9, len(knots))
    S = np.array(scores, np.float32)
    apart = np.abs(
        interpolated(S, knots, values, tiny) - interpolated(np.nextafter(S, np.float32(9)), knots, values, tiny)
    )
    found = kernels.interpolate(S, knots, values, tiny)
    smooth = ~(apart > 1e-5)  # where two knots are at one place, rounding decides which side it is
    np.testing.assert_allclose(found[smooth], interpolated(S, knots, values, tiny)[smooth], rtol=1e-5, atol=1e-6)


def test_the_map_of_many_scores_on_all_threads_is_that_of_each(rng):
    S = rng.standard_normal((300, 400)).astype(np.float32)
    knots, values = np.sort(rng.uniform(-9, 9, 200)), np.sort(rng.random(200))
    assert S.size > kernels.SERIAL
    found = kernels.interpolate(S, knots, values, 1e-4)
    assert found.shape == S.shape
    np.testing.assert_array_equal(found[7], kernels.interpolate(S[7], knots, values, 1e-4))
    np.testing.assert_allclose(found, interpolated(S, knots, values, 1e-4), atol=1e-6)


def test_losses_of_absent_labels_are_those_of_log1p(rng):
    P = np.concatenate([10.0 ** rng.uniform(-9, 0, (20, 500)), [np.linspace(0, 1, 500)]]).astype(np.float32)
    losses = np.ones(21)
    kernels.add_absent_losses(P, 1e-7, losses)
    expected = 1 - np.log1p(-np.clip(P.astype(np.float64), 1e-7, 1 - 1e-7)).sum(axis=1)
    np.testing.assert_allclose(losses, expected, rtol=1e-12)


def test_probabilities_are_clipped_and_those_of_untrained_labels_are_replaced(rng):
    P, S = rng.random((40, 30)).astype(np.float32), rng.standard_normal((40, 30)).astype(np.float32)
    S[:, 3] = -np.inf
    expected = np.where(np.isneginf(S), np.float32(0.01), np.clip(P, 0.2, 0.7))
    kernels.clip_trained(P, S, 0.2, 0.7, 0.01)
    np.testing.assert_allclose(P, expected, rtol=1e-7)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=60))
@settings(max_examples=200, deadline=None)
def test_blocks_of_isotonic_regression_are_those_of_scipy(bins):
    from scipy.optimize import isotonic_regression

    hits = np.array([a for a, _ in bins], np.float64)
    weights = np.array([a + b + 1 for a, b in bins], np.float64)
    blocks = kernels.isotonic_blocks(hits, weights)
    if bins:
        expected = isotonic_regression(hits / weights, weights=weights).x
        pooled = np.bincount(blocks, hits) / np.bincount(blocks, weights)
        np.testing.assert_allclose(pooled[blocks], expected, rtol=1e-12)
        assert (np.diff(pooled) > 0).all()
    assert len(blocks) == len(bins)
