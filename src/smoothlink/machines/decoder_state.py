"""V (s + 1, c) while SGD runs: scores, gradients and updates for some labels at a time, on any machine.

On the host these are float32 products. On a GPU both products have half-precision (bfloat16) factors and float32 sums;
V, its velocity and the targets stay in float32, and what lies between the products is one kernel each (triton_sgd.py).
Because of that second form it is in this folder and not in steps/sgd.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from smoothlink.machines.arrays import Array, add_log_sums, exponential, log_sums, sigmoid, zeros
from smoothlink.machines.host_and_device import Machine
from smoothlink.machines.threads import dense_product

LABEL_MULTIPLE = 64  # a GPU pads the number of labels to a multiple of this
FEATURE_MULTIPLE = 8  # and that of features of this: rows in half precision must begin at multiples of 16 bytes


class DecoderState:
    """V, its velocity, and the targets Phi'W(Y - p) of its gradient; float32 on any machine."""

    by_label = False  # whether M is diagonal, with a column for each label

    def __init__(self, V: Array, velocity: Array | None, targets: Array, p: Array, machine: Machine) -> None:
        self.V, self.velocity, self.targets, self.p = V, velocity, targets, p  # p (1, c): predictions of the start
        self.c, self.machine = V.shape[1], machine
        self.from_prior: tuple[Array, Array] | None = None  # targets and p, while gradients are of residuals

    def sample_residuals(self, residuals: bool, shift: float) -> None:
        """Makes gradients those of residuals, where the caller subtracts its labels from the `differences` of a row, or
        again those of differences from p."""
        if residuals and self.from_prior is None:
            self.from_prior = self.targets, self.p
            self.targets, self.p = zeros(self.targets, tuple(self.targets.shape)), 0 * self.p + shift
        elif self.from_prior is not None and not residuals:
            (self.targets, self.p), self.from_prior = self.from_prior, None

    def prepare(self, Phi: Array) -> Array:
        """Returns features (b, s + 1) in the form that the products take."""
        return Phi

    def blocks(self, rows: int) -> Iterator[slice]:
        """Yields labels whose scores for so many rows fit in memory together."""
        width = max(1, self.machine.scores() // (4 * max(1, rows)))
        width = max(LABEL_MULTIPLE, width // LABEL_MULTIPLE * LABEL_MULTIPLE)
        yield from (slice(start, min(self.c, start + width)) for start in range(0, self.c, width))

    def scores(self, Phi: Array, labels: slice) -> Array:
        """Returns Phi V (b, m) of some labels."""
        return dense_product(Phi, self.V[:, labels])

    def normalisers(self, Phi: Array) -> Array:
        """Returns log sum exp (b, 1) over all labels."""
        total = None
        for labels in self.blocks(len(Phi)):
            part = log_sums(self.scores(Phi, labels))
            total = part if total is None else add_log_sums(total, part)
        return total

    def differences(self, Phi: Array, labels: slice, w: Array, softmax: bool, total: Array | None) -> Array:
        """Returns w (sigma(Phi V) - p) of some labels: logistic, or softmax; `total` None: of these labels."""
        Z = self.scores(Phi, labels)
        if softmax:
            Z -= log_sums(Z) if total is None else total
        P = exponential(Z) if softmax else sigmoid(Z)
        P -= self.p[:, labels]
        P *= w[:, None]
        return P

    def gradient(self, Phi: Array, P: Array) -> Array:
        """Returns Phi'P (s + 1, m)."""
        return dense_product(Phi.T, P)

    def advance(self, labels: slice, G: Array, M: Array, rho: Array, eta: float, momentum: float) -> None:
        """Adds a step to V, of some labels: velocity = momentum velocity + eta (1 - momentum) M (targets - G - rho V).

        M is a matrix (s + 1, s + 1), or where it is diagonal a column, or one for each label.
        """
        V = self.V[:, labels]
        diagonal = self.by_label or M.shape[1] == 1
        if isinstance(V, np.ndarray) and diagonal and self.velocity is not None:
            from smoothlink.machines.kernels import sgd_advance

            own = M[:, labels] if self.by_label else M
            rate, velocity = eta * (1 - momentum), self.velocity[:, labels]
            sgd_advance(V, velocity, self.targets[:, labels], G, own, rho, rate, momentum)
            return
        step = self.targets[:, labels] - G
        step -= rho * V
        if self.by_label:
            step *= M[:, labels]
        else:
            step = dense_product(M, step) if M.shape[1] > 1 else M * step
        step *= float(np.float32(eta * (1 - momentum)))
        if self.velocity is None:
            V += step
        else:
            velocity = self.velocity[:, labels]
            velocity *= float(np.float32(momentum))
            velocity += step
            V += velocity

    def weights(self) -> Array:
        """Returns V (s + 1, c)."""
        return self.V

    def velocities(self) -> Array | None:
        """Returns the velocity (s + 1, c), None without momentum."""
        return self.velocity


class HalfDecoderState(DecoderState):
    """The same on a GPU: half-precision factors, padded sizes, fused kernels where Triton is installed."""

    def __init__(
        self,
        V: Array,
        velocity: Array | None,
        targets: Array,
        p: Array,
        machine: Machine,
        sizes: tuple[int, int] | None = None,
    ) -> None:
        s, c = tuple(V.shape) if sizes is None else sizes  # V may be padded already
        self.width = s
        shape = padded_shape((s, c), machine)
        V, targets = padded(V, shape), padded(targets, shape)
        super().__init__(
            V, None if velocity is None else padded(velocity, shape), targets, padded(p, (1, shape[1])), machine
        )
        self.V16 = V.bfloat16()
        self.V16[s - 1] = 0  # the intercept is added in float32
        self.label_count, self.fused = c, find_spec("triton") is not None
        self.M: Array = None  # padded, where it is a matrix

    def prepare(self, Phi: Array) -> Array:
        out = Phi.new_zeros((len(Phi), len(self.V)), dtype=self.V16.dtype)
        out[:, : Phi.shape[1]] = Phi
        return out

    def scores(self, Phi: Array, labels: slice) -> Array:
        Z = product(Phi, self.V16[:, labels])
        Z += self.V[self.width - 1, labels]
        Z[:, max(0, self.label_count - labels.start) :] = -float("inf")  # of no label
        return Z

    def differences(self, Phi: Array, labels: slice, w: Array, softmax: bool, total: Array | None) -> Array:
        intercept = self.V[self.width - 1, labels]
        # Without the intercept, by far the largest part of scores of very many labels, they may be rounded too.
        if softmax and total is None:
            Z, intercept = self.scores(Phi, labels), intercept.new_zeros(intercept.shape)
            total = log_sums(Z)
        else:
            Z = product(Phi, self.V16[:, labels]) if softmax else Phi @ self.V16[:, labels]
        if self.fused:
            from smoothlink.machines.triton_sgd import activate

            return activate(Z, intercept, self.p[0, labels], w, total)
        Z = Z.float().add_(intercept)
        P = sigmoid(Z) if total is None else exponential(Z.sub_(total))
        return P.sub_(self.p[:, labels]).mul_(w[:, None]).bfloat16()

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
        columns = padded(M, (len(self.V), 1)), padded(rho, (len(self.V), 1))
        V, V16 = self.V[:, labels], self.V16[:, labels]
        advance(V, V16, velocity, self.targets[:, labels], G, *columns, eta * (1 - momentum), momentum, self.width - 1)

    def weights(self) -> Array:
        return self.V[: self.width, : self.label_count]

    def velocities(self) -> Array | None:
        return None if self.velocity is None else self.velocity[: self.width, : self.label_count]


def decoder_state(
    V: Array,
    velocity: Array | None,
    targets: Array,
    p: Array,
    machine: Machine,
    sizes: tuple[int, int] | None = None,
) -> DecoderState:
    """Returns the state in the form that the machine is fast at; arrays of other `sizes` (s + 1, c) are padded."""
    if not machine.half:
        return DecoderState(V, velocity, targets, p, machine)
    return HalfDecoderState(V, velocity, targets, p, machine, sizes)


def padded_shape(sizes: tuple[int, int], machine: Machine) -> tuple[int, int]:
    """Returns the shape of V (s + 1, c), its velocity and its targets on a machine."""
    if not machine.half:
        return sizes
    return -(-sizes[0] // FEATURE_MULTIPLE) * FEATURE_MULTIPLE, -(-sizes[1] // LABEL_MULTIPLE) * LABEL_MULTIPLE


def placed(A: Array, shape: tuple[int, int], machine: Machine) -> Array:
    """Returns A of the host, or of a device, on a machine in the padded shape."""
    A = machine.to_device(A)
    return padded(A, shape) if machine.half else A


def product(A: Array, B: Array) -> Array:
    """Returns A B of half-precision factors with float32 sums."""
    import torch

    return torch.mm(A, B, out_dtype=torch.float32)


def padded(A: Array, shape: tuple[int, int]) -> Array:
    """Returns A with zeros to the right and below."""
    if tuple(A.shape) == shape and A.is_contiguous():
        return A
    out = A.new_zeros(shape)
    out[: A.shape[0], : A.shape[1]] = A
    return out
