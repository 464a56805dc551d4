"""Peer libraries as rows of the tables: each library runs in a process of its own, and is never imported here.

The parent writes the scaled rows and a job to a temporary folder, runs `child.py` with the peer's script, and reads
back scores and costs. All peers see the features that `SmoothLinkClassifier` would see: unit rows, or standardised
columns where X is a table (`steps.scale.choose_scaling`). Beyond that they run with their own defaults. smoothlink is
among them, so that it can be measured in the same way.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from peers.known import PEERS, Peer
from smoothlink.steps.scale import choose_scaling
from smoothlink_paper.data_sets import Split
from smoothlink_paper.methods import of_probabilities, of_top
from smoothlink_paper.result import Result
from smoothlink_paper.runners import PeerFailed as PeerFailed

CHILD = Path(__file__).parent / "child.py"
NAMES = {name: peer.about for name, peer in PEERS.items()}
ROWS = 100  # predicted one at a time
LAST_LINES = 6  # of the output of a failed child
THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON")


class PeerStopped(PeerFailed):
    """A peer that ran out of time."""


class Report(NamedTuple):
    """The result of a peer, and its costs. Training is timed alone, without `prepare`, which comes before it."""

    result: Result
    version: str  # of the library
    prepare_seconds: float  # the training rows in the library's own form, a file say
    fit_seconds: float
    predict_seconds: float  # of all test rows
    row_milliseconds: float  # of one row, the mean over rows predicted one at a time
    memory_mb: float | None  # at most, of the whole child
    model_bytes: int  # as saved
    selected: dict[str, Any] = {}  # noqa: RUF012  what the library chose by itself, where its script says


def run(
    name: str,
    split: Split,
    seed: int,
    *,
    top: int | None = None,
    threads: int = 2,
    limit: float | None = None,
    **settings: Any,
) -> Result:
    """Returns the predictions of a peer for the test rows; its seconds are those of training alone."""
    return report(name, split, seed, top=top, threads=threads, limit=limit, **settings).result


def report(
    name: str,
    split: Split,
    seed: int,
    *,
    top: int | None = None,  # labels per row; None: all, which needs n x c numbers
    threads: int = 2,
    limit: float | None = None,  # seconds for everything the child does
    **settings: Any,  # the script's: those of the library
) -> Report:
    """Returns the result of a peer with its costs; raises `PeerFailed` where it does not fit, fails or is too slow."""
    peer = PEERS[name]
    _check(name, peer, split)
    settings = {**peer.settings, **settings}
    job = {"seed": seed, "threads": threads, "top": top, "rows": ROWS, "settings": settings}
    with tempfile.TemporaryDirectory(prefix="smoothlink-") as folder:
        place = Path(folder)
        _write(split, place, scaled=not peer.own_scaling)
        (place / "job.json").write_text(json.dumps(job))
        try:
            code, _, words = _run([interpreter(peer), str(CHILD), str(peer.script), folder], threads, limit)
        except OSError as error:
            raise PeerFailed(f"{name} cannot be started: {interpreter(peer)}: {error.strerror}.") from error
        if code is None:
            raise PeerStopped(f"{name} was stopped after {limit:g} s.{_last(words)}")
        if code:
            how = f"was ended by signal {-code} (9: memory ran out)" if code < 0 else "failed"
            raise PeerFailed(f"{name} {how}.{_last(words)}")
        found = json.loads((place / "report.json").read_text())
        scores = sp.csr_array(sp.load_npz(place / "scores.npz"))
    if not np.isfinite(scores.data).all():
        raise PeerFailed(f"{name} gave {np.count_nonzero(~np.isfinite(scores.data))} infinite or NaN scores.")
    predictions = of_probabilities(scores.toarray(), split) if top is None else of_top(scores, split)
    return Report(Result(predictions, found["fit_seconds"], {**settings, "version": found["version"]}), **found)


def absent(name: str) -> str | None:
    """Returns None where the peer can be run, else one sentence with what to install."""
    peer = PEERS[name]
    found = _probe(interpreter(peer), str(peer.script))
    return f"{name} cannot be run ({found}): {peer.remedy}." if isinstance(found, str) else None


def versions(name: str) -> dict[str, str]:
    """Of a peer that can be run: its library, its interpreter, NumPy and SciPy."""
    peer = PEERS[name]
    found = _probe(interpreter(peer), str(peer.script))
    if isinstance(found, str):
        raise PeerFailed(str(absent(name)))
    return found


def interpreter(peer: Peer) -> str:
    """The Python that runs the peer: of its variables in the environment the first that is set, else this one."""
    return next((os.environ[variable] for variable in peer.variables if os.environ.get(variable)), sys.executable)


@functools.cache
def _probe(python: str, script: str) -> dict[str, str] | str:
    """Versions, or why the script cannot be loaded."""
    try:
        code, output, words = _run([python, str(CHILD), script], threads=1, limit=120)
    except OSError as error:
        return f"{python}: {error.strerror}"
    if code == 0:
        found: dict[str, str] = json.loads(output.splitlines()[-1])
        return found
    return ([line for line in words.splitlines() if line.strip()] or ["no output"])[-1].strip()


def _check(name: str, peer: Peer, split: Split) -> None:
    """Refuses what the peer cannot do, before anything is written."""
    (n, d), c = split.train.X.shape, split.train.Y.shape[1]
    if peer.one_label_only and (np.diff(split.train.Y.indptr) != 1).any():
        raise PeerFailed(f"{name} takes one label per row, and these rows have none or several.")
    needed, there = peer.dense(n, d, c), _memory()
    if needed > 0.7 * there:
        raise PeerFailed(
            f"{name} does not fit: {n} rows, {d} features and {c} labels mean dense arrays of {needed / 1e9:.1f} GB, "
            f"and the machine has {there / 1e9:.1f} GB."
        )


def _memory() -> float:
    """Bytes of the machine's memory; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _write(split: Split, place: Path, *, scaled: bool) -> None:
    """X.npz and Y.npz of the training rows and X_test.npz; `scaled`, and then without the column of the intercept."""
    X, X_test = (sp.csr_array(part.X) for part in split)
    if scaled:
        scaling = choose_scaling(split.train.X)
        X, X_test = (sp.csr_array(scaling(part.X)[:, :-1]) for part in split)
    for part, matrix in (("X", X), ("Y", split.train.Y), ("X_test", X_test)):
        sp.save_npz(place / f"{part}.npz", matrix, compressed=False)


def _run(command: list[str], threads: int, limit: float | None) -> tuple[int | None, str, str]:
    """The exit code of a command (None: out of time), its stdout and stderr; it ends with all its children."""
    environment = {**os.environ, **{f"{library}_NUM_THREADS": str(threads) for library in THREADS}}
    if command[0] != sys.executable:
        environment.pop("PYTHONPATH", None)  # of this interpreter, not of that one
    child = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the child ends here, too
    try:
        output, words = child.communicate(timeout=limit)
        return child.returncode, output, words
    except subprocess.TimeoutExpired:
        _kill(child)
        return None, *child.communicate()
    except BaseException:  # an interrupt goes to this process alone
        _kill(child)
        child.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _kill(child: subprocess.Popen[str]) -> None:
    """Ends a child and its own children: they share its session."""
    if sys.platform == "win32":
        child.kill()
    else:
        os.killpg(child.pid, signal.SIGKILL)


def _last(words: str) -> str:
    lines = [line.rstrip() for line in words.splitlines() if line.strip()][-LAST_LINES:]
    return "".join(f"\n  {line}" for line in ["Its last lines:", *lines]) if lines else ""
