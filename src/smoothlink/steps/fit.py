"""phi, Y -> V: the decoder from random features to labels, by squared, logistic or softmax loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.files import FileArray
from smoothlink.machines.matrix import Sparse
from smoothlink.machines.rows import Block, Rows, SavedSums
from smoothlink.solve.cholesky import GramSystem
from smoothlink.steps.featurize import Features

Array = NDArray[Any]
Outs = list[tuple[tuple[int, ...], Any]]

# Rows featurized at a time: float32 products of at most this many rows are added in float64.
PHI_ROWS = 4096
SOLVED_LABELS = 2048  # labels whose V is solved for together


class LinkSums(NamedTuple):
    """All that the squared loss needs to know of the data, and what preconditions the other losses."""

    gram: GramSystem  # Phi'WPhi (s + 1, s + 1)
    targets: Any  # (s + 1, c) Phi'WY, an array or in a file
    weight: float  # total weight of the rows

    @property
    def label_weights(self) -> Array:
        """The weighted count (c,) of each label: the constant feature's targets."""
        counts: Array = self.targets[-1]
        return counts


class Smoothing(NamedTuple):
    """y -> scale y + shift: label smoothing without ever making Y dense."""

    scale: float = 1.0
    shift: float = 0.0

    @classmethod
    def of(cls, a: float, c: int, *, multiclass: bool) -> Smoothing:
        """Multilabel (2a - 1) y + (1 - a); multiclass a y + (1 - a)/c. a = 1 leaves the labels as they are."""
        return cls(a, (1 - a) / c) if multiclass else cls(2 * a - 1, 1 - a)


def link_sums(
    rows: Rows,
    features: Features,
    *,
    labels: Array | None = None,
    into: FileArray | None = None,
    group: int | None = None,
    saved: Callable[[str], SavedSums] | None = None,
) -> LinkSums:
    """Phi'WPhi and Phi'WY from a pass over rows whose inputs are embeddings; the cost per row is free of c.

    labels: the targets of these only. into: the targets go to this file, `group` labels a pass. saved: where the
    totals of the pass of that name are put by.
    """
    s, weight = features.width(rows.d), float(rows.w.sum(dtype=np.float64))

    def kept(name: str) -> SavedSums | None:
        return None if saved is None else saved(name)

    if into is None:
        some = slice(0, rows.c) if labels is None else labels
        count = rows.c if labels is None else len(labels)
        outs: Outs = [((s, s), np.float64), ((count, s), np.float32)]
        G, T = rows.sums(add_link_sums, features, some, outs=outs, saved=kept("sums"))
        return LinkSums(GramSystem(G), T.T, weight)
    step = group or rows.c
    for start in range(0, rows.c, step):
        part = slice(start, min(rows.c, start + step))
        side = s if start == 0 else 0  # the Gram matrix is summed with the first labels
        outs = [((side, side), np.float64), ((part.stop - start, s), np.float32)]
        gram, into[part] = rows.sums(add_link_sums, features, part, outs=outs, saved=kept(f"sums{start}"))
        G = gram if start == 0 else G
    return LinkSums(GramSystem(G), into.T, weight)


def add_link_sums(block: Block, features: Features, labels: slice | Array, gram: Array, targets: Array) -> None:
    """Adds Phi'WPhi of one block into gram (s + 1, s + 1), unless it is empty, and Y'WPhi of some labels into
    targets (c, s + 1): s for each 1 in Y."""
    parts = list(phi_parts(block))
    every = isinstance(labels, slice) and labels == slice(0, block.Y.shape[1])
    for part in parts:
        Phi = features(block.X.array[part])
        root = np.sqrt(block.w[part])[:, None]
        Phi *= root
        if len(gram):
            gram += Phi.T @ Phi
        Phi *= root
        Y = block.Y.csr if len(parts) == 1 else block.Y.csr[part]
        Y = block.Y if every and len(parts) == 1 else Sparse(Y if every else Y[:, labels])
        Y.T.add_product(Phi, targets)


def phi_parts(block: Block) -> Iterator[slice]:
    for start in range(0, len(block.w), PHI_ROWS):
        yield slice(start, min(len(block.w), start + PHI_ROWS))


def smoothed_targets(sums: LinkSums, smoothing: Smoothing) -> Array:
    """Phi'W of the smoothed labels: the shift adds (Phi'w) 1', which is a column of the Gram matrix."""
    if smoothing == Smoothing():
        return sums.targets
    return smoothing.scale * sums.targets + (smoothing.shift * sums.gram.G[:, -1:]).astype(np.float32)


def squared(sums: LinkSums, ridge: float, smoothing: Smoothing = Smoothing()) -> Array:
    """V (s + 1, c) = argmin |Y - Phi V|^2 + rho |V|^2, in closed form."""
    if sums.targets.shape[1] <= SOLVED_LABELS:
        return sums.gram.at(ridge)(smoothed_targets(sums, smoothing))
    V = np.empty(sums.targets.shape, np.float32)
    for labels, part in squared_parts(sums, ridge, smoothing):
        V[:, labels] = part
    return V


def squared_parts(
    sums: LinkSums, ridge: float, smoothing: Smoothing = Smoothing(), start: int = 0
) -> Iterator[tuple[slice, Array]]:
    """V some labels at a time, from label `start` on: the solve is in float64, and so of all labels too large."""
    solve, c = sums.gram.at(ridge), sums.targets.shape[1]
    for begin in range(start, c, SOLVED_LABELS):
        labels = slice(begin, min(c, begin + SOLVED_LABELS))
        yield labels, solve(smoothed_targets(sums._replace(targets=sums.targets[:, labels]), smoothing))


class Descent(NamedTuple):
    """The knobs of the preconditioned stochastic gradient."""

    learning_rate: float = 1.0  # in units of the rate that stays stable
    momentum: float = 0.9
    decay: float = 0.9  # of the learning rate, a pass
    batch: int | None = None  # rows a step; a tenth of all where None


BATCH_BYTES = 256 << 20


@dataclass
class Run:
    """Where a descent stands: what it needs to go on as if it had not stopped."""

    V: Array | None = None  # (s + 1, c); None before the first pass
    velocity: Array | None = None
    sweep: int = 0  # passes done


def sweeps(
    rows: Rows,
    features: Features,
    sums: LinkSums,
    ridge: float,
    *,
    softmax: bool,
    descent: Descent = Descent(),
    smoothing: Smoothing = Smoothing(),
    seed: int = 0,
    run: Run | None = None,
) -> Iterator[Array]:
    """V (s + 1, c) after each pass of logistic (or softmax) descent, without end: the caller stops.

    A step on a batch B is V += eta M (Phi'(Y - 1p') - (n/b) Phi_B' (sigma(Phi_B V) - 1p') - rho V), with
    M = (Phi'Phi + rho)^-1 and p the predictions of the start: the label part and p's are full sums, and only what
    predictions differ from p is sampled. (Without p the first passes on frequent labels were worse than the start.)
    The array yielded is overwritten by the next pass. A `run` is kept up to date, and gone on with.
    """
    solve = sums.gram.at(ridge)
    rho = solve.rho.astype(np.float32)[:, None]
    M = solve.inverse()
    targets = smoothed_targets(sums, smoothing)
    V = start_at_priors(sums, smoothing, softmax=softmax)
    p = softmax_rows(V[-1:].copy()) if softmax else sigmoid(V[-1:].copy())
    targets = targets - (sums.gram.G[:, -1:] * p).astype(np.float32)
    run = Run() if run is None else run
    if run.V is None:
        run.V, run.velocity = V, np.zeros_like(V) if descent.momentum else None
    V, velocity = run.V, run.velocity
    size = descent.batch or default_batch(rows.n, rows.c, len(rho))
    H, w = rows.table, rows.w
    assert H is not None, "embeddings are dense"
    eta = descent.learning_rate * stable_rate(M, sums, size, descent.momentum)
    for _ in range(run.sweep):
        eta *= descent.decay
    while True:
        for batch in rows.batches(size, seed=seed, sweep=run.sweep):
            Phi, wb = features(H[batch]), w[batch]
            P = softmax_rows(Phi @ V) if softmax else sigmoid(Phi @ V)
            P -= p
            P *= (wb * np.float32(sums.weight / wb.sum(dtype=np.float64)))[:, None]
            step = M @ (targets - Phi.T @ P - rho * V)
            step *= np.float32(eta * (1 - descent.momentum))
            if velocity is None:
                V += step
            else:
                velocity *= np.float32(descent.momentum)
                velocity += step
                V += velocity
        run.sweep += 1
        yield V
        eta *= descent.decay


def stable_rate(M: Array, sums: LinkSums, batch: int, momentum: float) -> float:
    """A learning rate that does not diverge: 8, or what momentum allows, over how much a batch overshoots.

    Preconditioned, the losses curve at most 1/4 (softmax 1/2) where the data rules, but 1 where the ridge does, so
    steps with momentum mu diverge beyond 2 (1 + mu) / (1 - mu): 38 at 0.9, but 2 without. A batch of b rows
    overshoots by (1 + sqrt(f / b))^2, f = tr(M Phi'Phi) being the degrees of freedom.
    """
    freedom = float(np.einsum("ij,ij->", M, sums.gram.G, dtype=np.float64))
    return min(8.0, 1.5 * (1 + momentum) / (1 - momentum)) / (1 + np.sqrt(max(freedom, 0.0) / batch)) ** 2


def default_batch(n: int, c: int, s: int) -> int:
    """A tenth of the rows, but no more than two for a feature: beyond that, more steps beat better ones."""
    return max(1, min(-(-n // 10), max(512, 2 * s), BATCH_BYTES // (4 * max(c, s))))


def start_at_priors(sums: LinkSums, smoothing: Smoothing, *, softmax: bool) -> Array:
    """V = 0 but for the constant, which holds the log-odds (softmax: log) of the smoothed label frequencies.

    Starting from the squared solution instead reads its zeros as p = 1/2 and takes many passes to forget it.
    """
    V = np.zeros(sums.targets.shape, np.float32)
    V[-1] = prior_scores(sums.label_weights, sums.weight, smoothing, softmax=softmax)
    return V


def prior_scores(counts: Array, total: float, smoothing: Smoothing = Smoothing(), *, softmax: bool) -> Array:
    """The scores (c,) that give each label its smoothed frequency."""
    p = prior(smoothing.scale * counts.astype(np.float64) + smoothing.shift * total, total)
    return np.log(p / p.sum()) if softmax else np.log(p / (1 - p))


def prior(counts: Array, total: float) -> Array:
    """Label frequencies with half a row added on either side, so that none is 0 or 1."""
    p: Array = (counts + 0.5) / (total + 1.0)
    return np.clip(p, 1e-9, 1 - 1e-9)


def sigmoid(Z: Array) -> Array:
    """1 / (1 + exp(-Z)), in place."""
    np.clip(Z, -40, 40, out=Z)
    np.negative(Z, out=Z)
    np.exp(Z, out=Z)
    Z += 1
    return np.reciprocal(Z, out=Z)


def softmax_rows(Z: Array) -> Array:
    """exp(Z) with each row scaled to sum 1, in place."""
    Z -= Z.max(axis=1, keepdims=True)
    np.exp(Z, out=Z)
    Z /= Z.sum(axis=1, keepdims=True)
    return Z
