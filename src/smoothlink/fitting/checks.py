"""Checks of parameters against the data; what needs no data is checked by smoothlink.parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.errors import plural
from smoothlink.fitting.settings import Request

Array = NDArray[Any]

FEW_ROWS = 50


def check_task(request: Request, *, multiclass: bool) -> None:
    """Raises ValueError where the loss or the aim does not fit the labels."""
    if request.loss == "softmax" and not multiclass:
        raise ValueError("loss is 'softmax' but rows have several labels or none; use 'logistic' or 'squared'.")
    if request.loss == "logistic" and multiclass:
        raise ValueError("loss is 'logistic' but every row has exactly one label; use 'softmax', or task='multilabel'.")
    if request.aim != "half" and multiclass:
        raise ValueError(
            f"aim is {request.aim!r}, but every row has exactly one label, and a multiclass model predicts the best. "
            "Leave aim 'half', or pass task='multilabel'."
        )


def check_weights(w: Array, Y: Any, label_weight: Array | None, request: Request) -> None:
    """Raises ValueError where example weights w (n,) and label weights (c,) leave nothing to learn from Y."""
    if not (w > 0).any():
        raise ValueError("All sample weights are zero: there is nothing to learn from.")
    if not w @ np.diff(Y.indptr) > 0:
        raise ValueError("No row of positive weight has a label: there is nothing to learn from.")
    if label_weight is None:
        return
    if request.embedding == "none" or request.classifier is not None:
        which = "embedding='none'" if request.embedding == "none" else "embedding=PerLabel(classifier)"
        raise ValueError(f"class_weight of multilabel y weighs labels in the embedding, which {which} cannot use.")
    if not (label_weight > 0).any():
        raise ValueError("All class weights are zero: there is nothing to learn from.")


def few_rows_notes(rows: int, label_counts: Array) -> list[str]:
    """Returns sentences on training rows, and labels (c,) by their counts, that are too few to say much."""
    notes, single = [], int(np.count_nonzero((label_counts > 0) & (label_counts <= 1)))
    if rows < FEW_ROWS:
        notes.append(f"{plural(rows, 'training row')}: too few to rely on this model, or on what it says of itself.")
    if single:
        notes.append(
            f"{plural(single, 'label')} of {len(label_counts):,} with one training row each: next to nothing can be "
            "learned about them."
        )
    return notes
