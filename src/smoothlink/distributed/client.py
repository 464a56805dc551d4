"""A cluster by its address: processes of this machine, or a scheduler that runs elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from smoothlink.distributed import tasks as shares
from smoothlink.distributed.rows_on_workers import Cluster, library, using
from smoothlink.errors import ClusterError

SECONDS = 10  # to wait for a scheduler
PLANS = ("auto", "rows", "columns")
CHECKED = ("python", "dask", "distributed", "numpy", "msgpack")


@contextmanager
def cluster(client: Any, plan: str = "auto", shards: str | os.PathLike[str] | None = None) -> Iterator[Cluster]:
    """Fits in this context run on a Dask cluster: a client of it, its address, or "local:4" for four processes here.

    plan: what is shared out, "rows", "columns" of the ridge solves too, or "auto" by sizes. shards: the path of a model
    file to be, in a folder that all see: the workers write the decoder V in parts beside it, and it never comes to the
    client.
    """
    if plan not in PLANS:
        raise ValueError(f"plan is {plan!r}; possible are {', '.join(map(repr, PLANS))}.")
    with connected(client) as found:
        found.plan, found.shards = plan, None if shards is None else Path(shards).absolute()
        check_versions(found)
        with copies_kept(found), using(found):
            yield found


@contextmanager
def copies_kept(found: Cluster) -> Iterator[None]:
    """Dask's memory manager leaves copies of arrays on other workers, where they make good for one that dies."""
    with found.speaking():
        managed = found.client.amm.running()
        if managed:
            found.client.amm.stop()
    try:
        yield
    finally:
        if managed and found.client.status == "running":
            with suppress(OSError, TimeoutError):
                found.client.amm.start()


@contextmanager
def connected(client: Any) -> Iterator[Cluster]:
    """A cluster that is closed at the end if it was opened here."""
    if not isinstance(client, str):
        yield Cluster(client)
        return
    make = library("distributed").Client
    if client.startswith("local"):
        with local(client) as processes, make(processes) as made:
            yield Cluster(made)
        return
    try:
        made = make(client, timeout=SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"No scheduler answers at {client} ({error}).\n"
            "Start one with `dask scheduler` and workers with `dask worker ADDRESS`, or type --cluster local:2."
        ) from error
    with made:
        if not made.scheduler_info(n_workers=-1)["workers"]:
            raise ClusterError(f"The scheduler at {client} has no workers.\nStart some: dask worker {client}.")
        yield Cluster(made)


@contextmanager
def local(name: str) -> Iterator[Any]:
    """Worker processes on this machine: "local:4"; each gets its part of the cores."""
    count = name.partition(":")[2]
    if name != "local" and not (count.isdecimal() and int(count) > 0):
        raise ClusterError(f"cluster is {name!r}; possible are local:N with N processes, and tcp://HOST:PORT.")
    workers = int(count or 2)
    with processes(workers, max(1, (os.cpu_count() or 1) // workers)) as made:
        yield made


@contextmanager
def processes(workers: int, threads: int) -> Iterator[Any]:
    """So many worker processes on this machine, each of which computes with so many threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    config, setting = library("dask").config, "distributed.nanny.pre-spawn-environ"
    environment = {**config.get(setting, {}), **dict.fromkeys(names, str(threads))}  # Dask's own: when memory is freed
    with (
        config.set({setting: environment}),
        library("distributed").LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
        ) as made,
    ):
        yield made


def check_versions(found: Cluster) -> None:
    """Whether all workers have the libraries of the client; the first that has not is named with both versions."""
    with found.speaking():
        versions = found.client.get_versions(check=False)
        ours, theirs = versions["client"]["packages"], versions["workers"]
        known = found.client.run(shares.version, on_error="return")
    for worker, answer in theirs.items():
        for package in CHECKED:
            here, there = ours.get(package), (answer or {}).get("packages", {}).get(package)
            if here != there:
                raise mismatch(package, here, there, worker)
    for worker, version in known.items():
        if version != shares.version():
            raise mismatch("smoothlink", shares.version(), version, worker)


def mismatch(package: str, here: Any, there: Any, worker: str) -> ClusterError:
    has = f"{package} {there}" if isinstance(there, str) else f"no {package}"
    return ClusterError(f"The worker {worker} has {has}, and the client has {here}.\nInstall the same version on both.")
