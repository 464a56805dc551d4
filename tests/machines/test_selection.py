"""The kernels of prediction against NumPy, bit for bit or to a stated rounding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothlink.errors import ModelFileError
from smoothlink.machines import prediction_kernels as selection
from smoothlink.machines.half_precision import FEW, Half, from_half, to_half

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
    found = selection.interpolate(S, knots, values, tiny)
    smooth = ~(apart > 1e-5)  # where two knots are at one place, rounding decides which side it is
    np.testing.assert_allclose(found[smooth], interpolated(S, knots, values, tiny)[smooth], rtol=1e-5, atol=1e-6)


def test_the_map_of_many_scores_on_all_threads_is_that_of_each(rng):
    S = rng.standard_normal((300, 400)).astype(np.float32)
    knots, values = np.sort(rng.uniform(-9, 9, 200)), np.sort(rng.random(200))
    assert S.size > selection.SERIAL
    found = selection.interpolate(S, knots, values, 1e-4)
    assert found.shape == S.shape
    np.testing.assert_array_equal(found[7], selection.interpolate(S[7], knots, values, 1e-4))
    np.testing.assert_allclose(found, interpolated(S, knots, values, 1e-4), atol=1e-6)


def test_losses_of_absent_labels_are_those_of_log1p(rng):
    P = np.concatenate([10.0 ** rng.uniform(-9, 0, (20, 500)), [np.linspace(0, 1, 500)]]).astype(np.float32)
    losses = np.ones(21)
    selection.add_absent_losses(P, 1e-7, losses)
    expected = 1 - np.log1p(-np.clip(P.astype(np.float64), 1e-7, 1 - 1e-7)).sum(axis=1)
    np.testing.assert_allclose(losses, expected, rtol=1e-12)


def test_settled_probabilities_are_cut_and_those_never_seen_are_replaced(rng):
    P, S = rng.random((40, 30)).astype(np.float32), rng.standard_normal((40, 30)).astype(np.float32)
    S[:, 3] = -np.inf
    expected = np.where(np.isneginf(S), np.float32(0.01), np.clip(P, 0.2, 0.7))
    selection.settle(P, S, 0.2, 0.7, 0.01)
    np.testing.assert_allclose(P, expected, rtol=1e-7)


# Half precision


def test_every_finite_half_is_widened_exactly():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    finite = np.isfinite(halves)
    found = from_half(np.where(finite, halves, np.float16(0)), np.full(256, 4, np.float32))
    assert halves.size > 1 << 14  # by the kernel, not by NumPy
    np.testing.assert_array_equal(found[finite], 4 * halves[finite].astype(np.float32))


def test_halves_keep_eleven_bits_of_columns_of_any_size(rng):
    A = (rng.uniform(0.01, 1, (50, 9)) * 10.0 ** np.arange(-20, 16, 4)).astype(np.float32)
    A[:, 4] = 0
    half = to_half(A)
    assert half.shape == A.shape
    assert half.values.dtype == np.float16
    np.testing.assert_allclose(half.wide(), A, rtol=2.0**-11)
    np.testing.assert_array_equal(half.wide(np.array([3, 1])), half.wide()[:, [3, 1]])
    np.testing.assert_array_equal(half.rows(np.array([7, 7, 2])), half.wide()[[7, 7, 2]])
    np.testing.assert_array_equal(np.frexp(half.scale)[0], 0.5)  # powers of two


@pytest.mark.parametrize("rows", [1, FEW, FEW + 1])
@pytest.mark.parametrize("columns", [slice(None), slice(5, 33), np.array([40, 2, 2])], ids=str)
def test_products_with_halves_are_those_with_the_widened_matrix(rng, rows, columns):
    half = to_half(rng.standard_normal((31, 70)).astype(np.float32))
    half = Half(np.frombuffer(half.values.tobytes(), np.float16).reshape(31, 70), half.scale)  # read-only, as mapped
    A = rng.standard_normal((rows, 31)).astype(np.float32)
    expected = A @ half.wide()[:, columns]
    np.testing.assert_allclose(half.left(A, columns), expected, rtol=1e-5, atol=1e-5)
    out = np.empty_like(expected)
    assert half.left(A, columns, out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_many_halves_go_to_a_file_and_are_the_same(rng, monkeypatch):
    A = rng.standard_normal((37, 50)).astype(np.float32)
    here = to_half(A)
    monkeypatch.setattr("smoothlink.machines.half_precision.PIECE", 1000)
    there = to_half(A)
    assert isinstance(there.values, np.memmap)
    np.testing.assert_array_equal(there.values, here.values)
    np.testing.assert_array_equal(there.scale, here.scale)


def test_weights_that_are_not_finite_are_not_halved():
    with pytest.raises(ModelFileError, match="not finite"):
        to_half(np.array([[1.0, np.inf]], np.float32))
