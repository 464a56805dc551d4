"""scores -> probabilities: a monotone map fitted on held-out rows and stored with the model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.decoder_state import sigmoid

Array = NDArray[Any]

TINY = 1e-4  # scores of this size are where the bins turn from linear to logarithmic
BINS = 1024
LEAST = 1e-7  # probability that the log-loss reckons with
FEW = 256  # scores that NumPy maps faster than a kernel can be made ready


class Calibration(NamedTuple):
    """p = interpolated(knots) of each score (multilabel); multiclass models have softmax(temperature * scores).

    The best label of a row is true more often than others of the same score: most rows have a label at least, and it
    is the likeliest to be the one. So its log-odds x become a + b x, where that is more. (bibtex: best labels of mean
    probability 0.631 are true in 0.662 of the rows, and no map of single scores can mend it.)
    """

    knots: Array  # (m,) stretched scores, ascending; empty where the map is sigmoid, clip or softmax
    values: Array  # (m,) their probabilities
    temperature: float = 1.0
    top1: tuple[float, float] = (0.0, 1.0)  # a, b of the best label of a row (multilabel)

    @property
    def recalibrates_top1(self) -> bool:
        """Returns whether the best label of a row has a calibration of its own."""
        return self.top1 != (0.0, 1.0)

    def recalibrate_top1(self, p: Array) -> Array:
        """Returns the probabilities of best labels, which as one of all labels would have p."""
        a, b = self.top1
        q = np.clip(p, LEAST, 1 - LEAST).astype(np.float64)
        return np.maximum(p, sigmoid(a + b * np.log(q / (1 - q)))).astype(np.float32)

    def probabilities(self, scores: Array, *, loss: str) -> Array:
        """Multilabel probabilities of scores of any shape."""
        if len(self.knots) and np.size(scores) < FEW:
            wide = stretch(np.asarray(scores, np.float64), loss)
            return np.interp(wide, self.knots, self.values).astype(np.float32)
        if len(self.knots):
            from smoothlink.machines import prediction_kernels as selection

            return selection.interpolate(scores, self.knots, self.values, TINY if loss == "squared" else 0.0)
        if loss == "squared":
            return np.clip(scores, 0, 1)
        return sigmoid(np.array(scores, np.float32))


def no_calibration() -> Calibration:
    return Calibration(np.zeros(0), np.zeros(0))


def stretch(scores: Array, loss: str) -> Array:
    """Scores on an axis where equal bins make sense: logits as they are, squared-loss scores symmetric-log."""
    if loss == "squared":
        return np.sign(scores) * np.log1p(np.abs(scores) / TINY)
    return np.clip(scores, -40, 40)


class Histogram:
    """Weighted counts of (score, positive) pairs in fine bins: block after block, so that all pairs never meet."""

    def __init__(self, loss: str) -> None:
        self.loss = loss
        reach = float(stretch(np.array(10.0), loss)) if loss == "squared" else 40.0
        self.edges = np.linspace(-reach, reach, BINS + 1)
        self.pairs, self.positives, self.places = np.zeros(BINS), np.zeros(BINS), np.zeros(BINS)
        self.count = 0  # pairs of positive weight

    def add(self, scores: Array, Y: sp.csr_array, w: Array) -> None:
        """Adds a block: scores (b, c), labels (b, c), weights (b,)."""
        t = stretch(scores, self.loss).ravel()
        width = self.edges[1] - self.edges[0]
        where = np.clip(((t - self.edges[0]) / width).astype(np.int64), 0, BINS - 1)
        weights = np.repeat(w, scores.shape[1])
        self.count += int(np.count_nonzero(weights))
        self.pairs += np.bincount(where, weights, BINS)
        self.places += np.bincount(where, weights * t, BINS)
        rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        hit = where.reshape(scores.shape)[rows, Y.indices]
        self.positives += np.bincount(hit, np.repeat(w, np.diff(Y.indptr)), BINS)

    def monotone(self) -> Calibration:
        """Isotonic regression of the bins (pool adjacent violators), interpolated between block centres."""
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
        """The sum over pairs of (y - p)^2 with p the isotonic fit: what is lost when scale is forgiven.

        Of the criteria tried for "auto", this one agrees best with what test rows say of P@k, Hamming loss and F1.
        """
        full, block = self._pooled()
        n, hits = (np.bincount(block, v[full]) for v in (self.pairs, self.positives))
        return float(np.sum(hits * (1 - hits / n)))

    def _pooled(self) -> tuple[Array, Array]:
        """The bins in use and the isotonic block that each belongs to."""
        from sklearn.isotonic import isotonic_regression

        full = np.flatnonzero(self.pairs > 0)
        if not len(full):
            return full, full
        fitted = isotonic_regression(self.positives[full] / self.pairs[full], sample_weight=self.pairs[full])
        return full, np.concatenate([[0], np.cumsum(np.diff(fitted) > 0)]).astype(np.int64)


class TopLabels:
    """The best label of each of n held-out rows, while blocks of labels come: its score, and whether it is true."""

    def __init__(self, n: int) -> None:
        self.scores, self.hits = np.full(n, -np.inf, np.float32), np.zeros(n, bool)

    def add(self, scores: Array, Y: sp.csr_array) -> None:
        """Scores (n, m) and labels (n, m) of the next block."""
        if not scores.shape[1]:
            return
        best = scores.argmax(axis=1)
        found = scores[np.arange(len(best)), best]
        rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        hits = np.bincount(rows, Y.indices == best[rows], Y.shape[0]) > 0
        better = found > self.scores
        self.scores[better], self.hits[better] = found[better], hits[better]

    def recalibrate(self, calibration: Calibration, w: Array, *, loss: str) -> Calibration:
        """The calibration with what these rows say of best labels: a logistic regression on their log-odds.

        A prior worth a row or so keeps (a, b) at (0, 1) where rows are few.
        """
        p = np.clip(calibration.probabilities(self.scores[:, None], loss=loss)[:, 0], LEAST, 1 - LEAST)
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
    """The least log-loss of softmax(t * scores) on held-out rows of one label each, and the t that gives it."""
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
    """The log-loss (b,) of each row: summed over labels, or -log p of the one label (tiny where it is unknown)."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    p = np.clip(P[rows, Y.indices], LEAST, 1 - LEAST).astype(np.float64)
    if multiclass:
        return np.where(np.diff(Y.indptr) > 0, -np.bincount(rows, np.log(p), Y.shape[0]), -np.log(LEAST))
    from smoothlink.machines import prediction_kernels as selection

    losses = np.bincount(rows, np.log1p(-p) - np.log(p), Y.shape[0])
    selection.add_absent_losses(np.ascontiguousarray(P), LEAST, losses)
    return losses
