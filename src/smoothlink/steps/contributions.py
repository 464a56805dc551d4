"""A row, labels -> what each feature of the row adds to their scores.

A score is followed from the empty row (the constant alone) to the row, all features growing together. On the way each
cosine is replaced by its secant, (cos v - cos u) / (v - u): the mean of its gradient, in closed form. So the parts of a
row sum to the change of the score, up to rounding, and with a linear link they are its terms. The length of the row and
of its embedding, where they are scaled to 1, are held at what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.steps.featurize import Features
from smoothlink.steps.landmarks import Landmarks

Array = NDArray[Any]

NEAR = 1e-4  # distances closer than this, in units of the kernel's width, are moved apart: their secant is rounding


class Row(NamedTuple):
    """The features of a scaled row that are not zero, without the constant."""

    numbers: Array  # (p,)
    values: Array  # (p,)


class Way(NamedTuple):
    """From the empty row to a row, as the embedding sees it."""

    start: Array  # (k,) h of the empty row
    end: Array  # (k,) h of the row
    back: Callable[[Array], Array]  # slopes of scores in h (k, m) -> what each feature adds (p, m)


class Parts(NamedTuple):
    """Scores taken apart: base + the sum of each column of `added` is the score."""

    base: Array  # (m,) scores of the empty row
    added: Array  # (p, m) by each feature


def secants(start: Array, change: Array) -> Array:
    """Mean slopes (s,) of sqrt(2) cos between `start` and `start + change`, exact where the change is 0 too."""
    half = np.asarray(change, np.float64) / 2
    return -np.sqrt(2) * np.sin(start + half) * np.sinc(half / np.pi)


def plain_way(row: Row, weights: Array, constant: Array) -> Way:
    """h = W'x: `weights` (p, k) are the row's own rows of W, `constant` (k,) the last."""
    added = row.values[:, None] * weights
    return Way(constant, constant + added.sum(axis=0), lambda G: added @ G)


def identity_way(row: Row, d: int) -> Way:
    """h = x."""
    end = np.zeros(d, np.float32)
    end[row.numbers] = row.values
    return Way(np.zeros_like(end), end, lambda G: row.values[:, None] * G[row.numbers])


def cosine_way(row: Row, features: Features) -> Way:
    """The random features of x that a first stage sees through `input_kernel`, the constant left out."""
    R = features.R[row.numbers]  # (p, s)
    change = row.values @ R
    slopes = secants(features.b, change).astype(np.float32)

    def back(G: Array) -> Array:
        return row.values[:, None] * (R @ (slopes[:, None] * G))

    start = np.sqrt(2) * np.cos(features.b)
    return Way(start, start + slopes * change, back)


def kernel_way(row: Row, landmarks: Landmarks) -> Way:
    """Kernel values at landmarks: each depends on a distance, to which every feature adds its own term."""
    points, x = landmarks.points[:, row.numbers].astype(np.float64), row.values.astype(np.float64)
    if landmarks.kernel.name == "laplacian":
        terms = (np.abs(x - points) - np.abs(points)) * np.sqrt(2 / landmarks.length)  # (s, p)
        start = np.abs(landmarks.points).sum(axis=1) * np.sqrt(2 / landmarks.length)
    else:
        terms = x * (x - 2 * points) / landmarks.length
        start = np.einsum("ij,ij->i", landmarks.points, landmarks.points, dtype=np.float64) / landmarks.length
    change = terms.sum(axis=1)
    apart = np.where(np.abs(change) < NEAR, NEAR, change)
    middle = np.maximum(start + change / 2, NEAR / 2)
    ends = np.maximum(middle - apart / 2, 0), np.maximum(middle + apart / 2, 0)
    slopes = (landmarks.at(ends[1]) - landmarks.at(ends[0])) / (ends[1] - ends[0])
    values = landmarks.at(start)
    return Way(values, values + slopes * change, lambda G: terms.T @ (slopes[:, None] * G))


def then_weights(way: Way, W: Array, constant: Array) -> Way:
    """A way through a kernel first stage goes on through its weights W (s, k) to h."""
    return Way(way.start @ W + constant, way.end @ W + constant, lambda G: way.back(W @ G))


def to_unit_length(way: Way) -> Way:
    """A way whose end is scaled to length 1; the scale is held, so the start gets the same."""
    length = np.linalg.norm(way.end) or 1.0
    return Way(way.start / length, way.end / length, lambda G: way.back(G) / length)


def score_parts(way: Way, features: Features, V: Array) -> Parts:
    """What each feature adds to scores of labels whose decoder is V (s + 1, m), the constant last."""
    V = V.astype(np.float32, copy=False)
    if features.linear:
        return Parts(way.start @ V[:-1] + V[-1], way.back(V[:-1]))
    ends = np.stack([way.start, way.end - way.start]).astype(np.float32) @ features.R  # (2, s)
    angles = ends[0] + features.b
    slopes = secants(angles, ends[1]).astype(np.float32)
    G = features.R @ (slopes[:, None] * V[:-1])  # (k, m)
    return Parts(np.sqrt(2) * np.cos(angles) @ V[:-1] + V[-1], way.back(G))


def nearest(A: Array, at: Array, k: int) -> tuple[Array, Array]:
    """The k rows of A (c, r) nearest to each of the rows `at` (m,) by their angle: ids and cosines (m, k), best first.

    A row without length is near to none; a label is no neighbour of itself.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", A, A))
    C = A[at] @ A.T
    C /= np.maximum(lengths[at], np.finfo(np.float32).tiny)[:, None]
    C /= np.maximum(lengths, np.finfo(np.float32).tiny)
    C[np.arange(len(at)), at] = -np.inf
    k = min(k, len(A) - 1)
    if k < 1:
        return np.empty((len(at), 0), np.int64), np.empty((len(at), 0), np.float32)
    best = np.argpartition(-C, k - 1, axis=1)[:, :k]
    order = np.lexsort((best, -np.take_along_axis(C, best, axis=1)), axis=1)
    best = np.take_along_axis(best, order, axis=1)
    return best, np.take_along_axis(C, best, axis=1)
