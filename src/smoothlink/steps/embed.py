"""X, Y -> U, W: the few label directions that the features predict (Algorithm 1 and its variants)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from smoothlink.machines.arrays import (
    Array,
    HostArray,
    astype,
    column_dots,
    contiguous,
    dot,
    eigh,
    extremes,
    gathered,
    hstack,
    in_parts,
    like,
    scale_columns,
    to_device_of,
    to_host,
    zeros,
)
from smoothlink.machines.rows import Block, Rows
from smoothlink.machines.threads import dense_product
from smoothlink.solve import Solve

ADAPTIVE_BLOCK = 64  # directions that are sought at a time
TRACE_PROBES = 32  # of the probes, which estimate the trace outside of the basis
ROTATED_ROWS = 4096  # at a time
FLOAT64_NUMBERS = 1 << 22  # of Z and T, up to which they are summed in float64
ADAPTIVE_GAIN = 0.005  # of tr Y'PY: a block of directions that adds less is the last


class Embedding(NamedTuple):
    """Label directions and the map from features to them."""

    U: Array  # (c, k)
    W: Array  # (d, k): the embedding of x is W'x
    spectrum: Array  # (k,) eigenvalues of Y'PY that U captures, descending; empty where U was given
    captured: float  # their share of tr Y'PY; nan where U was given


class TraceProbes(NamedTuple):
    """Some of the probes g that made a basis Q, A = Y'PY times each, and the direction Qs that Q would lack without."""

    G: Array  # (c, t)
    AG: Array  # (c, t)
    S: HostArray  # (m, t)


class Basis(NamedTuple):
    """The subspace of labels in which directions are sought."""

    Q: Array  # (c, m), orthonormal columns
    probes: TraceProbes | None = None  # None where Q spans all of Y'PY


def label_basis(
    rows: Rows, rank: int, solve: Solve, rng: np.random.Generator, *, oversample: int = 20, power: int = 1
) -> Basis:
    """Returns an orthonormal basis of Y'PY times random probes: steps 1 and 2 of Algorithm 1."""
    m = min(rows.c, rank + oversample)
    if m == rows.c:  # the probes span every direction: nothing is random and no power step is needed
        return Basis(np.eye(rows.c, dtype=np.float32))
    return refine(rows, solve, probes(rows, m, rng, solve), power)


def label_embedding(
    rows: Rows,
    rank: int,
    solve: Solve,
    rng: np.random.Generator,
    *,
    oversample: int = 20,
    power: int = 1,
    half_step: bool = False,
    saved: Callable[[Callable[[], Basis]], Basis] = lambda make: make(),
) -> Embedding:
    """Returns the `rank` label directions that X predicts best: top eigenvectors of Y'PY (Algorithm 1).

    `half_step` takes the left singular vectors of T = Y'XZ for U, as the authors' code does: half a power step more,
    but W = ZE fits YQE and not this YU, so it is solved for once again. `saved` may have the basis of an earlier run.
    """
    basis = saved(lambda: label_basis(rows, rank, solve, rng, oversample=oversample, power=power))
    Q, others = placed(rows, solve, basis)  # it may come from a file
    Z, T = project(rows, solve, Q)
    found = best_directions(Q, Z, T, rank, trace_of(Q, T, others), half_step)
    return found._replace(W=fitted_to(rows, found.U, solve).W) if half_step else found


def adaptive_embedding(
    rows: Rows,
    largest: int,
    solve: Solve,
    rng: np.random.Generator,
    *,
    power: int = 1,
    half_step: bool = False,
    block: int = ADAPTIVE_BLOCK,
) -> Embedding:
    """Returns directions sought in blocks until one adds less than 0.5 % of tr Y'PY (Halko et al. 2011)."""
    Q, Z, T = (rows.to_device(np.zeros((side, 0), np.float32)) for side in (rows.c, rows.d, rows.c))
    trace = 0.0
    while (m := Q.shape[1]) < largest:
        fresh, others = refine(rows, solve, probes(rows, min(block, largest - m), rng, solve), power, outside=Q)
        if not fresh.shape[1]:
            break
        Zb, Tb = project(rows, solve, fresh)
        Q, Z, T = (hstack([A, B]) if m else B for A, B in ((Q, fresh), (Z, Zb), (T, Tb)))
        trace = trace_of(Q, T, others)
        if dot(fresh, Tb) < ADAPTIVE_GAIN * trace:
            break
    found = best_directions(Q, Z, T, Q.shape[1], trace, half_step)
    return found._replace(W=fitted_to(rows, found.U, solve).W) if half_step else found


def refine(rows: Rows, solve: Solve, Q: Array, power: int, outside: Array | None = None) -> Basis:
    """Returns an orthonormal basis of (Y'PY)^power Q for probes Q (c, m), orthogonal to `outside`."""
    m = Q.shape[1]
    G = AG = contiguous(Q[:, :TRACE_PROBES], copy=True)
    S: HostArray = np.eye(m, G.shape[1])
    for step in range(max(1, power)):
        T = image(rows, solve, Q)
        if step == 0:
            AG = contiguous(T[:, :TRACE_PROBES], copy=True)
        Q = orthonormal(T, outside)
        if Q.shape[1] == m:  # s is orthogonal to all columns of Q'T but one, and so to the span without its probe
            S = np.linalg.solve(to_host(inner(Q, T)).T, S)
            S /= np.linalg.norm(S, axis=0)
    return Basis(Q, TraceProbes(G, AG, S) if Q.shape[1] == m else None)


def trace_of(Q: Array, T: Array, others: TraceProbes | None) -> float:
    """Returns tr A of A = Y'PY from T = AQ: exact within a basis Q, estimated outside of it (Epperly et al. 2024).

    Without one of its probes, g, the basis would lack the direction Qs. That smaller one is independent of g, and
    tr A = tr Q'AQ - s'Q'AQs + tr RAR with R = I - QQ' + Qss'Q'. Rg has a random direction in the c - m + 1 dimensions
    that R leaves, so (c - m + 1) g'RARg / g'Rg estimates the last part: little is left there, or it is flat, so a few
    probes do. (The mean of g'Ag over all probes, which this code had before, saw a share of .967 as .855 to 1.)
    """
    if others is None:
        return dot(Q, T)
    G, AG = (to_device_of(T, part) for part in others[:2])
    S = np.zeros((Q.shape[1], others.S.shape[1]))
    S[-len(others.S) :] = others.S  # the basis may have been extended: its last columns are those of these probes
    F, C, D = (to_host(inner(Q, part)) for part in (T, G, AG))  # Q'AQ, Q'G, Q'AG
    C = C - S * np.einsum("ij,ij->j", S, C)  # Rg = g - Qc
    inside = np.einsum("ij,ij->j", S, F @ S)
    outside = column_dots(G, AG) - 2 * np.einsum("ij,ij->j", C, D) + np.einsum("ij,ij->j", C, F @ C)  # g'RARg
    lengths = column_dots(G, G) - np.einsum("ij,ij->j", C, C)  # g'Rg
    rest = (len(Q) - Q.shape[1] + 1) * np.maximum(outside, 0) / lengths - inside
    return dot(Q, T) + max(0.0, float(rest.mean()))


class Projected(NamedTuple):
    """The ridge regression of some combinations of labels."""

    Z: Array  # (d, m) = argmin |YQ - XZ|^2 + rho |Z|^2
    T: Array  # (c, m) = Y'XZ = Y'PYQ


def project(rows: Rows, solve: Solve, Q: Array) -> Projected:
    """Returns the regression of YQ on X; in float64 where the solver is exact and the numbers are few.

    Directions whose eigenvalues are close mix by rounding: of 200 directions of delicious the last were 6e-3 (the sine
    of an angle) apart for sums in another order.
    """
    if leaves_columns(rows, solve):
        return Projected(*rows.project_columns(solve, Q))
    m = Q.shape[1]
    small = getattr(solve, "exact", False) and (rows.d + rows.c) * m <= FLOAT64_NUMBERS
    dtype = np.float64 if small else np.float32
    Z = solve(rows.columnwise(xt_yq, astype(Q, dtype), rows.d, dtype), overwrite=True)
    return Projected(Z, rows.columnwise(yt_xz, Z, rows.c, dtype))


def image(rows: Rows, solve: Solve, Q: Array) -> Array:
    """Returns T = Y'PYQ without Z."""
    if leaves_columns(rows, solve):
        return rows.project_columns(solve, Q, only_image=True)[1]
    return project(rows, solve, Q).T


def leaves_columns(rows: Rows, solve: Solve) -> bool:
    """Returns whether the columns of the solves, and all arrays of labels, stay in the processes that have the rows."""
    return rows.remote and hasattr(solve, "recipe")


def placed(rows: Rows, solve: Solve, basis: Basis) -> Basis:
    """Returns a basis where its arrays are needed: with the rows."""
    place = rows.split_labels if leaves_columns(rows, solve) else rows.to_device
    others = basis.probes
    return Basis(place(basis.Q), others and others._replace(G=place(others.G), AG=place(others.AG)))


def projected_columns(rows: Rows, Q: Array, recipe: Any) -> tuple[Array, Array, Array]:
    """Returns the effort of some columns, their T and their Z."""
    solve = recipe.over(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the caller knows of all columns
        B = rows.columnwise(xt_yq, Q, rows.d)
        for block in rows.blocks:  # the solve needs no Y
            block.Y.release()
        Z = solve(B, overwrite=True)
        T = rows.columnwise(yt_xz, Z, rows.c)
    return np.outer(solve.effort, np.ones(Q.shape[1])), T, Z


def xt_yq(block: Block, Q: Array, out: Array) -> None:
    """Adds X'WYQ of one block into out (d, m)."""
    YQ = block.Y @ Q
    YQ *= block.w[:, None]
    block.X.T.add_product(YQ, out)


def yt_xz(block: Block, Z: Array, out: Array) -> None:
    """Adds Y'WXZ of one block into out (c, m)."""
    XZ = block.X @ Z
    XZ *= block.w[:, None]
    block.Y.T.add_product(XZ, out)


def best_directions(Q: Array, Z: Array, T: Array, rank: int, trace: float, half_step: bool) -> Embedding:
    """Returns Q rotated to the top eigenvectors of F = T'T; W needs no further solve: W = ZE, in Z's memory."""
    if not Q.shape[1]:  # no row has a label: one direction, of which nothing is predicted
        return Embedding(to_device_of(Q, np.eye(len(Q), 1, dtype=np.float32)), zeros(Z, (len(Z), 1)), np.zeros(1), 0.0)
    lam, E = eigh(inner(T))  # F has the squares of Y'PY's eigenvalues
    order = np.argsort(-lam, kind="stable")[: max(1, rank)]
    keep = order[lam[order] > 1e-12 * max(lam.max(), np.finfo(np.float64).tiny)]
    keep = keep if len(keep) else order[:1]
    sigma, E = np.sqrt(np.maximum(lam[keep], 0)), E[:, keep]
    U = rotated(T, E / np.maximum(sigma, np.finfo(np.float64).tiny)) if half_step else rotated(Q, E)
    sign = upright(U)
    captured = min(1.0, float(sigma.sum() / trace)) if trace > 0 else 0.0
    W = gathered(astype(rotated(Z, E * sign), np.float32))
    return Embedding(astype(scale_columns(U, sign), np.float32), W, sigma, captured)


def inner(A: Array, B: Array | None = None) -> Array:
    """Returns A'B in float64, or A'A, some rows at a time: there may be millions."""
    if in_parts(A):
        return sum(A.results(inner, *([] if B is None else [B])))
    total = astype(zeros(A, (A.shape[1], A.shape[1] if B is None else B.shape[1])), np.float64)
    for start in range(0, len(A), ROTATED_ROWS):
        part = astype(A[start : start + ROTATED_ROWS], np.float64)
        total += dense_product(part.T, part if B is None else astype(B[start : start + ROTATED_ROWS], np.float64))
    return total


def rotated(A: Array, E: Array) -> Array:
    """Returns A E, in A's type and in the memory of A; E (m, k) with k <= m."""
    if in_parts(A):
        return A.map(rotated_copy, E, width=E.shape[1])
    k, E = E.shape[1], like(to_device_of(A, E), A)
    out = A.reshape(-1)[: len(A) * k].reshape(len(A), k)
    for start in range(0, len(A), ROTATED_ROWS):  # a row of the result ends before the rows of A that are still to come
        out[start : start + ROTATED_ROWS] = dense_product(A[start : start + ROTATED_ROWS], E)
    return out


def rotated_copy(A: Array, E: Array) -> Array:
    """Returns A E, in A's type and in new memory."""
    return contiguous(rotated(contiguous(A, copy=True), E))


def upright(U: Array) -> Array:
    """Returns signs (k,) that make the largest entry of each column positive.

    Rounding decides the sign of an eigenvector, and random features depend on it: without this, the same rows in other
    blocks would give another model.
    """
    least, most = extremes(U)
    return np.where(-least > most, -1, 1).astype(np.float32)


def orthonormal(T: Array, outside: Array | None = None) -> Array:
    """Returns an orthonormal basis (c, <= m) of T's columns, orthogonal to `outside`; dependent columns are dropped."""
    A = astype(T, np.float64, copy=True)
    kind = np.float32 if T.dtype.itemsize == 4 else np.float64
    for _ in range(2):  # once is not enough for nearly dependent columns
        size = column_dots(A, A).max(initial=np.finfo(np.float64).tiny)  # the scale of what is left
        if outside is not None and outside.shape[1]:
            A = without(A, outside, inner(outside, A))
        lam, E = eigh(inner(A))
        keep = lam > 1e-10 * max(lam.max(initial=0.0), size)
        A = rotated(A, E[:, keep] / np.sqrt(lam[keep]))
    return astype(A, kind)


def without(A: Array, Q: Array, C: Array) -> Array:
    """Returns A - Q C in float64."""
    return A.map(without, Q, C) if in_parts(A) else A - astype(Q, np.float64) @ C


# Other choices of U. Each maps features there by one solve.


def random_directions(rows: Rows, rank: int, solve: Solve, rng: np.random.Generator) -> Embedding:
    """Returns Gaussian directions, which do not depend on the data: compressed sensing."""
    U = probes(rows, rank, rng)
    U /= float(np.sqrt(rows.c))
    return fitted_to(rows, U, solve)


def principal_directions(rows: Rows, rank: int, solve: Solve, rng: np.random.Generator) -> Embedding:
    """Returns the top eigenvectors of Y'Y, which do not depend on the features."""
    return fitted_to(rows, label_eigenvectors(rows, rank, rng).U, solve)


def every_label(rows: Rows, solve: Solve) -> Embedding:
    """Returns U = I: the activations of c independent ridge classifiers (Algorithm 2)."""
    return fitted_to(rows, rows.to_device(np.eye(rows.c, dtype=np.float32)), solve)


def fitted_to(rows: Rows, U: Array, solve: Solve) -> Embedding:
    """Returns the ridge fit of the features to given label directions."""
    W = solve(rows.columnwise(xt_yq, gathered(U), rows.d), overwrite=True)
    return Embedding(U, W, np.zeros(0), float("nan"))


class LabelSpectrum(NamedTuple):
    """Top eigenvectors and eigenvalues of the label co-occurrences Y'WY."""

    U: Array  # (c, k)
    eigenvalues: Array  # (k,) descending
    trace: float  # tr Y'WY: the weighted number of label occurrences


def label_eigenvectors(rows: Rows, rank: int, rng: np.random.Generator, *, means: Array | None = None) -> LabelSpectrum:
    """Returns the top of Y'WY, or with label means of the centred Yc'WYc, by two power steps on Gaussian probes."""
    total = float(rows.w.sum())

    def product(Q: Array) -> Array:
        T = rows.sum(yt_yq, Q, out=(rows.c, Q.shape[1]))
        return T if means is None else centred(T, Q, means, total)

    m = min(rows.c, rank + 20)
    every = m == rows.c
    Q = rows.to_device(np.eye(rows.c, dtype=np.float32)) if every else orthonormal(product(probes(rows, m, rng)))
    if m < rows.c:
        Q = orthonormal(product(Q))
    F = inner(Q, product(Q))
    lam, E = eigh((F + F.T) / 2)
    order = np.argsort(-lam, kind="stable")[:rank]
    trace = float(rows.sum(label_counts, out=(rows.c,), dtype=np.float64).sum())
    trace -= 0.0 if means is None else total * float(means @ means)
    U = rotated(Q, E[:, order])
    U = scale_columns(U, upright(U))
    return LabelSpectrum(U, np.maximum(lam[order], 0), trace)


def centred(T: Array, Q: Array, means: Array, total: float) -> Array:
    """Returns T - total means means'Q: T = Y'AYQ with label means subtracted from Y, where A1 = 1."""
    means = to_device_of(T, means.astype(np.float32))[:, None]
    return T - (total * means) @ (means.T @ Q)


def probes(rows: Rows, m: int, rng: np.random.Generator, solve: Solve | None = None) -> Array:
    """Returns m Gaussian label directions, for these solves; sampled by NumPy, so that they are the same on every
    machine."""
    if solve is not None and leaves_columns(rows, solve):
        return rows.draw_labels(m, rng)
    return rows.to_device(rng.standard_normal((rows.c, m), dtype=np.float32))


def rank_for_share(rows: Rows, share: float, largest: int, rng: np.random.Generator) -> int:
    """Returns the least k whose eigenvectors of Y'WY hold `share` of its trace (the paper's rule), up to `largest`."""
    k = min(largest, 256)
    while True:
        top = label_eigenvectors(rows, k, rng)
        held = np.cumsum(top.eigenvalues) / max(top.trace, np.finfo(np.float64).tiny)
        enough = np.flatnonzero(held >= share - 1e-9)
        if len(enough) or k >= largest:
            return int(enough[0]) + 1 if len(enough) else largest
        k = min(largest, 2 * k)


def truncate(embedding: Embedding, rank: int) -> Embedding:
    """Returns the first `rank` directions of an embedding."""
    share = embedding.spectrum[:rank].sum() / max(embedding.spectrum.sum(), np.finfo(np.float64).tiny)
    return Embedding(
        embedding.U[:, :rank], embedding.W[:, :rank], embedding.spectrum[:rank], embedding.captured * float(share)
    )


def share_of_predictable(embedding: Embedding, share: float) -> Embedding:
    """Returns the fewest directions that capture `share` of tr Y'PY (for multiclass, where Y'Y is diagonal)."""
    held = np.cumsum(embedding.spectrum) / max(embedding.spectrum.sum(), np.finfo(np.float64).tiny) * embedding.captured
    enough = np.flatnonzero(held >= share - 1e-9)
    return truncate(embedding, int(enough[0]) + 1 if len(enough) else len(embedding.spectrum))


def yt_yq(block: Block, Q: Array, out: Array) -> None:
    """Adds Y'WYQ of one block into out (c, m)."""
    block.Y.T.add_product((block.Y @ Q) * block.w[:, None], out)


def label_counts(block: Block, out: Array) -> None:
    """Adds the weighted count of each label in one block into out (c,)."""
    block.Y.add_column_sums(block.w, out)


def label_means(rows: Rows) -> Array:
    """Returns the weighted mean (c,) of each label."""
    return rows.sum(label_counts, out=(rows.c,), dtype=np.float64) / float(rows.w.sum(dtype=np.float64))


def embed_rows(block: Block, W: Array) -> Array:
    """Returns the embedding h = W'x of each row of a block."""
    return block.X @ W
