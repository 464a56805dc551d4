"""NumPy archives: one .npz with X, Y and names, as `write` makes it, or a pair X.npz and Y.npz by scipy's save_npz."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from smoothlink.data.files_on_disk import check_archive, load, other_half, replacing
from smoothlink.data.matrices_from_rows import LARGEST_ID, Reach, check_columns, checked
from smoothlink.data.read import Data, Options
from smoothlink.errors import DataError

Arrays = dict[str, NDArray[Any]]
NPZ_HALVES = {"X": "Y"}


def read(path: str, options: Options) -> Data:
    arrays = _arrays(path)
    if "X_indptr" in arrays or "X" in arrays:
        if options.labels_path is not None:
            raise DataError(f"{path}: the labels are in this file.\nLeave --labels-file out.")
        X, Y = _part(path, arrays, "X"), _part(path, arrays, "Y")
        names = _names(path, arrays, "label_names", Y.shape[1]), _names(path, arrays, "feature_names", X.shape[1])
    else:
        labels_path = _labels_path(path, options.labels_path)
        X, Y, names = _part(path, arrays, ""), _part(labels_path, _arrays(labels_path), "", binary=True), (None, None)
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"{path}: X has {X.shape[0]} rows, Y {Y.shape[0]}.\nPair X with the labels of the same rows.")
    return Data(X, Y, *names)


def write(data: Data, path: str) -> None:
    arrays: dict[str, Any] = {}
    for letter, matrix in (("X", data.X), ("Y", data.Y)):
        arrays |= {f"{letter}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
        arrays[f"{letter}_shape"] = np.array(matrix.shape)
    for key, names in (("label_names", data.label_names), ("feature_names", data.feature_names)):
        if names is not None:
            arrays[key] = np.frombuffer(json.dumps(names).encode(), np.uint8)
    with replacing(path) as stream:
        np.savez_compressed(stream, **arrays)


def _arrays(path: str) -> Arrays:
    """Returns the arrays of an archive. Objects are refused: loading them could run code."""
    content = BytesIO(load(path).data.tobytes())

    def take() -> Arrays:
        check_archive(path, content)  # which must be one: np.load would also take a lone .npy
        with np.load(content, allow_pickle=False) as archive:
            # Of an entry that is no array NumPy gives the bytes.
            return {name: array for name, array in archive.items() if isinstance(array, np.ndarray)}

    arrays: Arrays = _trying(take, path, "is not a complete .npz archive of plain arrays", "Make or fetch it again.")
    return arrays


def _trying(load_part: Callable[[], Any], path: str, trouble: str, remedy: str) -> Any:
    """Returns the result of `load_part`; whatever a hostile archive makes NumPy raise becomes one message."""
    try:
        return load_part()
    except DataError:
        raise
    except Exception as e:
        reason = " ".join(str(e).split())[:120]
        raise DataError(f"{path} {trouble} ({reason}).\n{remedy}") from e


def _part(path: str, arrays: Arrays, letter: str, binary: bool = False) -> csr_array:
    """X, Y, or the one matrix of a scipy file (letter "")."""
    where = f"{path}: {letter or 'the matrix'}"
    if letter and letter in arrays:
        matrix: Any = arrays[letter]
        if matrix.ndim != 2:
            raise DataError(f"{where} has {matrix.ndim} dimensions.\nSave it with rows and columns.")
    else:
        keys = {part: f"{letter}_{part}" if letter else part for part in ("data", "indices", "indptr", "shape")}
        missing = [key for key in keys.values() if key not in arrays]
        if missing:
            raise DataError(
                f"{path}: no array {missing[0]}; there are: {', '.join(sorted(arrays)) or 'none'}.\n"
                "Save X and Y with scipy.sparse.save_npz as csr or csc, or with `smoothlink convert`."
            )
        kind = arrays["format"].tobytes().strip(b"\0").decode("ascii", "replace") if "format" in arrays else "csr"
        parts = {part: arrays[key] for part, key in keys.items()}
        matrix = _trying(
            lambda: _compressed(parts, kind), path, "does not hold a sound sparse matrix", "Make or fetch it again."
        )
    noun = "label" if binary or letter == "Y" else "feature"
    found = checked(matrix, where, binary=noun == "label")
    remedy = "Save the matrix again with the columns that it has."
    check_columns(path, noun, found.shape[1], Reach.of(found.indices), remedy)
    return found


def _compressed(parts: Arrays, kind: str) -> csr_array | csc_array:
    """Returns a csr or csc matrix whose arrays fit together: scipy's own code trusts them and would read astray."""
    if kind not in ("csr", "csc"):
        raise ValueError(f"its form is {kind!r}, only csr and csc can be read")
    rows, columns = (int(size) for size in parts["shape"].ravel())
    indices, ptr, data = parts["indices"], parts["indptr"], parts["data"]
    major, minor = (rows, columns) if kind == "csr" else (columns, rows)
    if not (0 <= rows <= LARGEST_ID and 0 <= columns <= LARGEST_ID):
        raise ValueError(f"its shape is {rows} x {columns}")
    if any(part.ndim != 1 for part in (indices, ptr, data)) or any(
        part.dtype.kind not in "iu" for part in (indices, ptr)
    ):
        raise ValueError("indices and indptr are not lists of integers")
    if len(ptr) != major + 1 or ptr[0] != 0 or ptr[-1] != len(indices) or (np.diff(ptr.astype(np.int64)) < 0).any():
        raise ValueError("indptr does not count the entries of its rows")
    if len(data) != len(indices) or (len(indices) and not 0 <= indices.min() <= indices.max() < minor):
        raise ValueError("an index is out of range")
    index: Any = np.int32 if len(indices) <= LARGEST_ID else np.int64
    build = csr_array if kind == "csr" else csc_array
    return build((data, indices.astype(index), ptr.astype(index)), shape=(rows, columns))


def _names(path: str, arrays: Arrays, key: str, count: int) -> list[str] | None:
    if key not in arrays:
        return None
    trouble = f"holds {key} that are not UTF-8 JSON", "Make the file again with `smoothlink convert`."
    names = _trying(lambda: json.loads(arrays[key].tobytes()), path, *trouble)
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise DataError(
            f"{path}: {key} is not a list of {count} names.\nMake the file again with `smoothlink convert`."
        )
    return names


def _labels_path(path: str, given: str | None) -> str:
    expected = other_half(path, NPZ_HALVES)
    if given is not None or (expected is not None and expected.is_file()):
        return str(given or expected)
    seen = f"; {Path(expected).name} is not there" if expected else ""
    raise DataError(f"{path} holds one matrix, and the labels were not found{seen}.\nPass them with --labels-file.")
