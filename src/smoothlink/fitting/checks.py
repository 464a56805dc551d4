"""Checks of parameters against the data; what needs no data is checked by smoothlink.parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.fitting.settings import Request

Array = NDArray[Any]


def check_loss(request: Request, *, multiclass: bool) -> None:
    """Raises ValueError where the loss does not fit the labels."""
    if request.loss == "softmax" and not multiclass:
        raise ValueError("loss is 'softmax' but rows have several labels or none; use 'logistic' or 'squared'.")
    if request.loss == "logistic" and multiclass:
        raise ValueError("loss is 'logistic' but every row has exactly one label; use 'softmax', or task='multilabel'.")


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
