"""Arrays whose rows are on the workers of a cluster, in parts: what is computed of them stays there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.distributed import tasks
from smoothlink.distributed.client import Cluster

Array = NDArray[Any]


class RemoteArray:
    """An array (n, k) whose rows are on the workers, in parts."""

    dtype = np.dtype(np.float32)

    def __init__(
        self, cluster: Cluster, parts: list[Any], starts: Array, shape: tuple[int, int], source: Sequence[Any] = ()
    ) -> None:
        self.cluster, self.parts, self.starts, self.shape = cluster, parts, starts, shape
        self.source = source  # what it was computed from: a worker that dies loses its part, which is computed again

    @classmethod
    def split(
        cls, cluster: Cluster, like: list[Any], shape: tuple[int, int], make: Callable[[slice, Any], Any]
    ) -> RemoteArray:
        """Returns an array in as many parts as `like`, and on the same workers, dead or alive; `make` submits the task
        of some rows to a worker."""
        rows = split_evenly(shape[0], len(like))
        parts = [make(part, cluster.worker_of(other)) for part, other in zip(rows, like, strict=False)]
        return cls(cluster, parts, np.array([part.start for part in rows]), shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        """Returns some rows on the client, by number in any order or a slice; or, by [:, columns], a remote array."""
        if isinstance(key, tuple):
            return self.map(tasks.take_columns, key[1], width=len(np.arange(self.shape[1])[key[1]]))
        numbers = np.arange(self.shape[0])[key] if isinstance(key, slice) else np.asarray(key)
        out = np.empty((len(numbers), self.shape[1]), np.float32)
        partition = np.searchsorted(self.starts, numbers, side="right") - 1
        places = {i: np.flatnonzero(partition == i) for i in np.unique(partition).tolist()}
        found = {
            i: self.cluster.submit("rows", tasks.take_array_rows, self.parts[i], numbers[place] - self.starts[i])
            for i, place in places.items()
        }
        for i, rows in self.cluster.gather(found).items():
            out[places[i]] = rows
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Returns all rows on the client."""
        whole: Array = np.vstack(self.cluster.gather(self.parts))
        self.cluster.count_bytes(whole.nbytes)
        return whole if dtype is None else whole.astype(dtype)

    def map(self, f: Callable[..., Array], *others: Any, width: int | None = None) -> RemoteArray:
        """Returns f(part, *others) of each part, with its part of others that are remote; it has `width` columns."""
        shape = (self.shape[0], self.shape[1] if width is None else width)
        return RemoteArray(self.cluster, self._submit(f, others), self.starts, shape)

    def results(self, f: Callable[..., Any], *others: Any) -> list[Any]:
        """Returns f(part, *others) of each part, on the client."""
        found: list[Any] = self.cluster.gather(self._submit(f, others))
        self.cluster.count_bytes(sum(np.asarray(one).nbytes for one in found))
        return found

    def _submit(self, f: Callable[..., Any], others: Sequence[Any]) -> list[Any]:
        held = [self.cluster.hold(A) for A in others]
        return [
            self.cluster.submit("part", f, part, *(A.parts[i] if isinstance(A, RemoteArray) else A for A in held))
            for i, part in enumerate(self.parts)
        ]


def split_evenly(n: int, workers: int) -> list[slice]:
    """Returns n rows, or labels, in as many parts as there are workers."""
    edges = np.linspace(0, n, max(1, min(n, workers)) + 1).astype(int)
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]
