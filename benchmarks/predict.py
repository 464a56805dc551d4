"""Prediction with made models of a given size, next to what the hardware allows in the same run.

    python benchmarks/predict.py [--labels 25147 --directions 500 --features 2000] [--output FILE]

A batch is bounded by its products: 2 s c operations per row at the rate of a plain matrix product. One row is bounded
by memory: V is read once. Prints JSON; every time is the least of several.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import smoothlink
from smoothlink import Gaussian, SmoothLinkClassifier
from smoothlink.model import Model
from smoothlink.steps.calibrate import Calibration, stretch
from smoothlink.steps.featurize import Features
from smoothlink.steps.scale import Scaling
from smoothlink.weights import ArrayWeights

WORDS = 11  # per row: book titles have as many


def made(c: int, k: int, s: int, d: int, rng: np.random.Generator) -> SmoothLinkClassifier:
    """A classifier of random weights, of these sizes; s = 0 is the linear link."""
    width = (s or k) + 1
    none = np.zeros(0, np.float32)
    scores = np.linspace(-0.02, 1, 300)
    model = Model(
        scaling=Scaling("unit", none, none, False),
        input_features=None,
        W=ArrayWeights(rng.standard_normal((d + 1, k), dtype=np.float32)),
        classifier=None,
        normalize=False,
        features=Features(rng.standard_normal((k, s), dtype=np.float32), rng.random(s, dtype=np.float32)),
        V=ArrayWeights(rng.standard_normal((width, c), dtype=np.float32) / np.float32(10 * width)),
        loss="squared",
        multiclass=False,
        calibration=Calibration(stretch(scores, "squared"), np.linspace(1e-5, 0.9, 300)),
        counts=rng.integers(1, 300, c).astype(np.float64),
        total=float(20 * c),
        thresholds=np.full(c, 0.3),
    )
    classifier = SmoothLinkClassifier(rank=k, kernel=Gaussian(features=max(1, s)))
    classifier.model_, classifier.classes_, classifier.n_features_in_ = model, np.arange(c), d
    classifier.summary_ = {}
    classifier.label_names_, classifier.label_directions_ = [f"label {j}" for j in range(c)], None
    classifier._indicator, classifier._sparse = True, True
    return classifier


def rows_of(n: int, d: int, rng: np.random.Generator) -> sp.csr_array:
    """Sparse rows with WORDS features each."""
    indices = np.sort(rng.integers(0, d, (n, WORDS)), axis=1).ravel()
    X = sp.csr_array((rng.random(n * WORDS, dtype=np.float32), indices, np.arange(0, n * WORDS + 1, WORDS)), (n, d))
    X.sum_duplicates()
    return X


def least(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of some calls, after a first one."""
    call()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def floors(c: int, width: int, k: int, rng: np.random.Generator) -> dict[str, float]:
    """What a plain product and a plain reading of V take here: rows per second, and milliseconds per row."""
    V, Phi = np.ones((width, c), np.float32), rng.standard_normal((1024, width), dtype=np.float32)
    out = np.empty((1024, c), np.float32)
    flops = 2 * 1024 * width * c / least(lambda: np.matmul(Phi, V, out=out), 3)
    row = rng.standard_normal(width, dtype=np.float32)
    return {
        "gflops": flops / 1e9,
        "batch_rows_per_second": flops / (2 * width * (c + (k if width != k + 1 else 0))),
        "one_row_ms": 1e3 * min(least(lambda: row @ V, 20), least(V.max, 20)),  # BLAS, or one thread that only reads
    }


def timed(classifier: SmoothLinkClassifier, X: sp.csr_array, Y: sp.csr_array) -> dict[str, float]:
    row = X[:1]
    some = np.arange(0, len(classifier.classes_), max(1, len(classifier.classes_) // 10))[:10]
    return {
        "batch_rows_per_second": X.shape[0] / least(lambda: classifier.predict_topk(X), 3),
        "sets_rows_per_second": X.shape[0] / least(lambda: classifier.predict(X), 2),
        "topk_one_row_ms": 1e3 * least(lambda: classifier.predict_topk(row), 30),
        "predict_one_row_ms": 1e3 * least(lambda: classifier.predict(row), 30),
        "proba_one_row_ms": 1e3 * least(lambda: classifier.predict_proba(row), 30),
        "ten_labels_one_row_ms": 1e3 * least(lambda: classifier.predict_proba(row, labels=some), 30),
        "evaluate_s": least(lambda: classifier.evaluate(X, Y, bootstraps=100), 1),
    }


def measure(c: int, k: int, s: int, d: int, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {"labels": c, "directions": k, "features": s, "inputs": d, "rows": n}
    classifier, X = made(c, k, s, d, rng), rows_of(n, d, rng)
    Y = sp.csr_array((np.ones(3 * n), rng.integers(0, c, 3 * n), np.arange(0, 3 * n + 1, 3)), (n, c))
    Y.sum_duplicates()
    Y.data[:] = 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        for dtype in ("float32", "float16"):
            classifier.save(path, dtype=dtype)
            seconds = least(lambda: smoothlink.load(path), 5)
            loaded = smoothlink.load(path)
            size = {"load_ms": 1e3 * seconds, "file_mb": os.path.getsize(path) / 1e6}
            found[dtype] = {**size, **timed(loaded, X, Y)}
    found["floor"] = floors(c, (s or k) + 1, k, rng)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--labels", type=int, default=25147)
    arguments.add_argument("--directions", type=int, default=500)
    arguments.add_argument("--features", type=int, default=0, help="0: the linear link")
    arguments.add_argument("--inputs", type=int, default=92000)
    arguments.add_argument("--rows", type=int, default=4096)
    arguments.add_argument("--output", type=Path)
    given = arguments.parse_args()
    found = measure(given.labels, given.directions, given.features, given.inputs, given.rows)
    text = json.dumps(found, indent=1)
    if given.output:
        given.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
