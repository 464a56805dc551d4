"""smoothlink itself, run as the peers are, through its public names.

It gets the rows as they are in the files and scales them within the timed fit; peers get them scaled beforehand.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba.core.dispatcher import Dispatcher

from smoothlink import SmoothLinkClassifier
from smoothlink.choices import nest
from smoothlink.labels import is_multiclass

PACKAGE = "smoothlink"
FIRST_ROWS = 64
SELECTED = ("rank", "ridge", "kernel", "bandwidth", "random_features", "final_ridge", "loss", "passes", "solver")


def prepare(X: sp.csr_matrix, Y: sp.csr_matrix, job: dict[str, Any]) -> Any:
    """A fit of a few rows first: it loads compiled kernels, or compiles them, as peers were when they were built."""
    some = Y[:FIRST_ROWS]
    some = some[:, np.unique(some.indices)]
    task = "multiclass" if is_multiclass(Y) else "multilabel"
    few: dict[str, Any] = {"kernel.features": 50, "task": task, "random_state": job["seed"]}
    SmoothLinkClassifier(**nest(few)).fit(X[:FIRST_ROWS], some)
    job["compiled"] = compiled()
    return X, Y


def fit(data: Any, job: dict[str, Any]) -> Any:
    return SmoothLinkClassifier(**nest({"random_state": job["seed"], **job["settings"]})).fit(*data)


def predict(model: Any, X: sp.csr_matrix, job: dict[str, Any]) -> Any:
    return model.predict_topk(X, k=job["top"] or job["labels"])


def save(model: Any, path: Path) -> None:
    model.save(path)


def selected(model: Any, job: dict[str, Any]) -> dict[str, Any]:
    """What "auto" came to, the seconds of each stage, and how many kernels were compiled while the clock ran."""
    summary = model.summary_
    seconds = {stage: round(value, 3) for stage, value in summary["seconds"].items()}
    return {**{k: summary[k] for k in SELECTED}, "seconds": seconds, "compiled": compiled() - job["compiled"]}


def compiled() -> int:
    """Kernels that this process had to compile because no cache had them; the next process finds them there."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "smoothlink"]
    kernels = {id(f): f for module in modules for f in vars(module).values() if isinstance(f, Dispatcher)}
    return sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels.values())
