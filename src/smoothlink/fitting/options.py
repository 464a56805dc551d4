"""What is asked of a fit, what was settled, and what it cost."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.checkpoint import Work
from smoothlink.fitting.first_stage import FirstStage
from smoothlink.machines.rows import Rows
from smoothlink.steps.featurize import Features, Kernel
from smoothlink.steps.fit import Smoothing
from smoothlink.steps.landmarks import Landmarks, folded

Array = NDArray[Any]
Notify = Callable[[str, float], None]


@dataclass(frozen=True)
class Options:
    """Everything that can be asked of a fit; names, meanings and defaults are SmoothLinkClassifier's."""

    rank: Any
    embedding: str
    ridge: Any
    kernel: Any
    bandwidth: Any
    n_features: Any
    final_ridge: Any
    loss: str
    passes: Any
    learning_rate: float
    momentum: float
    decay: float
    batch_rows: int | None
    negatives: Any
    direct: bool
    label_smoothing: float
    scale: str
    normalize_embedding: bool
    quasi_random: str | None
    input_kernel: Any
    input_bandwidth: Any
    input_features: Any
    input_map: str
    first_stage: Any
    power: int
    oversample: int
    half_step: bool
    penalize_constant: bool
    solver: Any
    effort: str
    finetune: Any
    dropout: float
    device: Any
    holdout: float
    calibrate: bool
    block_rows: int | None
    memory: Any
    checkpoint: Any
    seed: int

    @property
    def given(self) -> bool:
        """Whether every setting is given, so that held-out rows only calibrate."""
        return "auto" not in (self.rank, self.ridge, self.bandwidth, self.final_ridge, self.loss)


class Inputs(NamedTuple):
    """The kernel that the first stage sees x through; nothing where it sees x itself."""

    kernel: Kernel | None = None
    bandwidth: float = 1.0
    features: Features | Landmarks | None = None
    root: Array | None = None  # (s, r) what the rows were multiplied by after `features`

    @property
    def columns(self) -> int:
        """How many columns of x there are; 0 where no kernel knows."""
        if self.features is None:
            return 0
        return int(self.features.points.shape[1] if isinstance(self.features, Landmarks) else len(self.features.R))

    def weights(self, W: Array) -> Array:
        """The weights (p + 1, k) that a model applies after `features`."""
        return np.ascontiguousarray(W) if self.root is None else folded(self.root, W)


class Setup(NamedTuple):
    """The data and the choices that do not depend on held-out rows."""

    rows: Rows
    Y: sp.csr_array
    multiclass: bool
    stage: FirstStage
    inputs: Inputs
    table: bool  # whether the columns of X were standardised, as those of a dense table are
    kernel: Kernel
    n_features: int
    ranks: tuple[int, ...]  # candidates, ascending
    smoothing: Smoothing
    work: Work = Work()


class Chosen(NamedTuple):
    """Every setting of a fit as a number."""

    ridge: float
    rank: int
    bandwidth: float
    final_ridge: float
    loss: str  # "squared", "logistic" or "softmax"
    passes: int  # of the descent; 0 for the squared loss


@dataclass
class Clock:
    """Seconds and peak memory of each stage, and who is told of them."""

    notify: Notify | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        self.tell(name, 0.0)
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
        self.peak_mb[name] = peak_memory_mb()
        self.tell(name, 1.0)

    def tell(self, name: str, share: float) -> None:
        if self.notify is not None:
            self.notify(name, share)


def peak_memory_mb() -> float:
    """The most memory this program has held, in MB; nan where the system does not say.

    benchmarks/peers/child.py, which must not import smoothlink, has the same.
    """
    try:  # Linux, whose ru_maxrss begins with what the parent held when it forked
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found[1]) / (1 << 10)
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (1 << 20 if sys.platform == "darwin" else 1 << 10)
