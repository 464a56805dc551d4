"""Rows: sums that do not know their blocks, samples and batches that depend on row numbers alone."""

import numpy as np
import pytest
import scipy.sparse as sp
from problems import dense_problem, home, sparse_problem

from smoothlink.machines.arrays import to_device_of
from smoothlink.machines.rows import Rows, row_hash, stack

BLOCK_SIZES = [1, 50, 1000]


def add_xtwy(block, scale, out):
    block.X.T.add_product(block.w[:, None] * scale * to_device_of(block.w, block.Y.csr.toarray()), out)


def add_two(block, totals, counts):
    totals += block.w.sum()
    counts += len(block.w)


def numbers_of(block):
    return to_device_of(block.w, np.arange(block.start, block.start + len(block.w)))


def embed(block, P):
    return block.X @ P


@pytest.mark.parametrize("block_rows", BLOCK_SIZES)
@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_a_sum_over_blocks_of_any_size_is_the_sum_over_all_rows(rng, make, block_rows, machine):
    p = make(rng).on(machine)
    X, Y = p.dense
    rows = p.rows(block_rows=block_rows)
    assert (rows.n, rows.d, rows.c) == (*X.shape, Y.shape[1])
    assert len(rows.blocks) == -(-120 // block_rows)
    got = home(rows.sum(add_xtwy, 2.0, out=(rows.d, rows.c)))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, 2 * X.T @ (p.w[:, None] * Y), rtol=1e-5, atol=1e-5)


def test_several_sums_come_from_one_pass_each_in_its_own_type(rng, machine):
    p = sparse_problem(rng).on(machine)
    total, count = p.rows(block_rows=50).sums(add_two, outs=[((), np.float64), ((1,), np.float32)])
    assert float(total) == p.w.sum()
    np.testing.assert_array_equal(count, [120])
    assert (home(total).dtype, count.dtype) == (np.float64, np.float32)


@pytest.mark.parametrize("block_rows", BLOCK_SIZES)
def test_map_stacks_blocks_in_order(rng, block_rows, machine):
    rows = sparse_problem(rng).on(machine).rows(block_rows=block_rows)
    np.testing.assert_array_equal(home(rows.map(numbers_of)), np.arange(120))


def test_weights_default_to_one(rng, machine):
    p = sparse_problem(rng).on(machine)
    np.testing.assert_array_equal(Rows.of(p.X, p.Y, machine=machine).w, np.ones(120))


@pytest.mark.parametrize("block_rows", BLOCK_SIZES)
def test_weighted_changes_the_weights_alone(rng, block_rows, machine):
    p = sparse_problem(rng).on(machine)
    w = rng.random(120).astype(np.float32)
    rows = p.rows(block_rows=block_rows)
    other = rows.weighted(w)
    np.testing.assert_array_equal(other.w, w)
    np.testing.assert_array_equal(rows.w, p.w)
    assert all(a.X is b.X and a.Y is b.Y for a, b in zip(rows.blocks, other.blocks, strict=True))


@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_weight_zero_is_a_row_left_out(rng, make, machine):
    p = make(rng).on(machine)
    kept = rng.random(120) < 0.5
    without = p._replace(X=p.X[kept], Y=p.Y[kept], w=p.w[kept]).rows()
    weightless = p.rows(block_rows=33).weighted(p.w * kept)
    a, b = (home(rows.sum(add_xtwy, 1.0, out=(rows.d, rows.c))) for rows in (weightless, without))
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("block_rows", BLOCK_SIZES)
@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_take_is_row_selection_across_blocks(rng, make, block_rows, machine):
    p = make(rng).on(machine)
    X, Y = p.dense
    numbers = np.sort(rng.permutation(120)[:40])
    some = p.rows(block_rows=block_rows).take(numbers)
    (block,) = some.each()
    np.testing.assert_array_equal(home(block.X @ some.to_device(np.eye(X.shape[1], dtype=np.float32))), X[numbers])
    np.testing.assert_array_equal(block.Y.csr.toarray(), Y[numbers])
    np.testing.assert_array_equal(some.w, p.w[numbers])


@pytest.mark.parametrize("block_rows", BLOCK_SIZES)
def test_with_inputs_replaces_x_and_keeps_labels_and_weights(rng, block_rows, machine):
    p = sparse_problem(rng).on(machine)
    H = rng.standard_normal((120, 3)).astype(np.float32)
    rows = p.rows(block_rows=block_rows).with_inputs(H)
    got = home(rows.sum(add_xtwy, 1.0, out=(3, rows.c)))
    np.testing.assert_allclose(got, H.T @ (p.w[:, None] * p.dense[1]), rtol=1e-5, atol=1e-5)
    assert rows.d == 3


def test_no_rows_at_all_have_no_blocks(machine):
    rows = Rows.of(np.zeros((0, 3), np.float32), sp.csr_array((0, 2), dtype=np.float32), machine=machine)
    assert (rows.n, rows.d, rows.c, rows.blocks) == (0, 3, 2, [])


# What is not a sum depends on (seed, row number) alone


@pytest.mark.parametrize("block_rows", BLOCK_SIZES)
def test_sample_and_batches_do_not_depend_on_blocks(rng, block_rows, seed, machine):
    p = sparse_problem(rng).on(machine)
    whole, blocked = p.rows(), p.rows(block_rows=block_rows)
    np.testing.assert_array_equal(whole.sample(30, seed), blocked.sample(30, seed))
    for pass_number in range(2):
        a, b = (list(rows.batches(16, seed=seed, pass_number=pass_number)) for rows in (whole, blocked))
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_sample_is_ascending_without_repeats_and_of_positive_weight(rng, seed, machine):
    p = sparse_problem(rng).on(machine)
    w = p.w.copy()
    w[::3] = 0
    rows = p.rows().weighted(w)
    sample = rows.sample(30, seed)
    assert len(sample) == 30
    assert (np.diff(sample) > 0).all()
    assert (w[sample] > 0).all()
    np.testing.assert_array_equal(rows.sample(1000, seed), np.flatnonzero(w))


def test_a_row_in_the_sample_stays_there_when_other_rows_are_left_out(rng, seed, machine):
    rows = sparse_problem(rng).on(machine).rows()
    before = rows.sample(30, seed)
    w = np.zeros(120)
    w[before[:20]] = 1
    np.testing.assert_array_equal(rows.weighted(w).sample(30, seed), before[:20])


@pytest.mark.parametrize("size", [1, 40, 500])
def test_batches_have_every_row_of_positive_weight_once_in_nearly_equal_batches(rng, size, seed, machine):
    p = sparse_problem(rng).on(machine)
    w = p.w.copy()
    w[::3] = 0  # 80 are left
    batches = list(p.rows().weighted(w).batches(size, seed=seed, pass_number=3))
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.flatnonzero(w))
    sizes = [len(b) for b in batches]
    assert max(sizes) - min(sizes) <= 1
    assert len(batches) == max(1, round(80 / size))


def test_order_changes_with_pass_and_seed(rng, machine):
    rows = sparse_problem(rng).on(machine).rows()
    orders = [np.concatenate(list(rows.batches(10, seed=s, pass_number=t))) for s in range(3) for t in range(3)]
    assert len({tuple(o) for o in orders}) == 9


def test_hashes_of_neighbouring_rows_and_seeds_look_independent():
    H = np.array([row_hash(np.arange(2000), seed) for seed in range(5)]).astype(np.float64) / 2.0**64
    assert len(np.unique(H)) == H.size
    # 10,000 uniform numbers: the mean is 1/2 within 5 standard errors, correlations 0 within 5 / sqrt(2000).
    assert abs(H.mean() - 0.5) < 5 / np.sqrt(12 * H.size)
    assert np.abs(np.corrcoef(H) - np.eye(5)).max() < 5 / np.sqrt(2000)
    assert abs(np.corrcoef(H[0, 1:], H[0, :-1])[0, 1]) < 5 / np.sqrt(2000)


@pytest.mark.parametrize("parts", [1, 3])
def test_stack_is_vstack(rng, parts):
    arrays = [rng.standard_normal((4, 2)) for _ in range(parts)]
    np.testing.assert_array_equal(stack(arrays), np.vstack(arrays))
    np.testing.assert_array_equal(stack([sp.csr_array(A) for A in arrays]).toarray(), np.vstack(arrays))


def test_rows_without_unused_features_have_the_same_embedding(rng, machine):
    X = sp.random_array((30, 500), density=0.01, format="csr", rng=rng, dtype=np.float32)
    Y = sp.random_array((30, 8), density=0.3, format="csr", rng=rng, dtype=np.float32)
    rows = Rows.of(X, Y, rng.random(30), block_rows=7, machine=machine)
    used, P = np.unique(X.indices), rng.standard_normal((500, 3)).astype(np.float32)
    small = rows.compact()
    assert (small.n, small.d, small.c) == (30, len(used), 8)
    np.testing.assert_array_equal(home(small.map(embed, P[used])), home(rows.map(embed, P)))
    np.testing.assert_array_equal(small.w, rows.w)
    assert small.compact() is small
    dense = Rows.of(X.toarray(), Y, machine=machine)
    assert dense.compact() is dense
