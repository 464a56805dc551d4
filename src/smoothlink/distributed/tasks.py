"""What the workers of a cluster do: each function is one task. A share is some consecutive rows on a worker, in blocks.

Tasks never change what they were given: a task whose worker dies is run again elsewhere, from the same arguments.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError, SmoothLinkError
from smoothlink.machines.host_and_device import BLOCK_ROWS
from smoothlink.machines.matrices import Sparse, matrix
from smoothlink.machines.rows import Block, Rows, stack

Array = NDArray[Any]

PHI_ROWS = 4096  # rows featurized at a time


class Given(NamedTuple):
    """Rows that were sent to a worker."""

    X: Any
    Y: sp.csr_array

    def load(self) -> Given:
        return self

    def first(self, count: int) -> Any:
        return self.X[:count]

    @property
    def rows(self) -> int:
        return int(self.Y.shape[0])

    def between(self, start: int, stop: int) -> tuple[Any, sp.csr_array]:
        return self.X[start:stop], self.Y[start:stop]


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
    entries: int  # of X, or about as many where only the rows would tell
    label_names: list[str] | None  # of the first file only, where there are several
    feature_names: list[str] | None
    digests: tuple[str, str] = ("", "")  # of both lists of names: they must be the same in all files
    zero_based: bool | None = None  # as in `Data`


def told(f: Callable[..., Any], *arguments: Any) -> Any:
    """What f finds, or the error that it has words for: such a task would fail again, so Dask is not to repeat it."""
    try:
        return f(*arguments)
    except SmoothLinkError as error:
        return error


def touch(_: Any) -> None:
    """What a task was given is on its worker now, for others to fetch."""


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
    folder = os.path.join(private_folder(), digest)
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


def private_folder() -> str:
    """A folder of this user that nobody else can write to or read: in its cache, not where everybody's files are."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(base, "smoothlink")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if hasattr(os, "getuid") and (not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid()):
        raise DataError(f"{folder} is not a folder of yours.\nMove it away, or set XDG_CACHE_HOME to another folder.")
    os.chmod(folder, 0o700)
    return folder


def version() -> str:
    """Of this library, as the worker has it."""
    return importlib.metadata.version("smoothlink")


class Seen(NamedTuple):
    """What is to be known of a share before work starts."""

    fewest: int  # labels of a row
    most: int
    entries: int  # of X


def looked_at(share: Any) -> Any:
    """What is to be known of a share, or the error that came of loading it."""
    if isinstance(share, Exception):
        return share
    counts = np.concatenate([np.diff(b.Y.csr.indptr) for b in share.blocks])
    entries = sum(b.X.csr.nnz if isinstance(b.X, Sparse) else b.X.array.size for b in share.blocks)
    return Seen(int(counts.min(initial=1 << 30)), int(counts.max(initial=0)), int(entries))


def first_rows(piece: Any, count: int) -> Any:
    """X of a few rows."""
    return piece.first(count)


def load_share(pieces: list[Any], start: int, scaling: Callable[[Any], Any], block_rows: int | None) -> Share:
    """Reads rows and scales them, a block at a time: of what can be read in parts, X is never there twice."""
    sources = [piece.load() for piece in pieces]
    edges = np.cumsum([0, *(source.rows for source in sources)])
    n, step = int(edges[-1]), block_rows or BLOCK_ROWS
    blocks = []
    for a in range(0, n, step):
        b = min(n, a + step)
        met = [i for i in range(len(sources)) if edges[i] < b and edges[i + 1] > a]
        parts = [sources[i].between(max(0, a - edges[i]), min(edges[i + 1], b) - edges[i]) for i in met]
        X, Y = (stack(list(kind)) for kind in zip(*parts, strict=True))
        blocks.append(Block(matrix(scaling(X)), matrix(Y), np.ones(b - a, np.float32), start + a))
    return Share(blocks, start, n)


def load_all(
    pieces: list[list[Any]], starts: list[int], scaling: Callable[[Any], Any], block_rows: int | None
) -> Share:
    """All shares as one."""
    found = [load_share(p, start, scaling, block_rows) for p, start in zip(pieces, starts, strict=True)]
    return Share([block for share in found for block in share.blocks], 0, sum(share.rows for share in found))


def share_of(whole: Any, start: int, stop: int) -> Any:
    """One of the shares that `load_all` read, in the same memory."""
    if isinstance(whole, Exception):
        return whole
    return Share([b for b in whole.blocks if start <= b.start < stop], start, stop - start)


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
    out: Array | None = None
    for block in share.blocks:
        part = f(block, *arrays)
        out = np.empty((share.rows, *part.shape[1:]), part.dtype) if out is None else out
        out[block.start - share.start :][: len(part)] = part
    assert out is not None
    return out


def with_inputs(share: Share, H: Array) -> Share:
    """The same labels with the rows of H in place of X, which no product will need now."""
    for b in share.blocks:
        b.X.release()
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
    """Phi'WY (s + 1, m) of some labels of a share, whose inputs are embeddings; rows without them need no features."""
    blocks = weighted(share, w)
    total = np.zeros((labels.stop - labels.start, features.width(blocks[0].X.shape[1])), np.float32)
    for block in blocks:
        Y = block.Y.csr[:, labels]
        rows = np.flatnonzero(np.diff(Y.indptr))
        for start in range(0, len(rows), PHI_ROWS):
            part = rows[start : start + PHI_ROWS]
            Phi = features(block.X.array[part])
            Phi *= block.w[part, None]
            Sparse(Y[part]).T.add_product(Phi, total)
    return total.T


def sum_of(a: Array, b: Array) -> Array:
    return np.asarray(a + b)
