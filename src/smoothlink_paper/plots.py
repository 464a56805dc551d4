"""Pictures of records: dots with whiskers, curves, and SVG files that are the same bytes for the same record.

matplotlib is an optional extra (`report`) and is imported only when something is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from smoothlink.data.atomic import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers tell apart; without yellow, which white paper swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
OURS, INK, GREY, PALE = "#D55E00", "#222222", "#777777", "#DDDDDD"
MARKERS = "osD^vP"
PLACES = re.compile(r' (?:d|x|y|width|height|transform)="[^"]*"')  # the attributes of an SVG that hold coordinates
STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: small, searchable, and read aloud
    "svg.hashsalt": "smoothlink",  # else ids are random
}


class Row(NamedTuple):
    """One dot with its interval."""

    label: str
    value: float
    low: float
    high: float
    strong: bool = False  # ours


class Curve(NamedTuple):
    """Values with intervals along a number."""

    label: str
    at: Sequence[float]
    metrics: Sequence[dict[str, float]]  # value, low, high
    colour: str
    marker: str = "o"


def dot(label: str, metric: dict[str, float] | None, *, strong: bool = False, scale: float = 1) -> Row:
    """A row of a record's metric, multiplied by `scale`; None leaves its place empty."""
    value, low, high = (scale * metric[key] if metric else float("nan") for key in ("value", "low", "high"))
    return Row(label, value, low, high, strong)


def styled(draw: Callable[[dict[str, Any]], Figure]) -> Callable[[dict[str, Any]], Figure]:
    """An experiment's `plot` in the house style, whatever the user's own is."""

    @wraps(draw)
    def figure_of(record: dict[str, Any]) -> Figure:
        from matplotlib.style import context

        with context(["default", STYLE]):
            return draw(record)

    return figure_of


def canvas(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure of `width` x `height` inches and its axes (rows, columns)."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = made.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        ax.tick_params(length=2.5, width=0.6, color=GREY, labelcolor=INK, labelsize=7.5)
        ax.grid(True, color=PALE, linewidth=0.5)
        ax.set_axisbelow(True)
    return made, axes


def intervals(ax: Axes, rows: Sequence[Row], *, names: bool = True, ticks: int = 4) -> None:
    """A dot with a whisker for each row, the first on top; ours in colour; nothing where the value is not a number.

    Without `names` the labels are left out, for axes that stand beside others with the same rows.
    """
    for strong in (False, True):
        chosen = [(place, r) for place, r in enumerate(rows) if r.strong == strong]
        if not chosen:
            continue
        values = [r.value for _, r in chosen]
        reach = [[r.value - r.low for _, r in chosen], [r.high - r.value for _, r in chosen]]
        ax.errorbar(
            values,
            [place for place, _ in chosen],
            xerr=reach,
            fmt="D" if strong else "o",
            color=OURS if strong else INK,
            markersize=4.5 if strong else 3.5,
            elinewidth=1.4 if strong else 0.9,
        )
    named = rows if names else []
    ax.set_yticks(range(len(named)), [r.label for r in named])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.margins(x=0.08)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    for text, r in zip(ax.get_yticklabels(), named, strict=True):
        text.set_fontweight("bold" if r.strong else "normal")
    few_ticks(ax.xaxis, ticks)


def band(ax: Axes, low: float, high: float, label: str = "") -> None:
    """A published interval, behind the dots."""
    ax.axvspan(low, high, color=COLOURS[4], alpha=0.35, linewidth=0, zorder=0, label=label)


def level(ax: Axes, metric: dict[str, float], label: str, style: str = "--") -> None:
    """A method that does not depend on what the curves run along."""
    ax.axhline(metric["value"], color=GREY, linewidth=1.1, linestyle=style, zorder=1, label=label)


def curves(ax: Axes, found: Sequence[Curve]) -> None:
    """Curves over a logarithmic axis with a tick at each point; at its right, the intervals of the last points.

    Those of all points, drawn over each other, would hide the curves: they are much alike along a curve.
    """
    ax.set_xscale("log")
    at = sorted({x for curve in found for x in curve.at})
    step = (at[-1] / at[0]) ** 0.025  # the same on paper, whatever the axis spans
    for number, curve in enumerate(found):
        look: Any = {"color": curve.colour, "marker": curve.marker, "markersize": 3.5, "linewidth": 1.3}
        ax.plot(curve.at, [m["value"] for m in curve.metrics], label=curve.label, **look)
        last = curve.metrics[-1]
        ax.vlines(at[-1] * step ** (number + 1.5), last["low"], last["high"], color=curve.colour, linewidth=1.3)
    ax.set_xticks(at, [f"{x:g}" for x in at])
    ax.set_xticks([], minor=True)
    few_ticks(ax.yaxis, 5)


def few_ticks(axis: Any, most: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))


def legend(made: Figure, axes: Iterable[Axes], columns: int) -> None:
    """One legend below all axes, each name once."""
    named: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    made.legend(list(named.values()), list(named), loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


def save(made: Figure, path: Path) -> None:
    """Writes a picture whole or not at all, in the format of the path's ending; an SVG is the same bytes for the same
    figure."""
    from matplotlib.style import context

    with context(["default", STYLE]), replace_file(path) as file:
        if path.suffix != ".svg":
            made.savefig(file, format=path.suffix[1:], dpi=150)
            return
        drawn = StringIO()
        made.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
        file.write(PLACES.sub(rounded, drawn.getvalue()).encode())


def rounded(attribute: re.Match[str]) -> str:
    """Coordinates to a hundredth of a point: a fifth of the file is digits beyond."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", attribute[0])


def image(name: str, alt: str) -> str:
    """The line of a page that shows its picture."""
    return f"![{alt}]({name}.svg)"
