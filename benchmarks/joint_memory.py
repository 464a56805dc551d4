"""Joint training within the least memory that it asks for: that memory, the peak, and the peak without a budget.

    python benchmarks/joint_memory.py [NAME ...]

Synthetic sets, seed 0, one pass; each fit runs in a process of its own, with two threads. Memory is that of the process
as the system counts it. The figures are in results/joint_memory.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile

from results import results, store
from smoothlink.data.read import write
from smoothlink.parameters import memory_bytes
from smoothlink.synth import Shape, synthesise

SETS = {
    "many features": (Shape(150_000, 2_000, 20, 2), 4_000),
    "many labels": (Shape(3_000, 40_000, 20, 2), 4_000),
    "many sparse weights": (Shape(30_000, 10_000, 60, 12), 30_000),
    "many rows": (Shape(60_000, 8_000, 25, 2), 120_000),
}
CHILD = """
import sys
from smoothlink.cli import main
try:
    main(["train", *sys.argv[1:], "--training", "joint", "--set", "training.passes=1", "--force"])
except SystemExit as end:
    if end.code:
        raise
print("peak", next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1])
"""


def train(path: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs one fit in a process of its own."""
    threads = {"OPENBLAS_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "4"}
    command = [sys.executable, "-c", CHILD, path, "-o", f"{path}.model", *options]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | threads, check=False)


def peak_mb(ran: subprocess.CompletedProcess[str]) -> int:
    found = re.search(r"peak (\d+)", ran.stdout)
    if found is None:
        sys.exit(ran.stderr)
    return round(int(found[1]) * 1024 / 1e6)


def main() -> None:
    for name in sys.argv[1:] or SETS:
        shape, rows = SETS[name]
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/train.sl"
            write(synthesise(shape, rows), path)
            told = re.search(r"--memory (\S+)\)", train(path, "--memory", "100M").stderr)
            assert told is not None
            least = memory_bytes(told[1])
            assert least is not None
            peaks = peak_mb(train(path, "--memory", told[1])), peak_mb(train(path))
        found = {"rows": rows, "features": shape.features, "labels": shape.labels, "least_mb": round(least / 1e6)}
        found |= {"peak_mb": peaks[0], "peak_without_budget_mb": peaks[1]}
        command = f"python benchmarks/joint_memory.py '{name}'"
        store(results("joint_memory"), name, found | {"seed": 0, "command": command})
        print(name, found, flush=True)


if __name__ == "__main__":
    main()
