"""What happens when a worker or the scheduler of a cluster dies.

A worker that dies takes the results of its tasks along. The fit goes on, with the same numbers:

- Dask runs the lost tasks again on other workers, from their arguments, which no task changes (`tasks`). A local worker
  process is started again by Dask.
- Copies of arrays that several workers have fetched stay there: `keep_copies`.
- Where every copy of an array that the client sent is lost, Dask cancels the tasks that need it. The client then sends
  the array again and submits the tasks once more: `retry_lost_arrays`.

Two things end the fit with a ClusterError that says what to do: a task at which one worker after the other dies, and a
lost scheduler (`explain_errors`). A fit with a checkpoint then goes on where it was.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from smoothlink.distributed import dask_module
from smoothlink.errors import ClusterError

Result = TypeVar("Result")

RETRIES = 3  # of a task that fails for other reasons than the death of its worker, and of `retry_lost_arrays`
CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)


@contextmanager
def keep_copies(client: Any) -> Iterator[None]:
    """Pauses Dask's memory manager, which would remove copies of arrays: they replace those of a worker that dies."""
    with explain_errors(client):
        running = client.amm.running()
        if running:
            client.amm.stop()
    try:
        yield
    finally:
        if running and client.status == "running":
            with suppress(OSError, TimeoutError):
                client.amm.start()


def retry_lost_arrays(client: Any, send_and_compute: Callable[[], Result]) -> Result:
    """Returns what a function computes that sends arrays to workers; it is called again where all workers that held
    one of them died."""
    with explain_errors(client):
        for _ in range(RETRIES):
            try:
                return send_and_compute()
            except CANCELLED:
                if client.status != "running":
                    raise
        return send_and_compute()


@contextmanager
def explain_errors(client: Any) -> Iterator[None]:
    """Raises errors of the cluster as a ClusterError that says what to do."""
    if client.status in ("closed", "closing"):
        raise lost_scheduler("its client is closed")
    try:
        yield
    except dask_module("distributed").KilledWorker as error:
        raise ClusterError(
            f"Workers died again and again at {error.task}: most likely it needs more memory than a worker has.\n"
            "Use more workers or larger ones, a smaller rank or fewer random features."
        ) from error
    except (*CANCELLED, OSError, TimeoutError, dask_module("distributed.comm").CommClosedError) as error:
        raise lost_scheduler(f"{type(error).__name__}: {error}".partition("\n")[0]) from error


def lost_scheduler(reason: str) -> ClusterError:
    """Returns the error that says that the scheduler is lost."""
    return ClusterError(
        f"The scheduler of the cluster is lost ({reason}).\n"
        "Start it again and repeat the command; with --checkpoint it goes on where it was."
    )
