"""Arrays -> a fitted model: scale, choose, judge on held-out rows, then embed, featurize and fit all rows."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.baseline import choose_baseline, fit_baseline
from smoothlink.fitting.choose import RANKS, Link, seeded_features, shaped
from smoothlink.fitting.first_stage import Embedded, FirstStage
from smoothlink.fitting.inputs import draw_inputs, settle, with_width
from smoothlink.fitting.judge import LOGISTIC_FLOPS, Verdict, descent, judge
from smoothlink.fitting.options import Chosen, Clock, Inputs, Notify, Options, Setup
from smoothlink.machines.rows import BLOCK_ROWS, Rows
from smoothlink.model import Model
from smoothlink.solve import Cholesky, ConjugateGradient, Solver, choose_solver
from smoothlink.steps.calibrate import no_calibration
from smoothlink.steps.embed import label_counts, rank_for_share
from smoothlink.steps.featurize import draw_features, parse_kernel
from smoothlink.steps.fit import Smoothing, link_sums, squared
from smoothlink.steps.scale import Scaling, choose_scaling

Array = NDArray[Any]

ALL_DIRECTIONS = 512  # labels up to which rank "auto" keeps every direction
FEATURE_FLOPS = 7e12  # what n_features "auto" may spend, about a minute on two cores
LARGEST_RANK = 512  # that rank "auto" considers where there are more


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
) -> Trained:
    """Fits a model to X (n, d), Y (n, c) and weights w (n,)."""
    clock = Clock(notify)
    with clock.stage("scale"):
        scaling = choose_scaling(X, options.scale, w)
        A = scaling(X)

    def make(options: Options) -> Setup:
        return set_up(A, Y, w, options, multiclass, label_weight, table=scaling.dense and scaling.kind == "variance")

    if options.embedding in ("plst", "cplst"):
        return train_baseline(make(with_width(options, make)), scaling, options, clock)
    with warnings.catch_warnings():  # of fits to part of the rows: the one to all of them speaks for itself
        warnings.simplefilter("ignore", RuntimeWarning)
        with clock.stage("choose"):
            setup, choice = settle(options, make)
        with clock.stage("calibrate"):
            verdict = judge(setup, options, choice.chosen)
            chosen = verdict.chosen
    with clock.stage("embed"):
        first = setup.stage.fit(setup.rows, setup.stage.prepare(setup.rows), chosen.ridge)
        H = shaped(first.H, chosen.rank, options.normalize_embedding)
    with clock.stage("featurize"):
        rows = setup.rows.with_inputs(H)
        features = seeded_features(
            rows, H, setup.kernel, setup.n_features, chosen.bandwidth, options.seed, options.quasi_random
        )
        link = Link(rows, features, link_sums(rows, features), H[:0])
    with clock.stage("fit"):
        V = decode(link, chosen, setup, options, clock)
    model = Model(
        scaling=scaling,
        input_features=setup.inputs.features,
        W=None if first.W is None else setup.inputs.weights(first.W[:, : chosen.rank]),
        classifier=first.classifier,
        normalize=options.normalize_embedding,
        features=features,
        V=V,
        loss=chosen.loss,
        multiclass=multiclass,
        calibration=verdict.calibration,
        counts=np.array(link.sums.label_weights, np.float64),
        total=link.sums.weight,
        thresholds=verdict.thresholds,
    )
    U = None if first.U is None else first.U[:, : chosen.rank]
    return Trained(model, U, summarise(chosen, choice.how, first, setup, verdict, clock, scaling.kind))


def train_baseline(setup: Setup, scaling: Scaling, options: Options, clock: Clock) -> Trained:
    """PLST or CPLST: only the ridge is chosen on held-out rows; the decoder is linear and nothing is calibrated."""
    with clock.stage("choose"):
        ridge, thresholds, held = choose_baseline(setup, options)
    with clock.stage("fit"):
        space = fit_baseline(setup, setup.rows, ridge)
    linear = draw_features(parse_kernel("linear"), space.U.shape[1], 0, 1.0, 1.0, np.random.default_rng(0))
    model = Model(
        scaling=scaling,
        input_features=setup.inputs.features,
        W=setup.inputs.weights(space.W),  # as a model file has them: BLAS may round another order otherwise
        classifier=None,
        normalize=False,
        features=linear,
        V=np.ascontiguousarray(space.V),
        loss="squared",
        multiclass=setup.multiclass,
        calibration=no_calibration(),
        counts=setup.rows.sum(label_counts, out=(setup.rows.c,), dtype=np.float64),
        total=float(setup.rows.w.sum(dtype=np.float64)),
        thresholds=thresholds,
    )
    setup = setup._replace(kernel=parse_kernel("linear"))
    rank = space.U.shape[1]
    chosen = Chosen(ridge, rank, 1.0, 0.0, "squared", 0)
    how = {"ridge": "held-out rows" if options.ridge == "auto" else "given"}
    first = Embedded(space.U, space.W, None, np.zeros((0, rank)), np.zeros(0), float("nan"))
    verdict = Verdict(chosen, model.calibration, thresholds, held, {})
    return Trained(model, space.U, summarise(chosen, how, first, setup, verdict, clock, scaling.kind))


def decode(link: Link, chosen: Chosen, setup: Setup, options: Options, clock: Clock) -> Array:
    """V by the chosen loss over all rows."""
    if chosen.loss == "squared":
        return np.ascontiguousarray(squared(link.sums, chosen.final_ridge, setup.smoothing))
    run = descent(chosen.loss, link, chosen, setup, options)
    V = next(run)
    for sweep in range(1, chosen.passes):
        clock.tell("fit", sweep / chosen.passes)
        V = next(run)
    return V


def set_up(
    A: Any,
    Y: sp.csr_array,
    w: Array | None,
    options: Options,
    multiclass: bool,
    label_weight: Array | None,
    *,
    table: bool = False,
) -> Setup:
    """Rows, first stage and sizes: all that needs no held-out rows."""
    inputs = Inputs()
    if options.input_kernel not in (None, "auto"):
        inputs, A = draw_inputs(A, w, options)
    rows = Rows.of(A, Y, w, block_rows=options.block_rows or BLOCK_ROWS)
    n = int(np.count_nonzero(rows.w))
    ranks, share = candidate_ranks(rows, options, n, multiclass)
    stage = FirstStage(
        embedding=options.embedding,
        solver=resolve_solver(options.solver, rows, ranks[-1] + options.oversample, A),
        rank=ranks[-1],
        adaptive=options.rank == "adaptive",
        share=share,
        power=options.power,
        oversample=options.oversample,
        half_step=options.half_step,
        penalize_constant=options.penalize_constant,
        classifier=options.first_stage,
        seed=options.seed,
        label_scale=None if label_weight is None else np.sqrt(label_weight).astype(np.float32),
    )
    return Setup(
        rows=rows,
        Y=Y,
        multiclass=multiclass,
        stage=stage,
        inputs=inputs,
        table=table,
        kernel=parse_kernel(options.kernel),
        n_features=feature_count(options, n, rows.c),
        ranks=ranks,
        smoothing=Smoothing.of(options.label_smoothing, rows.c, multiclass=multiclass),
    )


def resolve_solver(solver: Any, rows: Rows, columns: int, A: Any) -> Solver:
    """A solver object as it is; "auto" by predicted cost; or by name."""
    if not isinstance(solver, str):
        return solver
    if solver == "auto":
        return choose_solver(rows, columns, A.nnz if sp.issparse(A) else A.size)
    named: dict[str, Solver] = {"cholesky": Cholesky(), "cg": ConjugateGradient()}
    if solver not in named:
        raise ValueError(f"solver is {solver!r}; possible are 'auto', 'cholesky', 'cg' or a solver object.")
    return named[solver]


def candidate_ranks(rows: Rows, options: Options, n: int, multiclass: bool) -> tuple[tuple[int, ...], float | None]:
    """The ranks to choose among, ascending, and the share of tr Y'PY to cut the embedding at, if any."""
    if options.embedding == "none":
        return (rows.d - 1,), None
    if options.embedding == "identity":
        return (rows.c,), None
    most, rank = max(1, min(rows.c, rows.d, n)), options.rank
    if rank == "adaptive":
        return (most,), None
    if rank == "auto":
        if rows.c <= ALL_DIRECTIONS:
            return (most,), None
        most = min(most, LARGEST_RANK)
        return (*(k for k in RANKS if k < most), most), None
    if isinstance(rank, (int, np.integer)):
        return (min(int(rank), most),), None
    if multiclass:  # Y'Y is diagonal there, so the share is of tr Y'PY and cut when the embedding is known
        return (most,), float(rank)
    return (rank_for_share(rows, float(rank), most, np.random.default_rng([options.seed, 5])),), None


def feature_count(options: Options, n: int, c: int) -> int:
    """Two random features a row up to 1000, then three for five rows: more help a little, but cost their square."""
    if options.n_features != "auto":
        return int(options.n_features)
    s = int(np.clip(max(3 * n // 5, min(2 * n, 1000)), 200, 3000))
    while s > 1000 and fit_flops(n, s, c) > FEATURE_FLOPS:
        s -= 100
    return s


def fit_flops(n: int, s: int, c: int) -> float:
    """Operations of the Gram matrix and, where "auto" would try them, of some passes of the descent."""
    a_pass = 4.0 * n * s * c
    return n * s * s + (8 * a_pass if a_pass <= LOGISTIC_FLOPS else 0.0)


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
        "rank": min(chosen.rank, first.H.shape[1]),
        "captured_share": None if np.isnan(captured) else captured,
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
        "seconds": clock.seconds,
        "peak_memory_mb": clock.peak_mb,
    }
