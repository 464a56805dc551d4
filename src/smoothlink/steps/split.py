"""Y -> parts of its rows that have each label in the same share: iterative stratification in linear time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[Any]

SETTLING = 3  # passes over the rows, which put the last few right


def stratified_split(Y: Any, shares: Sequence[float] = (0.8, 0.2), seed: int = 0) -> list[Array]:
    """Rows of Y (n, c), a 0/1 matrix, in parts of these shares, each a sorted array of row numbers.

    As Sechidis, Tsoumakas and Vlahavas (2011): the rarest label's rows are dealt out first, each to the part that wants
    most of that label, since rare labels have the fewest rows to put a mistake right with. Rows without labels fill the
    parts up, and rows that are better off elsewhere move. Each row and label is looked at a few times.
    """
    from smoothlink.machines.stratify_kernel import assign, settle

    share = checked_shares(shares)
    Y = sp.csr_array(Y)
    n, c = Y.shape
    rng = np.random.default_rng(seed)
    indptr, labels = Y.indptr.astype(np.int64), Y.indices.astype(np.int64)
    order = rng.permutation(n)
    # The rows of each label in a random order: those of the shuffled rows, sorted by label, equal ones as they came.
    shuffled = Y[order]
    by_label = np.argsort(shuffled.indices, kind="stable")
    rows = np.repeat(order, np.diff(shuffled.indptr))[by_label]
    rows_ptr = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=c))]).astype(np.int64)
    room = share * n
    wanted = np.diff(rows_ptr)[:, None] * share
    part = np.full(n, -1, np.int64)
    if c:
        assign(indptr, labels, rows_ptr, rows, wanted, room, part)
    rest = order[part[order] < 0]
    part[rest] = dealt(len(rest), room)
    room = share * n - np.bincount(part, minlength=len(share))
    for _ in range(SETTLING):
        if not settle(indptr, labels, order, wanted, room, part):
            break
    return [np.flatnonzero(part == p) for p in range(len(share))]


def dealt(count: int, room: Array) -> Array:
    """The parts of `count` rows that have no label: to each as many as it has room for, about."""
    free = np.maximum(room, 0)
    free = np.ones(len(room)) if not free.sum() else free
    ends = np.round(np.cumsum(free) / free.sum() * count).astype(np.int64)
    return np.repeat(np.arange(len(room)), np.diff(ends, prepend=0))


def checked_shares(shares: Sequence[float]) -> Array:
    """Shares that sum to 1."""
    share = np.asarray(shares, np.float64)
    fine = share.ndim == 1 and len(share) >= 2 and (share > 0).all() and abs(share.sum() - 1) < 1e-6
    if not fine:
        raise ValueError(f"shares are {list(np.ravel(share))}; pass two or more that sum to 1, such as (0.8, 0.2).")
    return share / share.sum()
