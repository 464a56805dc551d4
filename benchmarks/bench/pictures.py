"""The pictures of the page: accuracy against seconds, and growth."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from bench.cells import METHODS
from bench.growth import AXES, along, exponents
from smoothlink_paper.plots import COLOURS, GREY, INK, OURS, canvas, few_ticks, legend, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A colour a library, a mark a method.
LOOKS = {
    "smoothlink": (OURS, "D"),
    "smoothlink-quick": (OURS, "v"),
    "smoothlink-stepwise": (OURS, "^"),
    "omikuji": (COLOURS[0], "o"),
    "omikuji-bonsai": (COLOURS[0], "s"),
    "omikuji-logistic": (COLOURS[0], "^"),
    "napkinxc-plt": (COLOURS[2], "o"),
    "napkinxc-br": (COLOURS[2], "s"),
    "pecos": (COLOURS[3], "o"),
    "sklearn-logistic": (GREY, "o"),
    "sklearn-ridge": (GREY, "s"),
}


@styled
def accuracy_against_seconds(sets: dict[str, dict[str, dict[str, Any]]]) -> Figure:
    """P@1 with its interval over the seconds of training, one panel a data set."""
    across = min(4, len(sets))
    down = -(-len(sets) // across)
    made, axes = canvas(down, across, 2.6 * across + 0.6, 2.2 * down + 0.9)
    for ax, (name, cells) in zip(axes.flat, sets.items(), strict=False):
        panel(ax, cells)
        ax.set_title(name)
    for place, ax in enumerate(axes.flat):
        ax.set_visible(place < len(sets))
        if place + across >= len(sets):  # nothing below it
            ax.set_xlabel("seconds of training")
    made.supylabel("P@1 in %, 90 % intervals", fontsize=8)
    legend(made, axes.flat, 3)
    return made


def panel(ax: Axes, cells: dict[str, dict[str, Any]]) -> None:
    for method, cell in cells.items():
        if "metrics" not in cell:
            continue
        colour, mark = LOOKS[method]
        value, low, high = (100 * cell["metrics"]["p@1"][key] for key in ("value", "low", "high"))
        ax.errorbar(
            [cell["costs"]["train_seconds"]],
            [value],
            yerr=[[value - low], [high - value]],
            fmt=mark,
            color=colour,
            markersize=5 if method == "smoothlink" else 4,
            elinewidth=1,
            label=METHODS[method],
        )
    whole_decades(ax.xaxis, [cell["costs"]["train_seconds"] for cell in cells.values() if "metrics" in cell])
    few_ticks(ax.yaxis, 5)


def whole_decades(axis: Any, values: list[float]) -> None:
    """A logarithmic axis around the values, labelled at powers of ten alone, in plain numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    if values and min(values) > 0:
        low, high = floor(log10(0.9 * min(values))), ceil(log10(1.1 * max(values)))
        axis.axes.set(**{f"{axis.axis_name}lim": (10.0**low, 10.0**high)})
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def short(size: int) -> str:
    return f"{size // 1000}k" if size >= 10_000 and size % 1000 == 0 else str(size)


@styled
def growth_curves(record: dict[str, Any]) -> Figure:
    """Seconds above, memory below, one panel a size, on logarithmic axes."""
    shown = [axis for axis in AXES if len(along(record, axis)) > 1] or list(AXES)
    made, axes = canvas(2, len(shown), 1.9 * len(shown) + 0.6, 4.2, sharey="row")
    drawn: dict[int, list[float]] = {0: [], 1: []}
    for across, axis in enumerate(shown):
        points, found = along(record, axis), exponents(record, axis)
        at = [p["sizes"][axis] for p in points]
        memory = [p["peak_mb"] - record["floor_mb"] for p in points]
        for down, (key, values) in enumerate({"seconds": [p["seconds"] for p in points], "memory": memory}.items()):
            ax = axes[down, across]
            ax.plot(at, values, "o-", color=OURS if key == "seconds" else INK, markersize=3.5, linewidth=1)
            ax.set_xscale("log")
            ax.set_xticks(at, [short(x) for x in at])
            ax.set_xticks([], minor=True)
            ax.set_title("" if found[key] is None else f"exponent {found[key]:.2f}", fontsize=8)
            drawn[down] += values
        axes[1, across].set_xlabel(f"{AXES[axis]} ({axis})")
    for down, values in drawn.items():
        whole_decades(axes[down, 0].yaxis, values)
    axes[0, 0].set_ylabel("seconds")
    axes[1, 0].set_ylabel("MB beyond a tiny fit")
    return made
