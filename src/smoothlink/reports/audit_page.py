"""An audit of labels -> one HTML page, and the table of its documents that people review."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.matching import inside
from smoothlink.explanation import explain, words_of
from smoothlink.label_audit import Audit, AuditedData, ModelScores, Suspect
from smoothlink.model import blocks
from smoothlink.reports.example_rows import signed
from smoothlink.reports.labelled_rows import shorten
from smoothlink.reports.pages import PageOptions, render
from smoothlink.steps.infer import RunningTopK

Array = NDArray[Any]

SIMILAR = 3  # rows that are shown next to a finding
WEIGHTS_TOGETHER = 64  # findings whose weights (d, m) are made together
BLOCK_ROWS = 8192  # that are compared at a time
LEAST_REASON = 0.005  # of what a feature adds to a score, to be shown
SECTIONS = {"wrong": "Probably wrong", "missing": "Probably missing"}
LEFT_OUT = "from the other rows by ridge regression, and from the other labels of its row"
BY_MODEL = "by a fitted model, and from the other labels of its row"


class SimilarRow(NamedTuple):
    """A row near another one."""

    name: str
    text: str
    cosine: float
    labels: list[str]


class ShownFinding(NamedTuple):
    """A finding on the page."""

    name: str  # of the row
    text: str
    label: str
    probability: float
    sureness: float
    given: list[str]  # labels of the row
    in_favour: str
    against: str
    similar: list[SimilarRow]


def audit_page(found: Audit, title: str, source: str, expected: float, options: PageOptions) -> str:
    """Returns the page."""
    data, pairs = found.data, [*found.wrong, *found.missing]
    reasons = feature_reasons(data, pairs)
    near = similar_rows(data, np.array([one.row for one in pairs], np.int64))
    shown = [shown_finding(data, *parts) for parts in zip(pairs, reasons, near, strict=True)]
    return render(
        "audit.html",
        options,
        kind="audit",
        title=title,
        source=source,
        sections=SECTIONS,
        n=data.n,
        given=int(data.Y.nnz),
        how=LEFT_OUT if data.model is None else BY_MODEL,
        expected=expected,
        wrong=shown[: len(found.wrong)],
        missing=shown[len(found.wrong) :],
    )


def shown_finding(
    data: AuditedData, one: Suspect, reasons: tuple[str, str], near: Sequence[SimilarRow]
) -> ShownFinding:
    """Returns a finding with all that the page shows of it."""
    name = data.shown_names[one.number]
    given = labels_of(data, one.row)
    return ShownFinding(
        row_name(data, one.row),
        described(data, one.row),
        name,
        one.probability,
        one.sureness,
        given,
        *reasons,
        list(near),
    )


def row_name(data: AuditedData, row: int) -> str:
    return f"row {row:,}" if data.ids[row] == str(row) else data.ids[row]


def labels_of(data: AuditedData, row: int) -> list[str]:
    """Returns the labels that a row is given, as they are shown."""
    return [data.shown_names[j] for j in data.Y.indices[data.Y.indptr[row] : data.Y.indptr[row + 1]].tolist()]


def described(data: AuditedData, row: int) -> str:
    """Returns a row in words: its text, or its largest features."""
    if data.texts is not None:
        return shorten(data.texts[row])
    x = data.X[[row]].toarray()[0] if sp.issparse(data.X) else np.asarray(data.X[row])
    largest = [j for j in np.argsort(-np.abs(x), kind="stable")[:12].tolist() if x[j]]
    return ", ".join(feature_name(data, row, j) for j in largest) or "no features"


def feature_name(data: AuditedData, row: int, feature: int) -> str:
    if data.texts is not None and data.features is not None:
        return words_of(data.features, data.texts[row])(feature)
    return f"feature {feature}" if data.feature_names is None else str(data.feature_names[feature])


def feature_reasons(data: AuditedData, pairs: Sequence[Suspect]) -> list[tuple[str, str]]:
    """Returns the features in favour of each label, and those against it, without what was learned from the row."""
    found: list[tuple[str, str]] = []
    if data.model is not None:
        classifier = inside(data.model)
        if classifier.model_.classifier is not None:
            return [("", "")] * len(pairs)
        for one in pairs:
            (label,) = explain(classifier, data.X[[one.row]], labels=[one.number], top=12)
            found.append(in_words(data, one.row, [(r.feature, r.added) for r in label.reasons]))
        return found
    for part in blocks(len(pairs), WEIGHTS_TOGETHER):
        weights = weights_without(data, pairs[part])
        for one, w in zip(pairs[part], weights.T, strict=True):
            a = data.A[[one.row]].toarray()[0] if sp.issparse(data.A) else np.asarray(data.A[one.row])
            added = a * w[:-1]
            order = np.argsort(-np.abs(added), kind="stable")[:12].tolist()
            found.append(in_words(data, one.row, [(j, float(added[j])) for j in order]))
    return found


def weights_without(data: AuditedData, pairs: Sequence[Suspect]) -> Array:
    """Returns the weights (d + 1, m) that the label of each pair has in a fit without its row.

    They are those of a fit to all rows in which the row has the label by as much as it is predicted without itself.
    """
    assert not isinstance(data.scores, ModelScores)
    by_label = sp.csc_array(data.Y)
    columns = sp.lil_array(by_label[:, [one.number for one in pairs]], dtype=np.float64)
    for k, one in enumerate(pairs):
        columns[one.row, k] = data.scores.of(slice(one.row, one.row + 1))[0, one.number]
    return data.scores.label_weights(sp.csc_array(columns))  # type: ignore[attr-defined]


def in_words(data: AuditedData, row: int, parts: list[tuple[int, float]]) -> tuple[str, str]:
    """Returns the largest contributions of features in favour and against, in words."""
    large = [(j, added) for j, added in parts if abs(added) >= LEAST_REASON]
    sides = [part for part in large if part[1] > 0][:4], [part for part in large if part[1] < 0][:3]
    favour, against = (
        ", ".join(f"{feature_name(data, row, j)} {signed(added)}" for j, added in side) for side in sides
    )
    return favour, against


def similar_rows(data: AuditedData, rows: Array, block_rows: int = BLOCK_ROWS) -> list[list[SimilarRow]]:
    """Returns the rows that are nearest to each of some, by their angle, a block of all rows at a time."""
    k = min(SIMILAR, data.n - 1)
    if not len(rows) or k < 1:
        return [[] for _ in rows]
    lengths = np.sqrt(np.asarray((data.A.multiply(data.A) if sp.issparse(data.A) else data.A**2).sum(axis=1)).ravel())
    lengths = np.maximum(lengths, np.finfo(np.float32).tiny)
    best = RunningTopK(len(rows), k)
    for part in blocks(data.n, block_rows):
        C = data.A[rows] @ data.A[part].T
        C = np.asarray(C.toarray() if sp.issparse(C) else C, np.float32)
        C /= lengths[rows, None]
        C /= lengths[part]
        own = (rows >= part.start) & (rows < part.stop)
        C[np.flatnonzero(own), rows[own] - part.start] = -2  # below all cosines
        best.add(C)
    ids, cosines = best.best()
    return [
        [
            SimilarRow(row_name(data, j), described(data, j), cosine, labels_of(data, j))
            for j, cosine in zip(near.tolist(), each.tolist(), strict=True)
            if cosine > 0
        ]
        for near, each in zip(ids, cosines, strict=True)
    ]


def review_table(found: Audit) -> tuple[list[str], list[list[Any]]]:
    """Returns the columns and rows of a table with a row for each document that has a finding, the surest first.

    Its labels are those given, as a list, so that a person corrects them with the findings in sight.
    """
    data = found.data
    sure: dict[int, float] = {}
    lists: tuple[dict[int, list[str]], dict[int, list[str]]] = ({}, {})
    for rows, suspects in zip(lists, (found.wrong, found.missing), strict=True):
        for one in suspects:
            rows.setdefault(one.row, []).append(str(one.label))
            sure[one.row] = max(sure.get(one.row, 0.0), one.sureness)
    columns = ["id", *(["text"] if data.texts is not None else []), "labels", "wrong", "missing", "sureness"]
    names = [str(name) for name in data.names]
    table = []
    for row in sorted(sure, key=lambda row: (-sure[row], row)):
        labels = [names[j] for j in data.Y.indices[data.Y.indptr[row] : data.Y.indptr[row + 1]].tolist()]
        text = [] if data.texts is None else [str(data.texts[row])]
        each = [", ".join(rows.get(row, [])) for rows in lists]
        table.append([data.ids[row], *text, labels, *each, round(sure[row], 6)])
    return columns, table
