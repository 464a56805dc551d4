"""Two models side by side: differences under the same draws, labels by name, and a page."""

import datetime

import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, fixed, words

import smoothlink
from smoothlink.metrics.bootstrap import Metric
from smoothlink.metrics.names import better
from smoothlink.reports.comparison import joint_truth, union
from smoothlink.reports.comparison_page import PARTS

DAY = datetime.date(2026, 11, 15)


@pytest.fixture
def data(rng):
    X, Y = words(rng, 150, 40, 6)
    return X[:90], Y[:90], X[90:], Y[90:]


def compare(*case, **given):
    return smoothlink.compare(*case, **{"bootstraps": 30, "date": DAY} | given)


def test_a_model_does_not_differ_from_itself(data):
    X, Y, X_test, Y_test = data
    model = fixed().fit(X, Y)
    found = compare(model, model, X_test, Y_test)
    assert all(metric.difference == (0, 0, 0) for metric in found.metrics.values())
    assert found.agreement.first == found.agreement.second == 0
    assert sum(found.agreement) == 60
    assert "None of 8 measures differs by more than chance" in found.html
    assert "There are none." in found.html


def test_values_are_those_of_evaluate_and_differences_are_between_them(data):
    X, Y, X_test, Y_test = data
    models = fixed().fit(X, Y), fixed(kernel="linear", rank=1).fit(X, Y)
    found = compare(*models, X_test, Y_test)
    for key, metric in models[0].evaluate(X_test, Y_test, bootstraps=30).metrics.items():
        other = models[1].evaluate(X_test, Y_test, bootstraps=30).metrics[key]
        assert found.metrics[key].first == pytest.approx(metric)
        assert found.metrics[key].second == pytest.approx(other)
        assert found.metrics[key].difference.value == pytest.approx(metric.value - other.value)
    back = compare(*models[::-1], X_test, Y_test)
    assert back.metrics["p@1"].difference.value == -found.metrics["p@1"].difference.value


def test_the_order_of_labels_does_not_matter(data, rng):
    X, Y, _, Y_test = data
    order = rng.permutation(6)
    model, other = fixed().fit(X, Y), fixed().fit(X, Y[:, order])
    model.label_names_ = [f"label{j}" for j in range(6)]
    other.label_names_ = [f"label{j}" for j in order]
    shared = union([model.label_names_, other.label_names_])
    truth = joint_truth([sp.csr_array(Y_test), sp.csr_array(Y_test[:, order])], shared)
    assert truth.toarray().tolist() == Y_test.tolist()


def test_a_label_that_one_model_lacks_is_its_miss(data):
    X, Y, X_test, Y_test = data
    whole, part = fixed().fit(X, Y), fixed().fit(X, Y[:, :4])
    found = compare(whole, part, X_test, Y_test, names=("whole", "part"))
    assert found.metrics["micro_f1"].second.value == pytest.approx(
        part.evaluate(X_test, Y_test).metrics["micro_f1"].value
    )
    assert found.metrics["micro_f1"].first.value == pytest.approx(
        whole.evaluate(X_test, Y_test).metrics["micro_f1"].value
    )


def test_labels_unknown_to_both_are_counted(data):
    _, _, _, Y = data
    wide = sp.csr_array(np.hstack([Y, np.ones((60, 2), int)]))
    truth = joint_truth([wide, wide], union([[str(j) for j in range(6)]] * 2))
    assert truth.shape == (60, 8)
    assert np.diff(truth.indptr).tolist() == np.diff(wide.indptr).tolist()


def test_less_is_better_where_it_is():
    up, down, unclear = Metric(0.1, 0.05, 0.2), Metric(-0.1, -0.2, -0.05), Metric(0.1, -0.1, 0.2)
    assert [better("p@1", d) for d in (up, down, unclear)] == [1, -1, 0]
    assert [better("error", d) for d in (up, down, unclear)] == [-1, 1, 0]
    assert better("p@1", Metric(0.1, np.nan, np.nan)) == 0


def test_the_page_has_all_sections_and_escapes_names(data, tmp_path):
    X, Y, X_test, Y_test = data
    models = fixed().fit(X, Y), fixed(kernel="linear", rank=1).fit(X, Y)
    found = compare(*models, X_test, Y_test, tmp_path / "c.html", names=("<b>new</b>", "old"))
    assert (tmp_path / "c.html").read_text("utf-8") == found.html
    assert "<b>" not in found.html
    assert "&lt;b&gt;new" in found.html
    assert [f'<section id="{part}"' in found.html for part in PARTS] == [True] * len(PARTS)


def test_classes_are_compared_too(rng):
    X, y = classes(rng)
    found = compare(fixed(rank=2).fit(X, y), fixed(rank=1).fit(X, y), X, y)
    assert "error" in found.metrics


def test_models_without_a_common_label_are_refused(data):
    X, Y, X_test, Y_test = data
    models = fixed().fit(X, Y), fixed().fit(X, Y)
    for model, word in zip(models, "ab", strict=True):
        model.label_names_ = [f"{word}{j}" for j in range(6)]
    with pytest.raises(smoothlink.DataError, match="no label in common"):
        compare(*models, X_test, Y_test)
