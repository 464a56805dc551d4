"""Numba kernels of prediction: the best of a row, calibrated probabilities, log-loss, Algorithm 4 and half precision.

Every loop over rows or labels is parallel and none shares an output, so results repeat exactly. Imported at the first
prediction, never by `import smoothlink`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads, prange
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled
from smoothlink.machines.sorting import sort_by

Array = NDArray[Any]

CHUNK = 64  # scores compared at a time with the least of the best
THREAD_ENTRIES = 1 << 12  # that a thread takes at a time
SERIAL = 1 << 16  # entries up to which waking the other threads costs more than it saves
STRIPE = 16  # labels whose columns are gathered together: a cache line of float32

# The k best


@compiled()
def _keep_row(keys: Array, shown: Array, first: int, ids: Array, best: Array, values: Array, found: int) -> bool:
    """Merges one row of a block into its best so far; returns whether all of it are numbers.

    Labels come in ascending order, so an equal score goes behind those that are there. A chunk is searched only
    where some score beats the least of the best, which few do.
    """
    k = len(best)
    fine = True
    for start in range(0, len(keys), CHUNK):
        part = keys[start : start + CHUNK]
        if found == k:
            least, over = best[k - 1], 0
            for t in range(len(part)):
                over += not (part[t] <= least)  # true of NaN as well
            if over == 0:
                continue
        for t in range(len(part)):
            key = part[t]
            if found == k and key <= best[k - 1]:
                continue
            if key != key:
                fine = False
                continue
            found = min(found + 1, k)
            p = found - 1
            while p > 0 and best[p - 1] < key:
                best[p], ids[p], values[p] = best[p - 1], ids[p - 1], values[p - 1]
                p -= 1
            best[p], ids[p], values[p] = key, first + start + t, shown[start + t]
    return fine


@compiled()
def keep_best_serial(keys: Array, shown: Array, first: int, ids: Array, best: Array, values: Array, found: int) -> bool:
    """Does what `keep_best` does without waking other threads."""
    fine = True
    for i in range(len(keys)):
        fine &= _keep_row(keys[i], shown[i], first, ids[i], best[i], values[i], found)
    return fine


@compiled(parallel=True)
def keep_best(keys: Array, shown: Array, first: int, ids: Array, best: Array, values: Array, found: int) -> bool:
    """Merges a block of keys (b, m), of the labels from `first` on, into the k best (b, k) so far.

    `found` of the k are filled already; `values` get what `shown` (b, m) has where the keys are best. Returns
    False where a key is NaN.
    """
    bad = 0
    for i in prange(len(keys)):
        bad += not _keep_row(keys[i], shown[i], first, ids[i], best[i], values[i], found)
    return bad == 0


# Probabilities


@compiled(error_model="numpy")
def _stretch_piece(S: Array, tiny: float, out: Array) -> None:
    """Writes sign(s) log(1 + |s| / tiny) into out. The series of log is within 1e-15, and unlike libm's runs four at a
    time."""
    for i in range(len(S)):
        s = np.float64(S[i])
        x = 1 + abs(s) / tiny
        bits = np.float64(x).view(np.int64)
        exponent = (bits >> 52) - 1023
        m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
        if m > 1.4142135623730951:
            m *= 0.5
            exponent += 1
        f = (m - 1) / (m + 1)
        g = f * f
        series = 1 / 9 + g * (1 / 11 + g * (1 / 13 + g * (1 / 15 + g * (1 / 17 + g * (1 / 19)))))
        log = 2 * f * (1 + g * (1 / 3 + g * (1 / 5 + g * (1 / 7 + g * series)))) + exponent * 0.6931471805599453
        out[i] = np.copysign(log, s) if x == x else x


@compiled(error_model="numpy")
def _map_piece(S: Array, out: Array, tiny: float, knots: Array, values: Array, slopes: Array, cells: Array) -> None:
    """Interpolates as np.interp; `cells` say at which knot the search may begin, so that it takes a step or two."""
    stretched = np.empty(len(S))
    if tiny > 0:
        _stretch_piece(S, tiny, stretched)
    else:
        for i in range(len(S)):
            stretched[i] = min(max(np.float64(S[i]), -40.0), 40.0) if S[i] == S[i] else np.nan
    low, high, last = knots[0], knots[-1], len(cells) - 1
    scale = last / (high - low)
    for i in range(len(S)):
        t = stretched[i]
        if t >= high:
            out[i] = values[-1]
        elif t > low:
            j = cells[np.uint32((t - low) * scale)]
            while knots[j] > t:
                j -= np.uint32(1)
            while knots[j + 1] <= t:
                j += np.uint32(1)
            out[i] = slopes[j] * (t - knots[j]) + values[j]
        else:
            out[i] = values[0] if t == t else t


@compiled(parallel=True, error_model="numpy")
def _map_parallel(S: Array, out: Array, tiny: float, knots: Array, values: Array, slopes: Array, cells: Array) -> None:
    for piece in prange((len(S) + THREAD_ENTRIES - 1) // THREAD_ENTRIES):
        part = slice(piece * THREAD_ENTRIES, min(len(S), (piece + 1) * THREAD_ENTRIES))
        _map_piece(S[part], out[part], tiny, knots, values, slopes, cells)


def interpolate(S: Array, knots: Array, values: Array, tiny: float) -> Array:
    """Returns the map through (knots, values) of scores of any shape, as float32; np.interp to within rounding.

    Scores are taken to sign(s) log(1 + |s| / tiny) where tiny > 0, else clipped to -40 .. 40.
    """
    flat = np.ascontiguousarray(S).reshape(-1)
    out = np.empty(flat.shape, np.float32)
    knots, values = np.array(knots, np.float64), np.array(values, np.float64)
    widths = np.diff(knots)
    slopes = np.divide(np.diff(values), widths, out=np.zeros(len(widths)), where=widths > 0)
    borders = np.linspace(knots[0], knots[-1], 4 * len(knots) + 1)
    cells = np.clip(np.searchsorted(knots, borders, side="right") - 1, 0, max(0, len(knots) - 2)).astype(np.uint32)
    if len(flat) <= SERIAL:
        _map_piece(flat, out, tiny, knots, values, slopes, cells)
    else:
        _map_parallel(flat, out, tiny, knots, values, slopes, cells)
    return out.reshape(np.shape(S))


@compiled(parallel=True)
def clip_trained(P: Array, S: Array, least: float, most: float, untrained: float) -> None:
    """Clips P (b, m) to least .. most in place; it is `untrained` where the score in S is -inf."""
    for i in prange(len(P)):
        for j in range(P.shape[1]):
            P[i, j] = untrained if S[i, j] == -np.inf else min(max(P[i, j], least), most)


@compiled(parallel=True)
def add_absent_losses(P: Array, least: float, out: Array) -> None:
    """Adds to out (b,) the sum over each row's labels of -log(1 - p), p clipped to least .. 1 - least."""
    for i in prange(len(P)):
        total = 0.0
        for j in range(P.shape[1]):
            p = min(max(np.float64(P[i, j]), least), 1 - least)
            if p < 1e-3:  # the series is exact to 2e-13 there, where most labels are
                total += p * (1 + p * (1 / 2 + p * (1 / 3 + p * (1 / 4))))
            else:
                total -= np.log1p(-p)
        out[i] += total


# Sets


@compiled(parallel=True)
def count_members(Z: Array, cuts: Array, counts: Array) -> None:
    """Writes into counts (n,) how many of each row of Z (n, b) are positive and at least their column's cut (b,)."""
    for i in prange(len(Z)):
        count = 0
        for j in range(Z.shape[1]):
            count += (cuts[j] <= Z[i, j]) & (Z[i, j] > 0)
        counts[i] = count


@compiled(parallel=True)
def list_members(Z: Array, cuts: Array, starts: Array, out: Array) -> None:
    """Writes the columns counted above, ascending, into out[starts[i] : starts[i + 1]]."""
    for i in prange(len(Z)):
        p = starts[i]
        if starts[i + 1] > p:
            for j in range(Z.shape[1]):
                if (cuts[j] <= Z[i, j]) & (Z[i, j] > 0):
                    out[p] = j
                    p += 1


# Algorithm 4


@compiled()
def _f1_cut(z: Array, n_plus: float, w: Array, kept: Array) -> float:
    """Returns `steps.infer.f1_cut`. `kept` (n,) is room for row numbers.

    Adding z to a set S of F1 = 2 sum(z) / (n+ + |S|) raises it only if 2z > F1, and the F1 of any set is a bound from
    below: first that of the best row alone, then that of the rows it leaves (some 300 of 66,000). Those are sorted.
    """
    top, most = 0, 0.0
    for i in range(len(z)):
        if w[i] * z[i] > most:
            top, most = i, w[i] * z[i]
    if n_plus <= 0 or most == 0:
        return np.inf
    bound = most / (n_plus + w[top]) * (1 - 1e-6)  # the slack covers float32
    weight, mass = 0.0, 0.0
    for i in range(len(z)):
        if z[i] >= bound:
            weight += w[i]
            mass += w[i] * z[i]
    bound = mass / (n_plus + weight) * (1 - 1e-6)
    count, low, high = 0, z[top], z[top]
    for i in range(len(z)):
        if z[i] >= bound:
            kept[count] = i
            count += 1
            low, high = min(low, z[i]), max(high, z[i])
    if low == high:  # the rows are alike: all or none
        return float(low)
    rows = kept[:count]
    sort_by(z, rows)
    weight, mass, best, cut = 0.0, 0.0, -1.0, high
    for i in rows[::-1]:
        weight += w[i]
        mass += w[i] * z[i]
        if 2 * mass / (n_plus + weight) > best:
            best, cut = 2 * mass / (n_plus + weight), z[i]
    return cut


@compiled(parallel=True)
def f1_cuts(Z: Array, n_plus: Array, w: Array) -> Array:
    """Returns the cut (b,) of each column of Z (n, b), of which n_plus (b,) positives are expected."""
    n, b = Z.shape
    cuts = np.empty(b)
    for stripe in prange((b + STRIPE - 1) // STRIPE):
        first = stripe * STRIPE
        width = min(STRIPE, b - first)
        columns, kept = np.empty((width, n), Z.dtype), np.empty(n, np.int64)
        for i in range(n):
            for j in range(width):
                columns[j, i] = Z[i, first + j]
        for j in range(width):
            cuts[first + j] = _f1_cut(columns[j], n_plus[first + j], w, kept)
    return cuts


# Half precision. Numba has no float16: the bits come as uint16.


@compiled(inline="always")
def _wide(half: int) -> Any:
    """Returns 2^-112 times the float16 of these bits, which is finite: its exponent is taken as one of float32."""
    size = (np.uint32(half) & np.uint32(0x7FFF)) << np.uint32(13)
    sign = (np.uint32(half) & np.uint32(0x8000)) << np.uint32(16)
    return np.uint32(size | sign).view(np.float32)


UP = np.float32(2.0**112)


@compiled(parallel=True)
def widen(halves: Array, scale: Array, out: Array) -> None:
    """Writes the float16 of these bits times its column's scale (b,) into out (a, b) float32."""
    for i in prange(len(halves)):
        for j in range(halves.shape[1]):
            out[i, j] = _wide(halves[i, j]) * UP * scale[j]


def half_dot(x: Array, halves: Array, scale: Array) -> Array:
    """Returns x (a,) float32 @ the float16 matrix (a, b) of these bits times its columns' scale, in one pass."""
    partial = np.zeros((2 * get_num_threads(), halves.shape[1]), np.float32)
    _half_dots(x, halves, partial)
    return np.asarray(partial.sum(axis=0) * scale)


def row_dot(x: Array, V: Array) -> Array:
    """Returns x (a,) @ V (a, b) in float32, on all threads: BLAS takes one, and is at times five times slower."""
    partial = np.zeros((2 * get_num_threads(), V.shape[1]), np.float32)
    _row_dots(x, V, partial)
    return np.asarray(partial.sum(axis=0))


@compiled(parallel=True, fastmath=True)
def _row_dots(x: Array, V: Array, partial: Array) -> None:
    """Writes x @ V of as many groups of rows as `partial` (pieces, b) has."""
    a, pieces = len(V), len(partial)
    for piece in prange(pieces):
        total = partial[piece]
        low, high = piece * a // pieces, (piece + 1) * a // pieces
        for i in range(low, high - 3, 4):
            v0, v1, v2, v3 = V[i], V[i + 1], V[i + 2], V[i + 3]
            for j in range(len(total)):
                total[j] += x[i] * v0[j] + x[i + 1] * v1[j] + x[i + 2] * v2[j] + x[i + 3] * v3[j]
        for i in range(high - (high - low) % 4, high):
            for j in range(len(total)):
                total[j] += x[i] * V[i, j]


@compiled(parallel=True, fastmath=True)
def _half_dots(x: Array, halves: Array, partial: Array) -> None:
    """Writes x @ the float16 matrix, without its scale, of as many groups of rows as `partial` (pieces, b) has."""
    a, pieces = len(halves), len(partial)
    for piece in prange(pieces):
        total = partial[piece]
        low, high = piece * a // pieces, (piece + 1) * a // pieces
        for i in range(low, high - 3, 4):
            x0, x1, x2, x3 = x[i] * UP, x[i + 1] * UP, x[i + 2] * UP, x[i + 3] * UP
            h0, h1, h2, h3 = halves[i], halves[i + 1], halves[i + 2], halves[i + 3]
            for j in range(len(total)):
                total[j] += x0 * _wide(h0[j]) + x1 * _wide(h1[j]) + x2 * _wide(h2[j]) + x3 * _wide(h3[j])
        for i in range(high - (high - low) % 4, high):
            x0, h0 = x[i] * UP, halves[i]
            for j in range(len(total)):
                total[j] += x0 * _wide(h0[j])


# Sparse feature weights of labels


@compiled(parallel=True)
def add_sparse(
    S: Array, ptr: Array, features: Array, x: Array, indptr: Array, labels: Array, values: Array, start: int, stop: int
) -> None:
    """Adds X D of the labels start .. stop - 1 to S (b, m)."""
    for i in prange(len(S)):
        row = S[i]
        for p in range(ptr[i], ptr[i + 1]):
            first, end = indptr[features[p]], indptr[features[p] + 1]
            if start > 0:
                first += np.searchsorted(labels[first:end], start)
            for q in range(first, end):
                if labels[q] >= stop:
                    break
                if labels[q] >= start:  # a damaged file may have them in any order
                    row[labels[q] - start] += x[p] * values[q]


@compiled(parallel=True)
def add_sparse_to_some(
    S: Array, ptr: Array, features: Array, x: Array, indptr: Array, labels: Array, values: Array, at: Array
) -> None:
    """Adds X D of the labels that have a place in S to S (b, m)."""
    for i in prange(len(S)):
        for p in range(ptr[i], ptr[i + 1]):
            for q in range(indptr[features[p]], indptr[features[p] + 1]):
                if at[labels[q]] >= 0:
                    S[i, at[labels[q]]] += x[p] * values[q]
