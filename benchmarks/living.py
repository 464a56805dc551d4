"""Models that live: 10,000 updates and forgets against a refit and a retrain, and how long an update takes.

    python benchmarks/living.py [cooking-stackexchange] [debtags]    # 10,000 rows that come and go, one at a time
    python benchmarks/living.py times                                # s = 3,000 and 25,147 labels, random rows

A fifth of the training rows, held out, measures: test rows are not touched. Text sets are read as vectors from
$SMOOTHLINK_VECTORS/SET/train.txt (data/vectorised). Figures go to results/living/figures.json, the page is
docs/living.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import smoothlink
from results import ROOT, results, store
from smoothlink.living.living_file import LivingFile
from smoothlink.living.state import LivingState, embed, featurize

SETS = ("cooking-stackexchange", "debtags")
VECTORS = Path(os.environ.get("SMOOTHLINK_VECTORS", ROOT / "data" / "vectorised"))
CHANGES, NEW_LABELS = 10_000, 0.01  # rows that come or go; share of the labels that come with them
SCORES_BAR, P1_BAR = 1e-5, 0.3
OPTIONS: dict[str, Any] = {"loss": "squared", "training": "stepwise", "updatable": True, "random_state": 0}
FEATURES, LABELS, ROWS, WORDS = 3000, 25_147, 6000, 20_000  # of the times
ACKNOWLEDGE_BAR, RATE_BAR, PREDICT_BAR = 20.0, 2000.0, 1.2  # ms, rows per second, times


def changes(name: str) -> dict[str, Any]:
    """Returns how far scores are from a refit, and P@1 from a retrain, after rows came and went one at a time."""
    data, rng = smoothlink.read(VECTORS / name / "train.txt"), np.random.default_rng(0)
    n, c = data.Y.shape
    order = rng.permutation(n)
    test, rows = order[: n // 5], order[n // 5 :]
    X, Y = sp.csr_array(data.X), sp.csr_array(data.Y)
    used = np.flatnonzero(np.bincount(Y[rows].indices, minlength=c))
    new = np.isin(np.arange(c), rng.permutation(used)[: max(1, int(NEW_LABELS * len(used)))])
    has_new = np.asarray(Y[rows] @ new.astype(np.float32)) > 0
    come = np.concatenate([rows[has_new], rows[~has_new]])[: CHANGES // 2]
    base, come = np.setdiff1d(rows, come), rng.permutation(come)
    names = np.append(np.flatnonzero(~new), np.flatnonzero(new))  # new labels get the last columns
    Y = sp.csr_array(Y[:, names])
    known = int((~new).sum())
    began = time.perf_counter()
    model = smoothlink.SmoothLinkClassifier(**OPTIONS).fit(X[base], Y[base][:, :known])
    fitted = time.perf_counter() - began
    model.label_names_ = [str(names[j]) for j in range(known)]
    left, waiting, there = set(base.tolist()), come.tolist(), list(base)
    began, updates, forgets = time.perf_counter(), 0, 0
    place = {name: j for j, name in enumerate(model.label_names_)}
    while updates + forgets < CHANGES:
        if waiting and (rng.random() < 0.5 or CHANGES - updates - forgets <= len(waiting)):
            row = waiting.pop()
            update_by_name(model, X[[row]], [str(names[j]) for j in Y[[row]].indices], place)
            left.add(row)
            there.append(row)
            updates += 1
        else:
            at = int(rng.integers(len(there)))
            there[at], there[-1] = there[-1], there[at]
            row = there.pop()
            forget_by_name(model, X[[row]], [str(names[j]) for j in Y[[row]].indices], place)
            left.discard(row)
            forgets += 1
    seconds = time.perf_counter() - began
    rows = np.array(sorted(left))
    numbers = np.array([place.get(str(name), -1) for name in names])  # column of the model, of each column of Y
    inside = model.model_
    Phi = inside.features(embed(inside, X[test]))
    V = refit(model, X[rows], columns_of(Y[rows], numbers, len(place)))
    assert isinstance(model._living, LivingState)
    sums = model._living.sums
    solved = sums.factor().solve(sums.targets(slice(0, inside.n_labels)))
    exact = featurize(inside, embed(inside, X[test])) @ V  # the refit, predicted in float64
    differences = {  # of predictions, whose features and products are in float32; of those before they are rounded; and
        # of the refit itself, once it predicts in float32
        "largest_difference_of_scores": float(np.abs(inside.V.scores(Phi) - exact).max()),
        "in_float64": float(np.abs(Phi.astype(np.float64) @ (solved - V)).max()),
        "of_the_refit_in_float32": float(np.abs(Phi @ V.astype(np.float32) - exact).max()),
        "largest_score": float(np.abs(Phi @ V).max()),
    }
    began = time.perf_counter()
    trained = np.flatnonzero(np.bincount(Y[rows].indices, minlength=c))
    retrained = smoothlink.SmoothLinkClassifier(**OPTIONS).fit(X[rows], Y[rows])
    seen = sp.csr_array(Y[test])
    p1 = {
        "living": p_at_1(model, X[test], columns_of(seen, numbers, len(place))),
        "retrained": p_at_1(retrained, X[test], seen),
    }
    return {
        "rows_at_first": len(base),
        "labels_at_first": known,
        "updates": updates,
        "forgets": forgets,
        "new_labels": len(place) - known,
        "labels_with_rows": len(trained),
        "random_features": int(inside.V.shape[0] - 1),
        **differences,
        "p@1": p1,
        "seconds": {"fit": fitted, "changes": seconds, "retrain": time.perf_counter() - began},
        "milliseconds_per_change": 1000 * seconds / CHANGES,
        "living": {k: v for k, v in model.summary_["living"].items() if k in ("rows", "calibration_rows")},
    }


def row_of(labels: list[str], place: dict[str, int]) -> sp.csr_array:
    """Returns one row of Y by names of labels; new ones get the next columns."""
    columns = sorted(place.setdefault(label, len(place)) for label in labels)
    return sp.csr_array(
        (np.ones(len(columns), np.float32), np.array(columns, np.int32), [0, len(columns)]), (1, len(place))
    )


def update_by_name(model: Any, X: Any, labels: list[str], place: dict[str, int]) -> None:
    """Adds one row."""
    before = len(place)
    y = row_of(labels, place)
    if len(place) > before:
        model.add_labels(list(place)[before:])
    model.update(X, y)


def forget_by_name(model: Any, X: Any, labels: list[str], place: dict[str, int]) -> None:
    """Removes one row. A label whose last row went has lost its name, and comes back as a new one."""
    model.forget(X, row_of(labels, place))
    for label in labels:
        if model._living.label_rows[place[label]] == 0:
            at = place.pop(label)
            place[f"removed {at}"] = at
            ordered = sorted(place.items(), key=lambda item: item[1])
            place.clear()
            place.update(ordered)


def columns_of(Y: sp.csr_array, numbers: Any, c: int) -> sp.csr_array:
    """Returns Y with the columns of the model; labels that it does not know come last."""
    moved = np.where(numbers < 0, c, numbers)[Y.indices]
    return sp.csr_array((Y.data, moved, Y.indptr), (Y.shape[0], c + 1))


def refit(model: Any, X: Any, Y: sp.csr_array) -> Any:
    """Returns V (s + 1, c) fitted to the rows that are left, all in float64, with the same W and ridge."""
    inside, rho = model.model_, model._living.sums.rho
    Phi = featurize(inside, embed(inside, X))
    G = Phi.T @ Phi + np.diag(np.append(np.full(Phi.shape[1] - 1, rho), 0.0))
    return np.linalg.solve(G, (Y.T @ Phi).T[:, : inside.n_labels])


def p_at_1(model: Any, X: Any, Y: sp.csr_array) -> float:
    """Returns the share, in percent, of rows whose best label is true."""
    best = model.predict_topk(X, k=1).indices
    return 100 * float(np.mean(np.asarray(Y[np.arange(Y.shape[0]), best]) > 0))


def times() -> dict[str, Any]:
    """Returns how long updates of a large model take until they are acknowledged, and predictions meanwhile."""
    rng = np.random.default_rng(0)
    X = sp.random_array((ROWS, WORDS), density=100 / WORDS, rng=rng, format="csr", dtype=np.float32)
    labels = rng.integers(0, LABELS, (ROWS, 4))
    labels[: -(-LABELS // 4)] = np.resize(np.arange(LABELS), (-(-LABELS // 4), 4))[:ROWS]
    Y = sp.csr_array(
        (np.ones(labels.size, np.float32), labels.ravel(), np.arange(0, labels.size + 1, 4)), (ROWS, LABELS)
    )
    Y.sum_duplicates()
    Y.data[:] = 1
    kernel = smoothlink.Gaussian(bandwidth=1.0, features=FEATURES)
    options = OPTIONS | {"rank": 200, "ridge": 1.0, "final_ridge": 1.0, "kernel": kernel}
    first, last = ROWS - 4200, ROWS - 4000
    model = smoothlink.SmoothLinkClassifier(**options).fit(X[:first], Y[:first])
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.safetensors")
        sums = next(Path(folder).glob("*-sums-*")).stat().st_size
        with LivingFile(Path(folder) / "model.safetensors") as living:
            one = X[[0]]
            living.update(X[[first]], Y[[first]])
            alone = [timed(lambda: living.model.predict_topk(one)) for _ in range(30)]  # the first solves all
            acknowledged, corrected = [], []
            for row in range(first + 1, first + 51):
                acknowledged.append(timed(partial(living.update, X[[row]], Y[[row]])))
                living.model.predict_topk(one)  # which makes the correction
                corrected.append(timed(lambda: living.model.predict_topk(one)))
            began = time.perf_counter()
            living.update(X[last:], Y[last:])
            living.classifier._living._fold_in()
            rate = (ROWS - last) / (time.perf_counter() - began)
            solve = timed(lambda: living.model.predict_topk(one))
    return {
        "random_features": FEATURES,
        "labels": LABELS,
        "sums_megabytes": sums / 1e6,
        "acknowledge_ms": {"median": statistics.median(acknowledged), "largest": max(acknowledged)},
        "one_row_ms": {"solved": statistics.median(alone[5:]), "corrected": statistics.median(corrected)},
        "batch_rows_per_second": rate,
        "solve_and_calibrate_seconds": solve / 1000,
    }


def timed(f: Any) -> float:
    """Returns the milliseconds that a call takes."""
    began = time.perf_counter()
    f()
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    for name in sys.argv[1:] or (*SETS, "times"):
        cell = times() if name == "times" else changes(name)
        store(results("living"), name, {**cell, "command": f"python benchmarks/living.py {name}", "seed": 0})
        print(name, cell)
