"""What stands beside the columns of tables, on held-out training rows (decision 54).

    python benchmarks/tree_choice.py WHAT [TABLE ...]    # fits with the code at hand, and stores the figures as WHAT's

A quarter of the training rows is held out; test rows are not looked at. WHAT is "boosting" for the code at hand,
"forest" for that of 0.12.0, and "peers" for scikit-learn's classifiers.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from kernel_choice import TABLES as CHOICE_TABLES
from kernel_choice import rows_of
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from tables import peers, probabilities, steps

from results import results, store
from smoothlink import SmoothLinkClassifier

TABLES: dict[str, Callable[[], tuple[Any, Any]]] = {
    **CHOICE_TABLES,
    "steps, seed 21": partial(rows_of, partial(steps, 21, train=800)),
    "steps, seed 22": partial(rows_of, partial(steps, 22, train=20_000)),
}
HELD = 0.25


def measure(what: str, name: str) -> dict[str, Any]:
    """Returns P@1, macro-F1, Brier score and seconds of each model on held-out rows."""
    X, y = TABLES[name]()
    y = np.asarray(y)
    X, X_held, y, y_held = train_test_split(
        X, y, test_size=HELD, random_state=0, stratify=y if y.ndim == 1 and np.bincount(y).min() > 1 else None
    )
    multilabel = y.ndim == 2
    c = y.shape[1] if multilabel else int(y.max()) + 1
    Y = y_held if multilabel else np.eye(c, dtype=int)[y_held]
    ours = what != "peers"
    models: dict[str, Any] = {effort: SmoothLinkClassifier(effort=effort) for effort in ("full", "quick")}
    models = models if ours else peers(multilabel)
    found: dict[str, Any] = {"rows": X.shape[0], "columns": X.shape[1], "labels": c}
    for method, model in models.items():
        A, A_held = (X, X_held) if ours or not sp.issparse(X) else (X.toarray(), X_held.toarray())
        start = time.perf_counter()
        model.fit(A, y)
        seconds = time.perf_counter() - start
        P = probabilities(model, A_held, c)
        best = P.argmax(axis=1)
        sets = P >= 0.5 if multilabel else np.eye(c, dtype=int)[best]
        found[method] = {
            "p@1": round(float(Y[np.arange(len(Y)), best].mean()), 4),
            "macro_f1": round(float(f1_score(Y, sets, average="macro", zero_division=0)), 4),
            "brier": round(float(((P - Y) ** 2).sum(axis=1).mean()), 4),
            "seconds": round(seconds, 1),
        }
        if ours:
            found[method]["chosen"] = {key: model.summary_[key] for key in ("trees", "input_kernel", "kernel", "loss")}
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of few rows
    what, *names = sys.argv[1:]
    for name in names or TABLES:
        record = measure(what, name)
        store(results("tree_choice"), f"{name}, {what}", record)
        print(name, what, {method: r for method, r in record.items() if isinstance(r, dict)}, flush=True)
