"""Templates -> self-contained HTML pages. Jinja2 escapes every name and text; only `Markup` is HTML already."""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import os
import re
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from smoothlink import __version__
from smoothlink.data.files_on_disk import replacing
from smoothlink.errors import plural
from smoothlink.reports.charts import percent, points

NOT_IN_HTML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # no HTML may hold them
LISTED_SETTINGS = (
    *("task", "rows", "features", "labels", "scale", "ngrams", "input_kernel", "rank", "captured_share", "ridge"),
    *("kernel", "bandwidth", "random_features", "final_ridge", "loss", "passes", "negatives", "sparse_weights"),
    *("solver", "held_out_rows"),
)


class PageOptions(NamedTuple):
    """How many draws of rows give the intervals, the seed of these and of the rows shown, and the date of the page."""

    bootstraps: int = 1000
    seed: int = 0
    date: datetime.date | None = None


@functools.cache
def environment() -> Environment:
    """Returns the templates with their filters; a name that a template misspells is an error."""
    found = Environment(
        loader=PackageLoader("smoothlink.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"points": points, "percent": percent, "plural": plural, "long_date": long_date}
    return found


def render(template: str, options: PageOptions, **values: Any) -> str:
    """Returns a page in which every character is one that HTML may hold."""
    date = options.date or datetime.date.today()
    common = {"version": __version__, "bootstraps": options.bootstraps, "seed": options.seed, "date": date}
    text = environment().get_template(template).render(**common, **values)
    return NOT_IN_HTML.sub("\N{REPLACEMENT CHARACTER}", text)


class Script(NamedTuple):
    """A script within a page, and the hash by which the content policy of the page knows it."""

    text: Markup
    hash: str


def load_script(template: str) -> Script:
    """Returns a script among the templates."""
    text = environment().get_template(template).render()
    return Script(Markup(text), base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())


def save_page(path: str | os.PathLike[str], text: str) -> None:
    """Writes a page; the file appears when it is complete."""
    with replacing(os.fspath(path)) as file:
        file.write(text.encode())


def long_date(date: datetime.date) -> str:
    return f"{date.day} {date:%B %Y}".replace(" ", "\N{NO-BREAK SPACE}")


def isolated(text: Any) -> Markup:
    """Returns a name that cannot change the direction of the text around it."""
    return Markup("<bdi>{}</bdi>").format(text)


def colored(text: str, kind: str) -> Markup:
    """Returns text with a class of the style sheet."""
    return Markup('<span class="{}">{}</span>').format(kind, text)


def setting_text(summary: dict[str, Any], name: str) -> str:
    """Returns a setting of a fit as it is read; nothing where there is none."""
    value = summary.get(name)
    if name == "captured_share" and value is not None:
        return f"{points(value)} %"
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
