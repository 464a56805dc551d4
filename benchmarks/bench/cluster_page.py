"""docs/benchmarks-cluster.md from the stored cells of benchmarks/cluster.py, and the table that a run prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from bench.scaling import Shape, bar, rows_held
from smoothlink.distributed.distributed_fit import PREPARED_BYTES

Cells = dict[tuple[str, int], dict[str, Any]]

TIMES_BAR = 1.4  # two workers of one thread against one process of two
HERE = ("here", 0)
STAGES = ("read", "embed", "featurize")  # that send anything
SOLVING = ("embed-sum", "embed-product", "embed-step", "embed-columns")  # tasks of the embedding, before h is made
INTRODUCTION = f"""# Benchmarks on local workers

The same fit, all settings given, in one process with all cores and on Dask workers of one thread each, which are
processes of the same machine: more workers than cores cannot be faster. Each fit ran in a process of its own after a
small one that loaded what is loaded once. Seconds run from the data folder to the model. The bar: two workers within
{TIMES_BAR:g} times the seconds of one process on two cores, the embedding alone too, by either plan (`auto` takes
columns here).

**Moved** are bytes over the loopback device while a stage ran: all of Dask's, and what else was sent meanwhile.
**Least** is what the plan has to move: an array for all workers once to each, a sum of W arrays in W transfers, and
between workers what [Scaling](scaling.md) says.

**Memory** is resident memory at its peak (VmHWM of Linux, set back when a task ends) beyond that of the idle worker
with all libraries loaded. A worker's X has {PREPARED_BYTES} bytes per entry: values, feature numbers, their places by
frequency, and values and row numbers of the transpose. The bar for the solves is X and four (d, k + l) arrays, those of
conjugate gradients; what a worker holds includes its labels. Then come h, rows x k of the share,
beside W, and for the link Phi'Phi and Phi'Y, of which an addition holds three.
"""
WRITTEN = "Written by `python benchmarks/cluster.py --page-only` from the cells in results/cluster/."
NOTHING = "Nothing has been measured yet: run `python benchmarks/cluster.py` on a quiet machine."


def stored_cells(folder: Path) -> Cells:
    """Cells by plan and number of workers, in the order of the page."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    order = ("here", "rows", "columns")
    found.sort(key=lambda cell: (order.index(cell["plan"]), cell["workers"]))
    return {(cell["plan"], cell["workers"]): cell for cell in found}


def shape_of(cell: dict[str, Any]) -> Shape:
    """The problem of a cell, as the cost model takes it."""
    z, settings = cell["shape"], cell["settings"]
    features = settings.get("kernel.features") or settings["n_features"]  # as cells of 0.1 have it
    return Shape(
        *(z["rows"], z["features"] + 1, z["labels"], z["features_per_row"], z["labels_per_row"]),
        *(settings["rank"], features, cell["solver_iterations"]),
    )


class Row(NamedTuple):
    """Returns the facts of one fit that the page shows."""

    name: str
    seconds: float
    times: float  # those of one process
    speedup: float | None  # over one worker of the same plan
    embed: float
    featurize: float


def rows_of(cells: Cells) -> list[Row]:
    base = cells[HERE]["seconds"]
    found = []
    for (plan, workers), cell in cells.items():
        one = cells.get((plan, 1))
        name = "one process" if plan == "here" else f"{plan}, {workers} worker{'s' if workers > 1 else ''}"
        speedup = None if one is None else one["seconds"] / cell["seconds"]
        stages = cell["stages"]
        found.append(Row(name, cell["seconds"], cell["seconds"] / base, speedup, stages["embed"], stages["featurize"]))
    return found


def table(cells: Cells) -> str:
    """What a run prints last."""
    if HERE not in cells:
        return NOTHING
    lines = [
        f"{'':<20}{'seconds':>9}{'times':>8}{'speed-up':>10}{'embed':>8}{'featurize':>11}{'solves hold':>13}{'bar':>8}"
    ]
    for row, ((plan, workers), cell) in zip(rows_of(cells), cells.items(), strict=True):
        speedup = "" if row.speedup is None else f"{row.speedup:.2f}"
        held = "" if plan == "here" else f"{solving(cell) / 1e6:.0f}M"
        limit = "" if plan == "here" else f"{bar(shape_of(cell), workers, plan) / 1e6:.0f}M"
        lines.append(
            f"{row.name:<20}{row.seconds:>9.1f}{row.times:>8.2f}{speedup:>10}{row.embed:>8.1f}{row.featurize:>11.1f}"
            f"{held:>13}{limit:>8}"
        )
    return "\n".join(lines)


def solving(cell: dict[str, Any]) -> int:
    """The most that a worker held while it embedded, before h."""
    return max(cell["held"].get(task, 0) for task in SOLVING)


def page(cells: Cells) -> str:
    """The page, by the cells alone."""
    if HERE not in cells:
        return f"{INTRODUCTION}\n{NOTHING}\n\n{WRITTEN}\n"
    first = cells[HERE]
    lines = [INTRODUCTION]
    if any(cell["trial"] for cell in cells.values()):
        lines += ["This was a trial at another size. Its figures mean nothing.", ""]
    lines += [described(first), "", *seconds_table(cells), "", *moved_table(cells), "", *memory_table(cells), ""]
    versions = ", ".join(f"{package} {number}" for package, number in first["versions"].items())
    dates = sorted({cell["date"] for cell in cells.values()})
    others = max(cell.get("other_cores", 0.0) for cell in cells.values())
    lines += [
        f"Measured {' to '.join(dates)} on {first['cores']} cores, seed {first['seed']}, by",
        f"`{first['command']}`; {versions}.",
        f"At most {others:g} cores were busy with anything else while a fit ran.",
        "",
        WRITTEN,
    ]
    return "\n".join(lines) + "\n"


def described(cell: dict[str, Any]) -> str:
    z, settings = cell["shape"], cell["settings"]
    shown = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
    return (
        f"{z['rows']:,} rows, {z['features']:,} features and {z['labels']:,} labels of `smoothlink synth`, "
        f"{z['features_per_row']} and {z['labels_per_row']} of them per row; {shown}; "
        f"{cell['solver_iterations']} iterations of conjugate gradients."
    )


def seconds_table(cells: Cells) -> list[str]:
    lines = [
        "| fit | seconds | times one process | speed-up over one worker | embed | featurize |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows_of(cells):
        speedup = "" if row.speedup is None else f"{row.speedup:.2f}"
        lines.append(
            f"| {row.name} | {row.seconds:.1f} | {row.times:.2f} | {speedup} | {row.embed:.1f} | {row.featurize:.1f} |"
        )
    return lines


def moved_table(cells: Cells) -> list[str]:
    lines = ["| moved, GB (least) | " + " | ".join(STAGES) + " |", "|---|" + "---|" * len(STAGES)]
    for row, ((plan, _), cell) in zip(rows_of(cells), cells.items(), strict=True):
        if plan != "here":
            pairs = [(cell["wire"].get(stage, 0), cell["bytes_moved"].get(stage, 0)) for stage in STAGES]
            shown = (f"{wire / 1e9:.2f} ({least / 1e9:.2f})" for wire, least in pairs)
            lines.append(f"| {row.name} | " + " | ".join(shown) + " |")
    return lines


def memory_table(cells: Cells) -> list[str]:
    lines = ["| memory a worker, MB | X | solves | bar | h | link |", "|---|---|---|---|---|---|"]
    for row, ((plan, workers), cell) in zip(rows_of(cells), cells.items(), strict=True):
        if plan == "here":
            continue
        z, held = shape_of(cell), cell["held"]
        link = max(held.get(task, 0) for task in ("featurize-sum", "featurize-add"))
        sizes = [rows_held(z, workers, plan), solving(cell), bar(z, workers, plan), held.get("embed-map", 0), link]
        lines.append(f"| {row.name} | " + " | ".join(f"{size / 1e6:.0f}" for size in sizes) + " |")
    return lines
