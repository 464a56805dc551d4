"""Running the application: one process, or several that share the model's memory-mapped file and a socket."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from smoothlink.errors import DataError, SmoothLinkError
from smoothlink.serve.prometheus import ROWS, Shared
from smoothlink.serve.server_settings import Settings
from smoothlink.serve.watch import Reloading, Watched, fingerprint
from smoothlink.serve.web_app import create_app
from smoothlink.serve.workers import supervise

BACKLOG = 2048  # connections that wait to be accepted
IDLE = 30  # seconds that a connection may be silent between requests


@dataclass(frozen=True)
class Served:
    """Makes the application, in whichever process it is called."""

    path: str
    settings: Settings
    shared: Shared
    workers: int
    expected: str  # the fingerprint of the model that all processes serve

    def __call__(self) -> Any:
        return Reloading(lambda: self.made(verify="now")) if self.settings.reload else self.made(self.expected)[0]

    def made(self, expected: str | None = None, verify: str = "background") -> tuple[Any, Watched]:
        """The application and the file behind it."""
        watched = Watched(self.path, self.settings.in_memory // self.workers, verify=verify, expected=expected)
        name = name_of(self.path)
        return create_app(watched.model, self.settings, name=name, shared=self.shared, check=watched.check), watched


def name_of(path: str) -> str:
    return os.path.basename(path).removesuffix(".safetensors")


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0: any that is free."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise DataError(
            f"--host {host}: no such address ({error.strerror}).\nType --host 127.0.0.1 or 0.0.0.0."
        ) from error
    found = socket.socket(family, kind, proto)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(address)
    except OSError as error:
        found.close()
        raise DataError(
            f"{host}:{port} cannot be had ({error.strerror}).\nType --port 0 for any free port, or another number."
        ) from error
    found.listen(BACKLOG)
    return found


def address_of(listening: socket.socket) -> str:
    """http://127.0.0.1:8000"""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(path: str, settings: Settings, listening: socket.socket, *, workers: int, ready: Callable[[], None]) -> None:
    """Serves until a signal comes; requests that have begun are finished."""
    made = Served(path, settings, Shared(1 if workers == 1 else ROWS), workers, fingerprint(path))
    if workers > 1:
        ready()
        supervise(workers, work, (made, listening))
        return
    config = configured(made)
    config.load()  # a model that cannot be served says so before the address is told
    ready()
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn stops in good order, then sends the signal again
    uvicorn.Server(config).run(sockets=[listening])


def work(made: Served, listening: socket.socket) -> None:
    """One process of several."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(configured(made)).run(sockets=[listening])  # which loads the model
    except SmoothLinkError as error:
        sys.exit(f"smoothlink: {error}")


def configured(made: Served) -> uvicorn.Config:
    """How uvicorn serves."""
    return uvicorn.Config(
        made,
        factory=True,
        loop="asyncio",
        http=Protocol,
        ws="none",
        log_level=logging.ERROR,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off" if made.settings.reload else "auto",  # which would keep the first application alive
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=int(made.settings.timeout) + 1,
        backlog=BACKLOG,
    )


class Protocol(HttpToolsProtocol):
    """HTTP whose refusal of what is not HTTP is JSON too."""

    def send_400_response(self, msg: str) -> None:
        body = json.dumps({"status": 400, "reason": msg}).encode()
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()
