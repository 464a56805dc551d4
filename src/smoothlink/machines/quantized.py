"""Weights of labels in one byte each, and a search in them for the labels that may be among the best of a row.

Every bound here is proved in docs/maths.md ("One row"): a label that the search leaves out is not among the k best of
the scan in float32. No other module computes with these codes, and no score that is shown comes from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled

Array = NDArray[Any]

PLANE = 64  # directions at a time, after each of which labels are left out: a cache line of codes
MOMENT_LABELS = 8192  # labels that choose the rotation; any rotation is right, a good one leaves few labels
BLOCK_LABELS = 1024  # coded at a time
MORE_SEEDS = 24  # labels beyond k whose whole score is bounded to find what the k-th best has at least
CHUNK = 64  # sums compared at a time with the least of the seeds
UNIT = 2.0**-24  # rounding of float32
LEAST = 1e-36  # more than what numbers too small for all bits of float32 add up to


class LabelCodes(NamedTuple):
    """w ~ R (scale codes) of the weights w (s,) of m labels, and their intercepts."""

    labels: Array  # (m,) int32, ascending
    R: Array  # (s, planes * PLANE) float32, orthogonal but for zeros at the end: leading directions of all w first
    codes: Array  # (planes, m, PLANE) int8
    scale: Array  # (m,) float32
    intercept: Array  # (m,) float32
    error: Array  # (m,) float32: times the length of phi, what a score may be away from that of the codes
    beyond: Array  # (planes, m) float32: lengths of scale * codes in the planes after each

    @property
    def nbytes(self) -> int:
        return int(sum(array.nbytes for array in self))


def code_bytes(s: int, m: int) -> int:
    """Returns how many bytes the codes of m labels take, for s directions."""
    planes = -(-s // PLANE)
    return m * (planes * (PLANE + 4) + 16) + 4 * s * planes * PLANE


class KeyTable(NamedTuple):
    """What labels are ranked by, a function of their score that does not fall, at the scores of a grid. Labels whose
    functions are the same are a group. Without a grid they are ranked by their score."""

    groups: Array  # (m,) uint16, of the labels that have codes
    grid: Array  # (g,) float32, ascending
    keys: Array  # (groups, g) float32
    relative: float  # of a key, and
    absolute: float  # what the function may fall by rounding


def quantize(columns: Callable[[Any], Array], shape: tuple[int, int], trained: Array) -> LabelCodes | None:
    """Returns the codes of the labels (m,) that have training rows, of V (s + 1, c) by its columns; None where a weight
    is not finite."""
    s, m = shape[0] - 1, len(trained)
    some = trained[:: max(1, m // MOMENT_LABELS)]
    A = columns(some)[:-1]
    if not np.isfinite(A).all():
        return None
    size = np.abs(A).max(initial=0) or np.float32(1)
    A = A / size  # so that squares do not overflow
    directions = np.linalg.eigh((A @ A.T).astype(np.float64))[1][:, ::-1]
    planes = -(-s // PLANE)
    R = np.zeros((s, planes * PLANE), np.float32)
    R[:, :s] = directions
    skew = np.linalg.norm(R[:, :s].T.astype(np.float64) @ R[:, :s] - np.eye(s))
    codes = np.empty((planes, m, PLANE), np.int8)
    scale, intercept, error = (np.empty(m, np.float32) for _ in range(3))
    beyond = np.empty((planes, m), np.float32)
    for start in range(0, m, BLOCK_LABELS):
        part = slice(start, min(m, start + BLOCK_LABELS))
        block = columns(trained[part])
        lengths = np.linalg.norm(block.astype(np.float64), axis=0)  # (b,)
        if not np.isfinite(lengths).all():
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            rotated = block[:-1].T @ R  # (b, planes * PLANE)
        if not np.isfinite(rotated).all():
            return None
        step = np.abs(rotated).max(axis=1, initial=0).astype(np.float64) / 127
        scale[part] = np.where(step > np.finfo(np.float32).tiny, step, 1)
        rounded = np.clip(np.rint(rotated / scale[part, None]), -127, 127)
        left = np.linalg.norm(rotated - rounded * scale[part, None].astype(np.float64), axis=1)
        rounding = skew + 1.1 * UNIT * (np.sqrt(s) * s + 4 * s + 64)
        error[part] = (left + rounding * lengths) * (1 + 1e-6) + LEAST
        squares = (rounded.reshape(-1, planes, PLANE) ** 2).sum(axis=2)  # (b, planes), whole numbers
        after = np.cumsum(squares[:, ::-1], axis=1)[:, ::-1] - squares
        beyond[:, part] = (np.sqrt(after) * scale[part, None]).T * (1 + 1e-6)
        codes[:, part] = rounded.reshape(-1, planes, PLANE).transpose(1, 0, 2)
        intercept[part] = block[-1]
    return LabelCodes(trained.astype(np.int32), R, codes, scale, intercept, error, beyond)


def find_candidates(codes: LabelCodes, table: KeyTable, Phi: Array, added: Array, k: int) -> Array:
    """Returns the labels, ascending, that may be among the k best of some row of Phi (b, s + 1). `added` (b, c), or
    (b, 0) where there are none, are the products of the sparse weights."""
    kept = np.empty((len(Phi), len(codes.labels)), np.int32)
    if len(Phi) == 1:  # without waking other threads
        return codes.labels[kept[0, : _search(codes, table, Phi[0], added[0], k, kept[0])]]
    counts = np.empty(len(Phi), np.int64)
    _search_rows(codes, table, Phi, added, k, kept, counts)
    found = [row[:count] for row, count in zip(kept, counts.tolist(), strict=True)]
    return codes.labels[np.unique(np.concatenate(found))]


@compiled(fastmath={"reassoc", "contract"})
def _dot(codes: Array, h: Array) -> Any:
    """Returns the product of PLANE codes and numbers."""
    total = np.float32(0)
    for j in range(PLANE):
        total += h[j] * np.float32(codes[j])
    return total


@compiled(fastmath={"reassoc", "contract"})
def _rotate(phi: Array, R: Array) -> tuple[Any, Any, Any]:
    """Returns h = R'q of all but the last of phi, by planes, its lengths after each plane, and the length of phi."""
    total, square = np.zeros(R.shape[1]), 0.0
    for i in range(len(R)):
        x, row = np.float64(phi[i]), R[i]
        square += x * x
        for j in range(len(row)):
            total[j] += x * row[j]
    h = total.astype(np.float32).reshape(-1, PLANE)
    rest, left = np.zeros(len(h)), 0.0
    for p in range(len(h) - 1, 0, -1):
        for j in range(PLANE):
            left += np.float64(h[p, j]) ** 2
        rest[p - 1] = np.sqrt(left)
    length = np.float32(np.sqrt(square + np.float64(phi[-1]) ** 2) * (1 + 1e-3))
    return h, (rest * (1 + 1e-6)).astype(np.float32), length


@compiled()
def _largest(sums: Array, seeds: Array, best: Array) -> int:
    """Writes the places of the largest sums into `seeds`; returns how many."""
    found, room = 0, len(seeds)
    for start in range(0, len(sums), CHUNK):
        part = sums[start : start + CHUNK]
        if found == room:
            over, least = 0, best[room - 1]
            for t in range(len(part)):
                over += part[t] > least
            if over == 0:
                continue
        for t in range(len(part)):
            if found == room and not part[t] > best[room - 1]:
                continue
            found = min(found + 1, room)
            p = found - 1
            while p > 0 and best[p - 1] < part[t]:
                best[p], seeds[p] = best[p - 1], seeds[p - 1]
                p -= 1
            best[p], seeds[p] = part[t], start + t
    return found


@compiled()
def _lower_keys(
    codes: Any, table: Any, h: Array, length: float, places: Array, sums: Array, p: int, out: Array
) -> None:
    """Writes the largest of what the keys of labels are at least, as many as `out` has, in descending order. The sums
    are those of the planes up to p."""
    out[:] = -np.inf
    for t in range(len(places)):
        i, whole = places[t], sums[t]
        for q in range(p + 1, len(h)):
            whole += codes.scale[i] * _dot(codes.codes[q, i], h[q])
        key = whole - length * codes.error[i] - np.float32((len(h) + 8) * UNIT) * abs(whole)
        if len(table.grid):
            at = np.searchsorted(table.grid, key, side="left") - 1
            key = table.keys[table.groups[i], at] if at >= 0 else np.float32(-np.inf)
        if key > out[-1]:
            at = len(out) - 1
            while at > 0 and out[at - 1] < key:
                out[at] = out[at - 1]
                at -= 1
            out[at] = key


@compiled()
def _set_thresholds(table: Any, least: float, thresholds: Array) -> None:
    """Writes for each group the largest score known to have a key below `least`."""
    wanted = np.float32(least - table.relative * abs(least) - table.absolute)
    for group in range(len(table.keys)):
        at = np.searchsorted(table.keys[group], wanted, side="left")
        thresholds[group] = table.grid[at - 1] if at > 0 else np.float32(-np.inf)
    if not len(table.grid):
        thresholds[0] = wanted


@compiled()
def _search(codes: Any, table: Any, phi: Array, added: Array, k: int, kept: Array) -> int:
    """Writes the places of labels that may be among the k best into `kept`, ascending; returns how many."""
    h, rest, length = _rotate(phi, codes.R)
    planes, m = codes.beyond.shape
    rounding = np.float32((planes + 8) * UNIT)  # of sums with the products of sparse weights
    sums = np.empty(m, np.float32)
    for i in range(m):
        base = codes.intercept[i] + (added[codes.labels[i]] if len(added) else np.float32(0))
        sums[i] = base + codes.scale[i] * _dot(codes.codes[0, i], h[0])
    seeds, best = np.empty(k + MORE_SEEDS, np.int64), np.empty(k + MORE_SEEDS, np.float32)
    lowest, least = np.empty(k, np.float32), np.float32(-np.inf)
    thresholds = np.full(max(1, len(table.keys)), -np.inf, np.float32)
    count = m
    for p in range(planes):
        for t in range(count if p > 0 else 0):
            sums[t] += codes.scale[kept[t]] * _dot(codes.codes[p, kept[t]], h[p])
        # The k-th largest of what some labels have at least is what the k-th best of all has at least.
        found = seeds[: _largest(sums[:count], seeds, best)]
        _lower_keys(codes, table, h, length, kept[found] if p > 0 else found.astype(np.int32), sums[found], p, lowest)
        if lowest[-1] > least:
            least = lowest[-1]
            _set_thresholds(table, least, thresholds)
        some, error, beyond = 0, codes.error, codes.beyond[p]
        for t in range(count):
            i = kept[t] if p > 0 else t
            most = sums[t] + (length * error[i] + rest[p] * beyond[i] + rounding * abs(sums[t]))
            if not most < thresholds[table.groups[i]]:  # true of NaN as well
                kept[some], sums[some] = i, sums[t]
                some += 1
        count = some
    return count


@compiled(parallel=True)
def _search_rows(codes: Any, table: Any, Phi: Array, added: Array, k: int, kept: Array, counts: Array) -> None:
    for i in prange(len(Phi)):
        counts[i] = _search(codes, table, Phi[i], added[i], k, kept[i])
