"""How far probabilities can be believed, and what maps of labels by their frequency bring.

    python benchmarks/calibration.py test [SET ...]     # defaults on test rows; docs/results.md has the table
    python benchmarks/calibration.py train [SET ...]    # quick fits to two thirds of the training rows, the rest tested
    python benchmarks/calibration.py full [SET,SEED ...]  # defaults on three quarters of the training rows, as above
    python benchmarks/calibration.py classes [SET ...]  # defaults, one label per row, on a quarter of the training rows
    python benchmarks/calibration.py tables [SEED ...]  # made tables of rare labels with a linear truth

Sets of $SMOOTHLINK_DATA, texts as `benchmarks/vectorise.py` makes them; SET-one takes the first label of each row and
is multiclass. "One map" is the same fit, calibrated as before decision 28: all labels by one monotone map, or classes
by a temperature. `train` and `full` chose the maps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from bench.circumstances import ROOT
from numpy.typing import NDArray

from results import DATA, results, store

Array = NDArray[Any]

VECTORISED = ROOT / "data" / "vectorised"  # as benchmarks/vectorise.py wrote it
BINS = 15
LIKELY = 0.05  # pairs of less do not enter the second error: nearly all pairs are of no interest
TEST_SETS = ["bibtex", "demo", "corel5k", "debtags", "cooking-stackexchange-one", "aloi"]
TRAIN_SETS = [
    *(
        "corel5k",
        "bibtex",
        "enron",
        "medical",
        "yeast",
        "scene",
        "emotions",
        "mediamill-reduced",
        "debtags",
        "delicious",
    ),
    *("cooking-stackexchange", "rcv1-topics-28k", "cooking-stackexchange-one", "aloi"),
]
CLASS_SETS = ["cooking-stackexchange-one", "rcv1-topics-28k-one", "bibtex-one", "debtags-one"]
FULL_SETS = ["bibtex", "cooking-stackexchange", "corel5k", "debtags", "delicious", "enron", "rcv1-topics-28k"]
JOINT_SETS = ["bibtex", "cooking-stackexchange", "debtags"]  # trained jointly too
MOST_ROWS = 15_000  # of a set that `train` takes


def expected_error(p: Array, hit: Array, bins: int = BINS) -> float:
    """Mean distance of probability and share of hits, over bins of equally many pairs."""
    order = np.argsort(p, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(abs(p[part].mean() - hit[part].mean()) * len(part) for part in parts) / len(p))


def error_by_chance(p: Array) -> float:
    """The same distance where hits have exactly these probabilities: what a perfect model has of so few rows."""
    rng = np.random.default_rng(0)
    return float(np.mean([expected_error(p, rng.random(len(p)) < p) for _ in range(20)]))


def logloss(P: Array, truth: Array) -> float:
    """Mean over rows of the sum over labels."""
    Q = np.clip(P, 1e-7, 1 - 1e-7)
    return float(-(np.where(truth, np.log(Q), np.log1p(-Q))).sum(axis=1).mean())


def measured(model: Any, X: Any, Y: Any) -> dict[str, float]:
    """The errors of a fitted classifier's probabilities on rows X of labels Y."""
    truth = Y.toarray() > 0
    P = model.predict_proba(X).astype(np.float64)
    best, likely, rows = P.argmax(axis=1), P >= LIKELY, np.arange(len(P))
    ranked = np.take_along_axis(truth, np.argsort(-P, axis=1, kind="stable")[:, :5], axis=1)
    rarer = np.argsort(model.model_.counts, kind="stable")[: P.shape[1] // 2]
    counts = {"true": truth.sum(), "expected": P.sum(), "in_sets": (P > 0.5).sum()}
    a_row = {f"labels_{name}": float(count / len(P)) for name, count in counts.items()}
    multiclass = model.model_.multiclass
    one_label = -np.log(np.maximum(P[truth], 1e-7)).sum() / len(P) if multiclass else 0.0
    return {
        "p@1": float(ranked[:, 0].mean()),
        "p@5": float(ranked.mean()),
        "ece_top": expected_error(P.max(axis=1), truth[rows, best]),
        "by_chance": error_by_chance(P.max(axis=1)),
        "ece_pairs": expected_error(P[likely], truth[likely]),
        "logloss": float(one_label) if multiclass else logloss(P, truth),
        "rarer_half": float(P[:, rarer].sum() / max(1, truth[:, rarer].sum())),
        "labels_off": a_row["labels_expected"] / a_row["labels_true"] - 1,
        **a_row,
    }


def compared(model: Any, one: Any, X: Any, Y: Any) -> dict[str, Any]:
    """The errors of a classifier, and those of the same fit calibrated by one map."""
    found, before = measured(model, X, Y), model.model_
    model.model_ = replace(before, calibration=one)
    shown = ("p@1", "p@5", "ece_top", "ece_pairs", "logloss", "rarer_half")
    one_map = {name: value for name, value in measured(model, X, Y).items() if name in shown}
    model.model_ = before
    return found | {"one_map": one_map, "loss": before.loss, "multiclass": before.multiclass}


def fit(X: Any, Y: Any, **given: Any) -> tuple[Any, Any]:
    """A fitted classifier, and the calibration by one map that its held-out rows give."""
    import smoothlink
    from smoothlink.fitting import run, validate

    found: list[Any] = []
    with patch.object(run, "calibrate", noting(found)), patch.object(validate, "calibrate", noting(found)):
        model = smoothlink.SmoothLinkClassifier(**given).fit(X, Y)
    return model, [one for loss, one in found if loss == model.model_.loss][-1]


def noting(found: list[Any]) -> Any:
    """`calibrate`, which also notes the calibration of the same held-out rows by one map."""
    from smoothlink.fitting.calibration import add_scores, calibrate, one_label_rows
    from smoothlink.steps.calibrate import Histogram, TopLabels

    def noted(held: Any, frequencies: Any, loss: str, **given: Any) -> Any:
        if given["multiclass"]:
            found.append((loss, best_temperature(*one_label_rows(held))))
            return calibrate(held, frequencies, loss, **given)
        histogram, w = Histogram(loss), np.concatenate([part.w for part in held])
        for part in held:
            add_scores(histogram, part, len(part.w))
        S = np.concatenate([part.scores(slice(0, len(frequencies)), len(part.w)) for part in held])
        top = TopLabels(len(w))
        top.add(S, sp.vstack([part.Y for part in held], format="csr"))
        found.append((loss, top.recalibrate(histogram.monotone(), w, loss=loss)))
        return calibrate(held, frequencies, loss, **given)

    return noted


def best_temperature(scores: Array, labels: Array, w: Array) -> Any:
    """The softmax of the least log-loss, as multiclass models were calibrated before decision 28."""
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    from smoothlink.steps.calibrate import no_calibration

    def loss(log_t: float) -> float:
        Z = np.exp(log_t) * scores.astype(np.float64)
        return float(w @ (logsumexp(Z, axis=1) - Z[np.arange(len(Z)), labels]))

    best = minimize_scalar(loss, bounds=(-4, 6), method="bounded")
    return no_calibration()._replace(temperature=float(np.exp(best.x)))


def rows_of(name: str) -> tuple[Any, Any, Any, Any]:
    """X and Y of training rows, and of test rows."""
    import smoothlink

    if name.endswith("-one"):
        X, Y, X_test, Y_test = rows_of(name.removesuffix("-one"))
        return *first_labels(X, Y), *first_labels(X_test, Y_test)
    made = VECTORISED / name
    paths = [made / f"{part}.txt" if made.exists() else DATA / name / f"{part}.txt.xz" for part in ("train", "test")]
    train, test = (smoothlink.read(path) for path in paths)
    return sp.csr_array(train.X), sp.csr_array(train.Y), sp.csr_array(test.X), sp.csr_array(test.Y)


def first_labels(X: Any, Y: Any) -> tuple[Any, Any]:
    """Rows that have a label, with the first of each alone."""
    Y = sp.csr_array(Y)
    Y.sort_indices()
    kept = np.flatnonzero(np.diff(Y.indptr))
    one = np.ones(len(kept)), Y.indices[Y.indptr[kept]], np.arange(len(kept) + 1)
    return X[kept], sp.csr_array(one, (len(kept), Y.shape[1]))


def on_test_rows(name: str) -> dict[str, Any]:
    """Defaults, seed 0."""
    if name == "demo":
        from smoothlink.demo.corpus import build_corpus
        from smoothlink.demo.demo_run import demo_problem, train

        posed = demo_problem(build_corpus())
        return measured(train(posed), posed.X_test, posed.Y_test)
    X, Y, X_test, Y_test = rows_of(name)
    return compared(*fit(X, Y, random_state=0), X_test, Y_test)


def on_training_rows(name: str) -> dict[str, Any]:
    """A quick fit to two thirds of the training rows of SET, or of SET joint, trained jointly."""
    from smoothlink.steps.split import stratified_split

    given = {"training": "joint"} if name.endswith(" joint") else {}
    name = name.removesuffix(" joint")
    X, Y, *_ = rows_of(name)
    order = np.random.default_rng(0).permutation(X.shape[0])[:MOST_ROWS]
    X, Y = X[order], Y[order]
    fitted, rest = stratified_split(Y, (2 / 3, 1 / 3))
    return compared(*fit(X[fitted], Y[fitted], effort="quick", **given), X[rest], Y[rest])


def in_full(name: str) -> dict[str, Any]:
    """Defaults, fitted to three quarters of the training rows of SET,SEED."""
    name, _, seed = name.partition(",")
    X, Y, X_rest, Y_rest = three_quarters(name, int(seed))
    return compared(*fit(X, Y, random_state=0), X_rest, Y_rest)


def three_quarters(name: str, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """The rows and labels of three quarters of the training rows, and of the others."""
    X, Y, *_ = rows_of(name)
    order = np.random.default_rng(seed).permutation(X.shape[0])
    fitted, rest = np.split(order, [len(order) * 3 // 4])
    return X[fitted], Y[fitted], X[rest], Y[rest]


def on_classes(name: str) -> dict[str, Any]:
    """Defaults, fitted to three quarters of the training rows."""
    import smoothlink

    X, Y, X_rest, Y_rest = three_quarters(name)
    model = smoothlink.SmoothLinkClassifier(random_state=0).fit(X, Y)
    seconds = sum(model.summary_["seconds"].values())
    return measured(model, X_rest, Y_rest) | {"loss": model.model_.loss, "seconds": seconds}


def made_table(seed: int, n: int = 20_000, d: int = 20, c: int = 30, test: int = 5000) -> tuple[Array, Array, Array]:
    """X (n + test, d), labels of frequencies 0.002 to 0.15 whose log-odds are linear in X, and their probabilities."""
    from scipy.optimize import brentq
    from scipy.special import expit

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + test, d))
    Z = X @ (rng.standard_normal((d, c)) * rng.uniform(0.3, 1.0, c))
    for label, share in enumerate(np.geomspace(0.002, 0.15, c)):
        Z[:, label] += brentq(lambda a, z=Z[:, label], f=share: expit(z + a).mean() - f, -60, 20)
    P = expit(Z)
    return X, (rng.random(P.shape) < P).astype(np.int64), P


def on_tables(seed: int, n: int = 20_000) -> dict[str, Any]:
    """Log-loss and mean F1 over labels at 1/2: defaults, scikit-learn's logistic regression, and the truth."""
    from sklearn.linear_model import LogisticRegression
    from thresholds import mean_f1

    import smoothlink

    X, Y, P = made_table(seed, n)
    began = time.perf_counter()
    model = smoothlink.SmoothLinkClassifier(random_state=0).fit(X[:n], Y[:n])
    seconds = time.perf_counter() - began
    peer = [LogisticRegression(max_iter=300).fit(X[:n], y).predict_proba(X[n:])[:, 1] for y in Y[:n].T]
    found = {"smoothlink": model.predict_proba(X[n:]), "logistic regression": np.column_stack(peer), "truth": P[n:]}
    truth = sp.csr_array(Y[n:])
    figures = {
        key: {"logloss": logloss(Q, Y[n:] > 0), "macro_f1": mean_f1(sp.csr_array((Q > 0.5).astype(int)), truth)}
        for key, Q in found.items()
    }
    chosen = {name: model.summary_[name] for name in ("loss", "passes", "kernel", "held_out_criterion")}
    return {**figures, "chosen": chosen, "seconds": seconds, "predict_f1": mean_f1(model.predict_f1(X[n:]), truth)}


def section() -> list[str]:
    """The table of docs/results.md."""
    found = json.loads(results("calibration").read_text())
    lines = [
        "## Whether probabilities can be believed",
        "",
        "`python benchmarks/calibration.py test`, defaults, seed 0, test rows. ECE top: 15 bins of equally many rows",
        "by their highest probability, mean distance of probability and share of hits. By chance: what a perfect",
        "model would have, whose top labels are true exactly as often as it says; fewer test rows make it larger.",
        f"ECE pairs: as ECE top, over the pairs of row and label with p >= {LIKELY}. Rarer half: the probabilities of",
        "labels rarer in training, summed over test rows, as a multiple of their true number. In brackets: the same",
        "fit with one map for all labels, or a temperature for classes. Expected labels: the sum of the probabilities",
        "per row, and how far that is from the truth. cooking-stackexchange-one has the first label of each row alone,",
        "as classes.",
        "",
        "| set | ECE top | by chance | ECE pairs | log-loss | rarer half | P@1 | expected labels |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, r in found.items():
        one = r.get("one_map", {})
        cells = [
            f"{r[key]:.4f}" + (f" ({one[key]:.4f})" if one else "")
            for key in ("ece_top", "ece_pairs", "logloss", "rarer_half", "p@1")
        ]
        cells.insert(1, f"{r['by_chance']:.4f}")
        lines.append(f"| {name} | {' | '.join(cells)} | {r['labels_expected']:.3f} ({100 * r['labels_off']:+.1f} %) |")
    last = next(iter(found.values()))
    stated = ", ".join(f"{k} {v}" for k, v in last["versions"].items())
    return [*lines, "", f"Measured {last['date']} with {stated}."]


# What is measured -> the names that it takes, the function of a name, and the file of results/calibration.
KINDS: dict[str, tuple[list[str], Callable[[str], dict[str, Any]], str]] = {
    "test": (TEST_SETS, on_test_rows, "figures"),
    "train": ([*TRAIN_SETS, *(f"{name} joint" for name in JOINT_SETS)], on_training_rows, "train"),
    "full": ([f"{name},{seed}" for name in FULL_SETS for seed in (0, 1)], in_full, "full"),
    "classes": (CLASS_SETS, on_classes, "classes"),
    "tables": (["10", "11", "12"], lambda seed: on_tables(int(seed)), "tables"),
}


if __name__ == "__main__":
    usual, measure, part = KINDS[sys.argv[1]]
    for name in sys.argv[2:] or usual:
        record = measure(name)
        store(results("calibration", part), name, record)
        print(name, record, flush=True)
