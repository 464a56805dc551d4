"""The methods that are compared: presets of the classifier, classifiers of scikit-learn, and peer libraries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.choices import nest
from smoothlink.estimator import SmoothLinkClassifier
from smoothlink.fitting.holdout import fold_numbers
from smoothlink.labels import is_multiclass
from smoothlink.metrics.evaluate import Predictions, evaluate
from smoothlink.metrics.names import is_better
from smoothlink.predict import one_each, predictions
from smoothlink.steps.calibrate import row_logloss
from smoothlink.steps.infer import above_half, f1_thresholds, sets_at, top_k, topk_csr
from smoothlink.steps.scale import choose_scaling
from smoothlink_paper.data_sets import Split
from smoothlink_paper.label_space import LabelSpace
from smoothlink_paper.result import Result, kept, recall
from smoothlink_paper.runners import NO_PEERS, PEER_TIMEOUT, Peers

Array = NDArray[Any]

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
RIDGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # of the mean diagonal entry of X'X
RIDGE = "scikit-learn ridge on dense unit rows"
RIDGE_TUNED = f"{RIDGE}, ridge tuned"
PEERS = ("LibMultiLabel linear", "omikuji", "napkinXC BR", "napkinXC PLT")
RUN_BY = {RIDGE_TUNED: RIDGE, **{name: name for name in PEERS}}  # a method of the tables -> the peer that runs it

LOW_RANK: dict[str, Any] = {"rank": 0.9, "kernel": "linear", "input_kernel": None}


def on_device(name: str) -> dict[str, Any]:
    """Returns the parameters of a fit on a device; none where that is the host, as in published records."""
    return {} if name == "cpu" else {"device": name}


@kept
def ours(split: Split, seed: int, **params: Any) -> Result:
    """Returns the result of SmoothLinkClassifier with these settings, by dotted name ("kernel.bandwidth")."""
    return fit_and_predict(SmoothLinkClassifier(**nest({"random_state": seed, **params})), split, params)


@kept
def label_space(split: Split, seed: int, **params: Any) -> Result:
    """Returns the result of PLST or CPLST with these parameters."""
    return fit_and_predict(LabelSpace(random_state=seed, **params), split, params)


def fit_and_predict(classifier: SmoothLinkClassifier, split: Split, params: dict[str, Any]) -> Result:
    """Fits the classifier and predicts the test rows."""
    began = time.perf_counter()
    fitted = classifier.fit(split.train.X, split.train.Y)
    seconds = time.perf_counter() - began
    predicted = fitted._run_prediction(fitted._validated_rows(split.test.X), predictions, split.test.Y)
    shown = ("rank", "ridge", "kernel", "bandwidth", "random_features", "final_ridge", "loss", "passes")
    return Result(predicted, seconds, {**params, **{k: fitted.summary_[k] for k in shown}})


# Baselines composed of the same steps, as published: without a kernel of x.
PRESETS: dict[str, Callable[[Split, int], Result]] = {
    "independent ridge": partial(label_space, method="plst", rank=1.0),  # every direction: c ridge regressions
    "independent logistic": partial(ours, embedding="none", kernel="linear", loss="logistic"),
    "independent kernel logistic": partial(ours, embedding="none", loss="logistic"),
    "link over independent ridge (Algorithm 2)": partial(ours, embedding="per_label", input_kernel=None),
    "compressed sensing + logistic": partial(ours, **LOW_RANK, embedding="random", loss="logistic"),
    "PLST": partial(label_space, method="plst", rank=0.9),
    "CPLST": partial(label_space, method="cplst", rank=0.9),
    "low-rank ridge": partial(ours, **LOW_RANK, loss="squared"),
    "low-rank logistic": partial(ours, **LOW_RANK, loss="logistic"),
}


@kept
def logistic_regressions(split: Split, seed: int, C: float = 1.0) -> Result:
    """Returns the result of scikit-learn's LogisticRegression, one per label, on scaled features."""
    from sklearn.linear_model import LogisticRegression

    result = one_vs_rest(split, lambda: LogisticRegression(C=C, max_iter=1000, random_state=seed))
    return result._replace(settings={"C": C})


def tuned(
    fit: Callable[[Split, int, float], Result],
    values: Sequence[float],
    split: Split,
    seed: int,
    metrics: Sequence[str] = ("hamming",),
) -> dict[str, Result]:
    """Returns for each metric a fit with the value (one for all labels) best on a tenth of the training rows."""
    held = fold_numbers(split.train.X.shape[0], 0.1, seed) == 0
    inner = Split(*(split.train._replace(X=split.train.X[part], Y=split.train.Y[part]) for part in (~held, held)))
    counts = np.bincount(inner.train.Y.indices, minlength=inner.train.Y.shape[1])
    known = {"label_counts": counts, "n_train": inner.train.Y.shape[0], "bootstraps": 0}
    tried = {value: evaluate(inner.test.Y, fit(inner, seed, value).predictions, **known).metrics for value in values}
    best = dict.fromkeys(metrics, values[0])
    for metric in metrics:
        for value, found in tried.items():
            if is_better(metric, found[metric].value, tried[best[metric]][metric].value):
                best[metric] = value
    results = {value: fit(split, seed, value) for value in set(best.values())}
    return {metric: results[value] for metric, value in best.items()}


def tuned_logistic_regressions(split: Split, seed: int) -> Result:
    """Returns logistic regressions with the C of the least Hamming loss on a tenth of the training rows."""
    return tuned(logistic_regressions, STRENGTHS, split, seed)["hamming"]


@kept
def random_forest(split: Split, seed: int) -> Result:
    """Returns the result of scikit-learn's RandomForestClassifier with 200 trees, which takes all labels at once."""
    from sklearn.ensemble import RandomForestClassifier

    began = time.perf_counter()
    forest = RandomForestClassifier(200, n_jobs=-1, random_state=seed)
    forest.fit(split.train.X, split.train.Y.toarray())
    seconds = time.perf_counter() - began
    found = forest.predict_proba(split.test.X)
    P = np.column_stack(
        [p[:, 1] if p.shape[1] == 2 else np.full(len(p), k[0]) for p, k in zip(found, forest.classes_, strict=True)]
    )
    return Result(of_probabilities(P, split), seconds, {"trees": 200})


def one_vs_rest(split: Split, make: Callable[[], Any]) -> Result:
    """Returns one classifier per label on the same scaled features; a label of all or no rows gets its frequency."""
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
    return Result(of_probabilities(np.column_stack(columns), split), time.perf_counter() - began, {})


def peer(peers: Peers, name: str, split: Split, seed: int, **settings: Any) -> Result:
    """Returns the result of a peer library."""
    run = partial(peers.run, name, split, seed, limit=PEER_TIMEOUT, **settings)
    return recall(split, f"{name} {seed} {sorted(settings.items())}", run, ours=False)


def baselines(peers: Peers) -> dict[str, Callable[[Split, int], Result]]:
    """Returns the classifiers of scikit-learn and the peer libraries with their own defaults, by name."""
    return {
        "scikit-learn one-vs-rest logistic, C = 1": logistic_regressions,
        "scikit-learn random forest": random_forest,
        **{name: partial(peer, peers, name) for name in PEERS},
    }


def tuned_baselines(peers: Peers) -> dict[str, tuple[Callable[[Split, int, float], Result], Sequence[float]]]:
    """Returns baselines that are tuned for each metric: name -> fit, and the values to choose from."""

    def ridge_regressions(split: Split, seed: int, ridge: float) -> Result:
        return peer(peers, RIDGE, split, seed, ridge=ridge)

    return {
        "scikit-learn one-vs-rest logistic, C tuned": (logistic_regressions, STRENGTHS),
        RIDGE_TUNED: (ridge_regressions, RIDGES),
    }


BASELINES, TUNED = tuple(baselines(NO_PEERS)), tuple(tuned_baselines(NO_PEERS))  # their names


def of_probabilities(P: Array, split: Split) -> Predictions:
    """Returns all predictions that `evaluate` takes, from probabilities (n, c).

    Where every training row has one label, sets are the arg-max and the log-loss is that of rows made to sum to 1.
    """
    P = np.clip(P, 0, 1)
    n, c = P.shape
    best = top_k(P, min(5, c))
    multiclass = is_multiclass(split.train.Y)
    frequency = np.bincount(split.train.Y.indices, minlength=c) / max(1, split.train.Y.shape[0])
    sums = P.sum(axis=1, keepdims=True) if multiclass else np.ones((n, 1))
    return Predictions(
        topk=topk_csr([best], c),
        sets=one_each(best.indices[:, 0], c) if multiclass else above_half(P),
        f1_sets=sets_at(P, f1_thresholds(P, frequency)),
        row_logloss=row_logloss(
            P / np.where(sums > 0, sums, 1), sp.csr_array(split.test.Y)[:, :c], multiclass=multiclass
        ),
        top_probability=best.values[:, 0],
    )


def of_top(scores: sp.csr_array, split: Split) -> Predictions:
    """Returns rankings from the best scores of each row (CSR, n x c), never dense: there are no label sets.

    Equal scores keep the order in which they come. A row with fewer than 5 labels is filled up with the most frequent
    ones, at score 0.
    """
    n, c = scores.shape
    frequent = np.argsort(-np.bincount(split.train.Y.indices, minlength=c), kind="stable")[:5]
    given = np.repeat(np.arange(n), np.diff(scores.indptr))
    rows = np.concatenate([given, np.repeat(np.arange(n), len(frequent))])
    labels = np.concatenate([scores.indices, np.tile(frequent, n)])
    values = np.concatenate([np.clip(scores.data, 0, 1), np.zeros(n * len(frequent), scores.dtype)])
    order = np.lexsort((-values, rows))  # stable
    rows, labels, values = rows[order], labels[order], values[order]
    first = np.sort(np.unique(rows * c + labels, return_index=True)[1])  # a label's higher score comes first
    indptr = np.searchsorted(rows[first], np.arange(n + 1))
    topk = sp.csr_array((values[first], labels[first], indptr), (n, c))
    return Predictions(topk=topk, top_probability=topk.data[topk.indptr[:-1]])
