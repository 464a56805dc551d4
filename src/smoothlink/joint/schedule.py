"""X, Y, W, phi, V -> W, phi, V (and D) trained together by gradient steps, from a fitted model on. Beyond the paper.

V begins at zero again: a decoder that explains the rows already leaves W and D nothing to learn. Each step sees a few
rows, and the embedding only some of their features: what a row lacks must not decide. The loss is the logistic one over
all labels with a part of the softmax one, or where rows have one label softmax alone. As in the joint descent with
drawn labels, labels may have weights D for the single features they were seen with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.joint.negatives import without_columns
from smoothlink.machines.arrays import unit_rows
from smoothlink.steps.featurize import Features

Array = NDArray[Any]

# Chosen on held-out rows of library titles with two groups of 1,200 to 1,500 labels; with all 25,147, rates twice as
# high or half as high, a share of .2 for D, and 3 or 6 passes were no better (decision 15).
BATCH = 512  # rows
WARM_UP = 100  # steps
PASSES = 4
V_RATE = 2.0  # over the mean of |phi_1| + .. + |phi_s|: what one step may move a score
W_RATE = 1.0  # of the root mean square of W
R_RATE = 4.5e-4  # of the root mean square of R, and of the phases
CONSTANT_RATE = 0.35  # of V's constant, over the same as V's
D_RATE, D_START = 3.0, 3.0  # of D, and the squares that its gradients begin at
DIRECT_SHARE, DIRECT_ROWS = 0.05, 500  # features of more rows than either have no D
RANKING = 0.3  # weight of the softmax loss beside the logistic one
LABELS_POWER = -0.5  # of a row's number of labels in its weight: rows of many labels would decide most
SAMPLE = 2048  # rows whose embeddings set the scale


class Parts(NamedTuple):
    """The weights of a model that move."""

    W: Array  # (d + 1, k), the constant's row last
    R: Array  # (k, s) and
    b: Array  # (s,): random features that are not random any more; none: phi(h) = h
    V: Array  # (s + 1, c), the constant's row last
    D: Array  # (pairs,) weights of labels for single features


class Rates(NamedTuple):
    """Learning rates of the parts."""

    W: float
    R: float
    V: float
    D: float
    constant: float

    def times(self, pace: float) -> Rates:
        return Rates(*(pace * rate for rate in self))


def prepared(parts: Parts, X: Any, *, normalize: bool) -> tuple[Parts, Rates]:
    """The same model with embeddings of mean squared length 1, as some rows X (n, d + 1) show, and its rates."""
    H = np.asarray(X @ parts.W)
    size = np.float32(np.sqrt(max(float(np.einsum("ij,ij->", H, H, dtype=np.float64)) / max(1, len(H)), 1e-30)))
    linear, turn = not parts.R.shape[1], np.float32(1) if normalize else size
    V = np.vstack([parts.V[:-1] * turn, parts.V[-1:]]) if linear else parts.V
    parts = parts._replace(W=parts.W / size, R=parts.R * turn, V=V)
    H = unit_rows(H) if normalize else H / size
    Phi = Features(parts.R, parts.b)(H)[:, :-1]
    reach = float(np.abs(Phi).sum(axis=1, dtype=np.float64).mean())
    used = parts.W[np.any(parts.W, axis=1)]
    of_score = 1 / max(reach, 1e-30)
    return parts, Rates(
        W=W_RATE * rms(used),
        R=R_RATE * rms(parts.R),
        V=V_RATE * of_score,
        D=D_RATE,
        constant=CONSTANT_RATE * of_score,
    )


def row_weights(w: Array, Y: sp.csr_array) -> Array:
    """Weights (n,) with rows of many labels made lighter; their mean stays where labels are one a row."""
    counts = np.maximum(np.diff(Y.indptr), 1)
    return np.asarray(w * (counts / max(1.0, float(np.average(counts, weights=w)))) ** LABELS_POWER, np.float32)


def rms(A: Array) -> float:
    return float(np.sqrt(np.mean(np.square(A, dtype=np.float64)))) if A.size else 0.0


def cooccurring_labels(X: sp.csr_array, Y: sp.csr_array, rows: Array) -> sp.csr_array:
    """Which labels (d + 1, c) each feature was seen with in these rows, but for features that many rows have."""
    X, Y = X[rows], Y[rows]
    often = np.bincount(X.indices, minlength=X.shape[1]) > max(DIRECT_ROWS, DIRECT_SHARE * len(rows))
    often[-1] = True  # the constant
    X = without_columns(X, often)
    ones = (np.ones(A.nnz, np.float32) for A in (X, Y))
    X, Y = (sp.csr_array((one, A.indices, A.indptr), A.shape) for one, A in zip(ones, (X, Y), strict=True))
    found = sp.csr_array(X.T.tocsr() @ Y)
    found.sort_indices()
    return found


def paces(steps: int) -> Iterator[float]:
    """Multiples of the rates: up within a few steps, then down to 0 along a line."""
    warm = min(WARM_UP, steps // 10 + 1)
    for step in range(steps):
        yield min(1.0, (step + 1) / warm) * (1 - step / steps)


def batches(live: Array, sweep: int, seed: int, size: int | None = None) -> list[Array]:
    """Row numbers in batches, in a new order each pass."""
    order = np.random.default_rng([seed, 11, sweep]).permutation(live)
    return np.array_split(order, max(1, round(len(order) / (size or BATCH))))


def dropping(share: float, rng: np.random.Generator) -> Callable[[int], Array]:
    """Factors of features: 0 for those that are dropped, and what keeps their mean for the others."""

    def kept(count: int) -> Array:
        return ((rng.random(count, np.float32) >= share) / np.float32(1 - share)).astype(np.float32)

    return kept
