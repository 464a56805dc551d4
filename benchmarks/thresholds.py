"""Thresholds and calibration of few rows, on training rows alone: decisions 22 and 28 were made by such figures.

    python benchmarks/thresholds.py f1 [SET ...]     # mean F1 over labels: a third of the training rows is measured
    python benchmarks/thresholds.py few [SET ...]    # 100 and 300 training rows; others are measured
    python benchmarks/thresholds.py quick [SET ...]  # the same, quick fits alone

XMC sets and debtags of $SMOOTHLINK_DATA. "before" is what the model would do without the rule: Algorithm 4's cuts of
the held-out rows as they are; a quick fit that 5 % of the rows calibrate.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

from results import DATA, results, store

F1_SETS = [
    *("emotions", "medical", "yeast", "enron", "bibtex", "corel5k", "debtags", "scene", "mediamill-reduced"),
    *("rcv1-subset1", "delicious", "go-seq"),
]
FEW_SETS = ["emotions", "yeast", "bibtex", "debtags"]
MOST_ROWS = 4000  # of debtags, to measure F1
MEASURED_ROWS = 1000  # beside the few
DRAWS = 5  # of few rows


def training_rows(name: str, most: int | None = None) -> tuple[Any, Any]:
    """X and Y of the training rows of a set, in a random order."""
    import smoothlink

    if name != "debtags":
        data = smoothlink.read(DATA / name / "train.txt.xz")
        order = np.random.default_rng(0).permutation(data.X.shape[0])[:most]
        return sp.csr_array(data.X)[order], sp.csr_array(data.Y)[order]
    from smoothlink.labels import read_labels
    from smoothlink.text.documents import DocumentSource, read_documents
    from smoothlink.text.features import TextFeatures

    found = read_documents(str(DATA / name / "train.tsv.xz"), DocumentSource("tsv", ("3", "4"), ("2",), ","))
    order = np.random.default_rng(0).permutation(len(found.texts))[:most]
    X = TextFeatures().fit_transform([found.texts[i] for i in order])
    return X, read_labels([found.labels[i] for i in order]).Y


def mean_f1(sets: Any, Y: Any) -> float:
    """Mean over labels, 0/0 = 0."""
    sets, Y = sp.csr_array(sets), sp.csr_array(Y)
    hits, both = (np.asarray(A.sum(axis=0)).ravel() for A in (sets.multiply(Y), sets + Y))
    return float(np.divide(2 * hits, both, out=np.zeros(len(hits)), where=both > 0).mean())


def f1(name: str) -> dict[str, Any]:
    """Of a quick fit to two thirds of the rows: sets at 1/2, Algorithm 4 over the batch, and at thresholds."""
    from smoothlink import SmoothLinkClassifier
    from smoothlink.steps import thresholds
    from smoothlink.steps.split import stratified_split

    X, Y = training_rows(name, MOST_ROWS)
    fitted, measured = stratified_split(Y, (2 / 3, 1 / 3))
    shrink, cuts = thresholds.shrink, []

    def recorded(own: Any, *given: Any) -> Any:
        cuts.append(own)
        return shrink(own, *given)

    with patch.object(thresholds, "shrink", recorded):
        model = SmoothLinkClassifier(effort="quick").fit(X[fitted], Y[fitted])
    test, truth = X[measured], Y[measured]
    before = np.where(np.isfinite(cuts[-1]), cuts[-1], np.inf)
    sets = {
        "half": model.predict(test),
        "batch": model.predict_f1(test, over="batch"),
        "before": model.predict(test, threshold=before),
        "thresholds": model.predict_f1(test, over="thresholds"),
        "predict_f1": model.predict_f1(test),
    }
    facts = {"rows": len(fitted), "labels": Y.shape[1], "held_out_rows": model.summary_["held_out_rows"]}
    return facts | {key: mean_f1(found, truth) for key, found in sets.items()}


def few(name: str, *, full: bool = True) -> dict[str, Any]:
    """Calibration error of top labels, and rows without a predicted label, of fits to few rows: means over draws, of
    which the full fits have one."""
    from smoothlink import SmoothLinkClassifier
    from smoothlink.fitting import holdout

    X, Y = training_rows(name, 300 + MEASURED_ROWS)
    kinds = [("before", "quick", 0, DRAWS), ("quick", "quick", holdout.QUICK_ROWS, DRAWS), ("full", "full", 0, 1)]
    kinds = kinds if full else kinds[:2]
    found: dict[str, Any] = {}
    for rows in (100, 300):
        for key, effort, by_folds, draws in kinds:
            values = []
            for draw in range(draws):
                order = np.random.default_rng(draw).permutation(X.shape[0])
                fitted, measured = order[:rows], order[rows:]
                with patch.object(holdout, "QUICK_ROWS", by_folds):
                    model = SmoothLinkClassifier(effort=effort).fit(X[fitted], Y[fitted])
                metrics = model.evaluate(X[measured], Y[measured], bootstraps=0).metrics
                empty = float((np.diff(sp.csr_array(model.predict(X[measured])).indptr) == 0).mean())
                seconds = sum(model.summary_["seconds"].values())
                values.append([*(metrics[m].value for m in ("ece_top", "p@1", "micro_f1")), empty, seconds])
            mean = dict(zip(("ece_top", "p@1", "micro_f1", "empty", "seconds"), np.mean(values, axis=0), strict=True))
            found[f"{rows} {key}"] = {**mean, "empty_most": max(one[3] for one in values), "draws": draws}
    return found


if __name__ == "__main__":
    kind, names = sys.argv[1], sys.argv[2:]
    for name in names or (F1_SETS if kind == "f1" else FEW_SETS):
        record = f1(name) if kind == "f1" else few(name, full=kind == "few")
        store(results("thresholds", kind), name, record)
        print(name, record, flush=True)
