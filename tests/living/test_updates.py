"""Rows and labels that come to a classifier and go from it."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, fixed, multilabel, words

from smoothlink import DataError, SmoothLinkClassifier, load
from smoothlink.living import state as living_state
from smoothlink.living.state import embed


def updatable(**changes):
    return fixed(**{"updatable": True, "calibrate": True, **changes})


def refit(model, X, Y):
    """V of the rows given, by the model's own embedding and ridge, in float64."""
    inside, rho = model.model_, model._living.sums.rho
    Phi = inside.features(embed(inside, X)).astype(np.float64)
    penalty = np.append(np.full(Phi.shape[1] - 1, rho), 0)
    return np.linalg.solve(Phi.T @ Phi + np.diag(penalty), Phi.T @ np.asarray(Y, np.float64))


@pytest.mark.parametrize("make", [words, multilabel])
def test_after_any_sequence_the_decoder_is_that_of_the_rows_that_are_left(rng, make):
    X, Y = make(rng, n=160)
    model = updatable().fit(X[:80], Y[:80])
    model.update(X[80:150], Y[80:150])
    model.forget(X[10:40], Y[10:40]).update(X[[150]], Y[[150]]).forget(X[[90]], Y[[90]])
    left = np.r_[:10, 40:90, 91:151]
    np.testing.assert_allclose(model.model_.V.columns(), refit(model, X[left], Y[left]), atol=2e-5)
    np.testing.assert_array_equal(model.model_.counts, Y[left].sum(axis=0))
    assert model.model_.total == len(left) == model.summary_["rows"] == model.summary_["living"]["rows"]


def test_a_row_that_came_and_went_leaves_predictions_as_they_were(rng):
    X, Y = words(rng, n=120)
    model = updatable().fit(X[:100], Y[:100])
    before = model.predict_proba(X)
    model.update(X[100:], Y[100:])
    assert np.abs(model.predict_proba(X) - before).max() > 1e-4
    np.testing.assert_allclose(model.forget(X[100:], Y[100:]).predict_proba(X), before, atol=1e-4)


def test_weights_count_rows(rng):
    X, Y = words(rng, n=120)
    model = updatable(calibrate=False).fit(X[:100], Y[:100])
    twice = pickle.loads(pickle.dumps(model))
    model.update(X[100:], Y[100:], sample_weight=np.full(20, 2.0))
    twice.update(X[100:], Y[100:]).update(X[100:], Y[100:])
    np.testing.assert_allclose(model.model_.V.columns(), twice.model_.V.columns(), atol=1e-6)
    model.forget(X[100:], Y[100:])  # with the weight that they had
    twice.forget(X[100:], Y[100:]).forget(X[100:], Y[100:])
    np.testing.assert_allclose(model.model_.V.columns(), twice.model_.V.columns(), atol=1e-6)


def test_classes_that_are_weighed_stay_so(rng):
    X, y = classes(rng, n=120)
    model = updatable(class_weight="balanced").fit(X[:100], y[:100])
    weights = model._living.class_weight.copy()
    model.update(X[100:], y[100:])
    expected = weights[y[100:]].sum() + weights[y[:100]].sum()
    np.testing.assert_allclose(model.model_.total, expected)


def test_the_rows_that_calibrate_are_not_in_the_embedding_and_come_and_go_with_their_contents(rng):
    X, Y = words(rng, n=200)
    model = updatable().fit(X[:150], Y[:150])
    held = model.summary_["held_out_rows"]
    assert 0 < held == len(model._living.calibration.w) < 75
    others = updatable().fit(X[:150][::-1], Y[:150][::-1])  # whatever the order of the rows
    assert others.summary_["held_out_rows"] == held
    model.update(X[150:], Y[150:])
    assert model.predict(X).any()  # which brings the model up to date
    assert model.summary_["held_out_rows"] > held
    model.forget(X[150:], Y[150:])
    assert model.predict(X).any()
    assert model.summary_["held_out_rows"] == held


def test_a_new_label_is_predicted_after_its_first_rows_and_others_change_as_without_it(rng):
    X, Y = words(rng, n=140)
    model = updatable(calibrate=False).fit(X[:100], Y[:100])
    other = pickle.loads(pickle.dumps(model))
    wide = np.column_stack([Y[100:], np.ones(40, np.int64)])
    model.update(X[100:], wide)
    other.update(X[100:], Y[100:])
    assert model.predict_proba(X).shape == (140, 7)
    assert model.predict_proba(X[100:])[:, 6].mean() > 1.2 * model.predict_proba(X[:100])[:, 6].mean()
    np.testing.assert_allclose(model.model_.V.columns()[:, :6], other.model_.V.columns(), atol=1e-6)
    assert model.summary_["living"]["labels_added"] == ["6"]


def test_labels_alone_leave_the_scores_of_others(rng):
    X, Y = words(rng)
    model = updatable().fit(X, Y)
    before = model.decision_function(X)
    model.add_labels(2)
    np.testing.assert_allclose(model.decision_function(X)[:, :6], before, rtol=1e-3, atol=1e-4)
    assert not model.predict(X)[:, 6:].any()


def test_class_ids_that_are_new_become_classes_behind_the_others(rng):
    X, y = classes(rng, n=120)
    names = np.array(["b", "c", "d"])[y]
    X[100:] += 6
    model = updatable().fit(X[:100], names[:100])
    model.update(X[100:], np.full(20, "a"))
    assert model.classes_.tolist() == ["b", "c", "d", "a"]
    assert (model.predict(X[100:]) == "a").mean() > 0.1
    assert model.evaluate(X[100:], np.full(20, "a"), bootstraps=0).n_unknown_labels == 0


def test_a_label_without_rows_is_never_predicted_and_its_name_and_column_are_gone(rng):
    X, Y = words(rng)
    Y[:, 0] = 0
    Y[:3, 0] = 1
    model = updatable().fit(X, Y)
    model.label_names_ = list("abcdef")
    model.forget(X[:3], Y[:3])
    assert model.label_names_ == ["(removed 0)", "b", "c", "d", "e", "f"]
    assert not model.predict_proba(X)[:, 0].max() > 0.05
    assert not model._living.sums.T[0].any()
    assert not model.model_.V.columns()[:, 0].any()
    assert not model.label_directions_[0].any()


def test_a_feature_without_rows_loses_its_weights(rng):
    X, Y = words(rng, d=30)
    X = sp.lil_array(X)
    X[:, 5] = 0
    X[4, 5] = 1
    X = sp.csr_array(X)
    model = updatable().fit(X, Y)
    assert model.model_.W.columns()[5].any()
    model.forget(X[[4]], Y[[4]])
    assert not model.model_.W.columns()[5].any()
    assert model.summary_["living"]["features_removed"] == [5]
    assert "embedding" in model.summary_["living"]["approximate"]


def test_training_rows_are_known_by_their_hashes_until_they_are_forgotten(rng):
    X, Y = words(rng, n=120)
    model = updatable().fit(X[:100], Y[:100])
    model.update(X[100:], Y[100:])
    assert model.evaluate(X[100:], Y[100:], bootstraps=0).n_training_rows == 20
    model.forget(X[100:], Y[100:])
    assert model.evaluate(X[100:], Y[100:], bootstraps=0).n_training_rows == 0


def test_few_rows_are_a_correction_of_v_where_a_solve_takes_long(rng, monkeypatch):
    X, Y = words(rng, n=120)
    exact = updatable().fit(X[:100], Y[:100]).update(X[100:], Y[100:])
    monkeypatch.setattr(living_state, "SLOW_SOLVE", 0.0)
    model = updatable().fit(X[:100], Y[:100])
    model.update(X[100:110], Y[100:110]).update(X[110:], Y[110:])
    assert type(model.model_.V).__name__ == "CorrectedWeights"
    np.testing.assert_allclose(model.model_.V.columns(), exact.model_.V.columns(), atol=1e-5)
    np.testing.assert_array_equal(model.model_.counts, exact.model_.counts)


# scikit-learn's manner


def test_partial_fit_is_there_where_rows_can_be_added():
    assert hasattr(SmoothLinkClassifier(updatable=True), "partial_fit")
    assert not hasattr(SmoothLinkClassifier(), "partial_fit")


def test_partial_fit_fits_first_and_updates_later_and_fit_begins_anew(rng):
    X, y = classes(rng, n=120)
    model = updatable().partial_fit(X[:60], y[:60], classes=[0, 1, 2, 7])
    assert model.classes_.tolist() == [0, 1, 2, 7]
    first = model.model_.V.columns()
    np.testing.assert_array_equal(model.partial_fit(X[60:], y[60:]).model_.counts, [*np.bincount(y, minlength=3), 0])
    assert model.fit(X[:60], y[:60]).classes_.tolist() == [0, 1, 2]
    np.testing.assert_allclose(model.model_.V.columns(), first[:, :3], atol=0.1)
    with pytest.raises(ValueError, match="at least 10 rows"):
        updatable().partial_fit(X[:9], y[:9])


# What is refused, and leaves the model as it was


@pytest.fixture
def fitted(rng):
    X, Y = words(rng, n=120)
    return updatable().fit(X[:100], Y[:100]), X, Y


def refused(model, X, call, message):
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match=message):
        call()
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert model.summary_["rows"] == 100


def test_a_row_that_was_never_there_cannot_be_forgotten(fitted):
    model, X, Y = fitted
    refused(model, X, lambda: model.forget(X[98:101], Y[98:101]), "1 row of 3, the first of them row 2")
    refused(model, X, lambda: model.forget(X[[5, 5]], Y[[5, 5]]), "no such row")
    refused(model, X, lambda: model.forget(X[[5]], 1 - Y[[5]]), "no such row")


def test_all_rows_cannot_be_forgotten(fitted):
    model, X, Y = fitted
    refused(model, X, lambda: model.forget(X[:100], Y[:100]), "nothing would be left")


def test_other_columns_weights_below_zero_and_labels_of_another_task_are_refused(fitted):
    model, X, Y = fitted
    refused(model, X, lambda: model.update(X[:2, 1:], Y[:2]), "features")
    refused(model, X, lambda: model.update(X[:2], Y[:2], sample_weight=[1, -1]), "[Nn]egative")
    refused(model, X, lambda: model.update(X[:2], Y[:2, 1:]), "5 columns, and the model 6 labels")
    refused(model, X, lambda: model.update(X[:2], [0, 1]), "0/1 matrix")
    refused(model, X, lambda: model.update(X[:2], Y[:3]), "2 rows and y has 3")
    refused(model, X, lambda: model.forget(X[:1], np.ones((1, 9))), "No row of the model has the label")
    refused(model, X, lambda: model.add_labels(["x"]), "numbers, not names")


def test_classes_of_another_kind_are_refused(rng):
    X, y = classes(rng)
    model = updatable().fit(X, y)
    for labels, message in (
        (["a", "b"], "those of the model are int64"),
        (np.eye(3)[:2], "one class id per row"),
    ):
        with pytest.raises(ValueError, match=message):
            model.update(X[:2], labels)
    single = updatable().fit(X, np.eye(3)[y])
    with pytest.raises(ValueError, match="exactly one"):
        single.update(X[:2], np.ones((2, 3)))
    with pytest.raises(ValueError, match="already"):
        model.add_labels([2])


def test_a_model_without_sums_says_how_to_get_them(rng):
    X, Y = words(rng)
    with pytest.raises(DataError, match="updatable=True"):
        fixed().fit(X, Y).update(X[:1], Y[:1])
    logistic = fixed(loss="logistic", updatable=True).fit(X, Y)
    assert logistic.summary_["updates"] == "by training steps"
    with pytest.raises(DataError, match="squared"):
        logistic.forget(X[:1], Y[:1])


def test_memory_and_clusters_are_refused_before_the_fit(rng):
    X, Y = words(rng)
    with pytest.raises(ValueError, match="updatable=True cannot use"):
        updatable(memory="1G").fit(X, Y)


def test_the_sums_are_part_of_a_saved_model(rng, tmp_path):
    X, Y = words(rng, n=120)
    model = updatable().fit(X[:100], Y[:100])
    model.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors").update(X[100:], Y[100:])
    np.testing.assert_allclose(loaded.predict_proba(X), model.update(X[100:], Y[100:]).predict_proba(X), atol=1e-6)


def test_updates_are_solved_for_when_somebody_predicts(rng):
    X, Y = words(rng, n=120)
    model = updatable().fit(X[:100], Y[:100])
    before = model._model.V
    model.update(X[100:110], Y[100:110]).forget(X[:5], Y[:5]).update(X[110:], Y[110:])
    assert model._model.V is before
    model.predict(X)
    assert model._model.V is not before
