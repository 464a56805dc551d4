"""Rows that pages show: their labels, what was predicted, and which features were in favour of a wrong label."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from smoothlink.explanation import explain
from smoothlink.metrics.evaluate import row_sums
from smoothlink.reports.labelled_rows import LabelledRows
from smoothlink.reports.measurements import Measured

RIGHT_SHOWN, WRONG_SHOWN, DIFFERENT_SHOWN = 4, 8, 4  # rows
LABELS_SHOWN = 12  # true labels of a row


class Chip(NamedTuple):
    """A label of a row."""

    label: Any
    probability: float | None = None
    mark: str = ""  # "hit" where it is right, "miss" where it is wrong


class Reasons(NamedTuple):
    """The features that added most to the score of a label."""

    label: Any
    in_favour: str
    against: str


class ShownRow(NamedTuple):
    """A row on a page."""

    name: str  # its id, or its number
    text: str
    labels: list[tuple[str, list[Chip]]]  # "true", and the predictions of each model
    more: int = 0  # true labels that are not shown
    reasons: Reasons | None = None


class ReportRows(NamedTuple):
    """The rows of a report."""

    exact: int  # how many rows have exactly their labels predicted
    right: list[ShownRow]  # some of these, at random
    wrong: list[ShownRow]  # those whose top label is wrong, the most probable first


def report_rows(m: Measured, rows: LabelledRows, seed: int) -> ReportRows:
    """Returns rows that are right, drawn at random, and the most confident mistakes."""
    sets, top, scores = m.predictions.sets, m.predictions.top_probability, m.predictions.top_score
    assert sets is not None
    assert top is not None
    assert scores is not None
    hits, per_row = row_sums(m.Y[:, : sets.shape[1]].multiply(sets)), np.diff(m.Y.indptr)
    exact = np.flatnonzero((hits == per_row) & (row_sums(sets) == per_row) & (per_row > 0))
    drawn = np.random.default_rng(seed).permutation(exact)[:RIGHT_SHOWN]
    wrong = np.flatnonzero(~m.hit[:, 0])
    confident = wrong[np.lexsort((-scores[wrong], -top[wrong]))][:WRONG_SHOWN]
    return ReportRows(
        len(exact),
        [shown_row(m, rows, row) for row in drawn.tolist()],
        [
            shown_row(m, rows, row)._replace(reasons=reasons(rows, row, m.ranked(row)[0][0]))
            for row in confident.tolist()
        ],
    )


def shown_row(m: Measured, rows: LabelledRows, row: int) -> ShownRow:
    """Returns a row with its labels and what was predicted for it."""
    true = m.true(row)
    chips = [Chip(label_name(m, j), None, mark(m, row, j)) for j in true[:LABELS_SHOWN]]
    labels = [("true", chips), ("predicted", predicted_chips(m, row, max(3, min(5, len(true) + 1))))]
    return ShownRow(rows.name(row), rows.describe(row), labels, max(0, len(true) - LABELS_SHOWN))


def predicted_chips(m: Measured, row: int, count: int) -> list[Chip]:
    """Returns the top labels of a row."""
    best = list(zip(*m.ranked(row), strict=True))[:count]
    return [Chip(label_name(m, j), p, mark(m, row, j)) for j, p in best]


def mark(m: Measured, row: int, label: int) -> str:
    """Returns "hit" for a label that is true and predicted, "miss" for one that is either, else nothing."""
    true, predicted = label in m.true(row), label in m.predicted(row)
    return "hit" if true and predicted else "miss" if true or predicted else ""


def label_name(m: Measured, label: int) -> Any:
    return m.names[label] if label < len(m.names) else "a label unknown to the model"


def reasons(rows: LabelledRows, row: int, label: int) -> Reasons | None:
    """Returns the features in favour of and against a label of a row; None where the model cannot be explained."""
    if rows.classifier.model_.classifier is not None:  # a classifier per label of another library
        return None
    (one,) = explain(rows.classifier, rows.X[[row]], labels=[label], top=12)
    parts = [reason for reason in one.reasons if abs(reason.added) >= 0.005]
    sides = [r for r in parts if r.added > 0][:3], [r for r in parts if r.added < 0][:2]
    name = rows.feature_names(row)
    return Reasons(
        one.display_name, *(", ".join(f"{name(r.feature)} {signed(r.added)}" for r in side) for side in sides)
    )


def signed(value: float) -> str:
    """Returns a number such as +0.43 and −0.07."""
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


class OneSided(NamedTuple):
    """Rows whose top label only one of two models has right."""

    name: str
    total: int
    rows: list[ShownRow]  # some of them, at random


def compared_rows(
    measured: tuple[Measured, Measured], rows: LabelledRows, names: tuple[str, str], short: tuple[str, str], seed: int
) -> list[OneSided]:
    """Returns rows that only the first, and only the second, of two models has right."""
    right, found = [side.hit[:, 0] for side in measured], []
    for i, name in enumerate(names):
        only = np.flatnonzero(right[i] & ~right[1 - i])
        drawn = np.sort(np.random.default_rng([seed, i]).permutation(only)[:DIFFERENT_SHOWN])
        if len(drawn):
            shown = [compared_row(measured, rows, short, row) for row in drawn.tolist()]
            found.append(OneSided(name, len(only), shown))
    return found


def compared_row(measured: tuple[Measured, Measured], rows: LabelledRows, short: tuple[str, str], row: int) -> ShownRow:
    """Returns a row, its labels, and the top labels of both models."""
    truth = {str(label_name(measured[0], j)) for j in measured[0].true(row)}
    labels = [("true", [Chip(name) for name in sorted(truth)])]
    labels += [(name, predicted_chips(m, row, 3)) for name, m in zip(short, measured, strict=True)]
    return ShownRow(rows.name(row), rows.describe(row), labels)
