"""The child's side: `python child.py SCRIPT FOLDER` runs a peer library on the job in FOLDER and times it.

It needs NumPy, SciPy and the library, not smoothlink, so that it may run in an interpreter of its own. SCRIPT is one
of the run_*.py files beside it, and has

    PACKAGE                 the distribution whose version is reported
    prepare(X, Y, job)      the training rows in the library's own form (a file, say): not timed with training
    fit(data, job)          the model
    predict(model, X, job)  scores in [0, 1], as (label, score) pairs of each row, a dense or a sparse matrix
    save(model, path)       leaves the model at `path`, a file or a folder
    selected(model, job)     where there is one: what the library chose by itself, for the report

Without FOLDER the script is only loaded, which shows whether its library can be, and versions are printed as JSON.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

ENTRIES = 1 << 25  # scores held at a time
FIRST_ROWS = 64
ONE_AT_A_TIME = 10.0  # seconds for rows predicted alone


def main(script: str, folder: str | None = None) -> None:
    peer = load(script)
    if folder is None:
        print(json.dumps(versions(peer)))
        return
    place = Path(folder)
    job: dict[str, Any] = {**json.loads((place / "job.json").read_text()), "folder": folder}
    X, Y, X_test = (sp.csr_matrix(sp.load_npz(place / f"{part}.npz")) for part in ("X", "Y", "X_test"))
    job["labels"] = Y.shape[1]
    random.seed(job["seed"])
    np.random.seed(job["seed"])  # what libraries that take no seed draw from
    clock = Clock()
    with clock.of("prepare"):
        data = peer.prepare(X, Y, job)
    with clock.of("fit"):
        model = peer.fit(data, job)
    del data
    for rows in (X_test[:1], X_test[:FIRST_ROWS]):  # loads and compiles whatever the first predictions do
        peer.predict(model, rows, job)
    sp.save_npz(place / "scores.npz", batch(peer, model, X_test, job, clock), compressed=False)
    milliseconds = one_at_a_time(peer, model, X_test[: job["rows"]], job)
    memory = peak_memory_mb()  # before saving, which some libraries do in another form
    peer.save(model, place / "model")
    report = {
        "version": f"{peer.PACKAGE} {importlib.metadata.version(peer.PACKAGE)}",
        **{f"{stage}_seconds": clock.seconds[stage] for stage in ("prepare", "fit", "predict")},
        "row_milliseconds": milliseconds,
        "memory_mb": None if memory is None else round(memory, 1),
        "model_bytes": size(place / "model"),
        "selected": peer.selected(model, job) if hasattr(peer, "selected") else {},
    }
    (place / "report.json").write_text(json.dumps(report))


def versions(peer: Any) -> dict[str, str]:
    """Of the interpreter, of the library, and of what both stand on."""
    found = {name: importlib.metadata.version(name) for name in ("numpy", "scipy", peer.PACKAGE)}
    return {"python": platform.python_version(), **found}


def load(script: str) -> Any:
    """The script as a module, from its file."""
    spec = importlib.util.spec_from_file_location("peer", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Clock:
    """Seconds of each stage, summed over its parts: `with clock.of("fit"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.stage, self.began = "", 0.0

    def of(self, stage: str) -> Clock:
        self.stage = stage
        return self

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + time.perf_counter() - self.began


def batch(peer: Any, model: Any, X: sp.csr_matrix, job: dict[str, Any], clock: Clock) -> sp.csr_matrix:
    """The scores of all rows, in blocks, so that a peer with dense answers never makes all n x c of them at once."""
    step = max(1, ENTRIES // job["labels"])
    parts = []
    for start in range(0, X.shape[0], step):
        block = X[start : start + step]
        with clock.of("predict"):
            found = peer.predict(model, block, job)
        parts.append(sparse(found, block.shape[0], job["labels"], job["top"]))
    return sp.vstack(parts, format="csr")


def one_at_a_time(peer: Any, model: Any, X: sp.csr_matrix, job: dict[str, Any]) -> float:
    """The mean milliseconds of a row that comes alone; slow peers are spared some rows."""
    rows = [X[i : i + 1] for i in range(X.shape[0])]
    done, began = 0, time.perf_counter()
    while done < len(rows) and time.perf_counter() - began < ONE_AT_A_TIME:
        peer.predict(model, rows[done], job)
        done += 1
    return 1000 * (time.perf_counter() - began) / done


def sparse(found: Any, n: int, c: int, top: int | None) -> sp.csr_matrix:
    """What a peer answered as CSR (n, c); of a dense answer the `top` best of each row."""
    if sp.issparse(found):
        return sp.csr_matrix(found, dtype=np.float32)
    if isinstance(found, list):
        pairs = np.array([pair for row in found for pair in row], np.float64).reshape(-1, 2)
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in found])])
        return sp.csr_matrix((pairs[:, 1].astype(np.float32), pairs[:, 0].astype(np.int64), indptr), (n, c))
    scores = np.asarray(found, np.float32)
    k = min(top or c, c)
    best = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k]) if k < c else np.tile(np.arange(c), (n, 1))
    values = np.take_along_axis(scores, best, axis=1)
    return sp.csr_matrix((values.ravel(), best.ravel(), k * np.arange(n + 1)), (n, c))


def peak_memory_mb() -> float | None:
    """The most memory this process has held, in MB; None where the system does not say."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux: ru_maxrss would begin with what the parent held when it forked
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) / (1 << 10)
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def size(path: Path) -> int:
    """The bytes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else [found for found in path.rglob("*") if found.is_file()]
    return sum(file.stat().st_size for file in files)


if __name__ == "__main__":
    main(*sys.argv[1:])
