"""What the held-out rows of a fit were like, as counts in fixed bins: what new rows are compared with.

The bins are the same for every model. So the rank of a new row among the rows before it depends on these rows in a
symmetric way, whatever they are, which is what makes its p-value exact (drift.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BINS = 128  # of each statistic
SURE = 8.0  # log-odds of a top label at which its bins end, on either side


def bins_of_top(p: Array) -> Array:
    """Returns the bins (n,) of top probabilities, by their log-odds."""
    p = np.clip(np.asarray(p, np.float64), 1e-7, 1 - 1e-7)
    return cut((np.log(p / (1 - p)) + SURE) * (BINS / (2 * SURE)))


def bins_of_frequency(frequencies: Array) -> Array:
    """Returns the bins (n,) of the training frequencies of top labels: six each time that they halve."""
    return cut(-6 * np.log2(np.maximum(np.asarray(frequencies, np.float64), 1e-300)))


def bins_of_length(lengths: Array) -> Array:
    """Returns the bins (n,) of the lengths of h: eight each time that they double."""
    with np.errstate(invalid="ignore"):
        return cut(BINS / 2 + 8 * np.log2(np.maximum(np.nan_to_num(np.asarray(lengths, np.float64)), 1e-300)))


def bins_of_unknown(counts: Array) -> Array:
    """Returns the bins (n,) of the shares of unknown words, from their numbers and those of all words (n, 2)."""
    return cut((BINS - 1) * counts[:, 0] / np.maximum(counts[:, 1], 1))


BINNED: dict[str, Callable[[Array], Array]] = {
    "top": bins_of_top,
    "frequency": bins_of_frequency,
    "length": bins_of_length,
    "unknown": bins_of_unknown,
}


def cut(places: Array) -> Array:
    return np.clip(np.floor(places), 0, BINS - 1).astype(np.int64)


def count(statistic: str, values: Array, w: Array | None = None) -> Array:
    """Returns how many rows (BINS,) of weights w (n,) are in each bin of a statistic."""
    return np.bincount(BINNED[statistic](values), w, BINS).astype(np.float64)


class Reference(NamedTuple):
    """Held-out rows, scored by a model that was fitted without them."""

    top: Array  # (BINS,) rows by the probability of their top label
    frequency: Array  # (BINS,) rows by the training frequency of their top label
    length: Array | None  # (BINS,) rows by the length of h; None where the model has no embedding
    labels: Array  # (c,) float32, mean probability of each label
    expected_p1: float  # mean probability of the top label
    p1: float  # share of the rows whose top label is true; nan where nothing was measured
    f1: float  # micro-F1 of the label sets

    @property
    def rows(self) -> float:
        """Returns the total weight of the rows."""
        return float(self.top.sum())


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
