"""Which n-grams suit texts: single words, pairs of words and characters, by ridge regression on held-out texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.choose import Point, climb, validated_labels
from smoothlink.machines.arrays import cholesky, cholesky_solve
from smoothlink.steps.calibrate import Histogram

Array = NDArray[Any]
Span = tuple[int, int]
Rows = tuple[sp.csr_array, sp.csr_array]  # features of the texts that are fitted, and of those held out

MOST_TEXTS = 20_000  # of more a sample would be too small a part: with few texts characters gain most
SAMPLED_TEXTS, SAMPLED_CHARACTERS, FEWEST_TEXTS = 3000, 2_000_000, 600
HELD_SHARE = 1 / 3
CHAR_SHARES = (0.5, 0.75)  # of the squared length of a row, where there are words and characters
RIDGES = tuple(10.0 ** (e / 2) for e in range(-3, 4))  # of unit rows: 0.03 .. 32
SHORT_TEXT = 250  # characters of the median text
# What pairs and characters must add to the Brier score that is predicted at all, since they cost time. Characters are
# most of the entries of long texts, and there the link gains less by them than a ridge does (docs/text.md).
GAIN, LONG_GAIN = 0.01, 0.05


class Ngrams(NamedTuple):
    """Lengths of the n-grams of each kind, and the part that characters have in a row."""

    words: Span | None
    characters: Span | None
    char_share: float = 0.5  # of its squared length, where it has both


def choose_ngrams(
    texts: Sequence[str],
    Y: sp.csr_array,
    vectorize: Callable[[Ngrams, list[str], list[str]], Rows],
    words: Sequence[Span],
    characters: Sequence[Span | None],
) -> Ngrams | None:
    """Returns the n-grams by which held-out texts are predicted best, or fewer that come close; None: too few texts.

    `vectorize` returns the features of texts, and of others by the same vocabulary: new texts have words that no
    training text has, and single words suffer most from that.
    """
    sample = distinct_sample(texts)
    held = int(HELD_SHARE * len(sample))
    if len(texts) > MOST_TEXTS or len(sample) < FEWEST_TEXTS:
        return None
    fitted, others = np.sort(sample[held:]), np.sort(sample[:held])
    labels = validated_labels(np.bincount(Y[fitted].indices, minlength=Y.shape[1]))
    trial = Trial(sp.csr_array(Y[fitted][:, labels]), sp.csr_array(Y[others][:, labels]))
    parts = [texts[i] for i in fitted], [texts[i] for i in others]
    kernels = {
        ngrams: kernel(*vectorize(ngrams, *parts))
        for ngrams in [*(Ngrams(w, None) for w in words), *(Ngrams(None, c) for c in characters if c is not None)]
    }
    losses: dict[Ngrams, float] = {}
    ridge = 1.0  # where the climb begins: the best one of the kernel before
    for c in characters:
        for w in words:
            for share in CHAR_SHARES if c is not None else (0.0,):
                mixed = [(1 - share) * K for K in kernels[Ngrams(w, None)]]
                if c is not None:
                    mixed = [K + share * C for K, C in zip(mixed, kernels[Ngrams(None, c)], strict=True)]
                losses[Ngrams(w, c, share)], ridge = trial.loss(mixed, ridge)
    least = min(losses.values())
    predicted = max(0.0, trial.without_features() - least)
    long = np.median([len(texts[i]) for i in sample]) >= SHORT_TEXT
    handicaps = {ngrams: GAIN * (ngrams.words != words[0]) for ngrams in losses}
    handicaps |= {ngrams: handicaps[ngrams] + (LONG_GAIN if long else GAIN) for ngrams in losses if ngrams.characters}
    return min(losses, key=lambda ngrams: losses[ngrams] + handicaps[ngrams] * predicted)


def distinct_sample(texts: Sequence[str]) -> Array:
    """Returns the numbers of some texts in random order, of those that are nearly the same one."""
    from smoothlink.text.near_duplicates import find_near_duplicates

    order = np.random.default_rng(0).permutation(len(texts))[:SAMPLED_TEXTS]
    order = order[np.cumsum([len(texts[i]) for i in order]) <= SAMPLED_CHARACTERS]
    if not len(order):
        return order
    _, first = np.unique(find_near_duplicates([texts[i] for i in order]).group, return_index=True)
    return np.asarray(order[np.sort(first)])


def kernel(fitted: sp.csr_array, held: sp.csr_array) -> tuple[Array, Array]:
    """Returns the products of the rows that are fitted with themselves, and of those held out with them."""
    return (fitted @ fitted.T).toarray(), (held @ fitted.T).toarray()


def smoother(K: Array, C: Array, ridge: float) -> Array:
    """Returns L (h, n): L Y are the scores that a ridge regression with an intercept gives held-out rows."""
    K = K.copy()
    K[np.diag_indices(len(K))] += ridge
    Z = cholesky_solve(cholesky(K), np.asfortranarray(np.vstack([C, np.ones(len(K), C.dtype)]).T))
    L, m = Z[:, :-1].T, Z[:, -1]
    L += np.outer((1 - L.sum(axis=1)) / m.sum(), m)  # the intercept is not penalised
    return np.asarray(L)


class Trial(NamedTuple):
    """The labels of the texts that are fitted, and of those held out."""

    fitted: sp.csr_array
    held: sp.csr_array

    def loss(self, kernels: Sequence[Array], near: float) -> tuple[float, float]:
        """Returns the least calibrated Brier score over ridges, of kernels K (n, n) and C (h, n), and its ridge."""
        K, C = kernels

        def brier(point: Point) -> float:
            return self.brier((self.fitted.T @ smoother(K, C, float(point[0])).T).T)

        best = climb(brier, [RIDGES], (near,))
        return best.loss, float(best.point[0])

    def without_features(self) -> float:
        """Returns the Brier score of the label frequencies."""
        return self.brier(np.tile(self.fitted.mean(axis=0), (self.held.shape[0], 1)))

    def brier(self, scores: Array) -> float:
        histogram = Histogram("squared")
        histogram.add(scores, self.held, np.ones(len(scores)))
        return histogram.brier()
