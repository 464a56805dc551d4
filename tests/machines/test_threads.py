"""Threads: one for small work, all for large, and as many as before afterwards."""

import os
from concurrent.futures import ThreadPoolExecutor

import numba
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from smoothlink.machines.threads import ONE_THREAD, SMALL_FIT, limit_threads, single_blas_thread, single_thread


def blas():
    """The most threads that any BLAS would use."""
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)


def test_small_factorisations_get_one_blas_thread_and_large_ones_all():
    before = blas()
    with single_blas_thread(ONE_THREAD):
        assert blas() == 1
    with single_blas_thread(ONE_THREAD + 1):
        assert blas() == before
    assert blas() == before


def test_small_fits_get_one_thread_of_either_kind_and_large_ones_all():
    before = blas(), numba.get_num_threads()
    with single_thread(SMALL_FIT):
        assert (blas(), numba.get_num_threads()) == (1, 1)
    with single_thread(2 * SMALL_FIT):
        assert (blas(), numba.get_num_threads()) == before
    assert (blas(), numba.get_num_threads()) == before


def test_threads_come_back_after_an_error():
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
