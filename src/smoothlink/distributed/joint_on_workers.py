"""Joint training with sampled negatives on a cluster: each worker trains a copy of all weights on clusters of its own
rows, and now and then the workers add up what they changed.

A sum of gradients in each step would cost more than the step (decision 39). So a worker takes some steps by itself,
then all of them exchange their changes since the last exchange, worker to worker. The sum of two workers' changes is
not the step that Adagrad would have taken: each had a rate by its own squared gradients. So a change d of a weight
whose squared gradients are q is sent as sqrt(q) d, and the sum of these is divided by the root of all squares together:
a weight that one worker moved moves as it did there, and one that all moved for the first time does not overshoot.

Tasks are pure functions of their arguments, so that Dask computes again what a dead worker held. Additions have the
same order on all workers: their weights are equal, and a fit repeats for the same number of workers up to rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import prange
from numpy.typing import NDArray

from smoothlink.distributed.client import Cluster
from smoothlink.distributed.tasks import Partition
from smoothlink.fitting.link import label_totals
from smoothlink.fitting.memory import call_glibc
from smoothlink.fitting.settings import ChosenSettings, Clock, Request
from smoothlink.fitting.train_jointly import (
    CLUSTER_ROWS,
    clustering_directions,
    joint_model,
    number_of_negatives,
    rows_per_batch,
)
from smoothlink.joint.batches import RowBatches
from smoothlink.joint.clusters import cluster_rows
from smoothlink.joint.joint_training import (
    FREQUENT_ROWS,
    MOST_COOCCURRENCES,
    NEGATIVES,
    JointRows,
    JointWeights,
    finds_hard_negatives,
    rate_factor,
    row_weights,
    select_entries,
    sparse_pattern,
)
from smoothlink.joint.negatives import SampledState, SampledStep, start_weights
from smoothlink.machines.compiled import compiled
from smoothlink.machines.rows import stack
from smoothlink.model import Model
from smoothlink.steps.embed import embed_rows
from smoothlink.steps.squared import prior_scores

if TYPE_CHECKING:
    from smoothlink.distributed.rows_on_workers import ClusterRows

Array = NDArray[Any]

EXCHANGED_STEPS = 48  # steps of a worker between two exchanges; half as many were no better (decision 39)
# Dask has its workers return the memory of every array above 128 KB, whose page faults are a quarter of a step's time:
# (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD) as glibc would set them by itself.
MALLOC = ((-1, 64 << 20), (-3, 32 << 20))
SAVED = tuple(field.name for field in fields(SampledState) if field.name != "hard")  # all but what a worker has alone


class JointPlan(NamedTuple):
    """What all workers train with."""

    rank: int
    softmax: bool
    batch_rows: int
    negatives: int
    passes: int
    rate: float
    exchanges: int  # per pass
    seed: int
    average: float  # labels per row


class Beginning(NamedTuple):
    """Arrays that training begins with, the same for all workers."""

    directions: Array  # (d, m) of the embedding by which rows are clustered
    length: Array  # (1, 1) root of the mean squared length of embedded rows
    intercepts: Array  # (c,)
    saved: tuple[Array, ...]  # the SAVED arrays of an earlier run; empty where there was none


def train_on_workers(rows: ClusterRows, choice: ChosenSettings, name: str, request: Request, clock: Clock) -> Model:
    """Returns `fitting.train_jointly.fit_joint` on a cluster: a model, not yet calibrated."""
    cluster, (problem, settings, *_) = rows.cluster, choice
    state, saved_as, workers = problem.state, f"{name}-joint", len(rows.parts)
    with clock.step("embed"):
        data = [cluster.submit("rows", rows_of, *part) for part in zip(rows.parts, rows.weights, strict=True)]
        counts = cluster.gather([cluster.submit("count", count_rows, part) for part in data])
        live = np.flatnonzero(np.concatenate([part.live for part in counts]))
        W = clustering_directions(rows, live, settings, request).W
    batch_rows = rows_per_batch(request, rows.machine)
    plan = JointPlan(
        rank=settings.rank,
        softmax=problem.multiclass,
        batch_rows=batch_rows,
        negatives=number_of_negatives(request),
        passes=settings.passes,
        rate=request.training_rate,
        exchanges=max(1, round(len(live) / workers / batch_rows / EXCHANGED_STEPS)),
        seed=request.seed,
        average=sum(part.labels for part in counts) / max(1e-30, sum(part.weight for part in counts)),
    )
    without = sum(part.features for part in counts) > max(FREQUENT_ROWS, NEGATIVES.frequent * len(live))
    if not request.sparse_weights or sum(part.pairs for part in counts) > MOST_COOCCURRENCES:
        without[:] = True
    intercepts = prior_scores(**label_totals(rows), softmax=problem.multiclass)

    def send_and_train() -> JointWeights:
        gather, saved = cluster.client.gather, state.load(saved_as)
        meta, arrays = ({"done": 0, "groups": []}, {}) if saved is None else saved
        done, hard = meta["done"], hard_by_worker(meta["groups"], arrays.get("hard"), workers)
        H = rows.map(embed_rows, W)
        embedded = zip(H.parts, counts, strict=True)
        lengths = [cluster.submit("length", squared_length, h, part.live) for h, part in embedded]
        length = np.array([[np.sqrt(sum(gather(lengths)) / max(1, len(live)))]])
        begun = tuple(arrays[name] for name in SAVED) if done else ()
        beginning = cluster.send(Beginning(W[:-1], length, intercepts, begun))
        patterns = [cluster.submit("pattern", cooccurrences, part, without) for part in data]
        patterns = add_on_each(cluster, add_patterns, patterns)
        steps = [
            cluster.submit("begin", begin_step, *part, beginning, plan, i, hard[i])
            for i, part in enumerate(zip(data, H.parts, patterns, strict=True))
        ]
        del patterns  # steps have their own
        while done < plan.passes:
            for exchange in range(plan.exchanges):
                steps, sizes = exchange_changes(cluster, steps, plan, done, exchange)
                cluster.count_bytes(sum(gather(sizes)))
                clock.progress("fit", (done + (exchange + 1) / plan.exchanges) / plan.passes)
            done += 1
            if finds_hard_negatives(done, plan.passes):
                steps = [cluster.submit("hard", with_hard_negatives, step) for step in steps]
            if state.saves:
                found = gather([cluster.submit("hard", hard_negatives, step) for step in steps])
                arrays = gather(cluster.submit("state", trained_arrays, steps[0]), direct=cluster.direct)
                groups = [len(part) for part in found]
                state.save(saved_as, {"done": done, "groups": groups}, hard=np.concatenate(found), **arrays)
        weights: JointWeights = gather(cluster.submit("weights", weights_of, steps[0]), direct=cluster.direct)
        return weights

    with clock.step("fit"):
        weights = cluster.retry_lost_arrays(send_and_train)
    return joint_model(weights, problem, settings, rows)


def hard_by_worker(groups: list[int], hard: Array | None, workers: int) -> list[Array | None]:
    """Returns the saved hard negatives of the groups of each worker, or None: other workers have other groups."""
    if hard is None or len(groups) != workers:
        return [None] * workers
    return list(np.split(hard, np.cumsum(groups)[:-1]))


def exchange_changes(
    cluster: Cluster, steps: list[Any], plan: JointPlan, done: int, exchange: int
) -> tuple[list[Any], list[Any]]:
    """Returns futures of the workers' steps after one part of a pass and an exchange, and of the bytes sent for it."""
    after = [cluster.submit("steps", take_steps, step, plan, done, exchange) for step in steps]
    if len(steps) == 1:
        return after, [cluster.submit("size", bytes_sent, after[0])]
    changes = [cluster.submit("changes", changes_of, *pair) for pair in zip(steps, after, strict=True)]
    halves = sums_of_halves(cluster, add_changes, changes)
    sizes = [cluster.submit("size", bytes_sent, change) for change in changes]
    return [
        cluster.submit("apply", apply_changes, step, *sums) for step, sums in zip(steps, halves, strict=True)
    ], sizes


def sums_of_halves(cluster: Cluster, add: Callable[[Any, Any], Any], parts: list[Any]) -> list[tuple[Any, Any]]:
    """Returns for each worker, of which each has a part, the sums of the first and of the second half of all parts."""
    half = len(parts) // 2
    first, second = (add_on_each(cluster, add, some) for some in (parts[:half], parts[half:]))
    return [(own, second[i % len(second)]) for i, own in enumerate(first)] + [
        (first[i % len(first)], own) for i, own in enumerate(second)
    ]


def add_on_each(cluster: Cluster, add: Callable[[Any, Any], Any], parts: list[Any]) -> list[Any]:
    """Returns the sum of all parts, for each worker its own: a tree of additions in which every worker adds what it has
    to what a worker of the other half has. `add` gives the same in either order."""
    if len(parts) == 1:
        return parts
    sums = sums_of_halves(cluster, add, parts)
    return [cluster.submit("add", add, *(pair if i < len(parts) // 2 else pair[::-1])) for i, pair in enumerate(sums)]


# On a worker


class RowCounts(NamedTuple):
    """Counts of the rows of a partition."""

    live: Array  # (n,) whether a row has weight and features
    features: Array  # (d + 1,) rows with each feature
    pairs: int  # of a feature and a label in one row
    labels: float  # weighted number
    weight: float


def rows_of(partition: Partition, w: Array | None) -> JointRows:
    """Returns the rows of a partition as one matrix, the intercept's column last, with their weights."""
    blocks = partition.weighted(w)
    X, Y = stack([b.X.csr for b in blocks]), stack([b.Y.csr for b in blocks])
    return JointRows(X, Y, np.concatenate([b.w for b in blocks]), softmax=False)


def live_rows(data: JointRows) -> Array:
    """Returns which rows (n,) have weight and features."""
    live: Array = (data.w > 0) & (np.diff(data.X.indptr) > 1)
    return live


def count_rows(data: JointRows) -> RowCounts:
    """Returns the counts of a worker's rows."""
    live, labels = live_rows(data), np.diff(data.Y.indptr)
    X = data.X[np.flatnonzero(live)]
    return RowCounts(
        live,
        np.bincount(X.indices, minlength=X.shape[1]),
        int((np.diff(X.indptr) - 1) @ labels[live].astype(np.int64)),
        float((np.maximum(labels, 1) * data.w).sum(dtype=np.float64)),
        float(data.w.sum(dtype=np.float64)),
    )


def squared_length(H: Array, live: Array) -> float:
    """Returns the sum of the squared lengths of some embedded rows."""
    H = H[live]
    return float(np.einsum("ij,ij->", H, H, dtype=np.float64))


def cooccurrences(data: JointRows, without: Array) -> sp.csr_array:
    """Returns which labels (d + 1, c) occur with each feature in a row of this worker; some features (d + 1,) go
    without."""
    X = select_entries(data.X, ~without[data.X.indices])
    return sparse_pattern(X, data.Y, np.flatnonzero(live_rows(data)), 1.0, sys.maxsize)


def add_patterns(A: sp.csr_array, B: sp.csr_array) -> sp.csr_array:
    """Returns the pairs of a feature and a label that are in A or in B."""
    return sp.csr_array(A + B)


@dataclass
class WorkerStep:
    """The step of one worker, with its rows and its copy of the weights."""

    step: SampledStep

    def __sizeof__(self) -> int:
        """Returns the bytes that Dask would move with it."""
        return sum(A.nbytes for A in (self.step.rows.X.data, *vars(self.step.state).values()))

    def copy(self) -> WorkerStep:
        """Returns a step that changes no array of this one."""
        step = copy(self.step)
        step.state = deepcopy(step.state)
        return WorkerStep(step)


def begin_step(
    data: JointRows,
    H: Array,
    pattern: sp.csr_array,
    beginning: Beginning,
    plan: JointPlan,
    number: int,
    hard: Array | None,
) -> WorkerStep:
    """Returns the step of a worker, by its number, on the clusters of its rows, before its first or next pass."""
    X, Y, w, _ = data
    seed = plan.seed + (number << 32)  # workers sample different negatives
    groups = cluster_rows(H, np.flatnonzero(live_rows(data)), CLUSTER_ROWS, seed)
    batches = RowBatches.of_groups(groups, plan.batch_rows, seed)
    if beginning.saved:
        found = hard is not None and len(hard) == len(groups)
        known = np.array(hard) if found else np.zeros((len(groups), 0), np.int32)
        state = SampledState(**{name: A.copy() for name, A in zip(SAVED, beginning.saved, strict=True)}, hard=known)
    else:
        rng = np.random.default_rng([plan.seed, 9])
        W = start_weights(beginning.directions, beginning.length, plan.rank, rng)  # the length is all it asks of rows
        found, state = True, SampledState.begin(W, beginning.intercepts, pattern, len(groups))
    data = JointRows(X[:, :-1], Y, w if plan.softmax else row_weights(w, Y, plan.average), plan.softmax)
    step = SampledStep(data, pattern, batches, state, plan.negatives)
    if not found:
        step.find_hard_negatives()
    return WorkerStep(step)


def take_steps(before: WorkerStep, plan: JointPlan, done: int, exchange: int) -> WorkerStep:
    """Returns the step after the batches of one part of a pass."""
    for option, size in MALLOC:
        call_glibc("mallopt", option, size)
    after = before.copy()
    batches = after.step.batches
    count = len(batches.ends)
    part = (exchange * count // plan.exchanges, (exchange + 1) * count // plan.exchanges)
    for i, batch in islice(enumerate(batches.in_pass(done)), *part):
        factor = rate_factor(done * count + i, plan.passes * count, NEGATIVES.warm_up)
        after.step(batch, plan.rate * factor)
    return after


class Change(NamedTuple):
    """What some workers changed of one array."""

    places: Array  # (m,) rows of the array, ascending
    values: Array  # (m, k) sums of their changes, each times the root of its worker's squares
    squares: Array  # (m,) sums of what was added to the squares


def changes_of(before: WorkerStep, after: WorkerStep) -> list[Change]:
    """Returns what one worker changed of each array."""
    found = []
    for old, new in zip(trained(before), trained(after), strict=True):
        places = np.flatnonzero(new.squares != old.squares).astype(np.int32)
        values = np.empty((len(places), new.weights.shape[1]), np.float32)
        subtract_rows(new.weights, old.weights, places, np.sqrt(new.squares[places]), values)
        found.append(Change(places, values, new.squares[places] - old.squares[places]))
    return found


def add_changes(a: list[Change], b: list[Change]) -> list[Change]:
    """Returns the sums of what two workers, or two groups of them, changed; in either order they are the same."""
    found = []
    for one, other in zip(a, b, strict=True):
        places = np.union1d(one.places, other.places)
        values, squares = np.zeros((len(places), one.values.shape[1]), np.float32), np.zeros(len(places), np.float32)
        for part in (one, other):
            at = np.searchsorted(places, part.places)
            values[at] += part.values
            squares[at] += part.squares
        found.append(Change(places, values, squares))
    return found


def apply_changes(before: WorkerStep, *parts: list[Change]) -> WorkerStep:
    """Returns a worker's step with the weights that all workers have after an exchange of these changes."""
    after = before.copy()
    for array, *changes in zip(trained(after), *parts, strict=True):
        for places, _, squares in changes:
            array.squares[places] += squares
        for places, values, _ in changes:
            add_rows(array.weights, places, values, np.sqrt(array.squares[places]))
    return after


class TrainedArray(NamedTuple):
    """Weights and the sums of their squared gradients, in the memory of a state."""

    weights: Array  # (m, k)
    squares: Array  # (m,)


def trained(step: WorkerStep) -> list[TrainedArray]:
    """Returns the arrays that the workers exchange: W, V, the intercepts and the sparse weights."""
    s = step.step.state
    return [
        TrainedArray(s.W, s.w_squares),
        TrainedArray(s.V, s.v_squares),
        TrainedArray(s.b, s.b_squares),
        TrainedArray(s.D[:, None], s.d_squares),
    ]


@compiled(parallel=True)
def subtract_rows(new: Array, old: Array, places: Array, factors: Array, out: Array) -> None:
    """Writes factors (new - old) of some rows to out."""
    for i in prange(len(places)):
        for t in range(out.shape[1]):
            out[i, t] = factors[i] * (new[places[i], t] - old[places[i], t])


@compiled(parallel=True)
def add_rows(A: Array, places: Array, values: Array, divisors: Array) -> None:
    """Adds values over divisors to some rows of A."""
    for i in prange(len(places)):
        factor = np.float32(1) / divisors[i]
        for t in range(A.shape[1]):
            A[places[i], t] += factor * values[i, t]


def bytes_sent(changes: list[Change] | WorkerStep) -> int:
    """Returns the bytes of what a worker changed; a step stays where it is."""
    return 0 if isinstance(changes, WorkerStep) else sum(A.nbytes for change in changes for A in change)


def with_hard_negatives(before: WorkerStep) -> WorkerStep:
    """Returns a worker's step after it looked for the hard negatives of its groups."""
    after = before.copy()
    after.step.find_hard_negatives()
    return after


def hard_negatives(step: WorkerStep) -> Array:
    """Returns the hard negatives (groups, m) of a worker."""
    return step.step.state.hard


def trained_arrays(step: WorkerStep) -> dict[str, Array]:
    """Returns the weights and what else workers have in common."""
    return {name: getattr(step.step.state, name) for name in SAVED}


def weights_of(step: WorkerStep) -> JointWeights:
    """Returns the weights."""
    return step.step.weights()
