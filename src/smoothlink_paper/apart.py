"""Methods for large sets: asked only for their best labels, each in a process of its own that tells its peak memory."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from smoothlink.choices import nest
from smoothlink.data.read import Data
from smoothlink.errors import SmoothLinkError
from smoothlink.estimator import SmoothLinkClassifier
from smoothlink.fitting.settings import peak_memory_mb
from smoothlink.machines.rows import row_hash
from smoothlink.metrics.evaluate import Predictions
from smoothlink.steps.infer import TopK, topk_csr
from smoothlink_paper.data import Split
from smoothlink_paper.methods import Answer
from smoothlink_paper.runners import PeerFailed, Peers

Method = Callable[[Split, int], Answer]  # split, seed -> answer; a top-level function or a partial of one

PEER_SECONDS = 3600.0  # a peer that takes longer is stopped, and the page says so
QUICK_NOTE = "This was a quick run: few rows, settings not searched, memory not measured. Its figures mean nothing."


class Asked(NamedTuple):
    """An answer and the most memory its process has held, data included; None where nobody measured."""

    answer: Answer
    peak_mb: float | None


def best_labels(split: Split, seed: int, *, top: int = 5, **params: Any) -> Answer:
    """SmoothLinkClassifier's best labels alone: F1 sets and log-losses would cost all n x c probabilities again."""
    began = time.perf_counter()
    fitted = SmoothLinkClassifier(**nest({"random_state": seed, **params})).fit(split.train.X, split.train.Y)
    seconds = time.perf_counter() - began
    kept = ("rank", "ridge", "kernel", "bandwidth", "random_features", "final_ridge", "loss", "passes")
    settings = {key: fitted.summary_[key] for key in kept}
    return Answer(Predictions(topk=fitted.predict_topk(split.test.X, top)), seconds, settings)


def nearest_neighbour(split: Split, seed: int) -> Answer:
    """The label of the nearest training row by angle, found by brute force."""
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import normalize

    X, X_test = (normalize(part.X.toarray()) for part in split)
    began = time.perf_counter()
    found = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(X).kneighbors(X_test, return_distance=False)
    Y = split.train.Y
    best = TopK(Y.indices[Y.indptr[found]], np.ones(found.shape))
    return Answer(Predictions(topk=topk_csr([best], Y.shape[1])), time.perf_counter() - began, {})


def ask_apart(split: Split, methods: dict[str, Method], seed: int, notify: Callable[[str], None]) -> dict[str, Asked]:
    """Each method in a fresh process, one after the other, so that none sees another's memory."""
    answers = {}
    with TemporaryDirectory(prefix="smoothlink-") as folder:
        path = Path(folder) / "split"
        path.write_bytes(pickle.dumps(nameless(split)))
        for name, method in methods.items():
            notify(name)
            # A spawned process, not a forked one: a fork would start with the memory of this one.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                try:
                    answers[name] = pool.submit(ask_here, path, method, seed).result()
                except BrokenProcessPool as error:
                    raise SmoothLinkError(
                        f"{name} was ended from outside, most likely because memory ran out.\n"
                        "Free some, or use less data."
                    ) from error
    return answers


def ask_here(path: Path, method: Method, seed: int) -> Asked:
    """The work of the process."""
    answer = method(pickle.loads(path.read_bytes()), seed)
    return Asked(answer, round(peak_memory_mb(), 1))


def ask_peer(name: str, split: Split, seed: int, peers: Peers, notify: Callable[[str], None]) -> Asked | str:
    """A peer's answer, or one line that says why there is none."""
    notify(name)
    reason = peers.absent(name)
    if reason is not None:
        return reason
    try:
        report = peers.report(name, split, seed, top=min(5, split.train.Y.shape[1]), limit=PEER_SECONDS)
    except PeerFailed as error:
        return str(error).replace("\n", " ")
    return Asked(report.answer, report.memory_mb)


def nameless(split: Split) -> Split:
    """Without the names of columns, which methods do not need."""
    return Split(*(Data(part.X, part.Y) for part in split))


def some_rows(data: Data, count: int, seed: int) -> Data:
    """At most so many rows, by the hash of their number."""
    n = data.X.shape[0]
    if n <= count:
        return data
    kept = np.sort(np.argsort(row_hash(np.arange(n), seed), kind="stable")[:count])
    return data._replace(X=data.X[kept], Y=data.Y[kept])


def percent(metric: dict[str, float], digits: int = 2) -> str:
    """A fraction and its interval as percentages."""
    value, low, high = (100 * metric[key] for key in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def costs(row: dict[str, Any]) -> str:
    """Two cells of a table: seconds and MB."""
    peak = row["peak_memory_mb"]
    return f"{row['seconds']:.1f} | {'' if peak is None else format(peak, '.0f')}"


def listed(settings: dict[str, Any]) -> str:
    """Settings in one line."""
    shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in sorted(settings.items()))
    return ", ".join(shown) or "nothing to set"


def load_average() -> float | None:
    """How many processes have lately wanted a core: seconds measured under a high one are too long."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def crowd(record: dict[str, Any]) -> list[str]:
    """A line on other work that shared the cores, where there was any."""
    load = record["load_average"]
    if load is None or load < 0.5:
        return []
    return ["", f"Other work shared the cores (load average {load:g} at the start), so seconds are too long."]
