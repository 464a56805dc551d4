"""Serving a model over HTTP: an API for programs and a page for people. Needs the extra `serve`.

`create_app(model)` returns the ASGI application, to mount or to run by any server; `smoothlink serve` uses uvicorn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothlink.serve.web_app import create_app
    from smoothlink.vocabulary import Vocabulary

__all__ = ["ServerSettings", "create_app"]


@dataclass(frozen=True)
class ServerSettings:
    """The limits of a server. The command line shows these defaults, the OpenAPI description states them."""

    token: str | None = field(default=None, repr=False)  # that requests must carry; None: no token is needed
    hosts: tuple[str, ...] | None = None  # names, besides addresses, by which requests may call it; None: any
    max_body: int = 1 << 20  # bytes of a request
    max_upload: int = 50 << 20  # bytes of a table
    max_rows: int = 1000  # texts or vectors of a request
    max_labels: int = 1000  # labels of the prediction for one row
    max_response_labels: int = 100_000  # labels of the response to one request
    max_waiting: int = 10_000  # rows in the queue, half of them of one client; requests beyond them are refused
    batch_rows: int = 64  # rows that are predicted together; a long one counts for several
    piece_rows: int = 16  # rows of a large request that small ones wait for
    batch_wait: float = 0.002  # seconds that a busy server waits for more of them
    timeout: float = 10.0  # seconds for a request to arrive and its response to be ready
    upload_timeout: float = 300.0  # the same for a table
    idle_timeout: float = 30.0  # seconds that a connection may be silent before its first request and between two
    max_head: int = 64 << 10  # bytes of a request's first line and headers
    max_connections: int = 1000  # of a process, and no more than it may open files
    threads: int | None = None  # of matrix products; None: all cores
    in_memory: int = 1 << 30  # bytes of the model's copies, one in each process, up to which it is not mapped
    reload: bool = False  # whether a changed model file is loaded
    store: str | None = None  # the folder that corrections are appended to; None: nothing is stored
    updatable: bool = False  # whether rows may be sent that the model learns or forgets
    vocabulary: Vocabulary | None = field(default=None, repr=False)  # of the labels, in place of the model's own


def __getattr__(name: str) -> Any:
    """Returns `create_app`, loading FastAPI only then: the command line needs the defaults only."""
    if name != "create_app":
        raise AttributeError(f"module 'smoothlink.serve' has no attribute {name!r}")
    from smoothlink.serve.web_app import create_app

    return create_app
