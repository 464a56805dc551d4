"""phi, Y -> V over rows on a cluster: labels of the logistic loss partitioned among workers, softmax by sums."""

from __future__ import annotations

import glob
import os
import secrets
import weakref
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.atomic import _create, _make_file, _remove_abandoned
from smoothlink.distributed import tasks
from smoothlink.distributed.remote_array import split_evenly
from smoothlink.errors import ModelFileError
from smoothlink.machines.arrays import log_sums
from smoothlink.machines.rows import Block, Rows
from smoothlink.safetensors_file import load
from smoothlink.solve.cholesky import GramSystem
from smoothlink.steps.featurize import Features
from smoothlink.steps.sgd import SGD, SGDState, sgd_passes, subtract_labels
from smoothlink.steps.squared import LinkSums, Smoothing, squared
from smoothlink.weights import ShardedWeights, open_shards, shard_names, write_shard

if TYPE_CHECKING:
    from smoothlink.distributed.rows_on_workers import ClusterRows
    from smoothlink.fitting.settings import Settings

Array = NDArray[Any]


class LabelSettings(NamedTuple):
    """Settings of the SGD with some labels, on a worker."""

    ridge: float
    sgd: SGD
    smoothing: Smoothing
    seed: int


def distributed_passes(
    rows: ClusterRows,
    features: Features,
    sums: LinkSums,
    ridge: float,
    *,
    softmax: bool,
    sgd: SGD,
    smoothing: Smoothing,
    seed: int,
    run: SGDState | None = None,
) -> Iterator[Array]:
    """Returns `steps.sgd.sgd_passes` on a cluster: an iterator over V (s + 1, c) after each pass.

    Labels are independent in the logistic loss: each worker takes some of them, over all embedded rows. The softmax
    loss couples all labels: there each step is one sum over the rows of a large batch.
    """
    run = SGDState() if run is None else run
    if not softmax:
        return logistic_passes(rows, features, sums, LabelSettings(ridge, sgd, smoothing, seed), run)
    sent = rows.cluster.send(features)

    def gradients(batch: Array, weights: Array, state: Any) -> Iterator[tuple[slice, Array]]:
        order = np.argsort(batch)
        arguments = (
            batch[order],
            weights[order],
            sent,
            state.V,
            state.p,
            0.0 if state.from_prior is None else smoothing.scale,
        )
        yield slice(0, rows.c), rows.sum(add_softmax_gradient, *arguments, out=tuple(state.V.shape))

    return sgd_passes(
        rows,
        features,
        sums,
        ridge,
        softmax=True,
        sgd=sgd,
        smoothing=smoothing,
        seed=seed,
        run=run,
        rotated=False,
        gradients=gradients,
    )


def logistic_passes(
    rows: ClusterRows, features: Features, sums: LinkSums, settings: LabelSettings, run: SGDState
) -> Iterator[Array]:
    """Yields V on the client after each pass, and keeps `run` up to date."""
    cluster = rows.cluster
    parts = split_evenly(rows.c, len(cluster.workers))
    passes: Iterator[list[Any]] | None = None

    def send_and_compute() -> list[SGDState]:
        """Returns the states after the next pass; where arrays on workers are lost, all is sent again from `run`."""
        nonlocal passes
        begun, passes = passes, None
        if begun is None:
            targets = [cluster.send(np.ascontiguousarray(sums.targets[:, labels])) for labels in parts]
            begun = states_after_passes(rows, parts, targets, features, sums, settings, run)
        found: list[SGDState] = cluster.client.gather(next(begun), direct=cluster.direct)
        passes = begun
        return found

    while True:
        found = cluster.retry_lost_arrays(send_and_compute)
        cluster.count_bytes(sum(state.V.nbytes * (1 if state.velocity is None else 2) for state in found))
        run.V, run.passes = np.hstack([state.V for state in found]), run.passes + 1
        run.velocity = None if found[0].velocity is None else np.hstack([state.velocity for state in found])
        yield run.V


def states_after_passes(
    rows: ClusterRows,
    parts: list[slice],
    targets: list[Any],
    features: Features,
    sums: LinkSums,
    settings: LabelSettings,
    run: SGDState,
) -> Iterator[list[Any]]:
    """Yields futures of the states of the SGD with each part of the labels, after each pass; they stay on workers."""
    cluster = rows.cluster
    G, sent = cluster.send(sums.gram.G), cluster.send(features)
    states: list[Any] = []
    data: list[Any] = []
    for labels in parts:
        Y = [cluster.submit("label-columns", tasks.label_columns, partition, labels) for partition in rows.parts]
        data.append(cluster.submit("label-rows", tasks.rows_with_labels, rows.table.parts, Y, rows._w))
        if run.V is None:
            states.append(None)
        else:
            velocity = None if run.velocity is None else np.ascontiguousarray(run.velocity[:, labels])
            states.append(SGDState(run.V[:, labels], velocity, run.passes))
    while True:
        for i in range(len(parts)):
            arguments = data[i], sent, G, targets[i], sums.weight, settings, states[i]
            states[i] = cluster.submit(f"labels {i + 1}/{len(parts)}", label_pass, *arguments)
        yield states


def write_decoder_shards(
    rows: ClusterRows, features: Features, sums: LinkSums, settings: Settings, model_file: Path
) -> ShardedWeights:
    """Returns V by squared or logistic loss, labels partitioned: each worker sums the targets of its labels, fits and
    writes them beside the model file. V is never whole, and never comes to the client."""
    cluster, parts = rows.cluster, split_evenly(rows.c, len(rows.cluster.workers))
    model_file.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned_shards(model_file)
    fit_id = secrets.token_hex(4)
    names = shard_names(model_file.stem, fit_id, len(parts))
    mark, handle = _create(model_file.with_name(f"{model_file.stem}-V-{fit_id}"), _make_file)

    def send_and_write() -> None:
        sent = cluster.send(features)
        targets = []
        for labels in parts:
            futures = [
                cluster.submit("targets", tasks.partition_targets, partition, w, sent, labels)
                for partition, w in zip(rows.parts, rows.weights, strict=True)
            ]
            targets.append(cluster.submit("targets", transpose, rows.add_up(futures)))
        if settings.loss == "squared":
            given = cluster.send(sums.gram.G), settings.final_ridge, settings.smoothing
            found = [cluster.submit(f"solve {i + 1}/{len(parts)}", solve, t, *given) for i, t in enumerate(targets)]
        else:
            sgd = LabelSettings(settings.final_ridge, settings.sgd, settings.smoothing, settings.seed)
            passes = states_after_passes(rows, parts, targets, features, sums, sgd, SGDState())
            for _ in range(max(1, settings.passes)):
                states = next(passes)
            found = [cluster.submit("decoder", weights_of, state) for state in states]
        files = [str(model_file.parent / name) for name in names]
        cluster.client.gather(
            [cluster.submit("write", write_shard, *shard) for shard in zip(found, files, strict=True)]
        )

    try:
        cluster.retry_lost_arrays(send_and_write)
        found = open_shards(model_file.parent, names)
    except BaseException:
        for name in names:
            with suppress(OSError):
                (model_file.parent / name).unlink()
        release(mark, handle)
        raise
    weakref.finalize(found, release, mark, handle)  # by then the model file names them, if it was saved
    return found


def release(mark: Path, handle: int) -> None:
    """Removes the mark of a fit that writes shards, which it holds a lock on."""
    with suppress(OSError):
        mark.unlink()
    os.close(handle)


def remove_abandoned_shards(model_file: Path) -> None:
    """Removes the shards of fits to this model file that were killed before it named them: their marks are there, and
    no process holds a lock on them."""
    folder, named = model_file.parent, list[str]()
    with suppress(ModelFileError):
        named = load(model_file).meta.get("shards") or []
    for mark in folder.glob(f".{glob.escape(model_file.stem)}-V-????????.part"):
        if not _remove_abandoned(mark):
            continue
        fit = glob.escape(mark.name[1 : -len(".part")])
        for shard in folder.glob(f"{fit}-*-of-*.safetensors"):
            if shard.name not in named:
                with suppress(OSError):
                    shard.unlink()
        for part in folder.glob(f".{fit}-*.part"):
            _remove_abandoned(part)


# On a worker


def transpose(totals: list[Array]) -> Array:
    """Returns Phi'WY (s + 1, m) of the sum of `partition_targets`."""
    return totals[0].T


def solve(targets: Array, G: Array, ridge: float, smoothing: Smoothing) -> Array:
    """Returns V of some labels by squared loss."""
    return np.ascontiguousarray(squared(LinkSums(GramSystem(G.copy()), targets, 0.0), ridge, smoothing))


def label_pass(
    rows: Rows,
    features: Features,
    G: Array,
    targets: Array,
    weight: float,
    settings: LabelSettings,
    before: SGDState | None,
) -> SGDState:
    """Returns the state of the logistic SGD with some labels after one pass more."""
    run = SGDState() if before is None else deepcopy(before)  # passes write into its arrays
    passes = sgd_passes(
        rows,
        features,
        LinkSums(GramSystem(G.copy()), targets, weight),
        settings.ridge,
        softmax=False,
        sgd=settings.sgd,
        smoothing=settings.smoothing,
        seed=settings.seed,
        run=run,
        rotated=False,
    )
    next(passes)
    return run


def weights_of(state: SGDState) -> Array:
    """Returns V of a state of the SGD."""
    assert state.V is not None
    return state.V


def add_softmax_gradient(
    block: Block, batch: Array, weights: Array, features: Features, V: Array, p: Array, scale: float, out: Array
) -> None:
    """Adds Phi'W(softmax(Phi V) - p - scale Y) of the rows of a batch that are in one block into out (s + 1, c)."""
    inside = slice(*np.searchsorted(batch, (block.start, block.start + len(block.w))))
    if inside.start == inside.stop:
        return
    some = batch[inside] - block.start
    Phi = features(block.X.array[some])
    P = Phi @ V
    P -= log_sums(P)
    np.exp(P, out=P)
    P -= p
    P *= weights[inside, None]
    if scale:
        subtract_labels(P, block.Y.csr[some], slice(0, P.shape[1]), weights[inside], scale)
    out += Phi.T @ P
