"""What a fit on a cluster costs by stage: operations, bytes over the network and memory a worker, and the seconds that
follow from a machine's rates. docs/scaling.md is made of it and of benchmarks/results/cluster.json."""

from __future__ import annotations

import math
from typing import NamedTuple


class Shape(NamedTuple):
    """A problem and its settings."""

    n: float  # rows
    d: float  # features
    c: float  # labels
    per_row: float  # features a row
    labels_per_row: float
    k: int  # rank
    s: int  # random features
    oversample: int = 20
    iterations: int = 15  # of conjugate gradients

    @property
    def m(self) -> int:
        return self.k + self.oversample

    @property
    def entries(self) -> float:
        return self.n * (self.per_row + 1)


class Machine(NamedTuple):
    """Rates of one worker."""

    sparse: float  # operations a second of products with sparse rows
    dense: float  # of float32 matrix products
    double: float  # of float64 factors and solves
    network: float  # bytes a second, in and out
    disk: float  # bytes a second


class Stage(NamedTuple):
    """What one stage takes."""

    name: str
    work: float  # seconds of operations, a worker
    moved: float  # bytes over the network, in all
    network: float  # seconds of the slowest link
    memory: float  # bytes a worker holds beyond its rows

    @property
    def seconds(self) -> float:
        return self.work + self.network


BLOCK = 65536  # rows whose products are held together
X_BYTES = 20  # an entry of X, prepared for products


def stages(z: Shape, machine: Machine, workers: int, plan: str = "rows") -> list[Stage]:
    """A fit by squared loss with one power step: two projections, then the link's sums and the decoder."""
    W, wide = workers, 4 * z.d * z.m
    hops = max(1, math.ceil(math.log2(max(2, W))))  # a tree to all workers, or from them
    load = Stage("load", z.entries * 8 / W / machine.disk, 0, 0, 0)
    products = 2 * (4 * z.entries * z.m * z.iterations + 4 * (z.entries + z.n * z.labels_per_row) * z.m)
    sums = 2 * (z.iterations if plan == "rows" else 0)  # sums of (d, m) arrays inside the solves
    ends = 4 * (wide + 4 * z.c * z.m) / 2  # X'YQ and Y'XZ of both projections: an array there, another back
    moved = W * (sums * 2 * wide + 2 * ends) + (0 if plan == "rows" else 4 * wide)
    slowest = hops * (sums * 2 * wide + 2 * ends) / machine.network
    held = 2 * wide if plan == "rows" else 5 * wide / W
    embed = Stage("embed", products / W / machine.sparse, moved, slowest, held + 4 * BLOCK * z.m)
    gram, targets = 8.0 * z.s**2, 4 * z.c * z.s
    link = 2 * z.n * z.s * (z.k + z.s) / machine.dense + 2 * z.n * z.labels_per_row * z.s / machine.sparse
    moved = W * (4 * z.d * z.k + 4 * z.k * z.s + gram + targets)
    slowest = hops * (4 * z.d * z.k + gram + targets) / machine.network
    featurize = Stage("featurize", link / W, moved, slowest, 2 * (gram + targets) + 4 * z.n / W * z.k)
    fit = Stage("fit", (z.s**3 / 3 + 2 * z.s**2 * z.c) / machine.double, 0, 0, gram + targets)
    return [load, embed, featurize, fit]


def rows_held(z: Shape, workers: int, plan: str = "rows") -> float:
    """Bytes of X a worker."""
    return X_BYTES * z.entries * (1 / workers + (1 if plan == "columns" else 0))
