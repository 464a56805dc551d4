"""What was acknowledged and is not yet in the model file: lines that are on disk before anybody hears of it.

A line is the checksum of it and of all lines before it, in eight digits, and JSON. So no line can be changed, lost,
doubled or moved without notice, but the last ones lost, as by a kill. Lines of version 0.9.0 have no checksum.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.atomic import append_line, replace_file
from smoothlink.errors import ModelFileError
from smoothlink.living.changes import Batch
from smoothlink.living.known_rows import csr_of
from smoothlink.safetensors_file import open_regular, strict_json

Array = NDArray[Any]


class Shape(NamedTuple):
    """What the rows of a journal must fit to."""

    features: int
    labels: int
    sparse: bool  # whether rows must be sparse
    multiclass: bool


class Journal:
    """Lines of JSON beside a model file: the first says of which generation it is, each other adds rows or labels.

    Rows are features by number, not texts. A row that is forgotten is in no journal: `forget` saves a new generation.
    """

    def __init__(self, path: Path, generation: str, shape: Shape) -> None:
        """Opens the journal of a model; lines of another generation are in it already, or were never for it."""
        self.path, self.batches, self.checksum = path, list[Batch](), 0
        text = b""
        if path.exists():
            with open_regular(path) as file:
                text = file.read()
        *lines, torn = text.split(b"\n")  # a kill may cut the last line, which nobody was told of
        try:
            if torn and not lines:  # the first one is written in one step
                raise ValueError("no line")
            if lines and self._read(lines[0])["generation"] == generation:
                for line in lines[1:]:
                    self.batches.append(batch_of(self._read(line), shape))
                    shape = shape._replace(labels=shape.labels + len(self.batches[-1].names))
                if torn:
                    with open(path, "r+b") as changed:
                        changed.truncate(len(text) - len(torn))
                return
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ModelFileError(
                f"{path} is damaged: a line of it is no update of this model.\nRemove it to go on without."
            ) from error
        self.clear(generation)

    def clear(self, generation: str) -> None:
        """Begins anew, for a generation of the model that holds all that was here."""
        self.batches = []
        content, self.checksum = line_of({"generation": generation})
        with replace_file(self.path) as file:
            file.write(content)

    def append(self, batch: Batch) -> None:
        """Writes a line, whole and on disk, or not at all."""
        content, checksum = line_of(record_of(batch), self.checksum)
        append_line(self.path, content)
        self.checksum = checksum

    def _read(self, line: bytes) -> Any:
        """Returns the content of the next line; raises ValueError where it is not what was written."""
        stored, content = (None, line) if line.startswith(b"{") else (line[:8], line[9:])
        self.checksum = zlib.crc32(content, self.checksum)
        if stored is not None and line[:9] != b"%08x " % self.checksum:
            raise ValueError("its checksum")
        return strict_json(content)


def line_of(record: dict[str, Any], before: int = 0) -> tuple[bytes, int]:
    """Returns a line of JSON, and its checksum after lines of the checksum `before`."""
    content = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    checksum = zlib.crc32(content, before)
    return b"%08x %s\n" % (checksum, content), checksum


def record_of(batch: Batch) -> dict[str, Any]:
    """Returns rows and labels as JSON."""
    X, Y = batch.X, batch.Y
    sparse = sp.issparse(X)
    rows = [X.indptr.tolist(), X.indices.tolist(), X.data.tolist()] if sparse else np.asarray(X).tolist()
    return {
        "width": int(X.shape[1]),
        "sparse" if sparse else "dense": rows,
        "labels": [int(Y.shape[1]), Y.indptr.tolist(), Y.indices.tolist()],
        "weights": batch.w.tolist(),
        "names": batch.names,
    }


def integers(values: list[Any]) -> Array:
    """Returns a list as an array; raises ValueError where something in it is no integer."""
    if not all(type(value) is int for value in values):
        raise ValueError("an integer")
    return np.array(values, np.int32)


def batch_of(record: dict[str, Any], shape: Shape) -> Batch:
    """Returns the rows and labels of a line; raises an error where they do not fit."""
    (c, ends, labels), names, d = record["labels"], record["names"], shape.features
    if record["width"] != d or type(c) is not int or not 0 < c <= shape.labels + len(names):
        raise ValueError("features or labels")
    if not isinstance(names, list) or not all(isinstance(name, str | int | float) for name in names):
        raise ValueError("names")
    X: Any
    if "sparse" in record:
        indptr, indices, data = record["sparse"]
        X = csr_of(np.array(data, np.float64), integers(indices), integers(indptr), (len(indptr) - 1, d))
    else:
        X = np.array(record["dense"], np.float64).reshape(-1, d)
    Y = csr_of(np.ones(len(labels), np.float32), integers(labels), integers(ends), (len(ends) - 1, c))
    w = np.array(record["weights"], np.float64)
    values = X.data if sp.issparse(X) else X
    if not (np.isfinite(values).all() and np.isfinite(w).all() and (w >= 0).all()):
        raise ValueError("numbers")
    if w.shape != (X.shape[0],) or X.shape[0] != Y.shape[0] or (shape.sparse and not sp.issparse(X)):
        raise ValueError("rows")
    if (names and c != shape.labels + len(names)) or (shape.multiclass and (np.diff(Y.indptr) != 1).any()):
        raise ValueError("labels")
    return Batch(X, Y, w, names)
