"""Joint training with sampled negatives on two local workers beside one process: seconds, P@1 and P@5, bytes moved.

    python benchmarks/cluster_joint.py [--rows 100000] [--workers 2] [--vectorised FOLDER]

Training rows of yso-finna-en, as benchmarks/vectorise.py wrote them; 10,000 others are predicted. Each fit runs in a
process of its own, one after the other: the one process has all cores, each worker one thread. Cells are stored in
results/cluster/joint, and docs/benchmarks-cluster.md is written anew. About 3 minutes on two quiet cores.
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

import cluster
import numpy as np
import scipy.sparse as sp
from bench.circumstances import Watch, store, versions
from bench.cluster_fit import Wire
from distributed import Client
from peers.known import OURS

import smoothlink
from smoothlink import Joint, SmoothLinkClassifier
from smoothlink.data.read import Data, write
from smoothlink.distributed.client import local_processes
from smoothlink.synth import Shape, synthesise

SET = "yso-finna-en"
HELD_OUT = 10_000


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="that are fitted, sampled from all")
    parser.add_argument("--workers", default="2", help="numbers of workers, by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vectorised", type=Path, default=Path(tempfile.gettempdir()) / "smoothlink-vectorised")
    parser.add_argument("--results", type=Path, default=cluster.CELLS, metavar="FOLDER")
    parser.add_argument("--fit", nargs=2, metavar=("WORKERS", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.fit:
        folder = Path(given.fit[1])
        (folder / "out.json").write_text(json.dumps(fit(folder, int(given.fit[0]), given.seed)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        measure(given, Path(scratch))
    if given.results == cluster.CELLS:
        cluster.main(["--page-only"])


def measure(given: argparse.Namespace, folder: Path) -> None:
    """Fits in one process, then on workers; each writes its cell when it is done."""
    data = smoothlink.read(given.vectorised / SET / "train.txt")
    chosen = np.random.default_rng(given.seed).permutation(data.X.shape[0])[: given.rows + HELD_OUT]
    for name, rows in (("held.sl", chosen[:HELD_OUT]), ("train.sl", chosen[HELD_OUT:])):
        rows = np.sort(rows)
        write(Data(sp.csr_array(data.X[rows]), sp.csr_array(data.Y[rows])), folder / name)
    shape = dict(zip(("rows", "features", "labels"), (given.rows, *data.X.shape[1:], data.Y.shape[1]), strict=True))
    del data
    for workers in (0, *map(int, given.workers.split(","))):
        watch = Watch()
        subprocess.run([sys.executable, __file__, "--fit", str(workers), str(folder)], check=True)
        cell = {
            "workers": workers,
            "date": str(date.today()),
            "command": f"python benchmarks/cluster_joint.py --rows {given.rows} --workers {given.workers}",
            "versions": versions(OURS),
            "seed": given.seed,
            "set": SET,
            "shape": shape,
            **watch.seen(),
            **json.loads((folder / "out.json").read_text()),
        }
        store(cell, given.results / "joint" / f"{'here' if not workers else 'rows'}-{workers}.json")
        print(f"{workers} workers: {cell['seconds']:.1f} s, P@1 {cell['p@1']:.4f}, P@5 {cell['p@5']:.4f}", flush=True)


def fit(folder: Path, workers: int, seed: int) -> dict[str, Any]:
    """Returns what a fit of the data folder took, in this process (no workers) or on processes of one thread each, and
    how it predicts rows that were held out."""
    model, wire = SmoothLinkClassifier(training="joint", random_state=seed), Wire()
    model._notify = wire
    if not workers:
        fit_few_rows()
        began, busy = time.perf_counter(), time.process_time()
        found = smoothlink.read(folder / "train.sl")
        model.fit(found.X[:], found.Y[:])
        seconds, processor = time.perf_counter() - began, time.process_time() - busy
    else:
        with (
            local_processes(workers, 1) as made,
            Client(made) as client,  # type: ignore[no-untyped-call]
            smoothlink.cluster(client),
        ):
            fit_few_rows()
            began, busy = time.perf_counter(), time.process_time() + sum(client.run(time.process_time).values())
            model.fit(smoothlink.Files.of(folder / "train.sl"))
            seconds = time.perf_counter() - began
            processor = time.process_time() + sum(client.run(time.process_time).values()) - busy
    held = smoothlink.read(folder / "held.sl")
    metrics = model.evaluate(held.X[:], held.Y[:], bootstraps=1).metrics
    scores = {name: metrics[name].value for name in ("p@1", "p@5")}
    stages, moved = model.summary_["seconds"], model.summary_.get("bytes_moved")
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        **scores,
        "stages": stages,
        "bytes_moved": moved,
        "wire": wire.found,
    }


def fit_few_rows() -> None:
    """A small fit, which loads and compiles what is loaded and compiled once."""
    made = synthesise(Shape(300, 80, 12, 2), 2000)
    SmoothLinkClassifier(training=Joint(20), rank=24).fit(made.X, made.Y)


if __name__ == "__main__":
    main()
