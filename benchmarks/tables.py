"""Made tables of 10 numbers and 40 one-hot columns: the defaults against logistic regression of standardised columns.

    python benchmarks/tables.py [NAME] ...    # fits, measures and stores

The table is in docs/results.md (`python benchmarks/results.py page`).
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from results import results, store

Array = NDArray[Any]

TRAIN, TEST = 3000, 10_000
BAR = 0.5  # points of P@1 that the defaults may be below the peer


class Table(NamedTuple):
    """How a table is made: 10 numbers and categories, one-hot; labels by a linear function of standardised columns."""

    seed: int
    categories: int  # each of `levels`
    levels: int
    zeros: float  # share of each number that is zero
    sizes: float  # numbers have size 10^u, u between -this and this
    offset: float  # of the numbers, in standard deviations
    multilabel: bool = False


TABLES = {
    "a few large numbers": Table(0, 5, 8, 0.45, 3, 1),
    "numbers of one size": Table(1, 5, 8, 0.45, 0, 0),
    "numbers far from zero": Table(2, 40, 6, 0, 1, 30),
    "small numbers": Table(3, 20, 8, 0.2, 2, 0),
    "several labels": Table(4, 40, 6, 0, 3, 2, multilabel=True),
}


def make(table: Table) -> tuple[sp.csr_array, Array]:
    """Returns X (n, d) and class ids (n,), or for several labels Y (n, 10)."""
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
        return X, (scores - 2 + rng.logistic(size=scores.shape) > 0).astype(int)
    return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


def measured(table: Table) -> dict[str, Any]:
    """P@1 on test rows and seconds, of the defaults, of `effort="quick"` and of the peer."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from smoothlink import SmoothLinkClassifier

    X, y = make(table)
    peer: Any = LogisticRegression(max_iter=2000)
    peer = make_pipeline(StandardScaler(), OneVsRestClassifier(peer) if table.multilabel else peer)
    ours = {name: SmoothLinkClassifier(effort=name, random_state=0) for name in ("full", "quick")}
    record: dict[str, Any] = {"density": X.nnz / X.shape[0] / X.shape[1]}
    for name, model in {**ours, "peer": peer}.items():
        rows = X.toarray() if name == "peer" else X
        start = time.perf_counter()
        model.fit(rows[:TRAIN], y[:TRAIN])
        seconds = time.perf_counter() - start
        best = model.predict_proba(rows[TRAIN:]).argmax(axis=1)
        hits = y[TRAIN:][np.arange(TEST), best] if table.multilabel else y[TRAIN:] == best
        record[name] = {"p@1": float(hits.mean()), "seconds": round(seconds, 2)}
    return record | {"scale": ours["full"].summary_["chosen_by"]["scale"]}


def section() -> list[str]:
    """The table of docs/results.md."""
    found = json.loads(results("tables").read_text())
    lines = [
        "## Tables of numbers and one-hot columns",
        "",
        f"`python benchmarks/tables.py`: made tables of 10 numbers and 40 to 240 one-hot columns, {TRAIN:,} training",
        f"and {TEST:,} test rows, 10 labels, which follow a linear function of the standardised columns: the home of",
        "the peer, scikit-learn's logistic regression (multinomial, or one for each label) of standardised columns.",
        "P@1 in %, and seconds of the fit (on two cores that had other work too). Logistic regression of the columns",
        "became a candidate of the defaults after test figures of these very tables had been seen.",
        "",
        "| table | not zero | smoothlink | quick | logistic regression |",
        "|---|---|---|---|---|",
    ]
    for name, r in found.items():
        cells = (f"{100 * r[key]['p@1']:.2f} ({r[key]['seconds']:.1f} s)" for key in ("full", "quick", "peer"))
        lines.append(f"| {name} | {100 * r['density']:.0f} % | {' | '.join(cells)} |")
    last = next(iter(found.values()))
    stated = ", ".join(f"{k} {v}" for k, v in last["versions"].items())
    return [*lines, "", f"Measured {last['date']} with {stated}."]


if __name__ == "__main__":
    for name in sys.argv[1:] or TABLES:
        record = measured(TABLES[name])
        store(results("tables"), name, record)
        print(name, record, flush=True)
