"""Training on made data larger than memory: what was promised, expected and held, and the time beside its floor.

    python benchmarks/large.py [--scale 1] [--memory 8G] [--folder FOLDER]

At scale 1: 1,000,000 rows, 500,000 features and 100,000 labels, 40 and 3 of them per row; rank 300, 2,000 random
features, squared loss, all settings given. The command `smoothlink train` runs in a process of its own. Data and model
go to the folder (a temporary one unless named; a named one keeps the data for the next time), results to
results/large/figures.json.

The floor of a stage is the longer of two: its operations at the rate of plain matrix products, and the bytes that it
must read and write at the bandwidth of a plain copy, both measured in the same run. Conjugate gradients take as many
iterations as they took; sorting, cosines and calibration are not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from bench.circumstances import RESULTS, Watch, store, versions
from kernels import copy_bandwidth
from peers.known import OURS

SHAPE = {"rows": 1_000_000, "features": 500_000, "labels": 100_000}  # at scale 1
A_ROW = {"features-per-row": 40, "labels-per-row": 3}
SETTINGS = {"rank": 300, "kernel.features": 2000, "loss": "squared", "ridge": 1}
SETTINGS |= {"kernel.bandwidth": 2, "final_ridge": 0.1}
OVERSAMPLE, GROUP = 20, 64

CHILD = """
import json, sys
from smoothlink.cli import main
from smoothlink.solve.conjugate import GradientSolve

solves, solve = [], GradientSolve.__call__

def counted(self, *arguments, **named):
    found = solve(self, *arguments, **named)
    solves.append((self.rows.d, self.products))
    return found

GradientSolve.__call__ = counted
try:
    main(sys.argv[2:])
except SystemExit as end:
    if end.code:
        raise
with open("/proc/self/status") as status:
    peak = int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) << 10
with open(sys.argv[1], "w") as file:
    json.dump({"solves": solves, "peak": peak}, file)
"""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of rows, features and labels")
    parser.add_argument("--memory", default="8G")
    parser.add_argument("--rank", type=int, default=SETTINGS["rank"])
    parser.add_argument("--features", type=int, default=SETTINGS["kernel.features"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where data and model go, and stay")
    parser.add_argument("--results", type=Path, default=RESULTS / "large" / "figures.json", metavar="FILE")
    given = parser.parse_args(words)
    if given.folder is not None:
        record = measured(given, given.folder)
    else:
        with tempfile.TemporaryDirectory() as folder:
            record = measured(given, Path(folder))
    store(record, given.results)
    show(record)


def measured(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One fit: bytes and seconds, and the floor of each stage."""
    data, made = make_data(given, folder)
    rates = machine_rates()
    watch = Watch()
    settings = {**SETTINGS, "rank": given.rank, "kernel.features": given.features, "memory": given.memory}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    summary, counted = trained(data, folder, [*options, "--random-state", str(given.seed)])
    solves = [products for d, products in counted["solves"] if d == summary["features"] + 1]
    sizes = {**made, "rank": summary["rank"], "random_features": summary["random_features"]}
    least = floors(sizes, solves, summary["plan"]["held_rows"], rates)
    stages = {
        stage: {"seconds": round(seconds, 2), "floor": round(least.get(stage, 0.0), 2)}
        for stage, seconds in summary["seconds"].items()
    }
    plan = {key: value for key, value in summary["plan"].items() if key != "memory"}
    return {
        "date": date.today().isoformat(),
        "command": f"python benchmarks/large.py --scale {given.scale:g} --memory {given.memory} --seed {given.seed}",
        "versions": versions(OURS),
        **watch.seen(),
        "sizes": sizes,
        "settings": settings,
        "memory": {
            "promised": summary["plan"]["memory"],
            "expected": summary["plan"]["expected"],
            "peak": counted["peak"],
            "by_stage_mb": {stage: round(mb) for stage, mb in summary["peak_memory_mb"].items()},
        },
        "stages": stages,
        "seconds": round(sum(summary["seconds"].values()), 1),
        "floor": round(sum(least.values()), 1),
        "products": solves,
        "rates": {name: round(rate / 1e9, 1) for name, rate in rates.items()},
        "plan": plan,
        "model_bytes": summary["bytes"],
    }


def make_data(given: argparse.Namespace, folder: Path) -> tuple[Path, dict[str, int]]:
    """The data folder, made where it is not there yet, and its sizes."""
    shape = {name: max(8, int(size * given.scale)) for name, size in SHAPE.items()}
    path = folder / f"large-{given.scale:g}-{given.seed}.sl"
    if not path.exists():
        began = time.perf_counter()
        words = [word for name, size in {**shape, **A_ROW, "seed": given.seed}.items() for word in (f"--{name}", size)]
        run("synth", path, *words, "--quiet")
        print(f"data made in {time.perf_counter() - began:.0f} s", flush=True)
    header = json.loads((path / "header.json").read_text())
    return path, {key: header[key] for key in ("rows", "features", "labels", "x_entries", "y_entries")}


def run(*words: Any) -> str:
    """The output of a command."""
    command = [sys.executable, "-m", "smoothlink", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def trained(data: Path, folder: Path, options: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The summary of a fit, and what the process says of itself. Notes and the plan go to standard error."""
    counts, model = folder / "counts.json", folder / "large.safetensors"
    words = ["train", str(data), "-o", str(model), "--json", *options]
    done = subprocess.run([sys.executable, "-c", CHILD, str(counts), *words], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout), json.loads(counts.read_text())


def machine_rates() -> dict[str, float]:
    """Operations per second of plain matrix products, and bytes per second of a plain copy."""
    return {"float32": product_rate(np.float32), "float64": product_rate(np.float64), "copy": copy_bandwidth(5)}


def product_rate(kind: type[np.floating[Any]], n: int = 2048) -> float:
    A, best = np.ones((n, n), kind), np.inf
    for _ in range(6):
        began = time.perf_counter()
        A @ A
        best = min(best, time.perf_counter() - began)
    return 2 * n**3 / best


def floors(
    sizes: dict[str, int], solves: list[int], held_rows: int | None, rates: dict[str, float]
) -> dict[str, float]:
    """The least seconds that each stage could take with these many columns times iterations of its solves."""
    n, d, c, e = (sizes[key] for key in ("rows", "features", "labels", "x_entries"))
    k, s = sizes["rank"], sizes["random_features"] + 1
    # A column of an iteration: X'(Xp), with X read twice for a group of columns and XP written and read; and p, Ap, r
    # and z read and written where the three updates touch them.
    column = max(4 * e / rates["float32"], (16 * e / GROUP + 12 * n + 60 * d) / rates["copy"])
    half = len(solves) // 2  # the fit without held-out rows comes first
    solved = [column * (sum(part) + len(part) * (k + OVERSAMPLE)) for part in (solves[:half], solves[half:])]
    link = n * s * (2 * k + s) / rates["float32"]
    decoder = (2.0 * s * s * c + s**3 / 3) / rates["float64"]
    scores = 2.0 * min(held_rows or n, n // 10) * s * c / rates["float32"]
    return {"calibrate": solved[0] + link + decoder + scores, "embed": solved[1], "featurize": link, "fit": decoder}


def show(record: dict[str, Any]) -> None:
    memory, sizes = record["memory"], record["sizes"]
    print(", ".join(f"{name} {size:,}" for name, size in sizes.items()))
    print(", ".join(f"{name} {memory[name] / (1 << 30):.2f}G" for name in ("promised", "expected", "peak")))
    print(f"{'stage':10s} {'seconds':>9s} {'floor':>8s} {'ratio':>6s}")
    for stage, found in [*record["stages"].items(), ("all", {key: record[key] for key in ("seconds", "floor")})]:
        ratio = f"{found['seconds'] / found['floor']:6.1f}" if found["floor"] else ""
        print(f"{stage:10s} {found['seconds']:9.1f} {found['floor']:8.1f} {ratio}")
    shown = ", ".join(f"{name} {rate:g}" for name, rate in record["rates"].items())
    print(f"rates (GFLOP/s and GB/s): {shown}; other cores busy: {record.get('other_cores', '?')}")


if __name__ == "__main__":
    main()
