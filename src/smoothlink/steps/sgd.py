"""phi, Y -> V by logistic or softmax loss: preconditioned stochastic gradient descent, pass by pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.arrays import (
    Array,
    astype,
    diagonal,
    full_eigh,
    half_product,
    like,
    log_sums,
    on_host,
    take_rows,
    to_device_of,
    to_host,
    zeros,
)
from smoothlink.machines.decoder_state import DecoderState, decoder_state, padded_shape, placed
from smoothlink.machines.rows import Rows, stack
from smoothlink.machines.threads import dense_product
from smoothlink.steps.featurize import Features
from smoothlink.steps.squared import LinkSums, Smoothing, prior_scores, smoothed_targets

HostArray = NDArray[Any]
BatchGradients = Callable[
    [HostArray, HostArray, DecoderState], Iterator[tuple[slice, Array]]
]  # (batch, weights, state)

SOFTMAX_BYTES = 512 << 20  # of the scores of a batch, all of which the softmax needs
ROTATED_LABELS = 8192  # at a time
LEAST_STEPS = 64  # of a pass, where rows are very many
FEW_FEATURES = 256  # up to which features are always rotated, so that labels may have steps of their own
PROBE_ROWS = 1000  # that tell whether V predicts most classes
KEPT_FEATURES = 640 << 20  # bytes of rotated features that stay in memory after the first pass


class SGD(NamedTuple):
    """The options of stochastic gradient descent."""

    learning_rate: float = 1.0  # in units of the rate that stays stable
    momentum: float = 0.9
    decay: float = 0.9  # of the learning rate, per pass
    batch: int | None = None  # rows per step; None: as `default_batch` says
    kept: int = KEPT_FEATURES  # bytes; rotated features of more rows are made anew in every pass


@dataclass
class SGDState:
    """What SGD needs to go on as if it had not stopped."""

    V: Array | None = None  # (s + 1, c) in the coordinates of the SGD; None before the first pass
    velocity: Array | None = None
    passes: int = 0  # done
    wanted: int = 0  # V for the features themselves is made from so many passes on; before, None is yielded


class Coordinates(NamedTuple):
    """Coordinates of the features in which the preconditioner M = (kappa Phi'Phi + rho)^-1 is applied.

    In those of the features M is a matrix that multiplies the gradient: s^2 c operations per step. Where labels are
    many, the features of a batch are rotated to the eigenbasis of their covariance instead, s^2 b operations per step:
    there M and the ridge are diagonal, and V takes the same steps.
    """

    M: Array  # (s + 1, s + 1), or where it is diagonal (s + 1, 1), or (s + 1, c) with a kappa for each label
    rho: Array  # (s + 1, 1)
    freedom: float  # tr((Phi'Phi + rho)^-1 Phi'Phi)
    E: Array | None = None  # (s, s) eigenvectors of the covariance; None: not rotated
    mean: Array = None  # (1, s) mean of the rotated features, which is subtracted

    def rotate(self, Phi: Array) -> Array:
        """Returns features (b, s + 1) in these coordinates, the intercept last."""
        if self.E is None:
            return Phi
        Phi[:, :-1] = half_product(Phi[:, :-1], self.E) - self.mean
        return Phi

    def rotate_weights(self, V: Array) -> Array:
        """Returns V (s + 1, c) for features in these coordinates, from V for the features themselves."""
        if self.E is None:
            return V
        out = zeros(V, tuple(V.shape))
        for labels in some_labels(V.shape[1]):
            out[:-1, labels] = dense_product(self.E.T, V[:-1, labels])
            out[-1:, labels] = V[-1:, labels] + self.mean @ out[:-1, labels]
        return out

    def unrotate(self, V: Array, *, stays: bool = True) -> Array:
        """Returns V (s + 1, c) for the features themselves; on the host unless it `stays` where V is."""
        if self.E is None:
            return V
        out = zeros(V, tuple(V.shape)) if stays else np.empty(tuple(V.shape), np.float32)
        for labels in some_labels(V.shape[1]):
            part = V[:, labels]
            rotated = dense_product(self.E, part[:-1]), part[-1:] - self.mean @ part[:-1]
            out[:-1, labels], out[-1:, labels] = rotated if stays else map(to_host, rotated)
        return out


def coordinates_of(
    sums: LinkSums,
    ridge: float,
    *,
    rotated: bool,
    half: bool,
    curvature: Callable[[float], Any] = lambda freedom: 1.0,
) -> Coordinates:
    """Returns the coordinates that M is applied in; E is rounded where products are of `half` precision.

    `curvature` returns kappa of the degrees of freedom; where features are rotated, labels may have one each.
    """
    if not rotated:
        solve = sums.gram.at(ridge)
        M = solve.factor.inverse()
        # tr MG = tr M(G + rho) - tr M rho; a feature that no row has is not in it.
        freedom = float(np.sum(1 - solve.rho * diagonal(M), where=sums.gram.matrix.squares > 0))
        kappa = curvature(freedom)
        if kappa < 1:
            M = sums.gram.at(ridge / kappa).factor.inverse() / kappa
        return Coordinates(M, to_device_of(M, solve.rho.astype(np.float32)[:, None]), freedom)
    G, rho = sums.gram.G, float(sums.gram.penalties(ridge)[0])
    total, mean = float(G[-1, -1]), G[:-1, -1:] / float(G[-1, -1])  # (s, 1)
    lam, E = full_eigh(G[:-1, :-1] - total * (mean @ mean.T))
    lam = np.append(np.maximum(lam, 0), total)
    E = astype(half_product(E) if half else E, np.float32)
    penalties = np.append(np.full(len(lam) - 1, rho), 0.0)
    freedom = float(inverse_of(lam + penalties) @ lam)
    inverse = inverse_of(np.atleast_1d(curvature(freedom)) * lam[:, None] + penalties[:, None])
    M, ridges = (to_device_of(E, A.astype(np.float32)) for A in (inverse, penalties[:, None]))
    return Coordinates(M, ridges, freedom, E, astype(mean, np.float32).T @ E)


def inverse_of(diagonal: HostArray) -> HostArray:
    """Returns 1 / diagonal, and 0 for 0."""
    return np.divide(1, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)


def sgd_passes(
    rows: Rows,
    features: Features,
    sums: LinkSums,
    ridge: float,
    *,
    softmax: bool,
    sgd: SGD = SGD(),
    smoothing: Smoothing = Smoothing(),
    seed: int = 0,
    run: SGDState | None = None,
    rotated: bool | None = None,
    gradients: BatchGradients | None = None,
    begin: HostArray | None = None,
) -> Iterator[Array]:
    """Yields V (s + 1, c) after each pass of SGD by the logistic (or softmax) loss, without end: the caller stops.

    A step on a batch B is V += eta M (Phi'(Y - 1p') - (n/b) Phi_B' (sigma(Phi_B V) - 1p') - rho V), with
    M = (kappa Phi'Phi + rho)^-1 and p the predictions of the start: Phi'(Y - 1p') is a full sum, and only the
    difference of the predictions from p is sampled. (Without p the first passes on frequent labels were worse than the
    start.) kappa is 1, or `label_curvature`: of the most frequent class, or of each label where features are few.
    Where V predicts most classes, which many features do, a pass by the
    softmax samples the residuals (n/b) Phi_B' (Y_B - sigma(Phi_B V)) instead: they are the smaller then. On 300 classes
    of aloi six passes had a held-out error of 4.18 %, by differences from p 4.40 %.
    The array yielded may be overwritten by the next pass. SGD goes on from `run`, which is updated after each pass.
    `rotated` sets the coordinates, which otherwise follow from the sizes. `gradients` yields those of a batch where the
    rows are in other processes. `begin` (s + 1, c) is a V for the features themselves, on the host, that the first pass
    begins at; otherwise V is 0 but for the intercepts.
    """
    s, run = features.width(rows.d), SGDState() if run is None else run
    size = sgd.batch or default_batch(rows.n, rows.c, s, softmax=softmax)
    few = s <= FEW_FEATURES and not softmax and not rows.machine.half
    rotated = few or rotation_pays(rows.n, rows.c, s, size) if rotated is None else rotated
    start = prior_scores(sums.label_weights, sums.weight, smoothing, softmax=softmax)
    prior = predictions(start, softmax=softmax)
    p = to_device_of(sums.gram.G, prior[None])
    frequencies: Any = float(prior.max()) if softmax else prior if few and rotated else 1.0
    coordinates = coordinates_of(
        sums,
        ridge,
        rotated=rotated,
        half=rows.machine.half,
        curvature=lambda freedom: label_curvature(freedom, frequencies, size),
    )
    sizes, machine = (s, rows.c), rows.machine
    shape = padded_shape(sizes, machine)
    if run.V is None:
        run.V = zeros(p, shape)
        if begin is None:
            run.V[s - 1, : rows.c] = to_device_of(p, start.astype(np.float32))
        else:
            run.V[:s, : rows.c] = coordinates.rotate_weights(to_device_of(p, begin.astype(np.float32)))
        run.velocity = zeros(p, shape) if sgd.momentum else None
    else:  # one after the other: they are large
        run.V = placed(run.V, shape, machine)
        run.velocity = None if run.velocity is None else placed(run.velocity, shape, machine)
    state = decoder_state(
        run.V, run.velocity, gradient_targets(sums, smoothing, p, coordinates, shape), p, machine, sizes
    )
    state.by_label = few and rotated
    run.V, run.velocity = state.weights(), state.velocities()
    stays = machine.keeps(4 * s * rows.c)
    eta = sgd.learning_rate * stable_rate(coordinates.freedom, size, sgd.momentum) * sgd.decay**run.passes
    w, features = rows.w, rows.to_device(features)
    Y = stack([block.Y.csr for block in rows.blocks]) if softmax and gradients is None else None
    probe = None if Y is None else rows.take(rows.sample(PROBE_ROWS, seed))
    latest = None if Y is None else coordinates.unrotate(run.V, stays=stays)

    def rotated_features(batch: HostArray) -> Array:
        return coordinates.rotate(features(rows.to_device(take_rows(rows.table, batch))))

    # Rotating features takes as many operations as all the rest of a pass, if there are as many features as labels.
    # A row's last bits depend on its place in a product, so kept ones are made in the order of the rows: SGD that was
    # stopped goes on with the same.
    kept = None
    if rotated and gradients is None and on_host(p) and 4 * rows.n * s <= sgd.kept:
        kept, live = np.empty((rows.n, s), np.float32), np.flatnonzero(rows.w > 0)
        for some in np.split(live, range(size, len(live), size)):
            kept[some] = rotated_features(some)

    def batch_gradients(batch: HostArray, weights: HostArray, state: DecoderState) -> Iterator[tuple[slice, Array]]:
        Phi = state.prepare(rotated_features(batch) if kept is None else kept[batch])
        weights = rows.to_device(weights)
        blocks = list(state.blocks(len(batch)))
        total = state.normalisers(Phi) if softmax and len(blocks) > 1 else None
        for labels in blocks:
            P = state.differences(Phi, labels, weights, softmax, total)
            if Y is not None and state.from_prior is not None:
                subtract_labels(P, Y[batch], labels, weights, smoothing.scale)
            yield labels, state.gradient(Phi, P)

    while True:
        if Y is not None:
            state.sample_residuals(
                (bool(run.passes) or begin is not None) and predicts_most(probe, features, latest), smoothing.shift
            )
        for batch in rows.batches(size, seed=seed, pass_number=run.passes):
            weights = w[batch] * np.float32(sums.weight / w[batch].sum(dtype=np.float64))
            for labels, gradient in (gradients or batch_gradients)(batch, weights, state):
                state.advance(labels, gradient, coordinates.M, coordinates.rho, eta, sgd.momentum)
        run.passes += 1
        run.V, run.velocity = state.weights(), state.velocities()
        latest = coordinates.unrotate(run.V, stays=stays) if Y is not None or run.passes >= run.wanted else None
        yield latest if run.passes >= run.wanted else None
        eta *= sgd.decay


def subtract_labels(P: Array, Y: Any, labels: slice, weights: Array, scale: float) -> None:
    """Subtracts scale w y from P (b, m), of the `labels` that the rows of Y (b, c) have."""
    row, label = Y.nonzero()
    inside = (label >= labels.start) & (label < labels.stop)
    at = to_device_of(P, row[inside]), to_device_of(P, label[inside] - labels.start)
    P[at] = P[at] - like(scale * weights[at[0]], P)


def predicts_most(rows: Rows | None, features: Features, V: Array) -> bool:
    """Returns whether the classes of some rows have more than half of the probability on average."""
    assert rows is not None
    block = next(rows.each())
    Z = to_host(features(block.X.array)) @ to_host(V)
    row, label = block.Y.csr.nonzero()
    return bool(len(row)) and float(np.exp(Z - log_sums(Z))[row, label].mean()) > 0.5


def gradient_targets(
    sums: LinkSums, smoothing: Smoothing, p: Array, coordinates: Coordinates, shape: tuple[int, int]
) -> Array:
    """Returns Phi'W(Y - 1p') (s + 1, c) of the smoothed labels, in these coordinates; `shape` may be larger."""
    (s, c), out, E = sums.targets.shape, zeros(p, shape), coordinates.E
    means = astype(sums.gram.sums[:, None], np.float32)
    for labels in some_labels(c):
        T = smoothed_targets(sums._replace(targets=sums.targets[:, labels]), smoothing) - means * p[:, labels]
        out[: s - 1, labels] = T[:-1] if E is None else dense_product(E.T, T[:-1]) - coordinates.mean.T * T[-1:]
        out[s - 1, labels] = T[-1]
    return out


def some_labels(c: int) -> Iterator[slice]:
    """Yields labels that are rotated together."""
    yield from (slice(start, min(c, start + ROTATED_LABELS)) for start in range(0, c, ROTATED_LABELS))


def predictions(start: HostArray, *, softmax: bool) -> HostArray:
    """Returns the probabilities (c,) of these scores."""
    z = start.astype(np.float64)
    return (np.exp(z - z.max()) / np.exp(z - z.max()).sum() if softmax else 1 / (1 + np.exp(-z))).astype(np.float32)


def rotation_pays(n: int, c: int, s: int, batch: int) -> bool:
    """Returns whether rotating the features, and finding the eigenbasis, costs less than multiplying gradients by M."""
    return c > 2 * batch and n / batch * c > 50 * s


def stable_rate(freedom: float, batch: int, momentum: float) -> float:
    """Returns a learning rate that does not diverge: 8, or what momentum allows, over how much a batch overshoots.

    Preconditioned, the losses curve at most 1/4 (softmax 1/2) where the data rules, but 1 where the ridge does, so
    steps with momentum mu diverge beyond 2 (1 + mu) / (1 - mu): 38 at 0.9, but 2 without. A batch of b rows
    overshoots by (1 + sqrt(f / b))^2, f = tr(M Phi'Phi) being the degrees of freedom.
    """
    return min(8.0, 1.5 * (1 + momentum) / (1 - momentum)) / (1 + np.sqrt(max(freedom, 0.0) / batch)) ** 2


def label_curvature(freedom: float, frequency: Any, batch: int) -> Any:
    """Returns kappa <= 1: how much of Phi'Phi the loss curves by, of labels of at most this frequency.

    The curvature of label l is that of sum_i p_il (1 - p_il) phi_i phi_i', of which the p_il sum to the rows of the
    label. Preconditioned, its trace is therefore about f times the frequency of the label, f being the degrees of
    freedom; in a batch, where a label has a row more by chance, f times (frequency + 1/b). Where labels are rare and
    features few that is far less than 1, and steps that expect a curvature of 1 are far too short: with 50 directions
    and the 1,000 classes of aloi they got to a held-out error of 14.9 % in 25 passes, and with kappa to 10.7 %.
    """
    return np.minimum(1.0, max(freedom, 1.0) * (frequency + 1 / batch))


def default_batch(n: int, c: int, s: int, *, softmax: bool) -> int:
    """Returns a tenth of the rows, but no more than two per feature or a 64th of all: beyond that, more steps beat
    better ones. With the softmax loss, whose residuals vanish, a row for five features."""
    if softmax:
        return max(1, min(-(-n // 10), max(256, s // 5), SOFTMAX_BYTES // (4 * c)))
    return max(1, min(-(-n // 10), max(512, 2 * s, n // LEAST_STEPS)))
