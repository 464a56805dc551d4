"""A fit on a cluster: rows are partitioned among the workers, then every step of a fit runs over `ClusterRows`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.distributed import tasks
from smoothlink.distributed.client import Cluster
from smoothlink.distributed.input_files import (
    FilePiece,
    Files,
    Header,
    check_alike,
    check_visible,
    checksums,
    counted_from_zero,
    read_headers,
    with_given_names,
)
from smoothlink.distributed.rows_on_workers import ClusterRows, RemoteLabels
from smoothlink.errors import plural
from smoothlink.fitting.checkpoint import checksum, describe_request, open_state
from smoothlink.fitting.checks import check_task
from smoothlink.fitting.memory import Plan, size
from smoothlink.fitting.prepare import largest_rank, resolve_solver, start_settings
from smoothlink.fitting.run import fit_posed
from smoothlink.fitting.settings import Clock, Inputs, Note, Notify, Problem, Request, Settings
from smoothlink.fitting.summary import Fitted, with_contents
from smoothlink.labels import choose_multiclass
from smoothlink.machines.copies import RowContents, notable
from smoothlink.solve import EXPECTED_ITERATIONS, ConjugateGradient
from smoothlink.steps.scale import ColumnStatistics, fit_variance, resolve_scaling

Array = NDArray[Any]

SCALING_ROWS = 1000  # rows that tell how features are scaled
PREPARED_BYTES = 20  # an entry of X with its transpose, ready for products
ALL_ROWS_MEMORY = 0.4  # of a worker's memory that all of X may take


class PartitionedData(NamedTuple):
    """Rows in partitions before they are loaded: what each worker will read."""

    cluster: Cluster
    pieces: list[list[Any]]  # of each partition: ArrayPiece or FilePiece
    starts: Array  # of each partition, the number of its first row
    header: Header
    checksums: Callable[[], dict[str, Any]] = dict  # of the rows, however they are partitioned

    def load(
        self, scaling: Callable[[Any], Any], w: Array | None, block_rows: int | None, *, columns: bool = False
    ) -> ClusterRows:
        """Returns the rows, scaled, on the workers; to partition columns, each worker loads all rows too."""
        cluster, header, starts, parts = self.cluster, self.header, self.starts.tolist(), []
        workers, all_rows = cluster.workers, None
        if columns:
            arguments = tasks.load_all_partitions, self.pieces, starts, scaling, block_rows
            all_rows = [cluster.submit_checked("load-all", *arguments, worker=worker) for worker in workers]
        for i, (start, stop) in enumerate(pairwise([*starts, header.rows])):
            at = i % len(workers)
            if all_rows is None:
                given = tasks.load_partition, self.pieces[i], start, scaling, block_rows
                parts.append(cluster.submit_checked("load", *given, worker=workers[at]))
            else:
                rows = all_rows[at], start, stop
                parts.append(cluster.submit("partition", tasks.select_partition, *rows, worker=workers[at]))
        return ClusterRows(cluster, parts, self.starts, header.rows, header.features + 1, header.labels, w, all_rows)

    def describe_fit(
        self, w: Array | None, label_weight: Array | None, request: Request, groups: Array | None
    ) -> dict[str, Any]:
        """Returns what makes two fits the same, on any number of workers."""
        counts = {noun: getattr(self.header, noun) for noun in ("rows", "features", "labels")}
        where = {"on": "a cluster", "shards": None if self.cluster.shards is None else str(self.cluster.shards)}
        return {**where, **counts, **self.checksums(), **describe_request(w, label_weight, request, groups)}

    def first_rows(self) -> Any:
        """Returns X of a few rows."""
        piece = next(piece for pieces in self.pieces for piece in pieces)
        return self.cluster.results([self.cluster.submit_checked("look", tasks.first_rows, piece, SCALING_ROWS)])[0]

    def column_statistics(self, w: Array | None) -> ColumnStatistics:
        """Returns what scaling to unit variance is made of, of all rows with weights w (n,)."""
        edges, workers, parts = [*self.starts.tolist(), self.header.rows], self.cluster.workers, []
        for i, (start, stop) in enumerate(pairwise(edges)):
            given = tasks.column_statistics, self.pieces[i], None if w is None else w[start:stop]
            parts.append(self.cluster.submit_checked("measure", *given, worker=workers[i % len(workers)]))
        return reduce(add, self.cluster.results(parts))


def partition_arrays(cluster: Cluster, X: Any, Y: sp.csr_array) -> PartitionedData:
    """Sends the rows of the client to the workers. The scheduler keeps a copy, for where a worker dies."""
    edges = np.linspace(0, X.shape[0], min(len(cluster.workers), max(1, X.shape[0])) + 1).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that this is much to send
        pieces = [[cluster.submit("send", tasks.ArrayPiece, X[a:b], Y[a:b])] for a, b in pairwise(edges)]
    entries = X.nnz if sp.issparse(X) else X.size
    header = Header(X.shape[0], X.shape[1], Y.shape[1], entries, None, None)

    def sums() -> dict[str, Any]:
        return {"checksum of X": checksum(X), "checksum of Y": checksum(Y)}

    return PartitionedData(cluster, pieces, edges[:-1], header, sums)


def partition_files(cluster: Cluster, files: Files) -> PartitionedData:
    """Returns as many partitions as there are workers, or rows: data folders in equal parts, other files whole."""
    cluster.step = "read"
    check_visible(cluster, files.sources)
    headers = read_headers(cluster, files)
    if {header.zero_based for header in headers} >= {True, False}:  # a feature 0 of one file means so for all
        files = files._replace(reading={**files.reading, "zero_based": True})
        headers = read_headers(cluster, files)
    headers = [with_given_names(header, files) for header in headers]
    check_alike(files.paths, headers)
    total = sum(header.rows for header in headers)
    count = min(len(cluster.workers), total)
    ends = np.linspace(0, total, count + 1).astype(int)[1:]  # where partitions should end
    pieces: list[list[Any]] = [[]]
    starts, row = [0], 0
    for path, header in zip(files.paths, headers, strict=True):
        for start, stop in split_file(header.rows, ends - row, path.rstrip("/").endswith(".sl")):
            if row + start >= ends[len(starts) - 1] and len(starts) < count:
                pieces.append([])
                starts.append(row + start)
            pieces[-1].append(FilePiece(path, start, stop, files.reading))
        row += header.rows
    entries = sum(header.entries for header in headers)
    header = headers[0]._replace(rows=total, entries=entries, zero_based=counted_from_zero(headers))
    return PartitionedData(cluster, pieces, np.array(starts), header, lambda: checksums(cluster, files))


def split_file(rows: int, ends: Array, divisible: bool) -> list[tuple[int, int]]:
    """Returns the parts of a file: split where partitions end within it, if it can be read in parts."""
    inside = [int(end) for end in ends if 0 < end < rows] if divisible else []
    edges = [0, *inside, rows]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def check_shards(cluster: Cluster, request: Request) -> None:
    """Raises ValueError where the workers are to write the decoder of a fit in which they cannot."""
    loss = request.loss if request.loss != "auto" or request.effort == "full" else "squared"
    if cluster.shards is not None and request.training == "joint":
        raise ValueError(
            "shards are written by stepwise fits; training is 'joint'.\nLeave shards out, or training 'auto'."
        )
    one_fit = request.effort == "quick" or (request.given and not request.calibrate)  # nothing is tried before it
    if cluster.shards is not None and (loss not in ("squared", "logistic") or not one_fit):
        raise ValueError(
            "shards are written by one fit with squared or logistic loss: use effort='quick', or give all settings and "
            f"calibrate=False; loss is {request.loss!r}."
        )


def fit_partitioned(
    data: PartitionedData,
    w: Array | None,
    request: Request,
    task: str,
    label_weight: Array | None = None,
    *,
    groups: Array | None = None,
    notify: Notify | None = None,
    note: Note | None = None,
) -> Fitted:
    """Fits a model to rows on workers: `fitting.run.run` on a cluster."""
    cluster, clock = data.cluster, ClusterClock(data.cluster, notify)
    cluster.moved.clear()
    with clock.step("scale"):
        sample = data.first_rows()
        sample = ColumnStatistics.of(sample, np.ones(sample.shape[0]))
        scaling = resolve_scaling(sample, request.scale, data.header.rows)
        if scaling.kind == "variance":
            scaling = fit_variance(data.column_statistics(w), scaling)
    plan = plan_partitions(data, request, cluster.plan)
    if note is not None:
        note(f"{plan} Dashboard: {cluster.dashboard}")
    with clock.step("read"):
        rows = data.load(scaling.__call__, w, request.block_rows, columns=plan.by == "columns")
        counts = cluster.results([cluster.submit("check", tasks.count_partition, part) for part in rows.parts])
    contents = RowContents(
        *(np.concatenate(hashes) for hashes in zip(*(part.contents for part in counts), strict=True))
    )
    first = notable(contents.first_copies())
    if first is not None:
        w = np.bincount(first, w, len(first))
        rows = rows.weighted(w)
    if note is not None and (text := contents.describe(first)) is not None:
        note(text)
    multiclass = is_multiclass_on_workers(counts, task, rows.c)
    check_task(request, multiclass=multiclass)
    label_scale = None if label_weight is None else np.sqrt(label_weight).astype(np.float32)
    entries = sum(part.entries for part in counts)
    with open_state(request.checkpoint, lambda: data.describe_fit(w, label_weight, request, groups), Plan) as state:

        def pose(request: Request) -> tuple[Problem, Settings]:
            problem = Problem(
                rows, RemoteLabels(rows), multiclass, scaling, Inputs(), False, label_scale, state, groups
            )
            return problem, start_settings(problem, request, entries)

        fitted = fit_posed(pose, replace(request, input_kernel=None, trees=False), clock, state, rows.c)
    fitted.summary.update(workers=len(cluster.workers), partitioned=plan.by, bytes_moved=dict(cluster.moved))
    return with_contents(fitted, contents, first)


def is_multiclass_on_workers(counts: list[tasks.PartitionCounts], task: str, labels: int) -> bool:
    """Returns whether the model is multiclass, by the task and the number of labels of each row."""
    if not any(part.most_labels for part in counts):
        raise ValueError("No row has a label: there is nothing to learn.")
    single = all(part.fewest_labels == part.most_labels == 1 for part in counts)
    return choose_multiclass(task, one_label_per_row=single, labels=labels)


class PartitionPlan(NamedTuple):
    """What is partitioned among the workers, and what each of them then holds."""

    by: str  # "rows", or "columns" of the ridge solves too
    workers: int
    held: int  # bytes of X per worker
    solved: int  # bytes of a (d, k + l) array
    reason: str

    def __str__(self) -> str:
        held, solved = (size(max(1 << 20, count)) for count in (self.held, self.solved))
        return (
            f"{plural(self.workers, 'worker')}, partitioned by {self.by} ({self.reason}): each holds {held} of X; "
            f"an array of the solves has {solved}."
        )


def plan_partitions(data: PartitionedData, request: Request, plan: str) -> PartitionPlan:
    """Returns what to partition: rows, or columns where all of X fits a worker and conjugate gradients, if it is they,
    would send more than X; joint training solves for nothing on workers."""
    header, workers = data.header, len(data.cluster.workers)
    rank = largest_rank(request, header.rows, header.features, header.labels)
    columns = min(header.labels, rank + request.oversample)
    solved, inputs = 4 * (header.features + 1) * columns, PREPARED_BYTES * (header.entries + header.rows)
    fits = inputs <= ALL_ROWS_MEMORY * data.cluster.worker_memory()
    moved = 2 * EXPECTED_ITERATIONS * solved  # by the solves of one embedding, there and back, for each worker
    sizes = header.rows, header.features + 1, columns, header.entries + header.rows
    gradients = isinstance(resolve_solver(request.solver, *sizes, by_sums=True), ConjugateGradient)
    pays = fits and gradients and workers > 1 and moved > inputs and request.training != "joint"
    by = plan if plan != "auto" else "columns" if pays else "rows"
    reason = "as requested" if plan != "auto" else "X fits a worker" if by == "columns" else "least to send"
    held = inputs if by == "columns" else inputs // workers
    return PartitionPlan(by, workers, held, solved, reason)


class ClusterClock(Clock):
    """A clock that also says on the cluster to which step its tasks belong."""

    def __init__(self, cluster: Cluster, notify: Notify | None) -> None:
        super().__init__(notify)
        self.cluster = cluster

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        before, self.cluster.step = self.cluster.step, name
        try:
            with super().step(name):
                yield
        finally:
            self.cluster.step = before
