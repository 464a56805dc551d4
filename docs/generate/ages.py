"""What each page of figures says of its age: which of its stored figures were measured with an older version.

A stored figure carries a digest of the code that fits and predicts (`smoothlink_paper.record.source`). Where that is
not the digest of the code as it is now, the page names the figure and its date, between two marks. Changes of the
scripts that measure do not count: most of them are in what pages say. Nor do changes of the code that no stored figure
shows, each of which `WITHOUT_EFFECT` names with its reason.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from smoothlink_paper.record import published, source

BEGIN, END = "<!-- age: written by python docs/generate -->", "<!-- end of age -->"
# Page -> the folders of results/ whose figures it shows.
PAGES = {
    "README.md": ("peers",),
    "docs/benchmarks.md": ("peers", "growth", "sampled_negatives", "floors", "one_row"),
    "docs/benchmarks-cluster.md": ("cluster",),
    "docs/benchmarks-gpu.md": ("gpu",),
    "docs/results.md": ("defaults", "fit_time", "texts", "calibration", "tables", "copies"),
    **{f"docs/results/{name}.md": (name,) for name in ("flexibility", "link", "lshtc", "mulan", "odp")},
}

# Digests before a change -> why no stored figure is another by the code as it is now, but those of classes.
NOW = "3a65f0f895c9"
REASON = (
    "Probabilities of classes are fitted with one row more. Of bibtex, yeast and cooking-stackexchange, stepwise and "
    "jointly trained, all probabilities are the same to the last bit as before; what is new is computed beside them."
)
WITHOUT_EFFECT = {
    ("fd662726e251", NOW): REASON,
    ("272810bf5483", NOW): f"The SGD of many classes keeps its features, which changes its rounding. {REASON}",
    ("2c266d475251", NOW): f"The softmax over a linear kernel got a smaller ridge, then kept its features. {REASON}",
}
# Digests before a change -> why no stored figure at all is another.
UNCHANGED = {
    (
        "bba0fe02a677",
        NOW,
    ): "`refresh`, rows for guarantees of arrays on a cluster and a faster audit stand beside fits: all "
    "probabilities of yeast and of bibtex, quick and jointly trained, are the same to the last bit.",
}
CLASSES = ("aloi", "odp")  # figures of one label per row


class Cell(NamedTuple):
    """A stored figure, or several that were measured together."""

    name: str
    date: str
    source: str | None  # None where the record does not say


def cells(root: Path, folder: str) -> Iterator[Cell]:
    """Yields the figures of ours in a folder of results; of dated records of an experiment only the newest."""
    newest = published(folder, root)
    for path in sorted((root / "results" / folder).rglob("*.json")) if newest is None else [newest]:
        place = path.relative_to(root / "results" / folder).with_suffix("")
        name = folder if newest is not None or path.stem == "figures" else ": ".join(place.parts)
        yield from inside(json.loads(path.read_text(encoding="utf-8")), name)


def inside(part: Any, name: str) -> Iterator[Cell]:
    """Yields every part of a record that has a date, but not what was measured of other programs."""
    if not isinstance(part, dict):
        return
    versions = part.get("versions", {})
    if "date" in part and ("smoothlink" in versions or not ({"method", "peer"} & part.keys())):
        yield Cell(name, part["date"], part.get("source", versions.get("source")))
    for key, value in part.items():
        if key != "summary":  # of a model, which has a date of its own
            yield from inside(value, f"{name}: {key}" if key not in ("sets", "methods") else name)


def with_age(text: str, page: str, root: Path, now: str | None = None) -> str:
    """Returns the page with its note on older figures written anew, where its marks are or after its heading."""
    now = source() if now is None else now
    found = [cell for folder in PAGES[page] for cell in cells(root, folder)]
    older: dict[str, list[str]] = defaultdict(list)
    for cell in found:
        of_classes = any(name in cell.name for name in CLASSES)
        if cell.source == now or (cell.source, now) in UNCHANGED:
            continue
        if of_classes or (cell.source, now) not in WITHOUT_EFFECT:
            older[cell.date].append(cell.name)
    dates = " and ".join(sorted(older))
    note = ""
    if sum(map(len, older.values())) == len(found) > 0:
        note = f"All figures of smoothlink here are older than the program ({dates}) and may differ by now.\n\n"
    elif older:
        listed = "\n".join(f"- {date}: {', '.join(names)}" for date, names in sorted(older.items()))
        note = f"Measured with an older version of the program, so that they may differ by now:\n\n{listed}\n\n"
    heading, _, rest = text.partition("\n")
    marked = text if BEGIN in text else f"{heading}\n\n{BEGIN}{END}\n{rest}"
    block = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return block.sub(lambda _: f"{BEGIN}\n\n{note}{END}", marked)


def without_age(text: str) -> str:
    """Returns a page as it is written before its age is: without the note."""
    return re.sub(f"\n{re.escape(BEGIN)}.*?{re.escape(END)}\n", "", text, flags=re.DOTALL)
