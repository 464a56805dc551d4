"""Rows: the data as blocks of rows, which the algorithms meet only through sums over blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.arrays import to_host, zeros
from smoothlink.machines.host_and_device import HOST, Machine
from smoothlink.machines.matrices import row_range
from smoothlink.machines.rows_in_files import Budget, FileArray, LazyBlock, ScaledRows, load

Array = NDArray[Any]


class Block(NamedTuple):
    """Some consecutive rows of the data."""

    X: Any  # (b, d) a Matrix; in `rows.blocks` it may be a LazyBlock
    Y: Any  # (b, c) a sparse Matrix
    w: Any  # (b,) weights, float32
    start: int  # number of its first row among all rows


class SavedSums(Protocol):
    """The totals of a sum over rows, saved now and then."""

    def load(self) -> tuple[int, list[Array] | None]:
        """Returns how many rows are in the saved totals, and the totals."""

    def save(self, rows: int, totals: list[Array], *, last: bool) -> None:
        """Saves the totals of so many rows, if it is time to or they are the last."""


class Rows:
    """X (n, d), Y (n, c) and weights w (n,), cut into blocks of rows.

    `rows.sum(f, *arrays, out=shape)` calls the top-level function `f(block, *arrays, out)` for each block; f adds
    into `out`. The algorithms see nothing else of the data, so where the blocks live is decided here alone: in memory,
    in files until a sum reaches them, or on a device. Sums that are matrices, and results of `map`, stay where the
    blocks are; sums that are vectors are copied to the host.
    """

    remote = False  # whether blocks are in other processes
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
        """Returns rows over arrays in memory, or over `ScaledRows`; the last column of X is the intercept's."""
        n, entries = X.shape[0], X.size if isinstance(X, np.ndarray) else X.nnz
        w = np.ones(n, np.float32) if w is None else np.asarray(w, np.float32)
        block_rows = block_rows or machine.block_rows(n, entries)
        budget = Budget(machine.block_bytes())
        blocks = []
        for start in range(0, n, block_rows):
            part = slice(start, min(n, start + block_rows))
            whole = part == slice(0, n)
            if isinstance(X, ScaledRows):
                inputs: Any = X.block(part, machine)
            elif budget.left is None:
                inputs = machine.matrix(X if whole else row_range(X, part))
            else:
                inputs = LazyBlock(X, part, None, budget, machine)
            blocks.append(
                Block(inputs, machine.matrix(Y if whole else row_range(Y, part)), machine.to_device(w[part]), start)
            )
        table = X if isinstance(X, np.ndarray) and machine is HOST else None
        return cls(blocks, X.shape[1], Y.shape[1], table, machine)

    def to_device(self, A: Any) -> Any:
        """Returns an array of the host, or a named tuple of such, where the blocks are."""
        return self.machine.to_device(A)

    @property
    def in_memory(self) -> bool:
        """Whether the blocks are here, and none is loaded when it is used."""
        return not self.remote and not any(isinstance(block.X, LazyBlock) for block in self.blocks)

    def each(self) -> Iterator[Block]:
        """Yields the blocks one after the other, each loaded while it is used."""
        for block in self.blocks:
            yield block._replace(X=load(block.X))

    def release(self) -> None:
        """Frees the memory of blocks that can be read again."""
        for block in self.blocks:
            if isinstance(block.X, LazyBlock):
                block.X.release()

    def weighted(self, w: Array) -> Rows:
        """Returns the same blocks with other weights; weight 0 leaves a row out without a copy of X."""
        w = np.asarray(w, np.float32)
        blocks = [b._replace(w=self.to_device(w[b.start : b.start + len(b.w)])) for b in self.blocks]
        return Rows(blocks, self.d, self.c, self.table, self.machine)

    def with_inputs(self, H: Any) -> Rows:
        """Returns the same labels and weights with the rows of H (n, k) in place of X: the inputs of the link."""
        lazy = isinstance(H, FileArray) or (isinstance(H, np.ndarray) and not self.machine.keeps(H.nbytes))
        H = H if lazy else self.to_device(H)
        blocks = []
        for b in self.blocks:
            part = slice(b.start, b.start + len(b.w))
            blocks.append(
                b._replace(X=LazyBlock(H, part, machine=self.machine) if lazy else self.machine.matrix(H[part]))
            )
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
        """Returns some of the rows, by number ascending, as one block."""
        parts = [numbers[(numbers >= b.start) & (numbers < b.start + len(b.w))] - b.start for b in self.blocks]
        X = stack([b.X.take(p) for b, p in zip(self.each(), parts, strict=True)])
        Y = stack([b.Y.take(p) for b, p in zip(self.blocks, parts, strict=True)])
        return Rows.of(X, Y, self.w[numbers], machine=self.machine)

    def compact(self) -> Rows:
        """Returns the same rows in memory without the features that none of them has."""
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
        """Returns the sum of f over all blocks: f adds its block's part into an array of shape `out`."""
        return self.sums(f, *arrays, outs=[(out, dtype)])[0]

    def sums(
        self,
        f: Callable[..., None],
        *arrays: Any,
        outs: list[tuple[tuple[int, ...], Any]],
        saved: SavedSums | None = None,
    ) -> list[Any]:
        """Returns several sums from one pass: f(block, *arrays, *totals) adds into arrays of these shapes and types.

        With `saved` the totals are saved now and then, and a pass that was interrupted goes on from there.
        """
        done, totals = (0, None) if saved is None else saved.load()
        if totals is None:
            totals = [self.machine.zeros(shape, dtype) for shape, dtype in outs]
        totals, arrays = [self.to_device(total) for total in totals], tuple(map(self.to_device, arrays))
        for block in self.blocks:
            end = block.start + len(block.w)
            if end <= done:
                continue
            f(block._replace(X=load(block.X)), *arrays, *totals)
            if saved is not None:
                saved.save(end, [to_host(total) for total in totals], last=end == self.n)
        return [to_host(total) if total.ndim == 1 else total for total in totals]

    def columnwise(self, f: Callable[..., None], A: Any, side: int, dtype: Any = np.float32) -> Any:
        """Returns the sum (side, m) of f(block, A, out) over all blocks, where column j depends on column j of A alone:
        other kinds of rows may take some columns at a time."""
        return self.sum(f, A, out=(side, A.shape[1]), dtype=dtype)

    def solve_columns(self, solve: Any, B: Any) -> Any:
        """Returns the solution for B (d, m) by conjugate gradients whose columns stay where the blocks are; only for
        remote rows, as the next four."""
        raise NotImplementedError("columns are solved by the caller")

    def correction(self, solve: Any, rank: int) -> Any:
        """Returns the correction of a preconditioner, where the blocks are, with its `levels` on the host."""
        raise NotImplementedError("corrections are made by the caller")

    def project_columns(self, solve: Any, Q: Any, *, only_image: bool = False) -> tuple[Any, Any]:
        """Returns `steps.embed.project` of Q (c, m), in parts where the blocks are: Z, or None, and T."""
        raise NotImplementedError("columns are solved by the caller")

    def draw_labels(self, m: int, rng: np.random.Generator) -> Any:
        """Returns Gaussian numbers (c, m), in parts where the blocks are."""
        raise NotImplementedError("probes are drawn by the caller")

    def split_labels(self, A: Any) -> Any:
        """Returns an array (c, m) in parts where the blocks are."""
        raise NotImplementedError("arrays are whole")

    def decoder_passes(
        self, sgd_passes: Callable[..., Iterator[Any]], features: Any, sums: Any, ridge: float, **settings: Any
    ) -> Iterator[Any]:
        """Returns sgd_passes(rows, features, sums, ridge, **settings), V after each pass over rows whose inputs are
        embeddings: other kinds of rows may partition the labels."""
        return sgd_passes(self, features, sums, ridge, **settings)

    def write_decoder(self, features: Any, sums: Any, settings: Any) -> Any:
        """Fits V where the blocks are, and returns it; only for rows with `writes_decoder`."""
        raise NotImplementedError("V is fitted by the caller")

    @property
    def sparse(self) -> bool:
        """Returns whether blocks in other processes have sparse inputs; only for rows that are `remote`."""
        raise NotImplementedError("the blocks are in this process")

    def fit_joint(self, choice: Any, name: str, request: Any, clock: Any) -> Any:
        """Trains jointly where the blocks are, and returns the model; only for rows that are `remote`."""
        raise NotImplementedError("joint training runs in this process")

    def columns(self, d: int) -> int:
        """Returns how many columns conjugate gradients advance together."""
        return self.machine.columns(d)

    def map(self, f: Callable[..., Any], *arrays: Any, into: Any = None) -> Any:
        """Returns f(block, *arrays) of every block, row under row: in memory, or in the file `into`."""
        out, arrays = into, tuple(map(self.to_device, arrays))
        for block in self.each():
            part = f(block, *arrays)
            if out is None and len(part) == self.n:
                return part
            out = zeros(part, (self.n, *part.shape[1:])) if out is None else out
            out[block.start : block.start + len(block.w)] = part if into is None else to_host(part)
        return out

    @property
    def w(self) -> Array:
        """Returns all weights (n,)."""
        return np.concatenate([to_host(b.w) for b in self.blocks])

    def sample(self, count: int, seed: int) -> Array:
        """Returns numbers of up to `count` rows of positive weight, the same on every machine: the smallest hashes."""
        live = np.flatnonzero(self.w > 0)
        return np.sort(live[np.argsort(row_hash(live, seed), kind="stable")[:count]])

    def batches(self, size: int, *, seed: int, pass_number: int) -> Iterator[Array]:
        """Yields row numbers of positive weight in batches; their order depends on (seed, pass_number) alone."""
        live = np.flatnonzero(self.w > 0)
        order = live[np.argsort(row_hash(live, seed * 1_000_003 + pass_number), kind="stable")]
        count = max(1, round(len(order) / size))
        yield from np.array_split(order, count)


def stack(parts: list[Any]) -> Any:
    """Returns matrices under one another, sparse or dense."""
    if len(parts) == 1:
        return parts[0]
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.vstack(parts)


def row_hash(numbers: Array, seed: int) -> Array:
    """Returns a well-mixed 64-bit hash of (seed, row number): splitmix64's finaliser."""
    x = numbers.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & 0xFFFFFFFFFFFFFFFF)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed
