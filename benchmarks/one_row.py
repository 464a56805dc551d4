"""Milliseconds of the top 5 labels of one row and of small batches, next to omikuji's in the same run.

    python benchmarks/one_row.py [SET ...] [--models FOLDER] [--passes N] [--rows 400] [--output FILE]

Both libraries have one thread. Rows come one at a time, 50 by one library and then the same 50 by the other, so that
both meet the same load; all of them twice. Processor time is the figure to believe where other programs run. "scan" is
the same model without the search for candidates. Models that are not in FOLDER yet are trained there: omikuji with its
defaults, smoothlink with its own or so many passes of joint training. The rows of a set are its first test rows; no
label is looked at.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numba
import omikuji
import scipy.sparse as sp
from bench.circumstances import RESULTS, ROOT, Watch, store, versions
from peers import run_omikuji
from peers.known import OURS
from threadpoolctl import threadpool_limits

import smoothlink
from smoothlink import Joint, SmoothLinkClassifier
from smoothlink.candidates import CandidateSearch
from smoothlink_paper.data_sets import Split, load, root
from smoothlink_paper.large_sets import without_names
from smoothlink_paper.text_sets import FORMS

SETS = ["yso-finna-en", "citeulike-t"]
TURN = 50  # rows of one library before those of the other
BATCHES = (2, 4, 8, 16, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument("--models", type=Path, default=ROOT / "data" / "one_row", metavar="FOLDER")
    parser.add_argument("--vectorised", type=Path, default=ROOT / "data" / "vectorised", metavar="FOLDER")
    parser.add_argument("--passes", type=int, help="of joint training, for a model in less time")
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--output", type=Path, default=RESULTS / "one_row" / "figures.json", metavar="FILE")
    given = parser.parse_args()
    given.models.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "date": date.today().isoformat(),
        "versions": {**versions(OURS), "omikuji": versions("omikuji")["omikuji"]},
        "threads": 1,
        "sets": {},
    }
    for name in given.sets:
        split = without_names(load(given.vectorised if name in FORMS else root(None), name))
        both, watch = models(name, split, given), Watch()
        threads = numba.get_num_threads()
        numba.set_num_threads(1)
        with threadpool_limits(1):
            found = measure(*both, sp.csr_array(split.test.X), given.rows)
        numba.set_num_threads(threads)
        record["sets"][name] = {**found, **watch.seen()}
        print(name, record["sets"][name], flush=True)
    store(record, given.output)


def models(name: str, split: Split, given: argparse.Namespace) -> tuple[Any, Any]:
    """Ours and omikuji's, trained where they are not stored."""
    ours, theirs = given.models / f"{name}.safetensors", given.models / f"{name}-omikuji"
    X, Y = sp.csr_matrix(split.train.X), sp.csr_matrix(split.train.Y)
    if not ours.exists():
        training = {} if given.passes is None else {"training": Joint(passes=given.passes)}
        SmoothLinkClassifier(random_state=0, **training).fit(X, Y).save(ours)
    if not theirs.exists():
        job: dict[str, Any] = {"folder": str(given.models), "threads": os.cpu_count(), "settings": {}}
        run_omikuji.save(run_omikuji.fit(run_omikuji.prepare(X, Y, job), job), theirs)
    peer = omikuji.Model.load(str(theirs))
    peer.init_prediction_thread_pool(1)
    return smoothlink.load(ours), peer


def measure(ours: Any, peer: Any, X: sp.csr_array, n: int) -> dict[str, Any]:
    """Milliseconds per row of each, and of ours in batches."""
    rows = [X[[i]] for i in range(min(n, X.shape[0]))]
    search = ours.model_.candidate_search
    began = time.process_time()
    search.prepare()
    made = time.process_time() - began
    without = CandidateSearch(ours.model_, least_entries=1 << 62)  # that never pays

    def scan(row: sp.csr_array) -> Any:
        return with_search(ours, without, lambda: ours.predict_topk(row))

    def theirs(row: sp.csr_array) -> Any:
        return run_omikuji.predict(peer, row, {"top": 5, "beam_size": 10})

    one_row = in_turn({"smoothlink": ours.predict_topk, "omikuji": theirs, "scan": scan}, rows)
    same = all((ours.predict_topk(row) != scan(row)).nnz == 0 for row in rows)
    batches = {}
    for b in BATCHES:
        parts = [X[i : i + b] for i in range(0, max(128, b), b)]
        found = in_turn({"smoothlink": ours.predict_topk, "scan": scan}, parts, turn=len(parts))
        batches[b] = {name: round(one["processor_ms"] / b, 4) for name, one in found.items()}
    return {
        "labels": ours.model_.n_labels,
        "passes": ours.summary_["passes"],
        "one_row": one_row,
        "ratio_to_omikuji": round(one_row["smoothlink"]["processor_ms"] / one_row["omikuji"]["processor_ms"], 3),
        "same_labels_and_probabilities_as_scan": same,
        "batch_processor_ms_per_row": batches,
        "codes_mb": round(search.codes.nbytes / 1e6, 1),
        "V_mb": round(4 * ours.model_.V.shape[0] * ours.model_.V.shape[1] / 1e6, 1),
        "codes_seconds": round(made, 2),
    }


def with_search(ours: Any, search: CandidateSearch, call: Callable[[], Any]) -> Any:
    """Returns call() with another search in the model."""
    own = vars(ours.model_)["candidate_search"]
    vars(ours.model_)["candidate_search"] = search
    try:
        return call()
    finally:
        vars(ours.model_)["candidate_search"] = own


def in_turn(calls: dict[str, Callable[[Any], Any]], rows: list[Any], turn: int = TURN) -> dict[str, dict[str, float]]:
    """Mean milliseconds of processor time of a call, and the median by the clock."""
    processor = dict.fromkeys(calls, 0.0)
    clock: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for row in rows[:3]:  # compiles, and reads what is mapped
            call(row)
    for start in [*range(0, len(rows), turn)] * 2:
        for name, call in calls.items():
            began = time.process_time()
            for row in rows[start : start + turn]:
                at = time.perf_counter()
                call(row)
                clock[name].append(time.perf_counter() - at)
            processor[name] += time.process_time() - began
    return {
        name: {
            "processor_ms": round(500 * processor[name] / len(rows), 4),
            "median_ms": round(1e3 * statistics.median(clock[name]), 4),
            "least_ms": round(1e3 * min(clock[name]), 4),
        }
        for name in calls
    }


if __name__ == "__main__":
    main()
