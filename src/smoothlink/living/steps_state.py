"""All that a model trained by SGD must remember to be updated: some of its rows, and all of them by digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.holdout import NOTHING, decodes_once, validation_rows
from smoothlink.fitting.settings import Request, TrainingData
from smoothlink.fitting.summary import Fitted
from smoothlink.living.known_rows import KnownRows
from smoothlink.living.replay import REPLAYED_ENTRIES, REPLAYED_ROWS, Replay, Training
from smoothlink.living.row_digests import PART, Digest
from smoothlink.model import Model
from smoothlink.weights import ArrayWeights

Array = NDArray[Any]


@dataclass(kw_only=True)
class StepsState(KnownRows):
    """Rows to replay, with which training goes on; the model never lags behind."""

    approximate: ClassVar[str] = (
        "The weights W, V and the sparse weights of labels were trained with the rows that are forgotten and still "
        "reflect them in part, as do the scaling, the calibration and all settings, until the model is trained again."
    )

    replay: Replay

    @property
    def calibration_rows(self) -> int:
        return int(self.replay.held.sum())

    def update(self, model: Model, X: Any, Y: sp.csr_array, w: Array) -> tuple[Model, dict[str, Any]]:
        from smoothlink.living.continue_training import continue_training  # numba takes time to load

        outcome: dict[str, Any] = {"method": None, "compared": {}}
        if w.any():  # rows of weight 0 teach nothing
            seed = self.seed + len(self.digests)  # other old rows are replayed each time
            found = continue_training(model, self.replay, X, Y, w, seed=seed)
            model, self.replay, outcome = (
                found.model,
                found.replay,
                {"method": found.method, "compared": found.compared},
            )
            self.latest = found.calibrated or self.latest
        self.count_rows(X, Y, w)
        return model, outcome

    def count_rows(self, X: Any, Y: sp.csr_array, w: Array) -> None:
        """Adds rows to those that are known."""
        for digest, weight in zip(self.digests.of(X, Y), w.tolist(), strict=True):
            self.digests.add(digest, weight)
        self._count(X, Y, 1)

    def remove(self, model: Model, X: Any, Y: sp.csr_array, found: Sequence[Digest]) -> Model:
        w = np.array([self.digests.remove(digest) for digest in found])
        self._count(X, Y, -1)
        gone = self.gone(X, Y)
        removed: dict[Digest, float] = {}
        for digest, weight in zip(found, w.tolist(), strict=True):
            removed[digest] = removed.get(digest, 0.0) + weight
        left = np.array([self.digests.weight(digest) for digest in found], np.float64)
        left /= np.maximum(left + [removed[digest] for digest in found], 1e-300)
        self.replay, _ = self.replay.forget(X, Y, left)
        optimiser, D, V = dict(self.replay.optimiser), model.sparse_weights, model.V
        if D is not None:
            kept = D.without(gone.features, gone.labels)
            D = D.take(kept)
            if optimiser:
                optimiser["d_squares"] = optimiser["d_squares"][kept]
        for name, numbers in (("w_squares", gone.features), ("v_squares", gone.labels), ("b_squares", gone.labels)):
            if optimiser and len(numbers):
                optimiser[name] = np.array(optimiser[name])
                optimiser[name][numbers] = 0
        if len(gone.labels):
            columns = np.array(V)
            columns[:, gone.labels] = 0
            V = ArrayWeights(columns)
        self.replay = replace(self.replay, optimiser=optimiser)
        counts = np.where(self.label_rows > 0, np.maximum(model.counts - w @ Y, 0), 0.0)
        return replace(model, V=V, sparse_weights=D, counts=counts, total=max(model.total - float(w.sum()), 0.0))

    def add_labels(self, count: int) -> None:
        super().add_labels(count)
        self.replay = self.replay.with_labels(self.n_labels)

    def refreshed(self, model: Model) -> Model:
        return model

    def model_to_save(self, model: Model) -> Model:
        return model

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, meta = self.replay.to_arrays()
        return arrays | self.known_arrays(), {"kind": "replay", "seed": self.seed, **meta}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], meta: dict[str, Any], model: Model) -> StepsState:
        """Returns the state of a file's content; raises an error unless it fits the model."""
        known, replay, c = KnownRows.known_of(arrays, model.n_labels), Replay.from_arrays(arrays, meta), model.n_labels
        rows, D = known["feature_rows"], model.sparse_weights
        weights = None if not replay.optimiser else len(replay.optimiser["d_squares"])
        if (
            replay.Y.shape[1] != c
            or (rows is not None and replay.X.shape[1] != len(rows) + 1)
            or weights not in (None, 0 if D is None else D.size)
            or type(meta["seed"]) is not int
        ):
            raise ValueError("its rows to replay are not those of the model")
        return cls(**known, seed=int(meta["seed"]), generation=meta["generation"], replay=replay)


def new_steps_state(
    trained: Fitted, whole: TrainingData, data: TrainingData, class_weight: Array | None, request: Request
) -> StepsState:
    """Returns the state of a model that was fitted to the whole data. In the data that it was trained on, copies may be
    one row."""
    from smoothlink.living.continue_training import replay_store  # numba takes time to load

    assert whole.w is not None
    assert data.w is not None
    training, held = Training.of(request, trained.summary), None
    if training.learner == "stepwise":  # a decoder of few rows is fitted to those that calibrate as well
        without = training.calibrate and (request.effort == "quick" or decodes_once(data.w, trained.model.loss))
        held = next(iter(validation_rows(data.w, request, data.groups, data.held)), NOTHING) if without else NOTHING
    kept: dict[str, Any] = {"training": training, "groups": data.groups, "held": held}
    replay = replay_store(data.X, data.Y, data.w, trained.model, request.seed, **kept)
    known = KnownRows.none(whole.X, whole.Y.shape[1])
    state = StepsState(**known, seed=request.seed, class_weight=class_weight, replay=replay)
    state.count_rows(whole.X, whole.Y, whole.w)
    return state


def steps_bytes(X: Any, c: int) -> int:
    """Returns about how large the file is: replayed rows, a digest of each row, and sums of squared gradients."""
    (n, d), entries = X.shape, X.nnz if sp.issparse(X) else X.size
    kept = min(entries, entries / max(n, 1) * REPLAYED_ROWS, REPLAYED_ENTRIES)
    return int((8 if sp.issparse(X) else 4) * kept + (2 * PART + 8) * n + 4 * (d + 2 * c))
