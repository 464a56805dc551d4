"""ModelRows -> predictions of a model, in blocks of rows and of labels, so that no n x c array is ever whole."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError
from smoothlink.model import BestScores, DecoderInputs, Model, blocks
from smoothlink.steps.calibrate import LEAST_PROBABILITY, row_logloss
from smoothlink.steps.infer import (
    RankedLabels,
    RunningTopK,
    TopK,
    f1_thresholds,
    merge_ranked,
    propensities,
    sets_at,
    topk_csr,
)

if TYPE_CHECKING:
    from smoothlink.metrics.evaluate import Predictions

Array = NDArray[Any]
ModelRows = Any  # what `model.embed_rows` returns: an array, EmbeddedRows or RawRows


class Observer(Protocol):
    """Is shown all probabilities, some labels at a time."""

    def add(self, labels: slice, P: Array, Y: sp.csr_array) -> None:
        """Takes probabilities (n, m) of some labels for all rows, and the truth (n, m)."""

    def move(self, labels: Array, before: Array, after: Array, true: Array) -> None:
        """Takes, of one label (n,) of each row, another probability than the one shown, and whether it is true."""


BATCH_BYTES = 64 << 20  # of scores of all rows at a time
BATCH_ROWS = 100  # from which on F1 sets "auto" are those of the rows together: of fewer, each label would get one
FEWEST_LABELS = 256  # of all rows at a time: a product of fewer is slow


def predict_topk(model: Model, rows: ModelRows, k: int, *, rank_by: str = "probability") -> sp.csr_array:
    """Returns the k best labels of each row in order, with their probabilities."""
    if rank_by == "psp":
        parts = [best_by_gain(model, model.featurize(rows[part]), k) for part in model.feature_blocks(len(rows))]
    else:
        parts = [with_probabilities(model, best) for best in model.best_in_blocks(rows, k)]
    return topk_csr(parts, model.n_labels)


def with_probabilities(model: Model, best: BestScores) -> TopK:
    """Returns the best labels with their probabilities, that of the very best recalibrated."""
    P = model.probabilities(best.scores, best.normalisers)
    if model.recalibrates_top1:
        P[:, :1] = model.recalibrate_top1(P[:, :1])
    return TopK(best.ids, P)


def best_by_gain(model: Model, inputs: DecoderInputs, k: int) -> TopK:
    """Returns the k labels of the highest expected gain of a block of rows, with their probabilities."""
    b = len(inputs.without_features)
    ranking, top1 = RunningTopK(b, min(k, model.n_labels)), RunningTopK(b, 1)
    normalisers = model.all_normalisers(inputs) if model.multiclass else None
    for labels in model.contenders(inputs, k, "psp", partial(expected_gains, model)):
        S = model.score(inputs, labels)
        P = model.probabilities(S, normalisers)
        ranking.add(gains(model, P, labels), P, labels)
        top1.add(S, labels=labels)
    return with_top1(model, ranking.ranked(0), top1.best(), "psp")


def expected_gains(model: Model, S: Array, labels: Array) -> Array:
    """Returns `gains` of multilabel scores before the labels' maps."""
    return gains(model, model.probabilities(model.log_odds(S, labels)), labels)


def with_top1(model: Model, best: RankedLabels, top1: TopK, rank_by: str) -> TopK:
    """Returns the k best of each row after the label of the highest score (n, 1) is recalibrated."""
    if not model.recalibrates_top1:
        return TopK(best.ids, best.values)
    P = model.recalibrate_top1(model.probabilities(top1.values))
    if rank_by == "probability":
        return TopK(best.ids, np.where(best.ids == top1.indices, P, best.values))
    gain = P * label_gains(model)[top1.indices].astype(np.float32)
    keys = np.hstack([gain, np.where(best.ids == top1.indices, -np.inf, best.keys)])
    order = np.argsort(-keys, axis=1, kind="stable")[:, : best.ids.shape[1]]
    ids, values = np.hstack([top1.indices, best.ids]), np.hstack([P, best.values])
    return TopK(np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1))


def gains(model: Model, P: Array, labels: slice | Array) -> Array:
    """Returns the expected propensity-scored gain: inverse propensities favour rare labels."""
    return np.where(model.untrained[labels], np.float32(-1), P * label_gains(model)[labels].astype(np.float32))


def label_gains(model: Model) -> Array:
    """Returns the inverse propensity (c,) of each label."""
    return propensities(model.counts, max(1, round(model.total)))


def predict_sets(model: Model, rows: ModelRows, thresholds: Array | None = None) -> sp.csr_array:
    """Returns labels whose probability is at least their threshold (c,), the model's own where none are given;
    multiclass: the one best label."""
    if model.multiclass:
        return one_each(predict_topk(model, rows, 1).indices, model.n_labels)
    return sets_above(model, rows, model.own_thresholds if thresholds is None else thresholds)


def sets_above(model: Model, rows: ModelRows, thresholds: Array) -> sp.csr_array:
    """Returns labels whose probability is at least their threshold (c,)."""
    found = []
    for part in model.feature_blocks(len(rows)):
        inputs = model.featurize(rows[part])
        normalisers = model.all_normalisers(inputs) if model.multiclass else None
        sets, top1 = [], RunningTopK(len(inputs.without_features), 1)
        for labels in model.label_blocks(len(inputs.without_features)):
            S = model.score(inputs, labels)
            sets.append(checked_sets(model.probabilities(S, normalisers), thresholds[labels]))
            top1.add(S)
        found.append(add_top1(model, side_by_side(sets), top1.best(), thresholds))
    return one_below_another(found)


def checked_sets(P: Array, thresholds: Array) -> sp.csr_array:
    """Returns the 0/1 sets of probabilities P (n, m) that are at least their threshold (m,)."""
    if P.size and np.isnan(P.max()):
        raise DataError(f"{np.isnan(P).sum()} of {P.size} probabilities are NaN. Check the model.")
    return sets_at(P, thresholds)


def add_top1(model: Model, sets: sp.csr_array, top1: TopK, thresholds: Array) -> sp.csr_array:
    """Returns the sets with the best labels (n, 1), given with their scores, that reach their thresholds (c,) only
    recalibrated."""
    if not model.recalibrates_top1:
        return sets
    P = model.recalibrate_top1(model.probabilities(top1.values))
    above = np.flatnonzero(P[:, 0] >= thresholds[top1.indices[:, 0]])
    added = np.ones(len(above), sets.dtype), (above, top1.indices[above, 0])
    return sp.csr_array(sets.maximum(sp.csr_array(added, sets.shape)))


def side_by_side(sets: list[sp.csr_array]) -> sp.csr_array:
    return sp.hstack(sets, format="csr") if len(sets) > 1 else sets[0]


def one_below_another(sets: list[sp.csr_array]) -> sp.csr_array:
    return sp.vstack(sets, format="csr") if len(sets) > 1 else sets[0]


def one_each(labels: Array, c: int) -> sp.csr_array:
    """Returns a 0/1 matrix with one label per row."""
    return sp.csr_array((np.ones(len(labels), np.int64), labels, np.arange(len(labels) + 1)), (len(labels), c))


def predict_proba(model: Model, rows: ModelRows, labels: Array | None = None) -> Array:
    """Returns probabilities (n, c), or of some labels. The others are scored too, since each row of a multiclass model
    is divided by the sum over all, and of others the best label is recalibrated: that costs as much as the k best."""
    P = np.empty((len(rows), model.n_labels if labels is None else len(labels)), np.float32)
    for part in model.row_blocks(len(rows)) if labels is None else model.feature_blocks(len(rows)):
        P[part] = block_probabilities(model, model.featurize(rows[part]), labels)
    return P


def block_probabilities(model: Model, inputs: DecoderInputs, labels: Array | None) -> Array:
    """Returns probabilities (b, m) of some labels, or of all."""
    S = model.score(inputs, slice(None) if labels is None else labels)
    top1 = None
    if model.recalibrates_top1:
        top1 = S.argmax(axis=1)[:, None] if labels is None else model.best_labels(inputs, 1).ids
    normalisers = model.all_normalisers(inputs) if model.multiclass and labels is not None else None
    P = model.probabilities(S, normalisers)
    if top1 is not None:
        best = top1 == (np.arange(P.shape[1]) if labels is None else labels)
        P[best] = model.recalibrate_top1(P[best])
    return P


def predict_scores(model: Model, rows: ModelRows, labels: Array | None = None) -> Array:
    """Returns scores (n, c), or of some labels."""
    return np.concatenate([model.scores(rows[part], labels) for part in model.row_blocks(len(rows))])


def predict_f1(model: Model, rows: ModelRows, *, over: str) -> sp.csr_array:
    """Returns label sets for a high F1 of each label: by Algorithm 4 over these rows, or at the stored thresholds."""
    if over not in ("auto", "thresholds", "batch"):
        raise ValueError(
            f"over is {over!r}; possible are 'batch' (these rows), 'thresholds' (stored in the model) and 'auto' "
            f"(these rows from {BATCH_ROWS} on, else thresholds)."
        )
    if over == "batch" or (over == "auto" and len(rows) >= BATCH_ROWS):
        batch = Batch(model, rows)
        return side_by_side([batch.f1_sets(batch.calibrated(S), labels) for labels, S in batch.scores()])
    if model.multiclass:  # all labels at once, which the sum over them needs
        parts = (model.scores(rows[part]) for part in model.row_blocks(len(rows)))
        return one_below_another([sets_at(model.calibrated(S), model.thresholds) for S in parts])
    return sets_above(model, rows, model.for_trained_labels(model.thresholds))


class Batch:
    """All rows for a block of labels at a time, as Algorithm 4 needs them.

    Features of at most `feature_bytes` are kept; a block has scores of `batch_bytes`, but at least `fewest_labels`.
    """

    def __init__(
        self,
        model: Model,
        rows: ModelRows,
        normalisers: Array | None = None,
        *,
        feature_bytes: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        fewest_labels: int = FEWEST_LABELS,
    ) -> None:
        self.model, self.rows = model, rows
        self.block_labels = max(fewest_labels, batch_bytes // (4 * max(1, len(rows))))
        fits = 4 * len(rows) * model.V.shape[0] <= (model.feature_bytes if feature_bytes is None else feature_bytes)
        self.kept = [(part, model.featurize(rows[part])) for part in model.feature_blocks(len(rows))] if fits else None
        self.normalisers = normalisers
        if model.multiclass and normalisers is None:
            self.normalisers = np.concatenate([model.all_normalisers(inputs) for _, inputs in self.parts()])
        self.frequency = np.clip(model.counts / max(model.total, 1e-300), 0, 1)

    def parts(self) -> Iterator[tuple[slice, DecoderInputs]]:
        """Yields rows and their features: kept where they fit, else made again."""
        if self.kept is not None:
            yield from self.kept
        else:
            for part in self.model.feature_blocks(len(self.rows)):
                yield part, self.model.featurize(self.rows[part])

    def scores(self, among: slice | None = None) -> Iterator[tuple[slice, Array]]:
        """Yields labels and the scores (n, m) of all rows for them, a block after the other of all labels or some."""
        n, model = len(self.rows), self.model
        first, last = (0, model.n_labels) if among is None else (among.start, among.stop)
        for block in blocks(last - first, self.block_labels):
            labels = slice(first + block.start, first + block.stop)
            S = np.empty((n, labels.stop - labels.start), np.float32)
            for part, inputs in self.parts():
                model.score(inputs, labels, out=S[part])
            yield labels, S

    def calibrated(self, S: Array) -> Array:
        return self.model.calibrated(S, self.normalisers)

    def f1_sets(self, Z: Array, labels: slice) -> sp.csr_array:
        """Returns Algorithm 4's sets (n, m) of calibrated probabilities."""
        if self.model.multiclass:
            np.minimum(Z, 1, out=Z)  # exp rounds up at times
        return sets_at(Z, f1_thresholds(Z, self.frequency[labels]))


class LabelPart(NamedTuple):
    """The predictions of all rows for some of the labels."""

    top: RankedLabels
    top1: RankedLabels  # the one best
    sets: list[sp.csr_array]  # of each block of labels; multiclass: none
    f1_sets: list[sp.csr_array]
    losses: Array  # (n,)


def predictions(
    model: Model,
    rows: ModelRows,
    Y: sp.csr_array,
    *,
    k: int = 5,
    rank_by: str = "probability",
    thresholds: Array | None = None,
    watch: Observer | None = None,
) -> Predictions:
    """Returns all that `metrics.evaluate` needs, of embedded rows whose true labels are Y (n, >= c), in one pass.

    Sets are those at these thresholds (c,), or at the model's own.
    """
    given: dict[str, Any] = {"k": k, "rank_by": rank_by, "thresholds": thresholds}
    part = label_part(model, Batch(model, rows), Y, slice(0, model.n_labels), watch=watch, **given)
    if watch is not None and model.recalibrates_top1:
        watch.move(*recalibrated_top1(model, TopK(part.top1.ids, part.top1.values), Y))
    return merge_label_parts(model, [part], Y, **given)


def label_part(
    model: Model,
    batch: Batch,
    Y: sp.csr_array,
    among: slice,
    *,
    k: int = 5,
    rank_by: str = "probability",
    thresholds: Array | None = None,
    watch: Observer | None = None,
) -> LabelPart:
    """Returns the predictions for some of the labels: they are independent, once the rows are all there.

    `watch` is shown each block of labels, with the probabilities (n, m) and the truth (n, m) of all rows.
    """
    n, m = len(batch.rows), among.stop - among.start
    thresholds = model.own_thresholds if thresholds is None else thresholds
    known = sp.csc_array(sp.csr_array(Y)[:, among])
    top, top1 = RunningTopK(n, min(k, m)), RunningTopK(n, 1)
    losses, sets, f1_sets = np.zeros(n), [], []
    for labels, S in batch.scores(among):
        P = batch.calibrated(S)
        f1_sets.append(batch.f1_sets(P, labels))
        P = model.smooth(P, S)
        top.add(gains(model, P, labels) if rank_by == "psp" else S, P)
        top1.add(S)
        if not model.multiclass:
            sets.append(checked_sets(P, thresholds[labels]))
        true = sp.csr_array(known[:, labels.start - among.start : labels.stop - among.start])
        added = row_logloss(P, true, multiclass=model.multiclass)
        losses += np.where(np.diff(true.indptr) > 0, added, 0) if model.multiclass else added
        if watch is not None:
            watch.add(labels, P, true)
    return LabelPart(top.ranked(among.start), top1.ranked(among.start), sets, f1_sets, losses)


def merge_label_parts(
    model: Model,
    parts: list[LabelPart],
    Y: sp.csr_array,
    *,
    k: int = 5,
    rank_by: str = "probability",
    thresholds: Array | None = None,
) -> Predictions:
    """Returns the predictions of which each part has some labels, in ascending order."""
    c, losses = model.n_labels, np.sum([part.losses for part in parts], axis=0)
    ids, _, scores = merge_ranked([part.top1 for part in parts], 1)
    top1 = TopK(ids, scores)
    best = with_top1(model, merge_ranked([part.top for part in parts], k), top1, rank_by)
    if model.multiclass:
        losses[np.diff(sp.csr_array(sp.csr_array(Y)[:, :c]).indptr) == 0] = -np.log(LEAST_PROBABILITY)
        sets = one_each(top1.indices[:, 0], c)
    else:
        thresholds = model.own_thresholds if thresholds is None else thresholds
        sets = add_top1(model, side_by_side([block for part in parts for block in part.sets]), top1, thresholds)
        if model.recalibrates_top1:
            _, p, q, true = recalibrated_top1(model, top1, Y)
            losses += np.where(true, np.log(p) - np.log(q), np.log1p(-p) - np.log1p(-q))
    from smoothlink.metrics.evaluate import Predictions

    return Predictions(
        topk=topk_csr([best], c),
        sets=sets,
        f1_sets=side_by_side([block for part in parts for block in part.f1_sets]),
        row_logloss=losses,
        top_probability=best.values[:, 0],
        top_score=top1.values[:, 0],
    )


class RecalibratedTop1(NamedTuple):
    """The best label of each row, and its probability before and after the top-1 recalibration."""

    labels: Array  # (n,)
    before: Array  # (n,) its probability as one of all labels
    after: Array  # (n,) as the best
    true: Array  # (n,)


def recalibrated_top1(model: Model, top1: TopK, Y: sp.csr_array) -> RecalibratedTop1:
    """Returns what the recalibration makes of the label of the highest score (n, 1)."""
    p = np.clip(model.probabilities(top1.values), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    q = np.clip(model.recalibrate_top1(p), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    hit = np.bincount(rows, Y.indices == top1.indices[rows, 0], Y.shape[0]) > 0
    return RecalibratedTop1(top1.indices[:, 0], p[:, 0].astype(np.float64), q[:, 0].astype(np.float64), hit)
