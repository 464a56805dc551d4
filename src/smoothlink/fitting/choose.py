"""What "auto" means: rank, ridges and bandwidth by coordinate descent on held-out rows, reusing every sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.checkpoint import Work
from smoothlink.fitting.first_stage import FirstStage, shaped
from smoothlink.fitting.options import Chosen, Options, Setup
from smoothlink.machines.arrays import beside, columns, host, rows_at
from smoothlink.machines.cluster import ClusterRows
from smoothlink.machines.rows import Rows, folds
from smoothlink.solve import ConjugateGradient, System
from smoothlink.steps.calibrate import Histogram
from smoothlink.steps.embed import label_counts
from smoothlink.steps.featurize import Features, Kernel, draw_features, median_squared_distance
from smoothlink.steps.fit import LinkSums, Smoothing, link_sums, squared

Array = NDArray[Any]
Value = float | int
Point = tuple[Value, ...]

# The grids. The criterion is flat near its best, so coarse steps do; the final ridge is refined afterwards.
RIDGES = tuple(10.0 ** (e / 2) for e in range(-8, 6))  # 1e-4 .. 316
BANDWIDTHS = tuple(2.0**e for e in range(-3, 5))  # 1/8 .. 16
FINAL_RIDGES = tuple(10.0**e for e in range(-5, 2))  # 1e-5 .. 10
RANKS = (32, 64, 128, 256, 512, 1024, 2048)

SEARCH_FEATURES = 1000
REMEMBERED = 6  # embeddings of a fold, by ridge: a climb comes back to its neighbours only
SEARCH_TOL = 1e-2  # of conjugate gradients there
HELD_ROWS = 900  # small data sets take several folds until this many rows have been held out
FEW_ROWS = 2000  # up to here every row is held out once
JUDGED_LABELS = 4000
EVALUATED_PAIRS = 20_000_000  # of held-out rows and labels: enough to tell settings apart
PAIRS_AT_A_TIME = 1 << 20  # whose scores are looked at together


class Climb(NamedTuple):
    """The best point of a search and all that was tried."""

    point: Point
    loss: float
    tried: dict[Point, float]


def climb(objective: Callable[[Point], float], axes: Sequence[Sequence[Value]], start: Point) -> Climb:
    """Coordinate descent over a grid: from `start`, steps along each axis while they help, until none does.

    The last axis, the cheapest to move along, is followed after each step along another.
    """
    tried: dict[Point, float] = {}
    last = len(axes) - 1

    def at(place: tuple[int, ...]) -> float:
        point = tuple(axis[i] for axis, i in zip(axes, place, strict=True))
        if point not in tried:
            tried[point] = objective(point)
        return tried[point]

    def along(place: tuple[int, ...], a: int) -> tuple[int, ...]:
        for step in (1, -1):
            began = place
            while 0 <= place[a] + step < len(axes[a]):
                there = (*place[:a], place[a] + step, *place[a + 1 :])
                there = along(there, last) if a < last else there
                if at(there) >= at(place):
                    break
                place = there
            if place != began:
                break
        return place

    place = along(tuple(nearest(axis, v) for axis, v in zip(axes, start, strict=True)), last)
    before: tuple[int, ...] = ()
    while place != before:
        before = place
        for a in range(last):
            place = along(place, a)
    return Climb(tuple(axis[i] for axis, i in zip(axes, place, strict=True)), at(place), tried)


def nearest(axis: Sequence[Value], value: Value) -> int:
    """The index of the grid value nearest in ratio."""
    return int(np.argmin([abs(np.log(max(v, 1e-300) / max(value, 1e-300))) for v in axis]))


@dataclass
class Fold:
    """One cut of the rows into a part to fit and a part held out, cut before the embedding is fitted."""

    train: Rows
    held: Array  # numbers of the held-out rows
    held_labels: sp.csr_array
    held_weights: Array
    system: System | None
    embedded: dict[float, Any] = field(default_factory=dict)  # h (n, k) by ridge, of the last few
    links: dict[Point, Link] = field(default_factory=dict)  # the last one only: Gram matrices are large


class Link(NamedTuple):
    """Random features and their sums for one embedding and bandwidth."""

    rows: Rows  # whose inputs are embeddings
    features: Features
    sums: LinkSums
    held: Any  # (h, k) embeddings of the held-out rows
    judged: Any = None  # numbers of the labels that settings are judged by


def cut(
    rows: Rows, Y: sp.csr_array, held: Array, stage: FirstStage, *, judged: int | None = None, prepared: bool = True
) -> Fold:
    """A fold that leaves the rows numbered `held` out, by giving them weight 0; `judged` of them are looked at."""
    w = rows.w
    kept = w.copy()
    kept[held] = 0
    train, held = rows.weighted(kept), held[:judged]
    system = stage.prepare(train) if prepared else None
    return Fold(train, held, Y[held], w[held].astype(np.float64), system)


@dataclass(frozen=True)
class Trials:
    """Squared-loss fits of the link on several folds; points that share an embedding or a Gram matrix share it."""

    folds: list[Fold]
    stage: FirstStage
    kernel: Kernel
    n_features: int
    normalize: bool
    smoothing: Smoothing
    seed: int
    work: Work | None = None  # of fits at full size; None where few rows are looked at

    def loss(self, point: Point) -> float:
        """The calibrated Brier score a held-out row at (ridge, rank, bandwidth, final ridge)."""
        histogram = Histogram("squared")
        for fold in self.folds:
            link = self.link(fold, *point[:3])
            judged, sums = link.judged, link.sums
            if sums.targets.shape[1] > len(judged):
                sums = sums._replace(targets=columns(sums.targets, judged))
            V = squared(sums, float(point[3]), self.smoothing)
            count = max(100, EVALUATED_PAIRS // len(judged))
            Y = fold.held_labels[:count]
            some = judged if len(judged) < Y.shape[1] else None
            add_scores(histogram, link.features(link.held[:count]), V, Y, fold.held_weights[:count], some)
        return histogram.brier()

    def link(self, fold: Fold, ridge: Value, rank: Value, bandwidth: Value) -> Link:
        """Features, their sums over the training part, and the embedding of the held-out part."""
        ridge, key = float(ridge), (ridge, rank, bandwidth)
        if key in fold.links:
            return fold.links[key]
        name = f"held{next(i for i, other in enumerate(self.folds) if other is fold)}"
        if self.work is not None:
            H = self.stage.fit_in(self.work, name, fold.train, ridge, int(rank), self.normalize).H
        else:
            H = fold.embedded.pop(ridge, None)
            H = self.stage.fit(fold.train, fold.system, ridge).H if H is None else H
            fold.embedded[ridge] = H  # the last one asked for is the last to go
            if len(fold.embedded) > REMEMBERED:
                fold.embedded.pop(next(iter(fold.embedded)))
            H = shaped(H, int(rank), self.normalize)
        rows = fold.train.with_inputs(H)
        features = seeded_features(rows, H, self.kernel, self.n_features, float(bandwidth), self.seed)
        fold.links.clear()
        judged = judged_labels(rows.sum(label_counts, out=(rows.c,), dtype=np.float64))
        if self.work is not None:
            sums = sums_in(self.work, name, rows, features)
        else:
            sums = link_sums(rows, features, labels=judged if len(judged) < rows.c else None)
        fold.links[key] = Link(rows, features, sums, rows_at(rows.table, fold.held), judged)
        return fold.links[key]


def sums_in(work: Work, name: str, rows: Rows, features: Features) -> LinkSums:
    """`link_sums` at full size: from a state put by, and into a file, where work says so."""
    work.tidy()
    if isinstance(rows, ClusterRows) and rows.cluster.shards is not None:  # workers sum what belongs to their labels
        return link_sums(rows, features, labels=np.zeros(0, np.int64))
    group, saved = work.plan.label_group, work.sums(name)
    into = None if group is None else work.array(f"{name}-targets", (rows.c, features.width(rows.d)))
    found = link_sums(rows, features, into=into, group=group, saved=saved)
    work.tidy()
    return found


def add_scores(histogram: Histogram, Phi: Any, V: Any, Y: sp.csr_array, w: Array, labels: Array | None = None) -> None:
    """Adds the scores Phi V of held-out rows, or of those with V for some labels, a few million pairs at a time."""
    step = max(1, PAIRS_AT_A_TIME // max(1, len(Phi)))
    Y = Y if labels is None else Y[:, labels]
    if V.shape[1] <= step:
        histogram.add(host(Phi @ beside(Phi, V[:, :])), Y, w)
        return
    by_label = Y.tocsc()
    for start in range(0, V.shape[1], step):
        part = slice(start, min(V.shape[1], start + step))
        histogram.add(host(Phi @ beside(Phi, V[:, part])), by_label[:, part].tocsr(), w)


class Choice(NamedTuple):
    """Settings, what settled them, and what held-out rows say of them."""

    chosen: Chosen
    how: dict[str, str]
    criterion: float  # inf where nothing was held out
    point: Point


def choose(setup: Setup, options: Options, near: Choice | None = None) -> Choice:
    """Ridge, rank, bandwidth and final ridge: the given ones, or the best of a climb, from another that may be near."""
    unridged = setup.stage.classifier is not None or setup.stage.embedding == "none"
    axes: list[tuple[Value, ...]] = [
        (1.0,) if unridged else axis(options.ridge, RIDGES),
        setup.ranks,
        (1.0,) if setup.kernel.name == "linear" else axis(options.bandwidth, BANDWIDTHS),
        axis(options.final_ridge, FINAL_RIDGES),
    ]
    names = ("ridge", "rank", "bandwidth", "final_ridge")
    how = {name: "given" if len(a) == 1 else "held-out rows" for name, a in zip(names, axes, strict=True)}
    if options.rank in ("auto", "adaptive") and len(setup.ranks) == 1:
        how["rank"] = "every direction" if options.rank == "auto" else "adaptive"
    point: Point = tuple(a[0] for a in axes)
    criterion = np.inf
    if any(len(a) > 1 for a in axes):
        trials = search_trials(setup, options)
        start: Point = (1.0, setup.ranks[-1], 2.0, 1e-1) if near is None else near.point
        if trials is None:  # too few rows to hold any out
            point = tuple(a[nearest(a, v)] for a, v in zip(axes, start, strict=True))
        else:
            found = climb(trials.loss, axes, start)
            point, criterion = found.point, found.loss
    ridge, rank, bandwidth, final = point
    chosen = Chosen(float(ridge), int(rank), float(bandwidth), float(final), options.loss, 0)
    return Choice(chosen, how, criterion, point)


def axis(value: Any, grid: tuple[Value, ...]) -> tuple[Value, ...]:
    return grid if value == "auto" else (float(value),)


def search_trials(setup: Setup, options: Options, most_folds: int | None = None) -> Trials | None:
    """Trials on as many rows as the plan says and `most_folds` folds, with fewer features: to find the region."""
    rows, Y = setup.rows, setup.Y
    most = setup.work.plan.search_rows
    if rows.n > most or rows.remote:
        numbers = rows.sample(most, options.seed)
        rows, Y = rows.take(numbers).compact(), Y[numbers]
    if isinstance(setup.stage.solver, ConjugateGradient):
        setup = setup._replace(stage=replace(setup.stage, solver=replace(setup.stage.solver, tol=SEARCH_TOL)))
    cuts = [cut(rows, Y, held, setup.stage) for held in holdouts(rows.w, options)[:most_folds]]
    return trials_over(cuts, setup, options, SEARCH_FEATURES) if cuts else None


def holdouts(w: Array, options: Options) -> list[Array]:
    """Numbers of the held-out rows of each fold: one holdout, or several in turn where it would be small."""
    n = len(w)
    if n < 2:
        return []
    fold = folds(n, options.holdout, options.seed)
    held = [np.flatnonzero((fold == f) & (w > 0)) for f in range(fold_count(n, options))]
    return [h for h in held if 0 < len(h) < np.count_nonzero(w)]


def fold_count(n: int, options: Options) -> int:
    """How many folds are held out in turn."""
    wanted = n if n <= FEW_ROWS else 1 if options.given else HELD_ROWS
    return int(np.clip(-(-wanted // max(1, int(n * options.holdout))), 1, min(n, max(2, round(1 / options.holdout)))))


def trials_over(
    cuts: list[Fold], setup: Setup, options: Options, most_features: int, work: Work | None = None
) -> Trials:
    return Trials(
        folds=cuts,
        stage=setup.stage,
        kernel=setup.kernel,
        n_features=min(setup.n_features, most_features),
        normalize=options.normalize_embedding,
        smoothing=setup.smoothing,
        seed=options.seed,
        work=work,
    )


def judged_labels(counts: Array) -> Array:
    """Labels that settings are judged by: all, or where there are very many, a few of every frequency by these counts.

    The squared loss fits each label on its own, so the others need not be fitted at all.
    """
    by_frequency = np.argsort(-counts, kind="stable")
    return np.sort(by_frequency[:: -(-len(counts) // JUDGED_LABELS)])


def seeded_features(rows: Rows, H: Any, kernel: Kernel, count: int, bandwidth: float, seed: int) -> Features:
    """Random features for embedded rows: the same seed gives the same draws up to their scale."""
    sample = rows.sample(1000, seed)
    length = 1.0 if kernel.name == "linear" else median_squared_distance(host(rows_at(H, sample)), rows.w[sample])
    rng = np.random.default_rng([seed, 2])
    return draw_features(kernel, H.shape[1], count, length, bandwidth, rng)
