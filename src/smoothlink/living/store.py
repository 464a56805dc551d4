"""The second file of a model that can be updated: its sums. The model file names it and its generation."""

from __future__ import annotations

import os
import re
import secrets
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import ModelFileError
from smoothlink.living.row_digests import PART, RowDigests
from smoothlink.living.state import CalibrationRows, LivingState
from smoothlink.living.sums import Sums
from smoothlink.model import Model
from smoothlink.parameters import parse_aim
from smoothlink.safetensors_file import canonical, load, save
from smoothlink.steps.squared import Smoothing
from smoothlink.steps.thresholds import Aim

Array = NDArray[Any]

AGAIN = "Copy the model file and its sums together, or train again with updatable=True (--updatable)."


class StoredSums(NamedTuple):
    """Where the sums of a model are, as its file says."""

    path: Path
    generation: str
    crc32: int

    def load(self, model: Model) -> LivingState:
        """Returns the state in the file; raises an error unless it is that of the model."""
        try:
            loaded = load(self.path, mmap=False, verify=True)
        except ModelFileError as error:
            if not self.path.exists():
                raise ModelFileError(
                    f"The sums of this model, {self.path}, are not there: it predicts, but cannot be updated.\n{AGAIN}"
                ) from error
            raise
        meta = loaded.meta
        if meta.get("generation") != self.generation or checksum_of(loaded.checksums) != self.crc32:
            raise ModelFileError(f"{self.path} holds the sums of another model or of another version of it.\n{AGAIN}")
        try:
            return read_state(loaded.arrays, meta, model)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ModelFileError(
                f"{self.path} is a smoothlink file, but holds no sums ({error!r}).\n{AGAIN}"
            ) from error

    @property
    def meta(self) -> dict[str, Any]:
        """Returns what the model file says of them."""
        return {"file": self.path.name, "generation": self.generation, "crc32": self.crc32}

    def belongs_to(self, path: Path) -> bool:
        """Returns whether they lie beside the model file `path` under its name: its journal goes on from there."""
        own = Path(os.path.realpath(path)).parent / sums_name(path.stem, self.generation)
        return self.path.exists() and self.path.resolve() == own

    @classmethod
    def of(cls, folder: Path, meta: Any) -> StoredSums:
        """Returns where the model file in a folder says that its sums are."""
        name, generation, crc = meta["file"], meta["generation"], meta["crc32"]
        if Path(name).name != name or not isinstance(generation, str) or type(crc) is not int:
            raise ModelFileError("what it says of its sums makes no file. Save the model again.")
        return cls(folder / name, generation, crc)


def checksum_of(checksums: dict[str, int]) -> int:
    """Returns one checksum of those of all arrays."""
    return zlib.crc32(canonical(checksums).encode())


def sums_bytes(s: int, c: int) -> int:
    """Returns about how large the file is: G (s, s) and T (c, s) in float64."""
    return 8 * s * (s + c)


def sums_name(stem: str, generation: str) -> str:
    return f"{stem}-sums-{generation}.safetensors"


def is_sums_name(stem: str, name: str) -> bool:
    """Returns whether a file of this name beside the model file `stem` holds sums of it."""
    return re.fullmatch(re.escape(stem) + r"-sums-[0-9a-f]{16}\.safetensors", name) is not None


def write(state: LivingState, path: Path) -> dict[str, Any]:
    """Writes the sums beside the model file `path`, under a name of their own; returns what the model file says of
    them. The model file, written next and in one step, decides which sums count."""
    state._fold_in()
    generation = secrets.token_hex(8)
    rows, sums = state.calibration, state.sums
    arrays: dict[str, Array] = {
        "G": sums.G,
        "T": sums.T,
        "label_rows": state.label_rows,
        **({} if state.feature_rows is None else {"feature_rows": state.feature_rows}),
        **({} if state.class_weight is None else {"class_weight": state.class_weight}),
        **state.digests.to_arrays(),
        "calibration_h": rows.H,
        "calibration_indptr": rows.Y.indptr.astype(np.int64),
        "calibration_labels": rows.Y.indices.astype(np.int64),
        "calibration_weights": rows.w,
        "calibration_digests": rows.digests,
    }
    meta = {
        "kind": "sums",
        "generation": generation,
        "rho": sums.rho,
        "smoothing": list(sums.smoothing),
        "share": state.share,
        "seed": state.seed,
        "aim": [state.aim.name, None if np.isnan(state.aim.value) else state.aim.value],
        "calibrates": state.calibrates,
        "missed": state.missed,
    }
    target = Path(os.path.realpath(path)).parent / sums_name(path.stem, generation)
    save(target, arrays, meta)
    state.generation = generation
    return StoredSums(target, generation, checksum_of(load(target).checksums)).meta


def read_state(arrays: dict[str, Array], meta: dict[str, Any], model: Model) -> LivingState:
    """Returns the state of a file's content, which must fit the model."""
    s, c = model.V.shape
    H, indptr, labels = (arrays[f"calibration_{name}"] for name in ("h", "indptr", "labels"))
    h, n = len(H), len(arrays["row_digests"])
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
        "G": (np.float64, (s, s)),
        "T": (np.float64, (c, s)),
        "label_rows": (np.int64, (c,)),
        "row_key": (np.uint8, (32,)),
        "row_digests": (np.uint8, (n, 2 * PART)),
        "row_weights": (np.float64, (n,)),
        "calibration_h": (np.float32, (h, H.shape[1])),
        "calibration_indptr": (np.int64, (h + 1,)),
        "calibration_weights": (np.float64, (h,)),
        "calibration_digests": (np.uint8, (h, 2 * PART)),
    }
    if "class_weight" in arrays:
        expected["class_weight"] = np.float64, (c,)
    if "feature_rows" in arrays:
        expected["feature_rows"] = np.int64, arrays["feature_rows"].shape[:1]
    for name, (kind, shape) in expected.items():
        found = arrays[name]
        if found.dtype != kind or found.shape != shape or not np.isfinite(found).all():
            raise ValueError(f"{name} is {found.dtype} {found.shape}, where the model has {np.dtype(kind)} {shape}")
    if (
        indptr[0] != 0
        or (np.diff(indptr) < 0).any()
        or indptr[-1] != len(labels)
        or ((labels < 0) | (labels >= c)).any()
    ):
        raise ValueError("the labels of calibration rows are not those of the model")
    aim, value = meta["aim"]
    if (
        not isinstance(meta["rho"], float)
        or meta["rho"] < 0
        or parse_aim(aim if value is None else f"{aim}={value}") is None
    ):
        raise ValueError("rho or aim")
    Y = sp.csr_array((np.ones(len(labels), np.float32), labels, indptr), (h, c))
    return LivingState(
        Sums(arrays["G"], arrays["T"], meta["rho"], Smoothing(*map(float, meta["smoothing"]))),
        RowDigests.from_arrays(arrays),
        arrays["label_rows"],
        arrays.get("feature_rows"),
        CalibrationRows(H, Y, arrays["calibration_weights"], arrays["calibration_digests"]),
        float(meta["share"]),
        int(meta["seed"]),
        arrays.get("class_weight"),
        Aim(aim, float("nan") if value is None else value),
        bool(meta["calibrates"]),
        meta["missed"],
        meta["generation"],
    )
