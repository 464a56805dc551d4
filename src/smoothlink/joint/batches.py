"""Batches of rows for joint training: the same groups of rows in each pass, in a new order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class RowBatch(NamedTuple):
    """The rows of one step."""

    rows: Array  # (b,) numbers
    group: Array  # (b,) the group of each, numbered within the batch
    groups: Array  # the numbers of its groups
    rng: np.random.Generator  # for what the step samples


class RowBatches(NamedTuple):
    """Groups of rows, and how many of them each batch of a pass takes."""

    rows: Array  # (n,) those of the first group, then those of the second, ...
    starts: Array  # (groups + 1,) where each group starts in `rows`
    ends: Array  # (batches,) where each batch ends in the order of the groups
    per_batch: int  # groups
    seed: tuple[int, int]  # of the order of the groups; the pass follows
    step_seed: Callable[[int, int], list[int]]  # (pass, batch) -> seed of a step

    @classmethod
    def of_groups(cls, groups: list[Array], batch_rows: int, seed: int) -> RowBatches:
        """Returns batches of about so many rows, a few whole groups each."""
        starts = np.append(0, np.cumsum([len(rows) for rows in groups], dtype=np.int64))
        per_batch = max(1, round(batch_rows * len(groups) / max(1, int(starts[-1]))))
        count = -(-len(groups) // per_batch)
        ends = np.minimum(per_batch * np.arange(1, count + 1), len(groups))
        rows = np.concatenate(groups) if groups else np.zeros(0, np.int64)
        return cls(rows, starts, ends, per_batch, (seed, 6), lambda p, i: [seed, 7, p * count + i])

    @classmethod
    def of_rows(cls, rows: Array, batch_rows: int, seed: int) -> RowBatches:
        """Returns batches of about so many rows, of equal size, each row being a group of its own."""
        number = np.arange(1, max(1, round(len(rows) / batch_rows)) + 1)
        size, left = divmod(len(rows), len(number))
        ends = size * number + np.minimum(number, left)
        return cls(rows, np.arange(len(rows) + 1), ends, size, (seed, 11), lambda p, i: [seed, 12, p, i])

    @property
    def groups(self) -> int:
        return len(self.starts) - 1

    def in_pass(self, number: int) -> Iterator[RowBatch]:
        """Returns an iterator over the batches of one pass."""
        order = np.random.default_rng([*self.seed, number]).permutation(self.groups)
        for i, (start, end) in enumerate(zip([0, *self.ends], self.ends, strict=False)):
            groups = order[start:end]
            group, at = ranges(self.starts[groups], self.starts[groups + 1])
            yield RowBatch(self.rows[at], group, groups, np.random.default_rng(self.step_seed(number, i)))


def ranges(starts: Array, ends: Array) -> tuple[Array, Array]:
    """Returns all numbers of some ranges, one range after the other, after the range that each is of."""
    counts = ends - starts
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) + (starts - (np.cumsum(counts) - counts))[which]
