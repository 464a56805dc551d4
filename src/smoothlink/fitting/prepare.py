"""Everything of a fit that needs no held-out rows: the memory plan, blocks of scaled rows, the solver, sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.checkpoint import FitState
from smoothlink.fitting.choose import ALL_DIRECTIONS, START
from smoothlink.fitting.embedding import Embedder
from smoothlink.fitting.holdout import MANY_ROWS, ONE_FIT_ROWS, fold_count
from smoothlink.fitting.input_kernel import KERNEL_BYTES, draw_inputs, kernel_bytes
from smoothlink.fitting.memory import (
    GRADIENT_ARRAYS,
    LARGEST_RANK,
    SEARCH_ROWS,
    BudgetError,
    Plan,
    Sizes,
    make_plan,
)
from smoothlink.fitting.settings import Inputs, Problem, Request, Settings, TrainingData
from smoothlink.fitting.train_jointly import joint_sizes, wants_joint
from smoothlink.fitting.validate import LOGISTIC_FLOPS, affordable_flops
from smoothlink.machines.host_and_device import BLOCK_ROWS, HOST, HOST_COLUMNS, Speeds, find_machine
from smoothlink.machines.rows import Rows
from smoothlink.machines.rows_in_files import MappedMatrix, ScaledRows
from smoothlink.parameters import memory_bytes
from smoothlink.solve import Cholesky, ConjugateGradient, DualCholesky, Solver, choose_solver
from smoothlink.steps.embed import rank_for_share
from smoothlink.steps.featurize import parse_kernel
from smoothlink.steps.scale import Scaling
from smoothlink.steps.sgd import KEPT_FEATURES, SGD
from smoothlink.steps.squared import Smoothing
from smoothlink.steps.trees import DIRECTIONS, CrossFit, tree_bytes, with_predictions

Array = NDArray[Any]

FEATURES = 200, 2000  # random ones, at least and at most
SKETCHES = 6  # (d, rank) arrays of the correction that a solver object may ask for
FEATURE_FLOPS = 5e12  # that the number of features "auto" may spend, about a minute on two cores


def scaled_inputs(X: Any, scaling: Scaling, request: Request, plan: Plan) -> Any:
    """Returns X scaled: as an array, or where memory is counted, a block at a time when a sum reaches it."""
    if plan.memory is None or plan.table:
        return scaling(X[:] if isinstance(X, MappedMatrix) else X)
    kept, room = plan.kept or 0, find_machine(request.device).block_bytes()
    return ScaledRows(X, scaling.__call__, kept if room is None else min(kept, room))


def make_problem(
    A: Any, data: TrainingData, scaling: Scaling, request: Request, state: FitState, grown: CrossFit | None = None
) -> Problem:
    """Returns the problem that a request poses: the rows of A (n, d + 1), with trees that were grown beside them or
    without, or a kernel of them, in blocks."""
    table = scaling.dense and scaling.kind == "variance" and not isinstance(A, ScaledRows)
    planned_rows = None if state.plan.memory is None else state.plan.block_rows
    machine = find_machine(request.device)
    A = A if grown is None else with_predictions(grown.X, grown.predictions())
    inputs = Inputs() if request.input_kernel in (None, "auto") else draw_inputs(A, data.w, request)

    def rows_of(A: Any) -> Rows:
        block_rows = request.block_rows or planned_rows
        return Rows.of(inputs.values(A), data.Y, data.w, block_rows=block_rows, machine=machine)

    def regrown(held: Array) -> Rows:
        assert grown is not None
        return rows_of(with_predictions(grown.X, grown.predictions(held)))

    rows = rows_of(A)
    label_scale = None if data.label_weight is None else np.sqrt(data.label_weight).astype(np.float32)
    problem = Problem(rows, data.Y, data.multiclass, scaling, inputs, table, label_scale, state, data.groups, data.held)
    return problem if grown is None else problem._replace(inputs=inputs._replace(trees=grown.trees), regrown=regrown)


def number_of_entries(A: Any) -> int:
    """Returns how many numbers a sparse or dense matrix stores."""
    return int(A.size if isinstance(A, np.ndarray) else A.nnz)


def start_settings(problem: Problem, request: Request, entries: int) -> Settings:
    """Returns the settings with which a search begins: everything that needs no held-out rows, and a start for the
    rest. X has so many entries."""
    rows, plan = problem.rows, problem.state.plan
    n = int(np.count_nonzero(rows.w))
    rank, share = largest_rank_of(rows, request, n, problem.multiclass)
    embedder = Embedder(
        embedding=request.embedding,
        solver=planned_solver(request.solver, rows, rank + request.oversample, entries, plan),
        rank=rank,
        adaptive=request.rank == "adaptive",
        share=share,
        power=request.power,
        oversample=request.oversample,
        classifier=request.classifier,
        seed=request.seed,
        label_scale=problem.label_scale,
    )
    kernel = parse_kernel("gaussian" if request.kernel == "auto" else request.kernel)
    return Settings(
        embedder=embedder,
        ridge=START["ridge"],
        rank=rank,
        normalize=request.normalize_embedding,
        kernel=kernel,
        features=feature_count(request, n, rows.c),
        bandwidth=START["bandwidth"],
        final_ridge=START["final_ridge"],
        loss="squared" if request.loss == "auto" else request.loss,
        passes=0,
        sgd=SGD(
            request.learning_rate,
            request.momentum,
            request.decay,
            request.batch_rows,
            kept=KEPT_FEATURES if problem.state.plan.memory is None else 0,
        ),
        smoothing=Smoothing.of(request.label_smoothing, rows.c, multiclass=problem.multiclass),
        seed=request.seed,
    )


def planned_solver(solver: Any, rows: Rows, columns: int, entries: int, plan: Plan) -> Solver:
    """Returns a solver that the plan has room for: no factor where that would fill it, and no sketch of X'X."""
    if solver == "auto" and not plan.factors:
        solver = "cg"
    found = resolve_solver(solver, rows.n, rows.d, columns, entries, rows.machine.speeds, by_sums=rows.remote)
    if plan.memory is not None and isinstance(solver, str) and isinstance(found, ConjugateGradient):
        return replace(found, preconditioner="diagonal", group=plan.columns or rows.columns(rows.d))
    return found


def resolve_solver(
    solver: Any, n: int, d: int, columns: int, entries: int, speeds: Speeds = HOST.speeds, *, by_sums: bool = False
) -> Solver:
    """Returns a solver object as it is; "auto" by predicted cost; or by name."""
    if not isinstance(solver, str):
        return solver
    if solver == "auto":
        return choose_solver(n, d, columns, entries, speeds, by_sums=by_sums)
    named: dict[str, Solver] = {"cholesky": Cholesky(), "dual": DualCholesky(), "cg": ConjugateGradient()}
    return named[solver]


def largest_rank_of(rows: Rows, request: Request, n: int, multiclass: bool) -> tuple[int, float | None]:
    """Returns the largest rank that may be chosen, and the share of tr Y'PY that decides it in the end, if any."""
    if request.embedding == "none":
        return rows.d - 1, None
    if request.embedding == "per_label":
        return rows.c, None
    most, rank = max(1, min(rows.c, rows.d, n)), request.rank
    if request.memory is not None and not isinstance(rank, (int, np.integer)):
        most = min(most, LARGEST_RANK)  # what the plan counts with
    if rank == "adaptive":
        return most, None
    if rank == "auto":
        return min(most, ALL_DIRECTIONS), None
    if isinstance(rank, (int, np.integer)):
        return min(int(rank), most), None
    if multiclass:  # Y'Y is diagonal there, so the share is of tr Y'PY and known when the embedding is
        return most, float(rank)
    return rank_for_share(rows, float(rank), most, np.random.default_rng([request.seed, 5])), None


def feature_count(request: Request, n: int, c: int) -> int:
    """Returns two random features per row up to 1000, then three for five rows up to 2000.

    3000 cost twice as much and changed P@1 and P@5 of held-out rows by 0.1 on average (results/choose).
    """
    if request.n_features != "auto":
        return int(request.n_features)
    if request.effort == "quick":
        return int(np.clip(n // 3, *FEATURES))
    s = int(np.clip(max(3 * n // 5, min(2 * n, 1000)), *FEATURES))
    while s > 1000 and fit_flops(n, s, c) > FEATURE_FLOPS * find_machine(request.device).speed:
        s -= 100
    return s


def fit_flops(n: int, s: int, c: int) -> float:
    """Returns the operations of the Gram matrix and, where "auto" would try them, of some passes of the SGD."""
    a_pass = 4.0 * n * s * c
    return n * s * s + (8 * a_pass if a_pass <= LOGISTIC_FLOPS else 0.0)


def plan_memory(
    data: TrainingData, request: Request, *, dense: bool, resident: Callable[[], int], table: bool = False
) -> Plan:
    """Returns the sizes of parts: no limits, or what the memory of the request has room for, joint training included
    where that is what suits.

    `resident` measures what the process holds before the fit; of a `table`, kernels and trees may be tried.
    """
    if request.memory is None:
        return Plan(block_rows=request.block_rows or BLOCK_ROWS)
    memory = memory_bytes(request.memory)
    assert memory is not None
    (n, c), weighted = data.Y.shape, data.label_weight is not None
    live = n if data.w is None else int(np.count_nonzero(data.w))
    joint = wants_joint(request, n, feature_count(request, live, c), c, sp.issparse(data.X) and not dense, weighted)
    sizes = sizes_of(data, request, dense=dense, resident=resident())
    asked = request.trees is True or request.input_kernel not in (None, "auto")
    if asked or (table and request.input_kernel == "auto" and kernel_bytes(request, n) <= KERNEL_BYTES):
        try:
            whole = make_plan(memory, with_rows_in_memory(sizes, data, request), request.block_rows)
            return replace(whole, table=True, inputs=0, whole=True)
        except BudgetError:
            if asked:
                raise
    if not joint:
        return make_plan(memory, sizes, request.block_rows)
    try:
        held = min(sizes.held, 2 * ONE_FIT_ROWS) if n >= MANY_ROWS else sizes.held
        return make_plan(memory, sizes._replace(joint=joint_sizes(data, request), held=held), request.block_rows)
    except BudgetError as jointly:
        if request.training == "joint":
            raise
        try:
            return replace(make_plan(memory, sizes, request.block_rows), joint_needs=jointly.least)
        except BudgetError as stepwise:
            raise min(jointly, stepwise, key=lambda error: error.least) from None


def with_rows_in_memory(z: Sizes, data: TrainingData, request: Request) -> Sizes:
    """Returns the sizes of a fit that holds X, for the kernel of x and the trees that it may try."""
    n, d = data.X.shape
    held, columns, folds = 8 * n * d if z.dense else 24 * z.entries, d, 1 + max(z.folds, z.search_folds)
    if request.trees is not False:
        columns += DIRECTIONS
        held += tree_bytes(n, d, z.c, folds) + folds * 4 * n * (columns + 1)  # each fold has predictions of its own
    if request.input_kernel is not None:
        held += (2 if request.trees is False else 1 + folds) * kernel_bytes(request, n)
        columns = max(columns, kernel_bytes(request, n) // (4 * n))
    found = solver_sizes(request.solver, n, columns + 1, z.probes, n * (columns + 1))
    return z._replace(d=columns + 1, entries=n * (columns + 1), dense=True, resident=z.resident + held, **found)


def sizes_of(data: TrainingData, request: Request, *, dense: bool, resident: int) -> Sizes:
    """Returns what the plan depends on."""
    X, Y, w = data.X, data.Y, data.w
    (n, d), c = X.shape, Y.shape[1]
    live = n if w is None else int(np.count_nonzero(w))
    k = largest_rank(request, live, d, c)
    several = request.rank == "auto" and c > ALL_DIRECTIONS
    probes, entries = min(c, k + request.oversample), (X.nnz if sp.issparse(X) else X.size) + n
    searched = "auto" in (request.ridge, request.bandwidth, request.final_ridge) or several
    s = k if request.kernel == "linear" else feature_count(request, live, c)
    affordable = affordable_flops(multiclass=data.multiclass)
    return Sizes(
        *(n, d + 1, c, entries, Y.nnz, k, probes, s + 1),
        dense=dense,
        spare=probes if request.rank == "adaptive" else 0,
        ranks=2 if several else 1,
        folds=fold_count(n, request),
        search_folds=fold_count(min(n, SEARCH_ROWS), request) if searched else 0,
        **solver_sizes(request.solver, n, d + 1, probes, entries),
        loss="squared" if request.loss == "auto" and 4.0 * n * s * c > affordable else request.loss,
        multiclass=data.multiclass,
        weighted=data.label_weight is not None,
        held=max(1, int(n * request.holdout)) if request.calibrate or not request.given else 0,
        saves=request.checkpoint is not None,
        resident=resident,
    )


def largest_rank(request: Request, n: int, d: int, c: int) -> int:
    """Returns the most directions that may be chosen, before rows are in blocks."""
    if request.embedding in ("none", "per_label"):
        return d if request.embedding == "none" else c
    asked = request.rank if isinstance(request.rank, (int, np.integer)) else LARGEST_RANK
    return max(1, min(int(asked), c, d + 1, n))


def solver_sizes(solver: Any, n: int, d: int, columns: int, entries: int) -> dict[str, Any]:
    """Returns what the plan must know of a solver."""
    found = resolve_solver(solver, n, d, columns, entries)
    if isinstance(found, ConjugateGradient):
        sketch = 0 if isinstance(solver, str) or found.preconditioner == "diagonal" else SKETCHES * found.rank
        group = (found.group or HOST_COLUMNS) + sketch // GRADIENT_ARRAYS
        return {"solver": "cg", "auto": isinstance(solver, str), "group": group}
    names = {Cholesky: "cholesky", DualCholesky: "dual"}
    if type(found) not in names:
        raise ValueError(f"memory goes with the solvers of smoothlink.solve, and solver is {solver!r}.")
    return {"solver": names[type(found)], "auto": solver == "auto"}
