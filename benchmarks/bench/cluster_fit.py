"""One fit of benchmarks/cluster.py, in a process of its own: seconds, bytes moved, and memory of the workers by task.

Memory is what a worker holds beyond itself when idle: its resident memory after a small fit, which has loaded the
libraries and their compiled kernels. The peak is Linux's own (VmHWM), read and set back when a task ends.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from distributed import Client, WorkerPlugin

import smoothlink
from smoothlink import SmoothLinkClassifier
from smoothlink.choices import nest
from smoothlink.distributed.client import local_processes


def fit(data: str, workers: int, plan: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A fit of a data folder, in this process (no workers) or on processes of one thread each."""
    model, wire = SmoothLinkClassifier(**nest(settings)), Wire()
    model._notify = wire
    if not workers:
        fit_few_rows(settings)
        idle = resident()
        began = time.perf_counter()
        found = smoothlink.read(data)
        model.fit(found.X[:], found.Y[:])
        held = {"fit": status("VmHWM") - idle}
    else:
        with (
            local_processes(workers, 1) as made,
            Client(made) as client,  # type: ignore[no-untyped-call]
            smoothlink.cluster(client, plan=plan),
        ):
            fit_few_rows(settings)
            client.register_plugin(Peaks())
            began = time.perf_counter()
            model.fit(smoothlink.Files.of(data))
            peaks = list(client.run(noted).values())
            held = {name: max(found.get(name, 0) for found in peaks) for name in sorted({*itertools.chain(*peaks)})}
    seconds = time.perf_counter() - began
    kept = {name: model.summary_.get(name) for name in ("bytes_moved", "solver_iterations")}
    return {"seconds": seconds, "stages": model.summary_["seconds"], "held": held, "wire": wire.found, **kept}


def fit_few_rows(settings: dict[str, Any]) -> None:
    """A small fit, which loads and compiles what is loaded and compiled once."""
    rng = np.random.default_rng(0)
    X = sp.random(400, 300, 0.05, "csr", np.float32, rng)
    Y = sp.csr_array(sp.random(400, 100, 0.03, "csr", np.float32, rng, data_rvs=np.ones))
    SmoothLinkClassifier(**nest({**settings, "rank": 66, "kernel.features": 20})).fit(sp.csr_array(X), Y)


class Wire:
    """Bytes that went over the loopback device of this machine in each stage: all of Dask's, whoever sent them."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        self.before = looped()

    def __call__(self, stage: str, share: float, words: str) -> None:
        if share == 0.0:
            self.before = looped()
        elif share == 1.0:
            self.found[stage] = self.found.get(stage, 0) + looped() - self.before


def looped() -> int:
    """Bytes that the loopback device has carried."""
    found = re.search(r"^\s*lo:\s*(\d+)", Path("/proc/net/dev").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


class Peaks(WorkerPlugin):
    """The most bytes that a worker held, beyond those held idle, by the end of each task of a name."""

    name = "peaks"

    def setup(self, worker: Any) -> None:
        self.idle, self.found = resident(), dict[str, int]()
        forget()

    def transition(self, key: Any, start: str, finish: str, **more: Any) -> None:
        if (start, finish) == ("executing", "memory"):
            name = re.sub(r"( \d+/\d+)?-[0-9a-f]{24}$", "", str(key))
            self.found[name] = max(self.found.get(name, 0), peak_and_forget() - self.idle)


def noted(dask_worker: Any) -> dict[str, int]:
    found: dict[str, int] = dask_worker.plugins[Peaks.name].found
    return found


def status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def resident() -> int:
    return status("VmRSS")


def forget() -> int:
    """Sets the peak back to what is held now."""
    return Path("/proc/self/clear_refs").write_text("5\n")


def peak_and_forget() -> int:
    peak = status("VmHWM")
    forget()
    return peak


if __name__ == "__main__":
    from bench.cluster_fit import fit  # what is sent to workers must have a name that they can import

    data, workers, plan, settings, out = sys.argv[1:]
    Path(out).write_text(json.dumps(fit(data, int(workers), plan, json.loads(settings))))
