"""Hyper-parameter search: Optuna proposes settings, and held-out rows measure them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from smoothlink.data.atomic import temporary_folder
from smoothlink.labels import is_multiclass
from smoothlink.machines.host_and_device import find_machine
from smoothlink.metrics.names import check_metric
from smoothlink.search.processes import SearchRequest, run_in_process, run_in_processes
from smoothlink.search.space import Best, Space, Tuned
from smoothlink.search.study import check_same_search, check_study, fail_unfinished, open_study, outcome
from smoothlink.types import Matrix

__all__ = ["Best", "Space", "Tuned", "tune"]

Notify = Callable[[int, dict[str, Best]], None]


def tune(
    X: Matrix,
    Y: sp.csr_array,
    *,
    metrics: Sequence[str] = ("p@1",),
    trials: int = 60,
    sampler: str = "random",
    seed: int = 0,
    space: Space | None = None,
    study: str | os.PathLike[str] | None = None,
    resume: bool = False,
    jobs: int = 1,
    holdouts: int = 1,
    multiclass: bool | None = None,
    device: str = "cpu",
    notify: Notify | None = None,
) -> Tuned:
    """Returns the best settings for each metric on held-out rows; the first metric steers the search.

    10 % of the rows are held out before the embedding is fitted; each of `holdouts` such parts is held out in turn, and
    a trial's value is the mean over them: more are steadier where rows are few. The trials and the cores are divided
    among `jobs` processes; each draws its own settings, so what is tried depends on their number. `study` is a file
    that records the trials; with `resume` a search of the same data, metrics, space, seed and holdouts goes on with it.
    Trials are fitted on `device`, as by the classifier; values of different devices may be compared. `notify` is called
    with the number of trials that ended, and the best so far.
    """
    for metric in metrics:
        check_metric(metric)
    check_study(study, resume, sampler)
    find_machine(device)
    if multiclass is None:
        multiclass = is_multiclass(Y)
    request = SearchRequest(tuple(metrics), space or Space(), seed, multiclass, holdouts, sampler, device)
    with ExitStack() as stack:
        journal = None if study is None else Path(study)
        if jobs > 1 and journal is None:
            journal = stack.enter_context(temporary_folder()) / "study"
        run = open_study(journal, sampler, seed, metrics[0])
        if study is not None:
            check_same_search(run, study, request.search(X, Y))
        fail_unfinished(run)
        began = len(run.trials)
        if not began:
            run.enqueue_trial(request.space.start(Y.shape[0]))
        else:  # a resumed search must not draw the same points again
            run = open_study(journal, sampler, seed + 1000 * began, metrics[0])
            request = request._replace(seed=seed, drawn=began)
        left = max(0, trials - sum(t.state.is_finished() for t in run.trials))

        def report_progress(*_: Any) -> None:
            if notify is not None:
                notify(sum(t.state.is_finished() for t in run.trials), outcome(run, metrics).best)

        if jobs > 1 and journal is not None and left > 1:
            run_in_processes(X, Y, request, journal, left, jobs, report_progress)
        else:
            run_in_process(X, Y, request, run, left, [report_progress])
        return outcome(run, metrics)
