"""How many threads factorisations and fits get: small ones are faster on one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

ONE_THREAD = 4000  # columns up to which a factorisation runs on one thread
SMALL_FIT = 5e8  # operations of its largest product up to which a whole fit runs on one thread


@contextmanager
def single_blas_thread(size: int) -> Iterator[None]:
    """Limits BLAS to one thread for a factorisation of `size` columns, unless it is large.

    Factorisations synchronise their threads at every panel. Where another process shares the cores, each of these
    meetings waits for a thread that is not running: of 2000 columns, 0.42 s on two threads against 0.07 s on one.
    On idle cores the second thread would save 0.03 s.
    """
    if size > ONE_THREAD:
        yield
    else:
        with _controller().limit(limits=1):
            yield


@contextmanager
def single_thread(operations: float) -> Iterator[None]:
    """Limits BLAS and numba to one thread for a fit whose largest product has so many operations, unless it is large.

    A fit of 40 rows makes thousands of products that take microseconds; the two thread pools take turns at them and
    wait for each other. With every choice left to held-out rows, 1.4 s with two threads and 0.2 s with one.
    """
    if operations > SMALL_FIT:
        yield
        return
    import numba

    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with _controller().limit(limits=1):
            yield
    finally:
        numba.set_num_threads(threads)


def limit_threads(threads: int) -> None:
    """Limits numba, in this thread, and BLAS, in this process, to so many threads from now on."""
    import numba
    from threadpoolctl import threadpool_limits

    numba.set_num_threads(max(1, min(threads, numba.get_num_threads())))
    threadpool_limits(threads)


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
