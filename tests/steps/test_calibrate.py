"""Calibration: monotone maps that reproduce known curves, and losses against direct computation."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss

from smoothlink.steps.calibrate import (
    LEAST_PROBABILITY,
    Calibration,
    Histogram,
    PairSample,
    TopLabels,
    add_up,
    fading_terms,
    fit_multiclass,
    no_calibration,
    row_logloss,
    stretch,
)

LOSSES = ["squared", "logistic"]


def scores_of(rng, loss, shape):
    """Scores in the range that each loss gives."""
    Z = rng.standard_normal(shape)
    return (0.2 + 0.4 * Z if loss == "squared" else 2 * Z - 2).astype(np.float32)


def sampled(rng, P):
    """Labels with the probabilities P."""
    return sp.csr_array((rng.random(P.shape) < P).astype(np.float32))


def filled(loss, scores, Y, w):
    histogram = Histogram(loss)
    histogram.add(scores, Y, w)
    return histogram


# The map


@pytest.mark.parametrize("loss", LOSSES)
def test_the_map_is_monotone_and_strictly_between_0_and_1(rng, loss):
    S = scores_of(rng, loss, (200, 30))
    calibration = filled(loss, S, sampled(rng, np.clip(S, 0, 1)), np.ones(200)).monotone()
    wide = np.sort(np.concatenate([S.ravel(), np.linspace(-1e6, 1e6, 101, dtype=np.float32)]))
    P = calibration.probabilities(wide, loss=loss)
    assert P.dtype == np.float32
    assert (np.diff(P) >= 0).all()
    assert P.min() > 0
    assert P.max() < 1
    assert (np.diff(calibration.knots) >= 0).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("factor", [1e-6, 100])
def test_the_map_does_not_depend_on_the_unit_of_the_weights(rng, loss, factor):
    S = scores_of(rng, loss, (200, 30))
    Y, w = sampled(rng, np.clip(S, 0, 1)), rng.random(200) * (rng.random(200) < 0.8)
    one, other = (filled(loss, S, Y, weights).monotone() for weights in (w, factor * w))
    np.testing.assert_allclose(other.probabilities(S, loss=loss), one.probabilities(S, loss=loss), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_labels_that_are_all_equal_still_leave_the_other_outcome_possible(rng, share):
    S = scores_of(rng, "logistic", (50, 4))
    P = (
        filled("logistic", S, sampled(rng, np.full((50, 4), share)), np.ones(50))
        .monotone()
        .probabilities(S, loss="logistic")
    )
    assert np.abs(P - share).max() < 0.01
    assert P.min() > 0
    assert P.max() <= 1


@pytest.mark.parametrize(
    ("loss", "curve"),
    [
        ("squared", lambda s: np.clip(s, 0.05, 0.95) ** 2),
        ("squared", lambda s: expit(8 * s - 4)),
        ("logistic", lambda s: expit(s / 2 - 1)),
        ("logistic", expit),
    ],
)
def test_a_known_curve_is_reproduced(rng, loss, curve):
    S = scores_of(rng, loss, (2000, 100))
    calibration = filled(loss, S, sampled(rng, curve(S)), np.ones(2000)).monotone()
    grid = np.quantile(S, np.linspace(0.02, 0.98, 60)).astype(np.float32)
    # A block of some 500 pairs has a standard error of .02.
    np.testing.assert_allclose(calibration.probabilities(grid, loss=loss), curve(grid), atol=0.05)


def test_the_map_is_isotonic_regression_where_every_score_has_its_own_bin(rng):
    S = np.linspace(-3, 3, 40, dtype=np.float32)[:, None]
    Y = sampled(rng, expit(S))
    w = 0.5 + rng.random(40)  # no two blocks have the same share of positives by chance
    calibration = filled("logistic", S, Y, w).monotone()
    exact = IsotonicRegression().fit(S.ravel(), Y.toarray().ravel().astype(float), w).predict(S.ravel())
    blocks = np.split(np.arange(40), np.flatnonzero(np.diff(exact) > 1e-9) + 1)
    rate = w @ Y.toarray().ravel() / w.sum()
    # Each block is one knot at its mean score, the outer blocks another at their inner ends; one pair of mean
    # weight at the overall rate is added to each block.
    means = [np.average(S[b, 0], weights=w[b]) for b in blocks]
    knots = [means[0], S[blocks[0][-1], 0], *means[1:-1], S[blocks[-1][0], 0], means[-1]]
    np.testing.assert_allclose(calibration.knots, knots, atol=1e-6)
    values = np.maximum.accumulate(
        [(w[b].sum() * exact[b[0]] + w.mean() * rate) / (w[b].sum() + w.mean()) for b in blocks]
    )
    np.testing.assert_allclose(calibration.values, [values[0], *values, values[-1]], atol=1e-9)


@pytest.mark.parametrize(("loss", "scale"), [("squared", 1), ("logistic", 20)])
def test_separable_labels_are_certain_up_to_the_gap(rng, loss, scale):
    """Negatives crowd at 0 with a tail up to 0.2, positives lie above 0.8: only the gap between them is a ramp."""
    negative, positive = 0.2 * rng.random((2000, 1)) ** 4, 0.8 + 0.2 * rng.random((100, 1))
    S = scale * np.vstack([negative, positive]).astype(np.float32)
    Y = sp.csr_array((S / scale > 0.5).astype(np.float32))
    P = filled(loss, S, Y, np.ones(len(S))).monotone().probabilities(S, loss=loss)
    assert P[:2000].max() < 0.02  # an end is the mean of its bin, not quite the outermost score
    assert P[2000:].min() > 0.97


def test_without_knots_scores_are_clipped_or_go_through_the_sigmoid(rng):
    S = scores_of(rng, "logistic", (5, 3))
    before = S.copy()
    np.testing.assert_array_equal(no_calibration().probabilities(S, loss="squared"), np.clip(S, 0, 1))
    np.testing.assert_allclose(no_calibration().probabilities(S, loss="logistic"), expit(S), atol=1e-6)
    np.testing.assert_array_equal(S, before)


@pytest.mark.parametrize("loss", LOSSES)
def test_stretch_is_odd_and_ascending(rng, loss):
    S = np.sort(rng.standard_normal(100))
    np.testing.assert_allclose(stretch(-S, loss), -stretch(S, loss))
    assert (np.diff(stretch(S, loss)) > 0).all()


# The histogram


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [1, 7])
def test_a_histogram_filled_in_blocks_is_one_filled_at_once(rng, loss, size):
    S, w = scores_of(rng, loss, (60, 9)), rng.random(60)
    Y = sampled(rng, np.clip(S, 0, 1))
    once, blocks = filled(loss, S, Y, w), Histogram(loss)
    for start in range(0, 60, size):
        part = slice(start, start + size)
        blocks.add(S[part], Y[part], w[part])
    for name in ("pairs", "positives", "places"):
        np.testing.assert_allclose(getattr(blocks, name), getattr(once, name), atol=1e-12)
    assert blocks.brier() == pytest.approx(once.brier(), rel=1e-12)


def test_the_histogram_counts_every_pair_even_far_out(rng):
    S = np.array([[-1e30, 1e30, 0.0]], np.float32)
    for loss in LOSSES:
        histogram = filled(loss, S, sp.csr_array(np.float32([[0, 1, 0]])), np.array([2.0]))
        assert histogram.pairs.sum() == 6
        assert histogram.positives.sum() == 2
        assert histogram.brier() == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_brier_is_the_squared_error_of_the_isotonic_fit(rng, loss):
    S = scores_of(rng, loss, (300, 8))
    Y, w = sampled(rng, np.clip(S, 0.1, 0.9)), rng.integers(1, 4, 300).astype(np.float64)
    histogram = filled(loss, S, Y, w)
    # The same on binned scores by scikit-learn: isotonic regression of all pairs on their bins' numbers.
    bins = np.clip(np.digitize(stretch(S, loss), histogram.edges) - 1, 0, len(histogram.pairs) - 1)
    x, y, weights = bins.ravel().astype(float), Y.toarray().ravel(), np.repeat(w, 8)
    p = IsotonicRegression().fit(x, y, weights).predict(x)
    direct = brier_score_loss(y, np.clip(p, 0, 1), sample_weight=weights) * weights.sum()
    assert histogram.brier() == pytest.approx(direct, rel=1e-6)


def test_brier_forgives_any_monotone_change_of_scale(rng):
    S = scores_of(rng, "logistic", (200, 8))
    Y = sampled(rng, expit(S))
    a, b = (filled("logistic", s, Y, np.ones(200)).brier() for s in (S, 5 * S + 3))
    assert a == pytest.approx(b, rel=0.03)  # bins are finer in places
    assert filled("logistic", -S, Y, np.ones(200)).brier() > 1.1 * a


def test_an_empty_histogram_calibrates_nothing():
    histogram = Histogram("squared")
    assert len(histogram.monotone().knots) == 0
    assert histogram.brier() == 0


# Multiclass


def sampled_classes(rng, L):
    """A class of each row, drawn by the softmax of its log-odds (n, c)."""
    P = softmax(L, axis=1)
    return (P.cumsum(axis=1) < rng.random((len(L), 1))).sum(axis=1).clip(0, L.shape[1] - 1)


def class_log_odds(calibration, S, loss):
    return calibration.log_odds(S, slice(None), loss=loss).astype(np.float64)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 7.0])
def test_the_probabilities_of_sampled_classes_are_found(rng, temperature):
    S = rng.standard_normal((20_000, 4)).astype(np.float32)
    labels = sampled_classes(rng, temperature * S)
    loss, calibration = fit_multiclass(S, labels, np.ones(20_000), loss="softmax")
    fitted = softmax(class_log_odds(calibration, S, "softmax"), axis=1)
    assert loss == pytest.approx(log_loss(labels, fitted, labels=range(4)), rel=1e-5)
    assert np.abs(fitted - softmax(temperature * S, axis=1)).mean() < 0.02
    assert loss < log_loss(labels, softmax(temperature * S.astype(float), axis=1)) + 2e-3


def test_classes_whose_squared_scores_are_no_logits_are_calibrated_beyond_any_temperature(rng):
    P = rng.dirichlet(np.full(50, 0.05), 4000)  # scores of a squared loss are probabilities themselves
    S = P.astype(np.float32)
    labels = (P.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1).clip(0, 49)
    loss = fit_multiclass(S, labels, np.ones(4000), loss="squared")[0]
    exact = log_loss(labels, P, labels=range(50))
    at_best = min(log_loss(labels, softmax(t * P, axis=1), labels=range(50)) for t in (1, 2, 4, 6, 8, 12, 16))
    assert loss < exact + 0.2 * (at_best - exact)


def test_squared_scores_that_are_the_probabilities_of_classes_stay_what_they_are(rng):
    P = rng.dirichlet(np.full(50, 0.05), 4000)
    S = P.astype(np.float32)
    labels = (P.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1).clip(0, 49)
    calibration = fit_multiclass(S, labels, np.ones(4000), np.full(50, 0.02), loss="squared")[1]
    fitted = softmax(class_log_odds(calibration, S, "squared"), axis=1)
    assert np.abs(fitted - P).sum(axis=1).mean() < 0.06  # softmax of the isotonic map of pairs: .09


def test_rare_classes_get_what_is_theirs(rng):
    frequencies = np.geomspace(0.3, 0.002, 30)
    frequencies /= frequencies.sum()
    S = rng.standard_normal((8000, 30)).astype(np.float32)
    labels = sampled_classes(rng, S + np.log(frequencies))
    calibration = fit_multiclass(S, labels, np.ones(8000), frequencies, loss="softmax")[1]
    expected = softmax(class_log_odds(calibration, S, "softmax"), axis=1).sum(axis=0)
    true = np.bincount(labels, minlength=30)
    for part in (slice(0, 15), slice(15, 30)):
        assert expected[part].sum() == pytest.approx(true[part].sum(), rel=0.05)


def test_multiclass_maps_respect_weights(rng):
    S = rng.standard_normal((300, 3)).astype(np.float32)
    labels, w = rng.integers(0, 3, 300), rng.integers(1, 4, 300)
    again = np.repeat(np.arange(300), w)
    a = fit_multiclass(S, labels, w.astype(float), loss="softmax")
    b = fit_multiclass(S[again], labels[again], np.ones(len(again)), loss="softmax")
    assert a[0] == pytest.approx(b[0], rel=1e-3)


def test_no_held_out_class_is_no_calibration():
    loss, calibration = fit_multiclass(np.zeros((0, 3), np.float32), np.zeros(0, int), np.zeros(0), loss="squared")
    assert loss == np.inf
    assert calibration.labels is None
    assert not len(calibration.knots)


# Maps of labels


def labels_of_two_kinds(rng, n=3000, frequent=10, rare=200):
    """Scores that are the same for all labels, and the truth: rare labels are a hundred times less likely at each."""
    S = rng.standard_normal((n, frequent + rare)).astype(np.float32)
    shift = np.repeat([-1.0, -5.6], [frequent, rare])
    P = expit(1.5 * S + shift)
    return S, sampled(rng, P), P


def label_maps_of(S, Y, frequencies, loss="logistic", w=None):
    w = np.ones(len(S)) if w is None else w
    histogram, sample = Histogram(loss), PairSample(S.size, frequencies)
    for labels in (slice(0, 5), slice(5, S.shape[1])):
        histogram.add(S[:, labels], sp.csr_array(sp.csc_array(Y)[:, labels]), w)
        sample.add(labels, S[:, labels], sp.csr_array(sp.csc_array(Y)[:, labels]), w)
    return histogram.monotone(), sample.fit(histogram.monotone(), loss=loss)


def test_rare_and_frequent_labels_of_the_same_score_get_their_own_probabilities(rng):
    S, Y, P = labels_of_two_kinds(rng)
    shared, found = label_maps_of(S, Y, P.mean(axis=0))
    S_new, Y_new, P_new = labels_of_two_kinds(rng)
    Q = found.probabilities(found.log_odds(S_new, slice(None), loss="logistic"), loss="logistic")
    for part in (slice(0, 10), slice(10, None)):
        assert Q[:, part].sum() == pytest.approx(Y_new[:, part].sum(), rel=0.1)
        assert np.abs(Q[:, part] - P_new[:, part]).mean() < 0.15 * P_new[:, part].mean()
    one_map = shared.probabilities(S_new, loss="logistic")
    assert one_map[:, 10:].sum() > 2 * Y_new[:, 10:].sum()
    assert row_logloss(Q, Y_new, multiclass=False).mean() < 0.97 * row_logloss(one_map, Y_new, multiclass=False).mean()


def test_labels_are_placed_by_their_frequencies_in_the_rows_that_were_fitted(rng):
    S, Y = rng.standard_normal((6, 3)).astype(np.float32), sp.csr_array(np.ones((6, 3)))
    fitted, folds = np.array([[0.1, 0.2, 0.4], [0.4, 0.0, 0.1]]), np.array([0, 0, 1, 1, 1, 1])
    sample = PairSample(S.size, np.array([0.25, 0.1, 0.2]), fitted, folds)
    sample.add(slice(0, 3), S, Y, np.ones(6))
    places = np.concatenate([part[1] for part in sample.parts])
    wanted = [0, 0.5, 1] * 2 + [1, 0] * 4  # label 1 has no rows in the second fit
    assert sorted(places) == pytest.approx(sorted(wanted))


@pytest.mark.parametrize("shift", [-1.0, 2.0])
def test_probabilities_of_rare_labels_add_up_to_the_true_pairs(rng, shift):
    places, g, w = rng.random(20_000), 3 * rng.standard_normal(20_000) - 2, rng.random(20_000)
    q = expit(-g) ** 2
    true = rng.random(20_000) < expit(g + shift * (1 - places))  # also where q is small
    theta = add_up(np.array([0.3, -0.2, 0.1, 0.1, -0.1]), (g, q, q * g), places, true, w)
    p = expit(fading_terms(q, q * g, places) @ theta + g)
    rare = w * (1 - places) ** 2
    assert rare @ p == pytest.approx(rare @ true, rel=1e-6)


def test_labels_of_one_frequency_keep_the_shared_map(rng):
    S = rng.standard_normal((2000, 20)).astype(np.float32)
    Y = sampled(rng, expit(2 * S - 2))
    shared, found = label_maps_of(S, Y, np.full(20, 0.2))
    Q = found.probabilities(found.log_odds(S, slice(None), loss="logistic"), loss="logistic")
    assert np.abs(Q - shared.probabilities(S, loss="logistic")).mean() < 0.01


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_log_odds_of_a_label_rise_with_its_score_everywhere(rng, loss):
    S = rng.standard_normal((400, 30)).astype(np.float32)
    frequencies = np.geomspace(0.5, 0.01, 30)
    Y = sampled(rng, np.clip(frequencies * (1 + 0.5 * np.sin(5 * S)), 0, 1))  # no map fits that
    found = label_maps_of(S, Y, frequencies, loss)[1]
    grid = np.sort(rng.uniform(-3, 3, (500, 1)).astype(np.float32), axis=0)
    L = found.log_odds(np.repeat(grid, 30, axis=1), slice(None), loss=loss)
    assert (np.diff(L, axis=0) > 0).all()


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_logits_that_are_right_stay_as_they_are_and_others_do_not(rng, factor):
    L = 2 * rng.standard_normal((1000, 20)) - 3
    Y = sp.csr_array((rng.random(L.shape) < expit(L)).astype(np.float32))
    found = label_maps_of((factor * L).astype(np.float32), Y, Y.mean(axis=0))[1]
    assert len(found.knots) == 0 if factor == 1 else found.labels is not None


def test_label_maps_respect_weights(rng):
    S, w = rng.standard_normal((2000, 12)).astype(np.float32), rng.integers(1, 4, 2000)
    frequencies = np.geomspace(0.5, 0.02, 12)
    Y = sampled(rng, expit(S + np.log(frequencies)))
    again = np.repeat(np.arange(2000), w)
    found = label_maps_of(S, Y, frequencies, w=w.astype(float)), label_maps_of(S[again], Y[again], frequencies)
    a, b = (expit(maps.log_odds(S, slice(None), loss="logistic")) for _, maps in found)
    np.testing.assert_allclose(a.mean(axis=0), b.mean(axis=0), rtol=0.01)
    assert np.abs(a - b).mean() < 0.002


def test_a_sample_of_pairs_gives_nearly_the_maps_of_all(rng, monkeypatch):
    S, Y, P = labels_of_two_kinds(rng)
    whole = label_maps_of(S, Y, P.mean(axis=0))[1]
    monkeypatch.setattr("smoothlink.steps.calibrate.SAMPLED_PAIRS", 60_000)
    some = label_maps_of(S, Y, P.mean(axis=0))[1]
    grid = np.repeat(np.linspace(-2, 2, 9, dtype=np.float32)[:, None], 210, axis=1)
    a, b = (found.log_odds(grid, slice(None), loss="logistic") for found in (whole, some))
    np.testing.assert_allclose(a, b, atol=0.25)


# Log-loss


def test_row_logloss_is_scikit_learns_summed_over_labels(rng):
    P = expit(2 * rng.standard_normal((40, 6)))
    Y = sampled(rng, P)
    exact = [log_loss(Y.toarray()[i], P[i], normalize=False, labels=[0, 1]) for i in range(40)]
    np.testing.assert_allclose(row_logloss(P, Y, multiclass=False), exact, rtol=1e-9)


def test_row_logloss_of_classes_is_scikit_learns(rng):
    P = softmax(rng.standard_normal((40, 6)), axis=1)
    labels = rng.integers(0, 6, 40)
    Y = sp.csr_array((np.ones(40), labels, np.arange(41)), (40, 6))
    exact = [log_loss(labels[i : i + 1], P[i : i + 1], labels=range(6)) for i in range(40)]
    np.testing.assert_allclose(row_logloss(P, Y, multiclass=True), exact, rtol=1e-9)


def test_certain_errors_cost_what_the_least_probability_says():
    P, Y = np.float32([[0, 1, 0.5]]), sp.csr_array(np.float32([[1, 0, 1]]))
    assert row_logloss(P.astype(np.float64), Y, multiclass=False)[0] == pytest.approx(
        -2 * np.log(LEAST_PROBABILITY) + np.log(2)
    )
    nobody = sp.csr_array((1, 3), dtype=np.float32)
    assert row_logloss(P, nobody, multiclass=True)[0] == pytest.approx(-np.log(LEAST_PROBABILITY))


def test_a_calibration_has_temperature_one_by_default():
    assert Calibration(np.zeros(0), np.zeros(0)).temperature == 1


# Top-1 recalibration


def one_label_problem(rng, n=4000, c=6):
    """Scores on the logit scale; single pairs are calibrated, but rows have exactly one label."""
    S = rng.normal(-2, 1.5, (n, c)).astype(np.float32)
    P = np.exp(S) / np.exp(S).sum(axis=1, keepdims=True)
    Y = (np.cumsum(P, axis=1) > rng.random((n, 1))).cumsum(axis=1) == 1
    return S, sp.csr_array(Y.astype(np.float32))


def held_map(S, Y, loss="logistic"):
    histogram, top_labels, w = Histogram(loss), TopLabels(len(S)), np.ones(len(S))
    histogram.add(S, Y, w)
    top_labels.add(S, Y)
    return histogram.monotone(), top_labels.recalibrate(histogram.monotone(), w, loss=loss)


def test_top_labels_are_as_likely_as_their_probability_where_single_scores_cannot_tell(rng):
    (S, Y), (S_new, Y_new) = one_label_problem(rng), one_label_problem(rng)
    plain, found = held_map(S, Y)
    best = S_new.argmax(axis=1)
    p = plain.probabilities(S_new, loss="logistic")[np.arange(len(best)), best]
    hits = Y_new.toarray()[np.arange(len(best)), best].mean()
    assert hits - p.mean() > 0.05
    assert abs(hits - found.recalibrate_top1(p).mean()) < (hits - p.mean()) / 2
    assert (found.recalibrate_top1(p) >= p).all()


def test_top_labels_found_in_blocks_are_those_of_all(rng):
    S, Y = one_label_problem(rng, n=50)
    whole, parts = TopLabels(50), TopLabels(50)
    whole.add(S, Y)
    for labels in (slice(0, 1), slice(1, 4), slice(4, 4), slice(4, 6)):
        parts.add(S[:, labels], sp.csr_array(sp.csc_array(Y)[:, labels]))
    np.testing.assert_array_equal(parts.scores, S.max(axis=1))
    np.testing.assert_array_equal(parts.hits, whole.hits)
    np.testing.assert_array_equal(whole.hits, Y.toarray()[np.arange(50), S.argmax(axis=1)] > 0)


def test_few_rows_leave_top_labels_nearly_as_they_are(rng):
    S, Y = one_label_problem(rng, n=2)
    a, b = held_map(S, Y)[1].top1
    assert abs(a) < 1
    assert abs(b - 1) < 1
    assert no_calibration()._replace(top1=(0.0, 1.0)).recalibrates_top1 is False


def test_classes_that_are_all_predicted_keep_a_row_of_doubt(rng):
    n, c = 60, 3
    labels = np.arange(n) % c
    scores = (5 * np.eye(c)[labels] + 0.1 * rng.standard_normal((n, c))).astype(np.float32)
    _, calibration = fit_multiclass(scores, labels, np.ones(n), np.full(c, 1 / c), loss="softmax")
    wrong = 1 - softmax(calibration.log_odds(scores, slice(None), loss="softmax"), axis=1)[np.arange(n), labels]
    assert 0.2 / (n + 1) < wrong.mean() < 1 / (n + 1)
