"""Named arrays and JSON <-> one safetensors file. Loading never runs code (docs/file-format.md)."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import stat
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.atomic import remedy, replace_file
from smoothlink.data.files_on_disk import BOMB_BYTES, BOMB_RATIO
from smoothlink.errors import ModelFileError
from smoothlink.machines.rows_in_files import pieces

Array = NDArray[Any]

KEY = "smoothlink"  # the one entry of the safetensors metadata
FORMAT_VERSION = 10  # that is written, and the newest that is read
DESCRIBED = 4  # the last version whose description repeats the type and shape of each array
MAX_HEADER = 100_000_000  # bytes; the safetensors library refuses larger ones too
VERIFIED_BYTES = 1 << 20  # bytes; smaller arrays are verified even when memory-mapped
CODES = {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "I8": "i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "u1",
    "U16": "<u2",
}
DTYPES: dict[str, np.dtype[Any]] = {code: np.dtype(name) for code, name in (CODES | {"BOOL": "?"}).items()}
FOREIGN = {  # how other files begin
    b"\x80": "a pickle (which smoothlink never opens: it can run code) or damaged",
    b"PK\x03\x04": "a zip archive (.npz, .pt, .zip)",
    b"\x1f\x8b": "a gzip file",
    b"\x93NUMPY": "a NumPy array",
}
PASS_A_MODEL = "Pass a model file, written by `smoothlink train` or save()."


class Unchecked(NamedTuple):
    """A mapped array that was not yet compared with its checksum."""

    path: Path
    name: str
    values: Array  # flat, in a mapping of their own: pages that are read here leave memory, those in use stay
    crc32: int

    def check(self, sound: Callable[[str, Array], bool]) -> None:
        crc, fits = 0, True
        for piece in pieces(self.values):
            crc = zlib.crc32(piece.data, crc)
            fits = fits and sound(self.name, piece)
        if crc != self.crc32:
            raise _damaged(self.path, f"array {self.name!r} does not match its checksum")
        if not fits:
            raise not_finite(self.path, self.name)


def not_finite(path: Path, name: str) -> ModelFileError:
    return ModelFileError(f"{path}: its array {name!r} holds numbers that are not finite.\nTrain the model again.")


class Verification:
    """Compares mapped arrays with their checksums in a thread, and looks whether their numbers are `sound`."""

    def __init__(
        self, arrays: Sequence[Unchecked] = (), sound: Callable[[str, Array], bool] = lambda name, values: True
    ) -> None:
        self.error: ModelFileError | MemoryError | None = None
        self.thread = threading.Thread(target=self._compare, args=(arrays, sound), daemon=True)
        self.thread.start()

    def _compare(self, arrays: Sequence[Unchecked], sound: Callable[[str, Array], bool]) -> None:
        try:
            for array in arrays:
                array.check(sound)
        except (ModelFileError, MemoryError) as error:
            self.error = error

    def check(self) -> None:
        """Raises an error if damage was found so far, or nobody can say."""
        if self.error is not None:
            raise type(self.error)(*self.error.args)

    def wait(self) -> None:
        """Raises an error if there is damage, once all arrays were compared."""
        self.thread.join()
        self.check()

    def __reduce__(self) -> tuple[type[Verification], tuple[()]]:
        """Waits first: a pickle holds the arrays themselves."""
        self.wait()
        return Verification, ()


class Loaded(NamedTuple):
    """The content of a model file."""

    arrays: dict[str, Array]
    meta: dict[str, Any]
    versions: dict[str, str]  # of smoothlink, numpy and python, at the time of saving
    checksums: dict[str, int]  # of the arrays, as the description states them
    unchecked: list[Unchecked]


def save(
    path: str | os.PathLike[str], arrays: Mapping[str, Array], meta: Mapping[str, Any], max_header: int = MAX_HEADER
) -> None:
    """Writes the arrays and the JSON-able `meta` to one file, whole or not at all."""
    ready = {name: _storable(name, array) for name, array in arrays.items()}
    ready = dict(sorted(ready.items(), key=lambda item: (-item[1].itemsize, item[0])))  # so each is aligned
    entries, begin = {}, 0
    for name, array in ready.items():
        offsets = [begin, begin := begin + array.nbytes]
        entries[name] = {"dtype": _code(array.dtype), "shape": list(array.shape), "data_offsets": offsets}
    header = {"__metadata__": {KEY: _description(ready, meta, entries)}, **entries}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > max_header:
        raise ModelFileError(f"meta takes {len(text) >> 20} MiB as JSON. Put long lists of names in pack_names arrays.")
    with replacing(Path(path)) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in ready.values():
            for piece in pieces(_bytes(array)):
                file.write(piece.data)


def load(path: str | os.PathLike[str], *, mmap: bool = True, verify: bool = False) -> Loaded:
    """Reads a model file. Memory-mapped arrays are read-only, and read from disk as they are used.

    Checksums of all arrays are compared if verify=True or mmap=False, otherwise those of arrays under 1 MiB; the others
    are in `unchecked`.
    """
    path = Path(path)
    arrays, unchecked = {}, []
    try:
        with open_regular(path) as file:
            header, start = _header(file, path)
            content = _checked_content(header, path)
            checksums, places = content["arrays"], _places(header, os.fstat(file.fileno()).st_size - start, path)
            if header.keys() != checksums.keys():
                raise _damaged(path, "its arrays are not those of its description")
            if not all(type(crc) is int for crc in checksums.values()):
                raise _damaged(path, "an array does not match its checksum")
            whole = np.memmap(file, np.uint8, "r") if mmap else None
            for name, place in places.items():
                begin, end = start + place.begin, start + place.end
                file.seek(begin)
                raw = np.fromfile(file, np.uint8, end - begin) if whole is None else whole[begin:end]
                crc = checksums[name]
                checked = verify or not mmap or end - begin < VERIFIED_BYTES
                arrays[name] = _array(raw, place, path, name, crc if checked else None)
                if not checked:
                    mapped = np.memmap(file, np.uint8, "r", begin, end - begin)
                    unchecked.append(Unchecked(path, name, np.asarray(mapped).view(place.dtype), crc))
    except OSError as error:
        raise ModelFileError(_unreadable(path, error)) from error
    return Loaded(arrays, content["meta"], content["versions"], checksums, unchecked)


def pack_names(names: Sequence[str], key: str = "names") -> dict[str, Array]:
    """Returns a list of strings as one array: their number and lengths and all of their UTF-8 bytes, compressed
    (docs/file-format.md)."""
    try:
        encoded = [name.encode() for name in names]
    except UnicodeEncodeError as error:
        raise ModelFileError(f"{key}: {error.object!r} is not valid Unicode. Decode the file as UTF-8.") from error
    lengths = np.array([len(encoded), *map(len, encoded)], "<u4")
    return {f"{key}_zlib": np.frombuffer(zlib.compress(lengths.tobytes() + b"".join(encoded)), np.uint8)}


def unpack_names(arrays: Mapping[str, Array], key: str = "names", most: int = BOMB_BYTES) -> list[str]:
    """Returns the list of strings that `pack_names`, of this version or before 0.5, packed under this key."""
    raw, ends = _packed_names(arrays, key, most) if f"{key}_zlib" in arrays else _former_names(arrays, key)
    try:
        return [raw[begin:end].decode() for begin, end in pairwise(ends)]
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{key} holds bytes that are not UTF-8. Save the model again.") from error


def has_names(arrays: Mapping[str, Array], key: str) -> bool:
    """Returns whether there are packed names under this key."""
    return f"{key}_zlib" in arrays or f"{key}_utf8" in arrays


def _packed_names(arrays: Mapping[str, Array], key: str, most: int) -> tuple[bytes, list[int]]:
    """Returns the bytes of names, and where each begins in them and the last ends."""
    broken = ModelFileError(f"{key} cannot be decompressed. Save the model again.")
    packed, stream = arrays[f"{key}_zlib"], zlib.decompressobj()
    if packed.dtype != np.uint8 or packed.ndim != 1:
        raise broken
    try:
        raw = stream.decompress(packed.tobytes(), max(most, BOMB_RATIO * packed.size))
    except zlib.error as error:
        raise broken from error
    if not stream.eof or stream.unused_data or len(raw) < 4:
        raise broken
    lengths = np.frombuffer(raw, "<u4", 1 + min(int(np.frombuffer(raw, "<u4", 1)[0]), len(raw) // 4 - 1)).astype(int)
    ends = [0, *np.cumsum(lengths[1:]).tolist()]
    if len(lengths) != lengths[0] + 1 or 4 * len(lengths) + ends[-1] != len(raw):
        raise ModelFileError(f"The lengths of {key} do not cut its bytes into names. Save the model again.")
    return raw[4 * len(lengths) :], ends


def _former_names(arrays: Mapping[str, Array], key: str) -> tuple[bytes, list[int]]:
    """Returns the same of two arrays, the bytes and where each name begins and the last ends, of files before 0.5."""
    try:
        data, offsets = arrays[f"{key}_utf8"], arrays[f"{key}_offsets"]
    except KeyError as error:
        raise ModelFileError(f"No array {error.args[0]!r}; there are: {', '.join(arrays) or 'none'}.") from error
    fits = data.dtype == np.uint8 and data.ndim == offsets.ndim == 1 and offsets.dtype == np.int64 and len(offsets)
    if not fits or offsets[0] != 0 or offsets[-1] != len(data) or (np.diff(offsets) < 0).any():
        raise ModelFileError(f"The offsets of {key} do not cut its {data.size} bytes into names. Save the model again.")
    return data.tobytes(), offsets.tolist()


# Writing


def _storable(name: str, array: Array) -> Array:
    """Returns a C-contiguous, little-endian array of a supported type: a copy only where it is not one yet."""
    found = np.asarray(array)
    code = _code(found.dtype)
    if code is None:
        raise ModelFileError(
            f"Array {name!r} is of type {found.dtype}; a model file holds float16-64, int8-64, uint8, uint16 and bool. "
            "Convert it with astype, or put text and numbers into meta."
        )
    if name in ("", "__metadata__") or not name.isascii():
        raise ModelFileError(f"{name!r} cannot name an array. Use ASCII letters and digits.")
    return np.asarray(found, DTYPES[code], order="C")


def _code(dtype: np.dtype[Any]) -> str | None:
    """Returns its name in the header: float32 of either byte order -> F32."""
    return next((code for code, known in DTYPES.items() if known == dtype.newbyteorder("<")), None)


def _description(arrays: Mapping[str, Array], meta: Mapping[str, Any], entries: dict[str, Any]) -> str:
    """Returns the JSON text under KEY: format, versions, the checksum of each array, the model's own meta, and a
    checksum of all this and of the header's entries."""
    own = importlib.metadata.version("smoothlink")
    content = {
        "format": "smoothlink",
        "format_version": FORMAT_VERSION,
        "versions": {"smoothlink": own, "numpy": np.__version__, "python": platform.python_version()},
        "arrays": {name: checksum(array) for name, array in arrays.items()},
        "meta": dict(meta),
    }
    try:
        _refuse_keys_that_json_changes(content)
        return canonical({**content, "crc32": _crc_with(content, entries)})
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(
            f"meta cannot be written as JSON: {error}. "
            "Use None instead of NaN, int() and float() for NumPy scalars, and arrays for numbers in bulk."
        ) from error


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def checksum(array: Array) -> int:
    """Returns the CRC-32 of an array's bytes."""
    crc = 0
    for piece in pieces(_bytes(array)):
        crc = zlib.crc32(piece.data, crc)
    return crc


def _crc_with(content: dict[str, Any], entries: dict[str, Any]) -> int:
    """Returns the CRC-32 of a description and of the header's entries for the arrays."""
    return zlib.crc32(canonical({**content, "header": entries}).encode())


def _refuse_keys_that_json_changes(value: Any) -> None:
    """Raises an error for keys that are not text: Python would turn 1 into "1" and None into "null" without a word."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
        value = list(value.values())
    for item in value if isinstance(value, list | tuple) else ():
        _refuse_keys_that_json_changes(item)


def canonical(content: Any) -> str:
    """Returns one text per content, so that a checksum of the text is one of the content."""
    return json.dumps(content, allow_nan=False, sort_keys=True, separators=(",", ":"))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yields the stream of a model file that is written in one step."""
    path = Path(os.path.realpath(path))
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"lies in {path.parent}, which does not exist"
        raise ModelFileError(f"Cannot write a model to {path}: it {what}. Name a file in a folder that exists.")
    try:
        with replace_file(path) as file:
            yield file
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be written: {error.strerror or error}.\n{remedy(error)}") from error


# Reading: nothing of the file is believed before it is checked


def _damaged(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"{path} is damaged: {what}.\nCopy it again from where it was saved, or train again.")


def _unreadable(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"There is no file {path}. Check the name; `smoothlink train` writes model files."
    if isinstance(error, IsADirectoryError) or path.is_dir():
        return f"{path} is a folder. Name the model file in it (usually *.safetensors)."
    return f"Cannot read {path}: {error.strerror or error}."


def open_regular(path: Path) -> BinaryIO:
    """Returns the stream of a file; raises an error for a pipe, which would be waited for, or a device."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ModelFileError(f"{path} is not a file but a pipe or a device.\n{PASS_A_MODEL}")
    return file


def strict_json(text: bytes | str) -> Any:
    """Returns the content of a JSON text, as strictly as the safetensors library reads it: UTF-8 without a byte order
    mark, no key twice, no NaN, and no -0 among integers."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key occurs twice")
        return found

    def refuse(number: str) -> Any:
        raise ValueError(f"{number} is no number of JSON")

    def integer(number: str) -> int:
        return refuse(number) if number == "-0" else int(number)

    text = text.decode() if isinstance(text, bytes) else text
    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_int=integer)


def _header(file: BinaryIO, path: Path) -> tuple[dict[str, Any], int]:
    """Returns the safetensors header (8 bytes of length, then JSON) and where the data begins."""
    beginning = file.read(8)
    length = int.from_bytes(beginning, "little")
    try:
        if len(beginning) < 8 or length > min(MAX_HEADER, os.fstat(file.fileno()).st_size - 8):
            raise ValueError("length")
        header = strict_json(file.read(length))
        if not isinstance(header, dict):
            raise ValueError("object")
    except (ValueError, RecursionError) as error:
        kinds = (kind for magic, kind in FOREIGN.items() if beginning.startswith(magic))
        kind = next(kinds, "not a safetensors file, or it was cut short or damaged")
        raise ModelFileError(f"{path} is {kind}.\n{PASS_A_MODEL}") from error
    return header, 8 + length


def _checked_content(header: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns what `_description` wrote, whatever the version. That is read first: all else may change with it."""
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or KEY not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but not a smoothlink model.\n{PASS_A_MODEL}")
    try:
        if metadata.keys() != {KEY}:  # no other is covered by a checksum
            raise ValueError("metadata")
        content = strict_json(metadata[KEY])
        version = content["format_version"]
        if content["format"] != "smoothlink" or type(version) is not int or version < 1:
            raise ValueError("format")
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise _damaged(path, "its description cannot be read") from error
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has model format {version}; this version of smoothlink reads up to {FORMAT_VERSION}.\n"
            "Type: pip install --upgrade smoothlink"
        )
    crc = content.pop("crc32", None)
    try:
        found = zlib.crc32(canonical(content).encode()) if version <= DESCRIBED else _crc_with(content, header)
    except (ValueError, RecursionError):  # NaN, or no end of brackets
        found = None
    if crc is None or found != crc or not all(isinstance(content.get(x), dict) for x in ("arrays", "meta", "versions")):
        raise _damaged(path, "its description does not match its checksum")
    if version <= DESCRIBED:
        content["arrays"] = _described_checksums(header, content["arrays"], path)
    return dict(content)


def _described_checksums(header: dict[str, Any], described: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns the checksums of the arrays of smoothlink 0.1, whose description repeats what the header says of them."""
    checksums = {}
    for name, entry in described.items():
        try:
            same = name not in header or all(header[name][key] == entry[key] for key in ("dtype", "shape"))
            checksums[name] = entry.get("crc32", -1)
        except (TypeError, KeyError, AttributeError):
            same = False
        if not same:
            raise _damaged(path, f"array {name!r} does not match its description")
    return checksums


class _Place(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int  # from the start of the data
    end: int


def _places(header: dict[str, Any], room: int, path: Path) -> dict[str, _Place]:
    """Returns where each array lies; the arrays must fill the data exactly."""
    places = {}
    for name, entry in header.items():
        try:
            (begin, end), shape = entry["data_offsets"], tuple(entry["shape"])
            place = _Place(DTYPES[entry["dtype"]], shape, begin, end)
            fits = len(entry) == 3 and name.isascii() and type(entry["shape"]) is list
            fits = fits and all(type(number) is int and number >= 0 for number in (*shape, begin, end))
            fits = fits and end - begin == math.prod(shape) * place.dtype.itemsize
        except (TypeError, ValueError, KeyError):
            fits = False
        if not fits:
            raise _damaged(path, f"the header's entry of array {name!r} makes no array")
        places[name] = place
    borders = sorted((place.begin, place.end) for place in places.values())
    if [0, *(end for _, end in borders)] != [*(begin for begin, _ in borders), room]:
        raise _damaged(path, f"its arrays do not fill its {room} bytes of data; it may have been cut short")
    return places


def _array(raw: Array, place: _Place, path: Path, name: str, crc: int | None) -> Array:
    """Returns the array of these bytes; crc=None: unchecked. (A byte that is neither 0 nor 1 makes no bool.)"""
    if (crc is not None and zlib.crc32(raw.data) != crc) or (place.dtype == np.bool_ and raw.size and raw.max() > 1):
        raise _damaged(path, f"array {name!r} does not match its checksum")
    try:
        return np.asarray(raw).view(place.dtype).reshape(place.shape)
    except (ValueError, OverflowError) as error:  # more than 64 dimensions, or 0 times a huge one
        raise _damaged(path, f"array {name!r} has no possible shape") from error
