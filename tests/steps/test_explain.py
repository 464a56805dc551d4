"""What features add to scores: parts that sum, secants that are means of gradients, labels that are near."""

import numpy as np
import pytest

from smoothlink.steps.contributions import (
    Row,
    cosine_way,
    identity_way,
    kernel_way,
    nearest,
    plain_way,
    score_parts,
    secants,
    then_weights,
    to_unit_length,
)
from smoothlink.steps.featurize import Features, parse_kernel
from smoothlink.steps.landmarks import Landmarks


def some_features(rng, k, s):
    return Features(rng.standard_normal((k, s)).astype(np.float32), rng.uniform(0, 6, s).astype(np.float32))


def test_a_secant_is_the_mean_of_the_gradient(rng):
    u, change = rng.uniform(-5, 5, 50), rng.uniform(-9, 9, 50)
    at, w = np.polynomial.legendre.leggauss(40)
    along = u + change * ((at + 1) / 2)[:, None]
    assert secants(u, change) == pytest.approx(w / 2 @ (-np.sqrt(2) * np.sin(along)))
    assert secants(u, change) * change == pytest.approx(np.sqrt(2) * (np.cos(u + change) - np.cos(u)))


def test_where_nothing_changes_the_secant_is_the_gradient(rng):
    u = rng.uniform(-5, 5, 50)
    assert secants(u, np.zeros(50)) == pytest.approx(-np.sqrt(2) * np.sin(u))
    assert secants(u, np.full(50, 1e-9)) == pytest.approx(-np.sqrt(2) * np.sin(u), abs=1e-7)


def test_parts_are_integrated_gradients_of_the_score(rng):
    """Against 60 points of Gauss and Legendre on the way from the empty row to the row, by finite differences."""
    W, V, f = rng.standard_normal((5, 3)), rng.standard_normal((21, 2)), some_features(rng, 3, 20)
    x, constant = rng.standard_normal(5), rng.standard_normal(3)

    def score(z):
        return np.append(np.sqrt(2) * np.cos((z @ W + constant) @ f.R.astype(float) + f.b), 1) @ V

    at, w = np.polynomial.legendre.leggauss(60)
    expected = np.zeros((5, 2))
    for t, share in zip((at + 1) / 2, w / 2, strict=True):
        for i, step in enumerate(1e-5 * np.eye(5)):
            expected[i] += share * x[i] * (score(t * x + step) - score(t * x - step)) / 2e-5
    found = score_parts(plain_way(Row(np.arange(5), x), W, constant), f, V)
    assert found.added == pytest.approx(expected, abs=1e-4)
    assert found.base == pytest.approx(score(np.zeros(5)), abs=1e-4)


def test_of_a_linear_link_parts_are_its_terms(rng):
    W, V, x = rng.standard_normal((4, 3)), rng.standard_normal((4, 2)), rng.standard_normal(4)
    linear = Features(np.zeros((3, 0), np.float32), np.zeros(0, np.float32))
    found = score_parts(plain_way(Row(np.arange(4), x), W, np.zeros(3)), linear, V)
    assert found.added == pytest.approx(x[:, None] * (W @ V[:-1]), rel=1e-5)
    assert found.base == pytest.approx(V[-1], rel=1e-5)


def test_scaling_to_unit_length_scales_all_parts_of_h_alike(rng):
    way = to_unit_length(plain_way(Row(np.arange(4), np.ones(4)), rng.standard_normal((4, 3)), np.ones(3)))
    assert np.linalg.norm(way.end) == pytest.approx(1)
    assert way.start + way.back(np.eye(3)).sum(axis=0) == pytest.approx(way.end)


@pytest.mark.parametrize("kernel", ["gaussian", "matern(3)", "laplacian"])
def test_kernel_values_are_reached_by_their_parts(rng, kernel):
    marks = Landmarks(rng.standard_normal((30, 4)).astype(np.float32), parse_kernel(kernel), 6.0)
    x = rng.standard_normal((1, 4)).astype(np.float32)
    way = kernel_way(Row(np.arange(4), x[0]), marks)
    assert way.start == pytest.approx(marks.values(np.zeros((1, 4), np.float32))[0], abs=1e-5)
    assert way.end == pytest.approx(marks.values(x)[0], abs=1e-5)
    assert way.start + way.back(np.eye(30)).sum(axis=0) == pytest.approx(way.end, abs=1e-7)


@pytest.mark.parametrize("kernel", ["gaussian", "matern(3)", "laplacian"])
def test_a_landmark_as_far_from_the_row_as_from_the_empty_one_gives_parts_that_cancel(kernel):
    marks = Landmarks(np.array([[1.0, 0.0, 1.0]], np.float32), parse_kernel(kernel), 6.0)
    row = Row(np.arange(3), np.array([2.0, 0.0, 0.0], np.float32))  # as far from (1, 0, 1) as 0 is
    found = kernel_way(row, marks).back(np.ones((1, 1)))
    assert found == pytest.approx(0, abs=1e-6)
    both = Row(np.arange(3), np.array([2.0, 1.0, 1.0], np.float32))  # nearer by the third, farther by the second
    found = kernel_way(both, marks).back(np.ones((1, 1)))[:, 0]
    assert found[1] < 0 < found[2]
    assert np.isfinite(found).all()


def test_a_first_stage_of_random_features_is_reached_by_its_parts(rng):
    f, W = some_features(rng, 4, 20), rng.standard_normal((20, 3))
    x = rng.standard_normal((1, 4)).astype(np.float32)
    way = then_weights(cosine_way(Row(np.arange(4), x[0]), f), W, np.ones(3))
    assert way.end == pytest.approx(f(x)[0, :-1] @ W + 1, abs=1e-4)
    assert way.start + way.back(np.eye(3)).sum(axis=0) == pytest.approx(way.end, abs=1e-4)


def test_without_an_embedding_h_is_x():
    way = identity_way(Row(np.array([1, 3]), np.array([2.0, -1.0])), 5)
    assert way.end.tolist() == [0, 2, 0, -1, 0]
    assert way.back(np.eye(5)).sum(axis=0).tolist() == way.end.tolist()


def test_nearest_rows_are_those_of_the_highest_cosine(rng):
    A = rng.standard_normal((40, 6)).astype(np.float32)
    A[7] = 0
    unit = A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-9)
    C = unit @ unit.T
    np.fill_diagonal(C, -9)
    ids, cosines = nearest(A, np.array([3, 11]), 4)
    assert ids.tolist() == np.argsort(-C[[3, 11]], axis=1)[:, :4].tolist()
    assert cosines == pytest.approx(np.sort(C[[3, 11]], axis=1)[:, :-5:-1], abs=1e-5)
    assert np.abs(nearest(A, np.array([7]), 4)[1]).max() == 0
    assert nearest(A[:1], np.array([0]), 4)[0].shape == (1, 0)
