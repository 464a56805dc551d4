"""What a model's guarantees came to on test rows: sizes of sets, rare labels in them, and rows that a person sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.conformal import (
    Conformal,
    Observed,
    coverage_threshold,
    observe,
    recall_threshold,
    release_threshold,
)
from smoothlink.metrics.bootstrap import divide
from smoothlink.reports.charts import percent, points
from smoothlink.reports.figures import NumberTable, group_name
from smoothlink.reports.labelled_rows import LabelledRows
from smoothlink.reports.measurements import Measured

Array = NDArray[Any]

LEVELS = (0.8, 0.9, 0.95)
PRECISIONS = (0.8, 0.9, 0.95, 0.99)
HEADINGS = ["promise", ">least probability %", ">reached %", ">labels per set", ">largest set", ">empty sets %"]


class Promise(NamedTuple):
    """Sets with a guarantee."""

    name: str  # "coverage" or "recall"
    level: float
    threshold: float


class Guarantees(NamedTuple):
    """The tables of the section."""

    rows: int  # conformal rows
    impossible: list[str]  # why some promises cannot be made
    tables: list[NumberTable]


def guarantees(rows: LabelledRows, m: Measured) -> Guarantees | None:
    """Returns what the guarantees of a model came to; None where it has none, or they are void."""
    conformal = rows.classifier.conformal_
    if conformal is None or conformal.void is not None:
        return None
    promises, impossible = possible_promises(conformal)
    cuts = tuple(one.threshold for one in promises)
    found = rows.classifier._run_prediction(rows.X, observe, m.Y, cuts)
    made = [set_table(promises, found, m.Y), frequency_table(promises, found, m, rows.classifier.model_.counts)]
    return Guarantees(conformal.n, impossible, [*(made if promises else []), review_table(conformal, found)])


def possible_promises(conformal: Conformal) -> tuple[list[Promise], list[str]]:
    """Returns the promises that the conformal rows allow, and why they allow no others."""
    found, impossible = [], []
    for name, threshold in (("coverage", coverage_threshold), ("recall", recall_threshold)):
        for level in LEVELS:
            try:
                found.append(Promise(name, level, threshold(conformal, level)))
            except ValueError as error:
                impossible.append(str(error))
    return found, impossible


def set_table(promises: list[Promise], found: Observed, Y: sp.csr_array) -> NumberTable:
    """Returns how each promise was kept, and how large its sets are."""
    row, count = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), np.diff(Y.indptr)
    lines = []
    for (name, level, q), sizes in zip(promises, found.sizes, strict=True):
        held = np.bincount(row, found.true >= q, Y.shape[0])
        reached = held == count if name == "coverage" else np.where(count > 0, held / np.maximum(count, 1), 1)
        numbers = points(float(reached.mean()), 2), f"{sizes.mean():.2f}", f"{sizes.max():,}"
        least = f"{100 * q:.3g}" if np.isfinite(q) else "none"
        lines.append((f"{name} {percent(level)}", least, *numbers, points(float((sizes == 0).mean()))))
    return NumberTable("Sets with a guarantee, on these rows", HEADINGS, lines)


def frequency_table(promises: list[Promise], found: Observed, m: Measured, counts: Array) -> NumberTable:
    """Returns the share of true labels that sets hold, of rare and of frequent labels."""
    known = m.Y.indices < len(counts)
    least = np.array([group.least for group in m.groups])
    group = np.searchsorted(least, counts[m.Y.indices[known]], side="right") - 1
    pairs = np.bincount(group, minlength=len(least))
    held = [divide(np.bincount(group, found.true[known] >= one.threshold, len(least)), pairs) for one in promises]
    lines = [
        (group_name(one), f"{pairs[i]:,}", *(points(float(share[i])) for share in held))
        for i, one in enumerate(m.groups)
        if pairs[i]
    ]
    headings = [f">{one.name} {percent(one.level)}" for one in promises]
    caption = "Share of the true labels that are in the sets, in %, by their frequency in training"
    return NumberTable(caption, ["training rows", ">true labels", *headings], lines)


def review_table(conformal: Conformal, found: Observed) -> NumberTable:
    """Returns how many rows a person must see for which precision of the others."""
    lines: list[tuple[Any, ...]] = []
    for precision in PRECISIONS:
        try:
            bound = release_threshold(conformal, precision)
        except ValueError:
            lines.append((percent(precision), "too few conformal rows", "", ""))
            continue
        released = found.confidence > bound.threshold
        reached = points(float(found.precision[released].mean()), 2) if released.any() else ""
        seen = int((~released).sum())
        lines.append((percent(precision), f"{seen:,}", points(seen / max(1, len(released))), reached))
    headings = ["precision promised of the others", ">rows for a person", ">% of all", ">precision reached %"]
    return NumberTable("How many rows a person must see", headings, lines)
