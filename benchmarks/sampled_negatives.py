"""Sampled negatives against all labels: the same joint training on sets where every batch can have every label.

python benchmarks/sampled_negatives.py [--sets debtags cooking-stackexchange] [--vectorised FOLDER]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from bench.circumstances import PAGE, RESULTS, ROOT, store
from bench.page import publish
from compare_peers import rows_of

from smoothlink import Joint, SmoothLinkClassifier
from smoothlink_paper.data_sets import Split

SHARES = (16, 4)  # of the labels, one in so many is sampled; then all


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["debtags", "cooking-stackexchange"], metavar="SET")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, metavar="N", help="a trial with at most so many rows of each part")
    parser.add_argument("--data", metavar="FOLDER", help="where the data sets are, if not in $SMOOTHLINK_DATA")
    parser.add_argument("--vectorised", type=Path, default=ROOT / "data" / "vectorised", metavar="FOLDER")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    given = parser.parse_args(words)
    record: dict[str, Any] = {"date": date.today().isoformat(), "seed": given.seed, "sets": {}}
    record["command"] = f"python benchmarks/sampled_negatives.py --seed {given.seed}"
    for name in given.sets:
        record["sets"][name] = compared(rows_of(name, given), given.seed)
    store(record, given.results / "sampled_negatives" / "figures.json")
    publish(given.results, given.page, print)


def compared(split: Split, seed: int) -> list[dict[str, Any]]:
    """Returns a row for each number of sampled negatives, all labels last."""
    c = split.train.Y.shape[1]
    return [measured(split, negatives, seed) for negatives in (*(max(1, c // share) for share in SHARES), c)]


def measured(split: Split, negatives: int, seed: int) -> dict[str, Any]:
    began = time.perf_counter()
    fitted = SmoothLinkClassifier(training=Joint(negatives), random_state=seed).fit(split.train.X, split.train.Y)
    seconds = time.perf_counter() - began
    found = fitted.evaluate(split.test.X, split.test.Y, bootstraps=1).metrics
    row = {key: round(found[key].value, 5) for key in ("p@1", "p@5", "logloss")}
    return {"negatives": negatives, **row, "seconds": round(seconds, 2)}


if __name__ == "__main__":
    main()
