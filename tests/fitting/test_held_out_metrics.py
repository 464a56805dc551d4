"""The metrics of held-out rows are those that `evaluate` gives for them."""

import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, words

from smoothlink import SmoothLinkClassifier
from smoothlink.fitting.held_out_metrics import HeldOutRanking
from smoothlink.fitting.holdout import few_rows


def test_they_are_those_of_evaluate_on_the_rows_that_a_quick_fit_does_without(rng):
    X, Y = words(rng, 5200, 40, 8)  # more than are calibrated by folds
    X = X + sp.csr_array(np.eye(1, 40).repeat(5200, axis=0))  # no row is empty: labels of equal frequency tie there
    model = SmoothLinkClassifier(effort="quick", random_state=3).fit(sp.csr_array(X), Y)
    held = few_rows(np.ones(5200), 3)
    expected = model.evaluate(sp.csr_array(X[held]), Y[held], bootstraps=0).metrics
    found = dict(model.summary_["held_out_metrics"])
    assert found.pop("rows") == len(held) == model.summary_["held_out_rows"]
    assert found == {key: pytest.approx(expected[key].value) for key in ("p@1", "p@3", "p@5", "micro_f1")}


def test_a_full_fit_of_classes_has_the_accuracy_of_its_folds(rng):
    X, y = classes(rng)
    model = SmoothLinkClassifier(rank=2).fit(X, y)
    found = model.summary_["held_out_metrics"]
    assert found.keys() == {"rows", "p@1", "p@3"}  # of three classes
    assert found["rows"] == len(y)  # few rows are all held out in turn
    assert 0.5 < found["p@1"] <= 1
    assert found["p@3"] == pytest.approx(1 / 3)


def test_nothing_held_out_means_no_metrics(rng):
    X, Y = words(rng, 60, 20, 3)
    assert SmoothLinkClassifier(effort="quick", calibrate=False).fit(X, Y).summary_["held_out_metrics"] is None


def test_rows_count_by_their_weight(rng):
    S, Y = rng.random((40, 7)).astype(np.float32), sp.csr_array((rng.random((40, 7)) < 0.3).astype(np.float32))
    times = rng.integers(0, 3, 40)

    def measured(S, Y, w):
        found = HeldOutRanking(*S.shape)
        for block in (slice(0, 4), slice(4, 7)):
            found.add(S[:, block])
        return found.precisions(Y, w)

    weighted = measured(S, Y, times.astype(float))
    again = np.repeat(np.arange(40), times)
    repeated = measured(S[again], sp.csr_array(Y[again]), np.ones(len(again)))
    assert weighted.pop("rows") == np.count_nonzero(times)
    assert repeated.pop("rows") == len(again)
    assert weighted == pytest.approx(repeated)
