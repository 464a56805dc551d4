"""Writing in one step: a reader finds the old file or folder or the whole new one, never a part of it."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl


@contextmanager
def replace_file(path: str | os.PathLike[str], *, locked: bool = False) -> Iterator[BinaryIO]:
    """Yields a stream; what is written to it becomes the file `path` once it is on disk, and nothing if it fails.

    A file that is replaced keeps its permissions; of a link, the file that it points to is replaced. locked: no other
    process writes to this path, so the temporary file has one name, and what a killed process left is overwritten.
    """
    target = Path(os.path.realpath(path))
    temporary = _hidden(target, "" if locked else secrets.token_hex(4))
    try:
        with temporary.open("wb" if locked else "xb") as stream:
            if target.exists() and hasattr(os, "fchmod"):
                os.fchmod(stream.fileno(), target.stat().st_mode & 0o7777)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
        _sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replace_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a new folder that takes the name `path` once its files are on disk; a folder of that name is removed."""
    target = Path(os.path.realpath(path))
    unique = secrets.token_hex(4)
    temporary, old = _hidden(target, unique), _hidden(target, f"{unique}.old")
    try:
        temporary.mkdir()
        yield temporary
        for file in [*temporary.iterdir(), temporary]:
            _sync(file)
        if target.exists():
            target.rename(old)
        temporary.rename(target)
        _sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def append_line(path: str | os.PathLike[str], line: bytes) -> None:
    """Appends a line to a file, whole and on disk, or not at all.

    Processes that append to one file wait for each other; on Windows, one process at a time may append.
    """
    with open(path, "a+b", buffering=0) as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        cut_torn_line(file)
        end = file.seek(0, os.SEEK_END)
        try:
            if file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(end)
            raise


def cut_torn_line(file: BinaryIO) -> None:
    """Cuts the file after its last newline: what a killed writer, or a full disk, left of a line goes."""
    end = size = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - (1 << 16))
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        end = start + found + 1 if found >= 0 else start
        if found >= 0:
            break
    if end < size:
        file.truncate(end)


def _hidden(target: Path, unique: str) -> Path:
    """Returns the name of a temporary file next to the target, so that it is on the same disk."""
    return target.with_name(".".join(["", target.name, *([unique] if unique else []), "part"]))


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on disk."""
    if os.name == "nt" and path.is_dir():  # where folders cannot be opened
        return
    opened = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
