"""Probabilities against truth: how often a label predicted with probability p is true, and what thresholds give."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from smoothlink.metrics.bootstrap import divide

Array = NDArray[Any]

EQUAL_MASS_BINS = 15
FINE = 4000  # bins of probability that pairs are counted in: so that no pair is stored
COUNTED_FROM = 0.01  # pairs of less probability are not counted: nearly all pairs are such
PAIRS_FROM = 0.05  # probability from which on the calibration error of pairs counts them


class Reliability(NamedTuple):
    """Bins of about equal mass, the empty ones left out."""

    predicted: Array  # (m,) mean probability
    true: Array  # (m,) share that is true
    mass: Array  # (m,) cases

    @property
    def error(self) -> float:
        """Returns the expected calibration error: the mean over bins of |predicted - true|, weighted by their mass."""
        return float(np.abs(self.predicted - self.true) @ self.mass / max(1.0, self.mass.sum()))


class ThresholdCurve(NamedTuple):
    """Precision and recall of predicting all labels of probability p or more, for each p."""

    thresholds: Array  # (t,) ascending
    precision: Array
    recall: Array
    f1: Array  # of all pairs (micro)
    labels_per_row: Array

    @property
    def best(self) -> int:
        """Returns which threshold has the highest F1."""
        return int(np.argmax(self.f1))


def equal_mass_bins(probability: Array, bins: int = EQUAL_MASS_BINS) -> Array:
    """Returns bin ids (n,) of about equal mass. Equal probabilities fall in one bin, so bins may be fewer."""
    inner = np.quantile(probability, np.arange(1, bins) / bins, method="inverted_cdf")
    return np.searchsorted(inner, probability)


def reliability(probability: Array, correct: Array, bins: int = EQUAL_MASS_BINS) -> Reliability:
    """Returns the probabilities of n cases against whether they are true."""
    at = equal_mass_bins(probability, bins)
    return averaged(*(np.bincount(at, weights, bins) for weights in (np.ones(len(at)), probability, correct)))


def averaged(mass: Array, predicted: Array, true: Array) -> Reliability:
    """Returns the means of sums over bins, of those that are not empty."""
    full = mass > 0
    return Reliability(predicted[full] / mass[full], true[full] / mass[full], mass[full])


class PairCounts:
    """All (row, label) pairs in fine bins of their probability, added a block of labels at a time."""

    def __init__(self, n_labels: int) -> None:
        self.count, self.predicted, self.true = np.zeros(FINE), np.zeros(FINE), np.zeros(FINE)
        self.expected = np.zeros(n_labels)  # sums of the probabilities of each label
        self.spread = np.zeros(n_labels)  # of p (1 - p): the variance of its count if they are right

    def add(self, labels: slice, P: Array, Y: csr_array) -> None:
        """Adds the probabilities P (n, m) of some labels, whose truth is Y (n, m)."""
        self.expected[labels] = P.sum(axis=0, dtype=np.float64)
        self.spread[labels] = self.expected[labels] - np.einsum("ij,ij->j", P, P, dtype=np.float64)
        self._count(P[np.float32(COUNTED_FROM) <= P], P[np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), Y.indices])

    def move(self, labels: Array, before: Array, after: Array, true: Array) -> None:
        """Changes the probability of one label (n,) of each row after it was added."""
        for sign, p in ((-1, before), (1, after)):
            self.expected += sign * np.bincount(labels, p, len(self.expected))
            self.spread += sign * np.bincount(labels, p * (1 - p), len(self.spread))
            self._count(p, p[true], sign)

    def _count(self, p: Array, hits: Array, sign: int = 1) -> None:
        """Counts pairs of these probabilities, and among them those that are true."""
        p, hits = (P[np.float32(COUNTED_FROM) <= P].astype(np.float64) for P in (p, hits))
        at, true_at = (np.minimum((P * FINE).astype(np.int64), FINE - 1) for P in (p, hits))
        self.count += sign * np.bincount(at, minlength=FINE)
        self.predicted += sign * np.bincount(at, p, FINE)
        self.true += sign * np.bincount(true_at, minlength=FINE)

    def reliability(self, least: float = PAIRS_FROM, bins: int = EQUAL_MASS_BINS) -> Reliability:
        """Returns the reliability of pairs of at least this probability; bins end at multiples of 1 / FINE."""
        first = round(least * FINE)
        count, predicted, true = (sums[first:] for sums in (self.count, self.predicted, self.true))
        if not count.sum():
            return Reliability(np.zeros(0), np.zeros(0), np.zeros(0))
        share = (np.cumsum(count) - count / 2) / count.sum()
        at = np.minimum((share * bins).astype(np.int64), bins - 1)
        return averaged(*(np.bincount(at, sums, bins) for sums in (count, predicted, true)))

    def threshold_curve(self, n: int, positives: float, step: float = 0.01) -> ThresholdCurve:
        """Returns precision and recall at each threshold, over n rows with so many true pairs in all."""
        at = np.arange(round(COUNTED_FROM / step), round(1 / step)) * step
        above, hits = (np.append(np.cumsum(sums[::-1])[::-1], 0) for sums in (self.count, self.true))
        places = np.round(at * FINE).astype(np.int64)
        chosen, right = above[places], hits[places]
        return ThresholdCurve(
            at,
            divide(right, chosen),
            right / max(positives, 1),
            divide(2 * right, chosen + positives),
            chosen / max(n, 1),
        )


def wilson(share: Array, count: Array, z: float = 1.645) -> tuple[Array, Array]:
    """Returns the 90 % interval of shares that were seen in `count` cases each."""
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return middle - reach, middle + reach
