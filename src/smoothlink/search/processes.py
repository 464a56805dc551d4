"""Trials in this process, or in several that write one journal; each of these gets its part of the cores."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from smoothlink.data.atomic import temporary_folder
from smoothlink.errors import SmoothLinkError
from smoothlink.fitting.checkpoint import checksum
from smoothlink.machines.parent_process import when_parent_ends
from smoothlink.machines.threads import limit_threads
from smoothlink.search.space import Space
from smoothlink.search.study import open_study
from smoothlink.search.trials import TrialRunner

NUMERICAL = (np.linalg.LinAlgError, FloatingPointError, OverflowError, MemoryError)
POLL_SECONDS = 0.5


class SearchRequest(NamedTuple):
    """What trials need besides the data; it is sent to other processes, and the data are in files."""

    metrics: tuple[str, ...]
    space: Space
    seed: int
    multiclass: bool
    holdouts: int
    sampler: str
    device: str = "cpu"
    drawn: int = 0  # trials of the study before this search: later ones must differ

    def search(self, X: Any, Y: sp.csr_array) -> dict[str, Any]:
        """Returns what trials must share so that their values can be compared; the sampler may change."""
        return {
            "rows": X.shape[0],
            "features": X.shape[1],
            "labels": Y.shape[1],
            "checksum of X": checksum(X),
            "checksum of Y": checksum(Y),
            "metrics": self.metrics,
            **{f"space of {name}": values for name, values in asdict(self.space).items()},
            "task": "multiclass" if self.multiclass else "multilabel",
            "seed": self.seed,
            "holdouts": self.holdouts,
        }


def run_in_process(
    X: Any, Y: sp.csr_array, request: SearchRequest, run: Any, trials: int, callbacks: list[Any]
) -> None:
    """Runs trials in this process. One that fails numerically is recorded with its reason; other errors end the search.

    (A ValueError of a trial is no mistake of whoever started the search, whose message would be enough.)
    """
    given = request.metrics, request.space, request.seed, request.multiclass, request.holdouts, request.device
    runner = TrialRunner.of(X, Y, *given)

    def objective(trial: Any) -> float:
        try:
            with warnings.catch_warnings():  # a hopeless draw may well be singular
                warnings.simplefilter("ignore", RuntimeWarning)
                return runner.run(trial)
        except NUMERICAL as error:
            trial.set_user_attr("reason", f"{type(error).__name__}: {error}")
            raise
        except ValueError as error:
            raise RuntimeError(f"Trial {trial.number} ended with an error: {error}") from error

    try:
        run.optimize(objective, n_trials=trials, catch=NUMERICAL, callbacks=callbacks)
    except AssertionError as error:  # raised by Optuna over an error of the disk, as it records an end
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def run_in_processes(
    X: Any, Y: sp.csr_array, request: SearchRequest, journal: Path, trials: int, jobs: int, notify: Callable[[], None]
) -> None:
    """Runs the trials in `jobs` processes; `notify` is called now and then, and at the end."""
    context = multiprocessing.get_context("spawn")  # numba's and BLAS's threads do not survive a fork
    with temporary_folder() as folder:
        save_array(folder / "X", X)
        save_array(folder / "Y", Y)
        counts = [trials // jobs + (j < trials % jobs) for j in range(jobs)]
        threads = max(1, (os.cpu_count() or 1) // jobs)
        workers = [
            context.Process(target=run_worker, args=(folder, request, journal, count, j, threads), daemon=True)
            for j, count in enumerate(counts)
            if count
        ]
        for worker in workers:
            worker.start()
        try:
            while any(worker.is_alive() for worker in workers) and 1 not in [worker.exitcode for worker in workers]:
                time.sleep(POLL_SECONDS)
                notify()
        finally:
            for worker in workers:
                worker.terminate()
                worker.join()
    notify()
    lost = [worker.exitcode for worker in workers if worker.exitcode]
    if 1 in lost:
        raise RuntimeError("A process of the search ended with an error, whose traceback is printed above.")
    if lost:
        raise SmoothLinkError(
            f"{len(lost)} of {len(workers)} processes of the search ended early (exit code {lost[0]}; -9 is mostly a "
            "lack of memory).\nFinished trials are kept in the study: go on with --resume and fewer --jobs."
        )


def run_worker(folder: Path, request: SearchRequest, journal: Path, trials: int, number: int, threads: int) -> None:
    """Runs the trials of one process, with draws of its own and its part of the cores."""

    def end() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    when_parent_ends(end)
    limit_threads(threads)
    X, Y = load_array(folder / "X"), sp.csr_array(load_array(folder / "Y"))
    seed = request.seed + 1000 * request.drawn + 7919 * (number + 1)
    run = open_study(journal, request.sampler, seed, request.metrics[0])
    run_in_process(X, Y, request, run, trials, [])


def save_array(path: Path, X: Any) -> None:
    """Writes a dense or sparse matrix."""
    if sp.issparse(X):
        sp.save_npz(path.with_suffix(".npz"), X, compressed=False)
    else:
        np.save(path.with_suffix(".npy"), X)


def load_array(path: Path) -> Any:
    """Returns the matrix that `save_array` wrote."""
    if path.with_suffix(".npy").exists():
        return np.load(path.with_suffix(".npy"))
    return sp.csr_array(sp.load_npz(path.with_suffix(".npz")))
