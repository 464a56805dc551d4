"""y in any of scikit-learn's forms -> the 0/1 matrix Y, the checks of both, and the weights they carry."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

Array = NDArray[Any]

TASKS = ("auto", "multilabel", "multiclass")


class Targets(NamedTuple):
    """What was given as y."""

    Y: sp.csr_array  # (n, c) float32 ones
    classes: Array  # (c,) class ids, or 0 .. c - 1 where y was an indicator
    indicator: bool  # y was a 0/1 matrix, not one class id a row
    sparse: bool  # ... and sparse
    multiclass: bool  # exactly one label a row


def read_targets(y: Any, task: str) -> Targets:
    """Class ids of any dtype, or a dense or sparse 0/1 indicator matrix."""
    if not isinstance(task, str) or task not in TASKS:
        raise ValueError(f"task is {task!r}; possible are {', '.join(map(repr, TASKS))}.")
    if sp.issparse(y):
        return indicator_targets(read_indicator(y), task, sparse=True)
    array = np.asarray(y)
    if array.ndim == 2 and (array.shape[1] != 1 or task == "multilabel"):
        return indicator_targets(read_indicator(array), task, sparse=False)
    return class_targets(read_classes(array), task)


def read_indicator(y: Any) -> sp.csr_array:
    """A dense or sparse 0/1 matrix (n, c) as CSR of float32 ones, in order; a copy."""
    if not sp.issparse(y):
        y = np.asarray(y)
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity; pass a 0/1 indicator matrix.")
        if y.ndim == 2 and (y.dtype == object or not np.isin(y, (0, 1)).all()):
            check_classification_targets(y)  # says so where y is continuous
            raise ValueError("y is a matrix with values other than 0 and 1; possible are a 0/1 matrix and class ids.")
        y = y.astype(np.float32)
    if y.ndim != 2:
        raise ValueError(f"y has shape {y.shape}; pass a 0/1 matrix with a row for each row of X.")
    Y = sp.csr_array(y, dtype=np.float32, copy=True)
    Y.sum_duplicates()
    Y.eliminate_zeros()
    if not (Y.data == 1).all():
        wrong = Y.data[Y.data != 1][0]
        raise ValueError(f"Y has the value {wrong:g}; pass a 0/1 indicator matrix.")
    return Y


def read_classes(y: Any) -> Array:
    """One class id a row (n,)."""
    ids = np.asarray(y)
    if ids.ndim == 2:
        warnings.warn("A column-vector y was passed when a 1d array was expected.", DataConversionWarning, stacklevel=4)
    ids = column_or_1d(ids)
    if ids.dtype.kind == "f" and not np.isfinite(ids).all():
        raise ValueError("Input y contains NaN or infinity; class ids must be finite.")
    if ids.dtype == object and any(v is None or v != v for v in ids):
        raise ValueError("Input y contains None or NaN; every row needs a class id.")
    try:
        check_classification_targets(ids)
    except TypeError as error:
        kinds = ", ".join(sorted({type(v).__name__ for v in ids.tolist()}))
        raise ValueError(f"y mixes class ids of types {kinds}, which have no order; pass one type.") from error
    return ids


def class_targets(y: Array, task: str) -> Targets:
    """One class id a row."""
    if task == "multilabel":
        raise ValueError("task is 'multilabel' but y has one class id a row; pass a 0/1 matrix, or task='multiclass'.")
    classes, ids = np.unique(y, return_inverse=True)
    n = len(y)
    Y = sp.csr_array((np.ones(n, np.float32), ids.astype(np.int32), np.arange(n + 1)), (n, len(classes)))
    return Targets(Y, classes, False, False, True)


def indicator_targets(Y: sp.csr_array, task: str, *, sparse: bool) -> Targets:
    """A 0/1 matrix; multiclass where every row has exactly one label, unless told otherwise."""
    if not Y.nnz:
        raise ValueError("Y has no positive label in any row: there is nothing to learn.")
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
    weights = label_weights(targets, class_weight)
    if targets.multiclass:
        return sample_weight * weights[targets.Y.indices], None
    return sample_weight, weights


def label_weights(targets: Targets, class_weight: Any) -> Array:
    """One weight a label (c,): "balanced" is inverse to its count, on average 1 over the examples of a class."""
    c = targets.Y.shape[1]
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f"class_weight is {class_weight!r}; possible are None, 'balanced', a dict or an array.")
        counts = np.bincount(targets.Y.indices, minlength=c)
        seen = counts > 0
        return np.where(seen, counts.sum() / np.count_nonzero(seen) / np.maximum(counts, 1), 0)
    if isinstance(class_weight, dict):
        labels = targets.classes.tolist()
        strange = set(class_weight) - set(labels)
        # A fold may lack a class that has a weight; a key that is no class while classes go without is a mistake.
        if strange and len(set(labels) - set(class_weight)) > 0:
            raise ValueError(f"class_weight has weights for {sorted(map(repr, strange))}, which are not labels of y.")
        weights = np.array([class_weight.get(label, 1.0) for label in labels], np.float64)
    else:
        try:
            weights = np.asarray(class_weight, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"class_weight is {class_weight!r}; possible are None, 'balanced', a dict or an array."
            ) from error
    if weights.shape != (c,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"class_weight has shape {weights.shape}; it needs {c} finite weights of at least 0, one a label."
        )
    return weights
