"""What every request passes first: its token, its size, its time; and what every answer gets: headers, a count."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smoothlink.serve.http_errors import Refused, problem
from smoothlink.serve.prometheus import Metrics
from smoothlink.serve.server_settings import Settings

OPEN = ("/", "/health", "/docs", "/openapi.json")  # paths that need no token, and /page/*
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
log = logging.getLogger("smoothlink.serve")


class Exchange:
    """One request and its answer."""

    def __init__(self, receive: Receive, send: Send, max_body: int) -> None:
        self._receive, self._send, self.max_body = receive, send, max_body
        self.status = 0  # nothing was answered yet
        self.size = 0
        self.body_read = False

    async def receive(self) -> Message:
        message = await self._receive()
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


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.token = None if settings.token is None else f"Bearer {settings.token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        exchange = Exchange(receive, send, self.settings.max_body)
        try:
            await self.answer(scope, exchange)
        finally:
            status = exchange.status or 499  # the asker left
            self.metrics.request(scope["path"], status, time.perf_counter() - began)

    async def answer(self, scope: Scope, exchange: Exchange) -> None:
        """Hands the request on; whatever stops it becomes an answer, unless one was begun."""
        try:
            self.admit(scope)
            async with asyncio.timeout(self.settings.timeout):
                await self.app(scope, exchange.receive, exchange.send)
            return
        except Refused as error:
            refusal = problem(error.status_code, error.detail, error.headers)
        except TimeoutError:
            late = f"within {self.settings.timeout:g} s"
            if exchange.body_read:
                refusal = problem(504, f"No answer {late}. Send fewer rows, or try again later.")
            else:
                refusal = problem(408, f"The request did not arrive {late}.", {"Connection": "close"})
        except Exception:
            log.exception("a request failed")
            refusal = problem(500, "A bug in smoothlink: the server's log has a traceback. Please report it.")
        if not exchange.status:
            await refusal(scope, exchange.receive, exchange.send)

    def admit(self, scope: Scope) -> None:
        """Whether the head of the request lets it in."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self.token is not None and needs_token(scope["path"]):
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self.token):
                said = "The token is wrong" if given else "A token is needed"
                raise Refused(
                    401, f"{said}: send the header Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"}
                )
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 18 or int(length) > self.settings.max_body):
            raise too_large(self.settings.max_body)


def needs_token(path: str) -> bool:
    return path not in OPEN and not path.startswith("/page/")


def too_large(most: int) -> Refused:
    return Refused(
        413, f"The request is larger than {most:,} bytes. Send fewer rows at a time.", {"Connection": "close"}
    )
