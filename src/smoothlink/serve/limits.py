"""The limits of every request (host, token, size, time), the headers of every response, and the count of both."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smoothlink.serve import ServerSettings
from smoothlink.serve.prometheus import ServerMetrics
from smoothlink.serve.schema import RefusedRequest, error_response

PUBLIC_PATHS = ("/", "/health", "/docs", "/openapi.json")  # need no token, like /page/*
ARRIVAL = 64 << 10  # bytes per second that a body has after `timeout`: tables have more time, but not to be silent
SLOW_PATHS = ("/table", "/table/file", "/forget")  # of tables, and of a model file that is written
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
INTERNAL_ERROR = "This is a bug in smoothlink: the server's log has a traceback. Please report it."
CLIENT_LEFT = 499  # the status that nginx logs where the client closed the connection before the response
log = logging.getLogger("smoothlink.serve")


class Exchange:
    """One request and its response."""

    def __init__(self, receive: Receive, send: Send, max_body: int, timeout: float) -> None:
        self._receive, self._send, self.max_body, self.timeout = receive, send, max_body, timeout
        self.began = 0.0  # when the body was first waited for
        self.status = 0  # the response has not begun
        self.size = 0
        self.body_read = False

    async def receive(self) -> Message:
        self.began = self.began or asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(self.began + self.timeout + self.size / ARRIVAL):
                message = await self._receive()
        except TimeoutError as error:
            reason = f"The request arrived at less than {ARRIVAL >> 10} KiB per second."
            raise RefusedRequest(408, reason, {"Connection": "close"}) from error
        self.size += len(message.get("body", b""))
        self.body_read = not message.get("more_body", False)
        if self.size > self.max_body:
            raise too_large(self.max_body)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
        await self._send(message)


class Limits:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: ServerMetrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.token = None if settings.token is None else f"Bearer {settings.token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        exchange = Exchange(receive, send, self.max_body(scope), self.settings.timeout)
        try:
            await self.respond(scope, exchange)
        finally:
            seconds = time.perf_counter() - start
            self.metrics.count_request(scope["path"], exchange.status or CLIENT_LEFT, seconds)

    async def respond(self, scope: Scope, exchange: Exchange) -> None:
        """Passes the request on; whatever stops it becomes the response, unless one has begun."""
        timeout = self.settings.upload_timeout if scope["path"] in SLOW_PATHS else self.settings.timeout
        try:
            self.check_head(scope)
            async with asyncio.timeout(timeout):
                await self.app(scope, exchange.receive, exchange.send)
            return
        except RefusedRequest as error:
            refusal = error_response(error.status_code, error.detail, error.headers)
        except TimeoutError:
            limit = f"within {timeout:g} s"
            if exchange.body_read:
                refusal = error_response(
                    504, f"The response was not ready {limit}. Send fewer rows, or try again later."
                )
            else:
                refusal = error_response(408, f"The request did not arrive {limit}.", {"Connection": "close"})
        except Exception:
            log.exception("A request failed.")
            refusal = error_response(500, INTERNAL_ERROR)
        if not exchange.status:
            await refusal(scope, exchange.receive, exchange.send)

    def check_head(self, scope: Scope) -> None:
        """Raises RefusedRequest where the host or the token is wrong, or the announced size is too large."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self.check_hosts([value.decode("latin-1") for name, value in scope["headers"] if name == b"host"])
        path = scope["path"]
        if self.token is not None and path not in PUBLIC_PATHS and not path.startswith("/page/"):
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self.token):
                reason = "The token is wrong" if given else "A token is needed"
                reason += ": send the header Authorization: Bearer TOKEN."
                raise RefusedRequest(401, reason, {"WWW-Authenticate": "Bearer"})
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 18 or int(length) > self.max_body(scope)):
            raise too_large(self.max_body(scope))

    def check_hosts(self, sent: list[str]) -> None:
        """Raises RefusedRequest where a request calls the server by a name that is not its own: a page of another site
        whose name leads to this server ("DNS rebinding") could read the responses. That needs a name, so addresses are
        allowed, and a browser always sends one."""
        allowed = self.settings.hosts
        if allowed is None or "*" in allowed:
            return
        for host in sent:
            name = host_name(host)
            if not is_address(name) and name not in allowed:
                reason = f"This server is not called {name[:100]!r}. If it is, start it with --allow-host {name[:100]}."
                raise RefusedRequest(421, reason, {"Connection": "close"})

    def max_body(self, scope: Scope) -> int:
        """Returns how many bytes a request may have; a table that becomes a file has labels too."""
        sizes = {"/table": self.settings.max_upload, "/table/file": 2 * self.settings.max_upload}
        return sizes.get(scope["path"], self.settings.max_body)


def host_name(host: str) -> str:
    """Returns the name or address in a Host header, without the port, in small letters."""
    name = host.strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return name.rstrip(".")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def too_large(max_body: int) -> RefusedRequest:
    reason = f"The request is larger than {max_body:,} bytes. Send fewer rows at a time, or shorter texts."
    return RefusedRequest(413, reason, {"Connection": "close"})
