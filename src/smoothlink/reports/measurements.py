"""A model and test rows -> the numbers of a report, in one pass over blocks of labels; no array is n x c."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.matching import label_names
from smoothlink.machines.copies import RowContents, notable
from smoothlink.metrics.bootstrap import Metric, divide
from smoothlink.metrics.evaluate import (
    Evaluation,
    MetricStatistics,
    Predictions,
    evaluation,
    is_true,
    model_statistics,
    ranked_labels,
)
from smoothlink.metrics.names import KS
from smoothlink.metrics.reliability import PairCounts, Reliability, ThresholdCurve, reliability
from smoothlink.predict import predictions
from smoothlink.vocabulary import display_names

if TYPE_CHECKING:
    from smoothlink.reports.labelled_rows import LabelledRows

Array = NDArray[Any]

DEPTH = 10  # places of the ranking that are looked at
FOUND = 5  # a true label counts as found among so many
CONFUSED = 20  # true labels per row that confusions look at
FREQUENCY_EDGES = (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)  # training rows of a label


class LabelGroup(NamedTuple):
    """Labels of about the same frequency in training."""

    least: int  # training rows
    most: int | None
    labels: int
    pairs: int  # true pairs in the test rows
    recall: float  # share of these that is among the first FOUND of its row
    precision: float  # share of the first FOUND, where they are such labels, that is true
    f1: float  # mean over labels that occur or are predicted, by Algorithm 4


class LabelCounts(NamedTuple):
    """Of each label (c,), over the test rows."""

    train: Array  # training rows
    true: Array
    expected: Array  # the sum of its probabilities
    sets: Array  # at the thresholds of the model, or of the report
    hits: Array  # of these, how many are true
    surprise: Array  # expected - true, in standard deviations


class Confusion(NamedTuple):
    """A label that was not found, and another that was predicted in its place."""

    true: int
    predicted: int
    rows: int
    of: int  # test rows of the true label


class Measured(NamedTuple):
    """All numbers of a report."""

    labels: list[Any]
    names: list[str]  # of the labels, as people are shown them
    Y: sp.csr_array  # (n, >= c) the truth
    predictions: Predictions
    statistics: MetricStatistics  # at each of ks, and at those of `evaluate`
    evaluation: Evaluation
    ks: tuple[int, ...]  # 1 .. DEPTH, or as many as there are labels
    top: Reliability  # of each row's top label
    pairs: Reliability  # of all pairs of probability .05 and more
    thresholds: ThresholdCurve
    groups: list[LabelGroup]
    counts: LabelCounts
    set_thresholds: list[float | None]  # (c,) least probability of a label that is predicted; None: there is none
    confused: list[Confusion]

    @property
    def metrics(self) -> dict[str, Metric]:
        return self.evaluation.metrics

    @property
    def n(self) -> int:
        return int(self.Y.shape[0])

    def ranked(self, row: int) -> tuple[list[int], list[float]]:
        """Returns the top labels of a row with their probabilities."""
        best = self.predictions.topk
        assert best is not None
        part = slice(best.indptr[row], best.indptr[row + 1])
        return best.indices[part].tolist(), best.data[part].tolist()

    def true(self, row: int) -> list[int]:
        """Returns the true labels of a row."""
        return self.Y.indices[self.Y.indptr[row] : self.Y.indptr[row + 1]].tolist()

    def predicted(self, row: int) -> set[int]:
        """Returns the labels of a row that count as predicted: those at the thresholds, and the top label."""
        sets = self.predictions.sets
        assert sets is not None
        return {*sets.indices[sets.indptr[row] : sets.indptr[row + 1]].tolist(), self.ranked(row)[0][0]}

    @property
    def hit(self) -> Array:
        """Returns whether the label at each place of a row's ranking is true (n, DEPTH)."""
        assert self.predictions.topk is not None
        return is_true(self.Y, ranked_labels(self.predictions.topk, max(self.ks)))


def measure(rows: LabelledRows, *, bootstraps: int = 1000, seed: int = 0) -> Measured:
    """Returns the numbers of a model on test rows; metrics are those of `evaluate`."""
    model, c = rows.classifier.model_, rows.classifier.model_.n_labels
    Y = sp.csr_array(rows.Y)
    ks = tuple(range(1, min(DEPTH, c) + 1))
    pairs = PairCounts(c)
    given: dict[str, Any] = {"k": max(ks), "rank_by": rows.rank_by}
    given["thresholds"] = rows.classifier._thresholds(rows.threshold)
    found = rows.classifier._run_prediction(rows.X, predictions, Y, watch=pairs, **given)
    contents = RowContents.of(rows.X, Y)
    statistics = model_statistics(model, Y, found, sorted({*ks, *KS}))._replace(groups=notable(contents.first_copies()))
    known = rows.classifier._count_training_rows(contents.features)
    assert found.topk is not None
    assert found.top_probability is not None
    ranked = ranked_labels(found.topk, max(ks))
    hit = is_true(Y, ranked)
    return Measured(
        labels=label_names(rows.classifier),
        names=display_names(rows.classifier),
        Y=Y,
        predictions=found,
        statistics=statistics,
        evaluation=evaluation(statistics, Y, bootstraps, seed)._replace(n_training_rows=known),
        ks=ks,
        top=reliability(found.top_probability, hit[:, 0]),
        pairs=pairs.reliability(),
        thresholds=pairs.threshold_curve(Y.shape[0], Y.nnz),
        groups=by_frequency(model.counts, Y, found, ranked[:, :FOUND], hit[:, :FOUND]),
        counts=label_counts(model.counts, Y, found.sets, pairs),
        set_thresholds=[
            None if model.multiclass or one == np.inf else one
            for one in (rows.classifier.thresholds_ if given["thresholds"] is None else given["thresholds"]).tolist()
        ],
        confused=confusions(Y, ranked, hit, c),
    )


def totals(A: sp.csr_array, c: int) -> Array:
    """Returns how many rows have each label (c,)."""
    return np.bincount(A.indices, minlength=c)[:c]


def label_counts(train: Array, Y: sp.csr_array, sets: sp.csr_array, pairs: PairCounts) -> LabelCounts:
    """Returns what is true and what is predicted of each label."""
    c = len(train)
    true = totals(Y, c)
    hits = totals(sp.csr_array(Y[:, :c].multiply(sets)), c)
    surprise = (pairs.expected - true) / np.sqrt(pairs.spread + 1)
    return LabelCounts(train, true, pairs.expected, totals(sets, c), hits, np.where(train > 0, surprise, 0))


def by_frequency(train: Array, Y: sp.csr_array, predicted: Predictions, ranked: Array, hit: Array) -> list[LabelGroup]:
    """Returns labels in groups from those of few training rows to those of many, and what is found of each."""
    c = len(train)
    group = np.searchsorted(np.array(FREQUENCY_EDGES[1:]), np.maximum(train, 0), side="right")
    true, shown = totals(Y, c), np.bincount(ranked[ranked >= 0], minlength=c)
    found = np.bincount(ranked[hit & (ranked >= 0) & (ranked < c)], minlength=c)
    sets = totals(predicted.f1_sets, c)
    both = totals(sp.csr_array(Y[:, :c].multiply(predicted.f1_sets)), c)
    f1, used = divide(2.0 * both, true + sets), (true + sets) > 0

    def total(values: Array) -> Array:
        return np.bincount(group, values, len(FREQUENCY_EDGES))

    members, pairs, recall = total(np.ones(c)), total(true), divide(total(found), total(true))
    precision, mean = divide(total(found), total(shown)), divide(total(np.where(used, f1, 0)), total(used))
    ends = [*(edge - 1 for edge in FREQUENCY_EDGES[1:]), None]
    return [
        LabelGroup(
            FREQUENCY_EDGES[g],
            ends[g],
            int(members[g]),
            int(pairs[g]),
            float(recall[g]),
            float(precision[g]),
            float(mean[g]),
        )
        for g in np.flatnonzero(members).tolist()
    ]


def confusions(Y: sp.csr_array, ranked: Array, hit: Array, c: int, most: int = 15) -> list[Confusion]:
    """Returns pairs of labels of which one was true and not found, the other false and in its place, most rows first.

    Of a row with r labels the first r predicted ones count, at most DEPTH: the wrong ones replace those missed.
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
    missed = first_per_row(sp.csr_array(missed[:, :c]), CONFUSED)
    crossed = sp.coo_array(sp.csr_array(missed.T.astype(np.int32)) @ wrong)
    order = np.lexsort((crossed.col, crossed.row, -crossed.data))[:most]
    of = totals(Y, c)
    return [
        Confusion(int(crossed.row[i]), int(crossed.col[i]), int(crossed.data[i]), int(of[crossed.row[i]]))
        for i in order
    ]


def first_per_row(A: sp.csr_array, most: int) -> sp.csr_array:
    """Returns the first `most` entries of each row, as ones."""
    place = np.arange(A.nnz) - np.repeat(A.indptr[:-1], np.diff(A.indptr))
    keep = place < most
    indptr = np.append(0, np.cumsum(np.minimum(np.diff(A.indptr), most)))
    return sp.csr_array((np.ones(int(keep.sum()), np.int32), A.indices[keep], indptr), A.shape)
