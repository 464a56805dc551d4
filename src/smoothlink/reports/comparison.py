"""`smoothlink.compare`: two models on the same rows, with paired bootstrap differences, as numbers and as a page."""

from __future__ import annotations

import datetime
import math
import os
from typing import Any, NamedTuple

import numpy as np

from smoothlink.errors import DataError, plural
from smoothlink.metrics.evaluate import Paired, paired
from smoothlink.metrics.names import better_side, format_value, meaning, shown_keys
from smoothlink.reports.example_rows import compared_rows
from smoothlink.reports.figures import (
    Curve,
    curves_at_k,
    curves_by_group,
    difference_figure,
    headline_keys,
    reliability_diagram,
)
from smoothlink.reports.labelled_rows import LabelledRows, labelled_rows
from smoothlink.reports.measurements import Measured, measure
from smoothlink.reports.pages import LISTED_SETTINGS, PageOptions, colored, render, save_page, setting_text
from smoothlink.types import FittedModel, Labels, Matrix, Targets, Texts

SECTIONS_OF_TWO = {
    "differences": "Differences",
    "ranking": "Ranking",
    "frequency": "Rare labels",
    "trust": "Probabilities",
    "rows": "Rows",
    "training": "Training",
}


class Agreement(NamedTuple):
    """Rows by whose top label is true."""

    both: int
    first: int  # the first model's only
    second: int
    neither: int


class Comparison(NamedTuple):
    """Two models side by side."""

    names: tuple[str, str]
    metrics: dict[str, Paired]
    agreement: Agreement
    measured: tuple[Measured, Measured]
    note: str  # which metrics the models' own training data make differ; often nothing
    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page; the file appears when it is complete."""
        save_page(path, self.html)


def compare(
    first: FittedModel,
    second: FittedModel,
    X: Matrix | Texts,
    y: Targets | Labels,
    path: str | os.PathLike[str] | None = None,
    *,
    names: tuple[str, str] = ("A", "B"),
    source: str = "",
    bootstraps: int = 1000,
    seed: int = 0,
    date: datetime.date | None = None,
) -> Comparison:
    """Returns which of two models is better on test rows, by how much, and whether that is chance.

    first, second: fitted classifiers, or text models. X, y: test rows (or texts) and their labels, as for `report`.
    The values are those that `evaluate` gives for each model; differences are the first's minus the second's, both
    under the same draws of rows. A label that a model does not know counts as missed. The other arguments are those of
    `report`.
    """
    rows = labelled_rows(first, X, y), labelled_rows(second, X, y)
    found = make_comparison(rows, names, source, PageOptions(bootstraps, seed, date))
    if path is not None:
        found.save(path)
    return found


def make_comparison(
    rows: tuple[LabelledRows, LabelledRows], names: tuple[str, str], source: str, options: PageOptions
) -> Comparison:
    """Returns the comparison of two models on the same rows."""
    n = [side.Y.shape[0] for side in rows]
    if n[0] != n[1]:
        raise DataError(f"The first model was given {plural(n[0], 'row')} and the second {n[1]:,}. Pass the same rows.")
    measured = measure(rows[0], bootstraps=0), measure(rows[1], bootstraps=0)
    note = training_note(rows, measured)
    sides = (side.statistics for side in measured)
    metrics = paired(*sides, bootstraps=options.bootstraps, seed=options.seed)
    right, other = (side.hit[:, 0] for side in measured)
    counts = (np.count_nonzero(part) for part in (right & other, right & ~other, ~right & other, ~right & ~other))
    found = Comparison(names, metrics, Agreement(*map(int, counts)), measured, note, "")
    return found._replace(html=comparison_page(found, rows, source, options))


def training_note(rows: tuple[LabelledRows, LabelledRows], measured: tuple[Measured, Measured]) -> str:
    """Returns which metrics depend on training data that differ; raises DataError where no label is common."""
    first, second = (
        dict(zip(map(str, m.labels), side.classifier.model_.counts.tolist(), strict=True))
        for side, m in zip(rows, measured, strict=True)
    )
    if not first.keys() & second.keys():
        raise DataError(
            f"The models have no label in common: one has {next(iter(first))!r}, the other {next(iter(second))!r}.\n"
            "Compare models of the same labels."
        )
    if first.keys() != second.keys():
        return (
            f"The models know different labels ({len(first):,} and {len(second):,}): means over labels are over those "
            "that each knows, and PSP and PSnDCG weigh labels by each model's own training rows."
        )
    if first != second:
        return "The models were trained on different rows: PSP and PSnDCG weigh labels by each model's own."
    return ""


def comparison_page(
    found: Comparison, rows: tuple[LabelledRows, LabelledRows], source: str, options: PageOptions
) -> str:
    """Returns the page of a comparison."""
    names, (first, second) = found.names, found.measured
    short = names if max(map(len, names)) <= 9 else ("A", "B")
    ks = range(1, min(max(first.ks), max(second.ks)) + 1)
    headlines = {key: found.metrics[key].difference for key in headline_keys(found.metrics, max(ks))}
    wins = [better_side(key, difference) for key, difference in headlines.items()]

    def curves(family: str) -> list[Curve]:
        sides = zip(short, names, Paired._fields[:2], "ab", ("line", "dashes"), strict=True)
        return [
            Curve(label, name, [getattr(found.metrics[f"{family}@{k}"], side) for k in ks], tone, kind)
            for label, name, side, tone, kind in sides
        ]

    def by_group(value: str, caption: str) -> Any:
        sides = zip(short, names, found.measured, "ab", ("line", "dashes"), strict=True)
        both = [
            (m.groups, Curve(label, name, [getattr(g, value) for g in m.groups], tone, kind))
            for label, name, m, tone, kind in sides
        ]
        return curves_by_group(both, caption)

    return render(
        "compare.html",
        options,
        kind="comparison",
        title=f"{names[0]} and {names[1]}",
        source=source,
        sections=SECTIONS_OF_TWO,
        n=first.n,
        names=names,
        short=short,
        measures=len(wins),
        wins=(wins.count(1), wins.count(-1)),
        agreement=found.agreement,
        note=found.note,
        differences=difference_figure(headlines, names),
        metric_rows=metric_pairs(found.metrics),
        ranking=[curves_at_k(ks, curves(key), text, bands=False) for key, text in (("p", "P@k"), ("ndcg", "nDCG@k"))],
        frequency=[by_group("recall", "Recall@5"), by_group("f1", "Mean F1 of labels")],
        reliability=[reliability_diagram(m.top, name, "rows") for m, name in zip(found.measured, names, strict=True)],
        one_sided=compared_rows(found.measured, rows[0], names, short, options.seed),
        settings=both_settings([side.classifier.summary_ for side in rows]),
    )


def metric_pairs(metrics: dict[str, Paired]) -> list[tuple[Any, ...]]:
    """Returns both values of each metric that tables show, their difference and its interval."""
    found = []
    for key in shown_keys():
        if key in metrics:
            first, second, d = metrics[key]
            difference: Any = format_value(key, d.value, "+")
            side = better_side(key, d)
            if side:
                difference = colored(difference, "less" if side > 0 else "more")
            between = "" if math.isnan(d.low) else f"{format_value(key, d.low, '+')} – {format_value(key, d.high, '+')}"
            values = format_value(key, first.value), format_value(key, second.value)
            found.append((key, *values, difference, between, meaning(key)))
    return found


def both_settings(summaries: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Returns the settings of both models; those that differ stand out."""
    found: list[tuple[Any, ...]] = []
    for name in LISTED_SETTINGS:
        texts = [setting_text(summary, name) for summary in summaries]
        if any(texts):
            kind = "quiet" if texts[0] == texts[1] else "differs"
            found.append((name.replace("_", " "), *(colored(text, kind) for text in texts)))
    seconds = (f"{sum((summary.get('seconds') or {}).values()):,.1f}" for summary in summaries)
    return [*found, ("seconds in all", *seconds)]
