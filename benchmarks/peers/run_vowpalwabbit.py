"""Vowpal Wabbit's recall_tree: logarithmic-time multiclass. It trains from a file, and names one class per row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import scipy.sparse as sp
from vowpalwabbit import Workspace

PACKAGE = "vowpalwabbit"
# As in the library's own demonstration for recall_tree; \x88 is the name space of the tree's nodes.
DEFAULTS = {"passes": 20, "b": 24, "l": 1.0, "loss_function": "logistic", "q": r"\x88:"}


def prepare(X: sp.csr_matrix, Y: sp.csr_matrix, job: dict[str, Any]) -> Path:
    path = Path(job["folder"]) / "train.vw"
    with path.open("w") as out:
        out.writelines(f"{label + 1} {line}\n" for label, line in zip(Y.indices.tolist(), texts(X), strict=True))
    return path


def fit(data: Path, job: dict[str, Any]) -> Any:
    """Trains with the native parser, from a cache after the first pass; the saved model is what predicts."""
    model = Path(job["folder"]) / "model"
    given = {**DEFAULTS, **job["settings"], "recall_tree": job["labels"], "random_seed": job["seed"]}
    options = [part for name, value in given.items() for part in (("-" if len(name) == 1 else "--") + name, str(value))]
    files = ["-d", str(data), "-k", "--cache_file", str(data.with_suffix(".cache")), "-f", str(model), "--quiet"]
    Workspace(arg_list=[*options, *files]).finish()
    return Workspace(arg_list=["-i", str(model), "-t", "--quiet"])


def predict(model: Any, X: sp.csr_matrix, job: dict[str, Any]) -> Any:
    return [[(model.predict(line) - 1, 1.0)] for line in texts(X)]


def save(model: Any, path: Path) -> None:
    """Training has left it there."""


def texts(X: sp.csr_matrix) -> Any:
    """Each row as text without its label."""
    for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        pairs = zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)
        yield "|f " + " ".join(f"{j}:{v:.8g}" for j, v in pairs)
