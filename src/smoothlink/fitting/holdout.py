"""Which rows are held out: the one rule for choosing settings, for calibration, for fine-tuning and for the search."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.fitting.settings import Request
from smoothlink.machines.copies import RowContents, notable
from smoothlink.machines.rows import Rows, row_hash

Array = NDArray[Any]

ENOUGH_ROWS = 900  # small data sets take several folds, until this many rows have been held out
FEW_ROWS = 2000  # up to here every row is held out once
ONE_FIT_SHARE, ONE_FIT_ROWS = 0.05, 5000  # that a single fit does without
QUICK_ROWS = 5000  # up to here a quick fit is calibrated by folds: 5 % would be too few rows, and fits are cheap
FOLD_SHARE = 0.2  # of the rows, in each of these folds
MANY_ROWS = 50_000  # from here on an embedding, a joint fit and an SGD do without the rows that calibrate
NOTHING = np.zeros(0, np.int64)


def fold_numbers(n: int, share: float, seed: int, groups: Array | None = None) -> Array:
    """Returns the fold (n,) of each row, of round(1/share) folds of equal size, by a hash of (seed, row number).

    Rows of one number in `groups` (n,) are in one fold.
    """
    if groups is not None:
        unit = np.unique(groups, return_inverse=True)[1]
        return fold_numbers(int(unit.max(initial=-1)) + 1, share, seed)[unit]
    count = max(2, round(1 / share))
    fold = np.empty(n, np.int64)
    fold[np.argsort(row_hash(np.arange(n), seed), kind="stable")] = np.arange(n) % count
    return fold


def fold_share(n: int, request: Request) -> float:
    """Returns the share of n rows that a fold holds out: twice that asked for where it would take several folds."""
    several = n > FEW_ROWS and not request.given and n * request.holdout < ENOUGH_ROWS
    return min(0.5, 2 * request.holdout) if several else request.holdout


def fold_count(n: int, request: Request) -> int:
    """Returns how many folds of n rows are held out in turn: one, or several where one would be small."""
    wanted, share = n if n <= FEW_ROWS else 1 if request.given else ENOUGH_ROWS, fold_share(n, request)
    held = max(1, int(n * share))
    return int(np.clip(-(-wanted // held), 1, min(n, max(2, round(1 / share)))))


def hold_out(w: Array, share: float, seed: int, folds: int, groups: Array | None = None) -> list[Array]:
    """Returns the numbers of the held-out rows of each fold; rows of weight 0 are in none.

    Rows of one group are in one fold. A fold of groups that has more than half of the rows is left out: too few would
    be left to learn from.
    """
    live = np.flatnonzero(w > 0)
    if len(live) < 2:
        return []
    fold = fold_numbers(len(live), share, seed, None if groups is None else groups[live])
    held = [live[fold == f] for f in range(int(fold.max()) + 1)]
    return [h for h in held if 0 < len(h) <= (len(live) - 1 if groups is None else len(live) // 2)][:folds]


def holdouts(w: Array, request: Request, groups: Array | None = None) -> list[Array]:
    """Returns the held-out rows of each fold on which settings are chosen and the model is calibrated."""
    n = int(np.count_nonzero(w))
    return hold_out(w, fold_share(n, request), request.seed, fold_count(n, request), groups)


def few_rows(w: Array, seed: int, groups: Array | None = None) -> Array:
    """Returns the numbers of a few rows that calibrate a fit that does without them; no large group is among them."""
    folds, most = hold_out(w, ONE_FIT_SHARE, seed, round(1 / ONE_FIT_SHARE), groups), 2 * ONE_FIT_SHARE * len(w) + 1
    held = next((h for h in folds if len(h) <= most), NOTHING)
    return held[:: max(1, len(held) // ONE_FIT_ROWS)]


def validation_rows(w: Array, request: Request, groups: Array | None = None, held: Array | None = None) -> list[Array]:
    """Returns the held-out rows of each fold that calibrate a fit; of many rows a few, of a model that will be updated
    those that `held` (n,) says."""
    if held is not None:
        found = np.flatnonzero(held & (w > 0))
        return [found] if 0 < len(found) < np.count_nonzero(w) else []
    return [few_rows(w, request.seed, groups)] if embeds_once(w) else holdouts(w, request, groups)


def calibrating_rows(w: Array, request: Request, groups: Array | None = None, held: Array | None = None) -> Array:
    """Returns the rows that calibrate a fit which is not made again with them: of many rows a few, of a model that will
    be updated those that `held` says; none where folds calibrate."""
    if held is not None:
        return next(iter(validation_rows(w, request, groups, held)), NOTHING)
    most = QUICK_ROWS if request.effort == "quick" else MANY_ROWS - 1
    return few_rows(w, request.seed, groups) if np.count_nonzero(w) > most else NOTHING


def embeds_once(w: Array, held: Array | None = None) -> bool:
    """Returns whether the embedding does without the rows that calibrate, so that it need not be repeated with them."""
    return held is not None or int(np.count_nonzero(w)) >= MANY_ROWS


def decodes_once(w: Array, loss: str) -> bool:
    """Returns whether V does without them too: an SGD over many rows takes long, and sums are cheap to add to."""
    return loss != "squared" and embeds_once(w)


def calibrates_by_folds(rows: Rows) -> bool:
    """Returns whether a quick fit is calibrated by folds; not where workers write the decoder, which is fitted once."""
    return int(np.count_nonzero(rows.w)) <= QUICK_ROWS and not rows.writes_decoder


def rows_for_one_fit(w: Array, request: Request, groups: Array | None = None) -> Array:
    """Returns the rows that calibrate, or stop, a joint or fine-tuned fit: few of many, else the first holdout."""
    if len(w) >= MANY_ROWS:
        return few_rows(w, request.seed, groups)
    return next(iter(holdouts(w, request, groups)), NOTHING)


class ConformalRows(NamedTuple):
    """Rows that guarantees are computed from, and that nothing else sees."""

    taken: Array  # (n,) bool: all rows of these groups
    used: Array  # (m,) numbers of one row of each group


def conformal_rows(contents: RowContents, share: float, seed: int, groups: Array | None = None) -> ConformalRows:
    """Returns about this share of the groups of rows, each by a hash of (seed, contents): whatever other rows there are
    and in whatever order, a row is taken or not.

    Copies are a group where none are given. Guarantees need groups that are exchangeable, of which one row each is used
    (Dunn, Wasserman and Ramdas 2022: subsampling).
    """
    n = len(contents.features)
    groups = notable(contents.first_copies(), 0.0) if groups is None else groups
    unit = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    key: Array = row_hash(contents.features, 0) ^ row_hash(contents.labels, 1)
    order = np.argsort(key, kind="stable")
    begins = np.append(True, key[order][1:] != key[order][:-1]) if n else np.zeros(0, bool)
    nth = np.empty(n, np.int64)  # of the rows that are the same and are no group
    nth[order] = np.arange(n) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    key = key + nth.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    least = np.full(int(unit.max(initial=-1)) + 1, np.iinfo(np.uint64).max)
    np.minimum.at(least, unit, key)
    taken = (row_hash(least, seed) < np.uint64(share * 2.0**64))[unit]
    if not 0 < np.count_nonzero(taken) < n:
        kind = "rows" if groups is None else "groups of rows"
        raise ValueError(
            f"conformal is {share:g}, and of {len(least):,} {kind} that takes {'all' if taken.any() else 'none'}: pass "
            "more rows, another `random_state`, or 0."
        )
    used = one_of_each(unit, row_hash(key, seed))
    return ConformalRows(taken, used[taken[used]])


def one_of_each(groups: Array, key: Array) -> Array:
    """Returns the number of the row of the least key (n,) of each group (n,)."""
    ranked = np.lexsort((key, groups))
    return np.sort(ranked[np.append(True, np.diff(groups[ranked]) > 0)])


def without(rows: Rows, held: Array) -> Rows:
    """Returns the rows, those held out with weight 0."""
    w = rows.w.copy()
    w[held] = 0
    return rows.weighted(w)
