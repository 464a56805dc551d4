"""The parts of benchmarks/gpu.py: what is fitted with which settings, what is measured, and the bars on one H200.

Settings are given, so that a fit is one fit: nothing is searched, and nothing is held out to calibrate.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.gpu_made import Sizes, made
from bench.gpu_measure import (
    Figure,
    fit_few_rows,
    fitted,
    memory_limit,
    precision,
    product_rate,
    sine,
    stage_figures,
)
from bench.gpu_pack import paired, rows_of
from smoothlink import SmoothLinkClassifier
from smoothlink_paper.data_sets import Split
from smoothlink_paper.large_sets import some_rows

Settings = dict[str, Any]

ONE_FIT: Settings = {"calibrate": False, "training": "stepwise"}

LSHTC_SIZES = Sizes(2_400_000, 1_600_000, 325_000, words_drawn=44, labels_drawn=3.35)  # 42 and 3.2 different ones
LSHTC: Settings = ONE_FIT | {"task": "multilabel", "rank": 800, "ridge": 1.0, "kernel": "laplacian"}
LSHTC |= {"kernel.bandwidth": 30.0, "kernel.features": 4000, "final_ridge": 1e-3, "loss": "logistic"}
LSHTC |= {"loss.passes": 20, "loss.batch_rows": 65536}
LSHTC_PASS = 21.46 / 0.9  # seconds: 90 % of the rate of version 0.1, which took 64.7 GiB
SAMPLED: Settings = {"calibrate": False, "training": "joint"}  # the rest is left to the rules
LSHTC_SAMPLED: Settings = SAMPLED | {"task": "multilabel"}
LSHTC_GIB, SAMPLED_GIB = 24.0, 16.0  # that fits of LSHTC's shape may take of the card
HELD_OUT, PREDICTED, PRODUCT = 20_000, 400_000, 8192  # rows, rows, and the side of the products that tell the rate

ODP_SIZES = Sizes(1_000_000, 500_000, 100_000, words_drawn=44)
ODP: Settings = ONE_FIT | {"task": "multiclass", "rank": 300, "ridge": 1.0, "kernel": "linear"}
ODP |= {"final_ridge": 1e-4, "loss": "softmax", "loss.passes": 30, "loss.batch_rows": 8192}

YSO: Settings = ONE_FIT | {"ridge": 1.0}
COSINES: Settings = {"rank": 500, "kernel": "gaussian", "kernel.features": 4000}
YSO_FITS: dict[str, Settings] = {
    "squared": COSINES | {"loss": "squared", "kernel.bandwidth": 1.0, "final_ridge": 1e-2},
    "logistic": COSINES | {"loss": "logistic", "kernel.bandwidth": 0.7, "final_ridge": 1e-4, "loss.passes": 3},
    # Of words and pairs of words. The link is linear: with all weights free, cosines gain nothing.
    "fine-tuned": {"loss": "logistic", "loss.passes": 1, "kernel": "linear", "rank": 1024, "final_ridge": 1e-3}
    | {"normalize_embedding": True, "training": "finetune", "training.passes": 4},
}
YSO_SAMPLED_SECONDS = 15
YSO_BARS = {"squared": (5, None), "logistic": (30, None), "fine-tuned": (90, 39.0)}  # seconds, P@1

ALOI: Settings = ONE_FIT | {"task": "multiclass", "rank": 122, "ridge": 1.0, "kernel": "gaussian"}
ALOI |= {"kernel.bandwidth": 0.4, "kernel.features": 32_000, "final_ridge": 1e-5}
ALOI |= {"loss": "softmax", "loss.passes": 20}

QUICK: Settings = {"effort": "quick"}
AGREE: dict[str, dict[str, Settings]] = {
    "bibtex": {
        "quick": QUICK,
        "given": ONE_FIT
        | {"rank": 112, "ridge": 1.0, "kernel.bandwidth": 2.0, "final_ridge": 0.01, "kernel.features": 2000}
        | {"loss": "logistic", "loss.passes": 4},
    },
    "delicious": {
        "quick": QUICK,
        "given": ONE_FIT
        | {"rank": 200, "ridge": 5.0, "kernel.bandwidth": 2.0, "final_ridge": 0.01, "kernel.features": 2000}
        | {"loss": "squared"},
    },
}
LARGEST_DIFFERENCE, ANGLE = 0.2, 1e-3  # points of P@1, and the sine of the largest canonical angle


class RunOptions(NamedTuple):
    """The options of a run."""

    device: str = "cuda"
    scale: float = 1.0
    seed: int = 0
    passes: int | None = None  # instead of those of the settings: a trial
    data: Path | None = None
    memory: float | None = None  # GiB of the device, instead of those of the part
    tell: Callable[[str], None] = print

    def settings(self, given: Settings) -> Settings:
        """Settings for this scale: rank, random features and batches shrink with the data."""
        share, found = min(1.0, self.scale) ** 0.5, dict(given)
        shrunk = (("rank", share, 4), ("kernel.features", share, 16), ("loss.batch_rows", self.scale, 64))
        for name, by, least in shrunk:
            if isinstance(given.get(name), int):
                found[name] = max(least, round(given[name] * by))
        name = "training.passes" if given.get("training") in ("joint", "finetune") else "loss.passes"
        takes = name in given or given.get("training") == "joint"
        return found | ({name: self.passes} if self.passes and takes else {})

    def rows(self, count: int) -> int:
        return max(100, round(count * self.scale))

    def split(self, name: str, read: Callable[[Path, str], Split] = rows_of) -> Split:
        """A data set; at a smaller scale some of its rows."""
        assert self.data is not None
        split = read(self.data, name)
        self.tell(f"{name}: {split.train.X.shape[0]:,} rows to train")
        if self.scale >= 1:
            return split
        return Split(*(some_rows(part, max(100, round(part.X.shape[0] * self.scale)), self.seed) for part in split))


class Part(NamedTuple):
    """What a part found."""

    data: dict[str, Any]
    settings: dict[str, Settings]  # of each fit
    figures: list[Figure]


def shape(split: Split) -> dict[str, Any]:
    (n, d), c = split.train.X.shape, split.train.Y.shape[1]
    a_row = {"features_a_row": split.train.X.nnz / n, "labels_a_row": split.train.Y.nnz / n}
    sizes = {"rows": n, "test_rows": split.test.X.shape[0], "features": d, "labels": c}
    return sizes | {name: round(value, 2) for name, value in a_row.items()}


def make(options: RunOptions, sizes: Sizes) -> tuple[Split, Figure]:
    began = time.perf_counter()
    split = made(sizes.scaled(options.scale), options.rows(HELD_OUT), options.seed)
    made_in = time.perf_counter() - began
    options.tell(f"data made in {made_in:.1f} s")
    return split, Figure("data made", made_in, "s")


def lshtc(options: RunOptions) -> Part:
    """LSHTC's shape: the whole fit, its passes beside the rate of plain products, and predictions."""
    settings = options.settings(LSHTC)
    split, made_in = make(options, LSHTC_SIZES)
    n, c, s = split.train.X.shape[0], split.train.Y.shape[1], settings["kernel.features"]
    side = max(64, round(PRODUCT * min(1.0, options.scale) ** 0.5))
    rates = [product_rate(options.device, side)]
    gib = options.memory or LSHTC_GIB
    with memory_limit(options.device, gib):
        fit = fitted(split.train, settings, options.device, options.seed, options.tell)
    rates.append(product_rate(options.device, side))  # after the fit: the higher of the two is the bar
    a_pass = statistics.median(fit.pass_seconds)
    rate = 4.0 * n * s * c / a_pass
    figures = [made_in, Figure("fit, end to end", fit.seconds, "s", at_most=480)]
    figures += stage_figures(fit.clf, most_gib=LSHTC_GIB)
    if settings["loss.passes"] < LSHTC["loss.passes"]:
        left = LSHTC["loss.passes"] - settings["loss.passes"]
        figures.append(Figure(f"fit, with {LSHTC['loss.passes']} passes", fit.seconds + left * a_pass, "s, expected"))
    figures += [
        Figure("a pass, median", a_pass, "s", at_most=LSHTC_PASS),
        Figure("a pass, as 4 n s c", rate / 1e12, "TFLOP/s"),
        Figure(f"product of side {side:,}", max(rates) / 1e12, "TFLOP/s"),
        Figure("a pass, of the product's rate", 100 * rate / max(rates), "%", at_least=75),
        *precision("held-out rows", fit.clf, split.test, ks=(1,)),
        *predicted(options, fit.clf, split.train.X),
    ]
    return Part(shape(split), {"fit": settings | {"memory of the device in GiB": gib}}, figures)


def lshtc_sampled(options: RunOptions) -> Part:
    """LSHTC's shape with sampled negatives, on a card of 16 GiB."""
    settings = options.settings(LSHTC_SAMPLED)
    split, made_in = make(options, LSHTC_SIZES)
    fit_few_rows(split.train, settings, options.device, options.seed)
    gib = options.memory or SAMPLED_GIB
    with memory_limit(options.device, gib):
        fit = fitted(split.train, settings, options.device, options.seed, options.tell)
    figures = [made_in, Figure("fit, end to end", fit.seconds, "s", at_most=90)]
    figures += [*stage_figures(fit.clf, most_gib=SAMPLED_GIB), *rules(fit.clf)]
    figures += precision("held-out rows", fit.clf, split.test, ks=(1,))
    return Part(shape(split), {"fit": settings | {"memory of the device in GiB": gib}}, figures)


def rules(clf: SmoothLinkClassifier) -> list[Figure]:
    """What the rules of joint training chose."""
    return [Figure(name, clf.summary_[name], "") for name in ("rank", "passes", "negatives", "sparse_weights")]


def yso_sampled(options: RunOptions) -> Part:
    """Titles of books with sampled negatives, on the device and on the host; first fits of few rows compile."""
    split, settings, figures = options.split("yso-finna-en"), options.settings(SAMPLED), []
    found = {}
    for where, device in (("device", options.device), ("host", "cpu")):
        fit_few_rows(split.train, settings, device, options.seed)
        fit = fitted(split.train, settings, device, options.seed, options.tell)
        most = YSO_SAMPLED_SECONDS if where == "device" else None
        found[where], *others = precision(where, fit.clf, split.test, ks=(1, 3, 5))
        figures += [Figure(f"{where}: fit", fit.seconds, "s", at_most=most), found[where], *others]
        figures += stage_figures(fit.clf, f"{where}: ")
    apart = abs(found["device"].value - found["host"].value)
    figures += [Figure("P@1, difference", apart, "points", at_most=LARGEST_DIFFERENCE), *rules(fit.clf)]
    return Part(shape(split), {"fit": settings}, figures)


def predicted(options: RunOptions, clf: SmoothLinkClassifier, X: Any) -> list[Figure]:
    """Rows per second of the five best labels, from sparse rows of the host; the model is on its device already."""
    X = X[: options.rows(PREDICTED)]
    clf.predict_topk(X[: max(1, X.shape[0] // 20)], k=5)
    began = time.perf_counter()
    clf.predict_topk(X, k=5)
    whole = time.perf_counter() - began
    return [Figure("top 5", X.shape[0] / whole, "rows/s", at_least=120_000)]


def odp(options: RunOptions) -> Part:
    """ODP's shape: one label per row, softmax, no random features."""
    settings = options.settings(ODP)
    split, made_in = make(options, ODP_SIZES)
    fit = fitted(split.train, settings, options.device, options.seed, options.tell)
    figures = [made_in, Figure("fit, end to end", fit.seconds, "s", at_most=120), *stage_figures(fit.clf)]
    figures += [Figure("a pass, median", statistics.median(fit.pass_seconds), "s")]
    return Part(shape(split), {"fit": settings}, [*figures, *precision("held-out rows", fit.clf, split.test, ks=(1,))])


def yso(options: RunOptions) -> Part:
    """Titles of books: the losses one after the other, after a fit of few rows that loads what a first fit loads.

    The fine-tuned fit sees pairs of words too.
    """
    figures, used, shapes = [], {}, {}
    for name, own in YSO_FITS.items():
        split = options.split("yso-finna-en", paired if name == "fine-tuned" else rows_of)
        shapes[name] = shape(split)
        settings, (most, least) = options.settings(YSO | own), YSO_BARS[name]
        fit_few_rows(split.train, settings, options.device, options.seed)
        fit = fitted(split.train, settings, options.device, options.seed, options.tell)
        first, *others = precision(name, fit.clf, split.test, ks=(1, 3, 5))
        figures += [Figure(f"{name}: fit", fit.seconds, "s", at_most=most), first._replace(at_least=least), *others]
        figures += stage_figures(fit.clf, f"{name}: ")
        used[name] = settings
    return Part(shapes, used, figures)


def aloi(options: RunOptions) -> Part:
    """Pictures of a thousand things: many random features, softmax."""
    split, settings = options.split("aloi"), options.settings(ALOI)
    fit_few_rows(split.train, settings, options.device, options.seed)
    fit = fitted(split.train, settings, options.device, options.seed, options.tell)
    (hit,) = precision("", fit.clf, split.test, ks=(1,))
    figures = [Figure("fit", fit.seconds, "s", at_most=60), Figure("test error", 100 - hit.value, "%", at_most=3.4)]
    return Part(shape(split), {"fit": settings}, figures + stage_figures(fit.clf))


def agree(options: RunOptions) -> Part:
    """The same fits on the host and on the device."""
    shapes, used, figures = {}, {}, []
    for name, fits in AGREE.items():
        split = options.split(name)
        shapes[name] = shape(split)
        for kind, given in fits.items():
            settings, what = options.settings(given), f"{name}, {kind}"
            both = [
                fitted(split.train, settings, device, options.seed, options.tell) for device in ("cpu", options.device)
            ]
            here, there = (precision(what, fit.clf, split.test, ks=(1,))[0] for fit in both)
            directions = [np.asarray(fit.clf.label_directions_) for fit in both]
            figures += [
                here._replace(what=f"{here.what}, host"),
                there._replace(what=f"{there.what}, device"),
                Figure(f"{what}: P@1, difference", abs(here.value - there.value), "points", at_most=LARGEST_DIFFERENCE),
                Figure(f"{what}: largest canonical angle", sine(*directions), "sine", at_most=ANGLE),
                *(
                    Figure(f"{what}: fit, {where}", f.seconds, "s")
                    for where, f in zip(("host", "device"), both, strict=True)
                ),
            ]
            used[what] = settings
    return Part(shapes, used, figures)


PARTS: dict[str, Callable[[RunOptions], Part]] = {
    "lshtc": lshtc,
    "lshtc-sampled": lshtc_sampled,
    "odp": odp,
    "yso": yso,
    "yso-sampled": yso_sampled,
    "aloi": aloi,
    "agree": agree,
}
