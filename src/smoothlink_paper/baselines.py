"""PLST and CPLST: label directions of centred labels, decoded linearly, without a link function.

Up to 2,000 labels they are as published. Beyond, where exact eigenvectors would take too long, directions come from
randomized power steps, which come close to them.

Both are written as parts of the same model: h = W'x, then the linear map V = (U', label means) and a cut at 1/2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smoothlink.machines.arrays import Array, eigh, to_host
from smoothlink.machines.rows import Block, Rows
from smoothlink.solve import System
from smoothlink.steps.embed import (
    centred,
    inner,
    label_eigenvectors,
    label_means,
    orthonormal,
    probes,
    rotated,
    xt_yq,
    yt_xz,
)

PSEUDO_INVERSE_RIDGE = 1e-7  # stands in for P0 = X X^+, which has none
EXACT_LABELS = 2000  # up to which all eigenvectors are found


class LinearLabelSpace(NamedTuple):
    """A label-space transform and its decoder."""

    U: Array  # (c, k)
    W: Array  # (d, k)
    V: Array  # (k + 1, c): U' over the label means


def plst(rows: Rows, rank: int, system: System, ridge: float, rng: np.random.Generator) -> LinearLabelSpace:
    """Principal label space transformation (Tai and Lin 2012): U holds the top eigenvectors of Yc'Yc."""
    means = label_means(rows)
    top = label_eigenvectors(rows, rows.c if rows.c <= EXACT_LABELS else rank, rng, means=means)
    return decoder(rows, top.U[:, :rank], means, system, ridge)


def cplst(rows: Rows, rank: int, system: System, ridge: float, rng: np.random.Generator) -> LinearLabelSpace:
    """Conditional PLST (Chen and Lin 2012): U holds the top eigenvectors of Yc'P0Yc, P0 = X X^+."""
    means = label_means(rows)
    project = system.at(PSEUDO_INVERSE_RIDGE)

    def product(Q: Array) -> Array:  # Yc'P0Yc Q; X holds the constant, so P0 1 = 1
        Z = project(rows.sum(xt_yq, Q, out=(rows.d, Q.shape[1])))
        T = rows.sum(yt_xz, Z, out=(rows.c, Q.shape[1]))
        return centred(T, Q, means, float(rows.w.sum()))

    m = rows.c if rows.c <= EXACT_LABELS else min(rows.c, rank + 20)
    Q = rows.to_device(np.eye(rows.c, dtype=np.float32))
    if m < rows.c:
        Q = orthonormal(product(orthonormal(product(probes(rows, m, rng)))))
    F = inner(Q, product(Q))
    lam, E = eigh((F + F.T) / 2)
    U = rotated(Q, E[:, np.argsort(-lam, kind="stable")[:rank]])
    return decoder(rows, U, means, system, ridge)


def decoder(rows: Rows, U: Array, means: Array, system: System, ridge: float) -> LinearLabelSpace:
    """The ridge fit to (Y - means) U, and the decoder h -> means + U h."""
    U = to_host(U)
    centre = (means @ U).astype(np.float32)
    W = to_host(system.at(ridge)(rows.sum(xt_centred, U, centre, out=(rows.d, U.shape[1]))))
    return LinearLabelSpace(U, W, np.vstack([U.T, means]).astype(np.float32))


def xt_centred(block: Block, U: Array, centre: Array, out: Array) -> None:
    """Adds X'W(YU - 1 centre') of one block into out (d, k)."""
    R = block.Y @ U
    R -= centre
    R *= block.w[:, None]
    block.X.T.add_product(R, out)
