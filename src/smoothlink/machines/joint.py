"""One step of fine-tuning: the scores of a batch, their gradients through the link, and Adam's step of all weights
(torch; on a card products of halves with float32 weights).

The score of a row x is V'phi(h) + D'x, h = W'x (of unit length if asked), phi(h) = sqrt(2) cos(R'h + b) or h itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from smoothlink.machines.arrays import host, sent
from smoothlink.machines.machine import Device

HostArray = NDArray[Any]
Tensor = torch.Tensor

DECAYS = (0.9, 0.999)  # of Adam's means
TINY = 1e-10
ROOT_TWO = float(np.sqrt(2))


class Rows:
    """The rows of a sparse or dense matrix on a device, a few at a time by number."""

    def __init__(self, A: Any, device: str) -> None:
        self.device, self.sparse = device, not isinstance(A, np.ndarray)
        if self.sparse:
            self.ends = A.indptr
            self.names, self.values = sent(A.indices, device), sent(A.data.astype(np.float32), device)
        else:
            self.array = sent(A, device)

    def entries(self, rows: HostArray) -> tuple[Tensor, Tensor, Tensor]:
        """Position in `rows`, column and value of each entry of some sparse rows."""
        counts = self.ends[rows + 1] - self.ends[rows]
        places = np.repeat(np.arange(len(rows)), counts)
        at = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(self.ends[rows], counts)
        at = sent(at, self.device)
        return sent(places, self.device), self.names[at].long(), self.values[at]


class Pairs(NamedTuple):
    """The pairs of a feature and a label that have a weight, feature by feature."""

    indptr: Tensor  # (d + 1,) int64
    labels: Tensor  # int64

    def of(self, places: Tensor, names: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of each entry of a batch and each pair of its feature: number of the pair, position of the row, value."""
        begins = self.indptr[names]
        counts = self.indptr[names + 1] - begins
        entry = torch.repeat_interleave(torch.arange(len(names), device=names.device), counts)
        inside = torch.arange(len(entry), device=names.device) - (counts.cumsum(0) - counts)[entry]
        return begins[entry] + inside, places[entry], values[entry]


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
    ) -> None:
        self.machine, self.softmax, self.normalize = machine, softmax, normalize
        self.last = start[0].shape[0] - 1  # the constant
        self.W, self.R, self.b, self.V, self.D = (sent(part, machine.name) for part in start)
        self.linear = self.R.shape[1] == 0
        self.X, self.Y, self.w = Rows(X, machine.name), Rows(Y, machine.name), sent(w, machine.name)
        self.pairs = Pairs(*(sent(part.astype(np.int64), machine.name) for part in pairs))
        self.squares, self.slope = torch.full_like(self.D, begun), torch.zeros_like(self.D)
        moving = [self.W, self.V] if self.linear else [self.W, self.V, self.R, self.b]
        self.adam = torch.optim.Adam(
            [{"params": [part], "lr": 0.0} for part in moving], betas=DECAYS, eps=TINY, fused=machine.half
        )

    def step(self, rows: HostArray, rates: tuple[float, ...], kept: Callable[[int], HostArray]) -> None:
        """Moves W, R, V and D by one step on these rows at these rates; `kept(count)` are factors of their features."""
        x = self.seen(rows, kept)
        h, lengths, angles, Phi = self.link(x, len(rows))
        Phi, V = self.half(Phi), self.half(self.V[:-1])
        found = self.pairs.of(*x) if len(self.D) else None
        G = self.slopes(self.scored(Phi, V, found), rows)
        if found is not None:
            self.step_pairs(G, *found, rates[3])
        halves = self.half(G)
        self.V.grad = torch.cat([self.product(Phi.T, halves), G.sum(0, keepdim=True)])
        self.backward(self.product(halves, V.T), h, lengths, angles, x)
        for group, rate in zip(self.adam.param_groups, (rates[0], rates[2], rates[1], rates[1]), strict=False):
            group["lr"] = rate
        self.adam.step()

    def scores(self, rows: HostArray) -> HostArray:
        """Scores (b, c) of some rows with all their features, on the host."""
        x = self.seen(rows, None)
        Phi = self.link(x, len(rows))[3]
        found = self.pairs.of(*x) if len(self.D) else None
        return host(self.scored(self.half(Phi), self.half(self.V[:-1]), found))

    def seen(self, rows: HostArray, kept: Callable[[int], HostArray] | None) -> Any:
        """Some rows, each feature multiplied by a factor; the constant stays."""
        if not self.X.sparse:
            x = self.X.array[sent(rows, self.machine.name)]
            if kept is not None:
                x = x * sent(kept(x.numel()).reshape(tuple(x.shape)), self.machine.name)
                x[:, -1] = 1
            return x
        places, names, values = self.X.entries(rows)
        if kept is not None:
            factors = sent(kept(len(values)), self.machine.name)
            values = torch.where(names == self.last, values, values * factors)
        return places, names, values

    def link(self, x: Any, count: int) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        """h, its lengths before they were made 1, the angles of its features, and these."""
        h, lengths = self.embed(x, count)
        if self.linear:
            return h, lengths, None, h
        angles = torch.addmm(self.b, h, self.R)
        return h, lengths, angles, angles.cos() * ROOT_TWO

    def scored(self, Phi: Tensor, V: Tensor, found: tuple[Tensor, Tensor, Tensor] | None) -> Tensor:
        """V'phi + D'x (b, c)."""
        Z = self.product(Phi, V)
        Z += self.V[-1]
        if found is not None:
            number, place, value = found
            Z.view(-1).index_add_(0, place * Z.shape[1] + self.pairs.labels[number], value * self.D[number])
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

    def slopes(self, Z: Tensor, rows: HostArray) -> Tensor:
        """The gradient of the loss by scores: weighted probabilities less labels, in place."""
        P = Z.softmax(1) if self.softmax else Z.sigmoid_()
        places, labels, _ = self.Y.entries(rows)
        P.index_put_((places, labels), P.new_full((1,), -1.0), accumulate=True)
        w: Tensor = self.w[sent(rows, self.machine.name)]
        P *= w[:, None]
        return P

    def step_pairs(self, G: Tensor, number: Tensor, place: Tensor, value: Tensor, rate: float) -> None:
        """Adagrad's step of D, one rate a weight."""
        slope = self.slope.zero_()
        slope.index_add_(0, number, value * G.view(-1)[place * G.shape[1] + self.pairs.labels[number]])
        self.squares.addcmul_(slope, slope)
        self.D.addcdiv_(slope, self.squares.sqrt(), value=-rate)

    def backward(self, gradient: Tensor, h: Tensor, lengths: Tensor | None, angles: Tensor | None, x: Any) -> None:
        """Gradients of W, R and b from that of the features (b, s)."""
        if angles is not None:
            gradient = gradient * angles.sin_() * -ROOT_TWO
            self.R.grad, self.b.grad = h.T @ gradient, gradient.sum(0)
            gradient = gradient @ self.R.T
        if lengths is not None:
            gradient = (gradient - h * (gradient * h).sum(1, keepdim=True)) / lengths
        if self.X.sparse:
            places, names, values = x
            self.W.grad = torch.zeros_like(self.W).index_add_(0, names, gradient[places] * values[:, None])
        else:
            self.W.grad = x.T @ gradient

    def half(self, A: Tensor) -> Tensor:
        return A.bfloat16() if self.machine.half else A

    def product(self, A: Tensor, B: Tensor) -> Tensor:
        return torch.mm(A, B, out_dtype=torch.float32) if self.machine.half else A @ B

    def parts(self) -> list[HostArray]:
        """W, R, b, V and D on the host."""
        return [np.array(host(part)) for part in (self.W, self.R, self.b, self.V, self.D)]
