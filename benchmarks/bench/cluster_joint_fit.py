"""One fit of benchmarks/cluster_joint.py, in a process of its own: seconds, accuracy on held-out rows, bytes moved.

Dask's workers import this module before their number of threads is set, so it must not import numba.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from distributed import Client

import smoothlink
from bench.cluster_fit import Wire
from smoothlink import Joint, SmoothLinkClassifier
from smoothlink.distributed.client import local_processes


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
    top = model.predict_topk(held.X[:], 5).indices.reshape(-1, 5)
    hits = np.column_stack([held.Y[:][np.arange(len(top)), labels] for labels in top.T])
    scores = {"p@1": float(hits[:, 0].mean()), "p@5": float(hits.mean())}
    stages, moved = model.summary_["seconds"], model.summary_.get("bytes_moved")
    times = {"seconds": seconds, "processor_seconds": processor, "stages": stages}
    return {**times, **scores, "bytes_moved": moved, "wire": wire.found}


def fit_few_rows() -> None:
    """A small fit, which loads and compiles what is loaded and compiled once."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(sp.random(2000, 300, 0.05, "csr", np.float32, rng))
    Y = sp.csr_array(sp.random(2000, 100, 0.03, "csr", np.float32, rng, data_rvs=np.ones))
    SmoothLinkClassifier(training=Joint(20), rank=24).fit(X, Y)


if __name__ == "__main__":
    folder, workers, seed = sys.argv[1:]
    (Path(folder) / "out.json").write_text(json.dumps(fit(Path(folder), int(workers), int(seed))))
