"""What is compared: presets of the classifier, and independent classifiers of scikit-learn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.estimator import SmoothLinkClassifier
from smoothlink.experiments.data import Split
from smoothlink.machines.rows import folds
from smoothlink.predict import predictions
from smoothlink.steps.calibrate import row_logloss
from smoothlink.steps.evaluate import Predictions
from smoothlink.steps.infer import above_half, f1_thresholds, sets_at, top_k, topk_csr
from smoothlink.steps.scale import choose_scaling

Array = NDArray[Any]

STRENGTHS = (1.0, 10.0, 100.0)

# Baselines by composition of the same steps.
PRESETS: dict[str, dict[str, Any]] = {
    "independent ridge": {"embedding": "plst", "rank": 1.0},  # every direction, decoded as it is: c ridge regressions
    "independent logistic": {"embedding": "none", "kernel": "linear", "loss": "logistic"},
    "independent kernel logistic": {"embedding": "none", "loss": "logistic"},
    "link over independent ridge (Algorithm 2)": {"embedding": "identity"},
    "compressed sensing + logistic": {"embedding": "random", "rank": 0.9, "kernel": "linear", "loss": "logistic"},
    "PLST": {"embedding": "plst", "rank": 0.9},
    "CPLST": {"embedding": "cplst", "rank": 0.9},
    "low-rank ridge": {"rank": 0.9, "kernel": "linear", "loss": "squared"},
    "low-rank logistic": {"rank": 0.9, "kernel": "linear", "loss": "logistic"},
}


class Answer(NamedTuple):
    """What a method says of the test rows."""

    predictions: Predictions
    seconds: float  # of the fit
    settings: dict[str, Any]


def ours(split: Split, seed: int, **params: Any) -> Answer:
    """SmoothLinkClassifier with these parameters."""
    began = time.perf_counter()
    fitted = SmoothLinkClassifier(**{"random_state": seed, **params}).fit(split.train.X, split.train.Y)
    seconds = time.perf_counter() - began
    H = fitted._embed(split.test.X)
    kept = ("rank", "ridge", "kernel", "bandwidth", "random_features", "final_ridge", "loss", "passes")
    return Answer(
        predictions(fitted.model_, H, split.test.Y), seconds, {**params, **{k: fitted.summary_[k] for k in kept}}
    )


def logistic_regressions(split: Split, seed: int, C: float = 1.0) -> Answer:
    """scikit-learn's LogisticRegression, one a label, on scaled features."""
    from sklearn.linear_model import LogisticRegression

    answer = one_vs_rest(split, lambda: LogisticRegression(C=C, max_iter=1000, random_state=seed))
    return answer._replace(settings={"C": C})


def tuned_logistic_regressions(split: Split, seed: int) -> Answer:
    """The same with the C, one for all labels, of the least Hamming loss on a tenth of the training rows."""
    held = folds(split.train.X.shape[0], 0.1, seed) == 0
    inner = Split(*(split.train._replace(X=split.train.X[part], Y=split.train.Y[part]) for part in (~held, held)))
    truth = inner.test.Y.toarray() > 0
    wrong = {}
    for C in STRENGTHS:
        sets = logistic_regressions(inner, seed, C).predictions.sets
        assert sets is not None
        wrong[C] = np.count_nonzero((sets.toarray() > 0) != truth)
    return logistic_regressions(split, seed, min(wrong, key=lambda C: wrong[C]))


def random_forest(split: Split, seed: int) -> Answer:
    """scikit-learn's RandomForestClassifier with 200 trees, which takes all labels at once."""
    from sklearn.ensemble import RandomForestClassifier

    began = time.perf_counter()
    forest = RandomForestClassifier(200, n_jobs=-1, random_state=seed)
    forest.fit(split.train.X, split.train.Y.toarray())
    seconds = time.perf_counter() - began
    found = forest.predict_proba(split.test.X)
    P = np.column_stack(
        [p[:, 1] if p.shape[1] == 2 else np.full(len(p), k[0]) for p, k in zip(found, forest.classes_, strict=True)]
    )
    return Answer(of_probabilities(P, split), seconds, {"trees": 200})


def one_vs_rest(split: Split, make: Callable[[], Any]) -> Answer:
    """One classifier a label on the same scaled features; a label without both kinds of rows gets its frequency."""
    scaling = choose_scaling(split.train.X)
    X, X_test = (scaling(part.X)[:, :-1] for part in split)
    Y = split.train.Y.tocsc()
    began = time.perf_counter()
    columns = []
    for label in range(Y.shape[1]):
        y = np.zeros(Y.shape[0], np.int64)
        y[Y.indices[Y.indptr[label] : Y.indptr[label + 1]]] = 1
        two = 0 < y.sum() < len(y)
        columns.append(make().fit(X, y).predict_proba(X_test)[:, 1] if two else np.full(X_test.shape[0], y.mean()))
    return Answer(of_probabilities(np.column_stack(columns), split), time.perf_counter() - began, {})


FIELD: dict[str, Callable[[Split, int], Answer]] = {
    "scikit-learn one-vs-rest logistic, C = 1": logistic_regressions,
    "scikit-learn random forest": random_forest,
}


def of_probabilities(P: Array, split: Split) -> Predictions:
    """All that `steps.evaluate` asks for, from probabilities (n, c)."""
    P = np.clip(P, 0, 1)
    best = top_k(P, min(5, P.shape[1]))
    frequency = np.bincount(split.train.Y.indices, minlength=P.shape[1]) / max(1, split.train.Y.shape[0])
    return Predictions(
        topk=topk_csr([best], P.shape[1]),
        sets=above_half(P),
        f1_sets=sets_at(P, f1_thresholds(P, frequency)),
        row_logloss=row_logloss(P, sp.csr_array(split.test.Y)[:, : P.shape[1]], multiclass=False),
        top_probability=best.values[:, 0],
    )
