"""How seconds and memory grow with each size: points, exponents fitted to them, and their section of the page."""

from __future__ import annotations

from typing import Any

import numpy as np

from smoothlink_paper.plots import image

AXES = {
    "n": "training rows",
    "d": "features",
    "c": "labels",
    "k": "label directions",
    "s": "random features",
}


def along(record: dict[str, Any], axis: str) -> list[dict[str, Any]]:
    """The points that differ from the base in this size alone, the base among them, ascending."""
    base = record["base"]
    alike = [p for p in record["points"] if all(p["sizes"][other] == base[other] for other in AXES if other != axis)]
    return sorted(alike, key=lambda point: point["sizes"][axis])


def exponent(at: list[float], values: list[float]) -> float | None:
    """a of the least-squares fit of log value = a log size + b; None where the values do not let it be fitted."""
    if len(set(at)) < 2 or min(values) <= 0:
        return None
    return float(np.polyfit(np.log(at), np.log(values), 1)[0])


def exponents(record: dict[str, Any], axis: str) -> dict[str, float | None]:
    """Of all seconds, of each stage's and of memory beyond what a tiny fit takes, along one size."""
    points = along(record, axis)
    at = [float(p["sizes"][axis]) for p in points]
    stages = sorted({stage for p in points for stage in p["stages"]})
    found = {"seconds": exponent(at, [p["seconds"] for p in points])}
    found |= {stage: exponent(at, [p["stages"].get(stage, 0.0) for p in points]) for stage in stages}
    found["memory"] = exponent(at, [p["peak_mb"] - record["floor_mb"] for p in points])
    return found


def growth_lines(record: dict[str, Any], picture: str) -> list[str]:
    """The section of the page."""
    stages = stage_names(record)
    lines = [
        "## Growth",
        "",
        image(picture, "Seconds and memory of training against each size, with fitted exponents"),
        "",
        *about(record),
        "",
        "| size | from | to | seconds | " + "".join(f"of which {stage} | " for stage in stages) + "memory |",
        "|---|---|---|---|" + "---|" * len(stages) + "---|",
    ]
    for axis, name in AXES.items():
        points = along(record, axis)
        if len(points) < 2:
            continue
        found = exponents(record, axis)
        shown = [slope(found[key]) for key in ("seconds", *stages, "memory")]
        ends = [f"{points[i]['sizes'][axis]:,}" for i in (0, -1)]
        lines.append(f"| {name} ({axis}) | {' | '.join([*ends, *shown])} |")
    lines += ["", *point_table(record, stages), "", stated(record), ""]
    return lines


def about(record: dict[str, Any]) -> list[str]:
    held = ", ".join(f"{record['base'][axis]:,} {name} ({axis})" for axis, name in AXES.items())
    words, labels = record["features_per_row"], record["labels_per_row"]
    settings = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in record["settings"].items())
    return [
        "One size at a time, the others held at",
        f"{held}.",
        f"Synthetic data (`smoothlink synth`) with {words} features and {labels} labels per row;",
        f"settings given ({settings}),",
        "so that nothing is searched; each point in a process of its own.",
        "Exponents are slopes of least-squares lines through the logarithms: 1 is linear growth. Memory is that beyond",
        f"the {record['floor_mb']:.0f} MB that a tiny fit takes.",
    ]


def stage_names(record: dict[str, Any]) -> list[str]:
    """The stages that take a twentieth of the seconds of some point, in the order in which they run."""
    stages = dict.fromkeys(stage for point in record["points"] for stage in point["stages"])
    return [s for s in stages if any(p["stages"].get(s, 0.0) > 0.05 * p["seconds"] for p in record["points"])]


def point_table(record: dict[str, Any], stages: list[str]) -> list[str]:
    lines = ["| " + " | ".join([*AXES, "solver", "seconds", *stages, "peak MB", "load", "others"]) + " |"]
    lines += ["|" + "---|" * (len(AXES) + len(stages) + 5)]
    for p in record["points"]:
        cells = [f"{p['sizes'][axis]:,}" for axis in AXES] + [p["solver"], f"{p['seconds']:.2f}"]
        cells += [f"{p['stages'].get(stage, 0.0):.2f}" for stage in stages]
        load = "" if p["load_before"] is None else f"{p['load_before']:.1f} to {p['load_after']:.1f}"
        cells += [f"{p['peak_mb']:.0f}", load, f"{p['other_cores']:.2f}" if "other_cores" in p else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def stated(record: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    return (
        f"Measured {record['date']} on {record['cores']} cores, {record['threads']} threads, seed {record['seed']}, by "
        f"`{record['command']}`; {versions}."
    )


def slope(value: float | None) -> str:
    return "" if value is None else f"{round(value, 2) + 0.0:.2f}"  # no -0.00
