"""Running the application: the model file that it watches, and one process or several that listen on one socket."""

from __future__ import annotations

import asyncio
import errno
import gc
import hashlib
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from starlette.types import ASGIApp, Receive, Scope, Send

from smoothlink.data.atomic import temporary_folder
from smoothlink.errors import DataError, ModelFileError, SmoothLinkError
from smoothlink.fitting.memory import call_glibc
from smoothlink.machines.parent_process import when_parent_ends
from smoothlink.modelfile import load
from smoothlink.safetensors_file import MAX_HEADER
from smoothlink.serve import ServerSettings
from smoothlink.serve.connections import Protocol
from smoothlink.serve.prometheus import MULTIPROCESS_FOLDER, ServerMetrics
from smoothlink.serve.schema import RefusedRequest
from smoothlink.serve.updater import UpdaterProcess
from smoothlink.serve.updates import UpdateClient
from smoothlink.serve.web_app import create_app
from smoothlink.vocabulary import with_vocabulary

BACKLOG = 2048  # connections that wait to be accepted
ACCEPTED_AT_ONCE = 8  # of them by one worker, so that the others have a part, and limits are looked at in between
RELOAD_INTERVAL = 1.0  # seconds between two looks at the model file
SHORT_LIFE = 5.0  # seconds: a worker that is killed within them would be killed again
HANGING = 30  # seconds without a sign of life after which a worker is killed; it gives one before it loads the model
POLL_SECONDS = 0.2  # between two looks at the workers
# glibc's M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD. It holds back what is freed in the heaps of threads, now
# and then all arrays of the model before (26 of 290 MB). So there is one heap, and large arrays are outside of it.
HEAP = ((-8, 1), (-3, 1 << 20), (-1, 64 << 20))
STOPPING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
FileStamp = tuple[int, int, int, int] | None  # device, inode, size and time of a file; None: it does not exist
log = logging.getLogger("smoothlink.serve")


def serve(
    path: str, settings: ServerSettings, listening: socket.socket, *, workers: int, ready: Callable[[], None]
) -> None:
    """Serves until SIGTERM or SIGINT; requests that have begun are finished. Calls `ready` before the first request."""
    if not settings.updatable:
        run_server(path, settings, listening, workers, ready)
        return
    with temporary_folder() as folder:
        updater = UpdaterProcess(path, str(folder), settings.threads or 1)
        try:
            run_server(path, settings, listening, workers, ready, str(folder))
        finally:
            updater.stop(HANGING)


def run_server(
    path: str,
    settings: ServerSettings,
    listening: socket.socket,
    workers: int,
    ready: Callable[[], None],
    updates: str | None = None,
) -> None:
    """Serves a model; updates: the folder where the process that updates it is found."""
    config = uvicorn.Config(
        AppFactory(path, settings, workers, fingerprint(path), updates),
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
        backlog=ACCEPTED_AT_ONCE,
    )
    if workers == 1:
        limit_heap()
        config.load()  # a model that cannot be served raises before the address is shown
        ready()
        signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn shuts down, then raises the signal again
        Server(config).run(sockets=[listening])
        return
    with tempfile.TemporaryDirectory(prefix="smoothlink-metrics-") as folder:
        os.environ[MULTIPROCESS_FOLDER] = folder
        ready()
        Workers(config, [listening]).run()


def limit_heap() -> None:
    """Lets the C library return the memory of a model that is replaced; before threads have made heaps of their own."""
    for option, value in HEAP:
        call_glibc("mallopt", option, value)


@dataclass(frozen=True)
class AppFactory:
    """Makes the application, in whichever process it is called."""

    path: str
    settings: ServerSettings
    workers: int
    expected: str  # the fingerprint of the model that all processes serve
    updates: str | None = None  # the folder of a server whose model is updated

    def __call__(self) -> ASGIApp:
        metrics = ServerMetrics()
        if self.updates is not None:
            updates = UpdateClient(self.updates, self.load)
            served: dict[str, Any] = {"metrics": metrics, "updates": updates, "processes": self.workers}
            return create_app(updates.model, self.settings, name=self.name, **served)
        while True:
            stamp = file_stamp(self.path)
            try:
                if self.settings.reload:
                    return ReloadingApp(lambda: self.make(metrics, verify="now"))
                return self.make(metrics, self.expected)[0]
            except SmoothLinkError as error:
                if self.workers == 1:
                    raise
                if not self.settings.reload or fingerprint(self.path) == self.expected:
                    sys.exit(f"smoothlink: {error}")
                log.error("A process waits for another model file, while the others serve the former one: %s", error)
            while file_stamp(self.path) == stamp:
                time.sleep(RELOAD_INTERVAL)

    def make(
        self, metrics: ServerMetrics, expected: str | None = None, verify: str = "background"
    ) -> tuple[ASGIApp, WatchedModel]:
        """Returns the application and the model file that it watches."""
        watched = WatchedModel(self.path, self.settings.in_memory // self.workers, verify=verify, expected=expected)
        model = self.named(watched.model)
        served: dict[str, Any] = {"metrics": metrics, "check": watched.check, "processes": self.workers}
        app = create_app(model, self.settings, name=self.name, **served)
        return app, watched

    @property
    def name(self) -> str:
        return os.path.basename(self.path).removesuffix(".safetensors")

    def load(self, file: str) -> Any:
        """Returns the model of a file that the updater has published, and that nobody changes."""
        return self.named(WatchedModel(file, self.settings.in_memory // self.workers).model)

    def named(self, model: Any) -> Any:
        """Returns a model with the vocabulary of the command line, if there is one."""
        return model if self.settings.vocabulary is None else with_vocabulary(model, self.settings.vocabulary)


class ServerState(uvicorn.server.ServerState):
    """What the connections of a process share."""

    draining = False  # whether responses end their connections, since the process is about to end


class Server(uvicorn.Server):
    """uvicorn's server, which cuts no request when it ends."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.server_state: ServerState = ServerState()
        self.accepted: list[asyncio.Task[Any]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(BACKLOG)  # uvicorn and asyncio have one number for this and for ACCEPTED_AT_ONCE

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state.draining = True
        for listening in sockets or []:
            self.accept_waiting(listening)
        await super().shutdown(sockets)

    def accept_waiting(self, listening: socket.socket) -> None:
        """Accepts the connections that wait: closing the socket would cut them, with the requests that they carry."""
        loop = asyncio.get_running_loop()
        protocol: Any = self.config.http_protocol_class
        make = partial(protocol, self.config, self.server_state, self.lifespan.state)
        with suppress(OSError):  # none waits any more, or no more files may be opened
            while True:
                connection, _ = listening.accept()
                connection.setblocking(False)
                self.accepted.append(loop.create_task(loop.connect_accepted_socket(make, connection)))


class Worker:
    """A process of the server, as its supervisor sees it."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        spawn = multiprocessing.get_context("spawn")  # numba's and BLAS's threads do not survive a fork
        self.beats, theirs = spawn.Pipe(duplex=False)
        self.process = spawn.Process(target=run_worker, args=(config, sockets, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.started = time.monotonic()
        self.silent = (
            0  # looks in a row without a sign of life; not seconds, in which all of this may have been stopped
        )

    def ended(self, hanging: float) -> int | None:
        """Returns the exit code of a process that ended, or was killed here: it gave no sign of life for so long."""
        self.silent += 1
        with suppress(EOFError, OSError):
            while self.beats.poll():
                self.beats.recv_bytes()
                self.silent = 0
        if self.silent * POLL_SECONDS > hanging:
            self.process.kill()
            self.process.join()
        return self.process.exitcode


def run_worker(config: uvicorn.Config, sockets: list[socket.socket], beats: Connection) -> None:
    """Serves until SIGTERM, or until the supervisor has ended, and then finishes what has begun."""
    limit_heap()
    config.configure_logging()

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(most_seconds_to_end(config))
        os._exit(1)

    def beat() -> None:
        with suppress(OSError):
            while True:
                beats.send_bytes(b"1")
                time.sleep(1)

    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it reaches all processes, and the supervisor ends this one
    when_parent_ends(stop)
    threading.Thread(target=beat, name="smoothlink-beat", daemon=True).start()
    with suppress(KeyboardInterrupt):  # Ctrl-C reaches all processes
        config.load()  # before uvicorn's handlers, so that a signal ends a process that serves nothing yet
        Server(config).run(sockets)


def most_seconds_to_end(config: uvicorn.Config) -> int:
    """Returns how long a worker may take to finish what has begun; after that it hangs."""
    return (config.timeout_graceful_shutdown or 0) + HANGING


class Workers:
    """Several processes. One that is killed is started again; if one cannot start, all are stopped."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], hanging: float = HANGING) -> None:
        self.config, self.sockets, self.hanging = config, sockets, hanging
        self.workers: list[Worker] = []
        self.stopping = False
        self.failure: str | None = None

    def run(self) -> None:
        """Runs until a signal; raises SmoothLinkError where a worker cannot start."""
        for number in STOPPING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
                signal.signal(number, self.stop)
        self.workers = [Worker(self.config, self.sockets) for _ in range(self.config.workers)]
        while not self.stopping and self.failure is None:
            time.sleep(POLL_SECONDS)
            self.replace_ended()
        for listening in self.sockets:
            listening.close()  # the last to close it is a worker, which accepts what waits
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(most_seconds_to_end(self.config))
            worker.process.kill()
        if self.failure is not None:
            raise SmoothLinkError(self.failure)

    def stop(self, *_: object) -> None:
        self.stopping = True

    def replace_ended(self) -> None:
        """Starts a process for each one that was killed; one that ended in a way that the next would, too, is not."""
        for i, worker in enumerate(self.workers):
            code = worker.ended(self.hanging)
            if code is None or self.stopping:
                continue
            mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]
            if code > 0 or time.monotonic() - worker.started < SHORT_LIFE:
                self.failure = f"A worker process of the server ended with code {code}; all are stopped."
                return
            self.workers[i] = Worker(self.config, self.sockets)


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
            time.sleep(self.interval)  # in which most requests to the former model are finished
            gc.collect()  # applications refer to themselves
            call_glibc("malloc_trim", 0)  # or the C library holds back a part of each model


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
