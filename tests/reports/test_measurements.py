"""The numbers of a report against counts by hand."""

import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, dense, fixed, words

from smoothlink.reports.labelled_rows import labelled_rows
from smoothlink.reports.measurements import FOUND, FREQUENCY_EDGES, confusions, measure


@pytest.fixture
def case(rng):
    X, Y = words(rng, 150, 40, 8)
    Y[:, 6] = rng.random(150) < 0.02
    model = fixed(calibrate=True).fit(X[:90], Y[:90])
    return model, sp.csr_array(X[90:]), Y[90:], Y[:90]


def measured(case, **given):
    model, X, Y, _ = case
    return measure(labelled_rows(model, X, Y), **{"bootstraps": 0} | given)


def test_metrics_are_those_of_evaluate(case):
    model, X, Y, _ = case
    found = measured(case, bootstraps=40, seed=3)
    for key, metric in model.evaluate(X, Y, bootstraps=40, seed=3).metrics.items():
        assert found.metrics[key] == pytest.approx(metric)
    assert found.top.error == pytest.approx(found.metrics["ece_top"].value)


def test_counts_are_those_of_labels(case):
    model, X, Y, train = case
    found, P = measured(case).counts, model.predict_proba(X)
    assert found.true.tolist() == Y.sum(axis=0).tolist()
    assert found.train.tolist() == train.sum(axis=0).tolist()
    assert found.expected == pytest.approx(P.sum(axis=0), rel=1e-4)
    assert found.sets.tolist() == (P > 0.5).sum(axis=0).tolist()
    assert found.hits.tolist() == ((P > 0.5) & (Y > 0)).sum(axis=0).tolist()


def test_groups_hold_every_label_once_and_count_what_is_found(case):
    model, X, Y, train = case
    found, first = measured(case), model.predict_topk(X, k=FOUND).indices.reshape(60, -1)
    for group in found.groups:
        mine = [j for j, n in enumerate(train.sum(axis=0)) if group.least <= n <= (group.most or np.inf)]
        assert (group.labels, group.pairs) == (len(mine), Y[:, mine].sum())
        hits = sum(Y[i, j] for i in range(60) for j in first[i] if j in mine)
        assert group.recall == pytest.approx(hits / max(1, group.pairs))
        assert group.precision == pytest.approx(hits / max(1, np.isin(first, mine).sum()))
    assert sum(group.labels for group in found.groups) == 8
    assert {group.least for group in found.groups} <= set(FREQUENCY_EDGES)


def test_confusions_count_wrong_labels_in_the_place_of_missed_ones(rng):
    Y = (rng.random((80, 6)) < 0.4).astype(float)
    ranked = np.array([rng.permutation(6)[:4] for _ in range(80)])
    hit = np.take_along_axis(Y, ranked, axis=1) > 0
    expected = np.zeros((6, 6), int)
    for y, places in zip(Y, ranked, strict=True):
        first = places[: int(y.sum())].tolist()
        for true in np.flatnonzero(y):
            for predicted in first:
                expected[true, predicted] += not y[predicted] and true not in first
    found = confusions(sp.csr_array(Y), ranked, hit, 6, most=100)
    assert {(one.true, one.predicted): one.rows for one in found} == {
        (i, j): expected[i, j] for i in range(6) for j in range(6) if expected[i, j]
    }
    assert [one.rows for one in found] == sorted((one.rows for one in found), reverse=True)
    assert all(one.of == Y[:, one.true].sum() for one in found)


def test_labels_unknown_to_the_model_are_misses_and_never_confused(case):
    model, X, Y, train = case
    wide = np.hstack([Y, np.ones((60, 1), int)])
    found = measured((model, X, wide, train))
    assert found.evaluation.n_unknown_labels == 1
    assert found.thresholds.recall.max() < measured(case).thresholds.recall.max()
    assert all(one.true < 8 and one.predicted < 8 for one in found.confused)


def test_one_class_per_row_is_measured_too(rng):
    X, y = classes(rng)
    model = fixed(rank=2, loss="auto").fit(X, y)
    found = measure(labelled_rows(model, X, y), bootstraps=0)
    assert found.metrics["error"].value == pytest.approx(1 - found.metrics["p@1"].value)
    assert sum(one.rows for one in found.confused) == round(90 * found.metrics["error"].value)
    assert found.ks == (1, 2, 3)
    assert found.counts.expected.sum() == pytest.approx(90, rel=1e-3)
    assert dense(found.Y).shape[1] >= 3
