"""HTTP connections: limits on the size and time of a request's head, on silent clients, and on how many there are."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from smoothlink.serve import ServerSettings

PROGRESS = 64 << 10  # bytes of a response that a client takes within `timeout`, or the connection is cut
DRAIN_SECONDS = 1.0  # that a server which ends waits for the next request of a connection
BODY_HEADERS = (b"content-length", b"transfer-encoding")
RESERVED_FILES = 128  # descriptors that are not for connections; more are never accepted at once


class Protocol(HttpToolsProtocol):
    """One connection. uvicorn limits the time between two requests only, and never the head of one."""

    def __init__(self, *args: Any, settings: ServerSettings | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.settings = settings or ServerSettings()
        self.most = most_connections(self.settings)
        self.timer: asyncio.TimerHandle | None = None  # of the next request's arrival
        self.write_timer: asyncio.TimerHandle | None = None  # of a response that the client does not take
        self.since = self.loop.time()  # when the connection was made, or its last response was complete
        self.unparsed = 0  # bytes since the last part of a body or the end of a request
        self.in_head = False
        self.unsent = 0  # bytes of the response when the client was last looked at

    # Times

    def wait(self, seconds: float, then: Callable[[], None]) -> None:
        """Calls `then` after so many seconds, unless the connection goes on before."""
        self.stop_waiting()
        self.timer = self.loop.call_later(seconds, then)

    def stop_waiting(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def wait_for_request(self) -> None:
        self.wait(DRAIN_SECONDS if self.draining else self.settings.idle_timeout, self.transport.abort)

    @property
    def draining(self) -> bool:
        return bool(getattr(self.server_state, "draining", False))

    def shutdown(self) -> None:
        """Lets a request that has begun, or is on its way, be the last of this connection."""
        if self.in_head:
            return
        if self.cycle is None or self.cycle.response_complete:
            self.wait_for_request()
        else:
            self.cycle.keep_alive = False

    def check_progress(self) -> None:
        """Cuts the connection where the client does not take its response."""
        left = self.transport.get_write_buffer_size()
        if left > self.unsent - PROGRESS:
            self.transport.abort()
        else:
            self.watch_writing()

    def watch_writing(self) -> None:
        self.unsent = self.transport.get_write_buffer_size()
        self.write_timer = self.loop.call_later(self.settings.timeout, self.check_progress)

    def stop_watching(self) -> None:
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.wait_for_request()
        if len(self.connections) > self.most:
            self.make_room()

    def make_room(self) -> None:
        """Cuts a connection that waits for its client, of the client that has the most; else refuses this one."""
        others = [other for other in self.connections if isinstance(other, Protocol) and other is not self]
        count = Counter(other.address for other in others)
        waiting = [other for other in others if other.waits_for_client]
        if waiting:
            max(waiting, key=lambda other: (count[other.address], -other.since)).transport.abort()
        else:
            self.refuse(503, "All connections of the server are in use. Try again in a second.", {"Retry-After": "1"})

    @property
    def address(self) -> str | None:
        return self.client[0] if self.client else None

    @property
    def waits_for_client(self) -> bool:
        """Whether no request has arrived in full that has no response yet."""
        return not self.transport.is_closing() and (
            self.cycle is None or self.cycle.response_complete or self.cycle.more_body
        )

    @property
    def is_arriving(self) -> bool:
        """Whether the body of the one request arrives that has no response yet."""
        return self.cycle.more_body and not (self.cycle.response_started or self.in_head or self.pipeline)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_waiting()
        self.stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stop_watching()
        if self.transport.is_closing():
            self.wait(self.settings.timeout, self.transport.abort)
        elif self.cycle.response_complete and not self.in_head:
            self.wait_for_request()

    # Requests

    def data_received(self, data: bytes) -> None:
        self.unparsed += len(data)
        super().data_received(data)
        if self.unparsed > self.settings.max_head:
            self.refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.in_head = True
        late = f"The head of the request did not arrive within {self.settings.timeout:g} s."
        self.wait(self.settings.timeout, lambda: self.refuse(408, late))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # else it comes after the body, where nothing is a header that a proxy has looked at
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.in_head = False
        self.stop_waiting()  # the application limits the time from here on
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self.settings.max_head:
            self.refuse_head()
            return
        if self.parser.should_upgrade() and any(name in BODY_HEADERS and value != b"0" for name, value in self.headers):
            self.refuse(400, "This server speaks HTTP/1.1 alone. Send the request without the header Upgrade.")
            return  # httptools would pass over the body
        super().on_headers_complete()
        if self.draining:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self.unparsed = 0
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self.unparsed = 0
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.since = self.loop.time()
        if self.flow.write_paused:
            self.stop_waiting()
        elif self.transport.is_closing():
            self.wait(self.settings.timeout, self.transport.abort)
        elif self.cycle.response_complete:
            self.wait_for_request()

    # Refusals

    def refuse_head(self) -> None:
        self.refuse(431, f"The head of the request is larger than {self.settings.max_head:,} bytes.")

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, msg)

    def refuse(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        """Responds in JSON to what has not become a request, and closes the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete and not self.is_arriving:
            self.transport.abort()  # this would be taken for the response to the request before
            return
        body = json.dumps({"status": status, "reason": reason}).encode()
        fields = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in {**fields, **(headers or {})}.items())
        self.transport.write(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{head}\r\n".encode() + body)
        self.transport.close()
        self.wait(self.settings.timeout, self.transport.abort)


def most_connections(settings: ServerSettings) -> int:
    """Returns how many connections a process takes: no more than it may have open files."""
    try:
        import resource
    except ImportError:  # Windows
        return settings.max_connections
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return settings.max_connections
    return max(1, min(settings.max_connections, files - RESERVED_FILES))
