"""Arrays -> a fitted model: scale, choose, judge on held-out rows, then embed, featurize and fit all rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DeviceError
from smoothlink.fitting.checkpoint import Work, job_of, working
from smoothlink.fitting.choose import Link, seeded_features, sums_in
from smoothlink.fitting.finetune import fit_tuned
from smoothlink.fitting.first_stage import Embedded
from smoothlink.fitting.inputs import with_width
from smoothlink.fitting.judge import Verdict
from smoothlink.fitting.options import Chosen, Clock, Notify, Options, Setup
from smoothlink.fitting.quick import calibrate, hasty, label_totals, rules_of_thumb, small_holdout, without
from smoothlink.fitting.resume import decode, judged, settled
from smoothlink.fitting.setup import inputs_for, planned, set_up
from smoothlink.fitting.together import considered, drawn, fit_together, knobs_for
from smoothlink.machines.arrays import host, rows_at
from smoothlink.machines.files import Scaled
from smoothlink.machines.machine import Machine, find_machine, forget, out_of_memory
from smoothlink.machines.rows import Rows
from smoothlink.model import Model
from smoothlink.steps.calibrate import no_calibration
from smoothlink.steps.featurize import parse_kernel
from smoothlink.steps.scale import Scaling, choose_scaling

Array = NDArray[Any]


class Trained(NamedTuple):
    """A model and the story of its fit."""

    model: Model
    U: Array | None  # (c, k) label directions
    summary: dict[str, Any]


def train(
    X: Any,
    Y: sp.csr_array,
    w: Array | None,
    options: Options,
    *,
    multiclass: bool,
    label_weight: Array | None = None,
    notify: Notify | None = None,
    note: Callable[[str], None] | None = None,
) -> Trained:
    """Fits a model to X (n, d), Y (n, c) and weights w (n,).

    Where a device runs out of memory, the fit begins again with smaller blocks.
    """
    machine: Machine | None = find_machine(options.device)
    while machine is not None:
        try:
            trained = train_on(X, Y, w, replace(options, device=machine), multiclass, label_weight, notify, note)
            trained.summary.update(device=str(machine), peak_device_mb=machine.peak_mb)
            return trained
        except Exception as error:
            if not out_of_memory(error):
                raise
        forget(machine)  # outside of the handler: the error held what filled the memory
        machine = machine.smaller()
        if machine is not None and note is not None:
            note(f"{machine} ran out of memory: beginning again with smaller blocks.")
    raise DeviceError(
        f"device is {options.device!r}, and its memory does not hold the fit, however small the blocks.\n"
        "Ask for a smaller rank or fewer n_features, or leave device 'cpu'."
    )


def train_on(
    X: Any,
    Y: sp.csr_array,
    w: Array | None,
    options: Options,
    multiclass: bool,
    label_weight: Array | None,
    notify: Notify | None,
    note: Callable[[str], None] | None,
) -> Trained:
    """`train` on one machine, with blocks of one size."""
    clock = Clock(notify)
    with clock.stage("scale"):
        scaling = choose_scaling(X, options.scale, w)
    with working(
        options.checkpoint,
        lambda: job_of(X, Y, w, label_weight, options),
        lambda: planned(X, Y, w, options, multiclass, dense=scaling.dense, weighted=label_weight is not None),
    ) as work:
        if work.plan.memory is not None and note is not None:
            note(str(work.plan))
        A = inputs_for(X, scaling, options, work.plan)

        def make(options: Options) -> Setup:
            table = scaling.dense and scaling.kind == "variance" and not isinstance(A, Scaled)
            return set_up(A, Y, w, options, multiclass, label_weight, table=table, work=work)

        if options.finetune:
            return train_tuned(make, scaling, options, clock, work)
        if considered(options, Y.shape[1]) and drawn(setup := make(with_width(options, make)), options):
            return train_drawn(setup, scaling, options, clock)
        if options.effort == "quick":
            return train_quick(make(with_width(options, make)), scaling, options, clock)
        return train_in(make, scaling, options, clock, work)


def train_in(make: Callable[[Options], Setup], scaling: Scaling, options: Options, clock: Clock, work: Work) -> Trained:
    """Chooses, judges and fits; `make` sets up what options ask for."""
    with warnings.catch_warnings():  # of fits to part of the rows: the one to all of them speaks for itself
        warnings.simplefilter("ignore", RuntimeWarning)
        with clock.stage("choose"):
            setup, choice = settled(options, make, work)
        with clock.stage("calibrate"):
            verdict = judged(setup, options, choice.chosen)
            chosen = verdict.chosen
    model, first = fit_link(setup, setup.rows, chosen, scaling, options, clock, verdict)
    U = None if first.U is None else host(first.U)[:, : chosen.rank]
    return Trained(model, U, summarise(chosen, choice.how, first, setup, verdict, clock, scaling.kind))


def fit_link(
    setup: Setup, rows: Rows, chosen: Chosen, scaling: Scaling, options: Options, clock: Clock, verdict: Verdict
) -> tuple[Model, Embedded]:
    """Embeds, featurizes and fits the rows of positive weight, everything being chosen."""
    work, normalize = setup.work, options.normalize_embedding
    with clock.stage("embed"):
        first = setup.stage.fit_in(work, "embed", rows, chosen.ridge, chosen.rank, normalize)
        H = first.H
    with clock.stage("featurize"):
        rows = rows.with_inputs(H)
        features = seeded_features(
            rows, H, setup.kernel, setup.n_features, chosen.bandwidth, options.seed, options.quasi_random
        )
        link = Link(rows, features, sums_in(work, "featurize", rows, features), H[:0], np.arange(rows.c))
    with clock.stage("fit"):
        V = decode(link, chosen, setup, options, clock)
    model = Model(
        scaling=scaling,
        input_features=setup.inputs.features,
        W=None if first.W is None else setup.inputs.weights(host(first.W)[:, : chosen.rank]),
        classifier=first.classifier,
        normalize=normalize,
        features=features,
        V=V,
        loss=chosen.loss,
        multiclass=setup.multiclass,
        calibration=verdict.calibration,
        **totals(link),
        thresholds=verdict.thresholds,
    )
    return model, first


def totals(link: Link) -> dict[str, Any]:
    """What a model knows of label frequencies: from the targets of the constant feature, where these are here."""
    if link.sums.targets.shape[1] < link.rows.c:
        return label_totals(link.rows)
    return {"counts": np.array(link.sums.label_weights, np.float64), "total": link.sums.weight}


def train_quick(setup: Setup, scaling: Scaling, options: Options, clock: Clock) -> Trained:
    """One fit by rules of thumb, without the rows that calibrate it."""
    setup, (chosen, how) = hasty(setup, options), rules_of_thumb(setup, options)
    rows, held = setup.rows, small_holdout(setup, options)
    verdict = Verdict(chosen, no_calibration(), np.full(rows.c, 0.5), len(held), {})
    model, first = fit_link(setup, without(rows, held), chosen, scaling, options, clock, verdict)
    if len(held):
        with clock.stage("calibrate"):
            calibration, thresholds, value = calibrate(model, setup, held, host(rows_at(first.H, held)))
        verdict = verdict._replace(calibration=calibration, thresholds=thresholds, criteria={model.loss: value})
        model = replace(model, calibration=calibration, thresholds=thresholds, **label_totals(rows))
    U = None if first.U is None else host(first.U)[:, : chosen.rank]
    return Trained(model, U, summarise(chosen, how, first, setup, verdict, clock, scaling.kind))


def train_tuned(
    make: Callable[[Options], Setup], scaling: Scaling, options: Options, clock: Clock, work: Work
) -> Trained:
    """Settings by rules of thumb or by trials, then a fit that goes on with steps of all weights together."""
    setup, chosen, how, verdict = settle_first(make, options, clock, work)

    def fit(rows: Rows) -> tuple[Model, Embedded]:
        return fit_link(setup, rows, chosen, scaling, options, clock, verdict)

    tuned = fit_tuned(setup, options, clock, fit)
    model = tuned.model
    criteria = {model.loss: tuned.criterion} if np.isfinite(tuned.criterion) else {}
    verdict = Verdict(chosen, model.calibration, model.thresholds, tuned.held_rows, criteria)
    found = summarise(chosen, how, tuned.first, setup, verdict, clock, scaling.kind)
    direct = 0 if model.D is None else model.D.size
    return Trained(model, None, {**found, "finetune_passes": tuned.passes, "direct_weights": direct})


def settle_first(
    make: Callable[[Options], Setup], options: Options, clock: Clock, work: Work
) -> tuple[Setup, Chosen, dict[str, str], Verdict]:
    """Every setting of the fit that fine-tuning begins with."""
    plain = replace(options, input_kernel=None) if options.input_kernel == "auto" else options
    setup = make(with_width(plain, make))
    if options.loss == "auto":
        plain = replace(plain, loss="softmax" if setup.multiclass else "logistic")
    if options.effort == "quick":
        setup, (chosen, how) = hasty(setup, plain), rules_of_thumb(setup, plain)
    else:
        with warnings.catch_warnings(), clock.stage("choose"):
            warnings.simplefilter("ignore", RuntimeWarning)
            setup, choice = settled(plain, make, work)
            chosen, how = judged(setup, plain, choice.chosen).chosen, choice.how
    return setup, chosen, how, Verdict(chosen, no_calibration(), np.full(setup.rows.c, 0.5), 0, {})


def train_drawn(setup: Setup, scaling: Scaling, options: Options, clock: Clock) -> Trained:
    """W and V together, batches seeing labels that are drawn."""
    model, chosen, held, value = fit_together(setup, scaling, options, clock)
    how = {name: "rule" for name in ("rank", "passes") if getattr(options, name) == "auto"}
    setup = setup._replace(kernel=parse_kernel("linear"))
    first = Embedded(None, model.W, None, np.zeros((0, chosen.rank)), np.zeros(0), float("nan"))
    verdict = Verdict(chosen, model.calibration, model.thresholds, held, {model.loss: value} if held else {})
    found = summarise(chosen, how, first, setup, verdict, clock, scaling.kind)
    drawn = {
        "negatives": knobs_for(options).negatives,
        "direct_weights": 0 if model.D is None else model.D.size,
    }
    return Trained(model, None, {**found, **drawn})


def summarise(
    chosen: Chosen,
    how: dict[str, str],
    first: Embedded,
    setup: Setup,
    verdict: Verdict,
    clock: Clock,
    scaling: str,
) -> dict[str, Any]:
    """What was settled and by what, how much the embedding captures, seconds and memory of each stage."""
    captured = first.captured
    if len(first.spectrum) > chosen.rank:
        captured *= float(first.spectrum[: chosen.rank].sum() / first.spectrum.sum())
    return {
        "rows": setup.rows.n,
        "features": setup.inputs.columns or setup.rows.d - 1,
        "labels": setup.rows.c,
        "task": "multiclass" if setup.multiclass else "multilabel",
        "scale": scaling,
        "input_kernel": None if setup.inputs.kernel is None else str(setup.inputs.kernel),
        "input_bandwidth": None if setup.inputs.kernel is None else setup.inputs.bandwidth,
        "input_features": setup.rows.d - 1 if setup.inputs.kernel is not None else None,
        "solver": type(setup.stage.solver).__name__,
        "solver_iterations": first.effort.iterations,
        "solver_residual": first.effort.residual,
        "rank": min(chosen.rank, first.H.shape[1]),
        "captured_share": None if np.isnan(captured) else captured,
        "spectrum": [float(f"{value:.6g}") for value in first.spectrum[: chosen.rank]],
        "ridge": chosen.ridge,
        "kernel": str(setup.kernel),
        "bandwidth": chosen.bandwidth,
        "random_features": 0 if setup.kernel.name == "linear" else setup.n_features,
        "final_ridge": chosen.final_ridge,
        "loss": chosen.loss,
        "passes": chosen.passes,
        "chosen_by": how,
        "held_out_rows": verdict.held_rows,
        "held_out_criterion": verdict.criteria,
        "plan": setup.work.plan.told(),
        "seconds": clock.seconds,
        "peak_memory_mb": clock.peak_mb,
    }
