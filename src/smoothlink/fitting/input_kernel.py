"""What the embedding is linear in: x, with trees beside it or not, or a kernel of that; and whether they pay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.choose import Fold, Point, choose, climb, grid, map_folds, search_trials
from smoothlink.fitting.holdout import calibrating_rows, fold_numbers
from smoothlink.fitting.settings import ChosenSettings, Inputs, Problem, Report, Request, Settings, TrainingData
from smoothlink.machines.arrays import to_host
from smoothlink.machines.seeded_numbers import derive_seed
from smoothlink.steps.calibrate import Histogram
from smoothlink.steps.embed import embed_rows, fitted_to, label_counts
from smoothlink.steps.featurize import MEDIAN_ROWS, draw_features, median_squared_distance, parse_kernel
from smoothlink.steps.landmarks import Landmarks
from smoothlink.steps.trees import PARTS, CrossFit, grow_trees

Array = NDArray[Any]

KERNEL_FEATURES = 2000  # of the kernel where their number is "auto", or as many as there are rows
KERNEL_BYTES = 1 << 30  # of kernel values of all rows, beyond which input_kernel "auto" does not try one
WIDTHS = tuple(2.0 ** (e / 2) for e in range(-3, 5))  # .35 .. 4
WIDTH_RIDGES = tuple(10.0 ** (e / 2) for e in range(-6, 4))  # 1e-3 .. 32, while a width is sought
WIDTH_LABELS = 256  # the most frequent ones, by which widths are compared, and x with and without trees
FEW_FOLDS = 3  # on which they are compared
TREE_ROWS, TREE_COLUMNS = 100, 1000  # at least and at most, for which trees "auto" grows any
LINK = "settings of the link"
KERNEL_GAIN = 0.005  # of the criterion: a kernel that brings less is not worth its cost
CLEAR_GAIN = 0.04  # of the loss of ridge regression: the link then preferred the kernel on every table (decision 51)
BOTH_ROWS = 1000  # below which the link is searched for both: it is cheap, and a few rows decide
TREE_GAIN = 0.02  # of the loss of ridge regression; where it is less, a Gaussian kernel gains nothing by trees


def draw_inputs(A: Any, w: Array | None, request: Request) -> Inputs:
    """Returns the kernel asked for; its length scale is that of the rows of A (n, d + 1)."""
    live = np.arange(A.shape[0]) if w is None else np.flatnonzero(w > 0)
    rng = np.random.default_rng([request.seed, 3])
    order = rng.permutation(live)
    sample = np.sort(order[:MEDIAN_ROWS])
    length = median_squared_distance(dense_rows(A, sample), None if w is None else w[sample])
    kernel, bandwidth = parse_kernel(str(request.input_kernel)), float(request.input_bandwidth)
    count = min(KERNEL_FEATURES, len(live)) if request.input_features == "auto" else int(request.input_features)
    if uses_landmarks(request):
        landmarks = Landmarks(dense_rows(A, np.sort(order[:count])), kernel, bandwidth**2 * length)
        return Inputs(kernel, bandwidth, landmarks, landmarks.whitening())
    features = draw_features(kernel, A.shape[1] - 1, count, length, bandwidth, derive_seed(request.seed, 4))
    return Inputs(kernel, bandwidth, features)


def grow_inputs(A: Any, data: TrainingData, request: Request) -> CrossFit:
    """Returns trees that predict the labels of the rows of A (n, d + 1)."""
    if not isinstance(A, np.ndarray):
        raise ValueError(
            "trees is True, and X is sparse after scaling, or is read in parts: trees need a dense table in memory.\n"
            "Leave trees 'auto', or use scale='variance' for a table of up to 1,000 columns."
        )
    X, w = np.ascontiguousarray(A[:, :-1]), np.ones(len(A)) if data.w is None else data.w.copy()
    live, part = np.flatnonzero(w > 0), np.zeros(len(A), np.int64)
    part[live] = fold_numbers(len(live), 1 / PARTS, request.seed, None if data.groups is None else data.groups[live])
    w[calibrating_rows(w, request, data.groups, data.held)] = 0
    return grow_trees(X, data.Y, w, part, request.seed, multiclass=data.multiclass)


def uses_landmarks(request: Request) -> bool:
    """Returns whether landmarks are used: they are folded into W, so there must be one."""
    if request.input_map == "auto":
        return request.embedding != "none" and request.classifier is None
    return request.input_map == "landmarks"


def dense_rows(A: Any, rows: Array) -> Array:
    """Returns some rows, dense, without the intercept."""
    found = A[rows][:, :-1]
    return np.ascontiguousarray(found.toarray() if sp.issparse(found) else found, np.float32)


Pose = Callable[[Request], tuple[Problem, Settings]]  # the problem that a request poses, and where a search begins


def choose_with_inputs(request: Request, pose: Pose, report: Report | None = None) -> ChosenSettings:
    """Returns `choose`, with the input kernel where that is "auto" too."""
    if request.input_kernel == "auto":
        return choose_trees(request, pose, report)
    count = 1 if request.input_bandwidth != "auto" or request.input_kernel is None else 2
    request = with_width(request, pose, stage(report, 1, count, "width of the input kernel"))
    return choose(*pose(request), request, report=stage(report, count, count, LINK))


def choose_trees(request: Request, pose: Pose, report: Report | None = None) -> ChosenSettings:
    """Returns the choice for x with trees beside it, or without, whichever predicts held-out rows clearly better.

    Ridge regression tells which: that of x must gain by trees, and so must the better one of x and of a Gaussian kernel
    of x. Of few rows it says little, and the link is searched for both.
    """
    if not considers_trees(request, pose):
        return choose_input_kernel(replace(request, trees=request.trees is True), pose, report)
    without, beside = (replace(request, trees=trees) for trees in (False, True))
    if np.count_nonzero(pose(replace(without, input_kernel=None))[0].rows.w) < BOTH_ROWS:
        plain = choose_input_kernel(without, pose, stage(report, 1, 2, "without trees"))
        grown = choose_input_kernel(beside, pose, stage(report, 2, 2, "with trees"))
        found = grown if grown.criterion < (1 - TREE_GAIN) * plain.criterion else plain
    else:
        better, losses = without, input_losses(without, pose, report)
        if best_ridge_loss(replace(beside, input_kernel=None), pose) < (1 - TREE_GAIN) * losses.plain:
            of_both = input_losses(beside, pose, near=losses.width)
            if of_both.least < (1 - TREE_GAIN) * losses.least:
                better, losses = beside, of_both
        found = choose_input_kernel(better, pose, report, losses)
    return found._replace(chosen_by=found.chosen_by | {"trees": "held-out rows"})


def choose_input_kernel(
    request: Request, pose: Pose, report: Report | None = None, losses: InputLosses | None = None
) -> ChosenSettings:
    """Returns the choice for x, or for a Gaussian kernel of x where held-out rows clearly prefer that.

    Where ridge regression alone tells which it will be, the link is searched for that one only. Of few rows it does
    not tell (on wine the kernel predicts all held-out rows, and the link over it fewer than over x), and both are
    searched.
    """
    problem, settings = pose(replace(request, input_kernel=None))
    if not worth_trying(problem, request):
        return choose(problem, settings, request, report=stage(report, 1, 1, LINK))
    losses = input_losses(request, pose, report) if losses is None else losses
    width = losses.width
    assert width is not None
    over_x, over_kernel = links_to_search(int(np.count_nonzero(problem.rows.w)), losses.plain, width.loss)
    found = []
    if over_x:
        found.append(choose(problem, settings, request, report=stage(report, 2, 3, LINK)))
    if over_kernel:
        curved, start = pose(width.request)
        near = found[0].settings if found else replace(start, ridge=width.ridge)
        found.append(choose(curved, start, width.request, near, stage(report, 3, 3, f"{LINK} with this kernel")))
    best = found[-1] if found[-1].criterion < (1 - KERNEL_GAIN) * found[0].criterion else found[0]
    return best._replace(chosen_by=best.chosen_by | {"input_kernel": "held-out rows"})


class InputLosses(NamedTuple):
    """What ridge regression loses on held-out rows, of x and of a Gaussian kernel of x."""

    plain: float
    width: Width | None  # of the kernel; None where none is tried

    @property
    def least(self) -> float:
        return self.plain if self.width is None else min(self.plain, self.width.loss)


def input_losses(request: Request, pose: Pose, report: Report | None = None, near: Width | None = None) -> InputLosses:
    """Returns what ridge regression loses with the trees of a request, or without."""
    plain, width = replace(request, input_kernel=None), None
    if worth_trying(pose(plain)[0], request):
        first = stage(report, 1, 3, "width of the input kernel")
        width = best_width(replace(request, input_kernel="gaussian"), pose, first, near)
    return InputLosses(best_ridge_loss(plain, pose), width)


def with_trees(request: Request, pose: Pose) -> Request:
    """Returns the request with trees or without: "auto" is with them where ridge regression of x alone, which takes
    milliseconds, predicts held-out labels better with them."""
    if request.trees != "auto":
        return request
    if not considers_trees(request, pose):
        return replace(request, trees=False)
    plain, beside = (best_ridge_loss(replace(request, trees=t, input_kernel=None), pose) for t in (False, True))
    return replace(request, trees=bool(beside < (1 - TREE_GAIN) * plain))


def considers_trees(request: Request, pose: Pose) -> bool:
    """Returns whether trees are "auto", may be grown, and the input kernel and the ridge are "auto" too.

    Not where the model will be updated: its sums would be of rows as their own trees predict them.
    """
    if request.updatable or not request.trees == request.input_kernel == request.ridge == "auto":
        return False
    return may_grow(pose(replace(request, trees=False, input_kernel=None))[0], request)


def best_ridge_loss(request: Request, pose: Pose) -> float:
    """Returns `ridge_loss` on a few folds, with the best ridge."""
    trials = search_trials(*pose(request), request, FEW_FOLDS)
    folds = [] if trials is None else trials.folds
    return climb(lambda point: ridge_loss(folds, float(point[0])), (WIDTH_RIDGES,), (1.0,)).loss


def may_grow(problem: Problem, request: Request) -> bool:
    """Returns whether X is a dense table of enough rows to grow trees from, and of few enough columns."""
    return (
        problem.table
        and request.embedding != "none"
        and request.classifier is None
        and problem.rows.d <= TREE_COLUMNS + 1
        and int(np.count_nonzero(problem.rows.w)) >= TREE_ROWS
    )


def stage(report: Report | None, number: int, count: int, name: str) -> Report | None:
    """Returns where one stage of several reports to, which count as equally long."""
    if report is None:
        return None
    place = f"{number} of {count}, {name}: " if count > 1 else ""
    return lambda share, words: report((number - 1 + share) / count, place + words)


def links_to_search(rows: int, plain: float, kernel: float) -> tuple[bool, bool]:
    """Returns whether the link is searched over x, and over its kernel, by what ridge regression of each loses."""
    few = rows < BOTH_ROWS
    over_x = not kernel < (1 - CLEAR_GAIN) * plain  # also where neither loses anything
    return few or over_x, few or kernel < (1 - KERNEL_GAIN) * plain


class Width(NamedTuple):
    """The best width of an input kernel for ridge regression alone, with the best ridge."""

    request: Request
    ridge: float
    loss: float


def with_width(request: Request, pose: Pose, report: Report | None = None) -> Request:
    """Returns the request with a number for the width of the input kernel."""
    if request.input_kernel in (None, "auto") or request.input_bandwidth != "auto":
        return request
    return best_width(request, pose, report).request


def best_width(request: Request, pose: Pose, report: Report | None = None, near: Width | None = None) -> Width:
    """Returns the width of the input kernel with which ridge regression alone predicts held-out labels best, or the one
    given: the link sharpens what the embedding says, but hardly moves the best width. The search begins `near`."""
    folds: dict[float, list[Fold]] = {}

    def loss(point: Point) -> float:
        width, ridge = map(float, point)
        if width not in folds:
            folds.clear()  # kernel values of all rows are many numbers
            trials = search_trials(*pose(replace(request, input_bandwidth=width)), request, FEW_FOLDS)
            folds[width] = [] if trials is None else trials.folds
        return ridge_loss(folds[width], ridge)

    widths = grid(request.input_bandwidth, WIDTHS)
    begin = (1.0, 1.0) if near is None else (near.request.input_bandwidth, near.ridge)
    found = climb(loss, (widths, WIDTH_RIDGES), begin, report)
    width, ridge = map(float, found.point)
    return Width(replace(request, input_bandwidth=width), ridge, found.loss)


def ridge_loss(folds: list[Fold], ridge: float) -> float:
    """Returns the calibrated Brier score of one ridge regression per label, without a link, on held-out rows."""
    if not folds or folds[0].system is None:
        return 0.0
    histogram = Histogram("squared")
    for scores, labels, weights in map_folds(held_out_ridge(ridge), folds):
        histogram.add(scores, labels, weights)
    return histogram.brier()


def held_out_ridge(ridge: float) -> Callable[[Fold], tuple[Array, Any, Array]]:
    """Returns what fits a fold with this ridge, and returns scores, labels and weights of its held-out rows."""

    def of_fold(fold: Fold) -> tuple[Array, Any, Array]:
        assert fold.system is not None
        counts = fold.train.sum(label_counts, out=(fold.train.c,), dtype=np.float64)
        frequent = np.sort(np.argsort(-counts, kind="stable")[:WIDTH_LABELS])
        chosen = np.zeros((fold.train.c, len(frequent)), np.float32)
        chosen[frequent, np.arange(len(frequent))] = 1
        W = fitted_to(fold.train, chosen, fold.system.at(ridge)).W
        S = to_host(fold.train.take(fold.held).map(embed_rows, W))
        return S, fold.held_labels[:, frequent], fold.held_weights

    return of_fold


def worth_trying(problem: Problem, request: Request) -> bool:
    """Whether X is a dense table of few enough rows, and the ridge is free to follow."""
    return (
        problem.table
        and request.ridge == "auto"
        and request.embedding != "none"
        and request.classifier is None
        and kernel_bytes(request, problem.rows.n) <= KERNEL_BYTES
    )


def kernel_bytes(request: Request, n: int) -> int:
    """Returns the bytes of the kernel values of n rows."""
    s = KERNEL_FEATURES if request.input_features == "auto" else int(request.input_features)
    return 4 * n * min(s, n)
