"""docs/benchmarks.md and its pictures from the stored cells and points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers.known import OURS, PEERS

from bench.cells import METHODS, METRICS, learner, stored_cells
from bench.circumstances import read
from bench.compare import comparison
from bench.floors_section import floors_section, one_row_section, speed_section
from bench.growth import growth_lines
from bench.negatives_section import negatives_section
from bench.pictures import accuracy_against_seconds, growth_curves
from smoothlink_paper.plots import image, save

Cells = dict[str, dict[str, Any]]  # method -> cell
NAMES = {"p@1": "P@1", "p@3": "P@3", "p@5": "P@5", "psp@1": "PSP@1", "psp@3": "PSP@3", "psp@5": "PSP@5"}
NAMES |= {"ndcg@5": "nDCG@5"}
INTRODUCTION = """# Benchmarks

Every method runs in a process of its own on the same rows. Text sets are one fixed pair of XMC files each
(`benchmarks/vectorise.py`: sublinear TF-IDF, words of two texts or more, unit rows). Peers get the features that
smoothlink would make of the files: unit rows, or standardised columns where X is a table; omikuji gets no rows without
features, which it refuses. smoothlink gets the files' rows and scales them in its training time. All run with their
own defaults, smoothlink with everything on "auto" and, as *quick*, with `effort="quick"`. No run is tuned on test rows,
but most of these test rows had been looked at before, some of them while rules behind the defaults were designed:
[results](results.md#how-often-test-rows-were-looked-at) lists what is known for each set. omikuji takes no seed, so its
figures differ a little from run to run.

From 2,000 labels on, where rows are sparse and passes over all labels would be long, the default is not the paper's
Algorithm 3 but another learner: embedding and decoder are trained jointly with sampled negatives, the link is linear,
and each label has sparse weights for single features ([decision 12](decisions/0012-sampled-negatives.md)). The section
of a set says which learner it was, and has Algorithm 3 in a row of its own where that was measured. On yso-finna-en its
P@1 is 25.19 on two cores with the squared loss ([LSHTC](results/lshtc.md)), and on a GPU 27.01 with the squared and
33.41 with the logistic loss ([GPU](benchmarks-gpu.md#yso-finna-en-titles-of-books)).

Metrics are in %, with 90 % bootstrap intervals over test rows. Train s: from arrays (omikuji: its loaded data set) in
memory to a model in memory, no start-up, no reading, no compiling. Rows/s: the five best labels of all test rows, in
one call where the library has one; omikuji's Python interface takes one row a call. One row ms: the mean over 100 rows
that come alone, with what is prepared at the first of them (half a second or more for very many labels, see "One row"
below). Peak MB: of the whole process, data and interpreter included. Model MB: as saved. Load: average load before and
after; it counts the method itself. Others: cores that were busy with other work meanwhile; seconds are too long where
this is not about 0. †: measured in another run than smoothlink's default, which may have been on another processor, so
that seconds of the two are not to be compared. A method that takes longer in all than the limit that its set names is
stopped.
"""
WRITTEN = (
    "Written by `make bench`, that is `python benchmarks/compare_peers.py` and `python benchmarks/growth.py`, from the "
    "cells in results/; `--page-only` writes it again."
)
NOTHING = "Nothing has been measured yet: run `make bench`."


def publish(results: Path, path: Path, notify: Callable[[str], None]) -> None:
    """Writes the page, and beside it the pictures where matplotlib is there."""
    cells, growth = stored_cells(results), read(results / "growth" / "figures.json")
    negatives = read(results / "sampled_negatives" / "figures.json")
    floors, one_row = (read(results / name / "figures.json") for name in ("floors", "one_row"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(cells, growth, path.stem, negatives, floors, one_row))
    pictures = {path.stem: (accuracy_against_seconds, cells), f"{path.stem}-growth": (growth_curves, growth)}
    for name, (draw, found) in pictures.items():
        if not found:
            continue
        try:
            save(draw(found), path.with_name(f"{name}.svg"))
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] != "matplotlib":
                raise
            notify(f"{name}.svg was not drawn, which takes matplotlib: install smoothlink[report] for the picture.")
    notify(str(path))


def page(
    sets: dict[str, Cells],
    growth: dict[str, Any] | None,
    stem: str = "benchmarks",
    negatives: dict[str, Any] | None = None,
    floors: dict[str, Any] | None = None,
    one_row: dict[str, Any] | None = None,
) -> str:
    """The whole text; a function of the records alone."""
    lines = [INTRODUCTION]
    if not sets:
        lines += [NOTHING, ""]
    else:
        lines += [image(stem, "P@1 against seconds of training, one panel a data set"), ""]
        cut = sorted({cell["at_most_rows"] for cells in sets.values() for cell in cells.values()} - {None})
        lines += [f"This was a trial with at most {cut[0]} rows. Its figures mean nothing.", ""] if cut else []
        lines += comparison(sets)
        for name, cells in sets.items():
            lines += of_set(name, cells)
        lines += speed_section(sets)
        lines += circumstances(sets)
    if one_row is not None:
        lines += one_row_section(one_row)
    if floors is not None:
        lines += floors_section(floors)
    if negatives is not None:
        lines += negatives_section(negatives)
    if growth is not None:
        lines += growth_lines(growth, f"{stem}-growth")
    return "\n".join(lines).rstrip("\n") + f"\n\n{WRITTEN}\n"


def of_set(name: str, cells: Cells) -> list[str]:
    """The section of a data set: what was reached, what it cost, what ours selected."""
    shape = next(iter(cells.values()))["shape"]
    there = {m: cell for m, cell in cells.items() if "metrics" in cell}
    lines = [
        f"## {name}",
        "",
        f"{shape['rows']:,} training rows, {shape['test_rows']:,} test rows, {shape['features']:,} features, "
        f"{shape['labels']:,} labels. {limits(cells)}",
        "",
        "| method | " + " | ".join(NAMES[key] for key in METRICS) + " |",
        "|---|" + "---|" * len(METRICS),
    ]
    best = {key: max((c["metrics"][key]["value"] for c in there.values()), default=0.0) for key in METRICS}
    for method, cell in cells.items():
        shown = [metric(cell["metrics"][k], best[k]) for k in METRICS] if method in there else [reason(cell)]
        lines.append(f"| {METHODS[method]} | " + " | ".join(shown + [""] * (len(METRICS) - len(shown))) + " |")
    if there:
        lines += ["", "| method | train s | rows/s | one row ms | peak MB | model MB | load | others |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        run = there.get(OURS, {}).get("run")
        marks = {method: "" if run in (None, cell["run"]) else " †" for method, cell in there.items()}
        lines += [f"| {METHODS[method]}{marks[method]} | {cost_cells(cell)} |" for method, cell in there.items()]
    if OURS in there:
        ours = there[OURS]
        lines += ["", f"smoothlink's learner: {learner(ours)}. It selected {selected(ours['selected'])}."]
    return [*lines, ""]


def limits(cells: Cells) -> str:
    """Returns a sentence on the time limit, and one on the methods that were not run."""
    given = " or ".join(f"{limit:,.0f}" for limit in sorted({cell["limit"] for cell in cells.values()}))
    ours = cells.get("smoothlink", {})
    same = {"smoothlink-stepwise"} if "metrics" in ours and learner(ours) == "Algorithm 3" else set()  # it is ours
    absent = "; ".join(name for method, name in METHODS.items() if method not in cells.keys() | same)
    return f"Time limit: {given} s per method." + (f" Not run here: {absent}." if absent else "")


def reason(cell: dict[str, Any]) -> str:
    """Returns why a cell has no figures; for a method that was stopped also how busy the cores were with other work."""
    busy = f"; other work kept {others(cell)} of {cell['cores']} cores busy" if "stopped_after" in cell else ""
    return f"{cell['note']}{busy}"


def metric(found: dict[str, float], best: float) -> str:
    value, low, high = (f"{100 * found[key]:.2f}" for key in ("value", "low", "high"))
    return f"{f'**{value}**' if found['value'] == best else value} [{low}, {high}]"


def cost_cells(cell: dict[str, Any]) -> str:
    costs = cell["costs"]
    peak = "" if costs["peak_mb"] is None else f"{costs['peak_mb']:.0f}"
    shown = [f"{costs['train_seconds']:.2f}", f"{costs['rows_per_second']:,.0f}", f"{costs['row_milliseconds']:.2f}"]
    return " | ".join([*shown, peak, f"{costs['model_mb']:.1f}", loads(cell), others(cell)])


def loads(cell: dict[str, Any]) -> str:
    pair = [cell.get("load_before"), cell.get("load_after")]
    return "" if None in pair else " to ".join(f"{load:.1f}" for load in pair)


def others(cell: dict[str, Any]) -> str:
    return f"{cell['other_cores']:.2f}" if "other_cores" in cell else ""


def selected(found: dict[str, Any]) -> str:
    """What ours chose, and the seconds of its stages."""
    chosen = {key.replace("_", " "): value for key, value in found.items() if key not in ("seconds", "compiled")}
    shown = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in chosen.items())
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in found["seconds"].items())
    return f"{', '.join(shown)}; seconds: {stages}"


def circumstances(sets: dict[str, Cells]) -> list[str]:
    """When and with what."""
    cells = [cell for found in sets.values() for cell in found.values()]
    lines = ["## Circumstances", ""]
    for method, name in METHODS.items():
        run = [cell["versions"] for cell in cells if cell["method"] == method and "versions" in cell]
        used = sorted({", ".join(f"{package} {number}" for package, number in versions.items()) for versions in run})
        lines += [f"- {name}: {PEERS[name].about}; {' or '.join(used) or 'not run'}."]
    dates = sorted({cell["date"] for cell in cells})
    first = cells[0]
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    cores = sorted({cell["cores"] for cell in cells if "cores" in cell})
    lines += [
        "",
        f"Measured {days} on {' or '.join(map(str, cores))} cores, {first['threads']} threads each, seed "
        f"{first['seed']}. One cell again: `python benchmarks/compare_peers.py --sets {first['set']} --methods "
        f"{first['method']} --seed {first['seed']} --threads {first['threads']} --limit {first['limit']:g} --again`.",
        "",
    ]
    return lines
