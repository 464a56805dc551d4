"""The embedding: every choice of U, label weights, and Algorithm 2 over scikit-learn's classifiers."""

import numpy as np
import pytest
import scipy.sparse as sp
from problems import class_problem, dense_problem, eigen, groups_problem, ridge_solution, sparse_problem
from scipy.linalg import subspace_angles
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.svm import SVC, LinearSVC

from smoothlink.fitting.embedding import Embedder, fit_classifier
from smoothlink.solve import Cholesky
from smoothlink.steps import embed

RIDGE = 0.3


def stage(embedding="randomized", rank=4, **knobs):
    return Embedder(embedding, Cholesky(), rank, **knobs)


def fitted(p, s):
    rows = p.rows(block_rows=50)
    return s.fit(rows, s.prepare(rows), RIDGE)


def rng_of_stage():
    return np.random.default_rng([0, 1])


# Directions


@pytest.mark.parametrize(
    ("knobs", "direct"),
    [
        ({}, lambda p, s, r: embed.label_embedding(p.rows(), 4, s, r)),
        (
            {"power": 2, "oversample": 3},
            lambda p, s, r: embed.label_embedding(p.rows(), 4, s, r, power=2, oversample=3),
        ),
        ({"embedding": "random"}, lambda p, s, r: embed.random_directions(p.rows(), 4, s, r)),
        ({"embedding": "principal"}, lambda p, s, r: embed.principal_directions(p.rows(), 4, s, r)),
        ({"embedding": "per_label"}, lambda p, s, r: embed.every_label(p.rows(), s)),
        ({"adaptive": True, "rank": 10}, lambda p, s, r: embed.adaptive_embedding(p.rows(), 10, s, r)),
    ],
)
def test_the_stage_is_the_step_of_its_name(rng, knobs, direct):
    p = sparse_problem(rng, c=40)
    found = fitted(p, stage(**knobs))
    exact = direct(p, p.solve(RIDGE), rng_of_stage())
    assert subspace_angles(found.U.astype(float), exact.U.astype(float)).max() < 1e-3
    np.testing.assert_allclose(np.abs(found.H), np.abs(p.dense[0] @ exact.W), atol=2e-3)
    np.testing.assert_allclose(found.H, p.dense[0] @ found.W, atol=1e-4)
    assert found.classifier is None


def test_a_share_cuts_the_embedding_where_it_is_reached(rng):
    p = class_problem(rng, c=10, d=12)
    whole, cut = fitted(p, stage(rank=10)), fitted(p, stage(rank=10, share=0.7))
    k = cut.U.shape[1]
    held = np.cumsum(whole.spectrum) / whole.spectrum.sum()
    assert held[k - 1] >= 0.7
    assert k == 1 or held[k - 2] < 0.7
    assert cut.H.shape == (150, k)


@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_no_embedding_is_x_without_its_constant(rng, make):
    p = make(rng)
    found = fitted(p, stage("none"))
    np.testing.assert_array_equal(found.H, p.dense[0][:, :-1])
    assert (found.U, found.W) == (None, None)


def test_another_seed_draws_other_probes(rng):
    p = sparse_problem(rng, c=60)
    a, b, again = (fitted(p, stage("random", seed=s)).U for s in (0, 1, 0))
    assert not np.allclose(a, b)
    np.testing.assert_array_equal(a, again)


# Label weights


def test_label_weights_are_weights_of_the_labels_squared_errors(rng):
    p = dense_problem(rng)
    X, Y = p.dense
    v = rng.random(12) + 0.2
    found = fitted(p, stage(label_scale=np.sqrt(v).astype(np.float32)))
    # sum_l v_l |y_l - x_l|^2 is the plain sum of squares with column l of Y times sqrt(v_l).
    S = Y * np.sqrt(v)
    _, E = eigen(S.T @ (p.w[:, None] * (X @ ridge_solution(X, S, p.w, RIDGE))))
    assert subspace_angles(found.U.astype(float), E[:, :4]).max() < 1e-2


def test_equal_label_weights_change_no_direction_and_a_weight_of_zero_removes_its_label(rng):
    p = groups_problem(rng, groups=5, copies=2)
    plain, equal = (fitted(p, stage(label_scale=s)) for s in (None, np.full(10, 2, np.float32)))
    np.testing.assert_allclose(np.abs(equal.U), np.abs(plain.U), atol=1e-4)
    scale = np.ones(10, np.float32)
    scale[3] = 0
    np.testing.assert_allclose(fitted(p, stage(label_scale=scale)).U[3], 0, atol=1e-6)


def test_scaled_labels_leave_the_rows_they_come_from_alone(rng):
    p = sparse_problem(rng)
    rows = p.rows(block_rows=50)
    scale = rng.random(12).astype(np.float32)
    scaled = np.vstack([b.Y.csr.toarray() for b in rows.with_scaled_labels(scale).blocks])
    np.testing.assert_allclose(scaled, p.dense[1] * scale)
    np.testing.assert_array_equal(np.vstack([b.Y.csr.toarray() for b in rows.blocks]), p.dense[1])


# Algorithm 2


@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
@pytest.mark.parametrize("classifier", [LogisticRegression(C=0.5), LinearSVC(C=0.1), SVC(kernel="linear"), Ridge()])
def test_a_linear_classifier_becomes_w(rng, make, classifier):
    p = make(rng, c=4)
    X, Y = p.dense
    found = fitted(p, stage("per_label", classifier=classifier))
    assert found.classifier is None
    assert found.W.shape == (X.shape[1], 4)
    np.testing.assert_allclose(X @ found.W, found.H, atol=1e-4)
    given = p.X[:, :-1]
    one = classifier.__class__(**classifier.get_params()).fit(given, Y[:, 1], sample_weight=p.w)
    exact = one.decision_function(given) if hasattr(one, "decision_function") else one.predict(given)
    np.testing.assert_allclose(found.H[:, 1], exact, atol=2e-3)


def test_a_forest_is_kept_and_its_activations_are_log_odds(rng):
    p = dense_problem(rng, c=3)
    forest = RandomForestClassifier(5, max_depth=2, random_state=0)
    found = fitted(p, stage("per_label", classifier=forest))
    assert found.W is None
    X = p.X[:, :-1]
    np.testing.assert_array_equal(found.classifier(X), found.H)
    P = np.column_stack([f.predict_proba(X)[:, 1] for f in found.classifier.fitted]).clip(1e-6, 1 - 1e-6)
    np.testing.assert_allclose(found.H, np.log(P / (1 - P)), rtol=1e-5)


def test_a_classifier_with_only_a_prediction_gives_that(rng):
    p = dense_problem(rng, c=3, weighted=False)
    found = fitted(p, stage("per_label", classifier=KNeighborsRegressor(3)))
    exact = KNeighborsRegressor(3).fit(p.X[:, :-1], p.dense[1][:, 2]).predict(p.X[:, :-1])
    np.testing.assert_allclose(found.H[:, 2], exact, atol=1e-6)


def test_a_label_that_all_rows_or_none_have_is_a_constant_activation(rng):
    p = dense_problem(rng, c=4)
    Y = p.Y.toarray()
    Y[:, 1], Y[:, 2] = 1, 0
    q = p._replace(Y=sp.csr_array(Y))
    for classifier in (LogisticRegression(), GaussianNB()):
        found = fitted(q, stage("per_label", classifier=classifier))
        np.testing.assert_array_equal(found.H[:, 1], 1)
        np.testing.assert_array_equal(found.H[:, 2], -1)
    alike = q._replace(Y=sp.csr_array(np.ones((120, 2), np.float32)))
    found = fitted(alike, stage("per_label", classifier=LogisticRegression()))
    np.testing.assert_array_equal(found.H, 1)
    assert found.W is None  # nothing says how many features a classifier would have had


def test_rows_of_weight_zero_are_not_shown_to_classifiers(rng):
    p = dense_problem(rng, c=3)
    kept = np.flatnonzero(rng.random(120) < 0.6)
    silent = np.zeros(120)
    silent[kept] = p.w[kept]
    found = fit_classifier(LogisticRegression(), p._replace(w=silent).rows())
    alone = LogisticRegression().fit(p.X[kept, :-1], p.dense[1][kept, 0], sample_weight=p.w[kept])
    np.testing.assert_allclose(found.H[:, 0], alone.decision_function(p.X[:, :-1]), atol=1e-4)


def test_a_classifier_without_weights_takes_equal_ones_and_refuses_others(rng):
    p = dense_problem(rng, c=3, weighted=False)
    found = fitted(p, stage("per_label", classifier=KNeighborsClassifier(3)))
    assert found.H.shape == (120, 3)
    p.w[0] = 2
    with pytest.raises(ValueError, match="KNeighborsClassifier of PerLabel takes no sample_weight"):
        fitted(p, stage("per_label", classifier=KNeighborsClassifier(3)))
