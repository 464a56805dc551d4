"""What "auto" means: rank, ridges and bandwidth by coordinate descent on held-out rows, reusing every sum."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import plural
from smoothlink.fitting.calibration import HeldOut, add_scores, row_sizes, rows_scored
from smoothlink.fitting.checkpoint import FitState
from smoothlink.fitting.embedding import Embedded, Embedder, leading_coordinates
from smoothlink.fitting.holdout import FEW_ROWS, holdouts, validation_rows
from smoothlink.fitting.link import Link, random_features, saved_sums
from smoothlink.fitting.memory import FEW_ROWS_FEATURES, REMEMBERED, SEARCH_FEATURES, VALIDATED_LABELS
from smoothlink.fitting.settings import ChosenSettings, Problem, Report, Request, Settings
from smoothlink.machines.arrays import take_columns, take_rows, to_device_of, to_host
from smoothlink.machines.host_and_device import HOST
from smoothlink.machines.rows import Rows
from smoothlink.machines.threads import dense_product, map_in_threads
from smoothlink.solve import NEARLY_EXACT, ConjugateGradient, System
from smoothlink.steps.calibrate import Histogram
from smoothlink.steps.embed import label_means
from smoothlink.steps.squared import link_sums, squared

Array = NDArray[Any]
Value = float | int
Point = tuple[Value, ...]
R = TypeVar("R")

# The grids. The criterion is flat near its best, so coarse steps do; the final ridge is refined afterwards.
RIDGES = tuple(10.0 ** (e / 2) for e in range(-8, 6))  # 1e-4 .. 316
BANDWIDTHS = tuple(2.0**e for e in range(-3, 5))  # 1/8 .. 16
FINAL_RIDGES = tuple(10.0**e for e in range(-5, 2))  # 1e-5 .. 10; below, sums of random features are singular
LINEAR_FINAL_RIDGES = (1e-7, 1e-6, *FINAL_RIDGES)  # few directions need hardly any (decision 30)
START = {"ridge": 1.0, "bandwidth": 2.0, "final_ridge": 0.1}  # of the search, and where nothing can be held out

LEAST_RIDGE, LARGEST_RIDGE, PER_FEATURE = 1.0, 30.0, 4.0  # the last is times d / n
LEAST_START = 3.0  # where the search begins, at twice the rule: it found 3 to 316 on eight of nine sets (decision 41)

# Another ridge needs another embedding, most of what a trial of many rows costs; another rank or bandwidth does not. Of
# few rows embeddings are cheap, and bandwidths that suit a wrong ridge lead astray: on medical to a singular system.
DEAREST_LAST = (2, 1, 0)  # of the axes ridge, rank and bandwidth

SEARCH_TOLERANCE = 1e-2  # of conjugate gradients in the search
FOLD_WORK = 2e9  # operations of the embeddings of all folds: of few rows with many labels fewer folds are searched
ROWS_PER_CLASS, MOST_SEARCH_ROWS = 20, 20_000  # that are searched, where each row has one label
ROTATED_LABELS = 300  # up to which the rotation to eigenvectors costs nothing
NARROWER = 0.003  # of the loss, which a kernel half as wide may cost: more rows and features want a narrower one


class Climb(NamedTuple):
    """The best point of a search and all that was tried."""

    point: Point
    loss: float
    tried: dict[Point, float]


def climb(
    objective: Callable[[Point], float],
    axes: Sequence[Sequence[Value]],
    start: Point,
    report: Report | None = None,
    order: Sequence[int] | None = None,
) -> Climb:
    """Coordinate descent over a grid: from `start`, steps along each axis while they help, until none does.

    The last axis, the cheapest to move along, is followed after each step along another; the others come in turn, or in
    this `order`. `report` gets the estimated
    share of the work that is done after each trial, and how many there were.
    """
    tried: dict[Point, float] = {}
    last = len(axes) - 1
    pace = Pace(axes)

    def at(place: tuple[int, ...]) -> float:
        point = tuple(axis[i] for axis, i in zip(axes, place, strict=True))
        if point not in tried:
            began = time.perf_counter()
            tried[point] = objective(point)
            share = pace.share_after(place, tried[point], time.perf_counter() - began)
            if report is not None:
                report(share, plural(len(tried), "trial"))
        return tried[point]

    place = along(at, axes, tuple(nearest(axis, v) for axis, v in zip(axes, start, strict=True)), last)
    before: tuple[int, ...] = ()
    while place != before:
        before = place
        for a in range(last) if order is None else order:
            place = along(at, axes, place, a)
    return Climb(tuple(axis[i] for axis, i in zip(axes, place, strict=True)), at(place), tried)


def along(
    at: Callable[[tuple[int, ...]], float], axes: Sequence[Sequence[Value]], place: tuple[int, ...], a: int
) -> tuple[int, ...]:
    """Returns the best place along axis a, each place on an earlier axis taking the best of the last axis.

    A function of its own: a closure that calls itself would keep all that `at` needs until Python looks for cycles.
    """
    last = len(axes) - 1
    for step in (1, -1):
        began = place
        while 0 <= place[a] + step < len(axes[a]):
            there = (*place[:a], place[a] + step, *place[a + 1 :])
            there = along(at, axes, there, last) if a < last else there
            if at(there) >= at(place):
                break
            place = there
        if place != began:
            break
    return place


class Pace:
    """Seconds of the trials of a climb, by which the share that is done is estimated.

    The neighbours of the best point that were not tried are tried next, and a climb usually takes some steps along each
    axis. A step along the last axis is cheap, and each other step takes two of them.
    """

    USUAL_STEPS = 4  # along each axis but the last, on made data and scikit-learn's digits

    def __init__(self, axes: Sequence[Sequence[Value]]) -> None:
        self.sizes = [len(axis) for axis in axes]
        self.places: set[tuple[int, ...]] = set()
        self.best: tuple[float, tuple[int, ...]] | None = None
        self.seconds: dict[bool, list[float]] = {True: [], False: []}  # of steps along the last axis, and of others

    def share_after(self, place: tuple[int, ...], value: float, seconds: float) -> float:
        """Takes note of a trial; returns the share of the climb that is done."""
        heads = {known[:-1] for known in self.places}
        self.seconds[place[:-1] in heads].append(seconds)
        self.places.add(place)
        self.best = (value, place) if self.best is None else min(self.best, (value, place))
        heads.add(place[:-1])
        around = [self.neighbours(self.best[1], axis) for axis in range(len(self.sizes))]
        others = sum(there[:-1] not in heads for side in around[:-1] for there in side)
        along = sum(there not in self.places for there in around[-1])
        cheap, dear = (sum(taken) / max(1, len(taken)) for taken in (self.seconds[True], self.seconds[False]))
        spent = sum(map(sum, self.seconds.values()))
        usual = 1 + self.USUAL_STEPS * sum(size > 1 for size in self.sizes[:-1])
        left = max(others, usual - len(heads)) * (dear + 2 * cheap) + along * cheap
        return min(spent / max(spent + left, 1e-9), 0.99)  # what follows the last trial is part of it too

    def neighbours(self, place: tuple[int, ...], axis: int) -> list[tuple[int, ...]]:
        sides = (place[axis] - 1, place[axis] + 1)
        return [(*place[:axis], i, *place[axis + 1 :]) for i in sides if 0 <= i < self.sizes[axis]]


def nearest(axis: Sequence[Value], value: Value) -> int:
    """Returns the index of the grid value nearest in ratio."""
    return int(np.argmin([abs(np.log(max(v, 1e-300) / max(value, 1e-300))) for v in axis]))


@dataclass
class Fold:
    """A part of the rows to fit and a part held out, split before the embedding is fitted."""

    train: Rows
    held: Array  # numbers of the held-out rows
    held_labels: sp.csr_array
    held_weights: Array
    system: System | None
    embedded: dict[float, Any] = field(default_factory=dict)  # h (n, k) by ridge, of the last few
    links: dict[Point, Link] = field(default_factory=dict)  # the last one only: Gram matrices are large
    fitted: Embedded | None = None  # the last embedding at full size
    at_once: bool = False  # whether other folds may be fitted at the same time

    def held_out(self, link: Link, V: Any, labels: Array | None = None) -> HeldOut:
        """Returns the held-out rows as V scores them; V may be fitted to some labels only."""
        Y = self.held_labels if labels is None else self.held_labels[:, labels]

        def scores(part: slice, count: int) -> Array:
            if count not in link.held_features:
                link.held_features.clear()
                link.held_features[count] = link.features(link.held[:count])
            Phi = link.held_features[count]
            return to_host(dense_product(Phi, to_device_of(Phi, V[:, part])))

        return HeldOut(scores, Y, self.held_weights, link.held, row_sizes(self.train, self.held), link.frequencies)


def make_fold(
    rows: Rows,
    Y: Any,
    held: Array,
    embedder: Embedder,
    *,
    at_once: bool,
    most: int | None = None,
    prepared: bool = True,
) -> Fold:
    """Returns a fold that leaves the rows numbered `held` out, by weight 0; the first `most` of them are scored."""
    w = rows.w
    kept = w.copy()
    kept[held] = 0
    train, held = rows.weighted(kept), held[:most]
    system = embedder.prepare(train) if prepared else None
    return Fold(train, held, Y[held], w[held].astype(np.float64), system, at_once=at_once)


def fits_at_once(rows: Rows, state: FitState) -> bool:
    """Returns whether folds are fitted at the same time, one on each thread: where rows are few and in memory.

    Systems of a thousand columns leave the second of two threads idle for a third of the time, and what is between them
    runs on one. Of many rows the products inside a fold have all threads, and there is memory for one fold at a time.
    """
    return rows.n <= FEW_ROWS and rows.in_memory and rows.machine is HOST and state.plan.memory is None


def map_folds(f: Callable[..., R], folds: list[Fold], *more: Sequence[Any]) -> list[R]:
    """Returns f of every fold, and of what else belongs to it, by threads where the folds are made for it."""
    items = list(zip(folds, *more, strict=True))
    if all(fold.at_once for fold in folds):
        return map_in_threads(lambda item: f(*item), items)
    return [f(*item) for item in items]


@dataclass(frozen=True)
class Trials:
    """Squared-loss fits on several folds; settings that share an embedding or a Gram matrix share it."""

    folds: list[Fold]
    settings: Settings  # those that are not searched
    state: FitState | None = None  # of fits at full size; None where few rows are fitted
    most_labels: int = VALIDATED_LABELS  # by which settings are compared; no others are fitted where rows are few

    def loss(self, point: Point) -> float:
        """Returns the calibrated Brier score of held-out rows at (ridge, rank, bandwidth, final ridge)."""
        return self.fit(point)[0]

    def fit(self, point: Point) -> tuple[float, list[Any]]:
        """Returns `loss` and V of each fold, for the labels of its link by which settings are compared."""
        settings, histogram = self.at(point), Histogram("squared")

        def fitted(fold: Fold) -> tuple[Any, HeldOut]:
            link = self.link(fold, settings)
            labels, sums = link.labels, link.sums
            if sums.targets.shape[1] > len(labels):
                sums = sums._replace(targets=take_columns(sums.targets, labels))
            V = squared(sums, settings.final_ridge, settings.smoothing)
            return V, fold.held_out(link, V, labels if len(labels) < link.rows.c else None)

        found = map_folds(fitted, self.folds)
        for V, part in found:
            add_scores(histogram, part, rows_scored(V.shape[1]))
        return histogram.brier(), [V for V, _ in found]

    def at(self, point: Point) -> Settings:
        ridge, rank, bandwidth, final = point
        return replace(
            self.settings, ridge=float(ridge), rank=int(rank), bandwidth=float(bandwidth), final_ridge=float(final)
        )

    def link(self, fold: Fold, settings: Settings) -> Link:
        """Returns features, and their sums over the training part of a fold."""
        key = settings.ridge, settings.rank, settings.bandwidth
        if key in fold.links:
            return fold.links[key]
        name = f"held{next(i for i, other in enumerate(self.folds) if other is fold)}"
        if self.state is not None and settings.ridge not in fold.embedded:
            fold.fitted = settings.embedder.fit_saved(self.state, name, fold.train, *key[:2], settings.normalize)
            H = fold.fitted.H
        else:
            H = fold.embedded.pop(settings.ridge, None)
            H = settings.embedder.fit(fold.train, fold.system, settings.ridge).H if H is None else H
            fold.embedded[settings.ridge] = H  # the last one used is the last to go
            if len(fold.embedded) > REMEMBERED:
                fold.embedded.pop(next(iter(fold.embedded)))
            H = leading_coordinates(H, settings.rank, settings.normalize)
        rows = fold.train.with_inputs(H)
        features = random_features(rows, settings)
        fold.links.clear()
        frequencies = np.clip(label_means(rows), 0, 1)
        labels = validated_labels(frequencies, self.most_labels)
        if self.state is not None:
            sums = saved_sums(self.state, name, rows, features)
        else:
            sums = link_sums(rows, features, labels=labels if len(labels) < rows.c else None)
        held = rows.to_device(take_rows(rows.table, fold.held))
        fold.links[key] = Link(rows, features, sums, held, labels, {}, frequencies)
        return fold.links[key]

    def embedded_folds(self, problem: Problem, settings: Settings, ridge: float, count: int) -> list[Fold] | None:
        """Returns the folds with nothing but their embeddings, where fits at full size may go on from them: there are
        `count` of them, all rows are in them, and the embedding is that of `settings`, in whatever coordinates."""
        whole = all(fold.train.n == problem.rows.n and ridge in fold.embedded for fold in self.folds)
        same = self.settings.embedder.solver is settings.embedder.solver and problem.state.plan.memory is None
        if not (whole and same and len(self.folds) == count) or problem.rows.remote:
            return None
        return [replace(fold, system=None, embedded={ridge: fold.embedded[ridge]}, links={}) for fold in self.folds]


def validated_labels(counts: Array, most: int = VALIDATED_LABELS) -> Array:
    """Returns the labels by which settings are compared: all, or of very many a few of every frequency.

    The squared loss fits each label on its own, so the others need not be fitted at all.
    """
    by_frequency = np.argsort(-counts, kind="stable")
    return np.sort(by_frequency[:: -(-len(counts) // most)])


def choose(
    problem: Problem,
    settings: Settings,
    request: Request,
    near: Settings | None = None,
    report: Report | None = None,
) -> ChosenSettings:
    """Returns the settings with ridge, rank, bandwidth and final ridge as given, or the best of a climb.

    `settings` has everything that needs no held-out rows; `near`, where it is given, is where the climb begins.
    """
    no_ridge = settings.embedder.classifier is not None or settings.embedder.embedding == "none"
    ranks, linear = candidate_ranks(problem.rows.c, settings.embedder, request), settings.kernel.name == "linear"
    axes: dict[str, tuple[Value, ...]] = {
        "ridge": (1.0,) if no_ridge else grid(request.ridge, RIDGES),
        "rank": ranks,
        "bandwidth": (1.0,) if linear else grid(request.bandwidth, BANDWIDTHS),
        "final_ridge": grid(request.final_ridge, LINEAR_FINAL_RIDGES if linear else FINAL_RIDGES),
    }
    chosen_by = {name: "given" if len(axis) == 1 else "held-out rows" for name, axis in axes.items()}
    if request.rank in ("auto", "adaptive") and len(ranks) == 1:
        chosen_by["rank"] = "every direction" if request.rank == "auto" else "adaptive"
    ridge = float(np.clip(2 * rule_of_thumb(problem.rows), LEAST_START, LARGEST_RIDGE))
    start = replace(settings, ridge=ridge, rank=ranks[-1]) if near is None else near
    begin: Point = (start.ridge, start.rank, start.bandwidth, start.final_ridge)
    point = tuple(axis[nearest(axis, v)] for axis, v in zip(axes.values(), begin, strict=True))
    criterion, folds = np.inf, None
    if any(len(axis) > 1 for axis in axes.values()):
        trials = search_trials(problem, settings, request)
        if trials is not None:  # else there are too few rows to hold any out
            many = np.count_nonzero(problem.rows.w) > FEW_ROWS
            found = climb(trials.loss, list(axes.values()), begin, report, DEAREST_LAST if many else None)
            point, criterion = narrower(found), found.loss
            count = len(validation_rows(problem.rows.w, request, problem.groups)) if problem.held is None else 0
            folds = trials.embedded_folds(problem, settings, float(point[0]), count)
    return ChosenSettings(problem, Trials([], settings).at(point), chosen_by, criterion, folds)


def rule_of_thumb(rows: Rows) -> float:
    """Returns a ridge by the shape of X: where features are many the mean diagonal of X'X is small, and the ridge a
    larger multiple of it."""
    n = max(1, int(np.count_nonzero(rows.w)))
    return float(np.clip(PER_FEATURE * rows.d / n, LEAST_RIDGE, LARGEST_RIDGE))


def narrower(found: Climb) -> Point:
    """Returns the best point, or that of a kernel half as wide where it is hardly worse."""
    ridge, rank, bandwidth, _ = found.point
    half = {point: loss for point, loss in found.tried.items() if point[:3] == (ridge, rank, bandwidth / 2)}
    best = min(half, key=lambda point: half[point], default=found.point)
    return best if found.tried[best] <= (1 + NARROWER) * found.loss else found.point


def grid(value: Any, values: tuple[Value, ...]) -> tuple[Value, ...]:
    return values if value == "auto" else (float(value),)


RANKS = (32, 64, 128, 256, 512, 1024, 2048)
ALL_DIRECTIONS = 1024  # labels up to which rank "auto" keeps every direction, and directions that it considers of more


def candidate_ranks(c: int, embedder: Embedder, request: Request) -> tuple[int, ...]:
    """Returns the ranks to choose among, ascending; the largest is the embedder's."""
    several = request.rank == "auto" and c > ALL_DIRECTIONS
    several = several and embedder.embedding not in ("none", "per_label")
    return (*(k for k in RANKS if several and k < embedder.rank), embedder.rank)


def search_trials(
    problem: Problem, settings: Settings, request: Request, most_folds: int | None = None
) -> Trials | None:
    """Returns trials on as many rows as the plan says and `most_folds` folds, with fewer features."""
    rows, Y, groups, plan, sample = problem.rows, problem.Y, problem.groups, problem.state.plan, None
    most = plan.search_rows
    if problem.multiclass and plan.memory is None:  # a class of few rows says little
        most = max(most, min(MOST_SEARCH_ROWS, ROWS_PER_CLASS * rows.c))
    if rows.n > most or rows.remote:
        sample = rows.sample(most, request.seed)
        rows, Y = rows.take(sample).compact(), Y[sample]
        groups = None if groups is None else groups[sample]
    many = np.count_nonzero(rows.w) > FEW_ROWS
    settings = replace(settings, features=min(settings.features, SEARCH_FEATURES if many else FEW_ROWS_FEATURES))
    if isinstance(settings.embedder.solver, ConjugateGradient):
        settings = with_tolerance(settings, SEARCH_TOLERANCE)
    if rows.c > ROTATED_LABELS and settings.kernel.name != "laplacian":
        settings = replace(settings, embedder=without_rotation(settings.embedder, rows.c))
    held_out = holdouts(rows.w, request, groups)[: most_folds or max(1, round(FOLD_WORK / min(rows.n, rows.c) ** 3))]
    at_once = fits_at_once(rows, problem.state)
    folds = [
        make_fold(
            rows if problem.regrown is None else problem.rows_for(held, sample),
            *(Y, held, settings.embedder),
            at_once=at_once,
        )
        for held in held_out
    ]
    return Trials(folds, settings) if folds else None


def without_rotation(embedder: Embedder, c: int) -> Embedder:
    """Returns an embedder with other coordinates, where it keeps all c directions: kernels depend on distances alone
    (but for the laplacian), which no rotation changes."""
    chosen = embedder.adaptive or embedder.share is not None or embedder.embedding != "randomized"
    return embedder if chosen or embedder.rank < c else replace(embedder, embedding="per_label")


def with_tolerance(settings: Settings, tolerance: float) -> Settings:
    """Returns the settings with conjugate gradients that stop earlier, unless they are to be nearly exact."""
    solver: Any = settings.embedder.solver
    solver = solver if solver.tol <= NEARLY_EXACT else replace(solver, tol=tolerance)
    return replace(settings, embedder=replace(settings.embedder, solver=solver))
