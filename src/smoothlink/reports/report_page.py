"""`smoothlink.report`: a model and test rows -> one self-contained HTML page."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

from smoothlink import __version__
from smoothlink.data.files_on_disk import replacing
from smoothlink.errors import plural
from smoothlink.reports.html import Safe, page, prose, tag
from smoothlink.reports.lists import Case, examples, labels, settings
from smoothlink.reports.measurements import Measured, measure
from smoothlink.reports.sections import cut, frequency, headline, points, ranking, spectrum, trust
from smoothlink.reports.test_data import Trial, given_trial

PARTS = {
    "headline": "Metrics",
    "ranking": "Ranking",
    "trust": "Probabilities",
    "threshold": "Threshold",
    "frequency": "Rare labels",
    "spectrum": "Embedding",
    "labels": "Labels",
    "rows": "Rows",
    "training": "Training",
}


class Drawn(NamedTuple):
    """How intervals and examples were drawn, and when."""

    bootstraps: int = 1000
    seed: int = 0
    date: datetime.date | None = None

    @property
    def day(self) -> datetime.date:
        return self.date or datetime.date.today()


class Report(NamedTuple):
    """A page and the numbers on it."""

    measured: Measured
    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page; it appears when it is whole."""
        save_page(path, self.html)


def report(
    model: Any,
    X: Any,
    y: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "A smoothlink model",
    source: str = "",
    bootstraps: int = 1000,
    seed: int = 0,
    date: datetime.date | None = None,
) -> Report:
    """How good a model is on rows it has not seen, as one HTML page.

    model: a fitted SmoothLinkClassifier or TextSmoothLink. X, y: test rows (for the latter texts) and their labels, as
    `evaluate` takes them. path: where the page is written, if anywhere. title, source: what model and rows are called
    on it. bootstraps, seed: of the intervals and examples. date: on the page; today where none is given.
    """
    made = reported(given_trial(model, X, y), title, source, Drawn(bootstraps, seed, date))
    if path is not None:
        made.save(path)
    return made


def reported(trial: Trial, title: str, source: str, drawn: Drawn) -> Report:
    """The report on a model and rows that are ready for it."""
    found = measure(
        trial.case.classifier,
        trial.case.X,
        trial.Y,
        bootstraps=drawn.bootstraps,
        seed=drawn.seed,
        rank_by=trial.rank_by,
    )
    return Report(found, rendered(trial.case, found, title, source, drawn))


def save_page(path: str | os.PathLike[str], text: str) -> None:
    with replacing(os.fspath(path)) as file:
        file.write(text.encode())


def rendered(case: Case, found: Measured, title: str, source: str, drawn: Drawn) -> str:
    """The page of what was measured."""
    summary = case.classifier.summary_
    sections = [
        headline(found, case.classifier.model_.multiclass),
        ranking(found),
        trust(found),
        cut(found),
        frequency(found),
        spectrum(summary),
        labels(found),
        examples(found, case, drawn.seed),
        settings(summary, facts(title, source, found)),
    ]
    top = (
        tag("p", "smoothlink report", class_="over"),
        tag("h1", title),
        tag("p", subtitle(summary, found, source, drawn.day), class_="under"),
        tag("p", prose(verdict(found)), class_="verdict"),
        contents([part for part in sections if part is not None], PARTS),
    )
    return page(f"{title}: smoothlink report", tag("header", *top), *sections, ending(drawn))


def subtitle(summary: dict[str, Any], found: Measured, source: str, date: datetime.date) -> str:
    trained = f"Trained on {plural(summary['rows'], 'row')} with {plural(summary['labels'], 'label')}"
    tested = f"tested on {plural(found.n, 'row')}{f' of {source}' if source else ''}"
    unknown = found.evaluation.n_unknown_labels
    missing = f"; {plural(unknown, 'label')} of these unknown to the model count as missed" if unknown else ""
    return f"{trained}, {tested}{missing}. {spelled_date(date)}."


def spelled_date(date: datetime.date) -> str:
    return f"{date.day} {date:%B %Y}".replace(" ", "\N{NO-BREAK SPACE}")


def verdict(found: Measured) -> str:
    """The report in three sentences."""
    cuts, best = found.cuts, found.cuts.best
    return (
        f"The first label it names is right for {points(found.metrics['p@1'].value)} % of the rows. Cut at a "
        f"probability of {points(cuts.thresholds[best], 0)} %, {points(cuts.precision[best])} % of the labels it names "
        f"are right, and it names {points(cuts.recall[best])} % of the true ones. What it says of its first label's "
        f"chances is off by {points(found.top.error)} points on average."
    )


def contents(sections: Sequence[Safe], names: dict[str, str]) -> Safe:
    """Links to the sections that there are."""
    links = [
        tag("li", tag("a", name, href=f"#{part}"))
        for part, name in names.items()
        if any(text.startswith(f'<section id="{part}"') for text in sections)
    ]
    return tag("nav", tag("ul", links), aria_label="Sections")


def facts(title: str, source: str, found: Measured) -> list[tuple[str, str]]:
    """What was tested, and with what."""
    return [
        ("model", title),
        ("test rows", f"{found.n:,}{f', {source}' if source else ''}"),
        ("true labels a row", f"{found.Y.nnz / found.n:.2f}"),
        ("versions", versions()),
    ]


def versions() -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    return f"smoothlink {__version__}, Python {platform.python_version()}, {libraries}"


def ending(drawn: Drawn) -> Safe:
    said = (
        f"90 % intervals from {plural(drawn.bootstraps, 'bootstrap')} over the test rows (seed {drawn.seed}), with the "
        "training held fixed."
        if drawn.bootstraps
        else "No intervals were drawn."
    )
    return tag("footer", f"{said} Made by smoothlink {__version__}, {drawn.day.isoformat()}.")
