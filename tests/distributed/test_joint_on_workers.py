"""Joint training on workers: what one process trains, the same each time, through deaths and checkpoints."""

import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest

import smoothlink
from smoothlink import Joint, SmoothLinkClassifier
from smoothlink.distributed.client import connect
from smoothlink.distributed.joint_on_workers import SampledState, WorkerStep, add_changes, apply_changes, changes_of
from smoothlink.synth import Shape, synthesise

PARAMETERS = {"training": Joint(30, batch_rows=64), "rank": 24, "calibrate": False}


@pytest.fixture(scope="module")
def data():
    made = synthesise(Shape(300, 80, 12, 2, seed=3), 2500)
    return made.X, made.Y


def assert_alike(found, expected):
    """Scores are the same up to rounding, which many steps of SGD make larger."""
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.9995
    assert np.abs(found - expected).mean() < 0.03


def fit(X, Y, client=None, **changes):
    model = SmoothLinkClassifier(**PARAMETERS | changes)
    if client is None:
        return model.fit(X, Y)
    with smoothlink.cluster(client):
        return model.fit(X, Y)


def precision(model, X, Y):
    return np.asarray(Y[np.arange(X.shape[0]), model.predict_topk(X, 1).indices]).mean()


@pytest.fixture(scope="module")
def on_workers(workers, data):
    X, Y = data
    return fit(X[:1500], Y[:1500], workers.client)


def test_workers_predict_other_rows_as_well_as_one_process_does(data, on_workers):
    X, Y = data
    here, there = (precision(model, X[1500:], Y[1500:]) for model in (fit(X[:1500], Y[:1500]), on_workers))
    most = np.bincount(Y.indices).max() / Y.shape[0]
    assert here > 2 * most
    assert there == pytest.approx(here, abs=0.03)
    assert on_workers.summary_["bytes_moved"]["fit"] > 0


def test_a_fit_on_as_many_workers_repeats_up_to_rounding(workers, data, on_workers):
    X, Y = data
    again = fit(X[:1500], Y[:1500], workers.client)
    assert_alike(again.decision_function(X[1500:]), on_workers.decision_function(X[1500:]))


@pytest.mark.parametrize("change", [{}, {"training": Joint(30, batch_rows=64, sparse_weights=False)}], ids=str)
def test_one_worker_trains_what_one_process_trains(data, change):
    X, Y = data[0][:1000], data[1][:1000]
    with connect("local:1") as found:
        there = fit(X, Y, found.client, **change)
    assert_alike(there.decision_function(X), fit(X, Y, **change).decision_function(X))
    assert (there.model_.sparse_weights is None) == bool(change)


def test_classes_are_trained_on_workers_too(workers):
    made = synthesise(Shape(300, 40, 12, multiclass=True, seed=1), 2000)
    X, y = made.X, made.Y.indices
    with smoothlink.cluster(workers.client):
        there = SmoothLinkClassifier(**PARAMETERS).fit(X[:1500], y[:1500])
    here = SmoothLinkClassifier(**PARAMETERS).fit(X[:1500], y[:1500])
    assert there.summary_["loss"] == "softmax"
    assert there.score(X[1500:], y[1500:]) == pytest.approx(here.score(X[1500:], y[1500:]), abs=0.04)


def test_a_worker_whose_rows_have_no_features_takes_no_steps(workers, data):
    X, Y = data[0][:1500].copy(), data[1][:1500]
    X.data[X.indptr[1000] :] = 0
    there = fit(X, Y, workers.client)
    assert precision(there, X[:1000], Y[:1000]) == pytest.approx(precision(fit(X, Y), X[:1000], Y[:1000]), abs=0.05)


def worker_step(W, squares):
    """The step of a worker that has W (d, k) alone."""
    none, no_squares = np.zeros((0, 1), np.float32), np.zeros(0, np.float32)
    state = SampledState(W, none, no_squares, squares, no_squares, no_squares, none, no_squares, none)
    return WorkerStep(SimpleNamespace(state=state))


def test_changes_of_one_worker_stay_and_those_of_all_take_the_rate_of_all_squares():
    before = worker_step(np.zeros((3, 2), np.float32), np.float32([0, 1, 2]))
    one = worker_step(np.float32([[4, 4], [2, 2], [0, 0]]), np.float32([9, 4, 2]))
    other = worker_step(np.float32([[8, 8], [0, 0], [0, 0]]), np.float32([16, 1, 2]))
    changes = [changes_of(before, after) for after in (one, other)]
    np.testing.assert_array_equal(changes[0][0].places, [0, 1])
    np.testing.assert_array_equal(changes[1][0].places, [0])
    total, same = add_changes(*changes), add_changes(*changes[::-1])
    for array, other in zip(total, same, strict=True):
        for a, b in zip(array, other, strict=True):
            np.testing.assert_array_equal(a, b)
    for parts in (changes, [total]):
        state = apply_changes(before, *parts).step.state
        np.testing.assert_allclose(state.W, [[(4 * 3 + 8 * 4) / 5] * 2, [2, 2], [0, 0]], rtol=1e-6)
        np.testing.assert_allclose(state.w_squares, [25, 4, 2])
    assert not before.step.state.W.any()


def test_a_worker_that_dies_while_it_trains_does_not_change_the_model(data):
    X, Y = data[0][:1000], data[1][:1000]
    with connect("local:2") as found:
        expected = fit(X, Y, found.client).decision_function(X)
        pids = list(found.client.run(os.getpid).values())

        def kill(step, share, words):
            if step == "fit" and share >= 0.5 and pids:
                os.kill(pids.pop(), signal.SIGKILL)
                pids.clear()

        model = SmoothLinkClassifier(**PARAMETERS)
        model._notify = kill
        with smoothlink.cluster(found.client):
            model.fit(X, Y)
    assert not pids
    assert_alike(model.decision_function(X), expected)


@pytest.mark.parametrize("count", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_fit_that_was_killed_goes_on_from_its_checkpoint(workers, data, tmp_path, count):
    X, Y = data[0][:1000], data[1][:1000]

    def stop(step, share, words):
        if step == "fit" and share > 0.6:
            raise KeyboardInterrupt

    expected = fit(X, Y, workers.client)
    model = SmoothLinkClassifier(**PARAMETERS, checkpoint=tmp_path / "state")
    model._notify = stop
    with smoothlink.cluster(workers.client), pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert list((tmp_path / "state").glob("*joint*"))
    if count == 3:
        again = fit(X, Y, workers.client, checkpoint=tmp_path / "state")
        assert_alike(again.decision_function(X), expected.decision_function(X))
    else:
        with connect("local:1") as found:
            again = fit(X, Y, found.client, checkpoint=tmp_path / "state")
        assert precision(again, X, Y) == pytest.approx(precision(expected, X, Y), abs=0.05)


def test_what_joint_training_on_workers_cannot_use_is_refused(workers, data, rng, tmp_path):
    X, Y = data[0][:200], data[1][:200]
    with smoothlink.cluster(workers.client), pytest.raises(ValueError, match="X is dense, and training"):
        SmoothLinkClassifier(**PARAMETERS).fit(rng.standard_normal((200, 9)), Y)
    with (
        smoothlink.cluster(workers.client, shards=tmp_path / "m.safetensors"),
        pytest.raises(ValueError, match="shards are written by stepwise fits; training is 'joint'"),
    ):
        SmoothLinkClassifier(**PARAMETERS).fit(X, Y)
    weights = np.arange(1, 81)
    with smoothlink.cluster(workers.client), pytest.raises(ValueError, match="class_weight is given for multilabel y"):
        SmoothLinkClassifier(**PARAMETERS, class_weight=weights).fit(X, Y)
