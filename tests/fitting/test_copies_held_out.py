"""Rows that occur several times: every learner holds copies out together, and says that they are there."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from small import FIXED, documents, fixed, multilabel, words

import smoothlink
from smoothlink import Joint, SmoothLinkClassifier, TextSmoothLink
from smoothlink.fitting import holdout
from smoothlink.steps.calibrate import no_calibration


def stacked(X, Y, numbers):
    both = sp.vstack if sp.issparse(X) else np.vstack
    return both([X, X[numbers]], **({"format": "csr"} if sp.issparse(X) else {})), np.concatenate([Y, Y[numbers]])


LEARNERS = {
    "full": {},
    "quick": {"effort": "quick", "calibrate": True},
    "given": {**FIXED, "calibrate": True},
    "joint": {"training": Joint(passes=2), "rank": 4},
}


@pytest.mark.parametrize("parameters", LEARNERS.values(), ids=LEARNERS)
def test_no_learner_holds_out_a_row_whose_copy_it_learns(rng, parameters, monkeypatch):
    X, Y = words(rng, 70)
    X, Y = stacked(X, Y, np.arange(70))
    seen, plain = [], holdout.fold_numbers

    def watched(n, share, seed, groups=None):
        fold = plain(n, share, seed, groups)
        seen.append((n, groups, fold))
        return fold

    monkeypatch.setattr(holdout, "fold_numbers", watched)
    SmoothLinkClassifier(**parameters).fit(X, Y)
    assert seen
    rows = X.toarray()
    for n, groups, fold in seen:
        assert n == 140
        same = (rows[:, None] == rows[None]).all(axis=2) & rows.any(axis=1)[:, None]
        assert (fold[:, None] == fold[None])[same].all()
        assert groups.copies.sum() >= 60


@pytest.mark.parametrize("make", [multilabel, words])
def test_weight_two_is_the_row_twice_where_everything_is_auto(rng, make):
    X, Y = make(rng, 120)
    some = np.arange(50)
    w = np.ones(120)
    w[some] = 2
    weighted = SmoothLinkClassifier(loss="squared").fit(X, Y, sample_weight=w)
    twice = SmoothLinkClassifier(loss="squared").fit(*stacked(X, Y, some))
    for name in ("ridge", "rank", "bandwidth", "final_ridge", "random_features"):
        assert twice.summary_[name] == pytest.approx(weighted.summary_[name])
    assert (
        np.abs(twice.predict_proba(X) - weighted.predict_proba(X)).mean() < 0.01
    )  # the maps add a pair of mean weight
    for fitted in (twice, weighted):
        fitted.model_ = replace(fitted.model_, calibration=no_calibration())
    np.testing.assert_allclose(twice.decision_function(X), weighted.decision_function(X), atol=1e-3)
    assert np.abs(twice.predict_proba(X) - weighted.predict_proba(X)).mean() < 5e-3


def test_three_copies_of_every_row_leave_probabilities_modest(rng):
    X, Y = multilabel(rng, 240)
    Y = np.where(rng.random(Y.shape) < 0.25, 1 - Y, Y)  # noise that no row tells
    train, test = slice(0, 120), slice(120, 240)
    once = SmoothLinkClassifier().fit(X[train], Y[train]).evaluate(X[test], Y[test], bootstraps=0).metrics
    model = SmoothLinkClassifier().fit(np.tile(X[train], (3, 1)), np.tile(Y[train], (3, 1)))
    copies = model.evaluate(X[test], Y[test], bootstraps=0).metrics
    assert copies["logloss"].value <= 1.1 * once["logloss"].value
    assert model.summary_["copies"] == 240


def test_groups_are_held_out_together_and_decide_alone(rng):
    X, Y = multilabel(rng, 100)
    groups = np.arange(100) % 50
    given = fixed(calibrate=True).fit(X, Y, groups=groups)
    named = fixed(calibrate=True).fit(X, Y, groups=[f"author {g}" for g in groups])
    plain = fixed(calibrate=True).fit(X, Y)
    np.testing.assert_array_equal(given.predict_proba(X), named.predict_proba(X))
    assert np.abs(given.predict_proba(X) - plain.predict_proba(X)).max() > 1e-4
    alone = fixed(calibrate=True).fit(X, Y, groups=range(100))
    np.testing.assert_array_equal(alone.predict_proba(X), plain.predict_proba(X))


def test_groups_are_refused_in_a_sentence(rng):
    X, Y = multilabel(rng)
    with pytest.raises(ValueError, match="groups has 3 values, and there are 90 rows"):
        fixed().fit(X, Y, groups=[1, 2, 3])
    with pytest.raises(ValueError, match="no value for 1 of 90 rows"):
        fixed().fit(X, Y).evaluate(X, Y, groups=[*range(89), None])
    texts, names = documents(20)
    with pytest.raises(ValueError, match="groups has 2 values, and there are 20 rows"):
        TextSmoothLink(**FIXED).fit(texts, names, groups=[1, 2])


def test_rows_that_are_all_the_same_are_said_to_be(rng):
    _, Y = multilabel(rng, 30)
    with pytest.warns(UserWarning, match="All 30 rows have the same features"):
        fixed(calibrate=True).fit(np.ones((30, 4)), Y)
    with pytest.warns(UserWarning, match="All 30 rows have the same features"):
        fixed(calibrate=True).fit(np.ones((30, 4)), np.tile(Y[:1], (30, 1)))


def test_intervals_are_over_groups_and_copies_of_test_rows_do_not_narrow_them(rng):
    X, Y = multilabel(rng, 150)
    model = fixed().fit(X[:90], Y[:90])
    once = model.evaluate(X[90:], Y[90:], seed=1)
    thrice = model.evaluate(np.tile(X[90:], (3, 1)), np.tile(Y[90:], (3, 1)), seed=1)
    for key in ("p@1", "micro_f1", "macro_f1", "logloss"):
        assert thrice.metrics[key] == pytest.approx(once.metrics[key], rel=1e-4)
    few = model.evaluate(X[90:], Y[90:], groups=np.arange(60) // 20)
    low, high = few.metrics["p@1"][1:]
    assert high - low > once.metrics["p@1"].high - once.metrics["p@1"].low


@pytest.mark.parametrize("make", [multilabel, words])
def test_a_saved_model_knows_how_many_test_rows_it_was_trained_on(rng, make, tmp_path):
    X, Y = make(rng, 100)
    X = X if sp.issparse(X) else np.asarray(X, np.float32)
    fixed().fit(X[:60], Y[:60]).save(tmp_path / "m")
    model = smoothlink.load(tmp_path / "m")
    known, rows = model.evaluate(X[50:], Y[50:], bootstraps=0), words_with_features(X[50:60])
    assert known.n_training_rows == rows
    assert f"{rows} of them in the training data" in repr(known)
    assert model.evaluate(X[60:], Y[60:], bootstraps=0).n_training_rows == 0
    whole = model.evaluate(X[:60], Y[:60], bootstraps=0)
    assert whole.n_training_rows == 60


def words_with_features(X):
    return int(((X != 0).sum(axis=1) > 0).sum())


def test_a_text_model_holds_near_duplicates_out_together_and_knows_its_texts(monkeypatch):
    texts, names = documents(60)
    long = [
        f"{text} a report on {i} and on what else there is to say of number {i} of them" for i, text in enumerate(texts)
    ]
    near = [f"{text} again" for text in long[:20]]
    seen, plain = [], holdout.fold_numbers

    def watched(n, share, seed, groups=None):
        seen.append(plain(n, share, seed, groups))
        return seen[-1]

    monkeypatch.setattr(holdout, "fold_numbers", watched)
    model = TextSmoothLink(**{**FIXED, "calibrate": True}).fit([*long, *near], [*names, *names[:20]])
    assert seen
    np.testing.assert_array_equal(seen[0][60:], seen[0][:20])
    assert model.evaluate(long, names, bootstraps=0).n_training_rows == 60
