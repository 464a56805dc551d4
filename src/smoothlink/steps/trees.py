"""x -> x with what trees predict of the labels beside it: steps and interactions that no smooth kernel of x has.

The trees are those of scikit-learn's random forest, kept as arrays. What they predict for a row that they were grown
from is nearly its own labels, which would mislead the embedding: each part of the rows is predicted by trees that were
grown without it, and a new row by all trees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[Any]

PARTS, TREES = 5, 20  # of the rows, and trees grown without each
DIRECTIONS = 16  # of the labels that trees predict: those in which rows differ most
LEAF_ROWS = 3  # that a leaf has at least
LEAST_COLUMNS = 5  # among which the best split is sought; the square root of all where that is more
TREE_ROWS = 10_000  # that a tree is grown from at most
SHARE = 0.1  # of the variance of x that the predictions get: less is lost in a ridge, more drowns x


class Trees(NamedTuple):
    """f(x), a sum over trees of the value of the leaf that x falls into; roots have the value 0.

    Children come after their parents.
    """

    d: int  # columns of x
    roots: Array  # (t,) int32, nodes
    feature: Array  # (m,) int32: the column that a node looks at; -1 for leaves
    threshold: Array  # (m,) float32: x up to it goes left
    children: Array  # (m, 2) int32, left and right
    values: Array  # (m, k) float32: the mean of the rows of each node, from that of all rows

    def __call__(self, X: Array) -> Array:
        """Returns x, f(x) and the intercept (n, d + k + 1) of the rows of X (n, d)."""
        return with_predictions(X, self.predict(X))

    def predict(self, X: Array) -> Array:
        """Returns f (n, k) of the rows of X (n, d)."""
        from smoothlink.machines.kernels import leaf_sums  # numba takes time to load

        out = np.zeros((len(X), self.values.shape[1]), np.float32)
        leaf_sums(X, *self[1:], out)
        return out

    def contributions(self, x: Array) -> Array:
        """Returns what each column of x (d,) adds to f (d, k): at each node on the way to a leaf, the change of the
        mean."""
        added = np.zeros((self.d, self.values.shape[1]))
        for node in self.roots:
            while self.feature[node] >= 0:
                column = self.feature[node]
                child = self.children[node, int(x[column] > self.threshold[node])]
                added[column] += self.values[child].astype(np.float64) - self.values[node]
                node = child
        return added


def with_predictions(X: Array, F: Array) -> Array:
    """Returns x, f and the intercept (n, d + k + 1)."""
    return np.hstack([X, F, np.ones((len(X), 1), np.float32)]).astype(np.float32, copy=False)


def grow_trees(X: Array, Y: sp.csr_array, w: Array, part: Array, seed: int) -> tuple[Trees, Array]:
    """Returns trees that predict the labels Y (n, c) of rows X (n, d) of weights w (n,), and f (n, k) of these rows.

    `part` (n,) is the part of each row.
    """
    targets = label_directions(Y, w, seed)
    groves, F = [], np.zeros(targets.shape, np.float32)
    for number in range(PARTS):
        rows = np.flatnonzero((part != number) & (w > 0))
        rows = rows if len(rows) else np.flatnonzero(w > 0)
        groves.append(grow(X[rows], targets[rows], w[rows].astype(np.float64), [seed, number]))
        F[part == number] = groves[-1].predict(X[part == number])
    spread = float(np.average((F - np.average(F, axis=0, weights=w)) ** 2, axis=0, weights=w).sum())
    gain = np.sqrt(SHARE * np.count_nonzero(np.ptp(X, axis=0)) / spread) if spread > 0 else 1.0
    together = joined(groves)
    return together._replace(values=together.values * np.float32(gain / PARTS)), F * np.float32(gain)


def tree_bytes(n: int, d: int, c: int) -> int:
    """Returns what `grow_trees` holds at its worst moment, about, for n rows of d columns and c labels."""
    k, nodes = min(DIRECTIONS, c), 2 * min(n, TREE_ROWS) // LEAF_ROWS  # of a tree
    return nodes * TREES * (2 * (64 + 8 * k) + PARTS * (2 * 16 + 12 * k)) + 8 * n * d + 32 * n * k


def label_directions(Y: sp.csr_array, w: Array, seed: int) -> Array:
    """Returns the labels (n, c), or where they are many their leading principal coordinates (n, k)."""
    if Y.shape[1] <= DIRECTIONS:
        return Y.toarray().astype(np.float64)
    from sklearn.utils.extmath import randomized_svd

    weighted = sp.diags_array(np.sqrt(w.astype(np.float64))) @ Y.astype(np.float64)
    return np.asarray(Y @ randomized_svd(weighted, DIRECTIONS, random_state=seed)[2].T)


def grow(X: Array, T: Array, w: Array, seed: list[int]) -> Trees:
    """Returns a random forest whose trees predict targets T (n, k), as the mean of its trees."""
    from numba import get_num_threads
    from sklearn.ensemble import RandomForestRegressor

    n, d = X.shape
    forest = RandomForestRegressor(
        TREES,
        min_samples_leaf=min(LEAF_ROWS, max(1, n // 2)),
        max_features=min(d, max(LEAST_COLUMNS, round(np.sqrt(d)))),
        max_samples=min(n, TREE_ROWS),
        n_jobs=get_num_threads(),
        random_state=int(np.random.default_rng(seed).integers(2**31)),
    )
    return trees_of(forest.fit(X, T if T.shape[1] > 1 else T[:, 0], sample_weight=w))


def trees_of(forest: Any) -> Trees:
    """Returns the trees of a fitted forest of scikit-learn as arrays: its prediction, from the mean of the roots."""
    found = [tree.tree_ for tree in forest.estimators_]
    return joined(
        [
            Trees(
                forest.n_features_in_,
                np.zeros(1, np.int32),
                np.where(tree.children_left < 0, -1, tree.feature).astype(np.int32),
                down(tree.threshold),
                np.maximum(np.column_stack([tree.children_left, tree.children_right]), 0).astype(np.int32),
                ((tree.value - tree.value[0])[:, :, 0] / len(found)).astype(np.float32),
            )
            for tree in found
        ]
    )


def down(thresholds: Array) -> Array:
    """Returns float32 thresholds that sort float32 values as the float64 ones do: rounded down."""
    nearest = thresholds.astype(np.float32)
    return np.where(nearest > thresholds, np.nextafter(nearest, np.float32(-np.inf)), nearest)


def joined(groves: list[Trees]) -> Trees:
    """Returns all trees of several sums in one."""
    begin = np.cumsum([0, *(len(g.feature) for g in groves)]).astype(np.int32)
    return Trees(
        groves[0].d,
        np.concatenate([g.roots + at for g, at in zip(groves, begin, strict=False)]),
        np.concatenate([g.feature for g in groves]),
        np.concatenate([g.threshold for g in groves]),
        np.concatenate([g.children + at for g, at in zip(groves, begin, strict=False)]),
        np.concatenate([g.values for g in groves]),
    )
