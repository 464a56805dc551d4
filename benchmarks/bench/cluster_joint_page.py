"""The section on joint training of docs/benchmarks-cluster.md, from the stored cells of benchmarks/cluster_joint.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TIMES_BAR, POINTS_BAR = 1.5, 0.3  # of two workers against one process


def joint_section(folder: Path) -> str:
    """Returns the section by the cells in `folder`/joint alone; nothing where there are none."""
    cells = [json.loads(path.read_text()) for path in sorted((folder / "joint").glob("*.json"))]
    cells.sort(key=lambda cell: cell["workers"])
    if not cells or cells[0]["workers"]:
        return ""
    here, shape = cells[0], cells[0]["shape"]
    others = max(cell.get("other_cores", 0.0) for cell in cells)
    versions = ", ".join(f"{package} {number}" for package, number in here["versions"].items())
    lines = [
        "",
        "## Joint training",
        "",
        f'`training="joint"` with {shape["rows"]:,} training rows of {here["set"]}, {shape["features"]:,} features and',
        f"{shape['labels']:,} labels, calibrated; P@1 and P@5 in % of {here['held_out']:,} other training rows. The",
        f"bar: two workers of one thread within {TIMES_BAR:g} times the seconds of one process on two cores; P@1",
        f"within {POINTS_BAR:g}. **Moved** are the changes that workers sent, without what Dask adds.",
        "",
        "| fit | seconds | times one process | of all cores | embed | fit | calibrate | P@1 | P@5 | moved, GB |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(table_row(cell, here) for cell in cells),
        "",
        f"Measured {here['date']} on {here['cores']} cores, seed {here['seed']}, by",
        f"`{here['command']}`; {versions}.",
        f"At most {others:g} cores were busy with anything else while a fit ran;",
        "where that is not near 0, the processor seconds of all cores say more than the seconds.",
    ]
    return "\n".join(lines) + "\n"


def table_row(cell: dict[str, Any], here: dict[str, Any]) -> str:
    """Returns the line of one fit."""
    workers, stages = cell["workers"], cell["stages"]
    name = f"{workers} worker{'s' if workers > 1 else ''}" if workers else "one process"
    moved = f"{cell['bytes_moved'].get('fit', 0) / 1e9:.1f}" if workers else ""
    figures = [f"{cell['seconds']:.1f}", f"{cell['seconds'] / here['seconds']:.2f}", f"{cell['processor_seconds']:.1f}"]
    figures += [f"{stages[stage]:.1f}" for stage in ("embed", "fit", "calibrate")]
    figures += [f"{100 * cell[metric]:.2f}" for metric in ("p@1", "p@5")]
    return "| " + " | ".join([name, *figures, moved]) + " |"
