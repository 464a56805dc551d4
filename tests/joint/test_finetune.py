"""A step of fine-tuning: its gradients are those of the loss, and its weights move against them."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("torch", reason="torch is not installed")

import torch
from cards import pretend

from smoothlink.joint.batches import RowBatch
from smoothlink.joint.finetune import FineTuneStep, LearningRates, rescale
from smoothlink.joint.joint_training import JointRows, JointWeights, row_weights, sparse_pattern
from smoothlink.machines.host_and_device import find_machine
from smoothlink.steps.featurize import Features

pytestmark = pytest.mark.torch

N, D, K, S, C = 30, 12, 4, 9, 6
STILL = LearningRates(0, 0, 0, 0, 0)
SMALL = LearningRates(W=1e-3, R=2e-3, V=1e-3, D=1e-2, intercept=1e-3)
DROP_ALL = SimpleNamespace(random=lambda count, dtype: np.zeros(count, dtype))  # instead of random numbers


def batch(rows, rng=None):
    numbers = np.arange(len(rows))
    return RowBatch(rows, numbers, numbers, rng or np.random.default_rng(0))


class Problem:
    """Small weights and rows, in the shapes of a model."""

    def __init__(self, rng, *, dense=False, linear=False, sparse=True, multiclass=False, normalize=False, ranking=0.0):
        X = sp.random(N, D, 0.3, random_state=rng, dtype=np.float32, format="csr")
        X = sp.csr_array(sp.hstack([X, np.ones((N, 1), np.float32)], format="csr"))
        Y = rng.random((N, C)) < 0.3
        if multiclass:
            Y = np.eye(C, dtype=bool)[rng.integers(0, C, N)]
        self.X, self.Y = (X.toarray() if dense else X), sp.csr_array(Y.astype(np.float32))
        self.w = rng.uniform(0.5, 2, N).astype(np.float32)
        s = 0 if linear else S
        self.pattern = sparse_pattern(self.X, self.Y, np.arange(N), 1.0 if sparse else None)
        shapes = [(D + 1, K), (K, s), (s,), ((K if linear else S) + 1, C), (self.pattern.nnz,)]
        self.parts = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        self.softmax, self.normalize, self.ranking = multiclass, normalize, ranking

    @property
    def weights(self):
        W, R, b, V, _ = self.parts
        return JointWeights(W, Features(R, b), V, None, self.normalize)

    def step(self, rates=STILL, machine=None, dropout=0.0):
        rows, machine = JointRows(self.X, self.Y, self.w, self.softmax), machine or find_machine("torch")
        step = FineTuneStep(
            rows, self.pattern, self.weights, rates, machine, dropout=dropout, softmax_weight=self.ranking
        )
        step.state.D[:] = torch.tensor(self.parts[4])
        return step

    def parts_of(self, step):
        """W, R, b, V and D, those sparse weights that are 0 included."""
        weights = step.weights()
        return [weights.W, *weights.features[:2], weights.V, step.state.D.numpy()]

    def loss(self, parts):
        """The weighted loss of all rows, written as the formula, with torch's own derivatives."""
        W, R, b, V, D = parts
        X = torch.tensor(self.X if isinstance(self.X, np.ndarray) else self.X.toarray()).double()
        h = X @ W
        h = h / h.norm(dim=1, keepdim=True) if self.normalize else h
        Phi = h if not R.shape[1] else np.sqrt(2) * torch.cos(h @ R + b)
        Z = Phi @ V[:-1] + V[-1]
        if len(D):
            full = torch.zeros((X.shape[1], C), dtype=torch.float64)
            rows = np.repeat(np.arange(X.shape[1]), np.diff(self.pattern.indptr))
            full = full.index_put((torch.tensor(rows), torch.tensor(self.pattern.indices).long()), D)
            Z = Z + X @ full
        Y = torch.tensor(self.Y.toarray()).double()
        counts = Y.sum(1, keepdim=True)
        ranked = -(Y / counts.clamp(min=1) * Z.log_softmax(1)).sum(1)
        if self.softmax:
            losses = ranked
        else:
            losses = torch.nn.functional.binary_cross_entropy_with_logits(Z, Y, reduction="none").sum(1)
            losses = losses + self.ranking * ranked
        return (torch.tensor(self.w).double() * losses).sum()


CASES = [
    {},
    {"linear": True},
    {"dense": True},
    {"multiclass": True},
    {"normalize": True},
    {"ranking": 0.7},
    {"sparse": False, "multiclass": True, "normalize": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_the_loss(rng, case):
    p = Problem(rng, **case)
    step, before = p.step(), [torch.tensor(part).double().requires_grad_() for part in p.parts]
    step(batch(np.arange(N)), 1.0)
    p.loss(before).backward()
    V = torch.vstack([step.V_gradient, step.intercepts.grad])
    found = [step.W_gradient, step.R.grad, step.b.grad, V, step.D_gradient]
    for ours, exact in zip(found, before, strict=True):
        if exact.numel():
            scale = float(exact.grad.abs().max())
            np.testing.assert_allclose(ours.numpy(), exact.grad.numpy(), atol=2e-5 * scale)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_small_steps_lower_the_loss_and_move_every_part(rng, case):
    p = Problem(rng, **case)
    step = p.step(SMALL)
    for _ in range(20):
        step(batch(np.arange(N)), 1.0)
    before, after = ([torch.tensor(part).double() for part in parts] for parts in (p.parts, p.parts_of(step)))
    assert p.loss(after) < p.loss(before)
    assert all((a != b).any() for a, b in zip(before, after, strict=True) if a.numel())


@pytest.mark.parametrize("dense", [False, True])
def test_dropout_leaves_the_intercept_and_the_sparse_weights(rng, dense):
    p = Problem(rng, dense=dense)
    step = p.step(dropout=0.5)
    step(batch(np.arange(N), DROP_ALL), 1.0)
    assert not step.W_gradient[:-1].any()
    assert step.W_gradient[-1].any()
    assert (step.D_gradient != 0).all()
    x = step.drop_features(step.X.select(np.arange(N), torch.arange(N)), DROP_ALL)
    np.testing.assert_allclose(step.featurize(x, N)[0].numpy(), np.tile(p.parts[0][-1], (N, 1)), rtol=1e-6)


def test_dropout_keeps_the_mean_of_features(rng):
    p = Problem(rng, dense=True)
    p.X = np.ones((N, D + 1), np.float32)
    step = p.step(dropout=0.3)
    x = step.drop_features(torch.ones((2000, D + 1)), rng).numpy()
    assert x[:, :-1].mean() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(np.unique(x), [0, 1, 1 / 0.7], rtol=1e-6)


def test_a_restart_leaves_only_the_intercepts_in_v(rng):
    p = Problem(rng)
    step = p.step()
    step.restart(np.arange(C))
    np.testing.assert_array_equal(step.weights().V, np.vstack([np.zeros((S, C)), np.arange(C)]))


def test_scores_of_rows_are_those_of_the_formula(rng):
    p = Problem(rng)
    found = p.step().scores(np.arange(5))
    W, R, b, V, D = (part.astype(np.float64) for part in p.parts)
    x = p.X[:5].toarray().astype(np.float64)
    sparse = sp.csr_array((D, p.pattern.indices, p.pattern.indptr), p.pattern.shape).toarray()
    np.testing.assert_allclose(found, np.sqrt(2) * np.cos(x @ W @ R + b) @ V[:-1] + V[-1] + x @ sparse, atol=1e-4)


@pytest.mark.parametrize(
    "case", [{}, {"linear": True}, {"normalize": True}, {"normalize": True, "linear": True}], ids=str
)
def test_a_rescaled_model_has_the_same_scores_and_embeddings_of_mean_squared_length_one(rng, case):
    p = Problem(rng, sparse=False, **case)
    before = p.step().scores(np.arange(N))
    (W, features, V, _, _), rates = rescale(p.weights, p.X)
    p.parts = [W, *features[:2], V, p.parts[4]]
    np.testing.assert_allclose(p.step().scores(np.arange(N)), before, atol=1e-4)
    assert ((p.X @ W) ** 2).sum(axis=1).mean() == pytest.approx(1, rel=1e-5)
    assert min(rates.W, rates.V, rates.D, rates.intercept) > 0
    assert (rates.R > 0) == (not p.weights.features.linear)


def test_rows_of_four_labels_weigh_half_as_much_as_rows_of_one():
    Y = sp.csr_array(np.array([[1, 0, 0, 0], [1, 1, 1, 1]], np.float32))
    w = row_weights(np.array([2.0, 2.0]), Y)
    assert w[0] == pytest.approx(2 * w[1])
    np.testing.assert_allclose(row_weights(np.array([2.0]), Y[1:], average=2.5), w[1:])  # by the average of all rows
    np.testing.assert_allclose(row_weights(np.array([2.0, 3.0]), sp.csr_array(np.eye(2, dtype=np.float32))), [2, 3])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_gpu_takes_the_same_steps_whatever_it_pads(rng, monkeypatch, case):
    p = Problem(rng, **case)
    host, gpu = p.step(SMALL), p.step(SMALL, pretend(monkeypatch))
    assert gpu.state.V.shape[1] % 8 == gpu.state.V.shape[0] % 64 == 0
    for rows in (np.arange(N), np.arange(7, 19), np.arange(1)):
        for step in (host, gpu):
            step(batch(rows), 1.0)
    for ours, exact in zip(p.parts_of(gpu), p.parts_of(host), strict=True):
        assert ours.shape == exact.shape
        np.testing.assert_allclose(ours, exact, atol=2e-5)
    np.testing.assert_allclose(gpu.scores(np.arange(5)), host.scores(np.arange(5)), atol=1e-3)


@pytest.mark.parametrize("card", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_that_was_saved_goes_on_as_the_first(rng, monkeypatch, tmp_path, case, card):
    p = Problem(rng, **case)
    first, second = (p.step(SMALL, pretend(monkeypatch) if card else None) for _ in range(2))
    for rows in (np.arange(N), np.arange(7, 19)):
        first(batch(rows), 1.0)
    np.savez(tmp_path / "state.npz", **first.save())
    second.load(dict(np.load(tmp_path / "state.npz")))
    for rows in (np.arange(3, 25), np.arange(1)):
        for step in (first, second):
            step(batch(rows), 0.5)
    for ours, exact in zip(p.parts_of(second), p.parts_of(first), strict=True):
        np.testing.assert_array_equal(ours, exact)


def test_the_intercepts_of_a_gpu_are_not_rounded(rng, monkeypatch):
    p = Problem(rng)
    p.parts[3][-1] = -5.4321
    gpu = p.step(machine=pretend(monkeypatch, rounds=True))
    np.testing.assert_array_equal(gpu.intercepts[:C].numpy(), np.full(C, -5.4321, np.float32))
    np.testing.assert_allclose(gpu.scores(np.arange(5)), p.step().scores(np.arange(5)), atol=0.1)
