"""Numba kernels of prediction: the best of a row, calibrated probabilities, log-loss, Algorithm 4 and half precision.

Every loop over rows or labels is parallel and none shares an output, so results repeat exactly. Imported at the first
prediction, never by `import smoothlink`.
"""

from __future__ import annotations

from functools import lru_cache
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
BINNED_PARTS = 16  # of rows whose scores are binned, each by one thread
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


@compiled()
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


@compiled()
def _stretched(S: Array, tiny: float) -> Array:
    """Returns scores (n,) as `interpolate` takes them."""
    out = np.empty(len(S))
    if tiny > 0:
        _stretch_piece(S, tiny, out)
    else:
        for i in range(len(S)):
            out[i] = min(max(np.float64(S[i]), -40.0), 40.0) if S[i] == S[i] else np.nan
    return out


@compiled()
def _place(t: float, knots: Array, cells: Array) -> tuple[Any, Any]:
    """Returns the knot before t, or the first or the last one, and how far t is beyond it; NaN stays.

    `cells` say at which knot the search may begin, so that it takes a step or two.
    """
    low, high, last = knots[0], knots[-1], len(cells) - 1
    if t >= high:
        return np.uint32(len(knots) - 1), 0.0
    if not t > low:
        return np.uint32(0), 0.0 if t == t else t
    j = cells[np.uint32((t - low) * (last / (high - low)))]
    while knots[j] > t:
        j -= np.uint32(1)
    while knots[j + 1] <= t:
        j += np.uint32(1)
    return j, t - knots[j]


@compiled()
def _map_piece(S: Array, out: Array, tiny: float, knots: Array, values: Array, slopes: Array, cells: Array) -> None:
    """Interpolates as np.interp."""
    stretched = _stretched(S, tiny)
    for i in range(len(S)):
        j, beyond = _place(stretched[i], knots, cells)
        out[i] = slopes[j] * beyond + values[j]


@compiled(parallel=True)
def _map_parallel(S: Array, out: Array, tiny: float, knots: Array, values: Array, slopes: Array, cells: Array) -> None:
    for piece in prange((len(S) + THREAD_ENTRIES - 1) // THREAD_ENTRIES):
        part = slice(piece * THREAD_ENTRIES, min(len(S), (piece + 1) * THREAD_ENTRIES))
        _map_piece(S[part], out[part], tiny, knots, values, slopes, cells)


@lru_cache(maxsize=16)  # making these takes as long as all else that the scores of few labels need
def _segments(knot_bytes: bytes, value_bytes: bytes) -> tuple[Array, Array, Array, Array]:
    """Returns knots, values, slopes after each, and at which knot the search in each of equal cells begins."""
    knots, values = np.frombuffer(knot_bytes).copy(), np.frombuffer(value_bytes).copy()
    widths = np.diff(knots)
    slopes = np.append(np.divide(np.diff(values), widths, out=np.zeros(len(widths)), where=widths > 0), 0.0)
    borders = np.linspace(knots[0], knots[-1], 4 * len(knots) + 1)
    cells = np.clip(np.searchsorted(knots, borders, side="right") - 1, 0, max(0, len(knots) - 2)).astype(np.uint32)
    return knots, values, slopes, cells


def interpolate(S: Array, knots: Array, values: Array, tiny: float) -> Array:
    """Returns the map through (knots, values) of scores of any shape, as float32; np.interp to within rounding.

    Scores are taken to sign(s) log(1 + |s| / tiny) where tiny > 0, else clipped to -40 .. 40.
    """
    flat = np.ascontiguousarray(S).reshape(-1)
    out = np.empty(flat.shape, np.float32)
    lines = _segments(np.asarray(knots, np.float64).tobytes(), np.asarray(values, np.float64).tobytes())
    if len(flat) <= SERIAL:
        _map_piece(flat, out, tiny, *lines)
    else:
        _map_parallel(flat, out, tiny, *lines)
    return out.reshape(np.shape(S))


@compiled()
def _bin_rows(
    S: Array, indptr: Array, indices: Array, w: Array, tiny: float, start: float, width: float, sums: Array
) -> None:
    """Adds rows of scores (n, m) to sums (3, bins) as `add_to_bins` says."""
    last = sums.shape[1] - 1.0
    for i in range(len(S)):
        stretched = _stretched(S[i], tiny)
        for j in range(len(stretched)):
            at = int(min(max((stretched[j] - start) / width, 0.0), last))
            sums[0, at] += w[i]
            sums[2, at] += w[i] * stretched[j]
        for p in range(indptr[i], indptr[i + 1]):
            at = int(min(max((stretched[indices[p]] - start) / width, 0.0), last))
            sums[1, at] += w[i]


@compiled(parallel=True)
def add_to_bins(
    S: Array, indptr: Array, indices: Array, w: Array, tiny: float, start: float, width: float, sums: Array
) -> None:
    """Adds scores s (n, m), as `interpolate` takes them, to sums (3, bins): in the bin of each the weight (n,) of its
    row, that weight again if the label is among the row's, in CSR, and the weight times s.

    The first bin begins at `start`, and the outer bins have what is beyond them. Rows are added in as many parts
    whatever the number of threads, so results repeat exactly; a bin whose labels are all true has two equal sums.
    """
    n = len(S)
    parts = min(n, BINNED_PARTS)
    found = np.zeros((parts, 3, sums.shape[1]))
    for part in prange(parts):
        rows = slice(part * n // parts, (part + 1) * n // parts)
        _bin_rows(S[rows], indptr[part * n // parts :], indices, w[rows], tiny, start, width, found[part])
    for part in range(parts):
        for kind in range(3):
            for at in range(sums.shape[1]):
                sums[kind, at] += found[part, kind, at]


@compiled()
def isotonic_blocks(hits: Array, weights: Array) -> Array:
    """Returns the block of each bin in the isotonic regression of hits / weights, by pooling adjacent violators:
    neighbours whose means do not rise are one block.

    SciPy's function has the same result. To import it takes a tenth of a second and 20 MB, for scipy.optimize.
    """
    sums, totals, ends = np.empty(len(hits)), np.empty(len(hits)), np.empty(len(hits), np.int64)
    count = 0
    for i in range(len(hits)):
        sums[count], totals[count], ends[count] = hits[i], weights[i], i + 1
        while count and sums[count - 1] * totals[count] >= sums[count] * totals[count - 1]:
            sums[count - 1] += sums[count]
            totals[count - 1] += totals[count]
            ends[count - 1] = ends[count]
            count -= 1
        count += 1
    blocks, start = np.empty(len(hits), np.int64), 0
    for block in range(count):
        blocks[start : ends[block]] = block
        start = ends[block]
    return blocks


@compiled()
def _label_map_row(
    S: Array, out: Array, tiny: float, knots: Array, values: Array, slopes: Array, cells: Array, maps: Array
) -> None:
    """Writes a + b s + e f0 + r f1 + t f2 of the scores (m,) of one row, the f interpolated as in `_map_piece`."""
    stretched = _stretched(S, tiny)
    for i in range(len(S)):
        j, beyond = _place(stretched[i], knots, cells)
        total = maps[0, i] + maps[1, i] * np.float64(S[i])
        for f in range(3):
            total += maps[2 + f, i] * (values[f, j] + slopes[f, j] * beyond)
        out[i] = total


@compiled(parallel=True)
def _label_map_rows(
    S: Array, out: Array, tiny: float, knots: Array, values: Array, slopes: Array, cells: Array, maps: Array
) -> None:
    for i in prange(len(S)):
        _label_map_row(S[i], out[i], tiny, knots, values, slopes, cells, maps)


def map_labels(S: Array, knots: Array, values: Array, tiny: float, maps: Array) -> Array:
    """Returns a + b s + e f0(s) + r f1(s) + t f2(s) of scores (b, m) as float32, (a, b, e, r, t) being the maps (5, m)
    of their labels, and f the functions through (knots, values (3, k)), as `interpolate` has them."""
    lines = [_segments(knots.tobytes(), f.tobytes()) for f in values]
    slopes, cells = np.stack([line[2] for line in lines]), lines[0][3]
    out, S = np.empty(S.shape, np.float32), np.ascontiguousarray(S)
    if len(S) == 1:  # without waking other threads
        _label_map_row(S[0], out[0], tiny, knots, values, slopes, cells, maps)
    else:
        _label_map_rows(S, out, tiny, knots, values, slopes, cells, maps)
    return out


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


def row_dot(x: Array, V: Array) -> Array:
    """Returns x (a,) @ V (a, b) in float32, on all threads: BLAS takes one, and is at times five times slower.

    Each column is summed in one order, whichever other columns there are and however many threads: the score of a label
    is the same to the last bit among all labels and among few.
    """
    out = np.zeros(V.shape[1], np.float32)
    if V.size > SERIAL:
        _row_dots(x, V, out, 2 * get_num_threads())
    else:
        _add_rows(x, V, 0, out)
    return out


def half_dot(x: Array, halves: Array, scale: Array) -> Array:
    """Returns `row_dot` of the float16 matrix (a, b) of these bits, times its columns' scale."""
    out = np.zeros(halves.shape[1], np.float32)
    if halves.size > SERIAL:
        _half_dots(x * UP, halves, out, 2 * get_num_threads())
    else:
        _add_half_rows(x * UP, halves, 0, out)
    return np.asarray(out * scale)


@compiled()
def _add_rows(x: Array, V: Array, first: int, total: Array) -> None:
    """Adds x @ V of the columns from `first` on to total; no fast-math, with which sums depend on how many they are."""
    a, part = len(V), slice(first, first + len(total))
    for i in range(0, a - 3, 4):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        v0, v1, v2, v3 = V[i, part], V[i + 1, part], V[i + 2, part], V[i + 3, part]
        for j in range(len(total)):
            total[j] += x0 * v0[j] + x1 * v1[j] + x2 * v2[j] + x3 * v3[j]
    for i in range(a - a % 4, a):
        for j in range(len(total)):
            total[j] += x[i] * V[i, first + j]


@compiled(parallel=True)
def _row_dots(x: Array, V: Array, out: Array, pieces: int) -> None:
    b = V.shape[1]
    for piece in prange(pieces):
        first = piece * b // pieces
        _add_rows(x, V, first, out[first : (piece + 1) * b // pieces])


@compiled()
def _add_half_rows(x: Array, halves: Array, first: int, total: Array) -> None:
    """Does what `_add_rows` does with 2^-112 times the float16 matrix."""
    a, part = len(halves), slice(first, first + len(total))
    for i in range(0, a - 3, 4):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        h0, h1, h2, h3 = halves[i, part], halves[i + 1, part], halves[i + 2, part], halves[i + 3, part]
        for j in range(len(total)):
            total[j] += x0 * _wide(h0[j]) + x1 * _wide(h1[j]) + x2 * _wide(h2[j]) + x3 * _wide(h3[j])
    for i in range(a - a % 4, a):
        for j in range(len(total)):
            total[j] += x[i] * _wide(halves[i, first + j])


@compiled(parallel=True)
def _half_dots(x: Array, halves: Array, out: Array, pieces: int) -> None:
    b = halves.shape[1]
    for piece in prange(pieces):
        first = piece * b // pieces
        _add_half_rows(x, halves, first, out[first : (piece + 1) * b // pieces])


# Sparse feature weights of labels


@compiled()
def sum_sparse(
    total: Array, features: Array, x: Array, indptr: Array, labels: Array, values: Array, start: int
) -> None:
    """Adds the products of one row's features with D to total (m,), of the labels from `start` on."""
    stop = start + len(total)
    for p in range(len(features)):
        first, end = indptr[features[p]], indptr[features[p] + 1]
        if start > 0:
            first += np.searchsorted(labels[first:end], start)
        for q in range(first, end):
            if labels[q] >= stop:
                break
            if labels[q] >= start:  # a damaged file may have them in any order
                total[labels[q] - start] += x[p] * values[q]


@compiled(parallel=True)
def add_sparse(
    S: Array, ptr: Array, features: Array, x: Array, indptr: Array, labels: Array, values: Array, start: int
) -> None:
    """Adds X D to S (b, m), of the labels from `start` on: each label's products are summed before they are added."""
    for i in prange(len(S)):
        total, row = np.zeros(S.shape[1], np.float32), slice(ptr[i], ptr[i + 1])
        sum_sparse(total, features[row], x[row], indptr, labels, values, start)
        S[i] += total


@compiled()
def add_sparse_to_some(
    S: Array, ptr: Array, features: Array, x: Array, indptr: Array, labels: Array, values: Array, some: Array
) -> None:
    """Adds X D of some labels (m,) to S (b, m), each label's products in the order in which `add_sparse` sums them."""
    for i in range(len(S)):
        total = np.zeros(S.shape[1], np.float32)
        for p in range(ptr[i], ptr[i + 1]):
            first, end = indptr[features[p]], indptr[features[p] + 1]
            for j in range(len(some)):
                q = first + np.searchsorted(labels[first:end], some[j])
                if q < end and labels[q] == some[j]:
                    total[j] += x[p] * values[q]
        S[i] += total


@compiled()
def bet_on_ranks(
    bins: Array,
    draws: Array,
    slopes: Array,
    curves: Array,
    jumps: Array,
    counts: Array,
    capital: Array,
    log: float,
    highest: float,
) -> tuple[float, float]:
    """Returns the logarithm of the capital of bets after the next rows, and of its highest value so far.

    The rank p of a row, whose bin is given (n,), is among `counts` (BINS,), which it joins; draws (n,) break the ties.
    Bet e multiplies by 1 + slopes[e] (p - 1/2) + curves[e] (6 (p - 1/2)^2 - 1/2), whose mean is 1. `capital` (J, E),
    the share of each bet, is changed in place: in part j a share jumps[j] moves to the mean of all bets first.
    """
    parts, bets = capital.shape
    total = counts.sum()
    for i in range(len(bins)):
        below = 0.0
        for b in range(bins[i]):
            below += counts[b]
        rank = (below + draws[i] * (counts[bins[i]] + 1)) / (total + 1) - 0.5
        counts[bins[i]] += 1
        total += 1
        whole = 0.0
        for j in range(parts):
            mean = 0.0
            for e in range(bets):
                mean += capital[j, e] / bets
            for e in range(bets):
                share = capital[j, e] + jumps[j] * (mean - capital[j, e])
                capital[j, e] = share * (1 + slopes[e] * rank + curves[e] * (6 * rank * rank - 0.5))
                whole += capital[j, e]
        for j in range(parts):
            for e in range(bets):
                capital[j, e] /= whole
        log += np.log(whole)
        highest = max(highest, log)
    return log, highest
