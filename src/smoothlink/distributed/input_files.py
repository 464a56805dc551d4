"""Data files that the workers of a cluster read: which workers see them, what they hold, whether they fit together."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import scipy.sparse as sp

from smoothlink.data import folder as data_folder
from smoothlink.data.files_on_disk import expanded
from smoothlink.data.read import Data, first_rows, read, sizes
from smoothlink.distributed.client import Cluster, raise_error
from smoothlink.errors import ClusterError, DataError
from smoothlink.fitting.checkpoint import checksum
from smoothlink.machines.rows_in_files import MappedMatrix

TEXT_BYTES = 8  # of a text per entry of X, compressed or not: a guess, until its rows are read


class Files(NamedTuple):
    """Data files that the workers of a cluster read themselves, with the options of `read`."""

    paths: tuple[str, ...]
    reading: dict[str, Any] = {}  # noqa: RUF012
    label_names: list[str] | None = None  # in place of those in the files
    feature_names: list[str] | None = None

    @classmethod
    def of(
        cls, paths: Any, *, label_names: list[str] | None = None, feature_names: list[str] | None = None, **reading: Any
    ) -> Files:
        """One path or several; a name with * stands for all files it fits."""
        if reading.get("labels_path") is not None:
            reading["labels_path"] = os.path.abspath(reading["labels_path"])
        return cls(tuple(absolute_paths(expanded(paths))), reading, label_names, feature_names)

    @property
    def sources(self) -> list[str]:
        """All files that are read."""
        labels = self.reading.get("labels_path")
        return [*self.paths, *([] if labels is None else [labels])]


# Paths: files that all machines see, and object stores


def is_url(path: str) -> bool:
    """Returns whether a path is that of an object store, such as s3://bucket/rows.sl."""
    return "://" in path


def absolute_paths(names: list[str]) -> list[str]:
    """Returns the paths of files as all machines know them; those of a store may have a *."""
    return [path for name in names for path in (expand_url(name) if is_url(name) else [os.path.abspath(name)])]


def expand_url(name: str) -> list[str]:
    """Returns the paths in a store that fit a name."""
    import fsspec

    store, pattern = fsspec.core.url_to_fs(name)
    fits = sorted(store.glob(pattern)) if "*" in pattern else [pattern]
    if not fits:
        raise DataError(f"No file fits {name}.\nCheck the path.")
    return [store.unstrip_protocol(path) for path in fits]


def local_copy(path: str) -> str:
    """Returns the path itself, or of a file or data folder in a store the path of a copy on this machine.

    Only this user can read the copy. It is made once while the file in the store does not change, and removed when the
    process ends.
    """
    if not is_url(path):
        return path
    import fsspec

    store, name = fsspec.core.url_to_fs(path)
    return download(path, store.ukey(name))


@functools.cache
def download(path: str, version: str) -> str:
    """Returns the path of a copy of this version of a file or folder. fsspec's own caches hold no folders."""
    import fsspec

    store, name = fsspec.core.url_to_fs(path.rstrip("/"))
    target = os.path.join(tempfile.mkdtemp(dir=copies_folder().name), os.path.basename(name))
    store.get(name, target, recursive=bool(store.isdir(name)))
    return target


@functools.cache
def copies_folder() -> tempfile.TemporaryDirectory[str]:
    """Returns the folder (mode 0700) of the copies that this process made."""
    return tempfile.TemporaryDirectory(prefix="smoothlink-")


def check_visible(cluster: Cluster, paths: Sequence[str]) -> None:
    """Raises ClusterError where a worker does not see one of the files."""
    results = cluster.run_on_each(missing_paths, list(paths))
    found = {worker: raise_error(missing) for worker, missing in results.items()}
    for worker, missing in found.items():
        if missing:
            who = "No worker sees" if all(found.values()) else f"The worker {worker} does not see"
            raise ClusterError(f"{who} {missing[0]}.\nPut it where all workers can read it, under the same name.")


def missing_paths(paths: list[str]) -> list[str]:
    """Returns those paths that this worker does not see."""
    return [path for path in paths if not exists(path)]


def exists(path: str) -> bool:
    """Returns whether a file, or an object of a store, exists."""
    if not is_url(path):
        return os.path.exists(path)
    import fsspec

    store, name = fsspec.core.url_to_fs(path)
    return bool(store.exists(name))


# Rows of a file


class FilePiece(NamedTuple):
    """Rows of a data file that a worker reads itself."""

    path: str
    start: int
    stop: int
    reading: dict[str, Any]  # options of `read`

    def load(self) -> OpenFile:
        """Reads the file; a data folder is only opened."""
        path = local_copy(self.path)
        data = data_folder.open_folder(path) if data_folder.is_folder(path) else read(path, **self.reading)
        return OpenFile(path, data, self.start, self.stop)

    def first_rows(self, count: int) -> Any:
        """Returns X of a few rows."""
        path = local_copy(self.path)
        if data_folder.is_folder(path):
            return self.load().between(0, min(count, self.stop))[0]
        return first_rows(path, count, **self.reading)


class OpenFile(NamedTuple):
    """Some rows of an open data file. Rows of a data folder are read and checked when they are taken."""

    path: str
    data: Data
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    def between(self, start: int, stop: int) -> tuple[Any, sp.csr_array]:
        """Returns X and Y of some rows."""
        X, Y = (A[self.start + start : self.start + stop] for A in self.data[:2])
        if isinstance(self.data.X, MappedMatrix):
            data_folder.check_rows(self.path, X, Y)
        return X, Y


# What the files hold


class Header(NamedTuple):
    """The columns of a file, and how much it holds."""

    rows: int
    features: int
    labels: int
    entries: int  # of X, or about as many where only the rows would tell
    label_names: list[str] | None  # of the first file only, where there are several
    feature_names: list[str] | None
    digests: tuple[str, str] = ("", "")  # of both lists of names: they must be the same in all files
    zero_based: bool | None = None  # as in `Data`


def read_header(path: str, reading: dict[str, Any], with_names: bool) -> Header:
    """Reads a file as far as it takes to know what it holds: its header, or where it has none all rows.

    with_names: whether its names are wanted too, and not only their digests.
    """
    local = local_copy(path)
    found = sizes(local, **reading)
    if found is None:
        header = header_of(read(local, **reading))
    else:
        entries = os.path.getsize(local) // TEXT_BYTES if found.entries is None else found.entries
        names = found.label_names, found.feature_names
        header = Header(found.rows, found.features, found.labels, entries, *names, digests(*names))
    return header if with_names else header._replace(label_names=None, feature_names=None)


def header_of(data: Data) -> Header:
    """Returns the header of the file that data was read from."""
    names = data.label_names, data.feature_names
    return Header(
        data.X.shape[0], data.X.shape[1], data.Y.shape[1], data.X.nnz, *names, digests(*names), data.zero_based
    )


def digests(*lists: list[str] | None) -> tuple[str, str]:
    """Returns a checksum of each of two lists of names."""
    first, second = ("" if n is None else hashlib.sha256("\n".join(n).encode()).hexdigest() for n in lists)
    return first, second


def counted_from_zero(found: Sequence[Data | Header]) -> bool | None:
    """Returns whether the features of svmlight files count from 0: where one file has a feature 0, those of all do."""
    known = [part.zero_based for part in found if part.zero_based is not None]
    return any(known) if known else None


def read_headers(cluster: Cluster, files: Files) -> list[Header]:
    """Returns the headers of all files, which the workers read; raises an error for files that cannot be used."""
    total = len(files.paths)
    tasks = [
        cluster.submit_checked(f"header {i}/{total}", read_header, path, files.reading, i == 1)
        for i, path in enumerate(files.paths, 1)
    ]
    headers: list[Header] = cluster.results(tasks)
    if not any(header.rows for header in headers):
        raise DataError(f"{files.paths[0]} has no rows: there is nothing to learn from.")
    return headers


def checksums(cluster: Cluster, files: Files) -> dict[str, Any]:
    """Returns the checksums of all files, which the workers read."""
    tasks = [cluster.submit_checked("checksum", file_checksums, path, files.reading) for path in files.paths]
    return {f"checksum of {path}": sums for path, sums in zip(files.paths, cluster.results(tasks), strict=True)}


def file_checksums(path: str, reading: dict[str, Any]) -> list[int]:
    """Returns the checksums of X and Y of a file."""
    data = read(local_copy(path), **reading)
    return [checksum(data.X), checksum(data.Y)]


def with_given_names(header: Header, files: Files) -> Header:
    """Returns the header with the names that were given; raises DataError where they are not as many as the columns."""
    for noun in ("label", "feature"):
        names, count = getattr(files, f"{noun}_names"), getattr(header, f"{noun}s")
        if names is not None and len(names) != count:
            raise DataError(f"There are {len(names)} {noun} names, and the data has {count} {noun}s.\nName each once.")
    return header._replace(
        label_names=files.label_names or header.label_names, feature_names=files.feature_names or header.feature_names
    )


def check_alike(paths: Sequence[str], headers: list[Header]) -> None:
    """Raises DataError where two files have different columns."""
    first = headers[0]
    for path, header in zip(paths[1:], headers[1:], strict=True):
        for noun in ("features", "labels"):
            a, b = getattr(first, noun), getattr(header, noun)
            if a != b:
                raise DataError(
                    f"{paths[0]} has {a} {noun} and {path} has {b}; the files of one fit must agree.\n"
                    f"Fix the headers, or pass --{noun} with the number for all."
                )
        for noun, ours, theirs in zip(("label", "feature"), first.digests, header.digests, strict=True):
            if ours != theirs:
                raise DataError(
                    f"{paths[0]} and {path} have different {noun} names; the files of one fit must agree.\n"
                    "Give all the same list of names, in the same order."
                )
