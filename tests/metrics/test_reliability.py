"""Reliability and thresholds: fine bins of all pairs against the pairs themselves."""

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.metrics.evaluate import Predictions, evaluate
from smoothlink.metrics.reliability import FINE, PairCounts, Reliability, equal_mass_bins, reliability, wilson


def predicted_and_true(rng, n=300, c=7):
    P = rng.beta(0.3, 2, (n, c)).astype(np.float32)
    return P, sp.csr_array((rng.random((n, c)) < P).astype(np.float32))


def counted(P, Y, size):
    pairs = PairCounts(P.shape[1])
    for start in range(0, P.shape[1], size):
        part = slice(start, min(P.shape[1], start + size))
        pairs.add(part, np.ascontiguousarray(P[:, part]), sp.csr_array(Y[:, part]))
    return pairs


def test_a_threshold_gives_what_predicting_the_pairs_above_it_gives(rng):
    P, Y = predicted_and_true(rng)
    P = np.round(P * 1000) / 1000  # thresholds fall between two bins, whichever way numbers are rounded
    P += 0.4 / FINE
    curve, y = counted(P.astype(np.float32), Y, 7).threshold_curve(300, Y.nnz), Y.toarray() > 0
    for i, t in enumerate(curve.thresholds):
        chosen = t <= P
        hits, count = (chosen & y).sum(), chosen.sum()
        assert curve.precision[i] == pytest.approx(hits / max(1, count))
        assert curve.recall[i] == pytest.approx(hits / Y.nnz)
        assert curve.f1[i] == pytest.approx(2 * hits / (count + Y.nnz))
        assert curve.labels_per_row[i] == pytest.approx(count / 300)
    assert curve.f1[curve.best] == curve.f1.max()


def test_blocks_of_labels_add_up_to_all_at_once(rng):
    P, Y = predicted_and_true(rng)
    whole, parts = counted(P, Y, 7), counted(P, Y, 2)
    for name in ("count", "predicted", "true", "expected", "spread"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name))
    assert whole.expected == pytest.approx(P.sum(axis=0), rel=1e-5)
    assert whole.spread == pytest.approx((P * (1 - P)).sum(axis=0), rel=1e-4)


def test_reliability_of_pairs_is_that_of_the_pairs_themselves_up_to_the_width_of_a_fine_bin(rng):
    P, Y = predicted_and_true(rng, 2000)
    found, kept = counted(P, Y, 3).reliability(least=0.05), P >= 0.05
    exact = reliability(P[kept].astype(float), (Y.toarray() > 0)[kept])
    assert found.mass.sum() == kept.sum()
    assert found.mass == pytest.approx(exact.mass, abs=0.005 * kept.sum())
    assert found.error == pytest.approx(exact.error, abs=0.005)
    assert (np.diff(found.predicted) > 0).all()


def test_the_error_is_the_metric_ece_top(rng):
    P, Y = predicted_and_true(rng)
    best = np.argmax(P, axis=1)
    p, hit = P.max(axis=1), Y.toarray()[np.arange(300), best] > 0
    topk = sp.csr_array((p, best, np.arange(301)), (300, 7))
    metric = evaluate(
        Y, Predictions(topk=topk, top_probability=p), label_counts=np.ones(7), n_train=9, ks=(1,), bootstraps=0
    )
    assert reliability(p.astype(float), hit).error == pytest.approx(metric.metrics["ece_top"].value)


def test_probabilities_that_are_right_have_little_error_and_those_that_are_not_have_much(rng):
    p = rng.random(20000)
    true = rng.random(20000) < p
    assert reliability(p, true).error < 0.02
    assert reliability(p**3, true).error > 0.2


def test_equal_probabilities_share_a_bin():
    assert len(set(equal_mass_bins(np.full(40, 0.3)).tolist())) == 1
    found = reliability(np.full(40, 0.3), np.arange(40) < 10)
    assert [v.tolist() for v in found] == [[pytest.approx(0.3)], [0.25], [40]]


def test_pairs_of_low_probability_are_in_no_bin():
    found = counted(np.full((5, 2), 0.02, np.float32), sp.csr_array((5, 2)), 2).reliability()
    assert (len(found.predicted), found.error) == (0, 0.0)
    assert Reliability(np.zeros(0), np.zeros(0), np.zeros(0)).error == 0


def test_wilson_is_the_textbook_interval():
    """Of 20 cases 5: .1269 to .4328, solved from |p - s| = z sqrt(p (1 - p) / n)."""
    low, high = wilson(np.array([0.25]), np.array([20.0]))
    for p in (low[0], high[0]):
        assert abs(p - 0.25) == pytest.approx(1.645 * np.sqrt(p * (1 - p) / 20))
    assert wilson(np.array([0.0]), np.array([9.0]))[0][0] == pytest.approx(0, abs=1e-12)
