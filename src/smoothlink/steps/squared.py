"""phi, Y -> V by squared loss: the sums Phi'Phi and Phi'Y, and the closed form. The sums also precondition SGD."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.arrays import Array, astype, empty, on_host, square_root, to_device_of, to_host
from smoothlink.machines.rows import Block, Rows, SavedSums
from smoothlink.machines.rows_in_files import FileArray
from smoothlink.machines.threads import in_threads, parts
from smoothlink.solve.cholesky import GramSystem
from smoothlink.steps.featurize import Features

HostArray = NDArray[Any]
Outs = list[tuple[tuple[int, ...], Any]]

# Rows featurized at a time: float32 products of at most this many rows are added in float64.
PHI_ROWS = 1024
GRAM_SIDE = 512  # of the squares in which Phi'Phi is summed
CERTAIN = 10.0  # above all scores of the squared loss
SOLVED_LABELS = 512  # whose V is solved for together


class LinkSums(NamedTuple):
    """All that the squared loss needs of the data, and the preconditioner of the other losses."""

    gram: GramSystem  # Phi'WPhi (s + 1, s + 1)
    targets: Any  # (s + 1, c) Phi'WY, an array or in a file
    weight: float  # total weight of the rows

    @property
    def label_weights(self) -> HostArray:
        """Returns the weighted count (c,) of each label: the targets of the intercept."""
        return to_host(self.targets[-1])


class Smoothing(NamedTuple):
    """y -> scale y + shift: label smoothing without ever making Y dense."""

    scale: float = 1.0
    shift: float = 0.0

    @classmethod
    def of(cls, a: float, c: int, *, multiclass: bool) -> Smoothing:
        """Returns (2a - 1) y + (1 - a) for multilabel, a y + (1 - a)/c for multiclass; a = 1 changes nothing."""
        return cls(a, (1 - a) / c) if multiclass else cls(2 * a - 1, 1 - a)


def link_sums(
    rows: Rows,
    features: Features,
    *,
    labels: HostArray | None = None,
    into: FileArray | None = None,
    group: int | None = None,
    saved: Callable[[str], SavedSums | None] | None = None,
) -> LinkSums:
    """Returns Phi'WPhi and Phi'WY from a pass over rows whose inputs are embeddings; the cost per row is free of c.

    labels: the targets of these only. into: the targets go to this file, `group` labels per pass. saved: where the
    totals of the pass of that name are saved.
    """
    s, weight = features.width(rows.d), float(rows.w.sum(dtype=np.float64))
    saved = saved or (lambda name: None)
    if into is None:
        some = slice(0, rows.c) if labels is None else labels
        count = rows.c if labels is None else len(labels)
        outs: Outs = [((s, s), np.float64), ((count, s), np.float32)]
        G, T = rows.sums(add_link_sums, features, some, outs=outs, saved=saved("sums"))
        return LinkSums(GramSystem(G), T.T, weight)
    step = group or rows.c
    for start in range(0, rows.c, step):
        part = slice(start, min(rows.c, start + step))
        side = s if start == 0 else 0  # the Gram matrix is summed with the first labels
        outs = [((side, side), np.float64), ((part.stop - start, s), np.float32)]
        gram, targets = rows.sums(add_link_sums, features, part, outs=outs, saved=saved(f"sums{start}"))
        into[part] = to_host(targets)
        G = gram if start == 0 else G
    return LinkSums(GramSystem(G), into.T, weight)


def add_link_sums(
    block: Block, features: Features, labels: slice | Array, gram: Array, targets: Array, phi_rows: int = PHI_ROWS
) -> None:
    """Adds Phi'WPhi of one block to gram (s + 1, s + 1), unless it is empty, and Y'WPhi of some labels to targets
    (c, s + 1), which costs s per 1 in Y."""
    for start in range(0, len(block.w), phi_rows):
        part = slice(start, min(len(block.w), start + phi_rows))
        Phi = features(block.X.array[part])
        root = square_root(block.w[part])[:, None]
        Phi *= root
        if len(gram):
            add_gram(Phi, gram)
        Phi *= root
        block.Y.add_part(part, labels, Phi, targets)


def add_gram(Phi: Array, gram: Array) -> None:
    """Adds Phi'Phi to gram (s, s); on the host by squares, and only those on and below the diagonal."""
    if not on_host(gram):
        gram += Phi.T @ Phi
        return
    sides = parts(len(gram), -(-len(gram) // GRAM_SIDE))

    def add(i: slice, j: slice) -> None:
        gram[i, j] += Phi[:, i].T @ Phi[:, j]

    below = [partial(add, i, j) for b, j in enumerate(sides) for i in sides[b + 1 :]]
    in_threads([*below, *(partial(add, i, i) for i in sides)])  # the last are the shortest


def smoothed_targets(sums: LinkSums, smoothing: Smoothing) -> Array:
    """Returns Phi'WY of the smoothed labels: the shift adds (Phi'w) 1'."""
    totals, targets = sums.gram.sums[:, None], sums.targets
    if isinstance(targets, np.ndarray) and not on_host(totals):  # from a file or from the host, label by label
        targets = to_device_of(totals, targets.T).T
    if smoothing == Smoothing():
        return targets
    return smoothing.scale * targets + astype(smoothing.shift * totals, np.float32)


def squared(sums: LinkSums, ridge: float, smoothing: Smoothing = Smoothing()) -> Array:
    """Returns V (s + 1, c) = argmin |Y - Phi V|^2 + rho |V|^2, in closed form."""
    if sums.targets.shape[1] <= SOLVED_LABELS:
        return solved(sums.gram.at(ridge), sums, smoothing)
    V = empty(sums.gram.sums, tuple(sums.targets.shape))
    for labels, part in squared_parts(sums, ridge, smoothing):
        V[:, labels] = part
    return V


def squared_parts(
    sums: LinkSums, ridge: float, smoothing: Smoothing = Smoothing(), start: int = 0
) -> Iterator[tuple[slice, Array]]:
    """Yields V some labels at a time, from label `start` on: the solve is in float64, for all labels too large."""
    solve, c = sums.gram.at(ridge), sums.targets.shape[1]
    for begin in range(start, c, SOLVED_LABELS):
        labels = slice(begin, min(c, begin + SOLVED_LABELS))
        yield labels, solved(solve, sums._replace(targets=sums.targets[:, labels]), smoothing)


def solved(solve: Callable[[Array], Array], sums: LinkSums, smoothing: Smoothing) -> Array:
    """Returns V (s + 1, c). Labels that every row has score CERTAIN more: the squared loss gives them 1, and others
    that overshoot 1 would outrank what is certain."""
    V = solve(smoothed_targets(sums, smoothing))
    counts, total = sums.label_weights, float(sums.gram.sums[-1])
    for label in np.flatnonzero((counts > 0) & (counts >= (1 - 1e-6) * total)).tolist():
        V[-1, label] += CERTAIN
    return V


def prior_scores(counts: HostArray, total: float, smoothing: Smoothing = Smoothing(), *, softmax: bool) -> HostArray:
    """Returns the scores (c,) that give each label its smoothed frequency."""
    p = prior(smoothing.scale * counts.astype(np.float64) + smoothing.shift * total, total)
    return np.log(p / p.sum()) if softmax else np.log(p / (1 - p))


def prior(counts: HostArray, total: float) -> HostArray:
    """Returns label frequencies with half a row added on either side, so that none is 0 or 1."""
    p: HostArray = (counts + 0.5) / (total + 1.0)
    return np.clip(p, 1e-9, 1 - 1e-9)


def softmax_rows(Z: Array) -> Array:
    """Returns exp(Z) with each row scaled to sum 1, in place."""
    Z -= Z.max(axis=1, keepdims=True)
    np.exp(Z, out=Z)
    Z /= Z.sum(axis=1, keepdims=True)
    return Z
