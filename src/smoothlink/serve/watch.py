"""The model file behind a server: read once and watched, so that no answer comes from a file that is neither model."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from smoothlink.errors import ModelFileError
from smoothlink.modelfile import load
from smoothlink.safetensors_file import MAX_HEADER
from smoothlink.serve.http_errors import Refused

EVERY = 1.0  # seconds between two looks at the file, where it is loaded again
Stamp = tuple[int, int, int, int] | None  # device, inode, size and time of a file; None: there is none
log = logging.getLogger("smoothlink.serve")


class Watched:
    """A model, the files it was loaded from, and whether they are still the same.

    A model whose files have at most `in_memory` bytes is read into memory, a larger one is mapped.
    """

    def __init__(self, path: str, in_memory: int, *, verify: str = "background", expected: str | None = None) -> None:
        self.path, self.files = path, [path]
        self.files += map(os.fspath, classifier_of(load(path, verify="never")).model_.V.files)
        self.loaded = self.seen = self.stamps()
        self.mapped = sum(stamp[2] for stamp in self.loaded if stamp) > in_memory
        self.fingerprints = [fingerprint(file) for file in self.files]
        self.model: Any = load(path, mmap=self.mapped, verify=verify)
        if self.stamps() != self.loaded:
            raise ModelFileError(f"{path} changed while it was read.\nStart the server when it is written.")
        if expected is not None and self.fingerprints[0] != expected:
            raise ModelFileError(
                f"{path} changed since the server was started: this process would answer with another model "
                "than the others.\nStart the server again, or type --reload."
            )
        self.refusal: str | None = None

    def stamps(self) -> list[Stamp]:
        """Where and of what time the files are now."""
        return [stamp(file) for file in self.files]

    def check(self) -> None:
        """Looks at the files: logs a change once, and refuses to answer from a mapped file that was written to."""
        now = self.stamps()
        if now != self.seen:
            self.refusal, self.seen = self._changed(now), now
        if self.refusal is not None:
            raise Refused(503, self.refusal)

    def _changed(self, now: list[Stamp]) -> str | None:
        """Logs that the files are not those that were loaded; returns why nothing can be answered, if so."""
        pairs = list(zip(self.loaded, now, strict=True))
        written = any(a and b and a[:2] == b[:2] and a != b for a, b in pairs)
        same_size = all(a and b and a[:3] == b[:3] for a, b in pairs)
        if same_size and [fingerprint(file) for file in self.files] == self.fingerprints:
            return None  # only its time is another
        if self.mapped and written:
            log.error(
                "%s was overwritten while it was served, and requests are refused. Start the server again. Put a new "
                "model in place by mv, not cp: then the server goes on with the one it has.",
                self.path,
            )
            return "The model file was overwritten while it was served. The server must be started again."
        log.warning("%s changed. The server goes on with the model that it loaded.", self.path)
        return None


class Reloading:
    """The application of the newest model file: when it changes, the next one is made in a thread and takes over."""

    def __init__(self, make: Callable[[], tuple[ASGIApp, Watched]], every: float = EVERY) -> None:
        self.make, self.every = make, every
        self.app, self.watched = make()
        threading.Thread(target=self._follow, name="smoothlink-reload", daemon=True).start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    def _follow(self) -> None:
        looked_at = self.watched.loaded
        while True:
            time.sleep(self.every)
            now = self.watched.stamps()
            if now in (looked_at, self.watched.loaded):
                continue
            time.sleep(self.every)
            if self.watched.stamps() != now:
                continue  # still being written
            looked_at = now
            try:
                self.app, self.watched = self.make()
            except Exception as error:  # whatever it is, the model that is served goes on being served
                log.error("The changed model is not served: %s", error)
                continue
            log.warning("%s changed: the new model is served.", self.watched.path)
            gc.collect()  # applications refer to themselves, and to the former model


def classifier_of(model: Any) -> Any:
    """The classifier of a text model, or the model itself."""
    return getattr(model, "classifier_", model)


def stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def fingerprint(path: str) -> str:
    """The SHA-256 of a model file's header, which holds the checksums of all arrays; empty where there is no file."""
    try:
        with open(path, "rb") as file:
            length = file.read(8)
            return hashlib.sha256(length + file.read(min(int.from_bytes(length, "little"), MAX_HEADER))).hexdigest()
    except OSError:
        return ""
