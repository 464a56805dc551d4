"""Sparse @ dense on all cores against SciPy on one, on text-like matrices, in one run.

    python benchmarks/kernels.py [--columns 320] [--repeats 7]

For X @ P and X.T @ R: the best of several times of each, in turn, so that both meet the same load; operations
per second; bytes read per second (each non-zero reads a row of P or R, mostly from caches) next to the bandwidth of a
plain copy; and the floor, the time to read each operand and write the result once at that bandwidth. CPU seconds (all
threads) tell what other work on the machine hides from the clock. Results go to results/kernels/figures.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from smoothlink.machines.matrices import Sparse

RESULT = Path(__file__).parents[1] / "results" / "kernels" / "figures.json"
SHAPES = [(65_536, 92_000, 11), (40_000, 100_000, 60), (590_000, 92_000, 8)]  # rows, columns, entries per row
MEMORY = 3e9  # bytes of the largest operand: longer matrices are cut


def text_like(rng: np.random.Generator, n: int, d: int, entries: int) -> sp.csr_array:
    """Rows of about `entries` words, frequencies by Zipf's law, in the order of a shuffled vocabulary."""
    cumulative = np.cumsum(1 / np.arange(1, d + 1))
    drawn = np.searchsorted(cumulative, rng.random(n * entries) * cumulative[-1])
    rows, columns = np.repeat(np.arange(n), entries), rng.permutation(d)[drawn]
    X = sp.csr_array((np.ones(n * entries, np.float32), (rows, columns)), (n, d))
    X.sum_duplicates()
    X.data = rng.random(X.nnz, dtype=np.float32)
    return X


def race(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, float]]:
    """The best clock and CPU seconds of each function; all are called in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    for f in functions.values():
        f()
    for _ in range(repeats):
        for name, f in functions.items():
            clock, cpu = time.perf_counter(), time.process_time()
            f()
            times[name].append((time.perf_counter() - clock, time.process_time() - cpu))
    return {name: {"seconds": min(t[0] for t in ts), "cpu": min(t[1] for t in ts)} for name, ts in times.items()}


def copy_bandwidth(repeats: int) -> float:
    """Returns the bytes per second read and written by a copy, on all cores."""
    from smoothlink.machines.kernels import copy_panel

    source, target = np.ones((400_000, 64), np.float32), np.empty((400_000, 64), np.float32)
    order = np.arange(len(source))
    best = race({"copy": lambda: copy_panel(source, order, 0, target)}, 3 * repeats)["copy"]["seconds"]
    return 2 * source.nbytes / best


def measure(shape: tuple[int, int, int], m: int, repeats: int, bandwidth: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    n, d, entries = shape
    n = min(n, int(MEMORY / (4 * m)))
    X = text_like(rng, n, d, entries)
    P, R = (rng.standard_normal((rows, m), dtype=np.float32) for rows in (d, n))
    ours, out = Sparse(X), np.zeros((d, m), np.float32)
    pairs: dict[str, dict[str, Callable[[], Any]]] = {
        "X @ P": {"scipy": lambda: X @ P, "ours": lambda: ours @ P},
        "X.T @ R": {"scipy": lambda: X.T @ R, "ours": lambda: ours.T.add_product(R, out)},
    }
    records = []
    for name, functions in pairs.items():
        best = race(functions, repeats)
        seconds = best["ours"]["seconds"]
        floor = (8 * X.nnz + 4 * m * (n + d)) / bandwidth
        records.append(
            {"product": name, "rows": n, "columns": d, "entries": X.nnz / n, "m": m, **best}
            | {"ratio": best["scipy"]["seconds"] / seconds, "cpu_ratio": best["scipy"]["cpu"] / best["ours"]["cpu"]}
            | {"gflops": 2 * X.nnz * m / seconds / 1e9, "asked_gb_s": 4 * X.nnz * m / seconds / 1e9}
            | {"over_floor": seconds / floor}
        )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--columns", type=int, default=320)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    bandwidth = copy_bandwidth(given.repeats)
    print(f"copy bandwidth {bandwidth / 1e9:.1f} GB/s, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(
        "product    rows  columns  a row |  scipy s   ours s  ratio | cpu: ours   ratio | GFLOP/s  GB/s asked  x floor"
    )
    records = []
    for shape in SHAPES:
        for r in measure(shape, given.columns, given.repeats, bandwidth):
            records.append(r)
            print(
                f"{r['product']:8s} {r['rows']:7d} {r['columns']:7d} {r['entries']:6.1f} | {r['scipy']['seconds']:8.3f}"
                f" {r['ours']['seconds']:8.3f} {r['ratio']:6.2f} | {r['ours']['cpu']:9.3f} {r['cpu_ratio']:7.2f} |"
                f" {r['gflops']:7.1f} {r['asked_gb_s']:11.1f} {r['over_floor']:8.1f}",
                flush=True,
            )
    about: dict[str, Any] = {"date": date.today().isoformat(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    about |= {"versions": {name: version(name) for name in ("smoothlink", "numpy", "scipy", "numba")}}
    RESULT.write_text(json.dumps({**about, "copy_gb_s": bandwidth / 1e9, "results": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
