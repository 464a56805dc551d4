"""A fit on local worker processes beside the same fit in one process: seconds, bytes moved, memory a worker.

    python benchmarks/cluster.py [--scale 1] [--workers 1,2,4] [--plans rows,columns] [--folder FOLDER]

At scale 1: 500,000 rows, 100,000 features and 10,000 labels of `smoothlink synth`; rank 200, 2,000 random features,
squared loss, all settings given. Each fit runs in a process of its own, one after the other; one process has all cores,
each worker its part of them. Results go to benchmarks/results/cluster.json.

"moved" are the bytes of arrays that the client sends to workers and that come back or are added: for sums over rows the
array to every worker and one result from each; less cannot be where rows are shared out.
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

from bench.circumstances import RESULTS, store, versions

from smoothlink.experiments.peers.known import OURS

SHAPE = {"rows": 500_000, "features": 100_000, "labels": 10_000}  # at scale 1
A_ROW = {"features-per-row": 40, "labels-per-row": 3}
SETTINGS: dict[str, Any] = {"rank": 200, "n_features": 2000, "loss": "squared", "ridge": 1.0, "bandwidth": 2.0}
SETTINGS |= {"final_ridge": 0.1, "calibrate": False, "negatives": "all", "solver": "cg", "scale": "unit"}

CHILD = """
import json, sys, time
import smoothlink
from smoothlink import SmoothLinkClassifier

def peak():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) << 10

if __name__ == "__main__":
    data, where, plan, settings, out = sys.argv[1:]
    model = SmoothLinkClassifier(**json.loads(settings))
    if where == "here":
        began = time.perf_counter()
        found = smoothlink.read(data)
        model.fit(found.X[:], found.Y[:])
        held, empty = [peak()], []
    else:
        with smoothlink.cluster(where, plan=plan) as cluster:
            empty = list(cluster.client.run(peak).values())
            began = time.perf_counter()
            model.fit(smoothlink.Files.of(data))
            held = list(cluster.client.run(peak).values())
    seconds = time.perf_counter() - began
    with open(out, "w") as file:
        json.dump({"seconds": seconds, "held": held, "empty": empty, "summary": model.summary_}, file, default=str)
"""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of rows, features and labels")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--plans", default="rows,columns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the data go, and stay")
    parser.add_argument("--results", type=Path, default=RESULTS / "cluster.json", metavar="FILE")
    given = parser.parse_args(words)
    if given.folder is not None:
        record = measured(given, given.folder)
    else:
        with tempfile.TemporaryDirectory() as folder:
            record = measured(given, Path(folder))
    store(record, given.results)
    show(record)


def measured(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One process, then workers by plan and number."""
    folder.mkdir(parents=True, exist_ok=True)
    data, settings = made(given, folder), dict(SETTINGS)
    if given.scale < 1:
        settings |= {"rank": max(4, int(200 * given.scale**0.5)), "n_features": max(16, int(2000 * given.scale**0.5))}
    fits = {"here": fit(data, "here", "auto", settings, folder)}
    for plan in given.plans.split(","):
        for count in given.workers.split(","):
            fits[f"{plan} {count}"] = fit(data, f"local:{count}", plan, settings, folder)
    return {
        "date": str(date.today()),
        "command": f"benchmarks/cluster.py --scale {given.scale:g}",
        "versions": versions(OURS),
        "cores": os.cpu_count(),
        "seed": given.seed,
        "shape": shape(given.scale),
        "settings": settings,
        "fits": fits,
    }


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


def fit(data: Path, where: str, plan: str, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What one fit took, in a process of its own."""
    script, out = folder / "child.py", folder / "out.json"
    script.write_text(CHILD)
    subprocess.run([sys.executable, str(script), str(data), where, plan, json.dumps(settings), str(out)], check=True)
    found: dict[str, Any] = json.loads(out.read_text())
    summary = found.pop("summary")
    kept = {name: summary.get(name) for name in ("bytes_moved", "solver_iterations")}
    return {**found, "stages": summary["seconds"], **kept}


def show(record: dict[str, Any]) -> None:
    """The table of a record."""
    base = record["fits"]["here"]["seconds"]
    print(f"{'':<12}{'seconds':>9}{'times':>8}{'embed':>8}{'featurize':>11}{'moved':>10}{'a worker adds':>15}")
    for name, found in record["fits"].items():
        moved = sum((found["bytes_moved"] or {}).values())
        held = max(found["held"]) - (min(found["empty"]) if found["empty"] else 0)
        stages = found["stages"]
        print(
            f"{name:<12}{found['seconds']:>9.1f}{found['seconds'] / base:>8.2f}{stages['embed']:>8.1f}"
            f"{stages['featurize']:>11.1f}{moved / 1e9:>8.2f}GB{held / 1e9:>13.2f}GB"
        )


if __name__ == "__main__":
    main()
