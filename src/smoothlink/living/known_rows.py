"""What every model that can be updated remembers of its rows, and what an update asks of it, whatever its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError, plural
from smoothlink.fitting.calibration import Calibrated
from smoothlink.living.row_digests import PART, Digest, RowDigests
from smoothlink.model import Model

Array = NDArray[Any]


class Gone(NamedTuple):
    """What no row has any more."""

    features: Array  # numbers, ascending
    labels: Array


@dataclass(kw_only=True)
class KnownRows(ABC):
    """The rows of a model by digest, and how many of them each label and each feature has."""

    approximate: ClassVar[str]  # what a report says that still depends on forgotten rows

    digests: RowDigests
    label_rows: Array  # (c,) int64 rows of each label
    feature_rows: Array | None  # (d,) int64 rows of each feature; None where X is dense
    class_weight: Array | None  # (c,) by which rows of a multiclass model are weighed
    seed: int
    generation: str | None = None  # of the file that it comes from
    changed: bool = False  # whether the model lags behind
    latest: Calibrated | None = None  # calibration by an update

    @property
    def n_labels(self) -> int:
        return len(self.label_rows)

    @property
    @abstractmethod
    def calibration_rows(self) -> int:
        """Returns how many rows calibrate."""

    @abstractmethod
    def update(self, model: Model, X: Any, Y: sp.csr_array, w: Array) -> tuple[Model, dict[str, Any]]:
        """Adds rows X (n, d) with labels Y (n, c) and weights w (n,); returns the model and what a report says."""

    @abstractmethod
    def remove(self, model: Model, X: Any, Y: sp.csr_array, found: Sequence[Digest]) -> Model:
        """Removes rows X (n, d) with labels Y (n, c), whose digests `check_there` has looked for; returns the model."""

    @abstractmethod
    def refreshed(self, model: Model) -> Model:
        """Returns a model that lags behind as predictions need it."""

    @abstractmethod
    def model_to_save(self, model: Model) -> Model:
        """Returns the model as files hold it, with all rows in it."""

    def prepare(self, model: Model) -> None:
        """Prepares the state of a model that was just loaded for rows that must be seen soon; there may be nothing to
        do."""
        return

    @abstractmethod
    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Returns arrays and a JSON-able description for `safetensors_file.save`."""

    def add_labels(self, count: int) -> None:
        """Adds labels that no row has."""
        self.label_rows = np.append(self.label_rows, np.zeros(count, np.int64))
        if self.class_weight is not None:
            self.class_weight = np.append(self.class_weight, np.ones(count))

    def check_there(self, found: Sequence[Digest]) -> None:
        """Raises an error unless each of these rows is in the model, as often as it is named."""
        wanted: dict[Digest, list[int]] = {}
        for row, digest in enumerate(found):
            wanted.setdefault(digest, []).append(row)
        lacking = [row for digest, rows in wanted.items() for row in rows[self.digests.count(digest) :]]
        if lacking:
            raise DataError(
                f"{plural(len(lacking), 'row')} of {len(found):,}, the first of them row {min(lacking)}, cannot be "
                "forgotten: the model has no such row with these labels. Nothing was changed.\n"
                "Pass rows as they were learnt, with all of their labels."
            )
        if len(found) >= len(self.digests):
            raise DataError("These are all rows of the model: nothing would be left. Delete its files instead.")

    def gone(self, X: Any, Y: sp.csr_array) -> Gone:
        """Returns which features and labels of rows that were removed no row has any more."""
        labels, features = np.unique(Y.indices), np.zeros(0, np.int64)
        if self.feature_rows is not None:
            features = np.unique(X.indices)
            features = features[self.feature_rows[features] == 0]
        return Gone(features, labels[self.label_rows[labels] == 0])

    @property
    def held_out(self) -> dict[str, Any]:
        """Returns what `summary_` says of the rows that calibrated the model last."""
        found = self.latest
        if found is None or not found.rows:
            return {} if found is None else {"held_out_rows": 0, "held_out_metrics": None, "threshold": None}
        return {"held_out_rows": found.rows, "held_out_metrics": found.metrics, "threshold": found.reached}

    def _count(self, X: Any, Y: sp.csr_array, sign: int) -> None:
        self.label_rows += sign * np.bincount(Y.indices, minlength=self.n_labels)
        if self.feature_rows is not None:
            self.feature_rows += sign * np.bincount(X.indices, minlength=len(self.feature_rows))

    @staticmethod
    def none(X: Any, c: int) -> dict[str, Any]:
        """Returns the fields that count rows like those of X and c labels, before there are any."""
        features = np.zeros(X.shape[1], np.int64) if sp.issparse(X) else None
        return {"digests": RowDigests(), "label_rows": np.zeros(c, np.int64), "feature_rows": features}

    def known_arrays(self) -> dict[str, Array]:
        """Returns what a file holds of the rows."""
        return {
            "label_rows": self.label_rows,
            **({} if self.feature_rows is None else {"feature_rows": self.feature_rows}),
            **({} if self.class_weight is None else {"class_weight": self.class_weight}),
            **self.digests.to_arrays(),
        }

    @staticmethod
    def known_of(arrays: dict[str, Array], c: int) -> dict[str, Any]:
        """Returns the fields of `known_arrays` of a model of c labels; raises ValueError where they do not fit it."""
        n = len(arrays["row_digests"])
        expected: dict[str, tuple[Any, tuple[int, ...]]] = {
            "label_rows": (np.int64, (c,)),
            "row_key": (np.uint8, (32,)),
            "row_digests": (np.uint8, (n, 2 * PART)),
            "row_weights": (np.float64, (n,)),
        }
        if "class_weight" in arrays:
            expected["class_weight"] = np.float64, (c,)
        if "feature_rows" in arrays:
            expected["feature_rows"] = np.int64, arrays["feature_rows"].shape[:1]
        check_arrays(arrays, expected)
        if (arrays["row_weights"] < 0).any():
            raise ValueError("weights of rows are negative")
        return {
            "digests": RowDigests.from_arrays(arrays),
            **{name: arrays.get(name) for name in ("label_rows", "feature_rows", "class_weight")},
        }


def csr_of(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> sp.csr_array:
    """Returns a CSR matrix of arrays of a file; raises ValueError where they make none. SciPy's own check passes over
    ends of rows that decrease to 0."""
    whole = all(places.dtype.kind == "i" and places.ndim == 1 for places in (indices, indptr))
    if not whole or len(indptr) != shape[0] + 1 or not len(indptr) or len(indices) != len(data):
        raise ValueError("a matrix has arrays of other types or sizes")
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise ValueError("the rows of a matrix overlap")
    if ((indices < 0) | (indices >= shape[1])).any():
        raise ValueError("an entry of a matrix is outside of it")
    return sp.csr_array((data, indices, indptr), shape)


def check_arrays(arrays: dict[str, Array], expected: dict[str, tuple[Any, tuple[int, ...]]]) -> None:
    """Raises ValueError unless arrays have these types and shapes, and are finite."""
    for name, (kind, shape) in expected.items():
        found = arrays[name]
        if found.dtype != kind or found.shape != shape or not np.isfinite(found).all():
            raise ValueError(f"{name} is {found.dtype} {found.shape}, where the model has {np.dtype(kind)} {shape}")
