"""Sorting inside compiled loops.

NumPy's sorts in compiled code are closures whose names in numba's cache can be those of another function's sort, and
the wrong one is then called: reading a file after predicting crashed. A function of a module has a name of its own.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled

Array = NDArray[Any]


@compiled()
def sort_by(keys: Array, order: Array) -> None:
    """Puts `order`, numbers of keys, in the order of rising keys, equal ones by number: a heap sort."""
    count = len(order)
    for first in range(count // 2 - 1, -1, -1):
        _sink(keys, order, first, count)
    for end in range(count - 1, 0, -1):
        order[0], order[end] = order[end], order[0]
        _sink(keys, order, 0, end)


@compiled()
def _sink(keys: Array, order: Array, parent: int, end: int) -> None:
    """Moves one entry of a heap of `end` entries, the last one on top, down to its place."""
    one = order[parent]
    while True:
        child = 2 * parent + 1
        if child >= end:
            break
        if child + 1 < end and _before(keys, order[child], order[child + 1]):
            child += 1
        if not _before(keys, one, order[child]):
            break
        order[parent] = order[child]
        parent = child
    order[parent] = one


@compiled()
def _before(keys: Array, a: int, b: int) -> bool:
    return keys[a] < keys[b] or (keys[a] == keys[b] and a < b)
