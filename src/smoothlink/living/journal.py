"""What was acknowledged and is not yet in the model file: lines that are on disk before anybody is told so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.atomic import append_line, replace_file
from smoothlink.errors import ModelFileError
from smoothlink.living.changes import Batch

Array = NDArray[Any]


class Journal:
    """Lines of JSON beside a model file: the first says of which generation it is, each other adds rows or labels.

    Rows are features by number, not texts. A row that is forgotten is in no journal: `forget` saves a new generation.
    """

    def __init__(self, path: Path, generation: str) -> None:
        """Opens the journal; lines of another generation are in the model already, or were never for it."""
        self.path, self.batches = path, list[Batch]()
        text = path.read_bytes() if path.exists() else b""
        *lines, torn = text.split(b"\n")  # a kill may cut the last line, which nobody was told of
        try:
            if lines and json.loads(lines[0])["generation"] == generation:
                self.batches = [batch_of(json.loads(line)) for line in lines[1:]]
                if torn:
                    with open(path, "r+b") as file:
                        file.truncate(len(text) - len(torn))
                return
        except (ValueError, KeyError, TypeError) as error:
            raise ModelFileError(
                f"{path} is damaged: a line of it is no update.\nRemove it to go on without."
            ) from error
        self.clear(generation)

    def clear(self, generation: str) -> None:
        """Begins anew, for a generation of the model that holds all that was here."""
        self.batches = []
        with replace_file(self.path) as file:
            file.write(line_of({"generation": generation}))

    def append(self, batch: Batch) -> None:
        """Writes a line, whole and on disk, or not at all."""
        append_line(self.path, line_of(record_of(batch)))


def line_of(record: dict[str, Any]) -> bytes:
    """Returns a line of JSON."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


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


def batch_of(record: dict[str, Any]) -> Batch:
    """Returns the rows and labels of a line."""
    if "sparse" in record:
        indptr, indices, data = record["sparse"]
        shape = len(indptr) - 1, record["width"]
        X = sp.csr_array((np.array(data, np.float64), np.array(indices, np.int32), np.array(indptr, np.int32)), shape)
    else:
        X = np.array(record["dense"], np.float64).reshape(-1, record["width"])
    c, ends, labels = record["labels"]
    ones = np.ones(len(labels), np.float32)
    Y = sp.csr_array((ones, np.array(labels, np.int32), np.array(ends, np.int32)), (len(ends) - 1, c))
    return Batch(X, Y, np.array(record["weights"], np.float64), record["names"])
