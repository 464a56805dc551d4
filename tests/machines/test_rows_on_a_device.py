"""Blocks of rows on a device: they stay there where they fit, else are made anew for each sum, with the same sums."""

import numpy as np
import pytest
import scipy.sparse as sp
from problems import dense_problem, home, request, sparse_problem

pytest.importorskip("torch", reason="torch is not installed")

from smoothlink.fitting.memory import Plan
from smoothlink.fitting.prepare import scaled_inputs
from smoothlink.machines import device_matrices as tensors
from smoothlink.machines.host_and_device import Device
from smoothlink.machines.rows import Rows
from smoothlink.machines.rows_in_files import ScaledRows, new_file_array
from smoothlink.solve import Cholesky, ConjugateGradient, DualCholesky
from smoothlink.solve.conjugate import xt_xp
from smoothlink.steps.embed import embed_rows, xt_yq
from smoothlink.steps.scale import choose_scaling

LARGE, SMALL, NONE = 1 << 30, 20_000, 0  # bytes free: a quarter of it is for blocks
CLOSE = {"rtol": 1e-4, "atol": 1e-4}

pytestmark = pytest.mark.usefixtures("as_on_a_card")


@pytest.fixture
def made(monkeypatch):
    """The widths of the matrices that were made on a device."""
    widths, make = [], tensors.tensor_matrix
    monkeypatch.setattr(tensors, "tensor_matrix", lambda A, device: [make(A, device), widths.append(A.shape[1])][0])
    return widths


def device(free):
    return Device("cpu", free)


@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
@pytest.mark.parametrize(("free", "times"), [(LARGE, 1), (NONE, 5)])
def test_blocks_are_made_once_where_they_fit_and_for_every_sum_where_not(rng, make, free, times, made):
    p = make(rng, d=30)
    rows = p.on(device(free)).rows(block_rows=25)
    P = rng.standard_normal((31, 3)).astype(np.float32)
    known = p.rows().sum(xt_xp, P, out=(31, 3))
    for _ in range(5):
        np.testing.assert_allclose(home(rows.sum(xt_xp, P, out=(31, 3))), known, **CLOSE)
    assert made.count(31) == times * len(rows.blocks) == times * 5
    assert made.count(12) == 5  # labels are made with the rows


@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_as_many_blocks_are_kept_as_have_room(rng, make, made):
    p = make(rng, d=30)
    rows = p.on(device(SMALL)).rows(block_rows=10)
    P = rng.standard_normal((31, 3)).astype(np.float32)
    for _ in range(3):
        np.testing.assert_allclose(home(rows.map(embed_rows, P)), p.rows().map(embed_rows, P), **CLOSE)
    kept = [b.X.loaded for b in rows.blocks if b.X.loaded is not None]
    assert 0 < len(kept) < 12
    assert sum(X.nbytes for X in kept) <= SMALL // 4
    assert made.count(31) == len(kept) + 3 * (12 - len(kept))
    rows.release()
    assert not any(b.X.loaded for b in rows.blocks)


@pytest.mark.parametrize("free", [NONE, SMALL])
@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_rows_that_stream_are_weighted_taken_and_mapped_as_on_the_host(rng, make, free, tmp_path):
    p = make(rng, d=30)
    here, there = p.rows(block_rows=17), p.on(device(free)).rows(block_rows=17)
    Q, P = (rng.standard_normal((m, 3)).astype(np.float32) for m in (12, 31))
    w, numbers = rng.random(120).astype(np.float32), np.array([0, 3, 16, 17, 80, 119])
    for change in (lambda r: r, lambda r: r.weighted(w), lambda r: r.take(numbers)):
        a, b = change(here), change(there)
        np.testing.assert_array_equal(b.w, a.w)
        np.testing.assert_allclose(home(b.sum(xt_yq, Q, out=(31, 3))), a.sum(xt_yq, Q, out=(31, 3)), **CLOSE)
        np.testing.assert_allclose(home(b.map(embed_rows, P)), a.map(embed_rows, P), **CLOSE)
    file = there.map(embed_rows, P, into=new_file_array(tmp_path / "h", (120, 3)))
    np.testing.assert_allclose(file[:], here.map(embed_rows, P), **CLOSE)
    read, known = (r.with_inputs(H) for r, H in ((there, file), (here, file[:])))
    np.testing.assert_allclose(home(read.sum(xt_yq, Q, out=(3, 3))), known.sum(xt_yq, Q, out=(3, 3)), **CLOSE)


def test_rows_that_stream_do_without_unused_features(rng):
    X = sp.random_array((30, 500), density=0.01, format="csr", rng=rng, dtype=np.float32)
    Y = sp.random_array((30, 8), density=0.3, format="csr", rng=rng, dtype=np.float32)
    here, there = (Rows.of(X, Y, block_rows=7, machine=m).compact() for m in (device(LARGE), device(NONE)))
    assert (there.n, there.d, there.c) == (here.n, here.d, here.c) == (30, len(np.unique(X.indices)), 8)
    P = rng.standard_normal((here.d, 3)).astype(np.float32)
    np.testing.assert_array_equal(home(there.map(embed_rows, P)), home(here.map(embed_rows, P)))


@pytest.mark.parametrize("solver", [Cholesky(), ConjugateGradient(tol=1e-6, group=5), DualCholesky()])
def test_solvers_read_streamed_rows_as_often_as_they_like(rng, solver):
    p = sparse_problem(rng, n=60, d=80)
    B = rng.standard_normal((81, 12)).astype(np.float32)
    B[~p.dense[0].any(axis=0)] = 0
    known, rows = p.solve(0.3)(B), p.on(device(NONE)).rows(block_rows=13)
    np.testing.assert_allclose(home(solver.prepare(rows).at(0.3)(rows.to_device(B))), known, atol=1e-3)


@pytest.mark.parametrize("free", [NONE, SMALL, LARGE])
def test_a_budget_of_the_host_leaves_no_more_in_memory_than_the_device_has(rng, free):
    p = sparse_problem(rng, d=30)
    X, machine = sp.csr_array(p.X[:, :-1]), device(free)
    scaling = choose_scaling(X, "unit")
    plan = Plan(1 << 40, 10, None, 1 << 39)
    inputs = scaled_inputs(X, scaling, request(device=machine, memory="1T"), plan)
    assert isinstance(inputs, ScaledRows)
    rows, known = (
        Rows.of(A, p.Y, block_rows=10, machine=m) for A, m in ((inputs, machine), (scaling(X), device(LARGE)))
    )
    P = rng.standard_normal((31, 3)).astype(np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(home(rows.map(embed_rows, P)), home(known.map(embed_rows, P)))
    kept = [b.X.loaded for b in rows.blocks if b.X.loaded is not None]
    assert sum(X.nbytes for X in kept) <= free // 4
    assert len(kept) == {NONE: 0, LARGE: 12}.get(free, len(kept))
