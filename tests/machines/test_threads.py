"""Threads: one for small work, all for large, and as many as before afterwards."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, get_ident

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from smoothlink.machines.threads import (
    ONE_THREAD,
    SMALL_FIT,
    dense_product,
    in_threads,
    limit_threads,
    loops_in_threads,
    map_in_threads,
    parts,
    single_blas_thread,
    single_thread,
)


@pytest.fixture
def two_blas_threads():
    """Also where each process of the tests has one."""
    with threadpool_limits(2, "blas"):
        yield


def blas():
    """The most threads that any BLAS would use."""
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)


def test_small_factorisations_get_one_blas_thread_and_large_ones_all(two_blas_threads):
    before = blas()
    with single_blas_thread(ONE_THREAD):
        assert blas() == 1
    with single_blas_thread(ONE_THREAD + 1):
        assert blas() == before
    assert blas() == before


def test_small_fits_get_one_thread_of_either_kind_and_large_ones_all(two_blas_threads):
    before = blas(), numba.get_num_threads()
    with single_thread(SMALL_FIT):
        assert (blas(), numba.get_num_threads()) == (1, 1)
    with single_thread(2 * SMALL_FIT):
        assert (blas(), numba.get_num_threads()) == before
    assert (blas(), numba.get_num_threads()) == before


def test_threads_come_back_after_an_error(two_blas_threads):
    before = blas(), numba.get_num_threads()
    with pytest.raises(RuntimeError), single_thread(1.0):
        raise RuntimeError
    assert (blas(), numba.get_num_threads()) == before


def test_threads_that_wait_sleep_unless_the_user_says_otherwise():
    assert os.environ["OMP_WAIT_POLICY"]


def test_a_thread_that_is_limited_asks_for_no_more():
    before = blas(), numba.get_num_threads()
    try:
        with ThreadPoolExecutor(1, initializer=limit_threads, initargs=(1,)) as pool:
            assert pool.submit(numba.get_num_threads).result() == 1
            assert blas() == 1
    finally:
        threadpool_limits(before[0])
    assert (blas(), numba.get_num_threads()) == before


# Products in threads of our own


@pytest.mark.parametrize(("n", "m", "k"), [(700, 90, 800), (90, 700, 800), (3, 2, 5), (0, 4, 3), (1, 9_000, 900)])
def test_a_dense_product_in_threads_is_that_of_numpy(rng, n, m, k):
    A, B = rng.standard_normal((n, k)).astype(np.float32), rng.standard_normal((k, m)).astype(np.float32)
    np.testing.assert_allclose(dense_product(A, B), A @ B, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(dense_product(A.T, dense_product(A, B)), A.T @ (A @ B), rtol=1e-3, atol=1)


def test_a_dense_product_warns_of_no_invalid_value():
    # Of these OpenBLAS reads the stack as well; infinity stands for what may lie there.
    A, B = np.full((2, 5), np.inf, np.float32), np.zeros((5, 1), np.float32)
    with np.errstate(all="raise"):
        assert np.isnan(dense_product(A, B)).all()


@pytest.mark.parametrize(("count", "number"), [(0, 3), (1, 3), (10, 3), (3, 10), (7, 0)])
def test_parts_follow_each_other_and_cover_everything_once(count, number):
    found = parts(count, number)
    assert [i for part in found for i in range(count)[part]] == list(range(count))
    assert len(found) <= max(1, number)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="there is one core")
def test_every_task_runs_once_in_several_threads_with_blas_on_one(two_blas_threads):
    met, threads, seen = Barrier(2, timeout=60), [], []

    def task(number):
        if number < 2:
            met.wait()  # only two threads get past it
        threads.append((number, get_ident()))
        seen.append(blas())

    in_threads(partial(task, number) for number in range(9))
    assert sorted(number for number, _ in threads) == list(range(9))
    assert len({ident for _, ident in threads}) >= 2
    assert set(seen) == {1}


def test_an_error_of_a_task_is_raised_and_blas_has_its_threads_back(two_blas_threads):
    before = blas()

    def fails():
        raise ArithmeticError("a task failed")

    with pytest.raises(ArithmeticError, match="a task failed"):
        in_threads([fails] * 5)
    assert blas() == before


def test_tasks_may_run_tasks_of_their_own():
    done = []
    in_threads(partial(in_threads, [partial(done.append, (a, b)) for b in range(5)]) for a in range(20))
    assert sorted(done) == [(a, b) for a in range(20) for b in range(5)]


def test_several_threads_that_limit_blas_at_once_leave_it_as_it_was(two_blas_threads):
    before = blas()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: in_threads([blas] * 3), range(50)))
    assert blas() == before


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_tasks_with_loops_have_one_thread_each_and_take_turns_where_numba_needs_it(layer, monkeypatch):
    monkeypatch.setattr(numba, "threading_layer", lambda: layer)
    before, seen = numba.get_num_threads(), []
    loops_in_threads(partial(lambda i: seen.append((i, numba.get_num_threads(), get_ident())), i) for i in range(9))
    assert numba.get_num_threads() == before
    assert sorted(i for i, _, _ in seen) == list(range(9))
    if layer == "workqueue":
        assert seen == [(i, before, get_ident()) for i in range(9)]
    else:
        assert {threads for _, threads, _ in seen} == {1}


def test_results_of_calls_in_threads_are_in_the_order_of_their_items_and_an_error_is_raised():
    assert map_in_threads(lambda i: (i * i, numba.get_num_threads()), range(50)) == [(i * i, 1) for i in range(50)]
    with pytest.raises(ZeroDivisionError):
        map_in_threads(lambda i: 1 / i, [2, 1, 0])
