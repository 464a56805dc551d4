"""Which rows are held out: the one rule for choosing settings, for calibration, for fine-tuning and for the search."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.fitting.settings import Request
from smoothlink.machines.rows import Rows, row_hash

Array = NDArray[Any]

ENOUGH_ROWS = 900  # small data sets take several folds, until this many rows have been held out
FEW_ROWS = 2000  # up to here every row is held out once
ONE_FIT_SHARE, ONE_FIT_ROWS = 0.05, 5000  # that a single fit does without
QUICK_ROWS = 5000  # up to here a quick fit is calibrated by folds: 5 % would be too few rows, and fits are cheap
FOLD_SHARE = 0.2  # of the rows, in each of these folds
MANY_ROWS = 50_000  # from here on a joint or fine-tuned fit does without the rows that calibrate it
NOTHING = np.zeros(0, np.int64)


def fold_numbers(n: int, share: float, seed: int) -> Array:
    """Returns the fold (n,) of each row, of round(1/share) folds of equal size, by a hash of (seed, row number)."""
    count = max(2, round(1 / share))
    fold = np.empty(n, np.int64)
    fold[np.argsort(row_hash(np.arange(n), seed), kind="stable")] = np.arange(n) % count
    return fold


def fold_count(n: int, request: Request) -> int:
    """Returns how many folds of n rows are held out in turn: one, or several where one would be small."""
    wanted = n if n <= FEW_ROWS else 1 if request.given else ENOUGH_ROWS
    held = max(1, int(n * request.holdout))
    return int(np.clip(-(-wanted // held), 1, min(n, max(2, round(1 / request.holdout)))))


def hold_out(w: Array, share: float, seed: int, folds: int) -> list[Array]:
    """Returns the numbers of the held-out rows of each fold; rows of weight 0 are in none."""
    if len(w) < 2:
        return []
    fold = fold_numbers(len(w), share, seed)
    held = [np.flatnonzero((fold == f) & (w > 0)) for f in range(min(folds, int(fold.max()) + 1))]
    return [h for h in held if 0 < len(h) < np.count_nonzero(w)]


def holdouts(w: Array, request: Request) -> list[Array]:
    """Returns the held-out rows of each fold on which settings are chosen and the model is calibrated."""
    return hold_out(w, request.holdout, request.seed, fold_count(len(w), request))


def few_rows(w: Array, seed: int) -> Array:
    """Returns the numbers of a few rows that calibrate a fit that does without them."""
    held = next(iter(hold_out(w, ONE_FIT_SHARE, seed, 1)), NOTHING)
    return held[:: max(1, len(held) // ONE_FIT_ROWS)]


def calibrates_by_folds(rows: Rows) -> bool:
    """Returns whether a quick fit is calibrated by folds; not where workers write the decoder, which is fitted once."""
    return int(np.count_nonzero(rows.w)) <= QUICK_ROWS and not rows.writes_decoder


def rows_for_one_fit(w: Array, request: Request) -> Array:
    """Returns the rows that calibrate, or stop, a joint or fine-tuned fit: few of many, else the first holdout."""
    return few_rows(w, request.seed) if len(w) >= MANY_ROWS else next(iter(holdouts(w, request)), NOTHING)


def without(rows: Rows, held: Array) -> Rows:
    """Returns the rows, those held out with weight 0."""
    w = rows.w.copy()
    w[held] = 0
    return rows.weighted(w)
