"""How far probabilities can be believed: bibtex and the demo, with defaults, on their test rows.

    python benchmarks/calibration.py [bibtex] [demo] ...    # fits, measures and stores; any XMC set of $SMOOTHLINK_DATA

The table is in docs/results.md (`python benchmarks/results.py page`).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results import DATA, results, store

Array = NDArray[Any]

BINS = 15
LIKELY = 0.05  # pairs of less do not enter the second error: nearly all pairs are of no interest
BARS = {"ece_top": 0.03, "ece_pairs": 0.03, "labels_off": 0.05}


def expected_error(p: Array, hit: Array, bins: int = BINS) -> float:
    """Mean distance of probability and share of hits, over bins of equally many pairs."""
    order = np.argsort(p, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(abs(p[part].mean() - hit[part].mean()) * len(part) for part in parts) / len(p))


def logloss(P: Array, truth: Array) -> float:
    """Mean over rows of the sum over labels."""
    Q = np.clip(P, 1e-7, 1 - 1e-7)
    return float(-(np.where(truth, np.log(Q), np.log1p(-Q))).sum(axis=1).mean())


def measured(model: Any, X: Any, Y: Any) -> dict[str, float]:
    """The errors of a fitted classifier's probabilities on rows X of labels Y."""
    from smoothlink.steps.calibrate import no_calibration

    truth = Y.toarray() > 0
    P = model.predict_proba(X).astype(np.float64)
    calibrated = model.model_
    model.model_ = replace(calibrated, calibration=no_calibration())
    before = model.predict_proba(X).astype(np.float64)
    model.model_ = calibrated
    best = P.argmax(axis=1)
    likely = P >= LIKELY
    counts = {"true": truth.sum(), "expected": P.sum(), "in_sets": (P > 0.5).sum()}
    a_row = {f"labels_{name}": float(count / len(P)) for name, count in counts.items()}
    return {
        "ece_top": expected_error(P.max(axis=1), truth[np.arange(len(P)), best]),
        "ece_pairs": expected_error(P[likely], truth[likely]),
        "logloss": logloss(P, truth),
        "logloss_before": logloss(before, truth),
        "labels_off": a_row["labels_expected"] / a_row["labels_true"] - 1,
        **a_row,
    }


def problem(name: str, seed: int) -> tuple[Any, Any, Any]:
    """A fitted classifier, and test rows with their labels."""
    import smoothlink

    if name == "demo":
        from smoothlink.demo.corpus import build_corpus
        from smoothlink.demo.demo_run import demo_problem, train

        posed = demo_problem(build_corpus())
        return train(posed), posed.X_test, posed.Y_test
    data, test = (smoothlink.read(DATA / name / f"{part}.txt.xz") for part in ("train", "test"))
    return smoothlink.SmoothLinkClassifier(random_state=seed).fit(data.X, data.Y), test.X, test.Y


def section() -> list[str]:
    """The table of docs/results.md."""
    import json

    found = json.loads(results("calibration").read_text())
    lines = [
        "## Whether probabilities can be believed",
        "",
        "`python benchmarks/calibration.py`, defaults, seed 0, test rows. ECE top: 15 bins of equally many rows by",
        "their highest probability, mean distance of probability and share of hits. ECE pairs: the same over the pairs",
        f"of row and label with p >= {LIKELY}. Log-loss per row, and what it was without the calibration map. Labels",
        "per row: the sum of the probabilities (and how far that is from the truth), those in the sets at 1/2, the",
        "truth. Sets at 1/2 are smaller than the truth by design: a label of p = 0.3 is true in three rows of ten and",
        "in no set.",
        "",
        "| set | ECE top | ECE pairs | log-loss (before) | expected labels | in sets | true |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, r in found.items():
        loss = f"{r['logloss']:.3f} ({r['logloss_before']:.3f})"
        expected = f"{r['labels_expected']:.3f} ({100 * r['labels_off']:+.1f} %)"
        cells = f"{r['ece_top']:.4f} | {r['ece_pairs']:.4f} | {loss} | {expected}"
        lines.append(f"| {name} | {cells} | {r['labels_in_sets']:.3f} | {r['labels_true']:.3f} |")
    last = next(iter(found.values()))
    stated = ", ".join(f"{k} {v}" for k, v in last["versions"].items())
    return [*lines, "", f"Measured {last['date']} with {stated}."]


if __name__ == "__main__":
    for name in sys.argv[1:] or ["bibtex", "demo"]:
        record = measured(*problem(name, 0))
        store(results("calibration"), name, record)
        print(name, {key: round(value, 4) for key, value in record.items()})
