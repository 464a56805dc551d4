"""The squared loss against its closed form and scikit-learn, and the sums that it needs."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from embedded import Embedded
from problems import at_home, home, relative_error, ridge_solution
from scipy.special import expit, softmax
from sklearn.linear_model import Ridge

from smoothlink.machines.arrays import sigmoid
from smoothlink.machines.rows import Rows
from smoothlink.steps import squared as step
from smoothlink.steps.sgd import SGD
from smoothlink.steps.squared import (
    Smoothing,
    add_link_sums,
    link_sums,
    prior,
    prior_scores,
    smoothed_targets,
    softmax_rows,
)

squared = at_home(step.squared)


# The sums


@pytest.mark.parametrize(("block_rows", "kernel"), [(1, "gaussian"), (40, "linear"), (1000, "gaussian")])
def test_link_sums_are_numpys_whatever_the_blocks(rng, block_rows, kernel, machine):
    e = Embedded(rng, kernel=kernel, machine=machine)
    sums = e.sums(block_rows=block_rows)
    np.testing.assert_allclose(home(sums.gram.G), e.Phi.T @ (e.w[:, None] * e.Phi), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(home(sums.targets), e.Phi.T @ (e.w[:, None] * e.labels), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(sums.label_weights, e.w @ e.labels, rtol=1e-6)
    assert sums.weight == pytest.approx(e.w.sum())


def test_link_sums_of_some_rows_of_a_block_at_a_time_are_those_of_all(rng, machine):
    e = Embedded(rng, machine=machine)
    outs = [((26, 26), np.float64), ((6, 26), np.float32)]
    few = partial(add_link_sums, phi_rows=17)
    G, T = e.rows(block_rows=40).sums(few, e.features, slice(0, 6), outs=outs)
    np.testing.assert_allclose(home(G), e.Phi.T @ (e.w[:, None] * e.Phi), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(home(T).T, e.Phi.T @ (e.w[:, None] * e.labels), rtol=1e-5, atol=1e-4)


# Squared loss


@pytest.mark.parametrize(("ridge", "accuracy"), [(1e-3, 1e-2), (0.1, 2e-4), (10.0, 2e-5)])
def test_squared_is_the_closed_form_and_scikit_learns_multi_output_ridge(rng, ridge, accuracy, machine):
    e = Embedded(rng, machine=machine)
    V = squared(e.sums(), ridge)
    # Features are float32: their rounding is amplified by the condition number, about 100 / ridge.
    assert relative_error(V, ridge_solution(e.Phi, e.labels, e.w, ridge)) < accuracy
    rho = e.sums().gram.at(ridge).rho[0]
    peer = Ridge(alpha=rho, solver="svd").fit(e.Phi[:, :-1], e.labels, sample_weight=e.w)
    np.testing.assert_allclose(e.Phi @ V, peer.predict(e.Phi[:, :-1]), atol=2e-4)


def test_squared_with_one_weight_doubled_is_squared_with_that_row_twice(rng, machine):
    e = Embedded(rng, machine=machine)
    e.w[4] *= 2
    heavy = squared(e.sums(), 0.1)
    e.w[4] /= 2
    again = np.append(np.arange(150), 4)
    twice = link_sums(Rows.of(e.H[again], e.Y[again], e.w[again], machine=machine), e.features)
    assert relative_error(squared(twice, 0.1), heavy) < 1e-4


@pytest.mark.parametrize(("multiclass", "a"), [(False, 0.9), (True, 0.6)])
def test_label_smoothing_is_a_fit_to_smoothed_dense_labels(rng, multiclass, a, machine):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    smoothing = Smoothing.of(a, 6, multiclass=multiclass)
    T = a * e.labels + (1 - a) / 6 if multiclass else (2 * a - 1) * e.labels + (1 - a)
    V = squared(e.sums(), 0.1, smoothing)
    assert relative_error(V, ridge_solution(e.Phi, T, e.w, 0.1)) < 2e-4
    dense = e.rows(sp.csr_array(T.astype(np.float32)))
    assert relative_error(V, squared(link_sums(dense, e.features), 0.1)) < 1e-4
    few = [e.fitted(3, 0.1, SGD(), softmax=multiclass, smoothing=smoothing)]
    few.append(e.fitted(3, 0.1, SGD(), softmax=multiclass, rows=dense))
    assert relative_error(few[0], few[1]) < 1e-3


def test_no_smoothing_leaves_the_targets_as_they_are(rng, machine):
    for multiclass in (False, True):
        assert Smoothing.of(1.0, 6, multiclass=multiclass) == Smoothing()
    sums = Embedded(rng, machine=machine).sums()
    assert smoothed_targets(sums, Smoothing()) is sums.targets


# Helpers


def test_smoothed_labels_start_at_their_own_frequencies():
    smoothing = Smoothing.of(0.9, 2, multiclass=False)
    scores = prior_scores(np.array([0.0, 40.0]), 100.0, smoothing, softmax=False)
    np.testing.assert_allclose(expit(scores), [(10 + 0.5) / 101, (0.8 * 40 + 10 + 0.5) / 101])


def test_priors_are_never_0_or_1():
    p = prior(np.array([0.0, 1e12]), 1e12)
    assert 0 < p[0] < p[1] < 1


def test_sigmoid_and_softmax_are_scipys_in_place(rng):
    Z = 20 * rng.standard_normal((30, 5)).astype(np.float32)
    Z[0] = [-1e4, 1e4, 0, -50, 50]
    for ours, peer in ((sigmoid, expit), (softmax_rows, lambda A: softmax(A, axis=1))):
        A = Z.copy()
        result = ours(A)
        assert result is A
        np.testing.assert_allclose(result, peer(Z.astype(np.float64)), atol=1e-6)
