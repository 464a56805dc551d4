"""What a fit on a cluster costs by stage: operations, bytes over the network, memory a worker, and the seconds that
follow from a machine's rates. docs/scaling.md is made of it and of results/cluster/."""

from __future__ import annotations

import math
from typing import NamedTuple

from smoothlink.distributed.distributed_fit import PREPARED_BYTES
from smoothlink.distributed.rows_on_workers import COLUMNS_BYTES
from smoothlink.distributed.tasks import BLOCK_ROWS
from smoothlink.machines.host_and_device import HOST_COLUMNS
from smoothlink.steps.squared import PHI_ROWS

SOLVES = 2  # of one power step and the last projection


class Shape(NamedTuple):
    """A problem and its settings."""

    n: float  # rows
    d: float  # features
    c: float  # labels
    per_row: float  # features per row
    labels_per_row: float
    k: int  # rank
    s: int  # random features
    iterations: float  # of conjugate gradients, mean of all columns
    oversample: int = 20

    @property
    def m(self) -> int:
        return self.k + self.oversample

    @property
    def entries(self) -> float:
        """Of X, with its constant."""
        return self.n * (self.per_row + 1)

    @property
    def wide(self) -> float:
        """Bytes of a (d, k + l) array."""
        return 4 * self.d * self.m

    @property
    def labelled(self) -> float:
        """Bytes of a (c, k + l) array."""
        return 4 * self.c * self.m


class Machine(NamedTuple):
    """Rates of one worker, and the network between all."""

    sparse: float  # operations per second of products with sparse rows
    dense: float  # of float32 matrix products
    double: float  # of float64 factors and solves, of the client
    network: float  # bytes per second of a link
    disk: float = 1e9  # bytes per second
    shared: bool = False  # one link for all, as between the processes of one machine
    cores: int | None = None  # that the workers share; None: each has its own


class Stage(NamedTuple):
    """What one stage takes."""

    name: str
    work: float  # operations, of all workers
    moved: float  # bytes over the network, in all: the least that the plan allows
    memory: float  # bytes a worker holds at its peak, its rows included
    computing: float  # seconds
    sending: float  # seconds

    @property
    def seconds(self) -> float:
        return self.computing + self.sending


class Traffic(NamedTuple):
    """Arrays between the client and all workers, and between workers, in bytes of one such array."""

    out: float = 0.0  # sent to every worker
    back: float = 0.0  # summed over all workers, to the client
    dealt: float = 0.0  # between the client and workers in parts: each worker has its own
    fetched: float = 0.0  # that every worker gets from the others that own parts of it, or gives them its part of
    turned: float = 0.0  # of which workers had some columns each, and then have some rows each

    def moved(self, workers: int) -> float:
        """A sum of W arrays takes W - 1 transfers between workers, and one to the client."""
        return workers * (self.out + self.back) + self.dealt + self._between(workers)

    def _between(self, workers: int) -> float:
        return (workers - 1) * (self.fetched + self.turned / workers)

    def seconds(self, workers: int, machine: Machine) -> float:
        """One after the other on a shared link; else down a tree of workers and up again, and on all links at once
        between workers."""
        if machine.shared:
            return self.moved(workers) / machine.network
        hops = 1 + math.ceil(math.log2(max(1, workers)))
        return (hops * (self.out + self.back) + self.dealt + self._between(workers) / workers) / machine.network


def stages(z: Shape, machine: Machine, workers: int, plan: str = "rows", *, shards: bool = False) -> list[Stage]:
    """A fit by squared loss with one power step: two projections, then the link's sums and the decoder."""
    parallel = workers if machine.cores is None else min(workers, machine.cores)
    held = rows_held(z, workers, plan)
    return [
        read(z, machine, workers, plan),
        embed(z, machine, workers, plan, parallel, held),
        featurize(z, machine, workers, parallel, shards),
        fit(z, machine, workers, shards),
    ]


def rows_held(z: Shape, workers: int, plan: str = "rows") -> float:
    """Bytes of X a worker, ready for products."""
    return PREPARED_BYTES * z.entries / (1 if plan == "columns" else workers)


def bar(z: Shape, workers: int, plan: str) -> float:
    """What a worker may hold while it embeds: its share of X and four (d, k + l) arrays."""
    return rows_held(z, workers, plan) + 4 * z.wide


def group(z: Shape, workers: int) -> float:
    """Columns that advance together where rows are partitioned."""
    some = math.ceil(z.m / workers / HOST_COLUMNS) * HOST_COLUMNS
    return min(z.m, some, max(HOST_COLUMNS, COLUMNS_BYTES // int(4 * z.d) // HOST_COLUMNS * HOST_COLUMNS))


def read(z: Shape, machine: Machine, workers: int, plan: str) -> Stage:
    """Files to rows; where columns are partitioned, every worker reads them all."""
    size = 8 * z.entries
    share = size if plan == "columns" else size / workers
    return Stage("read", 0, 0, share + 4 * size * BLOCK_ROWS / z.n, share / machine.disk, 0)


def embed(z: Shape, machine: Machine, workers: int, plan: str, parallel: int, held: float) -> Stage:
    """X'YQ, the solves and Y'XZ of both projections, and h."""
    a_solve = 4 * z.entries * z.m * z.iterations
    ends = 4 * (z.entries + z.n * z.labels_per_row) * z.m
    work = SOLVES * (a_solve + ends) + 2 * z.entries * z.k
    weights, directions = 4 * z.d * z.k, 4 * z.c * z.k  # W goes to every worker, for h; it and U come to the client
    sent = Traffic(out=weights, dealt=weights + directions, turned=SOLVES * 2 * z.labelled + z.wide)
    m = z.m / workers
    if plan == "rows":
        sent = sent._replace(fetched=SOLVES * 2 * (z.iterations * z.wide + z.wide + z.labelled))
        g = group(z, workers)
        groups = min(2, max(1.0, z.m / g / workers))  # whose vectors a worker has: z, r, p and Z
        # then z, r and p after a step; P, a part of a sum, and one that was fetched
        solving = 4 * g * ((4 * groups + 3) * z.d + 3 * max(z.c, z.d))
        memory = held + 4 * z.d * m + solving + 4 * BLOCK_ROWS * g
    else:
        memory = held + 4 * z.d * (m + 4 * min(HOST_COLUMNS, m)) + 4 * BLOCK_ROWS * m
    sending = sent.seconds(workers, machine)
    return Stage("embed", work, sent.moved(workers), memory, work / parallel / machine.sparse, sending)


def featurize(z: Shape, machine: Machine, workers: int, parallel: int, shards: bool) -> Stage:
    """Phi'Phi and Phi'Y; with shards the targets stay on the workers, some labels each."""
    gram, targets = 8.0 * z.s**2, 4 * z.c * z.s
    passes = 1 + (
        min(workers, z.labels_per_row) if shards else 0
    )  # rows are featurized again for parts of their labels
    dense, sparse = 2 * z.n * z.s * (z.k * passes + z.s), 2 * z.n * z.labels_per_row * z.s
    computing = (dense / machine.dense + sparse / machine.sparse) / parallel
    sent = Traffic(out=4 * z.k * z.s, back=gram if shards else gram + targets)
    moved, sending = sent.moved(workers), sent.seconds(workers, machine)
    if shards:  # every worker sums its part of every other's rows
        moved += (workers - 1) * targets
        sending += (workers - 1) * targets / machine.network / (1 if machine.shared else workers)
    kept = targets / workers if shards else targets
    rows = 8 * z.entries / workers + 4 * z.n / workers * z.k + 4 * z.d * z.k  # X, h and W
    return Stage("featurize", dense + sparse, moved, rows + 3 * (gram + kept) + 8 * PHI_ROWS * z.s, computing, sending)


def fit(z: Shape, machine: Machine, workers: int, shards: bool) -> Stage:
    """V by one factor: in the client, or with shards in each worker for its labels."""
    factor, solve = z.s**3 / 3, 2 * z.s**2 * z.c
    if not shards:
        return Stage("fit", factor + solve, 0, 0, (factor + solve) / machine.double, 0)
    sent = Traffic(out=8.0 * z.s**2)
    held = 8.0 * z.s**2 * 2 + 12 * z.c * z.s / workers
    work = factor * workers + solve
    return Stage(
        "fit", work, sent.moved(workers), held, work / workers / machine.double, sent.seconds(workers, machine)
    )


def client_memory(z: Shape, shards: bool) -> float:
    """Bytes in the client at its peak: U and W, the Gram matrix of the features and, without shards, targets and V."""
    return 4 * (z.c + z.d) * z.k + 8.0 * z.s**2 + (0 if shards else 12 * z.c * z.s)
