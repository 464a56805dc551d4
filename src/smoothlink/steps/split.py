"""Y -> parts of its rows that have each label in the same share: iterative stratification in linear time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled
from smoothlink.machines.copies import group_numbers
from smoothlink.machines.rows_in_files import check_sparse
from smoothlink.types import Matrix, RowGroups

Array = NDArray[Any]

IMPROVING_PASSES = 3  # over the rows, which move the last few


def stratified_split(
    Y: Matrix, shares: Sequence[float] = (0.8, 0.2), seed: int = 0, groups: RowGroups | None = None
) -> list[Array]:
    """Returns the rows of Y (n, c), a 0/1 matrix, in parts of these shares, each a sorted array of row numbers.

    As Sechidis, Tsoumakas and Vlahavas (2011): the rarest label's rows are assigned first, each to the part that wants
    most of that label, since rare labels have the fewest rows to correct a mistake with. Rows without labels fill the
    parts up, and rows that fit another part better move. The time is linear in rows and labels of rows.

    groups: one value for each row; rows of the same group are in the same part.
    """
    share = checked_shares(shares)
    Y = sp.csr_array(check_sparse(Y, "Y"))
    Y = sp.csr_array((np.ones(Y.nnz), Y.indices, Y.indptr), Y.shape)
    n, group = Y.shape[0], group_numbers(groups, Y.shape[0])
    if group is None:
        return split_units(Y, np.ones(n), share, seed)
    of_group = sp.csr_array((np.ones(n), (group, np.arange(n))), (int(group.max(initial=-1)) + 1, n))
    counts = sp.csr_array(of_group @ Y)
    counts.sort_indices()
    parts = split_units(counts, np.bincount(group).astype(float), share, seed)
    return [np.flatnonzero(np.isin(group, part)) for part in parts]


def split_units(Y: sp.csr_array, size: Array, share: Array, seed: int) -> list[Array]:
    """Returns the parts of units of `size` (m,) rows each; Y (m, c) counts their rows with each label."""
    (n, c), counts, total = Y.shape, Y.data, size.sum()
    rng = np.random.default_rng(seed)
    indptr, labels = Y.indptr.astype(np.int64), Y.indices.astype(np.int64)
    order = rng.permutation(n)
    # The rows of each label in a random order: those of the shuffled rows, sorted by label, equal ones as they came.
    shuffled = Y[order]
    by_label = np.argsort(shuffled.indices, kind="stable")
    rows = np.repeat(order, np.diff(shuffled.indptr))[by_label]
    rows_ptr = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=c))]).astype(np.int64)
    room = share * total
    wanted = np.bincount(labels, counts, minlength=c)[:, None] * share
    part = np.full(n, -1, np.int64)
    if c:
        assign(indptr, labels, counts, size, rows_ptr, rows, wanted, room, part)
    rest = order[part[order] < 0]
    free = np.maximum(room, 0)
    free = np.ones(len(room)) if not free.sum() else free
    ends = np.round(np.cumsum(free) / free.sum() * size[rest].sum())
    begins = np.cumsum(size[rest]) - size[rest]
    part[rest] = np.minimum(np.searchsorted(ends, begins, side="right"), len(room) - 1)
    room = share * total - np.bincount(part, size, minlength=len(share))
    for _ in range(IMPROVING_PASSES):
        if not improve(indptr, labels, counts, size, order, wanted, room, part):
            break
    return [np.flatnonzero(part == p) for p in range(len(share))]


def checked_shares(shares: Sequence[float]) -> Array:
    """Returns the shares, which sum to 1; raises an error where they do not."""
    share = np.asarray(shares, np.float64)
    fine = share.ndim == 1 and len(share) >= 2 and (share > 0).all() and abs(share.sum() - 1) < 1e-6
    if not fine:
        raise ValueError(f"The shares are {list(np.ravel(share))}. Pass two or more that sum to 1, such as (0.8, 0.2).")
    return share / share.sum()


# Compiled loops. A row here is a unit of size[row] rows that stay together; indptr, labels, counts: the labels of each,
# and how many of its rows have them.


@compiled()
def assign(
    indptr: Array,
    labels: Array,
    counts: Array,
    size: Array,
    rows_ptr: Array,
    rows: Array,
    wanted: Array,
    room: Array,
    part: Array,
) -> None:
    """Gives each row that has a label its part, the rarest label's rows first; adds to part (n,), -1 where none yet.

    rows_ptr, rows: the rows of each label, in the order of assignment;
    wanted (c, parts): rows of each label that each part still wants; room (parts,): rows that each still wants.
    """
    left, head, after, before, lowest = _queue(rows_ptr)
    while lowest < len(head):
        j = head[lowest]
        if j < 0:
            lowest += 1
            continue
        for at in range(rows_ptr[j], rows_ptr[j + 1]):
            row = rows[at]
            if part[row] >= 0:
                continue
            best = _neediest(wanted[j], room)
            part[row] = best
            room[best] -= size[row]
            for at_label in range(indptr[row], indptr[row + 1]):
                other = labels[at_label]
                wanted[other, best] -= counts[at_label]
                _unlink(head, after, before, left[other], other)
                left[other] -= 1
                if left[other] > 0:
                    _link(head, after, before, left[other], other)
                    lowest = min(lowest, left[other])


@compiled()
def improve(
    indptr: Array, labels: Array, counts: Array, size: Array, order: Array, wanted: Array, room: Array, part: Array
) -> int:
    """Moves each row, in this order, to the part where the squares of what is wanted are least; returns the moves.

    Assigning looks at one label of a row; frequent labels that come with many rare ones are left some rows off.
    """
    moves = 0
    for row in order:
        old = part[row]
        s = size[row]
        best, least = old, 0.0
        for p in range(len(room)):
            if p == old:
                continue
            # s rows that go from old to p add s to what old wants and take s from what p wants.
            change = 2 * s * (room[old] - room[p]) + 2 * s * s
            for at in range(indptr[row], indptr[row + 1]):
                j, k = labels[at], counts[at]
                change += 2 * k * (wanted[j, old] - wanted[j, p]) + 2 * k * k
            if change < least - 1e-9:
                best, least = p, change
        if best != old:
            moves += 1
            part[row] = best
            room[old] += s
            room[best] -= s
            for at in range(indptr[row], indptr[row + 1]):
                wanted[labels[at], old] += counts[at]
                wanted[labels[at], best] -= counts[at]
    return moves


@compiled()
def _neediest(wanted: Array, room: Array) -> int:
    """Returns the part that wants most of the label; among equals the one with most room, then the first."""
    best = 0
    for p in range(1, len(room)):
        if wanted[p] > wanted[best] or (wanted[p] == wanted[best] and room[p] > room[best]):
            best = p
    return best


@compiled()
def _queue(rows_ptr: Array) -> Any:
    """Returns labels by how many of their rows have no part yet: doubly linked lists, one per count, so that each step
    takes constant time."""
    left = rows_ptr[1:] - rows_ptr[:-1]
    most = left.max() if len(left) else 0
    head = np.full(most + 1, -1, np.int64)
    after = np.full(len(left), -1, np.int64)
    before = np.full(len(left), -1, np.int64)
    for j in range(len(left)):
        if left[j] > 0:
            _link(head, after, before, left[j], j)
    return left, head, after, before, 1


@compiled()
def _link(head: Array, after: Array, before: Array, count: int, j: int) -> None:
    after[j], before[j] = head[count], -1
    if head[count] >= 0:
        before[head[count]] = j
    head[count] = j


@compiled()
def _unlink(head: Array, after: Array, before: Array, count: int, j: int) -> None:
    if before[j] >= 0:
        after[before[j]] = after[j]
    else:
        head[count] = after[j]
    if after[j] >= 0:
        before[after[j]] = before[j]
