"""A model on a device: raw rows are copied there, embedded, scored and ranked, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothlink.candidates import Keys
from smoothlink.errors import DeviceError
from smoothlink.machines.host_and_device import Device, Host, find_machine, release_memory, retry_with_smaller_blocks
from smoothlink.machines.matrices import row_range
from smoothlink.model import BestScores, DecoderInputs, Model
from smoothlink.steps.infer import top_k

Array = NDArray[Any]
Result = TypeVar("Result")


@dataclass(frozen=True)
class RawRows:
    """Rows as they came."""

    X: Any  # (n, d)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def __getitem__(self, part: Any) -> RawRows:
        return RawRows(row_range(self.X, part) if isinstance(part, slice) else self.X[part])


@dataclass(frozen=True)
class DeviceModel(Model):
    """A model and the copies of its large arrays on a device, which are used in their stead."""

    projection: Any = None  # machines.device_weights.DeviceProjection
    device_features: Any = None
    decoder: Any = None  # machines.device_weights.DeviceWeights, with the sparse weights

    @classmethod
    def of(cls, model: Model, machine: Device) -> DeviceModel:
        """Returns the model with its large arrays copied to a device."""
        from smoothlink.machines.device_weights import DeviceProjection, DeviceWeights

        maps = model.calibration.device_maps(loss=model.loss)
        return cls(
            **{field.name: getattr(model, field.name) for field in fields(Model)},
            projection=None if model.W is None else DeviceProjection(model.W.columns(), machine),
            device_features=machine.to_device(model.features),
            decoder=DeviceWeights(model.V, model.untrained, machine, model.sparse_weights, maps),
        )

    @property
    def machine(self) -> Device:
        found: Device = self.decoder.machine
        return found

    def embed_rows(self, X: Any) -> RawRows:
        self.check_arrays()
        return RawRows(X)

    def featurize(self, rows: RawRows) -> DecoderInputs:
        A = self.scaling(rows.X)
        H, without_features = self.project_scaled(A, self.projection)
        X = None if self.sparse_weights is None else A
        Phi = self.device_features(self.machine.to_device(H))
        return DecoderInputs(self.decoder.scale_features(Phi, X), without_features, X)

    def decode(self, Phi: Any, labels: slice | Array, out: Array | None) -> Array:
        scores: Array = self.decoder.scores(Phi, labels, out)
        return scores

    def all_normalisers(self, inputs: DecoderInputs) -> Array:
        total: Array = self.decoder.normalisers(inputs.Phi, self.calibration.temperature)
        total[inputs.without_features] = self.normalisers(self.scores_without_features)
        return total

    def contenders(
        self, inputs: DecoderInputs, k: int, rank_by: str = "probability", keys: Keys | None = None
    ) -> Iterator[slice]:
        """A device scores all labels faster than the host finds candidates."""
        return self.label_blocks(len(inputs.without_features))

    def best_labels(self, inputs: DecoderInputs, k: int) -> BestScores:
        return self._fetch(self._begin(inputs, min(k, self.n_labels)), inputs.without_features)

    def best_in_blocks(self, rows: Any, k: int) -> Iterator[BestScores]:
        """The device is busy with one block while the host makes the next one ready."""
        k, waiting = min(k, self.n_labels), None
        for part in self.decoder.row_blocks(len(rows), k):
            inputs = self.featurize(rows[part])
            begun = self._begin(inputs, k), inputs.without_features
            if waiting is not None:
                yield self._fetch(*waiting)
            waiting = begun
        if waiting is not None:
            yield self._fetch(*waiting)

    def _begin(self, inputs: DecoderInputs, k: int) -> Any:
        """Returns the k best labels, which the device may still be computing."""
        return self.decoder.top_k(inputs.Phi, k, self.calibration.temperature if self.multiclass else None)

    def _fetch(self, begun: Any, without_features: Array) -> BestScores:
        """Returns what the device computed, and the one prediction for rows without features."""
        ids, scores, normalisers = begun.fetch()
        if without_features.any():
            known = top_k(self.scores_without_features, ids.shape[1])
            ids[without_features], scores[without_features] = known.indices, known.values
            if normalisers is not None:
                normalisers[without_features] = self.normalisers(self.scores_without_features)
        return BestScores(ids, scores, normalisers)

    @property
    def scores_without_features(self) -> Array:
        """Returns the scores (1, c) of a row without features."""
        return np.where(self.untrained, -np.inf, self.prior_scores)[None].astype(np.float32)

    @property
    def feature_bytes(self) -> int:
        return self.machine.bytes // 4


class DeviceCopy:
    """The copy of a model on a device: made by the first prediction, kept for later ones, never pickled."""

    def __init__(self) -> None:
        self.key: tuple[int, Any] | None = None
        self.model: DeviceModel | None = None

    def __reduce__(self) -> Any:
        return DeviceCopy, ()

    def drop(self) -> None:
        """Frees the memory of the device."""
        if self.model is not None:
            machine, self.key, self.model = self.model.machine, None, None
            release_memory(machine)

    def run(self, model: Model, device: Any, work: Callable[[Model], Result]) -> Result:
        """Returns work(model), on its device; where that runs out of memory, with smaller blocks from then on."""
        if self.key != (id(model), device):
            self.drop()
        machine = find_machine(device) if self.model is None else self.model.machine
        if isinstance(machine, Host):
            return work(model)

        def attempt(machine: Any) -> Result:
            if self.model is None:
                self.model, self.key = DeviceModel.of(model, machine), (id(model), device)
            self.model.decoder.machine = machine
            return work(self.model)

        failure = (
            f"device is {device!r}, and its memory does not hold the model and a few rows.\n"
            "Free some of it (nvidia-smi shows who has it), or leave device 'cpu'."
        )
        try:
            return retry_with_smaller_blocks(machine, attempt, failure)
        except DeviceError:
            self.drop()
            raise
