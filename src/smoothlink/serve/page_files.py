"""The page and the description of the API: a few files without a build step, kept in memory."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from smoothlink.serve.http_errors import Refused

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class File(NamedTuple):
    """A file as it is sent."""

    body: bytes
    kind: str
    tag: str  # changes with the content


def page_files() -> dict[str, File]:
    """All files of the page, by name."""
    found = {}
    for entry in files("smoothlink.serve").joinpath("page").iterdir():
        kind = next((kind for suffix, kind in TYPES.items() if entry.name.endswith(suffix)), None)
        if kind is not None:
            body = entry.read_bytes()
            found[entry.name] = File(body, kind, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return found


def add_page(app: FastAPI) -> None:
    """The paths of the page: /, /docs and what they are made of."""
    found = page_files()

    def send(request: Request, name: str) -> Response:
        if name not in found:
            raise Refused(404, "There is no such file. The page is at /, the API is described at /docs.")
        file = found[name]
        headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.body, media_type=file.kind, headers=headers)

    def add(path: str, name: str) -> None:
        @app.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)
        async def one(request: Request) -> Response:
            return send(request, name)

    add("/", "index.html")
    add("/docs", "docs.html")

    @app.api_route("/page/{name}", methods=["GET", "HEAD"], include_in_schema=False)
    async def any_of_them(request: Request, name: str) -> Response:
        return send(request, name)
