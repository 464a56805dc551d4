"""The sections of a report that are figures, each with a sentence on what it shows and its numbers in a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from smoothlink.metrics.names import meaning
from smoothlink.metrics.reliability import WORTH_SAYING, Cuts, Reliability, wilson
from smoothlink.reports.charts import Chart, Scale, above, percent, short
from smoothlink.reports.html import Safe, details, pair, section, table, tag
from smoothlink.reports.measurements import FOUND, Group, Measured

NAMED = 82  # room for the names of curves at their right ends
CARDS = {
    "error": "First label wrong",
    "p@1": "First label right",
    "p@3": "First three right",
    "ndcg@5": "Order of the first five",
    "psp@5": "Rare labels weighing more",
    "micro_f1": "F1 of all pairs",
    "macro_f1_alg4": "Mean F1 of the labels",
    "hamming": "Pairs that are wrong",
    "ece_top": "Probabilities off by",
}


def points(value: float, digits: int = 1) -> str:
    """A fraction as a percentage, without the sign."""
    return f"{100 * value:.{digits}f}"


def digits_of(value: float) -> int:
    return 1 if value >= 0.02 else 2


def span(metric: Any, digits: int = 1) -> str:
    """The interval of a fraction, or nothing where none was drawn."""
    return "" if math.isnan(metric.low) else f"{points(metric.low, digits)} – {points(metric.high, digits)}"


def headline(m: Measured, multiclass: bool) -> Safe:
    """The few numbers that are looked at first, then all of them."""
    skipped = ("p@1", "p@3", "hamming", "micro_f1") if multiclass else ("error",)
    cards = [card(name, key, m.metrics[key]) for key, name in CARDS.items() if key in m.metrics and key not in skipped]
    rows = [
        (
            key,
            f"{metric.value:.4f}",
            "" if math.isnan(metric.low) else f"{metric.low:.4f} – {metric.high:.4f}",
            meaning(key),
        )
        for key, metric in m.metrics.items()
        if key.partition("@")[2] in ("", "1", "3", "5")
    ]
    every = table(["metric", ">value", ">90 % interval", "meaning"], rows, "All metrics")
    lead = "Bars mark the value between 0 and 100 %, as wide as its 90 % interval."
    return section("headline", "How good is it?", lead, tag("dl", cards, class_="cards"), details("All metrics", every))


def card(name: str, key: str, metric: Any) -> Safe:
    """One number with its interval."""
    digits = digits_of(metric.value)
    low, high = (metric.value, metric.value) if math.isnan(metric.low) else (metric.low, metric.high)
    bar = tag("i", style=f"left:{100 * min(low, 0.99):.2f}%;width:{100 * (high - low):.2f}%")
    said = tag("span", points(metric.value, digits), tag("span", "%", class_="unit"), class_="value")
    interval = tag("div", span(metric, digits), tag("span", key, class_="key"), class_="interval")
    return tag("div", tag("dt", name), tag("dd", said, tag("div", bar, class_="track"), interval), class_="card")


def curves(m: Measured, names: Sequence[tuple[str, str]], caption: str) -> Safe:
    """Metrics at k = 1, 2, .. against k."""
    chart = Chart(
        Scale(1, max(max(m.ks), 2), "k, the labels looked at", marks=[(k, str(k)) for k in m.ks]),
        Scale(0, 1, "", percent),
        right=NAMED,
    )
    for (key, label), tone in zip(names, "ab", strict=False):
        found = [m.metrics[f"{key}@{k}"] for k in m.ks]
        values = [metric.value for metric in found]
        chart.band(m.ks, [metric.low for metric in found], [metric.high for metric in found], tone)
        chart.line(m.ks, values, tone, label)
        chart.dots(m.ks, values, tone, [f"{label} at {k}: {points(v)} %" for k, v in zip(m.ks, values, strict=True)])
    rows = [(k, *(cell for key, _ in names for cell in with_span(m.metrics[f"{key}@{k}"]))) for k in m.ks]
    headings = [">k", *(heading for _, label in names for heading in (f">{label} %", ">90 % interval"))]
    first, last = (
        ", ".join(f"{label} {points(m.metrics[f'{key}@{k}'].value)} %" for key, label in names) for k in (1, m.ks[-1])
    )
    alt = f"{caption}. At k = 1: {first}; at k = {m.ks[-1]}: {last}."
    return chart.figure(alt, caption, details("Numbers", table(headings, rows, caption)))


def with_span(metric: Any) -> tuple[str, str]:
    return points(metric.value, 2), span(metric, 2)


def ranking(m: Measured) -> Safe:
    """P@k, nDCG@k and their propensity-scored forms."""
    a_row = m.Y.nnz / m.n
    lead = (
        f"Labels come in order. P@k is the share of the first k that is true: it must fall, since a row has "
        f"{a_row:.1f} labels on average. nDCG@k counts early places more and is measured against the best order there "
        "is. On the right, rare labels count more."
    )
    plain = curves(m, [("p", "P@k"), ("ndcg", "nDCG@k")], "Precision and ranking quality")
    rare = curves(m, [("psp", "PSP@k"), ("psndcg", "PSnDCG@k")], "The same, rare labels counting more")
    return section("ranking", "Are the right labels first?", lead, pair(plain, rare))


def diagram(found: Reliability, caption: str, what: str) -> Safe:
    """Said probabilities against the share that came true."""
    chart = Chart(Scale(0, 1, "probability said", percent), Scale(0, 1, "share that is true", percent), height=330)
    chart.line([0, 1], [0, 1], "g", kind="dashes thin")
    said, true, count = (values.tolist() for values in found)
    low, high = wilson(found.true, found.mass)
    chart.whiskers(said, low.tolist(), high.tolist(), "a")
    tips = [f"said {points(p)} %, true {points(t)} % of {n:,.0f}" for p, t, n in zip(said, true, count, strict=True)]
    chart.line(said, true, "a", kind="thin")
    chart.dots(said, true, "a", tips, 4)
    rows = [
        (points(p), points(t), f"{points(lo)} – {points(hi)}", f"{n:,.0f}")
        for p, t, lo, hi, n in zip(said, true, low, high, count, strict=True)
    ]
    numbers = table([">said %", ">true %", ">90 % interval", f">{what}"], rows, caption)
    alt = f"{caption}: expected calibration error {points(found.error, 2)} points over {len(said)} bins. " + "; ".join(
        tips[:: max(1, len(tips) // 5)]
    )
    return chart.figure(alt, f"{caption}: off by {points(found.error)} points", details("Numbers", numbers))


def trust(m: Measured) -> Safe:
    """Reliability diagrams of the first label and of all pairs."""
    lead = (
        "Of all cases that were given a probability of 70 %, 70 % should be true: points on the dashed line. Each "
        "point stands for a fifteenth of the cases; whiskers are 90 % intervals. The error is the mean distance from "
        "the line."
    )
    top = diagram(m.top, "The first label of each row", "rows")
    least = points(WORTH_SAYING, 0)
    pairs = diagram(m.pairs, f"All pairs of {least} % and more", "pairs") if len(m.pairs.said) else None
    return section("trust", "Can its probabilities be trusted?", lead, pair(top, pairs))


def cut(m: Measured) -> Safe:
    """What each threshold would give."""
    cuts, best, a_row = m.cuts, m.cuts.best, m.Y.nnz / m.n
    at = cuts.thresholds.tolist()
    trade = Chart(Scale(0, 1, "threshold", percent), Scale(0, 1, "", percent), right=NAMED)
    trade.upright(at[best], f"best F1 at {percent(at[best])}")
    for values, tone, label in ((cuts.precision, "a", "precision"), (cuts.recall, "b", "recall"), (cuts.f1, "c", "F1")):
        some = cuts.a_row > 0 if tone == "a" else np.ones(len(at), bool)
        trade.line(cuts.thresholds[some].tolist(), values[some].tolist(), tone, label)
    most = above([cuts.a_row[9], a_row]) if len(at) > 9 else above([a_row])
    many = Chart(Scale(0, 1, "threshold", percent), Scale(0, most, ""))
    many.level(a_row, f"in truth {a_row:.2f}")
    shown = cuts.a_row <= most
    many.line(cuts.thresholds[shown].tolist(), cuts.a_row[shown].tolist(), "a")
    lead = (
        "Predict every label of at least some probability: a low threshold finds more, a high one errs less. F1 of "
        f"all pairs is highest at {percent(at[best])}: precision {points(cuts.precision[best])} %, recall "
        f"{points(cuts.recall[best])} %, {cuts.a_row[best]:.2f} labels a row."
    )
    alt = f"Precision, recall and F1 against the threshold. {cut_words(cuts)}"
    trading = trade.figure(alt, "Precision, recall and F1", details("Numbers", cut_table(cuts)))
    alt = f"Labels a row against the threshold, {a_row:.2f} in truth. {cut_words(cuts)}"
    return section("threshold", "Where to cut?", lead, pair(trading, many.figure(alt, "Labels a row")))


def few_cuts(cuts: Cuts) -> list[int]:
    """Thresholds for a table, the best among them."""
    wanted = {5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, round(100 * float(cuts.thresholds[cuts.best]))}
    return [i for i, t in enumerate(cuts.thresholds.tolist()) if round(100 * t) in wanted]


def cut_words(cuts: Cuts) -> str:
    return " ".join(
        f"At {percent(cuts.thresholds[i])}: precision {percent(cuts.precision[i])}, recall {percent(cuts.recall[i])}, "
        f"{cuts.a_row[i]:.2f} labels a row."
        for i in few_cuts(cuts)[1::4]
    )


def cut_table(cuts: Cuts) -> Safe:
    headings = [">threshold %", ">precision %", ">recall %", ">F1 %", ">labels a row"]
    rows = [
        (
            points(cuts.thresholds[i], 0),
            *(points(values[i]) for values in (cuts.precision, cuts.recall, cuts.f1)),
            f"{cuts.a_row[i]:.2f}",
        )
        for i in few_cuts(cuts)
    ]
    return table(headings, rows, "What a threshold gives")


def group_name(group: Group) -> str:
    """3 – 9 training rows"""
    if group.least == group.most:
        return f"{group.least:,}"
    return f"{group.least:,} and more" if group.most is None else f"{group.least:,} – {group.most:,}"


def group_axis(groups: Sequence[Group]) -> Scale:
    places = [(float(i), short(group.least)) for i, group in enumerate(groups)]
    return Scale(-0.5, len(groups) - 0.5, "training rows of the label, from … on", marks=places)


def frequency(m: Measured) -> Safe:
    """What is found of rare and of frequent labels."""
    groups, at = m.groups, [float(i) for i in range(len(m.groups))]
    quality = Chart(group_axis(groups), Scale(0, 1, "", percent), right=NAMED)
    for values, tone, label in (([g.recall for g in groups], "a", "recall"), ([g.f1 for g in groups], "b", "F1")):
        quality.line(at, values, tone, label)
        tips = [f"{group_name(g)} training rows: {label} {points(v)} %" for g, v in zip(groups, values, strict=True)]
        quality.dots(at, values, tone, tips, 4)
    labels, pairs = (np.array([getattr(g, name) for g in groups], float) for name in ("labels", "pairs"))
    shares = labels / labels.sum(), pairs / max(1.0, pairs.sum())
    sizes = Chart(group_axis(groups), Scale(0, above([*shares[0], *shares[1]]), "", percent), right=NAMED)
    for share, counts, tone, shift, label in zip(
        shares, (labels, pairs), "gc", (-0.55, 0.55), ("labels", "true pairs"), strict=True
    ):
        sizes.bars(at, share.tolist(), tone, [f"{n:,.0f} {label}" for n in counts.tolist()], shift)
        sizes.ends.append((40.0, label, tone))
    rows = [
        (group_name(g), f"{g.labels:,}", f"{g.pairs:,}", points(g.recall), points(g.precision), points(g.f1))
        for g in groups
    ]
    headings = ["training rows", ">labels", ">true pairs", f">recall@{FOUND} %", f">precision@{FOUND} %", ">F1 %"]
    numbers = details("Numbers", table(headings, rows, "Labels by their frequency in training"))
    lead = (
        "From the tail to the head: labels by how many training rows they had. Recall is the share of true labels "
        f"found among the first {FOUND} of their row; F1 the mean over labels, sets by Algorithm 4."
    )
    alt = "; ".join(f"{group_name(g)} training rows: recall {percent(g.recall)}, F1 {percent(g.f1)}" for g in groups)
    sized = "; ".join(f"{group_name(g)} training rows: {g.labels:,} labels, {g.pairs:,} true pairs" for g in groups)
    both = (
        quality.figure(f"Recall and F1. {alt}.", "What is found", numbers),
        sizes.figure(f"{sized}.", "Where labels are"),
    )
    return section("frequency", "From rare labels to frequent ones", lead, pair(*both))


def spectrum(summary: dict[str, Any]) -> Safe | None:
    """The eigenvalues of the embedding and what share of the predictable they hold; None where it has none."""
    values = [value for value in summary.get("spectrum") or [] if value > 0]
    captured = summary.get("captured_share")
    if len(values) < 2 or captured is None:
        return None
    at = list(range(1, len(values) + 1))
    axis = Scale(1, len(values), "direction", lambda v: f"{v:,.0f}", log=True)
    sizes = Chart(axis, Scale(min(values) * 0.8, max(values) * 1.2, "", log=True))
    sizes.line(at, values, "a")
    held = (np.cumsum(values) / np.sum(values) * captured).tolist()
    shares = Chart(axis._replace(log=False), Scale(0, 1, "", percent))
    shares.line([0, *at] if len(at) < 2 else at, held, "a")
    half, most = (int(np.searchsorted(held, share * captured)) + 1 for share in (0.5, 0.9))
    lead = (
        f"The embedding keeps {len(values):,} directions of label space, {percent(captured)} of what the features "
        f"predict of the labels (tr Y'PY). Half of this is in the first {half:,}, nine tenths in the first {most:,}."
    )
    steps = sorted({0, half - 1, most - 1, len(values) - 1, *(10**e - 1 for e in range(1, 6) if 10**e <= len(values))})
    rows = [(f"{at[i]:,}", f"{values[i]:.4g}", points(held[i])) for i in steps]
    numbers = details("Numbers", table([">direction", ">eigenvalue", ">captured so far %"], rows, "The spectrum"))
    first = sizes.figure(f"Eigenvalues from {values[0]:.3g} down to {values[-1]:.3g}.", "Eigenvalues of Y'PY", numbers)
    second = shares.figure(lead, "Captured by the first directions")
    return section("spectrum", "What does the embedding hold?", lead, pair(first, second))
