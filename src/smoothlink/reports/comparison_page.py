"""The page of two models side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothlink.errors import plural
from smoothlink.metrics.names import better, meaning
from smoothlink.reports.charts import Chart, Scale, above, percent
from smoothlink.reports.html import Safe, details, page, pair, prose, section, table, tag
from smoothlink.reports.lists import SETTINGS, chip, cut_off, label_of, setting
from smoothlink.reports.report_page import Drawn, contents, ending, spelled_date
from smoothlink.reports.sections import CARDS, NAMED, diagram, group_axis, group_name, points

if TYPE_CHECKING:
    from smoothlink.reports.comparison import Comparison
    from smoothlink.reports.test_data import Trial

PARTS = {
    "differences": "Differences",
    "ranking": "Ranking",
    "frequency": "Rare labels",
    "trust": "Probabilities",
    "rows": "Rows",
    "training": "Training",
}
SHOWN = 4  # rows that one model has right and the other wrong


def rendered(found: Comparison, trials: tuple[Trial, Trial], source: str, drawn: Drawn) -> str:
    """The page of a comparison."""
    title = f"{found.names[0]} and {found.names[1]}"
    sections = [
        differences(found),
        ranking(found),
        frequency(found),
        trust(found),
        rows(found, trials, drawn.seed),
        training(found, [trial.case.classifier.summary_ for trial in trials]),
    ]
    n = found.measured[0].n
    top = (
        tag("p", "smoothlink comparison", class_="over"),
        tag("h1", title),
        tag("p", f"{plural(n, 'row')}{f' of {source}' if source else ''}. {spelled_date(drawn.day)}.", class_="under"),
        tag("p", prose(verdict(found)), class_="verdict"),
        contents(sections, PARTS),
    )
    return page(f"{title}: smoothlink comparison", tag("header", *top), *sections, ending(drawn))


def short_names(found: Comparison) -> tuple[str, str]:
    """Names that fit beside a curve."""
    first, second = found.names
    return (first, second) if max(len(first), len(second)) <= 9 else ("A", "B")


def verdict(found: Comparison) -> str:
    """Who is better at what, and on how many rows."""
    wins = [better(key, metric.difference) for key, metric in headline(found).items()]
    n, agreed = found.measured[0].n, found.agreement
    counts = wins.count(1), wins.count(-1)
    rest = "" if sum(counts) == len(wins) else "; the others do not differ by more than chance"
    said = (
        f"Of {len(wins)} measures, {found.names[0]} is better in {counts[0]} and {found.names[1]} in {counts[1]}{rest}."
        if any(counts)
        else f"None of {len(wins)} measures differs by more than chance."
    )
    shares = [points(count / n) for count in agreed]
    return (
        f"{said} The first label of both is right for {shares[0]} % of the rows, that of {found.names[0]} alone for "
        f"{shares[1]} %, that of {found.names[1]} alone for {shares[2]} %."
    )


def headline(found: Comparison) -> dict[str, Any]:
    return {key: found.metrics[key] for key in CARDS if key in found.metrics}


def differences(found: Comparison) -> Safe:
    """The differences that are looked at first in a figure, and all in a table."""
    few = headline(found)
    reach = above([abs(v) for m in few.values() for v in m.difference if not math.isnan(v)], 0.001)
    names = [(float(-i), CARDS[key]) for i, key in enumerate(few)]
    axis = Scale(-reach, reach, f"{found.names[0]} minus {found.names[1]}, in points", in_points)
    chart = Chart(axis, Scale(0.5 - len(few), 0.5, "", marks=names), left=160, height=60 + 26 * len(few))
    chart.line([0, 0], [0.5 - len(few), 0.5], "g", kind="thin")
    for (place, name), (key, metric) in zip(names, few.items(), strict=True):
        tone, d = tone_of(key, metric.difference), metric.difference
        if not math.isnan(d.low):
            chart.line([d.low, d.high], [place, place], tone)
        chart.dots([d.value], [place], tone, [f"{name}: {100 * d.value:+.2f} points"], 3.6)
    alt = "; ".join(f"{CARDS[key]}: {100 * metric.difference.value:+.2f} points" for key, metric in few.items())
    lead = (
        "Whiskers are 90 % intervals under the same draws of rows: one that does not reach 0 is more than chance. Blue "
        f"is to the advantage of {found.names[0]}, orange of {found.names[1]}, grey of neither."
    )
    figure = chart.figure(alt, "Differences")
    return section("differences", "Which is better?", lead, figure, details("All metrics", metric_table(found)))


def in_points(value: float) -> str:
    """+10, 0 or −2.5"""
    return f"{100 * value:+.3g}".replace("-", "\N{MINUS SIGN}") if value else "0"


def tone_of(key: str, difference: Any) -> str:
    return {1: "a", -1: "b", 0: "g"}[better(key, difference)]


def metric_table(found: Comparison) -> Safe:
    """Both values of each metric, their difference and its interval."""
    body = []
    for key, (first, second, d) in found.metrics.items():
        if key.partition("@")[2] not in ("", "1", "3", "5"):
            continue
        kind = {"a": "less", "b": "more", "g": None}[tone_of(key, d)]
        between = "" if math.isnan(d.low) else f"{d.low:+.4f} – {d.high:+.4f}"
        change = tag("span", f"{d.value:+.4f}", class_=kind)
        body.append((key, f"{first.value:.4f}", f"{second.value:.4f}", change, between, meaning(key)))
    headings = ["metric", *(f">{name}" for name in found.names), ">difference", ">90 % interval", "meaning"]
    return table(headings, body, "All metrics of both")


def ranking(found: Comparison) -> Safe:
    """P@k and nDCG@k of both."""
    ks = [int(key[2:]) for key in found.metrics if key.startswith("p@")]
    figures = [curve(found, family, ks, caption) for family, caption in (("p", "P@k"), ("ndcg", "nDCG@k"))]
    lead = "The share of the first k labels that is true, and the quality of their order."
    return section("ranking", "Whose right labels come first?", lead, pair(*figures))


def curve(found: Comparison, family: str, ks: Sequence[int], caption: str) -> Safe:
    axis = Scale(1, max(ks[-1], 2), "k, the labels looked at", marks=[(k, str(k)) for k in ks])
    chart = Chart(axis, Scale(0, 1, "", percent), right=NAMED)
    values = [[getattr(found.metrics[f"{family}@{k}"], side).value for k in ks] for side in ("first", "second")]
    for i, (name, tone) in enumerate(zip(short_names(found), "ab", strict=True)):
        chart.line(ks, values[i], tone, name, kind="line" if i == 0 else "dashes")
        chart.dots(
            ks,
            values[i],
            tone,
            [f"{found.names[i]}, k = {k}: {points(v)} %" for k, v in zip(ks, values[i], strict=True)],
        )
    body = [(k, points(a, 2), points(b, 2)) for k, a, b in zip(ks, *values, strict=True)]
    numbers = table([">k", *(f">{name} %" for name in found.names)], body, caption)
    ends = [
        f"{points(a)} and {points(b)} % at {k}"
        for k, a, b in (list(zip(ks, *values, strict=True))[:: len(ks) - 1 or 1])
    ]
    alt = f"{caption}: {', '.join(ends)}."
    return chart.figure(alt, caption, details("Numbers", numbers))


def frequency(found: Comparison) -> Safe:
    """What either finds of rare and of frequent labels."""
    figures = [
        by_group(found, name, caption) for name, caption in (("recall", "Recall@5"), ("f1", "Mean F1 of labels"))
    ]
    lead = "Labels by how many training rows each model had of them, from the tail to the head."
    return section("frequency", "From rare labels to frequent ones", lead, pair(*figures))


def by_group(found: Comparison, name: str, caption: str) -> Safe:
    widest = max((side.groups for side in found.measured), key=len)
    edges = sorted({g.least for side in found.measured for g in side.groups})
    axis = group_axis([next(g for s in found.measured for g in s.groups if g.least == e) for e in edges])
    chart, body = Chart(axis, Scale(0, 1, "", percent), right=NAMED), {group_name(g): ["", ""] for g in widest}
    for i, (side, tone) in enumerate(zip(found.measured, "ab", strict=True)):
        at = [float(edges.index(g.least)) for g in side.groups]
        values = [getattr(g, name) for g in side.groups]
        chart.line(at, values, tone, short_names(found)[i], kind="line" if i == 0 else "dashes")
        chart.dots(at, values, tone, [f"{found.names[i]}: {points(v)} %" for v in values], 4)
        for g, value in zip(side.groups, values, strict=True):
            body.setdefault(group_name(g), ["", ""])[i] = points(value)
    numbers = table(["training rows", *(f">{n} %" for n in found.names)], [(k, *v) for k, v in body.items()], caption)
    alt = "; ".join(f"{key} training rows: {first} and {second} %" for key, (first, second) in body.items())
    return chart.figure(f"{caption}. {alt}.", caption, details("Numbers", numbers))


def trust(found: Comparison) -> Safe:
    """Reliability diagrams of the first labels of both."""
    lead = "How often the first label of a row is true, against the probability it was given; best on the dashed line."
    figures = [diagram(side.top, name, "rows") for side, name in zip(found.measured, found.names, strict=True)]
    return section("trust", "Whose probabilities can be trusted?", lead, pair(*figures))


def rows(found: Comparison, trials: tuple[Trial, Trial], seed: int) -> Safe:
    """Rows that only one has right, drawn at random."""
    right, content = [side.hit[:, 0] for side in found.measured], []
    for i, name in enumerate(found.names):
        only = np.flatnonzero(right[i] & ~right[1 - i])
        drawn = np.sort(np.random.default_rng([seed, i]).permutation(only)[:SHOWN])
        if len(drawn):
            shown = [example(found, trials, row) for row in drawn.tolist()]
            content += [tag("h3", f"Only {name} is right: {len(only):,} rows"), tag("ul", shown, class_="rows")]
    lead = "Rows whose first label is right by one model and wrong by the other, drawn at random."
    return section("rows", "Where they differ", lead, *(content or [tag("p", "There are none.", class_="quiet")]))


def example(found: Comparison, trials: tuple[Trial, Trial], row: int) -> Safe:
    """A row, its labels, and the first labels of either model."""
    truth = {str(label_of(found.measured[0], j)) for j in found.measured[0].true(row)}
    said = [tag("dt", "true"), tag("dd", [chip(name, None, "") for name in sorted(truth)])]
    for name, side in zip(short_names(found), found.measured, strict=True):
        best = list(zip(*side.ranked(row), strict=True))[:3]
        mine = set(side.true(row))
        chips = [chip(label_of(side, j), f"{100 * p:.0f} %", "hit" if j in mine else "miss") for j, p in best]
        said += [tag("dt", name), tag("dd", chips)]
    text = tag("p", tag("bdi", cut_off(trials[0].case.shown(row))), class_="text")
    return tag("li", tag("div", f"row {row:,}", class_="number"), text, tag("dl", said, class_="said"))


def training(found: Comparison, summaries: Sequence[dict[str, Any]]) -> Safe:
    """The settings of both; those that differ stand out."""
    body = []
    for name in SETTINGS:
        both = [setting(summary, name) for summary in summaries]
        if any(both):
            mark = "differs" if both[0] != both[1] else "quiet"
            body.append((name.replace("_", " "), *(tag("span", text, class_=mark) for text in both)))
    seconds = [f"{sum((summary.get('seconds') or {}).values()):,.1f}" for summary in summaries]
    body.append(("seconds in all", *seconds))
    table_of = table(["setting", *(f">{name}" for name in found.names)], body, "Settings and times")
    return section("training", "How were they trained?", "Settings that differ are in bold.", table_of)
