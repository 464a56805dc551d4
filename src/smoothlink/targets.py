"""y in any of scikit-learn's forms <-> the 0/1 matrix Y, and the checks of both."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

Array = NDArray[Any]


class Targets(NamedTuple):
    """What was given as y."""

    Y: sp.csr_array  # (n, c) float32 ones
    classes: Array  # (c,) class ids, or 0 .. c - 1 where y was an indicator
    indicator: bool  # y was a 0/1 matrix, not one class id a row
    sparse: bool  # ... and sparse
    multiclass: bool  # exactly one label a row


def read_targets(y: Any, task: str) -> Targets:
    """Class ids of any dtype, or a dense or sparse 0/1 indicator matrix."""
    if task not in ("auto", "multilabel", "multiclass"):
        raise ValueError(f"task is {task!r}; possible are 'auto', 'multilabel' and 'multiclass'.")
    if sp.issparse(y):
        Y = sp.csr_array(y, dtype=np.float32, copy=True)
        Y.sum_duplicates()
        Y.eliminate_zeros()
        return indicator_targets(Y, task, sparse=True)
    array = np.asarray(y)
    if array.ndim == 2 and (array.shape[1] != 1 or task == "multilabel"):
        if array.dtype == object or not np.isin(array, (0, 1)).all():
            check_classification_targets(array)
            raise ValueError("y is a matrix with values other than 0 and 1; possible are a 0/1 matrix and class ids.")
        return indicator_targets(sp.csr_array(array.astype(np.float32)), task, sparse=False)
    return class_targets(array, task)


def class_targets(y: Array, task: str) -> Targets:
    """One class id a row."""
    if y.ndim == 2:
        warnings.warn("A column-vector y was passed when a 1d array was expected.", DataConversionWarning, stacklevel=4)
    y = column_or_1d(y)
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("Input y contains NaN or infinity; class ids must be finite.")
    check_classification_targets(y)
    if task == "multilabel":
        raise ValueError("task is 'multilabel' but y has one class id a row; pass a 0/1 matrix, or task='multiclass'.")
    classes, ids = np.unique(y, return_inverse=True)
    n = len(y)
    Y = sp.csr_array((np.ones(n, np.float32), ids.astype(np.int32), np.arange(n + 1)), (n, len(classes)))
    return Targets(Y, classes, False, False, True)


def indicator_targets(Y: sp.csr_array, task: str, *, sparse: bool) -> Targets:
    """A 0/1 matrix; multiclass where every row has exactly one label, unless told otherwise."""
    if Y.nnz and not (Y.data == 1).all():
        raise ValueError("Y has values other than 0 and 1; pass a 0/1 indicator matrix.")
    if not Y.nnz:
        raise ValueError("Y has no positive label in any row: there is nothing to learn.")
    Y.sort_indices()
    single = bool((np.diff(Y.indptr) == 1).all()) and Y.shape[1] > 1
    if task == "multiclass" and not single:
        raise ValueError("task is 'multiclass' but some rows have no label or several; pass task='multilabel'.")
    return Targets(Y, np.arange(Y.shape[1]), True, sparse, single and task != "multilabel")


def weigh(targets: Targets, sample_weight: Array, class_weight: Any) -> tuple[Array, Array | None]:
    """Example weights (n,) and label weights (c,) after `class_weight`.

    Multiclass: as in scikit-learn, the examples of a class weigh more. Multilabel: an example has many labels, so
    the weight is the label's, in the sum of squares that the embedding minimises.
    """
    if class_weight is None:
        return sample_weight, None
    if targets.multiclass:
        ids = targets.Y.indices
        keyed = class_weight
        if isinstance(class_weight, dict):
            keyed = {i: class_weight[v] for i, v in enumerate(targets.classes.tolist()) if v in class_weight}
        return sample_weight * compute_sample_weight(keyed, ids), None
    c = targets.Y.shape[1]
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f"class_weight is {class_weight!r}; possible are None, 'balanced', a dict or an array.")
        counts = np.bincount(targets.Y.indices, minlength=c)
        weights = np.where(counts > 0, counts.mean() / np.maximum(counts, 1), 0)
    elif isinstance(class_weight, dict):
        weights = np.array([float(class_weight.get(label, 1.0)) for label in range(c)])
    else:
        weights = np.asarray(class_weight, np.float64)
    if weights.shape != (c,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"class_weight needs {c} finite weights of at least 0, one a label: {weights.shape}.")
    return sample_weight, weights
