"""Seconds of each stage of the default fit beside their floor: operations over the rate of matrix products, or bytes.

    python benchmarks/floors.py [--sets SET ...] [--vectorised FOLDER]

Each set is fitted once, after a fit of few rows that loads compiled loops. Rates are measured in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from bench.circumstances import PAGE, RESULTS, ROOT, Watch, store
from bench.page import publish
from compare_peers import rows_of

from smoothlink import SmoothLinkClassifier
from smoothlink.data.read import Data
from smoothlink.joint import negatives
from smoothlink_paper.record import circumstances

SETS = ("bibtex", "delicious", "rcv1-topics-28k", "cooking-stackexchange", "debtags", "citeulike-t", "yso-finna-en")
FEW_ROWS, OVERSAMPLED, POWER_SOLVES = 300, 20, 2
SIDE, COPIED = 4096, 1 << 27  # of the product and the copy that tell the rates
WARM_ROWS = 3000  # of a set that is trained jointly


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="SET")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, metavar="N", help="a trial with at most so many rows of each part")
    parser.add_argument("--data", metavar="FOLDER", help="where the data sets are, if not in $SMOOTHLINK_DATA")
    parser.add_argument("--vectorised", type=Path, default=ROOT / "data" / "vectorised", metavar="FOLDER")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    given = parser.parse_args(words)
    began, flops, bandwidth = time.perf_counter(), product_rate(), copy_rate()
    sets = {name: stages(rows_of(name, given).train, given.seed, flops, bandwidth) for name in given.sets}
    record = circumstances("floors", given.seed, time.perf_counter() - began)
    record |= {"date": date.today().isoformat(), "flops": flops, "bandwidth": bandwidth, "sets": sets}
    record["command"] = f"python benchmarks/floors.py --sets {' '.join(given.sets)} --seed {given.seed}"
    store(record, given.results / "floors" / "figures.json")
    publish(given.results, given.page, print)


def product_rate() -> float:
    """Returns operations per second of a product of float32 matrices, the best of three."""
    A = np.random.default_rng(0).standard_normal((SIDE, SIDE), dtype=np.float32)
    return 2.0 * SIDE**3 / min(timed(lambda: A @ A) for _ in range(3))


def copy_rate() -> float:
    """Returns bytes per second, read and written, of a copy, the best of three."""
    A = np.ones(COPIED, np.float32)
    B = np.empty_like(A)
    return 2.0 * A.nbytes / min(timed(lambda: np.copyto(B, A)) for _ in range(3))


def timed(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def stages(rows: Data, seed: int, flops: float, bandwidth: float) -> dict[str, Any]:
    """Returns the seconds of a default fit by stage, and the floor of each stage that has one."""
    few = np.random.default_rng(0).permutation(rows.X.shape[0])[:WARM_ROWS]
    SmoothLinkClassifier(effort="quick", random_state=seed).fit(rows.X[few[:FEW_ROWS]], rows.Y[few[:FEW_ROWS]])
    SmoothLinkClassifier(random_state=seed).fit(rows.X[few], rows.Y[few])
    sizes: list[tuple[int, int]] = []  # scored labels and distinct features of each batch of joint training
    batch_labels, batch_features = negatives.batch_labels, negatives.batch_features

    def counted_labels(*args: Any) -> Any:
        found = batch_labels(*args)
        sizes.append((len(found), 0))
        return found

    def counted_features(*args: Any) -> Any:
        found = batch_features(*args)
        sizes[-1] = (sizes[-1][0], len(found.features))
        return found

    watch = Watch()
    with patch.multiple(negatives, batch_labels=counted_labels, batch_features=counted_features):
        fitted = SmoothLinkClassifier(random_state=seed).fit(rows.X, rows.Y)
    found = fitted.summary_
    (n, d), c, e, y = rows.X.shape, rows.Y.shape[1], rows.X.nnz + rows.X.shape[0], rows.Y.nnz
    k, s = found["rank"], found["random_features"] or found["rank"]
    if sizes:
        labels, features = np.asarray(sizes, np.float64).T
        per_batch = found["passes"] * n / len(sizes)
        work, moved = 2.0 * labels.sum() * per_batch * k, 4.0 * k * 3 * (labels.sum() + features.sum())
        floors = {"fit": work / flops + moved / bandwidth}
    else:
        floors = {
            "embed": 4.0 * POWER_SOLVES * e * (k + OVERSAMPLED) / flops,
            "featurize": (2.0 * n * s * k + 1.0 * n * s * s + 2.0 * y * s) / flops,
            "fit": (s**3 / 3 + 2.0 * s * s * c) / flops,
        }
    return {
        "shape": [n, d, c],
        "rank": k,
        "random_features": s,
        "joint": bool(sizes),
        "seconds": {name: round(seconds, 3) for name, seconds in found["seconds"].items()},
        "floors": {name: round(seconds, 4) for name, seconds in floors.items()},
        **watch.seen(),
    }


if __name__ == "__main__":
    main()
