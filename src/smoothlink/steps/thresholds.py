"""Held-out probabilities and an aim -> thresholds, and what they reach on these rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from smoothlink.errors import DataError
from smoothlink.machines.arrays import sigmoid
from smoothlink.steps.infer import f1_thresholds, sets_at

Array = NDArray[Any]
Probabilities = Callable[[], Iterator[tuple[slice, Array, sp.csr_array]]]  # labels, P (n, m) and the truth (n, m)

HALF = float(np.nextafter(np.float32(0.5), np.float32(1)))  # the least probability above 1/2
LOG_ODDS = np.arange(-1380, 2761) * 0.005  # of the thresholds that are considered: 0.001 to 0.999999
PAIRS_AT_A_TIME = 1 << 18  # that are counted together
LEAST_PAIRS = 20  # predicted pairs below which their precision says nothing
COARSE = 20  # steps of LOG_ODDS between thresholds at which the F1 of each label is compared
BAND_LABELS, MOST_BANDS = 25, 8  # labels of like frequency that share a cut, at least; bands of them, at most
ALL_LABELS = 0.3  # of the labels of a band: how much the mean over all counts, to choose the cut of a band
SHARED_ROWS = 1.0  # expected held-out rows of a label at which its own cut and the shared one weigh the same
NEAR = 0.1  # of the labels per row: how far off they may be without a warning


class Aim(NamedTuple):
    """What thresholds are chosen for."""

    name: str = "half"  # or "f1", "precision", "recall", "labels"
    value: float = np.nan  # to reach, of the last three

    def __str__(self) -> str:
        return self.name if np.isnan(self.value) else f"{self.name}={self.value:g}"


class Thresholds(NamedTuple):
    """The thresholds of a model."""

    f1: Array  # (c,) for a high F1 of each label
    shared: float | None  # of all labels, by the aim; None: `f1`
    reached: dict[str, Any]  # the aim, and what it gives on held-out rows


class Reached(NamedTuple):
    """What thresholds give on held-out rows, over all pairs of a row and a label: numbers, or one per threshold."""

    precision: Any
    recall: Any
    f1: Any
    labels_per_row: Any

    @classmethod
    def of(cls, hits: Any, predicted: Any, true: Any, rows: float) -> Reached:
        """Returns what follows from (weighted) counts of pairs that are right, predicted and true."""
        return cls(ratio(hits, predicted), ratio(hits, true), ratio(2 * hits, predicted + true), ratio(predicted, rows))


class ChosenThreshold(NamedTuple):
    """The threshold of an aim."""

    value: float
    reached: Reached
    missed: str  # what is reached instead, where the aim is not


class ThresholdCounts:
    """Held-out pairs by probability, added a block of labels at a time, from which one threshold is chosen.

    Pairs of less than 0.001 are counted only where they are true: of very many labels most are such.
    """

    def __init__(self, bands: int = 1) -> None:
        self.edges = sigmoid(LOG_ODDS.copy()).astype(np.float32).astype(np.float64)  # as probabilities are rounded
        self.edges[LOG_ODDS == 0] = HALF
        self.pairs, self.hits = np.zeros((2, len(self.edges)))
        self.label_f1 = np.zeros((bands, len(self.edges[::COARSE])))  # summed over the labels of a band
        self.true = self.rows = 0.0

    def add(self, P: Array, Y: sp.csr_array, w: Array, bands: Array | None = None) -> None:
        """Adds probabilities (n, m) of some labels, whose truth is Y (n, m); weights are of rows (n,), bands of labels
        (m,)."""
        true, width = sp.csc_array(Y), max(1, PAIRS_AT_A_TIME // max(1, len(P)))
        bands = np.zeros(P.shape[1], np.int64) if bands is None else bands
        for start in range(0, P.shape[1], width):
            labels = slice(start, start + width)
            self._add_some(P[:, labels], true[:, labels].tocsr(), w, bands[labels])

    def _add_some(self, P: Array, Y: sp.csr_array, w: Array, bands: Array) -> None:
        likely = np.nonzero(np.float32(self.edges[0]) <= P)
        true = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), Y.indices
        hit = tuple(indices[P[true] >= np.float32(self.edges[0])] for indices in true)
        by_label = []
        for counts, (rows, labels) in ((self.pairs, likely), (self.hits, hit)):
            at = np.searchsorted(self.edges, P[rows, labels].astype(np.float64), side="right") - 1
            counts += np.bincount(at, w[rows], len(self.edges))
            shape = P.shape[1], self.label_f1.shape[1]
            found = np.bincount(labels * shape[1] + at // COARSE, w[rows], shape[0] * shape[1]).reshape(shape)
            by_label.append(np.cumsum(found[:, ::-1], axis=1)[:, ::-1])  # at each threshold or above
        rows_of_label = np.bincount(true[1], w[true[0]], P.shape[1])
        np.add.at(self.label_f1, bands, ratio(2 * by_label[1], by_label[0] + rows_of_label[:, None]))
        self.true, self.rows = self.true + float(rows_of_label.sum()), float(w.sum())

    @property
    def f1_cuts(self) -> Array:
        """Returns the thresholds, one for each band, that give the highest mean F1 over its labels; the mean over all
        labels counts as much as some labels of the band, which may have no held-out row."""
        curves = self.label_f1 + ALL_LABELS * self.label_f1.mean(axis=0)
        return np.asarray(self.edges[::COARSE][np.argmax(curves, axis=1)])

    def choose(self, aim: Aim) -> ChosenThreshold:
        """Returns one threshold for all labels, by its aim."""
        predicted, hits = (np.cumsum(counts[::-1])[::-1] for counts in (self.pairs, self.hits))
        curve, missed = Reached.of(hits, predicted, self.true, self.rows), ""
        at = int(np.flatnonzero(self.edges == HALF)[0])
        if aim.name == "precision":
            known = np.where(predicted >= min(LEAST_PAIRS, predicted[0]), curve.precision, 0)
            fine = np.flatnonzero(known >= aim.value)
            at = int(fine[0] if len(fine) else np.argmax(known))
            missed = "" if len(fine) else f"a precision of {known[at]:.3g}"
        elif aim.name == "recall":
            fine = np.flatnonzero(curve.recall >= aim.value)
            at = int(fine[-1] if len(fine) else 0)
            missed = "" if len(fine) else f"a recall of {curve.recall[at]:.3g}"
        elif aim.name == "labels":
            off = np.abs(curve.labels_per_row - aim.value)
            at = len(off) - 1 - int(np.argmin(off[::-1]))  # the highest of equally good ones
            missed = "" if off[at] <= NEAR * aim.value else f"{curve.labels_per_row[at]:.3g} labels per row"
        return ChosenThreshold(float(self.edges[at]), Reached(*(float(values[at]) for values in curve)), missed)


def choose_thresholds(probabilities: Probabilities, frequencies: Array, w: Array, aim: Aim) -> Thresholds:
    """Returns thresholds by their aim on held-out rows of weights w (n,), whose labels have these frequencies (c,)."""
    bands = frequency_bands(frequencies)
    counts, cuts = ThresholdCounts(int(bands.max(initial=0)) + 1), np.empty(len(frequencies))
    for labels, P, true in probabilities():
        counts.add(P, true, w, bands[labels])
        cuts[labels] = f1_thresholds(P, frequencies[labels], w)
    f1 = shrink(cuts, frequencies * w.sum(), counts.f1_cuts[bands])
    facts: dict[str, Any] = {"aim": str(aim), "rows": len(w), "threshold": None}
    if aim.name == "f1":
        return Thresholds(f1, None, facts | reached_by_label(probabilities, f1, w))
    found = counts.choose(aim)
    if found.missed:
        warnings.warn(
            f"aim is '{aim}', which no threshold reaches on {len(w):,} held-out rows. The nearest is {found.missed}, "
            f"at a threshold of {found.value:.3g}, which the model takes.",
            UserWarning,
            stacklevel=2,
        )
        facts["missed"] = found.missed
    return Thresholds(f1, found.value, facts | {"threshold": found.value} | found.reached._asdict())


def frequency_bands(frequencies: Array) -> Array:
    """Returns the band (c,) of each label, from the rarest on: bands have equally many labels."""
    bands = int(np.clip(len(frequencies) // BAND_LABELS, 1, MOST_BANDS))
    found = np.empty(len(frequencies), np.int64)
    found[np.argsort(frequencies, kind="stable")] = np.arange(len(frequencies)) * bands // max(1, len(frequencies))
    return found


def shrink(cuts: Array, expected: Array, shared: ArrayLike) -> Array:
    """Returns thresholds (c,): the geometric mean of the cut of each label, which weighs as many rows as are expected
    of it, and the one that labels of its band share. Of a rare label the cut is the largest probability seen, mostly by
    chance."""
    known = np.isfinite(cuts) & (cuts > 0)
    own, logs = np.where(known, expected, 0), np.log(np.where(known, cuts, 1))
    return np.exp((own * logs + SHARED_ROWS * np.log(shared)) / (own + SHARED_ROWS))


def reached_by_label(probabilities: Probabilities, thresholds: Array, w: Array) -> dict[str, float]:
    """Returns what a threshold for each label (c,) gives on held-out rows, and the mean F1 over labels."""
    hits, predicted, true = np.zeros((3, len(thresholds)))
    for labels, P, Y in probabilities():
        sets = sets_at(P, thresholds[labels])
        hits[labels], predicted[labels], true[labels] = (A.T @ w for A in (Y.multiply(sets), sets, Y))
    over_all = Reached.of(hits.sum(), predicted.sum(), true.sum(), float(w.sum()))
    found = {name: float(value) for name, value in over_all._asdict().items()}
    return found | {"macro_f1": float(ratio(2 * hits, predicted + true).mean())}


def ratio(top: ArrayLike, bottom: ArrayLike) -> Array:
    """Returns top / bottom, with 0/0 = 0."""
    top, bottom = np.broadcast_arrays(np.asarray(top, np.float64), bottom)
    return np.divide(top, bottom, out=np.zeros(top.shape), where=bottom != 0)


def threshold_array(threshold: Any, c: int) -> Array:
    """Returns a threshold (c,) for each label from one number or an array of them."""
    try:
        found = np.asarray(threshold, np.float64)
    except (TypeError, ValueError):
        found = np.full((), np.nan)
    if found.shape not in ((), (c,)) or not ((found >= 0) & ((found <= 1) | (found == np.inf))).all():
        given = repr(threshold) if found.ndim == 0 else f"an array of shape {found.shape}"
        raise DataError(
            f"threshold is {given}; possible are a number from 0 to 1, one for each of {c} labels, or None."
        )
    return np.broadcast_to(found, (c,))
