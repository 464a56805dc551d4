"""Data files that the workers of a cluster read: who sees them, what they hold, and whether they fit together."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import scipy.sparse as sp

from smoothlink.data import folder as binary
from smoothlink.data.files_on_disk import expanded
from smoothlink.data.read import Data, first_rows, read, sizes
from smoothlink.distributed import tasks as shares
from smoothlink.distributed.rows_on_workers import Cluster
from smoothlink.distributed.tasks import Header
from smoothlink.errors import ClusterError, DataError
from smoothlink.fitting.checkpoint import checksum
from smoothlink.machines.rows_in_files import MappedMatrix

TEXT_BYTES = 8  # of a text for an entry of X, compressed or not: a guess, until its rows are read


class Files(NamedTuple):
    """Data files that the workers of a cluster read themselves; what `read` would be told of each."""

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
        return cls(tuple(for_all(expanded(paths))), reading, label_names, feature_names)

    @property
    def sources(self) -> list[str]:
        """All files that are read."""
        labels = self.reading.get("labels_path")
        return [*self.paths, *([] if labels is None else [labels])]


def for_all(names: list[str]) -> list[str]:
    """The same files by names that other machines understand; those of a store may have a *."""
    return [path for name in names for path in (stored(name) if shares.remote(name) else [os.path.abspath(name)])]


def stored(name: str) -> list[str]:
    """The paths in a store that fit a name."""
    import fsspec

    files, pattern = fsspec.core.url_to_fs(name)
    fits = sorted(files.glob(pattern)) if "*" in pattern else [pattern]
    if not fits:
        raise DataError(f"No file fits {name}.\nCheck the path.")
    return [files.unstrip_protocol(path) for path in fits]


class Piece(NamedTuple):
    """Rows of a data file that a worker reads itself."""

    path: str
    start: int
    stop: int
    reading: dict[str, Any]  # options of `read`

    def load(self) -> Source:
        path = shares.fetched(self.path)
        return Source(path, opened(path, self.reading), self.start, self.stop)

    def first(self, count: int) -> Any:
        """X of a few rows."""
        path = shares.fetched(self.path)
        if binary.is_folder(path):
            return Source(path, binary.opened(path), self.start, self.stop).between(0, min(count, self.stop))[0]
        return first_rows(path, count, **self.reading)


class Source(NamedTuple):
    """An open data file, of which some rows are asked for; data folders are read, and checked, only there."""

    path: str
    data: Data
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    def between(self, start: int, stop: int) -> tuple[Any, sp.csr_array]:
        X, Y = (A[self.start + start : self.start + stop] for A in self.data[:2])
        if isinstance(self.data.X, MappedMatrix):
            binary.check_rows(self.path, X, Y)
        return X, Y


def opened(path: str, reading: dict[str, Any]) -> Data:
    """What `read` gives, but of a data folder no row is looked at yet."""
    return binary.opened(path) if binary.is_folder(path) else read(path, **reading)


def describe(path: str, reading: dict[str, Any], named: bool) -> Header:
    """Reads a file as far as it takes to know what it holds: a header says so, where there is none all rows do.

    named: whether its names are wanted too, and not only what tells whether they are those of another file.
    """
    local = shares.fetched(path)
    found = sizes(local, **reading)
    if found is None:
        header = header_of(read(local, **reading))
    else:
        entries = os.path.getsize(local) // TEXT_BYTES if found.entries is None else found.entries
        names = found.label_names, found.feature_names
        header = Header(found.rows, found.features, found.labels, entries, *names, digests(*names))
    return header if named else header._replace(label_names=None, feature_names=None)


def header_of(data: Data) -> Header:
    """What a file says of its columns, by the data read from it."""
    names = data.label_names, data.feature_names
    return Header(
        data.X.shape[0], data.X.shape[1], data.Y.shape[1], data.X.nnz, *names, digests(*names), data.zero_based
    )


def counted_from_zero(found: Sequence[Data | Header]) -> bool | None:
    """Returns whether the features of svmlight files count from 0: where one file has a feature 0, those of all do."""
    known = [part.zero_based for part in found if part.zero_based is not None]
    return any(known) if known else None


def digests(*lists: list[str] | None) -> tuple[str, str]:
    """What tells lists of names from others."""
    first, second = ("" if n is None else hashlib.sha256("\n".join(n).encode()).hexdigest() for n in lists)
    return first, second


def described(cluster: Cluster, files: Files) -> list[Header]:
    """What the files hold, by the workers; files that cannot be used are refused."""
    many = f"/{len(files.paths)}"
    tasks = [
        cluster.submit(f"describe {i}{many}", shares.told, describe, path, files.reading, i == 1)
        for i, path in enumerate(files.paths, 1)
    ]
    headers: list[Header] = answered(cluster, tasks)
    if not any(header.rows for header in headers):
        raise DataError(f"{files.paths[0]} has no rows: there is nothing to learn from.")
    return headers


def checksums(cluster: Cluster, files: Files) -> dict[str, Any]:
    """Of all files, by the workers."""
    tasks = [cluster.submit("checksum", shares.told, contents, path, files.reading) for path in files.paths]
    found = answered(cluster, tasks)
    return {f"checksum of {path}": sums for path, sums in zip(files.paths, found, strict=True)}


def contents(path: str, reading: dict[str, Any]) -> list[int]:
    """What tells the rows of a file from others."""
    data = read(shares.fetched(path), **reading)
    return [checksum(data.X), checksum(data.Y)]


def answered(cluster: Cluster, tasks: list[Any]) -> list[Any]:
    """What tasks that were `told` bring; the first error that has words for itself is raised."""
    found: list[Any] = cluster.gather(tasks)
    for answer in found:
        if isinstance(answer, Exception):
            raise answer
    return found


def renamed(header: Header, files: Files) -> Header:
    """The header with the names that were given, if they are as many as the columns."""
    for noun in ("label", "feature"):
        names, count = getattr(files, f"{noun}_names"), getattr(header, f"{noun}s")
        if names is not None and len(names) != count:
            raise DataError(f"There are {len(names)} {noun} names, and the data has {count} {noun}s.\nName each once.")
    return header._replace(
        label_names=files.label_names or header.label_names, feature_names=files.feature_names or header.feature_names
    )


def check_seen(cluster: Cluster, paths: Sequence[str]) -> None:
    """Whether every worker sees every file."""
    with cluster.speaking():
        answers = cluster.client.run(shares.missing, list(paths))
    for worker, lacking in answers.items():
        if lacking:
            who = "No worker sees" if all(answers.values()) else f"The worker {worker} does not see"
            raise ClusterError(f"{who} {lacking[0]}.\nPut it where all workers can read it, under the same name.")


def check_alike(paths: Sequence[str], headers: list[Header]) -> None:
    """Whether all files speak of the same columns."""
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
