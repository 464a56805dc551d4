"""The request of a fit, its settings once nothing is left to choose, and its data."""

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

from smoothlink.choices import FineTune, InputKernel, Joint, Logistic, Matern, Randomized, Softmax, as_choice
from smoothlink.fitting.checkpoint import FitState
from smoothlink.fitting.embedding import Embedder
from smoothlink.machines.rows import Rows
from smoothlink.machines.rows_in_files import MappedMatrix
from smoothlink.parameters import CHOICES, JOINT, chosen_word, conflict, parse_aim
from smoothlink.steps.featurize import Features, Kernel
from smoothlink.steps.landmarks import Landmarks, folded, whitened
from smoothlink.steps.scale import Scaling
from smoothlink.steps.sgd import SGD
from smoothlink.steps.squared import Smoothing
from smoothlink.steps.thresholds import Aim
from smoothlink.steps.trees import Trees

Array = NDArray[Any]
Notify = Callable[[str, float, str], None]  # step, share that is done, and a few words on it
Report = Callable[[float, str], None]  # the same within one step
Note = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """The parameters of a fit, those of choices among them; much of it may be "auto".

    Names, meanings and defaults are those of smoothlink.parameters.
    """

    rank: Any
    embedding: str
    power: int
    oversample: int
    classifier: Any  # of PerLabel; None: ridge regression
    ridge: Any
    kernel: str
    bandwidth: Any
    n_features: Any
    final_ridge: Any
    loss: str
    passes: Any
    learning_rate: float
    momentum: float
    decay: float
    batch_rows: int | None
    training: str  # "auto", "stepwise", "joint" or "finetune"
    negatives: Any  # of joint training
    sparse_weights: bool  # of joint training and fine-tuning, as the next three
    training_passes: Any
    training_rate: float
    training_batch: int | None
    dropout: float
    label_smoothing: float
    scale: str
    normalize_embedding: bool
    trees: Any  # "auto", True or False
    input_kernel: str | None
    input_bandwidth: Any
    input_features: Any
    input_map: str
    solver: Any
    effort: str
    holdout: float
    calibrate: bool
    aim: str
    device: Any
    memory: Any
    block_rows: int | None
    checkpoint: Any
    updatable: bool
    joint_conflict: str | None  # why joint training is not possible with these parameters
    seed: int

    @classmethod
    def of(cls, parameters: dict[str, Any], seed: int) -> Request:
        """Returns the request of checked parameters of the estimator."""
        own = cls.__dataclass_fields__.keys()
        found = {name: value for name, value in parameters.items() if name in own}
        kernel = as_choice("kernel", parameters["kernel"])
        loss = as_choice("loss", parameters["loss"])
        inputs = as_choice("input_kernel", parameters["input_kernel"])
        training = as_choice("training", parameters["training"])
        embedding = as_choice("embedding", parameters["embedding"])
        sgd = loss if isinstance(loss, (Logistic, Softmax)) else Logistic()
        probes = embedding if isinstance(embedding, Randomized) else Randomized()
        trained = training if isinstance(training, (Joint, FineTune)) else Joint()
        input_kernel = inputs if isinstance(inputs, InputKernel) else InputKernel(kernel=inputs)
        found |= {
            "kernel": kernel_name(kernel),
            "bandwidth": getattr(kernel, "bandwidth", "auto"),
            "n_features": getattr(kernel, "features", "auto"),
            "loss": chosen_word(parameters, "loss"),
            **sgd.get_params(),
            "embedding": chosen_word(parameters, "embedding"),
            **probes.get_params(),
            "classifier": getattr(embedding, "classifier", None),
            "input_kernel": input_kernel.kernel,
            "input_bandwidth": input_kernel.bandwidth,
            "input_features": input_kernel.features,
            "input_map": input_kernel.map,
            "training": chosen_word(parameters, "training"),
            "negatives": getattr(training, "negatives", "auto"),
            "sparse_weights": trained.sparse_weights,
            "training_passes": trained.passes,
            "training_rate": trained.learning_rate,
            "training_batch": trained.batch_rows,
            "dropout": getattr(training, "dropout", FineTune().dropout),
            "joint_conflict": conflict(JOINT, parameters),
        }
        return cls(**found, seed=seed)

    @property
    def threshold_aim(self) -> Aim:
        """What the thresholds of the model are chosen for."""
        return Aim(*(parse_aim(self.aim) or ()))

    @property
    def given(self) -> bool:
        """Whether every setting is given, so that held-out rows only calibrate."""
        return "auto" not in (self.rank, self.ridge, self.bandwidth, self.final_ridge, self.loss)


def kernel_name(kernel: Any) -> str:
    """Returns the name of a kernel choice as `parse_kernel` reads it."""
    return (
        kernel
        if isinstance(kernel, str)
        else f"matern({kernel.nu:g})"
        if isinstance(kernel, Matern)
        else next(choice.word for choice in CHOICES if choice.name == type(kernel).__name__)
    )


class Inputs(NamedTuple):
    """The trees and the kernel of x on which the embedding is linear; nothing where it is linear in x itself."""

    kernel: Kernel | None = None
    bandwidth: float = 1.0
    features: Features | Landmarks | None = None
    root: Array | None = None  # (s, r) what the rows were multiplied by after `features`
    trees: Trees | None = None  # whose predictions stand beside x

    @property
    def columns(self) -> int:
        """How many columns of x there are; 0 where neither trees nor a kernel know."""
        if self.trees is not None:
            return self.trees.d
        if self.features is None:
            return 0
        return int(self.features.points.shape[1] if isinstance(self.features, Landmarks) else len(self.features.R))

    def values(self, A: Any) -> Any:
        """Returns the values of the kernel (n, p + 1) for the rows of A (n, d + 1), or where there is none these."""
        if self.features is None:
            return A
        found = self.features(A[:, :-1])
        return found if self.root is None else whitened(found, self.root)

    def weights(self, W: Array) -> Array:
        """The weights (p + 1, k) that a model applies after `features`."""
        return np.ascontiguousarray(W) if self.root is None else folded(self.root, W)


@dataclass(frozen=True)
class Settings:
    """Every setting of a stepwise fit, none left to choose: what `fit_link` takes with the rows."""

    embedder: Embedder
    ridge: float
    rank: int
    normalize: bool  # whether h is scaled to unit length
    kernel: Kernel
    features: int  # random features; not used by the linear kernel
    bandwidth: float
    final_ridge: float
    loss: str  # "squared", "logistic" or "softmax"
    passes: int  # of the SGD; 0 for the squared loss
    sgd: SGD
    smoothing: Smoothing
    seed: int


class Problem(NamedTuple):
    """The data of a fit, scaled and in blocks of rows, and where its state is saved."""

    rows: Rows
    Y: Any  # (n, c) CSR, or on workers
    multiclass: bool
    scaling: Scaling
    inputs: Inputs
    table: bool  # whether the columns of X were standardised, as those of a dense table are
    label_scale: Array | None  # (c,) square roots of label weights
    state: FitState
    groups: Array | None = None  # (n,) rows of the same number are held out together
    held: Array | None = None  # (n,) whether a row calibrates a model that will be updated
    regrown: Callable[[Array], Rows] | None = None  # the rows, by trees that were grown without those held out

    def rows_for(self, held: Array, sample: Array | None = None) -> Rows:
        """Returns the rows from which a fold without those held out is fitted: trees beside x know nothing of these.

        Of a sample the numbers are given, and those held out count in it.
        """
        rows = self.rows if self.regrown is None else self.regrown(held if sample is None else sample[held])
        return rows if sample is None else rows.take(sample).compact()


class ChosenSettings(NamedTuple):
    """Settings, what chose each of them, and how held-out rows fare with them."""

    problem: Problem
    settings: Settings
    chosen_by: dict[str, str]
    criterion: float = np.inf  # smaller is better; inf where nothing was held out
    folds: Any = None  # a list of `Fold` of all rows, embedded with the settings' ridge, where the search had them


class TrainingData(NamedTuple):
    """What a fit is given."""

    X: Any  # (n, d) CSR or dense, or mapped from files
    Y: sp.csr_array  # (n, c) float32 ones
    w: Array | None  # (n,)
    multiclass: bool
    label_weight: Array | None = None  # (c,)
    groups: Array | None = None  # (n,) rows of the same number are held out together
    held: Array | None = None  # (n,) whether a row calibrates a model that will be updated

    def merged(self, first: Array | None, request: Request) -> TrainingData:
        """Returns copies as one row that has the weight of all; `first` (n,) numbers the first copy of each row.

        Where rows are in files or memory is counted, the others stay, at weight 0. A classifier may take no weights:
        there copies are a group.
        """
        if first is None:
            return self
        if request.classifier is not None:
            return self if self.groups is not None else self._replace(groups=first)
        w = np.bincount(first, self.w, len(first))
        if request.memory is not None or isinstance(self.X, MappedMatrix):
            return self._replace(w=w)
        kept = np.flatnonzero(first == np.arange(len(first)))
        groups, held = (None if of_rows is None else of_rows[kept] for of_rows in (self.groups, self.held))
        return self._replace(X=self.X[kept], Y=self.Y[kept], w=w[kept], groups=groups, held=held)


@dataclass
class Clock:
    """Seconds and peak memory of each step, and whom to notify of them."""

    notify: Notify | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        self.progress(name, 0.0)
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
        self.peak_mb[name] = peak_memory_mb()
        self.progress(name, 1.0)

    def progress(self, name: str, share: float, words: str = "") -> None:
        if self.notify is not None:
            self.notify(name, share, words)


def peak_memory_mb() -> float:
    """The most memory this program has held, in MB; nan where the system does not say.

    experiments/peers/child.py, which must not import smoothlink, has the same.
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
