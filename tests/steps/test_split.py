"""Stratified splitting, against random splits and by brute force."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import smoothlink
from smoothlink.steps.split import stratified_split


def labels(n, c, seed=0):
    """Labels of power-law frequency that travel in groups; every 20th row has none."""
    rng = np.random.default_rng(seed)
    p = 0.3 / np.arange(1, c + 1)
    Y = rng.random((n, c)) < p
    Y[:, 1::2] |= Y[:, ::2][:, : Y[:, 1::2].shape[1]] & (rng.random((n, c // 2)) < 0.5)
    Y[::20] = False
    return sp.csr_array(Y.astype(np.float32))


def off(Y, rows, share):
    """By how many rows a part misses its share of each label."""
    return abs(Y[rows].sum(axis=0) - share * Y.sum(axis=0))


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.6, 0.2, 0.2), (0.5, 0.25, 0.15, 0.1)])
def test_every_label_is_within_two_rows_of_its_share_and_nearly_all_within_one(shares):
    Y = labels(3000, 200)
    parts = stratified_split(Y, shares, seed=0)
    for rows, share in zip(parts, shares, strict=True):
        missed = off(Y, rows, share)
        assert abs(len(rows) - share * 3000) <= 1
        assert missed.max() <= 2.5
        assert (missed <= 1).mean() > 0.9


def test_rare_labels_miss_their_share_by_a_third_of_what_chance_does():
    Y = labels(3000, 200)
    rare = np.asarray(Y.sum(axis=0)) <= 20
    by_chance = [np.random.default_rng(seed).permutation(3000)[:600] for seed in range(20)]
    chance = np.mean([off(Y, rows, 0.2)[rare].mean() for rows in by_chance])
    assert off(Y, stratified_split(Y, (0.8, 0.2))[1], 0.2)[rare].mean() < chance / 2


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(0, 8), st.integers(0, 5), st.sampled_from([(0.5, 0.5), (0.7, 0.2, 0.1)]))
def test_every_row_is_in_exactly_one_part(n, c, seed, shares):
    Y = sp.csr_array((np.random.default_rng(seed).random((n, c)) < 0.3).astype(np.float32))
    parts = stratified_split(Y, shares, seed=seed)
    assert len(parts) == len(shares)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert all((np.diff(rows) > 0).all() for rows in parts)


def test_a_seed_repeats_and_another_differs():
    Y = labels(500, 20)
    one, same, other = (smoothlink.stratified_split(Y, (0.5, 0.5), seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert len(np.intersect1d(one, other)) < len(one)


def test_a_label_of_ten_rows_has_two_of_them_in_a_fifth():
    Y = sp.csr_array(np.repeat(np.eye(5, dtype=np.float32), 10, axis=0))
    assert Y[stratified_split(Y, (0.8, 0.2))[1]].sum(axis=0).tolist() == [2] * 5


def test_a_dense_matrix_is_split_as_its_sparse_twin():
    Y = labels(200, 10)
    for one, other in zip(stratified_split(Y), stratified_split(Y.toarray()), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.6), (1.5, -0.5), (0.5, 0.25)])
def test_shares_that_do_not_sum_to_one_are_refused(shares):
    with pytest.raises(ValueError, match="sum to 1"):
        stratified_split(labels(10, 2), shares)


def test_a_group_is_in_one_part_and_labels_keep_their_shares(rng):
    Y = labels(600, 8)
    groups = rng.integers(0, 150, 600)
    parts = stratified_split(Y, (0.7, 0.3), groups=groups)
    assert not set(groups[parts[0]]) & set(groups[parts[1]])
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(600))
    assert len(parts[0]) == pytest.approx(420, abs=8)
    assert off(Y, parts[1], 0.3).max() <= 8


@pytest.mark.parametrize("ties", [False, True])
def test_groups_of_one_row_each_change_nothing_and_copies_go_where_their_rows_went(ties):
    Y = labels(200, 6)
    if ties:  # all labels are as frequent
        Y = sp.csr_array(np.eye(10)[(np.arange(200)[:, None] + [0, 3, 7]) % 10].sum(axis=1))
    plain = stratified_split(Y, (0.8, 0.2), seed=3)
    alone = stratified_split(Y, (0.8, 0.2), seed=3, groups=np.arange(200))
    thrice = stratified_split(sp.vstack([Y] * 3), (0.8, 0.2), seed=3, groups=np.tile(np.arange(200), 3))
    for part, same, copies in zip(plain, alone, thrice, strict=True):
        np.testing.assert_array_equal(same, part)
        np.testing.assert_array_equal(copies, np.concatenate([part, part + 200, part + 400]))


def test_groups_of_another_length_are_refused():
    with pytest.raises(ValueError, match="groups has 3 values, and there are 10 rows"):
        stratified_split(labels(10, 2), groups=[1, 2, 3])
