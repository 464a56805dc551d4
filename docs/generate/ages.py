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
from collections.abc import Iterator, Mapping
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

# A digest -> the one after the next change, and why no stored figure of the first shows that change.
WITHOUT_EFFECT: dict[str, tuple[str, str]] = {
    "5a2f7bbfc605": (
        "46cb46f2c256",
        "Fits to at most 2,000 rows and to dense tables choose otherwise (decision 51), and were measured again. Other "
        "sets run the same operations.",
    ),
    "46cb46f2c256": ("ebe6ac0deb21", "Two types are declared on a line each."),
    "ebe6ac0deb21": (
        "536042174d91",
        "Tables of which ridge regression predicts every held-out row are fitted, which ended in an error; no stored "
        "one is so.",
    ),
    "536042174d91": ("8bec7bebb6bd", "Products warn of no invalid values."),
    "8bec7bebb6bd": (
        "86a0281f557a",
        "Held-out scores are kept, and binned in compiled code: the same sums but for rounding. Joint training of five "
        "passes finds hard negatives later (decision 52): yso-finna-en was measured again.",
    ),
    "86a0281f557a": ("398783f58b6b", "A function is renamed, conditions are written once, a budget counts more."),
    "398783f58b6b": (
        "15ec156dfd52",
        "Compiled loops are vectorised, and features of an SGD are kept in the order of the rows (decision 53): the "
        "same operations but for rounding. Sets that are trained jointly were measured again.",
    ),
    "15ec156dfd52": ("30131df47f0b", "Blocks of isotonic regression are found by a loop of our own: the same ones."),
    "30131df47f0b": ("0ae68f6ecbfd", "Half of Phi'Phi is summed, and mirrored: the same numbers."),
    "0ae68f6ecbfd": (
        "f6a29ce73c3c",
        "Trees beside dense tables are boosted (decision 54): emotions, scene, yeast, mediamill-reduced and the made "
        "tables were measured again. Other sets have no trees, and run the same operations.",
    ),
    "f6a29ce73c3c": ("0a544fc2a03b", "Names of variables changed."),
    "0a544fc2a03b": (
        "684f429c5b91",
        "Ranges of sparse rows are taken by NumPy: the same rows. Two kinds of damaged tables are refused.",
    ),
}


def same_figures(source: str | None, now: str, without_effect: Mapping[str, tuple[str, str]]) -> bool:
    """Returns whether the changes between the two digests, if any, are all without effect on stored figures."""
    while source is not None and source != now and source in without_effect:
        source, _ = without_effect[source]
    return source == now


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


def with_age(
    text: str,
    page: str,
    root: Path,
    now: str | None = None,
    without_effect: Mapping[str, tuple[str, str]] = WITHOUT_EFFECT,
) -> str:
    """Returns the page with its note on older figures written anew, where its marks are or after its heading."""
    now = source() if now is None else now
    found = [cell for folder in PAGES[page] for cell in cells(root, folder)]
    older: dict[str, list[str]] = defaultdict(list)
    for cell in found:
        if not same_figures(cell.source, now, without_effect):
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
