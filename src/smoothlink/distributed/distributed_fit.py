"""A fit on a cluster: who reads what is settled, then the stages of any fit run over rows that are on the workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.distributed import tasks as shares
from smoothlink.distributed.input_files import (
    Files,
    Piece,
    answered,
    check_alike,
    check_seen,
    checksums,
    counted_from_zero,
    described,
    renamed,
)
from smoothlink.distributed.rows_on_workers import Cluster, ClusterRows, RemoteLabels
from smoothlink.distributed.tasks import Given, Header, Seen
from smoothlink.errors import plural
from smoothlink.fitting.checkpoint import checksum, describe_request, open_state
from smoothlink.fitting.checks import check_loss
from smoothlink.fitting.memory import Plan, size
from smoothlink.fitting.prepare import largest_rank, resolve_solver, start_settings
from smoothlink.fitting.run import fit_posed
from smoothlink.fitting.settings import Clock, Inputs, Notify, Problem, Request, Settings
from smoothlink.fitting.summary import Fitted
from smoothlink.labels import choose_multiclass
from smoothlink.solve import EXPECTED_ITERATIONS, ConjugateGradient
from smoothlink.steps.scale import choose_scaling

Array = NDArray[Any]

LOOKED_AT = 1000  # rows that tell how features are scaled
PREPARED_BYTES = 20  # an entry of X with its transpose, ready for products
WORKER_SHARE = 0.4  # of a worker's memory that all of X may take


class Spread(NamedTuple):
    """Rows on workers before they are loaded: who reads what, and what it is."""

    cluster: Cluster
    pieces: list[list[Any]]  # of each share
    starts: Array  # of each share, the number of its first row
    header: Header
    contents: Callable[[], dict[str, Any]] = dict  # checksums of the rows, however they are cut

    def load(
        self, scaling: Callable[[Any], Any], w: Array | None, block_rows: int | None, *, whole: bool = False
    ) -> ClusterRows:
        """The rows, scaled, on the workers; `whole` also all of them on each."""
        cluster, header, starts, parts = self.cluster, self.header, self.starts.tolist(), []
        workers, every = cluster.workers, None
        if whole:
            told = (shares.load_all, self.pieces, starts, scaling, block_rows)
            every = [cluster.submit("load-all", shares.told, *told, worker=worker) for worker in workers]
        for i, (start, stop) in enumerate(pairwise([*starts, header.rows])):
            at = i % len(workers)
            if every is None:
                mine = (shares.load_share, self.pieces[i], start, scaling, block_rows)
                parts.append(cluster.submit("load", shares.told, *mine, worker=workers[at]))
            else:
                parts.append(cluster.submit("share", shares.share_of, every[at], start, stop, worker=workers[at]))
        return ClusterRows(cluster, parts, self.starts, header.rows, header.features + 1, header.labels, w, every)

    def job(self, w: Array | None, label_weight: Array | None, request: Request) -> dict[str, Any]:
        """What makes two fits the same, on any number of workers."""
        counts = {noun: getattr(self.header, noun) for noun in ("rows", "features", "labels")}
        where = {"on": "a cluster", "shards": None if self.cluster.shards is None else str(self.cluster.shards)}
        return {**where, **counts, **self.contents(), **describe_request(w, label_weight, request)}

    def first(self) -> Any:
        """X of a few rows."""
        piece = next(piece for pieces in self.pieces for piece in pieces)
        looking = self.cluster.submit("look", shares.told, shares.first_rows, piece, LOOKED_AT)
        return answered(self.cluster, [looking])[0]


def spread_files(cluster: Cluster, files: Files) -> Spread:
    """Data folders in equal parts, other files whole, as many shares as there are workers."""
    cluster.stage = "read"
    check_seen(cluster, files.sources)
    headers = described(cluster, files)
    if {header.zero_based for header in headers} >= {True, False}:  # a feature 0 of one file settles it for all
        files = files._replace(reading={**files.reading, "zero_based": True})
        headers = described(cluster, files)
    headers = [renamed(header, files) for header in headers]
    check_alike(files.paths, headers)
    count, total = len(cluster.workers), sum(header.rows for header in headers)
    ends = np.linspace(0, total, count + 1).astype(int)[1:]  # where shares should end
    pieces: list[list[Any]] = [[]]
    starts, row = [0], 0
    for path, header in zip(files.paths, headers, strict=True):
        for start, stop in cuts(header.rows, ends - row, path.rstrip("/").endswith(".sl")):
            if row + start >= ends[len(starts) - 1] and len(starts) < count:
                pieces.append([])
                starts.append(row + start)
            pieces[-1].append(Piece(path, start, stop, files.reading))
        row += header.rows
    entries = sum(header.entries for header in headers)
    whole = headers[0]._replace(rows=total, entries=entries, zero_based=counted_from_zero(headers))
    return Spread(cluster, pieces, np.array(starts), whole, lambda: checksums(cluster, files))


def cuts(rows: int, ends: Array, divisible: bool) -> list[tuple[int, int]]:
    """Where a file is cut: at the ends of shares that fall within it, if it can be read in parts."""
    inside = [int(end) for end in ends if 0 < end < rows] if divisible else []
    edges = [0, *inside, rows]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def spread_arrays(cluster: Cluster, X: Any, Y: sp.csr_array) -> Spread:
    """Rows of the client, sent to the workers. The scheduler keeps a copy: a worker that dies takes its rows along."""
    edges = np.linspace(0, X.shape[0], min(len(cluster.workers), max(1, X.shape[0])) + 1).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that this is much to send
        pieces = [[cluster.submit("give", Given, X[a:b], Y[a:b])] for a, b in pairwise(edges)]
    entries = X.nnz if sp.issparse(X) else X.size
    header = Header(X.shape[0], X.shape[1], Y.shape[1], entries, None, None)

    def contents() -> dict[str, Any]:
        return {"checksum of X": checksum(X), "checksum of Y": checksum(Y)}

    return Spread(cluster, pieces, edges[:-1], header, contents)


def train_spread(
    spread: Spread,
    w: Array | None,
    request: Request,
    task: str,
    label_weight: Array | None,
    notify: Notify | None = None,
    note: Callable[[str], None] | None = None,
) -> tuple[Fitted, bool]:
    """`train` over rows on workers, and whether the model is multiclass."""
    spread.cluster.moved.clear()
    cluster, clock = spread.cluster, StageClock(spread.cluster, notify)
    with clock.step("scale"):
        scaling = choose_scaling(spread.first(), request.scale, None)
        if scaling.kind == "variance":
            raise ValueError(
                f"scale is {request.scale!r}, and the columns of this dense table would be scaled to unit variance, "
                "which a cluster cannot do; scale them before and say scale='none', or 'unit' for rows of length 1."
            )
    plan = cluster_plan(spread, request, cluster.plan)
    check_shards(cluster, request)
    if note is not None:
        note(f"{plan} Dashboard: {cluster.dashboard}")
    with clock.step("read"):
        rows = spread.load(scaling.__call__, w, request.block_rows, whole=plan.by == "columns")
        seen = answered(cluster, [cluster.submit("check", shares.looked_at, share) for share in rows.parts])
    multiclass = asked_multiclass(seen, task, rows.c)
    check_loss(request, multiclass=multiclass)
    label_scale = None if label_weight is None else np.sqrt(label_weight).astype(np.float32)
    entries = sum(share.entries for share in seen)
    with open_state(request.checkpoint, lambda: spread.job(w, label_weight, request), Plan) as state:

        def pose(request: Request) -> tuple[Problem, Settings]:
            labels = RemoteLabels(rows)
            problem = Problem(rows, labels, multiclass, scaling, Inputs(), False, label_scale, state)
            return problem, start_settings(problem, request, entries)

        fitted = fit_posed(pose, replace(request, input_kernel=None), clock, state, rows.c)
    fitted.summary.update(workers=len(cluster.workers), shared_out=plan.by, bytes_moved=dict(cluster.moved))
    return fitted, multiclass


def asked_multiclass(seen: list[Seen], task: str, labels: int) -> bool:
    """Whether the model is multiclass, by what was asked for and what the rows are."""
    single = all(share.fewest == share.most == 1 for share in seen)
    if not any(share.most for share in seen):
        raise ValueError("No row has a label: there is nothing to learn.")
    return choose_multiclass(task, one_label_per_row=single, labels=labels)


def check_shards(cluster: Cluster, request: Request) -> None:
    """Whether this is a fit whose decoder workers can write, if they are to."""
    loss = request.loss if request.loss != "auto" or request.effort == "full" else "squared"
    if cluster.shards is not None and (loss not in ("squared", "logistic") or not one_fit(request)):
        raise ValueError(
            "shards are written by one fit with squared or logistic loss: use effort='quick', or give all settings and "
            f"calibrate=False; loss is {request.loss!r}."
        )


class ClusterPlan(NamedTuple):
    """What is shared out among the workers, and what each of them then holds."""

    by: str  # "rows", or "columns" of the ridge solves too
    workers: int
    held: int  # bytes of X a worker
    solved: int  # bytes of a (d, k + l) array
    why: str

    def __str__(self) -> str:
        held, solved = (size(max(1 << 20, count)) for count in (self.held, self.solved))
        return (
            f"{plural(self.workers, 'worker')} share out {self.by} ({self.why}): each holds {held} of X; "
            f"an array of the solves has {solved}."
        )


def cluster_plan(spread: Spread, request: Request, asked: str) -> ClusterPlan:
    """Rows, or where all of X fits a worker and conjugate gradients, if it is they, would send more than X, columns."""
    header, workers = spread.header, len(spread.cluster.workers)
    rank = largest_rank(request, header.rows, header.features, header.labels)
    columns = min(header.labels, rank + request.oversample)
    solved, inputs = 4 * (header.features + 1) * columns, PREPARED_BYTES * (header.entries + header.rows)
    fits = inputs <= WORKER_SHARE * spread.cluster.worker_memory()
    moved = 2 * EXPECTED_ITERATIONS * solved  # by the solves of one embedding, there and back, for each worker
    sizes = header.rows, header.features + 1, columns, header.entries + header.rows
    gradients = isinstance(resolve_solver(request.solver, *sizes, by_sums=True), ConjugateGradient)
    pays = fits and gradients and workers > 1 and moved > inputs
    by = asked if asked != "auto" else "columns" if pays else "rows"
    why = "asked for" if asked != "auto" else "X fits a worker" if by == "columns" else "least to send"
    held = inputs if by == "columns" else inputs // workers
    return ClusterPlan(by, workers, held, solved, why)


def one_fit(request: Request) -> bool:
    """Whether nothing is tried on held-out rows before the fit."""
    return request.effort == "quick" or (request.given and not request.calibrate)


class StageClock(Clock):
    """A clock that also tells the cluster which stage its tasks belong to."""

    def __init__(self, cluster: Cluster, notify: Notify | None) -> None:
        super().__init__(notify)
        self.cluster = cluster

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        before, self.cluster.stage = self.cluster.stage, name
        try:
            with super().step(name):
                yield
        finally:
            self.cluster.stage = before
