"""What trials run on: holdouts cut before anything is fitted, and sums that serve as many settings as they can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.choose import Fold, Link, Trials, cut
from smoothlink.fitting.inputs import worth_trying
from smoothlink.fitting.options import Options, Setup
from smoothlink.fitting.setup import set_up
from smoothlink.machines.rows import folds
from smoothlink.model import Model
from smoothlink.predict import predictions
from smoothlink.search.space import Params, Space, better, half_decades, half_octaves
from smoothlink.steps.calibrate import Histogram, fit_temperature, no_calibration
from smoothlink.steps.descend import Descent, sweeps
from smoothlink.steps.embed import rank_for_share
from smoothlink.steps.evaluate import evaluate
from smoothlink.steps.featurize import parse_kernel
from smoothlink.steps.fit import Smoothing, squared
from smoothlink.steps.scale import Scaling, choose_scaling

Array = NDArray[Any]


class Stand(NamedTuple):
    """The rows as the first stage sees them, and the holdouts cut from them."""

    setup: Setup
    folds: list[Fold]


@dataclass
class Bench:
    """The holdouts, and what the trials on them share."""

    A: Any  # (n, d + 1) scaled rows
    Y: sp.csr_array
    scaling: Scaling
    options: Options
    multiclass: bool
    metrics: tuple[str, ...]
    space: Space
    holdouts: int
    plain: Stand = field(init=False)
    ranks: dict[str, int] = field(init=False)
    kernels: list[str | None] = field(init=False)
    curved: dict[tuple[str, float], Stand] = field(default_factory=dict)  # the last kernel of x only: it is large

    @classmethod
    def of(
        cls,
        X: Any,
        Y: sp.csr_array,
        metrics: tuple[str, ...],
        space: Space,
        seed: int,
        multiclass: bool,
        holdouts: int = 1,
    ) -> Bench:
        from smoothlink.estimator import SmoothLinkClassifier

        options: Options = SmoothLinkClassifier(rank="auto", random_state=seed)._options()
        scaling = choose_scaling(X)
        return cls(scaling(X), Y, scaling, options, multiclass, metrics, space, holdouts)

    def __post_init__(self) -> None:
        self.plain = self.stand(replace(self.options, input_kernel=None))
        setup = self.plain.setup
        may = worth_trying(setup, self.options)
        self.kernels = [kernel for kernel in self.space.input_kernel if kernel is None or may] or [None]
        most, self.ranks = setup.stage.rank, {}
        for rank in self.space.rank:
            if rank == "all":
                self.ranks["all"] = most
            elif isinstance(rank, int):
                self.ranks[str(rank)] = min(rank, most)
            else:
                rng = np.random.default_rng([self.options.seed, 5])
                self.ranks[str(rank)] = rank_for_share(setup.rows, rank, most, rng)

    def stand(self, options: Options) -> Stand:
        table = self.scaling.dense and self.scaling.kind == "variance"
        setup = set_up(self.A, self.Y, None, options, self.multiclass, None, table=table)
        fold = folds(setup.rows.n, 0.1, options.seed)
        held = [np.flatnonzero(fold == f) for f in range(min(self.holdouts, int(fold.max()) + 1))]
        return Stand(setup, [cut(setup.rows, self.Y, h, setup.stage) for h in held])

    def seen_through(self, drawn: Params) -> Stand:
        """The rows through the input kernel drawn, if any; trials with the same one in a row share it."""
        if drawn.get("input_kernel") is None:
            return self.plain
        key = drawn["input_kernel"], drawn["input_bandwidth"]
        if key not in self.curved:
            self.curved.clear()
            self.curved[key] = self.stand(replace(self.options, input_kernel=key[0], input_bandwidth=key[1]))
        return self.curved[key]

    def run(self, trial: Any) -> float:
        """One trial: a draw of the link, then every final ridge (squared) or every pass (descent) on it."""
        drawn = self.draw(trial)
        stand = self.seen_through(drawn)
        links = [self.link(stand, fold, drawn) for fold in stand.folds]
        tries = self.ridges if drawn["loss"] == "squared" else self.passes
        best: dict[str, tuple[float, Params]] = {}
        for step, found in enumerate(zip(*(tries(link, drawn) for link in links), strict=True)):
            Vs, params = [V for V, _ in found], found[0][1]
            for calibrate, metrics in self.judge(stand, links, Vs, params):
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
        descent = "softmax" if self.multiclass else "logistic"
        loss = trial.suggest_categorical("loss", list(s.loss))
        most = min(s.n_features[1], max(s.n_features[0], 2 * self.A.shape[0]))
        drawn: Params = {
            "input_kernel": trial.suggest_categorical("input_kernel", self.kernels),
            "ridge": ridges[trial.suggest_int("ridge", 0, len(ridges) - 1)],
            "rank": self.ranks[trial.suggest_categorical("rank", list(self.ranks))],
            "kernel": trial.suggest_categorical("kernel", list(s.kernel)),
            "bandwidth": trial.suggest_float("bandwidth", *s.bandwidth, log=True),
            "n_features": trial.suggest_int("n_features", s.n_features[0], most, log=True),
            "label_smoothing": trial.suggest_float("label_smoothing", *s.label_smoothing),
            "loss": "squared" if loss == "squared" else descent,
        }
        if drawn["input_kernel"] is not None:
            widths = half_octaves(*s.input_bandwidth)
            drawn["input_bandwidth"] = widths[trial.suggest_int("input_bandwidth", 0, len(widths) - 1)]
        if loss != "squared":
            drawn["final_ridge"] = finals[trial.suggest_int("final_ridge", 0, len(finals) - 1)]
            drawn["learning_rate"] = trial.suggest_float("learning_rate", *s.learning_rate)
            drawn["momentum"] = trial.suggest_float("momentum", *s.momentum)
            drawn["decay"] = trial.suggest_float("decay", *s.decay)
        return drawn

    def link(self, stand: Stand, fold: Fold, drawn: Params) -> Link:
        """Random features on the embedding of this ridge, which trials share."""
        trials = Trials(
            folds=[fold],
            stage=stand.setup.stage,
            kernel=parse_kernel(drawn["kernel"]),
            n_features=drawn["n_features"],
            normalize=False,
            smoothing=self.smoothing(drawn),
            seed=self.options.seed,
        )
        fold.links.clear()  # of other kernels and sizes
        return trials.link(fold, drawn["ridge"], drawn["rank"], drawn["bandwidth"])

    def smoothing(self, drawn: Params) -> Smoothing:
        return Smoothing.of(drawn["label_smoothing"], self.Y.shape[1], multiclass=self.multiclass)

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
            seed=self.options.seed,
        )
        for sweep in range(1, self.space.passes + 1):
            yield next(run), {**drawn, "passes": sweep}

    def judge(
        self, stand: Stand, links: list[Link], Vs: list[Array], params: Params
    ) -> Iterator[tuple[bool, dict[str, float]]]:
        """The metrics of held-out rows, a mean over holdouts, with scores as they stand and after calibration."""
        models = [self.model(link, V, params["loss"]) for link, V in zip(links, Vs, strict=True)]
        scores = [model.features(link.held) @ model.V for model, link in zip(models, links, strict=True)]
        if not all(np.isfinite(S).all() for S in scores):
            raise FloatingPointError("the descent diverged: a smaller learning rate is needed")
        if self.multiclass:
            classes = np.concatenate([fold.held_labels.indices for fold in stand.folds])
            weights = np.concatenate([fold.held_weights for fold in stand.folds])
            calibration = fit_temperature(np.concatenate(scores), classes, weights)[1]
        else:
            histogram = Histogram(params["loss"])
            for S, fold in zip(scores, stand.folds, strict=True):
                histogram.add(S, fold.held_labels, fold.held_weights)
            calibration = histogram.monotone()
        for calibrate in (False, True):
            found = [
                self.measured(replace(model, calibration=calibration if calibrate else no_calibration()), link, fold)
                for model, link, fold in zip(models, links, stand.folds, strict=True)
            ]
            yield calibrate, {metric: float(np.mean([f[metric] for f in found])) for metric in self.metrics}

    def measured(self, model: Model, link: Link, fold: Fold) -> dict[str, float]:
        found = evaluate(
            fold.held_labels,
            predictions(model, link.held, fold.held_labels),
            label_counts=model.counts,
            n_train=max(1, round(model.total)),
            task="multiclass" if self.multiclass else "multilabel",
            bootstraps=0,
        )
        return {metric: found.metrics[metric].value for metric in self.metrics}

    def model(self, link: Link, V: Array, loss: str) -> Model:
        """The link as a model of embedded rows."""
        return Model(
            scaling=self.scaling,
            input_features=None,
            W=None,
            classifier=None,
            normalize=False,
            features=link.features,
            V=V,
            loss=loss,
            multiclass=self.multiclass,
            calibration=no_calibration(),
            counts=np.array(link.sums.label_weights, np.float64),
            total=link.sums.weight,
            thresholds=np.full(V.shape[1], 0.5),
        )
