"""What the two joint trainers share: the weights, the state of their optimiser, which sparse weights there are, and the
passes over batches. Only the step differs: `negatives` makes it with sampled negatives on the host (numba),
`negatives_on_device` on a device (torch), `finetune` over all labels, from a fitted model on (torch).

The score of label l for a row x is v_l'phi(h) + b_l + x'd_l, h = W'x. d_l has weights only for features that occur with
l in some row: rare labels hang on single words, which few directions of the embedding cannot distinguish. W, V and D
take the steps of Adagrad with one rate per feature (row of W), per label (column of V) and per sparse weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.joint.batches import RowBatch, RowBatches
from smoothlink.machines.sparse_weights import SparseWeights
from smoothlink.steps.featurize import Features

Array = NDArray[Any]

SPARSE_SQUARES = 3.0  # that the squared gradients of sparse weights start at
MOST_COOCCURRENCES = 200_000_000  # of a feature and a label in one row: more would fill memory
LABELS_POWER = -0.5  # of a row's number of labels in its weight: rows of many labels would decide most
FREQUENT_ROWS = 500  # a feature of fewer rows is never frequent


class Learner(NamedTuple):
    """Defaults of a joint trainer, selected on held-out rows of library titles (decisions 12 and 15)."""

    passes: int
    batch_rows: int
    warm_up: int  # steps within which the rates rise to their full size
    sparse_rate: float  # of the sparse weights
    # Features in more than this share of the rows have no sparse weights: they distinguish labels least and cost most.
    # On the host 1 % gained nothing over 0.5 %, which gained 0.2 of P@1 over 0.2 %; on a GPU, which adds them in
    # passing, a share of 0.2 gained no more than 0.05.
    frequent: float


# More passes with sampled negatives overfit: on 24,000 package descriptions 10 cost a point of P@1, 30 three.
NEGATIVES = Learner(passes=4, batch_rows=544, warm_up=1, sparse_rate=2.0, frequent=0.005)
# Rates twice or half as high and 3 or 6 passes of fine-tuning were no better with all 25,147 labels.
FINETUNE = Learner(passes=4, batch_rows=512, warm_up=100, sparse_rate=3.0, frequent=0.05)


class JointRows(NamedTuple):
    """The rows that are trained on."""

    X: Any  # scaled; (n, d + 1) with the intercept's column last, or (n, d) where W has no intercept; or a SparseFile
    Y: sp.csr_array  # (n, c)
    w: Array  # (n,)
    softmax: bool  # whether each row has one label


class JointWeights(NamedTuple):
    """All weights that joint training fits, on the host."""

    W: Array  # (d + 1, k), the intercept's row last
    features: Features  # random features, which fine-tuning trains too; none: phi(h) = h
    V: Array  # (s + 1, c), the intercepts b last
    D: SparseWeights | None  # (d + 1, c)
    normalize: bool  # whether h is scaled to unit length


def to_arrays(weights: JointWeights) -> dict[str, Array]:
    """Returns the arrays of all weights by name, for a file."""
    sparse = {} if weights.D is None else {f"D_{name}": A for name, A in weights.D._asdict().items() if A is not None}
    return {"W": weights.W, "R": weights.features.R, "b": weights.features.b, "V": weights.V, **sparse}


def from_arrays(arrays: dict[str, Array], *, normalize: bool) -> JointWeights:
    """Returns the weights that `to_arrays` was given."""
    sparse = {name[2:]: A for name, A in arrays.items() if name.startswith("D_")}
    D = SparseWeights(**sparse) if sparse else None
    return JointWeights(arrays["W"], Features(arrays["R"], arrays["b"]), arrays["V"], D, normalize)


@dataclass
class JointState:
    """W, V and D while they are trained, on the host or on a device, and the sums of their squared gradients."""

    W: Any  # (d, k), or (d + 1, k) with the intercept
    V: Any  # (c, s)
    D: Any  # (p,) weights of the pattern's pairs
    w_squares: Any  # (d,)
    v_squares: Any  # (c,)
    d_squares: Any  # (p,)

    @classmethod
    def start(cls, W: Any, V: Any, D: Any, **others: Any) -> Self:
        """Returns the state before the first step."""
        return cls(W, V, D, 0 * W[:, 0], 0 * V[:, 0], 0 * D + SPARSE_SQUARES, **others)


class Step(Protocol):
    """One gradient step of all weights."""

    def __call__(self, batch: RowBatch, rate: float) -> None:
        """Moves all weights by one step; `rate` multiplies the rates."""

    def weights(self) -> JointWeights:
        """Returns the weights as they are now."""


def train(
    step: Step,
    batches: RowBatches,
    passes: int,
    rate: float,
    warm_up: int,
    progress: Callable[[float], None],
    done: int = 0,
) -> Iterator[int]:
    """Trains pass after pass, after those already done; yields how many are done."""
    per_pass = len(batches.ends)
    for number in range(done, passes):
        for i, batch in enumerate(batches.in_pass(number)):
            at, steps = number * per_pass + i, passes * per_pass
            if i % 64 == 0:
                progress(at / steps)
            step(batch, rate * rate_factor(at, steps, warm_up))
        yield number + 1


def rate_factor(step: int, steps: int, warm_up: int) -> float:
    """Returns the factor of the rates at a step: it rises to 1 within a few steps and falls to 0 along a line."""
    return min(1.0, (step + 1) / min(warm_up, steps // 10 + 1)) * (1 - step / steps)


def finds_hard_negatives(done: int, passes: int) -> bool:
    """Returns whether hard negatives are found after so many passes: after the first, and halfway or next to it."""
    return done in (1, (passes + 1) // 2)


def row_weights(w: Array, Y: sp.csr_array, average: float | None = None) -> Array:
    """Returns weights (n,) that are smaller for rows of many labels; where each row has one label they stay.

    `average` is the number of labels per row, where there are more rows than these.
    """
    counts = np.maximum(np.diff(Y.indptr), 1)
    average = float(np.average(counts, weights=w)) if average is None else average
    return np.asarray(w * (counts / max(1.0, average)) ** LABELS_POWER, np.float32)


def sparse_pattern(
    X: Any, Y: sp.csr_array, rows: Array, frequent: float | None, most: int = MOST_COOCCURRENCES
) -> sp.csr_array:
    """Returns which labels (d + 1, c) have a weight for each feature: those that occur with it in one of these rows.

    Neither the intercept nor a feature in more than the share `frequent` of the rows has any. No feature has where
    `frequent` is None, X is dense, or the pairs of a feature and a label in one row are too many.
    """
    shape = X.shape[1], Y.shape[1]
    if frequent is None or isinstance(X, np.ndarray):
        return sp.csr_array(shape, dtype=np.int8)
    from smoothlink.joint import cooccurrence

    found = cooccurrence.find(X, Y, rows, X.shape[1] - 1, max(FREQUENT_ROWS, frequent * len(rows)), most)
    labels = found.labels()
    return sp.csr_array((np.ones(len(labels), np.int8), labels, found.indptr), shape)


def sparse_weights(D: Any) -> SparseWeights | None:
    """Returns D (d + 1, c), in CSR or CSC, without the weights that are 0, or None where all are."""
    D = select_entries(D, D.data != 0).tocsr()
    return SparseWeights(D.indptr.astype(np.int64), D.indices.astype(np.int32, copy=False), D.data) if D.nnz else None


def select_entries(A: Any, selected: Array) -> Any:
    """Returns a matrix of the entries of A, in CSR or CSC, that are selected (nnz,)."""
    kept = np.flatnonzero(selected)
    return type(A)((A.data[kept], A.indices[kept], np.searchsorted(kept, A.indptr)), A.shape)
