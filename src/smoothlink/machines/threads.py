"""Which threads work: small factorisations and fits run on one, and large products on those of this module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from threading import Lock
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
R = TypeVar("R")

ONE_THREAD = 4000  # columns up to which a factorisation runs on one thread
LEAST_PRODUCT = 5e7  # operations of a product that is worth a second thread
SMALL_FIT = 5e8  # operations of its largest product up to which a whole fit runs on one thread


@contextmanager
def single_blas_thread(size: int) -> Iterator[None]:
    """Limits BLAS to one thread for a factorisation of `size` columns, unless it is large.

    Factorisations synchronise their threads at every panel. Where another process shares the cores, each of these
    meetings waits for a thread that is not running: a Cholesky factor of 2000 columns took 0.42 s on two threads of
    BLAS against 0.07 s on one.
    """
    if size > ONE_THREAD:
        yield
    else:
        with _one_blas_thread():
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
        with _one_blas_thread():
            yield
    finally:
        numba.set_num_threads(threads)


def limit_threads(threads: int) -> None:
    """Limits numba, in this thread, and BLAS, in this process, to so many threads from now on."""
    import numba
    from threadpoolctl import threadpool_limits

    numba.set_num_threads(max(1, min(threads, numba.get_num_threads())))
    threadpool_limits(threads)


def thread_count() -> int:
    """Returns how many threads `in_threads` uses: as many as numba has here."""
    import numba

    return int(numba.get_num_threads())


def in_threads(tasks: Iterable[Callable[[], object]]) -> None:
    """Runs tasks, the next one as soon as a thread is free, in `thread_count()` threads.

    Each calls BLAS with one thread. The threads of BLAS itself spin for tens of milliseconds after every product, and
    NumPy's and SciPy's BLAS have some each: they take the cores from the compiled loops that follow.
    """
    threads, todo, lock = thread_count(), [iter(tasks)], Lock()

    def work() -> None:
        while True:
            with lock:
                task = next(todo[0], None) if todo else None
            if task is None:
                return
            task()

    with _one_blas_thread():
        others = [_pool(os.getpid(), threads - 1).submit(work) for _ in range(threads - 1)]
        try:
            work()
        finally:
            running = [other for other in others if not other.cancel()]  # one that has not begun has nothing left to do
            wait(running)
            todo.clear()  # what was cancelled may be in the queue for a while, and would keep the arrays of the tasks
    for other in running:
        other.result()


def loops_in_threads(tasks: Iterable[Callable[[], object]]) -> None:
    """`in_threads` for tasks that call compiled loops, which then have one thread each.

    Of loops of a millisecond two at a time take 0.6 of the time that each takes on two threads. Without OpenMP or TBB
    numba's threads cannot be called from several: there the tasks run one after the other.
    """
    import numba

    def on_one_thread(task: Callable[[], object]) -> None:
        threads = numba.get_num_threads()
        numba.set_num_threads(1)
        try:
            task()
        finally:
            numba.set_num_threads(threads)

    numba.set_num_threads(numba.get_num_threads())  # starts numba's threads, which then have a name
    if numba.threading_layer() == "workqueue":  # type: ignore[attr-defined]
        for task in tasks:
            task()
    else:
        in_threads(partial(on_one_thread, task) for task in tasks)


def map_in_threads(f: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Returns f of every item, in their order, by `loops_in_threads`: each call has one thread of its own."""
    results: list[Any] = [None] * len(items)

    def run(number: int) -> None:
        results[number] = f(items[number])

    loops_in_threads(partial(run, number) for number in range(len(items)))
    return results


@np.errstate(invalid="ignore")
def _product(A: Any, B: Any, out: Any = None) -> Any:
    """Returns A B without a warning of invalid values.

    For a few rows of five columns and one column of B, OpenBLAS also multiplies what it finds on the stack, and drops
    it. A signalling NaN there leaves the processor's flag, by which NumPy would warn.
    """
    return np.matmul(A, B, out=out)


def dense_product(A: Any, B: Any) -> Any:
    """Returns A B (n, m): on a device by its library, on the host by `in_threads`."""
    if not isinstance(A, np.ndarray):
        return A @ B
    threads, (n, m) = thread_count(), (len(A), B.shape[1])
    if threads == 1 or 2.0 * n * m * A.shape[1] < LEAST_PRODUCT:
        with _one_blas_thread():
            return _product(A, B)
    out = np.empty((n, m), np.result_type(A, B))

    def some_rows(part: slice) -> Callable[[], object]:
        return lambda: _product(A[part], B, out=out[part])

    def some_columns(part: slice) -> Callable[[], object]:
        return lambda: _product(A, B[:, part], out=out[:, part])

    in_threads(map(some_rows, parts(n, threads)) if n >= m else map(some_columns, parts(m, threads)))
    return out


def parts(count: int, number: int) -> list[slice]:
    """Returns so many slices of equal length, or fewer, which together are range(count)."""
    ends = np.linspace(0, count, max(1, min(number, count)) + 1).astype(int).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Returns the threads of a process: after a fork those of its parent are gone."""
    return ThreadPoolExecutor(threads, thread_name_prefix="smoothlink")


_limiting = Lock()


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Limits BLAS to one thread, unless another thread of the process has done so: the limit is the process's, and the
    last to restore it would restore the limit of the other."""
    if not _limiting.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1):
            yield
    finally:
        _limiting.release()


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
