"""How good a model's ranking is on the held-out rows that calibrate it, found while they are scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.metrics.evaluate import is_true
from smoothlink.metrics.names import KS
from smoothlink.steps.infer import RunningTopK

Array = NDArray[Any]


class HeldOutRanking:
    """The top labels of n held-out rows, from the scores of a block of labels at a time.

    The model that scores them was fitted without them. But they also chose its settings and calibrated it, so new rows
    do a little worse.
    """

    def __init__(self, n: int, c: int) -> None:
        self.top, self.labels = RunningTopK(n, min(max(KS), c)), c

    def add(self, scores: Array) -> None:
        """Adds the scores (n, m) of the next labels."""
        self.top.add(scores)

    def precisions(self, Y: sp.csr_array, w: Array) -> dict[str, float] | None:
        """Returns P@k of truth Y (n, c) at row weights w (n,), and the number of rows; None where none has a weight."""
        total = w.sum()
        if not total > 0:
            return None
        hit = is_true(Y, self.top.best().indices)
        found = {f"p@{k}": float(w @ hit[:, :k].sum(axis=1) / (k * total)) for k in KS if k <= self.labels}
        return {"rows": int(np.count_nonzero(w)), **found}
