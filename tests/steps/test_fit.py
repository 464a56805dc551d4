"""Decoders against closed forms, scikit-learn and the exact L-BFGS fit."""

import numpy as np
import pytest
import scipy.sparse as sp
from embedded import FULL, Embedded
from oracles import exact_fit
from problems import at_home, home, relative_error, ridge_solution
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression, Ridge

from smoothlink.machines.decoder_state import sigmoid
from smoothlink.machines.rows import Rows
from smoothlink.steps import squared as fit
from smoothlink.steps.sgd import SGD, default_batch, stable_rate
from smoothlink.steps.squared import Smoothing, link_sums, prior, prior_scores, softmax_rows

squared = at_home(fit.squared)


def start_at_priors(sums, smoothing, *, softmax):
    """V where a descent begins: 0 but for the constant."""
    V = np.zeros(tuple(sums.targets.shape), np.float32)
    V[-1] = prior_scores(sums.label_weights, sums.weight, smoothing, softmax=softmax)
    return V


# The sums


@pytest.mark.parametrize("block_rows", [1, 40, 1000])
@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_link_sums_are_numpys_whatever_the_blocks(rng, block_rows, kernel, monkeypatch, machine):
    monkeypatch.setattr(fit, "PHI_ROWS", 17)  # rows featurized at a time, within a block
    e = Embedded(rng, kernel=kernel, machine=machine)
    sums = e.sums(block_rows=block_rows)
    np.testing.assert_allclose(home(sums.gram.G), e.Phi.T @ (e.w[:, None] * e.Phi), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(home(sums.targets), e.Phi.T @ (e.w[:, None] * e.labels), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(sums.label_weights, e.w @ e.labels, rtol=1e-6)
    assert sums.weight == pytest.approx(e.w.sum())


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


@pytest.mark.parametrize("multiclass", [False, True])
@pytest.mark.parametrize("a", [0.9, 0.6])
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
    assert fit.smoothed_targets(sums, Smoothing()) is sums.targets


# The exact fit is scikit-learn's


@pytest.mark.parametrize("rho", [2.0, 30.0])
def test_exact_logistic_is_scikit_learns_label_by_label(rng, rho):
    e = Embedded(rng)
    V = exact_fit(e.Phi, e.Y, rho, e.w, softmax=False)
    for label in range(6):
        peer = LogisticRegression(C=1 / rho, tol=1e-10, max_iter=10_000, solver="newton-cholesky")
        peer.fit(e.Phi[:, :-1], e.labels[:, label], sample_weight=e.w)
        np.testing.assert_allclose(V[:-1, label], peer.coef_[0], atol=1e-4)
        assert V[-1, label] == pytest.approx(peer.intercept_[0], abs=1e-4)


@pytest.mark.parametrize("rho", [2.0, 30.0])
def test_exact_softmax_is_scikit_learns_multinomial(rng, rho):
    e = Embedded(rng, multiclass=True)
    V = exact_fit(e.Phi, e.Y, rho, e.w, softmax=True)
    peer = LogisticRegression(C=1 / rho, tol=1e-10, max_iter=10_000, solver="newton-cg")
    peer.fit(e.Phi[:, :-1], e.Y.indices, sample_weight=e.w)
    np.testing.assert_allclose(V[:-1], peer.coef_.T, atol=1e-4)
    np.testing.assert_allclose(softmax(e.Phi @ V, axis=1), peer.predict_proba(e.Phi[:, :-1]), atol=1e-5)


def test_exact_fit_takes_rho_by_row_and_dense_labels_without_weights(rng):
    e = Embedded(rng, weighted=False)
    by_row = np.append(np.full(25, 7.0), 0)
    a = exact_fit(e.Phi, e.Y, 7.0, softmax=False)
    b = exact_fit(e.Phi, e.labels, by_row, e.w, softmax=False)
    np.testing.assert_allclose(a, b, atol=1e-6)
    by_row[-1] = 50
    penalised = exact_fit(e.Phi, e.Y, by_row, softmax=False)
    assert np.abs(penalised[-1]).max() < np.abs(a[-1]).max()


# The descent reaches the exact fit


@pytest.mark.parametrize("multiclass", [False, True])
@pytest.mark.parametrize("ridge", [0.01, 0.3])
def test_at_convergence_the_descent_is_the_exact_fit(rng, multiclass, ridge, machine):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    rho = e.sums().gram.at(ridge).rho
    exact = exact_fit(e.Phi, e.Y, rho, e.w, softmax=multiclass)
    V = e.fitted(400, ridge, softmax=multiclass)
    assert relative_error(V[:-1], exact[:-1]) < 2e-3
    link = softmax if multiclass else expit
    arguments = {"axis": 1} if multiclass else {}
    np.testing.assert_allclose(link(e.Phi @ V, **arguments), link(e.Phi @ exact, **arguments), atol=5e-4)


@pytest.mark.parametrize("multiclass", [False, True])
def test_at_convergence_the_descent_is_scikit_learns_logistic_regression(rng, multiclass, machine):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    C = 1 / e.sums().gram.at(0.1).rho[0]
    V = e.fitted(400, 0.1, softmax=multiclass)
    peer = LogisticRegression(C=C, tol=1e-8, max_iter=5000)
    if multiclass:
        peer.fit(e.Phi[:, :-1], e.Y.indices, sample_weight=e.w)
        np.testing.assert_allclose(softmax(e.Phi @ V, axis=1), peer.predict_proba(e.Phi[:, :-1]), atol=1e-3)
        return
    for label in range(6):
        peer.fit(e.Phi[:, :-1], e.labels[:, label], sample_weight=e.w)
        np.testing.assert_allclose(expit(e.Phi @ V[:, label]), peer.predict_proba(e.Phi[:, :-1])[:, 1], atol=1e-3)


@pytest.mark.parametrize("multiclass", [False, True])
def test_label_smoothing_converges_to_the_exact_smoothed_fit(rng, multiclass, machine):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    smoothing = Smoothing.of(0.85, 6, multiclass=multiclass)
    rho = e.sums().gram.at(0.1).rho
    exact = exact_fit(e.Phi, e.Y, rho, e.w, softmax=multiclass, smoothing=smoothing)
    V = e.fitted(400, 0.1, softmax=multiclass, smoothing=smoothing)
    assert relative_error(V[:-1], exact[:-1]) < 2e-3


@pytest.mark.parametrize(
    "descent",
    [
        SGD(momentum=0.0, decay=1.0, batch=FULL),
        SGD(momentum=0.95, decay=1.0, batch=FULL),
        SGD(learning_rate=0.5, momentum=0.5, decay=1.0, batch=FULL),
        SGD(momentum=0.5, decay=0.99, batch=FULL),
        SGD(momentum=0.0, decay=0.97, batch=30),
        SGD(momentum=0.9, decay=0.97, batch=40),
    ],
    ids=str,
)
@pytest.mark.parametrize("multiclass", [False, True])
def test_every_knob_of_the_descent_leads_to_the_same_fit(rng, multiclass, descent, machine):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    rho = e.sums().gram.at(0.3).rho
    exact = exact_fit(e.Phi, e.Y, rho, e.w, softmax=multiclass)
    V = e.fitted(300, 0.3, descent, softmax=multiclass)
    # Batches leave some noise, of the size of the learning rate that is left.
    np.testing.assert_allclose(e.Phi @ (V - exact) - (e.Phi @ (V - exact)).mean(0), 0, atol=0.03)


def test_five_passes_of_the_default_descent_have_most_of_the_gain(rng, machine):
    e = Embedded(rng, n=1000, machine=machine)
    exact = exact_fit(e.Phi, e.Y, e.sums().gram.at(0.1).rho, e.w, softmax=False)
    start, best = (e.objective(V, 0.1) for V in (start_at_priors(e.sums(), Smoothing(), softmax=False), exact))
    assert e.objective(e.fitted(5, 0.1, SGD()), 0.1) < best + 0.15 * (start - best)


@pytest.mark.parametrize("multiclass", [False, True])
def test_the_first_step_of_any_batch_is_that_of_all_rows(rng, multiclass, machine):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    start = start_at_priors(e.sums(), Smoothing(), softmax=multiclass)
    # Ten batches of tiny steps, so that each begins at the start; what is sampled is 0 there.
    V = e.fitted(1, 0.1, SGD(learning_rate=1e-4, momentum=0.0, batch=15), softmax=multiclass)
    p = softmax(start[-1]) if multiclass else expit(start[-1])
    G = home(e.sums().gram.G)
    M = np.linalg.inv(G + np.diag(e.sums().gram.at(0.1).rho))
    rate = 1e-4 * stable_rate(np.trace(M @ G), 15, momentum=0.0)
    step = 10 * rate * M @ (e.Phi.T @ (e.w[:, None] * (e.labels - p)))
    np.testing.assert_allclose(V - start, step, atol=0.02 * np.abs(step).max())


@pytest.mark.parametrize("block_rows", [1, 40, 1000])
def test_the_descent_does_not_know_the_blocks(rng, block_rows, machine):
    e = Embedded(rng, machine=machine)
    V = e.fitted(3, 0.1, SGD(batch=32))
    assert relative_error(e.fitted(3, 0.1, SGD(batch=32), rows=e.rows(block_rows=block_rows)), V) < 1e-4


def test_the_logistic_descent_can_be_fitted_in_blocks_of_labels(rng, machine):
    e = Embedded(rng, machine=machine)
    V = e.fitted(3, 0.1, SGD(batch=32))
    halves = [e.fitted(3, 0.1, SGD(batch=32), rows=e.rows(e.Y[:, part])) for part in (slice(0, 2), slice(2, 6))]
    assert relative_error(np.hstack(halves), V) < 1e-4


def test_rows_of_weight_zero_are_not_seen_by_the_descent(rng, machine):
    e = Embedded(rng, machine=machine)
    e.w[::4] = 0
    other = e.Y.toarray()
    other[::4] = 1 - other[::4]
    a, b = (e.fitted(3, 0.1, SGD(batch=32), rows=e.rows(Y)) for Y in (e.Y, sp.csr_array(other)))
    np.testing.assert_array_equal(a, b)


def test_seeing_every_row_twice_is_seeing_it_once_with_weight_two_in_full_batches(rng, machine):
    e = Embedded(rng, machine=machine)
    both = np.vstack([e.H, e.H])
    twice = Rows.of(both, sp.csr_array(sp.vstack([e.Y, e.Y])), np.tile(e.w, 2), machine=machine).with_inputs(both)
    heavy = e.rows().weighted(2 * e.w)
    a, b = (e.fitted(5, 0.1, SGD(batch=FULL, learning_rate=0.7), rows=rows) for rows in (twice, heavy))
    assert relative_error(a, b) < 1e-4


# Where the descent starts, and its helpers


@pytest.mark.parametrize("multiclass", [False, True])
def test_the_start_gives_every_row_the_smoothed_label_frequencies(rng, multiclass, machine):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    V = start_at_priors(e.sums(), Smoothing(), softmax=multiclass)
    assert not V[:-1].any()
    total = e.w.sum()
    p = (e.w @ e.labels + 0.5) / (total + 1)
    said = softmax(V[-1]) if multiclass else expit(V[-1])
    np.testing.assert_allclose(said, p / p.sum() if multiclass else p, rtol=1e-5)


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


def test_the_stable_rate_is_what_momentum_allows_over_the_overshoot_of_a_batch():
    assert stable_rate(4.0, 10**12, 0.9) == pytest.approx(8, rel=1e-4)
    assert stable_rate(4.0, 4, 0.9) == pytest.approx(2)
    assert stable_rate(4.0, 10**12, 0.0) == pytest.approx(1.5, rel=1e-4)
    assert stable_rate(4.0, 4, 0.5) == pytest.approx(4.5 / 4)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("multiclass", [False, True])
@pytest.mark.parametrize("ridge", [1e-3, 100.0])
def test_the_automatic_rate_is_stable_where_the_data_rules_and_where_the_ridge_does(
    rng, momentum, multiclass, ridge, machine
):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    V = e.fitted(60, ridge, SGD(momentum=momentum, decay=1.0, batch=30), softmax=multiclass)
    start = start_at_priors(e.sums(), Smoothing(), softmax=multiclass)
    # Batches leave noise, but nothing grows: where the ridge is endless there is nothing to gain over the start.
    assert e.objective(V, ridge, softmax=multiclass) < 1.1 * e.objective(start, ridge, softmax=multiclass)


@pytest.mark.parametrize(
    ("n", "c", "s", "softmax", "rows"),
    [
        (5, 3, 4, False, 1),  # a tenth, but at least one
        (4000, 159, 2000, False, 400),
        (32_000, 159, 200, False, 512),  # two for a feature, but at least 512
        (100_000, 159, 2000, True, 4000),
        (10**6, 10**6, 4000, False, 15_625),  # a 64th of very many rows
        (10**6, 10**6, 4000, True, 134),  # what 512 MB of scores hold
    ],
)
def test_a_batch_is_a_tenth_of_the_rows_within_limits(n, c, s, softmax, rows):
    assert default_batch(n, c, s, softmax=softmax) == rows
