"""Rows -> what a model says of them, in blocks of rows and of labels, so that no n x c array is ever whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DeviceError
from smoothlink.machines.host_and_device import Host, find_machine, out_of_memory, release_memory
from smoothlink.metrics.evaluate import Predictions
from smoothlink.model import DecoderInputs, EmbeddedRows, Model, RawRows, blocks
from smoothlink.steps.calibrate import LEAST_PROBABILITY, row_logloss
from smoothlink.steps.infer import (
    RankedLabels,
    RunningTopK,
    TopK,
    above_half,
    f1_thresholds,
    merge_ranked,
    propensities,
    sets_at,
    top_k,
    topk_csr,
)

Array = NDArray[Any]
Given = Array | EmbeddedRows | RawRows
Answer = TypeVar("Answer")


class Watch(Protocol):
    """Is shown all probabilities, some labels at a time."""

    def add(self, labels: slice, P: Array, Y: sp.csr_array) -> None:
        """Probabilities (n, m) of some labels for all rows, and the truth (n, m)."""

    def move(self, labels: Array, before: Array, after: Array, true: Array) -> None:
        """Of one label (n,) of each row, another probability than the one shown, and whether it is true."""


KEPT_BYTES = 1 << 30  # of features that are kept while the labels pass by
BATCH_BYTES = 64 << 20  # of scores of all rows at a time
FEWEST_LABELS = 256  # of all rows at a time: a product of fewer is slow


def predict_topk(model: Model, H: Given, k: int, *, rank_by: str = "probability") -> sp.csr_array:
    """The k best labels of each row in order, with their probabilities."""
    if model.placed and rank_by == "probability":
        return topk_csr(ranked_there(model, H, min(k, model.n_labels)), model.n_labels)
    parts = [ranked(model, model.see(H[part]), k, rank_by) for part in model.feature_blocks(len(H))]
    return topk_csr(parts, model.n_labels)


def ranked(model: Model, seen: DecoderInputs, k: int, rank_by: str = "probability") -> TopK:
    """The k best labels of a block of rows with their probabilities; the scores of a block of labels at a time."""
    b = len(seen.blank)
    ranking = RunningTopK(b, min(k, model.n_labels))
    if rank_by == "psp":
        normalisers, first = model.all_normalisers(seen) if model.multiclass else None, RunningTopK(b, 1)
        for labels in model.label_blocks(b):
            S = model.score(seen, labels)
            P = model.probabilities(S, normalisers)
            ranking.add(gains(model, P, labels), P)
            first.add(S)
        return lift_among(model, ranking.ranked(0), first.best(), rank_by)
    total = np.full(b, -np.inf, np.float32)
    for labels in model.label_blocks(b):
        S = model.score(seen, labels)
        ranking.add(S)
        if model.multiclass:
            total = np.logaddexp(total, model.normalisers(S))
    best = ranking.best()
    P = model.probabilities(best.values, total if model.multiclass else None)
    return TopK(best.indices, lift_first(model, P))


def lift_first(model: Model, P: Array) -> Array:
    """Probabilities of the k best labels of each row, that of the very best as it is for such; in place."""
    if model.lifts:
        P[:, :1] = model.lifted(P[:, :1])
    return P


def lift_among(model: Model, best: RankedLabels, first: TopK, rank_by: str) -> TopK:
    """The k best of each row, where the one of the highest score (n, 1) is worth more than it would be alone."""
    if not model.lifts:
        return TopK(best.ids, best.values)
    P = model.lifted(model.probabilities(first.values))
    if rank_by == "probability":
        return TopK(best.ids, np.where(best.ids == first.indices, P, best.values))
    worth = P * label_gains(model)[first.indices].astype(np.float32)
    keys = np.hstack([worth, np.where(best.ids == first.indices, -np.inf, best.keys)])
    order = np.argsort(-keys, axis=1, kind="stable")[:, : best.ids.shape[1]]
    ids, values = np.hstack([first.indices, best.ids]), np.hstack([P, best.values])
    return TopK(np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1))


def firsts(model: Model, seen: DecoderInputs) -> Array:
    """The best label (b,) of each row of a block."""
    if model.placed:
        return fetched(model, model.V.best(seen.Phi, 1, None), seen.blank).indices[:, 0]
    ranking = RunningTopK(len(seen.blank), 1)
    for labels in model.label_blocks(len(seen.blank)):
        ranking.add(model.score(seen, labels))
    return ranking.best().indices[:, 0]


def ranked_there(model: Model, H: Given, k: int) -> Iterator[TopK]:
    """`ranked` for blocks of rows on a device, which is busy with one while the host makes the next one ready."""
    temperature = model.calibration.temperature if model.multiclass else None
    waiting = None
    for part in model.V.row_blocks(len(H), k):
        seen = model.see(H[part])
        begun = model.V.best(seen.Phi, k, temperature), seen.blank
        if waiting is not None:
            yield fetched(model, *waiting)
        waiting = begun
    if waiting is not None:
        yield fetched(model, *waiting)


def fetched(model: Model, best: Any, blank: Array) -> TopK:
    """What a device found, with probabilities, and the one answer to rows of which nothing is known."""
    ids, scores, totals = best.fetch()
    if blank.any():
        known = top_k(model.nothing_known, ids.shape[1])
        ids[blank], scores[blank] = known.indices, known.values
        if totals is not None:
            totals[blank] = model.normalisers(model.nothing_known)
    return TopK(ids, lift_first(model, model.probabilities(scores, totals)))


def gains(model: Model, P: Array, labels: slice) -> Array:
    """Expected propensity-scored gain in place of expected hits: inverse propensities lift rare labels."""
    return np.where(model.unseen[labels], np.float32(-1), P * label_gains(model)[labels].astype(np.float32))


def label_gains(model: Model) -> Array:
    """The inverse propensity (c,) of each label."""
    return propensities(model.counts, max(1, round(model.total)))


def predict_sets(model: Model, H: Given) -> sp.csr_array:
    """Labels of probability above 1/2; multiclass: the one best label."""
    if model.multiclass:
        return one_each(predict_topk(model, H, 1).indices, model.n_labels)
    rows = []
    for part in model.feature_blocks(len(H)):
        seen = model.see(H[part])
        sets, first = [], RunningTopK(len(seen.blank), 1)
        for labels in model.label_blocks(len(seen.blank)):
            S = model.score(seen, labels)
            sets.append(above_half(model.probabilities(S)))
            first.add(S)
        rows.append(with_firsts(model, side_by_side(sets), first.best()))
    return sp.vstack(rows, format="csr") if len(rows) > 1 else rows[0]


def with_firsts(model: Model, sets: sp.csr_array, first: TopK) -> sp.csr_array:
    """Sets at 1/2 with the best labels (n, 1), given with their scores, that only as such are more likely than not."""
    if not model.lifts:
        return sets
    likely = np.flatnonzero(model.lifted(model.probabilities(first.values))[:, 0] > 0.5)
    some = np.ones(len(likely), sets.dtype), (likely, first.indices[likely, 0])
    return sp.csr_array(sets.maximum(sp.csr_array(some, sets.shape)))


def by_blocks(model: Model, H: Given, chosen: Any) -> sp.csr_array:
    """The sets (n, c) of which `chosen(scores, labels)` says a block at a time."""
    rows = []
    for part in model.feature_blocks(len(H)):
        seen = model.see(H[part])
        sets = [chosen(model.score(seen, labels), labels) for labels in model.label_blocks(len(seen.blank))]
        rows.append(side_by_side(sets))
    return sp.vstack(rows, format="csr") if len(rows) > 1 else rows[0]


def side_by_side(sets: list[sp.csr_array]) -> sp.csr_array:
    return sp.hstack(sets, format="csr") if len(sets) > 1 else sets[0]


def one_each(labels: Array, c: int) -> sp.csr_array:
    """A 0/1 matrix with one label a row."""
    return sp.csr_array((np.ones(len(labels), np.int64), labels, np.arange(len(labels) + 1)), (len(labels), c))


def predict_proba(model: Model, H: Given, labels: Array | None = None) -> Array:
    """Probabilities (n, c), or of some labels. The others are scored too, since each row of a multiclass model is
    divided by the sum over all, and of others the best label is apart: that costs as much as the k best."""
    P = np.empty((len(H), model.n_labels if labels is None else len(labels)), np.float32)
    for part in model.row_blocks(len(H)) if labels is None else model.feature_blocks(len(H)):
        P[part] = likely(model, model.see(H[part]), labels)
    return P


def likely(model: Model, seen: DecoderInputs, labels: Array | None) -> Array:
    """Probabilities (b, m) of some labels, or of all."""
    S = model.score(seen, slice(None) if labels is None else labels)
    first = (S.argmax(axis=1) if labels is None else firsts(model, seen))[:, None] if model.lifts else None
    normalisers = model.all_normalisers(seen) if model.multiclass and labels is not None else None
    P = model.probabilities(S, normalisers)
    if first is not None:
        best = first == (np.arange(P.shape[1]) if labels is None else labels)
        P[best] = model.lifted(P[best])
    return P


def predict_scores(model: Model, H: Given, labels: Array | None = None) -> Array:
    """Scores (n, c), or of some labels."""
    return np.concatenate([model.scores(H[part], labels) for part in model.row_blocks(len(H))])


def predict_f1(model: Model, H: Given, *, over: str) -> sp.csr_array:
    """Label sets that maximise each label's F1: at the stored thresholds, or by Algorithm 4 over these rows."""
    if over not in ("thresholds", "batch"):
        raise ValueError(f"over is {over!r}; possible are 'thresholds' (stored in the model) and 'batch' (these rows).")
    if over == "batch":
        batch = Batch(model, H)
        return side_by_side([batch.f1_sets(batch.calibrated(S), labels) for labels, S in batch.scores()])
    if model.multiclass:  # all labels at once, which the sum over them needs
        rows = model.row_blocks(len(H))
        return sp.vstack([sets_at(model.calibrated(model.scores(H[r])), model.thresholds) for r in rows], format="csr")
    return by_blocks(model, H, lambda S, labels: sets_at(model.calibrated(S), model.thresholds[labels]))


class Batch:
    """All rows for a block of labels at a time, as Algorithm 4 needs them."""

    def __init__(self, model: Model, H: Given, normalisers: Array | None = None) -> None:
        self.model, self.H = model, H
        fits = 4 * len(H) * model.V.shape[0] <= (model.V.machine.bytes // 4 if model.placed else KEPT_BYTES)
        self.kept = [(part, model.see(H[part])) for part in model.feature_blocks(len(H))] if fits else None
        self.normalisers = normalisers
        if model.multiclass and normalisers is None:
            self.normalisers = np.concatenate([model.all_normalisers(seen) for _, seen in self.parts()])
        self.frequency = np.clip(model.counts / max(model.total, 1e-300), 0, 1)

    def parts(self) -> Iterator[tuple[slice, DecoderInputs]]:
        """Rows and their features: kept where they fit, else made again."""
        if self.kept is not None:
            yield from self.kept
        else:
            yield from ((part, self.model.see(self.H[part])) for part in self.model.feature_blocks(len(self.H)))

    def scores(self, among: slice | None = None) -> Iterator[tuple[slice, Array]]:
        """Labels and the scores (n, m) of all rows for them, a block after the other of all labels or some."""
        n, model = len(self.H), self.model
        first, last = (0, model.n_labels) if among is None else (among.start, among.stop)
        for part in blocks(last - first, max(FEWEST_LABELS, BATCH_BYTES // (4 * max(1, n)))):
            labels = slice(first + part.start, first + part.stop)
            S = np.empty((n, labels.stop - labels.start), np.float32)
            for part, seen in self.parts():
                model.score(seen, labels, out=S[part])
            yield labels, S

    def calibrated(self, S: Array) -> Array:
        return self.model.calibrated(S, self.normalisers)

    def f1_sets(self, Z: Array, labels: slice) -> sp.csr_array:
        """Algorithm 4's sets (n, m) of calibrated probabilities."""
        if self.model.multiclass:
            np.minimum(Z, 1, out=Z)  # exp rounds up at times
        return sets_at(Z, f1_thresholds(Z, self.frequency[labels]))


class LabelPart(NamedTuple):
    """What `predictions` are made of, for some of the labels and all rows."""

    top: RankedLabels
    first: RankedLabels  # the one best
    sets: list[sp.csr_array]  # of each block of labels; multiclass: none
    f1_sets: list[sp.csr_array]
    losses: Array  # (n,)


def predictions(
    model: Model, H: Given, Y: sp.csr_array, *, k: int = 5, rank_by: str = "probability", watch: Watch | None = None
) -> Predictions:
    """All that `steps.evaluate` asks for, of embedded rows whose true labels are Y (n, >= c), in one pass."""
    part = label_part(model, Batch(model, H), Y, slice(0, model.n_labels), k=k, rank_by=rank_by, watch=watch)
    if watch is not None and model.lifts:
        watch.move(*lift_of(model, TopK(part.first.ids, part.first.values), Y))
    return put_together(model, [part], Y, k=k, rank_by=rank_by)


def label_part(
    model: Model,
    batch: Batch,
    Y: sp.csr_array,
    among: slice,
    *,
    k: int = 5,
    rank_by: str = "probability",
    watch: Watch | None = None,
) -> LabelPart:
    """What some of the labels add to `predictions`: they are independent, once the rows are all there.

    `watch` is shown each block of labels, with the probabilities (n, m) and the truth (n, m) of all rows.
    """
    n, m = len(batch.H), among.stop - among.start
    known = sp.csc_array(sp.csr_array(Y)[:, among])
    top, first = RunningTopK(n, min(k, m)), RunningTopK(n, 1)
    losses, sets, f1_sets = np.zeros(n), [], []
    for labels, S in batch.scores(among):
        P = batch.calibrated(S)
        f1_sets.append(batch.f1_sets(P, labels))
        P = model.finished(P, S)
        top.add(gains(model, P, labels) if rank_by == "psp" else S, P)
        first.add(S)
        if not model.multiclass:
            sets.append(above_half(P))
        here = slice(labels.start - among.start, labels.stop - among.start)
        true = sp.csr_array(known[:, here])
        losses += block_losses(P, true, multiclass=model.multiclass)
        if watch is not None:
            watch.add(labels, P, true)
    return LabelPart(top.ranked(among.start), first.ranked(among.start), sets, f1_sets, losses)


def put_together(
    model: Model, parts: list[LabelPart], Y: sp.csr_array, *, k: int = 5, rank_by: str = "probability"
) -> Predictions:
    """The predictions of which each part has some labels, in ascending order."""
    c, losses = model.n_labels, np.sum([part.losses for part in parts], axis=0)
    ids, _, scores = merge_ranked([part.first for part in parts], 1)
    first = TopK(ids, scores)
    best = lift_among(model, merge_ranked([part.top for part in parts], k), first, rank_by)
    if model.multiclass:
        losses[np.diff(sp.csr_array(sp.csr_array(Y)[:, :c]).indptr) == 0] = -np.log(LEAST_PROBABILITY)
        sets = one_each(first.indices[:, 0], c)
    else:
        sets = with_firsts(model, side_by_side([block for part in parts for block in part.sets]), first)
        losses += lifted_losses(lift_of(model, first, Y)) if model.lifts else 0
    return Predictions(
        topk=topk_csr([best], c),
        sets=sets,
        f1_sets=side_by_side([block for part in parts for block in part.f1_sets]),
        row_logloss=losses,
        top_probability=best.values[:, 0],
    )


class Lift(NamedTuple):
    """The best label of each row, and what it is worth more for being that."""

    labels: Array  # (n,)
    before: Array  # (n,) its probability as one of all labels
    after: Array  # (n,) as the best
    true: Array  # (n,)


def lift_of(model: Model, first: TopK, Y: sp.csr_array) -> Lift:
    """What it makes that the best label of a row, that of the highest score (n, 1), is calibrated apart."""
    p = np.clip(model.probabilities(first.values), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    q = np.clip(model.lifted(p), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    hit = np.bincount(rows, Y.indices == first.indices[rows, 0], Y.shape[0]) > 0
    return Lift(first.indices[:, 0], p[:, 0].astype(np.float64), q[:, 0].astype(np.float64), hit)


def lifted_losses(lift: Lift) -> Array:
    """What it adds to the log-loss (n,) of each row that its best label is apart."""
    p, q = lift.before, lift.after
    return np.where(lift.true, np.log(p) - np.log(q), np.log1p(-p) - np.log1p(-q))


def block_losses(P: Array, Y: sp.csr_array, *, multiclass: bool) -> Array:
    """What a block of labels adds to the log-loss (n,) of each row."""
    losses = row_logloss(P, Y, multiclass=multiclass)
    return np.where(np.diff(Y.indptr) > 0, losses, 0) if multiclass else losses


class Placement:
    """A model on its device: put there by the first question, kept for later ones, never pickled."""

    def __init__(self) -> None:
        self.key: tuple[int, Any] | None = None
        self.model: Model | None = None

    def __reduce__(self) -> Any:
        return Placement, ()

    def drop(self) -> None:
        """Gives the memory of the device back."""
        if self.model is not None:
            machine, self.key, self.model = self.model.V.machine, None, None
            release_memory(machine)

    def of(self, model: Model, device: Any) -> Model:
        """The model where it is to be; on the host it is the model itself."""
        if self.model is not None and self.key == (id(model), device):
            return self.model
        self.drop()
        machine = find_machine(device)
        if isinstance(machine, Host):
            return model
        try:
            self.model, self.key = model.on(machine), (id(model), device)
            return self.model
        except Exception as error:
            if not out_of_memory(error):
                raise
        release_memory(machine)  # outside of the handler: the error held what filled the memory
        raise too_large(device)

    def ask(self, model: Model, device: Any, question: Callable[[Model], Answer]) -> Answer:
        """The model's answer; where the device runs out of memory, the question is put again with smaller blocks."""
        while True:
            placed = self.of(model, device)
            try:
                return question(placed)
            except Exception as error:
                if not placed.placed or not out_of_memory(error):
                    raise
            release_memory(placed.V.machine)
            smaller = placed.V.machine.smaller()
            if smaller is None:
                self.drop()
                raise too_large(device)
            placed.V.machine = smaller


def too_large(device: Any) -> DeviceError:
    return DeviceError(
        f"device is {device!r}, and its memory does not hold the model and a few rows.\n"
        "Free some of it (nvidia-smi shows who has it), or leave device 'cpu'."
    )
