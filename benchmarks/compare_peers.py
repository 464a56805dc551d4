"""smoothlink and its peers on the same files in one run, each in a process of its own with as many threads.

    python benchmarks/compare_peers.py [--sets bibtex delicious] [--methods smoothlink omikuji] [--limit 3600]

A cell, one method on one data set, is stored in results/peers/SET/METHOD.json as soon as it is measured. So
a run may be stopped and started again: cells that are there, of the same versions, rows and seed, are not measured
again unless --again is given. Then docs/benchmarks.md and its pictures are made of all that is stored.

Data are read from $SMOOTHLINK_DATA; text sets from the pairs of benchmarks/vectorise.py, which are written to
data/vectorised where they are missing. SMOOTHLINK_PEERS and SMOOTHLINK_PECOS may name the interpreters that have the
peers; the row of a peer that is not installed says what to install.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.cells import METHODS, SETS, Conditions, expected, holds, measure, path_of
from bench.circumstances import PAGE, RESULTS, ROOT, read, store
from bench.page import publish
from vectorise import written

from smoothlink.errors import DataError
from smoothlink.fitting.train_jointly import MANY_LABELS
from smoothlink_paper.data_sets import Split, find, load, root
from smoothlink_paper.large_sets import some_rows, without_names
from smoothlink_paper.text_sets import FORMS


def main(words: Sequence[str] | None = None) -> None:
    parser, given = arguments(words)
    wanted = Conditions(
        datetime.now(UTC).isoformat(timespec="seconds"), given.seed, given.threads, given.limit, given.rows
    )
    missing = []
    for name in () if given.page_only else given.sets:
        try:
            split = rows_of(name, given)
        except DataError as error:
            missing.append(f"{error}\n")
            continue
        for method in given.methods:
            if method == "smoothlink-stepwise" and split.train.Y.shape[1] < MANY_LABELS:
                continue  # the default is Algorithm 3
            fill(name, split, method, wanted, given)
    publish(given.results, given.page, print)
    if missing:
        parser.exit(1, "\n".join(["", *missing]))


def fill(name: str, split: Split, method: str, wanted: Conditions, given: argparse.Namespace) -> None:
    """Measures a cell, unless it is there, and stores it."""
    path = path_of(given.results, name, method)
    if not given.again and holds(read(path), expected(name, split, method, wanted), wanted.limit):
        print(f"{name}: {METHODS[method]}: there already", flush=True)
        return
    print(f"{name}: {METHODS[method]} ...", flush=True)
    cell = measure(name, split, method, wanted)
    store(cell, path)
    print(f"{name}: {METHODS[method]}: {outcome(cell)}", flush=True)


def outcome(cell: dict[str, Any]) -> str:
    if "metrics" not in cell:
        return str(cell["note"])
    values = " / ".join(f"{100 * cell['metrics'][key]['value']:.2f}" for key in ("p@1", "p@3", "p@5"))
    return f"P@1/3/5 {values}, trained in {cell['costs']['train_seconds']:.2f} s, {cell['costs']['peak_mb']:.0f} MB"


def rows_of(name: str, given: argparse.Namespace) -> Split:
    """A data set; a text set as its pair of XMC files, which is written first where it is missing."""
    folder = root(given.data)
    if name in FORMS:
        if find(given.vectorised, name, "train") is None:
            print(written(folder, given.vectorised, name), flush=True)
        folder = given.vectorised
    split = without_names(load(folder, name))
    return split if given.rows is None else Split(*(some_rows(part, given.rows, given.seed) for part in split))


def arguments(words: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="SET", help=f"folders of data; {', '.join(SETS)}")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    parser.add_argument("--limit", type=float, default=3600.0, metavar="SECONDS", help="for a cell")
    parser.add_argument("--again", action="store_true", help="measure cells that are there already again")
    parser.add_argument("--page-only", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--rows", type=int, metavar="N", help="a trial with at most so many rows of each part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", metavar="FOLDER", help="where the data sets are, if not in $SMOOTHLINK_DATA")
    parser.add_argument("--vectorised", type=Path, default=ROOT / "data" / "vectorised", metavar="FOLDER")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where cells are stored")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    given = parser.parse_args(words)
    if given.rows is not None and (given.results == RESULTS or given.page == PAGE):
        parser.error("--rows makes trial figures: pass --results and --page too, so that they replace no real ones.")
    return parser, given


if __name__ == "__main__":
    main()
