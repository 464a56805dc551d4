"""Very many labels: W, V and D trained together by a descent whose batches share their labels, then calibrated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.choose import EVALUATED_PAIRS, holdouts
from smoothlink.fitting.judge import JUDGED_ROWS, LOGISTIC_FLOPS
from smoothlink.fitting.options import Chosen, Clock, Options, Setup
from smoothlink.machines.direct import Direct
from smoothlink.machines.matrix import Sparse
from smoothlink.machines.rows import Rows, folds, stack
from smoothlink.model import Model
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.calibrate import Calibration, Histogram, fit_temperature, no_calibration
from smoothlink.steps.embed import label_counts
from smoothlink.steps.featurize import Features
from smoothlink.steps.infer import f1_thresholds
from smoothlink.steps.scale import Scaling
from smoothlink.steps.together import (
    GROUP_ROWS,
    State,
    Together,
    alike,
    beginning,
    direct_weights,
    no_pairs,
    seen_pairs,
    start_weights,
    train_together,
)

Array = NDArray[Any]

MANY_LABELS = 2000  # from here on "auto" thinks of it
MANY_ROWS = 50_000  # from here on the fit does without the rows that calibrate
PASSES = 4  # more learn the training rows by heart: on 24,000 package descriptions 10 cost a point of P@1, 30 three
WIDTH = 512  # directions
GROUPING = 96  # of them, by which rows are found alike
HELD_SHARE, HELD_ROWS = 0.05, 5000
MOST_PAIRS = 200_000_000  # of a label and a feature in one row: more would fill memory
ROUGH = ConjugateGradient(tol=5e-2, iterations=20)  # the descent goes on from there


class Fitted(NamedTuple):
    """A model and what held-out rows say of it."""

    model: Model
    chosen: Chosen
    held_rows: int
    criterion: float


def obstacle(setup: Setup, options: Options) -> str | None:
    """Why labels cannot be drawn, where that is so: the joint descent has its own link and loss, and sees x itself."""
    given = {
        **{name: getattr(options, name) != "auto" for name in ("bandwidth", "n_features", "final_ridge")},
        "kernel": options.kernel not in ("auto", "linear"),
        "loss": options.loss == "squared",
        "embedding": options.embedding != "randomized",
        "label_smoothing": options.label_smoothing != 1,
        "rank": isinstance(options.rank, float),
        "input_kernel": setup.inputs.kernel is not None,
        "memory": setup.work.plan.memory is not None,
    }
    for name, conflicts in given.items():
        if conflicts:
            return f"{name} is {getattr(options, name)!r}, for which drawn labels have no room"
    if setup.stage.label_scale is not None:
        return "labels have weights, for which drawn labels have no room"
    return None if isinstance(setup.rows.blocks[0].X, Sparse) else "X is dense or in files, where labels are not drawn"


def considered(options: Options, c: int) -> bool:
    """Whether labels may be drawn at all: asked for, or "auto" and very many."""
    return options.negatives != "all" and (options.negatives != "auto" or c >= MANY_LABELS)


def drawn(setup: Setup, options: Options) -> bool:
    """Whether labels are drawn: that was asked for, or passes over all of them would cost too much."""
    reason = obstacle(setup, options)
    if options.negatives != "auto":
        if reason is not None:
            raise ValueError(f"negatives is {options.negatives!r}, but {reason}; leave negatives 'auto' or 'all'.")
        return True
    exact = 4.0 * setup.rows.n * setup.n_features * setup.rows.c
    return reason is None and exact > LOGISTIC_FLOPS


def knobs_for(options: Options) -> Together:
    """The knobs that the options ask for."""
    passes = PASSES if options.passes == "auto" else int(options.passes)
    knobs = Together(passes=passes, learning_rate=float(options.learning_rate), direct=options.direct)
    if options.negatives != "auto":
        knobs = knobs._replace(negatives=int(options.negatives))
    return knobs if options.batch_rows is None else knobs._replace(batch=int(options.batch_rows))


def fit_together(setup: Setup, scaling: Scaling, options: Options, clock: Clock) -> Fitted:
    """Fits without some held-out rows, which calibrate; where rows are few, once more with them."""
    rows, knobs = setup.rows, knobs_for(options)
    held = joint_holdout(setup, options) if options.calibrate else np.zeros(0, np.int64)
    w = rows.w.copy()
    w[held] = 0
    model = descend(rows.weighted(w), "held", setup, scaling, options, knobs, clock)
    value = np.inf
    if len(held):
        with clock.stage("calibrate"):
            calibration, thresholds, value = calibrate(model, setup, held)
        if rows.n < MANY_ROWS:
            model = descend(rows, "fit", setup, scaling, options, knobs, clock)
        model = replace(model, calibration=calibration, thresholds=thresholds)
    model = replace(model, **label_totals(rows))
    ridge = 1.0 if options.ridge == "auto" else float(options.ridge)
    chosen = Chosen(ridge, int(model.V.shape[0]) - 1, 1.0, 0.0, model.loss, knobs.passes)
    return Fitted(model, chosen, len(held), float(value))


def label_totals(rows: Rows) -> dict[str, Any]:
    counts = rows.sum(label_counts, out=(rows.c,), dtype=np.float64)
    return {"counts": counts, "total": float(rows.w.sum(dtype=np.float64))}


def joint_holdout(setup: Setup, options: Options) -> Array:
    """The holdout that every "auto" shares; of many rows, a small part, since the fit will do without."""
    w = setup.rows.w
    if len(w) < MANY_ROWS:
        return (holdouts(w, options) or [np.zeros(0, np.int64)])[0]
    first = np.flatnonzero((folds(len(w), HELD_SHARE, options.seed) == 0) & (w > 0))
    return first[:: max(1, len(first) // HELD_ROWS)]


def descend(
    rows: Rows, name: str, setup: Setup, scaling: Scaling, options: Options, knobs: Together, clock: Clock
) -> Model:
    """A model, not yet calibrated, from the rows of positive weight."""
    X: sp.csr_array = stack([b.X.csr for b in rows.blocks])[:, :-1]
    Y, w = setup.Y, np.asarray(rows.w, np.float32)
    live = np.flatnonzero((w > 0) & (np.diff(X.indptr) > 0))
    with clock.stage("embed"):
        first = first_directions(rows, setup, options)
        groups = alike(first.H, live, GROUP_ROWS, options.seed)
    with clock.stage("fit"):
        work = int(np.diff(X.indptr)[live] @ np.diff(Y.indptr)[live])
        pairs = seen_pairs(X, Y, live) if knobs.direct and work <= MOST_PAIRS else no_pairs(rows.c)
        k = WIDTH if options.rank in ("auto", "adaptive") else int(options.rank)
        totals = label_totals(rows)
        state = kept_state(setup, name)
        if state is None:
            W = start_weights(first.W[:-1], first.H[live], k, np.random.default_rng([options.seed, 9]))
            state = beginning(W, totals["counts"], totals["total"], pairs, softmax=setup.multiclass)
        passes = train_together(
            *(X, Y, w, groups, state, pairs),
            softmax=setup.multiclass,
            knobs=knobs,
            seed=options.seed,
            tell=lambda share: clock.tell("fit", share),
        )
        for state in passes:
            keep_state(setup, name, state)
    D = direct_weights(state, pairs, X.shape[1] + 1)
    return Model(
        scaling=scaling,
        input_features=None,
        W=np.vstack([state.W, np.zeros((1, k), np.float32)]),  # the constant adds nothing
        classifier=None,
        normalize=True,
        features=Features(np.zeros((k, 0), np.float32), np.zeros(0, np.float32)),
        V=state.decoder(),
        loss="softmax" if setup.multiclass else "logistic",
        multiclass=setup.multiclass,
        calibration=no_calibration(),
        thresholds=np.full(rows.c, 0.5),
        D=Direct(D.indptr.astype(np.int64), D.indices.astype(np.int32), D.data) if len(pairs.features) else None,
        **totals,
    )


def kept_state(setup: Setup, name: str) -> State | None:
    """Where an earlier run of this descent was after its last pass."""
    kept = setup.work.recall(f"{name}-together")
    return None if kept is None else State(done=int(kept[0]["done"]), **kept[1])


def keep_state(setup: Setup, name: str, state: State) -> None:
    arrays = {key: value for key, value in vars(state).items() if key != "done"}
    setup.work.keep(f"{name}-together", {"done": state.done}, **arrays)


def first_directions(rows: Rows, setup: Setup, options: Options) -> Any:
    """A rough randomized embedding of few directions: rows that are alike there share batches."""
    rank = min(GROUPING, setup.stage.rank)
    stage = replace(setup.stage, rank=rank, solver=ROUGH, adaptive=False, share=None)
    return stage.fit(rows, stage.prepare(rows), 1.0 if options.ridge == "auto" else float(options.ridge))


def calibrate(model: Model, setup: Setup, held: Array) -> tuple[Calibration, Array, float]:
    """Calibration, Algorithm 4's thresholds and the criterion that held-out rows give."""
    c = setup.rows.c
    held = held[: max(100, EVALUATED_PAIRS // c) if setup.multiclass else JUDGED_ROWS]
    X, Y, w = setup.rows.take(held).blocks, setup.Y[held], setup.rows.w[held].astype(np.float64)
    A = stack([b.X.csr for b in X])
    seen = model.see(model.sight_of(A))
    share = np.clip(model.counts / max(model.total, 1e-300), 0, 1)
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
    thresholds = np.empty(c)
    for labels in model.label_blocks(len(held)):
        thresholds[labels] = f1_thresholds(model.calibrated(model.score(seen, labels)), share[labels], w)
    return model.calibration, thresholds, histogram.brier()
