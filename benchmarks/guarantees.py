"""Whether sets with a guarantee keep it, how large they are, and what calibrating them costs.

    python benchmarks/guarantees.py [SET ...] [--vectorised FOLDER]    # coverage and recall, 200 splits each
    python benchmarks/guarantees.py --cost [--vectorised FOLDER]       # seconds and memory with 25,147 labels
    python benchmarks/guarantees.py --page                             # the tables of docs/guarantees.md

Training rows alone are used. A model is fitted once, to half of them (effort="quick", seed 0); 200 times the others are
split at random into conformal and test rows, half and half. The sets of a split are compared with those of the best
fixed threshold for its test rows: the largest that keeps the promise on them, chosen with their labels. How many test
rows are covered has a beta-binomial distribution where no two rows have the same score; a Kolmogorov-Smirnov test
compares (of counts, which are discrete, with uniform draws between neighbours).

Data are read from $SMOOTHLINK_DATA; vectorised texts from FOLDER, as benchmarks/vectorise.py writes them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import smoothlink
from results import DATA, ROOT, results, store
from smoothlink.conformal import Conformal, coverage_threshold, recall_threshold
from smoothlink.fitting.settings import peak_memory_mb

SETS = ("bibtex", "delicious", "yeast", "scene", "rcv1-subset1", "cooking-stackexchange")
VECTORISED = ("cooking-stackexchange", "yso-finna-en")
LEVELS, SPLITS, SEED = (0.8, 0.9, 0.95), 200, 0
MOST_ROWS = 8000  # of delicious and cooking-stackexchange: model and splits have half each
COST_SET, COST_TRAINED, COST_ROWS = "yso-finna-en", 20_000, 5000
SIZE_BAR, SECONDS_BAR, MB_BAR = 1.15, 5, 500


def read(name: str, vectorised: Path) -> Any:
    folder, ending = (vectorised, "txt") if name in VECTORISED else (DATA, "txt.xz")
    return smoothlink.read(folder / name / f"train.{ending}")


def rows_of(conformal: Conformal, rows: np.ndarray) -> Conformal:
    """Returns some of the rows."""
    count = np.diff(conformal.indptr)
    entries = np.concatenate([np.arange(conformal.indptr[i], conformal.indptr[i + 1]) for i in rows])
    return Conformal(
        np.append(0, np.cumsum(count[rows])),
        conformal.labels[entries],
        conformal.probabilities[entries],
        conformal.confidence[rows],
        conformal.precision[rows],
    )


def kept(conformal: Conformal, q: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether the set at q holds all labels of each row, and which share of them; 1 where there are none."""
    count = np.diff(conformal.indptr)
    found = np.bincount(conformal.rows, conformal.probabilities >= q, conformal.n)
    return found == count, np.where(count > 0, found / np.maximum(count, 1), 1.0)


def best_threshold(test: Conformal, promise: str, level: float) -> float:
    """Returns the largest threshold that keeps a promise on these rows themselves."""
    low, cuts = 0, np.unique(test.probabilities)
    high = len(cuts)  # at cuts[low] it is kept, or never; at cuts[high] it is not
    while high - low > 1:
        middle = (low + high) // 2
        fine = kept(test, cuts[middle])[promise == "recall"].mean() >= level - 1e-12
        low, high = (middle, high) if fine else (low, middle)
    return float(cuts[low])


def measure(name: str, vectorised: Path) -> dict[str, Any]:
    """Returns what each promise came to over all splits."""
    from scipy.stats import betabinom, kstest  # not in the process whose memory is measured

    data, rng = read(name, vectorised), np.random.default_rng(SEED)
    order = rng.permutation(data.X.shape[0])[:MOST_ROWS]
    fitted, pool = order[: len(order) // 2], order[len(order) // 2 :]
    model = smoothlink.SmoothLinkClassifier(effort="quick", random_state=SEED, task="multilabel")
    model.fit(data.X[fitted], data.Y[fitted])
    everything = model.recalibrate_sets(data.X[pool], data.Y[pool]).conformal_
    assert everything is not None
    P = model.predict_proba(data.X[pool])
    P[:, model.model_.untrained] = 0
    n, N = len(pool) // 2, len(pool)
    splits = [(np.sort(mixed[:n]), np.sort(mixed[n:])) for mixed in (rng.permutation(N) for _ in range(SPLITS))]
    found: dict[str, Any] = {"fitted_rows": len(fitted), "conformal_rows": n, "test_rows": N - n, "splits": SPLITS}
    for promise, threshold in (("coverage", coverage_threshold), ("recall", recall_threshold)):
        for level in LEVELS:
            reached, sizes, best = np.zeros(SPLITS), np.zeros(SPLITS), np.zeros(SPLITS)
            for i, (conformal, test) in enumerate(splits):
                tested = rows_of(everything, test)
                q = threshold(rows_of(everything, conformal), level)
                reached[i] = kept(tested, q)[promise == "recall"].mean()
                sizes[i] = np.count_nonzero(P[test] >= q) / len(test)
                best[i] = np.count_nonzero(P[test] >= best_threshold(tested, promise, level)) / len(test)
            cell = {
                "mean": float(reached.mean()),
                "standard_error": float(reached.std(ddof=1) / np.sqrt(SPLITS)),
                "spread": float(reached.std(ddof=1)),
                "size": float(sizes.mean()),
                "best_size": float(best.mean()),
            }
            if promise == "coverage":
                m, k = N - n, int(np.floor((1 - level) * (n + 1) + 1e-9))
                law, covered = betabinom(m, n + 1 - k, k), np.round(reached * m)
                drawn = law.cdf(covered - 1) + rng.random(SPLITS) * law.pmf(covered)
                cell |= {"expected_spread": float(law.std() / m), "ks_p": float(kstest(drawn, "uniform").pvalue)}
            found[f"{promise} {level:g}"] = cell
    return found


def cost(vectorised: Path) -> dict[str, Any]:
    """Returns seconds and memory of calibrating the sets of a model with many labels, in a process of its own."""
    data = read(COST_SET, vectorised)
    order = np.random.default_rng(SEED).permutation(data.X.shape[0])[: COST_TRAINED + COST_ROWS]
    fitted, held = order[:COST_TRAINED], order[COST_TRAINED:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        model = smoothlink.SmoothLinkClassifier(effort="quick", random_state=SEED)
        model.fit(data.X[fitted], data.Y[fitted]).save(path / "model.safetensors")
        sp.save_npz(path / "X.npz", sp.csr_matrix(data.X[held]))
        sp.save_npz(path / "Y.npz", sp.csr_matrix(data.Y[held]))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = pool.apply(calibrate, (folder,))
    return {"labels": int(data.Y.shape[1]), "fitted_rows": COST_TRAINED, "rows": COST_ROWS, **found}


def calibrate(folder: str) -> dict[str, float]:
    """Returns the seconds of calibrating and of a threshold, and the memory of the process in MB."""
    X, Y = (sp.csr_array(sp.load_npz(Path(folder) / f"{name}.npz")) for name in "XY")
    model = smoothlink.load(Path(folder) / "model.safetensors")
    model.recalibrate_sets(X[:50], Y[:50])  # compiled code is loaded once
    before, began, processor = peak_memory_mb(), time.perf_counter(), time.process_time()
    model.recalibrate_sets(X, Y)
    seconds, processor_seconds = time.perf_counter() - began, time.process_time() - processor
    began = time.perf_counter()
    assert model.conformal_ is not None
    coverage_threshold(model.conformal_, 0.5)
    threshold_seconds = time.perf_counter() - began
    megabytes = {"process_mb_before": before, "process_mb": peak_memory_mb()}
    spent = {"seconds": seconds, "processor_seconds": processor_seconds, "load": os.getloadavg()[0]}
    return {**spent, "threshold_seconds": threshold_seconds, **megabytes}


def section() -> list[str]:
    """Returns the tables of docs/guarantees.md."""
    found = json.loads(results("guarantees").read_text())
    lines = [
        "| set | promise | reached, mean of 200 splits | standard error | spread | spread expected | p | labels per set"
        " | of the best threshold | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in SETS:
        for promise in (f"{kind} {level:g}" for kind in ("coverage", "recall") for level in LEVELS):
            cell = found[name][promise]
            law = (f"{100 * cell['expected_spread']:.2f}", f"{cell['ks_p']:.2f}") if "ks_p" in cell else ("", "")
            figures = f"{100 * cell['mean']:.2f} % | {100 * cell['standard_error']:.2f} | {100 * cell['spread']:.2f}"
            ratio = f"{cell['size']:.2f} | {cell['best_size']:.2f} | {cell['size'] / cell['best_size']:.3f}"
            lines.append(f"| {name} | {promise} | {figures} | {law[0]} | {law[1]} | {ratio} |")
    if "cost" in found:
        one = found["cost"]
        lines += [
            "",
            f"Calibrating the sets of a model with {one['labels']:,} labels by {one['rows']:,} rows "
            f"(`python benchmarks/guarantees.py --cost`) takes {one['seconds']:.1f} s "
            f"({one['processor_seconds']:.1f} s of processor time, on two cores that other programs shared: a load of "
            f"{one['load']:.0f}), and the process "
            f"{one['process_mb']:.0f} MB at most, {one['process_mb_before']:.0f} MB of which it had before, model and "
            f"rows included; a threshold takes {1000 * one['threshold_seconds']:.1f} ms.",
        ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument("--vectorised", type=Path, default=ROOT / "data" / "vectorised", metavar="FOLDER")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    path = results("guarantees")
    if given.page:
        page = ROOT / "docs" / "guarantees.md"
        before, mark, _ = page.read_text().partition("<!-- figures -->\n")
        page.write_text(before + mark + "\n".join(["", *section(), ""]))
    elif given.cost:
        one = {**cost(given.vectorised), "seed": SEED, "command": "python benchmarks/guarantees.py --cost"}
        store(path, "cost", one)
        missed = [] if one["seconds"] <= SECONDS_BAR and one["process_mb"] <= MB_BAR else ["which misses the bar"]
        print(f"{one['seconds']:.2f} s, {one['process_mb']:.0f} MB", *missed)
    else:
        for name in given.sets:
            cells = measure(name, given.vectorised)
            store(path, name, {**cells, "seed": SEED, "command": f"python benchmarks/guarantees.py {name}"})
            for promise, cell in cells.items():
                if isinstance(cell, dict):
                    least = float(promise.split()[1]) - 2 * cell["standard_error"]
                    ratio = cell["size"] / cell["best_size"]
                    missed = [*["mean misses the bar"] * (cell["mean"] < least), *["size does"] * (ratio > SIZE_BAR)]
                    print(name, promise, f"{cell['mean']:.4f}", f"{ratio:.3f}", cell.get("ks_p", ""), *missed)


if __name__ == "__main__":
    main()
