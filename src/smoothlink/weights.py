"""The forms that a model's weight matrices may have, behind one protocol: float32, fewer bits, or several files.

Whoever makes a matrix (a fit, a model file, a cluster) knows its form; all others call its methods. The same matrix on
a device is `machines.device_weights`.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import ModelFileError
from smoothlink.machines.grouped_codes import Codes, decode, from_upper_half, quantize_groups, row_dot, upper_half
from smoothlink.machines.matrices import matrix
from smoothlink.machines.rows_in_files import PIECE_BYTES, pieces, scratch
from smoothlink.safetensors_file import Loaded, Unchecked, checksum, load, not_finite, save

Array = NDArray[Any]

ALL = slice(None)
ONE_ROW_ENTRIES = 1 << 20  # entries of V from which on one row is worth all threads
WIDEN_ENTRIES = 1 << 14  # entries up to which one thread widens float16 before others are awake
COMPACT_ROWS = 4  # rows up to which float16 and codes are read as they are; more rows pay for widening them first
FIT_ID = re.compile(r"-V-([0-9a-f]{8})-\d{5}-of-\d{5}\.safetensors$")
UNBOUNDED = ("thresholds", "tree_threshold")  # arrays of a model file whose numbers may be infinite


class StoredWeights(NamedTuple):
    """What a model file says of V."""

    arrays: dict[str, Array]
    meta: dict[str, Any]


class Projection(Protocol):
    """W (d + 1, k), the row of the intercept last."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def project(self, A: Any) -> Any:
        """Returns A W (n, k) for sparse or dense A (n, d + 1)."""


class HostProjection(Projection, Protocol):
    """W on the host."""

    def rows(self, numbers: Array) -> Array:
        """Returns some rows in float32."""

    def columns(self, columns: Any = ALL) -> Array:
        """Returns all rows of some columns in float32."""

    def to_arrays(self, name: str, dtype: str | None) -> dict[str, Array]:
        """Returns the arrays of a model file, in a precision or as they are."""


class Weights(Protocol):
    """V (s + 1, c): the weights of a label are a column, its intercept comes last."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def files(self) -> Sequence[Path]:
        """Returns the files beside the model file that hold V; none where the model file does."""

    def scores(self, Phi: Array, labels: Any = ALL, out: Array | None = None) -> Array:
        """Returns Phi V[:, labels] (b, m); no other column is read."""

    def columns(self, labels: Any = ALL) -> Array:
        """Returns V[:, labels] in float32."""

    def halves(self, labels: slice) -> tuple[Array, Array] | None:
        """Returns V[:, labels] as float16 and the scale of each column; None where V is not held so."""

    def store(self, path: Path, dtype: str | None) -> StoredWeights:
        """Returns what the model file at `path` says of V, in a precision or as it is; writes files of its own."""


@dataclass(frozen=True)
class ArrayWeights:
    """One array of float32, in memory or mapped."""

    values: Array
    one_row_entries: int = ONE_ROW_ENTRIES

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def files(self) -> Sequence[Path]:
        return ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.values, dtype, copy=copy)

    @property
    def by_rows(self) -> bool:
        """Returns whether one row is scored by a kernel that reads V row by row."""
        return self.values.size > self.one_row_entries and self.values.strides[1] == self.values.itemsize

    def scores(self, Phi: Array, labels: Any = ALL, out: Array | None = None) -> Array:
        """Where one row meets many numbers, BLAS waits for threads that may be asleep: 7.5 ms where 1.2 suffice."""
        V = take_columns(self.values, labels)
        if self.by_rows and len(Phi) == 1 and out is None:
            from smoothlink.machines import prediction_kernels as kernels

            return kernels.row_dot(Phi[0], V)[None]
        return np.matmul(Phi, V, out=out)

    def project(self, A: Any) -> Any:
        return matrix(A) @ self.values

    def rows(self, numbers: Array) -> Array:
        return np.asarray(self.values[numbers])

    def columns(self, columns: Any = ALL) -> Array:
        return self.values[:, columns]

    def halves(self, labels: slice) -> None:
        return None

    def to_arrays(self, name: str, dtype: str | None) -> dict[str, Array]:
        return {name: self.values} if dtype in (None, "float32") else convert(self.values, dtype).to_arrays(name, None)

    def store(self, path: Path, dtype: str | None) -> StoredWeights:
        return StoredWeights(self.to_arrays("V", dtype), {})


class CompactWeights(ABC):
    """Fewer bits than float32 has: some rows and columns are widened when they are used, a few rows of scores need
    none of it."""

    @property
    @abstractmethod
    def dtype(self) -> str: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @abstractmethod
    def columns(self, columns: Any = ALL) -> Array: ...

    @abstractmethod
    def rows(self, numbers: Array) -> Array: ...

    @abstractmethod
    def row_scores(self, phi: Array, labels: Any) -> Array:
        """Returns phi V[:, labels] (m,) of one row."""

    @abstractmethod
    def stored(self) -> tuple[Array, Array]:
        """Returns the two arrays of a model file: the numbers and their scale."""

    @property
    def files(self) -> Sequence[Path]:
        return ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.columns(), dtype)

    def scores(self, Phi: Array, labels: Any = ALL, out: Array | None = None) -> Array:
        if len(Phi) > COMPACT_ROWS:
            return np.matmul(Phi, self.columns(labels), out=out)
        return np.stack([self.row_scores(np.ascontiguousarray(row), labels) for row in Phi], out=out)

    def project(self, A: Any) -> Any:
        """Widens only the rows that a sparse A needs."""
        if not sp.issparse(A):
            return np.asarray(A @ self.columns())
        needed = np.zeros(self.shape[0], bool)
        needed[A.indices] = True
        place, names = (np.cumsum(needed) - 1).astype(A.indices.dtype), np.flatnonzero(needed)
        return matrix(sp.csr_array((A.data, place[A.indices], A.indptr), (A.shape[0], len(names)))) @ self.rows(names)

    def halves(self, labels: slice) -> tuple[Array, Array] | None:
        return None

    def to_arrays(self, name: str, dtype: str | None) -> dict[str, Array]:
        if dtype in (None, self.dtype):
            return dict(zip((name, f"{name}_scale"), self.stored(), strict=True))
        return convert(self.columns(), dtype).to_arrays(name, None)

    def store(self, path: Path, dtype: str | None) -> StoredWeights:
        return StoredWeights(self.to_arrays("V", dtype), {})


@dataclass(frozen=True)
class HalfWeights(CompactWeights):
    """values * scale. Float16 alone ends at 6e-5, where the weights of rare labels are; its own scale gives each
    column 11 bits for all entries down to 1/16384 of its largest."""

    values: Array  # (a, b) float16, finite
    scale: Array  # (b,) float32, powers of two

    @property
    def dtype(self) -> str:
        return "float16"

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def row_scores(self, phi: Array, labels: Any) -> Array:
        from smoothlink.machines import prediction_kernels as kernels

        bits, scale = take_columns(self.values, labels).view(np.uint16), np.ascontiguousarray(self.scale[labels])
        return kernels.half_dot(phi, bits, scale)

    def rows(self, numbers: Array) -> Array:
        return widened(self.values[numbers], self.scale)

    def columns(self, columns: Any = ALL) -> Array:
        return widened(self.values[:, columns], self.scale[columns])

    def halves(self, labels: slice) -> tuple[Array, Array]:
        return self.values[:, labels], self.scale[labels]

    def stored(self) -> tuple[Array, Array]:
        return self.values, self.scale


@dataclass(frozen=True)
class CodedWeights(CompactWeights):
    """Int8, or int4 with two rows in a byte; GROUP rows of a column have one scale."""

    codes: Codes

    @property
    def dtype(self) -> str:
        return "int4" if self.codes.packed else "int8"

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.rows, self.codes.values.shape[1]

    def row_scores(self, phi: Array, labels: Any) -> Array:
        return row_dot(phi, self.codes, labels)

    def rows(self, numbers: Array) -> Array:
        return decode(self.codes, np.asarray(numbers))

    def columns(self, columns: Any = ALL) -> Array:
        return decode(self.codes, np.arange(self.shape[0]), columns)

    def stored(self) -> tuple[Array, Array]:
        return self.codes.values, upper_half(self.codes.scale)


def convert(A: Array, dtype: str) -> ArrayWeights | HalfWeights | CodedWeights:
    """Returns the float32 matrix A in one of `parameters.DTYPES`."""
    if dtype == "float32":
        return ArrayWeights(A)
    return to_half(A) if dtype == "float16" else CodedWeights(quantize_groups(A, dtype))


def to_half(A: Array, piece_bytes: int = PIECE_BYTES) -> HalfWeights:
    """Returns A (a, b) with each column scaled to at most 1 and rounded to float16, in a temporary file where it is
    larger than a piece."""
    largest = np.zeros(A.shape[1], A.dtype)
    for part in pieces(A):
        np.maximum(largest, np.abs(part).max(axis=0), out=largest)
    if not np.isfinite(largest).all():
        raise ModelFileError("The model has weights that are not finite. Fit it again with a larger ridge.")
    _, exponent = np.frexp(largest)
    scale = np.ldexp(np.float32(1), np.clip(exponent, -120, 120)).astype(np.float32)
    values = scratch(A.shape, np.float16, piece_bytes)
    for part, into in zip(pieces(A), pieces(values, PIECE_BYTES * values.itemsize // A.itemsize), strict=True):
        into[...] = part / scale
    return HalfWeights(values, scale)


def sound(name: str, values: Array) -> bool:
    """Returns whether the array `name` of a model may hold these numbers: none is NaN, and thresholds alone may be
    infinite."""
    if name in ("V_scale", "W_scale") and values.dtype == np.uint16:
        values = from_upper_half(values)
    if values.dtype.kind != "f" or name == "classes":
        return True
    return not np.isnan(values).any() if name in UNBOUNDED else bool(np.isfinite(values).all())


def check_sound(arrays: Mapping[str, Array], path: Path) -> None:
    """Raises an error for arrays of the model file `path` that hold NaN, or infinity where that has no meaning."""
    for name, array in arrays.items():
        if not all(sound(name, part) for part in pieces(array.ravel(order="K"))):
            raise not_finite(path, name)


def read_arrays(loaded: Loaded) -> dict[str, Array]:
    """Returns the arrays of a file but those that wait for their verification."""
    waiting = {array.name for array in loaded.unchecked}
    return {name: array for name, array in loaded.arrays.items() if name not in waiting}


def take_columns(values: Array, labels: Any) -> Array:
    """Returns some columns (a, m) of an array whose rows are contiguous, with contiguous rows."""
    return values[:, labels] if isinstance(labels, slice) else values.take(labels, axis=1)


def widened(values: Array, scale: Array) -> Array:
    """Returns float16 values (a, b) times the scale of their column, in float32."""
    if values.size <= WIDEN_ENTRIES:
        return values.astype(np.float32) * scale
    from smoothlink.machines import prediction_kernels as kernels

    out = np.empty(values.shape, np.float32)
    kernels.widen(values.view(np.uint16), np.ascontiguousarray(scale), out)
    return out


class ShardedWeights:
    """Float32 in several files of some labels each, as the workers of a cluster wrote them: mapped, never whole."""

    def __init__(self, parts: list[Array], files: list[Path], checksums: list[int]) -> None:
        self.parts, self.checksums = parts, checksums
        self.files: Sequence[Path] = files
        self.edges = np.cumsum([0, *(part.shape[1] for part in parts)])
        self.shape: tuple[int, int] = (int(parts[0].shape[0]), int(self.edges[-1]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.columns(), dtype)

    def scores(self, Phi: Array, labels: Any = ALL, out: Array | None = None) -> Array:
        numbers = np.arange(self.shape[1])[labels]
        out = np.empty((len(Phi), len(numbers)), np.float32) if out is None else out
        for part, found, inside in self._parts_of(numbers):
            out[:, found] = Phi @ part[:, inside]
        return out

    def columns(self, labels: Any = ALL) -> Array:
        numbers = np.arange(self.shape[1])[labels]
        out = np.empty((self.shape[0], len(numbers)), np.float32)
        for part, found, inside in self._parts_of(numbers):
            out[:, found] = part[:, inside]
        return out

    def halves(self, labels: slice) -> None:
        return None

    def _parts_of(self, numbers: Array) -> Iterator[tuple[Array, Any, Any]]:
        """Yields each part that holds some of the labels, which of them, and their columns there: slices where
        possible, which make no copy."""
        owner = np.searchsorted(self.edges, numbers, side="right") - 1
        for i, part in enumerate(self.parts):
            found = np.flatnonzero(owner == i)
            if len(found):
                yield part, _as_slice(found), _as_slice(numbers[found] - self.edges[i])

    def store(self, path: Path, dtype: str | None) -> StoredWeights:
        """Writes the shards beside the model file, where they are not there yet.

        Their names hold the id of their fit, which no other model uses, so that the model file alone, written last and
        in one step, decides which of them count.
        """
        if dtype not in (None, "float32"):
            raise ModelFileError("This model's V is in shards, which stay in float32.\nSave it without dtype.")
        found = FIT_ID.search(self.files[0].name)
        names = shard_names(path.stem, found[1] if found else secrets.token_hex(4), len(self.files))
        for name, part, file, known in zip(names, self.parts, self.files, self.checksums, strict=True):
            target = path.parent / name
            if file.resolve() == target.resolve():
                continue
            if checksum(part) != known:
                raise ModelFileError(f"{file} is damaged: its V does not match its checksum.\nTrain the model again.")
            write_shard(part, str(target))
        return StoredWeights({}, {"shards": names, **self._description()})

    def check(self, meta: dict[str, Any]) -> None:
        """Raises an error if the shards were not written for the model of this meta; one of smoothlink 0.1.0 does not
        say which it wants."""
        if any(meta.get(key, value) != value for key, value in self._description().items()):
            raise ModelFileError(
                f"its shards ({self.files[0]} and so on) are those of another model.\n"
                "Copy the model file and its shards together, or train again."
            )

    def _description(self) -> dict[str, Any]:
        return {"shard_labels": [part.shape[1] for part in self.parts], "shard_crc32": self.checksums}


def _as_slice(numbers: Array) -> Any:
    first, last = int(numbers[0]), int(numbers[-1])
    consecutive = last - first + 1 == len(numbers) and bool((np.diff(numbers) == 1).all())
    return slice(first, last + 1) if consecutive else numbers


def shard_names(stem: str, fit_id: str, count: int) -> list[str]:
    """Returns the names of the shards of one fit beside the model file `stem`. The id makes them new, so that those of
    the model that is there already stay as they are until its file is replaced."""
    return [f"{stem}-V-{fit_id}-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]


def write_shard(V: Array, path: str) -> int:
    """Writes V of some labels to a file; returns how many labels they are."""
    check_sound({"V": V}, Path(path))
    save(path, {"V": V}, {})
    return int(V.shape[1])


def open_shards(
    folder: Path, names: Any, *, mmap: bool = True, verify: bool = False, unchecked: list[Unchecked] | None = None
) -> ShardedWeights:
    """Returns V from files of some labels each; arrays whose checksums were not compared are added to `unchecked`."""
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and Path(n).name == n for n in names):
        raise ModelFileError("its list of shards is no list of file names. Save the model again.")
    loaded = [load(folder / name, mmap=mmap, verify=verify) for name in names]
    for name, found in zip(names, loaded, strict=True):
        check_sound(read_arrays(found), folder / name)
    parts = [found.arrays.get("V") for found in loaded]
    if unchecked is not None:
        unchecked += [array for found in loaded for array in found.unchecked]
    fine = [part for part in parts if part is not None and part.ndim == 2 and part.dtype == np.float32]
    if len(fine) < len(parts) or len({len(part) for part in fine}) > 1:
        raise ModelFileError("its shards do not fit together. Save the model again.")
    return ShardedWeights(fine, [folder / name for name in names], [found.checksums["V"] for found in loaded])
