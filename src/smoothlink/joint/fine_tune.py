"""Fine-tuning: a model fitted without some held-out rows, trained on by steps of all its weights until those rows gain
no more, then calibrated by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DeviceError
from smoothlink.fitting.calibration import HeldOut, criterion
from smoothlink.fitting.settings import Clock, Problem, Request
from smoothlink.joint.fit_joint import MOST_PAIRS
from smoothlink.joint.schedule import (
    D_START,
    RANKING,
    SAMPLE,
    Parts,
    batches,
    cooccurring_labels,
    dropping,
    paces,
    prepared,
    row_weights,
)
from smoothlink.machines.arrays import to_host
from smoothlink.machines.host_and_device import HOST, find_machine
from smoothlink.machines.rows import Rows, stack
from smoothlink.machines.sparse_weights import SparseWeights
from smoothlink.model import Model
from smoothlink.steps.featurize import Features
from smoothlink.steps.squared import prior_scores
from smoothlink.weights import ArrayWeights

Array = NDArray[Any]

PATIENCE = 2  # passes without a gain end the training


def tuning_machine(problem: Problem) -> Any:
    """Where the steps are made: torch on the processor where the rest of the fit is NumPy's."""
    try:
        return find_machine("torch") if problem.rows.machine is HOST else problem.rows.machine
    except DeviceError:
        raise DeviceError(
            "training is 'finetune', which needs torch, and torch is not installed.\n"
            "pip install 'smoothlink[gpu]', or leave training 'auto'."
        ) from None


def tune(
    model: Model,
    rows: Rows,
    held: Array,
    problem: Problem,
    request: Request,
    passes: int,
    clock: Clock,
    stop: int | None = None,
) -> tuple[Model, int]:
    """The model after so many passes over the rows of positive weight, and how many.

    Where held-out rows may say so it is the best of them all; rates fall to 0 over `passes`, `stop` comes earlier.
    """
    free = request.training_passes == "auto" and len(held) > 0
    stop = passes if stop is None else stop
    if not stop:
        return model, 0
    machine = tuning_machine(problem)
    from smoothlink.joint.finetune_step import Joint

    X, w = scaled(rows), np.asarray(rows.w, np.float32)
    live = np.flatnonzero(w > 0)
    w = w if problem.multiclass else row_weights(w, problem.Y)
    pairs = pairs_of(X, problem.Y, live, request)
    W, V = np.asarray(model.W), np.asarray(model.V)
    begin = Parts(W, model.features.R, model.features.b, V, np.zeros(pairs.nnz, np.float32))
    parts, rates = prepared(begin, X[live[:SAMPLE]], normalize=model.normalize)
    found = (pairs.indptr, pairs.indices)
    joint = Joint(
        parts,
        X,
        problem.Y,
        w,
        found,
        machine,
        softmax=problem.multiclass,
        normalize=model.normalize,
        begun=D_START,
        ranking=RANKING,
    )
    best, done, least = parts, 0, held_value(joint, held, problem) if free else np.inf
    joint.restart(prior_scores(model.counts, model.total, softmax=problem.multiclass))
    for sweep in trained(joint, rates, live, request, passes, clock):
        value = held_value(joint, held, problem) if free else np.inf
        if value < least or (not free and sweep == stop):
            best, done, least = Parts(*joint.parts()), sweep, value
        if sweep == stop or (free and sweep - done == PATIENCE):
            break
    D = SparseWeights(pairs.indptr.astype(np.int64), pairs.indices.astype(np.int32), best.D) if pairs.nnz else None
    projection, decoder = ArrayWeights(best.W), ArrayWeights(best.V)
    model = replace(model, W=projection, features=Features(best.R, best.b), V=decoder, sparse_weights=D)
    return model, done


def trained(joint: Any, rates: Any, live: Array, request: Request, passes: int, clock: Clock) -> Iterator[int]:
    """Trains pass after pass; yields how many are done."""
    a_pass = len(batches(live, 0, request.seed, request.training_batch))
    pace = paces(a_pass * passes)
    for sweep in range(passes):
        for i, batch in enumerate(batches(live, sweep, request.seed, request.training_batch)):
            rng = np.random.default_rng([request.seed, 12, sweep, i])
            joint.step(batch, rates.times(request.training_rate * next(pace)), dropping(request.dropout, rng))
            if i % 64 == 0:
                clock.progress("finetune", (sweep + i / a_pass) / passes)
        yield sweep + 1


def held_value(joint: Any, held: Array, problem: Problem) -> float:
    """Returns the criterion of every "auto" on held-out rows: smaller is better."""
    if not len(held):
        return np.inf

    def scores(labels: slice, count: int) -> Array:
        return joint.scores(held[:count])[:, labels]

    part = HeldOut(scores, problem.Y[held], problem.rows.w[held].astype(np.float64))
    return criterion([part], "logistic", multiclass=problem.multiclass)[0]


def pairs_of(X: Any, Y: sp.csr_array, live: Array, request: Request) -> sp.csr_array:
    """Features and labels (d + 1, c) that have a weight for each other: none where X is dense or they are too many."""
    none = sp.csr_array((X.shape[1], Y.shape[1]), dtype=np.float32)
    if not request.sparse_weights or not sp.issparse(X):
        return none
    work = int(np.diff(X.indptr)[live] @ np.diff(Y.indptr)[live])
    return cooccurring_labels(X, Y, live) if work <= MOST_PAIRS else none


def scaled(rows: Rows) -> Any:
    """The rows (n, d + 1), scaled and with their constant, as one matrix of the host."""
    return stack([b.X.csr if hasattr(b.X, "csr") else to_host(b.X.array) for b in rows.each()])
