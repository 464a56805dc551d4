"""The second file of a model that can be updated: its sums, or rows that are replayed. The model file names it and its
generation."""

from __future__ import annotations

import glob
import os
import re
import secrets
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from smoothlink.data.atomic import _remove_abandoned
from smoothlink.errors import ModelFileError
from smoothlink.living.known_rows import KnownRows
from smoothlink.living.state import LivingState
from smoothlink.living.steps_state import StepsState
from smoothlink.model import Model
from smoothlink.safetensors_file import canonical, load, save

KINDS: dict[str, type[LivingState] | type[StepsState]] = {"sums": LivingState, "replay": StepsState}  # by their meta
AGAIN = "Copy the model file and its sums together, or train again with updatable=True (--updatable)."


class StoredSums(NamedTuple):
    """Where the sums of a model are, as its file says."""

    path: Path
    generation: str
    crc32: int

    def load(self, model: Model) -> KnownRows:
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
            return KINDS[meta["kind"]].from_arrays(loaded.arrays, meta, model)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
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


def remove_abandoned_sums(path: Path) -> None:
    """Removes what killed processes left of sums of the model file `path` that they were writing: no other process
    will write to a file of that name."""
    for left in Path(os.path.realpath(path)).parent.glob(f".{glob.escape(path.stem)}-sums-*.part"):
        _remove_abandoned(left)


def write(state: KnownRows, path: Path) -> dict[str, Any]:
    """Writes the state beside the model file `path`, under a name of its own; returns what the model file says of it.
    The model file, written next and in one step, decides which state counts."""
    generation = secrets.token_hex(8)
    arrays, meta = state.to_arrays()
    target = Path(os.path.realpath(path)).parent / sums_name(path.stem, generation)
    try:
        save(target, arrays, {**meta, "generation": generation})
        stored = StoredSums(target, generation, checksum_of(load(target).checksums))
    except BaseException:  # also where it has its name, and its folder could not be flushed, or it cannot be read
        target.unlink(missing_ok=True)
        raise
    state.generation = generation
    return stored.meta
