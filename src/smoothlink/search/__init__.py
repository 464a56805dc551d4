"""Hyper-parameter search: Optuna proposes, held-out rows judge, and every sum serves as many settings as it can."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from smoothlink.labels import is_multiclass
from smoothlink.search.processes import SearchRequest, run_in_process, run_in_processes
from smoothlink.search.space import LOWER_IS_BETTER, Best, Space, Tuned, better, half_decades
from smoothlink.search.study import check_same_search, check_study, give_up_unfinished, open_study, outcome
from smoothlink.search.trials import TrialRunner

__all__ = ["LOWER_IS_BETTER", "Best", "Space", "TrialRunner", "Tuned", "better", "half_decades", "tune"]

Notify = Callable[[int, dict[str, Best]], None]


def tune(
    X: Any,
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
    notify: Notify | None = None,
) -> Tuned:
    """Searches settings on 10 % holdouts that are cut before the embedding; the first metric steers the search.

    `jobs` processes share the trials and the cores; each draws its own settings, so what is tried depends on their
    number. `holdouts` of 10 % judge each trial in turn, a mean over them: more are steadier where rows are few.
    `study` is a file that the trials are recorded in; with `resume` a search of the same data, metrics, space, seed and
    holdouts goes on with it. `notify` is told how many trials ended, and the best so far.
    """
    check_study(study, resume, sampler)
    if multiclass is None:
        multiclass = is_multiclass(Y)
    asked = SearchRequest(tuple(metrics), space or Space(), seed, multiclass, holdouts, sampler)
    with ExitStack() as stack:
        journal = None if study is None else Path(study)
        if jobs > 1 and journal is None:
            journal = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="smoothlink-"))) / "study"
        run = open_study(journal, sampler, seed, metrics[0])
        if study is not None:
            check_same_search(run, study, asked.search(X, Y))
        give_up_unfinished(run)
        began = len(run.trials)
        if not began:
            run.enqueue_trial(asked.space.start(Y.shape[0]))
        else:  # a resumed search must not draw the same points again
            run = open_study(journal, sampler, seed + 1000 * began, metrics[0])
            asked = asked._replace(seed=seed, drawn=began)
        left = max(0, trials - sum(t.state.is_finished() for t in run.trials))

        def tell(*_: Any) -> None:
            if notify is not None:
                notify(sum(t.state.is_finished() for t in run.trials), outcome(run, metrics).best)

        if jobs > 1 and journal is not None and left > 1:
            run_in_processes(X, Y, asked, journal, left, jobs, tell)
        else:
            run_in_process(X, Y, asked, run, left, [tell])
        return outcome(run, metrics)
