"""The summary of a fit: settings and what chose them, how much the embedding captures, seconds and memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.errors import plural
from smoothlink.fitting.calibration import Calibrated
from smoothlink.fitting.embedding import Embedded
from smoothlink.fitting.settings import ChosenSettings, Clock
from smoothlink.machines.copies import RowContents, TrainingRows, count_copies
from smoothlink.model import Model

Array = NDArray[Any]


class Fitted(NamedTuple):
    """A model, its label directions, and the summary of its fit."""

    model: Model
    U: Array | None  # (c, k)
    summary: dict[str, Any]
    training_rows: TrainingRows | None = None


def with_contents(fitted: Fitted, contents: RowContents, first: Array | None) -> Fitted:
    """Returns the fit with a sketch of the rows that it learnt, how many there were, and how many were copies."""
    fitted.summary.update(rows=len(contents.features), copies=count_copies(first))
    return fitted._replace(training_rows=TrainingRows.of(contents.features))


def summarise(
    choice: ChosenSettings, embedded: Embedded, calibrated: Calibrated, criteria: dict[str, float], clock: Clock
) -> dict[str, Any]:
    """Returns what `summary_` of an estimator holds."""
    problem, settings = choice.problem, choice.settings
    rows, inputs = problem.rows, problem.inputs
    captured = embedded.captured
    if len(embedded.spectrum) > settings.rank:
        captured *= float(embedded.spectrum[: settings.rank].sum() / embedded.spectrum.sum())
    return {
        "rows": rows.n,
        "features": inputs.columns or rows.d - 1,
        "labels": rows.c,
        "task": "multiclass" if problem.multiclass else "multilabel",
        "scale": problem.scaling.kind,
        "trees": 0 if inputs.trees is None else len(inputs.trees.roots),
        "input_kernel": None if inputs.kernel is None else str(inputs.kernel),
        "input_bandwidth": None if inputs.kernel is None else inputs.bandwidth,
        "input_features": rows.d - 1 if inputs.kernel is not None else None,
        "solver": type(settings.embedder.solver).__name__,
        "solver_iterations": embedded.convergence.iterations,
        "solver_residual": embedded.convergence.residual,
        "rank": min(settings.rank, embedded.H.shape[1]),
        "captured_share": None if np.isnan(captured) else captured,
        "spectrum": [float(f"{value:.6g}") for value in embedded.spectrum[: settings.rank]],
        "ridge": settings.ridge,
        "kernel": str(settings.kernel),
        "bandwidth": settings.bandwidth,
        "random_features": 0 if settings.kernel.name == "linear" else settings.features,
        "final_ridge": settings.final_ridge,
        "loss": settings.loss,
        "passes": settings.passes,
        "chosen_by": {"scale": problem.scaling.reason or "given", **choice.chosen_by},
        "held_out_rows": calibrated.rows,
        "held_out_metrics": calibrated.metrics,
        "held_out_criterion": criteria,
        "threshold": calibrated.reached,
        "plan": problem.state.plan.for_summary(),
        "seconds": clock.seconds,
        "peak_memory_mb": clock.peak_mb,
    }


def threshold_text(reached: dict[str, Any]) -> str:
    """Returns a sentence on the aim of a model's thresholds and what they gave on held-out rows, from `summary_`."""
    if reached["aim"] == "half":
        what = "It predicts the labels of probability 1/2 or more"
    elif "missed" in reached:
        what = f"The aim {reached['aim']} was not reached; the nearest is a threshold of {reached['threshold']:.3g}"
    else:
        at = "a threshold per label" if reached["threshold"] is None else f"a threshold of {reached['threshold']:.3g}"
        what = f"It predicts labels from {at} on, for the aim {reached['aim']}"
    mean = f", mean F1 of the labels {reached['macro_f1']:.3f}" if "macro_f1" in reached else ""
    return (
        f"{what}. On {plural(reached['rows'], 'held-out row')}: precision {reached['precision']:.3f}, recall "
        f"{reached['recall']:.3f}, F1 {reached['f1']:.3f}{mean}, {reached['labels_per_row']:.2f} labels per row. "
        "That is measured, not guaranteed for other rows."
    )
