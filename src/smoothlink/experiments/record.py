"""What an experiment leaves behind: a JSON record with its circumstances, and how figures are written."""

from __future__ import annotations

import json
import os
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from smoothlink.experiments.data import Split
from smoothlink.experiments.methods import Answer
from smoothlink.fitting.options import peak_memory_mb
from smoothlink.steps.evaluate import evaluate

PACKAGES = ("smoothlink", "numpy", "scipy", "scikit-learn", "numba", "optuna")


def circumstances(name: str, seed: int, seconds: float) -> dict[str, Any]:
    """When, with what and on what an experiment was run."""
    return {
        "experiment": name,
        "date": date.today().isoformat(),
        "seed": seed,
        "seconds": round(seconds, 1),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}},
    }


def store(record: dict[str, Any], folder: Path) -> Path:
    """Writes results/NAME-DATE.json, whole or not at all."""
    path = folder / "results" / f"{record['experiment']}-{record['date']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    temporary.replace(path)
    return path


def stated(record: dict[str, Any]) -> str:
    """The last line of a page."""
    versions = ", ".join(f"{name} {number}" for name, number in sorted(record["versions"].items()))
    return (
        f"Run on {record['date']} in {record['seconds']:.0f} s, at most {record['peak_memory_mb']:.0f} MB, seed "
        f"{record['seed']}, {record['machine']}; {versions}."
    )


def measure(metric: str, answer: Answer, split: Split, seed: int, bootstraps: int = 1000) -> dict[str, Any]:
    """One metric of an answer with its interval, the seconds of its fit and its settings."""
    found = evaluate(split.test.Y, answer.predictions, **training(split), seed=seed, bootstraps=bootstraps)
    row = found.metrics[metric]._asdict()
    return {**row, "seconds": round(answer.seconds, 2), "settings": answer.settings}


def training(split: Split) -> dict[str, Any]:
    """What metrics need to know of the training rows."""
    Y = split.train.Y
    return {"label_counts": np.bincount(Y.indices, minlength=Y.shape[1]), "n_train": Y.shape[0]}


def figure(metric: dict[str, float], digits: int) -> str:
    return f"{metric['value']:.{digits}f} [{metric['low']:.{digits}f}, {metric['high']:.{digits}f}]"
