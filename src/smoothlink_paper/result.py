"""The result of a method, and the folder that keeps results: an interrupted experiment goes on from there, and several
machines may share its fits.

A file is named by a digest of the rows, the settings and the code that fits, so that a result of other ones is never
taken. Peer libraries are not part of that code: after an update of theirs the folder is to be emptied.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from smoothlink.data.atomic import replace_file
from smoothlink.metrics.evaluate import Predictions
from smoothlink_paper.data_sets import Split
from smoothlink_paper.record import machine, source

FOLDER: Path | None = None  # results are kept where one is set
TAKEN: list[str] = []  # the machines and days of the results that were taken from it


class Result(NamedTuple):
    """The predictions of a method for the test rows, and what they cost."""

    predictions: Predictions
    seconds: float  # of the fit
    settings: dict[str, Any]
    peak_mb: float | None = None  # of the process, data included, where it was measured


@contextmanager
def keep_in(folder: Path | None) -> Iterator[list[str]]:
    """Keeps results in a folder while it is open; yields where and when those that were taken from it were made."""
    global FOLDER
    FOLDER = folder
    TAKEN.clear()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield TAKEN
    finally:
        FOLDER = None


def kept(fit: Callable[..., Result]) -> Callable[..., Result]:
    """Decorates a fit of (split, seed, ...): its result is kept, and taken from the folder where it is there."""

    @wraps(fit)
    def recalled(split: Split, seed: int, *args: Any, **params: Any) -> Result:
        return recall(split, name_of(partial(fit, seed, *args, **params)), lambda: fit(split, seed, *args, **params))

    return recalled


def recall(split: Split, what: str, make: Callable[[], Result], *, ours: bool = True) -> Result:
    """Returns the kept result of these rows and of what is done with them, or makes it; `ours`: by this code."""
    if FOLDER is None:
        return make()
    digest = hashlib.sha256(f"{what} {source() if ours else ''}".encode())
    for part in split:
        for A in (sp.csr_array(part.X), sp.csr_array(part.Y)):
            for array in (A.data, A.indices, A.indptr):
                digest.update(np.ascontiguousarray(array, np.float64).tobytes())
    path = FOLDER / f"{digest.hexdigest()[:20]}.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            TAKEN.append(f"{about['machine']}, {about['date']}")
            predictions = Predictions(**{name: field(name, arrays) for name in Predictions._fields})
        return Result(predictions, about["seconds"], about["settings"], about["peak_mb"])
    result = make()
    about = {"what": what, "machine": machine(), "date": date.today().isoformat()}
    about |= {"seconds": result.seconds, "settings": result.settings, "peak_mb": result.peak_mb}
    stored: dict[str, Any] = {"about": json.dumps(about)}
    for name, value in result.predictions._asdict().items():
        if sp.issparse(value):
            stored |= {f"{name}.{part}": getattr(value, part) for part in ("data", "indices", "indptr", "shape")}
        elif value is not None:
            stored[name] = value
    with replace_file(path) as file:
        np.savez_compressed(file, **stored)
    return result


def field(name: str, arrays: Any) -> Any:
    """Returns one field of predictions from a file, or None where the file has none."""
    if f"{name}.data" in arrays:
        parts = (arrays[f"{name}.{part}"] for part in ("data", "indices", "indptr"))
        return sp.csr_array(tuple(parts), tuple(arrays[f"{name}.shape"]))
    return arrays.get(name)


def name_of(call: Callable[..., Any]) -> str:
    """Returns a call in words that are the same in every process: its function and arguments."""
    if not isinstance(call, partial):
        return str(getattr(call, "__qualname__", call))
    given = [*map(name_of, call.args), *(f"{key}={name_of(value)}" for key, value in sorted(call.keywords.items()))]
    return f"{name_of(call.func)}({', '.join(given)})"
