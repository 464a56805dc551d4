"""smoothlink's own form: a folder of NumPy arrays that are mapped, not read (docs/file-format.md)."""

import json
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy.sparse import csr_array

from smoothlink.data.atomic import replace_folder
from smoothlink.data.files_on_disk import STANDARD_INPUT, load_bytes, not_written
from smoothlink.data.matrices_from_rows import LARGEST_ID, Reach, check_columns
from smoothlink.data.read import Data, FileSizes, Options
from smoothlink.errors import DataError
from smoothlink.machines.rows_in_files import MappedMatrix

HEADER = "header.json"
FORMAT, VERSION = "smoothlink-data", 1
ARRAYS = {"x_indptr": "<i8", "x_indices": "<i4", "x_data": "<f4", "y_indptr": "<i8", "y_indices": "<i4"}
NAME_KEYS = ("label_names", "feature_names")
CHECKSUMS, OWN = "crc32", "header_crc32"  # of the arrays and names, and of the rest of the header
AGAIN = "Make the folder again with `smoothlink convert`."


def is_folder(path: str) -> bool:
    """Returns whether this is a data folder."""
    return os.path.isfile(os.path.join(path, HEADER))


def read(path: str, options: Options) -> Data:
    """Returns X and Y over the mapped arrays, after one look through them that compares their checksums: at the speed
    of the disk, and in little memory."""
    data, header = open_folder(path), _header(path)
    for letter, matrix in zip("xy", data[:2], strict=True):
        found = matrix.checksums()
        if found is None:
            raise _unsound(path, letter)
        for name, crc in zip((f"{letter}_indices", f"{letter}_data"), found, strict=True):
            if name in ARRAYS:
                _compare(path, header, name, crc)
        noun = "feature" if letter == "x" else "label"
        check_columns(path, noun, matrix.shape[1], Reach.of(matrix.indices), AGAIN)
    return data


def has_checksums(path: str) -> bool:
    """Returns whether a folder has checksums; those of smoothlink 0.1.0 have none."""
    return CHECKSUMS in _header(path)


def sizes(path: str, options: Options) -> FileSizes | None:
    """Returns what the header says; no row is looked at."""
    header = _header(path)
    n, d, c = (header[size] for size in ("rows", "features", "labels"))
    names = (_names(path, header, key, count) for key, count in zip(NAME_KEYS, (c, d), strict=True))
    return FileSizes(n, d, c, len(_mapped(path, "x_indices")), *names)


def check_rows(path: str, X: csr_array, Y: csr_array) -> None:
    """Raises an error where rows that were read from a data folder are not sound; products trust this."""
    for letter, A in (("x", X), ("y", Y)):
        if not MappedMatrix.over(A.indptr, A.indices, A.data, A.shape[1]).sound():
            raise _unsound(path, letter)


def _unsound(path: str, letter: str) -> DataError:
    return DataError(f"{path}: {letter}_indices or {letter}_data hold what no row can have.\n{AGAIN}")


def open_folder(path: str) -> Data:
    """Returns X and Y over the mapped arrays, whose entries nobody has looked at."""
    header = _header(path)
    n, d, c = (header[size] for size in ("rows", "features", "labels"))
    found = {name: _mapped(path, name) for name in ARRAYS}
    matrices = []
    for letter, columns in (("x", d), ("y", c)):
        indptr, indices = np.array(found[f"{letter}_indptr"]), found[f"{letter}_indices"]
        entries = found["x_data"] if letter == "x" else indices
        if len(indptr) != n + 1 or indptr[0] != 0 or not indptr[-1] == len(indices) == len(entries):
            raise DataError(f"{path}: the arrays of {letter.upper()} do not fit the header.\n{AGAIN}")
        if (np.diff(indptr) < 0).any():
            raise DataError(f"{path}: {letter}_indptr does not count the entries of its rows.\n{AGAIN}")
        _compare(path, header, f"{letter}_indptr", zlib.crc32(indptr.data))
        indptr = indptr.astype(np.int32) if indptr[-1] <= LARGEST_ID else indptr
        matrices.append(MappedMatrix.over(indptr, indices, entries if letter == "x" else None, columns))
    names = (_names(path, header, key, count) for key, count in zip(NAME_KEYS, (c, d), strict=True))
    return Data(*matrices, *names)


def write(data: Data, path: str) -> None:
    parts = ((data.X[i : i + _ROWS], data.Y[i : i + _ROWS]) for i in range(0, data.X.shape[0], _ROWS))
    columns = Columns(data.X.shape[1], data.Y.shape[1], data.label_names, data.feature_names)
    write_parts(parts, path, lambda: columns)


_ROWS = 1 << 16


class Columns(NamedTuple):
    """How many there are, and their names."""

    features: int
    labels: int
    label_names: list[str] | None
    feature_names: list[str] | None


def write_parts(
    parts: Iterable[tuple[csr_array, csr_array]], path: str, columns: Callable[[], Columns]
) -> tuple[int, int, int]:
    """Writes blocks of rows as they come, and at the end what is known of the columns; returns n, d, c."""
    if os.path.exists(path) and not is_folder(path):
        raise DataError(f"{path} is there already and is no data folder.\nName another folder.")
    try:
        with replace_folder(path) as folder:
            return _write_arrays(parts, folder, columns)
    except OSError as e:
        raise not_written(path, e) from e


def _write_arrays(
    parts: Iterable[tuple[csr_array, csr_array]], folder: Path, columns: Callable[[], Columns]
) -> tuple[int, int, int]:
    writers = {name: _Writer(folder / f"{name}.npy", kind) for name, kind in ARRAYS.items()}
    for letter in "xy":
        writers[f"{letter}_indptr"].add(np.zeros(1, np.int64))
    ends = {"x": 0, "y": 0}
    for part in parts:
        for letter, matrix in zip("xy", part, strict=True):
            writers[f"{letter}_indptr"].add(matrix.indptr[1:].astype(np.int64) + ends[letter])
            writers[f"{letter}_indices"].add(matrix.indices)
            ends[letter] += int(matrix.indptr[-1])
        writers["x_data"].add(part[0].data)
    rows = writers["x_indptr"].count - 1
    for writer in writers.values():
        writer.close()
    checksums = {name: writer.crc32 for name, writer in writers.items()}
    d, c, *names = columns()
    for key, found in zip(NAME_KEYS, names, strict=True):
        if found is not None:
            text = json.dumps(found)
            (folder / f"{key}.json").write_text(text)
            checksums[key] = zlib.crc32(text.encode())
    header = {"format": FORMAT, "version": VERSION, "rows": rows, "features": d, "labels": c}
    header |= {"x_entries": ends["x"], "y_entries": ends["y"], CHECKSUMS: checksums}
    (folder / HEADER).write_text(json.dumps({**header, OWN: _own_checksum(header)}) + "\n")
    return rows, d, c


def bytes_in(path: str) -> int:
    """Returns how many bytes a file, or all files of a folder, take."""
    if os.path.isdir(path):
        return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
    return len(load_bytes(path)) if path == STANDARD_INPUT else os.path.getsize(path)


class _Writer:
    """A one-dimensional .npy file that grows: its header has room for any length and is written again at the end."""

    def __init__(self, path: Path, kind: str) -> None:
        self.file: IO[bytes] = path.open("wb")
        self.dtype, self.count, self.crc32 = np.dtype(kind), 0, 0
        self.begin = self._header()

    def _header(self) -> int:
        self.file.seek(0)
        content = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.count,)}
        npy.write_array_header_1_0(self.file, content)
        return self.file.tell()

    def add(self, values: NDArray[Any]) -> None:
        values = np.ascontiguousarray(values, self.dtype)
        self.file.write(values.data)  # NumPy's tofile does not notice where the last bytes have no room
        self.crc32 = zlib.crc32(values.data, self.crc32)
        self.count += len(values)

    def close(self) -> None:
        assert self._header() == self.begin
        self.file.close()


def _header(path: str) -> dict[str, Any]:
    if not is_folder(path):
        raise DataError(f"{path} is no data folder: it has no {HEADER}.\n{AGAIN}")
    try:
        header = json.loads(Path(path, HEADER).read_text())
        sizes = [header[size] for size in ("rows", "features", "labels")]
        fits = header["format"] == FORMAT and all(type(v) is int and 0 <= v <= LARGEST_ID for v in sizes)
        fits = fits and isinstance(header.get(CHECKSUMS, {}), dict)
        version = header["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
        raise DataError(f"{path}: {HEADER} cannot be read ({e!r}).\n{AGAIN}") from e
    if fits and version != VERSION:
        raise DataError(
            f"{path} has version {version} of the data folder; this smoothlink reads {VERSION}.\n"
            "Type: pip install --upgrade smoothlink"
        )
    if not fits:
        raise DataError(f"{path}: {HEADER} does not describe a data folder.\n{AGAIN}")
    if OWN in header and header.pop(OWN) != _own_checksum(header):
        raise DataError(f"{path}: {HEADER} is damaged: it does not match its checksum.\n{AGAIN}")
    return dict(header)


def _own_checksum(header: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(header, sort_keys=True).encode())


def _compare(path: str, header: dict[str, Any], name: str, crc: int) -> None:
    """Compares what was read with the checksum in the header, where there is one."""
    if header.get(CHECKSUMS, {}).get(name, crc) != crc:
        raise DataError(f"{path}: {name} is damaged: it does not match its checksum.\n{AGAIN}")


def _mapped(path: str, name: str) -> NDArray[Any]:
    file = os.path.join(path, f"{name}.npy")
    try:
        if os.path.exists(file) and not os.path.isfile(file):
            raise ValueError("it is no file")
        with open(file, "rb") as stream:
            if npy.read_magic(stream) == (1, 0):
                shape, fortran, dtype = npy.read_array_header_1_0(stream)
                if len(shape) == 1 and not fortran and dtype == np.dtype(ARRAYS[name]):
                    offset = stream.tell()
                    if os.path.getsize(file) != offset + shape[0] * dtype.itemsize:
                        raise ValueError("it was cut short")
                    return np.memmap(file, dtype, "r", offset, shape) if shape[0] else np.zeros(0, dtype)
        raise ValueError(f"it is not one list of {np.dtype(ARRAYS[name])}")
    except Exception as e:  # a damaged header makes NumPy raise nearly anything
        raise DataError(f"{file}: not as it should be ({e}).\n{AGAIN}") from e


def _names(path: str, header: dict[str, Any], key: str, count: int) -> list[str] | None:
    file = Path(path, f"{key}.json")
    if not file.is_file():
        return None
    try:
        text = file.read_text()
        names = json.loads(text)
    except (OSError, ValueError, RecursionError) as e:
        raise DataError(f"{file}: the names cannot be read ({e}).\n{AGAIN}") from e
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise DataError(f"{file} is not a list of {count} names.\n{AGAIN}")
    _compare(path, header, key, zlib.crc32(text.encode()))
    return names
