"""Labels in any form -> the 0/1 matrix Y: class ids, matrices, lists of names; what is multiclass; label weights."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError
from smoothlink.machines.rows_in_files import check_sparse
from smoothlink.scikit_learn import DataConversionWarning, check_classification_targets, column_or_1d
from smoothlink.text.data_frames import column_names, list_names, values_of

Array = NDArray[Any]

TASKS = ("auto", "multilabel", "multiclass")


class Targets(NamedTuple):
    """y, read."""

    Y: sp.csr_array  # (n, c) float32 ones
    classes: Array  # (c,) class ids, or 0 .. c - 1 where y was an indicator
    indicator: bool  # y was a 0/1 matrix, not one class id per row
    sparse: bool  # ... and sparse
    multiclass: bool  # exactly one label per row


def read_targets(y: Any, task: str, classes: Any = None) -> Targets:
    """Returns the labels in y: class ids of any dtype, or a dense or sparse 0/1 indicator matrix; classes: all class
    ids that there may be, where y need not have each."""
    if not isinstance(task, str) or task not in TASKS:
        raise ValueError(f"task is {task!r}; possible are {', '.join(map(repr, TASKS))}.")
    if sp.issparse(y):
        return indicator_targets(read_indicator(y), task, sparse=True)
    array = np.asarray(y)
    if array.ndim == 2 and (array.shape[1] != 1 or task == "multilabel"):
        return indicator_targets(read_indicator(array), task, sparse=False)
    return class_targets(read_classes(array), task, None if classes is None else np.unique(read_classes(classes)))


def read_indicator(y: Any) -> sp.csr_array:
    """Returns a dense or sparse 0/1 matrix (n, c) as CSR of float32 ones, in order; a copy."""
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
    Y = sp.csr_array(check_sparse(y, "y"), dtype=np.float32, copy=True)
    Y.sum_duplicates()
    Y.eliminate_zeros()
    if not (Y.data == 1).all():
        wrong = Y.data[Y.data != 1][0]
        raise ValueError(f"Y has the value {wrong:g}; pass a 0/1 indicator matrix.")
    return Y


def read_classes(y: Any) -> Array:
    """Returns one class id per row (n,)."""
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


def class_targets(y: Array, task: str, known: Array | None = None) -> Targets:
    """Returns the targets of one class id per row; the classes are those of y, or the known ones (c,), in order."""
    if task == "multilabel":
        raise ValueError(
            "task is 'multilabel' but y has one class id per row; pass a 0/1 matrix, or task='multiclass'."
        )
    classes, ids = np.unique(y, return_inverse=True)
    n = len(y)
    if known is not None:
        unknown = np.setdiff1d(classes, known)
        if len(unknown):
            raise ValueError(f"y has the class {unknown[0]!r}, which is none of the {len(known)} classes given.")
        classes, ids = known, np.searchsorted(known, y)
    Y = sp.csr_array((np.ones(n, np.float32), ids.astype(np.int32), np.arange(n + 1)), (n, len(classes)))
    return Targets(Y, classes, False, False, True)


def indicator_targets(Y: sp.csr_array, task: str, *, sparse: bool) -> Targets:
    """Returns the targets of a 0/1 matrix."""
    if not Y.nnz:
        raise ValueError("Y has no positive label in any row: there is nothing to learn.")
    return Targets(Y, np.arange(Y.shape[1]), True, sparse, is_multiclass(Y, task))


def is_multiclass(Y: sp.csr_array, task: str = "auto") -> bool:
    """Returns whether rows have classes, not sets of labels: one label each, out of several, or as the task says."""
    return choose_multiclass(task, one_label_per_row=bool((np.diff(Y.indptr) == 1).all()), labels=Y.shape[1])


def choose_multiclass(task: str, *, one_label_per_row: bool, labels: int) -> bool:
    """Returns the same, by what is known of Y where its rows are not in one place."""
    if task == "multiclass" and not one_label_per_row:
        raise ValueError("task is 'multiclass' but some rows have no label or several; pass task='multilabel'.")
    return task == "multiclass" or (task == "auto" and one_label_per_row and labels > 1)


# Names in place of columns


class NamedLabels(NamedTuple):
    """Labels of n rows, by name."""

    Y: sp.csr_array  # (n, c) float32 ones
    names: list[str]  # c


def read_labels(labels: Any, known: Sequence[str] = (), separator: str | None = "none") -> NamedLabels:
    """Returns the labels in lists of names, cells of names or a 0/1 matrix; known names come first, then others.

    A cell is cut at the separator. The columns of a matrix are called 0, 1, 2, ... unless they have known names; those
    of a data frame have their own.
    """
    matrix, names = matrix_and_names(labels)
    if sp.issparse(matrix) or getattr(matrix, "ndim", 1) == 2:
        if matrix is not labels and not (matrix.dtype.kind in "biuf" and np.isin(matrix, (0, 1)).all()):
            raise DataError(
                f"The labels came as a table with the columns {list_names(column_names(labels) or [])}, not all of 0 "
                "and 1.\nPass one of its columns, such as table['tags'], or columns of 0 and 1."
            )
        Y = read_indicator(matrix)
        if names is None:
            c = max(Y.shape[1], len(known))
            names = [*known, *map(str, range(len(known), c))]
            return NamedLabels(sp.csr_array((Y.data, Y.indices, Y.indptr), (Y.shape[0], c)), names)
        place = {name: j for j, name in enumerate([*known, *(name for name in names if name not in set(known))])}
        moved = np.array([place[name] for name in names], np.int32)
        found = sp.csr_array((Y.data, moved[Y.indices], Y.indptr), (Y.shape[0], len(place)))
        found.sort_indices()
        return NamedLabels(found, list(place))
    rows = [as_names(row, given, separator) for row, given in enumerate(values_of(labels))]
    place = {name: j for j, name in enumerate(known)}
    for name in sorted({name for row in rows for name in row} - place.keys()):
        place[name] = len(place)
    return NamedLabels(indicator([[place[name] for name in row] for row in rows], len(place)), list(place))


def matrix_and_names(y: Any) -> tuple[Any, list[str] | None]:
    """Returns y as it is; of a data frame the matrix in it and the names of its columns, unless these are numbers only,
    as in a frame that was made of an array."""
    columns = None if sp.issparse(y) else column_names(y)
    if not columns:
        return y, None
    names = [str(name) for name in columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"The labels came as a table with several columns {twice}.\nRename them.")
    values = [np.asarray(values_of(y[name])) for name in columns]
    if any(column.dtype == object for column in values):  # a frame's own 0/1 types become objects
        with contextlib.suppress(TypeError, ValueError):
            values = [column.astype(np.float32) for column in values]
    return np.column_stack(values), None if columns == list(range(len(columns))) else names


def as_names(row: int, given: Any, separator: str | None) -> list[str]:
    """Returns the label names of one row; a text is cut at separators, a single number is one name."""
    if isinstance(given, str):
        from smoothlink.text.label_cells import names_in_text

        return names_in_text(given, separator, f"Row {row}")
    found = [given] if isinstance(given, Integral) else given
    if not isinstance(found, Iterable):
        raise DataError(f"Row {row} has the labels {given!r:.60}.\nPass a list of names for each row, [] for none.")
    names = list(found)
    for name in names:
        if type(name) is bool or not isinstance(name, str | Integral):
            what = f"{name!r:.60}, of type {type(name).__name__}"
            raise DataError(f"Row {row} has the label {what}.\nPass label names as text, or as whole numbers.")
    if len({isinstance(name, str) for name in names}) > 1:
        raise DataError(f"Row {row} mixes text and numbers as labels: {names!r:.80}.\nPass one type: str(label).")
    return [text for name in names if (text := str(name).strip())]


def indicator(rows: Iterable[Iterable[int]], c: int) -> sp.csr_array:
    """Returns Y (n, c) of the label numbers of each row."""
    ordered = [sorted(set(row)) for row in rows]
    ptr = np.cumsum([0, *map(len, ordered)])
    indices = np.fromiter((j for row in ordered for j in row), np.int32, int(ptr[-1]))
    return sp.csr_array((np.ones(len(indices), np.float32), indices, ptr.astype(np.int32)), (len(ordered), c))


def names_of(sets: sp.csr_array, names: Array) -> list[list[str]]:
    """Returns the names in each row of a 0/1 matrix."""
    found = names[sets.indices].tolist()
    ends = sets.indptr.tolist()
    return [found[start:stop] for start, stop in pairwise(ends)]


# Weights


def weigh(targets: Targets, sample_weight: Array, class_weight: Any) -> tuple[Array, Array | None]:
    """Returns example weights (n,) and label weights (c,) after `class_weight`.

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
    """Returns the weights of labels (c,): "balanced" is inverse to the count, on average 1 over examples of a class."""
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
            f"class_weight has shape {weights.shape}; it needs {c} finite weights of at least 0, one per label."
        )
    return weights
