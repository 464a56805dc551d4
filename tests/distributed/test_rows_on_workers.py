"""Rows on workers have the sums, maps and solves of rows in one process, and stay where they were read."""

import numpy as np
import pytest
import scipy.sparse as sp
from problems import relative_error, sparse_problem
from small import words

import smoothlink
from smoothlink.distributed.column_solves import split_columns
from smoothlink.distributed.distributed_fit import partition_arrays
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.embed import embed_rows, label_counts, xt_yq


def unscaled(X):
    return X


@pytest.fixture
def problem(rng):
    return sparse_problem(rng)


def rows_of(found, p, **options):
    """The rows of a problem, which have their intercept already, on the workers."""
    rows = partition_arrays(found, p.X, p.Y).load(unscaled, p.w.astype(np.float32), 7, **options)
    rows.d = p.X.shape[1]
    return rows


def test_sums_are_those_of_one_process(workers, problem, rng):
    p = problem
    Q = rng.standard_normal((p.Y.shape[1], 3)).astype(np.float32)
    there, here = rows_of(workers, p), p.rows()
    out = (p.X.shape[1], 3)
    assert relative_error(there.sum(xt_yq, Q, out=out), here.sum(xt_yq, Q, out=out)) < 1e-6
    counts = [r.sum(label_counts, out=(p.Y.shape[1],), dtype=np.float64) for r in (there, here)]
    np.testing.assert_allclose(*counts)


def test_sums_some_columns_at_a_time_are_those_of_one_process(workers, problem, rng):
    p, d = problem, problem.X.shape[1]
    Q = rng.standard_normal((p.Y.shape[1], 150)).astype(np.float32)
    there = rows_of(workers, p)
    there.columns_bytes = 1
    assert there.columns(d) == 64
    before = sum(workers.moved.values())
    assert relative_error(there.columnwise(xt_yq, Q, d), p.rows().columnwise(xt_yq, Q, d)) < 1e-6
    assert sum(workers.moved.values()) - before >= 3 * 4 * 150 * d


def test_rows_stay_where_they_were_read(workers, problem, rng):
    """Dask would copy them to where larger arrays are, until each worker has all of them."""
    p, there = problem, rows_of(workers, problem)
    for m in range(3000, 3004):
        Q = rng.standard_normal((p.Y.shape[1], m)).astype(np.float32)
        there.sum(xt_yq, Q, out=(p.X.shape[1], m))
    there.map(embed_rows, rng.standard_normal((p.X.shape[1], 2)).astype(np.float32))[np.arange(5)]
    holders = workers.client.who_has(there.parts)
    assert [len(holders[part.key]) for part in there.parts] == [1] * len(there.parts)
    assert len({worker for found in holders.values() for worker in found}) == len(workers.workers)


def test_two_uses_of_one_client_do_not_mix_their_rows(workers, rng):
    """Dask knows results by the names of tasks, and keeps those that somebody still holds."""
    found = []
    for d in (30, 50):
        X, Y = words(rng, d=d)
        with smoothlink.cluster(workers.client) as used:
            found.append(partition_arrays(used, X, sp.csr_array(Y)).load(unscaled, None, None))
    assert [rows.take(np.arange(5)).d for rows in found] == [30, 50]


def test_maps_are_those_of_one_process_and_stay_on_the_workers(workers, problem, rng):
    p = problem
    W = rng.standard_normal((p.X.shape[1], 4)).astype(np.float32)
    H, expected = rows_of(workers, p).map(embed_rows, W), p.rows().map(embed_rows, W)
    numbers = rng.permutation(len(expected))[:9]
    np.testing.assert_allclose(H[numbers], expected[numbers], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(H[3:8], expected[3:8], rtol=1e-5, atol=1e-5)
    assert H.shape == expected.shape


def test_rows_that_are_taken_are_those_of_one_process(workers, problem):
    p = problem
    numbers = np.arange(0, p.X.shape[0], 3)
    there, here = rows_of(workers, p).take(numbers), p.rows().take(numbers)
    assert (there.blocks[0].X.csr != here.blocks[0].X.csr).nnz == 0
    assert (there.blocks[0].Y.csr != here.blocks[0].Y.csr).nnz == 0
    np.testing.assert_allclose(there.w, here.w)


def test_other_weights_leave_the_rows_where_they_are(workers, problem):
    p, rows = problem, rows_of(workers, problem)
    w = p.w.astype(np.float32).copy()
    w[::2] = 0
    c = p.Y.shape[1]
    found = rows.weighted(w).sum(label_counts, out=(c,), dtype=np.float64)
    np.testing.assert_allclose(found, p.rows().weighted(w).sum(label_counts, out=(c,), dtype=np.float64))
    assert rows.weighted(w).parts is rows.parts


def test_scaled_labels_are_those_of_one_process(workers, problem, rng):
    p, c = problem, problem.Y.shape[1]
    scale = rng.uniform(0.5, 2, c).astype(np.float32)
    rows = rows_of(workers, p), p.rows()
    there, here = (r.with_scaled_labels(scale).sum(label_counts, out=(c,), dtype=np.float64) for r in rows)
    np.testing.assert_allclose(there, here, rtol=1e-6)
    np.testing.assert_allclose(here, scale * rows[1].sum(label_counts, out=(c,), dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("columns", [False, True])
def test_conjugate_gradients_give_the_solution_of_one_process(workers, problem, columns):
    """By sums over partitions of the rows, or over all rows with the columns partitioned."""
    p = problem
    X, Y = p.dense
    B = (X.T @ (p.w[:, None] * Y)).astype(np.float32)
    rows = rows_of(workers, p, columns=columns)
    solve, here = (ConjugateGradient(tol=1e-6).prepare(r).at(0.3) for r in (rows, p.rows()))
    assert relative_error(solve(B), here(B)) < 2e-4
    assert abs(solve.iterations - here.iterations) <= 1
    assert solve.residual <= 1.01e-6


@pytest.mark.parametrize(
    ("m", "workers_count", "widths"),
    [(220, 2, [128, 92]), (220, 4, [64, 64, 64, 28]), (220, 3, [73, 73, 74]), (2, 4, [1, 1])],
)
def test_columns_are_split_so_that_the_slowest_worker_is_fastest(m, workers_count, widths):
    found = split_columns(m, workers_count)
    assert sorted(part.stop - part.start for part in found) == sorted(widths)
    assert [part.start for part in found[1:]] == [part.stop for part in found[:-1]]
    assert (found[0].start, found[-1].stop) == (0, m)
