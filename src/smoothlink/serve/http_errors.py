"""What a refused request is told: JSON with the status and a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

SHOWN = 3  # complaints about one request


class Refused(HTTPException):
    """A request that is not answered, and why."""


def problem(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    """{"status": 413, "reason": "..."}"""
    body = json.dumps({"status": status, "reason": reason}).encode()
    return Response(body, status, headers=headers, media_type="application/json")


def complaints(errors: Sequence[Any]) -> str:
    """What pydantic found wrong, in a line; nothing of what came is repeated, which may be anything."""
    said = []
    for error in errors[:SHOWN]:
        place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query"))
        text = str(error["msg"]).removeprefix("Value error, ")
        said.append(f"{place}: {text}" if place else text)
    more = len(errors) - SHOWN
    return "; ".join(said) + (f"; and {more} more" if more > 0 else "")
