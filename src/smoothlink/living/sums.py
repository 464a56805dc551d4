"""The theorem: with the squared loss the decoder is two sums over rows, and rows can be added to them and taken away.

V = (Phi'WPhi + rho)^-1 Phi'WY. Given W, the random features and rho as an absolute number, V after any sequence of
additions and removals is that of a fit to the rows that are left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from smoothlink.solve.cholesky import Factor, Factorable
from smoothlink.solve.ridge import penalties
from smoothlink.steps.squared import CERTAIN, SOLVED_LABELS, Smoothing

Array = NDArray[Any]


@dataclass
class Sums:
    """Phi'WPhi and Y'WPhi in float64, the ridge, and the smoothing of labels."""

    G: Array  # (s + 1, s + 1) Phi'WPhi, on its diagonal and below
    T: Array  # (c, s + 1) Y'WPhi; the last column are the weighted counts of the labels
    rho: float  # the ridge as an absolute number: the relative one would move with every row
    smoothing: Smoothing

    @classmethod
    def empty(cls, s: int, c: int, smoothing: Smoothing) -> Sums:
        """Returns the sums of no rows; s counts the intercept."""
        return cls(np.zeros((s, s)), np.zeros((c, s)), 0.0, smoothing)

    @property
    def counts(self) -> Array:
        """Returns the weighted count (c,) of each label."""
        return self.T[:, -1].copy()

    @property
    def total(self) -> float:
        return float(self.G[-1, -1])

    def freeze_ridge(self, ridge: float) -> None:
        """Makes the relative ridge an absolute one, by the rows that are in the sums now."""
        self.rho = float(penalties(ridge, np.diagonal(self.G))[0])

    def add(self, Phi: Array, Y: sp.csr_array, w: Array) -> None:
        """Adds rows Phi (b, s + 1) with labels Y (b, c) and weights w (b,); those of negative weight are taken away."""
        for sign in (1.0, -1.0):
            some = np.flatnonzero(sign * w > 0)
            if len(some):
                A = Phi[some] * np.sqrt(np.abs(w[some]))[:, None]
                # G' is in Fortran's order, which dsyrk adds to in place; above its diagonal is below that of G.
                dsyrk(sign, A.astype(np.float64, copy=False), beta=1.0, c=self.G.T, trans=1, lower=0, overwrite_c=1)
        labels, targets = label_sums(Phi, Y, w)
        self.T[labels] += targets

    def add_labels(self, count: int) -> None:
        """Adds labels that no row has: their targets are zeros."""
        self.T = np.vstack([self.T, np.zeros((count, self.T.shape[1]))])

    def factor(self, less: Array | None = None) -> Factor:
        """Returns the factor of Phi'WPhi + rho; less: without these rows (h, s + 1), times the roots of their
        weights."""
        G = self.G.copy()
        if less is not None:
            dsyrk(-1.0, less, beta=1.0, c=G.T, trans=1, lower=0, overwrite_c=1)
        rho = np.full(len(G), self.rho)
        rho[-1] = 0.0
        return Factorable(G).factor(np.where(np.diagonal(G) > 0, rho, 1.0))

    def targets(self, labels: slice) -> Array:
        """Returns Phi'WY (s + 1, m) of smoothed labels, in float64; a copy."""
        shift = self.smoothing.shift * self.G[-1]
        return np.asarray(self.smoothing.scale * self.T[labels] + shift).T.copy()

    def solve(self, factor: Factor) -> Array:
        """Returns V (s + 1, c) in float32, from the factor of these sums."""
        c = len(self.T)
        V = np.empty((self.T.shape[1], c), np.float32)
        for start in range(0, c, SOLVED_LABELS):
            labels = slice(start, min(c, start + SOLVED_LABELS))
            V[:, labels] = factor.solve(self.targets(labels))
        V[-1] += certain(self.counts, self.total)
        return V

    def held_out_scores(self, Phi: Array, Y: sp.csr_array, w: Array) -> Callable[[slice, int], Array]:
        """Returns (labels, count) -> scores (count, m) of the first of these rows, which are in the sums, by a decoder
        without them: Phi (G - G_C + rho)^-1 (T - T_C)."""
        roots = np.sqrt(w)[:, None]
        Phi = Phi.astype(np.float64)
        P = self.factor(Phi * roots).solve(Phi.T.copy()).T  # (h, s + 1)
        by_label, weighted = sp.csc_array(Y), Phi * w[:, None]
        counts, totals = self.counts - Y.T @ w, self.G[-1] - weighted.sum(axis=0)
        above = certain(counts, float(totals[-1]))

        def scores(labels: slice, count: int) -> Array:
            T = self.T[labels] - by_label[:, labels].T @ weighted
            T = self.smoothing.scale * T + self.smoothing.shift * totals
            return (P[:count] @ T.T + above[labels]).astype(np.float32)

        return scores


def label_sums(Phi: Array, Y: sp.csr_array, w: Array) -> tuple[Array, Array]:
    """Returns the labels (m,) that rows have, and Y'WPhi (m, s + 1) of these."""
    labels, places = np.unique(Y.indices, return_inverse=True)
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    own = sp.csr_array((w[rows], (places, rows)), shape=(len(labels), Y.shape[0]), dtype=np.float64)
    return labels, own @ Phi.astype(np.float64, copy=False)


def certain(counts: Array, total: float) -> Array:
    """Returns what labels (c,) that every row has score more, as in `steps.squared.solved`."""
    return np.where((counts > 0) & (counts >= (1 - 1e-6) * total), CERTAIN, 0.0)
