"""effort="quick": rules of thumb, one fit, and rows that calibrate it without having been fitted."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, multilabel, words

from smoothlink import ConjugateGradient, Gaussian, Logistic, SmoothLinkClassifier
from smoothlink.fitting.holdout import QUICK_ROWS, few_rows
from smoothlink.fitting.quick import PASSES, TOLERANCE
from smoothlink.steps.calibrate import no_calibration


@pytest.fixture(params=["dense", "sparse", "classes"])
def problem(request, rng):
    if request.param == "classes":
        return classes(rng, n=400, d=10, c=5)
    X, Y = (multilabel if request.param == "dense" else words)(rng, n=400)
    return X, Y


def test_nothing_is_tried_and_everything_is_told(problem):
    story = SmoothLinkClassifier(effort="quick").fit(*problem).summary_
    assert story["chosen_by"].pop("scale").startswith("X looks like ")
    assert set(story["chosen_by"].values()) == {"rule of thumb"}
    assert story["loss"] == "squared"
    assert story["held_out_rows"] == 400
    assert "choose" not in story["seconds"]


def test_given_settings_are_kept(problem):
    given = {"ridge": 0.3, "bandwidth": 1.5, "final_ridge": 0.2, "rank": 3}
    asked = {name: value for name, value in given.items() if name != "bandwidth"} | {"scale": "unit"}
    story = SmoothLinkClassifier(effort="quick", kernel=Gaussian(1.5), **asked).fit(*problem).summary_
    assert {name: story[name] for name in given} == given
    assert story["chosen_by"] == {**dict.fromkeys([*given, "scale"], "given"), "loss": "rule of thumb"}


@pytest.mark.parametrize("passes", ["auto", 2])
def test_the_sgd_of_a_loss_that_was_given_has_few_passes(rng, passes):
    X, Y = multilabel(rng, n=400)
    story = SmoothLinkClassifier(effort="quick", loss=Logistic(passes=passes)).fit(X, Y).summary_
    assert (story["loss"], story["passes"]) == ("logistic", PASSES if passes == "auto" else 2)


@pytest.mark.parametrize("n", [400, 5001])
def test_few_rows_are_all_fitted_and_of_many_those_that_do_not_calibrate(rng, n):
    X, Y = words(rng, n=n)
    fast = SmoothLinkClassifier(effort="quick").fit(X, Y)
    story = fast.summary_
    w = np.ones(n)
    if n > QUICK_ROWS:
        w[few_rows(w, 0)] = 0
    settings = {name: story[name] for name in ("rank", "ridge", "final_ridge", "loss")}
    kernel = Gaussian(story["bandwidth"], story["random_features"])
    same = SmoothLinkClassifier(**settings, kernel=kernel, calibrate=False)
    same.fit(X, Y, sample_weight=w)
    told = np.diff(X.indptr) > 0  # the others get the frequencies of all rows
    fast.model_ = replace(fast.model_, calibration=no_calibration())
    np.testing.assert_allclose(fast.decision_function(X[told]), same.decision_function(X[told]), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(fast.model_.counts, np.asarray(Y).sum(axis=0))


def test_probabilities_are_calibrated_unless_told_otherwise(rng):
    X, Y = words(rng, n=2000)
    P = SmoothLinkClassifier(effort="quick").fit(X, Y).predict_proba(X)
    assert P.sum() == pytest.approx(Y.sum(), rel=0.1)
    plain = SmoothLinkClassifier(effort="quick", calibrate=False).fit(X, Y)
    assert plain.summary_["held_out_rows"] == 0
    np.testing.assert_allclose(plain.predict_proba(X), np.clip(plain.decision_function(X), 1e-7, 1 - 1e-7), atol=1e-6)


def test_a_label_of_held_out_rows_alone_spoils_nothing(rng):
    X, Y = words(rng, n=400)
    only = np.zeros(400)
    only[few_rows(np.ones(400), 0)] = 1
    Y = np.column_stack([Y, only])
    with np.errstate(all="raise"):
        model = SmoothLinkClassifier(effort="quick").fit(X, Y)
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(model.model_.calibration.knots).all()


def test_a_kernel_of_x_and_an_embedding_of_unit_length_are_calibrated_as_they_are(rng):
    X, Y = multilabel(rng, n=400)
    for given in ({"input_kernel": "gaussian"}, {"normalize_embedding": True}, {"embedding": "none"}):
        model = SmoothLinkClassifier(effort="quick", **given).fit(X, Y)
        assert model.predict_proba(X).sum() == pytest.approx(Y.sum(), rel=0.2)


def test_a_handful_of_rows_is_calibrated_by_all_of_them(rng):
    X, y = classes(rng, n=6, d=3, c=2)
    fitted = SmoothLinkClassifier(effort="quick").fit(sp.csr_array(X), y)
    assert fitted.summary_["held_out_rows"] == 6
    assert np.isfinite(fitted.predict_proba(X)).all()


def test_conjugate_gradients_stop_early_unless_they_were_given(rng):
    X, Y = words(rng, n=400)
    for solver, least, most in (("cg", 1e-3, TOLERANCE), (ConjugateGradient(tol=1e-5), 0, 1e-5)):
        residual = SmoothLinkClassifier(effort="quick", solver=solver).fit(X, Y).summary_["solver_residual"]
        assert least < residual <= most


@pytest.mark.parametrize("n", [100, 400])
def test_labels_that_every_row_has_are_ranked_before_all_others(rng, n):
    X, Y = words(rng, n=n + 200, c=8)
    Y[:, [2, 5]] = 1
    model = SmoothLinkClassifier(effort="quick").fit(X[:n], Y[:n])
    best = model.predict_topk(X[n:], 2)
    assert (np.sort(best.indices.reshape(-1, 2), axis=1) == [2, 5]).all()
    assert best.data.min() > 0.95


def test_a_hundred_rows_calibrate_nearly_as_well_as_a_thousand(rng):
    X, Y = multilabel(rng, n=4100)
    errors = {}
    for n in (100, 1000):
        model = SmoothLinkClassifier(effort="quick").fit(X[:n], Y[:n])
        errors[n] = model.evaluate(X[1100:], Y[1100:], bootstraps=0).metrics["ece_top"].value
    assert errors[1000] < 0.05
    assert errors[100] < 0.1


def test_probabilities_of_rare_labels_sum_to_their_number(rng):
    X = rng.standard_normal((6000, 12))
    Z = X @ rng.standard_normal((12, 40))
    shares = np.geomspace(0.3, 0.01, 40)
    Y = (np.array([z > np.quantile(z, 1 - f) for z, f in zip(Z.T, shares, strict=True)]).T).astype(int)
    Y[rng.random(Y.shape) < 0.003] ^= 1
    model = SmoothLinkClassifier(effort="quick").fit(X[:2000], Y[:2000])
    P, truth = model.predict_proba(X[2000:]), Y[2000:]
    for part in (slice(0, 20), slice(20, 40)):
        assert P[:, part].sum() == pytest.approx(truth[:, part].sum(), rel=0.1)
    # Ranked by what is shown.
    best = model.predict_topk(X[2000:], 5)
    assert (np.diff(best.data.reshape(-1, 5), axis=1) <= 0).all()
    np.testing.assert_array_equal(best.indices.reshape(-1, 5)[:, 0], P.argmax(axis=1))
