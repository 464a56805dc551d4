"""Rows that occur more than once: hashes of what rows hold, and the groups that stay on one side of every split.

A model that has learnt one copy of a row knows the others: held-out copies make it look better than it is, choose
settings that overfit, and calibrate it to certainty.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.rows_in_files import MappedMatrix

Array = NDArray[Any]

HASHED_ROWS = 1 << 15  # of a file, or of a dense table, at a time
NOTABLE = 0.01  # share of copies from which on they are noted
# A table of a few categories has many rows of each kind, with labels of their own: observations, not copies.
KIND_ROWS = 8  # per distinct row from which on this is considered
SKETCHED_ROWS = 1 << 20  # whose hashes a model keeps: 4 MiB
HASHES = 2.0**32


class Groups(NamedTuple):
    """Rows that belong together."""

    first: Array  # (n,) the number of the first row of each row's group
    copies: Array  # (n,) bool: rows that repeat an earlier one

    def take(self, numbers: Array) -> Groups:
        """Returns the groups of some of the rows, numbered anew."""
        return Groups(first_equal(self.first[numbers]), self.copies[numbers])

    @property
    def numbered(self) -> Array:
        """Returns the number (n,) of each row's group, 0 .. groups - 1."""
        return np.unique(self.first, return_inverse=True)[1]


class RowContents(NamedTuple):
    """Hashes of what rows hold."""

    features: Array  # (n,) uint64; 0 for rows without features, which are copies of none
    labels: Array  # (n,) uint64

    @staticmethod
    def of(X: Any, Y: Any) -> RowContents:
        return RowContents(row_hashes(X), row_hashes(Y))

    def groups(self, given: Array | None = None) -> Groups | None:
        """Returns rows of the same features in one group each, or the groups given (n,); None where all rows are alone.

        Where groups are given, copies in different groups stay there: they are the user's to judge.
        """
        numbers = np.arange(len(self.features))
        first = numbers if self.few_kinds else self.first_copies
        if given is None and (first == numbers).all():
            return None
        return Groups(first if given is None else first_equal(given), first != numbers)

    @property
    def all_same(self) -> bool:
        """Returns whether three rows or more all have the same features."""
        return len(self.features) > 2 and bool((self.features == self.features[0]).all())

    def describe(self, groups: Groups | None) -> str | None:
        """Returns a note on rows that repeat others, where they are notable."""
        n = len(self.features)
        if self.all_same:
            return (
                f"All {n:,} rows have the same features: a model can learn how frequent labels are, and nothing else. "
                "Look whether the right columns are read."
            )
        count = 0 if groups is None else int(np.count_nonzero(groups.copies))
        if not count or count < NOTABLE * n:
            return None
        return (
            f"{count:,} of {n:,} rows ({100 * count / n:.2g} %) repeat the features of another: "
            "copies are held out together."
        )

    @property
    def first_copies(self) -> Array:
        """Returns the number (n,) of the first row with the same features."""
        numbers, ordered = np.arange(len(self.features)), np.sort(self.features)
        if not ((ordered[1:] == ordered[:-1]) & (ordered[1:] > 0)).any():
            return numbers
        return np.where(self.features > 0, first_equal(self.features), numbers)

    @property
    def few_kinds(self) -> bool:
        """Returns whether rows are many of each of a few kinds, with labels of their own: a table of categories.

        Such rows are observations, not copies: new rows are of the same kinds.
        """
        first = self.first_copies
        sizes = np.bincount(first, minlength=1)
        rows, kinds = sizes[sizes > 1].sum(), np.count_nonzero(sizes > 1)
        differ = np.unique(first[self.labels != self.labels[first]])  # first rows of kinds with several sets of labels
        return bool(kinds and rows >= KIND_ROWS * kinds and sizes[differ].sum() > rows / 2)


def first_equal(keys: Array) -> Array:
    """Returns the place (n,) of the first entry that equals each entry of keys (n,)."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(first[inverse])


def group_numbers(groups: Any, n: int) -> Array | None:
    """Returns a number (n,) for each row, the same for rows of one group; raises an error for other than n values."""
    if groups is None:
        return None
    values = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if len(values) != n or any(isinstance(value, list) for value in values[:1]):
        shape = f" of shape {np.shape(groups)}" if np.ndim(groups) > 1 else ""
        raise ValueError(f"groups has {len(values):,} values{shape}, and there are {n:,} rows; pass one for each row.")
    without = [i for i, value in enumerate(values) if is_missing(value)]
    if without:
        raise ValueError(
            f"groups has no value for {len(without):,} of {n:,} rows, the first of them row {without[0]:,}.\n"
            "Give each of these rows a group of its own, such as its number, or leave it out."
        )
    place: dict[Any, int] = {}
    return np.array([place.setdefault(value, len(place)) for value in values], np.int64)


def is_missing(value: Any) -> bool:
    """Returns whether a value is None, NaN, pandas' NA or text without a character."""
    try:
        return value is None or bool(value != value) or (isinstance(value, str) and not value.strip())
    except TypeError:  # pandas' NA is neither true nor false
        return True


class TrainingRows(NamedTuple):
    """A sketch of the rows that a model was trained on, which tells whether other rows are among them."""

    hashes: Array  # (m,) uint32, ascending
    every: int  # one of so many rows is in it, by its hash: a power of two

    @staticmethod
    def of(features: Array) -> TrainingRows:
        """Returns the sketch of rows by the hashes (n,) of their features: 4 bytes per row, up to SKETCHED_ROWS."""
        every = 1
        while len(features) > every * SKETCHED_ROWS:
            every *= 2
        return TrainingRows(np.unique(upper_half(sampled(features, every))), every)

    def overlap(self, features: Array) -> int:
        """Returns how many rows with these hashes of features (n,) are training rows; of a sample, about how many. What
        chance gives is taken off."""
        asked, share = upper_half(sampled(features, self.every)), len(self.hashes) / HASHES
        found, chance = int(np.isin(asked, self.hashes).sum()), len(asked) * share
        return 0 if found <= chance + 3 * np.sqrt(chance) else round((found - chance) / (1 - share) * self.every)


def sampled(features: Array, every: int) -> Array:
    """Returns the hashes of about one of `every` rows that have features."""
    return features[(features & np.uint64(every - 1) == 0) & (features > 0)]


def upper_half(hashes: Array) -> Array:
    return (hashes >> np.uint64(32)).astype(np.uint32)


def row_hashes(X: Any) -> Array:
    """Returns a hash (n,) of the columns and values of each row of X (n, d), the same for sparse and dense rows; 0 for
    rows without entries."""
    from smoothlink.machines.kernels import hash_dense_rows, hash_sparse_rows  # numba takes time to load

    found = np.zeros(X.shape[0], np.uint64)
    if sp.issparse(X) and not isinstance(X, MappedMatrix):
        hash_sparse_rows(X.indptr, X.indices, X.data, found)
        return found
    for start in range(0, X.shape[0], HASHED_ROWS):
        part, out = X[start : start + HASHED_ROWS], found[start : start + HASHED_ROWS]
        if sp.issparse(part):
            hash_sparse_rows(part.indptr, part.indices, part.data, out)
        else:
            hash_dense_rows(np.ascontiguousarray(part), out)
    return found
