"""Rows that occur several times: every learner holds copies out together, and says that they are there."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.neighbors import KNeighborsClassifier
from small import FIXED, documents, fixed, multilabel, words

import smoothlink
from smoothlink import Joint, PerLabel, SmoothLinkClassifier, TextSmoothLink


def stacked(X, Y, numbers):
    both = sp.vstack if sp.issparse(X) else np.vstack
    return both([X, X[numbers]], **({"format": "csr"} if sp.issparse(X) else {})), np.concatenate([Y, Y[numbers]])


LEARNERS = {
    "full": {},
    "quick": {"effort": "quick"},
    "given": {**FIXED, "calibrate": True},
    "logistic": {"loss": "logistic", "rank": 4},
    "joint": {"training": Joint(passes=2), "rank": 4},
    "in blocks": {"memory": "2G", **FIXED, "calibrate": True},
}


@pytest.mark.parametrize("parameters", LEARNERS.values(), ids=LEARNERS)
def test_weight_two_is_the_row_twice_for_every_learner(rng, parameters):
    """Whether the second one is at the end or follows the first."""
    X, Y = words(rng, 120)
    some = np.arange(50)
    w = np.ones(120)
    w[some] = 2
    weighted = SmoothLinkClassifier(**parameters).fit(X, Y, sample_weight=w)
    XX, YY = stacked(X, Y, some)
    for numbers in (np.arange(170), np.argsort(np.concatenate([np.arange(120), some]))):
        twice = SmoothLinkClassifier(**parameters).fit(XX[numbers], YY[numbers])
        np.testing.assert_allclose(twice.predict_proba(X), weighted.predict_proba(X), atol=1e-5)
        assert twice.summary_["copies"] >= 50


def test_a_classifier_that_takes_no_weights_learns_all_rows_whose_copies_are_a_group(rng):
    X, Y = stacked(*multilabel(rng, 60), np.arange(60))
    made = {"embedding": PerLabel(KNeighborsClassifier(1)), "loss": "squared"}
    copies = SmoothLinkClassifier(**made).fit(X, Y)
    groups = SmoothLinkClassifier(**made).fit(X, Y, groups=np.tile(np.arange(60), 2))
    np.testing.assert_array_equal(copies.predict_proba(X), groups.predict_proba(X))
    assert copies.predict_proba(X).max() < 0.99


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


def test_a_text_model_holds_near_duplicates_out_together_and_knows_its_texts():
    texts, names = documents(60)
    long = [
        f"{text} a report on {i} and on what else there is to say of number {i} of them" for i, text in enumerate(texts)
    ]
    near, names = [f"{text} again" for text in long[:20]], [*names[7:], *names[:7]]  # labels that no word tells
    model = TextSmoothLink(**{**FIXED, "calibrate": True}).fit([*long, *near], [*names, *names[:20]])
    groups = [*range(60), *range(20)]
    same = TextSmoothLink(**{**FIXED, "calibrate": True}).fit([*long, *near], [*names, *names[:20]], groups=groups)
    np.testing.assert_array_equal(model.predict_proba(long), same.predict_proba(long))
    alone = TextSmoothLink(**{**FIXED, "calibrate": True}).fit([*long, *near], [*names, *names[:20]], groups=range(80))
    assert np.abs(model.predict_proba(long) - alone.predict_proba(long)).max() > 1e-4
    assert model.evaluate(long, names, bootstraps=0).n_training_rows == 60
