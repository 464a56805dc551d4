"""A model card: on what data a model was trained, when and how, how good it is, and what it cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smoothlink.data.matching import inside
from smoothlink.errors import plural
from smoothlink.metrics.names import format_value, interval_text, meaning, shown_keys
from smoothlink.reports.pages import LISTED_SETTINGS, setting_text

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.metrics.evaluate import Evaluation

FEW_LABEL_ROWS = 5  # a label with fewer training rows is seldom predicted
FEW_ROWS = 1000  # a model of fewer training rows has uncertain figures
FIGURES = ("p@1", "p@3", "p@5", "psp@5", "micro_f1", "macro_f1", "error", "ece_top")  # of a test


class CardPart(NamedTuple):
    """A part of a card: a table, of which headings that start with > are right-aligned, or sentences."""

    heading: str
    headings: list[str]
    rows: Sequence[tuple[str, ...]]
    sentences: tuple[str, ...] = ()


def model_card(
    model: Any, versions: dict[str, str], tested: Evaluation | None = None, source: str = ""
) -> list[CardPart]:
    """Returns the card of a model, with its metrics on test rows where it was tested."""
    classifier = inside(model)
    summary = classifier.summary_
    return [
        CardPart("Data", ["", ""], data_rows(model)),
        *([held_out(summary)] if summary.get("held_out_metrics") else []),
        *([] if tested is None else [on_test_rows(tested, source)]),
        CardPart("Settings", ["setting", ">value", "selected by"], settings(summary)),
        CardPart("Cost and versions", ["", ""], cost_rows(summary, versions)),
        CardPart("Limits", [], [], tuple(limits(classifier))),
    ]


def data_rows(model: Any) -> list[tuple[str, ...]]:
    """Returns what the model was trained on."""
    classifier = inside(model)
    summary, counts = classifier.summary_, np.asarray(classifier.model_.counts)
    source = getattr(model, "source_", None) or {}
    found = [
        ("training data", ", ".join(summary.get("data") or []) or "not recorded"),
        ("rows", f"{summary['rows']:,}"),
        ("labels", f"{summary['labels']:,}"),
        ("labels per row", f"{counts.sum() / max(1e-300, classifier.model_.total):.2f}"),
        ("task", "one class per row" if summary["task"] == "multiclass" else "any number of labels per row"),
        ("features", f"{summary['features']:,}{'' if model is classifier else ', made from texts'}"),
    ]
    if source.get("text"):
        found.append(("columns of text", ", ".join(source["text"])))
    return [*found, ("date of training", summary.get("date") or "not recorded")]


def held_out(summary: dict[str, Any]) -> CardPart:
    """Returns the metrics of the held-out training rows."""
    found = summary["held_out_metrics"]
    rows = [(key, format_value(key, found[key]), meaning(key)) for key in shown_keys() if key in found]
    return CardPart(f"On {plural(found['rows'], 'held-out training row')}", ["metric", ">value", "meaning"], rows)


def on_test_rows(tested: Evaluation, source: str) -> CardPart:
    """Returns a few metrics on test rows."""
    known = {key: tested.metrics[key] for key in FIGURES if key in tested.metrics}
    rows = [(key, format_value(key, metric.value), interval_text(key, metric, "–")) for key, metric in known.items()]
    of = f" of {source}" if source else ""
    return CardPart(f"On {plural(tested.n_rows, 'test row')}{of}", ["metric", ">value", ">90 % interval"], rows)


def settings(summary: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns each setting of the fit and what chose it."""
    skipped = ("task", "rows", "features", "labels")
    return [
        (name.replace("_", " "), setting_text(summary, name), str(summary.get("chosen_by", {}).get(name, "")))
        for name in LISTED_SETTINGS
        if name not in skipped and summary.get(name) not in (None, "", 0)
    ]


def cost_rows(summary: dict[str, Any], versions: dict[str, str]) -> list[tuple[str, ...]]:
    """Returns seconds and memory of each step, the longest first, and the versions."""
    seconds, peak = summary.get("seconds") or {}, summary.get("peak_memory_mb") or {}
    most = max((value for value in peak.values() if value), default=0)
    longest = sorted(seconds, key=seconds.__getitem__, reverse=True)
    return [
        ("seconds", f"{sum(seconds.values()):,.1f}"),
        ("of these", ", ".join(f"{step} {seconds[step]:,.1f}" for step in longest if seconds[step] >= 0.05)),
        ("peak memory", f"{most / 1024:.2f} GB"),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]


def limits(classifier: SmoothLinkClassifier) -> list[str]:
    """Returns what the model cannot do, in sentences."""
    summary, counts = classifier.summary_, np.asarray(classifier.model_.counts)
    rare, absent = np.count_nonzero((counts > 0) & (counts < FEW_LABEL_ROWS)), np.count_nonzero(counts == 0)
    held = summary.get("held_out_rows")
    found = [f"It knows {plural(summary['labels'], 'label')} and predicts no other."]
    if rare:
        found.append(f"{plural(int(rare), 'label')} had fewer than {FEW_LABEL_ROWS} training rows: few are predicted.")
    if absent:
        found.append(f"{plural(int(absent), 'label')} had no training row and cannot be predicted.")
    if summary["rows"] < FEW_ROWS:
        found.append(f"It was trained on few rows ({summary['rows']:,}): its figures are uncertain.")
    if held:
        found.append(
            f"Its probabilities were calibrated on {plural(held, 'held-out training row')}; they hold for rows like "
            f"these. {too_good(summary)}"
        )
    else:
        found.append("Its probabilities were not calibrated: no rows were held out.")
    return [*found, "Before using it on rows of another source or time, measure it on some of them."]


def too_good(summary: dict[str, Any]) -> str:
    """Returns a sentence on why the figures of held-out rows are not quite those of new rows."""
    chose = (
        "chose its settings and calibrated it" if "held-out rows" in summary["chosen_by"].values() else "calibrated it"
    )
    return f"Models trained without these rows scored them, but they also {chose}: expect a little less on new rows."


def as_markdown(title: str, parts: list[CardPart]) -> str:
    """Returns the card as Markdown."""
    lines = [f"# Model card: {in_markdown(title)}", ""]
    for part in parts:
        lines += [f"## {in_markdown(part.heading)}", ""]
        if part.headings:
            lines.append(f"| {' | '.join(heading.lstrip('>') for heading in part.headings)} |")
            lines.append(f"|{'|'.join('---:' if heading.startswith('>') else '---' for heading in part.headings)}|")
            lines += [f"| {' | '.join(map(in_markdown, row))} |" for row in part.rows]
        lines += [f"- {sentence}" for sentence in part.sentences]
        lines.append("")
    return "\n".join(lines)


def in_markdown(text: str) -> str:
    """Returns text that neither ends a cell nor becomes markup."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
