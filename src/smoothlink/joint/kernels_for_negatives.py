"""Numba kernels of the joint descent: what surrounds its matrix products. No two threads write one number, so results
repeat exactly. Imported at the first step.

Scores are held label by label, S (m, b): a label's weights of its own then meet one short row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled

Array = NDArray[Any]

LARGEST = 30.0  # a score beyond this is certain


@compiled(parallel=True, fastmath=True)
def rows_dot(rows: Array, indptr: Array, indices: Array, data: Array, W: Array, out: Array) -> None:
    """out = X[rows] W, X in CSR."""
    k = W.shape[1]
    for i in prange(len(rows)):
        r = rows[i]
        total = out[i]
        for t in range(k):
            total[t] = 0
        for p in range(indptr[r], indptr[r + 1]):
            v, source = data[p], W[indices[p]]
            for t in range(k):
                total[t] += v * source[t]


@compiled(parallel=True, fastmath=True)
def to_length(H: Array, lengths: Array, length: float) -> None:
    """Rows of H scaled to this length, in place, and the length (b,) that each had; rows of zeros stay."""
    for i in prange(len(H)):
        row, total = H[i], np.float32(0)
        for t in range(H.shape[1]):
            total += row[t] * row[t]
        lengths[i] = np.sqrt(total)
        factor = np.float32(length) / lengths[i] if total > 0 else np.float32(0)
        for t in range(H.shape[1]):
            row[t] *= factor


@compiled(parallel=True, fastmath=True)
def through_length(G: Array, H: Array, lengths: Array, length: float) -> None:
    """The gradient G of scaled rows H as that of the rows before they were scaled, in place."""
    size = np.float32(length)
    for i in prange(len(H)):
        g, h, along = G[i], H[i], np.float32(0)
        for t in range(H.shape[1]):
            along += g[t] * h[t]
        along /= size * size
        factor = size / lengths[i] if lengths[i] > 0 else np.float32(0)
        for t in range(H.shape[1]):
            g[t] = (g[t] - along * h[t]) * factor


@compiled()
def entries(rows: Array, indptr: Array, indices: Array, data: Array) -> tuple[Array, Array, Array]:
    """The entries of some rows of a CSR matrix: columns, positions in `rows`, values."""
    count = 0
    for r in rows:
        count += indptr[r + 1] - indptr[r]
    columns, places = np.empty(count, np.int32), np.empty(count, np.int32)
    values = np.empty(count, data.dtype)
    at = 0
    for i in range(len(rows)):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            columns[at], places[at], values[at] = indices[p], i, data[p]
            at += 1
    return columns, places, values


@compiled(parallel=True, fastmath=True)
def add_direct(
    S: Array,
    labels: Array,
    indptr: Array,
    features: Array,
    D: Array,
    at: Array,
    starts: Array,
    rows: Array,
    values: Array,
    room: Array,
    found: Array,
) -> Array:
    """Adds to S (m, b) the weights D that each label has for single features, and leaves in `found` which they were.

    Feature f stands at place at[f] in the batch, if at all, and there in `rows` with `values` from its start to the
    next. Label j leaves the numbers of its pairs from room[j] on; how many (m,) is returned.
    """
    counts = np.zeros(len(labels), np.int64)
    for j in prange(len(labels)):
        row, count = S[j], room[j]
        for p in range(indptr[labels[j]], indptr[labels[j] + 1]):
            q = at[features[p]]
            if q >= 0:
                found[count] = p
                count += 1
                for t in range(starts[q], starts[q + 1]):
                    row[rows[t]] += values[t] * D[p]
        counts[j] = count - room[j]
    return counts


@compiled(parallel=True, fastmath=True)
def step_direct(
    G: Array,
    features: Array,
    D: Array,
    squares: Array,
    at: Array,
    starts: Array,
    rows: Array,
    values: Array,
    room: Array,
    found: Array,
    counts: Array,
    rate: float,
) -> None:
    """A step of those weights against the gradient G (m, b) of the scores, in place (Adagrad, one rate a weight)."""
    for j in prange(len(counts)):
        row = G[j]
        for i in range(room[j], room[j] + counts[j]):
            p = found[i]
            q, g = at[features[p]], np.float32(0)
            for t in range(starts[q], starts[q + 1]):
                g += values[t] * row[rows[t]]
            squares[p] += g * g
            D[p] -= np.float32(rate) * g / np.sqrt(squares[p])


@compiled(parallel=True, fastmath=True)
def probabilities(S: Array, offsets: Array, group: Array, weights: Array) -> None:
    """S (m, b) -> weights sigmoid(S + offsets (m, groups) of each row's group), in place."""
    m, b = S.shape
    for j in prange(m):
        row, shift = S[j], offsets[j]
        for i in range(b):
            z = min(max(row[i] + shift[group[i]], np.float32(-LARGEST)), np.float32(LARGEST))
            row[i] = weights[i] / (np.float32(1) + np.exp(-z))


@compiled(parallel=True, fastmath=True)
def class_probabilities(S: Array, offsets: Array, group: Array, weights: Array) -> None:
    """S (m, b) -> weights softmax over labels of S + offsets (m, groups) of each row's group, in place."""
    m, b = S.shape
    for i in prange(b):
        g, top, total = group[i], np.float32(-1e30), np.float32(0)
        for j in range(m):
            S[j, i] += offsets[j, g]
            top = max(top, S[j, i])
        for j in range(m):
            S[j, i] = np.exp(S[j, i] - top)
            total += S[j, i]
        for j in range(m):
            S[j, i] *= weights[i] / total


@compiled(parallel=True, fastmath=True)
def step_rows(A: Array, squares: Array, names: Array, G: Array, rate: float) -> None:
    """A[names] -= rate G / root of the mean squares so far (Adagrad, one rate a row), in place."""
    k = A.shape[1]
    for i in prange(len(names)):
        name, g = names[i], G[i]
        size = np.float32(0)
        for t in range(k):
            size += g[t] * g[t]
        squares[name] += size / np.float32(k)
        if squares[name] > 0:
            pace, row = np.float32(rate) / np.sqrt(squares[name]), A[name]
            for t in range(k):
                row[t] -= pace * g[t]


@compiled(parallel=True, fastmath=True)
def step_words(
    W: Array, squares: Array, words: Array, starts: Array, places: Array, values: Array, G: Array, rate: float
) -> None:
    """The same for W, where word i of the batch has the entries starts[i] .. starts[i + 1], G being the rows' part."""
    k = W.shape[1]
    for i in prange(len(words)):
        g = np.zeros(k, np.float32)
        for p in range(starts[i], starts[i + 1]):
            v, source = values[p], G[places[p]]
            for t in range(k):
                g[t] += v * source[t]
        size = np.float32(0)
        for t in range(k):
            size += g[t] * g[t]
        word = words[i]
        squares[word] += size / np.float32(k)
        if squares[word] > 0:
            pace, row = np.float32(rate) / np.sqrt(squares[word]), W[word]
            for t in range(k):
                row[t] -= pace * g[t]
