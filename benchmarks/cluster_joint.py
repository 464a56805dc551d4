"""Joint training with sampled negatives on two local workers beside one process: seconds, P@1 and P@5, bytes moved.

    python benchmarks/cluster_joint.py [--rows 100000] [--workers 2] [--vectorised FOLDER]

Training rows of yso-finna-en, as benchmarks/vectorise.py wrote them; 50,000 others are predicted. Each fit runs in a
process of its own, one after the other: the one process has all cores, each worker one thread. Cells are stored in
results/cluster/joint, and docs/benchmarks-cluster.md is written anew. About 4 minutes on two quiet cores.
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

import cluster
import numpy as np
import scipy.sparse as sp
from bench.circumstances import Watch, store, versions
from peers.known import OURS

import smoothlink
from smoothlink.data.read import Data, write

SET = "yso-finna-en"
HELD_OUT = 50_000  # so that the standard error of a difference is near 0.1 points


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="that are fitted, sampled from all")
    parser.add_argument("--workers", default="2", help="numbers of workers, by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vectorised", type=Path, default=Path(tempfile.gettempdir()) / "smoothlink-vectorised")
    parser.add_argument("--results", type=Path, default=cluster.CELLS, metavar="FOLDER")
    given = parser.parse_args(words)
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
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    for workers in (0, *map(int, given.workers.split(","))):
        watch = Watch()
        given_to_fit = [str(folder), str(workers), str(given.seed)]
        subprocess.run([sys.executable, "-m", "bench.cluster_joint_fit", *given_to_fit], check=True, env=environment)
        cell = {
            "workers": workers,
            "date": str(date.today()),
            "command": f"python benchmarks/cluster_joint.py --rows {given.rows} --workers {given.workers}",
            "versions": versions(OURS),
            "seed": given.seed,
            "set": SET,
            "shape": shape,
            "held_out": HELD_OUT,
            **watch.seen(),
            **json.loads((folder / "out.json").read_text()),
        }
        store(cell, given.results / "joint" / f"{'here' if not workers else 'rows'}-{workers}.json")
        print(f"{workers} workers: {cell['seconds']:.1f} s, P@1 {cell['p@1']:.4f}, P@5 {cell['p@5']:.4f}", flush=True)


if __name__ == "__main__":
    main()
