"""Rows are clustered by their embedding, and every pass has every row once."""

import numpy as np
import pytest

from smoothlink.joint.batches import RowBatches, ranges
from smoothlink.joint.clusters import cluster_rows


def test_groups_are_all_rows_once_in_about_the_size_asked_for(rng):
    rows = np.sort(rng.permutation(1000)[:777])
    groups = cluster_rows(rng.standard_normal((1000, 6)), rows, 17, seed=3)
    np.testing.assert_array_equal(np.sort(np.concatenate(groups)), rows)
    assert {len(g) for g in groups} <= set(range(8, 18))


def test_rows_that_point_the_same_way_share_a_group(rng):
    kind = rng.permutation(np.repeat(np.arange(16), 16))
    H = 5 * rng.standard_normal((16, 10))[kind] * rng.random((256, 1)) + 0.01 * rng.standard_normal((256, 10))
    purity = [
        np.mean([np.bincount(kind[g]).max() / len(g) for g in groups])
        for groups in (cluster_rows(H, np.arange(256), 16, seed=0), np.split(np.arange(256), 16))
    ]
    assert purity[0] > 0.7 > 3 * purity[1] - 0.5


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_few_rows_are_a_few_groups(rng, n):
    groups = cluster_rows(rng.standard_normal((9, 3)), np.arange(n), 4, seed=0)
    assert sorted(np.concatenate([*groups, []])) == list(range(n))
    batches = RowBatches.of_groups(groups, 4, seed=0)
    assert sum(len(batch.rows) for batch in batches.in_pass(0)) == n


ROWS = np.arange(5, 105)
GROUPS = np.array_split(ROWS, 14)


@pytest.mark.parametrize(
    "batches", [RowBatches.of_groups(GROUPS, 21, seed=1), RowBatches.of_rows(ROWS, 21, seed=1)], ids=["groups", "rows"]
)
def test_every_pass_has_every_row_once_in_an_order_of_its_own(batches):
    orders = [np.concatenate([batch.rows for batch in batches.in_pass(number)]) for number in (0, 1, 0)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), ROWS)
    assert (orders[0] != orders[1]).any()
    np.testing.assert_array_equal(orders[0], orders[2])
    assert len(list(batches.in_pass(0))) == len(batches.ends) == 5


def test_a_batch_has_whole_groups_and_says_which_row_is_of_which():
    for batch in RowBatches.of_groups(GROUPS, 21, seed=1).in_pass(0):
        for number in range(batch.group[-1] + 1):
            assert any(np.array_equal(batch.rows[batch.group == number], group) for group in GROUPS)


def test_batches_of_rows_are_of_equal_size():
    assert {len(batch.rows) for batch in RowBatches.of_rows(np.arange(103), 20, seed=0).in_pass(0)} == {20, 21}


def test_every_step_samples_numbers_of_its_own():
    for batches in (RowBatches.of_groups(GROUPS, 21, seed=1), RowBatches.of_rows(ROWS, 21, seed=1)):
        numbers = [batch.rng.random() for number in range(3) for batch in batches.in_pass(number)]
        assert len(set(numbers)) == 15


def test_ranges_are_written_one_after_the_other():
    which, numbers = ranges(np.array([4, 9, 0]), np.array([6, 9, 3]))
    assert which.tolist() == [0, 0, 2, 2, 2]
    assert numbers.tolist() == [4, 5, 0, 1, 2]
