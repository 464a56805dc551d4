"""Rows in one process: the data as blocks of rows, which the algorithms meet only through sums over blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.arrays import to_host, zeros
from smoothlink.machines.host_and_device import HOST, Machine
from smoothlink.machines.rows_in_files import FileArray, LazyBlock, Room, ScaledRows, loaded

Array = NDArray[Any]


class Block(NamedTuple):
    """Some consecutive rows of the data."""

    X: Any  # (b, d) a Matrix; in `rows.blocks` it may be Elsewhere
    Y: Any  # (b, c) a sparse Matrix
    w: Any  # (b,) weights, float32
    start: int  # number of its first row among all rows


class SavedSums(Protocol):
    """Where the totals of a pass are put by."""

    def load(self) -> tuple[int, list[Array] | None]:
        """How many rows are in the totals put by, and those."""

    def put(self, rows: int, totals: list[Array], *, last: bool) -> None:
        """Takes note of the totals of so many rows."""


class Rows:
    """X (n, d), Y (n, c) and weights w (n,), cut into blocks of rows.

    `rows.sum(f, *arrays, out=shape)` calls the top-level function `f(block, *arrays, out)` for each block; f adds
    into `out`. Nothing else of the data is seen by the algorithms, so where the blocks live is decided here alone:
    in memory, elsewhere until a sum reaches them, or on another machine than the host. Sums that are matrices, and what
    `map` makes, stay where the blocks are; sums that are vectors come back to the host.
    """

    remote = False  # whether blocks are in other processes
    partitions_columns = False  # whether `over_columns` does
    writes_decoder = False  # whether `write_decoder` fits V where the blocks are

    def __init__(self, blocks: list[Block], d: int, c: int, table: Any = None, machine: Machine = HOST) -> None:
        self.blocks, self.d, self.c = blocks, d, c
        self.table = table  # (n, d) all inputs, where they are one dense array
        self.n = blocks[-1].start + len(blocks[-1].w) if blocks else 0
        self.machine = machine

    @classmethod
    def of(
        cls,
        X: Any,
        Y: sp.csr_array,
        w: Array | None = None,
        *,
        block_rows: int | None = None,
        machine: Machine = HOST,
    ) -> Rows:
        """Rows over arrays in memory, or over a `Scaled` matrix elsewhere; X already has its constant column."""
        n, entries = X.shape[0], X.size if isinstance(X, np.ndarray) else X.nnz
        w = np.ones(n, np.float32) if w is None else np.asarray(w, np.float32)
        block_rows = block_rows or machine.block_rows(n, entries)
        room = Room(machine.room())
        blocks = []
        for start in range(0, n, block_rows):
            part = slice(start, min(n, start + block_rows))
            whole = part == slice(0, n)
            if isinstance(X, ScaledRows):
                inputs: Any = X.block(part, machine)
            elif room.left is None:
                inputs = machine.matrix(X if whole else X[part])
            else:
                inputs = LazyBlock(X, part, None, room, machine)
            blocks.append(Block(inputs, machine.matrix(Y if whole else Y[part]), machine.place(w[part]), start))
        table = X if isinstance(X, np.ndarray) and machine is HOST else None
        return cls(blocks, X.shape[1], Y.shape[1], table, machine)

    def place(self, A: Any) -> Any:
        """An array of the host, or a tuple of such, where the blocks are."""
        return self.machine.place(A)

    def each(self) -> Iterator[Block]:
        """The blocks one after the other, each in memory while it is looked at."""
        for block in self.blocks:
            yield block._replace(X=loaded(block.X))

    def release(self) -> None:
        """Keeps no block in memory that can be read again."""
        for block in self.blocks:
            if isinstance(block.X, LazyBlock):
                block.X.release()

    def weighted(self, w: Array) -> Rows:
        """The same blocks under other weights; weight 0 leaves a row out without a copy of X."""
        w = np.asarray(w, np.float32)
        blocks = [b._replace(w=self.place(w[b.start : b.start + len(b.w)])) for b in self.blocks]
        return Rows(blocks, self.d, self.c, self.table, self.machine)

    def with_inputs(self, H: Any) -> Rows:
        """The same labels and weights with the rows of H (n, k) in place of X: what the link function sees."""
        H = H if isinstance(H, FileArray) else self.place(H)
        blocks = []
        for b in self.blocks:
            part = slice(b.start, b.start + len(b.w))
            inputs = LazyBlock(H, part, machine=self.machine) if isinstance(H, FileArray) else H[part]
            blocks.append(b._replace(X=inputs if isinstance(H, FileArray) else self.machine.matrix(inputs)))
        return Rows(blocks, H.shape[1], self.c, H, self.machine)

    def with_scaled_labels(self, scale: Array) -> Rows:
        """Returns the same rows with column l of Y multiplied by scale[l]: label weights in the embedding."""
        blocks = []
        for b in self.blocks:
            Y = b.Y.csr
            Y = sp.csr_array((Y.data * scale[Y.indices], Y.indices, Y.indptr), Y.shape)
            blocks.append(b._replace(Y=self.machine.matrix(Y)))
        return Rows(blocks, self.d, self.c, machine=self.machine)

    def take(self, numbers: Array) -> Rows:
        """Some of the rows, by number ascending, as one block of their own."""
        parts = [numbers[(numbers >= b.start) & (numbers < b.start + len(b.w))] - b.start for b in self.blocks]
        X = stack([b.X.take(p) for b, p in zip(self.each(), parts, strict=True)])
        Y = stack([b.Y.take(p) for b, p in zip(self.blocks, parts, strict=True)])
        return Rows.of(X, Y, self.w[numbers], machine=self.machine)

    def compact(self) -> Rows:
        """The same rows in memory without the features that none of them has."""
        blocks = list(self.each())
        X = stack([b.X.csr for b in blocks]) if all(hasattr(b.X, "csr") for b in blocks) else None
        used = np.unique(X.indices) if X is not None else ()
        if X is None or len(used) == self.d:
            return self
        place = np.zeros(self.d, X.indices.dtype)
        place[used] = np.arange(len(used))
        A = sp.csr_array((X.data, place[X.indices], X.indptr), (self.n, len(used)))
        return Rows.of(A, stack([b.Y.csr for b in self.blocks]), self.w, machine=self.machine)

    def sum(self, f: Callable[..., None], *arrays: Any, out: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """The sum of f over all blocks: f adds its block's part into an array of shape `out`."""
        return self.sums(f, *arrays, outs=[(out, dtype)])[0]

    def sums(
        self,
        f: Callable[..., None],
        *arrays: Any,
        outs: list[tuple[tuple[int, ...], Any]],
        saved: SavedSums | None = None,
    ) -> list[Any]:
        """Several sums from one pass: f(block, *arrays, *totals) adds into arrays of these shapes and types.

        With `saved` the totals are put by now and then, and a pass that was cut off goes on from there.
        """
        done, totals = (0, None) if saved is None else saved.load()
        if totals is None:
            totals = [self.machine.zeros(shape, dtype) for shape, dtype in outs]
        totals, arrays = [self.place(total) for total in totals], tuple(map(self.place, arrays))
        for block in self.blocks:
            end = block.start + len(block.w)
            if end <= done:
                continue
            f(block._replace(X=loaded(block.X)), *arrays, *totals)
            if saved is not None:
                saved.put(end, [to_host(total) for total in totals], last=end == self.n)
        return [to_host(total) if total.ndim == 1 else total for total in totals]

    def columnwise(self, f: Callable[..., None], A: Any, side: int, dtype: Any = np.float32) -> Any:
        """The sum (side, m) of f(block, A, out) over all blocks, where column j of it depends on column j of A alone:
        other kinds of rows may take some at a time."""
        return self.sum(f, A, out=(side, A.shape[1]), dtype=dtype)

    def over_columns(self, f: Callable[..., Any], B: Any, *arguments: Any) -> Any:
        """f(rows, B, *arguments), a tuple of arrays whose columns belong to those of B, one by one: other kinds of rows
        may partition them."""
        return f(self, B, *arguments)

    def decoder_passes(
        self, sgd_passes: Callable[..., Iterator[Any]], features: Any, sums: Any, ridge: float, **settings: Any
    ) -> Iterator[Any]:
        """Returns sgd_passes(rows, features, sums, ridge, **settings), V after each pass over rows whose inputs are
        embeddings: other kinds of rows may partition the labels."""
        return sgd_passes(self, features, sums, ridge, **settings)

    def write_decoder(self, features: Any, sums: Any, settings: Any) -> Any:
        """Fits V where the blocks are, and returns it; only for rows with `writes_decoder`."""
        raise NotImplementedError("V is fitted by the caller")

    def columns(self, d: int) -> int:
        """That conjugate gradients advance together."""
        return self.machine.columns(d)

    def map(self, f: Callable[..., Any], *arrays: Any, into: Any = None) -> Any:
        """f(block, *arrays) of every block, row under row: in memory, or in a file."""
        out, arrays = into, tuple(map(self.place, arrays))
        for block in self.each():
            part = f(block, *arrays)
            if out is None and len(part) == self.n:
                return part
            out = zeros(part, (self.n, *part.shape[1:])) if out is None else out
            out[block.start : block.start + len(block.w)] = part if into is None else to_host(part)
        return out

    @property
    def w(self) -> Array:
        """All weights (n,)."""
        return np.concatenate([to_host(b.w) for b in self.blocks])

    def sample(self, count: int, seed: int) -> Array:
        """Numbers of up to `count` rows of positive weight, the same on every machine: the smallest hashes."""
        live = np.flatnonzero(self.w > 0)
        return np.sort(live[np.argsort(row_hash(live, seed), kind="stable")[:count]])

    def batches(self, size: int, *, seed: int, sweep: int) -> Iterator[Array]:
        """Row numbers of positive weight in batches; the order depends on (seed, sweep) alone, not on blocks."""
        live = np.flatnonzero(self.w > 0)
        order = live[np.argsort(row_hash(live, seed * 1_000_003 + sweep), kind="stable")]
        count = max(1, round(len(order) / size))
        yield from np.array_split(order, count)


def stack(parts: list[Any]) -> Any:
    """Matrices under one another, sparse or dense."""
    if len(parts) == 1:
        return parts[0]
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.vstack(parts)


def row_hash(numbers: Array, seed: int) -> Array:
    """A well-mixed 64-bit hash of (seed, global row number): splitmix64's finaliser."""
    x = numbers.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & 0xFFFFFFFFFFFFFFFF)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed
