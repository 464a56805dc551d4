"""Through what kernel the first stage sees x, if any: landmark rows or random features, and whether they pay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.choose import Choice, Fold, Point, choose, climb, search_trials
from smoothlink.fitting.options import Inputs, Options, Setup
from smoothlink.machines.arrays import host
from smoothlink.steps.calibrate import Histogram
from smoothlink.steps.embed import embed_rows, fitted_to, label_counts
from smoothlink.steps.featurize import draw_features, median_squared_distance, parse_kernel
from smoothlink.steps.landmarks import Landmarks, whitened

Array = NDArray[Any]

KERNEL_FEATURES = 2000  # that input_features "auto" takes, or as many as there are rows
KERNEL_BYTES = 1 << 30  # of the rows seen through a kernel, beyond which input_kernel "auto" does not try one
WIDTHS = tuple(2.0 ** (e / 2) for e in range(-3, 5))  # .35 .. 4
WIDTH_RIDGES = tuple(10.0 ** (e / 2) for e in range(-6, 4))  # 1e-3 .. 32, while a width is sought
WIDTH_LABELS = 256  # the most frequent ones judge a width
FEW_FOLDS = 3  # on which widths are compared
GAIN = 0.005  # of the criterion: a kernel that brings less is not worth its cost


def draw_inputs(A: Any, w: Array | None, options: Options) -> tuple[Inputs, Array]:
    """The kernel asked for, and the rows of A (n, d + 1) seen through it; its length scale is that of the inputs."""
    live = np.arange(A.shape[0]) if w is None else np.flatnonzero(w > 0)
    rng = np.random.default_rng([options.seed, 3])
    order = rng.permutation(live)
    sample = np.sort(order[:1000])
    length = median_squared_distance(plain(A, sample), None if w is None else w[sample])
    kernel, bandwidth = parse_kernel(str(options.input_kernel)), float(options.input_bandwidth)
    count = min(KERNEL_FEATURES, len(live)) if options.input_features == "auto" else int(options.input_features)
    if draws_landmarks(options):
        landmarks = Landmarks(plain(A, np.sort(order[:count])), kernel, bandwidth**2 * length)
        root = landmarks.whitening()
        return Inputs(kernel, bandwidth, landmarks, root), whitened(landmarks(A[:, :-1]), root)
    features = draw_features(
        kernel,
        A.shape[1] - 1,
        count,
        length,
        bandwidth,
        np.random.default_rng([options.seed, 4]),
    )
    return Inputs(kernel, bandwidth, features), features(A[:, :-1])


def draws_landmarks(options: Options) -> bool:
    """Landmarks are folded into W, so there must be one."""
    if options.input_map == "auto":
        return options.embedding != "none" and options.classifier is None
    return options.input_map == "landmarks"


def plain(A: Any, rows: Array) -> Array:
    """Some rows, dense, without the constant."""
    found = A[rows][:, :-1]
    return np.ascontiguousarray(found.toarray() if sp.issparse(found) else found, np.float32)


class Settled(NamedTuple):
    """A first stage's inputs and the settings that held-out rows prefer with them."""

    setup: Setup
    choice: Choice


def settle(options: Options, make: Callable[[Options], Setup]) -> Settled:
    """The settings of `choose`, with the input kernel where that is "auto" too; `make` sets up what options ask for."""
    if options.input_kernel == "auto":
        return settle_kernel(options, make)
    options = with_width(options, make)
    setup = make(options)
    return Settled(setup, choose(setup, options))


def settle_kernel(options: Options, make: Callable[[Options], Setup]) -> Settled:
    """x itself, or a Gaussian kernel of x where held-out rows clearly like that better."""
    setup = make(replace(options, input_kernel=None))
    linear = Settled(setup, choose(setup, options))
    if not worth_trying(setup, options):
        return linear
    gaussian = with_width(replace(options, input_kernel="gaussian"), make)
    setup = make(gaussian)
    curved = Settled(setup, choose(setup, gaussian, linear.choice))
    best = curved if curved.choice.criterion < (1 - GAIN) * linear.choice.criterion else linear
    return best._replace(choice=best.choice._replace(how=best.choice.how | {"input_kernel": "held-out rows"}))


def with_width(options: Options, make: Callable[[Options], Setup]) -> Options:
    """The same with a number for the width of the input kernel.

    Where that is "auto", it is the one with which ridge regression alone predicts held-out labels best: the link
    sharpens what the first stage says, but hardly moves the best width.
    """
    if options.input_kernel in (None, "auto") or options.input_bandwidth != "auto":
        return options
    cuts: dict[float, list[Fold]] = {}

    def loss(point: Point) -> float:
        width, ridge = map(float, point)
        if width not in cuts:
            cuts.clear()  # the rows seen through a kernel are many numbers
            setup = make(replace(options, input_bandwidth=width))
            trials = search_trials(setup, options, FEW_FOLDS)
            cuts[width] = [] if trials is None else trials.folds
        return ridge_loss(cuts[width], ridge)

    found = climb(loss, (WIDTHS, WIDTH_RIDGES), (1.0, 1.0))
    return replace(options, input_bandwidth=float(found.point[0]))


def ridge_loss(cuts: list[Fold], ridge: float) -> float:
    """The calibrated Brier score a held-out row of one ridge regression a label, without a link."""
    histogram = Histogram("squared")
    for fold in cuts:
        if fold.system is None:
            return 0.0
        counts = fold.train.sum(label_counts, out=(fold.train.c,), dtype=np.float64)
        judged = np.sort(np.argsort(-counts, kind="stable")[:WIDTH_LABELS])
        chosen = np.zeros((fold.train.c, len(judged)), np.float32)
        chosen[judged, np.arange(len(judged))] = 1
        W = fitted_to(fold.train, chosen, fold.system.at(ridge)).W
        S = host(fold.train.take(fold.held).map(embed_rows, W))
        histogram.add(S, fold.held_labels[:, judged], fold.held_weights)
    return histogram.brier() if cuts else 0.0


def worth_trying(setup: Setup, options: Options) -> bool:
    """Whether X is a dense table of few enough rows, and the ridge is free to follow."""
    return (
        setup.table
        and options.ridge == "auto"
        and options.embedding != "none"
        and options.classifier is None
        and kernel_bytes(options, setup.rows.n) <= KERNEL_BYTES
    )


def kernel_bytes(options: Options, n: int) -> int:
    """What n rows seen through a kernel take."""
    s = KERNEL_FEATURES if options.input_features == "auto" else int(options.input_features)
    return 4 * n * min(s, n)
