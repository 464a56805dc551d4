"""How good a model is on the held-out rows that calibrate it, counted while they are scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.metrics.evaluate import is_true, row_sums
from smoothlink.metrics.names import KS
from smoothlink.steps.calibrate import Calibration, TopLabels
from smoothlink.steps.infer import RunningTopK, above_half

Array = NDArray[Any]


class HeldOutMetrics:
    """P@k and micro-F1 of held-out rows, from scores and probabilities of a block of labels at a time.

    The model that scores them was fitted without them. But they also chose its settings and calibrated it, so new rows
    do a little worse.
    """

    def __init__(self, Y: sp.csr_array, w: Array) -> None:
        self.Y, self.w = Y, w
        self.ranking = RunningTopK(len(w), min(max(KS), Y.shape[1]))
        self.predicted, self.hits = np.zeros(len(w)), np.zeros(len(w))  # (n,) labels per row

    def add(self, scores: Array, P: Array, Y: sp.csr_array) -> None:
        """Adds scores, probabilities and truth (n, m) of the next labels."""
        self.ranking.add(scores)
        sets = above_half(P)
        self.predicted += np.diff(sets.indptr)
        self.hits += row_sums(Y.multiply(sets))

    def add_top1(self, top: TopLabels, calibration: Calibration, loss: str) -> None:
        """Adds the top labels that only their recalibration makes more likely than not."""
        p = calibration.probabilities(top.scores[:, None], loss=loss)[:, 0]
        added = (p <= 0.5) & (calibration.recalibrate_top1(p) > 0.5)
        self.predicted += added
        self.hits += added & top.hits

    def values(self, *, multiclass: bool) -> dict[str, float] | None:
        """Returns the metrics by name, and how many rows they are of; None where no row weighs anything."""
        total = self.w.sum()
        if not total > 0:
            return None
        hit = is_true(self.Y, self.ranking.best().indices)
        found = {f"p@{k}": float(self.w @ hit[:, :k].sum(axis=1) / (k * total)) for k in KS if k <= self.Y.shape[1]}
        if not multiclass:  # else it is P@1
            both = self.w @ (self.predicted + np.diff(self.Y.indptr))
            found["micro_f1"] = float(2 * (self.w @ self.hits) / both) if both else 0.0
        return {"rows": int(np.count_nonzero(self.w)), **found}
