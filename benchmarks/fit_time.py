"""Seconds to fit bibtex at fixed settings, next to omikuji's on the same rows in the same run.

    python benchmarks/fit_time.py [DATA/bibtex]

Each fit runs in a process of its own, with two threads, in turn, best of three. Timed is training alone, for both:
start-up, reading of files (omikuji reads one of its own) and compilation are left out.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from datetime import date
from pathlib import Path
from typing import Any

import peers
from bench.circumstances import RESULTS, Watch, reported
from peers.known import OURS

from smoothlink_paper.data_sets import load

SETTINGS: dict[str, Any] = {"rank": 112, "ridge": 1.0, "kernel.bandwidth": 2.0, "final_ridge": 1e-2}
SETTINGS |= {"kernel.features": 2000, "loss": "squared"}


def main() -> None:
    root = Path(os.environ.get("SMOOTHLINK_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "bibtex"
    split = load(folder.parent, folder.name)
    methods: dict[str, dict[str, Any]] = {OURS: SETTINGS, "omikuji": {}}
    if reason := next(filter(None, map(peers.absent, methods)), None):
        sys.exit(reason)
    times: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(3):  # in turn, so that both meet the same load
        for name, settings in methods.items():
            times[name].append(reported(Watch(), name, split, 0, top=5, **settings).fit_seconds)
    record = {
        "date": date.today().isoformat(),
        "settings": ", ".join(f"{key}={value!r}" for key, value in SETTINGS.items()),
        "omikuji": peers.versions("omikuji")["omikuji"],
        "loading": False,
        "seconds": times,
    }
    (RESULTS / "fit_time" / "figures.json").write_text(json.dumps(record, indent=1) + "\n")
    for name, seconds in times.items():
        print(f"{name:11s} best {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s")
    print(f"ratio of the best: {min(times[OURS]) / min(times['omikuji']):.2f}")


if __name__ == "__main__":
    main()
