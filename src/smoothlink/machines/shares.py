"""What the workers of a cluster do: each function is one task. A share is some consecutive rows on a worker, in blocks.

Tasks never change what they were given: a task whose worker dies is run again elsewhere, from the same arguments.
"""

from __future__ import annotations

import getpass
import hashlib
import importlib.metadata
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import SmoothLinkError
from smoothlink.machines.machine import BLOCK_ROWS
from smoothlink.machines.matrix import Sparse, matrix
from smoothlink.machines.rows import Block, Rows, stack

Array = NDArray[Any]

PHI_ROWS = 4096  # rows featurized at a time


class Given(NamedTuple):
    """Rows that were sent to a worker."""

    X: Any
    Y: sp.csr_array

    def load(self) -> tuple[Any, sp.csr_array]:
        return self.X, self.Y


class Share(NamedTuple):
    """Consecutive rows on a worker."""

    blocks: list[Block]
    start: int  # number of the first row among all
    rows: int


class Header(NamedTuple):
    """What a file says of its columns, and how much it holds."""

    rows: int
    features: int
    labels: int
    entries: int
    label_names: list[str] | None
    feature_names: list[str] | None


def told(f: Callable[..., Any], *arguments: Any) -> Any:
    """What f finds, or the error that it has words for: such a task would fail again, so Dask is not to repeat it."""
    try:
        return f(*arguments)
    except SmoothLinkError as error:
        return error


def missing(paths: list[str]) -> list[str]:
    """Those that this worker does not see."""
    return [path for path in paths if not seen(path)]


def remote(path: str) -> bool:
    """Whether a path is that of a store, such as s3://bucket/rows.sl."""
    return "://" in path


def seen(path: str) -> bool:
    if not remote(path):
        return os.path.exists(path)
    import fsspec

    files, name = fsspec.core.url_to_fs(path)
    return bool(files.exists(name))


def fetched(path: str) -> str:
    """The path itself, or of what is in a store a copy on this machine, which is made once."""
    if not remote(path):
        return path
    import fsspec

    files, name = fsspec.core.url_to_fs(path)
    digest = hashlib.sha256(f"{path} {files.ukey(name)}".encode()).hexdigest()[:16]
    folder = os.path.join(tempfile.gettempdir(), f"smoothlink-{getpass.getuser()}", digest)
    target = os.path.join(folder, os.path.basename(name.rstrip("/")))
    if not os.path.exists(target):
        os.makedirs(folder, exist_ok=True)
        partial = f"{target}.{secrets.token_hex(4)}"
        files.get(name.rstrip("/"), partial, recursive=bool(files.isdir(name)))
        try:
            os.rename(partial, target)
        except OSError:  # another process was faster
            shutil.rmtree(partial, ignore_errors=True)
    return target


def version() -> str:
    """Of this library, as the worker has it."""
    return importlib.metadata.version("smoothlink")


def label_range(share: Share) -> tuple[int, int]:
    """The fewest and the most labels of a row."""
    counts = np.concatenate([np.diff(b.Y.csr.indptr) for b in share.blocks])
    return int(counts.min(initial=1 << 30)), int(counts.max(initial=0))


def first_rows(piece: Any, count: int) -> Any:
    """X of a few rows."""
    return piece.load()[0][:count]


def load_share(pieces: list[Any], start: int, scaling: Callable[[Any], Any], block_rows: int | None) -> Share:
    """Reads rows, scales them and cuts them into blocks."""
    parts = [piece.load() for piece in pieces]
    X, Y = stack([X for X, _ in parts]), stack([Y for _, Y in parts])
    rows = Rows.of(scaling(X), Y, block_rows=block_rows or BLOCK_ROWS)
    blocks = [block._replace(start=block.start + start) for block in rows.blocks]
    return Share(blocks, start, rows.n)


def weighted(share: Share, w: Array | None) -> list[Block]:
    """The blocks of a share under these weights."""
    if w is None:
        return share.blocks
    return [b._replace(w=w[b.start - share.start :][: len(b.w)]) for b in share.blocks]


def share_sums(
    f: Callable[..., None], share: Share, w: Array | None, outs: list[tuple[tuple[int, ...], Any]], *arrays: Any
) -> list[Array]:
    """What `Rows.sums` is for the rows of a share: one accumulator for all its blocks."""
    totals = [np.zeros(shape, dtype) for shape, dtype in outs]
    for block in weighted(share, w):
        f(block, *arrays, *totals)
    return totals


def added(a: list[Array], b: list[Array]) -> list[Array]:
    """Two totals as one."""
    return [x + y for x, y in zip(a, b, strict=True)]


def share_map(f: Callable[..., Array], share: Share, *arrays: Any) -> Array:
    """f of every block, row under row."""
    return np.concatenate([f(block, *arrays) for block in share.blocks])


def with_inputs(share: Share, H: Array) -> Share:
    """The same labels with the rows of H in place of X."""
    blocks = [b._replace(X=matrix(H[b.start - share.start :][: len(b.w)])) for b in share.blocks]
    return Share(blocks, share.start, share.rows)


def scaled_labels(share: Share, scale: Array) -> Share:
    """The same rows with column l of Y multiplied by scale[l]."""
    blocks = []
    for b in share.blocks:
        Y = b.Y.csr
        blocks.append(b._replace(Y=Sparse(sp.csr_array((Y.data * scale[Y.indices], Y.indices, Y.indptr), Y.shape))))
    return Share(blocks, share.start, share.rows)


def rows_in(share: Share, numbers: Array) -> tuple[Any, sp.csr_array]:
    """X and Y of some rows, by global number ascending."""
    X, Y = [], []
    for b in share.blocks:
        some = numbers[(numbers >= b.start) & (numbers < b.start + len(b.w))] - b.start
        X.append(b.X.take(some))
        Y.append(b.Y.take(some))
    return stack(X), stack(Y)


def labels_in(share: Share, numbers: Array) -> sp.csr_array:
    """Y of some rows."""
    parts = [numbers[(numbers >= b.start) & (numbers < b.start + len(b.w))] - b.start for b in share.blocks]
    return stack([b.Y.take(some) for b, some in zip(share.blocks, parts, strict=True)])


def label_columns(share: Share, labels: slice) -> sp.csr_array:
    """Some labels of all rows of a share."""
    return stack([b.Y.csr[:, labels] for b in share.blocks])


def array_rows(H: Array, numbers: Array) -> Array:
    """Some rows of an array, by position."""
    rows: Array = H[numbers]
    return rows


def some_labels(H: list[Array], Y: list[sp.csr_array], w: Array | None) -> Rows:
    """All rows, embedded, with some of their labels."""
    whole = np.concatenate(H)
    labels = stack(Y)
    plain = Rows.of(np.zeros((len(whole), 1), np.float32), labels, w)
    return plain.with_inputs(whole)


def columns_of(f: Callable[..., Any], whole: Share, w: Array | None, B: Array, *arguments: Any) -> Any:
    """f of all rows and some columns."""
    blocks = weighted(whole, w)
    first = blocks[0]
    return f(Rows(blocks, first.X.shape[1], first.Y.shape[1]), B, *arguments)


def share_targets(share: Share, w: Array | None, features: Any, labels: slice) -> Array:
    """Phi'WY (s + 1, m) of some labels of a share, whose inputs are embeddings."""
    blocks = weighted(share, w)
    total = np.zeros((labels.stop - labels.start, features.width(blocks[0].X.shape[1])), np.float32)
    for block in blocks:
        for start in range(0, len(block.w), PHI_ROWS):
            part = slice(start, min(len(block.w), start + PHI_ROWS))
            Phi = features(block.X.array[part])
            Phi *= block.w[part, None]
            block.Y.add_part(part, labels, Phi, total)
    return total.T


def sum_of(a: Array, b: Array) -> Array:
    return np.asarray(a + b)
