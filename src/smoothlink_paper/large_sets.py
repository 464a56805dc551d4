"""Methods for large sets: they predict only the best labels, each in a subprocess whose peak memory is measured."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from smoothlink.choices import nest
from smoothlink.data.read import Data
from smoothlink.errors import SmoothLinkError
from smoothlink.estimator import SmoothLinkClassifier
from smoothlink.fitting.settings import peak_memory_mb
from smoothlink.machines.parent_process import when_parent_ends
from smoothlink.machines.rows import row_hash
from smoothlink.metrics.evaluate import Predictions
from smoothlink.steps.infer import TopK, topk_csr
from smoothlink_paper.data_sets import Split
from smoothlink_paper.result import Result, kept, name_of, recall
from smoothlink_paper.runners import PEER_TIMEOUT, PeerFailed, Peers

Method = Callable[[Split, int], Result]  # of split and seed; a top-level function or a partial of one

QUICK_NOTE = "This was a quick run: few rows, settings not searched, memory not measured. Its figures mean nothing."


@kept
def best_labels(split: Split, seed: int, *, top: int = 5, **params: Any) -> Result:
    """Returns only the best labels of SmoothLinkClassifier: F1 sets and log-losses take all n x c probabilities."""
    began = time.perf_counter()
    fitted = SmoothLinkClassifier(**nest({"random_state": seed, **params})).fit(split.train.X, split.train.Y)
    seconds = time.perf_counter() - began
    shown = ("rank", "ridge", "kernel", "bandwidth", "random_features", "final_ridge", "loss", "passes")
    settings = {key: fitted.summary_[key] for key in shown}
    return Result(Predictions(topk=fitted.predict_topk(split.test.X, top)), seconds, settings)


def nearest_neighbour(split: Split, seed: int) -> Result:
    """Returns the label of the nearest training row by angle, found by brute force."""
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import normalize

    X, X_test = (normalize(part.X.toarray()) for part in split)
    began = time.perf_counter()
    found = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(X).kneighbors(X_test, return_distance=False)
    Y = split.train.Y
    best = TopK(Y.indices[Y.indptr[found]], np.ones(found.shape))
    return Result(Predictions(topk=topk_csr([best], Y.shape[1])), time.perf_counter() - began, {})


def run_in_subprocesses(
    split: Split, methods: dict[str, Method], seed: int, notify: Callable[[str], None]
) -> dict[str, Result]:
    """Runs each method in a new process, one after the other, so that the memory of each is its own."""
    results = {}
    with TemporaryDirectory(prefix="smoothlink-") as folder:
        path = Path(folder) / "split"
        path.write_bytes(pickle.dumps(without_names(split)))
        for name, method in methods.items():
            notify(name)
            in_subprocess = partial(run_in_subprocess, name, path, method, seed)
            results[name] = recall(split, f"in a process of its own: {name_of(method)} {seed}", in_subprocess)
    return results


def run_in_subprocess(name: str, path: Path, method: Method, seed: int) -> Result:
    """Runs a method in a process that is spawned, not forked: a fork would start with the memory of this one."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(run_method, path, method, seed).result()
        except BrokenProcessPool as error:
            raise SmoothLinkError(
                f"{name} was ended from outside, most likely because memory ran out.\nFree some, or use less data."
            ) from error


def run_method(path: Path, method: Method, seed: int) -> Result:
    """Runs in the subprocess; returns the result with the peak memory of the process, data included."""
    when_parent_ends(partial(os._exit, 1))
    result = method(pickle.loads(path.read_bytes()), seed)
    return result._replace(peak_mb=round(peak_memory_mb(), 1))


def run_peer(name: str, split: Split, seed: int, peers: Peers, notify: Callable[[str], None]) -> Result | str:
    """Returns the result of a peer, or one line that says why there is none."""
    notify(name)
    reason = peers.absent(name)
    if reason is not None:
        return reason

    def run() -> Result:
        report = peers.report(name, split, seed, top=min(5, split.train.Y.shape[1]), limit=PEER_TIMEOUT)
        result: Result = report.result
        return result._replace(peak_mb=report.memory_mb)

    try:
        return recall(split, f"best labels of {name} {seed}", run, ours=False)
    except PeerFailed as error:
        return str(error).replace("\n", " ")


def without_names(split: Split) -> Split:
    """Returns a split without the names of columns, which methods do not need."""
    return Split(*(Data(part.X, part.Y) for part in split))


def some_rows(data: Data, count: int, seed: int) -> Data:
    """Returns at most `count` rows, chosen by the hash of their number."""
    n = data.X.shape[0]
    if n <= count:
        return data
    kept = np.sort(np.argsort(row_hash(np.arange(n), seed), kind="stable")[:count])
    return data._replace(X=data.X[kept], Y=data.Y[kept])


def percent(metric: dict[str, float], digits: int = 2) -> str:
    """Returns a fraction and its interval as percentages."""
    value, low, high = (100 * metric[key] for key in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def costs(row: dict[str, Any]) -> str:
    """Returns two cells of a table: seconds and MB."""
    peak = row["peak_memory_mb"]
    return f"{row['seconds']:.1f} | {'' if peak is None else format(peak, '.0f')}"


def listed(settings: dict[str, Any]) -> str:
    """Returns settings in one line."""
    shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in sorted(settings.items()))
    return ", ".join(shown) or "nothing to set"


def load_average() -> float | None:
    """Returns the load average of the last minute: seconds measured under a high one are too long."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def load_note(record: dict[str, Any]) -> list[str]:
    """Returns a line on other processes that used the cores, where there were any."""
    load = record["load_average"]
    if load is None or load < 0.5:
        return []
    return ["", f"Other processes used the cores (load average {load:g} at the start), so seconds are too long."]
