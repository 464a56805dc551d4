"""Measures some rows of section 7.3's table of aloi again, and stores them in the record with their own date.

    python benchmarks/odp_rows.py "low rank, linear kernel (Algorithm 3)" ...

`smoothlink reproduce odp` measures all of them, which takes an hour and more.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import date
from pathlib import Path

from smoothlink_paper import reproduce_odp as odp
from smoothlink_paper.data_sets import load
from smoothlink_paper.large_sets import load_average, percent, run_in_subprocesses
from smoothlink_paper.record import publish, published, source, store

ROOT = Path(__file__).resolve().parents[1]


def main(methods: list[str]) -> None:
    split = load(Path(os.environ["SMOOTHLINK_DATA"]), "aloi")
    known = odp.methods_for("aloi", "softmax", quick=False)
    path = published("odp", ROOT)
    assert path is not None
    for method in methods:
        made = {"date": date.today().isoformat(), "source": source(), "load_average": load_average()}
        found = run_in_subprocesses(split, {method: known[method]}, 0, print)[method]
        row = odp.measured(found, split, 0) | made
        record = json.loads(path.read_text())
        record["sets"]["aloi"]["methods"][method] = row
        store(record, ROOT)
        print(method, percent(row), flush=True)
    publish(json.loads(path.read_text()), ROOT, print)


if __name__ == "__main__":
    main(sys.argv[1:])
