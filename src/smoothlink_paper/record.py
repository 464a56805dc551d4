"""The files of an experiment: a JSON record with its circumstances, the page made from it, and its picture.

Published are results/NAME/DATE.json, docs/results/NAME.md and .svg. A run that measured less than the published one
writes all three to results/NAME/, as VARIANT-DATE: it never replaces them.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import platform
import tokenize
from collections.abc import Callable, Iterator
from datetime import date
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import smoothlink
from smoothlink.data.atomic import replace_file
from smoothlink.fitting.settings import peak_memory_mb
from smoothlink.metrics.evaluate import evaluate
from smoothlink_paper import experiment
from smoothlink_paper.data_sets import Split

if TYPE_CHECKING:
    from smoothlink_paper.result import Result

PACKAGES = ("smoothlink", "numpy", "scipy", "scikit-learn", "numba", "optuna")
FITTING = ("fitting", "joint", "machines", "solve", "steps")  # the folders that decide how a model comes out


@cache  # a second or two for a hundred files, and a process runs the code that it began with
def source() -> str:
    """Returns a digest of the code that fits and predicts: a figure of another one was measured before it changed.

    Comments, docstrings, blank space and the version do not count.
    """
    root = Path(smoothlink.__file__).parent
    own = [path for path in root.glob("*.py") if path.name != "__init__.py"]  # that has the version
    files = sorted([*own, *(path for part in FITTING for path in (root / part).rglob("*.py"))])
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + statements(path).encode())
    return digest.hexdigest()[:12]


def statements(path: Path) -> str:
    """Returns the text of a file without comments, docstrings and blank space, the same by every Python."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            first, last = node.body[0].lineno, node.body[0].end_lineno or node.body[0].lineno
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "".join("".join(lines).split())


def circumstances(name: str, seed: int, seconds: float) -> dict[str, Any]:
    """Returns the time, the versions and the machine of an experiment."""
    return {
        "experiment": name,
        "date": date.today().isoformat(),
        "source": source(),
        "seed": seed,
        "seconds": round(seconds, 1),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "machine": machine(),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}},
    }


def machine() -> str:
    """Returns what is measured on."""
    return f"{platform.machine()}, {os.cpu_count()} cores"


def published(name: str, folder: Path) -> Path | None:
    """Returns the newest record of a complete run in results/NAME/, or None."""
    return max((folder / "results" / name).glob("[0-9]*.json"), default=None)


def compared(record: dict[str, Any], folder: Path, *, quick: bool) -> dict[str, Any]:
    """Adds to a record what it lacks of the published one, and then the variant that its files are named by."""
    if quick:
        return {**record, "variant": "quick", "lacks": ["it had few rows and trials (--quick)"]}
    path = published(record["experiment"], folder)
    lacks = [] if path is None else shortfall(record, json.loads(path.read_text()))
    return {**record, "variant": "partial", "lacks": lacks} if lacks else record


def shortfall(record: dict[str, Any], full: dict[str, Any]) -> list[str]:
    """Returns what a record has less of than the full one: trials, data sets, rows, figures."""
    lacks = []
    allowed, most = (one.get("trials_allowed", 0) for one in (record, full))
    if allowed < most:
        lacks.append(f"it had {allowed} trials, not {most}")
    for name, rows in full["rows"].items():
        found = record["rows"].get(name)
        if found is None:
            lacks.append(f"it lacked the data set {name}")
        elif any(a < b for a, b in zip(found, rows, strict=True)):
            lacks.append(f"it had {found[0]} training and {found[1]} test rows of {name}, not {rows[0]} and {rows[1]}")
    missing = sorted(set(figures(full)) - set(figures(record)))
    if missing and not any("data set" in reason for reason in lacks):
        lacks.append(f"it lacked {len(missing)} figures, such as {missing[0]}")
    return lacks


def figures(part: Any, place: str = "") -> Iterator[str]:
    """Yields the place of every figure with an interval in a record."""
    if isinstance(part, dict) and {"value", "low"} <= part.keys():
        yield place
        return
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in inner:
        yield from figures(value, f"{place} / {key}" if place else str(key))


def stem(record: dict[str, Any]) -> str:
    """Returns the name of the record's page and picture, without an ending."""
    return f"{record['variant']}-{record['date']}" if "variant" in record else str(record["experiment"])


def store(record: dict[str, Any], folder: Path) -> Path:
    """Writes results/NAME/DATE.json, or VARIANT-DATE.json, whole or not at all."""
    name = stem(record) if "variant" in record else record["date"]
    path = folder / "results" / record["experiment"] / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write((json.dumps(record, indent=1, sort_keys=True) + "\n").encode())
    return path


def publish(record: dict[str, Any], folder: Path, notify: Callable[[str], None]) -> list[Path]:
    """Writes the page of a record, and beside it the picture where matplotlib is installed; returns their paths."""
    from smoothlink_paper.plots import save

    module = experiment(record["experiment"])
    place = folder / "results" / record["experiment"] if "variant" in record else folder / "docs" / "results"
    page = place / f"{stem(record)}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(page) as file:
        file.write(module.page(record).encode())
    picture = page.with_suffix(".svg")
    try:
        save(module.plot(record), picture)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "matplotlib":
            raise
        notify(f"{picture} was not drawn, which takes matplotlib: install smoothlink[report] for the picture.")
        return [page]
    return [page, picture]


def provenance(record: dict[str, Any], *options: str) -> str:
    """Returns the last line of a page: by which command, when, how long, on what machine and with which versions."""
    lacks = f"This is not the published run: {', and '.join(record['lacks'])}. " if "lacks" in record else ""
    versions = ", ".join(f"{name} {number}" for name, number in sorted(record["versions"].items()))
    command = " ".join(["smoothlink reproduce", record["experiment"], *options, f"--seed {record['seed']}"])
    kept = "; ".join(f"{count} on {where}" for where, count in sorted(record.get("kept", {}).items()))
    kept = f" Of these fits and searches some were made before, and their seconds are of then: {kept}." if kept else ""
    return (
        f"{lacks}Written by `{command}` on {record['date']} in {record['seconds']:.0f} s, at most "
        f"{record['peak_memory_mb']:.0f} MB, {record['machine']}; {versions}.{kept}"
    )


def measure(metric: str, result: Result, split: Split, seed: int, bootstraps: int = 1000) -> dict[str, Any]:
    """Returns one metric of a result with its interval, the seconds of its fit and its settings."""
    found = evaluate(split.test.Y, result.predictions, **training(split), seed=seed, bootstraps=bootstraps)
    row = found.metrics[metric]._asdict()
    return {**row, "seconds": round(result.seconds, 2), "settings": result.settings}


def row_counts(split: Split) -> list[int]:
    """Returns the numbers of training and test rows."""
    return [part.X.shape[0] for part in split]


def training(split: Split) -> dict[str, Any]:
    """Returns what metrics need to know of the training rows."""
    Y = split.train.Y
    return {"label_counts": np.bincount(Y.indices, minlength=Y.shape[1]), "n_train": Y.shape[0]}


def figure(metric: dict[str, float], digits: int) -> str:
    """Returns a value and its interval as text."""
    return f"{metric['value']:.{digits}f} [{metric['low']:.{digits}f}, {metric['high']:.{digits}f}]"
