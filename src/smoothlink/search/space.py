"""The space of a search and its result."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from smoothlink.choices import nest
from smoothlink.data.atomic import replace_file
from smoothlink.data.overwrite import SETTINGS_KEY

Params = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """The values that trials are drawn from. Ridges lie on half decades, so that trials often share an embedding."""

    ridge: tuple[float, float] = (1e-3, 1e2)
    rank: tuple[Any, ...] = ("all", 0.9)
    kernel: tuple[str, ...] = ("gaussian", "matern(5)", "matern(3)", "laplacian")
    bandwidth: tuple[float, float] = (0.25, 8.0)
    n_features: tuple[int, int] = (500, 4000)
    final_ridge: tuple[float, float] = (1e-5, 10.0)
    loss: tuple[str, ...] = ("squared", "sgd")  # sgd: logistic, for multiclass softmax
    learning_rate: tuple[float, float] = (0.25, 1.25)  # times the rate that stays stable
    momentum: tuple[float, float] = (0.05, 0.9)
    decay: tuple[float, float] = (0.8, 1.0)
    passes: int = 15
    label_smoothing: tuple[float, float] = (0.98, 1.0)
    trees: tuple[bool, ...] = (False, True)  # True only where X is a dense table
    input_kernel: tuple[str | None, ...] = (None, "gaussian")  # kernels only where X is a dense table
    input_bandwidth: tuple[float, float] = (0.35, 2.9)  # on half octaves

    def start(self, n: int) -> Params:
        """Returns the first trial of a search over n rows, as Optuna names it: the middle of what suits most data."""
        ridges = half_decades(*self.ridge)
        wanted: Params = {
            "loss": "squared",
            "trees": False,
            "input_kernel": None,
            "rank": "all",
            "kernel": "gaussian",
            "bandwidth": 2.0,
            "n_features": 3 * n // 5,
            "label_smoothing": 1.0,
        }
        kept: Params = {}
        for name, value in wanted.items():
            allowed = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                kept |= {name: value} if value in allowed else {}
            else:
                kept[name] = type(value)(np.clip(value, *allowed))
        return {**kept, "ridge": int(np.argmin(np.abs(np.log(ridges))))}


class Best(NamedTuple):
    """The best settings of a search for one metric."""

    value: float  # on the holdout
    params: Params  # by dotted name, as `smoothlink train --set` takes them: "kernel.bandwidth"
    trial: int

    @property
    def parameters(self) -> Params:
        """Returns the settings as SmoothLinkClassifier takes them."""
        return nest(self.params)


class Tuned(NamedTuple):
    """The outcome of a search."""

    best: dict[str, Best]  # by metric
    finished: int
    pruned: int
    failed: dict[int, str]  # trial -> reason

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one JSON file that `smoothlink train --params` takes."""
        content = {metric: best._asdict() for metric, best in self.best.items()}
        with replace_file(path) as file:
            file.write((json.dumps({SETTINGS_KEY: 1, "best": content}, indent=1) + "\n").encode())


def half_decades(low: float, high: float) -> list[float]:
    """Returns 10^(e/2) for whole e between two bounds."""
    return [float(10 ** (e / 2)) for e in range(round(2 * np.log10(low)), round(2 * np.log10(high)) + 1)]


def half_octaves(low: float, high: float) -> list[float]:
    """Returns 2^(e/2) for whole e between two bounds."""
    return [float(2 ** (e / 2)) for e in range(round(2 * np.log2(low)), round(2 * np.log2(high)) + 1)]
