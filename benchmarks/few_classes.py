"""Defaults and logistic regression on the small multiclass sets that scikit-learn carries.

    python benchmarks/few_classes.py [wine] [iris] [breast_cancer]    # fits, measures and stores

Two fifths of the rows are held out, each class alike, by five seeds; logistic regression has standardised columns. The
figures, means over the seeds, are in results/few_classes and in decision 36.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from results import results, store
from smoothlink import SmoothLinkClassifier

SETS, SEEDS, HELD = ("wine", "iris", "breast_cancer"), range(5), 0.4


def measure(name: str) -> dict[str, Any]:
    """Returns the share of right classes and the log-loss of each method, means over the seeds."""
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    methods = {
        "smoothlink": SmoothLinkClassifier(),
        "quick": SmoothLinkClassifier(effort="quick"),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
    }
    found: dict[str, Any] = {"rows": len(y), "seeds": len(SEEDS)}
    for method, model in methods.items():
        each = []
        for seed in SEEDS:
            X_fit, X_held, y_fit, y_held = train_test_split(X, y, test_size=HELD, random_state=seed, stratify=y)
            model.fit(X_fit, y_fit)
            right = np.mean(model.predict(X_held) == y_held)
            each.append((right, log_loss(y_held, model.predict_proba(X_held))))
        found[method] = {key: round(float(np.mean(each, axis=0)[i]), 4) for i, key in enumerate(("right", "logloss"))}
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of few rows
    for name in sys.argv[1:] or SETS:
        cell = measure(name)
        store(results("few_classes"), name, cell)
        print(name, cell)
