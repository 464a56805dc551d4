"""The journal of a study: a file of lines that survives a kill, and a lock that does not."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from smoothlink.data.atomic import cut_torn_line

if sys.platform != "win32":  # which has Optuna's lock file: it is waited for when its owner was killed
    import fcntl

BEGINNING = b'{"op_code":'  # of every line


class JournalLock(JournalFileOpenLock):
    """Locks the journal itself: the system releases the lock of a process that is killed, so nobody waits for it.

    Who takes the lock first removes the part of a line that a killed writer, or a full disk, left at the end.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path
        self.held: BinaryIO | None = None

    def acquire(self) -> bool:
        if sys.platform == "win32":
            super().acquire()
            with open(self.path, "r+b") as file:
                cut_torn_line(file)
            return True
        file = open(self.path, "r+b")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            cut_torn_line(file)
        except BaseException:
            file.close()
            raise
        self.held = file
        return True

    def release(self) -> None:
        if self.held is None:
            super().release()
        else:
            self.held.close()


def open_journal(path: str) -> JournalFileBackend:
    """Returns the journal in a file, which is made where there is none."""
    return JournalFileBackend(path, JournalLock(path))


def is_journal(path: str | os.PathLike[str]) -> bool:
    """Returns whether the file is empty or begins as a journal does."""
    with open(path, "rb") as file:
        return BEGINNING.startswith(file.read(len(BEGINNING)))
