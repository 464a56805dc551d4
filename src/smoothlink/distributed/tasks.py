"""What the workers of a cluster compute: each function is one task.

Tasks never change their arguments: a task whose worker dies is run again on another, from the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import SmoothLinkError
from smoothlink.machines.copies import RowContents
from smoothlink.machines.matrices import Sparse, matrix
from smoothlink.machines.rows import Block, Rows, stack
from smoothlink.steps.scale import ColumnStatistics
from smoothlink.steps.squared import add_link_sums

Array = NDArray[Any]

# Rows of X in a block on a worker. The workers of a machine share its caches: of 64 columns X P takes 4 MB. For X'XP
# two workers with half of 500,000 rows of 40 features each took 1.49 processor seconds with 65,536 rows in a block (one
# process, with all rows: 1.02), 1.22 with 32,768, and 1.07 with these.
BLOCK_ROWS = 16384


def return_error(f: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what f returns, or the error of this package that it raises: Dask would repeat a task that fails."""
    try:
        return f(*arguments)
    except SmoothLinkError as error:
        return error


def fetch(_: Any) -> None:
    """Leaves a copy of the argument on this worker, for others to fetch."""


def same(A: Any) -> Any:
    """Returns its argument, which is now the result of a task."""
    return A


# Partitions: consecutive rows on one worker


class Partition(NamedTuple):
    """Consecutive rows on a worker, in blocks."""

    blocks: list[Block]
    start: int  # number of the first row among all
    rows: int
    contents: Sequence[RowContents] = ()  # of each block

    def weighted(self, w: Array | None) -> list[Block]:
        """Returns the blocks with these weights of the rows of the partition; None: with those that they have."""
        if w is None:
            return self.blocks
        return [b._replace(w=w[b.start - self.start :][: len(b.w)]) for b in self.blocks]


class ArrayPiece(NamedTuple):
    """Rows that the client sent to a worker."""

    X: Any
    Y: sp.csr_array

    def load(self) -> ArrayPiece:
        return self

    def first_rows(self, count: int) -> Any:
        """Returns X of a few rows."""
        return self.X[:count]

    @property
    def rows(self) -> int:
        return int(self.Y.shape[0])

    def between(self, start: int, stop: int) -> tuple[Any, sp.csr_array]:
        """Returns X and Y of some rows."""
        return self.X[start:stop], self.Y[start:stop]


def first_rows(piece: Any, count: int) -> Any:
    """Returns X of a few rows of a piece."""
    return piece.first_rows(count)


def column_statistics(pieces: list[Any], w: Array | None) -> ColumnStatistics:
    """Returns the statistics of the rows of pieces, with weights w (n,)."""
    parts, before = [], 0
    for source in (piece.load() for piece in pieces):
        for start in range(0, source.rows, BLOCK_ROWS):
            X, _ = source.between(start, min(source.rows, start + BLOCK_ROWS))
            weights = np.ones(X.shape[0]) if w is None else w[before : before + X.shape[0]]
            parts.append(ColumnStatistics.of(X, weights))
            before += X.shape[0]
    return reduce(add, parts)


def load_partition(pieces: list[Any], start: int, scaling: Callable[[Any], Any], block_rows: int | None) -> Partition:
    """Reads rows and scales them, a block at a time: where a file can be read in parts, X is never in memory twice."""
    sources = [piece.load() for piece in pieces]
    edges = np.cumsum([0, *(source.rows for source in sources)])
    n, step = int(edges[-1]), block_rows or BLOCK_ROWS
    blocks, contents = [], []
    for a in range(0, n, step):
        b = min(n, a + step)
        inside = [i for i in range(len(sources)) if edges[i] < b and edges[i + 1] > a]
        parts = [sources[i].between(max(0, a - edges[i]), min(edges[i + 1], b) - edges[i]) for i in inside]
        X, Y = (stack(list(kind)) for kind in zip(*parts, strict=True))
        contents.append(RowContents.of(X, Y))
        blocks.append(Block(matrix(scaling(X)), matrix(Y), np.ones(b - a, np.float32), start + a))
    return Partition(blocks, start, n, contents)


def load_all_partitions(
    pieces: list[list[Any]], starts: list[int], scaling: Callable[[Any], Any], block_rows: int | None
) -> Partition:
    """Reads the rows of all partitions as one."""
    found = [load_partition(p, start, scaling, block_rows) for p, start in zip(pieces, starts, strict=True)]
    blocks = [block for part in found for block in part.blocks]
    return Partition(blocks, 0, sum(part.rows for part in found), [one for part in found for one in part.contents])


def select_partition(all_rows: Any, start: int, stop: int) -> Any:
    """Returns one of the partitions that `load_all_partitions` read, in the same memory; an error as it is."""
    if isinstance(all_rows, Exception):
        return all_rows
    at = [i for i, block in enumerate(all_rows.blocks) if start <= block.start < stop]
    blocks, contents = ([found[i] for i in at] for found in (all_rows.blocks, all_rows.contents))
    return Partition(blocks, start, stop - start, contents)


class PartitionCounts(NamedTuple):
    """Counts by which a fit is checked and planned before it starts."""

    fewest_labels: int  # of a row
    most_labels: int
    entries: int  # of X
    contents: RowContents


def count_partition(partition: Any) -> Any:
    """Returns the counts of a partition, or the error that loading it gave."""
    if isinstance(partition, Exception):
        return partition
    labels = np.concatenate([np.diff(b.Y.csr.indptr) for b in partition.blocks])
    entries = sum(b.X.csr.nnz if isinstance(b.X, Sparse) else b.X.array.size for b in partition.blocks)
    contents = RowContents(*(np.concatenate(hashes) for hashes in zip(*partition.contents, strict=True)))
    return PartitionCounts(int(labels.min(initial=1 << 30)), int(labels.max(initial=0)), int(entries), contents)


def has_sparse_inputs(partition: Partition) -> bool:
    """Returns whether X of a partition is sparse."""
    return all(isinstance(block.X, Sparse) for block in partition.blocks)


# Sums and maps over a partition


def sum_partition(
    f: Callable[..., None], partition: Partition, w: Array | None, outs: list[tuple[tuple[int, ...], Any]], *arrays: Any
) -> list[Array]:
    """Returns `Rows.sums` over the rows of a partition."""
    totals = [np.zeros(shape, dtype) for shape, dtype in outs]
    for block in partition.weighted(w):
        f(block, *arrays, *totals)
    return totals


def add_totals(a: list[Array], b: list[Array]) -> list[Array]:
    """Returns the sums of two lists of totals."""
    return [np.asarray(x + y) for x, y in zip(a, b, strict=True)]


def map_partition(f: Callable[..., Array], partition: Partition, *arrays: Any) -> Array:
    """Returns f of every block of a partition, row under row."""
    out: Array | None = None
    for block in partition.blocks:
        part = f(block, *arrays)
        out = np.empty((partition.rows, *part.shape[1:]), part.dtype) if out is None else out
        out[block.start - partition.start :][: len(part)] = part
    assert out is not None
    return out


def replace_inputs(partition: Partition, H: Array) -> Partition:
    """Returns the same labels with the rows of H in place of X, which no product will need now."""
    for b in partition.blocks:
        b.X.release()
    blocks = [b._replace(X=matrix(H[b.start - partition.start :][: len(b.w)])) for b in partition.blocks]
    return partition._replace(blocks=blocks)


def scale_labels(partition: Partition, scale: Array) -> Partition:
    """Returns `Rows.with_scaled_labels` of the rows of a partition."""
    return partition._replace(blocks=Rows(partition.blocks, 0, len(scale)).with_scaled_labels(scale).blocks)


def partition_targets(partition: Partition, w: Array | None, features: Any, labels: slice) -> list[Array]:
    """Returns Y'WPhi (m, s + 1) of some labels of a partition whose inputs are embeddings.

    Rows without these labels add nothing, and are not featurized.
    """
    blocks = partition.weighted(w)
    total = np.zeros((labels.stop - labels.start, features.width(blocks[0].X.shape[1])), np.float32)
    for block in blocks:
        Y = block.Y.csr[:, labels]
        some = np.flatnonzero(np.diff(Y.indptr))
        labelled = Block(matrix(block.X.array[some]), matrix(Y[some]), block.w[some], 0)
        add_link_sums(labelled, features, slice(0, len(total)), np.zeros((0, 0)), total)
    return [total]


# Some rows, some labels, some columns


def take_rows_and_labels(partition: Partition, numbers: Array) -> tuple[Any, sp.csr_array]:
    """Returns X and Y of some rows, by number among all rows ascending."""
    parts = [numbers[(numbers >= b.start) & (numbers < b.start + len(b.w))] - b.start for b in partition.blocks]
    X = [b.X.take(some) for b, some in zip(partition.blocks, parts, strict=True)]
    return stack(X), take_labels(partition, numbers)


def take_labels(partition: Partition, numbers: Array) -> sp.csr_array:
    """Returns Y of some rows, by number among all rows ascending."""
    parts = [numbers[(numbers >= b.start) & (numbers < b.start + len(b.w))] - b.start for b in partition.blocks]
    return stack([b.Y.take(some) for b, some in zip(partition.blocks, parts, strict=True)])


def take_columns(A: Array, columns: slice) -> Array:
    """Returns some columns of an array."""
    return np.ascontiguousarray(A[:, columns])


def take_array_rows(H: Array, numbers: Array) -> Array:
    """Returns some rows of an array, by position."""
    rows: Array = H[numbers]
    return rows


def label_columns(partition: Partition, labels: slice) -> sp.csr_array:
    """Returns some labels of all rows of a partition."""
    return stack([b.Y.csr[:, labels] for b in partition.blocks])


def rows_with_labels(H: list[Array], Y: list[sp.csr_array], w: Array | None) -> Rows:
    """Returns all rows, embedded, with some of their labels."""
    embedded = np.concatenate(H)
    return Rows.of(np.zeros((len(embedded), 1), np.float32), stack(Y), w).with_inputs(embedded)


def solve_columns(f: Callable[..., Any], all_rows: Partition, w: Array | None, B: Array, *arguments: Any) -> Any:
    """Returns f of all rows and some columns of B."""
    blocks = all_rows.weighted(w)
    return f(Rows(blocks, blocks[0].X.shape[1], blocks[0].Y.shape[1]), B, *arguments)
