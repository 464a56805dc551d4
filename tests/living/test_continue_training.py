"""Training that goes on: new labels are learnt, old ones stay, and what is taken is what loses less."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink import Joint, Logistic, SmoothLinkClassifier, Softmax
from smoothlink.errors import ModelFileError
from smoothlink.joint.joint_training import JointWeights
from smoothlink.joint.negatives import SampledState, sparse_places
from smoothlink.living.continue_training import (
    continue_training,
    embedded,
    replay_store,
    sampled_step,
    without_themselves,
)
from smoothlink.living.replay import Replay, Training, inclusion
from smoothlink.machines.rows import Rows
from smoothlink.safetensors_file import load, save
from smoothlink.steps.sgd import SGD, sgd_passes
from smoothlink.steps.squared import link_sums, squared

KNOWN, WORDS = 12, 4  # labels, and words of each
LEARNERS = ("joint", "logistic", "softmax")
POINTS_LOST = 0.05  # of P@1 that known labels may lose
PARAMETERS = {
    "joint": {"training": Joint(negatives=5, passes=4)},
    "logistic": {"loss": Logistic(passes=8)},
    "softmax": {"loss": Softmax(passes=8)},
}
GIVEN = {"rank": 10, "ridge": 0.1, "scale": "unit", "effort": "quick", "random_state": 0}


def made_rows(n, labels, *, several, seed):
    """Rows that have words of their labels, one of `labels` first, and words of no label. The new label has no words of
    its own, but those of the labels 0 and 1 together."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n, KNOWN + 1), np.float32)
    Y[np.arange(n), rng.choice(labels, n)] = 1
    if several:
        Y[np.arange(n), rng.choice(KNOWN, n)] = 1
    topics = Y[:, :KNOWN].copy()
    topics[:, :2] = np.maximum(topics[:, :2], Y[:, KNOWN:])
    own = np.repeat(topics, WORDS, axis=1) * (rng.random((n, KNOWN * WORDS)) < 0.7)
    noise = rng.random((n, 20)) < 0.15
    return sp.csr_array(np.hstack([own, noise]).astype(np.float32)), sp.csr_array(Y)


@cache
def fitted(learner):
    """A model of the known labels, its store, and new rows, of which a third has the new label."""
    several = learner != "softmax"
    X, Y = made_rows(500, np.arange(KNOWN), several=several, seed=0)
    Y = sp.csr_array(Y[:, :KNOWN])
    estimator = SmoothLinkClassifier(
        **GIVEN, **PARAMETERS[learner], task="multilabel" if several else "multiclass"
    ).fit(X, Y if several else Y.indices)
    training = Training.of(estimator._request(), estimator.summary_)
    replay = replay_store(X, Y, None, estimator.model_, 0, training=training)
    new = made_rows(300, [*range(KNOWN), *[KNOWN] * (KNOWN // 2)], several=several, seed=1)
    return estimator.model_, replay, new


@cache
def continued(learner, methods=None):
    model, replay, (X, Y) = fitted(learner)
    return continue_training(model, replay, X, Y, seed=0, methods=methods)


def best_labels(model, X, k=1):
    return np.concatenate([best.ids for best in model.best_in_blocks(model.embed_rows(X), k)])


def raw_scores(model, X):
    """V'phi + D'x, before any map."""
    plain = replace(model, calibration=model.calibration._replace(labels=None))
    return plain.scores(plain.embed_rows(X))


def test_the_learner_of_the_fit_goes_on():
    assert [fitted(learner)[1].training.learner for learner in LEARNERS] == ["joint", "stepwise", "stepwise"]


@pytest.mark.parametrize("method", ["ridge", "sgd"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_new_label_is_predicted_after_its_rows(learner, method):
    X, _ = made_rows(200, [KNOWN], several=False, seed=2)
    found = continued(learner, (method,))
    assert found.method == method
    assert set(found.compared) == {method}
    assert (best_labels(found.model, X, 3) == KNOWN).any(axis=1).mean() > 0.9


@pytest.mark.parametrize("learner", LEARNERS)
def test_known_labels_lose_at_most_five_points_of_precision(learner):
    X, Y = made_rows(1000, np.arange(KNOWN), several=learner != "softmax", seed=3)
    before, after = (
        np.asarray(Y[np.arange(1000), best_labels(model, X)[:, 0]] > 0).mean()
        for model in (fitted(learner)[0], continued(learner).model)
    )
    assert before > 0.8
    assert after > before - POINTS_LOST


@pytest.mark.parametrize("learner", LEARNERS)
def test_what_loses_less_on_held_out_rows_is_taken_and_both_are_stated(learner):
    found = continued(learner)
    assert set(found.compared) == {"ridge", "sgd"}
    assert found.method == min(found.compared, key=lambda name: found.compared[name]["criterion"])
    assert all(np.isfinite(of["criterion"]) and 0 < of["p@1"] <= 1 for of in found.compared.values())
    np.testing.assert_array_equal(
        raw_scores(found.model, fitted(learner)[2][0]),
        raw_scores(continued(learner, (found.method,)).model, fitted(learner)[2][0]),
    )


@pytest.mark.parametrize("learner", LEARNERS)
def test_the_same_seed_gives_the_same_model(learner):
    model, replay, (X, Y) = fitted(learner)
    again = continue_training(model, replay, X, Y, seed=0)
    np.testing.assert_array_equal(np.asarray(again.model.V), np.asarray(continued(learner).model.V))
    np.testing.assert_array_equal(again.replay.u, continued(learner).replay.u)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_ridge_decoder_leaves_the_scores_of_other_labels_unchanged(learner):
    model, _, (X, _) = fitted(learner)
    after = raw_scores(continued(learner, ("ridge",)).model, X)
    assert after.shape[1] == KNOWN + 1
    np.testing.assert_array_equal(after[:, :KNOWN], raw_scores(model, X))


@pytest.mark.parametrize("learner", LEARNERS)
def test_counts_are_those_of_all_rows(learner):
    model, _, (_, Y) = fitted(learner)
    after = continued(learner).model
    np.testing.assert_allclose(after.counts, np.append(model.counts, 0) + Y.sum(axis=0))
    assert after.total == model.total + Y.shape[0]
    assert len(after.thresholds) == after.n_labels == KNOWN + 1


def test_training_goes_on_again_from_what_a_file_holds(tmp_path):
    _, _, (X, Y) = fitted("joint")
    first = continued("joint")
    arrays, meta = first.replay.to_arrays()
    save(tmp_path / "replay.safetensors", arrays, meta)
    loaded = load(tmp_path / "replay.safetensors")
    read = Replay.from_arrays(loaded.arrays, loaded.meta)
    assert read.training == first.replay.training
    one, other = (continue_training(first.model, store, X[:50], Y[:50], seed=1) for store in (first.replay, read))
    np.testing.assert_array_equal(np.asarray(one.model.V), np.asarray(other.model.V))
    np.testing.assert_array_equal(one.replay.optimiser["d_squares"], other.replay.optimiser["d_squares"])


@pytest.mark.parametrize("learner", LEARNERS)
def test_eight_rows_of_a_new_label_are_enough_to_find_it_without_any_held_out(learner):
    model, replay, _ = fitted(learner)
    X, Y = made_rows(100, [KNOWN], several=False, seed=4)
    found = continue_training(model, replay, X[:8], Y[:8])
    assert (found.method, found.compared) == ("sgd" if learner == "joint" else "ridge", {})
    assert found.replay.Y[:, KNOWN:].nnz == 8
    assert (best_labels(found.model, X[8:], 3) == KNOWN).any(axis=1).mean() > 0.5


def test_rows_without_new_labels_are_learnt():
    model, replay, _ = fitted("joint")
    X, Y = made_rows(30, np.arange(KNOWN), several=True, seed=5)
    found = continue_training(model, replay, X, Y[:, :KNOWN])
    assert found.method == "sgd"
    assert found.model.n_labels == KNOWN
    assert np.abs(raw_scores(found.model, X) - raw_scores(model, X)).max() > 0


def test_held_out_rows_are_never_trained_on_and_calibrate_next_time():
    found = continued("logistic").replay
    assert 0.1 * 300 < found.held.sum() < 0.3 * 300
    again = continue_training(continued("logistic").model, found, *fitted("logistic")[2]).replay
    assert set(found.u[found.held]) <= set(again.u[again.held])


# The store


def test_a_forgotten_row_is_in_no_array_of_the_store():
    _, replay, _ = fitted("joint")
    X, Y = made_rows(500, np.arange(KNOWN), several=True, seed=0)
    after, gone = replay.forget(X[:100], Y[:100, :KNOWN])
    assert gone == 100
    assert len(after) == 400
    np.testing.assert_array_equal(after.Y.toarray(), Y[100:, :KNOWN].toarray())
    assert replay.forget(X[:5], Y[5:10, :KNOWN])[1] == 0  # other labels: rows that were never there


def test_a_small_store_has_rows_of_every_label_and_stands_for_all_rows():
    rng = np.random.default_rng(0)
    p = 1 / np.arange(1, 101)
    Y = sp.csr_array((rng.random((20_000, 100)) < 0.1 * p).astype(np.float32))
    u = rng.random(20_000)
    share = inclusion(u, Y, 1000)
    kept = u < share
    assert 900 < kept.sum() <= 1000
    assert (np.asarray(Y[kept].sum(axis=0)) >= np.minimum(5, Y.sum(axis=0))).all()
    counts = (1 / share[kept]) @ Y[kept]
    np.testing.assert_allclose(counts[:4], Y.sum(axis=0)[:4], rtol=0.25)
    np.testing.assert_allclose((1 / share[kept]).sum(), 20_000, rtol=0.1)


def test_a_store_of_a_store_has_at_most_so_many_rows():
    _, replay, _ = fitted("logistic")
    small = replay.thinned(100)
    assert len(small) <= 100
    assert len(small.thinned(50)) <= 50
    assert (small.thinned(50).share <= small.share.max()).all()
    np.testing.assert_allclose((1 / small.share).sum(), 500, rtol=0.3)


def test_a_damaged_store_is_an_error_that_says_what_to_do():
    arrays, meta = fitted("joint")[1].to_arrays()
    ends = arrays["Y_indptr"].copy()
    ends[-1] = 0  # which SciPy's check passes over
    for broken in (
        {k: v for k, v in arrays.items() if k != "X_data"},
        {**arrays, "w": arrays["w"][:-1]},
        {**arrays, "w": -arrays["w"]},
        {**arrays, "held": arrays["held"].astype(np.int64)},
        {**arrays, "share": 0 * arrays["share"]},
        {**arrays, "Y_indptr": ends, "Y_indices": arrays["Y_indices"][:0]},
        {**arrays, "X_indices": arrays["X_indices"].astype(np.float32)},
        {**arrays, "optimiser_w_squares": arrays["optimiser_w_squares"][:-1]},
    ):
        with pytest.raises(ModelFileError, match="Train the model again"):
            Replay.from_arrays(broken, meta)


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"learner": "other"},
            {"learner": []},
            {"momentum": 1.0},
            {"decay": "x"},
            {"decay": 1e300},
            {"final_ridge": None},
        ),
        *({"batch_rows": 0}, {"negatives": 2**31}, {"passes": 0.5}, {"aim": "x"}, {"aim": 1}, {"rate": -1.0}, {"x": 1}),
    ],
)
def test_settings_of_a_training_that_are_not_possible_are_refused(change):
    arrays, meta = fitted("joint")[1].to_arrays()
    replay = meta["replay"]
    with pytest.raises(ModelFileError, match="Train the model again"):
        Replay.from_arrays(arrays, {"replay": replay | {"training": replay["training"] | change}})


# The parts


def test_the_state_of_a_models_weights_gives_these_weights():
    model, replay, _ = fitted("joint")
    step, _ = sampled_step(model, replay, 0, replay.optimiser)
    weights = step.weights()
    np.testing.assert_allclose(weights.V, np.asarray(model.V), rtol=1e-6)
    np.testing.assert_array_equal(weights.W, np.asarray(model.W))
    np.testing.assert_array_equal(weights.D.values, model.sparse_weights.values)
    np.testing.assert_array_equal(weights.D.labels, model.sparse_weights.labels)


def test_sparse_weights_are_found_among_those_of_a_larger_pattern():
    model, _, _ = fitted("joint")
    D, shape = model.sparse_weights, (model.W.shape[0], KNOWN)
    pattern = sp.csr_array(np.ones(shape, np.int8))
    weights = JointWeights(np.asarray(model.W), model.features, np.asarray(model.V), D, True)
    state = SampledState.of_weights(weights, pattern, 1)
    whole = sp.csr_array((D.values, D.labels, D.indptr), shape).toarray()
    np.testing.assert_array_equal(state.D.reshape(KNOWN, -1).T, whole)
    assert len(np.unique(sparse_places(D, pattern))) == D.size


@pytest.mark.parametrize("rotated", [False, True])
def test_sgd_begins_at_the_weights_given(rotated):
    model, replay, _ = fitted("logistic")
    rows, V = Rows.of(embedded(model, replay), replay.Y), np.asarray(model.V)
    options = {"softmax": False, "sgd": SGD(learning_rate=1e-9), "rotated": rotated, "begin": V}
    found = next(sgd_passes(rows, model.features, link_sums(rows, model.features), 1e-4, **options))
    np.testing.assert_allclose(found, V, atol=1e-3 * np.abs(V).max())


def test_scores_without_themselves_are_those_of_a_fit_without_the_row():
    model, replay, _ = fitted("logistic")
    H, Y = embedded(model, replay)[:80], replay.Y[:80]
    rows = Rows.of(H, Y)
    sums = link_sums(rows, model.features)
    G = sums.gram.G.copy()
    V = squared(sums, 0.1)
    rho = 0.1 * np.trace(G[:-1, :-1]) / (len(G) - 1)
    Phi, T = model.features(H).astype(np.float64), Y.toarray()
    sums = link_sums(rows, model.features)
    found = without_themselves(sums, 0.1, V, Phi.astype(np.float32), Y, np.ones(80))
    penalty = np.diag(np.append(np.full(len(G) - 1, rho), 0))
    for i in (0, 17, 50):
        others = np.arange(80) != i
        expected = Phi[i] @ np.linalg.solve(Phi[others].T @ Phi[others] + penalty, Phi[others].T @ T[others])
        np.testing.assert_allclose(found[i], expected, atol=2e-3)


# Bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, Y, w: (X[:, :-1], Y, w), "columns, and the model was trained with"),
        (lambda X, Y, w: (X[:-1], Y, w), "must be as many"),
        (lambda X, Y, w: (X[:0], Y[:0], w[:0]), "pass at least one"),
        (lambda X, Y, w: (X, Y[:, : KNOWN - 1], w), "pass these, then the new ones"),
        (lambda X, Y, w: (X, Y, w - 1.5), "not below zero"),
        (lambda X, Y, w: (X, Y, 0 * w), "not all zero"),
        (lambda X, Y, w: (X, Y, w * np.nan), "finite"),
    ],
)
def test_rows_that_do_not_fit_the_model_are_an_error(change, message):
    model, replay, (X, Y) = fitted("logistic")
    with pytest.raises(ValueError, match=message):
        continue_training(model, replay, *change(X, Y, np.ones(X.shape[0])))


def test_a_store_of_another_model_is_an_error():
    model, replay, (X, Y) = fitted("joint")
    other = replace(replay, optimiser=replay.optimiser | {"d_squares": replay.optimiser["d_squares"][1:]})
    with pytest.raises(ValueError, match="of another model"):
        continue_training(model, other, X, Y)


def test_rows_of_several_labels_are_an_error_for_a_model_of_one():
    model, replay, (X, _) = fitted("softmax")
    with pytest.raises(ValueError, match="one label per row"):
        continue_training(model, replay, X, fitted("logistic")[2][1])


def test_other_methods_and_other_losses_are_an_error():
    model, replay, (X, Y) = fitted("logistic")
    with pytest.raises(ValueError, match="possible are"):
        continue_training(model, replay, X, Y, methods=("adam",))
    sparse = replace(model, sparse_weights=fitted("joint")[0].sparse_weights)  # of which SGD would not know
    with pytest.raises(ValueError, match="possible are 'ridge'"):
        continue_training(sparse, replay, X, Y, methods=("sgd",))
    with pytest.raises(ValueError, match="updates are exact"):
        continue_training(replace(model, loss="squared"), replay, X, Y)
