"""Writing in one step: a reader finds the old file or folder or the whole new one, never a part of it."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

if sys.platform != "win32":  # pragma: no branch
    import fcntl

NAMES = 10  # of temporary files of one target, before they get random ones
TEMPORARY = "smoothlink-fit-"  # how the names of temporary folders begin
WINDOWS = os.name == "nt"


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yields a stream; what is written to it becomes the file `path` once it is on disk, and nothing if it fails.

    A file that is replaced keeps its permissions; of a link, the file that it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    temporary, handle = _create(target, _make_file)
    try:
        with open(handle, "wb", closefd=WINDOWS) as stream:  # elsewhere the lock is held until the file has its name
            if target.exists() and hasattr(os, "fchmod"):
                os.fchmod(handle, target.stat().st_mode & 0o7777)
            yield stream
            stream.flush()
            os.fsync(handle)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    finally:
        if not WINDOWS:
            os.close(handle)
    _sync(target.parent)


@contextmanager
def replace_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a new folder that takes the name `path` once its files are on disk; a folder of that name is removed."""
    target = Path(os.path.realpath(path))
    old = target.with_name(f".{target.name}.old.part")
    if old.exists() and not target.exists():  # a process was killed between two renames
        old.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    temporary, handle = _create(target, _make_folder)
    handles = [handle]
    try:
        yield temporary
        for file in [*temporary.iterdir(), temporary]:
            _sync(file)
        if not target.exists():
            temporary.rename(target)
            _sync(target.parent)
        else:
            handles.append(_open_folder(target))  # of what will have the temporary name, until it is removed
            if not _exchange(temporary, target):
                target.rename(old)
                try:
                    temporary.rename(target)
                except OSError:
                    old.rename(target)
                    raise
                temporary = old
            _sync(target.parent)
            shutil.rmtree(temporary, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        for opened in handles:
            _close(opened)


@contextmanager
def replace_files(paths: Sequence[str | os.PathLike[str]]) -> Iterator[Path]:
    """Yields a new folder, whose files take the places of `paths`, all in one folder, once they are on disk.

    The old ones go before the first new one comes: a kill may leave some of the old ones or some of the new ones, but
    never both, which nobody would notice.
    """
    parent = Path(os.path.realpath(Path(paths[0]).parent))
    targets = [parent / Path(path).name for path in paths]
    temporary, handle = _create(targets[0], _make_folder)
    try:
        yield temporary
        for file in [*temporary.rglob("*"), temporary]:
            _sync(file)
        for target in targets:
            with suppress(FileNotFoundError):
                shutil.copymode(target, temporary / target.name)
                target.unlink()
        _sync(parent)
        for target in targets:
            (temporary / target.name).rename(target)
        _sync(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _close(handle)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yields a new folder for large files, which is removed at the end; those that killed processes left go first."""
    for left in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        _remove_abandoned(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY))
        with suppress(FileNotFoundError):  # another process took it for abandoned
            handle = _open_folder(folder)
            if _is_own(handle, folder):
                break
            _close(handle)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what is still mapped stays until it is not
        _close(handle)


FULL = "The disk is full, or your part of it: free some room, or name a file on another disk."
REMEDIES = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: "The system allows no file of this size: raise the limit (ulimit -f), or name a file on another disk.",
    errno.EIO: "The disk reports an error: check it, or name a file on another disk.",
    errno.EROFS: "The disk is read-only: name a file on another one.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}


def remedy(error: OSError) -> str:
    """Returns what to do about a file or folder that the system does not let us write."""
    if error.errno is None:  # as NumPy's error for an array that was not written whole
        return FULL
    return REMEDIES.get(error.errno, "Check that the folder exists and is yours.")


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
            while line:  # after a part of it, the next write says why
                line = line[file.write(line) :]
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
        end = start + file.read(end - start).rfind(b"\n") + 1
        if end > start:
            break
    if end < size:
        file.truncate(end)


H = TypeVar("H", int, int | None)


def _create(target: Path, make: Callable[[Path], H]) -> tuple[Path, H]:
    """Returns a new hidden file or folder next to the target, so that it is on the same disk, and its handle.

    Who writes holds a lock on it, which goes with a process that is killed: what nobody holds was left by one, and is
    removed. Where there are no locks (Windows, some network disks) it stays, and another name is taken.
    """
    number = 0
    while True:
        unique = "" if not number else f".{number}" if number < NAMES else f".{secrets.token_hex(4)}"
        temporary = target.with_name(f".{target.name}{unique}.part")
        try:
            handle = make(temporary)
        except FileExistsError:
            number += not _remove_abandoned(temporary)
            continue
        if _is_own(handle, temporary):
            return temporary, handle
        _close(handle)


def _is_own(handle: int | None, path: Path) -> bool:
    """Locks what was just made; returns False where another process took it for abandoned before."""
    if handle is None or (locked := _lock(handle)) is None:
        return True
    return locked and _is_at(handle, path)


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _make_file(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)


def _make_folder(path: Path) -> int | None:
    path.mkdir()
    try:
        return _open_folder(path)
    except FileNotFoundError as error:  # another process took it for abandoned
        raise FileExistsError from error


def _open_folder(path: Path) -> int | None:
    """Returns the handle of a folder, locked if possible; None on Windows, where folders cannot be opened."""
    if WINDOWS:
        return None
    handle = os.open(path, os.O_RDONLY)
    _lock(handle)
    return handle


def _remove_abandoned(path: Path) -> bool:
    """Removes what a killed process left; returns whether the name may be tried again."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return True
    except OSError:  # of another user, or a link
        return False
    try:
        if not _lock(handle) or not _is_at(handle, path):
            return False
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _lock(handle: int) -> bool | None:
    """Locks an open file or folder without waiting; returns whether it could, None where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Returns whether this name is that of the open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _exchange(first: Path, second: Path) -> bool:
    """Exchanges the names of two folders in one step; returns False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    current_folder, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2(current_folder, os.fsencode(first), current_folder, os.fsencode(second), exchange) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), str(second))


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on disk."""
    if WINDOWS and path.is_dir():  # where folders cannot be opened
        return
    opened = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
