"""`smoothlink.report`: a model and test rows -> one self-contained HTML page."""

from __future__ import annotations

import datetime
import math
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from smoothlink import __version__
from smoothlink.metrics.bootstrap import Metric
from smoothlink.metrics.names import format_value, interval_text, meaning, shown_keys
from smoothlink.reports.charts import points
from smoothlink.reports.example_rows import report_rows
from smoothlink.reports.figures import (
    HEADLINES,
    Curve,
    curves_at_k,
    frequency_figures,
    headline_keys,
    percent_interval,
    reliability_diagrams,
    spectrum,
    threshold_figures,
)
from smoothlink.reports.guarantees import guarantees
from smoothlink.reports.label_table import COLUMNS, as_json, label_table, save_csv
from smoothlink.reports.labelled_rows import LabelledRows, labelled_rows
from smoothlink.reports.measurements import FOUND, Measured, measure
from smoothlink.reports.model_card import model_card
from smoothlink.reports.pages import PageOptions, colored, isolated, load_script, render, save_page
from smoothlink.types import FittedModel, Labels, Matrix, Targets, Texts

SECTIONS = {
    "headline": "Metrics",
    "ranking": "Ranking",
    "trust": "Probabilities",
    "threshold": "Threshold",
    "guarantees": "Guarantees",
    "frequency": "Rare labels",
    "labels": "All labels",
    "mistakes": "Mistakes",
    "rows": "Rows",
    "card": "Model card",
    "appendix": "Appendix",
}
LABELS_LISTED = 10
SURPRISING = 1.0  # standard deviations from which on a label's count is listed


class Report(NamedTuple):
    """A page and the numbers on it."""

    measured: Measured
    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page; the file appears when it is complete."""
        save_page(path, self.html)

    def save_labels(self, path: str | os.PathLike[str]) -> None:
        """Writes the table of all labels as CSV."""
        save_csv(path, label_table(self.measured))


def report(
    model: FittedModel,
    X: Matrix | Texts,
    y: Targets | Labels,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "A smoothlink model",
    source: str = "",
    threshold: ArrayLike | None = None,
    bootstraps: int = 1000,
    seed: int = 0,
    date: datetime.date | None = None,
    ids: Sequence[Any] | None = None,
) -> Report:
    """Returns how good a model is on test rows, as one HTML page.

    model: a fitted SmoothLinkClassifier or TextSmoothLink. X, y: test rows (for the latter texts) and their labels, as
    `evaluate` takes them. path: where the page is written, if anywhere. title, source: what model and rows are called
    on it. threshold: of label sets, as for `predict`. bootstraps, seed: of the intervals and examples. date: on the
    page; today where none is given. ids: what each row is called on it, if not by its number.
    """
    rows = labelled_rows(model, X, y, ids)._replace(threshold=threshold)
    made = make_report(rows, title, source, PageOptions(bootstraps, seed, date))
    if path is not None:
        made.save(path)
    return made


def make_report(rows: LabelledRows, title: str, source: str, options: PageOptions) -> Report:
    """Returns the report on labelled rows."""
    m = measure(rows, bootstraps=options.bootstraps, seed=options.seed)
    summary, curve, labels_per_row = rows.classifier.summary_, m.thresholds, m.Y.nnz / m.n
    directions, promised = spectrum(summary), guarantees(rows, m)
    absent = {name for name, part in (("appendix", directions), ("guarantees", promised)) if part is None}
    columns, c = label_table(m), m.counts
    html = render(
        "report.html",
        options,
        kind="report",
        title=title,
        source=source,
        sections={name: text for name, text in SECTIONS.items() if name not in absent},
        m=m,
        summary=summary,
        cards=cards(m, rows.classifier.model_.multiclass),
        metric_rows=metric_rows(m.metrics),
        labels_per_row=labels_per_row,
        own_thresholds=own_thresholds(m),
        own_precision=c.hits.sum() / max(1, c.sets.sum()),
        own_recall=c.hits.sum() / max(1, m.Y.nnz),
        at=curve.thresholds[curve.best],
        precision=curve.precision[curve.best],
        recall=curve.recall[curve.best],
        predicted_per_row=curve.labels_per_row[curve.best],
        found_among=FOUND,
        ranking=[
            curves_at_k(m.ks, curves(m, p="P@k", ndcg="nDCG@k"), "Precision and ranking quality"),
            curves_at_k(m.ks, curves(m, psp="PSP@k", psndcg="PSnDCG@k"), "The same, rare labels counting more"),
        ],
        reliability=reliability_diagrams(m),
        thresholds=threshold_figures(curve, labels_per_row),
        guarantees=promised,
        frequency=frequency_figures(m.groups),
        spectrum=directions,
        surprises=surprises(m),
        confused=[
            (
                isolated(m.names[one.true]),
                isolated(m.names[one.predicted]),
                f"{one.rows:,}",
                points(one.rows / one.of, 0),
            )
            for one in m.confused
        ],
        examples=report_rows(m, rows, options.seed),
        label_columns={name: COLUMNS[name] for name in columns},
        label_data=as_json(columns),
        script=load_script("labels.js"),
        card=model_card(rows.model, versions(), m.evaluation, source),
    )
    return Report(m, html)


class Card(NamedTuple):
    """A metric that is shown large: its value in percent and its interval, in words and as a bar."""

    title: str
    key: str
    value: str
    interval: str
    left: str
    width: str


def cards(m: Measured, multiclass: bool) -> list[Card]:
    """Returns the metrics that are looked at first."""
    skipped = ("p@1", "p@3", "hamming", "micro_f1") if multiclass else ("error",)
    found = []
    for key in headline_keys(m.metrics, max(m.ks)):
        if key not in skipped:
            metric = m.metrics[key]
            digits = 1 if metric.value >= 0.02 else 2
            low, high = (metric.value, metric.value) if math.isnan(metric.low) else (metric.low, metric.high)
            place = f"{100 * min(low, 0.99):.2f}", f"{100 * (high - low):.2f}"
            found.append(
                Card(HEADLINES[key], key, points(metric.value, digits), percent_interval(metric, digits), *place)
            )
    return found


def metric_rows(metrics: dict[str, Metric]) -> list[tuple[str, ...]]:
    """Returns name, value, interval and meaning of all metrics that tables show."""
    return [
        (
            key,
            format_value(key, metrics[key].value),
            interval_text(key, metrics[key], "–"),
            meaning(key),
        )
        for key in shown_keys()
        if key in metrics
    ]


def curves(m: Measured, **names: str) -> list[Curve]:
    """Returns metrics at every k, by the names they have on the page."""
    return [
        Curve(name, name, [m.metrics[f"{key}@{k}"] for k in m.ks], tone)
        for (key, name), tone in zip(names.items(), "ab", strict=True)
    ]


def surprises(m: Measured) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Returns the labels whose expected count is farthest above, and below, the true one."""
    c, order = m.counts, np.argsort(m.counts.surprise, kind="stable")
    over = [j for j in order[::-1][:LABELS_LISTED].tolist() if c.surprise[j] >= SURPRISING]
    under = [j for j in order[:LABELS_LISTED].tolist() if c.surprise[j] <= -SURPRISING]

    def row(j: int, kind: str) -> tuple[Any, ...]:
        expected = colored(f"{c.expected[j]:,.1f}", kind)
        return isolated(m.names[j]), f"{c.true[j]:,}", expected, f"{c.sets[j]:,}", f"{c.train[j]:,.0f}"

    return [
        ("Predicted too often", [row(j, "more") for j in over]),
        ("Predicted too seldom", [row(j, "less") for j in under]),
    ]


def versions() -> dict[str, str]:
    """Returns the versions that made the page."""
    libraries = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"smoothlink": __version__, "Python": platform.python_version(), **libraries}


def own_thresholds(m: Measured) -> str:
    """Returns at which thresholds labels count as predicted, in words."""
    values = {round(value, 6) for value in m.set_thresholds if value is not None}
    if not values:
        return "with one label predicted per row"
    if len(values) > 1:
        return "at the model's own threshold of each label"
    (value,) = values
    return f"at the threshold of {100 * value:.3g} %"
