"""Sums that rows are added to and taken from, against a fit to the rows that are left."""

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.living.low_rank import correction
from smoothlink.living.sums import Sums
from smoothlink.steps.squared import Smoothing

S, C, PLAIN = 7, 5, Smoothing()


def rows(rng, n):
    Phi = np.column_stack([rng.standard_normal((n, S - 1)), np.ones(n)]).astype(np.float32)
    Y = sp.csr_array((rng.random((n, C)) < 0.3).astype(np.float32))
    return Phi, Y, rng.integers(1, 4, n).astype(np.float64)


def closed_form(Phi, Y, w, rho, smoothing=PLAIN):
    """(Phi'WPhi + rho)^-1 Phi'WY, the intercept not penalised."""
    Phi, penalty = Phi.astype(np.float64), np.append(np.full(S - 1, rho), 0)
    targets = smoothing.scale * Y.toarray() + smoothing.shift
    return np.linalg.solve(Phi.T @ (Phi * w[:, None]) + np.diag(penalty), Phi.T @ (targets * w[:, None]))


def sums_of(Phi, Y, w, smoothing=PLAIN):
    sums = Sums.empty(S, C, smoothing)
    sums.add(Phi, Y, w)
    sums.freeze_ridge(0.1)
    return sums


@pytest.mark.parametrize("smoothing", [PLAIN, Smoothing(0.9, 0.05)])
def test_the_sums_of_all_rows_give_the_closed_form(rng, smoothing):
    Phi, Y, w = rows(rng, 40)
    sums = sums_of(Phi, Y, w, smoothing)
    np.testing.assert_allclose(sums.solve(sums.factor()), closed_form(Phi, Y, w, sums.rho, smoothing), atol=1e-6)


def test_rows_that_came_and_went_leave_the_sums_of_the_others(rng):
    Phi, Y, w = rows(rng, 60)
    sums = sums_of(Phi[:40], Y[:40], w[:40])
    rho = sums.rho
    sums.add(Phi[40:], Y[40:], w[40:])
    sums.add(Phi[10:20], Y[10:20], -w[10:20])
    left = np.r_[:10, 20:60]
    np.testing.assert_allclose(np.tril(sums.G), np.tril((Phi[left].T * w[left]) @ Phi[left].astype(float)), rtol=1e-12)
    np.testing.assert_allclose(sums.counts, Y[left].T @ w[left])
    assert sums.total == w[left].sum()
    np.testing.assert_allclose(sums.solve(sums.factor()), closed_form(Phi[left], Y[left], w[left], rho), atol=1e-6)


def test_held_out_scores_are_those_of_a_fit_without_the_held_out_rows(rng):
    Phi, Y, w = rows(rng, 50)
    sums = sums_of(Phi, Y, w)
    scores = sums.held_out_scores(Phi[:8], Y[:8], w[:8])
    expected = Phi[:8] @ closed_form(Phi[8:], Y[8:], w[8:], sums.rho)
    np.testing.assert_allclose(scores(slice(0, C), 8), expected, atol=1e-5)
    np.testing.assert_allclose(scores(slice(2, 4), 5), expected[:5, 2:4], atol=1e-5)


def test_a_label_that_no_row_has_changes_no_other(rng):
    Phi, Y, w = rows(rng, 30)
    sums = sums_of(Phi, Y, w)
    before = sums.solve(sums.factor())
    sums.add_labels(2)
    after = sums.solve(sums.factor())
    np.testing.assert_allclose(after[:, :C], before, atol=1e-7)
    assert not after[:, C:].any()


def test_a_label_that_every_row_has_scores_above_all_others(rng):
    Phi, Y, w = rows(rng, 30)
    Y = sp.csr_array(np.column_stack([np.ones(30), Y.toarray()[:, 1:]]).astype(np.float32))
    sums = sums_of(Phi, Y, w)
    V = sums.solve(sums.factor())
    assert (Phi @ V).argmax(axis=1).max() == 0


@pytest.mark.parametrize("smoothing", [PLAIN, Smoothing(0.9, 0.05)])
def test_the_correction_of_a_few_rows_is_the_solution_of_the_new_sums(rng, smoothing):
    Phi, Y, w = rows(rng, 50)
    sums = sums_of(Phi[:40], Y[:40], w[:40], smoothing)
    factor = sums.factor()
    V = sums.solve(factor)
    some = np.r_[3, 17, 40:50]
    signed = np.where(some < 40, -w[some], w[some])
    found = correction(V, factor, Phi[some], Y[some], signed, smoothing)
    sums.add(Phi[some], Y[some], signed)
    expected = sums.solve(sums.factor())
    np.testing.assert_allclose(found.columns(), expected, atol=1e-5)
    np.testing.assert_allclose(found.scores(Phi, np.array([4, 1])), Phi @ expected[:, [4, 1]], atol=1e-5)
