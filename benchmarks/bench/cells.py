"""Cells of the comparison: one method on one data set, in a process of its own, as a JSON file."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import peers
from peers.known import ALGORITHM_3, OURS, PEERS, QUICK

from bench.circumstances import Watch, read, reported, versions, without_paths
from smoothlink.metrics.evaluate import evaluate
from smoothlink_paper.data_sets import Split
from smoothlink_paper.record import training

SETS = (
    *("bibtex", "delicious", "rcv1-topics-28k", "debtags", "cooking-stackexchange", "aloi"),
    *("yso-finna-en", "citeulike-t"),
)
# What a method is called on the command line and in file names -> its name in tables.
METHODS = {
    "smoothlink": OURS,
    "smoothlink-quick": QUICK,
    "smoothlink-stepwise": ALGORITHM_3,
    "omikuji": "omikuji",
    "omikuji-bonsai": "omikuji, Bonsai-like",
    "omikuji-logistic": "omikuji, logistic loss",
    "napkinxc-plt": "napkinXC PLT",
    "napkinxc-br": "napkinXC BR",
    "pecos": "PECOS XR-Linear",
    "sklearn-logistic": "scikit-learn one-vs-rest logistic",
    "sklearn-ridge": "scikit-learn ridge on dense unit rows",
}
METRICS = ("p@1", "p@3", "p@5", "psp@1", "psp@3", "psp@5", "ndcg@5")


class Conditions(NamedTuple):
    """What holds for all cells of a run."""

    run: str  # when it began
    seed: int = 0
    threads: int = 2
    limit: float = 3600.0  # seconds for a cell
    rows: int | None = None  # at most, of each part: a trial


def measure(name: str, split: Split, method: str, wanted: Conditions) -> dict[str, Any]:
    """One cell: metrics and costs, or a note on why there are none."""
    peer = METHODS[method]
    cell = {**expected(name, split, method, wanted), **when(wanted), "shape": shape(split)}
    if "versions" not in cell:
        return {**cell, "note": without_paths(str(peers.absent(peer)).removeprefix(f"{peer} "))}
    watch, top = Watch(), min(5, split.train.Y.shape[1])
    try:
        found = reported(watch, peer, split, wanted.seed, top=top, threads=wanted.threads, limit=wanted.limit)
    except peers.PeerStopped:
        return {
            **cell,
            **watch.seen(),
            "note": f"stopped after {wanted.limit:g} s",
            "stopped_after": wanted.limit,
        }
    except peers.PeerFailed as error:
        first, *rest = str(error).splitlines()
        return {
            **cell,
            **watch.seen(),
            "note": without_paths(" ".join([first.removeprefix(f"{peer} "), *(line.strip() for line in rest[-1:])])),
        }
    cell |= watch.seen()
    metrics = evaluate(split.test.Y, found.result.predictions, **training(split), seed=wanted.seed).metrics
    cell["metrics"] = {key: {k: round(v, 5) for k, v in metrics[key]._asdict().items()} for key in METRICS}
    return {**cell, "costs": costs(found, split.test.X.shape[0]), "selected": found.selected}


def expected(name: str, split: Split, method: str, wanted: Conditions) -> dict[str, Any]:
    """What must be the same for a stored cell to hold still; without versions where the method cannot be run."""
    cell: dict[str, Any] = {"set": name, "method": method, "settings": PEERS[METHODS[method]].settings}
    cell |= {
        "seed": wanted.seed,
        "threads": wanted.threads,
        "data": fingerprint(split),
        "script": script(method),
    }
    return cell if peers.absent(METHODS[method]) else {**cell, "versions": versions(METHODS[method])}


def script(method: str) -> str:
    """A digest of how the method is run, with defaults and preparations that settings do not tell."""
    files = (PEERS[METHODS[method]].script, peers.CHILD)
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def when(wanted: Conditions) -> dict[str, Any]:
    return {
        "date": date.today().isoformat(),
        "run": wanted.run,
        "limit": wanted.limit,
        "at_most_rows": wanted.rows,
    }


def shape(split: Split) -> dict[str, int]:
    (n, d), c = split.train.X.shape, split.train.Y.shape[1]
    return {"rows": n, "test_rows": split.test.X.shape[0], "features": d, "labels": c}


def costs(found: peers.Report, test_rows: int) -> dict[str, Any]:
    return {
        "prepare_seconds": round(found.prepare_seconds, 3),
        "train_seconds": round(found.fit_seconds, 3),
        "rows_per_second": round(test_rows / max(found.predict_seconds, 1e-9), 1),
        "row_milliseconds": round(found.row_milliseconds, 4),
        "peak_mb": found.memory_mb,
        "model_mb": round(found.model_bytes / 1e6, 3),
    }


def learner(cell: dict[str, Any]) -> str:
    """Returns the short name of the learner that a cell of ours was fitted by."""
    # Joint training alone has no ridge on the decoder, and says 0; what Algorithm 3 chooses from is positive.
    return "joint, sampled negatives" if cell["selected"]["final_ridge"] == 0 else "Algorithm 3"


def holds(stored: dict[str, Any] | None, wanted: dict[str, Any], limit: float) -> bool:
    """Whether a stored cell answers what is asked; an hour that was not enough says nothing of two."""
    if stored is None:
        return False
    if "versions" not in wanted:  # it cannot be run now: what was measured before stays
        return "metrics" in stored
    same = all(stored.get(key) == value for key, value in wanted.items())
    return same and ("metrics" in stored or stored.get("stopped_after", 0.0) >= limit)


def fingerprint(split: Split) -> str:
    """A digest of all rows, so that figures of other rows are not taken for these."""
    digest = hashlib.sha256()
    for matrix in (M for part in split for M in (part.X, part.Y)):
        for array in (matrix.indptr, matrix.indices, matrix.data):
            digest.update(np.ascontiguousarray(array).astype(np.float64).tobytes())
    return digest.hexdigest()[:12]


def path_of(results: Path, name: str, method: str) -> Path:
    return results / "peers" / name / f"{method}.json"


def stored_cells(results: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Set -> method -> cell, in the order of the tables; sets that have none are left out."""
    names = sorted({path.parent.name for path in (results / "peers").glob("*/*.json")})
    ordered = [name for name in SETS if name in names] + [name for name in names if name not in SETS]
    found = {name: {m: read(path_of(results, name, m)) for m in METHODS} for name in ordered}
    return {name: {m: cell for m, cell in cells.items() if cell is not None} for name, cells in found.items()}
