"""Ridge regression onto every label, without an embedding: where rows or features are few it is one factorisation.

The embedding has at most ALL_DIRECTIONS directions. Where labels, rows and features are all more, what X predicts of
Y does not fit into them, and labels of a row or two are lost first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.calibration import HeldOut, add_scores, criterion, row_sizes, rows_scored
from smoothlink.fitting.choose import (
    ALL_DIRECTIONS,
    RIDGES,
    Point,
    Trials,
    climb,
    grid,
    make_fold,
)
from smoothlink.fitting.holdout import holdouts
from smoothlink.fitting.link import label_totals
from smoothlink.fitting.memory import SEARCH_FEATURES
from smoothlink.fitting.quick import RANK
from smoothlink.fitting.settings import ChosenSettings, Problem, Report, Request, Settings
from smoothlink.fitting.train_jointly import LOOSE_SOLVER
from smoothlink.joint.joint_training import sparse_weights
from smoothlink.machines.host_and_device import HOST
from smoothlink.machines.matrices import Sparse
from smoothlink.machines.rows import Rows
from smoothlink.model import Model
from smoothlink.solve import Cholesky, DualCholesky, System
from smoothlink.solve.leave_out import DualRidge, PrimalRidge, fitted_ridge, held_out_smoother
from smoothlink.steps.calibrate import Histogram, no_calibration
from smoothlink.steps.featurize import Features, parse_kernel
from smoothlink.steps.squared import CERTAIN
from smoothlink.weights import ArrayWeights

Array = NDArray[Any]

MOST_ROWS = 10_000  # or features: the factor has their square, 800 MB
DENSE_WEIGHTS = 50_000_000  # of dense X, where all weights are kept
MOST_WEIGHTS = 8_000_000  # of sparse X: 64 MB. On 5,600 library titles 6 million of 300 lost nothing on held-out rows
BLOCK = 256  # labels whose weights (d, m) are made together
FREE = ("rank", "kernel", "bandwidth", "n_features", "final_ridge", "loss", "passes", "training", "solver")


class HeldOutRidge(NamedTuple):
    """What held-out rows say of the ridge onto all labels."""

    ridge: float
    criterion: float  # smaller is better; inf where nothing was held out
    held: list[Array]  # numbers of the held-out rows of each fold
    smoothers: list[Array]  # (h, n) of each fold: times Y, their scores by fits without them
    fitted: DualRidge | None = None  # that of the ridge, if its memory is its own

    def scored(self, problem: Problem, labels: Array | None = None) -> list[HeldOut]:
        """Returns the held-out rows with their scores, of all labels or of some."""
        Y = problem.Y if labels is None else problem.Y[:, labels]
        return [held_out(Y, problem.rows, *part) for part in zip(self.held, self.smoothers, strict=True)]


def held_out(Y: sp.csr_array, rows: Rows, held: Array, smoother: Array) -> HeldOut:
    """Returns held-out rows whose scores are smoother (h, n) times Y."""
    by_label, across = sp.csc_array(Y), np.ascontiguousarray(smoother.T)

    def scores(labels: slice, count: int) -> Array:
        return np.ascontiguousarray((by_label[:, labels].T @ across[:, :count]).T, np.float32)

    return HeldOut(scores, Y[held], rows.w[held].astype(np.float64), sizes=row_sizes(rows, held))


def suits_full_rank(problem: Problem, request: Request) -> bool:
    """Returns whether the ridge onto all labels fits this machine, and finds more than the directions of an embedding.

    Everything that only the embedding and the link have must be left open.
    """
    rows = problem.rows
    given = any(getattr(request, name) != "auto" for name in FREE) or request.embedding != "randomized"
    given |= request.input_kernel not in (None, "auto") or request.trees is True
    given |= request.normalize_embedding or request.label_smoothing != 1
    if (
        given
        or rows.remote
        or rows.machine is not HOST
        or request.memory is not None
        or request.updatable  # the sums of a link can be added to
        or problem.label_scale is not None
    ):
        return False
    n, d, c = int(np.count_nonzero(rows.w)), rows.d - 1, rows.c
    fits = min(rows.n, d) <= MOST_ROWS and (isinstance(rows.blocks[0].X, Sparse) or d * c <= DENSE_WEIGHTS)
    return fits and min(n, d, c) > ALL_DIRECTIONS


def choose_ridge(
    problem: Problem, system: System, settings: Settings, request: Request, report: Report | None = None
) -> HeldOutRidge:
    """Returns the ridge that predicts held-out rows best, with what it predicts; one factor of all rows per trial.

    Where the effort is quick, the ridge of `settings` is the only trial.
    """
    rows = problem.rows
    held = holdouts(rows.w, request, problem.groups)
    best = HeldOutRidge(settings.ridge, np.inf, [], [])

    def loss(point: Point) -> float:
        nonlocal best
        fitted = fitted_ridge(rows, system.at(float(point[0])))
        found = HeldOutRidge(float(point[0]), np.inf, held, [held_out_smoother(fitted, h) for h in held])
        value = criterion(found.scored(problem), "squared", multiclass=problem.multiclass)[0]
        if value < best.criterion:
            best = found._replace(criterion=value, fitted=fitted if isinstance(fitted, DualRidge) else None)
        return value

    ridges = (settings.ridge,) if request.effort == "quick" else grid(request.ridge, RIDGES[::2])
    if held:
        climb(loss, [ridges], (settings.ridge,), report)
    return best


def full_rank_solver(rows: Rows) -> Cholesky | DualCholesky:
    """Returns the solver that factors the smaller of X'X and XX'."""
    return Cholesky() if rows.d <= rows.n else DualCholesky()


class LinkTrial(NamedTuple):
    """A link with quick settings on the first held-out rows."""

    loss: float  # calibrated Brier score
    labels: Array  # over these


def try_link(problem: Problem, settings: Settings, request: Request) -> LinkTrial | None:
    """Returns what the first held-out rows say of a link with these settings and few directions and features."""
    held = next(iter(holdouts(problem.rows.w, request, problem.groups)), None)
    if held is None:
        return None
    rank = min(RANK, settings.embedder.rank)
    embedder = replace(settings.embedder, rank=rank, solver=LOOSE_SOLVER)  # a second factor would double the memory
    settings = replace(settings, rank=rank, embedder=embedder, features=min(settings.features, SEARCH_FEATURES))
    trials = Trials([make_fold(problem.rows, problem.Y, held, embedder, at_once=False)], settings)
    loss = trials.loss((settings.ridge, rank, settings.bandwidth, settings.final_ridge))
    return LinkTrial(loss, trials.link(trials.folds[0], settings).labels)


def prefers_link(problem: Problem, link: LinkTrial, found: HeldOutRidge) -> bool:
    """Returns whether the first held-out rows prefer the link to the ridge onto all labels."""
    histogram = Histogram("squared")
    add_scores(histogram, found.scored(problem, link.labels)[0], rows_scored(len(link.labels)))
    return link.loss < histogram.brier()


def full_rank_choice(problem: Problem, settings: Settings, found: HeldOutRidge, request: Request) -> ChosenSettings:
    """Returns the settings of the ridge onto all labels, for the summary."""
    quick = request.effort == "quick"
    rows = problem.rows
    settings = replace(
        settings,
        embedder=replace(settings.embedder, solver=full_rank_solver(rows)),
        ridge=found.ridge,
        rank=min(int(np.count_nonzero(rows.w)), rows.d - 1, rows.c),
        kernel=parse_kernel("linear"),
        bandwidth=1.0,
        final_ridge=0.0,
        loss="squared",
        passes=0,
    )
    ridge = "given" if request.ridge != "auto" else "rule of thumb" if quick else "held-out rows"
    rank = "full rank" if quick else "full rank, held-out rows"
    return ChosenSettings(problem, settings, {"rank": rank, "ridge": ridge, "kernel": "full rank"}, found.criterion)


def fit_full_rank(problem: Problem, ridge: PrimalRidge | DualRidge, most: int = MOST_WEIGHTS) -> Model:
    """Returns the model, not yet calibrated, of the ridge onto all labels: weights per label and feature alone.

    Where X is sparse about `most` of them are kept, the largest.
    """
    rows, totals, Y = problem.rows, label_totals(problem.rows), sp.csc_array(problem.Y)
    blocks = np.array_split(np.arange(rows.c), -(-rows.c // BLOCK))
    D = None
    if isinstance(rows.blocks[0].X, Sparse):
        least, kept, intercepts = least_weight(ridge, Y, most), [], np.empty(rows.c, np.float32)
        for labels in blocks:
            B = ridge.label_weights(Y[:, labels])
            intercepts[labels], B[-1] = B[-1], 0
            kept.append(sp.csc_array(np.where(np.abs(B) > least, B, np.float32(0))))
        D = sparse_weights(sp.csr_array(sp.hstack(kept, format="csr")))
        V = np.stack([np.zeros_like(intercepts), intercepts])
    else:
        V = np.concatenate([ridge.label_weights(Y[:, labels]) for labels in blocks], axis=1)
    V[-1, (totals["counts"] > 0) & (totals["counts"] >= (1 - 1e-6) * totals["total"])] += CERTAIN
    return Model(
        scaling=problem.scaling,
        input_features=None,
        W=None if D is None else ArrayWeights(np.zeros((rows.d, 1), np.float32)),
        classifier=None,
        normalize=False,
        features=Features(np.zeros((len(V) - 1, 0), np.float32), np.zeros(0, np.float32)),
        V=ArrayWeights(V),
        loss="squared",
        multiclass=problem.multiclass,
        calibration=no_calibration(),
        thresholds=np.full(rows.c, 0.5),
        sparse_weights=D,
        **totals,
    )


def least_weight(ridge: PrimalRidge | DualRidge, Y: sp.csc_array, most: int) -> float:
    """Returns the size above which weights are kept so that about `most` are, by the weights of some labels."""
    c = Y.shape[1]
    if (ridge.rows.d - 1) * c <= most:
        return 0.0
    some = np.arange(0, c, -(-c // BLOCK))
    sizes = np.abs(ridge.label_weights(Y[:, some])[:-1]).ravel()
    kept = int(most * len(some) / c)
    return float(np.partition(sizes, len(sizes) - kept)[len(sizes) - kept])
