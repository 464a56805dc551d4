"""Trials of a search: held-out rows are split off before anything is fitted, and settings share what sums they can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.calibration import criterion
from smoothlink.fitting.checkpoint import FitState
from smoothlink.fitting.choose import Fold, Trials, make_fold
from smoothlink.fitting.holdout import hold_out
from smoothlink.fitting.input_kernel import grow_inputs, may_grow, worth_trying
from smoothlink.fitting.link import Link, decoder_passes
from smoothlink.fitting.prepare import make_problem, number_of_entries, start_settings
from smoothlink.fitting.settings import Problem, Request, Settings, TrainingData
from smoothlink.machines.arrays import to_host
from smoothlink.machines.copies import RowContents, notable
from smoothlink.metrics.evaluate import model_statistics
from smoothlink.metrics.names import is_better
from smoothlink.model import Model
from smoothlink.predict import predictions
from smoothlink.search.space import Params, Space, half_decades, half_octaves
from smoothlink.steps.calibrate import Calibration, no_calibration
from smoothlink.steps.embed import rank_for_share
from smoothlink.steps.featurize import parse_kernel
from smoothlink.steps.scale import Scaling, choose_scaling
from smoothlink.steps.sgd import SGD
from smoothlink.steps.squared import Smoothing, squared
from smoothlink.steps.trees import CrossFit
from smoothlink.weights import ArrayWeights

Array = NDArray[Any]


class ValidationSet(NamedTuple):
    """The rows as the embedding takes them, and the folds that hold some of them out."""

    problem: Problem
    settings: Settings
    folds: list[Fold]


@dataclass
class TrialRunner:
    """Runs trials on the same held-out rows; what they can share is computed once."""

    A: Any  # (n, d + 1) scaled rows
    Y: sp.csr_array
    scaling: Scaling
    request: Request
    multiclass: bool
    metrics: tuple[str, ...]
    space: Space
    holdouts: int
    groups: Array | None = None  # (n,) copies, which are held out together
    plain: ValidationSet = field(init=False)
    ranks: dict[str, int] = field(init=False)
    kernels: list[str | None] = field(init=False)
    trees: list[bool] = field(init=False)
    by_inputs: dict[tuple[Any, ...], ValidationSet] = field(default_factory=dict)  # of the last trees and input kernel

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
        device: str = "cpu",
    ) -> TrialRunner:
        """Returns a runner for rows X (n, d) and labels Y (n, c)."""
        from smoothlink.estimator import SmoothLinkClassifier

        request = SmoothLinkClassifier(rank="auto", random_state=seed, device=device)._request()
        scaling = choose_scaling(X)
        groups = notable(RowContents.of(X, Y).first_copies())
        return cls(scaling(X), Y, scaling, request, multiclass, metrics, space, holdouts, groups)

    def __post_init__(self) -> None:
        self.plain = self.validation_set(replace(self.request, input_kernel=None))
        rows = self.plain.problem.rows
        may = worth_trying(self.plain.problem, self.request)
        self.kernels = [kernel for kernel in self.space.input_kernel if kernel is None or may] or [None]
        may = may_grow(self.plain.problem, self.request)
        self.trees = [trees for trees in self.space.trees if may or not trees] or [False]
        most, self.ranks = self.plain.settings.embedder.rank, {}
        for rank in self.space.rank:
            if rank == "all":
                self.ranks["all"] = most
            elif isinstance(rank, int):
                self.ranks[str(rank)] = min(rank, most)
            else:
                rng = np.random.default_rng([self.request.seed, 5])
                self.ranks[str(rank)] = rank_for_share(rows, rank, most, rng)

    def validation_set(self, request: Request) -> ValidationSet:
        """Returns the rows with the trees and the input kernel of a request, and its folds."""
        grown = self.grown if request.trees is True else None
        problem = make_problem(self.A, self.data, self.scaling, request, FitState(), grown)
        entries = number_of_entries(self.A) if grown is None else problem.rows.n * problem.rows.d
        settings = start_settings(problem, request, entries)
        held = hold_out(problem.rows.w, request.holdout, request.seed, self.holdouts, self.groups)
        folds = [make_fold(problem.rows_for(h), self.Y, h, settings.embedder, at_once=False) for h in held]
        return ValidationSet(problem, settings, folds)

    @property
    def data(self) -> TrainingData:
        return TrainingData(self.A, self.Y, None, self.multiclass, groups=self.groups)

    @cached_property
    def grown(self) -> CrossFit:
        """Trees that predict the labels, to stand beside the rows."""
        return grow_inputs(self.A, self.data, self.request)

    def with_inputs(self, drawn: Params) -> ValidationSet:
        """Returns the rows with the trees and the input kernel drawn, if any; successive trials share them."""
        key = drawn["trees"], drawn["input_kernel"], drawn.get("input_bandwidth", "auto")
        if key[:2] == (False, None):
            return self.plain
        if key not in self.by_inputs:
            self.by_inputs.clear()
            changes = dict(zip(("trees", "input_kernel", "input_bandwidth"), key, strict=True))
            self.by_inputs[key] = self.validation_set(replace(self.request, **changes))
        return self.by_inputs[key]

    def run(self, trial: Any) -> float:
        """Runs one trial: a draw of the link, then every final ridge (squared) or every pass (SGD) on it.

        Returns the best value of the first metric.
        """
        drawn = self.suggest(trial)
        data = self.with_inputs(drawn)
        settings = self.settings(data, drawn)
        links = self.links(data, settings)
        tries = self.ridges if drawn["loss"] == "squared" else self.passes
        best: dict[str, tuple[float, Params]] = {}
        for step, found in enumerate(zip(*(tries(link, settings, drawn) for link in links), strict=True)):
            Vs, params = [to_host(V) for V, _ in found], found[0][1]
            for calibrate, metrics in self.validate(data, links, Vs, params["loss"]):
                for metric, value in metrics.items():
                    if metric not in best or is_better(metric, value, best[metric][0]):
                        best[metric] = value, {**params, "calibrate": calibrate}
            trial.set_user_attr("best", best)
            trial.report(best[self.metrics[0]][0], step)
            if params["loss"] != "squared" and trial.should_prune():
                import optuna

                raise optuna.TrialPruned
        return best[self.metrics[0]][0]

    def suggest(self, trial: Any) -> Params:
        """Returns what Optuna proposes, as parameters of the classifier."""
        s = self.space
        ridges, finals = half_decades(*s.ridge), half_decades(*s.final_ridge)
        loss = trial.suggest_categorical("loss", list(s.loss))
        most = min(s.n_features[1], max(s.n_features[0], 2 * self.A.shape[0]))
        drawn: Params = {
            "trees": trial.suggest_categorical("trees", self.trees),
            "input_kernel": trial.suggest_categorical("input_kernel", self.kernels),
            "ridge": ridges[trial.suggest_int("ridge", 0, len(ridges) - 1)],
            "rank": self.ranks[trial.suggest_categorical("rank", list(self.ranks))],
            "kernel": trial.suggest_categorical("kernel", list(s.kernel)),
            "bandwidth": trial.suggest_float("bandwidth", *s.bandwidth, log=True),
            "n_features": trial.suggest_int("n_features", s.n_features[0], most, log=True),
            "label_smoothing": trial.suggest_float("label_smoothing", *s.label_smoothing),
            "loss": "squared" if loss == "squared" else "softmax" if self.multiclass else "logistic",
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

    def settings(self, data: ValidationSet, drawn: Params) -> Settings:
        """Returns the settings of a draw, complete but for a final ridge or passes that are tried in turn."""
        return replace(
            data.settings,
            ridge=drawn["ridge"],
            rank=drawn["rank"],
            kernel=parse_kernel(drawn["kernel"]),
            bandwidth=drawn["bandwidth"],
            features=drawn["n_features"],
            final_ridge=drawn.get("final_ridge", 0.0),
            loss=drawn["loss"],
            sgd=SGD(*(drawn[name] for name in ("learning_rate", "momentum", "decay") if name in drawn)),
            smoothing=Smoothing.of(drawn["label_smoothing"], self.Y.shape[1], multiclass=self.multiclass),
        )

    def links(self, data: ValidationSet, settings: Settings) -> list[Link]:
        """Returns the link of each fold, whose held-out rows are on the host."""
        trials = Trials(data.folds, settings, most_labels=self.Y.shape[1])  # metrics are those of every label
        for fold in data.folds:
            fold.links.clear()  # of other kernels and sizes
        links = [trials.link(fold, settings) for fold in data.folds]
        return [link._replace(held=to_host(link.held)) for link in links]

    def ridges(self, link: Link, settings: Settings, drawn: Params) -> Iterator[tuple[Array, Params]]:
        """Yields the squared solution for a grid of final ridges: one pair of sums, one factor each."""
        for ridge in half_decades(*self.space.final_ridge):
            yield squared(link.sums, ridge, settings.smoothing), {**drawn, "final_ridge": ridge}

    def passes(self, link: Link, settings: Settings, drawn: Params) -> Iterator[tuple[Array, Params]]:
        """Yields V after each pass of the SGD."""
        run = decoder_passes(link, settings)
        for done in range(1, self.space.passes + 1):
            yield next(run), {**drawn, "passes": done}

    def validate(
        self, data: ValidationSet, links: list[Link], Vs: list[Array], loss: str
    ) -> Iterator[tuple[bool, dict[str, float]]]:
        """Yields the metrics of held-out rows, a mean over folds, with scores as they are and after calibration."""
        if not all(np.isfinite(V).all() for V in Vs):
            raise FloatingPointError("the SGD diverged: a smaller learning rate is needed")
        held = [fold.held_out(link, V) for fold, link, V in zip(data.folds, links, Vs, strict=True)]
        calibration = criterion(held, loss, multiclass=self.multiclass)[1]
        for calibrate in (False, True):
            found = []
            for fold, link, V in zip(data.folds, links, Vs, strict=True):
                model = self.model(link, V, loss, calibration if calibrate else no_calibration())
                predicted = predictions(model, link.held, fold.held_labels)
                values = model_statistics(model, fold.held_labels, predicted).draw(0, 0)
                found.append([values[metric][0] for metric in self.metrics])
            yield calibrate, dict(zip(self.metrics, np.mean(found, axis=0).tolist(), strict=True))

    def model(self, link: Link, V: Array, loss: str, calibration: Calibration) -> Model:
        """Returns the link as a model of embedded rows."""
        return Model(
            scaling=self.scaling,
            input_features=None,
            W=None,
            classifier=None,
            normalize=False,
            features=link.features,
            V=ArrayWeights(V),
            loss=loss,
            multiclass=self.multiclass,
            calibration=calibration,
            counts=np.array(link.sums.label_weights, np.float64),
            total=link.sums.weight,
            thresholds=np.full(V.shape[1], 0.5),
        )
