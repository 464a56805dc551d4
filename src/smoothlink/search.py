"""Hyper-parameter search: Optuna proposes, held-out rows judge, and every sum serves as many settings as it can."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.choose import Fold, Link, Trials, cut
from smoothlink.fitting.options import Options, Setup
from smoothlink.fitting.train import set_up
from smoothlink.machines.rows import folds
from smoothlink.model import Model
from smoothlink.predict import predictions
from smoothlink.steps.calibrate import Histogram, fit_temperature, no_calibration
from smoothlink.steps.embed import rank_for_share
from smoothlink.steps.evaluate import evaluate
from smoothlink.steps.featurize import parse_kernel
from smoothlink.steps.fit import Descent, Smoothing, squared, sweeps
from smoothlink.steps.scale import choose_scaling

Array = NDArray[Any]
Params = dict[str, Any]
Notify = Callable[[int, dict[str, "Best"]], None]

LOWER_IS_BETTER = ("hamming", "logloss", "ece_top", "error")
NUMERICAL = (np.linalg.LinAlgError, FloatingPointError, OverflowError, MemoryError, ValueError)


@dataclass(frozen=True)
class Space:
    """What may be drawn. Ridges lie on half decades, so that trials meet and share their embeddings."""

    ridge: tuple[float, float] = (1e-3, 1e2)
    rank: tuple[Any, ...] = ("all", 0.9)
    kernel: tuple[str, ...] = ("gaussian", "matern(5)", "matern(3)", "laplacian")
    bandwidth: tuple[float, float] = (0.25, 8.0)
    n_features: tuple[int, int] = (500, 4000)
    final_ridge: tuple[float, float] = (1e-5, 10.0)
    loss: tuple[str, ...] = ("squared", "descent")  # descent: logistic, for multiclass softmax
    learning_rate: tuple[float, float] = (0.25, 1.25)  # times the rate that stays stable
    momentum: tuple[float, float] = (0.05, 0.9)
    decay: tuple[float, float] = (0.8, 1.0)
    passes: int = 15
    label_smoothing: tuple[float, float] = (0.98, 1.0)
    quasi_random: tuple[str | None, ...] = (None, "latin")


class Best(NamedTuple):
    """The best settings of a search for one metric."""

    value: float  # on the holdout
    params: Params  # what SmoothLinkClassifier takes
    trial: int


class Tuned(NamedTuple):
    """The outcome of a search."""

    best: dict[str, Best]  # by metric
    finished: int
    pruned: int
    failed: dict[int, str]  # trial -> reason

    def save(self, path: str | os.PathLike[str]) -> None:
        """One JSON file that `smoothlink train --params` takes."""
        content = {metric: best._asdict() for metric, best in self.best.items()}
        temporary = Path(f"{os.fspath(path)}.part")
        temporary.write_text(json.dumps({"smoothlink_params": 1, "best": content}, indent=1) + "\n")
        temporary.replace(path)


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
    multiclass: bool | None = None,
    notify: Notify | None = None,
) -> Tuned:
    """Searches settings on a 10 % holdout that is cut before the embedding; the first metric steers the search."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if multiclass is None:
        multiclass = bool((np.diff(Y.indptr) == 1).all())
    bench = Bench.of(X, Y, tuple(metrics), space or Space(), seed, multiclass)
    run = open_study(study, resume, sampler, seed, metrics[0])

    def objective(trial: Any) -> float:
        try:
            with warnings.catch_warnings():  # a hopeless draw may well be singular
                warnings.simplefilter("ignore", RuntimeWarning)
                return bench.run(trial)
        except NUMERICAL as error:
            trial.set_user_attr("reason", f"{type(error).__name__}: {error}")
            raise

    done = sum(t.state.is_finished() for t in run.trials)
    told = [] if notify is None else [lambda s, t: notify(t.number, outcome(s, metrics).best)]
    run.optimize(objective, n_trials=max(0, trials - done), catch=NUMERICAL, callbacks=told)
    return outcome(run, metrics)


def open_study(path: Any, resume: bool, sampler: str, seed: int, metric: str) -> Any:
    """A study in memory, or in a journal file that survives a kill."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    if sampler not in ("random", "tpe"):
        raise ValueError(f"sampler is {sampler!r}; possible are 'random' (as in the paper) and 'tpe'.")
    if resume and path is None:
        raise ValueError("resume needs the study to go on with; pass --study FILE.")
    if path is not None and Path(path).exists() and not resume:
        raise ValueError(f"{os.fspath(path)} already holds a study; pass --resume to go on with it, or another name.")
    storage = None if path is None else JournalStorage(JournalFileBackend(os.fspath(path)))
    run = optuna.create_study(
        study_name="smoothlink",
        storage=storage,
        load_if_exists=True,
        direction="minimize" if metric in LOWER_IS_BETTER else "maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2),
    )
    # A resumed search must not draw the same points again.
    fresh = seed + 1000 * len(run.trials)
    run.sampler = (
        optuna.samplers.RandomSampler(fresh) if sampler == "random" else optuna.samplers.TPESampler(seed=fresh)
    )
    for trial in run.trials:  # what a kill left running
        if trial.state == optuna.trial.TrialState.RUNNING:
            run.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return run


def outcome(run: Any, metrics: Sequence[str]) -> Tuned:
    """The best of all finished trials for each metric."""
    from optuna.trial import TrialState

    best: dict[str, Best] = {}
    for trial in run.trials:
        for metric, (value, params) in trial.user_attrs.get("best", {}).items():
            if metric in metrics and (metric not in best or better(metric, value, best[metric].value)):
                best[metric] = Best(value, params, trial.number)
    states = [t.state for t in run.trials]
    failed = {
        t.number: t.user_attrs.get("reason", "killed before it ended") for t in run.trials if t.state == TrialState.FAIL
    }
    return Tuned(best, states.count(TrialState.COMPLETE), states.count(TrialState.PRUNED), failed)


def better(metric: str, a: float, b: float) -> bool:
    return a < b if metric in LOWER_IS_BETTER else a > b


def half_decades(low: float, high: float) -> list[float]:
    """10^(e/2) for whole e between two bounds."""
    return [float(10 ** (e / 2)) for e in range(round(2 * np.log10(low)), round(2 * np.log10(high)) + 1)]


@dataclass(frozen=True)
class Bench:
    """One holdout, and what the trials on it share."""

    setup: Setup
    scaling: Any
    fold: Fold
    metrics: tuple[str, ...]
    space: Space
    ranks: dict[str, int]
    seed: int

    @classmethod
    def of(cls, X: Any, Y: sp.csr_array, metrics: tuple[str, ...], space: Space, seed: int, multiclass: bool) -> Bench:
        from smoothlink.estimator import SmoothLinkClassifier

        options: Options = SmoothLinkClassifier(rank="auto", random_state=seed)._options()
        scaling = choose_scaling(X)
        setup = set_up(scaling(X), Y, None, options, multiclass, None)
        held = np.flatnonzero(folds(setup.rows.n, 0.1, seed) == 0)
        most = setup.stage.rank
        ranks = {}
        for rank in space.rank:
            if rank == "all":
                ranks["all"] = most
            elif isinstance(rank, int):
                ranks[str(rank)] = min(rank, most)
            else:
                ranks[str(rank)] = rank_for_share(setup.rows, rank, most, np.random.default_rng([seed, 5]))
        return cls(setup, scaling, cut(setup.rows, Y, held, setup.stage), metrics, space, ranks, seed)

    def run(self, trial: Any) -> float:
        """One trial: a draw of the link, then every final ridge (squared) or every pass (descent) on it."""
        drawn = self.draw(trial)
        best: dict[str, tuple[float, Params]] = {}
        link = self.link(drawn)
        steps = self.ridges(link, drawn) if drawn["loss"] == "squared" else self.passes(link, drawn)
        for step, (V, params) in enumerate(steps):
            for calibrate, metrics in self.judge(link, V, params):
                for metric, value in metrics.items():
                    if metric not in best or better(metric, value, best[metric][0]):
                        best[metric] = value, {**params, "calibrate": calibrate}
            trial.set_user_attr("best", best)
            trial.report(best[self.metrics[0]][0], step)
            if params["loss"] != "squared" and trial.should_prune():
                import optuna

                raise optuna.TrialPruned
        return best[self.metrics[0]][0]

    def draw(self, trial: Any) -> Params:
        """What Optuna proposes, as parameters of the classifier."""
        s = self.space
        ridges, finals = half_decades(*s.ridge), half_decades(*s.final_ridge)
        descent = "softmax" if self.setup.multiclass else "logistic"
        loss = trial.suggest_categorical("loss", list(s.loss))
        most = min(s.n_features[1], max(s.n_features[0], 2 * self.setup.rows.n))
        drawn: Params = {
            "ridge": ridges[trial.suggest_int("ridge", 0, len(ridges) - 1)],
            "rank": self.ranks[trial.suggest_categorical("rank", list(self.ranks))],
            "kernel": trial.suggest_categorical("kernel", list(s.kernel)),
            "bandwidth": trial.suggest_float("bandwidth", *s.bandwidth, log=True),
            "n_features": trial.suggest_int("n_features", s.n_features[0], most, log=True),
            "quasi_random": trial.suggest_categorical("quasi_random", list(s.quasi_random)),
            "label_smoothing": trial.suggest_float("label_smoothing", *s.label_smoothing),
            "loss": "squared" if loss == "squared" else descent,
        }
        if loss != "squared":
            drawn["final_ridge"] = finals[trial.suggest_int("final_ridge", 0, len(finals) - 1)]
            drawn["learning_rate"] = trial.suggest_float("learning_rate", *s.learning_rate)
            drawn["momentum"] = trial.suggest_float("momentum", *s.momentum)
            drawn["decay"] = trial.suggest_float("decay", *s.decay)
        return drawn

    def link(self, drawn: Params) -> Link:
        """Random features on the embedding of this ridge, which trials share."""
        trials = Trials(
            folds=[self.fold],
            stage=self.setup.stage,
            kernel=parse_kernel(drawn["kernel"]),
            n_features=drawn["n_features"],
            quasi=drawn["quasi_random"],
            normalize=False,
            smoothing=self.smoothing(drawn),
            seed=self.seed,
        )
        self.fold.links.clear()  # of other kernels and sizes
        return trials.link(self.fold, drawn["ridge"], drawn["rank"], drawn["bandwidth"])

    def smoothing(self, drawn: Params) -> Smoothing:
        return Smoothing.of(drawn["label_smoothing"], self.setup.rows.c, multiclass=self.setup.multiclass)

    def ridges(self, link: Link, drawn: Params) -> Iterator[tuple[Array, Params]]:
        """The squared solution for a grid of final ridges: one pair of sums, one factor each."""
        for ridge in half_decades(*self.space.final_ridge):
            yield squared(link.sums, ridge, self.smoothing(drawn)), {**drawn, "final_ridge": ridge}

    def passes(self, link: Link, drawn: Params) -> Iterator[tuple[Array, Params]]:
        """The descent after each pass."""
        run = sweeps(
            link.rows,
            link.features,
            link.sums,
            drawn["final_ridge"],
            softmax=drawn["loss"] == "softmax",
            descent=Descent(drawn["learning_rate"], drawn["momentum"], drawn["decay"]),
            smoothing=self.smoothing(drawn),
            seed=self.seed,
        )
        for sweep in range(1, self.space.passes + 1):
            yield next(run), {**drawn, "passes": sweep}

    def judge(self, link: Link, V: Array, params: Params) -> Iterator[tuple[bool, dict[str, float]]]:
        """The metrics of held-out rows, with scores as they stand and after calibration on the same rows."""
        sums, multiclass, loss = link.sums, self.setup.multiclass, params["loss"]
        model = Model(
            scaling=self.scaling,
            input_features=None,
            W=None,
            classifier=None,
            normalize=False,
            features=link.features,
            V=V,
            loss=loss,
            multiclass=multiclass,
            calibration=no_calibration(),
            counts=np.array(sums.label_weights, np.float64),
            total=sums.weight,
            thresholds=np.full(V.shape[1], 0.5),
        )
        S = model.features(link.held) @ V
        if not np.isfinite(S).all():
            raise FloatingPointError("the descent diverged: a smaller learning rate is needed")
        if multiclass:
            calibration = fit_temperature(S, self.fold.held_labels.indices, self.fold.held_weights)[1]
        else:
            histogram = Histogram(loss)
            histogram.add(S, self.fold.held_labels, self.fold.held_weights)
            calibration = histogram.monotone()
        for calibrate in (False, True):
            judged = replace(model, calibration=calibration if calibrate else no_calibration())
            found = evaluate(
                self.fold.held_labels,
                predictions(judged, link.held, self.fold.held_labels),
                label_counts=model.counts,
                n_train=max(1, round(model.total)),
                task="multiclass" if multiclass else "multilabel",
                bootstraps=0,
            )
            yield calibrate, {key: found.metrics[key].value for key in self.metrics}
