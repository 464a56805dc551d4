"""Gradient boosting: each tree is the one that brute force finds, split by split, for every loss."""

import numpy as np
import pytest
from scipy.special import expit, softmax

from smoothlink.steps.boosting import CURVATURE, LEAVES, LOSSES, RATE, Sample, boost

TREES, LEAST = 3, 4.0


def slopes_of(F, T, w, link):
    """Gradients and curvatures (n, k) of the loss at sums over trees F (n, k)."""
    P = {"identity": F, "logistic": expit(F), "softmax": softmax(F, axis=1)}[link]
    curvature = np.ones_like(F) if link == "identity" else np.maximum(P * (1 - P), 1e-6)
    return w[:, None] * (T - P), w[:, None] * curvature


def gain(g, h):
    return float((g.sum(axis=0) ** 2 / (h.sum(axis=0) + CURVATURE)).sum())


def best_split(rows, B, w, g, h):
    """The split of these rows that gains most: (gain, column, bin)."""
    found = (0.0, 0, 0)
    for column in range(B.shape[1]):
        for last in range(B[:, column].max()):
            left, right = rows[B[rows, column] <= last], rows[B[rows, column] > last]
            if min(w[left].sum(), w[right].sum()) >= LEAST:
                value = gain(g[left], h[left]) + gain(g[right], h[right]) - gain(g[rows], h[rows])
                if value > found[0] + 1e-9:
                    found = value, column, last
    return found


def by_brute_force(B, T, w, start, link, chosen):
    """Sums over trees (n, k) after each tree of these rows."""
    F, history = np.tile(start.astype(np.float64), (len(B), 1)), []
    for rows in chosen:
        g, h = slopes_of(F, T, w, link)
        everywhere, leaves = np.arange(len(B)), [rows]
        regions = [everywhere]  # of all rows, for each leaf
        while len(leaves) < LEAVES:
            splits = [best_split(leaf, B, w, g, h) for leaf in leaves]
            at = int(np.argmax([s[0] for s in splits]))
            value, column, last = splits[at]
            if value <= 0:
                break
            leaf, region = leaves.pop(at), regions.pop(at)
            for side in (B[:, column] <= last, B[:, column] > last):
                leaves.append(leaf[side[leaf]])
                regions.append(region[side[region]])
        F = F.copy()
        for leaf, region in zip(leaves, regions, strict=True):
            F[region] += RATE * g[leaf].sum(axis=0) / (h[leaf].sum(axis=0) + CURVATURE)
        history.append(F)
    return history


def problem(rng, link, n=90, d=3, k=2, bins=6):
    B = rng.integers(0, bins, (n, d)).astype(np.uint8)
    T = ((B[:, [0, 1]] > 2) ^ (rng.random((n, 2)) < 0.2)).astype(np.float32)
    if link == "softmax":
        T = np.column_stack([T[:, 0], 1 - T[:, 0]]).astype(np.float32)
    w = rng.uniform(0.5, 1.5, n).astype(np.float32)
    return B, T, w / w.mean(), rng.normal(0, 0.5, k).astype(np.float32)


def trees_of(B, T, w, start, link, sample, bins=6):
    return boost(B, T, w, start, sample, np.full(B.shape[1], bins), LEAST, LOSSES[link])


def sums(found, B, start):
    F = np.tile(start, (len(B), 1))
    for t in range(len(found.sizes)):
        node = np.zeros(len(B), int)
        while (inner := found.feature[t, node] >= 0).any():
            at = node[inner]
            right = B[inner, found.feature[t, at]] > found.border[t, at]
            node[inner] = found.children[t, at, right.astype(int)]
        F = F + found.values[t, node]
    return F


@pytest.mark.parametrize("link", sorted(LOSSES))
def test_trees_are_those_of_brute_force(rng, link):
    B, T, w, start = problem(rng, link)
    columns, order = np.tile(np.arange(3, dtype=np.int32), (TREES, 1)), np.arange(90, dtype=np.int32)
    sample = Sample(columns, np.tile(order, 2), np.zeros(TREES, np.int64), 90)
    found = trees_of(B, T, w, start, link, sample)
    expected = by_brute_force(B, T, w, start, link, [order] * TREES)[-1]
    np.testing.assert_allclose(sums(found, B, start), expected, atol=2e-5)


def test_a_tree_is_grown_from_the_rows_that_its_place_in_the_order_says(rng):
    B, T, w, start = problem(rng, "logistic")
    order = rng.permutation(90).astype(np.int32)
    first = np.array([80, 10, 0])
    sample = Sample(np.tile(np.arange(3, dtype=np.int32), (TREES, 1)), np.tile(order, 2), first, 40)
    found = trees_of(B, T, w, start, "logistic", sample)
    chosen = [np.tile(order, 2)[at : at + 40] for at in first]
    expected = by_brute_force(B, T, w, start, "logistic", chosen)[-1]
    np.testing.assert_allclose(sums(found, B, start), expected, atol=2e-5)


def test_a_tree_splits_by_its_columns_alone(rng):
    B, T, w, start = problem(rng, "logistic")
    columns = np.array([[0], [2], [1]], np.int32)
    sample = Sample(columns, np.tile(np.arange(90, dtype=np.int32), 2), np.zeros(TREES, np.int64), 90)
    found = trees_of(B, T, w, start, "logistic", sample)
    for t, column in enumerate([0, 2, 1]):
        assert set(found.feature[t][found.feature[t] >= 0]) <= {column}
    assert found.sizes[0] > 1


def test_leaves_have_rows_of_at_least_the_weight_asked_for(rng):
    B, T, w, start = problem(rng, "identity")
    sample = Sample(np.arange(3, dtype=np.int32)[None], np.tile(np.arange(90, dtype=np.int32), 2), np.zeros(1, int), 90)
    found = trees_of(B, T, w, start, "identity", sample)
    node = np.zeros(90, int)
    while (inner := found.feature[0, node] >= 0).any():
        at = node[inner]
        node[inner] = found.children[0, at, (B[inner, found.feature[0, at]] > found.border[0, at]).astype(int)]
    assert np.bincount(node, w)[np.unique(node)].min() >= LEAST - 1e-5
    assert len(np.unique(node)) > 3


def test_rows_twice_are_rows_of_twice_the_weight(rng):
    B, T, w, start = problem(rng, "logistic")
    sample = Sample(np.arange(3, dtype=np.int32)[None], np.tile(np.arange(90, dtype=np.int32), 2), np.zeros(1, int), 90)
    double = Sample(sample.columns, np.tile(np.arange(180, dtype=np.int32), 2), sample.first, 180)
    once = trees_of(B, T, 2 * w, start, "logistic", sample)
    twice = trees_of(np.vstack([B, B]), np.vstack([T, T]), np.append(w, w), start, "logistic", double)
    np.testing.assert_allclose(sums(once, B, start), sums(twice, B, start), atol=1e-5)


def test_weights_that_float32_rounds_make_no_split_beyond_the_last_bin_of_a_column(rng):
    """A column that is always the same, last, beside 50,000 rows of weight 1 or 2."""
    n = 50_000
    B = np.zeros((n, 3), np.uint8)
    B[:, 0], B[:, 1] = rng.integers(0, 200, n), rng.integers(0, 2, n)
    T = (B[:, :1] > 100).astype(np.float32)
    w = np.where(rng.random(n) < 0.01, 2, 1) / 1.01
    w = (w / w.mean()).astype(np.float32)
    sample = Sample(np.arange(3, dtype=np.int32)[None], np.tile(np.arange(n, dtype=np.int32), 2), np.zeros(1, int), n)
    found = boost(B, T, w, np.zeros(1, np.float32), sample, np.array([200, 2, 1]), LEAST, LOSSES["logistic"])
    inner = found.feature[0] >= 0
    assert (found.feature[0][inner] < 2).all()
    assert (found.border[0][inner] < np.array([199, 1, 0])[found.feature[0][inner]]).all()
