"""LibMultiLabel: linear one-vs-rest machines of LIBLINEAR, and trees of them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import libmultilabel.linear as linear
import numpy as np
import psutil
import scipy.sparse as sp
from scipy.special import expit

PACKAGE = "libmultilabel"
LOGISTIC = ("0", "6", "7")  # LIBLINEAR's solvers with logistic loss


def prepare(X: sp.csr_matrix, Y: sp.csr_matrix, job: dict[str, Any]) -> Any:
    return Y.astype(np.float64), X.astype(np.float64)


def fit(data: Any, job: dict[str, Any]) -> Any:
    psutil.cpu_count = lambda logical=True: job["threads"]  # the library starts as many threads as this says
    options = job["settings"].get("options", "-s 1 -B 1")
    words = options.split()
    solver = words[words.index("-s") + 1] if "-s" in words else "1"
    # A machine's margin as a probability: the library's own trees take sigmoid(3 x) of hinge losses.
    job["slope"] = 1.0 if solver in LOGISTIC else 3.0
    if job["settings"].get("tree"):
        return linear.train_tree(*data, options=options, verbose=False)
    return linear.train_1vsrest(*data, options=options, verbose=False)


def predict(model: Any, X: sp.csr_matrix, job: dict[str, Any]) -> Any:
    values = linear.predict_values(model, X.astype(np.float64))
    return values if job["settings"].get("tree") else expit(job["slope"] * values)


def save(model: Any, path: Path) -> None:
    """As the library's `save_pipeline` does."""
    with path.open("wb") as out:
        pickle.dump(model, out)
