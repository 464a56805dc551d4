"""One step of fine-tuning: the scores of a batch, their gradients through the link, and a step of all weights (torch;
on a card products of halves with float32 weights).

W and V take Adagrad's steps with one rate a feature and one a label, D with one a weight; the frequencies, phases and
the constant of V take Adam's.

The score of a row x is V'phi(h) + D'x, h = W'x (of unit length if asked), phi(h) = sqrt(2) cos(R'h + b) or h itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from smoothlink.machines.arrays import copy_to_device, to_host
from smoothlink.machines.host_and_device import Device

HostArray = NDArray[Any]
Tensor = torch.Tensor

DECAYS = (0.9, 0.999)  # of Adam's means
TINY = 1e-10
ALIGNED, LABELS = 8, 64  # features and labels are padded to multiples of these on a card
ROOT_TWO = float(np.sqrt(2))


class Rows:
    """The rows of a sparse or dense matrix on a device, a few at a time by number."""

    def __init__(self, A: Any, device: str) -> None:
        self.device, self.sparse = device, not isinstance(A, np.ndarray)
        if self.sparse:
            self.lengths, self.indptr = np.diff(A.indptr), copy_to_device(A.indptr.astype(np.int64), device)
            self.names, self.values = (
                copy_to_device(A.indices, device),
                copy_to_device(A.data.astype(np.float32), device),
            )
        else:
            self.array = copy_to_device(A, device)

    def entries(self, rows: HostArray, there: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Position in `rows`, column and value of each entry of some sparse rows, which are `there` on the device."""
        places, at = ranges(self.indptr[there], self.indptr[there + 1], int(self.lengths[rows].sum()))
        return places, self.names[at].long(), self.values[at]


def ranges(begins: Tensor, ends: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """All numbers of some ranges, one range after the other, and the range of each.

    How many they are in all is known before: the host need not wait for the device to say so.
    """
    counts = ends - begins
    which = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=total)
    inside = torch.arange(total, device=counts.device) - (counts.cumsum(0) - counts)[which]
    return which, begins[which] + inside


class Pairs(NamedTuple):
    """The pairs of a feature and a label that have a weight, feature by feature."""

    indptr: Tensor  # (d + 1,) int64
    labels: Tensor  # int64
    of_rows: HostArray  # (n,) how many each row meets

    def of(self, rows: HostArray, places: Tensor, names: Tensor, values: Tensor) -> Met:
        """Those that each entry of some rows meets."""
        total = int(self.of_rows[rows].sum())
        entry, number = ranges(self.indptr[names], self.indptr[names + 1], total)
        return Met(number, places[entry], self.labels[number], values[entry])


class Met(NamedTuple):
    """Pairs that the entries of a batch meet."""

    number: Tensor  # of the pair
    place: Tensor  # of the row in the batch
    label: Tensor
    value: Tensor  # of the feature

    def at(self, c: int) -> Tensor:
        """Where the scores (b, c) of these rows and labels are."""
        return self.place * c + self.label


def pattern(X: Any) -> Any:
    """1 where X has an entry."""
    return sp.csr_array((np.ones(X.nnz, np.int64), X.indices, X.indptr), X.shape)


def stepped(A: Tensor, slope: Tensor, squares: Tensor, count: int, rate: float) -> None:
    """Adagrad's step of A with one rate a row, in place: the mean squares of `count` numbers of its gradient add up."""
    squares += (slope * slope).sum(1) / count
    A.addcmul_(slope, (rate / squares.clamp(min=TINY**2).sqrt())[:, None], value=-1)


class Joint:
    """All weights of a model on a device while they are trained together."""

    def __init__(
        self,
        start: tuple[HostArray, ...],
        X: Any,
        Y: Any,
        w: HostArray,
        pairs: tuple[HostArray, HostArray],
        machine: Device,
        *,
        softmax: bool,
        normalize: bool,
        begun: float,
        ranking: float = 0.0,
    ) -> None:
        self.machine, self.softmax, self.normalize = machine, softmax, normalize
        self.ranking = ranking  # weight of the softmax loss beside the logistic one
        self.last = start[0].shape[0] - 1  # the constant
        self.W, self.R, self.b, V, self.D = (copy_to_device(part, machine.name) for part in start)
        self.linear, self.shape = self.R.shape[1] == 0, (V.shape[0] - 1, V.shape[1])
        self.V, self.constant = self.padded(V[:-1]), self.padded(V[-1:])[0]
        self.X, self.Y, self.w = Rows(X, machine.name), Rows(Y, machine.name), copy_to_device(w, machine.name)
        indptr, labels = (part.astype(np.int64) for part in pairs)
        met = pattern(X) @ np.diff(indptr) if len(labels) else np.zeros(0, np.int64)
        self.pairs = Pairs(copy_to_device(indptr, machine.name), copy_to_device(labels, machine.name), met)
        self.squares, self.slope = torch.full_like(self.D, begun), torch.zeros_like(self.D)
        self.w_squares, self.v_squares = torch.zeros_like(self.W[:, 0]), torch.zeros_like(self.constant)
        self.slope_W, self.met = torch.zeros_like(self.W), self.pairs.labels[:0]  # and the features that it is of
        moving = [self.constant, *([] if self.linear else [self.R, self.b])]
        self.adam = torch.optim.Adam(
            [{"params": [part], "lr": 0.0} for part in moving], betas=DECAYS, eps=TINY, fused=machine.half
        )

    def step(self, rows: HostArray, rates: tuple[float, ...], kept: Callable[[int], HostArray]) -> None:
        """Moves W, R, V, D and the constant by one step on these rows at these rates.

        `kept(count)` are factors of the features that the embedding sees; D sees all of them.
        """
        there = copy_to_device(rows, self.machine.name)
        whole = self.seen(rows, there)
        x = self.dropped(whole, kept)
        h, lengths, angles, Phi = self.link(x, len(rows))
        Phi, V = self.half(Phi), self.half(self.V)
        met = self.pairs.of(rows, *whole) if len(self.D) else None
        G = self.slopes(self.scored(Phi, V, met), rows, there)
        if met is not None:
            self.step_pairs(G, met, rates[3])
        halves = self.half(G)
        slope_V, self.constant.grad = self.product(Phi.T, halves), G.sum(0)
        self.backward(self.product(halves, V.T)[:, : self.shape[0]], h, lengths, angles, x)
        stepped(self.V.T, slope_V.T, self.v_squares, self.shape[0], rates[2])
        self.step_embedding(x, rates[0])
        self.gradients = self.slope_W, slope_V
        for group, rate in zip(self.adam.param_groups, (rates[4], rates[1], rates[1]), strict=False):
            group["lr"] = rate
        self.adam.step()

    def restart(self, constant: HostArray) -> None:
        """V = 0 but for the constant (c,)."""
        self.V.zero_()
        self.constant[: self.shape[1]] = copy_to_device(constant.astype(np.float32), self.machine.name)

    def scores(self, rows: HostArray) -> HostArray:
        """Scores (b, c) of some rows with all their features, on the host."""
        x = self.seen(rows, copy_to_device(rows, self.machine.name))
        Phi = self.link(x, len(rows))[3]
        met = self.pairs.of(rows, *x) if len(self.D) else None
        return to_host(self.scored(self.half(Phi), self.half(self.V), met)[:, : self.shape[1]])

    def seen(self, rows: HostArray, there: Tensor) -> Any:
        """Some rows: an array, or position, column and value of each entry."""
        return self.X.entries(rows, there) if self.X.sparse else self.X.array[there]

    def dropped(self, x: Any, kept: Callable[[int], HostArray]) -> Any:
        """The same with each feature multiplied by a factor; the constant stays."""
        if not self.X.sparse:
            x = x * copy_to_device(kept(x.numel()).reshape(tuple(x.shape)), self.machine.name)
            x[:, -1] = 1
            return x
        places, names, values = x
        factors = copy_to_device(kept(len(values)), self.machine.name)
        return places, names, torch.where(names == self.last, values, values * factors)

    def link(self, x: Any, count: int) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        """h, its lengths before they were made 1, the angles of its features, and these."""
        h, lengths = self.embed(x, count)
        if self.linear:
            return h, lengths, None, h
        angles = torch.addmm(self.b, h, self.R)
        return h, lengths, angles, angles.cos() * ROOT_TWO

    def scored(self, Phi: Tensor, V: Tensor, met: Met | None) -> Tensor:
        """V'phi + D'x (b, c)."""
        Z = self.product(Phi, V)
        Z += self.constant
        if met is not None:
            Z.view(-1).index_add_(0, met.at(Z.shape[1]), met.value * self.D[met.number])
        return Z

    def embed(self, x: Any, count: int) -> tuple[Tensor, Tensor | None]:
        """h (b, k) as the link sees it, and its lengths (b, 1) before they were made 1."""
        if self.X.sparse:
            places, names, values = x
            h = torch.zeros((count, self.W.shape[1]), device=self.W.device)
            h.index_add_(0, places, self.W[names] * values[:, None])
        else:
            h = x @ self.W
        if not self.normalize:
            return h, None
        lengths = h.norm(dim=1, keepdim=True).clamp_(min=TINY)
        return h / lengths, lengths

    def slopes(self, Z: Tensor, rows: HostArray, there: Tensor) -> Tensor:
        """The gradient of the loss by scores: weighted probabilities less labels."""
        Z[:, self.shape[1] :] = -float("inf")  # of no label
        places, labels, values = self.Y.entries(rows, there)
        if self.softmax:
            P = Z.softmax(1)
        elif self.ranking:
            ranked = Z.softmax(1)
            counts = torch.zeros(len(Z), device=Z.device).index_add_(0, places, values)
            ranked *= (counts > 0)[:, None]  # a row without labels ranks nothing
            P = Z.sigmoid_().add_(ranked, alpha=self.ranking)
            values = values * (1 + self.ranking / counts[places])
        else:
            P = Z.sigmoid_()
        P.view(-1).index_add_(0, places * P.shape[1] + labels, values, alpha=-1)
        P *= self.w[there, None]
        return P

    def step_pairs(self, G: Tensor, met: Met, rate: float) -> None:
        """Adagrad's step of D, one rate a weight."""
        slope = self.slope.zero_()
        slope.index_add_(0, met.number, met.value * G.view(-1)[met.at(G.shape[1])])
        self.squares.addcmul_(slope, slope)
        self.D.addcdiv_(slope, self.squares.sqrt(), value=-rate)

    def step_embedding(self, x: Any, rate: float) -> None:
        """Adagrad's step of W, one rate a feature; where X is sparse of the features of these rows alone.

        A feature of several rows takes its step once: the same numbers are written more than once.
        """
        if not self.X.sparse:
            stepped(self.W, self.slope_W, self.w_squares, self.W.shape[1], rate)
            return
        self.met = x[1]
        A, squares = self.W[self.met], self.w_squares[self.met]
        stepped(A, self.slope_W[self.met], squares, self.W.shape[1], rate)
        self.W[self.met], self.w_squares[self.met] = A, squares

    def backward(self, gradient: Tensor, h: Tensor, lengths: Tensor | None, angles: Tensor | None, x: Any) -> None:
        """The gradient of W, and those of R and b, from that of the features (b, s)."""
        if angles is not None:
            gradient = gradient * angles.sin_() * -ROOT_TWO
            self.R.grad, self.b.grad = h.T @ gradient, gradient.sum(0)
            gradient = gradient @ self.R.T
        if lengths is not None:
            gradient = (gradient - h * (gradient * h).sum(1, keepdim=True)) / lengths
        if self.X.sparse:
            places, names, values = x
            self.slope_W[self.met] = 0  # of the step before
            self.slope_W.index_add_(0, names, gradient[places] * values[:, None])
        else:
            self.slope_W = x.T @ gradient

    def padded(self, A: Tensor) -> Tensor:
        """A with zeros to the right and below: rows of halves must begin at multiples of 16 bytes, or products go by
        kernels of older cards."""
        if not self.machine.half:
            return A.contiguous()
        rows = -(-A.shape[0] // ALIGNED) * ALIGNED
        out = A.new_zeros((rows, -(-A.shape[1] // LABELS) * LABELS))
        out[: A.shape[0], : A.shape[1]] = A
        return out

    def half(self, A: Tensor) -> Tensor:
        """Features (b, s) or weights (s, c) for a product."""
        if not self.machine.half:
            return A
        if A.shape[1] == self.shape[0] != len(self.V):
            A = torch.nn.functional.pad(A, (0, len(self.V) - self.shape[0]))
        return A.bfloat16()

    def product(self, A: Tensor, B: Tensor) -> Tensor:
        return torch.mm(A, B, out_dtype=torch.float32) if self.machine.half else A @ B

    def parts(self) -> list[HostArray]:
        """W, R, b, V and D on the host."""
        s, c = self.shape
        V = torch.vstack([self.V[:s, :c], self.constant[:c]])
        return [np.array(to_host(part)) for part in (self.W, self.R, self.b, V, self.D)]
