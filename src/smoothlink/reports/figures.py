"""The figures of reports and comparisons: a chart, its description in words, and its numbers in a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from smoothlink.metrics.bootstrap import Metric
from smoothlink.metrics.names import better_side
from smoothlink.metrics.reliability import PAIRS_FROM, Reliability, ThresholdCurve, wilson
from smoothlink.reports.charts import Chart, Scale, above, percent, points, short
from smoothlink.reports.measurements import FOUND, LabelGroup, Measured

CURVE_NAMES = 82  # pixels for the names of curves at their right ends
HEADLINES = {  # the metrics that are shown first, and what they are called
    "error": "Top label wrong",
    "p@1": "Top label right",
    "p@3": "Top three right",
    "ndcg@5": "Order of the top five",
    "psp@5": "Rare labels weighing more",
    "micro_f1": "F1 of all pairs",
    "macro_f1_alg4": "Mean F1 of the labels",
    "hamming": "Pairs that are wrong",
    "ece_top": "Probabilities off by",
}
TONES = {1: "a", -1: "b", 0: "g"}  # of the model that is better


class NumberTable(NamedTuple):
    """The numbers of a chart; headings that start with > are right-aligned."""

    caption: str
    headings: list[str]
    rows: list[tuple[Any, ...]]


class Figure(NamedTuple):
    """A chart on a page."""

    caption: str
    svg: Markup
    numbers: NumberTable | None = None


class Curve(NamedTuple):
    """One curve of a chart of several."""

    label: str  # short, at its end
    name: str  # in tables and tips
    values: list[Any]  # a Metric or a fraction at each place
    tone: str
    kind: str = "line"


def headline_keys(keys: Iterable[str], depth: int) -> list[str]:
    """Returns the metrics that are shown first, of those that there are; none looks at more than `depth` labels."""
    present = set(keys)
    return [key for key in HEADLINES if key in present and int(key.partition("@")[2] or 1) <= depth]


def percent_interval(metric: Metric, digits: int = 1) -> str:
    """Returns the interval of a fraction in percent, or nothing where none was drawn."""
    return "" if math.isnan(metric.low) else f"{points(metric.low, digits)} – {points(metric.high, digits)}"


def curves_at_k(ks: Sequence[int], curves: list[Curve], caption: str, *, bands: bool = True) -> Figure:
    """Returns metrics at k = 1, 2, .. against k."""
    axis = Scale(1, max(ks[-1], 2), "k, the number of labels", given_ticks=[(k, str(k)) for k in ks])
    chart = Chart(axis, Scale(0, 1, "", percent), right=CURVE_NAMES)
    for curve in curves:
        values = [metric.value for metric in curve.values]
        if bands:
            chart.band(ks, [m.low for m in curve.values], [m.high for m in curve.values], curve.tone)
        chart.line(ks, values, curve.tone, curve.label, kind=curve.kind)
        tips = [f"{curve.name}, k = {k}: {points(v)} %" for k, v in zip(ks, values, strict=True)]
        chart.dots(ks, values, curve.tone, tips)
    rows = [
        (k, *(cell for c in curves for cell in (points(c.values[i].value, 2), percent_interval(c.values[i], 2))))
        for i, k in enumerate(ks)
    ]
    headings = [">k", *(heading for curve in curves for heading in (f">{curve.name} %", ">90 % interval"))]
    ends = [
        f"at k = {ks[i]}: " + ", ".join(f"{curve.name} {points(curve.values[i].value)} %" for curve in curves)
        for i in (0, -1)
    ]
    return Figure(caption, chart.svg(f"{caption}; {'; '.join(ends)}."), NumberTable(caption, headings, rows))


def reliability_diagram(found: Reliability, caption: str, what: str) -> Figure:
    """Returns predicted probabilities against the share that is true."""
    chart = Chart(Scale(0, 1, "predicted probability", percent), Scale(0, 1, "share that is true", percent), height=330)
    chart.line([0, 1], [0, 1], "g", kind="dashes thin")
    predicted, true, count = (values.tolist() for values in found)
    low, high = wilson(found.true, found.mass)
    chart.whiskers(predicted, low.tolist(), high.tolist(), "a")
    tips = [
        f"predicted {points(p)} %, true {points(t)} % of {n:,.0f}"
        for p, t, n in zip(predicted, true, count, strict=True)
    ]
    chart.line(predicted, true, "a", kind="thin")
    chart.dots(predicted, true, "a", tips, 4)
    rows = [
        (points(p), points(t), f"{points(lo)} – {points(hi)}", f"{n:,.0f}")
        for p, t, lo, hi, n in zip(predicted, true, low, high, count, strict=True)
    ]
    few = "; ".join(tips[:: max(1, len(tips) // 5)])
    alt = f"{caption}: expected calibration error {points(found.error, 2)} points over {len(tips)} bins. {few}"
    numbers = NumberTable(caption, [">predicted %", ">true %", ">90 % interval", f">{what}"], rows)
    return Figure(f"{caption}: off by {points(found.error)} points", chart.svg(alt), numbers)


def reliability_diagrams(m: Measured) -> list[Figure]:
    """Returns the diagrams of the top label and, where any is likely enough, of all pairs."""
    found = [reliability_diagram(m.top, "The top label of each row", "rows")]
    if len(m.pairs.predicted):
        found.append(reliability_diagram(m.pairs, f"All pairs of {percent(PAIRS_FROM)} and more", "pairs"))
    return found


def threshold_figures(curve: ThresholdCurve, true_per_row: float) -> list[Figure]:
    """Returns precision, recall and F1, and labels per row, against the threshold."""
    at, best = curve.thresholds.tolist(), curve.best
    trade = Chart(Scale(0, 1, "threshold", percent), Scale(0, 1, "", percent), right=CURVE_NAMES)
    trade.vertical(at[best], f"best F1 at {percent(at[best])}")
    for values, tone, label in (
        (curve.precision, "a", "precision"),
        (curve.recall, "b", "recall"),
        (curve.f1, "c", "F1"),
    ):
        some = curve.labels_per_row > 0 if tone == "a" else np.ones(len(at), bool)
        trade.line(curve.thresholds[some].tolist(), values[some].tolist(), tone, label)
    most = above([curve.labels_per_row[9], true_per_row])
    many = Chart(Scale(0, 1, "threshold", percent), Scale(0, most, ""))
    many.level(true_per_row, f"true: {true_per_row:.2f}")
    drawn = curve.labels_per_row <= most
    many.line(curve.thresholds[drawn].tolist(), curve.labels_per_row[drawn].tolist(), "a")
    wanted = {5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, round(100 * at[best])}
    few = [i for i, t in enumerate(at) if round(100 * t) in wanted]
    rows = [
        (
            points(at[i], 0),
            *(points(values[i]) for values in (curve.precision, curve.recall, curve.f1)),
            f"{curve.labels_per_row[i]:.2f}",
        )
        for i in few
    ]
    headings = [">threshold %", ">precision %", ">recall %", ">F1 %", ">labels per row"]
    words = " ".join(
        f"At {percent(at[i])}: precision {percent(curve.precision[i])}, recall {percent(curve.recall[i])}, "
        f"{curve.labels_per_row[i]:.2f} labels per row."
        for i in few[1::4]
    )
    return [
        Figure(
            "Precision, recall and F1",
            trade.svg(f"Precision, recall and F1 against the threshold. {words}"),
            NumberTable("Precision and recall by threshold", headings, rows),
        ),
        Figure(
            "Labels per row",
            many.svg(f"Labels per row against the threshold, {true_per_row:.2f} of them true. {words}"),
        ),
    ]


def group_name(group: LabelGroup) -> str:
    """Returns the training rows of a group: 3 – 9, or 10,000 and more."""
    if group.least == group.most:
        return f"{group.least:,}"
    return f"{group.least:,} and more" if group.most is None else f"{group.least:,} – {group.most:,}"


def group_axis(groups: Sequence[LabelGroup]) -> Scale:
    ticks = [(float(i), short(group.least)) for i, group in enumerate(groups)]
    return Scale(-0.5, len(groups) - 0.5, "training rows of the label, from … on", given_ticks=ticks)


def frequency_figures(groups: list[LabelGroup]) -> list[Figure]:
    """Returns recall and F1 of rare and of frequent labels, and how many labels and true pairs there are."""
    at = [float(i) for i in range(len(groups))]
    labels, pairs = (np.array([getattr(g, name) for g in groups], float) for name in ("labels", "pairs"))
    shares = labels / labels.sum(), pairs / max(1.0, pairs.sum())
    sizes = Chart(group_axis(groups), Scale(0, above([*shares[0], *shares[1]]), "", percent), right=CURVE_NAMES)
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
    sized = "; ".join(f"{group_name(g)} training rows: {g.labels:,} labels, {g.pairs:,} true pairs" for g in groups)
    quality = curves_by_group(
        [
            (groups, Curve("recall", "recall", [g.recall for g in groups], "a")),
            (groups, Curve("F1", "F1", [g.f1 for g in groups], "b")),
        ],
        "What is found",
    )
    numbers = NumberTable("Labels by their frequency in training", headings, rows)
    return [quality._replace(numbers=numbers), Figure("Where labels are", sizes.svg(f"{sized}."))]


def curves_by_group(curves: list[tuple[list[LabelGroup], Curve]], caption: str) -> Figure:
    """Returns fractions of groups of labels against their training rows; the groups of two models may differ."""
    known = {group.least: group for groups, _ in curves for group in groups}
    edges = sorted(known)
    chart = Chart(group_axis([known[edge] for edge in edges]), Scale(0, 1, "", percent), right=CURVE_NAMES)
    cells = {edge: [""] * len(curves) for edge in edges}
    for i, (groups, curve) in enumerate(curves):
        at = [float(edges.index(group.least)) for group in groups]
        chart.line(at, curve.values, curve.tone, curve.label, kind=curve.kind)
        tips = [
            f"{group_name(g)} training rows: {curve.name} {points(v)} %"
            for g, v in zip(groups, curve.values, strict=True)
        ]
        chart.dots(at, curve.values, curve.tone, tips, 4)
        for group, value in zip(groups, curve.values, strict=True):
            cells[group.least][i] = points(value)
    names = [curve.name for _, curve in curves]
    words = "; ".join(
        f"{group_name(known[edge])} training rows: "
        + ", ".join(f"{name} {value} %" for name, value in zip(names, cells[edge], strict=True) if value)
        for edge in edges
    )
    rows = [(group_name(known[edge]), *cells[edge]) for edge in edges]
    numbers = NumberTable(caption, ["training rows", *(f">{name} %" for name in names)], rows)
    return Figure(caption, chart.svg(f"{caption}. {words}."), numbers)


class Spectrum(NamedTuple):
    """What the directions of an embedding capture."""

    directions: int
    captured: float
    half: int  # directions that hold half of it
    most: int  # and nine tenths
    figures: list[Figure]


def spectrum(summary: dict[str, Any]) -> Spectrum | None:
    """Returns the eigenvalues of the embedding and the share they capture; None where it has none."""
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
    shares.line(at, held, "a")
    half, most = (int(np.searchsorted(held, share * captured)) + 1 for share in (0.5, 0.9))
    steps = sorted({0, half - 1, most - 1, len(values) - 1, *(10**e - 1 for e in range(1, 6) if 10**e <= len(values))})
    rows = [(f"{at[i]:,}", f"{values[i]:.4g}", points(held[i])) for i in steps]
    numbers = NumberTable("The spectrum", [">direction", ">eigenvalue", ">captured so far %"], rows)
    return Spectrum(
        len(values),
        captured,
        half,
        most,
        [
            Figure(
                "Eigenvalues of Y'PY",
                sizes.svg(f"Eigenvalues from {values[0]:.3g} down to {values[-1]:.3g}."),
                numbers,
            ),
            Figure(
                "Captured by the first directions",
                shares.svg(
                    f"{len(values):,} directions capture {percent(captured)}: half of it is in the first {half:,}, "
                    f"nine tenths in the first {most:,}."
                ),
            ),
        ],
    )


def difference_figure(differences: dict[str, Metric], names: tuple[str, str]) -> Figure:
    """Returns the differences of two models with their intervals, a line for each metric."""
    reach = above([abs(v) for d in differences.values() for v in d if not math.isnan(v)], 0.001)
    ticks = [(float(-i), HEADLINES[key]) for i, key in enumerate(differences)]
    axis = Scale(-reach, reach, f"{names[0]} minus {names[1]}, in points", signed_points)
    low = 0.5 - len(ticks)
    chart = Chart(axis, Scale(low, 0.5, "", given_ticks=ticks), left=160, height=60 + 26 * len(ticks))
    chart.line([0, 0], [low, 0.5], "g", kind="thin")
    for (place, name), (key, d) in zip(ticks, differences.items(), strict=True):
        tone = TONES[better_side(key, d)]
        if not math.isnan(d.low):
            chart.line([d.low, d.high], [place, place], tone)
        chart.dots([d.value], [place], tone, [f"{name}: {100 * d.value:+.2f} points"], 3.6)
    alt = "; ".join(f"{HEADLINES[key]}: {100 * d.value:+.2f} points" for key, d in differences.items())
    return Figure("Differences", chart.svg(alt))


def signed_points(value: float) -> str:
    """Returns a fraction in points: +10, 0 or −2.5."""
    return f"{100 * value:+.3g}".replace("-", "\N{MINUS SIGN}") if value else "0"
