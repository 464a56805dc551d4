"""A fitted model: the parts of the path, put together to score rows in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.matrix import matrix
from smoothlink.steps.calibrate import LEAST, Calibration
from smoothlink.steps.featurize import Features, unit_rows
from smoothlink.steps.fit import prior
from smoothlink.steps.landmarks import Landmarks
from smoothlink.steps.scale import Scaling

Array = NDArray[Any]

BLOCK_BYTES = 64 << 20  # of scores or features at a time


@dataclass(frozen=True)
class Model:
    """x -> scale -> (input features) -> h = W'x -> phi(h) -> scores V'phi -> probabilities."""

    scaling: Scaling
    input_features: Features | Landmarks | None  # the kernel first stage, where there is one
    W: Array | None  # (d + 1, k); None: h is x, or the classifier's activations
    classifier: Any  # a scikit-learn first stage that is not linear (Algorithm 2); such a model cannot be saved
    normalize: bool  # whether h is scaled to unit length
    features: Features
    V: Array  # (s + 1, c)
    loss: str  # "squared", "logistic" or "softmax"
    multiclass: bool
    calibration: Calibration
    counts: Array  # (c,) weighted training count of each label
    total: float  # total training weight
    thresholds: Array  # (c,) Algorithm 4's, from held-out rows

    @property
    def n_labels(self) -> int:
        return int(self.V.shape[1])

    @property
    def unseen(self) -> Array:
        """Whether each label (c,) was never seen in training."""
        return np.asarray(self.counts <= 0)

    def embed(self, X: Any) -> Array:
        """h (n, k) of raw rows X (n, d); nan marks sparse rows without any feature."""
        A = self.scaling(X)
        blank = np.diff(A.indptr) == 1 if sp.issparse(A) else np.zeros(len(A), bool)  # the constant alone
        if self.input_features is not None:
            A = self.input_features(A[:, :-1])
        if self.classifier is not None:
            H = self.classifier(A[:, :-1])
        elif self.W is None:
            H = A[:, :-1].toarray() if sp.issparse(A) else A[:, :-1]
        else:
            H = matrix(A) @ self.W
        H = unit_rows(H) if self.normalize else np.ascontiguousarray(H)
        H[blank] = np.nan
        return H

    def scores(self, H: Array, labels: Array | None = None) -> Array:
        """Scores (n, c) of embedded rows, for all labels or the given ones; never-seen labels score -inf."""
        some = slice(None) if labels is None else labels
        V, unseen = self.V[:, some], self.unseen[some]
        blank: Array = np.isnan(H[:, 0])
        S: Array = self.features(np.where(blank[:, None], np.float32(0), H) if blank.any() else H) @ V
        if blank.any():
            S[blank] = self.prior_scores[some]
        if unseen.any():
            S[:, unseen] = -np.inf
        return S

    @property
    def prior_scores(self) -> Array:
        """Scores (c,) of the label frequencies: the answer to a row of which nothing is known."""
        p = prior(self.counts, self.total)
        if self.multiclass:
            return np.log(p / p.sum()) / self.calibration.temperature
        return p if self.loss == "squared" else np.log(p / (1 - p))

    def probabilities(self, S: Array, normalisers: Array | None = None) -> Array:
        """Probabilities of scores (n, any); a score of -inf, of a label never seen, becomes the smoothed prior.

        None is 0 or 1: no finite training set says so. Multiclass rows sum to 1; where S has not all labels, the
        `normalisers` (n,) of its rows are needed.
        """
        P = self.calibrated(S, normalisers)
        if not self.multiclass:
            np.clip(P, LEAST, 1 - LEAST, out=P)
        if unseen := np.count_nonzero(self.unseen):
            c = self.n_labels if self.multiclass else 2  # half a row is added to each class, or to either side
            little = 0.5 / (self.total + 0.5 * c)
            if self.multiclass:
                P *= np.float32(1 - little * unseen)
            P[np.isneginf(S)] = little
        return P

    def calibrated(self, S: Array, normalisers: Array | None = None) -> Array:
        """What held-out rows make of scores, as Algorithm 4 and its thresholds see it: 0 for labels never seen."""
        if self.multiclass:
            normalisers = self.normalisers(S) if normalisers is None else normalisers
            return np.asarray(np.exp(S * np.float32(self.calibration.temperature) - normalisers[:, None]))
        P = self.calibration.probabilities(np.maximum(S, -1e6), loss=self.loss)
        if self.unseen.any():
            P[np.isneginf(S)] = 0
        return P

    def normalisers(self, S: Array) -> Array:
        """log sum exp (n,) of each row's tempered scores."""
        Z = S * np.float32(self.calibration.temperature)
        top = Z.max(axis=1)
        return np.asarray(top + np.log(np.exp(Z - top[:, None]).sum(axis=1)))

    def row_blocks(self, n: int) -> Iterator[slice]:
        """Rows whose features and scores fit a block."""
        step = max(1, BLOCK_BYTES // (4 * max(self.n_labels, self.V.shape[0])))
        yield from (slice(start, min(n, start + step)) for start in range(0, n, step))

    def label_blocks(self, n: int) -> Iterator[Array]:
        """Labels whose scores for all n rows fit a block."""
        step = max(1, BLOCK_BYTES // (4 * max(1, n)))
        yield from (np.arange(start, min(self.n_labels, start + step)) for start in range(0, self.n_labels, step))
