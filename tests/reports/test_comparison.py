"""Two models side by side: the numbers of `evaluate`, differences under the same draws, and a page."""

import datetime

import pytest
from small import classes, fixed, words

import smoothlink
from smoothlink.reports.comparison import SECTIONS_OF_TWO
from smoothlink.reports.example_rows import compared_row, shown_row
from smoothlink.reports.labelled_rows import labelled_rows

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


def test_models_of_other_labels_and_rows_keep_their_own_numbers(data):
    """PSP weighs labels by the training rows of the model that is measured; a label that it lacks is missed."""
    X, Y, X_test, Y_test = data
    whole, part = fixed().fit(X, Y), fixed().fit(X[:50], Y[:50, :4])
    found = compare(whole, part, X_test, Y_test, names=("whole", "part"))
    for side, model in (("first", whole), ("second", part)):
        expected = model.evaluate(X_test, Y_test, bootstraps=30).metrics
        for key in ("psp@1", "psndcg@3", "micro_f1", "macro_f1", "hamming", "p@1"):
            assert getattr(found.metrics[key], side) == pytest.approx(expected[key])
    assert "know different labels (6 and 4)" in found.note
    assert "know different labels (6 and 4)" in found.html
    assert "trained on different rows" in compare(whole, fixed().fit(X[:50], Y[:50]), X_test, Y_test).note
    assert compare(whole, whole, X_test, Y_test).note == ""


def test_the_page_has_all_sections_and_escapes_names(data, tmp_path):
    X, Y, X_test, Y_test = data
    models = fixed().fit(X, Y), fixed(kernel="linear", rank=1).fit(X, Y)
    found = compare(*models, X_test, Y_test, tmp_path / "c.html", names=("<b>new</b>", "old"))
    assert (tmp_path / "c.html").read_text("utf-8") == found.html
    assert "<b>" not in found.html
    assert "&lt;b&gt;new" in found.html
    assert [f'<section id="{name}"' in found.html for name in SECTIONS_OF_TWO] == [True] * len(SECTIONS_OF_TWO)


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


def test_a_label_of_a_row_has_one_mark_in_report_and_comparison(data):
    X, Y, X_test, Y_test = data
    model, other = fixed().fit(X, Y), fixed(kernel="linear", rank=1).fit(X, Y)
    measured = compare(model, other, X_test, Y_test).measured
    rows = labelled_rows(model, X_test, Y_test)
    for row in range(60):
        [(_, true), (_, alone)] = shown_row(measured[0], rows, row).labels
        [_, (_, first), _] = compared_row(measured, rows, ("A", "B"), row).labels
        assert alone[:3] == first
        assert (first[0].mark == "hit") == bool(measured[0].hit[row, 0])
        both = {chip.label: chip.mark for chip in true}
        assert all(chip.mark == both[chip.label] for chip in alone if chip.label in both)
        assert all((chip.mark == "miss") == (chip.probability > 0.5) for chip in alone[1:] if chip.label not in both)
