"""A fit on local worker processes beside the same fit in one process: seconds, bytes moved, memory a worker.

    python benchmarks/cluster.py [--workers 1,2,4] [--plans rows,columns] [--folder FOLDER]
    python benchmarks/cluster.py --page-only     docs/benchmarks-cluster.md and docs/scaling.md from the cells

500,000 rows, 100,000 features and 10,000 labels of `smoothlink synth`; rank 200, 2,000 random features, squared loss,
all settings given. Each fit runs in a process of its own, one after the other, and writes a cell into --results: the
one process has all cores, each worker one thread. About 16 minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from bench.circumstances import RESULTS, ROOT, Watch, store, versions
from bench.cluster_joint_page import joint_section
from bench.cluster_page import page, stored_cells, table
from bench.scaling_page import page as scaling_page
from peers.known import OURS

CELLS = RESULTS / "cluster"
PAGES = ROOT / "docs"
SHAPE = {"rows": 500_000, "features": 100_000, "labels": 10_000}  # at scale 1
A_ROW = {"features-per-row": 40, "labels-per-row": 3}
SETTINGS: dict[str, Any] = {"rank": 200, "kernel.features": 2000, "loss": "squared", "ridge": 1.0}
SETTINGS |= {"kernel.bandwidth": 2.0, "final_ridge": 0.1, "calibrate": False, "training": "stepwise"}
SETTINGS |= {"solver": "cg", "scale": "unit"}


def main(words: Sequence[str] | None = None) -> None:
    given = arguments(words)
    if not given.page_only:
        if given.folder is not None:
            measure(given, given.folder)
        else:
            with tempfile.TemporaryDirectory() as folder:
                measure(given, Path(folder))
    cells = stored_cells(given.results)
    if given.page_only or given.results == CELLS:
        (given.pages / "benchmarks-cluster.md").write_text(page(cells) + joint_section(given.results))
        (given.pages / "scaling.md").write_text(scaling_page(cells))
    print(table(cells))


def measure(given: argparse.Namespace, folder: Path) -> None:
    """One process, then workers by plan and number; each writes its cell when it is done."""
    folder.mkdir(parents=True, exist_ok=True)
    data, settings = made(given, folder), dict(SETTINGS)
    if given.scale < 1:
        share = given.scale**0.5
        settings |= {"rank": max(4, int(200 * share)), "kernel.features": max(16, int(2000 * share))}
    fits = [(plan, count) for plan in given.plans.split(",") for count in map(int, given.workers.split(","))]
    for plan, count in [("here", 0), *fits]:
        watch = Watch()
        found = fit(data, count, plan, settings, folder)
        cell = {
            "plan": plan,
            "workers": count,
            "date": str(date.today()),
            "command": f"python benchmarks/cluster.py --workers {given.workers} --plans {given.plans}",
            "versions": versions(OURS),
            "seed": given.seed,
            "trial": given.scale != 1,
            "shape": {**shape(given.scale), **{name.replace("-", "_"): size for name, size in A_ROW.items()}},
            "settings": settings,
            **watch.seen(),
            **found,
        }
        store(cell, given.results / f"{plan}-{count}.json")
        print(f"{plan} {count}: {found['seconds']:.1f} s", flush=True)


def shape(scale: float) -> dict[str, int]:
    return {name: max(200, int(size * scale)) for name, size in SHAPE.items()}


def made(given: argparse.Namespace, folder: Path) -> Path:
    """The data folder, made unless it is there."""
    data = folder / f"made-{given.scale:g}-{given.seed}.sl"
    if not data.exists():
        sizes = [word for name, size in (shape(given.scale) | A_ROW).items() for word in (f"--{name}", str(size))]
        command = [sys.executable, "-m", "smoothlink", "synth", str(data), *sizes, "--seed", str(given.seed), "--quiet"]
        subprocess.run(command, check=True)
    return data


def fit(data: Path, workers: int, plan: str, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What one fit took, in a process of its own."""
    out = folder / "out.json"
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    arguments = [str(data), str(workers), plan, json.dumps(settings), str(out)]
    subprocess.run(
        [sys.executable, "-m", "bench.cluster_fit", *arguments], check=True, env={**os.environ, "PYTHONPATH": path}
    )
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="a trial: of rows, features and labels")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--plans", default="rows,columns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the data go, and stay")
    parser.add_argument("--results", type=Path, default=CELLS, metavar="FOLDER", help="where cells are stored")
    parser.add_argument("--pages", type=Path, default=PAGES, metavar="FOLDER", help="where the pages are written")
    parser.add_argument("--page-only", action="store_true", help="measure nothing, write the pages")
    given = parser.parse_args(words)
    if given.scale != 1 and given.results == CELLS:
        parser.error("A trial makes no real figures: pass --results FOLDER too, so that they replace none.")
    return given


if __name__ == "__main__":
    main()
