"""Sampled negatives on a device take the steps of the host, from the same batches and the same sampled labels."""

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("torch", reason="torch is not installed")

import torch
from cards import pretend

from smoothlink.joint import clusters
from smoothlink.joint import negatives as host
from smoothlink.joint import negatives_on_device as device
from smoothlink.joint.batches import RowBatches
from smoothlink.joint.joint_training import JointRows, sparse_pattern, train
from smoothlink.joint.negatives import SampledState
from smoothlink.machines.host_and_device import find_machine
from smoothlink.steps.squared import prior_scores

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("as_on_a_card")]

N, D, C, K = 300, 50, 70, 8
NEAR = {"rtol": 1e-4, "atol": 1e-4}


class Problem:
    """Rows, their groups and a start, from which steps on any machine may be made."""

    def __init__(self, rng, *, multiclass=False, sparse=True, negatives=12, batch=40):
        X = sp.csr_array(np.where(rng.random((N, D)) < 0.1, rng.random((N, D)), 0).astype(np.float32))
        Y = np.eye(C)[rng.integers(0, C, N)] if multiclass else rng.random((N, C)) < 0.04
        X.indices, Y = X.indices.astype(np.int32), sp.csr_array(Y.astype(np.float32))
        w = rng.uniform(0.5, 2, N).astype(np.float32)
        with_intercept = sp.csr_array(sp.hstack([X, np.ones((N, 1), np.float32)], format="csr"))
        live = np.flatnonzero(np.diff(X.indptr))
        self.pattern = sparse_pattern(with_intercept, Y, live, 1.0 if sparse else None)
        self.rows, self.negatives = JointRows(X, Y, w, multiclass), negatives
        self.batches = RowBatches.of_groups(np.array_split(rng.permutation(live), 25), batch, seed=3)
        intercepts = prior_scores(w @ Y, float(w.sum()), softmax=multiclass)
        start = SampledState.begin(
            rng.standard_normal((D, K), dtype=np.float32), intercepts, self.pattern, self.batches.groups
        )
        start.V[:] = 0.3 * rng.standard_normal((C, K))
        start.D[:] = 0.3 * rng.standard_normal(self.pattern.nnz)
        self.start = vars(start)

    def step(self, machine=None, start=None):
        """A step of the host, with exact gradients, or of a device."""
        state = SampledState(**{name: np.array(A) for name, A in (start or self.start).items()})
        given = self.rows, self.pattern, self.batches, state, self.negatives
        return (
            host.SampledStep(*given, small_gradient=0) if machine is None else device.DeviceSampledStep(*given, machine)
        )

    def run(self, step, passes=3, stop=None, before=0):
        for done in train(step, self.batches, passes, 1.0, 1, lambda share: None, before):
            if done == 1:
                step.find_hard_negatives()
            if done == stop:
                break
        return vars(step.state)


def same(one, two, **near):
    assert list(one) == list(two)
    for name, A in one.items():
        assert A.dtype == two[name].dtype
        np.testing.assert_allclose(A, two[name], err_msg=name, **(near or NEAR))


CASES = [{}, {"multiclass": True}, {"sparse": False}, {"negatives": C}, {"batch": 500}, {"negatives": 0}]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_step_moves_every_weight_as_on_the_host(rng, case):
    p = Problem(rng, **case)
    steps = p.step(), p.step(find_machine("torch"))
    for step in steps:
        step(next(p.batches.in_pass(0)), 0.7)
    same(vars(steps[0].state), vars(steps[1].state))
    assert np.abs(steps[0].state.W - p.start["W"]).max() > 0.01


@pytest.mark.parametrize("case", CASES, ids=str)
def test_passes_with_hard_negatives_fit_the_same_weights_as_on_the_host(rng, case):
    p = Problem(rng, **case)
    steps = p.step(), p.step(find_machine("torch"))
    states = [p.run(step) for step in steps]
    hard = [np.sort(state.pop("hard"), axis=1) for state in states]
    np.testing.assert_array_equal(*hard)
    same(*states)
    (W, *_, V, D, normalize), found = steps[0].weights(), steps[1].weights()
    assert found.normalize == normalize
    np.testing.assert_allclose(found.W, W, **NEAR)
    np.testing.assert_allclose(found.V, V, **NEAR)
    assert (D is None) == (found.D is None)
    for ours, theirs in zip((D or ())[:3], (found.D or ())[:3], strict=True):
        np.testing.assert_allclose(ours, theirs, **NEAR)


@pytest.mark.parametrize("cost", [0, 1e9])
def test_sparse_weights_move_alike_whether_all_or_those_that_are_used_are_read(rng, monkeypatch, cost):
    p = Problem(rng)
    known = p.run(p.step())
    monkeypatch.setattr(device, "SPARSE_STEP_COST", cost)
    monkeypatch.setattr(device, "LARGEST_INT", 1 - cost)
    found = p.run(p.step(find_machine("torch")))
    np.testing.assert_allclose(found["D"], known["D"], **NEAR)
    np.testing.assert_allclose(found["d_squares"], known["d_squares"], **NEAR)


@pytest.mark.parametrize("begins", ["host", "device"])
def test_training_goes_on_on_another_machine(rng, begins):
    p, machines = Problem(rng), (None, find_machine("torch"))
    machines = machines if begins == "host" else machines[::-1]
    known = p.run(p.step())
    middle = p.run(p.step(machines[0]), stop=1)
    found = p.run(p.step(machines[1], middle), before=1)
    known.pop("hard"), found.pop("hard")
    same(known, found)


def test_a_gpu_takes_the_same_steps_but_for_rounding(rng, monkeypatch):
    p = Problem(rng)
    known = p.run(p.step(find_machine("torch")))
    gpu = pretend(monkeypatch)
    monkeypatch.setattr(device.DeviceSampledStep, "product", lambda self, A, B: A @ B)
    found = p.run(p.step(gpu))
    same(known, found)
    monkeypatch.setattr(type(gpu), "scores", lambda self: 1)  # hard negatives of one group at a time
    same(found, p.run(p.step(gpu)))


def test_distinct_values_come_first_and_say_where_they_start(rng):
    values = rng.integers(0, 12, 40)
    found = device.distinct(torch.tensor(values), torch.arange(40))
    known, starts = np.unique(np.sort(values), return_index=True)
    there = found.starts.numpy() < 40
    np.testing.assert_array_equal(np.flatnonzero(there), np.arange(len(known)))
    np.testing.assert_array_equal(found.values.numpy()[there], known)
    np.testing.assert_array_equal(found.starts.numpy()[there], starts)
    np.testing.assert_array_equal(known[found.number.numpy()], np.sort(values))
    np.testing.assert_array_equal(values[found.order.numpy()], found.ordered.numpy())
    assert set(found.values.tolist()) == set(known.tolist())


@pytest.mark.parametrize("n", [1, 30, 34, 35, 137, 1000])
def test_clusters_have_the_sizes_of_the_host_and_rows_that_point_the_same_way(rng, n):
    H = rng.standard_normal((n + 50, 5)).astype(np.float32)
    rows = np.sort(rng.permutation(n + 50)[:n])
    ours = device.cluster_rows(torch.tensor(H), rows, 34, 0)
    theirs = clusters.cluster_rows(H, rows, 34, 0)
    assert sorted(map(len, ours)) == sorted(map(len, theirs))
    np.testing.assert_array_equal(np.sort(np.concatenate(ours)), rows)
    assert all((np.diff(part) > 0).all() for part in ours)
    Z = H / np.linalg.norm(H, axis=1, keepdims=True)
    length = [np.mean([np.linalg.norm(Z[part].mean(axis=0)) for part in parts]) for parts in (ours, theirs)]
    assert length[0] == pytest.approx(length[1], rel=0.05)


def test_weights_start_at_the_embedding_and_at_noise_of_its_size(rng):
    first, H = (torch.tensor(rng.standard_normal(shape)).float() for shape in ((500, 6), (300, 6)))
    W = device.start_weights(first, H, 24, np.random.default_rng(0))
    known = host.start_weights(first.numpy(), H.numpy(), 24, np.random.default_rng(0))
    np.testing.assert_allclose(W[:, :6].numpy(), known[:, :6], rtol=1e-4)
    assert float(W[:, 6:].std()) == pytest.approx(known[:, 6:].std(), rel=0.05)
    again = device.start_weights(first, H, 24, np.random.default_rng(0))
    assert bool((again == W).all())
