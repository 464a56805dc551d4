"""With what a figure was measured, what else ran meanwhile, and files that are whole or not there."""

from __future__ import annotations

import json
import os
import re
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import peers
from peers.known import ALGORITHM_3, OURS, QUICK

from smoothlink.data.atomic import replace_file
from smoothlink_paper.data_sets import Split
from smoothlink_paper.large_sets import load_average
from smoothlink_paper.record import source

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"  # a folder for each benchmark
PAGE = ROOT / "docs" / "benchmarks.md"
PATHS = re.compile(r"(?<![\w.:/])(?:/[\w.+@-]+){2,}")


class Watch:
    """What else the machine did while a cell was measured.

    Load averages count the cell itself and what ended a minute ago. So, on Linux, also: how many cores were busy on
    average with neither this process nor its children.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.load = load_average()
        self.began, self.busy, self.own = time.perf_counter(), busy_seconds(), own_seconds()

    def seen(self) -> dict[str, Any]:
        found: dict[str, Any] = {"load_before": self.load, "load_after": load_average(), "cores": os.cpu_count()}
        busy, seconds = busy_seconds(), time.perf_counter() - self.began
        if busy is not None and self.busy is not None:
            others = busy - self.busy - (own_seconds() - self.own)
            found["other_cores"] = round(max(0.0, others / max(seconds, 0.1)), 2)
        return found


def reported(watch: Watch, name: str, split: Split, seed: int, **given: Any) -> peers.Report:
    """A method's report; asked once more where kernels were compiled while the clock ran, which happens once."""
    found = peers.report(name, split, seed, **given)
    if found.selected.get("compiled"):
        watch.start()
        found = peers.report(name, split, seed, **given)
    return found


def busy_seconds() -> float | None:
    """Core seconds since the start of the machine that were not idle; None where the system does not say."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    except OSError:
        return None
    return (sum(ticks[:3]) + sum(ticks[5:8])) / float(os.sysconf("SC_CLK_TCK"))  # neither idle nor waiting for disks


def own_seconds() -> float:
    """Core seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def versions(method: str) -> dict[str, str]:
    """Of a method that can be run; of ours also a digest of its source, which changes between releases."""
    found = peers.versions(method)
    if method not in (OURS, QUICK, ALGORITHM_3):
        return found
    return {**found, **{name: version(name) for name in ("numba", "scikit-learn")}, "source": source()}


def without_paths(text: str) -> str:
    """A message without the places of this machine."""
    return PATHS.sub("...", text)


def store(record: dict[str, Any], path: Path) -> None:
    """Writes JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write((json.dumps(record, indent=1) + "\n").encode())


def read(path: Path) -> dict[str, Any] | None:
    """A stored record, where there is one."""
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found
