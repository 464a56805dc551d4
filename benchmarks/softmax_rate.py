"""The softmax SGD on aloi with a linear kernel and 50 directions, on a tenth of the training rows that is held out.

    python benchmarks/softmax_rate.py    # writes results/softmax_rate/figures.json

Test rows are not read. Each setting is fitted with and without `label_curvature` (kappa = 1), for decision 30.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

import smoothlink
from results import DATA, results, versions
from smoothlink import SmoothLinkClassifier
from smoothlink.choices import nest
from smoothlink.fitting.holdout import fold_numbers
from smoothlink.steps import sgd

PASSES = 25
LOW_RANK = {"rank": 50, "kernel": "linear", "task": "multiclass", "loss": "softmax", "calibrate": False, "ridge": 1.0}
TRIED: list[dict[str, Any]] = [
    {"kappa": kappa, "final_ridge": ridge, "loss.batch_rows": batch}
    for kappa, ridge, batch in [
        (False, 1e-5, None),
        (False, 1e-5, 512),
        (False, 1e-7, None),
        (True, 1e-4, None),
        (True, 1e-5, None),
        (True, 1e-6, None),
        (True, 1e-7, None),
        (True, 1e-7, 512),
    ]
]


def main() -> None:
    data = smoothlink.read(DATA / "aloi" / "train.txt.xz")
    held = fold_numbers(data.X.shape[0], 0.1, 0) == 0
    true, found, curvature = data.Y[held].indices, [], sgd.label_curvature
    for tried in TRIED:
        settings = {name: value for name, value in tried.items() if name != "kappa" and value is not None}
        sgd.label_curvature = curvature if tried["kappa"] else lambda *sizes: 1.0
        began = time.perf_counter()
        model = SmoothLinkClassifier(**nest({**LOW_RANK, "loss.passes": PASSES, **settings, "random_state": 0}))
        model.fit(data.X[~held], data.Y[~held])
        error = float(np.mean(model.predict_topk(data.X[held], 1).indices != true))
        found.append({**tried, "error": round(error, 5), "seconds": round(time.perf_counter() - began, 1)})
        print(found[-1], flush=True)
    record = {"date": time.strftime("%Y-%m-%d"), "versions": versions(), "seed": 0, "passes": PASSES, "tried": found}
    record |= {"command": "python benchmarks/softmax_rate.py", "training_rows": int((~held).sum())}
    results("softmax_rate").parent.mkdir(parents=True, exist_ok=True)
    results("softmax_rate").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
