"""Rows, first stage and sizes: all of a fit that needs no held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.budget import make_plan
from smoothlink.fitting.checkpoint import Work
from smoothlink.fitting.choose import RANKS, fold_count
from smoothlink.fitting.first_stage import FirstStage
from smoothlink.fitting.inputs import KERNEL_BYTES, draw_inputs, kernel_bytes
from smoothlink.fitting.judge import LOGISTIC_FLOPS
from smoothlink.fitting.needs import GRADIENT_ARRAYS, Sizes
from smoothlink.fitting.options import Inputs, Options, Setup
from smoothlink.fitting.plan import LARGEST_RANK, SEARCH_ROWS, Plan, parse_memory, size
from smoothlink.fitting.warm import loaded_bytes
from smoothlink.machines.files import Mapped, Scaled
from smoothlink.machines.machine import BLOCK_ROWS, HOST, HOST_COLUMNS, Rates, find_machine
from smoothlink.machines.rows import Rows
from smoothlink.solve import Cholesky, ConjugateGradient, DualCholesky, Solver, choose_solver
from smoothlink.steps.embed import rank_for_share
from smoothlink.steps.featurize import parse_kernel
from smoothlink.steps.fit import Smoothing
from smoothlink.steps.scale import Scaling

Array = NDArray[Any]

NO_KERNEL = Inputs()
ALL_DIRECTIONS = 512  # labels up to which rank "auto" keeps every direction
MOST_DIRECTIONS = 1024  # that rank "auto" considers; a budget of memory allows fewer
QUICK_FEATURES = (200, 2000)
SKETCHES = 6  # (d, rank) arrays of the correction that a solver object may ask for
FEATURE_FLOPS = 7e12  # what n_features "auto" may spend, about a minute on two cores


def inputs_for(X: Any, scaling: Scaling, options: Options, plan: Plan) -> Any:
    """X scaled: as an array, or where memory is counted, a block at a time when a sum reaches it.

    A kernel of x needs the rows in memory.
    """
    n, d = X.shape
    fits = plan.memory is None or kernel_bytes(options, n) + 8 * n * d <= (plan.kept or 0)
    if options.input_kernel not in (None, "auto") and not fits:
        raise ValueError(
            f"input_kernel is {options.input_kernel!r}, which needs the rows in memory, and {size(plan.memory or 0)} "
            "do not hold them.\nLeave it None, or allow more memory."
        )
    table = scaling.dense and scaling.kind == "variance" and kernel_bytes(options, n) <= KERNEL_BYTES
    kernel = options.input_kernel is not None and (options.input_kernel != "auto" or table)  # or may be tried
    if plan.memory is None or (kernel and fits):
        return scaling(X[:] if isinstance(X, Mapped) else X)
    kept, room = plan.kept or 0, find_machine(options.device).room()
    return Scaled(X, scaling.__call__, kept if room is None else min(kept, room))


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
    machine = find_machine(options.device)
    planned_rows = None if work.plan.memory is None else work.plan.block_rows
    rows = Rows.of(A, Y, w, block_rows=options.block_rows or planned_rows, machine=machine)
    entries = A.size if isinstance(A, np.ndarray) else A.nnz
    return arranged(rows, Y, entries, options, multiclass, label_weight, inputs=inputs, table=table, work=work)


def arranged(
    rows: Rows,
    Y: Any,
    entries: int,
    options: Options,
    multiclass: bool,
    label_weight: Array | None,
    *,
    inputs: Inputs = NO_KERNEL,
    table: bool = False,
    work: Work,
) -> Setup:
    """First stage and sizes for rows that are where they are to be; X has so many entries."""
    n = int(np.count_nonzero(rows.w))
    ranks, share = candidate_ranks(rows, options, n, multiclass)
    stage = FirstStage(
        embedding=options.embedding,
        solver=planned_solver(options.solver, rows, ranks[-1] + options.oversample, entries, work.plan),
        rank=ranks[-1],
        adaptive=options.rank == "adaptive",
        share=share,
        power=options.power,
        oversample=options.oversample,
        classifier=options.classifier,
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


def planned_solver(solver: Any, rows: Rows, columns: int, entries: int, plan: Plan) -> Solver:
    """A solver that the plan has room for: without a factor where that would fill it, and without a sketch of X'X."""
    if solver == "auto" and not plan.factors:
        solver = "cg"
    found = resolve_solver(solver, rows.n, rows.d, columns, entries, rows.machine.rates, by_sums=rows.remote)
    if plan.memory is not None and isinstance(solver, str) and isinstance(found, ConjugateGradient):
        return replace(found, preconditioner="diagonal", group=plan.columns or found.group)
    return found


def resolve_solver(
    solver: Any, n: int, d: int, columns: int, entries: int, rates: Rates = HOST.rates, *, by_sums: bool = False
) -> Solver:
    """A solver object as it is; "auto" by predicted cost; or by name."""
    if not isinstance(solver, str):
        return solver
    if solver == "auto":
        return choose_solver(n, d, columns, entries, rates, by_sums=by_sums)
    named: dict[str, Solver] = {"cholesky": Cholesky(), "dual": DualCholesky(), "cg": ConjugateGradient()}
    if solver not in named:
        raise ValueError(f"solver is {solver!r}; possible are 'auto', 'cholesky', 'dual', 'cg' or a solver object.")
    return named[solver]


def candidate_ranks(rows: Rows, options: Options, n: int, multiclass: bool) -> tuple[tuple[int, ...], float | None]:
    """The ranks to choose among, ascending, and the share of tr Y'PY to cut the embedding at, if any."""
    if options.embedding == "none":
        return (rows.d - 1,), None
    if options.embedding == "per_label":
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
    while s > 1000 and fit_flops(n, s, c) > FEATURE_FLOPS * find_machine(options.device).speed:
        s -= 100
    return s


def fit_flops(n: int, s: int, c: int) -> float:
    """Operations of the Gram matrix and, where "auto" would try them, of some passes of the descent."""
    a_pass = 4.0 * n * s * c
    return n * s * s + (8 * a_pass if a_pass <= LOGISTIC_FLOPS else 0.0)


def planned(
    X: Any, Y: sp.csr_array, w: Array | None, options: Options, multiclass: bool, *, dense: bool, weighted: bool
) -> Plan:
    """What goes at a time: all, or what the memory that the options allow has room for."""
    memory = parse_memory(options.memory)
    if memory is None:
        return Plan(block_rows=options.block_rows or BLOCK_ROWS)
    sizes = sizes_of(X, Y, w, options, multiclass, dense=dense, weighted=weighted)
    return make_plan(memory, sizes, options.block_rows)


def sizes_of(
    X: Any, Y: sp.csr_array, w: Array | None, options: Options, multiclass: bool, *, dense: bool, weighted: bool
) -> Sizes:
    """What the plan depends on."""
    (n, d), c = X.shape, Y.shape[1]
    live = n if w is None else int(np.count_nonzero(w))
    k = largest_rank(options, live, d, c)
    several = options.rank == "auto" and c > ALL_DIRECTIONS
    probes, entries = min(c, k + options.oversample), (X.nnz if sp.issparse(X) else X.size) + n
    searched = "auto" in (options.ridge, options.bandwidth, options.final_ridge) or several
    s = k if options.kernel == "linear" else feature_count(options, live, c)
    return Sizes(
        *(n, d + 1, c, entries, Y.nnz, k, probes, s + 1),
        dense=dense,
        spare=probes if options.rank == "adaptive" else 0,
        ranks=2 if several else 1,
        folds=fold_count(n, options),
        search_folds=fold_count(min(n, SEARCH_ROWS), options) if searched else 0,
        **solver_sizes(options.solver, n, d + 1, probes, entries),
        loss="squared" if options.loss == "auto" and 4.0 * n * s * c > LOGISTIC_FLOPS else options.loss,
        multiclass=multiclass,
        weighted=weighted,
        held=max(1, int(n * options.holdout)) if options.calibrate or not options.given else 0,
        keeps=options.checkpoint is not None,
        resident=loaded_bytes(options, multiclass),
    )


def largest_rank(options: Options, n: int, d: int, c: int) -> int:
    """The most directions that may be asked for."""
    if options.embedding in ("none", "per_label"):
        return d if options.embedding == "none" else c
    asked = options.rank if isinstance(options.rank, (int, np.integer)) else LARGEST_RANK
    return max(1, min(int(asked), c, d + 1, n))


def solver_sizes(solver: Any, n: int, d: int, columns: int, entries: int) -> dict[str, Any]:
    """What the plan must know of a solver."""
    found = resolve_solver(solver, n, d, columns, entries)
    if isinstance(found, ConjugateGradient):
        sketch = 0 if isinstance(solver, str) or found.preconditioner == "diagonal" else SKETCHES * found.rank
        group = (found.group or HOST_COLUMNS) + sketch // GRADIENT_ARRAYS
        return {"solver": "cg", "auto": isinstance(solver, str), "group": group}
    names = {Cholesky: "cholesky", DualCholesky: "dual"}
    if type(found) not in names:
        raise ValueError(f"memory goes with the solvers of smoothlink.solve, and solver is {solver!r}.")
    return {"solver": names[type(found)], "auto": solver == "auto"}
