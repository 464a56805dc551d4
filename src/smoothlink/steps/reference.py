"""What the held-out rows of a fit were like, as counts in fixed bins: what new rows are compared with.

The bins are the same for every model. So the rank of a new row among the rows before it depends on these rows in a
symmetric way, whatever they are, which is what makes its p-value exact (drift.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BINS = 128  # of each statistic
SURE = 8.0  # log-odds of a top label at which its bins end, on either side


def bins_of_top(p: Array) -> Array:
    """Returns the bins (n,) of top probabilities, by their log-odds."""
    return bin_numbers((log_odds(p) + SURE) * (BINS / (2 * SURE)))


def bins_of_frequency(frequencies: Array) -> Array:
    """Returns the bins (n,) of the training frequencies of top labels: six each time that they halve."""
    return bin_numbers(-6 * np.log2(np.maximum(np.asarray(frequencies, np.float64), 1e-300)))


def bins_of_length(lengths: Array) -> Array:
    """Returns the bins (n,) of the lengths of h: eight each time that they double."""
    with np.errstate(invalid="ignore"):
        return bin_numbers(BINS / 2 + 8 * np.log2(np.maximum(np.nan_to_num(np.asarray(lengths, np.float64)), 1e-300)))


def bins_of_unknown(counts: Array) -> Array:
    """Returns the bins (n,) of the shares of unknown words, from their numbers and those of all words (n, 2)."""
    return bin_numbers((BINS - 1) * counts[:, 0] / np.maximum(counts[:, 1], 1))


BINNED: dict[str, Callable[[Array], Array]] = {
    "top": bins_of_top,
    "frequency": bins_of_frequency,
    "length": bins_of_length,
    "unknown": bins_of_unknown,
}


def bin_numbers(places: Array) -> Array:
    """Returns the numbers of the bins where places (n,) are, one bin per unit; the outer ones have what is beyond."""
    return np.clip(np.floor(places), 0, BINS - 1).astype(np.int64)


def count(statistic: str, values: Array, w: Array | None = None) -> Array:
    """Returns how many rows (BINS,) of weights w (n,) are in each bin of a statistic."""
    return np.bincount(BINNED[statistic](values), w, BINS).astype(np.float64)


def no_correction() -> Array:
    """Returns the numbers of `correct_by_size` that change nothing."""
    return np.array([0.0, 0.0])


def fit_by_size(p: Array, sizes: Array, hits: Array, w: Array) -> Array:
    """Returns the numbers (2,) of `correct_by_size`: the slope of a logistic regression of whether the top label of a
    row is true (n,) on the logarithm of how many features the row has (n,), beside the log-odds of its probability p
    (n,), and where it changes nothing, the mean.

    There is no intercept: the mean over all rows is the calibration's, and of a few hundred rows it is off by points.
    A prior worth a row or so keeps the slope at 0 where rows are few.
    """
    x = np.log1p(np.asarray(sizes, np.float64))
    mean, slope, offset = float(np.average(x, weights=w)), 0.0, log_odds(p)
    x -= mean
    for _ in range(30):
        q = 1 / (1 + np.exp(-(offset + slope * x)))
        step = (x @ (w * (q - hits)) + slope) / (x * x @ (w * q * (1 - q)) + 1)
        slope -= float(step)
        if abs(step) < 1e-8:
            break
    return np.array([mean, slope]) if np.isfinite(slope) else no_correction()


def correct_by_size(numbers: Array, p: Array, sizes: Array) -> Array:
    """Returns the probabilities (n,) of top labels, given also how many features their rows have (n,).

    The few features of a short text may all speak for one label, and its probability does not say how few they are.
    """
    mean, slope = numbers
    return np.asarray(1 / (1 + np.exp(-(log_odds(p) + slope * (np.log1p(sizes) - mean)))))


def log_odds(p: Array) -> Array:
    p = np.clip(np.asarray(p, np.float64), 1e-7, 1 - 1e-7)
    return np.asarray(np.log(p / (1 - p)))


class Reference(NamedTuple):
    """Held-out rows, scored by a model that was fitted without them."""

    top: Array  # (BINS,) rows by the probability of their top label
    frequency: Array  # (BINS,) rows by the training frequency of their top label
    length: Array | None  # (BINS,) rows by the length of h; None where the model has no embedding
    labels: Array  # (c,) float32, mean probability of each label
    by_size: Array  # (2,) of `correct_by_size`
    expected_p1: float  # mean probability of the top label
    p1: float  # share of the rows whose top label is true; nan where nothing was measured
    f1: float  # micro-F1 of the label sets

    @property
    def arrays(self) -> dict[str, Array]:
        """Returns the arrays, by the names that they have in a file."""
        names = ("top", "frequency", "length", "labels", "by_size")
        return {f"reference_{name}": value for name in names if (value := getattr(self, name)) is not None}

    @property
    def numbers(self) -> list[float]:
        """Returns all that is not an array."""
        return [self.expected_p1, self.p1, self.f1]

    @property
    def rows(self) -> float:
        """Returns the total weight of the rows."""
        return float(self.top.sum())


def reference_of(arrays: Mapping[str, Array], numbers: list[float] | None) -> Reference | None:
    """Returns the reference of what `Reference.arrays` and `Reference.numbers` returned; None where that is None."""
    if numbers is None:
        return None
    top, frequency, labels, by_size = (
        arrays[f"reference_{name}"] for name in ("top", "frequency", "labels", "by_size")
    )
    return Reference(top, frequency, arrays.get("reference_length"), labels, by_size, *numbers)


class UnknownWords(NamedTuple):
    """How many words of a text the vocabulary of the other training texts lacks: the leave-one-out form of Good and
    Turing's estimate, since every training text has been seen."""

    texts: Array  # (BINS,) sampled training texts by their share of unknown words
    words: Array  # (2,) float64, unknown words and all words of these texts

    @classmethod
    def of(cls, counts: Array) -> UnknownWords:
        """Returns the same of numbers of unknown words and of all words (n, 2)."""
        return cls(count("unknown", counts), counts.sum(axis=0).astype(np.float64))

    @property
    def share(self) -> float:
        """Returns the share of unknown words."""
        return float(self.words[0] / max(self.words[1], 1))
