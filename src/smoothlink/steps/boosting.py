"""Gradient boosting with trees whose leaves predict all outputs at once, from numbers in bins.

Each tree takes one Newton step for the loss of the sum of the trees before it. A split is sought where the outputs
together gain most, by sums of gradients and curvatures over bins of a column; the leaf that gains most is split next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled

Array = NDArray[Any]

RATE = 0.1  # of each Newton step
LEAVES = 15  # of a tree, at most; 31 lost a point of P@1 on made steps, and 8 half a point
CURVATURE = 1.0  # added to the sum of curvatures of a leaf
LEAST_CURVATURE = 1e-6  # of a row
SQUARED, LOGISTIC, SOFTMAX = range(3)  # losses
LOSSES = {"identity": SQUARED, "logistic": LOGISTIC, "softmax": SOFTMAX}  # by what makes predictions of the sum


class Sample(NamedTuple):
    """What each tree t is grown from."""

    columns: Array  # (t, m) of x
    order: Array  # (2 n,) the rows in some order, twice
    first: Array  # (t,) place there from which on a tree has so many rows:
    rows: int


class Boosted(NamedTuple):
    """Trees that were grown one after the other: node m of tree t is [t, m], roots are the first nodes."""

    sizes: Array  # (t,) nodes of each tree
    feature: Array  # (t, m) int32: the column that a node looks at; -1 for leaves
    border: Array  # (t, m) int32: the last bin that goes left
    children: Array  # (t, m, 2) int32, left and right
    values: Array  # (t, m, k) float32: the step of the rows of each node


@compiled(fastmath=True)
def boost(B: Array, T: Array, w: Array, start: Array, sample: Sample, bins: Array, least: float, loss: int) -> Boosted:
    """Returns trees by which start (k,) becomes a prediction of targets T (n, k).

    B (n, d) are the bins of rows, of which a column has `bins` (d,). Weights w (n,) have the mean 1, and each leaf has
    rows of at least the weight `least`.
    """
    columns, order, first, rows = sample
    (n, k), trees, room = T.shape, len(columns), 2 * LEAVES - 1
    curves = 1 if loss == SQUARED else k  # curvatures of a row: one for all outputs, or one for each
    sizes, feature = np.zeros(trees, np.int32), np.full((trees, room), -1, np.int32)
    border, children = np.zeros((trees, room), np.int32), np.zeros((trees, room, 2), np.int32)
    values = np.zeros((trees, room, k), np.float32)
    F, slopes = np.empty((n, k), np.float32), np.empty((n, k + curves + 1), np.float32)
    F[:] = start
    sums = np.empty((LEAVES, columns.shape[1], bins.max(), k + curves + 1), np.float64)
    for t in range(trees):
        write_slopes(F, T, w, loss, curves, slopes)
        sizes[t] = grow(
            *(B, bins, slopes, order[first[t] : first[t] + rows], columns[t], least, k, sums),
            *(feature[t], border[t], children[t], values[t]),
        )
        for i in range(n):
            node = 0
            while feature[t, node] >= 0:
                node = children[t, node, int(B[i, feature[t, node]] > border[t, node])]
            for j in range(k):
                F[i, j] += values[t, node, j]
    return Boosted(sizes, feature, border, children, values)


@compiled(fastmath=True)
def write_slopes(F: Array, T: Array, w: Array, loss: int, curves: int, slopes: Array) -> None:
    """Writes the weighted negative gradients, curvatures and weight of each row to `slopes` (n, k + curves + 1)."""
    n, k = F.shape
    p = np.empty(k, np.float32)
    for i in range(n):
        if loss == SQUARED:
            p[:] = F[i]
            slopes[i, k] = w[i]
        else:
            if loss == SOFTMAX:
                top, total = F[i].max(), np.float32(0)
                for j in range(k):
                    p[j] = np.exp(F[i, j] - top)
                    total += p[j]
                for j in range(k):
                    p[j] /= total
            else:
                for j in range(k):
                    p[j] = 1 / (1 + np.exp(-F[i, j]))
            for j in range(k):
                slopes[i, k + j] = w[i] * max(p[j] * (1 - p[j]), np.float32(LEAST_CURVATURE))
        for j in range(k):
            slopes[i, j] = w[i] * (T[i, j] - p[j])
        slopes[i, k + curves] = w[i]


@compiled(fastmath=True)
def grow(
    B: Array,
    bins: Array,
    slopes: Array,
    chosen: Array,
    columns: Array,
    least: float,
    k: int,
    sums: Array,
    feature: Array,
    border: Array,
    children: Array,
    values: Array,
) -> int:
    """Writes one tree to `feature`, `border`, `children` and `values`, and returns how many nodes it has.

    `sums` (leaves, columns, bins, width of slopes) is room for the sums of each leaf.
    """
    room, width, rows = len(feature), slopes.shape[1], chosen.copy()
    first, last, place = np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros(room, np.int64)
    total, gain = np.zeros((room, width), np.float64), np.zeros(room, np.float64)
    split_column, split_bin = np.zeros(room, np.int64), np.zeros(room, np.int64)
    last[0] = len(rows)
    add_rows(B, slopes, rows, columns, sums[0])
    nodes, leaves, fresh = 1, 1, (0, 0)
    while True:
        for node in range(fresh[0], fresh[1] + 1):
            found = sums[place[node]]
            for b in range(found.shape[1]):
                for q in range(width):
                    total[node, q] += found[0, b, q]
            gain[node], split_column[node], split_bin[node] = best_split(found, bins[columns], total[node], k, least)
        at = int(np.argmax(gain[:nodes]))
        if gain[at] <= 0 or leaves == len(sums):
            break
        column, b = columns[split_column[at]], split_bin[at]
        low, high = first[at], last[at] - 1
        while low <= high:
            if B[rows[low], column] <= b:
                low += 1
            else:
                rows[low], rows[high] = rows[high], rows[low]
                high -= 1
        left, right = nodes, nodes + 1
        feature[at], border[at], children[at, 0], children[at, 1], gain[at] = column, b, left, right, 0
        first[left], last[left], first[right], last[right] = first[at], low, low, last[at]
        few, many = (left, right) if low - first[at] < last[at] - low else (right, left)
        place[few], place[many] = leaves, place[at]  # the larger part has what the smaller one leaves
        add_rows(B, slopes, rows[first[few] : last[few]], columns, sums[place[few]])
        sums[place[many]] -= sums[place[few]]
        nodes, leaves, fresh = nodes + 2, leaves + 1, (left, right)
    curves = width - k - 1
    for node in range(nodes):
        for j in range(k):
            curvature = total[node, k + (j if curves > 1 else 0)]
            values[node, j] = RATE * total[node, j] / (curvature + CURVATURE)
    return nodes


@compiled(fastmath=True)
def add_rows(B: Array, slopes: Array, rows: Array, columns: Array, sums: Array) -> None:
    """Writes the sums of the slopes of rows to `sums` (columns, bins, width)."""
    sums[:] = 0
    for i in rows:
        for c in range(len(columns)):
            cell = sums[c, B[i, columns[c]]]
            for q in range(slopes.shape[1]):
                cell[q] += slopes[i, q]


@compiled(fastmath=True)
def best_split(sums: Array, bins: Array, total: Array, k: int, least: float) -> tuple[float, int, int]:
    """Returns the gain of the best split of a node, 0 where there is none, its place among the columns and its bin."""
    width = len(total)
    curves, below, best, column, last = width - k - 1, np.empty(width, np.float64), 0.0, 0, 0
    whole = 0.0
    for j in range(k):
        whole += total[j] * total[j] / (total[k + (j if curves > 1 else 0)] + CURVATURE)
    for c in range(sums.shape[0]):
        below[:] = 0
        for b in range(bins[c] - 1):
            for q in range(width):
                below[q] += sums[c, b, q]
            if below[width - 1] < least:
                continue
            if total[width - 1] - below[width - 1] < least:
                break
            gain = -whole
            if curves > 1:
                for j in range(k):
                    above = total[j] - below[j]
                    gain += below[j] * below[j] / (below[k + j] + CURVATURE)
                    gain += above * above / (total[k + j] - below[k + j] + CURVATURE)
            else:
                squares, others = 0.0, 0.0
                for j in range(k):
                    squares += below[j] * below[j]
                    others += (total[j] - below[j]) ** 2
                gain += squares / (below[k] + CURVATURE) + others / (total[k] - below[k] + CURVATURE)
            if gain > best:
                best, column, last = gain, c, b
    return best, column, last
