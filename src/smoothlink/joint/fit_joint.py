"""Very many labels: W, V and sparse per-label weights trained together by SGD with sampled negatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.embedding import Embedded
from smoothlink.fitting.link import label_totals
from smoothlink.fitting.settings import Choice, Clock, Problem, Request, Settings
from smoothlink.fitting.validate import LOGISTIC_FLOPS
from smoothlink.joint.negatives import (
    GROUP_ROWS,
    JointState,
    Sampling,
    cluster_rows,
    cooccurring_pairs,
    initial_state,
    no_pairs,
    sparse_weights_of,
    start_weights,
    train_with_negatives,
)
from smoothlink.machines.matrices import Sparse
from smoothlink.machines.rows import Rows, stack
from smoothlink.machines.sparse_weights import SparseWeights
from smoothlink.model import Model
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.calibrate import no_calibration
from smoothlink.steps.featurize import Features, parse_kernel
from smoothlink.weights import ArrayWeights

Array = NDArray[Any]

MANY_LABELS = 2000  # from here on "auto" considers it
PASSES = 4  # more overfit: on 24,000 package descriptions 10 cost a point of P@1, 30 three
WIDTH = 512  # directions
GROUPING = 96  # of them, by which rows are clustered
MOST_PAIRS = 200_000_000  # of a label and a feature in one row: more would fill memory
ROUGH = ConjugateGradient(tol=5e-2, iterations=20)  # the SGD goes on from there


def trains_jointly(problem: Problem, settings: Settings, request: Request) -> bool:
    """Returns whether to train jointly: that was asked for, or passes over all labels would cost too much."""
    if request.training not in ("auto", "joint") or (request.training == "auto" and problem.rows.c < MANY_LABELS):
        return False
    reason = request.joint_conflict
    if problem.label_scale is not None:
        reason = "class_weight is given for multilabel y, which training='joint' cannot use."
    elif problem.rows.remote or not isinstance(problem.rows.blocks[0].X, Sparse):
        reason = "X is dense or in files, and training='joint' needs sparse rows in memory."
    if request.training == "joint" and reason is not None:
        raise ValueError(f"{reason}\nLeave training 'auto', or say 'stepwise'.")
    exact = 4.0 * problem.rows.n * settings.features * problem.rows.c
    return request.training == "joint" or (reason is None and exact > LOGISTIC_FLOPS)


def joint_choice(problem: Problem, settings: Settings, request: Request) -> Choice:
    """Returns the settings of joint training, which are given or rules."""
    k = WIDTH if request.rank in ("auto", "adaptive") else int(request.rank)
    settings = replace(
        settings,
        ridge=1.0 if request.ridge == "auto" else float(request.ridge),
        rank=k,
        kernel=parse_kernel("linear"),
        bandwidth=1.0,
        final_ridge=0.0,
        loss="softmax" if problem.multiclass else "logistic",
        passes=PASSES if request.training_passes == "auto" else int(request.training_passes),
    )
    given = {"rank": request.rank, "passes": request.training_passes}
    return Choice(problem, settings, {name: "rule" for name, value in given.items() if value == "auto"})


def sampling(settings: Settings, request: Request) -> Sampling:
    """Returns the parameters of the SGD with sampled negatives."""
    found = Sampling(passes=settings.passes, learning_rate=float(request.training_rate), direct=request.sparse_weights)
    if request.negatives != "auto":
        found = found._replace(negatives=int(request.negatives))
    return found if request.training_batch is None else found._replace(batch=int(request.training_batch))


def fit_joint(choice: Choice, rows: Rows, name: str, request: Request, clock: Clock) -> Model:
    """Returns a model, not yet calibrated, trained on the rows of positive weight; its state is saved under `name`."""
    problem, settings = choice.problem, choice.settings
    knobs, state_of_fit = sampling(settings, request), problem.state
    X = sparse_rows(rows)[:, :-1]
    Y, w = problem.Y, np.asarray(rows.w, np.float32)
    live = np.flatnonzero((w > 0) & (np.diff(X.indptr) > 0))
    with clock.step("embed"):
        first = rough_embedding(rows, settings)
        groups = cluster_rows(first.H, live, GROUP_ROWS, request.seed)
    with clock.step("fit"):
        pairs_met = int(np.diff(X.indptr)[live] @ np.diff(Y.indptr)[live])
        pairs = cooccurring_pairs(X, Y, live) if knobs.direct and pairs_met <= MOST_PAIRS else no_pairs(rows.c)
        totals = label_totals(rows)
        saved = state_of_fit.load(f"{name}-together")
        if saved is None:
            rng = np.random.default_rng([request.seed, 9])
            W = start_weights(first.W[:-1], first.H[live], settings.rank, rng)
            state = initial_state(W, totals["counts"], totals["total"], pairs, softmax=problem.multiclass)
        else:
            state = JointState(done=int(saved[0]["done"]), **saved[1])
        passes = train_with_negatives(
            *(X, Y, w, groups, state, pairs),
            softmax=problem.multiclass,
            knobs=knobs,
            seed=request.seed,
            tell=lambda share: clock.progress("fit", share),
        )
        for state in passes:
            arrays = {key: value for key, value in vars(state).items() if key != "done"}
            state_of_fit.save(f"{name}-together", {"done": state.done}, **arrays)
    D = sparse_weights_of(state, pairs, X.shape[1] + 1)
    k = settings.rank
    return Model(
        scaling=problem.scaling,
        input_features=None,
        W=ArrayWeights(np.vstack([state.W, np.zeros((1, k), np.float32)])),  # the intercept adds nothing
        classifier=None,
        normalize=True,
        features=Features(np.zeros((k, 0), np.float32), np.zeros(0, np.float32)),
        V=ArrayWeights(state.decoder()),
        loss=settings.loss,
        multiclass=problem.multiclass,
        calibration=no_calibration(),
        thresholds=np.full(rows.c, 0.5),
        sparse_weights=SparseWeights(D.indptr.astype(np.int64), D.indices.astype(np.int32), D.data)
        if len(pairs.features)
        else None,
        **totals,
    )


def rough_embedding(rows: Rows, settings: Settings) -> Embedded:
    """Returns a rough randomized embedding of few directions: rows that are near there share batches."""
    rank = min(GROUPING, settings.embedder.rank)
    embedder = replace(settings.embedder, rank=rank, solver=ROUGH, adaptive=False, share=None)
    return embedder.fit(rows, embedder.prepare(rows), settings.ridge)


def sparse_rows(rows: Rows) -> sp.csr_array:
    """The rows (n, d + 1), scaled and with their constant, as one matrix."""
    return stack([b.X.csr for b in rows.blocks])
