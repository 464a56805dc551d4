"""Whether `train --memory` keeps to its budget: ten shapes, each with three budgets, each fit in a process of its own.

    python benchmarks/memory.py [NAME ...]          # 'many rows' and so on; without a name all ten
    python benchmarks/memory.py page                # writes the table in docs/larger-than-memory.md

The budgets are the least that the refusal of 100M names, half as much again, and three times as much. Sets are
synthetic, seed 0, and every fit has two threads; memory is that of the process as the system counts it (VmHWM), from
its start to the written model, with compiled functions in the cache. The figures are in results/memory. The command
fails where a peak is above its budget.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from results import ROOT, results, store
from smoothlink.data.read import Data, write
from smoothlink.parameters import memory_bytes
from smoothlink.synth import Shape, synthesise

PAGE = ROOT / "docs" / "larger-than-memory.md"
START, END = "<!-- benchmarks/memory.py page -->\n", "<!-- end -->\n"
SHARES = (1.0, 1.5, 3.0)  # of the least budget


class Case(NamedTuple):
    """A set and how it is trained on."""

    rows: int
    shape: Shape
    options: tuple[str, ...] = ()
    kind: str = "sparse"  # "dense": every feature in every row; "text": words in place of numbers


GIVEN = ("rank=100", "ridge=1", "kernel.bandwidth=2", "kernel.features=1000", "final_ridge=0.001")
LINK = tuple(word for setting in (*GIVEN, "training=stepwise") for word in ("--set", setting))
PASSES = ("--set", "loss.passes=2")
CASES = {
    "many rows": Case(300_000, Shape(20_000, 300, 15, 2), LINK),
    "many features": Case(5_000, Shape(300_000, 500, 30, 2), ("--effort", "quick")),
    "many labels": Case(6_000, Shape(3_000, 60_000, 20, 2), ("--training", "stepwise", "--effort", "quick")),
    "dense": Case(20_000, Shape(400, 60, 300, 2), ("--effort", "quick"), "dense"),
    "text": Case(20_000, Shape(30_000, 400, 60, 2), ("--effort", "quick"), "text"),
    "multiclass": Case(20_000, Shape(10_000, 1_000, 30, multiclass=True), (*LINK, "--loss", "softmax", *PASSES)),
    "sampled negatives": Case(60_000, Shape(60_000, 8_000, 25, 3), ("--training=joint", "--set=training.passes=1")),
    "logistic": Case(20_000, Shape(5_000, 600, 30, 3), (*LINK, "--loss", "logistic", *PASSES)),
    "trees": Case(5_000, Shape(60, 20, 40, 2), ("--effort=quick", "--set=trees=true"), "dense"),
    "wide and short": Case(400, Shape(600_000, 50, 300, 2), ("--set=ridge=1", "--set=kernel.bandwidth=2")),
}
CHILD = """
import sys
from smoothlink.cli import main
try:
    main(["train", *sys.argv[1:], "--force"])
except SystemExit as end:
    if end.code:
        raise
print("peak", next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1])
"""


def make(case: Case, folder: Path) -> Path:
    """Writes the rows of a set, and returns the file."""
    data = synthesise(case.shape, case.rows)
    if case.kind == "text":
        path, X, Y = folder / "train.jsonl", sp.csr_array(data.X), sp.csr_array(data.Y)
        with path.open("w") as file:
            for row in range(case.rows):
                words, labels = (M.indices[M.indptr[row] : M.indptr[row + 1]] for M in (X, Y))
                record = {"text": " ".join(f"word{j}" for j in words), "labels": [f"label{j}" for j in labels]}
                file.write(json.dumps(record) + "\n")
        return path
    if case.kind == "dense":
        noise = np.random.default_rng(0).normal(size=data.X.shape)
        data = Data(sp.csr_array((data.X.toarray() + 0.1 * noise).astype(np.float32)), data.Y)
    write(data, folder / "train.sl")
    return folder / "train.sl"


def train(path: Path, options: tuple[str, ...], budget: str) -> subprocess.CompletedProcess[str]:
    """Runs one fit in a process of its own."""
    threads = {"OPENBLAS_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "4"}
    command = [sys.executable, "-c", CHILD, str(path), "-o", f"{path}.model", "--memory", budget, *options]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | threads, check=False)


def measure(name: str, case: Case) -> dict[str, Any]:
    """Returns the peak of each budget, in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        path = make(case, Path(folder))
        for _ in range(2):  # the first one may compile
            refused = train(path, case.options, "100M").stderr
        told = re.search(r"--memory (\S+)\)", refused)
        if told is None:
            sys.exit(f"{name}: {refused}")
        least, fits = memory_bytes(told[1]) or 0, []
        for share in SHARES:
            began, budget = time.monotonic(), told[1] if share == 1 else f"{share * least / (1 << 20):.0f}M"
            ran = train(path, case.options, budget)
            peak = re.search(r"peak (\d+)", ran.stdout)
            if peak is None:
                sys.exit(f"{name}: {ran.stderr}")
            expected = re.search(r"Memory: (\S+) of", ran.stderr)
            mb = [round((memory_bytes(text) or 0) / (1 << 20)) for text in (budget, expected[1] if expected else "0")]
            mb.append(round(int(peak[1]) / 1024))
            fits.append(dict(zip(("budget_mb", "expected_mb", "peak_mb"), mb, strict=True)))
            fits[-1]["seconds"] = round(time.monotonic() - began)
            print(name, fits[-1], flush=True)
    shape = {"rows": case.rows, "features": case.shape.features, "labels": case.shape.labels}
    return shape | {"fits": fits, "seed": 0, "command": f"python benchmarks/memory.py '{name}'"}


def write_page() -> None:
    """Writes the table between its marks."""
    found = json.loads(results("memory").read_text())
    lines = ["| shape | rows | features | labels | peak of budget, MiB | | |", "|---|--:|--:|--:|--:|--:|--:|"]
    for name in CASES:
        record = found[name]
        fits = " | ".join(f"{fit['peak_mb']:,} of {fit['budget_mb']:,}" for fit in record["fits"])
        lines.append(f"| {name} | {record['rows']:,} | {record['features']:,} | {record['labels']:,} | {fits} |")
    text = PAGE.read_text()
    before, after = text[: text.index(START) + len(START)], text[text.index(END) :]
    PAGE.write_text(before + "\n".join(lines) + "\n" + after)


def main() -> None:
    names, above = sys.argv[1:] or list(CASES), []
    if names == ["page"]:
        return write_page()
    for name in names:
        record = measure(name, CASES[name])
        store(results("memory"), name, record)
        above += [name for fit in record["fits"] if fit["peak_mb"] > fit["budget_mb"]]
    sys.exit(f"Above the budget: {', '.join(above)}" if above else None)


if __name__ == "__main__":
    main()
