"""Tables of numbers: the defaults against logistic regression of standardised columns and against ensembles of trees.

    python benchmarks/tables.py [NAME] ...    # fits, measures and stores

Real tables have their own split; the others are made, with a seed that no rule was chosen on. All peers are as
scikit-learn has them by default. The tables are in docs/results.md (`python benchmarks/results.py page`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from results import DATA, results, store

Array = NDArray[Any]

TRAIN, TEST = 3000, 10_000  # rows of tables of numbers and one-hot columns
BAR = 0.5  # points of P@1 that the defaults may be below logistic regression there


class Table(NamedTuple):
    """How a table is made: 10 numbers and categories, one-hot; labels by a linear function of standardised columns."""

    seed: int
    categories: int  # each of `levels`
    levels: int
    zeros: float  # share of each number that is zero
    sizes: float  # numbers have size 10^u, u between -this and this
    offset: float  # of the numbers, in standard deviations
    multilabel: bool = False


LINEAR = {
    "a few large numbers": Table(0, 5, 8, 0.45, 3, 1),
    "numbers of one size": Table(1, 5, 8, 0.45, 0, 0),
    "numbers far from zero": Table(2, 40, 6, 0, 1, 30),
    "small numbers": Table(3, 20, 8, 0.2, 2, 0),
    "several labels": Table(4, 40, 6, 0, 3, 2, multilabel=True),
}


class Split(NamedTuple):
    """Training and test rows; y holds class ids (n,), or for several labels Y (n, c)."""

    X: Any
    y: Array
    X_test: Any
    y_test: Array


def split(X: Any, y: Array, train: int) -> Split:
    return Split(X[:train], y[:train], X[train:], y[train:])


def linear(table: Table) -> Split:
    """Returns a table of numbers and one-hot columns, sparse."""
    rng, n = np.random.default_rng(table.seed), TRAIN + TEST
    numbers = (rng.standard_normal((n, 10)) + table.offset) * (rng.random((n, 10)) >= table.zeros)
    levels = (rng.random((n, table.categories)) ** 1.5 * table.levels).astype(int)  # the first ones are more frequent
    one_hot = (levels[:, :, None] == np.arange(table.levels)).reshape(n, -1)
    columns = np.hstack([numbers, one_hot])
    scores = (columns - columns.mean(axis=0)) / columns.std(axis=0) @ rng.standard_normal((columns.shape[1], 10))
    scores = 2 * scores / scores.std()
    numbers *= 10 ** rng.uniform(-table.sizes, table.sizes, 10)
    X = sp.csr_array(np.hstack([numbers, one_hot]))
    if table.multilabel:
        return split(X, (scores - 2 + rng.logistic(size=scores.shape) > 0).astype(int), TRAIN)
    return split(X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1), TRAIN)


def bands(seed: int, train: int = 322, d: int = 260, c: int = 19) -> Split:
    """Returns rows of skewed energies, as of sounds: each label raises two bands of columns, more or less loudly."""
    rng, n = np.random.default_rng(seed), 2 * train
    Y = (rng.random((n, c)) < 0.02 + 0.12 * rng.random(c)).astype(int)
    middle, width = rng.uniform(0, d, (2, c, 1)), rng.uniform(5, 20, (2, c, 1))
    spectra = (rng.uniform(0.7, 2, (2, c, 1)) * np.exp(-((np.arange(d) - middle) ** 2) / (2 * width**2))).sum(axis=0)
    noise = 0.7 * rng.standard_normal((n, 1)) + 0.075 * np.cumsum(rng.standard_normal((n, d)), axis=1)
    X = 1.2 * (Y * np.exp(0.8 * rng.standard_normal((n, c)))) @ spectra
    return split(X + np.exp(noise + 0.4 * rng.standard_normal((n, d))), Y, train)


def steps(seed: int, train: int = 20_000, d: int = 10, c: int = 10) -> Split:
    """Returns rows of a few numbers, whose classes follow steps in one number and in pairs of numbers."""
    rng, n = np.random.default_rng(seed), train + TEST
    X, scores = rng.random((n, d)), np.zeros((n, c))
    for label in range(c):
        for _ in range(4):
            (a, b), (s, t) = rng.choice(d, 2, replace=False), rng.uniform(0.2, 0.8, 2)
            pair = rng.random() < 0.6
            scores[:, label] += rng.standard_normal() * ((X[:, a] > s) != ((X[:, b] > t) & pair))
    y = (4 * (scores - scores.mean(axis=0)) / scores.std(axis=0) + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return split(X * 10 ** rng.uniform(-2, 2, d), y, train)


def real(name: str, rows: int | None = None) -> Split:
    """Returns a table at hand with its own split; the training rows may be cut to the first ones."""
    from smoothlink import read

    train, test = (read(DATA / name / f"{part}.txt.xz") for part in ("train", "test"))
    X, X_test = (d.X.toarray() if sp.issparse(d.X) else d.X for d in (train, test))
    return Split(X[:rows], train.Y.toarray()[:rows].astype(int), X_test, test.Y.toarray().astype(int))


TABLES: dict[str, Callable[[], Split]] = {
    **{name: partial(linear, table) for name, table in LINEAR.items()},
    **{f"{name}, new seed": partial(linear, t._replace(seed=t.seed + 50)) for name, t in LINEAR.items()},
    **{name: partial(real, name) for name in ("emotions", "scene", "yeast", "mediamill-reduced")},
    "emotions, 200 rows": partial(real, "emotions", 200),
    **{f"bands, seed {seed}": partial(bands, seed) for seed in (10, 11, 12)},
    **{f"steps, seed {seed}": partial(steps, seed) for seed in (10, 11)},
}


class OnePerLabel:
    """A binary classifier for each label; a constant for labels that every training row has, or none."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def fit(self, X: Array, Y: Array) -> OnePerLabel:
        self.fitted = [self.make().fit(X, y) if np.ptp(y) else float(y[0]) for y in Y.T]
        return self

    def predict_proba(self, X: Array) -> Array:
        columns = (np.full(len(X), f) if isinstance(f, float) else f.predict_proba(X)[:, 1] for f in self.fitted)
        return np.column_stack(list(columns))


def peers(multilabel: bool) -> dict[str, Any]:
    """Returns scikit-learn's classifiers; those that know no several labels are one per label."""
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def logistic() -> Any:
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))

    boosting = partial(HistGradientBoostingClassifier, random_state=0)
    return {
        "logistic": OnePerLabel(logistic) if multilabel else logistic(),
        "forest": RandomForestClassifier(random_state=0),
        "extra trees": ExtraTreesClassifier(random_state=0),
        "boosting": OnePerLabel(boosting) if multilabel else boosting(),
    }


def probabilities(model: Any, X: Any, c: int) -> Array:
    """Returns probabilities (n, c), from forests too, which have an array per label."""
    P = model.predict_proba(X)
    if not isinstance(P, list):
        return np.asarray(P)
    found = np.zeros((X.shape[0], c))
    for label, (p, classes) in enumerate(zip(P, model.classes_, strict=True)):
        found[:, label] = p @ classes
    return found


def measured(found: Split) -> dict[str, Any]:
    """P@1, macro-F1, Brier score and seconds of the fit: of the defaults, of `effort="quick"` and of the peers."""
    from sklearn.metrics import f1_score

    from smoothlink import SmoothLinkClassifier

    X, y, X_test, y_test = found
    multilabel = y.ndim == 2
    c = y.shape[1] if multilabel else int(y.max()) + 1
    Y = y_test if multilabel else np.eye(c, dtype=int)[y_test]
    ours = {name: SmoothLinkClassifier(effort=name, random_state=0) for name in ("full", "quick")}
    filled = (X.nnz if sp.issparse(X) else np.count_nonzero(X)) / np.prod(X.shape)
    record: dict[str, Any] = {"rows": X.shape[0], "columns": X.shape[1], "labels": c, "density": float(filled)}
    dense, dense_test = (A.toarray() if sp.issparse(A) else A for A in (X, X_test))
    for name, model in {**ours, **peers(multilabel)}.items():
        own = name in ours
        start = time.perf_counter()
        model.fit(X if own else dense, y)
        seconds = time.perf_counter() - start
        P = probabilities(model, X_test if own else dense_test, c)
        best = P.argmax(axis=1)
        sets = {"macro_f1": P >= 0.5 if multilabel else np.eye(c, dtype=int)[best]}
        if own and multilabel:
            sets["macro_f1_by_thresholds"] = model.predict_f1(X_test)
        record[name] = {
            "p@1": float(Y[np.arange(len(Y)), best].mean()),
            **{key: f1_score(Y, S, average="macro", zero_division=0) for key, S in sets.items()},
            "brier": float(((P - Y) ** 2).sum(axis=1).mean()),
            "seconds": round(seconds, 2),
        }
    summary = ours["full"].summary_
    chosen = {name: summary[name] for name in ("trees", "input_kernel", "kernel", "loss")}
    return record | {"scale": summary["chosen_by"]["scale"], "chosen": chosen}


def linked(rows: int | None) -> dict[str, Any]:
    """P@1, macro-F1 and Brier score on emotions of extra trees, and of a link over what they say of held-out rows."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.metrics import f1_score
    from sklearn.model_selection import KFold

    from smoothlink import SmoothLinkClassifier

    X, Y, X_test, Y_test = real("emotions", rows)
    held_out, trees = np.zeros(Y.shape), ExtraTreesClassifier(random_state=0)
    for kept, held in KFold(5, shuffle=True, random_state=0).split(X):
        held_out[held] = probabilities(trees.fit(X[kept], Y[kept]), X[held], Y.shape[1])
    P = probabilities(trees.fit(X, Y), X_test, Y.shape[1])
    link = SmoothLinkClassifier(embedding="none", scale="variance", effort="quick").fit(held_out, Y)
    return {
        name: {
            "p@1": float(Y_test[np.arange(len(Q)), Q.argmax(axis=1)].mean()),
            "macro_f1": f1_score(Y_test, Q >= 0.5, average="macro"),
            "brier": float(((Q - Y_test) ** 2).sum(axis=1).mean()),
        }
        for name, Q in {"extra trees": P, "link over them": link.predict_proba(P)}.items()
    }


LINKED: dict[str, int | None] = {"link over extra trees, emotions": None, "link over extra trees, 200 rows": 200}
PEERS = ("logistic", "forest", "extra trees", "boosting")
METRICS = {"p@1": max, "macro_f1": max, "brier": min}  # and which is best


def section() -> list[str]:
    """The tables of docs/results.md."""
    stored = json.loads(results("tables").read_text())
    found = {name: stored[name] for name in TABLES if name in stored}
    lines = [
        "## Tables of numbers and one-hot columns",
        "",
        f"`python benchmarks/tables.py`: made tables of 10 numbers and 40 to 240 one-hot columns, {TRAIN:,} training",
        f"and {TEST:,} test rows, 10 labels, which follow a linear function of the standardised columns: the home of",
        "the peer, scikit-learn's logistic regression (multinomial, or one for each label) of standardised columns.",
        "P@1 in %, and seconds of the fit, on two cores. Logistic regression of the columns became a candidate of the",
        "defaults after test figures of the first five had been seen; what has a new seed is later. Most were measured",
        "four times: with 0.2, with 0.11 and twice on the way to 0.13.",
        "",
        "| table | not zero | smoothlink | quick | logistic regression |",
        "|---|---|---|---|---|",
    ]
    for name, r in found.items():
        if name.removesuffix(", new seed") in LINEAR:
            cells = (f"{100 * r[key]['p@1']:.2f} ({r[key]['seconds']:.1f} s)" for key in ("full", "quick", "logistic"))
            lines.append(f"| {name} | {100 * r['density']:.0f} % | {' | '.join(cells)} |")
    lines += [
        "",
        "## Tables and ensembles of trees",
        "",
        "The same script: logistic regression of standardised columns, random forest, extra trees and histogram",
        "gradient boosting as scikit-learn has them by default (logistic regression and boosting once per label where",
        "there are several). P@1 in % / macro-F1 of the labels of probability 1/2 or more, of one class per row of the",
        "most likely ones / Brier score, summed over labels, where less is better (seconds, two cores); then the",
        "macro-F1 of `predict_f1`. Bold: the best of the defaults and these four. *bands*: made, 322 rows",
        "of 260 skewed numbers, 19 labels. *steps*: made, 20,000 rows of 10 numbers, classes by steps and pairs of",
        "steps. Rules were chosen on training rows and on other seeds; most were measured four times: with 0.2, with",
        "0.11 and twice on the way to 0.13.",
        "",
        "| table | smoothlink | `predict_f1` | quick | logistic regression | random forest | extra trees | boosting |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, r in found.items():
        if name.removesuffix(", new seed") not in LINEAR:
            best = [choose(r[key][metric] for key in ("full", *PEERS)) for metric, choose in METRICS.items()]
            ours, *others = (cell(r[key], best) for key in ("full", "quick", *PEERS))
            f1 = r["full"].get("macro_f1_by_thresholds")
            lines.append(f"| {' | '.join([name, ours, '' if f1 is None else f'{f1:.3f}', *others])} |")
    last = next(iter(found.values()))
    stated = ", ".join(f"{k} {v}" for k, v in last["versions"].items())
    return [*lines, "", f"Measured {last['date']} with {stated}."]


def cell(r: dict[str, float], best: list[float]) -> str:
    """Returns P@1 / macro-F1 / Brier score (seconds), bold where it is the best of the defaults and the peers."""
    texts = f"{100 * r['p@1']:.1f}", f"{r['macro_f1']:.3f}", f"{r['brier']:.3f}"
    shown = (
        f"**{t}**" if choose(r[key], b) == r[key] else t
        for t, b, (key, choose) in zip(texts, best, METRICS.items(), strict=True)
    )
    return f"{' / '.join(shown)} ({r['seconds']:.1f} s)"


if __name__ == "__main__":
    for name in sys.argv[1:] or [*TABLES, *LINKED]:
        record = linked(LINKED[name]) if name in LINKED else measured(TABLES[name]())
        store(results("tables"), name, record)
        print(name, record, flush=True)
