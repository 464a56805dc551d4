"""LabelSpace: PLST and CPLST as an estimator, against the published formulas and through the public names."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from small import classes, multilabel, words

import smoothlink
from smoothlink_paper import LabelSpace

METHODS = ["plst", "cplst"]


def ridge_fit(X, T, ridge):
    """Ridge regression with a free intercept; the ridge is a multiple of the mean diagonal entry of X'X."""
    A = np.column_stack([X, np.ones(len(X))])
    penalty = np.append(np.full(X.shape[1], ridge * (X**2).sum() / X.shape[1]), 0)
    return A @ np.linalg.solve(A.T @ A + np.diag(penalty), A.T @ T)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ridge", ["auto", 0.7])
def test_scores_are_the_published_ones_at_the_ridge_that_was_selected(rng, method, ridge):
    X, Y = multilabel(rng)
    found = LabelSpace(method, rank=3, ridge=ridge, scale="none").fit(X, Y)
    A, Z = np.column_stack([X, np.ones(len(X))]), Y - Y.mean(axis=0)
    M = Z.T @ (A @ np.linalg.pinv(A) if method == "cplst" else np.eye(len(X))) @ Z
    E = np.linalg.eigh(M)[1][:, -3:]
    exact = Y.mean(axis=0) + ridge_fit(X.astype(np.float64), Z @ E, found.summary_["ridge"]) @ E.T
    np.testing.assert_allclose(found.decision_function(X), exact, atol=2e-3)
    np.testing.assert_array_equal(found.predict(X), found.predict_proba(X) > 0.5)
    best = found.predict_topk(X, 2).indices.reshape(len(X), 2)
    np.testing.assert_array_equal(best[:, 0], found.decision_function(X).argmax(axis=1))
    assert found.summary_["kernel"] == "linear"
    assert found.summary_["chosen_by"]["ridge"] == ("given" if ridge == 0.7 else "held-out rows")
    assert ((found.model_.thresholds > 0) & (found.model_.thresholds <= 1)).all()


@pytest.mark.parametrize(("ridge", "used"), [("auto", 1.0), (0.7, 0.7)])
def test_one_row_has_nothing_to_select_by(rng, ridge, used):
    X, _ = multilabel(rng)
    found = LabelSpace(rank=3, ridge=ridge).fit(X[:1], np.ones((1, 6), int))
    assert found.summary_["ridge"] == used
    assert found.summary_["held_out_rows"] == 0
    np.testing.assert_allclose(found.decision_function(X[:1]), 1, atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "change",
    [{"rank": 2}, {"ridge": 10.0}, {"scale": "none"}, {"input_kernel": "gaussian"}],
    ids=str,
)
def test_every_parameter_changes_the_predictions(rng, method, change):
    X, Y = multilabel(rng)
    given = {"method": method, "rank": 4, "ridge": 1.0, "scale": "variance" if "scale" in change else "none"}
    expected = LabelSpace(**given).fit(X + 1, Y).decision_function(X)
    assert np.abs(LabelSpace(**given | change).fit(X + 1, Y).decision_function(X) - expected).max() > 1e-4


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [multilabel, words])
def test_a_weight_of_two_is_a_row_seen_twice_and_blocks_change_nothing(rng, method, make):
    X, Y = make(rng)
    stack = sp.vstack if sp.issparse(X) else np.vstack
    space = LabelSpace(method, rank=4, ridge=1.0)
    P = clone(space).fit(X, Y, np.full(X.shape[0], 2.0)).predict_proba(X)
    twice = clone(space).fit(stack([X, X]), np.concatenate([Y, Y])).predict_proba(X)
    np.testing.assert_allclose(twice, P, rtol=2e-3, atol=2e-5)
    blocks = clone(space).set_params(block_rows=7).fit(X, Y, np.full(X.shape[0], 2.0)).predict_proba(X)
    np.testing.assert_allclose(blocks, P, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("method", METHODS)
def test_classes_are_predicted_and_weighed(rng, method):
    X, y = classes(rng)
    space = LabelSpace(method, class_weight={y[0]: 5.0}).fit(X, y)
    assert space.score(X, y) > 0.5
    assert space.model_.total == pytest.approx(len(y) + 4 * np.sum(y == y[0]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("as_before", [False, True])
def test_a_saved_model_loads_as_a_classifier_that_predicts_the_same(rng, tmp_path, method, as_before):
    X, Y = words(rng)
    space = LabelSpace(method, rank=4).fit(X, Y)
    if as_before:  # version 0.1.0 wrote the method as an embedding
        space.embedding = method
    space.save(tmp_path / "model.safetensors")
    loaded = smoothlink.load(tmp_path / "model.safetensors")
    assert type(loaded) is smoothlink.SmoothLinkClassifier
    np.testing.assert_array_equal(loaded.predict_proba(X), space.predict_proba(X))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rows", [1, 20])
def test_extreme_data_are_learnt_all_the_same(rng, method, rows):
    X, Y = multilabel(rng, n=20, d=4, c=3)
    for A, y in ((X, Y), (np.ones((20, 4)), Y), (np.zeros((20, 4)), Y), (sp.csr_array((20, 4)), Y), (X, ["only"] * 20)):
        y = np.maximum(y[:rows], 1) if rows == 1 and y is Y else y[:rows]
        P = LabelSpace(method, rank=4, ridge=1.0).fit(A[:rows], y).predict_proba(A[:rows])
        assert np.isfinite(P).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "pca"}, "method is 'pca'; possible are 'plst' or 'cplst'"),
        ({"input_kernel": "auto"}, "possible are None and a kernel"),
        ({"rank": -1}, "rank is -1"),
        ({"class_weight": "balanced"}, "class_weight of multilabel y"),
    ],
)
def test_what_it_cannot_do_is_refused(rng, given, message):
    with pytest.raises(ValueError, match=message):
        LabelSpace(**given).fit(*multilabel(rng))
