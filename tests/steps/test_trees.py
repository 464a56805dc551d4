"""Trees beside x: they are scikit-learn's, no row is predicted by trees that saw it, and a row twice is weight two."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestRegressor

from smoothlink.steps.trees import DIRECTIONS, PARTS, SHARE, grow_trees, trees_of


def table(rng, n=200, d=6, c=3):
    """Numbers, and labels by steps in pairs of them."""
    X = rng.standard_normal((n, d)).astype(np.float32)
    Y = np.column_stack([(X[:, j % d] > 0) != (X[:, (j + 1) % d] > 0.3) for j in range(c)])
    return X, sp.csr_array(Y.astype(np.float32)), np.arange(n) % PARTS


@pytest.mark.parametrize("outputs", [1, 3])
def test_trees_predict_as_the_forest_that_they_are_of(rng, outputs):
    X, Y, _ = table(rng)
    targets = Y.toarray()[:, :outputs].squeeze()
    forest = RandomForestRegressor(7, min_samples_leaf=2, random_state=0).fit(X, targets)
    means = np.mean([tree.tree_.value[0, :, 0] for tree in forest.estimators_], axis=0)
    new = rng.standard_normal((500, 6)).astype(np.float32)
    new[:100] = forest.estimators_[0].tree_.threshold[0]  # right on a threshold
    np.testing.assert_allclose(
        trees_of(forest).predict(new) + means, forest.predict(new).reshape(500, outputs), atol=1e-6
    )


def test_contributions_of_columns_sum_up_to_the_prediction(rng):
    X, Y, part = table(rng)
    trees, _ = grow_trees(X, Y, np.ones(200), part, 0)
    for x in X[:5]:
        np.testing.assert_allclose(trees.contributions(x).sum(axis=0), trees.predict(x[None])[0], atol=1e-5)


def test_trees_know_nothing_of_the_labels_of_the_rows_that_they_predict(rng):
    """With labels by chance all trees together know them, and those that never saw a row do not."""
    X, part = rng.standard_normal((300, 5)).astype(np.float32), np.arange(300) % PARTS
    Y = rng.random((300, 1)) < 0.5
    trees, F = grow_trees(X, sp.csr_array(Y.astype(np.float32)), np.ones(300), part, 0)

    def correlation(f):
        return np.corrcoef(f[:, 0], Y[:, 0])[0, 1]

    assert correlation(trees.predict(X)) > 0.8
    assert abs(correlation(F)) < 0.2


def test_predictions_get_their_share_of_the_variance_of_x(rng):
    X, Y, part = table(rng)
    X[:, 2] = 0  # a column that is always the same has none
    _, F = grow_trees(X, Y, np.ones(200), part, 0)
    assert F.var(axis=0).sum() == pytest.approx(SHARE * 5, rel=1e-4)


def test_rows_of_weight_zero_have_no_part_in_trees(rng):
    X, Y, part = table(rng)
    w = np.ones(200)
    w[150:] = 0
    changed = Y.toarray()
    changed[150:] = 1 - changed[150:]
    some, _ = grow_trees(X, Y, w, part, 0)
    others, _ = grow_trees(X, sp.csr_array(changed), w, part, 0)
    np.testing.assert_array_equal(some.values, others.values)


def test_of_many_labels_trees_predict_the_leading_directions(rng):
    X, Y, part = table(rng, c=40)
    trees, F = grow_trees(X, Y, np.ones(200), part, 0)
    assert F.shape == (200, DIRECTIONS)
    assert trees(X).shape == (200, 6 + DIRECTIONS + 1)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_trees_of_a_few_rows_or_of_labels_that_never_change_are_finite(rng, n):
    X, Y, part = table(rng, n)
    for labels in (Y, sp.csr_array(np.ones((n, 2), np.float32))):
        trees, F = grow_trees(X, labels, np.ones(n), part, 0)
        assert np.isfinite(trees(X)).all()
        assert np.isfinite(F).all()
