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
NOTABLE = 0.03  # share of copies up to which they change no choice and no calibration worth a word
FEW_KINDS, KIND_ROWS = 10, 8  # fewer distinct rows, of so many each, are a table of categories: none can be spared
SKETCHED_ROWS = 1 << 20  # whose hashes a model keeps: 4 MiB
HASHES = 2.0**32


class RowContents(NamedTuple):
    """Hashes of what rows hold."""

    features: Array  # (n,) uint64; 0 for rows without features, which are copies of none
    labels: Array  # (n,) uint64

    @staticmethod
    def of(X: Any, Y: Any) -> RowContents:
        return RowContents(row_hashes(X), row_hashes(Y))

    def first_copies(self) -> Array:
        """Returns the number (n,) of the first row that each row is a copy of, or its own.

        Copies have the same features, and no row of these features has other labels. Where labels differ, rows are
        observations of their own: short texts, or tables of categories, whose new rows are of the same kinds.
        """
        numbers, ordered = np.arange(len(self.features)), np.sort(self.features)
        if not ((ordered[1:] == ordered[:-1]) & (ordered[1:] > 0)).any():
            return numbers
        return self.of_same_labels(np.where(self.features > 0, first_equal(self.features), numbers))

    def of_same_labels(self, first: Array) -> Array:
        """Returns the first row (n,) of each row's group where all rows of the group have the same labels, else the
        row itself."""
        differ = np.zeros(len(first), bool)
        differ[first[self.labels != self.labels[first]]] = True
        return np.where(differ[first], np.arange(len(first)), first)

    @property
    def all_same(self) -> bool:
        """Returns whether three rows or more all have the same features."""
        return len(self.features) > 2 and bool((self.features == self.features[0]).all())

    def describe(self, first: Array | None) -> str | None:
        """Returns a note on rows that all have the same features, or that are copies of others, `first` (n,)."""
        n = len(self.features)
        if self.all_same:
            return (
                f"All {n:,} rows have the same features: a model can learn how frequent labels are, and nothing else. "
                "Look whether the right columns are read."
            )
        if first is None:
            return None
        count = count_copies(first)
        share = f"{count:,} of {n:,} rows ({100 * count / n:.2g} %)"
        return f"{share} are copies of others: copies count as one row that has their weight."


def count_copies(first: Array | None) -> int:
    return 0 if first is None else int(np.count_nonzero(first != np.arange(len(first))))


def notable(first: Array, share: float = NOTABLE) -> Array | None:
    """Returns the first rows (n,) of copies where these are more than a share of all, and no table of few categories;
    else None: all rows are alone."""
    n, count = len(first), count_copies(first)
    few = n - count < FEW_KINDS and n >= KIND_ROWS * (n - count)
    return first if count > share * n and not few else None


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
