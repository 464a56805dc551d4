"""Ours beside the best of the others, and beside omikuji."""

from __future__ import annotations

from typing import Any

from bench.cells import METHODS

OURS = ("smoothlink", "smoothlink-quick", "smoothlink-stepwise")
REFERENCE = "omikuji"


def comparison(sets: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """A table with a row for each data set that ours has been measured on."""
    rows, mixed = [], False
    for name, cells in sets.items():
        there = {m: cell for m, cell in cells.items() if "metrics" in cell}
        theirs, rest = there.get(REFERENCE), {m: cell for m, cell in there.items() if m not in OURS}
        for method in (m for m in OURS if m in there):
            ours = there[method]
            other_run = theirs is not None and theirs["run"] != ours["run"]
            mixed |= other_run
            stands = (standing(ours, rest, key) for key in ("p@1", "p@5"))
            shown = [name, METHODS[method], *stands, *ratios(ours, theirs, other_run)]
            rows.append(f"| {' | '.join(shown)} |")
    if not rows:
        return []
    lines = [
        "## smoothlink beside the others",
        "",
        "P@1 and P@5 beside the best of the peers: *best*; *within*, where that best lies below the upper end of our",
        "interval; or how far *behind*, in points. Then our seconds, memory and speed as multiples of omikuji's (its",
        "default): less is better for the first two, more for the last two. Peers that were stopped or not run on a",
        "set, as its section says, are not counted.",
        "",
        "| set | ours | P@1 | P@5 | train s | peak MB | rows/s | one row, times faster |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]
    return [*lines, "†: omikuji was measured in another run.", ""] if mixed else lines


def standing(ours: dict[str, Any], others: dict[str, Any], key: str) -> str:
    """How a metric of ours stands to the best of the others."""
    mine = ours["metrics"][key]
    if not others:
        return f"{100 * mine['value']:.2f}"
    name, best = max(((m, cell["metrics"][key]["value"]) for m, cell in others.items()), key=lambda pair: pair[1])
    gap = 100 * (best - mine["value"])
    standing = "best" if gap <= 0 else "within" if best <= mine["high"] else f"behind by {gap:.2f}"
    return f"{100 * mine['value']:.2f}, {standing} ({METHODS[name]} {100 * best:.2f})"


def ratios(ours: dict[str, Any], theirs: dict[str, Any] | None, other_run: bool) -> list[str]:
    """Ours divided by theirs: seconds, memory, rows per second; and theirs by ours: one row."""
    if theirs is None:
        return [f"{ours['costs']['train_seconds']:.1f} s", "", "", ""]
    mine, other = ours["costs"], theirs["costs"]
    seconds = f"{mine['train_seconds'] / other['train_seconds']:.2f} ({mine['train_seconds']:.1f} s)"
    memory = f"{mine['peak_mb'] / other['peak_mb']:.2f}" if mine["peak_mb"] and other["peak_mb"] else ""
    rows = f"{mine['rows_per_second'] / other['rows_per_second']:.1f}"
    one = f"{other['row_milliseconds'] / mine['row_milliseconds']:.1f}"
    return [seconds + " †" * other_run, memory, rows, one]
