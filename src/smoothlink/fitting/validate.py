"""Held-out rows at full size: they choose the final ridge, the loss and the passes, and calibrate the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.errors import plural
from smoothlink.fitting.calibration import Calibrated, HeldOut, calibrate, criterion, not_calibrated
from smoothlink.fitting.choose import (
    LINEAR_FINAL_RIDGES,
    Fold,
    Point,
    Trials,
    climb,
    fits_at_once,
    make_fold,
    map_folds,
)
from smoothlink.fitting.holdout import embeds_once, validation_rows
from smoothlink.fitting.link import FittedLink, Link, decoder_passes
from smoothlink.fitting.settings import ChosenSettings, Problem, Report, Request, Settings
from smoothlink.machines.arrays import contiguous, to_host
from smoothlink.steps.calibrate import Calibration
from smoothlink.steps.embed import label_means
from smoothlink.steps.reference import reference_of
from smoothlink.steps.squared import squared, squared_parts
from smoothlink.weights import ArrayWeights

Array = NDArray[Any]

LOGISTIC_FLOPS = 2e12  # a pass that costs more is not tried by loss "auto"
MULTILABEL_FLOPS = 5e8  # the same where rows have several labels
MOST_PASSES = 25
USUAL_PASSES = 6  # until an SGD is stopped, to estimate the time that is left
LEAST_GAIN = 0.01  # of the criterion: a pass that brings less is idle
PATIENCE = 2  # idle passes in a row end the SGD
CHEAP_FLOPS, CHEAP_PATIENCE = 5e9, 5  # a pass that takes less than a second is idle only if it brings nothing
HOPE = 4  # more passes of the latest gain must beat the other loss
DEFAULT_PASSES = 5  # where no row can be held out
COMPARED_ROWS = 400  # held-out rows on which losses are compared: SGD on every fold would take long


class Validation(NamedTuple):
    """Settings that held-out rows have completed, and the calibration that they give."""

    settings: Settings
    calibrated: Calibrated
    criteria: dict[str, float]  # of each loss tried; smaller is better
    fitted: FittedLink | None = None  # that of the rows that are not held out, where the last fit goes on from it


class ValidationFit(NamedTuple):
    """One loss fitted on every fold, and the criterion of the held-out rows."""

    criterion: float
    Vs: list[Any]  # (s + 1, c), one per fold, arrays or in files
    passes: int


def validate(
    choice: ChosenSettings, request: Request, compared_rows: int = COMPARED_ROWS, report: Report | None = None
) -> Validation:
    """Fits the link at full size without the held-out rows, compares losses, and calibrates the best.

    Final ridges and losses are compared on as many folds as have `compared_rows` held-out rows; all of them calibrate.
    """
    problem, settings, state = choice.problem, choice.settings, choice.problem.state
    losses = candidate_losses(problem, settings, request)
    complete = request.loss != "auto" and (request.loss == "squared" or request.passes != "auto")
    held = validation_rows(problem.rows.w, request, problem.groups, problem.held)
    held = [] if complete and not request.calibrate else held
    if not held:
        passes = 0 if losses[0] == "squared" else DEFAULT_PASSES if request.passes == "auto" else int(request.passes)
        settings = with_loss(settings, losses[0], problem, request)
        return Validation(replace(settings, passes=passes), not_calibrated(problem.rows.c), {})
    most, folds = state.plan.held_rows, choice.folds
    if folds is None:
        fold = partial(make_fold, Y=problem.Y, embedder=settings.embedder, most=most, prepared=False)
        at_once = fits_at_once(problem.rows, state) and not state.saves
        folds = [fold(problem.rows_for(h), held=h, at_once=at_once) for h in held]
    trials = Trials(folds, settings, state)
    few = 1 + int(np.searchsorted(np.cumsum([len(h) for h in held]), compared_rows))
    fits_expected = {loss: expected_passes(loss, request) for loss in losses}
    work = Work(len(folds) + min(few, len(folds)) * sum(fits_expected.values()), report)
    once = embeds_once(problem.rows.w, problem.held)

    def link_of(fold: Fold) -> Link:
        link = trials.link(fold, settings)
        fold.fitted = fold.fitted if once else None  # only then it is the last one
        return link

    links = map_folds(link_of, folds)
    work.add(len(folds), f"{plural(len(folds), 'fold')} embedded")
    if request.final_ridge == "auto":
        some = replace(trials, folds=folds[:few])
        settings, Vs = choose_final_ridge(some, settings, keep=state.plan.label_group is None)
        links[:few] = [link._replace(V=V) for link, V in zip(links, Vs, strict=False)] or links[:few]
    fits: dict[str, ValidationFit] = {}
    for loss in losses:
        to_beat = min((f.criterion for f in fits.values()), default=None)
        tried = with_loss(settings, loss, problem, request)
        fits[loss] = fit_folds(folds[:few], links[:few], tried, problem, request, work, to_beat)
    settings = with_loss(settings, min(fits, key=lambda loss: fits[loss].criterion), problem, request)
    fit = fits[settings.loss]
    if few < len(folds):
        work.expected += len(folds) * fits_expected[settings.loss]
        fit = fit_folds(folds, links, settings, problem, request, work)
    settings = replace(settings, passes=fit.passes)
    for fold in folds:
        fold.links.clear()
    goes_on = folds[0].fitted is not None and state.folder is None and not problem.rows.remote
    if not goes_on:
        links = [link._replace(rows=None, sums=None) for link in links]  # most of the memory, and scores need neither
    calibrated = calibrate(
        held_out(folds, links, fit.Vs),
        np.clip(label_means(problem.rows), 0, 1),
        settings.loss,
        multiclass=problem.multiclass,
        aim=request.threshold_aim,
        maps=request.calibrate,
        most_kept=state.plan.kept_scores,
    )
    fitted = None
    if goes_on and folds[0].fitted is not None:
        fitted = FittedLink(folds[0].fitted, links[0], ArrayWeights(np.ascontiguousarray(to_host(fit.Vs[0]))))
    return Validation(
        settings,
        calibrated._replace(rows=sum(map(len, held))),
        {loss: f.criterion for loss, f in fits.items()},
        fitted,
    )


def choose_final_ridge(trials: Trials, settings: Settings, *, keep: bool) -> tuple[Settings, list[Any]]:
    """Returns the settings with the best final ridge near theirs, and V of each fold with it: none where the trials
    fitted some labels only, or V is not to be kept."""
    near = (settings.final_ridge * 10.0 ** (e / 2) for e in range(-3, 4))
    around = tuple(ridge for ridge in near if ridge >= LINEAR_FINAL_RIDGES[0])
    start: Point = (settings.ridge, settings.rank, settings.bandwidth, settings.final_ridge)
    kept: dict[Point, list[Any]] = {}
    lowest = np.inf

    def loss(point: Point) -> float:
        nonlocal lowest
        value, Vs = trials.fit(point)
        if value < lowest:
            lowest = value
            kept.clear()
            if keep and all(V.shape[1] == fold.train.c for V, fold in zip(Vs, trials.folds, strict=True)):
                kept[point] = Vs
        return value

    best = climb(loss, [*((v,) for v in start[:3]), around], start)
    return replace(settings, final_ridge=float(best.point[3])), kept.get(best.point, [])


def with_loss(settings: Settings, loss: str, problem: Problem, request: Request) -> Settings:
    """Returns the settings with a loss, and the softmax over few directions with a ridge of its own.

    Ridges are compared by the squared loss, whose curvature is 1. That of the softmax is p (1 - p), of 1,000 classes
    1/1,000 on average, so that the same ridge would weigh 1,000 times as much: of aloi's 50 directions 28 % of the test
    rows were wrong, and not 10.
    """
    settings = replace(settings, loss=loss)
    if loss != "softmax" or settings.kernel.name != "linear" or request.final_ridge != "auto":
        return settings
    p = np.clip(label_means(problem.rows), 0, 1)
    ridge = settings.final_ridge * float(np.mean(p * (1 - p)))
    return replace(settings, final_ridge=max(LINEAR_FINAL_RIDGES[0], ridge))


@dataclass
class Work:
    """Counts fits to one fold each, of which more or fewer than expected may be needed."""

    expected: int
    report: Report | None
    done: int = 0

    def add(self, count: int, words: str) -> None:
        self.done += count
        if self.report is not None:
            self.report(self.done / max(self.expected, self.done + 1), f"{plural(self.done, 'fit')}, {words}")


def expected_passes(loss: str, request: Request) -> int:
    """Returns how often a fold is fitted with a loss: once in closed form, or a pass of the SGD at a time."""
    return 1 if loss == "squared" else USUAL_PASSES if request.passes == "auto" else int(request.passes)


def candidate_losses(
    problem: Problem, settings: Settings, request: Request, affordable: float | None = None
) -> list[str]:
    """Returns the loss given, or squared and, where a pass over the rows is affordable, that of the SGD."""
    if request.loss != "auto":
        return [request.loss]
    sgd = ["softmax" if problem.multiclass else "logistic"]
    affordable = affordable_flops(multiclass=problem.multiclass) if affordable is None else affordable
    return ["squared", *(sgd if pass_flops(problem, settings) <= affordable and problem.state.plan.sgd else [])]


def affordable_flops(*, multiclass: bool) -> float:
    """Returns what a pass of the SGD may cost where loss "auto" tries it.

    Of eleven multilabel sets (results/defaults) the logistic loss was best on scene alone, which has six labels, and
    took a third of the time where labels are many.
    """
    return LOGISTIC_FLOPS if multiclass else MULTILABEL_FLOPS


def pass_flops(problem: Problem, settings: Settings) -> float:
    """Returns what a pass of the SGD costs, of a machine of ordinary speed."""
    rows, width = problem.rows, settings.rank if settings.kernel.name == "linear" else settings.features
    return 4.0 * rows.n * width * rows.c / rows.machine.speed


def held_out(folds: list[Fold], links: list[Link], Vs: list[Any]) -> list[HeldOut]:
    return [fold.held_out(link, V) for fold, link, V in zip(folds, links, Vs, strict=True)]


def fit_folds(
    folds: list[Fold],
    links: list[Link],
    settings: Settings,
    problem: Problem,
    request: Request,
    work: Work,
    to_beat: float | None = None,
) -> ValidationFit:
    """Returns the squared solution, or the best pass of an SGD that runs on all folds in step.

    An SGD that at its latest pace will not get below `to_beat` soon is given up.
    """

    def value(Vs: list[Any]) -> float:
        return criterion(held_out(folds, links, Vs), settings.loss, multiclass=problem.multiclass)[0]

    if settings.loss == "squared":
        Vs: list[Any] = [
            solve_fold(i, link, settings, problem) if link.V is None else link.V for i, link in enumerate(links)
        ]
        work.add(len(folds), "squared loss")
        return ValidationFit(value(Vs), Vs, 0)
    auto = request.passes == "auto"
    cheap = pass_flops(problem, settings) <= CHEAP_FLOPS
    progress = EarlyStopping(to_beat, *((0.0, CHEAP_PATIENCE) if cheap else (LEAST_GAIN, PATIENCE)))
    runs = [decoder_passes(link, settings) for link in links]
    best: list[Any] = []
    for _ in range(MOST_PASSES if auto else int(request.passes)):
        Vs = map_folds(lambda _, run: next(run), folds, runs)
        work.add(len(folds), f"{settings.loss} loss, pass {progress.passes + 1}")
        if progress.improves(value(Vs)) or not auto:
            best = [contiguous(V, copy=True) for V in Vs]
        if auto and progress.stops:
            break
    return (
        ValidationFit(progress.best, best, progress.best_pass)
        if auto
        else ValidationFit(progress.latest, best, progress.passes)
    )


@dataclass
class EarlyStopping:
    """The best pass of an SGD so far by its criterion, and whether more passes are worth it."""

    to_beat: float | None = None  # the criterion of another loss
    least_gain: float = LEAST_GAIN  # of a pass that is not idle
    patience: int = PATIENCE  # idle passes in a row
    best: float = np.inf
    best_pass: int = 0
    latest: float = np.inf
    passes: int = 0
    gain: float = 1.0  # of the latest pass, as a share of the criterion
    idle: int = 0  # passes in a row that brought too little

    def improves(self, value: float) -> bool:
        """Takes note of the criterion after one more pass; returns whether it is the best so far."""
        self.passes, self.latest = self.passes + 1, value
        better = value < self.best or self.passes == 1
        if better:
            self.gain = 1.0 if self.passes == 1 or self.best == 0 else 1 - value / self.best
            self.best, self.best_pass = value, self.passes
        else:
            self.gain = 0.0
        self.idle = self.idle + 1 if self.gain < self.least_gain or not better else 0
        return better

    @property
    def stops(self) -> bool:
        """Whether passes bring too little, or would not get below `to_beat` soon at the latest pace."""
        hopeless = self.to_beat is not None and self.passes > 1 and self.best * (1 - self.gain) ** HOPE > self.to_beat
        return self.idle == self.patience or hopeless


def solve_fold(number: int, link: Link, settings: Settings, problem: Problem) -> Any:
    """Returns the squared solution (s + 1, c): in memory, or where its targets are in a file, in a file too."""
    state = problem.state
    if state.plan.label_group is None:
        return squared(link.sums, settings.final_ridge, settings.smoothing)
    s, c = link.sums.targets.shape
    V = state.array(f"held{number}-decoder", (c, s))
    for labels, part in squared_parts(link.sums, settings.final_ridge, settings.smoothing):
        V[labels] = to_host(part).T
    return V.T


def saved_validation(choice: ChosenSettings, request: Request, report: Report | None = None) -> Validation:
    """Returns `validate`, or what an earlier run found."""
    state, saved = choice.problem.state, choice.problem.state.load("calibrate")
    if saved is not None:
        meta, arrays = saved
        maps = arrays["knots"], arrays["values"], meta["temperature"], tuple(meta["first"]), arrays.get("labels")
        calibration = Calibration(*maps)
        chosen = meta["threshold"], meta["reached"], meta["criterion"], meta["rows"], meta["metrics"]
        reference = reference_of(arrays, meta["reference"])
        calibrated = Calibrated(calibration, arrays["thresholds"], *chosen, reference)
        found = Validation(replace(choice.settings, **meta["settings"]), calibrated, meta["criteria"])
    else:
        found = validate(choice, request, report=report)
        settings = {name: getattr(found.settings, name) for name in ("final_ridge", "loss", "passes")}
        calibration, thresholds, threshold, reached, value, rows, metrics, reference = found.calibrated
        meta = {"settings": settings, "criterion": value, "rows": rows, "criteria": found.criteria, "metrics": metrics}
        meta |= {"threshold": threshold, "reached": reached}
        meta |= {"temperature": float(calibration.temperature), "first": list(calibration.top1)}
        arrays = {"knots": calibration.knots, "values": calibration.values, "thresholds": thresholds}
        arrays |= {} if calibration.labels is None else {"labels": calibration.labels}
        if reference is not None:
            arrays |= reference.arrays
        meta |= {"reference": None if reference is None else reference.numbers}
        state.save("calibrate", meta, **arrays)
    state.remove("held")  # what fits without the held-out rows saved
    return found
