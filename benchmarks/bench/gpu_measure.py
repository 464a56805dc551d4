"""Figures, and how they are taken: timed fits, the rate of plain products, precision, and angles between subspaces."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from subprocess import PIPE, CalledProcessError, run
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import smoothlink
from smoothlink import SmoothLinkClassifier
from smoothlink.choices import nest
from smoothlink.data.read import Data
from smoothlink.metrics.evaluate import Predictions, evaluate
from smoothlink_paper.record import source

Array = NDArray[Any]

FIRST_REPEATS, REPEATS, IN_A_ROW = 3, 20, 10  # of a product that tells the rate: times that are not looked at, that are
FEW_ROWS = 2000  # and random features
SILENCE = 5.0  # seconds of a fit without a word
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "torch", "triton")


class Figure(NamedTuple):
    """A number with its unit, and the bar that it must not pass, or must reach."""

    what: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where there is none."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least

    @property
    def bar(self) -> str:
        if self.met is None:
            return ""
        bound = f"at most {self.at_most:,g}" if self.at_most is not None else f"at least {self.at_least:,g}"
        return f"{bound}: {'met' if self.met else 'missed'}"

    @property
    def shown(self) -> str:
        return f"{shortened(self.value)} {self.unit}"


def shortened(value: float) -> str:
    """Four digits or so: 123,456, 12.34, 0.1234, 1.2e-05."""
    if abs(value) >= 100:
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.1f}"
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


class Fit(NamedTuple):
    """A fitted classifier, the seconds from arrays to a model, and those of each pass of its SGD."""

    clf: SmoothLinkClassifier
    seconds: float
    pass_seconds: list[float]


def fitted(rows: Data, settings: dict[str, Any], device: str, seed: int, tell: Callable[[str], None]) -> Fit:
    """One fit, timed; the device is waited for where a pass ends, so that its seconds are its own."""
    moments: list[float] = []
    reported = [0.0]

    def notify(stage: str, share: float, words: str) -> None:
        finish(device)
        after = time.perf_counter() - began
        if stage == "fit":
            moments.append(after)
        if share > 0 and after - reported[-1] > SILENCE:
            reported.append(after)
            tell(f"  {after:6.1f} s: {stage} {100 * share:.0f} %")

    clf = SmoothLinkClassifier(**nest(settings), device=device, random_state=seed)
    clf._notify = notify
    finish(device)
    began = time.perf_counter()
    clf.fit(rows.X, rows.Y)
    seconds = time.perf_counter() - began
    del clf._notify
    return Fit(clf, seconds, np.diff(moments).tolist())


def fit_few_rows(rows: Data, settings: dict[str, Any], device: str, seed: int) -> None:
    """A fit of few rows, features and passes: it loads libraries and compiles kernels, which happens once a process."""
    brief = settings | {name: 1 for name in ("loss.passes", "training.passes") if name in settings}
    if settings.get("training") == "joint":
        brief["training.passes"] = 2  # hard negatives are looked for after the first
    if "kernel.features" in settings:
        brief["kernel.features"] = min(FEW_ROWS, settings["kernel.features"])
    few = slice(min(FEW_ROWS, rows.X.shape[0]))
    SmoothLinkClassifier(**nest(brief), device=device, random_state=seed).fit(rows.X[few], rows.Y[few])


def finish(device: str) -> None:
    """Waits until the device has finished."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


def product_rate(device: str, side: int) -> float:
    """Returns the operations per second of a matrix product: of half precision on a GPU, else of float32."""
    A: Any = np.random.default_rng(0).standard_normal((side, side), dtype=np.float32)
    if device.startswith("cuda"):
        import torch

        A = torch.from_numpy(A).to(device).bfloat16()
    seconds = []
    for _ in range(FIRST_REPEATS + REPEATS):
        finish(device)
        began = time.perf_counter()
        for _ in range(IN_A_ROW):
            A @ A
        finish(device)
        seconds.append((time.perf_counter() - began) / IN_A_ROW)
    return 2.0 * side**3 / statistics.median(seconds[FIRST_REPEATS:])


@contextmanager
def memory_limit(device: str, gib: float) -> Iterator[None]:
    """A device with no more memory than this: torch refuses to allocate more, as a smaller card would."""
    if not device.startswith("cuda"):
        yield
        return
    import torch

    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(device).total_memory
    number = torch.device(device).index or 0
    torch.cuda.set_per_process_memory_fraction(min(1.0, gib * (1 << 30) / whole), number)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, number)


def stage_figures(clf: SmoothLinkClassifier, prefix: str = "", most_gib: float | None = None) -> list[Figure]:
    """Seconds of each stage that takes a hundredth of them all, and the most memory the device held."""
    stages = clf.summary_["seconds"]
    least = sum(stages.values()) / 100
    figures = [Figure(f"{prefix}of which {stage}", s, "s") for stage, s in stages.items() if s >= least]
    peak = clf.summary_.get("peak_device_mb")
    memory = [] if peak is None else [Figure(f"{prefix}peak device memory", peak / 1024, "GiB", at_most=most_gib)]
    return figures + memory


def precision(what: str, clf: SmoothLinkClassifier, rows: Data, ks: Sequence[int]) -> list[Figure]:
    """P@k in %."""
    predicted = Predictions(topk=clf.predict_topk(rows.X, k=5))
    counts, n = clf.model_.counts, max(1, round(clf.model_.total))
    found = evaluate(rows.Y, predicted, label_counts=counts, n_train=n, ks=ks, bootstraps=0).metrics
    return [Figure(f"{what}: P@{k}" if what else f"P@{k}", 100 * found[f"p@{k}"].value, "%") for k in ks]


def sine(U: Array, V: Array) -> float:
    """Of the largest canonical angle between the columns of two matrices; 1 where their numbers differ."""
    if U.shape != V.shape:
        return 1.0
    Q, R = (np.linalg.qr(A.astype(np.float64))[0] for A in (U, V))
    return float(np.linalg.norm(R - Q @ (Q.T @ R), 2))


def versions(device: str) -> dict[str, str]:
    """Of what takes part, as far as it is installed, with a digest of smoothlink's source."""
    found = {"python": python_version(), "smoothlink": smoothlink.__version__, "source": source()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found | (card_versions() if device.startswith("cuda") else {})


def card_versions() -> dict[str, str]:
    import torch

    found = {"CUDA": str(torch.version.cuda)}
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        output = run(command, stdout=PIPE, text=True, check=True).stdout.split()
    except (OSError, CalledProcessError):
        return found
    return found | {"driver": output[0]}


def device_name(device: str) -> str:
    """The card as it calls itself, or what else computes."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    return {"cpu": "the host (NumPy)", "torch": "the host (torch)"}.get(device, device)
