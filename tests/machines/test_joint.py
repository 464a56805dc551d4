"""A step of fine-tuning: its gradients are those of the loss, and its weights move against them."""

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("torch", reason="torch is not installed")

import torch
from cards import pretend

from smoothlink.joint.finetune_step import Joint
from smoothlink.machines.host_and_device import find_machine

pytestmark = pytest.mark.torch

N, D, K, S, C = 30, 12, 4, 9, 6


def everything(count):
    return np.ones(count, np.float32)


class Problem:
    """Small weights and rows, in the shapes of a model."""

    def __init__(self, rng, *, dense=False, linear=False, pairs=True, multiclass=False, normalize=False, ranking=0.0):
        X = sp.random(N, D, 0.3, random_state=rng, dtype=np.float32, format="csr")
        X = sp.hstack([X, np.ones((N, 1), np.float32)], format="csr")
        Y = rng.random((N, C)) < 0.3
        if multiclass:
            Y = np.eye(C, dtype=bool)[rng.integers(0, C, N)]
        self.X, self.Y = (X.toarray() if dense else sp.csr_array(X)), sp.csr_array(Y.astype(np.float32))
        self.w = rng.uniform(0.5, 2, N).astype(np.float32)
        s = 0 if linear else S
        seen = sp.csr_array(X.T @ self.Y) if pairs and not dense else sp.csr_array((D + 1, C))
        self.pairs = (seen.indptr, seen.indices)
        shapes = [(D + 1, K), (K, s), (s,), ((K if linear else S) + 1, C), (seen.nnz,)]
        self.parts = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        self.softmax, self.normalize, self.ranking = multiclass, normalize, ranking

    def joint(self, machine=None):
        return Joint(
            self.parts,
            self.X,
            self.Y,
            self.w,
            self.pairs,
            machine or find_machine("torch"),
            softmax=self.softmax,
            normalize=self.normalize,
            begun=3.0,
            ranking=self.ranking,
        )

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
            rows = np.repeat(np.arange(X.shape[1]), np.diff(self.pairs[0]))
            full = full.index_put((torch.tensor(rows), torch.tensor(self.pairs[1]).long()), D)
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
    {"pairs": False, "multiclass": True, "normalize": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_the_loss(rng, case):
    p = Problem(rng, **case)
    joint, before = p.joint(), [torch.tensor(part).double().requires_grad_() for part in p.parts]
    joint.step(np.arange(N), (0.0, 0.0, 0.0, 0.0, 0.0), everything)
    p.loss(before).backward()
    W, V = joint.gradients
    found = [W, joint.R.grad, joint.b.grad, torch.vstack([V, joint.constant.grad]), joint.slope]
    for ours, exact in zip(found, before, strict=True):
        if exact.numel():
            scale = float(exact.grad.abs().max())
            np.testing.assert_allclose(ours.numpy(), exact.grad.numpy(), atol=2e-5 * scale)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_small_steps_lower_the_loss_and_move_every_part(rng, case):
    p = Problem(rng, **case)
    joint = p.joint()
    for _ in range(20):
        joint.step(np.arange(N), (1e-3, 1e-3, 1e-3, 1e-2, 1e-3), everything)
    before, after = ([torch.tensor(part).double() for part in parts] for parts in (p.parts, joint.parts()))
    assert p.loss(after) < p.loss(before)
    assert all((a != b).any() for a, b in zip(before, after, strict=True) if a.numel())


@pytest.mark.parametrize("dense", [False, True])
def test_the_constant_is_never_dropped(rng, dense):
    p = Problem(rng, dense=dense, pairs=False)
    joint = p.joint()
    x = joint.dropped(joint.seen(np.arange(N), torch.arange(N)), lambda count: np.zeros(count, np.float32))
    h = joint.embed(x, N)[0]
    np.testing.assert_allclose(h.numpy(), np.tile(p.parts[0][-1], (N, 1)), rtol=1e-6)


def test_weights_for_single_features_see_what_is_dropped(rng):
    p = Problem(rng)
    joint = p.joint()
    joint.step(np.arange(N), (0.0, 0.0, 0.0, 1e-2, 0.0), lambda count: np.zeros(count, np.float32))
    assert (joint.slope != 0).all()
    assert not joint.gradients[0][:-1].any()  # but W's only the constant


def test_a_restart_leaves_the_constant_alone_in_v(rng):
    p = Problem(rng)
    joint = p.joint()
    joint.restart(np.arange(C))
    np.testing.assert_array_equal(joint.parts()[3], np.vstack([np.zeros((S, C)), np.arange(C)]))


def test_scores_of_rows_are_those_of_the_formula(rng):
    p = Problem(rng)
    S = p.joint().scores(np.arange(5))
    W, R, b, V, D = (part.astype(np.float64) for part in p.parts)
    x = p.X[:5].toarray().astype(np.float64)
    direct = sp.csr_array((D, p.pairs[1], p.pairs[0]), (x.shape[1], C)).toarray()
    np.testing.assert_allclose(S, np.sqrt(2) * np.cos(x @ W @ R + b) @ V[:-1] + V[-1] + x @ direct, atol=1e-4)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_card_takes_the_same_steps_whatever_it_pads(rng, monkeypatch, case):
    p = Problem(rng, **case)
    plain, card = p.joint(), p.joint(pretend(monkeypatch))
    assert card.V.shape[0] % 8 == card.V.shape[1] % 64 == 0
    for rows in (np.arange(N), np.arange(7, 19), np.arange(1)):
        for joint in (plain, card):
            joint.step(rows, (1e-3, 2e-3, 1e-3, 1e-2, 1e-3), everything)
    for ours, exact in zip(card.parts(), plain.parts(), strict=True):
        assert ours.shape == exact.shape
        np.testing.assert_allclose(ours, exact, atol=2e-5)
    np.testing.assert_allclose(card.scores(np.arange(5)), plain.scores(np.arange(5)), atol=1e-3)


def test_the_constant_of_a_card_is_not_rounded(rng, monkeypatch):
    p = Problem(rng)
    p.parts[3][-1] = -5.4321
    card = p.joint(pretend(monkeypatch, rounds=True))
    np.testing.assert_array_equal(card.constant[:C].numpy(), np.full(C, -5.4321, np.float32))
    np.testing.assert_allclose(card.scores(np.arange(5)), p.joint().scores(np.arange(5)), atol=0.1)
