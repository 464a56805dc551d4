"""Running the application: the model file that it watches, and one process or several that listen on one socket."""

from __future__ import annotations

import asyncio
import errno
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
from starlette.types import ASGIApp

from smoothlink.data.atomic import temporary_folder
from smoothlink.errors import DataError, ModelFileError, SmoothLinkError
from smoothlink.fitting.memory import call_glibc
from smoothlink.machines.parent_process import when_parent_ends
from smoothlink.modelfile import load
from smoothlink.safetensors_file import MAX_HEADER
from smoothlink.serve import ServerSettings
from smoothlink.serve.connections import Protocol
from smoothlink.serve.prometheus import MULTIPROCESS_FOLDER, ServerMetrics, merge_ended
from smoothlink.serve.schema import RefusedRequest
from smoothlink.serve.updater import UpdaterProcess
from smoothlink.serve.updates import UpdateClient
from smoothlink.serve.web_app import create_app
from smoothlink.vocabulary import with_vocabulary

BACKLOG = 2048  # connections that wait to be accepted
ACCEPTED_AT_ONCE = 8  # of them by one worker, so that the others have a part, and limits are looked at in between
QUIET_SECONDS = 1.0  # in which nothing is written to a changed model file before it is read
RETRY_SECONDS = 5.0  # after which a worker that could not serve a changed model tries again
HANGING = 30  # seconds without a sign of life after which a worker is killed; it gives one before it loads the model
POLL_SECONDS = 0.2  # between two looks at the workers
READY = b"ready"  # what a worker sends once it accepts connections
# Seconds after which Python lets another thread run. The thread that predicts and the one that receives requests take
# turns several times in each request, and with Python's 5 ms a large request made all others wait.
SWITCH_INTERVAL = 0.0005
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
        timeout_keep_alive=math.ceil(settings.idle_timeout),
        timeout_graceful_shutdown=math.ceil(settings.upload_timeout if settings.reload else settings.timeout) + 1,
        backlog=ACCEPTED_AT_ONCE,
    )
    if workers == 1 and not settings.reload:
        prepare_process()
        config.load()  # a model that cannot be served raises before the address is shown
        ready()
        signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn shuts down, then raises the signal again
        Server(config).run(sockets=[listening])
        return
    with tempfile.TemporaryDirectory(prefix="smoothlink-metrics-") as folder:
        os.environ[MULTIPROCESS_FOLDER] = folder
        ready()
        stop_seconds = math.ceil(settings.timeout) + 1 + HANGING
        Workers(config, [listening], follows=path if settings.reload else None, stop_seconds=stop_seconds).run()


def prepare_process() -> None:
    """Lets threads take turns more often, and the C library return the memory of a model that is replaced (before
    threads have made heaps of their own)."""
    for option, value in HEAP:
        call_glibc("mallopt", option, value)
    sys.setswitchinterval(SWITCH_INTERVAL)


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
                return self.make(metrics)
            except SmoothLinkError as error:
                if self.workers == 1 and not self.settings.reload:
                    raise
                if not self.settings.reload or fingerprint(self.path) == self.expected:
                    sys.exit(f"smoothlink: {error}")
                log.error("A process waits for another model file, while the others serve the former one: %s", error)
            tried = time.monotonic()
            while file_stamp(self.path) == stamp and time.monotonic() - tried < HANGING:
                time.sleep(QUIET_SECONDS)

    def make(self, metrics: ServerMetrics) -> ASGIApp:
        """Returns the application of the model file: the one of the server's start, or with `reload` any."""
        reads: dict[str, Any] = {"verify": "now"} if self.settings.reload else {"expected": self.expected}
        watched = WatchedModel(self.path, self.settings.in_memory // self.workers, **reads)
        served: dict[str, Any] = {"metrics": metrics, "check": watched.check, "processes": self.workers}
        return create_app(self.named(watched.model), self.settings, name=self.name, **served)

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
    """uvicorn's server, which cuts no request when it ends. `ready` is called once it accepts connections."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        self.ready = ready
        self.interrupted = False  # by Ctrl-C
        self.server_state: ServerState = ServerState()
        self.accepted: list[asyncio.Task[Any]] = []

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Ends the server; a second Ctrl-C also what has begun, but not one that comes after another signal, as it does
        to a worker that is being replaced."""
        force = sig == signal.SIGINT and self.interrupted
        super().handle_exit(sig, frame)
        self.force_exit, self.interrupted = force, self.interrupted or sig == signal.SIGINT

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(BACKLOG)  # uvicorn and asyncio have one number for this and for ACCEPTED_AT_ONCE
        self.ready()

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
    """A process of the server, as its supervisor sees it. `content` is that of the model file when it is started; the
    file is read after `delay` seconds."""

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], content: str | None, delay: float = 0.0
    ) -> None:
        self.content, self.started = content, time.monotonic()
        spawn = multiprocessing.get_context("spawn")  # numba's and BLAS's threads do not survive a fork
        self.beats, theirs = spawn.Pipe(duplex=False)
        self.process = spawn.Process(target=run_worker, args=(config, sockets, theirs, delay), daemon=True)
        self.process.start()
        theirs.close()
        self.stopped = math.inf  # when it was told to end
        self.ready = False  # whether it accepts connections
        # Looks in a row without a sign of life; not seconds, in which all of this may have been stopped.
        self.silent = 0

    def ended(self, hanging: float) -> int | None:
        """Returns the exit code of a process that ended, or was killed here: it gave no sign of life for so long."""
        self.silent += 1
        with suppress(EOFError, OSError):
            while self.beats.poll():
                self.ready |= self.beats.recv_bytes() == READY
                self.silent = 0
        if self.silent * POLL_SECONDS > hanging:
            self.process.kill()
            self.process.join()
        return self.process.exitcode


def run_worker(config: uvicorn.Config, sockets: list[socket.socket], beats: Connection, delay: float) -> None:
    """Serves until SIGTERM, or until the supervisor has ended, and then finishes what has begun."""
    prepare_process()
    config.configure_logging()
    sending = threading.Lock()

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(most_seconds_to_end(config))
        os._exit(1)

    def send(message: bytes) -> None:
        with sending:
            beats.send_bytes(message)

    def beat() -> None:
        with suppress(OSError):
            while True:
                send(b"1")
                time.sleep(1)

    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it reaches all processes, and the supervisor ends this one
    when_parent_ends(stop)
    threading.Thread(target=beat, name="smoothlink-beat", daemon=True).start()
    with suppress(KeyboardInterrupt):  # Ctrl-C reaches all processes
        time.sleep(delay)
        config.load()  # before uvicorn's handlers, so that a signal ends a process that serves nothing yet
        Server(config, ready=partial(send, READY)).run(sockets)


def most_seconds_to_end(config: uvicorn.Config) -> int:
    """Returns how long a worker may take to finish what has begun; after that it hangs."""
    return (config.timeout_graceful_shutdown or 0) + HANGING


class Workers:
    """Several processes. One that is killed is started again; if one cannot start, all are stopped.

    follows: a model file. Once it has changed, the processes are replaced, one after the other, by those of the new
    model; each of them serves until its successor does, and finishes what has begun. Where one cannot start, it tries
    again as long as another one serves.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        sockets: list[socket.socket],
        *,
        follows: str | None = None,
        hanging: float = HANGING,
        stop_seconds: float | None = None,
    ) -> None:
        """stop_seconds: how long workers may take to end with the server; None: as long as one that is replaced."""
        self.config, self.sockets, self.hanging = config, sockets, hanging
        self.stop_seconds = most_seconds_to_end(config) if stop_seconds is None else stop_seconds
        self.file = None if follows is None else ModelFileContent(follows)
        self.content = None if self.file is None else self.file.look()
        self.workers: list[Worker] = []
        self.successor: Worker | None = None  # of one that serves a former model
        self.leaving: list[Worker] = []  # they finish what has begun
        self.stopping = False
        self.failure: str | None = None

    def run(self) -> None:
        """Runs until a signal; raises SmoothLinkError where a worker cannot start."""
        for number in STOPPING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
                signal.signal(number, self.stop)
        self.workers = [self.start() for _ in range(self.config.workers)]
        while self.failure is None:
            time.sleep(POLL_SECONDS)
            if self.stopping:
                break
            try:
                self.replace_ended()
                self.replace_outdated()
            except OSError as error:  # no process, pipe or memory is to be had
                log.error("A worker process cannot be started, and this is tried again: %s", error)
                time.sleep(QUIET_SECONDS)
        for listening in self.sockets:
            listening.close()  # the last to close it is a worker, which accepts what waits
        every = [*self.workers, *self.leaving, *([] if self.successor is None else [self.successor])]
        for worker in every:
            if worker.ended(self.hanging) is None and not worker.ready:
                worker.process.kill()  # else it would hold the socket last, and accept nothing
                worker.process.join()
        for worker in every:
            worker.process.terminate()
        for worker in every:
            worker.process.join(self.stop_seconds)
            worker.process.kill()
        if self.failure is not None:
            raise SmoothLinkError(self.failure)

    def start(self, delay: float = 0.0) -> Worker:
        return Worker(self.config, self.sockets, self.content, delay)

    def stop(self, *_: object) -> None:
        self.stopping = True

    def replace_ended(self) -> None:
        """Starts a process for each one that was killed; one that ended in a way that the next would, too, is not,
        unless another one serves until the model file is better."""
        for i, worker in enumerate(self.workers):
            code = worker.ended(self.hanging)
            if code is None:
                continue
            merge_ended(worker.process.pid)
            failed = code > 0 or not worker.ready
            serving = any(other.ready and other.process.exitcode is None for other in self.workers)
            if failed and not (self.file is not None and serving):
                self.failure = f"A worker process of the server ended with code {code}; all are stopped."
                return
            log.error("A worker process of the server ended with code %d; another one is started.", code)
            self.workers[i] = self.start(RETRY_SECONDS if failed else 0.0)

    def replace_outdated(self) -> None:
        """Starts a process that serves the changed model file, and lets a former one end once it does."""
        if self.file is None:
            return
        self.content = self.file.look()
        for worker in list(self.leaving):
            if time.monotonic() - worker.stopped > most_seconds_to_end(self.config):
                worker.process.kill()
            if worker.process.exitcode is not None:
                merge_ended(worker.process.pid)
                self.leaving.remove(worker)
        outdated = [worker for worker in self.workers if worker.content != self.content]
        if self.successor is None:  # those that finish long requests are not waited for
            just_left = any(time.monotonic() - worker.stopped < RETRY_SECONDS for worker in self.leaving)
            self.successor = self.start() if outdated and not just_left else None
        elif (code := self.successor.ended(self.hanging)) is not None:
            merge_ended(self.successor.process.pid)
            log.error("The changed model is not served: its process ended with code %d. Another one tries again.", code)
            self.successor = self.start(RETRY_SECONDS)
        elif self.successor.ready:
            former = min(outdated or self.workers, key=lambda worker: worker.started)
            former.process.terminate()
            former.stopped = time.monotonic()
            self.leaving.append(former)
            self.workers[self.workers.index(former)], self.successor = self.successor, None
            if all(worker.content == self.content for worker in self.workers):
                log.warning("The model file changed: the new model is served.")


class ModelFileContent:
    """The content of a model file, by its fingerprint, as it was when nothing had been written to it for a while."""

    def __init__(self, path: str, seconds: float = QUIET_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self.seconds, self.clock = path, seconds, clock
        self.stamp, self.content = file_stamp(path), fingerprint(path)
        self.changed: float | None = None  # when it was last seen to have changed; None: `content` is of this stamp

    def look(self) -> str:
        """Returns the content as it is now, or as it was before somebody began to write, or removed the file."""
        stamp = file_stamp(self.path)
        if stamp != self.stamp:
            self.stamp, self.changed = stamp, self.clock()
        if stamp is not None and self.changed is not None and self.clock() - self.changed >= self.seconds:
            self.content, self.changed = fingerprint(self.path), None
        return self.content


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
