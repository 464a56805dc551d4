"""The section on guarantees says what sets and releases came to on the test rows."""

import numpy as np
import pytest
from small import multilabel

import smoothlink
from smoothlink import SmoothLinkClassifier
from smoothlink.conformal import Conformal
from smoothlink.reports.charts import percent
from smoothlink.reports.guarantees import LEVELS, guarantees
from smoothlink.reports.labelled_rows import labelled_rows
from smoothlink.reports.measurements import measure


@pytest.fixture
def made(rng):
    X, Y = multilabel(rng, n=700)
    return SmoothLinkClassifier(effort="quick", conformal=0.4).fit(X[:500], Y[:500]), X[500:], Y[500:]


def test_the_tables_are_those_of_predict_set_and_review(made):
    model, X, Y = made
    rows = labelled_rows(model, X, Y)
    sizes, frequency, people = guarantees(rows, measure(rows, bootstraps=0)).tables
    given = [(name, level) for name in ("coverage", "recall") for level in LEVELS]
    for (name, level), row, held in zip(
        given, sizes.rows, zip(*(r[2:] for r in frequency.rows), strict=True), strict=True
    ):
        sets = model.predict_set(X, **{name: level})
        kept = (sets >= Y).all(axis=1) if name == "coverage" else (sets & Y).sum(axis=1) / np.maximum(1, Y.sum(axis=1))
        reached = np.where(Y.any(axis=1), kept, 1).mean()
        assert row == (
            f"{name} {percent(level)}",
            row[1],
            f"{100 * reached:.2f}",
            f"{sets.sum(axis=1).mean():.2f}",
            f"{sets.sum(axis=1).max()}",
            f"{100 * (~sets.any(axis=1)).mean():.1f}",
        )
        pairs = [int(r[1].replace(",", "")) for r in frequency.rows]
        assert np.dot(pairs, np.array(held, float)) / sum(pairs) == pytest.approx(
            100 * (sets & Y).sum() / Y.sum(), abs=0.1
        )
    for row, precision in zip(people.rows, (0.8, 0.9, 0.95, 0.99), strict=True):
        if precision == 0.99:
            assert row[1] == "too few conformal rows"
        else:
            assert row[1] == f"{len(model.review(X, precision=precision).queue)}"


def test_the_page_has_the_section_only_where_something_is_guaranteed(made):
    model, X, Y = made
    html = smoothlink.report(model, X, Y, bootstraps=0).html
    assert '<section id="guarantees"' in html
    assert "How many rows a person must see" in html
    for conformal in (None, Conformal.voided("rows were added.")):
        model.conformal_ = conformal
        assert '<section id="guarantees"' not in smoothlink.report(model, X, Y, bootstraps=0).html
