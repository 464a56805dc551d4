"""Checkpoints: a fit saves its state in a folder, so that one that was killed goes on, and keeps large arrays there."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import shutil
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.atomic import REMEDIES, replace_file, temporary_folder
from smoothlink.fitting.memory import Plan, call_glibc, size
from smoothlink.machines.rows import SavedSums
from smoothlink.machines.rows_in_files import FileArray, new_file_array

Array = NDArray[Any]

EVERY = 60.0  # seconds between two states of one sum
CHECKSUM_ROWS = 1 << 16
FIT = "job.json"  # what the fit is


class FitState:
    """The plan of a fit, a folder for arrays that do not fit memory, and the states that were saved, if any are."""

    def __init__(self, plan: Plan | None = None, folder: Path | None = None, *, saves: bool = False) -> None:
        self.plan, self.folder, self.saves = plan or Plan(), folder, saves

    def trim(self) -> None:
        """Has the C library return what was freed: it holds back tens of megabytes."""
        call_glibc("malloc_trim", 0)

    def part(self, name: str) -> FitState:
        """Returns the state of one of several fits to other rows: in a folder of its own, where states are saved."""
        if not self.saves or self.folder is None:
            return self
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return FitState(self.plan, folder, saves=True)

    def array(self, name: str, shape: tuple[int, int]) -> FileArray:
        """Returns a new array of zeros in a file."""
        assert self.folder is not None
        return new_file_array(self.folder / f"{name}.array", shape)

    def saved_array(self, name: str, shape: tuple[int, int]) -> FileArray:
        """Returns an array in a file as an earlier run left it; zeros where there was none."""
        assert self.folder is not None
        return FileArray(self.folder / f"{name}.array", shape)

    def load(self, name: str) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """Returns what an earlier run saved under this name, or None."""
        if not self.saves or self.folder is None or not (self.folder / f"{name}.npz").exists():
            return None
        try:
            with zipfile.ZipFile(self.folder / f"{name}.npz") as archive:
                if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                    raise ValueError("it is compressed, and would take any amount of memory")
            with np.load(self.folder / f"{name}.npz", allow_pickle=False) as found:
                arrays = {key: found[key] for key in found.files}
            saved = json.loads(arrays.pop("meta").tobytes())
            if saved["arrays"] != sorted(arrays):
                raise ValueError("its arrays are not those that were saved")
            return saved["meta"], arrays
        except MemoryError:
            raise
        except Exception as error:  # a damaged archive fails with nearly any
            raise self.damaged(f"{name}.npz", str(error)) from error

    def damaged(self, name: str, what: str) -> ValueError:
        """Returns the error for a file that is not as it was saved."""
        return ValueError(f"checkpoint {self.folder}: {name} is damaged ({what}).\nRemove the folder to start anew.")

    def save(self, name: str, meta: dict[str, Any], **arrays: Array) -> None:
        """Saves a state; the old one stays until the new one is on disk."""
        if not self.saves or self.folder is None:
            return
        text = np.frombuffer(json.dumps({"meta": meta, "arrays": sorted(arrays)}).encode(), np.uint8)
        with replace_file(self.folder / f"{name}.npz") as file:
            np.savez(file, allow_pickle=False, meta=text, **arrays)

    def remove(self, prefix: str) -> None:
        """Removes states and arrays that a later state made superfluous."""
        for path in () if self.folder is None else self.folder.glob(f"{prefix}*"):
            path.unlink(missing_ok=True)

    def sums(self, prefix: str) -> Callable[[str], SavedSums] | None:
        """Returns where the sums of a pass over the rows are saved, by the name of the sum."""
        return None if not self.saves else lambda name: SumState(self, f"{prefix}-{name}")


class SumState:
    """The totals of one sum over rows, saved once in a while and at its end."""

    def __init__(self, state: FitState, name: str) -> None:
        self.state, self.name, self.last = state, name, time.monotonic()

    def load(self) -> tuple[int, list[Array] | None]:
        found = self.state.load(self.name)
        if found is None:
            return 0, None
        meta, arrays = found
        return int(meta["rows"]), [arrays[f"total{i}"] for i in range(len(arrays))]

    def save(self, rows: int, totals: list[Array], *, last: bool) -> None:
        if last or time.monotonic() - self.last >= EVERY:
            self.state.save(self.name, {"rows": rows}, **{f"total{i}": total for i, total in enumerate(totals)})
            self.last = time.monotonic()


@contextmanager
def open_state(checkpoint: Any, describe: Callable[[], dict[str, Any]], plan: Callable[[], Plan]) -> Iterator[FitState]:
    """Opens the state of one fit: in the folder named, going on with what is there, else in one that is removed.

    The plan is part of the state: what a process holds when it starts differs a little from run to run.
    """
    if checkpoint is None:
        made = plan()
        if made.memory is None:
            yield FitState(made)
            return
        with temporary_folder() as folder:
            check_disk(folder, made)
            yield FitState(made, folder)
        return
    folder = Path(checkpoint)
    with locked(folder):
        check_same_fit(folder, describe())
        state = FitState(folder=folder, saves=True)
        found = state.load("plan")
        state.plan = plan() if found is None else Plan(**found[0])
        if found is None:
            check_disk(folder, state.plan)
            state.save("plan", vars(state.plan))
        yield state


def check_disk(folder: Path, plan: Plan) -> None:
    """Whether there is room for the files that the plan speaks of: said before hours of work, not after."""
    free = shutil.disk_usage(folder).free
    if plan.disk > free:
        raise ValueError(
            f"memory is {size(plan.memory or 0)}: this fit would write files of {size(plan.disk)}, and {folder} has "
            f"room for {size(free)}.\nAllow more memory, or name a checkpoint (--checkpoint) on a larger disk."
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes the folder and locks it against other fits; the lock goes with a process that is killed."""
    import fcntl  # which Windows does not have

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "it is not writable")
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        advice = REMEDIES.get(error.errno or 0, "Name a folder of yours, or a new one.")
        raise ValueError(f"checkpoint {folder}: {error.strerror}.\n{advice}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"checkpoint {folder} is in use by another fit.\nName another folder.") from error
        yield
    finally:
        os.close(lock)


def check_same_fit(folder: Path, fit: dict[str, Any]) -> None:
    """Writes down what the fit is, or refuses to go on with the state of another one."""
    path = folder / FIT
    if path.exists():
        try:
            known = dict(json.loads(path.read_text()))
        except (OSError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"checkpoint {folder}: {FIT} cannot be read.\nName another folder.") from error
        differ = [name for name in {**known, **fit} if known.get(name) != fit.get(name)]
        if differ:
            said = "; ".join(f"{name} was {known.get(name)} and is {fit.get(name)}" for name in differ)
            raise ValueError(
                f"checkpoint {folder} is of another fit: {said}.\nName another folder, or remove it to start anew."
            )
        return
    if any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise ValueError(f"checkpoint {folder} is a folder with other files in it.\nName a new one.")
    with replace_file(path) as file:
        file.write(json.dumps(fit, indent=1).encode())


def describe_fit(
    X: Any, Y: sp.csr_array, w: Array | None, label_weight: Array | None, request: Any, groups: Array | None = None
) -> dict[str, Any]:
    """Returns what makes two fits the same: the data by size and checksum, every parameter, and versions."""
    data = {
        "rows": X.shape[0],
        "features": X.shape[1],
        "labels": Y.shape[1],
        "checksum of X": checksum(X),
        "checksum of Y": checksum(Y),
    }
    return data | describe_request(w, label_weight, request, groups)


def describe_request(w: Array | None, label_weight: Array | None, request: Any, groups: Array | None) -> dict[str, Any]:
    """Returns what makes two fits of the same rows the same."""
    moves = ("checkpoint", "device") if request.training == "joint" else ("checkpoint",)  # its state fits any machine
    asked = {name: repr(value) for name, value in vars(request).items() if name not in moves}
    asked["random_state"] = asked.pop("seed")
    return {
        **asked,
        "checksum of weights": 0 if w is None else zlib.crc32(np.ascontiguousarray(w).data),
        **({} if groups is None else {"checksum of groups": zlib.crc32(groups.data)}),
        "checksum of label weights": 0 if label_weight is None else zlib.crc32(np.ascontiguousarray(label_weight).data),
        "version of smoothlink": importlib.metadata.version("smoothlink"),
        "version of NumPy": np.__version__,
    }


def checksum(A: Any) -> int:
    """Returns the checksum of all rows, a block at a time."""
    found = 0
    for start in range(0, A.shape[0], CHECKSUM_ROWS):
        part = A[start : start + CHECKSUM_ROWS]
        for array in (part.indptr.astype(np.int64), part.indices, part.data) if sp.issparse(part) else (part,):
            found = zlib.crc32(np.ascontiguousarray(array).data, found)
    return found
