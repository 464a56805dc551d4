"""Fine-tuning: a model fitted without some held-out rows, trained on by steps of all its weights until those rows gain
no more, then calibrated by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DeviceError
from smoothlink.fitting.choose import EVALUATED_PAIRS, holdouts
from smoothlink.fitting.options import Clock, Options, Setup
from smoothlink.fitting.quick import calibrate, label_totals, small_holdout, without
from smoothlink.fitting.together import MANY_ROWS, MOST_PAIRS
from smoothlink.machines.arrays import host
from smoothlink.machines.direct import Direct
from smoothlink.machines.machine import HOST, find_machine
from smoothlink.machines.rows import Rows, stack
from smoothlink.model import Model
from smoothlink.steps.calibrate import Histogram, fit_temperature
from smoothlink.steps.featurize import Features
from smoothlink.steps.finetune import (
    D_START,
    PASSES,
    RANKING,
    SAMPLE,
    Parts,
    batches,
    dropping,
    paces,
    prepared,
    row_weights,
    seen_with,
)
from smoothlink.steps.fit import prior_scores

Array = NDArray[Any]
Fit = Callable[[Rows], tuple[Model, Any]]

PATIENCE = 2  # passes without a gain end the training


class Tuned(NamedTuple):
    """A model, how many passes it was trained on, and what held-out rows say of it."""

    model: Model
    first: Any  # the first stage it began with
    passes: int
    held_rows: int
    criterion: float


def fit_tuned(setup: Setup, options: Options, clock: Clock, fit: Fit) -> Tuned:
    """Fits and trains without some held-out rows, which say when to stop; where rows are few, once more with them."""
    check_tunable(setup, options)
    rows, asked = setup.rows, None if options.finetune is True else int(options.finetune)
    held = held_rows(setup, options) if asked is None or options.calibrate else np.zeros(0, np.int64)
    model, first = fit(without(rows, held))
    with clock.stage("finetune"):
        model, passes = tune(model, without(rows, held), held, setup, options, asked or PASSES, clock)
    calibrated: dict[str, Any] = {}
    value = np.inf
    if len(held) and options.calibrate:
        with clock.stage("calibrate"):
            sight = model.sight_of(scaled(rows.take(held)))
            calibration, thresholds, value = calibrate(model, setup, held, sight)
            calibrated = {"calibration": calibration, "thresholds": thresholds}
    if len(held) and rows.n < MANY_ROWS:
        model, first = fit(rows)
        with clock.stage("finetune"):
            model, _ = tune(model, rows, held[:0], setup, options, asked or PASSES, clock, stop=passes)
    return Tuned(replace(model, **calibrated, **label_totals(rows)), first, passes, len(held), float(value))


def check_tunable(setup: Setup, options: Options) -> None:
    """Whether the model that is asked for has weights to train."""
    wrong = {
        "loss": options.loss == "squared",
        "embedding": options.embedding == "none",
        "input_kernel": setup.inputs.kernel is not None,
        "first_stage": options.first_stage is not None,
        "memory": setup.work.plan.memory is not None,
        "checkpoint": options.checkpoint is not None,
        "label_smoothing": options.label_smoothing != 1,
    }
    for name, conflicts in wrong.items():
        if conflicts:
            said = (
                f"finetune is {options.finetune!r}, but {name} is {getattr(options, name)!r}, for which it has no room"
            )
            raise ValueError(f"{said}; leave {name} as it is by default, or finetune False.")


def held_rows(setup: Setup, options: Options) -> Array:
    """Numbers of rows that say when to stop: a few of many, or the first of the holdouts that every "auto" shares."""
    if setup.rows.n >= MANY_ROWS:
        return small_holdout(setup, replace(options, calibrate=True))
    return (holdouts(setup.rows.w, options) or [np.zeros(0, np.int64)])[0]


def tuning_machine(setup: Setup) -> Any:
    """Where the steps are made: torch on the processor where the rest of the fit is NumPy's."""
    try:
        return find_machine("torch") if setup.rows.machine is HOST else setup.rows.machine
    except DeviceError:
        raise DeviceError(
            "finetune is asked for, and torch is not installed.\n"
            "pip install 'smoothlink[gpu]', or leave finetune False."
        ) from None


def tune(
    model: Model,
    rows: Rows,
    held: Array,
    setup: Setup,
    options: Options,
    passes: int,
    clock: Clock,
    stop: int | None = None,
) -> tuple[Model, int]:
    """The model after so many passes over the rows of positive weight, and how many.

    Where held-out rows may say so it is the best of them all; rates fall to 0 over `passes`, `stop` comes earlier.
    """
    free = options.finetune is True and len(held) > 0
    stop = passes if stop is None else stop
    if not stop:
        return model, 0
    machine = tuning_machine(setup)
    from smoothlink.machines.joint import Joint

    X, w = scaled(rows), np.asarray(rows.w, np.float32)
    live = np.flatnonzero(w > 0)
    w = w if setup.multiclass else row_weights(w, setup.Y)
    pairs = pairs_of(X, setup.Y, live, options)
    W, V = np.asarray(model.W), np.asarray(model.V)
    begin = Parts(W, model.features.R, model.features.b, V, np.zeros(pairs.nnz, np.float32))
    parts, rates = prepared(begin, X[live[:SAMPLE]], normalize=model.normalize)
    found = (pairs.indptr, pairs.indices)
    joint = Joint(
        parts,
        X,
        setup.Y,
        w,
        found,
        machine,
        softmax=setup.multiclass,
        normalize=model.normalize,
        begun=D_START,
        ranking=RANKING,
    )
    best, done, least = parts, 0, held_value(joint, held, setup) if free else np.inf
    joint.restart(prior_scores(model.counts, model.total, softmax=setup.multiclass))
    for sweep in trained(joint, rates, live, options, passes, clock):
        value = held_value(joint, held, setup) if free else np.inf
        if value < least or (not free and sweep == stop):
            best, done, least = Parts(*joint.parts()), sweep, value
        if sweep == stop or (free and sweep - done == PATIENCE):
            break
    D = Direct(pairs.indptr.astype(np.int64), pairs.indices.astype(np.int32), best.D) if pairs.nnz else None
    return replace(model, W=best.W, features=Features(best.R, best.b), V=best.V, D=D), done


def trained(joint: Any, rates: Any, live: Array, options: Options, passes: int, clock: Clock) -> Iterator[int]:
    """Trains pass after pass; yields how many are done."""
    a_pass = len(batches(live, 0, options.seed, options.batch_rows))
    pace = paces(a_pass * passes)
    for sweep in range(passes):
        for i, batch in enumerate(batches(live, sweep, options.seed, options.batch_rows)):
            rng = np.random.default_rng([options.seed, 12, sweep, i])
            joint.step(batch, rates.times(options.learning_rate * next(pace)), dropping(options.dropout, rng))
            if i % 64 == 0:
                clock.tell("finetune", (sweep + i / a_pass) / passes)
        yield sweep + 1


def held_value(joint: Any, held: Array, setup: Setup) -> float:
    """The criterion of every "auto" on held-out rows: smaller is better."""
    some = held[: max(100, EVALUATED_PAIRS // setup.rows.c)]
    if not len(some):
        return np.inf
    S, Y, w = joint.scores(some), setup.Y[some], setup.rows.w[some].astype(np.float64)
    if setup.multiclass:
        single = np.diff(Y.indptr) == 1
        return fit_temperature(S[single], Y.indices[Y.indptr[:-1][single]], w[single])[0]
    histogram = Histogram("logistic")
    histogram.add(S, Y, w)
    return histogram.brier()


def pairs_of(X: Any, Y: sp.csr_array, live: Array, options: Options) -> sp.csr_array:
    """Features and labels (d + 1, c) that have a weight for each other: none where X is dense or they are too many."""
    none = sp.csr_array((X.shape[1], Y.shape[1]), dtype=np.float32)
    if not options.direct or not sp.issparse(X):
        return none
    work = int(np.diff(X.indptr)[live] @ np.diff(Y.indptr)[live])
    return seen_with(X, Y, live) if work <= MOST_PAIRS else none


def scaled(rows: Rows) -> Any:
    """The rows (n, d + 1), scaled and with their constant, as one matrix of the host."""
    return stack([b.X.csr if hasattr(b.X, "csr") else host(b.X.array) for b in rows.each()])
