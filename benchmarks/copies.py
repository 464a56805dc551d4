"""What copies of rows do to a model: small sets as they are, and with every training row three times.

    python benchmarks/copies.py [emotions] [medical] [yeast]    # fits, measures and stores

A third of the training rows is held out, copies together, and measures; the other rows are fitted once, and then three
times each, with defaults. Test rows are not touched. The table is in docs/results.md.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import scipy.sparse as sp

import smoothlink
from results import DATA, results, store
from smoothlink.machines.copies import RowContents

SETS, SEEDS, TIMES = ("emotions", "medical", "yeast"), (0, 1, 2), 3
MEASURED = ("logloss", "ece_top", "hamming", "p@1")
BAR = 0.10  # of log-loss and ECE without copies, by which they may be worse


def measure(name: str) -> dict[str, Any]:
    """Returns the metrics without and with copies, means over draws of the rows that measure."""
    data = smoothlink.read(DATA / name / "train.txt.xz")
    groups = RowContents.of(data.X, data.Y).first_copies()
    found: dict[str, list[dict[str, float]]] = {"once": [], "three_times": []}
    for seed in SEEDS:
        fit, held = smoothlink.stratified_split(data.Y, (2 / 3, 1 / 3), seed=seed, groups=groups)
        for key, times in (("once", 1), ("three_times", TIMES)):
            X, Y = (sp.vstack([matrix[fit]] * times, format="csr") for matrix in (data.X, data.Y))
            model = smoothlink.SmoothLinkClassifier(random_state=seed).fit(X, Y)
            metrics = model.evaluate(data.X[held], data.Y[held], bootstraps=0).metrics
            found[key].append({metric: metrics[metric].value for metric in MEASURED})
    means = {
        key: {m: float(np.mean([each[m] for each in each_seed])) for m in MEASURED} for key, each_seed in found.items()
    }
    return {"rows": int(data.X.shape[0]), "seeds": len(SEEDS), **means}


def section() -> list[str]:
    """The table of docs/results.md."""
    found = json.loads(results("copies").read_text())
    lines = [
        "## Rows that occur several times",
        "",
        "`python benchmarks/copies.py`: defaults, fitted to two thirds of the training rows, each once and each three",
        f"times, measured on the others; means over {len(SEEDS)} draws of these. Copies count as one row of their",
        "weight ([decision 25](decisions/0025-copies.md)), so that they change next to nothing.",
        "",
        "| set | log-loss | three times | ECE top | three times | Hamming | three times | P@1 | three times |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, cell in found.items():
        pairs = [f"{cell[key][metric]:.4f}" for metric in MEASURED for key in ("once", "three_times")]
        lines.append(f"| {name} | {' | '.join(pairs)} |")
    return [*lines, ""]


if __name__ == "__main__":
    for name in sys.argv[1:] or SETS:
        cell = measure(name)
        store(results("copies"), name, cell)
        for metric in MEASURED[:2]:
            once, three = cell["once"][metric], cell["three_times"][metric]
            missed = "" if three <= (1 + BAR) * once else ", which misses the bar"
            print(f"{name} {metric}: {once:.4f} once, {three:.4f} three times{missed}")
