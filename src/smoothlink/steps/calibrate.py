"""scores -> probabilities: a monotone map fitted on held-out rows and stored with the model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.arrays import sigmoid

Array = NDArray[Any]

LINEAR_SCORES = 1e-4  # of the squared loss: up to this size bins are linear, and beyond it logarithmic
LARGEST_LOGIT = 40.0
HISTOGRAM_BINS = 1024
LEAST_PROBABILITY = 1e-7  # of the log-loss
FEW_SCORES = 256  # that NumPy maps faster than a kernel is loaded


class Calibration(NamedTuple):
    """p = interpolated(knots) of each score (multilabel); multiclass models have softmax(temperature * scores).

    The top label of a row is true more often than others of the same score: most rows have a label at least, and it
    is the likeliest. So its log-odds x become a + b x, where that is more: top-1 recalibration. (bibtex: top labels of
    mean probability 0.631 are true in 0.662 of the rows, and no map of single scores can correct that.)
    """

    knots: Array  # (m,) stretched scores, ascending; empty where the map is sigmoid, clip or softmax
    values: Array  # (m,) their probabilities
    temperature: float = 1.0
    top1: tuple[float, float] = (0.0, 1.0)  # a, b of the top-1 recalibration (multilabel)

    @property
    def recalibrates_top1(self) -> bool:
        """Returns whether the top label of a row has a map of its own."""
        return self.top1 != (0.0, 1.0)

    def recalibrate_top1(self, p: Array) -> Array:
        """Returns the probabilities of top labels, from p, those of any label of their scores."""
        a, b = self.top1
        q = np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY).astype(np.float64)
        return np.maximum(p, sigmoid(a + b * np.log(q / (1 - q)))).astype(np.float32)

    def probabilities(self, scores: Array, *, loss: str) -> Array:
        """Returns multilabel probabilities of scores of any shape."""
        if len(self.knots) and np.size(scores) < FEW_SCORES:
            wide = stretch(np.asarray(scores, np.float64), loss)
            return np.interp(wide, self.knots, self.values).astype(np.float32)
        if len(self.knots):
            from smoothlink.machines.prediction_kernels import interpolate

            return interpolate(scores, self.knots, self.values, LINEAR_SCORES if loss == "squared" else 0.0)
        if loss == "squared":
            return np.clip(scores, 0, 1)
        return sigmoid(np.array(scores, np.float32))


def no_calibration() -> Calibration:
    """Returns the sigmoid, or the clip of the squared loss."""
    return Calibration(np.zeros(0), np.zeros(0))


def stretch(scores: Array, loss: str) -> Array:
    """Returns scores on an axis where equal bins make sense: logits as they are, squared-loss scores symmetric-log."""
    if loss == "squared":
        return np.sign(scores) * np.log1p(np.abs(scores) / LINEAR_SCORES)
    return np.clip(scores, -LARGEST_LOGIT, LARGEST_LOGIT)


class Histogram:
    """Weighted counts of (score, positive) pairs in fine bins, added block by block: all pairs never are in memory."""

    def __init__(self, loss: str) -> None:
        self.loss = loss
        reach = float(stretch(np.array(10.0), loss)) if loss == "squared" else LARGEST_LOGIT
        self.edges = np.linspace(-reach, reach, HISTOGRAM_BINS + 1)
        self.pairs, self.positives, self.places = (np.zeros(HISTOGRAM_BINS) for _ in range(3))
        self.count = 0  # pairs of positive weight

    def add(self, scores: Array, Y: sp.csr_array, w: Array) -> None:
        """Adds a block: scores (b, c), labels (b, c), weights (b,)."""
        t = stretch(scores, self.loss).ravel()
        width = self.edges[1] - self.edges[0]
        where = np.clip(((t - self.edges[0]) / width).astype(np.int64), 0, HISTOGRAM_BINS - 1)
        weights = np.repeat(w, scores.shape[1])
        self.count += int(np.count_nonzero(weights))
        self.pairs += np.bincount(where, weights, HISTOGRAM_BINS)
        self.places += np.bincount(where, weights * t, HISTOGRAM_BINS)
        rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        hit = where.reshape(scores.shape)[rows, Y.indices]
        self.positives += np.bincount(hit, np.repeat(w, np.diff(Y.indptr)), HISTOGRAM_BINS)

    def monotone(self) -> Calibration:
        """Returns isotonic regression of the bins (pool adjacent violators), interpolated between block centres."""
        full, block = self._pooled()
        if not len(full):
            return no_calibration()
        n, hits, place = (np.bincount(block, v[full]) for v in (self.pairs, self.positives, self.places))
        # One pseudo-pair of mean weight at the overall rate keeps every probability inside (0, 1).
        one = n.sum() / self.count
        rate = np.clip(hits.sum() / n.sum(), 1e-9, 1 - 1e-9)
        centres, values = place / n, np.maximum.accumulate((hits + one * rate) / (n + one))
        if len(centres) == 1:
            return Calibration(centres, values)
        # The outer blocks are wide, and flat up to their inner ends: where labels are separable there are no others,
        # and on a ramp from centre to centre a score of 0.05 would be more likely than not.
        bins = self.places[full] / self.pairs[full]
        ends = bins[block == 0][-1:], bins[block == block[-1]][:1]
        knots = np.concatenate([centres[:1], ends[0], centres[1:-1], ends[1], centres[-1:]])
        return Calibration(knots, np.repeat(values, [2, *[1] * (len(values) - 2), 2]))

    def brier(self) -> float:
        """Returns the sum over pairs of (y - p)^2 with p the isotonic fit: monotone changes of scores do not matter.

        Of the criteria tried for "auto", this one agrees best with P@k, Hamming loss and F1 on test rows.
        """
        full, block = self._pooled()
        n, hits = (np.bincount(block, v[full]) for v in (self.pairs, self.positives))
        return float(np.sum(hits * (1 - hits / n)))

    def _pooled(self) -> tuple[Array, Array]:
        """Returns the bins in use and the isotonic block that each belongs to."""
        from sklearn.isotonic import isotonic_regression

        full = np.flatnonzero(self.pairs > 0)
        if not len(full):
            return full, full
        fitted = isotonic_regression(self.positives[full] / self.pairs[full], sample_weight=self.pairs[full])
        return full, np.concatenate([[0], np.cumsum(np.diff(fitted) > 0)]).astype(np.int64)


class TopLabels:
    """The top label of each of n held-out rows, found block by block of labels: its score, and whether it is true."""

    def __init__(self, n: int) -> None:
        self.scores, self.hits = np.full(n, -np.inf, np.float32), np.zeros(n, bool)
        self.labels, self.added = np.zeros(n, np.int64), 0

    def add(self, scores: Array, Y: sp.csr_array) -> None:
        """Adds scores (n, m) and labels (n, m) of the next block."""
        if not scores.shape[1]:
            return
        best = scores.argmax(axis=1)
        found = scores[np.arange(len(best)), best]
        rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        hits = np.bincount(rows, Y.indices == best[rows], Y.shape[0]) > 0
        better = found > self.scores
        self.scores[better], self.hits[better] = found[better], hits[better]
        self.labels[better] = self.added + best[better]
        self.added += scores.shape[1]

    def recalibrate(self, calibration: Calibration, w: Array, *, loss: str) -> Calibration:
        """Returns the calibration with top-1 recalibration: a logistic regression on the log-odds of top labels.

        A prior worth a row or so keeps (a, b) at (0, 1) where rows are few.
        """
        p = np.clip(
            calibration.probabilities(self.scores[:, None], loss=loss)[:, 0], LEAST_PROBABILITY, 1 - LEAST_PROBABILITY
        )
        p = p.astype(np.float64)
        A = np.column_stack([np.ones(len(p)), np.log(p / (1 - p))])
        theta = np.array([0.0, 1.0])
        for _ in range(30):
            q = 1 / (1 + np.exp(-(A @ theta)))
            gradient = A.T @ (w * (q - self.hits)) + theta - (0.0, 1.0)
            step = np.linalg.solve((A.T * (w * q * (1 - q))) @ A + np.eye(2), gradient)
            theta -= step
            if np.abs(step).max() < 1e-8:
                break
        a, b = theta.tolist()
        fine = bool(np.isfinite(theta).all()) and b > 0
        return calibration._replace(top1=(a, b)) if fine else calibration


def fit_temperature(scores: Array, labels: Array, w: Array) -> tuple[float, Calibration]:
    """Returns the least log-loss of softmax(t * scores) on held-out rows of one label each, and the t that gives it."""
    if not len(labels):
        return float("inf"), no_calibration()
    from scipy.optimize import minimize_scalar

    def logloss(log_t: float) -> float:
        Z = scores.astype(np.float64) * np.exp(log_t)
        Z -= Z.max(axis=1, keepdims=True)
        losses = np.log(np.exp(Z).sum(axis=1)) - Z[np.arange(len(Z)), labels]
        return float(w @ losses / w.sum())

    best = minimize_scalar(logloss, bounds=(-4, 6), method="bounded")
    return float(best.fun), Calibration(np.zeros(0), np.zeros(0), float(np.exp(best.x)))


def row_logloss(P: Array, Y: sp.csr_array, *, multiclass: bool) -> Array:
    """Returns the log-loss (b,) of each row: summed over labels, or -log p of the one label (tiny where unknown)."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    p = np.clip(P[rows, Y.indices], LEAST_PROBABILITY, 1 - LEAST_PROBABILITY).astype(np.float64)
    if multiclass:
        return np.where(np.diff(Y.indptr) > 0, -np.bincount(rows, np.log(p), Y.shape[0]), -np.log(LEAST_PROBABILITY))
    from smoothlink.machines.prediction_kernels import add_absent_losses

    losses = np.bincount(rows, np.log1p(-p) - np.log(p), Y.shape[0])
    add_absent_losses(np.ascontiguousarray(P), LEAST_PROBABILITY, losses)
    return losses
