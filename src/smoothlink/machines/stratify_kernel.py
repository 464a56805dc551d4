"""The compiled loop of stratified splitting."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled

Array = NDArray[Any]


@compiled()
def assign(indptr: Array, labels: Array, rows_ptr: Array, rows: Array, wanted: Array, room: Array, part: Array) -> None:
    """Gives each row that has a label its part, the rarest label's rows first; adds to part (n,), -1 where none yet.

    indptr, labels: the labels of each row; rows_ptr, rows: the rows of each label, in the order they are dealt out;
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
            best = _keenest(wanted[j], room)
            part[row] = best
            room[best] -= 1
            for other in labels[indptr[row] : indptr[row + 1]]:
                wanted[other, best] -= 1
                _unlink(head, after, before, left[other], other)
                left[other] -= 1
                if left[other] > 0:
                    _link(head, after, before, left[other], other)
                    lowest = min(lowest, left[other])


@compiled()
def settle(indptr: Array, labels: Array, order: Array, wanted: Array, room: Array, part: Array) -> int:
    """Moves each row, in this order, to the part where the squares of what is wanted are least; returns the moves.

    Dealing looks at one label of a row; frequent labels that travel with many rare ones are left some rows off.
    """
    moves = 0
    for row in order:
        old = part[row]
        own = labels[indptr[row] : indptr[row + 1]]
        best, least = old, 0.0
        for p in range(len(room)):
            if p == old:
                continue
            # A row that goes from old to p adds 1 to what old wants and takes 1 from what p wants.
            change = 2 * (room[old] - room[p]) + 2
            for j in own:
                change += 2 * (wanted[j, old] - wanted[j, p]) + 2
            if change < least - 1e-9:
                best, least = p, change
        if best != old:
            moves += 1
            part[row] = best
            room[old] += 1
            room[best] -= 1
            for j in own:
                wanted[j, old] += 1
                wanted[j, best] -= 1
    return moves


@compiled()
def _keenest(wanted: Array, room: Array) -> int:
    """The part that wants most of the label; among equals the one with most room, then the first."""
    best = 0
    for p in range(1, len(room)):
        if wanted[p] > wanted[best] or (wanted[p] == wanted[best] and room[p] > room[best]):
            best = p
    return best


@compiled()
def _queue(rows_ptr: Array) -> Any:
    """Labels by how many of their rows have no part yet: doubly linked lists, one a count, so that each step of the
    whole takes constant time."""
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
