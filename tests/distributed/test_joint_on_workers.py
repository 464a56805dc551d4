"""Joint training on workers: what one process trains, the same each time, through deaths and checkpoints."""

import numpy as np
import pytest

import smoothlink
from smoothlink import Joint, SmoothLinkClassifier
from smoothlink.distributed.client import connect
from smoothlink.synth import Shape, synthesise

PARAMETERS = {"training": Joint(30, batch_rows=64), "rank": 24, "calibrate": False}


@pytest.fixture(scope="module")
def data():
    made = synthesise(Shape(300, 80, 12, 2, seed=3), 4000)
    return made.X, made.Y


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
    return fit(X[:3000], Y[:3000], workers.client)


def test_workers_predict_other_rows_as_well_as_one_process_does(data, on_workers):
    X, Y = data
    here, there = (precision(model, X[3000:], Y[3000:]) for model in (fit(X[:3000], Y[:3000]), on_workers))
    most = np.bincount(Y.indices).max() / Y.shape[0]
    assert here > 2 * most
    assert there == pytest.approx(here, abs=0.03)
    assert on_workers.summary_["bytes_moved"]["fit"] > 0


def test_a_fit_on_as_many_workers_repeats_exactly(workers, data, on_workers):
    X, Y = data
    again = fit(X[:3000], Y[:3000], workers.client)
    np.testing.assert_array_equal(again.decision_function(X[3000:]), on_workers.decision_function(X[3000:]))


@pytest.mark.parametrize("change", [{}, {"training": Joint(30, batch_rows=64, sparse_weights=False)}], ids=str)
def test_one_worker_trains_exactly_what_one_process_trains(data, change):
    X, Y = data[0][:1000], data[1][:1000]
    with connect("local:1") as found:
        there = fit(X, Y, found.client, **change)
    np.testing.assert_array_equal(there.decision_function(X), fit(X, Y, **change).decision_function(X))
    assert (there.model_.sparse_weights is None) == bool(change)
