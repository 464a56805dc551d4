"""Clusters of rows for joint training: halves by 2-means of the embedding, again and again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange
from numpy.typing import NDArray

from smoothlink.machines.arrays import unit_rows
from smoothlink.machines.compiled import compiled

Array = NDArray[Any]

ROUNDS = 3  # of 2-means
SAMPLED_ROWS = 4096  # of a part, which give the line along which it is split
READ_ROWS = 65536  # of H at a time


def cluster_rows(H: Any, rows: Array, size: int, seed: int) -> list[Array]:
    """Returns `rows` in groups of at most `size`, all but equally large, whose embeddings H (n, k) point the same way.

    H may be in a file. Each half has as many rows as the other, so the cost is n k log2(n / size).
    """
    order = np.random.default_rng([seed, 8]).permutation(rows)
    Z, place = np.empty((len(order), H.shape[1]), np.float32), np.full(len(H), -1, np.int64)
    place[order] = np.arange(len(order))
    for start in range(0, len(H), READ_ROWS):  # so that only Z is held whole
        at = place[start : start + READ_ROWS]
        Z[at[at >= 0]] = unit_rows(H[start : start + READ_ROWS][at >= 0])
    del place
    places, starts = np.arange(len(order)), np.array([0, len(order)])
    for _ in range(max(0, int(np.ceil(np.log2(max(1, len(order)) / size))))):
        split_parts(Z, places, starts)
        starts = np.append(0, np.column_stack([(starts[:-1] + starts[1:]) // 2, starts[1:]]).ravel())
    return [np.sort(order[part]) for part in np.split(places, starts[1:-1]) if len(part)]


@compiled(parallel=True, fastmath=True)
def split_parts(Z: Array, places: Array, starts: Array) -> None:
    """Orders the places of each part, which are rows of Z, so that its halves are on two sides of a plane.

    Its normal is the line between the means of the halves of some rows, found in a few rounds.
    """
    k = Z.shape[1]
    for i in prange(len(starts) - 1):
        part = places[starts[i] : starts[i + 1]].copy()
        if len(part) < 2:
            continue
        some = part[:SAMPLED_ROWS]
        axis = Z[some[0]] - Z[some[1]]
        for _ in range(ROUNDS):
            halves, middle = np.argpartition(dots(Z, some, axis), len(some) // 2), len(some) // 2
            axis = np.zeros(k, np.float32)
            for j in range(len(some)):
                z = Z[some[halves[j]]]
                factor = np.float32(-1 / middle if j < middle else 1 / (len(some) - middle))
                for t in range(k):
                    axis[t] += factor * z[t]
        order = np.argpartition(dots(Z, part, axis), len(part) // 2)
        for j in range(len(part)):
            places[starts[i] + j] = part[order[j]]


@compiled(fastmath=True)
def dots(Z: Array, rows: Array, axis: Array) -> Array:
    """Returns Z[rows] axis."""
    found = np.empty(len(rows), np.float32)
    for i in range(len(rows)):
        z, total = Z[rows[i]], np.float32(0)
        for t in range(len(axis)):
            total += z[t] * axis[t]
        found[i] = total
    return found
