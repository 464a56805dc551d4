"""A fit on a cluster: rows on the workers, sums by trees, labels of the logistic loss shared out among the workers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines import shares
from smoothlink.machines.cluster import ClusterRows
from smoothlink.machines.decoder import decoder, log_sums
from smoothlink.machines.rows import Block, Rows
from smoothlink.solve.cholesky import GramSystem
from smoothlink.steps.descend import (
    Descent,
    Run,
    aims,
    default_batch,
    frame_of,
    predictions,
    stable_rate,
    sweeps,
)
from smoothlink.steps.featurize import Features
from smoothlink.steps.fit import LinkSums, Smoothing, prior_scores

Array = NDArray[Any]


class Job(NamedTuple):
    """What a descent needs beside its rows."""

    features: Features
    ridge: float
    descent: Descent
    smoothing: Smoothing
    seed: int


def spread_sweeps(
    rows: ClusterRows, sums: LinkSums, job: Job, *, softmax: bool, run: Run | None = None
) -> Iterator[Array]:
    """`steps.descend.sweeps` on a cluster: V (s + 1, c) after each pass."""
    run = Run() if run is None else run
    return softmax_sweeps(rows, sums, job, run) if softmax else label_sweeps(rows, sums, job, run)


def label_sweeps(rows: ClusterRows, sums: LinkSums, job: Job, run: Run) -> Iterator[Array]:
    """Labels are independent in the logistic loss: each worker descends with some of them, over all embedded rows."""
    cluster = rows.cluster
    parts = label_parts(rows.c, len(cluster.workers))
    G, sent = cluster.send(sums.gram.G), cluster.send(job.features)
    states: list[Any] = []
    data: list[Any] = []
    for labels in parts:
        Y = [cluster.submit("label-columns", shares.label_columns, share, labels) for share in rows.parts]
        data.append(cluster.submit("label-rows", shares.some_labels, rows.table.parts, Y, rows._w))
        begun = None if run.V is None else Run(run.V[:, labels], column(run.velocity, labels), run.sweep)
        states.append(begun)
    targets = [cluster.send(np.ascontiguousarray(sums.targets[:, labels])) for labels in parts]
    while True:
        for i in range(len(parts)):
            told = (data[i], sent, G, targets[i], sums.weight, job._replace(features=None), states[i])  # type: ignore[arg-type]
            states[i] = cluster.submit(f"labels {i + 1}/{len(parts)}", labels_pass, *told)
        found = cluster.gather(states)
        cluster.count(sum(state.V.nbytes * (1 if state.velocity is None else 2) for state in found))
        V = np.hstack([state.V for state in found])
        velocity = None if found[0].velocity is None else np.hstack([state.velocity for state in found])
        run.V, run.velocity, run.sweep = V, velocity, run.sweep + 1
        yield V


def labels_pass(
    rows: Rows, features: Features, G: Array, targets: Array, weight: float, job: Job, run: Run | None
) -> Run:
    """One pass of the logistic descent with some labels, on a worker."""
    now = Run() if run is None else Run(copy(run.V), copy(run.velocity), run.sweep)
    sums = LinkSums(GramSystem(G), targets, weight)
    knobs: dict[str, Any] = {"descent": job.descent, "smoothing": job.smoothing, "seed": job.seed, "turned": False}
    next(sweeps(rows, features, sums, job.ridge, softmax=False, run=now, **knobs))
    return now


def softmax_sweeps(rows: ClusterRows, sums: LinkSums, job: Job, run: Run) -> Iterator[Array]:
    """The softmax loss couples all labels: each step is one sum over the rows of a large batch."""
    descent, features = job.descent, rows.cluster.send(job.features)
    size = descent.batch or default_batch(rows.n, rows.c, job.features.width(rows.d), softmax=True)
    frame = frame_of(sums, job.ridge, turned=False, half=False)
    start = prior_scores(sums.label_weights, sums.weight, job.smoothing, softmax=True)
    p = predictions(start, softmax=True)[None]
    if run.V is None:
        run.V = np.zeros(sums.targets.shape, np.float32)
        run.V[-1] = start
        run.velocity = np.zeros_like(run.V) if descent.momentum else None
    state = decoder(run.V, run.velocity, aims(sums, job.smoothing, p, frame), p, rows.machine)
    eta = descent.learning_rate * stable_rate(frame.freedom, size, descent.momentum) * descent.decay**run.sweep
    w, every = rows.w, slice(0, rows.c)
    while True:
        for batch in rows.batches(size, seed=job.seed, sweep=run.sweep):
            batch = np.sort(batch)
            weights = w[batch] * np.float32(sums.weight / w[batch].sum(dtype=np.float64))
            slope = rows.sum(batch_slope, batch, weights, features, state.V, p, out=tuple(state.V.shape))
            state.advance(every, slope, frame.M, frame.rho, eta, descent.momentum)
        run.sweep += 1
        yield state.weights()
        eta *= descent.decay


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
