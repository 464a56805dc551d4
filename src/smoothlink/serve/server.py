"""Running the application: the model file that it watches, and one process or several that listen on one socket."""

from __future__ import annotations

import errno
import gc
import hashlib
import logging
import math
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from smoothlink.errors import DataError, ModelFileError, SmoothLinkError
from smoothlink.modelfile import load
from smoothlink.safetensors_file import MAX_HEADER
from smoothlink.serve import ServerSettings
from smoothlink.serve.connections import Protocol
from smoothlink.serve.prometheus import MULTIPROCESS_FOLDER, ServerMetrics
from smoothlink.serve.schema import RefusedRequest
from smoothlink.serve.web_app import create_app
from smoothlink.vocabulary import with_vocabulary

BACKLOG = 2048  # connections that wait to be accepted
RELOAD_INTERVAL = 1.0  # seconds between two looks at the model file
SHORT_LIFE = 5.0  # seconds: a worker that is killed within them would be killed again
HANGING = 30  # seconds without a sign of life after which a worker is killed; it gives one before it loads the model
FileStamp = tuple[int, int, int, int] | None  # device, inode, size and time of a file; None: it does not exist
log = logging.getLogger("smoothlink.serve")


def serve(
    path: str, settings: ServerSettings, listening: socket.socket, *, workers: int, ready: Callable[[], None]
) -> None:
    """Serves until SIGTERM or SIGINT; requests that have begun are finished. Calls `ready` before the first request."""
    config = uvicorn.Config(
        AppFactory(path, settings, workers, fingerprint(path)),
        factory=True,
        workers=workers,
        loop="asyncio",
        http=partial(Protocol, settings=settings),  # type: ignore[arg-type]
        ws="none",
        log_level=logging.ERROR,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off" if settings.reload else "auto",  # which would keep the first application alive
        timeout_keep_alive=math.ceil(settings.idle_timeout),
        timeout_graceful_shutdown=int(settings.timeout) + 1,
        timeout_worker_healthcheck=HANGING,
        backlog=BACKLOG,
    )
    if workers == 1:
        config.load()  # a model that cannot be served raises before the address is shown
        ready()
        signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn shuts down, then raises the signal again
        uvicorn.Server(config).run(sockets=[listening])
        return
    with tempfile.TemporaryDirectory(prefix="smoothlink-metrics-") as folder:
        os.environ[MULTIPROCESS_FOLDER] = folder
        ready()
        Workers(config, [listening]).run()


@dataclass(frozen=True)
class AppFactory:
    """Makes the application, in whichever process it is called."""

    path: str
    settings: ServerSettings
    workers: int
    expected: str  # the fingerprint of the model that all processes serve

    def __call__(self) -> ASGIApp:
        metrics = ServerMetrics()
        try:
            if self.settings.reload:
                return ReloadingApp(lambda: self.make(metrics, verify="now"))
            return self.make(metrics, self.expected)[0]
        except SmoothLinkError as error:
            if self.workers == 1:
                raise
            sys.exit(f"smoothlink: {error}")

    def make(
        self, metrics: ServerMetrics, expected: str | None = None, verify: str = "background"
    ) -> tuple[ASGIApp, WatchedModel]:
        """Returns the application and the model file that it watches."""
        watched = WatchedModel(self.path, self.settings.in_memory // self.workers, verify=verify, expected=expected)
        name = os.path.basename(self.path).removesuffix(".safetensors")
        model = watched.model
        if self.settings.vocabulary is not None:
            model = with_vocabulary(model, self.settings.vocabulary)
        app = create_app(model, self.settings, name=name, metrics=metrics, check=watched.check)
        return app, watched


class Workers(Multiprocess):
    """Several processes. One that is killed is started again; if one cannot start, all are stopped."""

    def run(self) -> None:
        """Runs until a signal; raises SmoothLinkError where a worker cannot start."""
        self.first_seen: dict[int | None, float] = {}
        self.failure: str | None = None
        super().run()
        if self.failure is not None:
            raise SmoothLinkError(self.failure)

    def keep_subprocess_alive(self) -> None:
        if self.signal_queue or self.should_exit.is_set():
            return  # Ctrl-C reaches the workers too, which end as they should
        workers = self.processes.copy()
        for worker in workers:
            self.first_seen.setdefault(worker.pid, time.monotonic())
            worker.child_conn.close()  # or a worker that ends while it is asked for a sign of life is waited for
        self.check_ended(workers)
        super().keep_subprocess_alive()
        self.check_ended(workers)

    def check_ended(self, workers: list[Process]) -> None:
        """Stops all workers where one of these ended in a way that the next would end, too."""
        for worker in workers:
            code, age = worker.process.exitcode, time.monotonic() - self.first_seen[worker.pid]
            if code is None or self.signal_queue or self.should_exit.is_set():
                continue
            mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
            if code > 0 or age < SHORT_LIFE:
                self.failure = f"A worker process of the server ended with code {code}; all are stopped."
                self.should_exit.set()


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at this address; port 0 stands for any free one."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise DataError(
            f"--host {host} is not an address of this machine ({error.strerror}).\n"
            "Type --host 127.0.0.1 for this machine only, or --host 0.0.0.0 for all addresses."
        ) from error
    made = socket.socket(family, kind, proto)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        in_use = error.errno == errno.EADDRINUSE
        what = (
            f"Port {port} is already in use"
            if in_use
            else f"The server cannot listen on {host}:{port} ({error.strerror})"
        )
        raise DataError(f"{what}.\nType --port 0 for any free port, or another number.") from error
    made.listen(BACKLOG)
    return made


def address_of(listening: socket.socket) -> str:
    """Returns an address like http://127.0.0.1:8000."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class WatchedModel:
    """A model, the files it was loaded from, and whether they are still the same.

    A model whose files have at most `in_memory` bytes is read into memory, a larger one is mapped.
    """

    def __init__(self, path: str, in_memory: int, *, verify: str = "background", expected: str | None = None) -> None:
        self.path, self.files = path, [path]
        model: Any = load(path, verify="never")
        V = getattr(model, "classifier_", model).model_.V
        self.files += map(os.fspath, V.files)
        self.loaded = self.seen = self.stamps()
        self.mapped = sum(stamp[2] for stamp in self.loaded if stamp) > in_memory
        self.fingerprints = [fingerprint(file) for file in self.files]
        self.model: Any = load(path, mmap=self.mapped, verify=verify)
        if self.stamps() != self.loaded:
            raise ModelFileError(f"{path} changed while it was read.\nStart the server when it is written.")
        if expected is not None and self.fingerprints[0] != expected:
            raise ModelFileError(
                f"{path} changed since the server was started: this process would serve another model than the "
                "others.\nStart the server again, or type --reload."
            )
        self.refusal: str | None = None

    def stamps(self) -> list[FileStamp]:
        """Returns where and of what time the files are now."""
        return [file_stamp(file) for file in self.files]

    def check(self) -> None:
        """Logs a change of the files once; raises RefusedRequest where the model is mapped and was written to."""
        now = self.stamps()
        if now != self.seen:
            self.refusal, self.seen = self._log_change(now), now
        if self.refusal is not None:
            raise RefusedRequest(503, self.refusal)

    def _log_change(self, now: list[FileStamp]) -> str | None:
        """Logs that the files are not those that were loaded; returns why the model cannot be used, if so."""
        pairs = list(zip(self.loaded, now, strict=True))
        written = any(a and b and a[:2] == b[:2] and a != b for a, b in pairs)
        same_size = all(a and b and a[:3] == b[:3] for a, b in pairs)
        if same_size and [fingerprint(file) for file in self.files] == self.fingerprints:
            return None  # only its time changed
        if self.mapped and written:
            log.error(
                "%s was overwritten while it was served, and requests are refused. Start the server again. Put a new "
                "model in place by mv, not cp: then the server goes on with the one it has.",
                self.path,
            )
            return "The model file was overwritten while it was served. The server must be started again."
        log.warning("%s changed. The server goes on with the model that it loaded.", self.path)
        return None


class ReloadingApp:
    """The application of the newest model file: when it changes, the next one is made in a thread and replaces it."""

    def __init__(self, make: Callable[[], tuple[ASGIApp, WatchedModel]], interval: float = RELOAD_INTERVAL) -> None:
        self.make, self.interval = make, interval
        self.app, self.watched = make()
        threading.Thread(target=self._follow, name="smoothlink-reload", daemon=True).start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    def _follow(self) -> None:
        tried = self.watched.loaded
        while True:
            time.sleep(self.interval)
            now = self.watched.stamps()
            if now in (tried, self.watched.loaded):
                continue
            time.sleep(self.interval)
            if self.watched.stamps() != now:
                continue  # it is still being written
            tried = now
            try:
                self.app, self.watched = self.make()
            except Exception as error:  # whatever it is, the model that is served goes on being served
                log.error("The changed model is not served: %s", error)
                continue
            log.warning("%s changed: the new model is served.", self.watched.path)
            gc.collect()  # applications refer to themselves, and to the former model


def file_stamp(path: str) -> FileStamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def fingerprint(path: str) -> str:
    """Returns the SHA-256 of a model file's header, which holds the checksums of all arrays; "" where it is missing."""
    try:
        with open(path, "rb") as file:
            length = file.read(8)
            return hashlib.sha256(length + file.read(min(int.from_bytes(length, "little"), MAX_HEADER))).hexdigest()
    except OSError:
        return ""
