"""A fitted model: the parts of the path, put together to score rows in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.matrix import matrix
from smoothlink.steps.calibrate import Calibration
from smoothlink.steps.featurize import Features, unit_rows
from smoothlink.steps.fit import prior
from smoothlink.steps.scale import Scaling

Array = NDArray[Any]

BLOCK_BYTES = 64 << 20  # of scores or features at a time


@dataclass(frozen=True)
class Model:
    """x -> scale -> (input features) -> h = W'x -> phi(h) -> scores V'phi -> probabilities."""

    scaling: Scaling
    input_features: Features | None  # the kernel first stage, where there is one
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
        """h (n, k) of raw rows X (n, d)."""
        A = self.scaling(X)
        if self.input_features is not None:
            A = self.input_features(A[:, :-1])
        if self.classifier is not None:
            H = self.classifier(A[:, :-1])
        elif self.W is None:
            H = A[:, :-1].toarray() if sp.issparse(A) else A[:, :-1]
        else:
            H = matrix(A) @ self.W
        return unit_rows(H) if self.normalize else np.ascontiguousarray(H)

    def scores(self, H: Array, labels: Array | None = None) -> Array:
        """Scores (n, c) of embedded rows, for all labels or the given ones; never-seen labels score -inf."""
        V, unseen = (self.V, self.unseen) if labels is None else (self.V[:, labels], self.unseen[labels])
        S: Array = self.features(H) @ V
        if unseen.any():
            S[:, unseen] = -np.inf
        return S

    def probabilities(self, S: Array, labels: Array | None = None, normalisers: Array | None = None) -> Array:
        """Probabilities of scores; labels never seen in training get their smoothed prior.

        Multiclass probabilities of some labels need the `normalisers` (n,) of their rows.
        """
        unseen = self.unseen if labels is None else self.unseen[labels]
        if self.multiclass:
            normalisers = self.normalisers(S) if normalisers is None else normalisers
            P = np.exp(S * np.float32(self.calibration.temperature) - normalisers[:, None])
        else:
            P = self.calibration.probabilities(np.maximum(S, -1e6), loss=self.loss)
        if unseen.any():
            P[:, unseen] = prior(np.zeros(1), self.total)
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
