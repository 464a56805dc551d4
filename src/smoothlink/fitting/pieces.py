"""Data files as the workers of a cluster read them: on a file system that all see, or in a store through fsspec."""

from __future__ import annotations

import getpass
import hashlib
import os
import secrets
import shutil
import tempfile
from typing import Any, NamedTuple

import scipy.sparse as sp

from smoothlink.steps.read import Data, read


class Piece(NamedTuple):
    """Rows of a data file that a worker reads itself."""

    path: str
    start: int
    stop: int
    reading: dict[str, Any]  # options of `read`

    def load(self) -> tuple[Any, sp.csr_array]:
        data = read(fetched(self.path), **self.reading)
        return data.X[self.start : self.stop], data.Y[self.start : self.stop]


class Header(NamedTuple):
    """What a file says of its columns, and how much it holds."""

    rows: int
    features: int
    labels: int
    entries: int
    label_names: list[str] | None
    feature_names: list[str] | None


def describe(path: str, reading: dict[str, Any]) -> Header:
    """Reads a file as far as it takes to know what it holds: data folders say so, others are read whole."""
    return header_of(read(fetched(path), **reading))


def header_of(data: Data) -> Header:
    """What a file says of its columns, by the data read from it."""
    return Header(data.X.shape[0], data.X.shape[1], data.Y.shape[1], data.X.nnz, data.label_names, data.feature_names)


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
