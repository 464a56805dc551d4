"""HTML by construction: what is not marked `Safe` is escaped, so that no name or text can become markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from smoothlink import __version__

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # no HTML may hold them
VOID = {"meta", "link", "br", "col"}
# Nothing is fetched and no script runs, whatever a name or text holds.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Safe(str):
    """Text that is HTML already."""

    __slots__ = ()


def safe(content: Any) -> Safe:
    """Any content as HTML: lists are joined, None is nothing, and text is escaped."""
    if isinstance(content, Safe):
        return content
    if content is None:
        return Safe("")
    if isinstance(content, (list, tuple)):
        return Safe("".join(map(safe, content)))
    return Safe(html.escape(CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(content)), quote=True))


def tag(element: str, /, *content: Any, **attributes: Any) -> Safe:
    """An element. `class_` is class and `stroke_width` stroke-width; None and False are left out, True stands alone."""
    given = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        given.append(f" {key}" if value is True else f' {key}="{safe(value)}"')
    start = f"<{element}{''.join(given)}>"
    return Safe(start if element in VOID else f"{start}{safe(content)}</{element}>")


def name_of(label: Any) -> Safe:
    """A name that cannot turn the direction of what is written beside it."""
    return tag("bdi", label)


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], caption: str, *, kind: str = "") -> Safe:
    """A table; headings that start with > are right-aligned. On a narrow screen it scrolls by itself."""
    sides = ["number" if heading.startswith(">") else None for heading in headings]
    head = [tag("th", text.lstrip(">"), scope="col", class_=side) for text, side in zip(headings, sides, strict=True)]
    body = [
        tag("tr", [cell(i, content, side) for i, (content, side) in enumerate(zip(row, sides, strict=True))])
        for row in rows
    ]
    whole = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", head)), tag("tbody", body), class_=kind or None
    )
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def cell(place: int, content: Any, side: str | None) -> Safe:
    """The first cell of a row is its heading."""
    return tag("td", content, class_=side) if place else tag("th", content, class_=side, scope="row")


def details(summary: str, *content: Any) -> Safe:
    """What is shown on request."""
    return tag("details", tag("summary", summary), *content)


def prose(text: str) -> str:
    """A sentence in which no % stands at the beginning of a line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def section(name: str, title: str, lead: str | None, *content: Any) -> Safe:
    """A part of the page with a heading and a sentence on what it shows."""
    lead = tag("p", prose(lead), class_="lead") if lead is not None else None
    return tag(
        "section", tag("h2", title, id=f"{name}-title"), lead, *content, id=name, aria_labelledby=f"{name}-title"
    )


def pair(*content: Any) -> Safe:
    """Figures side by side where there is room."""
    return tag("div", *content, class_="pair")


def page(title: str, *content: Any) -> str:
    """A whole document, its style inside."""
    style = files("smoothlink.reports").joinpath("page.css").read_text("utf-8")
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", name="generator", content=f"smoothlink {__version__}"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Safe(style)),
    )
    whole = tag("html", tag("head", *head), tag("body", tag("main", *content)), lang="en")
    return f"<!doctype html>\n{whole}\n"
