"""Joint training as a fit: when it is chosen, its settings, and the models of sampled negatives and fine-tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DeviceError
from smoothlink.fitting.calibration import HeldOut, criterion
from smoothlink.fitting.checkpoint import FitState
from smoothlink.fitting.device_memory import check_joint
from smoothlink.fitting.holdout import NOTHING
from smoothlink.fitting.link import label_totals
from smoothlink.fitting.memory import JointSizes
from smoothlink.fitting.settings import ChosenSettings, Clock, Problem, Request, Settings, TrainingData
from smoothlink.fitting.validate import LOGISTIC_FLOPS
from smoothlink.joint.batches import RowBatches
from smoothlink.joint.joint_training import (
    FINETUNE,
    FREQUENT_ROWS,
    MOST_COOCCURRENCES,
    NEGATIVES,
    JointRows,
    JointWeights,
    finds_hard_negatives,
    from_arrays,
    row_weights,
    sparse_pattern,
    to_arrays,
    train,
)
from smoothlink.machines.arrays import take_rows, to_host
from smoothlink.machines.host_and_device import HOST, Host, Machine, find_machine
from smoothlink.machines.matrices import Sparse
from smoothlink.machines.rows import Rows, stack
from smoothlink.machines.rows_in_files import LazyBlock, SparseFile
from smoothlink.model import Model
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.calibrate import no_calibration
from smoothlink.steps.embed import Embedding, embed_rows
from smoothlink.steps.featurize import parse_kernel
from smoothlink.steps.squared import prior_scores
from smoothlink.weights import ArrayWeights

Array = NDArray[Any]

MANY_LABELS = 2000  # from here on "auto" considers it
JOINT_RANK = 512  # 384 lose 0.07 of P@5, and 256 0.2 (decision 52)
SAMPLED_LABELS = 300  # for each batch
CLUSTER_RANK = 96  # directions by which rows are clustered
CLUSTER_FIT_ROWS = 100_000  # that these directions are fitted to
CLUSTER_ROWS = 34  # rows per cluster at most; 17 are as good, 35 lost 0.3 of P@1, 69 and 276 more
LOOSE_SOLVER = ConjugateGradient(tol=5e-2, iterations=20)  # of those directions: the SGD goes on from there
# Times the rows of a batch, on a GPU. Held-out P@1 / P@5 of 150,000 library titles: 30.33 / 14.07 with 544 rows,
# 30.50 / 14.12 with 1,088, 30.35 / 14.17 with 2,176 (noise: 0.15).
GPU_BATCHES = 4
IDLE_PASSES = 2  # passes without a gain end fine-tuning
SCALE_ROWS = 2048  # rows whose embeddings set the learning rates of fine-tuning


def considers_joint(request: Request, labels: int) -> bool:
    """Returns whether joint training comes into question: it was asked for, or left open and labels are very many."""
    return request.training == "joint" or (request.training == "auto" and labels >= MANY_LABELS)


def trains_jointly(problem: Problem, settings: Settings, request: Request) -> bool:
    """Returns whether to train jointly; where memory is counted, the plan has decided it."""
    rows, plan = problem.rows, problem.state.plan
    sparse = rows.sparse if rows.remote else sparse_on_host(rows.blocks[0].X)
    weighted, sharded = problem.label_scale is not None, rows.writes_decoder
    wanted = wants_joint(request, rows.n, settings.features, rows.c, sparse, weighted, sharded)
    return plan.joint if plan.memory is not None else wanted


def wants_joint(
    request: Request, n: int, features: int, labels: int, sparse: bool, weighted: bool, sharded: bool = False
) -> bool:
    """Returns whether to train jointly: the request says so, or passes over all labels would cost too much.

    X must be sparse, labels without weights, and the decoder in one file.
    """
    if not considers_joint(request, labels):
        return False
    reason = request.joint_conflict
    if weighted:
        reason = "class_weight is given for multilabel y, which training='joint' cannot use."
    elif sharded:
        reason = "The decoder is written in shards, which training='joint' cannot."
    elif not sparse:
        reason = "X is dense, and training='joint' needs sparse rows."
    elif request.memory is not None and not isinstance(find_machine(request.device), Host):
        reason = "memory is given, and on a device training='joint' needs the rows in the host's memory."
    if request.training == "joint" and reason is not None:
        raise ValueError(f"{reason}\nLeave training 'auto', or say 'stepwise'.")
    return request.training == "joint" or (reason is None and 4.0 * n * features * labels > LOGISTIC_FLOPS)


def sparse_on_host(X: Any) -> bool:
    """Returns whether the inputs of a block are sparse, though perhaps in a file, or not yet on their device."""
    return isinstance(X, Sparse) or (isinstance(X, LazyBlock) and sp.issparse(X.source))


def joint_sizes(data: TrainingData, request: Request) -> JointSizes:
    """Returns what the memory of joint training depends on; sparse weights are counted, which reads X."""
    from smoothlink.joint import cooccurrence
    from smoothlink.joint.negatives import SCORED_GROUPS, SCORES

    (n, d), c, k, weights = data.X.shape, data.Y.shape[1], joint_rank(request), 0
    if request.sparse_weights:
        live = np.arange(n) if data.w is None else np.flatnonzero(data.w > 0)
        frequent = max(FREQUENT_ROWS, NEGATIVES.frequent * len(live))
        weights = int(cooccurrence.find(data.X, data.Y, live, d, frequent, MOST_COOCCURRENCES).indptr[-1])
    b, groups = rows_per_batch(request, HOST), min(SCORED_GROUPS, SCORES // c + 1)
    labels = min(c, number_of_negatives(request) + int(b * (1 + data.Y.nnz / max(1, n))))  # of a batch, about
    step = 12 * labels * b + 4 * labels * k + 12 * b * k
    hard = 4 * groups * c + 8 * groups * CLUSTER_ROWS * k
    return JointSizes(k, CLUSTER_RANK, CLUSTER_FIT_ROWS, weights, max(step, hard))


def joint_rank(request: Request) -> int:
    """Returns how many directions joint training has."""
    return JOINT_RANK if request.rank in ("auto", "adaptive") else int(request.rank)


def joint_choice(problem: Problem, settings: Settings, request: Request) -> ChosenSettings:
    """Returns the settings of joint training, which are given or rules."""
    settings = replace(
        settings,
        ridge=1.0 if request.ridge == "auto" else float(request.ridge),
        rank=joint_rank(request),
        kernel=parse_kernel("linear"),
        bandwidth=1.0,
        final_ridge=0.0,
        loss="softmax" if problem.multiclass else "logistic",
        passes=joint_passes(problem.rows.n) if request.training_passes == "auto" else int(request.training_passes),
    )
    given = {"rank": request.rank, "passes": request.training_passes}
    return ChosenSettings(problem, settings, {name: "rule" for name, value in given.items() if value == "auto"})


def joint_passes(n: int) -> int:
    """Returns how many passes over n rows sampled negatives train for.

    On held-out rows of 567,000 library titles 5 passes were as good as 6 and gained 0.1 of P@1 over 4, and of 18,800
    articles 6 lost 0.9 (decisions 27 and 37).
    """
    return 5 if n >= 100_000 else NEGATIVES.passes


def number_of_negatives(request: Request) -> int:
    """Returns how many labels are sampled for each batch."""
    return SAMPLED_LABELS if request.negatives == "auto" else int(request.negatives)


def rows_per_batch(request: Request, machine: Machine) -> int:
    """Returns how many rows a step with sampled negatives has: on a GPU more, for which it takes no longer."""
    return request.training_batch or NEGATIVES.batch_rows * (GPU_BATCHES if machine.half else 1)


def sampled_training(machine: Machine) -> tuple[Any, Any, Any]:
    """Returns how rows are clustered, how W starts and what makes a step with sampled negatives, on a machine."""
    if isinstance(machine, Host):
        from smoothlink.joint import clusters, negatives

        return clusters.cluster_rows, negatives.start_weights, negatives.SampledStep
    from smoothlink.joint import negatives_on_device as device

    return device.cluster_rows, device.start_weights, partial(device.DeviceSampledStep, machine=machine)


def fit_joint(choice: ChosenSettings, rows: Rows, name: str, request: Request, clock: Clock) -> Model:
    """Returns a model, not yet calibrated, trained with sampled negatives; its state is saved under `name`."""
    if rows.remote:
        return rows.fit_joint(choice, name, request, clock)
    from smoothlink.joint.negatives import SampledState

    cluster_rows, start_weights, make_step = sampled_training(rows.machine)
    (problem, settings, *_), saved_as = choice, f"{name}-joint"
    plan, w = problem.state.plan, np.asarray(rows.w, np.float32)
    X: Any = scaled_rows(rows) if plan.memory is None else None  # else in a file, once rows are clustered
    lengths = entries_of_rows(rows) if X is None else np.diff(X.indptr)
    live, frequent = np.flatnonzero((w > 0) & (lengths > 1)), NEGATIVES.frequent if request.sparse_weights else None
    with clock.step("embed"):
        pattern = None if X is None else sparse_pattern(X, problem.Y, live, frequent)
        check_joint(rows, settings.rank, int(lengths.sum()), 0 if pattern is None else pattern.nnz)
        directions = clustering_directions(rows, live, settings, request, plan.columns)
        into = None if X is not None else problem.state.array(f"{name}-h", (rows.n, directions.W.shape[1]))
        H = rows.map(embed_rows, directions.W, into=into)
        groups = cluster_rows(H, live, CLUSTER_ROWS, request.seed)
        X = write_rows(rows, groups, lengths, problem.state) if X is None else X
        rows.release()  # a step on a device holds X itself
        problem.state.trim()
    with clock.step("fit"):
        pattern = sparse_pattern(X, problem.Y, live, frequent) if pattern is None else pattern
        saved = problem.state.load(saved_as)
        if saved is None:
            rng = np.random.default_rng([request.seed, 9])
            W = start_weights(directions.W[:-1], take_rows(H, live), settings.rank, rng)
            intercepts = prior_scores(**label_totals(rows), softmax=problem.multiclass)
            state, done = SampledState.begin(W, intercepts, pattern, len(groups)), 0
        else:
            state, done = SampledState(**saved[1]), int(saved[0]["done"])
        batches = RowBatches.of_groups(groups, rows_per_batch(request, rows.machine), request.seed)
        w = w if problem.multiclass else row_weights(w, problem.Y)
        data = JointRows(X[:, :-1] if sp.issparse(X) else X, problem.Y, w, problem.multiclass)
        step = make_step(data, pattern, batches, state, number_of_negatives(request))
        problem.state.remove(f"{name}-h")
        del X, pattern, directions, H, state, groups
        progress = partial(clock.progress, "fit")
        for number in sampled_passes(step, batches, settings.passes, request.training_rate, progress, done):
            if problem.state.saves:
                problem.state.save(saved_as, {"done": number}, **vars(step.state))
        weights = step.weights()
        del step
        problem.state.trim()
    return joint_model(weights, problem, settings, rows)


def sampled_passes(
    step: Any, batches: RowBatches, passes: int, rate: float, progress: Callable[[float], None], done: int = 0
) -> Iterator[int]:
    """Trains with sampled negatives pass after pass, after those already done; yields how many are done."""
    for number in train(step, batches, passes, rate, NEGATIVES.warm_up, progress, done):
        if finds_hard_negatives(number, passes):
            step.find_hard_negatives()
        yield number


def clustering_directions(
    rows: Rows, live: Array, settings: Settings, request: Request, columns: int | None = None
) -> Embedding:
    """Returns the directions by which rows are clustered, fitted to all rows or to some of the `live` ones; where rows
    are on workers, to these in this process. So many columns are solved for together."""
    rank, solver = min(CLUSTER_RANK, settings.embedder.rank), replace(LOOSE_SOLVER, group=columns)
    embedder = replace(settings.embedder, rank=rank, solver=solver, adaptive=False, share=None)
    if len(live) > CLUSTER_FIT_ROWS:
        live = np.sort(np.random.default_rng([request.seed, 13]).choice(live, CLUSTER_FIT_ROWS, replace=False))
        rows = rows.take(live)
    elif rows.remote:
        rows = rows.take(live)
    return embedder.directions(rows, embedder.prepare(rows), settings.ridge)[0]


def finetune(
    model: Model,
    rows: Rows,
    held: Array,
    choice: ChosenSettings,
    request: Request,
    clock: Clock,
    stop: int | None = None,
) -> tuple[Model, int]:
    """Returns the model after passes over the rows of positive weight, and how many.

    Where held-out rows may select, it is the best of all passes. Rates fall to 0 over as many passes as the request
    says; `stop` may come earlier.
    """
    problem, auto = choice.problem, request.training_passes == "auto"
    passes = FINETUNE.passes if auto else int(request.training_passes)
    stop = passes if stop is None else stop
    if not stop:
        return model, 0
    try:  # torch on the processor, where the rest of the fit is NumPy's
        machine: Any = find_machine("torch") if problem.rows.machine is HOST else problem.rows.machine
    except DeviceError:
        raise DeviceError(
            "training is 'finetune', which needs torch, and torch is not installed.\n"
            "pip install 'smoothlink[gpu]', or leave training 'auto'."
        ) from None
    from smoothlink.joint.finetune import FineTuneStep, rescale

    X, w = scaled_rows(rows), np.asarray(rows.w, np.float32)
    live = np.flatnonzero(w > 0)
    pattern = sparse_pattern(X, problem.Y, live, FINETUNE.frequent if request.sparse_weights else None)
    fitted = JointWeights(np.asarray(model.W), model.features, np.asarray(model.V), None, model.normalize)
    best, rates = rescale(fitted, X[live[:SCALE_ROWS]])
    data = JointRows(X, problem.Y, w if problem.multiclass else row_weights(w, problem.Y), problem.multiclass)
    step = FineTuneStep(data, pattern, best, rates, machine, dropout=request.dropout)
    select = auto and len(held) > 0

    def held_out_criterion() -> float:
        if not select:
            return np.inf
        scores = cache(lambda count: step.scores(held[:count]))
        part = HeldOut(
            lambda labels, count: scores(count)[:, labels], problem.Y[held], problem.rows.w[held].astype(np.float64)
        )
        return criterion([part], "logistic", multiclass=problem.multiclass)[0]

    saved = problem.state.load("finetune")
    if saved is None:
        done, best_pass, least = 0, 0, held_out_criterion()
        step.restart(prior_scores(model.counts, model.total, softmax=problem.multiclass))
    else:
        done, best_pass, least = int(saved[0]["done"]), int(saved[0]["best_pass"]), float(saved[0]["least"])
        step.load(saved[1])
        if best_pass:
            arrays = {name[5:]: A for name, A in saved[1].items() if name.startswith("best_")}
            best = from_arrays(arrays, normalize=best.normalize)
    batches = RowBatches.of_rows(live, request.training_batch or FINETUNE.batch_rows, request.seed)
    progress = partial(clock.progress, "finetune")
    trained = train(step, batches, passes, request.training_rate, FINETUNE.warm_up, progress, done)
    while done < stop and not (select and done - best_pass >= IDLE_PASSES):
        done, value = next(trained), held_out_criterion()
        if value < least or (not select and done == stop):
            best, best_pass, least = step.weights(), done, value
        if problem.state.saves:
            arrays = {f"best_{name}": A for name, A in to_arrays(best).items()} if best_pass else {}
            meta = {"done": done, "best_pass": best_pass, "least": least}
            problem.state.save("finetune", meta, **step.save(), **arrays)
    return joint_model(best, problem, choice.settings, rows), best_pass


def joint_model(weights: JointWeights, problem: Problem, settings: Settings, rows: Rows) -> Model:
    """Returns the model of trained weights, not yet calibrated."""
    return Model(
        scaling=problem.scaling,
        input_features=None,
        W=ArrayWeights(weights.W),
        features=weights.features,
        V=ArrayWeights(weights.V),
        sparse_weights=weights.D,
        normalize=weights.normalize,
        classifier=None,
        loss=settings.loss,
        multiclass=problem.multiclass,
        calibration=no_calibration(),
        thresholds=np.full(rows.c, 0.5),
        **label_totals(rows),
    )


def entries_of_rows(rows: Rows) -> Array:
    """Returns how many entries each row has, its intercept included."""
    return np.concatenate([np.diff(b.X.csr.indptr) for b in rows.each()])


def write_rows(rows: Rows, groups: list[Array], lengths: Array, state: FitState) -> SparseFile:
    """Returns the rows of the groups in a file, group by group, without their intercepts."""
    file = SparseFile(np.concatenate([NOTHING, *groups]), lengths - 1, rows.d, state.folder)
    for block in rows.each():
        file.write(block.start, block.X.csr[:, :-1])
    return file


def scaled_rows(rows: Rows) -> Any:
    """Returns the rows (n, d + 1), scaled and with their intercept, as one matrix on the host."""
    return stack([b.X.csr if hasattr(b.X, "csr") else to_host(b.X.array) for b in rows.each()])
