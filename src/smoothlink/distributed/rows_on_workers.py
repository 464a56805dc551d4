"""Rows on the workers of a Dask cluster: the sums of the algorithms as one task a worker and a tree of additions.

Shares of rows are loaded by the workers and stay there. Every task can be run again from its arguments, so Dask makes
good for workers that die.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.util
import itertools
import math
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.distributed import tasks as shares
from smoothlink.errors import ClusterError
from smoothlink.machines.host_and_device import HOST_COLUMNS, host_memory
from smoothlink.machines.rows import Rows, SavedSums, stack

Array = NDArray[Any]

OUTSIDE = 1.6  # times as slow as inside a panel of 64 is a column outside
SENT = 1 << 15  # bytes from which on an array is sent to the workers by itself
LOST = (asyncio.CancelledError, concurrent.futures.CancelledError, OSError, TimeoutError)
FEW = 4  # workers that may fetch an array from one
REACHED = 2.0  # seconds to try whether a worker can be reached
PIECE_BYTES = 32 << 20  # bytes of a (d, m) array that are sent and added at a time
RETRIES = 3  # of a task that fails for other reasons than the death of its worker


def library(name: str) -> Any:
    """A module of Dask, imported when it is asked for."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ClusterError("Dask is not installed.\npip install 'smoothlink[cluster]'.") from None


class Cluster:
    """A Dask client: sends arrays once, names tasks so that a person can read them, and says what went wrong."""

    def __init__(self, client: Any, plan: str = "auto", shards: Path | None = None) -> None:
        self.client, self.stage, self.plan = client, "work", plan
        self.shards = shards  # the model file beside which workers write V; None: it comes to the client
        self.moved: dict[str, int] = {}  # bytes of arrays that went over the network, by stage
        self._future = library("distributed").Future
        self._mark, self._count = secrets.token_hex(8), itertools.count()  # names of tasks must be ours alone
        self.direct = reached(self.workers)  # whether arrays need not pass through the scheduler
        self._homes: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # workers that tasks were put on

    @property
    def workers(self) -> list[str]:
        return sorted(self.client.scheduler_info(n_workers=-1)["workers"])

    def worker_memory(self) -> int:
        """Bytes that the smallest worker may hold; where it was not told, its part of this machine's."""
        found = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [worker["memory_limit"] for worker in found if worker["memory_limit"]]
        return int(min(limits)) if limits else host_memory() // max(1, len(found))

    @property
    def dashboard(self) -> str:
        """Its address; where Dask has nothing to draw it with, what to install."""
        missing = "" if importlib.util.find_spec("bokeh") else " (to see it: pip install bokeh)"
        return f"{self.client.dashboard_link}{missing}"

    def send(self, A: Any, worker: str | None = None) -> Any:
        """A large array, or a tuple of arrays, for all workers, or for one; anything small as it is.

        It leaves here once, for one worker, and those whose tasks need it fetch it from there. Dask's own broadcast
        would wait for ever where a worker dies meanwhile. Where this process cannot reach workers, or one just died,
        the scheduler passes the array on.
        """
        parts = A if isinstance(A, tuple) else (A,)
        size = sum(getattr(part, "nbytes", 0) for part in parts)
        if size < SENT:
            return A
        self.count(size * (len(self.workers) if worker is None else 1))
        with self.speaking():
            sent = self._scattered(A, worker)
        if worker is None:
            self._pass_on(sent)
        return sent

    def _scattered(self, A: Any, worker: str | None) -> Any:
        if self.direct:
            with suppress(OSError, TimeoutError):
                return self.client.scatter(A, hash=False, direct=True, workers=None if worker is None else [worker])
        return self.client.scatter(A, hash=False, direct=False)

    def _pass_on(self, sent: Any) -> None:
        """Where many workers would fetch from one, twice as many do so in each wave."""
        workers, wave = self.workers, FEW
        while len(workers) > FEW and wave // 2 < len(workers):
            some = workers[wave // 2 if wave > FEW else 0 : wave]
            self.client.gather([self.submit("pass-on", shares.touch, sent, worker=name) for name in some])
            wave *= 2

    def submit(self, what: str, f: Callable[..., Any], *arguments: Any, worker: str | None = None) -> Any:
        """A task; `worker` is where it should run while that one lives, else where the first of what it is given is.

        Left to itself Dask would copy rows to where larger arrays are, until each worker has all of them.
        """
        if worker is None:
            worker = next((self._homes[A] for A in arguments if isinstance(A, self._future) and A in self._homes), None)
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        key = f"{self.stage}-{what}-{self._mark}{next(self._count):08x}"
        with self.speaking():
            task = self.client.submit(f, *arguments, key=key, pure=False, retries=RETRIES, **where)
        if worker is not None:
            self._homes[task] = worker
        return task

    def holder(self, future: Any) -> str | None:
        """A worker that has a result; None: none at the moment."""
        with self.speaking():
            return next(iter(self.client.who_has(future).get(future.key, ())), None)

    def count(self, size: int) -> None:
        """Takes note of bytes that are moved."""
        self.moved[self.stage] = self.moved.get(self.stage, 0) + size

    def gather(self, futures: Any) -> Any:
        with self.speaking():
            return self.client.gather(futures, direct=self.direct)

    def again(self, question: Callable[[], Any]) -> Any:
        """What a question that sends arrays brings; it is put again where all workers that held an array died."""
        with self.speaking():
            for _ in range(RETRIES):
                try:
                    return question()
                except (asyncio.CancelledError, concurrent.futures.CancelledError):
                    if self.client.status != "running":
                        raise
            return question()

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Errors of the cluster in words."""
        if self.client.status in ("closed", "closing"):
            raise lost_scheduler("its client is closed")
        try:
            yield
        except library("distributed").KilledWorker as error:
            raise ClusterError(
                f"Workers died again and again at {error.task}: most likely it needs more memory than a worker has.\n"
                "Use more workers or larger ones, a smaller rank or fewer n_features."
            ) from error
        except (*LOST, library("distributed.comm").CommClosedError) as error:
            raise lost_scheduler(f"{type(error).__name__}: {error}") from error


def reached(workers: list[str]) -> bool:
    """Whether this process can talk to the workers themselves: in some networks only the scheduler can."""
    for worker in workers[:1]:
        host, _, port = worker.rpartition("://")[2].rpartition(":")
        if worker.startswith("inproc://"):
            return True
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACHED).close()
        except (OSError, ValueError):
            return False
    return bool(workers)


def lost_scheduler(why: str) -> ClusterError:
    return ClusterError(
        f"The scheduler of the cluster is lost ({why}).\n"
        "Start it again and repeat the command; with --checkpoint it goes on where it was."
    )


_current: ContextVar[Cluster | None] = ContextVar("cluster", default=None)


def current() -> Cluster | None:
    """The cluster that fits of this context run on."""
    return _current.get()


@contextmanager
def using(cluster: Cluster) -> Iterator[Cluster]:
    token = _current.set(cluster)
    try:
        yield cluster
    finally:
        _current.reset(token)


class RemoteArray:
    """An array (n, k) whose rows are on the workers, share by share."""

    dtype = np.dtype(np.float32)

    def __init__(
        self, cluster: Cluster, parts: list[Any], starts: Array, shape: tuple[int, int], source: list[Any]
    ) -> None:
        self.cluster, self.parts, self.starts, self.shape = cluster, parts, starts, shape
        self.source = source  # what it was made of: a worker that dies takes its part along, which is made again

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Array:
        """Some rows, by number in any order, or a slice of them, on the client."""
        numbers = np.arange(self.shape[0])[key] if isinstance(key, slice) else np.asarray(key)
        out = np.empty((len(numbers), self.shape[1]), np.float32)
        owner = np.searchsorted(self.starts, numbers, side="right") - 1
        some = [np.flatnonzero(owner == i) for i in range(len(self.parts))]
        asked = {i: numbers[at] - self.starts[i] for i, at in enumerate(some) if len(at)}
        tasks = {i: self.cluster.submit("rows", shares.array_rows, self.parts[i], at) for i, at in asked.items()}
        for i, rows in self.cluster.gather(tasks).items():
            out[some[i]] = rows
        return out


class RemoteLabels:
    """Y (n, c) on the workers: some of its rows can be asked for."""

    def __init__(self, rows: ClusterRows) -> None:
        self.rows, self.shape = rows, (rows.n, rows.c)

    def __getitem__(self, numbers: Array) -> sp.csr_array:
        return self.rows.gathered("labels", shares.labels_in, np.asarray(numbers))[0]


class ClusterRows(Rows):
    """Rows whose blocks are on the workers of a cluster."""

    remote = True

    def __init__(
        self,
        cluster: Cluster,
        parts: list[Any],
        starts: Array,
        n: int,
        d: int,
        c: int,
        w: Array | None = None,
        whole: list[Any] | None = None,
    ) -> None:
        super().__init__([], d, c)
        self.cluster, self.parts, self.starts, self.n = cluster, parts, starts, n
        self.partitions_columns = whole is not None
        # All rows as one share, for each worker its own, where columns are shared out. Copies of one result would not
        # do: Dask takes those that no task waits for away again.
        self.whole = whole
        self.ends = np.append(starts[1:], n)
        self._w = w  # None: 1 each
        self.weights = (
            [None] * len(parts)
            if w is None
            else [cluster.submit("weights", np.asarray, w[a:b]) for a, b in zip(starts, self.ends, strict=True)]
        )

    @property
    def w(self) -> Array:
        return np.ones(self.n, np.float32) if self._w is None else self._w

    def weighted(self, w: Array) -> ClusterRows:
        w = np.asarray(w, np.float32)
        found = ClusterRows(self.cluster, self.parts, self.starts, self.n, self.d, self.c, w, self.whole)
        found.table = self.table
        return found

    def columns(self, d: int) -> int:
        """Some panels, so that two arrays of them, what is sent and what comes back, stay small on a worker."""
        return max(HOST_COLUMNS, PIECE_BYTES // (4 * d) // HOST_COLUMNS * HOST_COLUMNS)

    def columnwise(self, f: Callable[..., None], A: Any, side: int, dtype: Any = np.float32) -> Any:
        """Some columns after the others: no worker holds all of A or of the sum."""
        m, width = A.shape[1], self.columns(max(side, len(A)))
        if m <= width:
            return self.sum(f, A, out=(side, m), dtype=dtype)
        out = np.empty((side, m), dtype)
        for start in range(0, m, width):
            part = np.ascontiguousarray(A[:, start : start + width])
            out[:, start : start + width] = self.sum(f, part, out=(side, part.shape[1]), dtype=dtype)
        return out

    def over_columns(self, f: Callable[..., Any], B: Any, *arguments: Any) -> Any:
        """Each worker does some columns over all rows, and nothing is said between them on the way."""
        if self.whole is None:
            return super().over_columns(f, B, *arguments)
        whole = self.whole

        def spread() -> Any:
            w, *sent = (self.cluster.send(A) for A in (self._w, *arguments))
            columns = dealt(B.shape[1], len(whole))
            tasks = [
                self.cluster.submit(
                    f"columns {i + 1}/{len(columns)}",
                    shares.columns_of,
                    *(
                        f,
                        whole[i],
                        w,
                        self.cluster.send(np.ascontiguousarray(B[:, some]), self.cluster.holder(whole[i])),
                    ),
                    *sent,
                )
                for i, some in enumerate(columns)
            ]
            found = self.cluster.client.gather(tasks, direct=self.cluster.direct)
            self.cluster.count(sum(array.nbytes for part in found for array in part))
            return [np.hstack(arrays) for arrays in zip(*found, strict=True)]

        return self.cluster.again(spread)

    def sums(
        self,
        f: Callable[..., None],
        *arrays: Any,
        outs: list[tuple[tuple[int, ...], Any]],
        saved: SavedSums | None = None,
    ) -> list[Any]:
        done, totals = (0, None) if saved is None else saved.load()
        if totals is not None and done == self.n:
            return totals
        found: list[Any] = self.cluster.again(lambda: self._sums(f, arrays, outs))
        if saved is not None:
            saved.save(self.n, found, last=True)
        return found

    def _sums(self, f: Callable[..., None], arrays: tuple[Any, ...], outs: list[tuple[tuple[int, ...], Any]]) -> Any:
        """One task a share, and a tree of additions."""
        sent = [self.cluster.send(A) for A in arrays]
        parts = [
            self.cluster.submit("sum", shares.share_sums, f, share, w, outs, *sent)
            for share, w in zip(self.parts, self.weights, strict=True)
        ]
        while len(parts) > 1:
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [self.cluster.submit("add", shares.added, *p) if len(p) == 2 else p[0] for p in pairs]
        self.cluster.count(len(self.parts) * sum(np.dtype(kind).itemsize * math.prod(shape) for shape, kind in outs))
        return self.cluster.client.gather(parts[0], direct=self.cluster.direct)

    def kept_sum(self, what: str, f: Callable[..., Array], *arguments: Any) -> Any:
        """The sum of what f(share, weights, *arguments) makes of the shares; it stays on a worker."""
        parts = [self.cluster.submit(what, f, s, w, *arguments) for s, w in zip(self.parts, self.weights, strict=True)]
        while len(parts) > 1:
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [self.cluster.submit("add", shares.sum_of, *p) if len(p) == 2 else p[0] for p in pairs]
        return parts[0]

    def map(self, f: Callable[..., Any], *arrays: Any, into: Any = None) -> Any:
        """What f makes of the blocks stays on the workers."""

        def spread() -> RemoteArray:
            sent = [self.cluster.send(A) for A in arrays]
            parts = [self.cluster.submit("map", shares.share_map, f, share, *sent) for share in self.parts]
            width = self.cluster.client.gather(self.cluster.submit("width", np.shape, parts[0]))[1]
            return RemoteArray(self.cluster, parts, self.starts, (self.n, width), sent)

        return self.cluster.again(spread)

    def with_inputs(self, H: Any) -> ClusterRows:
        parts = [
            self.cluster.submit("inputs", shares.with_inputs, share, h)
            for share, h in zip(self.parts, H.parts, strict=True)
        ]
        found = ClusterRows(self.cluster, parts, self.starts, self.n, H.shape[1], self.c, self._w)
        found.table = H
        return found

    def with_label_scale(self, scale: Array) -> ClusterRows:
        parts = [self.cluster.submit("labels", shares.scaled_labels, share, scale) for share in self.parts]
        return ClusterRows(self.cluster, parts, self.starts, self.n, self.d, self.c, self._w)

    def take(self, numbers: Array) -> Rows:
        """Some of the rows, by number ascending, on the client."""
        X, Y = self.gathered("rows", shares.rows_in, numbers, 2)
        return Rows.of(X, Y, self.w[numbers])

    def gathered(self, what: str, f: Callable[..., Any], numbers: Array, count: int = 1) -> list[Any]:
        """What f finds of some rows, ascending, in each share, stacked."""
        asked = [numbers[(numbers >= a) & (numbers < b)] for a, b in zip(self.starts, self.ends, strict=True)]
        tasks = [self.cluster.submit(what, f, share, some) for share, some in zip(self.parts, asked, strict=True)]
        found = self.cluster.gather(tasks)
        return [stack([part[i] if count > 1 else part for part in found]) for i in range(count)]

    def compact(self) -> Rows:
        raise NotImplementedError("rows of a cluster are compacted once they were taken")

    def each(self) -> Iterator[Any]:
        raise NotImplementedError("rows of a cluster are not looked at one block after the other")

    def release(self) -> None:
        """The workers keep their shares."""


def dealt(m: int, workers: int) -> list[slice]:
    """Columns in as many parts as there are workers, or fewer: equal ones, or whole panels where these take less time.

    The kernels take a column outside of a panel at about OUTSIDE times the price of one inside.
    """

    def cost(edges: Array) -> float:
        width = np.diff(edges)
        return float((width + (OUTSIDE - 1) * (width % HOST_COLUMNS)).max())

    count, panels = max(1, min(workers, m)), math.ceil(m / HOST_COLUMNS)
    equal = np.linspace(0, m, count + 1).astype(int)
    whole = np.minimum(m, np.linspace(0, panels, min(count, panels) + 1).round().astype(int) * HOST_COLUMNS)
    edges = min(equal, whole, key=cost)
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
