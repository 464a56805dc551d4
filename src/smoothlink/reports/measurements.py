"""A model and test rows -> the numbers of a report, in one pass over blocks of labels; nothing is n x c."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.matching import label_names
from smoothlink.metrics.bootstrap import divide
from smoothlink.metrics.evaluate import Evaluation, Predictions, evaluate, is_true, ranked_labels
from smoothlink.metrics.reliability import Cuts, Pairs, Reliability, reliability
from smoothlink.predict import predictions

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier

Array = NDArray[Any]

DEPTH = 10  # places of the ranking that are looked at
FOUND = 5  # a true label counts as found among so many
CONFUSED = 20  # true labels a row that confusions look at
EDGES = (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)  # training rows of a label


class Group(NamedTuple):
    """Labels of about the same frequency in training."""

    least: int  # training rows
    most: int | None
    labels: int
    pairs: int  # true pairs in the test rows
    recall: float  # share of these that is among the first FOUND of its row
    precision: float  # share of the first FOUND, where they are such labels, that is true
    f1: float  # mean over labels that occur or are predicted, by Algorithm 4


class Counts(NamedTuple):
    """Of each label (c,), over the test rows."""

    train: Array  # training rows
    true: Array
    expected: Array  # the sum of its probabilities
    sets: Array  # at probability 1/2
    hits: Array  # of these, how many are true
    surprise: Array  # expected - true, in standard deviations


class Confusion(NamedTuple):
    """A label that was not found, and another that took its place."""

    true: int
    said: int
    rows: int
    of: int  # test rows of the true label


class Measured(NamedTuple):
    """All numbers of a report."""

    names: list[Any]  # of the labels
    Y: sp.csr_array  # (n, >= c) the truth
    said: Predictions
    evaluation: Evaluation  # at k = 1 .. DEPTH
    ks: tuple[int, ...]
    top: Reliability  # of each row's first label
    pairs: Reliability  # of all pairs of probability .05 and more
    cuts: Cuts
    groups: list[Group]
    counts: Counts
    confused: list[Confusion]

    @property
    def metrics(self) -> Any:
        return self.evaluation.metrics

    @property
    def n(self) -> int:
        return int(self.Y.shape[0])

    def ranked(self, row: int) -> tuple[list[int], list[float]]:
        """The first labels of a row with their probabilities."""
        best = self.said.topk
        assert best is not None
        part = slice(best.indptr[row], best.indptr[row + 1])
        return best.indices[part].tolist(), best.data[part].tolist()

    def true(self, row: int) -> list[int]:
        """The labels of a row."""
        return self.Y.indices[self.Y.indptr[row] : self.Y.indptr[row + 1]].tolist()

    def chosen(self, row: int) -> list[int]:
        """The labels of a row at probability 1/2."""
        sets = self.said.sets
        assert sets is not None
        return sets.indices[sets.indptr[row] : sets.indptr[row + 1]].tolist()

    @property
    def hit(self) -> Array:
        """Whether the label at each place of a row's ranking is true (n, DEPTH)."""
        assert self.said.topk is not None
        return is_true(self.Y, ranked_labels(self.said.topk, max(self.ks)))


def measure(
    classifier: SmoothLinkClassifier,
    X: Any,
    Y: sp.csr_array,
    *,
    bootstraps: int = 1000,
    seed: int = 0,
    rank_by: str = "probability",
) -> Measured:
    """Measures a model on checked rows X whose labels are Y (n, >= c), canonical, those unknown to it last."""
    model, c = classifier.model_, classifier.model_.n_labels
    Y = sp.csr_array(Y)
    ks = tuple(range(1, min(DEPTH, c) + 1))
    pairs = Pairs(c)
    said = classifier._run_prediction(X, predictions, Y, k=max(ks), rank_by=rank_by, watch=pairs)
    evaluation = evaluate(
        Y,
        said,
        label_counts=model.counts,
        n_train=max(1, round(model.total)),
        ks=ks,
        task="multiclass" if model.multiclass else "multilabel",
        bootstraps=bootstraps,
        seed=seed,
    )
    assert said.topk is not None
    assert said.top_probability is not None
    ranked = ranked_labels(said.topk, max(ks))
    hit = is_true(Y, ranked)
    return Measured(
        names=label_names(classifier),
        Y=Y,
        said=said,
        evaluation=evaluation,
        ks=ks,
        top=reliability(said.top_probability, hit[:, 0]),
        pairs=pairs.reliability(),
        cuts=pairs.cuts(Y.shape[0], Y.nnz),
        groups=by_frequency(model.counts, Y, said, ranked[:, :FOUND], hit[:, :FOUND]),
        counts=label_counts(model.counts, Y, said.sets, pairs),
        confused=confusions(Y, ranked, hit, c),
    )


def known(Y: sp.csr_array, c: int) -> sp.csr_array:
    return sp.csr_array(Y[:, :c])


def totals(A: sp.csr_array, c: int) -> Array:
    """How many rows have each label (c,)."""
    return np.bincount(A.indices, minlength=c)[:c]


def label_counts(train: Array, Y: sp.csr_array, sets: sp.csr_array, pairs: Pairs) -> Counts:
    """What is true and what is said of each label."""
    c = len(train)
    true = totals(Y, c)
    hits = totals(sp.csr_array(known(Y, c).multiply(sets)), c)
    surprise = (pairs.expected - true) / np.sqrt(pairs.spread + 1)
    return Counts(train, true, pairs.expected, totals(sets, c), hits, np.where(train > 0, surprise, 0))


def by_frequency(train: Array, Y: sp.csr_array, said: Predictions, ranked: Array, hit: Array) -> list[Group]:
    """Labels in groups from those of few training rows to those of many, and what is found of each."""
    c = len(train)
    group = np.searchsorted(np.array(EDGES[1:]), np.maximum(train, 0), side="right")
    true, shown = totals(Y, c), np.bincount(ranked[ranked >= 0], minlength=c)
    found = np.bincount(ranked[hit & (ranked >= 0) & (ranked < c)], minlength=c)
    sets = totals(said.f1_sets, c)
    both = totals(sp.csr_array(known(Y, c).multiply(said.f1_sets)), c)
    f1, used = divide(2.0 * both, true + sets), (true + sets) > 0

    def total(values: Array) -> Array:
        return np.bincount(group, values, len(EDGES))

    members, pairs, recall = total(np.ones(c)), total(true), divide(total(found), total(true))
    precision, mean = divide(total(found), total(shown)), divide(total(np.where(used, f1, 0)), total(used))
    ends = [*(edge - 1 for edge in EDGES[1:]), None]
    return [
        Group(EDGES[g], ends[g], int(members[g]), int(pairs[g]), float(recall[g]), float(precision[g]), float(mean[g]))
        for g in np.flatnonzero(members).tolist()
    ]


def confusions(Y: sp.csr_array, ranked: Array, hit: Array, c: int, most: int = 15) -> list[Confusion]:
    """The pairs of labels of which one was true and not found, the other false and in its place, most rows first.

    A row of r labels is given its first r (DEPTH at most): wrong ones among these stand in place of those missed.
    """
    n, depth = ranked.shape
    per_row = np.diff(Y.indptr)
    inside = np.arange(depth) < np.minimum(per_row, depth)[:, None]
    wrong_rows, places = np.nonzero(inside & ~hit & (ranked >= 0))
    wrong = sp.csr_array((np.ones(len(wrong_rows), np.int32), (wrong_rows, ranked[wrong_rows, places])), shape=(n, c))
    right_rows, places = np.nonzero(inside & hit)
    right = sp.csr_array((np.ones(len(right_rows)), (right_rows, ranked[right_rows, places])), shape=(n, Y.shape[1]))
    missed = sp.csr_array(Y - right)
    missed.eliminate_zeros()
    missed = few_a_row(known(missed, c), CONFUSED)
    crossed = sp.coo_array(sp.csr_array(missed.T.astype(np.int32)) @ wrong)
    order = np.lexsort((crossed.col, crossed.row, -crossed.data))[:most]
    of = totals(Y, c)
    return [
        Confusion(int(crossed.row[i]), int(crossed.col[i]), int(crossed.data[i]), int(of[crossed.row[i]]))
        for i in order
    ]


def few_a_row(A: sp.csr_array, most: int) -> sp.csr_array:
    """The first `most` entries of each row, as ones."""
    place = np.arange(A.nnz) - np.repeat(A.indptr[:-1], np.diff(A.indptr))
    keep = place < most
    indptr = np.append(0, np.cumsum(np.minimum(np.diff(A.indptr), most)))
    return sp.csr_array((np.ones(int(keep.sum()), np.int32), A.indices[keep], indptr), A.shape)
