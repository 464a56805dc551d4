"""What is held out: every row of few in turn, enough of many, never a row of weight 0."""

import numpy as np
import pytest
from problems import complete, request

from smoothlink.fitting.holdout import (
    ONE_FIT_ROWS,
    calibrating_rows,
    few_rows,
    fold_numbers,
    hold_out,
    holdouts,
    rows_for_one_fit,
)


@pytest.mark.parametrize("n", [2, 3, 19, 400])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_few_rows_are_each_held_out_once(n, share, seed):
    held = holdouts(np.ones(n), request(holdout=share, seed=seed))
    assert 2 <= len(held) <= round(1 / share)
    np.testing.assert_array_equal(np.sort(np.concatenate(held)), np.arange(n))  # disjoint, and all of them


def test_rows_of_weight_zero_are_never_held_out(rng):
    w = (rng.random(300) < 0.5).astype(np.float32)
    np.testing.assert_array_equal(np.sort(np.concatenate(holdouts(w, request()))), np.flatnonzero(w))


def test_many_rows_have_as_many_folds_of_twice_the_share_as_reach_900_rows():
    held = holdouts(np.ones(4000), request())
    assert [len(h) for h in held] == [800, 800]
    assert len(np.unique(np.concatenate(held))) == 1600
    assert [len(h) for h in holdouts(np.ones(4500), request())] == [900]
    assert [len(h) for h in holdouts(np.ones(9000), request())] == [900]
    assert [len(h) for h in holdouts(np.ones(30_000), request())] == [3000]


def test_where_everything_is_given_one_fold_is_enough_to_calibrate():
    assert len(holdouts(np.ones(4000), complete())) == 1


@pytest.mark.parametrize("w", [np.ones(1), np.array([1.0, 0, 0, 0])])
def test_one_row_cannot_be_held_out(w):
    assert holdouts(w, request()) == []


@pytest.mark.parametrize("n", [10, 11, 999])
def test_folds_have_equal_sizes_and_depend_on_the_seed_alone(n):
    fold = fold_numbers(n, 0.1, 3)
    counts = np.bincount(fold)
    assert len(counts) == 10
    assert counts.max() - counts.min() <= 1
    np.testing.assert_array_equal(fold, fold_numbers(n, 0.1, 3))
    assert (fold != fold_numbers(n, 0.1, 4)).any()


def test_a_single_fit_does_without_a_twentieth_of_the_rows_and_at_most_some_thousand():
    assert len(few_rows(np.ones(1000), 0)) == 50
    assert ONE_FIT_ROWS <= len(few_rows(np.ones(400_000), 0)) < 2 * ONE_FIT_ROWS


def test_joint_fits_hold_out_few_of_many_rows_else_the_first_holdout():
    np.testing.assert_array_equal(rows_for_one_fit(np.ones(60_000), request()), few_rows(np.ones(60_000), 0))
    np.testing.assert_array_equal(rows_for_one_fit(np.ones(300), request()), holdouts(np.ones(300), request())[0])


def test_no_more_folds_are_held_out_than_there_are():
    assert len(hold_out(np.ones(30), 0.5, 0, 7)) == 2


@pytest.mark.parametrize("n", [19, 400, 4000])
def test_rows_of_weight_zero_change_no_fold_of_the_others(n, seed):
    asked = request(seed=seed)
    w = np.concatenate([np.ones(n), np.zeros(2 * n)])
    for held, expected in zip(holdouts(w, asked), holdouts(np.ones(n), asked), strict=True):
        np.testing.assert_array_equal(held, expected)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_no_group_is_on_both_sides_of_a_fold(rng, share):
    groups = rng.integers(0, 60, 300)
    for held in (*hold_out(np.ones(300), share, 0, 9, groups), few_rows(np.ones(300), 0, groups)):
        assert not set(groups[held]) & set(np.delete(groups, held))
        assert 0 < len(held) <= 150


def test_one_group_cannot_be_held_out():
    one = np.zeros(50, np.int64)
    assert holdouts(np.ones(50), request(), one) == []
    assert len(few_rows(np.ones(50), 0, one)) == 0
    assert len(rows_for_one_fit(np.ones(50), request(), one)) == 0


def test_groups_of_one_row_each_leave_the_folds_as_they_are(seed):
    for held, expected in zip(
        hold_out(np.ones(700), 0.1, seed, 9, np.arange(700)), hold_out(np.ones(700), 0.1, seed, 9), strict=True
    ):
        np.testing.assert_array_equal(held, expected)


def test_a_single_fit_does_without_no_large_group():
    groups = np.repeat([0, 100, 200], 100)  # three groups of a third of the rows each
    assert len(few_rows(np.ones(300), 0, groups)) == 0
    groups[200:] = np.arange(200, 300)
    assert groups[few_rows(np.ones(300), 0, groups)].min() >= 200


def test_a_fit_that_is_not_made_again_is_calibrated_by_few_rows_and_others_by_folds():
    w, many, full, quick = np.ones(6000), np.ones(50_000), request(), request(effort="quick")
    assert len(calibrating_rows(w, full)) == 0
    np.testing.assert_array_equal(calibrating_rows(w, quick), few_rows(w, quick.seed))
    np.testing.assert_array_equal(calibrating_rows(many, full), few_rows(many, full.seed))
    assert len(calibrating_rows(w[:5000], quick)) == 0
    np.testing.assert_array_equal(calibrating_rows(w, full, held=np.arange(6000) < 3), [0, 1, 2])
