"""SGD against the exact fit, scikit-learn, and itself: coordinates, blocks of labels and stops change nothing."""

from itertools import islice

import numpy as np
import pytest
import scipy.sparse as sp
from embedded import FULL, Embedded
from oracles import exact_fit
from problems import home, relative_error
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from smoothlink import Logistic, SmoothLinkClassifier
from smoothlink.machines.arrays import half_product
from smoothlink.machines.decoder_state import LABEL_MULTIPLE
from smoothlink.machines.rows import Rows
from smoothlink.steps.sgd import (
    SGD,
    SGDState,
    coordinates_of,
    default_batch,
    label_curvature,
    predicts_most,
    rotation_pays,
    sgd_passes,
    stable_rate,
)
from smoothlink.steps.squared import Smoothing, prior_scores


def start_at_priors(sums, smoothing, *, softmax):
    """V where SGD starts: 0 but for the intercept."""
    V = np.zeros(tuple(sums.targets.shape), np.float32)
    V[-1] = prior_scores(sums.label_weights, sums.weight, smoothing, softmax=softmax)
    return V


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


# SGD reaches the exact fit


@pytest.mark.parametrize(("multiclass", "ridge"), [(False, 0.01), (True, 0.3)])
def test_at_convergence_sgd_is_the_exact_fit(rng, multiclass, ridge, machine):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    rho = e.sums().gram.at(ridge).rho
    exact = exact_fit(e.Phi, e.Y, rho, e.w, softmax=multiclass)
    V = e.fitted(400, ridge, softmax=multiclass)
    assert relative_error(V[:-1], exact[:-1]) < 2e-3
    link = softmax if multiclass else expit
    arguments = {"axis": 1} if multiclass else {}
    np.testing.assert_allclose(link(e.Phi @ V, **arguments), link(e.Phi @ exact, **arguments), atol=5e-4)


@pytest.mark.parametrize("multiclass", [False, True])
def test_at_convergence_sgd_is_scikit_learns_logistic_regression(rng, multiclass, machine):
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
    "sgd",
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
def test_every_option_of_sgd_leads_to_the_same_fit(rng, multiclass, sgd, machine):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    rho = e.sums().gram.at(0.3).rho
    exact = exact_fit(e.Phi, e.Y, rho, e.w, softmax=multiclass)
    V = e.fitted(300, 0.3, sgd, softmax=multiclass)
    # Batches leave some noise, of the size of the learning rate that is left.
    np.testing.assert_allclose(e.Phi @ (V - exact) - (e.Phi @ (V - exact)).mean(0), 0, atol=0.03)


def test_five_passes_of_the_default_sgd_have_most_of_the_gain(rng, machine):
    e = Embedded(rng, n=1000, machine=machine)
    exact = exact_fit(e.Phi, e.Y, e.sums().gram.at(0.1).rho, e.w, softmax=False)
    start, best = (e.objective(V, 0.1) for V in (start_at_priors(e.sums(), Smoothing(), softmax=False), exact))
    assert e.objective(e.fitted(5, 0.1, SGD()), 0.1) < best + 0.15 * (start - best)


@pytest.mark.parametrize("rotated", [False, True])
def test_ten_passes_have_most_of_the_gain_where_classes_are_many_and_features_few(rng, machine, rotated):
    e = Embedded(rng, n=3000, k=6, c=300, machine=machine, multiclass=True, kernel="linear", weighted=False)
    start = e.objective(start_at_priors(e.sums(), Smoothing(), softmax=True), 1e-3, softmax=True)
    best = e.objective(e.fitted(80, 1e-3, SGD(decay=0.95), softmax=True), 1e-3, softmax=True)
    few = e.objective(e.fitted(10, 1e-3, SGD(), softmax=True, rotated=rotated), 1e-3, softmax=True)
    assert few < best + 0.05 * (start - best)


def test_25_passes_of_few_features_fit_rare_labels_as_scikit_learn_does(rng):
    X = rng.standard_normal((6000, 8))
    Z = X @ rng.standard_normal((8, 3)) - (7, 6, 4)
    Y = (rng.random((6000, 3)) < expit(Z)).astype(int)
    logistic = {"loss": Logistic(passes=25), "embedding": "none", "kernel": "linear", "final_ridge": 1e-6}
    model = SmoothLinkClassifier(**logistic, calibrate=False, input_kernel=None, trees=False, random_state=0).fit(X, Y)
    P = model.predict_proba(X)
    for y, p in zip(Y.T, P.T, strict=True):
        exact = LogisticRegression(C=1e4).fit(X, y).predict_proba(X)
        assert log_loss(y, p) < 1.001 * log_loss(y, exact)  # with the same steps for all labels up to 1.012


def test_the_curvature_is_that_of_the_most_frequent_label_and_at_most_one():
    assert label_curvature(51.0, 1e-3, 1500) == pytest.approx(51 * (1e-3 + 1 / 1500))
    assert label_curvature(51.0, 0.3, 1500) == 1
    assert label_curvature(2000.0, 1e-3, 4000) == 1


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


@pytest.mark.parametrize("block_rows", [1, 40])
def test_sgd_does_not_depend_on_blocks_of_rows(rng, block_rows, machine):
    e = Embedded(rng, machine=machine)
    V = e.fitted(3, 0.1, SGD(batch=32))
    assert relative_error(e.fitted(3, 0.1, SGD(batch=32), rows=e.rows(block_rows=block_rows)), V) < 1e-4


def test_logistic_sgd_can_be_run_in_blocks_of_labels(rng, machine):
    e = Embedded(rng, machine=machine)
    V = e.fitted(3, 0.1, SGD(batch=32))
    halves = [e.fitted(3, 0.1, SGD(batch=32), rows=e.rows(e.Y[:, part])) for part in (slice(0, 2), slice(2, 6))]
    assert relative_error(np.hstack(halves), V) < 1e-4


def test_rows_of_weight_zero_do_not_matter_to_sgd(rng, machine):
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


# Where SGD starts, its rate and its batches


@pytest.mark.parametrize("multiclass", [False, True])
def test_the_start_gives_every_row_the_smoothed_label_frequencies(rng, multiclass, machine):
    e = Embedded(rng, multiclass=multiclass, machine=machine)
    V = start_at_priors(e.sums(), Smoothing(), softmax=multiclass)
    assert not V[:-1].any()
    total = e.w.sum()
    p = (e.w @ e.labels + 0.5) / (total + 1)
    found = softmax(V[-1]) if multiclass else expit(V[-1])
    np.testing.assert_allclose(found, p / p.sum() if multiclass else p, rtol=1e-5)


def test_the_stable_rate_is_what_momentum_allows_over_the_overshoot_of_a_batch():
    assert stable_rate(4.0, 10**12, 0.9) == pytest.approx(8, rel=1e-4)
    assert stable_rate(4.0, 4, 0.9) == pytest.approx(2)
    assert stable_rate(4.0, 10**12, 0.0) == pytest.approx(1.5, rel=1e-4)
    assert stable_rate(4.0, 4, 0.5) == pytest.approx(4.5 / 4)


@pytest.mark.parametrize("ridge", [1e-3, 100.0])
@pytest.mark.parametrize(("momentum", "multiclass"), [(0.0, False), (0.6, True), (0.99, False), (0.99, True)])
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
        (32_000, 159, 200, False, 512),  # two per feature, but at least 512
        (100_000, 159, 2000, True, 400),
        (100_000, 159, 200, True, 256),
        (10**6, 10**6, 4000, False, 15_625),  # a 64th of very many rows
        (10**6, 10**6, 4000, True, 134),  # what 512 MB of scores hold
    ],
)
def test_a_batch_is_a_tenth_of_the_rows_within_limits(n, c, s, softmax, rows):
    assert default_batch(n, c, s, softmax=softmax) == rows


# In rotated coordinates


@pytest.mark.parametrize(("multiclass", "momentum", "share"), [(False, 0.0, 1.0), (False, 0.9, 0.8), (True, 0.9, 0.8)])
def test_rotated_coordinates_take_the_same_steps(rng, machine, multiclass, momentum, share):
    e = Embedded(rng, machine=machine, multiclass=multiclass)
    smoothing = Smoothing.of(share, 6, multiclass=multiclass)
    given = {"softmax": multiclass, "smoothing": smoothing, "seed": 5}
    sgd = SGD(learning_rate=0.7, momentum=momentum, decay=0.8, batch=32)
    found = [e.fitted(3, 0.1, sgd, rotated=rotated, **given) for rotated in (False, True)]
    assert relative_error(found[1], found[0]) < 2e-3
    assert np.abs(found[0][:-1]).max() > 0.1  # it went somewhere


@pytest.mark.parametrize("multiclass", [False, True])
def test_rotated_features_that_are_kept_take_the_same_steps(rng, multiclass):
    e = Embedded(rng, multiclass=multiclass)
    sgd = SGD(batch=32)
    found = [e.fitted(4, 0.1, sgd._replace(kept=kept), softmax=multiclass, rotated=True) for kept in (0, 4 * 150 * 26)]
    assert relative_error(*found) < 1e-5  # a product's last bits depend on the place of a row in it


def test_features_are_made_once_where_they_are_kept_and_in_every_pass_where_they_are_too_many(rng):
    e, calls = Embedded(rng), []

    class Counted(type(e.features)):
        def __call__(self, H):
            calls.append(len(H))
            return super().__call__(H)

    features, rows, sums = Counted(*e.features), e.rows(), e.sums()
    for kept, passes in ((4 * 150 * 26, 1), (4 * 150 * 26 - 1, 3)):
        calls.clear()
        run = sgd_passes(rows, features, sums, 0.1, softmax=False, sgd=SGD(batch=32, kept=kept), rotated=True)
        next(islice(run, 2, None))
        assert sum(calls) == passes * np.count_nonzero(rows.w > 0)


@pytest.mark.parametrize(("kernel", "kappa"), [("gaussian", 1.0), ("linear", 1.0), ("gaussian", 0.2)])
def test_rotated_coordinates_describe_the_same_system(rng, machine, kernel, kappa):
    e = Embedded(rng, machine=machine, kernel=kernel)
    sums = e.sums()
    plain, rotated = (
        coordinates_of(sums, 0.1, rotated=r, half=False, curvature=lambda freedom: kappa) for r in (False, True)
    )
    assert rotated.freedom == pytest.approx(plain.freedom, rel=1e-4)
    V = rng.standard_normal((e.Phi.shape[1], 3)).astype(np.float32)
    Phi = e.Phi.astype(np.float32)
    found = home(rotated.rotate(machine.to_device(Phi.copy())))
    np.testing.assert_allclose(Phi @ home(rotated.unrotate(machine.to_device(V))), found @ V, atol=1e-3)
    # There the weighted features have a diagonal Gram matrix, and M and the ridge are diagonal too.
    G = found.T.astype(np.float64) @ (e.w[:, None] * found)
    exact = np.diag(1 / (kappa * np.diag(G) + home(rotated.rho)[:, 0]))
    M = np.linalg.inv(kappa * G + np.diag(home(rotated.rho)[:, 0]))
    np.testing.assert_allclose(M, exact, atol=2e-3 * exact.max())
    np.testing.assert_allclose(home(rotated.M)[:, 0], np.diag(exact), rtol=1e-2)
    inverse = np.linalg.inv(kappa * home(sums.gram.G) + np.diag(home(plain.rho)[:, 0]))
    np.testing.assert_allclose(home(plain.M), inverse, atol=1e-4 * np.abs(inverse).max())


def test_coordinates_that_are_not_rotated_change_neither_features_nor_weights(rng, machine):
    plain = coordinates_of(Embedded(rng, machine=machine).sums(), 0.1, rotated=False, half=False)
    A = machine.to_device(rng.standard_normal((4, 26)).astype(np.float32))
    assert plain.rotate(A) is A
    assert plain.unrotate(A) is A


@pytest.mark.parametrize("rotated", [False, True])
def test_rows_that_are_all_equal_get_the_label_frequencies(rng, machine, rotated):
    e = Embedded(rng, machine=machine)
    e.H[:] = e.H[0]
    V = e.fitted(2, 0.1, SGD(batch=40), rotated=rotated)
    assert np.isfinite(V).all()
    scores = e.features(e.H[:1]) @ V
    shares = 1 / (1 + np.exp(-scores[0]))
    np.testing.assert_allclose(shares, e.w @ e.labels / e.w.sum(), atol=0.05)


@pytest.mark.parametrize(
    ("n", "c", "s", "batch", "pays"),
    [
        (2_400_000, 325_000, 4001, 37_500, True),  # LSHTC
        (1_000_000, 100_000, 301, 15_625, True),  # ODP
        (4880, 159, 2001, 488, False),  # bibtex: few labels
        (100, 1000, 4001, 10, False),  # few rows: the eigenbasis costs more than it saves
    ],
)
def test_rotation_pays_where_labels_are_many_and_steps_too(n, c, s, batch, pays):
    assert rotation_pays(n, c, s, batch) == pays


def test_only_a_gpu_rounds(rng, machine):
    A, B = (machine.to_device(rng.standard_normal((5, 5)).astype(np.float32)) for _ in range(2))
    assert half_product(A) is A
    np.testing.assert_array_equal(home(half_product(A, B)), home(A @ B))


# Blocks of labels


@pytest.mark.parametrize(("multiclass", "momentum", "rotated"), [(False, 0.9, True), (True, 0.0, False)])
def test_blocks_of_labels_do_not_matter(rng, machine, monkeypatch, rotated, multiclass, momentum):
    c = 2 * LABEL_MULTIPLE + 22
    e = Embedded(rng, n=300, c=c, machine=machine, multiclass=multiclass)
    given = {"sgd": SGD(momentum=momentum, batch=50), "softmax": multiclass, "rotated": rotated}
    whole = e.fitted(2, 0.1, **given)
    monkeypatch.setattr(type(machine), "scores", lambda self: 1)
    assert relative_error(e.fitted(2, 0.1, **given), whole) < 1e-4


# Residuals


@pytest.mark.parametrize("rotated", [False, True])
def test_residuals_of_all_rows_are_differences_from_the_prior(rng, machine, monkeypatch, rotated):
    e, given = Embedded(rng, machine=machine, multiclass=True), {"softmax": True, "rotated": rotated}
    given["smoothing"] = Smoothing.of(0.9, 6, multiclass=True)
    fits = []
    for residuals in (False, True):
        monkeypatch.setattr("smoothlink.steps.sgd.predicts_most", lambda *a, residuals=residuals: residuals)
        fits.append(e.fitted(4, 0.1, **given))
    assert relative_error(*fits) < 1e-4


def test_residuals_are_sampled_where_classes_have_most_of_the_probability(rng, machine):
    e = Embedded(rng, machine=machine, multiclass=True)
    rows, features = e.rows(), machine.to_device(e.features)
    V = machine.to_device(np.zeros((26, 6), np.float32))
    assert not predicts_most(rows, features, V)  # each has a sixth
    own = np.linalg.lstsq(e.Phi, 20 * e.labels, rcond=None)[0]
    P = softmax(e.Phi @ own, axis=1)
    assert predicts_most(rows, features, machine.to_device(own.astype(np.float32))) == (
        (P * e.labels).sum(1).mean() > 0.5
    )


# Stops


@pytest.mark.parametrize(
    ("multiclass", "momentum", "rotated", "through_files"),
    [(False, 0.9, True, True), (False, 0.0, False, True), (True, 0.9, False, False)],
)
def test_sgd_that_was_stopped_goes_on_exactly(rng, machine, rotated, multiclass, momentum, through_files):
    e = Embedded(rng, machine=machine, multiclass=multiclass)
    rows, sums = e.rows(), e.sums()

    def passes(run):
        given = {"sgd": SGD(momentum=momentum, batch=40, decay=0.7), "rotated": rotated, "seed": 3}
        return sgd_passes(rows, e.features, sums, 0.1, softmax=multiclass, run=run, **given)

    known = np.array(home(next(islice(passes(None), 3, None))))
    run = SGDState()
    next(islice(passes(run), 1, None))
    assert run.passes == 2
    assert (run.velocity is None) == (momentum == 0)
    if through_files:
        run = SGDState(*(None if A is None else np.array(home(A)) for A in (run.V, run.velocity)), run.passes)
    found = home(next(islice(passes(run), 1, None)))
    assert run.passes == 4
    np.testing.assert_array_equal(found, known)
