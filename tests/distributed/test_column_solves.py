"""Conjugate gradients on workers: the embedding of one process, and nothing as long as features or labels in the
client."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client
from problems import relative_error

from smoothlink.distributed.distributed_fit import PartitionedData
from smoothlink.distributed.input_files import Header
from smoothlink.distributed.tasks import ArrayPiece
from smoothlink.machines.arrays import to_host
from smoothlink.machines.rows import Rows
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.embed import adaptive_embedding, label_embedding

N, D, C, RANK, OVERSAMPLE = 400, 900, 700, 12, 8
TIGHT = ConjugateGradient(tol=1e-5, preconditioner="diagonal")
RIDGE = 5.0  # large enough for few iterations, each of which is a round of messages


def unscaled(X):
    return X


@pytest.fixture
def matrices(rng):
    """Rows whose labels follow from a few directions of their features: the embedding is well separated."""
    X = sp.csr_array(sp.random(N, D, 0.03, "csr", np.float32, rng))
    X = sp.csr_array(sp.hstack([X, np.ones((N, 1), np.float32)], format="csr"), dtype=np.float32)
    strength = 2.0 ** -np.arange(40)
    scores = (X @ rng.standard_normal((D + 1, 40))) * strength @ rng.standard_normal((40, C))
    Y = sp.csr_array((scores > np.quantile(scores, 0.97, axis=1, keepdims=True)).astype(np.float32))
    return X, Y


def rows_on(workers, X, Y, count):
    """The rows in so many partitions, each on a worker of its own."""
    edges = np.linspace(0, N, count + 1).astype(int)
    pieces = [[ArrayPiece(X[a:b], Y[a:b])] for a, b in pairwise(edges)]
    rows = PartitionedData(workers, pieces, edges[:-1], Header(N, D, C, X.nnz, None, None)).load(unscaled, None, 50)
    rows.columns_bytes = 1  # groups of 64 columns
    return rows


def embedded(rows, rank=RANK, oversample=OVERSAMPLE):
    solve = TIGHT.prepare(rows).at(RIDGE)
    return label_embedding(rows, rank, solve, np.random.default_rng(3), oversample=oversample), solve


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow), 3])
def test_the_embedding_on_any_number_of_workers_is_that_of_one_process(workers, matrices, count):
    """With two groups of columns; W U' does not depend on how directions of about equal strength mix."""
    wide = {"rank": 70, "oversample": 0}
    here, solve_here = embedded(Rows.of(*matrices), **wide)
    there, solve = embedded(rows_on(workers, *matrices, count), **wide)
    np.testing.assert_allclose(there.spectrum, here.spectrum, rtol=1e-3)
    assert there.captured == pytest.approx(here.captured, rel=1e-4)
    assert abs(solve.iterations - solve_here.iterations) <= 1
    assert relative_error(there.W @ to_host(there.U).T, here.W @ here.U.T) < 1e-3


def test_directions_sought_in_blocks_are_those_of_one_process(workers, matrices):
    found = [
        adaptive_embedding(rows, 16, TIGHT.prepare(rows).at(RIDGE), np.random.default_rng(3), power=1, block=8)
        for rows in (rows_on(workers, *matrices, 3), Rows.of(*matrices))
    ]
    np.testing.assert_allclose(found[0].spectrum[:4], found[1].spectrum[:4], rtol=1e-3)
    assert found[0].captured == pytest.approx(found[1].captured, rel=1e-3)


def test_two_solves_of_the_same_rows_are_the_same_up_to_rounding(workers, matrices):
    first, second = (embedded(rows_on(workers, *matrices, 3))[0] for _ in range(2))
    assert relative_error(first.W @ to_host(first.U).T, second.W @ to_host(second.U).T) < 1e-4


def test_the_client_gets_nothing_of_the_solves_as_long_as_features_or_labels(workers, matrices, monkeypatch):
    rows, sizes, gather = rows_on(workers, *matrices, 3), [], Client._gather

    def size(found):
        if isinstance(found, dict | list | tuple):
            return sum(map(size, found.values() if isinstance(found, dict) else found))
        return getattr(found, "nbytes", 0)

    async def noted(self, *arguments, **options):
        found = await gather(self, *arguments, **options)
        sizes.append(size(found))
        return found

    monkeypatch.setattr(Client, "_gather", noted)
    monkeypatch.setattr(Client, "scatter", None)  # and sends nothing of them
    found, _ = embedded(rows)
    *others, last = sorted(sizes)
    assert len(others) > 20
    assert last == found.W.nbytes  # (d, k), for the model
    m = RANK + OVERSAMPLE
    assert max(others) <= max(8 * (D + 1), 3 * 8 * m * m)  # the diagonal of X'X; Gram matrices (m, m) of three workers
    assert max(others) < 4 * C * m / 4


def test_a_correction_of_the_preconditioner_is_made_on_the_workers(workers, rng):
    X = (rng.standard_normal((N, 6)) @ rng.standard_normal((6, D)) + 0.1 * rng.standard_normal((N, D))).astype("f4")
    X, Y = np.hstack([X, np.ones((N, 1), np.float32)]), sp.csr_array(np.eye(C, dtype=np.float32)[:N])
    here, there = Rows.of(X, Y), rows_on(workers, sp.csr_array(X), Y, 3)
    B = rng.standard_normal((D + 1, 5)).astype(np.float32)
    solver = ConjugateGradient(tol=1e-5, preconditioner="nystrom", rank=20)
    solves = [solver.prepare(rows).at(0.1) for rows in (there, here)]
    assert relative_error(solves[0](B), solves[1](B)) < 1e-3
    plain = ConjugateGradient(tol=1e-5, preconditioner="diagonal").prepare(there).at(0.1)
    plain(B)
    assert solves[0].iterations < plain.iterations / 2


def test_an_array_that_is_passed_on_from_worker_to_worker_gives_the_same_solution(workers, matrices, rng, monkeypatch):
    X, Y = matrices
    B = rng.standard_normal((D + 1, 3)).astype(np.float32)
    found = [TIGHT.prepare(rows_on(workers, X, Y, 3)).at(RIDGE)(B)]
    monkeypatch.setattr(workers, "fetches", 1)
    found.append(TIGHT.prepare(rows_on(workers, X, Y, 3)).at(RIDGE)(B))
    assert relative_error(*found) < 1e-4
