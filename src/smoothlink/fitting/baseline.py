"""PLST and CPLST as estimators: the ridge is chosen on held-out rows, the rest is `steps.baselines`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.fitting.choose import RIDGES, axis, holdouts
from smoothlink.fitting.options import Options, Setup
from smoothlink.machines.arrays import host
from smoothlink.machines.rows import Rows
from smoothlink.steps.baselines import LinearLabelSpace, cplst, plst
from smoothlink.steps.calibrate import Histogram
from smoothlink.steps.embed import embed_rows, label_means
from smoothlink.steps.infer import f1_thresholds

Array = NDArray[Any]


def fit_baseline(setup: Setup, rows: Rows, ridge: float) -> LinearLabelSpace:
    """The label space of the rows of positive weight."""
    system = setup.stage.prepare(rows)
    assert system is not None
    rng = np.random.default_rng([setup.stage.seed, 1])
    transform = plst if setup.stage.embedding == "plst" else cplst
    return transform(rows, setup.stage.rank, system, ridge, rng)


def choose_baseline(setup: Setup, options: Options) -> tuple[float, Array, int]:
    """The ridge of the least held-out Brier score, Algorithm 4's thresholds there, and the rows held out."""
    grid = [float(v) for v in axis(options.ridge, RIDGES)]
    held = holdouts(setup.rows.w, options)
    if not held:
        return (1.0 if len(grid) > 1 else grid[0]), np.full(setup.rows.c, 0.5), 0
    w = setup.rows.w
    weights = np.concatenate([w[h] for h in held]).astype(np.float64)
    tried = {ridge: held_scores(setup, held, ridge) for ridge in grid}

    def loss(ridge: float) -> float:
        histogram = Histogram("squared")
        histogram.add(tried[ridge], setup.Y[np.concatenate(held)], weights)
        return histogram.brier()

    best = min(grid, key=loss)
    share = np.clip(label_means(setup.rows), 0, 1)
    return best, f1_thresholds(np.clip(tried[best], 0, 1), share, weights), len(weights)


def held_scores(setup: Setup, held: list[Array], ridge: float) -> Array:
    """Scores of the held-out rows of every fold, each from a fit that has not seen them."""
    scores = []
    for numbers in held:
        w = setup.rows.w.copy()
        w[numbers] = 0
        space = fit_baseline(setup, setup.rows.weighted(w), ridge)
        H = host(setup.rows.take(numbers).map(embed_rows, space.W))
        scores.append(H @ space.V[:-1] + space.V[-1])
    return np.concatenate(scores)
