"""The one calibration: held-out scores -> the map to probabilities, and thresholds by the model's aim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.held_out_metrics import HeldOutRanking
from smoothlink.machines.arrays import to_host
from smoothlink.machines.matrices import row_range
from smoothlink.machines.rows import Rows
from smoothlink.model import DecoderInputs, EmbeddedRows, Model
from smoothlink.steps.calibrate import Calibration, Histogram, PairSample, TopLabels, fit_multiclass, no_calibration
from smoothlink.steps.reference import Reference, count, fit_by_size, no_correction
from smoothlink.steps.squared import softmax_rows
from smoothlink.steps.thresholds import HALF, Aim, choose_thresholds

Array = NDArray[Any]

SCORED_PAIRS = 20_000_000  # of held-out rows and labels: enough to tell settings apart
CALIBRATION_ROWS = 20_000  # held-out rows that calibrate
PAIRS_AT_A_TIME = 1 << 18  # scores that are binned together
SCORED_AT_A_TIME = 1 << 20  # scores of one product: of few labels it is slow
KEPT_SCORES = 160_000_000  # of held-out rows and labels: at most 640 MB (decision 52 says what peaks became)
HALF_AIM = Aim()


class HeldOut(NamedTuple):
    """Held-out rows, scored by a model that was fitted without them."""

    scores: Callable[[slice, int], Array]  # (labels, count) -> scores (count, m) of the first rows
    Y: sp.csr_array  # (h, c)
    w: Array  # (h,) float64
    embedded: Any = None  # h (h, k) of the rows; None where they have none
    sizes: Array | None = None  # (h,) how many features each row has; None where that is not at hand
    frequencies: Array | None = None  # (c,) of the labels, in the rows that were fitted; None: those of all rows


class Calibrated(NamedTuple):
    """What held-out rows say of scores."""

    calibration: Calibration
    thresholds: Array  # (c,) for a high F1 of each label
    threshold: float | None = HALF  # of all labels, by the aim; None: `thresholds`
    reached: dict[str, Any] | None = None  # the aim and what it gives on held-out rows, as `summary_` has it
    criterion: float = float("inf")  # smaller is better; inf where nothing was held out
    rows: int = 0  # held out
    metrics: dict[str, float] | None = None  # P@k and micro-F1; None where nothing was held out
    reference: Reference | None = None  # what the held-out rows were like; None where there are none


def not_calibrated(c: int) -> Calibrated:
    return Calibrated(no_calibration(), np.full(c, 0.5))


def rows_scored(c: int) -> int:
    """Returns how many held-out rows tell settings apart where there are c labels."""
    return max(100, SCORED_PAIRS // c)


def criterion(held: Sequence[HeldOut], loss: str, *, multiclass: bool) -> tuple[float, Calibration]:
    """Returns what "auto" minimises, and the calibration that it implies.

    Multilabel: the Brier score after monotone calibration. Multiclass: the log-loss after one map of all classes, of
    rows that have exactly one label.
    """
    if multiclass:
        return fit_multiclass(*one_label_rows(held), loss=loss)
    histogram = Histogram(loss)
    for part in held:
        add_scores(histogram, part, rows_scored(part.Y.shape[1]))
    return histogram.brier(), histogram.monotone()


def one_label_rows(held: Sequence[HeldOut]) -> tuple[Array, Array, Array]:
    """Returns scores, classes and weights of held-out rows that have exactly one label."""
    scores, labels, weights = [], [], []
    for part in held:
        c = part.Y.shape[1]
        single = np.flatnonzero(np.diff(part.Y.indptr) == 1)[: rows_scored(c)]
        last = int(single[-1]) + 1 if len(single) else 0
        scores.append(part.scores(slice(0, c), last)[single])
        labels.append(part.Y.indices[part.Y.indptr[single]])
        weights.append(part.w[single])
    return np.concatenate(scores), np.concatenate(labels), np.concatenate(weights)


def add_scores(histogram: Histogram, part: HeldOut, rows: int) -> None:
    """Adds the scores of the first held-out rows, a block of labels at a time."""
    rows = min(rows, len(part.w))
    by_label = sp.csc_array(row_range(part.Y, slice(rows)))
    for labels in label_blocks(part.Y.shape[1], max(1, PAIRS_AT_A_TIME // max(1, rows))):
        histogram.add(part.scores(labels, rows), by_label[:, labels].tocsr(), part.w[:rows])


def label_blocks(c: int, size: int) -> Iterator[slice]:
    yield from (slice(start, min(c, start + size)) for start in range(0, c, size))


def calibrate(
    held: Sequence[HeldOut],
    frequencies: Array,
    loss: str,
    *,
    multiclass: bool,
    aim: Aim = HALF_AIM,
    maps: bool = True,
    own_maps: bool = True,
    most_kept: int = KEPT_SCORES,
) -> Calibrated:
    """Returns the calibration and the thresholds that held-out rows give; `frequencies` (c,) are the labels'.

    Without `maps` scores stay as they are, and only thresholds are fitted; without `own_maps` labels share one.
    All goes by blocks of labels, but the softmax couples labels, so there they are one block. Scores are used three
    times, and log-odds twice; they are computed once where there are no more than `most_kept`.
    """
    c = len(frequencies)
    most = rows_scored(c) if multiclass else max(CALIBRATION_ROWS, rows_scored(c))
    weights = np.concatenate([part.w[:most] for part in held])
    whole = sp.vstack([row_range(part.Y, slice(most)) for part in held], format="csr")
    Y, n, top, ranking = sp.csc_array(whole), len(weights), TopLabels(len(weights)), HeldOutRanking(len(weights), c)

    binned = max(1, PAIRS_AT_A_TIME // max(1, n))
    scored = c if multiclass else max(binned, SCORED_AT_A_TIME // max(1, n))  # labels of one block
    kept: dict[int, Array] = {}  # scores (n, m) by the first label of their block

    def blocks(width: int = scored) -> Iterator[tuple[slice, Array, sp.csr_array]]:
        """Yields labels, the scores of all held-out rows, and the truth, so many labels of a block at a time."""
        for block in label_blocks(c, scored):
            scores = kept.get(block.start)
            if scores is None:
                scores = np.concatenate([part.scores(block, min(most, len(part.w))) for part in held])
                if n * c <= most_kept:
                    kept[block.start] = scores
            for labels in label_blocks(block.stop - block.start, width):
                among = slice(block.start + labels.start, block.start + labels.stop)
                yield among, np.ascontiguousarray(scores[:, labels]), Y[:, among].tocsr()

    if multiclass:
        value, calibration = fit_multiclass(*one_label_rows(held), frequencies, loss=loss)
    else:
        fitted = np.stack([frequencies if part.frequencies is None else part.frequencies for part in held])
        folds = np.repeat(np.arange(len(held)), [min(most, len(part.w)) for part in held])
        sample, histogram = PairSample(n * c, frequencies, fitted, folds), Histogram(loss)
        for labels, S, true in blocks(binned):
            histogram.add(S, true, weights)
            sample.add(labels, S, true, weights)
        all_scored = max(len(part.w) for part in held) <= rows_scored(c)
        value = histogram.brier() if all_scored else criterion(held, loss, multiclass=False)[0]
        calibration = sample.fit(histogram.monotone(), loss=loss) if own_maps else histogram.monotone()
    calibration = calibration if maps else no_calibration()
    mapped: set[int] = set()  # blocks whose log-odds are kept in place of their scores

    def log_odds() -> Iterator[tuple[slice, Array, sp.csr_array]]:
        """Yields labels, what all held-out rows rank them by, and the truth."""
        for labels, S, true in blocks():
            if labels.start not in mapped:
                S = calibration.log_odds(S, labels, loss=loss)
                if labels.start in kept:
                    kept[labels.start] = S
                    mapped.add(labels.start)
            yield labels, S, true

    for _, S, true in log_odds():
        top.add(S, true)
        ranking.add(S)
    if maps and not multiclass:
        calibration = top.recalibrate(calibration, weights, loss=loss)

    likeliest, means = np.zeros(n, np.float32), np.zeros(c, np.float32)

    def probabilities() -> Iterator[tuple[slice, Array, sp.csr_array]]:
        """Yields labels, the probabilities of all held-out rows as `predict_proba` returns them, and the truth; takes
        note of the highest of each row and of the mean of each label."""
        for labels, P, true in all_probabilities():
            np.maximum(likeliest, P.max(axis=1, initial=0), out=likeliest)
            means[labels] = weights @ P / max(weights.sum(), 1e-300)
            yield labels, P, true

    def all_probabilities() -> Iterator[tuple[slice, Array, sp.csr_array]]:
        for labels, S, true in log_odds():
            if multiclass:
                yield labels, softmax_rows(S * np.float32(calibration.temperature)), true
                continue
            P = calibration.probabilities(S, loss=loss)
            if calibration.recalibrates_top1:
                rows = np.flatnonzero((top.labels >= labels.start) & (top.labels < labels.stop))
                at = rows, top.labels[rows] - labels.start
                P[at] = calibration.recalibrate_top1(P[at])
            yield labels, P, true

    found = choose_thresholds(probabilities, frequencies, weights, aim)
    metrics = ranking.precisions(whole, weights)
    if metrics is not None and not multiclass:  # there it is P@1
        metrics["micro_f1"] = float(found.reached["f1"])
    reference = None
    if metrics is not None:
        lengths = [row_lengths(part.embedded[:most]) for part in held if part.embedded is not None]
        sizes = [part.sizes[:most] for part in held if part.sizes is not None]
        reference = Reference(
            count("top", likeliest, weights),
            count("frequency", frequencies[top.labels], weights),
            count("length", np.concatenate(lengths), weights) if lengths else None,
            means,
            fit_by_size(likeliest, np.concatenate(sizes), top.hits, weights) if sizes else no_correction(),
            float(weights @ likeliest / weights.sum()),
            metrics["p@1"],
            metrics.get("micro_f1", metrics["p@1"]),
        )
    return Calibrated(calibration, *found, value, sum(len(part.w) for part in held), metrics, reference)


def row_sizes(rows: Rows, numbers: Array) -> Array | None:
    """Returns how many features (m,) some rows have; None where they are dense, or not all in this memory."""
    if not rows.in_memory or not all(hasattr(block.X, "csr") for block in rows.blocks):
        return None
    return np.concatenate([np.diff(block.X.csr.indptr) for block in rows.blocks])[numbers] - 1  # the intercept


def row_lengths(H: Any) -> Array:
    """Returns the length (n,) of each embedded row."""
    return np.sqrt(np.einsum("ij,ij->i", H := np.asarray(to_host(H), np.float64), H))


def calibrate_model(
    model: Model,
    rows: Any,
    Y: sp.csr_array,
    w: Array,
    aim: Aim,
    sizes: Array | None = None,
    most_kept: int = KEPT_SCORES,
) -> Calibrated:
    """Returns the calibration that held-out rows, embedded by a model that was fitted without them, give it; sizes:
    how many features each has, where that is at hand."""
    frequencies = np.clip(model.counts / max(model.total, 1e-300), 0, 1)
    model = replace(model, counts=np.maximum(model.counts, 1))  # labels without training rows score as the others here
    inputs = model.featurize(rows)

    def scores(labels: slice, count: int) -> Array:
        X = None if inputs.X is None else row_range(inputs.X, slice(count))
        part = DecoderInputs(inputs.Phi[:count], inputs.without_features[:count], X)
        return to_host(model.score(part, labels))

    part = HeldOut(scores, Y, w, rows.H if isinstance(rows, EmbeddedRows) else rows, sizes)
    return calibrate([part], frequencies, model.loss, multiclass=model.multiclass, aim=aim, most_kept=most_kept)
