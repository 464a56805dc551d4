"""Probabilities against truth: how often what is said with probability p is true, and what thresholds would give."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from smoothlink.metrics.bootstrap import divide

Array = NDArray[Any]

BINS = 15
FINE = 4000  # bins of probability that pairs are counted in: they never meet, and need not be kept
LEAST = 0.01  # pairs of less probability are not counted: nearly all pairs are such
WORTH_SAYING = 0.05  # probability from which on the calibration error of pairs counts them


class Reliability(NamedTuple):
    """Bins of about equal mass, the empty ones left out."""

    said: Array  # (m,) mean probability
    true: Array  # (m,) share that is true
    mass: Array  # (m,) cases

    @property
    def error(self) -> float:
        """The expected calibration error: the mean over bins of |said - true|, weighted by their mass."""
        return float(np.abs(self.said - self.true) @ self.mass / max(1.0, self.mass.sum()))


class Cuts(NamedTuple):
    """What predicting all labels of probability p or more would give, for each p."""

    thresholds: Array  # (t,) ascending
    precision: Array
    recall: Array
    f1: Array  # of all pairs (micro)
    a_row: Array  # labels a row

    @property
    def best(self) -> int:
        """Which of them has the highest F1."""
        return int(np.argmax(self.f1))


def equal_mass_bins(probability: Array, bins: int = BINS) -> Array:
    """Bin ids (n,) of about equal mass. Equal probabilities share a bin, so bins may be fewer."""
    inner = np.quantile(probability, np.arange(1, bins) / bins, method="inverted_cdf")
    return np.searchsorted(inner, probability)


def reliability(probability: Array, correct: Array, bins: int = BINS) -> Reliability:
    """What is said of n cases against whether it is true."""
    at = equal_mass_bins(probability, bins)
    return averaged(*(np.bincount(at, weights, bins) for weights in (np.ones(len(at)), probability, correct)))


def averaged(mass: Array, said: Array, true: Array) -> Reliability:
    """The means of sums over bins, of those that are not empty."""
    full = mass > 0
    return Reliability(said[full] / mass[full], true[full] / mass[full], mass[full])


class Pairs:
    """All (row, label) pairs in fine bins of their probability, while blocks of labels come by."""

    def __init__(self, n_labels: int) -> None:
        self.count, self.said, self.true = np.zeros(FINE), np.zeros(FINE), np.zeros(FINE)
        self.expected = np.zeros(n_labels)  # sums of the probabilities of each label
        self.spread = np.zeros(n_labels)  # of p (1 - p): the variance of its count if they are right

    def add(self, labels: slice, P: Array, Y: csr_array) -> None:
        """Probabilities P (n, m) of some labels, and the truth (n, m)."""
        self.expected[labels] = P.sum(axis=0, dtype=np.float64)
        self.spread[labels] = self.expected[labels] - np.einsum("ij,ij->j", P, P, dtype=np.float64)
        self._count(P[np.float32(LEAST) <= P], P[np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), Y.indices])

    def move(self, labels: Array, before: Array, after: Array, true: Array) -> None:
        """Of one label (n,) of each row, another probability than the one that was added."""
        for sign, p in ((-1, before), (1, after)):
            self.expected += sign * np.bincount(labels, p, len(self.expected))
            self.spread += sign * np.bincount(labels, p * (1 - p), len(self.spread))
            self._count(p, p[true], sign)

    def _count(self, p: Array, hits: Array, sign: int = 1) -> None:
        """Pairs of these probabilities, and among them those that are true."""
        p, hits = (P[np.float32(LEAST) <= P].astype(np.float64) for P in (p, hits))
        at, true_at = (np.minimum((P * FINE).astype(np.int64), FINE - 1) for P in (p, hits))
        self.count += sign * np.bincount(at, minlength=FINE)
        self.said += sign * np.bincount(at, p, FINE)
        self.true += sign * np.bincount(true_at, minlength=FINE)

    def reliability(self, least: float = WORTH_SAYING, bins: int = BINS) -> Reliability:
        """Of all pairs of at least this probability; the edges of the bins are multiples of 1 / FINE."""
        first = round(least * FINE)
        count, said, true = (sums[first:] for sums in (self.count, self.said, self.true))
        if not count.sum():
            return Reliability(np.zeros(0), np.zeros(0), np.zeros(0))
        share = (np.cumsum(count) - count / 2) / count.sum()
        at = np.minimum((share * bins).astype(np.int64), bins - 1)
        return averaged(*(np.bincount(at, sums, bins) for sums in (count, said, true)))

    def cuts(self, n: int, positives: float, step: float = 0.01) -> Cuts:
        """The trade-off over n rows with so many true pairs in all."""
        at = np.arange(round(LEAST / step), round(1 / step)) * step
        above, hits = (np.append(np.cumsum(sums[::-1])[::-1], 0) for sums in (self.count, self.true))
        places = np.round(at * FINE).astype(np.int64)
        chosen, right = above[places], hits[places]
        return Cuts(
            at,
            divide(right, chosen),
            right / max(positives, 1),
            divide(2 * right, chosen + positives),
            chosen / max(n, 1),
        )


def wilson(share: Array, count: Array, z: float = 1.645) -> tuple[Array, Array]:
    """The 90 % interval of shares that were seen in `count` cases each."""
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return middle - reach, middle + reach
