"""phi, Y -> V over rows on a cluster: labels of the logistic loss partitioned among workers, softmax by sums."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.distributed import tasks as shares
from smoothlink.distributed.rows_on_workers import ClusterRows
from smoothlink.machines.arrays import log_sums
from smoothlink.machines.rows import Block, Rows
from smoothlink.solve.cholesky import GramSystem
from smoothlink.steps.featurize import Features
from smoothlink.steps.sgd import SGD, SGDState, predictions, sgd_passes
from smoothlink.steps.squared import LinkSums, Smoothing, prior_scores, squared
from smoothlink.weights import ShardedWeights, open_shards, shard_names, write_shard

if TYPE_CHECKING:
    from smoothlink.fitting.settings import Settings

Array = NDArray[Any]


class LabelTask(NamedTuple):
    """What the SGD with some labels needs beside its rows, on a worker."""

    ridge: float
    descent: SGD
    smoothing: Smoothing
    seed: int


def distributed_passes(
    rows: ClusterRows,
    features: Features,
    sums: LinkSums,
    ridge: float,
    *,
    softmax: bool,
    descent: SGD,
    smoothing: Smoothing,
    seed: int,
    run: SGDState | None = None,
) -> Iterator[Array]:
    """Returns `steps.sgd.sgd_passes` on a cluster: V (s + 1, c) after each pass.

    The softmax loss couples all labels: there each step is one sum over the rows of a large batch.
    """
    run = SGDState() if run is None else run
    if not softmax:
        return label_sweeps(rows, features, sums, LabelTask(ridge, descent, smoothing, seed), run)
    sent, start = rows.cluster.send(features), prior_scores(sums.label_weights, sums.weight, smoothing, softmax=True)
    p = predictions(start, softmax=True)[None]

    def gradients(batch: Array, weights: Array, state: Any) -> Iterator[tuple[slice, Array]]:
        order = np.argsort(batch)
        given = batch[order], weights[order], sent, state.V, p
        yield slice(0, rows.c), rows.sum(batch_slope, *given, out=tuple(state.V.shape))

    return sgd_passes(
        rows,
        features,
        sums,
        ridge,
        softmax=True,
        sgd=descent,
        smoothing=smoothing,
        seed=seed,
        run=run,
        rotated=False,
        gradients=gradients,
    )


def label_sweeps(
    rows: ClusterRows, features: Features, sums: LinkSums, task: LabelTask, run: SGDState
) -> Iterator[Array]:
    """Yields V after each pass. Labels are independent in the logistic loss: each worker takes some of them, over all
    embedded rows."""
    cluster = rows.cluster
    parts = label_parts(rows.c, len(cluster.workers))
    targets = [cluster.send(np.ascontiguousarray(sums.targets[:, labels])) for labels in parts]
    for states in label_states(rows, parts, targets, features, sums, task, run):
        found = cluster.gather(states)
        cluster.count(sum(state.V.nbytes * (1 if state.velocity is None else 2) for state in found))
        run.V, run.passes = np.hstack([state.V for state in found]), run.passes + 1
        run.velocity = None if found[0].velocity is None else np.hstack([state.velocity for state in found])
        yield run.V


def label_states(
    rows: ClusterRows,
    parts: list[slice],
    targets: list[Any],
    features: Features,
    sums: LinkSums,
    task: LabelTask,
    run: SGDState,
) -> Iterator[list[Any]]:
    """Where the descents with each part of the labels stand after each pass, on the workers."""
    cluster = rows.cluster
    G, sent = cluster.send(sums.gram.G), cluster.send(features)
    states: list[Any] = []
    data: list[Any] = []
    for labels in parts:
        Y = [cluster.submit("label-columns", shares.label_columns, share, labels) for share in rows.parts]
        data.append(cluster.submit("label-rows", shares.some_labels, rows.table.parts, Y, rows._w))
        begun = None if run.V is None else SGDState(run.V[:, labels], column(run.velocity, labels), run.passes)
        states.append(begun)
    while True:
        for i in range(len(parts)):
            told = (data[i], sent, G, targets[i], sums.weight, task, states[i])
            states[i] = cluster.submit(f"labels {i + 1}/{len(parts)}", labels_pass, *told)
        yield states


def write_decoder_shards(
    rows: ClusterRows, features: Features, sums: LinkSums, settings: Settings, beside: Path
) -> ShardedWeights:
    """Returns V by squared or logistic loss, labels partitioned: each worker sums the targets of its labels, fits and
    writes them. V is never whole, and never comes to the client."""
    cluster, parts = rows.cluster, label_parts(rows.c, len(rows.cluster.workers))
    beside.parent.mkdir(parents=True, exist_ok=True)
    files = [beside.parent / name for name in shard_names(beside.stem, secrets.token_hex(4), len(parts))]
    shards = dict(zip(files, parts, strict=True))
    cluster.again(lambda: write_parts(rows, features, sums, settings, shards))
    return open_shards(beside.parent, [file.name for file in files])


def write_parts(
    rows: ClusterRows, features: Features, sums: LinkSums, settings: Settings, shards: dict[Path, slice]
) -> None:
    """Has the workers write V of some labels into each file."""
    cluster, parts = rows.cluster, list(shards.values())
    sent = cluster.send(features)
    targets = [rows.kept_sum("targets", shares.share_targets, sent, labels) for labels in parts]
    if settings.loss == "squared":
        given = cluster.send(sums.gram.G), settings.final_ridge, settings.smoothing
        found = [cluster.submit(f"solve {i + 1}/{len(parts)}", solved_part, t, *given) for i, t in enumerate(targets)]
    else:
        task = LabelTask(settings.final_ridge, settings.sgd, settings.smoothing, settings.seed)
        steps = label_states(rows, parts, targets, features, sums, task, SGDState())
        for _ in range(max(1, settings.passes)):
            states = next(steps)
        found = [cluster.submit("decoder", weights_of, state) for state in states]
    written = [cluster.submit("write", write_shard, V, str(file)) for V, file in zip(found, shards, strict=True)]
    cluster.client.gather(written)


def solved_part(targets: Array, G: Array, ridge: float, smoothing: Smoothing) -> Array:
    """V of some labels by squared loss."""
    return np.ascontiguousarray(squared(LinkSums(GramSystem(G), targets, 0.0), ridge, smoothing))


def weights_of(state: SGDState) -> Array:
    assert state.V is not None
    return state.V


def labels_pass(
    rows: Rows, features: Features, G: Array, targets: Array, weight: float, task: LabelTask, run: SGDState | None
) -> SGDState:
    """One pass of the logistic descent with some labels, on a worker."""
    now = SGDState() if run is None else SGDState(copy(run.V), copy(run.velocity), run.passes)
    sums = LinkSums(GramSystem(G), targets, weight)
    knobs: dict[str, Any] = {"sgd": task.descent, "smoothing": task.smoothing, "seed": task.seed, "rotated": False}
    next(sgd_passes(rows, features, sums, task.ridge, softmax=False, run=now, **knobs))
    return now


def batch_slope(block: Block, batch: Array, weights: Array, features: Features, V: Array, p: Array, out: Array) -> None:
    """Adds Phi'W(softmax(Phi V) - p) of the rows of a batch that are in one block into out (s + 1, c)."""
    mine = slice(*np.searchsorted(batch, (block.start, block.start + len(block.w))))
    if mine.start == mine.stop:
        return
    Phi = features(block.X.array[batch[mine] - block.start])
    P = Phi @ V
    P -= log_sums(P)
    np.exp(P, out=P)
    P -= p
    P *= weights[mine, None]
    out += Phi.T @ P


def label_parts(c: int, workers: int) -> list[slice]:
    """The labels in as many parts as there are workers."""
    cuts = np.linspace(0, c, max(1, min(c, workers)) + 1).astype(int)
    return [slice(int(a), int(b)) for a, b in pairwise(cuts)]


def column(A: Array | None, labels: slice) -> Array | None:
    return None if A is None else np.ascontiguousarray(A[:, labels])


def copy(A: Array | None) -> Array | None:
    return None if A is None else A.copy()
