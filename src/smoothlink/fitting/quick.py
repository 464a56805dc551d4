"""One fit without trials: rules of thumb for what is "auto", and a few held-out rows that calibrate the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.choose import EVALUATED_PAIRS, holdouts
from smoothlink.fitting.judge import JUDGED_ROWS
from smoothlink.fitting.options import Chosen, Options, Setup
from smoothlink.machines.rows import Rows, folds
from smoothlink.model import Model, Sight
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.calibrate import Calibration, Firsts, Histogram, fit_temperature
from smoothlink.steps.embed import label_counts
from smoothlink.steps.infer import f1_thresholds

Array = NDArray[Any]

# Near the best on held-out training rows of bibtex, delicious, rcv1, cooking questions and enron. Where features are
# many the mean diagonal of X'X is small, and the ridge a larger multiple of it.
BANDWIDTH, FINAL_RIDGE = 2.0, 1e-2
RIDGES, PER_FEATURE = (1.0, 30.0), 4.0  # at least, at most; times d / n
EVERY, RANK = 1024, 256  # labels up to which every direction is kept, and how many of more
PASSES = 4  # of a descent that was asked for
HELD_SHARE, HELD_ROWS = 0.05, 5000
TOL = 1e-2  # of conjugate gradients


def rules_of_thumb(setup: Setup, options: Options) -> tuple[Chosen, dict[str, str]]:
    """Numbers for every setting, and what settled each."""
    few = setup.rows.c <= EVERY
    rank = setup.ranks[-1] if few else next((k for k in setup.ranks if k >= RANK), setup.ranks[-1])
    n = max(1, int(np.count_nonzero(setup.rows.w)))
    ridge = float(np.clip(PER_FEATURE * setup.rows.d / n, *RIDGES))
    loss = "squared" if options.loss == "auto" else options.loss
    thumb = {"ridge": ridge, "rank": rank, "bandwidth": BANDWIDTH, "final_ridge": FINAL_RIDGE}
    asked = {name: getattr(options, name) for name in thumb}
    auto = {name for name, value in asked.items() if value == "auto"} | ({"loss"} if options.loss == "auto" else set())
    values = {name: thumb[name] if name in auto or name == "rank" else float(asked[name]) for name in thumb}
    if setup.kernel.name == "linear":
        values["bandwidth"] = 1.0
    passes = 0 if loss == "squared" else PASSES if options.passes == "auto" else int(options.passes)
    how = {name: "rule of thumb" if name in auto else "given" for name in (*thumb, "loss")}
    return Chosen(**values, loss=loss, passes=passes), how  # type: ignore[arg-type]


def hasty(setup: Setup, options: Options) -> Setup:
    """The same with conjugate gradients that stop early, where the solver was left to us."""
    solver = setup.stage.solver
    if not (isinstance(options.solver, str) and isinstance(solver, ConjugateGradient)):
        return setup
    return setup._replace(stage=replace(setup.stage, solver=replace(solver, tol=TOL)))


def small_holdout(setup: Setup, options: Options) -> Array:
    """Numbers of a few rows that calibrate a fit that does without them."""
    w = setup.rows.w
    if not options.calibrate:
        return np.zeros(0, np.int64)
    held = np.flatnonzero((folds(len(w), HELD_SHARE, options.seed) == 0) & (w > 0))
    held = held[:: max(1, len(held) // HELD_ROWS)]
    return held if len(held) < np.count_nonzero(w) else held[:0]


def one_holdout(setup: Setup, options: Options) -> Array:
    """The first of the holdouts that every "auto" shares."""
    nothing = np.zeros(0, np.int64)
    return (holdouts(setup.rows.w, options) or [nothing])[0] if options.calibrate else nothing


def without(rows: Rows, held: Array) -> Rows:
    """The rows, those held out with weight 0."""
    w = rows.w.copy()
    w[held] = 0
    return rows.weighted(w)


def label_totals(rows: Rows) -> dict[str, Any]:
    """What a model knows of label frequencies."""
    counts = rows.sum(label_counts, out=(rows.c,), dtype=np.float64)
    return {"counts": counts, "total": float(rows.w.sum(dtype=np.float64))}


def calibrate(model: Model, setup: Setup, held: Array, sight: Array | Sight) -> tuple[Calibration, Array, float]:
    """Calibration, Algorithm 4's thresholds and the criterion that held-out rows give, seen as the model sees them."""
    c = setup.rows.c
    most = max(100, EVALUATED_PAIRS // c) if setup.multiclass else JUDGED_ROWS
    held, seen = held[:most], model.see(sight[:most])
    Y, w = setup.Y[held], setup.rows.w[held].astype(np.float64)
    share = np.clip(model.counts / max(model.total, 1e-300), 0, 1)
    model = replace(model, counts=np.maximum(model.counts, 1))  # labels never seen score as the others here
    if setup.multiclass:
        S = model.score(seen)
        single = np.diff(Y.indptr) == 1
        value, calibration = fit_temperature(S[single], Y.indices[Y.indptr[:-1][single]], w[single])
        model = replace(model, calibration=calibration)
        return calibration, f1_thresholds(np.minimum(model.calibrated(S), 1), share, w), value
    histogram, columns = Histogram(model.loss), sp.csc_array(Y)
    for labels in model.label_blocks(len(held)):
        histogram.add(model.score(seen, labels), columns[:, labels].tocsr(), w)
    model = replace(model, calibration=histogram.monotone())
    thresholds, firsts = np.empty(c), Firsts(len(held))
    for labels in model.label_blocks(len(held)):
        S = model.score(seen, labels)
        firsts.add(S, columns[:, labels].tocsr())
        thresholds[labels] = f1_thresholds(model.calibrated(S), share[labels], w)
    return firsts.lift(model.calibration, w, loss=model.loss), thresholds, histogram.brier()
