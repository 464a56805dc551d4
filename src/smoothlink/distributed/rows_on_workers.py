"""Rows on the workers of a Dask cluster: `Rows` whose sums are one task per partition and a tree of additions.

Workers load their partitions of the rows and keep them. The algorithms see a `Rows` like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.distributed import tasks
from smoothlink.distributed.client import Cluster
from smoothlink.distributed.column_solves import ColumnSolves, RemoteCorrection, draw_rows, take_item
from smoothlink.distributed.decoder import distributed_passes, write_decoder_shards
from smoothlink.distributed.remote_array import RemoteArray
from smoothlink.machines.host_and_device import HOST_COLUMNS
from smoothlink.machines.rows import Rows, SavedSums, stack

if TYPE_CHECKING:
    from smoothlink.fitting.settings import Settings
    from smoothlink.solve.conjugate import GradientSolve
    from smoothlink.steps.featurize import Features
    from smoothlink.steps.squared import LinkSums
    from smoothlink.weights import ShardedWeights

Array = NDArray[Any]

COLUMNS_BYTES = 32 << 20  # of a (d, m) array that are sent and added at a time


class RemoteLabels:
    """Y (n, c) on the workers, of which some rows can be taken."""

    def __init__(self, rows: ClusterRows) -> None:
        self.rows, self.shape = rows, (rows.n, rows.c)

    def __getitem__(self, numbers: Array) -> sp.csr_array:
        return self.rows.gather_rows("labels", tasks.take_labels, np.asarray(numbers))[0]


class ClusterRows(Rows):
    """Rows whose blocks are on the workers of a cluster."""

    remote = True

    def __init__(
        self,
        cluster: Cluster,
        parts: list[Any],
        starts: Array,
        n: int,
        d: int,
        c: int,
        w: Array | None = None,
        all_rows: list[Any] | None = None,
    ) -> None:
        super().__init__([], d, c)
        self.cluster, self.parts, self.starts, self.n = cluster, parts, starts, n
        self.writes_decoder = cluster.shards is not None  # V in parts, so that it never comes to the client
        # All rows as one partition, for each worker its own, where columns are partitioned. Copies of one result would
        # not do: Dask removes those that no task waits for.
        self.all_rows = all_rows
        self.ends = np.append(starts[1:], n)
        self.columns_bytes = COLUMNS_BYTES
        self._w = w  # None: 1 each
        self.weights = (
            [None] * len(parts)
            if w is None
            else [cluster.submit("weights", np.asarray, w[a:b]) for a, b in zip(starts, self.ends, strict=True)]
        )

    def _with_parts(self, parts: list[Any], d: int) -> ClusterRows:
        """Returns rows with other partitions, and d inputs, under the same weights."""
        return ClusterRows(self.cluster, parts, self.starts, self.n, d, self.c, self._w)

    @property
    def w(self) -> Array:
        return np.ones(self.n, np.float32) if self._w is None else self._w

    def weighted(self, w: Array) -> ClusterRows:
        w = np.asarray(w, np.float32)
        found = ClusterRows(self.cluster, self.parts, self.starts, self.n, self.d, self.c, w, self.all_rows)
        found.table = self.table
        return found

    def with_inputs(self, H: Any) -> ClusterRows:
        parts = [
            self.cluster.submit("inputs", tasks.replace_inputs, partition, h)
            for partition, h in zip(self.parts, H.parts, strict=True)
        ]
        found = self._with_parts(parts, H.shape[1])
        found.table = H
        return found

    def with_scaled_labels(self, scale: Array) -> ClusterRows:
        parts = [self.cluster.submit("labels", tasks.scale_labels, partition, scale) for partition in self.parts]
        return self._with_parts(parts, self.d)

    def take(self, numbers: Array) -> Rows:
        """Returns some of the rows, by number ascending, on the client."""
        X, Y = self.gather_rows("rows", tasks.take_rows_and_labels, numbers, 2)
        return Rows.of(X, Y, self.w[numbers])

    def gather_rows(self, what: str, f: Callable[..., Any], numbers: Array, count: int = 1) -> list[Any]:
        """Returns what f takes of some rows, ascending, from each partition, stacked."""
        parts = [numbers[(numbers >= a) & (numbers < b)] for a, b in zip(self.starts, self.ends, strict=True)]
        futures = [self.cluster.submit(what, f, part, some) for part, some in zip(self.parts, parts, strict=True)]
        found = self.cluster.gather(futures)
        return [stack([part[i] if count > 1 else part for part in found]) for i in range(count)]

    def columns(self, d: int) -> int:
        """Returns whole panels of columns, so that two arrays of them, sent and returned, stay small on a worker."""
        return max(HOST_COLUMNS, self.columns_bytes // (4 * d) // HOST_COLUMNS * HOST_COLUMNS)

    def columnwise(self, f: Callable[..., None], A: Any, side: int, dtype: Any = np.float32) -> Any:
        """Sums some columns after the others: no worker holds all of A or of the sum."""
        m, width = A.shape[1], self.columns(max(side, len(A)))
        if m <= width:
            return self.sum(f, A, out=(side, m), dtype=dtype)
        out = np.empty((side, m), dtype)
        for start in range(0, m, width):
            part = np.ascontiguousarray(A[:, start : start + width])
            out[:, start : start + width] = self.sum(f, part, out=(side, part.shape[1]), dtype=dtype)
        return out

    def solve_columns(self, solve: GradientSolve, B: Any) -> Any:
        return ColumnSolves(self, solve).solutions(B)

    def project_columns(
        self, solve: GradientSolve, Q: RemoteArray, *, only_image: bool = False
    ) -> tuple[RemoteArray | None, RemoteArray]:
        return ColumnSolves(self, solve).project(Q, only_image=only_image)

    def correction(self, solve: GradientSolve, rank: int) -> RemoteCorrection:
        return ColumnSolves(self, solve).correction(rank)

    def draw_labels(self, m: int, rng: np.random.Generator) -> RemoteArray:
        drawn: list[Any] = []

        def draw(labels: slice, worker: str | None) -> Any:
            drawn.append(self.cluster.submit("draw", draw_rows, rng, labels.start, labels.stop, m, worker=worker))
            return self.cluster.submit("probes", take_item, drawn[-1], 0)

        found = RemoteArray.split(self.cluster, self.parts, (self.c, m), draw)
        rng.bit_generator.state = self.cluster.gather(self.cluster.submit("state", take_item, drawn[-1], 1))
        return found

    def split_labels(self, A: Any) -> RemoteArray:
        def send(labels: slice, worker: str | None) -> Any:
            part = self.cluster.hold(np.ascontiguousarray(A[labels]))
            return self.cluster.submit("labels", np.asarray, part, worker=worker)

        return A if isinstance(A, RemoteArray) else RemoteArray.split(self.cluster, self.parts, A.shape, send)

    @cached_property
    def held_weights(self) -> Any:
        """The weights of all rows, for workers that have them all."""
        return self.cluster.hold(self._w)

    def sums(
        self,
        f: Callable[..., None],
        *arrays: Any,
        outs: list[tuple[tuple[int, ...], Any]],
        saved: SavedSums | None = None,
    ) -> list[Any]:
        done, totals = (0, None) if saved is None else saved.load()
        if totals is not None and done == self.n:
            return totals

        def send_and_compute() -> list[Any]:
            sent = [self.cluster.send(A) for A in arrays]
            futures = [
                self.cluster.submit("sum", tasks.sum_partition, f, partition, w, outs, *sent)
                for partition, w in zip(self.parts, self.weights, strict=True)
            ]
            size = sum(np.dtype(kind).itemsize * math.prod(shape) for shape, kind in outs)
            self.cluster.count_bytes(len(self.parts) * size)
            total: list[Any] = self.cluster.client.gather(self.add_up(futures), direct=self.cluster.direct)
            return total

        found: list[Any] = self.cluster.retry_lost_arrays(send_and_compute)
        if saved is not None:
            saved.save(self.n, found, last=True)
        return found

    def add_up(self, totals: list[Any]) -> Any:
        """Returns the future of the sum of several totals, by a tree of additions on the workers."""
        while len(totals) > 1:
            pairs = [totals[i : i + 2] for i in range(0, len(totals), 2)]
            totals = [self.cluster.submit("add", tasks.add_totals, *p) if len(p) == 2 else p[0] for p in pairs]
        return totals[0]

    def map(self, f: Callable[..., Any], *arrays: Any, into: Any = None) -> Any:
        """Returns f of the blocks as an array that stays on the workers."""

        def send_and_compute() -> RemoteArray:
            sent = [self.cluster.send(A) for A in arrays]
            parts = [self.cluster.submit("map", tasks.map_partition, f, partition, *sent) for partition in self.parts]
            width = self.cluster.client.gather(self.cluster.submit("width", np.shape, parts[0]))[1]
            return RemoteArray(self.cluster, parts, self.starts, (self.n, width), sent)

        return self.cluster.retry_lost_arrays(send_and_compute)

    def decoder_passes(
        self, sgd_passes: Callable[..., Any], features: Features, sums: LinkSums, ridge: float, **settings: Any
    ) -> Iterator[Array]:
        """Yields V after each pass of the SGD: labels of the logistic loss partitioned among workers, softmax by
        sums."""
        return distributed_passes(self, features, sums, ridge, **settings)

    def write_decoder(self, features: Features, sums: LinkSums, settings: Settings) -> ShardedWeights:
        """Fits V on the workers, which write it beside the model file; returns it, mapped."""
        assert self.cluster.shards is not None
        return write_decoder_shards(self, features, sums, settings, self.cluster.shards)

    @property
    def sparse(self) -> bool:
        """Whether the inputs on the workers are sparse."""
        return bool(self.cluster.gather(self.cluster.submit("kind", tasks.has_sparse_inputs, self.parts[0])))

    def fit_joint(self, choice: Any, name: str, request: Any, clock: Any) -> Any:
        """Returns a model trained jointly, with sampled negatives: each worker takes steps on its own rows."""
        from smoothlink.distributed.joint_on_workers import train_on_workers  # its kernels take a second to import

        return train_on_workers(self, choice, name, request, clock)

    def compact(self) -> Rows:
        raise NotImplementedError("rows of a cluster are compacted once they were taken")

    def each(self) -> Iterator[Any]:
        raise NotImplementedError("rows of a cluster are not seen one block after the other")

    def release(self) -> None:
        """Does nothing: the workers keep their partitions."""
