"""x -> x with what trees predict of the labels beside it: steps and interactions that no smooth kernel of x has.

The trees are grown by gradient boosting. What they predict for a row that they were grown from is nearly its own
labels, which would mislead the embedding: each part of the rows is predicted by trees that were grown without it, and a
new row by the mean of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.threads import map_in_threads

Array = NDArray[Any]

NOTHING = np.zeros(0, np.int64)
PARTS, TREES = 5, 200  # of the rows, and trees grown without each
DIRECTIONS = 16  # of the labels that trees predict: those in which rows differ most
LEAF_ROWS, LEAF_SHARE = (3, 20), 0.01  # of the rows that a leaf has at least, and between which numbers
COLUMNS = 16  # among which a tree seeks its splits; twice the square root of all where that is more
BINS, BIN_ROWS = (32, 255), 20  # of a column, one for so many rows
SUMMED = 1 << 23  # numbers that are summed for the root of a tree, at most: of more rows a tree is grown from some
SHARE = 0.1  # of the variance of x that the predictions get: less is lost in a ridge, more drowns x
LINKS = ("identity", "logistic", "softmax")  # from a sum over trees to what they predict
QUADRATURE = 32  # points on the way to a prediction, by which it is shared among columns


class Trees(NamedTuple):
    """f(x), what trees predict: gain (link(z) - link(start)), where z is `start` and the sum over trees of the value of
    the leaf that x falls into; roots have the value 0.

    Children come after their parents.
    """

    d: int  # columns of x
    roots: Array  # (t,) int32, nodes
    feature: Array  # (m,) int32: the column that a node looks at; -1 for leaves
    threshold: Array  # (m,) float32: x up to it goes left
    children: Array  # (m, 2) int32, left and right
    values: Array  # (m, k) float32: what the rows of each node gain over all rows
    start: Array  # (k,) float32
    link: str = "identity"
    gain: float = 1.0

    def __call__(self, X: Array) -> Array:
        """Returns x, f(x) and the intercept (n, d + k + 1) of the rows of X (n, d)."""
        return with_predictions(X, self.predict(X))

    def predict(self, X: Array) -> Array:
        """Returns f (n, k) of the rows of X (n, d)."""
        from smoothlink.machines.kernels import leaf_sums  # numba takes time to load

        Z = np.tile(self.start, (len(X), 1))
        leaf_sums(X, self.roots, self.feature, self.threshold, self.children, self.values, Z)
        return np.float32(self.gain) * (linked(Z, self.link) - linked(self.start, self.link))

    def contributions(self, x: Array) -> Array:
        """Returns what each column of x (d,) adds to f (d, k): at each node on the way to a leaf, the change of the
        value, times the mean slope of the link on the way to z."""
        added = np.zeros((self.d, self.values.shape[1]))
        for node in self.roots:
            while self.feature[node] >= 0:
                column = self.feature[node]
                child = self.children[node, int(x[column] > self.threshold[node])]
                added[column] += self.values[child].astype(np.float64) - self.values[node]
                node = child
        return self.gain * added @ mean_slopes(self.start.astype(np.float64), added.sum(axis=0), self.link)


def linked(Z: Array, link: str) -> Array:
    """Returns what sums over trees (..., k) predict."""
    from scipy.special import expit, softmax

    return Z if link == "identity" else np.asarray(expit(Z) if link == "logistic" else softmax(Z, axis=-1))


def mean_slopes(start: Array, change: Array, link: str) -> Array:
    """Returns the slopes (k, k) of each prediction (column) in each sum (row), their mean between `start` (k,) and
    `start + change`: change @ slopes is the change of the prediction."""
    if link == "identity":
        return np.eye(len(start))
    if link == "logistic":
        p, near = linked(start, link), np.abs(change) < 1e-6
        secant = (linked(start + change, link) - p) / np.where(near, 1, change)
        return np.diag(np.where(near, p * (1 - p), secant))
    at, weights = np.polynomial.legendre.leggauss(QUADRATURE)
    P = linked(start + (at[:, None] + 1) / 2 * change, link)
    return np.asarray(np.diag(weights / 2 @ P) - P.T * (weights / 2) @ P)


def with_predictions(X: Array, F: Array) -> Array:
    """Returns x, f and the intercept (n, d + k + 1)."""
    return np.hstack([X, F, np.ones((len(X), 1), np.float32)]).astype(np.float32, copy=False)


@dataclass
class CrossFit:
    """Predicts rows by trees that were grown without them."""

    X: Array  # (n, d)
    T: Array  # (n, k) targets
    w: Array  # (n,)
    part: Array  # (n,) the part of each row
    link: str
    seed: int
    ensembles: dict[bytes, Trees] = field(default_factory=dict)  # by the rows that they were grown from
    predicted: dict[bytes, Array] = field(default_factory=dict)  # by the rows held out
    gain: float = 1.0

    def __post_init__(self) -> None:
        F = self.predictions()
        spread = float(np.average((F - np.average(F, axis=0, weights=self.w)) ** 2, axis=0, weights=self.w).sum())
        if spread > 0:
            self.gain = float(np.sqrt(SHARE * np.count_nonzero(np.ptp(self.X, axis=0)) / spread))

    @property
    def trees(self) -> Trees:
        """The trees that predict new rows: those grown without each part."""
        return mean_of(self.ensembles_without(NOTHING))._replace(gain=self.gain)

    def predictions(self, held: Array = NOTHING) -> Array:
        """Returns f (n, k), of each row by trees grown without its part and without the rows numbered `held`; of these
        rows, and of those without weight, by all such trees, as of new rows.

        Otherwise trees that saw a held-out row would tell its label by what they predict for rows near it: on 1,125
        rows of 250 columns log-loss on held-out rows was 1.74, on new ones 1.99.
        """
        held = held[self.w[held] > 0]
        key = held.tobytes()
        if key not in self.predicted:
            ensembles, F = self.ensembles_without(held), np.empty(self.T.shape, np.float32)
            for number, trees in enumerate(ensembles):
                rows = self.part == number
                F[rows] = trees.predict(self.X[rows])
            unseen = np.append(held, np.flatnonzero(self.w == 0))
            F[unseen] = mean_of(ensembles).predict(self.X[unseen])
            self.predicted[key] = F
        return np.float32(self.gain) * self.predicted[key]

    def ensembles_without(self, held: Array) -> list[Trees]:
        """Returns trees grown without each part of the rows, all of them without the rows held out too.

        Rows that are all of one part are left out with the whole of it: folds within a part then share their trees, and
        those of a pair of parts are the same, whichever of them is held out.
        """
        out = np.zeros(len(self.X), bool)
        out[held] = True
        touched = np.unique(self.part[held])
        out = self.part == touched[0] if len(touched) == 1 else out
        kept = [np.packbits(~out & (self.part != number) & (self.w > 0)).tobytes() for number in range(PARTS)]
        new = sorted(set(kept) - self.ensembles.keys())
        self.ensembles |= dict(zip(new, map_in_threads(self.grow_from, new), strict=True))
        return [self.ensembles[rows] for rows in kept]

    def grow_from(self, kept: bytes) -> Trees:
        """Returns trees grown from these rows, a bit each; where there are none, trees that say nothing."""
        rows = np.flatnonzero(np.unpackbits(np.frombuffer(kept, np.uint8), count=len(self.X)))
        if not len(rows):
            return nothing(self.X.shape[1], self.T.shape[1], self.link)
        w = self.w[rows] / self.w[rows].mean()
        return grow(self.X[rows], self.T[rows], w, self.link, [self.seed, crc32(kept)])


def grow_trees(X: Array, Y: sp.csr_array, w: Array, part: Array, seed: int, *, multiclass: bool) -> CrossFit:
    """Returns trees that predict the labels Y (n, c) of rows X (n, d) of weights w (n,), each grown without one part.

    `part` (n,) is the part of each row. Of at most `DIRECTIONS` labels probabilities are predicted.
    """
    targets, link = label_directions(Y, w, seed), "identity"
    if targets.shape == Y.shape:
        link = "softmax" if multiclass and Y.shape[1] > 1 else "logistic"
    return CrossFit(X, targets, w, part, link, seed)


def tree_bytes(n: int, d: int, c: int, folds: int) -> int:
    """Returns what a `CrossFit` of n rows, d columns, c labels and so many folds holds at its worst moment, about."""
    from smoothlink.machines.threads import thread_count
    from smoothlink.steps.boosting import LEAVES

    k, nodes = min(DIRECTIONS, c), TREES * 2 * LEAVES
    sums = 8 * LEAVES * columns_of(d) * bins_of(n) * (2 * k + 1)
    growing = n * (5 * d + 20 * k + 32) + sums
    return thread_count() * growing + (1 + folds) * (PARTS * nodes * (16 + 4 * k) + 8 * n * k) + 4 * n * d + 32 * n * k


def label_directions(Y: sp.csr_array, w: Array, seed: int) -> Array:
    """Returns the labels (n, c), or where they are many their leading principal coordinates (n, k)."""
    if Y.shape[1] <= DIRECTIONS:
        return Y.toarray().astype(np.float32)
    from sklearn.utils.extmath import randomized_svd

    weighted = sp.diags_array(np.sqrt(w.astype(np.float64))) @ Y.astype(np.float64)
    return np.asarray(Y @ randomized_svd(weighted, DIRECTIONS, random_state=seed)[2].T, np.float32)


def columns_of(d: int) -> int:
    """Returns among how many of d columns a tree seeks its splits."""
    return min(d, max(COLUMNS, round(2 * d**0.5)))


def bins_of(n: int) -> int:
    """Returns in how many bins the numbers of a column of n rows are put, at most."""
    return int(np.clip(n // BIN_ROWS, *BINS))


def grow(X: Array, T: Array, w: Array, link: str, seed: list[int]) -> Trees:
    """Returns trees that predict targets T (n, k) of rows X (n, d), whose weights w (n,) have the mean 1."""
    from smoothlink.steps.boosting import LOSSES, Sample, boost

    (n, d), k, rng = X.shape, T.shape[1], np.random.default_rng(seed)
    ends, B = [ends_of_bins(column, bins_of(n)) for column in X.T], np.empty((n, d), np.uint8)
    for j, x in enumerate(X.T):
        B[:, j] = np.searchsorted(ends[j], x)
    share = np.average(T, axis=0, weights=w)
    odds = np.clip(share, 0.5 / n, 1 - 0.5 / n)
    start = {"identity": share, "logistic": np.log(odds / (1 - odds)), "softmax": np.log(odds)}[link]
    m, few, many = columns_of(d), *LEAF_ROWS
    columns = rng.permuted(np.tile(np.arange(d, dtype=np.int32), (TREES, 1)), axis=1)[:, :m]
    count = min(n, max(1, SUMMED // (m * (2 * k + 1))))
    order = rng.permutation(n).astype(np.int32)
    sample = Sample(np.sort(columns, axis=1), np.tile(order, 2), rng.integers(0, n, TREES) * (count < n), count)
    least = min(many, max(few, LEAF_SHARE * n))
    grown = boost(
        *(B, T, w.astype(np.float32), start.astype(np.float32), sample),
        *(np.array([len(e) + 1 for e in ends]), least, LOSSES[link]),
    )
    threshold = np.zeros(grown.feature.shape, np.float32)
    inner = grown.feature >= 0
    offsets = np.cumsum([0, *map(len, ends)])
    threshold[inner] = np.concatenate(ends)[offsets[grown.feature[inner]] + grown.border[inner]]
    used = np.arange(inner.shape[1]) < grown.sizes[:, None]
    roots = np.cumsum([0, *grown.sizes[:-1]]).astype(np.int32)
    children = np.where(inner[:, :, None], grown.children + roots[:, None, None], 0)
    values = grown.values - grown.values[:, :1]
    start = (start + grown.values[:, 0].sum(axis=0)).astype(np.float32)
    return Trees(d, roots, grown.feature[used], threshold[used], children[used], values[used], start, link)


def nothing(d: int, k: int, link: str) -> Trees:
    """Returns trees of d columns that predict 0 for every row: a root without children."""
    root, zeros = np.zeros(1, np.int32), np.zeros((1, k), np.float32)
    return Trees(d, root, root - 1, zeros[:, 0], np.zeros((1, 2), np.int32), zeros, zeros[0], link)


def ends_of_bins(x: Array, bins: int) -> Array:
    """Returns the numbers, ascending, up to which the values x (n,) of a column are in one of at most so many bins."""
    values = np.unique(x)
    if len(values) > bins:
        values = np.unique(np.quantile(x, np.linspace(0, 1, bins), method="inverted_cdf"))
    return values[:-1] + (values[1:] - values[:-1]) / 2


def mean_of(ensembles: list[Trees]) -> Trees:
    """Returns trees whose sum is the mean of those of others."""
    begin = np.cumsum([0, *(len(g.feature) for g in ensembles)]).astype(np.int32)
    placed = list(zip(ensembles, begin, strict=False))
    return ensembles[0]._replace(
        roots=np.concatenate([g.roots + at for g, at in placed]),
        feature=np.concatenate([g.feature for g in ensembles]),
        threshold=np.concatenate([g.threshold for g in ensembles]),
        children=np.concatenate([np.where(g.feature[:, None] >= 0, g.children + at, 0) for g, at in placed]),
        values=np.concatenate([g.values for g in ensembles]) / np.float32(len(ensembles)),
        start=np.mean([g.start for g in ensembles], axis=0),
    )
