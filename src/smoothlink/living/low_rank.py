"""A few rows that came or went, as a correction of V that predictions apply: solving all of V anew takes seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.candidates import CandidateSearch, Keys
from smoothlink.model import DecoderInputs, Model
from smoothlink.solve.cholesky import Factor
from smoothlink.steps.squared import Smoothing
from smoothlink.weights import ALL, ArrayWeights, StoredWeights, Weights

Array = NDArray[Any]


@dataclass(frozen=True)
class CorrectedWeights:
    """V + Z E."""

    base: Weights  # (s + 1, c)
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
        found += self.added(Phi, labels)
        return found

    def added(self, Phi: Array, labels: Any = ALL) -> Array:
        """Returns what the correction adds to scores (b, m)."""
        return np.asarray((Phi @ self.Z) @ self.E[:, labels])

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


class CorrectedSearch(CandidateSearch):
    """The search in codes of V as it was before a correction, which is added to the scores; labels that have their
    first rows since then are always among the candidates."""

    def __init__(self, model: Model, former: CandidateSearch) -> None:
        super().__init__(model)
        assert former.codes is not None
        assert isinstance(model.V, CorrectedWeights)
        self.codes, self.pays, self.V = former.codes, True, model.V
        self.fresh = np.setdiff1d(self.trained, former.codes.labels)
        self.trained = former.codes.labels
        if same_maps(model, former.model):
            self.tables = {name: table for name, table in former.tables.items() if name == "probability"}

    def added(self, inputs: DecoderInputs) -> Array:
        return self.V.added(inputs.Phi)

    def find(self, inputs: DecoderInputs, k: int, rank_by: str, keys: Keys) -> Array | None:
        found = super().find(inputs, min(k, len(self.trained)), rank_by, keys)
        return found if found is None or not len(self.fresh) else np.union1d(found, self.fresh)


def same_maps(first: Model, second: Model) -> bool:
    """Returns whether scores of two models become probabilities in the same way."""
    a, b = first.calibration, second.calibration
    pairs: list[tuple[Any, Any]] = [(a.knots, b.knots), (a.values, b.values), (a.labels, b.labels)]
    return a.temperature == b.temperature and all(np.array_equal(one, other) for one, other in pairs)


def share_codes(model: Model, former: Model) -> None:
    """Lets a model with a correction search in the codes that a former one has of the same V, if it has some."""
    if former.candidate_search.codes is not None:
        vars(model)["candidate_search"] = CorrectedSearch(model, former.candidate_search)
