"""What held-out rows say of a fit at full size: final ridge, loss, passes, calibration and thresholds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.choose import EVALUATED_PAIRS, Fold, Link, Point, add_scores, climb, cut, holdouts, trials_over
from smoothlink.fitting.options import Chosen, Options, Setup
from smoothlink.fitting.spread import Job, spread_sweeps
from smoothlink.machines.arrays import beside, contiguous, host, rows_at
from smoothlink.machines.cluster import ClusterRows
from smoothlink.machines.rows import stack
from smoothlink.steps.calibrate import Calibration, Firsts, Histogram, fit_temperature, no_calibration
from smoothlink.steps.descend import Descent, Run, sweeps
from smoothlink.steps.embed import label_means
from smoothlink.steps.fit import softmax_rows, squared, squared_parts
from smoothlink.steps.infer import f1_thresholds

Array = NDArray[Any]

LOGISTIC_FLOPS = 2e12  # a pass that costs more is not tried by loss "auto"
MOST_PASSES = 25
GAIN = 0.01  # of the criterion: a pass that brings less is idle
PATIENCE = 2  # idle passes in a row end the descent
HOPE = 4  # more passes of the latest gain must beat the other loss
DEFAULT_PASSES = 5  # where no row can be held out
COMPARED_ROWS = 400  # held-out rows on which losses are compared: a descent on every fold would take long
JUDGED_ROWS = 20_000  # held-out rows that calibrate
LABEL_BLOCK = 2048


class Verdict(NamedTuple):
    """What the held-out rows say."""

    chosen: Chosen
    calibration: Calibration
    thresholds: Array  # (c,) Algorithm 4's
    held_rows: int
    criteria: dict[str, float]  # of each loss tried; smaller is better


class HeldFit(NamedTuple):
    """One loss fitted on every fold, and how its held-out rows fared."""

    criterion: float
    calibration: Calibration
    Vs: list[Any]  # (s + 1, c), one a fold, arrays or in files
    passes: int


def judge(setup: Setup, options: Options, chosen: Chosen) -> Verdict:
    """Fits the link at full size without the held-out rows, compares losses, and calibrates the best."""
    losses = candidate_losses(setup, options)
    settled = options.loss != "auto" and (options.loss == "squared" or options.passes != "auto")
    held = [] if settled and not options.calibrate else holdouts(setup.rows.w, options)
    if not held:
        passes = 0 if losses[0] == "squared" else DEFAULT_PASSES if options.passes == "auto" else int(options.passes)
        return Verdict(
            chosen._replace(loss=losses[0], passes=passes), no_calibration(), np.full(setup.rows.c, 0.5), 0, {}
        )
    work = setup.work
    most = work.plan.judged_rows
    cuts = [cut(setup.rows, setup.Y, h, setup.stage, judged=most, prepared=False) for h in held]
    trials = trials_over(cuts, setup, options, setup.n_features, work)
    links = [trials.link(fold, chosen.ridge, chosen.rank, chosen.bandwidth) for fold in cuts]
    if options.final_ridge == "auto":
        around = tuple(chosen.final_ridge * 10.0 ** (e / 2) for e in range(-3, 4))
        start: Point = (chosen.ridge, chosen.rank, chosen.bandwidth, chosen.final_ridge)
        best = climb(trials.loss, [*((v,) for v in start[:3]), around], start)
        chosen = chosen._replace(final_ridge=float(best.point[3]))
    few = 1 + int(np.searchsorted(np.cumsum([len(h) for h in held]), COMPARED_ROWS))
    fits: dict[str, HeldFit] = {}
    for loss in losses:
        to_beat = min((f.criterion for f in fits.values()), default=None)
        fits[loss] = held_fit(loss, cuts[:few], links[:few], chosen, setup, options, to_beat)
    winner = min(fits, key=lambda loss: fits[loss].criterion)
    fit = fits[winner] if few >= len(cuts) else held_fit(winner, cuts, links, chosen, setup, options)
    chosen = chosen._replace(loss=winner, passes=fit.passes)
    calibration = fit.calibration if options.calibrate else no_calibration()
    thresholds, lifted = held_thresholds(cuts, links, fit.Vs, winner, calibration, setup)
    calibration = lifted if options.calibrate else calibration
    criteria = {loss: f.criterion for loss, f in fits.items()}
    return Verdict(chosen, calibration, thresholds, sum(map(len, held)), criteria)


def candidate_losses(setup: Setup, options: Options) -> list[str]:
    """The loss given, or squared and the descent where a pass over the rows is affordable."""
    if options.loss != "auto":
        return [options.loss]
    descent = "softmax" if setup.multiclass else "logistic"
    flops = 4.0 * setup.rows.n * setup.n_features * setup.rows.c / setup.rows.machine.speed
    return ["squared", descent] if flops <= LOGISTIC_FLOPS and setup.work.plan.descent else ["squared"]


def held_fit(
    loss: str,
    cuts: list[Fold],
    links: list[Link],
    chosen: Chosen,
    setup: Setup,
    options: Options,
    to_beat: float | None = None,
) -> HeldFit:
    """The squared solution, or the best pass of a descent that runs on all folds in step.

    A descent that at its latest pace will not get below `to_beat` soon is given up.
    """
    if loss == "squared":
        Vs: list[Any] = [held_squared(i, link, chosen, setup) for i, link in enumerate(links)]
        return HeldFit(*criterion(loss, cuts, links, Vs, setup), Vs, 0)
    most = MOST_PASSES if options.passes == "auto" else int(options.passes)
    runs = [descent(loss, link, chosen, setup, options) for link in links]
    best: HeldFit | None = None
    idle = 0
    for sweep in range(1, most + 1):
        Vs = [next(run) for run in runs]
        value, calibration = criterion(loss, cuts, links, Vs, setup)
        if options.passes != "auto" or best is None or value < best.criterion:
            gain = 1.0 if best is None or best.criterion == 0 else 1 - value / best.criterion
            best = HeldFit(value, calibration, [contiguous(V, copy=True) for V in Vs], sweep)
        else:
            gain = 0.0
        idle = idle + 1 if gain < GAIN else 0
        hopeless = to_beat is not None and sweep > 1 and best.criterion * (1 - gain) ** HOPE > to_beat
        if options.passes == "auto" and (idle == PATIENCE or hopeless):
            break
    assert best is not None
    return best


def held_squared(fold: int, link: Link, chosen: Chosen, setup: Setup) -> Any:
    """The squared solution (s + 1, c): in memory, or where its targets are in a file, in a file too."""
    if setup.work.plan.label_group is None:
        return squared(link.sums, chosen.final_ridge, setup.smoothing)
    s, c = link.sums.targets.shape
    V = setup.work.array(f"held{fold}-decoder", (c, s))
    for labels, part in squared_parts(link.sums, chosen.final_ridge, setup.smoothing):
        V[labels] = host(part).T
    return V.T


def job_for(link: Link, chosen: Chosen, setup: Setup, options: Options) -> Job:
    """What a descent is told beside its rows and sums."""
    knobs = Descent(options.learning_rate, options.momentum, options.decay, options.batch_rows)
    return Job(link.features, chosen.final_ridge, knobs, setup.smoothing, options.seed)


def descent(
    loss: str, link: Link, chosen: Chosen, setup: Setup, options: Options, run: Run | None = None
) -> Iterator[Array]:
    """V after each pass of the descent that the options ask for."""
    job = job_for(link, chosen, setup, options)
    if isinstance(link.rows, ClusterRows):
        return spread_sweeps(link.rows, link.sums, job, softmax=loss == "softmax", run=run)
    return sweeps(
        link.rows,
        link.features,
        link.sums,
        chosen.final_ridge,
        softmax=loss == "softmax",
        descent=job.descent,
        smoothing=setup.smoothing,
        seed=options.seed,
        run=run,
    )


def criterion(loss: str, cuts: list[Fold], links: list[Link], Vs: list[Any], setup: Setup) -> tuple[float, Calibration]:
    """Multilabel: the Brier score after monotone calibration. Multiclass: the log-loss at the best temperature."""
    if setup.multiclass:
        scores, labels, weights = held_classes(cuts, links, Vs)
        return fit_temperature(scores, labels, weights)
    histogram = Histogram(loss)
    for fold, link, V in zip(cuts, links, Vs, strict=True):
        count = max(100, EVALUATED_PAIRS // V.shape[1])
        Phi = link.features(link.held[:count])
        add_scores(histogram, Phi, V, fold.held_labels[:count], fold.held_weights[:count])
    return histogram.brier(), histogram.monotone()


def held_classes(cuts: list[Fold], links: list[Link], Vs: list[Any]) -> tuple[Array, Array, Array]:
    """Scores, classes and weights of held-out rows that have exactly one label."""
    scores, labels, weights = [], [], []
    for fold, link, V in zip(cuts, links, Vs, strict=True):
        count = max(100, EVALUATED_PAIRS // V.shape[1])
        single = np.flatnonzero(np.diff(fold.held_labels.indptr) == 1)[:count]
        scores.append(all_scores(link.features(rows_at(link.held, single)), V))
        labels.append(fold.held_labels.indices[fold.held_labels.indptr[single]])
        weights.append(fold.held_weights[single])
    return np.concatenate(scores), np.concatenate(labels), np.concatenate(weights)


def all_scores(Phi: Any, V: Any) -> Array:
    """Phi V (h, c) on the host, some labels at a time where V is in a file."""
    if hasattr(V, "ndim"):
        return host(Phi @ V)
    S = np.empty((len(Phi), V.shape[1]), np.float32)
    for start in range(0, V.shape[1], LABEL_BLOCK):
        S[:, start : start + LABEL_BLOCK] = host(Phi @ beside(Phi, V[:, start : start + LABEL_BLOCK]))
    return S


def held_thresholds(
    cuts: list[Fold], links: list[Link], Vs: list[Any], loss: str, calibration: Calibration, setup: Setup
) -> tuple[Array, Calibration]:
    """Algorithm 4 on held-out probabilities, in blocks of labels; softmax couples labels, so there all at once.

    Multilabel: the calibration with what the same rows say of their best labels too.
    """
    c, share = setup.rows.c, np.clip(label_means(setup.rows), 0, 1)
    most = max(100, EVALUATED_PAIRS // c) if setup.multiclass else JUDGED_ROWS
    pairs, rows = setup.work.plan.pairs, sum(min(most, len(link.held)) for link in links)
    width = c if setup.multiclass else LABEL_BLOCK if pairs is None else max(16, pairs // max(1, rows))
    Phis = [link.features(link.held[:most]) for link in links]
    weights = np.concatenate([fold.held_weights[:most] for fold in cuts])
    thresholds, firsts = np.empty(c), Firsts(len(weights))
    Y = sp.csc_array(stack([fold.held_labels[:most] for fold in cuts]))
    for start in range(0, c, width):
        labels = slice(start, min(c, start + width))
        S = np.concatenate([all_scores(Phi, beside(Phi, V[:, labels])) for Phi, V in zip(Phis, Vs, strict=True)])
        if setup.multiclass:
            Z = softmax_rows(S * np.float32(calibration.temperature))
        else:
            Z = calibration.probabilities(S, loss=loss)
            firsts.add(S, Y[:, labels].tocsr())
        thresholds[labels] = f1_thresholds(Z, share[labels], weights)
    return thresholds, calibration if setup.multiclass else firsts.lift(calibration, weights, loss=loss)
