"""Trees beside x: no row is predicted by trees that saw it or a row held out with it, and a row twice is weight two."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from smoothlink.steps.trees import DIRECTIONS, PARTS, SHARE, Trees, grow, grow_trees, linked, mean_of


def table(rng, n=200, d=6, c=3):
    """Numbers, and labels by steps in pairs of them."""
    X = rng.standard_normal((n, d)).astype(np.float32)
    Y = np.column_stack([(X[:, j % d] > 0) != (X[:, (j + 1) % d] > 0.3) for j in range(c)])
    return X, sp.csr_array(Y.astype(np.float32)), np.arange(n) % PARTS


def grown(X, Y, part, w=None, multiclass=False):
    return grow_trees(X, Y, np.ones(len(X)) if w is None else w, part, 0, multiclass=multiclass)


def test_a_prediction_is_the_link_of_the_sum_of_leaves_from_that_of_the_start():
    """Two trees of one split each, read by hand."""
    trees = Trees(
        2,
        np.array([0, 3], np.int32),
        np.array([0, -1, -1, 1, -1, -1], np.int32),
        np.array([0.5, 0, 0, 0, 0, 0], np.float32),
        np.array([[1, 2], [0, 0], [0, 0], [4, 5], [0, 0], [0, 0]], np.int32),
        np.array([[0], [1], [2], [0], [4], [8]], np.float32),
        np.array([-3], np.float32),
        "logistic",
        10.0,
    )
    X = np.array([[0.5, 0], [0.6, 0.1]], np.float32)  # on the thresholds is left
    z = np.array([-3 + 1 + 4, -3 + 2 + 8])
    np.testing.assert_allclose(trees.predict(X)[:, 0], 10 * (expit(z) - expit(-3)), rtol=1e-5)
    np.testing.assert_array_equal(trees(X)[:, [0, 1, 3]], np.column_stack([X, [1, 1]]))


@pytest.mark.parametrize("link", ["identity", "logistic", "softmax"])
def test_targets_that_no_column_tells_are_predicted_by_their_mean(rng, link):
    T = (rng.random((400, 3)) < [0.1, 0.3, 0.6]).astype(np.float32)
    T = np.eye(3, dtype=np.float32)[T.argmax(axis=1)]
    trees = grow(np.zeros((400, 2), np.float32), T, np.ones(400), link, [0])
    np.testing.assert_allclose(linked(trees.start, link), T.mean(axis=0), atol=1e-5)
    assert (trees.feature < 0).all()


def test_a_step_is_predicted_on_both_of_its_sides(rng):
    X = rng.random((2000, 3)).astype(np.float32)
    T = (X[:, :1] > 0.37).astype(np.float32)
    trees = grow(X, T, np.ones(2000), "logistic", [0])
    new = np.array([[0.30, 0.5, 0.5], [0.44, 0.5, 0.5]], np.float32)
    np.testing.assert_allclose(expit(trees.start) + trees.predict(new), [[0], [1]], atol=0.02)


@pytest.mark.parametrize("multiclass", [False, True])
def test_contributions_of_columns_sum_up_to_the_prediction(rng, multiclass):
    X, Y, part = table(rng)
    if multiclass:
        Y = sp.csr_array(np.eye(3, dtype=np.float32)[Y.toarray().argmax(axis=1)])
    trees = grown(X, Y, part, multiclass=multiclass).trees
    assert trees.link == ("softmax" if multiclass else "logistic")
    for x in X[:5]:
        np.testing.assert_allclose(trees.contributions(x).sum(axis=0), trees.predict(x[None])[0], atol=1e-5)


def test_a_column_that_no_tree_looks_at_contributes_nothing(rng):
    X, Y, part = table(rng)
    X[:, 5] = 1
    trees = grown(X, Y, part).trees
    np.testing.assert_array_equal(trees.contributions(X[0])[5], 0)


def test_trees_know_nothing_of_the_labels_of_the_rows_that_they_predict(rng):
    """With labels by chance all trees together know them, and those that never saw a row do not."""
    X, part = rng.standard_normal((300, 5)).astype(np.float32), np.arange(300) % PARTS
    Y = rng.random((300, 1)) < 0.5
    found = grown(X, sp.csr_array(Y.astype(np.float32)), part)

    def correlation(f):
        return np.corrcoef(f[:, 0], Y[:, 0])[0, 1]

    assert correlation(found.trees.predict(X)) > 0.8
    assert abs(correlation(found.predictions())) < 0.2


@pytest.mark.parametrize("held", [np.arange(0, 200, 10), np.array([0, 1, 2, 50])], ids=["of one part", "of several"])
def test_labels_of_held_out_rows_change_no_prediction_without_them(rng, held):
    X, Y, part = table(rng)
    changed = Y.toarray()
    changed[held] = 1 - changed[held]
    one, other = grown(X, Y, part), grown(X, sp.csr_array(changed), part)
    np.testing.assert_allclose(one.predictions(held) / one.gain, other.predictions(held) / other.gain, rtol=1e-5)
    assert np.abs(one.predictions() / one.gain - other.predictions() / other.gain).max() > 0.01


def test_held_out_rows_are_predicted_as_new_ones_are(rng):
    X, Y, part = table(rng)
    X[10] = X[0] + 1e-6  # both are held out, one of them by number
    found, held = grown(X, Y, part), np.array([0, 10])
    F = found.predictions(held)
    trees = mean_of(found.ensembles_without(held))._replace(gain=found.gain)
    np.testing.assert_allclose(F[held], trees.predict(X[held]), rtol=1e-6)


def test_folds_of_one_part_share_their_trees(rng):
    X, Y, part = table(rng)
    found = grown(X, Y, part)
    assert len(found.ensembles) == PARTS
    found.predictions(np.arange(0, 100, 5))
    found.predictions(np.arange(100, 200, 5))  # the same part
    assert len(found.ensembles) == PARTS + PARTS - 1
    found.predictions(np.arange(1, 200, 5))  # another, which has one pair in common
    assert len(found.ensembles) == PARTS + (PARTS - 1) + (PARTS - 2)


def test_predictions_get_their_share_of_the_variance_of_x(rng):
    X, Y, part = table(rng)
    X[:, 2] = 0  # a column that is always the same has none
    assert grown(X, Y, part).predictions().var(axis=0).sum() == pytest.approx(SHARE * 5, rel=1e-4)


def test_rows_of_weight_zero_have_no_part_in_trees(rng):
    X, Y, part = table(rng)
    w = np.ones(200)
    w[150:] = 0
    changed = Y.toarray()
    changed[150:] = 1 - changed[150:]
    some, others = grown(X, Y, part, w).trees, grown(X, sp.csr_array(changed), part, w).trees
    np.testing.assert_array_equal(some.values, others.values)


def test_of_many_labels_trees_predict_the_leading_directions(rng):
    X, Y, part = table(rng, c=40)
    found = grown(X, Y, part)
    assert found.predictions().shape == (200, DIRECTIONS)
    assert found.trees(X).shape == (200, 6 + DIRECTIONS + 1)
    assert found.trees.link == "identity"


@pytest.mark.parametrize("n", [1, 2, 7])
def test_trees_of_a_few_rows_or_of_labels_that_never_change_are_finite(rng, n):
    X, Y, part = table(rng, n)
    for labels in (Y, sp.csr_array(np.ones((n, 2), np.float32))):
        found = grown(X, labels, part)
        assert np.isfinite(found.trees(X)).all()
        assert np.isfinite(found.predictions()).all()
        assert np.isfinite(found.predictions(np.array([0]))).all()


def test_rows_without_weight_are_predicted_as_new_ones_and_held_out_already(rng):
    X, Y, part = table(rng)
    w, held = np.ones(200), np.array([3, 50, 77])
    w[held] = 0
    found = grown(X, Y, part, w)
    np.testing.assert_allclose(found.predictions()[held], found.trees.predict(X[held]), rtol=1e-5)
    np.testing.assert_array_equal(found.predictions(held), found.predictions())


def test_rows_of_one_part_alone_are_predicted_by_trees_that_say_nothing(rng):
    """With the rows of both parts left out, none is left to grow trees from."""
    X, Y, _ = table(rng)
    part = np.arange(200) % 2
    found, held = grown(X, Y, part), np.arange(0, 200, 2)
    np.testing.assert_array_equal(found.predictions(held)[part == 1], 0)
    assert found.predictions(held)[part == 0].any()


@pytest.mark.parametrize("change", [40.0, 1e-9, -3.0])
def test_contributions_of_a_sigmoid_are_exact(change):
    trees = Trees(
        1,
        np.zeros(1, np.int32),
        np.array([0, -1, -1], np.int32),
        np.zeros(3, np.float32),
        np.array([[1, 2], [0, 0], [0, 0]], np.int32),
        np.array([[0], [-1], [change]], np.float32),
        np.array([0.25], np.float32),
        "logistic",
    )
    x = np.ones(1, np.float32)
    np.testing.assert_allclose(trees.contributions(x)[0], trees.predict(x[None])[0], rtol=1e-5, atol=1e-7)
