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
from distributed import WorkerPlugin

import smoothlink
from smoothlink import SmoothLinkClassifier


def fit(data: str, where: str, plan: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A fit of a data folder, in this process ("here") or on a cluster."""
    model = SmoothLinkClassifier(**settings)
    if where == "here":
        warm(settings)
        idle = resident()
        began = time.perf_counter()
        found = smoothlink.read(data)
        model.fit(found.X[:], found.Y[:])
        held = {"fit": status("VmHWM") - idle}
    else:
        with smoothlink.cluster(where, plan=plan) as cluster:
            warm(settings)
            cluster.client.register_plugin(Peaks())
            began = time.perf_counter()
            model.fit(smoothlink.Files.of(data))
            peaks = list(cluster.client.run(noted).values())
            held = {name: max(found.get(name, 0) for found in peaks) for name in sorted({*itertools.chain(*peaks)})}
    seconds = time.perf_counter() - began
    kept = {name: model.summary_.get(name) for name in ("bytes_moved", "solver_iterations")}
    return {"seconds": seconds, "stages": model.summary_["seconds"], "held": held, **kept}


def warm(settings: dict[str, Any]) -> None:
    """A small fit, which loads and compiles what is loaded and compiled once."""
    rng = np.random.default_rng(0)
    X = sp.random(400, 300, 0.05, "csr", np.float32, rng)
    Y = sp.csr_array(sp.random(400, 100, 0.03, "csr", np.float32, rng, data_rvs=np.ones))
    SmoothLinkClassifier(**{**settings, "rank": 66, "n_features": 20}).fit(sp.csr_array(X), Y)


class Peaks(WorkerPlugin):
    """The most bytes that a worker held, beyond those held idle, by the end of each task of a name."""

    name = "peaks"

    def setup(self, worker: Any) -> None:
        self.idle, self.found = resident(), dict[str, int]()
        forget()

    def transition(self, key: Any, start: str, finish: str, **more: Any) -> None:
        if (start, finish) == ("executing", "memory"):
            name = re.sub(r"( \d+/\d+)?-[0-9a-f]{8}$", "", str(key))
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

    data, where, plan, settings, out = sys.argv[1:]
    Path(out).write_text(json.dumps(fit(data, where, plan, json.loads(settings))))
