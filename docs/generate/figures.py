"""README's table of figures, from the cells that docs/benchmarks.md is made of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bench.cells import learner

from smoothlink_paper.reproduce_lshtc import GAUSSIAN, LAPLACIAN

BEGIN, END = "<!-- figures: written by python docs/generate -->", "<!-- end of figures -->"
ABOUT = {
    "bibtex": "bookmarks",
    "delicious": "web pages",
    "rcv1-topics-28k": "news",
    "debtags": "package descriptions",
    "cooking-stackexchange": "questions on cooking",
    "yso-finna-en": "titles of books",
    "citeulike-t": "titles of papers",
}
STEPWISE = "smoothlink-stepwise"
OURS = ("smoothlink", "smoothlink-quick", STEPWISE)
PEERS = {
    "omikuji": "omikuji",
    "omikuji-bonsai": "omikuji, Bonsai-like",
    "omikuji-logistic": "omikuji, logistic",
    "napkinxc-plt": "napkinXC PLT",
    "napkinxc-br": "napkinXC BR",
    "pecos": "PECOS",
    "sklearn-logistic": "one-vs-rest logistic",
    "sklearn-ridge": "ridge",
}
HEAD = (
    "| data | rows | labels | learner | smoothlink | quick | best of the others | seconds: full, quick, omikuji |\n"
    "|---|---|---|---|---|---|---|---|"
)


def with_table(readme: str, root: Path) -> str:
    """The text with the table between the two marks written anew."""
    table = "\n".join([BEGIN, "", HEAD, *rows(root / "results" / "peers"), "", END])
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: table, readme, flags=re.DOTALL)


def rows(results: Path) -> list[str]:
    """Returns the lines of all sets; where the default is another learner, one of Algorithm 3 follows."""
    lines = []
    for name in ABOUT:
        cells = measured(results / name)
        lines.append(row(name, cells))
        if learner(cells["smoothlink"]) != "Algorithm 3":
            cell = cells.get(STEPWISE) or of_experiment(results.parent, name)
            shown = both(cell, 1.0) if cell else "not run"
            taken = seconds(cell) if cell and "costs" in cell else "-"
            lines.append(f"| {name} | | | Algorithm 3 | {shown} | | | {taken} |")
    return lines


def of_experiment(results: Path, name: str) -> dict[str, Any] | None:
    """Returns section 7.4's best figures of Algorithm 3 on a set as a cell, whose settings had been selected before."""
    record = json.loads(max((results / "lshtc").glob("[0-9]*.json")).read_text(encoding="utf-8"))
    if record["set"] != name:
        return None
    return {"metrics": max((record["methods"][m] for m in (LAPLACIAN, GAUSSIAN)), key=lambda m: m["p@1"]["value"])}


def measured(folder: Path) -> dict[str, Any]:
    """method -> cell, of those that have figures."""
    cells = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    return {method: cell for method, cell in cells.items() if "metrics" in cell}


def row(name: str, cells: dict[str, Any]) -> str:
    """Returns the line of a set; the highest P@1 of its three figures is in bold."""
    ours, shape = cells["smoothlink"], cells["smoothlink"]["shape"]
    best = max((m for m in cells if m not in OURS), key=lambda m: cells[m]["metrics"]["p@1"]["value"])
    quick = cells.get("smoothlink-quick")
    highest = max(value(cell) for cell in (ours, quick, cells[best]) if cell)
    shown = [
        f"{name}: {ABOUT[name]}",
        f"{shape['rows']:,}",
        f"{shape['labels']:,}",
        learner(ours),
        both(ours, highest),
        both(quick, highest) if quick else "-",
        f"{PEERS[best]} {both(cells[best], highest)}",
        ", ".join(seconds(cell) if cell else "-" for cell in (ours, quick, cells["omikuji"])),
    ]
    return f"| {' | '.join(shown)} |"


def seconds(cell: dict[str, Any]) -> str:
    found = cell["costs"]["train_seconds"]
    return f"{found:.0f}" if found >= 10 else f"{found:.1f}"


def value(cell: dict[str, Any]) -> float:
    return float(cell["metrics"]["p@1"]["value"])


def both(cell: dict[str, Any], highest: float) -> str:
    """Returns P@1 / P@5 in percent, to a tenth; in bold where P@1 is the highest."""
    figures = " / ".join(f"{100 * cell['metrics'][key]['value']:.1f}" for key in ("p@1", "p@5"))
    return f"**{figures}**" if value(cell) == highest else figures
