"""V (s + 1, c) while it descends: scores, gradients and updates for some labels at a time.

On the host these are float32 products. On a card both products are of halves (bfloat16) with float32 sums; V, velocity
and targets stay in float32, and what lies between the products is one kernel each (machines/fused.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from smoothlink.machines.arrays import Array, on_host
from smoothlink.machines.host_and_device import Machine

LABELS = 64  # a card pads the labels to a multiple of this
FEATURES = 8  # and the features of this: rows of halves must begin at multiples of 16 bytes
LARGEST = 40.0  # a score beyond this is certain


class Decoder:
    """V, its velocity and the targets Phi'W(Y - p) that it descends to; float32 on any machine."""

    half = False

    def __init__(self, V: Array, velocity: Array | None, targets: Array, p: Array, machine: Machine) -> None:
        self.V, self.velocity, self.targets, self.p = V, velocity, targets, p  # p (1, c): predictions of the start
        self.c, self.machine = V.shape[1], machine

    def see(self, Phi: Array) -> Array:
        """Features (b, s + 1) as the products want them."""
        return Phi

    def blocks(self, rows: int) -> Iterator[slice]:
        """Labels whose scores for so many rows are looked at together."""
        width = max(1, self.machine.scores() // (4 * max(1, rows)))
        width = max(LABELS, width // LABELS * LABELS)
        yield from (slice(start, min(self.c, start + width)) for start in range(0, self.c, width))

    def scores(self, Phi: Array, labels: slice) -> Array:
        """Phi V (b, m)."""
        return Phi @ self.V[:, labels]

    def normalisers(self, Phi: Array) -> Array:
        """log sum exp (b, 1) over all labels."""
        total = None
        for labels in self.blocks(len(Phi)):
            part = log_sums(self.scores(Phi, labels))
            total = part if total is None else np.logaddexp(total, part) if on_host(part) else total.logaddexp(part)
        return total

    def differences(self, Phi: Array, labels: slice, w: Array, softmax: bool, total: Array | None) -> Array:
        """w (sigma(Phi V) - p) of some labels: logistic, or softmax whose normalisers are given or of these labels."""
        Z = self.scores(Phi, labels)
        if softmax:
            Z -= log_sums(Z) if total is None else total
            P = np.exp(Z, out=Z) if on_host(Z) else Z.exp_()
        else:
            P = sigmoid(Z)
        P -= self.p[:, labels]
        P *= w[:, None]
        return P

    def gradient(self, Phi: Array, P: Array) -> Array:
        """Phi'P (s + 1, m)."""
        return Phi.T @ P

    def advance(self, labels: slice, G: Array, M: Array, rho: Array, eta: float, momentum: float) -> None:
        """V += velocity, velocity = momentum velocity + eta (1 - momentum) M (targets - G - rho V), of some labels.

        M is a matrix (s + 1, s + 1), or a column where it is diagonal.
        """
        V = self.V[:, labels]
        step = self.targets[:, labels] - G
        step -= rho * V
        step = M @ step if M.shape[1] > 1 else M * step
        step *= float(np.float32(eta * (1 - momentum)))
        if self.velocity is None:
            V += step
        else:
            velocity = self.velocity[:, labels]
            velocity *= float(np.float32(momentum))
            velocity += step
            V += velocity

    def weights(self) -> Array:
        """V (s + 1, c)."""
        return self.V

    def speeds(self) -> Array | None:
        """The velocity (s + 1, c)."""
        return self.velocity


class CardDecoder(Decoder):
    """The same on a card: halves in the products, padded sizes, fused kernels where Triton is installed."""

    half = True

    def __init__(self, V: Array, velocity: Array | None, targets: Array, p: Array, machine: Machine) -> None:
        s, c = V.shape
        self.width = s
        shape = -(-s // FEATURES) * FEATURES, -(-c // LABELS) * LABELS
        V, targets = padded(V, shape), padded(targets, shape)
        super().__init__(
            V, None if velocity is None else padded(velocity, shape), targets, padded(p, (1, shape[1])), machine
        )
        self.V16 = V.bfloat16()
        self.V16[s - 1] = 0  # the constant is added in float32
        self.real, self.fused = c, find_spec("triton") is not None
        self.M: Array = None  # padded, where it is a matrix

    def see(self, Phi: Array) -> Array:
        out = Phi.new_zeros((len(Phi), len(self.V)), dtype=self.V16.dtype)
        out[:, : Phi.shape[1]] = Phi
        return out

    def scores(self, Phi: Array, labels: slice) -> Array:
        Z = product(Phi, self.V16[:, labels])
        Z += self.V[self.width - 1, labels]
        return Z

    def differences(self, Phi: Array, labels: slice, w: Array, softmax: bool, total: Array | None) -> Array:
        constant = self.V[self.width - 1, labels]
        # The scores of very many labels are halves too: they are rounded without the constant, by far the largest part.
        Z = product(Phi, self.V16[:, labels]) if softmax else Phi @ self.V16[:, labels]
        if softmax and total is None:
            Z += constant
            Z[:, self.real - labels.start :] = -float("inf")  # of no label
            total, constant = Z.logsumexp(1, keepdim=True), constant.new_zeros(constant.shape)
        if self.fused:
            from smoothlink.machines.triton_sgd import activate

            return activate(Z, constant, self.p[0, labels], w, total)
        Z = Z.float().add_(constant)
        P = Z.sigmoid_() if total is None else Z.sub_(total).exp_()
        return P.sub_(self.p[:, labels]).mul_(w[:, None]).bfloat16()

    def normalisers(self, Phi: Array) -> Array:
        total = None
        for labels in self.blocks(len(Phi)):
            Z = self.scores(Phi, labels)
            Z[:, max(0, self.real - labels.start) :] = -float("inf")
            part = Z.logsumexp(1, keepdim=True)
            total = part if total is None else total.logaddexp(part)
        return total

    def gradient(self, Phi: Array, P: Array) -> Array:
        return product(Phi.T, P)

    def advance(self, labels: slice, G: Array, M: Array, rho: Array, eta: float, momentum: float) -> None:
        if M.shape[1] > 1 or not self.fused:
            if self.M is None:
                self.M = padded(M, (len(self.V), len(self.V) if M.shape[1] > 1 else 1))
            super().advance(labels, G, self.M, padded(rho, (len(self.V), 1)), eta, momentum)
            self.V16[: self.width - 1, labels] = self.V[: self.width - 1, labels]
            return
        from smoothlink.machines.triton_sgd import advance

        velocity = None if self.velocity is None else self.velocity[:, labels]
        constants = padded(M, (len(self.V), 1)), padded(rho, (len(self.V), 1))
        V, V16 = self.V[:, labels], self.V16[:, labels]
        advance(
            V, V16, velocity, self.targets[:, labels], G, *constants, eta * (1 - momentum), momentum, self.width - 1
        )

    def weights(self) -> Array:
        return self.V[: self.width, : self.real]

    def speeds(self) -> Array | None:
        return None if self.velocity is None else self.velocity[: self.width, : self.real]


def decoder(V: Array, velocity: Array | None, targets: Array, p: Array, machine: Machine) -> Decoder:
    """The decoder that suits the machine."""
    kind = CardDecoder if machine.half else Decoder
    return kind(V, velocity, targets, p, machine)


def product(A: Array, B: Array) -> Array:
    """A B of halves with float32 sums."""
    import torch

    return torch.mm(A, B, out_dtype=torch.float32)


def padded(A: Array, shape: tuple[int, int]) -> Array:
    """A with zeros to the right and below."""
    if tuple(A.shape) == shape and A.is_contiguous():
        return A
    out = A.new_zeros(shape)
    out[: A.shape[0], : A.shape[1]] = A
    return out


def log_sums(Z: Array) -> Array:
    """log sum exp (b, 1) of each row."""
    if not on_host(Z):
        return Z.logsumexp(1, keepdim=True)
    top = Z.max(axis=1, keepdims=True)
    return top + np.log(np.exp(Z - top).sum(axis=1, keepdims=True))


def sigmoid(Z: Array) -> Array:
    """1 / (1 + exp(-Z)), in place."""
    if not on_host(Z):
        return Z.sigmoid_()
    np.clip(Z, -LARGEST, LARGEST, out=Z)
    np.negative(Z, out=Z)
    np.exp(Z, out=Z)
    Z += 1
    return np.reciprocal(Z, out=Z)
