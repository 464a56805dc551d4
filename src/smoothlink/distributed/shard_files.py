"""V in several model files of some labels each, as the workers of a cluster write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.errors import ModelFileError
from smoothlink.machines.shards import Shards
from smoothlink.safetensors_file import Unchecked, load, save

Array = NDArray[Any]


def write_shard(V: Array, path: str) -> int:
    """Writes V (s + 1, m) of some labels to a file; returns how many labels they are."""
    save(path, {"V": V}, {})
    return int(V.shape[1])


def open_shards(
    folder: Path, names: Any, *, mmap: bool = True, verify: bool = False, unchecked: list[Unchecked] | None = None
) -> Shards:
    """Returns V from files of some labels each; arrays whose checksums were not compared are added to `unchecked`."""
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and Path(n).name == n for n in names):
        raise ModelFileError("its list of shards is no list of file names. Save the model again.")
    loaded = [load(folder / name, mmap=mmap, verify=verify) for name in names]
    parts = [found.arrays.get("V") for found in loaded]
    if unchecked is not None:
        unchecked += [array for found in loaded for array in found.unchecked]
    fine = [part for part in parts if part is not None and part.ndim == 2 and part.dtype == np.float32]
    if len(fine) < len(parts) or len({len(part) for part in fine}) > 1:
        raise ModelFileError("its shards do not fit together. Save the model again.")
    return Shards(fine, [folder / name for name in names], [found.checksums["V"] for found in loaded])
