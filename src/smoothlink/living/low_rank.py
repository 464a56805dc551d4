"""A few rows that came or went, as a correction of V that predictions apply: solving all of V anew takes seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.solve.cholesky import Factor
from smoothlink.steps.squared import Smoothing
from smoothlink.weights import ALL, ArrayWeights, StoredWeights

Array = NDArray[Any]


@dataclass(frozen=True)
class CorrectedWeights:
    """V + Z E."""

    base: ArrayWeights  # (s + 1, c)
    Z: Array  # (s + 1, r) float32
    E: Array  # (r, c) float32

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape

    @property
    def files(self) -> Sequence[Path]:
        return ()

    def scores(self, Phi: Array, labels: Any = ALL, out: Array | None = None) -> Array:
        found = self.base.scores(Phi, labels, out)
        found += (Phi @ self.Z) @ self.E[:, labels]
        return found

    def columns(self, labels: Any = ALL) -> Array:
        return np.asarray(self.base.columns(labels) + self.Z @ self.E[:, labels])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.columns(), dtype)

    def halves(self, labels: slice) -> None:
        return None

    def store(self, path: Path, dtype: str | None) -> StoredWeights:
        return ArrayWeights(self.columns()).store(path, dtype)


def correction(
    V: Array, factor: Factor, Phi: Array, Y: sp.csr_array, w: Array, smoothing: Smoothing
) -> CorrectedWeights:
    """Returns the V of sums to which rows Phi (r, s + 1) are added, those of negative weight taken away, from the
    V = A^-1 T of the sums before: V + A^-1 Phi' (W^-1 + Phi A^-1 Phi')^-1 (Y - Phi V), by Woodbury's identity."""
    live = np.flatnonzero(w)
    Phi, Y, w = Phi[live].astype(np.float64), Y[live], w[live]
    Z = factor.solve(Phi.T.copy())  # (s + 1, r)
    residuals = smoothing.scale * Y.toarray() + smoothing.shift - (Phi.astype(np.float32) @ V)
    E = np.linalg.solve(np.diag(1 / w) + Phi @ Z, residuals)
    return CorrectedWeights(ArrayWeights(V), Z.astype(np.float32), E.astype(np.float32))
