"""Bytes in and out of files: compression by magic bytes, whole files or an error in words, atomic writing."""

import bz2
import difflib
import errno
import functools
import glob
import gzip
import io
import lzma
import os
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.atomic import remedy, replace_file
from smoothlink.errors import DataError

SUFFIXES = (".gz", ".xz", ".bz2", ".zst")
_MAGIC = {
    "gz": rb"\x1f\x8b\x08",
    "xz": rb"\xfd7zXZ\x00",
    "bz2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)",  # the second is the empty file
    "zst": rb"\x28\xb5\x2f\xfd",
}
READ_BYTES = 1 << 20
BOMB_BYTES, BOMB_RATIO = 128 << 20, 200  # what a compressed file may become: so much, or so many times its size
MEMBER_BYTES = 1 << 16  # of a compressed file that are read at a time: what is left of them is copied for each member
ZST_BYTES = 64, 2048  # that are read at a time, as long as they become much, and else: four of them may become 128 KiB
STANDARD_INPUT = "-"


class Text(NamedTuple):
    """A file's bytes and its name as the user typed it."""

    path: str
    data: NDArray[np.uint8]
    lines_before: int = 0  # where these bytes are a part of the file

    def line(self, position: int) -> int:
        """Returns the number, from 1, of the line that holds this byte."""
        return self.lines_before + 1 + int(np.count_nonzero(self.data[:position] == ord("\n")))

    def error(self, position: int, what: str, remedy: str) -> DataError:
        return DataError(f"{self.path}, line {self.line(position)}: {what}\n{remedy}")

    def slice(self, start: int, stop: int) -> bytes:
        return self.data[start:stop].tobytes()

    def end_of_line(self, position: int) -> int:
        """Returns the byte after the last one of this line, its newline left out."""
        size, step = len(self.data), 4096
        while position < size:
            found = np.flatnonzero(self.data[position : position + step] == ord("\n"))
            if len(found):
                return position + int(found[0])
            position, step = position + step, step * 4
        return size


def shown(content: bytes, size: int = 40) -> str:
    """Returns the first bytes, fit to print in a message."""
    return repr(content[:size])[2:-1]


def load_bytes(path: str) -> NDArray[np.uint8]:
    """Returns all bytes of the file, decompressed; a plain file is mapped."""
    with _opened(path) as (stream, kind):
        if kind == "plain":
            return _plain(stream)
        joined = bytearray()
        for piece in _decompressed(stream, kind, path):
            joined += piece
        return np.frombuffer(joined, np.uint8)


def load(path: str) -> Text:
    """Returns the whole file, decompressed; a byte order mark is left out."""
    data = np.asarray(_without_mark(path, load_bytes(path)))
    data.flags.writeable = False  # always, so that the parsers are compiled once
    return Text(path, data)


def _without_mark(path: str, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns a file, or its beginning, without a byte order mark; raises an error where there is no UTF-8 text."""
    start = data[:3].tobytes()
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path}: the text is UTF-16, only UTF-8 can be read.\nSave it as UTF-8.")
    data = data[3:] if start == b"\xef\xbb\xbf" else data
    if not len(data):
        raise DataError(f"{path}: the file is empty.\nCheck the path, or make or fetch the file again.")
    return data


def load_pieces(path: str, size: int) -> Iterator[Text]:
    """Yields the file in pieces of about `size` bytes that end where lines end, decompressed as they are wanted."""
    lines, step = 0, min(size, READ_BYTES)
    with _opened(path) as (stream, kind):
        found = iter(lambda: stream.read(step), b"") if kind == "plain" else _decompressed(stream, kind, path)
        joined = bytearray()
        for piece in found:
            joined += piece
            if len(joined) < size or b"\n" not in piece:
                continue
            cut = joined.rindex(b"\n") + 1
            whole, joined = joined[:cut], joined[cut:]
            yield _text_of(path, whole, lines)
            lines += whole.count(b"\n")
    if joined or not lines:
        yield _text_of(path, joined, lines)


def _text_of(path: str, content: bytearray, lines: int) -> Text:
    data = np.frombuffer(bytes(content), np.uint8)
    return Text(path, data if lines else _without_mark(path, data), lines)


def head(path: str, size: int = 1 << 16) -> bytes:
    """Returns the first bytes of the file, decompressed, as many as there are up to about `size`."""
    with _opened(path) as (stream, kind):
        pieces = iter([stream.read(size)]) if kind == "plain" else _decompressed(stream, kind, path)
        found = b""
        while len(found) < size and (piece := next(pieces, None)) is not None:
            found += piece
        return found[:size]


def expanded(paths: Any) -> list[str]:
    """Returns the files of one path or several; a name with * is all files that fit it. URLs stay as they are."""
    names = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[str] = []
    for name in (str(os.fspath(path)) for path in names):
        pattern = glob.has_magic(name) and "://" not in name and not os.path.exists(name)
        fits = sorted(glob.glob(name)) if pattern else [name]
        if not fits:
            raise DataError(f"No file fits {name}.\nCheck the path.")
        found += fits
    if not found:
        raise DataError("No data file was named.\nName one, or several.")
    return found


def bare_name(path: str | Path) -> str:
    """Returns the file's name without a compression suffix: `train.txt.xz` -> `train.txt`."""
    name = Path(path).name
    return Path(name).stem if Path(name).suffix.lower() in SUFFIXES else name


def compressed_variants(path: Path) -> Iterator[Path]:
    """Yields the files that exist under this name, plain or compressed."""
    plain = path.with_name(bare_name(path))
    yield from (p for p in [path, plain, *(Path(f"{plain}{suffix}") for suffix in SUFFIXES)] if p.is_file())


def other_half(path: str, marks: dict[str, str]) -> Path | None:
    """Returns the file of labels that belongs to one of features, by the last mark: `trn_X_Xf.txt` -> `trn_X_Y.txt`."""
    name = Path(path).name
    for mark, other in marks.items():
        before, found, after = name.rpartition(mark)
        if found:
            return Path(path).with_name(before + other + after)
    return None


@contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """Yields a stream to a file that is written in one step, compressed by the suffix of `path`."""
    try:
        with replace_file(path) as raw, _compressor(raw, Path(path).suffix.lower()) as stream:
            yield stream
    except OSError as e:
        raise not_written(path, e) from e


def not_written(path: str, error: OSError) -> DataError:
    """Returns the error for a file or folder that the system does not let us write."""
    reason = error.strerror or str(error)
    return DataError(f"{path}: cannot be written: {reason}.\n{remedy(error)}")


@contextmanager
def _opened(path: str) -> Iterator[tuple[IO[bytes], str]]:
    """Yields the raw stream and its compression, "plain" or a key of _MAGIC."""
    try:
        if path != STANDARD_INPUT and not os.path.isdir(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise DataError(f"{path} is a pipe or a device, not a file.\nPass - and the data on standard input.")
        with _standard_input() if path == STANDARD_INPUT else open(path, "rb") as stream:
            start = stream.read(16)
            stream.seek(0)
            kind = next((k for k, magic in _MAGIC.items() if re.match(magic, start)), "plain")
            yield stream, kind
    except FileNotFoundError as e:
        raise DataError(f"{path}: there is no such file.\n{_nearest(path)}") from e
    except (OSError, ValueError) as e:
        if isinstance(e, DataError):
            raise
        if not isinstance(e, ValueError) and os.path.isdir(path):
            raise DataError(f"{path} is a folder, not a file.\n{_listing(path)}") from e
        reason = getattr(e, "strerror", None) or str(e)
        raise DataError(f"{path}: cannot be read: {reason}.\nCheck the path and its permissions.") from e


def _standard_input() -> IO[bytes]:
    """Returns all of standard input, also where it was read before."""
    return io.BytesIO(_content_of(sys.stdin))


@functools.lru_cache(maxsize=1)
def _content_of(stream: Any) -> bytes:
    return bytes(stream.buffer.read())


def displayed(path: str) -> str:
    """Returns what messages call a file."""
    return "standard input" if path == STANDARD_INPUT else path


def _plain(stream: IO[bytes]) -> NDArray[np.uint8]:
    """Returns a file that is not compressed, mapped rather than copied: the system lends the memory."""
    if isinstance(stream, io.BytesIO):
        return np.frombuffer(stream.getvalue(), np.uint8)
    try:
        return np.memmap(stream, np.uint8, mode="r")
    except (OSError, ValueError) as error:  # empty, or a pipe
        if getattr(error, "errno", None) == errno.ENOMEM:
            raise MemoryError("The file could not be mapped.") from error
        return np.frombuffer(stream.read(), np.uint8)


def _decompressed(stream: IO[bytes], kind: str, path: str) -> Iterator[bytes]:
    """Yields the pieces of a compressed file of one or more members, each of at most about 1 MiB; an error where the
    last one does not end, or where all is far larger than the file."""
    broken: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
    if kind == "zst":
        from zstandard import ZstdError

        broken += (ZstdError,)
    taken, size = 0, 0
    try:
        member = _Member(kind)
        while piece := stream.read(MEMBER_BYTES if kind != "zst" else ZST_BYTES[0 < size <= BOMB_RATIO * taken]):
            taken += len(piece)
            while piece:
                if member.eof:
                    piece = piece.lstrip(b"\0")  # padding is legal between members, and behind the last
                    if not piece:
                        break
                    member = _Member(kind)
                for found in member.pieces(piece):
                    size += len(found)
                    if is_bomb(taken, size):
                        raise DataError(f"{path}: {expands(size)}\nDecompress it first if it is what it should be.")
                    yield found
                piece = member.rest if member.eof else b""
        if not member.eof:
            raise EOFError("it ends too early")
    except broken as e:
        if isinstance(e, DataError):
            raise
        raise DataError(f"{path}: the .{kind} compression is broken or cut short ({e}).\nFetch the file again.") from e


def check_archive(path: str, content: IO[bytes]) -> None:
    """Raises an error where a zip archive, such as .npz and .xlsx are, holds far more than its size.

    zipfile reads no more of an entry than the archive announces.
    """
    with zipfile.ZipFile(content) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if is_bomb(content.seek(0, os.SEEK_END), size):
        raise DataError(f"{path}: {expands(size)}\nMake the file again, or pass another one.")
    content.seek(0)


def is_bomb(taken: int, size: int) -> bool:
    """Returns whether compressed bytes become so many that they are made to fill the memory: text becomes ten times its
    size at most, a file of one byte repeated a million times."""
    return size > BOMB_BYTES and size > BOMB_RATIO * taken


def expands(size: int) -> str:
    return f"a small compressed file that becomes more than {size >> 20:,} MiB."


class _Member:
    """One compressed stream of a file, decompressed in small pieces however well it is compressed."""

    def __init__(self, kind: str) -> None:
        self.made: Any
        match kind:
            case "gz":
                self.made = zlib.decompressobj(wbits=31)
            case "xz":
                self.made = lzma.LZMADecompressor()
            case "bz2":
                self.made = bz2.BZ2Decompressor()
            case _:
                from zstandard import ZstdDecompressor

                self.made = ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        self.kind = kind

    @property
    def eof(self) -> bool:
        return bool(self.made.eof)

    @property
    def rest(self) -> bytes:
        """Returns what follows the end of this member."""
        return bytes(self.made.unused_data)

    def pieces(self, compressed: bytes) -> Iterator[bytes]:
        if self.kind == "zst":  # without a limit of its own
            yield self.made.decompress(compressed)
        elif self.kind == "gz":
            while compressed and not self.eof:
                yield self.made.decompress(compressed, READ_BYTES)
                compressed = self.made.unconsumed_tail
        else:
            yield self.made.decompress(compressed, READ_BYTES)
            while not self.eof and not self.made.needs_input:
                yield self.made.decompress(b"", READ_BYTES)


@contextmanager
def _compressor(raw: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    stream: Any
    match suffix:
        case ".gz":  # without a name and a date inside, the same data gives the same bytes
            stream = gzip.GzipFile("", "wb", 6, raw, mtime=0)
        case ".xz":
            stream = lzma.LZMAFile(raw, "wb", preset=3)  # noqa: SIM115
        case ".bz2":
            stream = bz2.BZ2File(raw, "wb")
        case ".zst":
            from zstandard import ZstdCompressor

            stream = ZstdCompressor(level=3).stream_writer(raw, closefd=False)
        case _:
            stream = raw
    yield stream
    if stream is not raw:
        stream.close()


def _nearest(path: str) -> str:
    folder = Path(path).parent
    names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
    close = difflib.get_close_matches(Path(path).name, names, n=1)
    return f"Did you mean {folder / close[0]}?" if close else "Check the path."


def _listing(path: str) -> str:
    names = sorted(p.name for p in Path(path).iterdir() if p.is_file())[:5]
    return f"Name a file in it, such as {Path(path) / names[0]}." if names else "Name a file."
