"""Seconds and peak memory of training against n, d, c, k and s, one at a time, on made data.

    python benchmarks/growth.py [--axes n d c k s] [--shrink 1] [--steps 4]

Each point is a fit with settings given, in a process of its own, timed as in benchmarks/compare_peers.py. Points go to
results/growth/figures.json as they come; those that are there, of the same versions and settings, are not measured
again unless --again is given. Then docs/benchmarks.md is written, with the fitted exponents.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from bench.circumstances import PAGE, RESULTS, Watch, read, reported, store, versions
from bench.growth import AXES
from bench.page import publish
from peers.known import OURS

from smoothlink.synth import Shape, synthesise
from smoothlink_paper.data_sets import Split

BASE = {"n": 40_000, "d": 20_000, "c": 2_000, "k": 100, "s": 500}
TINY = {"n": 500, "d": 300, "c": 20, "k": 5, "s": 20}
FEATURES_PER_ROW, LABELS_PER_ROW, TEST_ROWS = 40, 3, 200
SETTINGS: dict[str, Any] = {"ridge": 1.0, "kernel.bandwidth": 2.0, "final_ridge": 0.01, "loss": "squared"}
SETTINGS |= {"input_kernel": None, "calibrate": False, "task": "multilabel"}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=list(AXES), metavar="AXIS")
    parser.add_argument("--shrink", type=int, default=1, help="a trial: all sizes divided by this")
    parser.add_argument("--steps", type=int, default=4, help="points along a size, each twice the one before")
    parser.add_argument("--again", action="store_true", help="measure points that are there already again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    given = parser.parse_args(words)
    if given.shrink > 1 and (given.results == RESULTS or given.page == PAGE):
        parser.error("--shrink makes trial figures: pass --results and --page too, so that they replace no real ones.")
    run(given)
    publish(given.results, given.page, print)


def run(given: argparse.Namespace) -> None:
    path, record = given.results / "growth" / "figures.json", expected(given)
    stored = read(path)
    if stored is not None and not given.again and all(stored.get(key) == value for key, value in record.items()):
        record = stored
    else:
        floor = measured(TINY, given.seed, given.threads)["peak_mb"]
        record |= {"floor_mb": floor, "points": []}
    for sizes in wanted(record["base"], given.axes, given.steps):
        if any(point["sizes"] == sizes for point in record["points"]):
            continue
        point = measured(sizes, given.seed, given.threads)
        record["points"].append(point)
        record |= {"date": date.today().isoformat(), "command": command(given)}
        store(record, path)
        shown = ", ".join(f"{axis} {size}" for axis, size in sizes.items())
        print(f"{shown}: {point['seconds']:.2f} s, {point['peak_mb']:.0f} MB", flush=True)


def expected(given: argparse.Namespace) -> dict[str, Any]:
    """What must be the same for stored points to hold still."""
    watched = Watch().seen()
    return {
        "base": {axis: max(8, size // given.shrink) for axis, size in BASE.items()},
        "settings": SETTINGS,
        "features_per_row": FEATURES_PER_ROW,
        "labels_per_row": LABELS_PER_ROW,
        "seed": given.seed,
        "threads": given.threads,
        "cores": watched["cores"],
        "versions": versions(OURS),
    }


def command(given: argparse.Namespace) -> str:
    shrunk = f" --shrink {given.shrink}" if given.shrink > 1 else ""
    return f"python benchmarks/growth.py --seed {given.seed} --threads {given.threads} --steps {given.steps}{shrunk}"


def wanted(base: dict[str, int], axes: Sequence[str], steps: int) -> Iterator[dict[str, int]]:
    """The base, then each size doubled again and again, the others as they are."""
    yield dict(base)
    for axis in axes:
        for step in range(1, steps):
            yield {**base, axis: base[axis] << step}


def measured(sizes: dict[str, int], seed: int, threads: int) -> dict[str, Any]:
    """One fit: its seconds, those of its stages and its peak memory."""
    shape = Shape(sizes["d"], sizes["c"], min(FEATURES_PER_ROW, sizes["d"]), LABELS_PER_ROW, seed=seed)
    rows = synthesise(shape, sizes["n"] + TEST_ROWS)
    parts = (slice(sizes["n"]), slice(sizes["n"], None))
    split = Split(*(rows._replace(X=rows.X[part], Y=rows.Y[part]) for part in parts))
    watch = Watch()
    settings = {**SETTINGS, "rank": sizes["k"], "kernel.features": sizes["s"]}
    found = reported(watch, OURS, split, seed, top=5, threads=threads, **settings)
    return {
        "sizes": dict(sizes),
        "seconds": round(found.fit_seconds, 3),
        "stages": found.selected["seconds"],
        "solver": found.selected["solver"],
        "peak_mb": found.memory_mb,
        **watch.seen(),
    }


if __name__ == "__main__":
    main()
