"""Training that goes on with new rows and new labels, against a retrain on all rows.

    python benchmarks/living_joint.py [yso-finna-en] [bibtex] [aloi] [--rows N]    # fits, goes on, retrains and stores

1 % of the labels is new: no row that carries one is in the first fit. Of the other rows 90 % are. Training then goes on
with all rows that were left out, and is compared with a fit to all of them, on rows that neither had. yso-finna-en are
library titles and joint training (data/vectorised holds them as vectors), bibtex is the logistic loss and aloi, of
which the first 100 classes are taken, softmax. Test rows are not touched: rows that measure are training rows held out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import smoothlink
from results import DATA, ROOT, results, store
from smoothlink.living.continue_training import continue_training, replay_store
from smoothlink.living.replay import Training
from smoothlink.metrics.evaluate import is_true

SEED, NEW_LABELS, FIRST_SHARE, CLASSES = 0, 0.01, 0.9, 100
HELD = {"yso-finna-en": 20_000, "bibtex": 1000, "aloi": 2000}  # rows that measure
OPTIONS: dict[str, dict[str, Any]] = {
    "yso-finna-en": {},
    "bibtex": {"loss": smoothlink.Logistic(), "effort": "quick"},
    "aloi": {"loss": smoothlink.Softmax(), "effort": "quick"},
}
NEW_AT_LEAST = 5  # labels: 1 % of few would say little


def read(name: str, folder: Path) -> tuple[Any, sp.csr_array]:
    data = smoothlink.read(folder / name / "train.txt" if name == "yso-finna-en" else DATA / name / "train.txt.xz")
    X, Y = data.X, sp.csr_array(data.Y)
    if name == "aloi":
        Y = sp.csr_array(Y[:, :CLASSES])
        X, Y = X[np.diff(Y.indptr) == 1], Y[np.diff(Y.indptr) == 1]
    return X, Y


def measure(model: Any, X: Any, Y: sp.csr_array, first: int) -> dict[str, float]:
    """Returns P@1, P@5 and the recall@10 of the labels from `first` on; labels that the model does not know count."""
    ids = np.concatenate([best.ids for best in model.best_in_blocks(model.embed_rows(X), 10)])
    hit = is_true(Y, ids)
    new = Y[:, first:].nnz
    return {
        "p@1": float(hit[:, 0].mean()),
        "p@5": float(hit[:, :5].mean()),
        "new_recall@10": float((hit & (ids >= first)).sum() / max(1, new)),
        "new_pairs": int(new),
    }


def fit(name: str, X: Any, Y: sp.csr_array) -> tuple[Any, float]:
    began = time.perf_counter()
    task = "multiclass" if name == "aloi" else "multilabel"
    y = Y.indices if task == "multiclass" else Y
    return smoothlink.SmoothLinkClassifier(random_state=SEED, task=task, **OPTIONS[name]).fit(X, y), (
        time.perf_counter() - began
    )


def compare(name: str, folder: Path, rows: int | None) -> dict[str, Any]:
    X, Y = read(name, folder)
    rng = np.random.default_rng(SEED)
    order = rng.permutation(X.shape[0])
    held, fitted = np.sort(order[: HELD[name]]), np.sort(order[HELD[name] :][:rows])
    known = np.flatnonzero(np.bincount(Y[fitted].indices, minlength=Y.shape[1]))
    new = rng.choice(known, max(NEW_AT_LEAST, round(NEW_LABELS * Y.shape[1])), replace=False)
    Y = sp.csr_array(Y[:, np.append(np.setdiff1d(known, new), np.sort(new))])
    c = Y.shape[1] - len(new)
    later = (np.diff(sp.csr_array(Y[fitted][:, c:]).indptr) > 0) | (rng.random(len(fitted)) > FIRST_SHARE)
    if name == "aloi":  # every row has a class that is known
        held = held[np.diff(Y[held].indptr) == 1]
    cell: dict[str, Any] = {"rows": len(fitted), "later": int(later.sum()), "labels": Y.shape[1], "new": len(new)}
    first, seconds = fit(name, X[fitted[~later]], Y[fitted[~later]][:, :c])
    cell["first"] = {**measure(first.model_, X[held], Y[held], c), "seconds": seconds}
    began = time.perf_counter()
    training = Training.of(first._request(), first.summary_)
    replay = replay_store(X[fitted[~later]], Y[fitted[~later]][:, :c], None, first.model_, SEED, training=training)
    cell["store"] = {"seconds": time.perf_counter() - began, "rows": len(replay), "learner": training.learner}
    began = time.perf_counter()
    after = continue_training(first.model_, replay, X[fitted[later]], Y[fitted[later]], seed=SEED)
    cell["updated"] = {"seconds": time.perf_counter() - began, **measure(after.model, X[held], Y[held], c)}
    cell |= {"method": after.method, "held_out": after.compared}
    print(name, cell, flush=True)
    del after, replay, first
    whole, seconds = fit(name, X[fitted], Y[fitted])
    cell["retrained"] = {**measure(whole.model_, X[held], Y[held], c), "seconds": seconds}
    return cell


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=list(HELD))
    parser.add_argument("--rows", type=int, help="fit to so many of the rows of yso-finna-en")
    parser.add_argument("--vectorised", type=Path, default=ROOT / "data" / "vectorised")
    asked = parser.parse_args()
    for name in asked.sets:
        rows = asked.rows if name == "yso-finna-en" else None
        cell = compare(name, asked.vectorised, rows)
        size = [] if rows is None else ["--rows", str(rows)]
        cell |= {"seed": SEED, "command": " ".join(["python benchmarks/living_joint.py", name, *size])}
        store(results("living_joint"), name if rows is None else f"{name}, {rows} rows", cell)
        for metric in ("p@1", "p@5", "new_recall@10"):
            print(name, metric, *(f"{key} {100 * cell[key][metric]:.2f}" for key in ("first", "updated", "retrained")))
