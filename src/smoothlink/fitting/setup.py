"""Rows, first stage and sizes: all of a fit that needs no held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.checkpoint import Work
from smoothlink.fitting.choose import RANKS
from smoothlink.fitting.first_stage import FirstStage
from smoothlink.fitting.inputs import KERNEL_BYTES, draw_inputs, kernel_bytes
from smoothlink.fitting.judge import LOGISTIC_FLOPS
from smoothlink.fitting.options import Inputs, Options, Setup
from smoothlink.fitting.plan import LARGEST_RANK, Plan, Sizes, resident_bytes
from smoothlink.machines.files import Mapped, Scaled
from smoothlink.machines.rows import Rows
from smoothlink.solve import Cholesky, ConjugateGradient, Solver, choose_solver
from smoothlink.steps.embed import rank_for_share
from smoothlink.steps.featurize import parse_kernel
from smoothlink.steps.fit import Smoothing
from smoothlink.steps.scale import Scaling

Array = NDArray[Any]

ALL_DIRECTIONS = 512  # labels up to which rank "auto" keeps every direction
MOST_DIRECTIONS = 1024  # that rank "auto" considers; a budget of memory allows fewer
QUICK_FEATURES = (200, 2000)
FEATURE_FLOPS = 7e12  # what n_features "auto" may spend, about a minute on two cores


def inputs_for(X: Any, scaling: Scaling, options: Options, plan: Plan) -> Any:
    """X scaled: as an array, or where it is in files or memory is scarce, a block at a time when a sum reaches it.

    A kernel of x needs the rows in memory.
    """
    n, d = X.shape
    elsewhere = isinstance(X, Mapped) or plan.memory is not None
    if options.input_kernel not in (None, "auto"):
        if plan.memory is not None and kernel_bytes(options, n) + 8 * n * d > (plan.kept or 0):
            raise ValueError("input_kernel needs the rows in memory, and there is not enough; leave it None.")
        elsewhere = False
    table = scaling.dense and scaling.kind == "variance" and options.input_kernel == "auto"
    if table and kernel_bytes(options, n) <= KERNEL_BYTES:  # small: a kernel may be tried
        elsewhere = plan.memory is not None and kernel_bytes(options, n) + 8 * n * d > (plan.kept or 0)
    return Scaled(X, scaling.__call__, plan.kept) if elsewhere else scaling(X)


def set_up(
    A: Any,
    Y: sp.csr_array,
    w: Array | None,
    options: Options,
    multiclass: bool,
    label_weight: Array | None,
    *,
    table: bool = False,
    work: Work | None = None,
) -> Setup:
    """Rows, first stage and sizes: all that needs no held-out rows."""
    inputs, work = Inputs(), work or Work()
    if options.input_kernel not in (None, "auto"):
        inputs, A = draw_inputs(A, w, options)
    blocks = options.block_rows or work.plan.block_rows
    rows = Rows.of(A, Y, w, block_rows=blocks, columns=work.plan.columns)
    n = int(np.count_nonzero(rows.w))
    ranks, share = candidate_ranks(rows, options, n, multiclass)
    stage = FirstStage(
        embedding=options.embedding,
        solver=planned_solver(options.solver, rows, ranks[-1] + options.oversample, A, work.plan),
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
        kernel=parse_kernel("gaussian" if options.kernel == "auto" else options.kernel),
        n_features=feature_count(options, n, rows.c),
        ranks=ranks,
        smoothing=Smoothing.of(options.label_smoothing, rows.c, multiclass=multiclass),
        work=work,
    )


def planned_solver(solver: Any, rows: Rows, columns: int, A: Any, plan: Plan) -> Solver:
    """A solver that the plan has room for: without a sketch of X'X, and without a factor where that would fill it."""
    if solver == "auto" and not plan.cholesky:
        solver = "cg"
    found = resolve_solver(solver, rows, columns, A)
    if plan.memory is not None and isinstance(solver, str) and isinstance(found, ConjugateGradient):
        return replace(found, preconditioner="diagonal")
    return found


def resolve_solver(solver: Any, rows: Rows, columns: int, A: Any) -> Solver:
    """A solver object as it is; "auto" by predicted cost; or by name."""
    if not isinstance(solver, str):
        return solver
    if solver == "auto":
        return choose_solver(rows, columns, A.size if isinstance(A, np.ndarray) else A.nnz)
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
    if options.memory is not None and not isinstance(rank, (int, np.integer)):
        most = min(most, LARGEST_RANK)  # what the plan counts with
    if rank == "adaptive":
        return (most,), None
    if rank == "auto":
        if rows.c <= ALL_DIRECTIONS:
            return (most,), None
        most = min(most, MOST_DIRECTIONS)
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
    if options.effort == "quick":
        return int(np.clip(n // 3, *QUICK_FEATURES))
    s = int(np.clip(max(3 * n // 5, min(2 * n, 1000)), 200, 3000))
    while s > 1000 and fit_flops(n, s, c) > FEATURE_FLOPS:
        s -= 100
    return s


def fit_flops(n: int, s: int, c: int) -> float:
    """Operations of the Gram matrix and, where "auto" would try them, of some passes of the descent."""
    a_pass = 4.0 * n * s * c
    return n * s * s + (8 * a_pass if a_pass <= LOGISTIC_FLOPS else 0.0)


def sizes_of(X: Any, Y: sp.csr_array, w: Array | None, options: Options, *, dense: bool) -> Sizes:
    """What the plan depends on."""
    (n, d), c = X.shape, Y.shape[1]
    live = n if w is None else int(np.count_nonzero(w))
    most = max(1, min(c, d + 1, live))
    rank, ranks = options.rank, 1
    if options.embedding in ("none", "identity"):
        k = d if options.embedding == "none" else c
    elif isinstance(rank, (int, np.integer)):
        k = min(int(rank), most)
    else:
        k = min(most, LARGEST_RANK)
        ranks = 2 if rank == "auto" and c > ALL_DIRECTIONS else 1
    names = {Cholesky: "cholesky", ConjugateGradient: "cg"}
    solver = options.solver if isinstance(options.solver, str) else names.get(type(options.solver), "cg")
    return Sizes(
        *(n, d + 1, c, X.nnz if sp.issparse(X) else X.size, Y.nnz, k, min(c, k + options.oversample)),
        features=k if options.kernel == "linear" else feature_count(options, live, c),
        dense=dense,
        ranks=ranks,
        folds=1 if n > 10_000 else 10,
        solver=solver,
        loss=options.loss,
        search="auto" in (rank, options.ridge, options.bandwidth, options.final_ridge),
        held=max(1, int(n * options.holdout)),
        resident=resident_bytes(),
    )
