"""Trees beside x: "auto" grows them where held-out rows gain, with full and with quick effort, and nowhere else."""

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink import Gaussian, SmoothLinkClassifier
from smoothlink.choices import Joint
from smoothlink.fitting.holdout import few_rows


def steps(rng, n=600):
    """Five numbers and three labels, each by steps in two numbers: no linear function of x knows them."""
    X = rng.random((n, 5))
    return X, np.column_stack([(X[:, j] > 0.5) != (X[:, j + 1] > 0.5) for j in range(3)]).astype(int)


def lines(rng, n=600):
    """Five numbers and three labels, each by the sign of a linear function and chance."""
    X = rng.standard_normal((n, 5))
    return X, (X @ rng.standard_normal((5, 3)) + 0.5 * rng.logistic(size=(n, 3)) > 0).astype(int)


def right(model, X, Y):
    return float((np.asarray(model.predict(X)) == Y).mean())


@pytest.mark.parametrize("effort", ["full", "quick"])
def test_trees_are_grown_where_labels_follow_steps(rng, effort):
    X, Y = steps(rng)
    model, without = (
        SmoothLinkClassifier(effort=effort, trees=trees, kernel=Gaussian(features=100)).fit(X[:300], Y[:300])
        for trees in ("auto", False)
    )
    assert model.summary_["trees"] > 0
    assert model.summary_["features"] == 5
    assert right(model, X[300:], Y[300:]) > right(without, X[300:], Y[300:]) + 0.03


@pytest.mark.parametrize("effort", [pytest.param("full", marks=pytest.mark.slow), "quick"])
def test_no_trees_are_grown_where_labels_are_linear(rng, effort):
    X, Y = lines(rng)
    assert SmoothLinkClassifier(effort=effort).fit(X, Y).summary_["trees"] == 0


@pytest.mark.parametrize(
    "changes", [{"input_kernel": None}, {"trees": False}, {"embedding": "none"}, {"scale": "unit"}], ids=str
)
def test_trees_are_left_out_where_x_was_asked_for_or_is_no_table(rng, changes):
    X, Y = steps(rng)
    assert SmoothLinkClassifier(effort="quick", **changes).fit(X, Y).summary_["trees"] == 0


def test_trees_of_a_sparse_text_are_refused_with_what_to_do(rng):
    X = sp.random_array((60, 200), density=0.05, rng=rng, format="csr")
    with pytest.raises(ValueError, match=r"trees is True, and X is sparse.*\n.*scale='variance'"):
        SmoothLinkClassifier(trees=True).fit(X, np.arange(60) % 3)


def test_joint_training_takes_no_trees(rng):
    X, Y = steps(rng, 60)
    with pytest.raises(ValueError, match="trees is True"):
        SmoothLinkClassifier(training=Joint(), trees=True).fit(X, Y)


def test_a_fit_that_goes_on_grows_the_same_trees(rng, tmp_path):
    X, Y = steps(rng, 200)
    few = Gaussian(features=50)
    kept = SmoothLinkClassifier(kernel=few, checkpoint=tmp_path / "state").fit(X, Y)
    once = SmoothLinkClassifier(kernel=few).fit(X, Y)
    again = SmoothLinkClassifier(kernel=few, checkpoint=tmp_path / "state").fit(X, Y)
    assert kept.summary_["trees"] > 0
    for other in (once, again):
        np.testing.assert_allclose(other.predict_proba(X), kept.predict_proba(X), atol=1e-5)


def test_an_updatable_model_takes_no_trees(rng):
    """Its sums would be of rows as trees predict them that have seen them."""
    X, Y = steps(rng, 300)
    assert SmoothLinkClassifier(effort="quick", updatable=True).fit(X, Y).summary_["trees"] == 0
    with pytest.raises(ValueError, match="trees is True"):
        SmoothLinkClassifier(trees=True, updatable=True).fit(X, Y)


def test_no_tree_has_seen_the_rows_that_calibrate_a_quick_fit(rng):
    X, Y = steps(rng, 6000)
    changed = Y.copy()
    held = few_rows(np.ones(6000), 0)
    changed[held] = 1 - changed[held]
    few = Gaussian(features=20)
    one, other = (SmoothLinkClassifier(effort="quick", trees=True, kernel=few).fit(X, A) for A in (Y, changed))
    np.testing.assert_array_equal(one.model_.trees.values, other.model_.trees.values)
