"""Very many labels: W, V and D trained together by a descent whose batches share their labels, then calibrated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.judge import LOGISTIC_FLOPS
from smoothlink.fitting.options import Chosen, Clock, Options, Setup
from smoothlink.fitting.quick import calibrate, label_totals, one_holdout, small_holdout, without
from smoothlink.machines.direct import Direct
from smoothlink.machines.matrix import Sparse
from smoothlink.machines.rows import Rows, stack
from smoothlink.model import Model
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.calibrate import no_calibration
from smoothlink.steps.featurize import Features
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
MOST_PAIRS = 200_000_000  # of a label and a feature in one row: more would fill memory
ROUGH = ConjugateGradient(tol=5e-2, iterations=20)  # the descent goes on from there


class Fitted(NamedTuple):
    """A model and what held-out rows say of it."""

    model: Model
    chosen: Chosen
    held_rows: int
    criterion: float


def considered(options: Options, c: int) -> bool:
    """Whether joint training comes into question: it was asked for, or left to us and labels are very many."""
    return options.training == "joint" or (options.training == "auto" and c >= MANY_LABELS)


def drawn(setup: Setup, options: Options) -> bool:
    """Whether to train jointly: that was asked for, or passes over all labels would cost too much."""
    reason = options.joint_conflict
    if setup.stage.label_scale is not None:
        reason = "class_weight is given for multilabel y, which training='joint' cannot use."
    elif not isinstance(setup.rows.blocks[0].X, Sparse):
        reason = "X is dense or in files, and training='joint' needs sparse rows in memory."
    if options.training == "joint" and reason is not None:
        raise ValueError(f"{reason}\nLeave training 'auto', or say 'stepwise'.")
    exact = 4.0 * setup.rows.n * setup.n_features * setup.rows.c
    return options.training == "joint" or (reason is None and exact > LOGISTIC_FLOPS)


def knobs_for(options: Options) -> Together:
    """The parameters of joint training."""
    passes = PASSES if options.training_passes == "auto" else int(options.training_passes)
    knobs = Together(passes=passes, learning_rate=float(options.training_rate), direct=options.sparse_weights)
    if options.negatives != "auto":
        knobs = knobs._replace(negatives=int(options.negatives))
    return knobs if options.training_batch is None else knobs._replace(batch=int(options.training_batch))


def fit_together(setup: Setup, scaling: Scaling, options: Options, clock: Clock) -> Fitted:
    """Fits without some held-out rows, which calibrate; where rows are few, once more with them."""
    rows, knobs = setup.rows, knobs_for(options)
    held = small_holdout(setup, options) if rows.n >= MANY_ROWS else one_holdout(setup, options)
    model = descend(without(rows, held), "held", setup, scaling, options, knobs, clock)
    value = np.inf
    if len(held):
        with clock.stage("calibrate"):
            calibration, thresholds, value = calibrate(model, setup, held, model.sight_of(sparse_rows(rows.take(held))))
        if rows.n < MANY_ROWS:
            model = descend(rows, "fit", setup, scaling, options, knobs, clock)
        model = replace(model, calibration=calibration, thresholds=thresholds)
    model = replace(model, **label_totals(rows))
    ridge = 1.0 if options.ridge == "auto" else float(options.ridge)
    chosen = Chosen(ridge, int(model.V.shape[0]) - 1, 1.0, 0.0, model.loss, knobs.passes)
    return Fitted(model, chosen, len(held), float(value))


def descend(
    rows: Rows, name: str, setup: Setup, scaling: Scaling, options: Options, knobs: Together, clock: Clock
) -> Model:
    """A model, not yet calibrated, from the rows of positive weight."""
    X = sparse_rows(rows)[:, :-1]
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


def sparse_rows(rows: Rows) -> sp.csr_array:
    """The rows (n, d + 1), scaled and with their constant, as one matrix."""
    return stack([b.X.csr for b in rows.blocks])


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
