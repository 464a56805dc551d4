"""The table of a part, and docs/benchmarks-gpu.md from the stored cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.circumstances import read
from bench.gpu_measure import Figure, shortened

NAMES = ("lshtc", "lshtc-sampled", "odp", "yso", "yso-sampled", "aloi", "agree")  # in the order of the page
TITLES = {
    "lshtc": "LSHTC's shape: 325,000 labels",
    "lshtc-sampled": "LSHTC's shape with sampled negatives",
    "odp": "ODP's shape: 100,000 classes",
    "yso": "yso-finna-en: titles of books",
    "yso-sampled": "yso-finna-en with sampled negatives, on the card and on the host",
    "aloi": "aloi: pictures of a thousand things",
    "agree": "The host and the card agree",
}
REMARKS = {
    "lshtc": "Made data, with features and labels of power-law frequencies. The paper's authors logged 21,735 s for "
    "their embedding and 529,511 s for ten passes of the final fit. Products of this size are held back by the card's "
    "power limit, not by what lies between them.",
    "lshtc-sampled": 'The same made data; `training="joint"`, everything else by its rules.',
    "odp": "Made data. The authors: about 6,000 s for the embedding and 1,200 s a pass.",
    "yso": "Features are TF-IDF weights of the words of a title; for the fine-tuned fit also of pairs of words that "
    "follow each other (in three titles at least, at half the weight). Settings were chosen on 20,000 training rows "
    "held out ([decision 15](decisions/0015-fine-tuning.md)); these fits looked at test rows once, other benchmarks "
    "[did so too](results.md#how-often-test-rows-were-looked-at).",
    "yso-sampled": '`training="joint"` from the words of titles, as on the host by default, without calibration.',
    "aloi": "Settings were chosen on a tenth of the training rows (error 3.01 % there).",
}
INTRODUCTION = """# Benchmarks on one GPU

Each part runs alone (`python benchmarks/gpu.py lshtc`): it first checks the pieces of a fit on the device against
float64 NumPy on small problems, then measures.

Fits have all settings given and hold out no rows, so that each is one fit. Seconds of a fit run from arrays in the
host's memory to a model in the host's memory; the checks, and on real data a fit of few rows, have loaded and compiled
what is loaded and compiled once. The rate of a pass counts 4 n s c operations, those of its two products, over all its
seconds: preconditioner, update and everything between included. Beside it stands the rate of a plain product of bf16
matrices, the higher of before and after the fit.
"""
WRITTEN = "Written by `python benchmarks/gpu.py --page-only` from the cells in results/gpu/."
NOTHING = (
    "Nothing has been measured yet: run `python benchmarks/gpu.py lshtc` and the other parts on a machine with a GPU."
)


def figures_of(cell: dict[str, Any]) -> list[Figure]:
    return [Figure(**figure) for figure in cell["figures"]]


def table(cell: dict[str, Any]) -> str:
    """What a run prints last."""
    figures = figures_of(cell)
    wide, right = (
        max(len(text) for text in texts) for texts in zip(*((f.what, f.shown) for f in figures), strict=True)
    )
    lines = [f"{cell['part']} on {cell['device']}, seed {cell['seed']}, scale {cell['scale']:g}, {cell['date']}"]
    lines += [f"{f.what:{wide}s}  {f.shown:>{right}s}  {f.bar}".rstrip() for f in figures]
    return "\n".join(lines)


def stored_cells(folder: Path) -> dict[str, dict[str, Any]]:
    """The cells of the parts that were run."""
    found = {name: read(folder / f"{name}.json") for name in NAMES}
    return {name: cell for name, cell in found.items() if cell is not None}


def page(cells: dict[str, dict[str, Any]]) -> str:
    """The whole text; a function of the cells alone."""
    lines = [INTRODUCTION, *([] if cells else [NOTHING, ""])]
    for name, cell in cells.items():
        lines += section(name, cell)
    return "\n".join(lines).rstrip("\n") + f"\n\n{WRITTEN}\n"


def section(name: str, cell: dict[str, Any]) -> list[str]:
    lines = [f"## {TITLES[name]}", ""]
    if cell["trial"]:
        lines += ["This was a trial: other sizes, passes or another device. Its figures mean nothing.", ""]
    lines += [
        *([REMARKS[name], ""] if name in REMARKS else []),
        *described(cell["data"]),
        "",
        "| figure | value | bar |",
        "|---|---|---|",
    ]
    lines += [f"| {f.what} | {f.shown} | {f.bar} |" for f in figures_of(cell)]
    lines += ["", *(f"- {fit}: {listed(settings)}." for fit, settings in cell["settings"].items()), ""]
    worst = max(cell["checks"], key=lambda check: check["error"] / (check["limit"] or 1e-300))
    versions = ", ".join(f"{package} {number}" for package, number in cell["versions"].items())
    lines += [
        f"{len(cell['checks'])} checks passed; nearest to its limit: {worst['name']}, {worst['error']:.1e} of "
        f"{worst['limit']:g}.",
        f"Measured {cell['date']} on {cell['device']} and {cell['cores']} cores in {cell['seconds']:.0f} s in all,",
        f"seed {cell['seed']}, by `{cell['command']}`;",
        f"{versions}.",
        "",
    ]
    return lines


def described(data: dict[str, Any]) -> list[str]:
    """The shape of the data, or of several data sets."""
    if "rows" not in data:
        return [f"- {name}: {shape_of(shape)}" for name, shape in data.items()]
    return [shape_of(data)]


def shape_of(shape: dict[str, Any]) -> str:
    return (
        f"{shape['rows']:,} training rows, {shape['test_rows']:,} test rows, {shape['features']:,} features and "
        f"{shape['labels']:,} labels, {shape['features_a_row']:g} and {shape['labels_a_row']:g} of them per row."
    )


def listed(settings: dict[str, Any]) -> str:
    shown = (f"{k.replace('_', ' ')} {shortened(v) if isinstance(v, float) else v}" for k, v in settings.items())
    return ", ".join(shown)
