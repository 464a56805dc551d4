"""PLST and CPLST against direct dense implementations of the published formulas."""

import numpy as np
import pytest
from problems import dense_problem, sparse_problem

from smoothlink.solve import Cholesky
from smoothlink.steps.embed import label_means
from smoothlink_paper import baselines
from smoothlink_paper.baselines import cplst, plst

PUBLISHED = 1e-7  # the ridge that stands for none


def projection_onto(X):
    """P0 = X X^+."""
    return X @ np.linalg.pinv(X)


def published(X, Y, rank, *, conditional):
    """Chen and Lin (2012): Z = Y - means; V the top right singular vectors of Z, or eigenvectors of Z'P0Z."""
    means = Y.mean(axis=0)
    Z = Y - means
    M = Z.T @ projection_onto(X) @ Z if conditional else Z.T @ Z
    lam, E = np.linalg.eigh(M)
    V = E[:, np.argsort(-lam)[:rank]]
    W = np.linalg.pinv(X) @ (Z @ V)
    return means + X @ W @ V.T


def scores(space, X):
    return (X @ space.W) @ space.V[:-1] + space.V[-1]


@pytest.mark.parametrize(("transform", "conditional"), [(plst, False), (cplst, True)])
@pytest.mark.parametrize(("make", "c"), [(dense_problem, 12), (sparse_problem, 12), (dense_problem, 90)])
def test_decoded_scores_are_the_published_ones(rng, transform, conditional, make, c, machine):
    p = make(rng, n=200, c=c, weighted=False).on(machine)
    X, Y = p.dense
    rank = 3 if c == 12 else 40  # 40 of 90: random probes would not span every label
    space = transform(p.rows(), rank, Cholesky().prepare(p.rows()), PUBLISHED, rng)
    np.testing.assert_allclose(scores(space, X), published(X, Y, rank, conditional=conditional), atol=2e-3)
    np.testing.assert_allclose(space.V[-1], Y.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(space.U.T @ space.U, np.eye(rank), atol=1e-4)
    np.testing.assert_array_equal(space.V[:-1], space.U.T)


@pytest.mark.parametrize("transform", [plst, cplst])
def test_randomized_probes_find_nearly_the_best_labels_space(rng, transform, machine, monkeypatch):
    monkeypatch.setattr(baselines, "EXACT_LABELS", 50)
    p = dense_problem(rng, n=300, d=6, c=80, weighted=False).on(machine)
    X, Y = p.dense
    Z = Y - Y.mean(axis=0)
    M = Z.T @ projection_onto(X) @ Z if transform is cplst else Z.T @ Z
    space = transform(p.rows(), 4, Cholesky().prepare(p.rows()), PUBLISHED, rng)
    best = np.sort(np.linalg.eigvalsh(M))[-4:].sum()
    assert np.trace(space.U.T @ M @ space.U) > 0.98 * best


@pytest.mark.parametrize("transform", [plst, cplst])
@pytest.mark.parametrize("penalize_intercept", [False, True])
def test_w_is_the_ridge_fit_to_centred_labels(rng, transform, penalize_intercept, machine):
    p = dense_problem(rng).on(machine)
    X, Y = p.dense
    system = Cholesky().prepare(p.rows(), penalize_intercept=penalize_intercept)
    space = transform(p.rows(), 3, system, 0.4, rng)
    means = p.w @ Y / p.w.sum()
    G = X.T @ (p.w[:, None] * X) + np.diag(system.at(0.4).rho)
    exact = np.linalg.solve(G, X.T @ (p.w[:, None] * ((Y - means) @ space.U)))
    np.testing.assert_allclose(space.W, exact, atol=1e-4)


@pytest.mark.parametrize("transform", [plst, cplst])
def test_seeing_every_row_twice_is_seeing_it_once_with_weight_two(rng, transform, machine):
    p = sparse_problem(rng).on(machine)
    both = (p.repeated(2), p._replace(w=2 * p.w))
    a, b = (transform(q.rows(), 3, Cholesky().prepare(q.rows()), 0.4, np.random.default_rng(1)) for q in both)
    X, _ = p.dense
    np.testing.assert_allclose(scores(a, X), scores(b, X), atol=1e-4)


@pytest.mark.parametrize("transform", [plst, cplst])
def test_with_every_direction_both_are_the_independent_ridge_classifiers(rng, transform, machine):
    p = dense_problem(rng, c=5, weighted=False).on(machine)
    X, Y = p.dense
    space = transform(p.rows(), 5, Cholesky().prepare(p.rows()), PUBLISHED, rng)
    np.testing.assert_allclose(scores(space, X), X @ np.linalg.lstsq(X, Y, rcond=None)[0], atol=1e-3)


def test_label_means_are_weighted(rng, machine):
    p = sparse_problem(rng).on(machine)
    np.testing.assert_allclose(label_means(p.rows(block_rows=31)), p.w @ p.dense[1] / p.w.sum(), rtol=1e-6)
