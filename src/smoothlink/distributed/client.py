"""The connection to a Dask cluster: local processes or a scheduler, arrays sent, tasks submitted, results collected."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import os
import secrets
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from smoothlink.distributed import _current, dask_module
from smoothlink.distributed.tasks import fetch, return_error, same
from smoothlink.distributed.worker_failure import RETRIES, explain_errors, keep_copies, retry_lost_arrays
from smoothlink.errors import ClusterError
from smoothlink.machines.host_and_device import host_memory

if TYPE_CHECKING:
    from distributed import Client

SCHEDULER_SECONDS = 10.0  # to wait for a scheduler, and for a worker where there is none
WORKER_SECONDS = 2.0  # to try whether a worker can be reached
PLANS = ("auto", "rows", "columns")
SAME_VERSION = ("python", "dask", "distributed", "numpy", "msgpack")  # on the client and on all workers
# Dask lets malloc give every large array back to the system, which then clears new pages for the next: with these
# variables X'XP of 64 columns took 0.60 processor seconds, not 0.76. A worker keeps up to 256 MB that it has freed.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_ARENA_MAX": "1",
}
SCATTER_BYTES = 1 << 15  # an array of so many bytes is sent to the workers once, not with each task


class Cluster:
    """A Dask client that sends arrays once, names tasks so that a person can read them, and explains errors."""

    def __init__(self, client: Any, timeout: float = SCHEDULER_SECONDS) -> None:
        self.client, self.timeout, self.plan = client, timeout, "auto"
        self.shards: Path | None = None  # the model file beside which workers write V; None: V comes to the client
        self.step = "work"  # of the fit, the first word of the names of its tasks
        self.moved: dict[str, int] = {}  # bytes of arrays that went over the network, by step
        self.fetches = 4  # workers that may fetch an array from one at the same time
        self.direct = can_reach(self.workers)  # whether arrays need not pass through the scheduler
        self._future = dask_module("distributed").Future
        self._mark, self._count = secrets.token_hex(8), itertools.count()  # names of tasks must be ours alone
        self._worker_of: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # the worker that a task was sent to

    @property
    def workers(self) -> list[str]:
        """The addresses of the workers; where all have just died, those that come within `timeout` seconds."""
        if not (found := self._known_workers()):
            try:
                self.client.wait_for_workers(1, timeout=self.timeout)
            except TimeoutError as error:
                address = self.client.scheduler.address
                raise ClusterError(
                    f"The scheduler at {address} has no workers.\nStart some: dask worker {address}."
                ) from error
            found = self._known_workers()
        return sorted(found)

    def _known_workers(self) -> dict[str, Any]:
        """Returns what the scheduler says of each worker, by address."""
        with self.explain_errors():
            found: dict[str, Any] | None = self.client.scheduler_info(n_workers=-1).get("workers")
            if found is None:  # as a client says whose scheduler is lost, until it is closed
                raise ConnectionError("it knows no workers")
            return found

    def worker_memory(self) -> int:
        """Returns the bytes that the smallest worker may hold; where it has no limit, its part of this machine's."""
        found = self._known_workers().values()
        limits = [worker["memory_limit"] for worker in found if worker["memory_limit"]]
        return int(min(limits)) if limits else host_memory() // max(1, len(found))

    @property
    def dashboard(self) -> str:
        """The address of Dask's dashboard; where Dask has nothing to draw it with, what to install."""
        missing = "" if importlib.util.find_spec("bokeh") else " (to see it: pip install bokeh)"
        return f"{self.client.dashboard_link}{missing}"

    def explain_errors(self) -> Any:
        """Returns a context in which errors of the cluster are raised as a ClusterError that says what to do."""
        return explain_errors(self.client)

    def retry_lost_arrays(self, send_and_compute: Callable[[], Any]) -> Any:
        """Returns what a function computes that sends arrays, which is called again where they are lost."""
        return retry_lost_arrays(self.client, send_and_compute)

    def send(self, A: Any, worker: str | None = None) -> Any:
        """Returns a future of a large array, or a tuple of arrays, for all workers or for one; anything small as it is.

        It leaves the client once, for one worker, and those whose tasks need it fetch it from there. Dask's own
        broadcast would wait for ever where a worker dies meanwhile. Where this process cannot reach workers, or one
        just died, the scheduler passes the array on.
        """
        if (size := array_bytes(A)) < SCATTER_BYTES:
            return A
        self.count_bytes(size * (len(self.workers) if worker is None else 1))
        with self.explain_errors():
            sent = self._scatter(A, worker)
        workers, wave = self.workers, self.fetches
        while worker is None and len(workers) > self.fetches and wave // 2 < len(workers):
            # Where many workers would fetch from one, twice as many have a copy after each wave.
            some = workers[wave // 2 if wave > self.fetches else 0 : wave]
            self.client.gather([self.submit("fetch", fetch, sent, worker=name) for name in some])
            wave *= 2
        return sent

    def hold(self, A: Any) -> Any:
        """Returns a future of a large array, or a named tuple with some, of which the scheduler keeps a copy: no worker
        that dies loses it for good. Anything else as it is."""
        if (size := array_bytes(A)) < SCATTER_BYTES:
            return A
        self.count_bytes(size * len(self.workers))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that this is much to send
            return self.submit("send", same, A)

    def _scatter(self, A: Any, worker: str | None) -> Any:
        if self.direct:
            with suppress(OSError, TimeoutError):
                return self.client.scatter(A, hash=False, direct=True, workers=None if worker is None else [worker])
        return self.client.scatter(A, hash=False, direct=False)

    def submit(self, what: str, f: Callable[..., Any], *arguments: Any, worker: str | None = None) -> Any:
        """Returns the future of a task. It runs on `worker` while that one lives, by default where its first argument
        is: left to itself Dask would copy rows to where larger arrays are, until each worker has all of them."""
        if worker is None:
            futures = (A for A in arguments if isinstance(A, self._future) and A in self._worker_of)
            worker = next((self._worker_of[A] for A in futures), None)
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        key = f"{self.step}-{what}-{self._mark}{next(self._count):08x}"
        with self.explain_errors():
            task = self.client.submit(f, *arguments, key=key, pure=False, retries=RETRIES, **where)
        if worker is not None:
            self._worker_of[task] = worker
        return task

    def submit_checked(self, what: str, f: Callable[..., Any], *arguments: Any, worker: str | None = None) -> Any:
        """Returns the future of a task that may find bad input. `results` raises its error, and Dask does not repeat
        the task, which would fail again."""
        return self.submit(what, return_error, f, *arguments, worker=worker)

    def gather(self, futures: Any) -> Any:
        """Returns the results of tasks, in the structure of the futures."""
        with self.explain_errors():
            return self.client.gather(futures, direct=self.direct)

    def results(self, tasks: list[Any]) -> list[Any]:
        """Returns the results of checked tasks; raises the first error among them."""
        return [raise_error(result) for result in self.gather(tasks)]

    def results_as_completed(self, tasks: list[Any]) -> Iterator[Any]:
        """Yields the results of checked tasks as they end; the first error cancels all others and is raised."""
        with self.explain_errors():
            for _, result in dask_module("distributed").as_completed(tasks, with_results=True):
                if isinstance(result, Exception):
                    self.client.cancel(tasks)
                yield raise_error(result)

    def run_on_each(self, f: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Returns what f returns, or raises, on each worker, by its address."""
        with self.explain_errors():
            found: dict[str, Any] = self.client.run(f, *arguments, on_error="return")
        return found

    def worker_of(self, future: Any) -> str | None:
        """Returns the worker that a task was sent to; None where Dask chose one."""
        return self._worker_of.get(future)

    def worker_with(self, future: Any) -> str | None:
        """Returns a worker that has a result; None where none has it at the moment."""
        with self.explain_errors():
            return next(iter(self.client.who_has(future).get(future.key, ())), None)

    def count_bytes(self, size: int) -> None:
        """Adds to the bytes that this step moved."""
        self.moved[self.step] = self.moved.get(self.step, 0) + size


def array_bytes(A: Any) -> int:
    """Returns the bytes of an array, or of those in a tuple; 0 for anything else."""
    return sum(part.nbytes for part in (A if isinstance(A, tuple) else (A,)) if isinstance(part, np.ndarray))


def raise_error(result: Any) -> Any:
    """Returns a result that is no error; raises one that is."""
    if isinstance(result, Exception):
        raise result
    return result


@contextmanager
def cluster(
    client: str | Client,
    plan: str = "auto",
    shards: str | os.PathLike[str] | None = None,
    *,
    timeout: float = SCHEDULER_SECONDS,
) -> Iterator[Cluster]:
    """Fits in this context run on a Dask cluster: a client of it, its address, or "local:4" for four processes here.

    plan: what is partitioned among the workers, "rows", "columns" of the ridge solves too, or "auto" by sizes. shards:
    the path of a model file to be, in a folder that all see: the workers write the decoder V in parts beside it, and it
    never comes to the client. timeout: seconds to wait for a scheduler and a worker.
    """
    if plan not in PLANS:
        raise ValueError(f"plan is {plan!r}; possible are {', '.join(map(repr, PLANS))}.")
    with connect(client, timeout) as found:
        found.plan, found.shards = plan, None if shards is None else Path(shards).absolute()
        check_versions(found)
        with keep_copies(found.client):
            token = _current.set(found)
            try:
                yield found
            finally:
                _current.reset(token)


@contextmanager
def connect(client: Any, timeout: float = SCHEDULER_SECONDS) -> Iterator[Cluster]:
    """Yields the cluster of a client or an address; what was opened here is closed at the end."""
    if not isinstance(client, str):
        yield Cluster(client, timeout)
        return
    Client = dask_module("distributed").Client
    if client.startswith("local"):
        count = client.partition(":")[2]
        if client != "local" and not (count.isdecimal() and int(count) > 0):
            raise ClusterError(f"cluster is {client!r}; possible are local:N with N processes, and tcp://HOST:PORT.")
        workers = int(count or 2)
        threads = max(1, (os.cpu_count() or 1) // workers)
        with local_processes(workers, threads) as processes, Client(processes) as opened:
            yield Cluster(opened, timeout)
        return
    try:
        opened = Client(client, timeout=timeout)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"No scheduler responds at {client} ({error}).\n"
            "Start one with `dask scheduler` and workers with `dask worker ADDRESS`, or type --cluster local:2."
        ) from error
    with opened:
        yield Cluster(opened, timeout)


@contextmanager
def local_processes(workers: int, threads: int) -> Iterator[Any]:
    """Yields a Dask cluster of worker processes on this machine, each of which computes with so many threads."""
    config = dask_module("dask").config
    # BLAS reads its variables as it is loaded, so they must be there before a worker starts. Dask then leaves them in
    # this process too, where numba would refuse to compile: its variable is set in the worker.
    names = {
        "pre-spawn-environ": ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
        "environ": ("NUMBA_NUM_THREADS",),
    }
    settings = {
        f"distributed.nanny.{kind}": {
            **config.get(f"distributed.nanny.{kind}", {}),
            **dict.fromkeys(some, str(threads)),
        }
        for kind, some in names.items()
    }
    settings["distributed.nanny.pre-spawn-environ"] |= MALLOC
    with (
        config.set(settings),
        dask_module("distributed").LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
        ) as processes,
    ):
        yield processes


def can_reach(workers: list[str]) -> bool:
    """Returns whether this process can connect to the workers: in some networks only the scheduler can."""
    for worker in workers[:1]:
        host, _, port = worker.rpartition("://")[2].rpartition(":")
        if worker.startswith("inproc://"):
            return True
        try:
            socket.create_connection((host.strip("[]"), int(port)), WORKER_SECONDS).close()
        except (OSError, ValueError):
            return False
    return bool(workers)


def check_versions(found: Cluster) -> None:
    """Raises ClusterError where a worker has another version of a library than the client."""
    with found.explain_errors():
        versions = found.client.get_versions(check=False)
    ours = versions["client"]["packages"]
    for worker, known in versions["workers"].items():
        for package in SAME_VERSION:
            check_version(package, ours.get(package), (known or {}).get("packages", {}).get(package), worker)
    own = importlib.metadata.version("smoothlink")
    for worker, version in found.run_on_each(importlib.metadata.version, "smoothlink").items():
        check_version("smoothlink", own, version, worker)


def check_version(package: str, ours: Any, theirs: Any, worker: str) -> None:
    """Raises ClusterError where the client and a worker have different versions of a package."""
    if ours != theirs:
        found = f"{package} {theirs}" if isinstance(theirs, str) else f"no {package}"
        raise ClusterError(
            f"The worker {worker} has {found}, and the client has {ours}.\nInstall the same version on both."
        )
