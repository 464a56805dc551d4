"""The study of a search: in memory, or in a journal file that survives a kill and that several processes may write."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smoothlink.choices import settings_from_former
from smoothlink.errors import DataError
from smoothlink.metrics.names import is_better, metric_of
from smoothlink.search.space import Best, Tuned

NAME = "smoothlink"


def check_study(path: Any, resume: bool, sampler: str) -> None:
    """Raises ValueError where a search cannot begin, or go on, with these arguments."""
    if sampler not in ("random", "tpe"):
        raise ValueError(f"sampler is {sampler!r}; possible are 'random' (as in the paper) and 'tpe'.")
    if resume and path is None:
        raise ValueError("resume needs the study to go on with; pass --study FILE.")
    if path is None or not Path(path).exists():
        return
    if not resume:
        raise ValueError(f"{os.fspath(path)} already holds a study; pass --resume to go on with it, or another name.")
    from smoothlink.search.journal import is_journal

    if not Path(path).is_file() or not is_journal(path):
        raise ValueError(f"{os.fspath(path)} is not a study of `smoothlink tune`.\nPass another name with --study.")


def open_study(path: Any, sampler: str, seed: int, metric: str) -> Any:
    """Returns a study in memory, or in a journal."""
    import optuna
    from optuna.storages import JournalStorage

    from smoothlink.search.journal import open_journal

    optuna.logging.set_verbosity(optuna.logging.ERROR)  # of a failed trial it would print a traceback
    try:
        run = optuna.create_study(
            study_name=NAME,
            storage=None if path is None else JournalStorage(open_journal(os.fspath(path))),
            load_if_exists=True,
            direction="minimize" if metric_of(metric).lower_is_better else "maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2),
        )
    except OSError:
        raise
    except Exception as error:  # a damaged line makes Optuna raise nearly anything
        what = f"a line of it is damaged ({type(error).__name__}: {error})"
        raise DataError(f"{os.fspath(path)}: {what}.\nPass another --study, or remove it to start anew.") from error
    run.sampler = optuna.samplers.RandomSampler(seed) if sampler == "random" else optuna.samplers.TPESampler(seed=seed)
    return run


def check_same_search(run: Any, path: Any, search: dict[str, Any]) -> None:
    """Records in a new study what it searches for; raises ValueError if a resumed one searches for something else."""
    search = json.loads(json.dumps(search))  # as the journal gives it back: lists for tuples
    known = run.user_attrs.get("search")
    if known is None:
        if run.trials:
            warnings.warn(
                f"{os.fspath(path)} is of an earlier version, which did not record data, metrics and search space: "
                "they are taken to be the same.",
                stacklevel=3,
            )
        run.set_user_attr("search", search)
        return
    differ = [name for name in {**known, **search} if known.get(name) != search.get(name)]
    if differ:
        changes = "; ".join(f"{name} was {known.get(name)} and is {search.get(name)}" for name in differ)
        raise ValueError(
            f"{os.fspath(path)} is a study of another search: {changes}.\n"
            "Pass what it was started with, or another --study."
        )


def fail_unfinished(run: Any) -> None:
    """Marks trials that a kill left running as failed."""
    from optuna.trial import TrialState

    for trial in run.trials:
        if trial.state == TrialState.RUNNING:
            run.tell(trial.number, state=TrialState.FAIL)


def outcome(run: Any, metrics: Sequence[str]) -> Tuned:
    """Returns the best of all finished trials for each metric; the earliest where several are equal."""
    from optuna.trial import TrialState

    best: dict[str, Best] = {}
    for trial in run.trials:
        for metric, (value, params) in trial.user_attrs.get("best", {}).items():
            if metric in metrics and (metric not in best or is_better(metric, value, best[metric].value)):
                best[metric] = Best(value, settings_from_former(params), trial.number)
    states = [t.state for t in run.trials]
    lost = "it was killed, or ended by an error"
    failed = {t.number: t.user_attrs.get("reason", lost) for t in run.trials if t.state == TrialState.FAIL}
    return Tuned(best, states.count(TrialState.COMPLETE), states.count(TrialState.PRUNED), failed)
