"""Fine-tuning: the step of joint training over all labels, from a fitted model on (torch; on a GPU products of
half-precision numbers, with float32 weights).

V begins at zero again: a decoder that explains the rows already leaves W and D nothing to learn. Each step has a few
rows, and the embedding only some of their features: a missing feature must not decide. The loss is the logistic one
over all labels with a part of the softmax one, or where rows have one label softmax alone. Random features, phases and
intercepts take the steps of Adam.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from smoothlink.joint.batches import RowBatch
from smoothlink.joint.joint_training import FINETUNE, JointRows, JointState, JointWeights, sparse_weights
from smoothlink.machines.arrays import copy_to_device, to_host, unit_rows
from smoothlink.machines.host_and_device import Device
from smoothlink.steps.featurize import Features

HostArray = NDArray[Any]
Tensor = torch.Tensor

# Selected on held-out rows of library titles with two groups of 1,200 to 1,500 labels (decision 15).
V_RATE = 2.0  # over the mean of |phi_1| + .. + |phi_s|: how far one step may move a score
W_RATE = 1.0  # of the root mean square of W
R_RATE = 4.5e-4  # of the root mean square of R, and of the phases
INTERCEPT_RATE = 0.35  # of V's intercepts, over the same as V's
SOFTMAX_WEIGHT = 0.3  # of the softmax loss beside the logistic one
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-10
ADAM_MOMENTS = ("exp_avg", "exp_avg_sq")  # of each part that Adam moves, as torch calls them
LEAST_LENGTH = 1e-10  # of h, and of the root of mean squared gradients
FEATURE_MULTIPLE, LABEL_MULTIPLE = 8, 64  # on a GPU features and labels are padded to multiples of these


class LearningRates(NamedTuple):
    """Learning rates of the weights."""

    W: float
    R: float
    V: float
    D: float
    intercept: float


def rescale(weights: JointWeights, X: Any) -> tuple[JointWeights, LearningRates]:
    """Returns the same model with embeddings of mean squared length 1 on some rows X (n, d + 1), and its rates."""
    H = np.asarray(X @ weights.W)
    size = np.float32(np.sqrt(max(float(np.einsum("ij,ij->", H, H, dtype=np.float64)) / max(1, len(H)), 1e-30)))
    (R, b), V, factor = weights.features[:2], weights.V, np.float32(1) if weights.normalize else size
    if weights.features.linear:
        V = np.vstack([V[:-1] * factor, V[-1:]])
    weights = weights._replace(W=weights.W / size, features=Features(R * factor, b), V=V)
    H = unit_rows(H) if weights.normalize else H / size
    Phi = weights.features(H)[:, :-1]
    per_score = 1 / max(float(np.abs(Phi).sum(axis=1, dtype=np.float64).mean()), 1e-30)
    return weights, LearningRates(
        W=W_RATE * root_mean_square(weights.W[np.any(weights.W, axis=1)]),
        R=R_RATE * root_mean_square(weights.features.R),
        V=V_RATE * per_score,
        D=FINETUNE.sparse_rate,
        intercept=INTERCEPT_RATE * per_score,
    )


def root_mean_square(A: HostArray) -> float:
    return float(np.sqrt(np.mean(np.square(A, dtype=np.float64)))) if A.size else 0.0


class DeviceRows:
    """The rows of a sparse or dense matrix on a device, selected by number."""

    def __init__(self, A: Any, device: str) -> None:
        self.sparse = not isinstance(A, np.ndarray)
        if self.sparse:
            self.lengths, self.indptr = (
                np.diff(A.indptr).astype(np.int64),
                copy_to_device(A.indptr.astype(np.int64), device),
            )
            self.columns = copy_to_device(A.indices, device)
            self.values = copy_to_device(A.data.astype(np.float32), device)
        else:
            self.array = copy_to_device(A, device)

    def entries(self, rows: HostArray, on_device: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the position in `rows`, the column and the value of each entry of some sparse rows."""
        total = int(self.lengths[rows].sum())
        places, at = device_ranges(self.indptr[on_device], self.indptr[on_device + 1], total)
        return places, self.columns[at].long(), self.values[at]

    def select(self, rows: HostArray, on_device: Tensor) -> Any:
        """Returns some rows: an array, or their `entries`."""
        return self.entries(rows, on_device) if self.sparse else self.array[on_device]


def device_ranges(starts: Tensor, ends: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Returns all numbers of some ranges, one range after the other, after the range that each is of.

    How many they are in all is known before: the host need not wait for the device.
    """
    counts = ends - starts
    which = torch.repeat_interleave(counts, output_size=total)
    shifts = starts + counts - counts.cumsum(0, dtype=counts.dtype)
    return which, torch.arange(total, dtype=counts.dtype, device=counts.device) + shifts.index_select(0, which)


class UsedWeights(NamedTuple):
    """The sparse weights that the entries of a batch use, one use after the other."""

    number: Tensor  # of the weight in D
    row: Tensor  # in the batch
    label: Tensor
    value: Tensor  # of the feature

    def at(self, c: int) -> Tensor:
        """Returns where the scores (b, c) of these rows and labels are."""
        return self.row * c + self.label


class SparseOnDevice:
    """Which labels have a weight for each feature (d + 1, c), on a device."""

    def __init__(self, pattern: sp.csr_array, X: Any, device: str) -> None:
        self.pattern, counts = pattern, np.diff(pattern.indptr)[: X.shape[1]].astype(np.int64)
        self.indptr = copy_to_device(pattern.indptr.astype(np.int32), device)  # MOST_COOCCURRENCES has 28 bits
        self.labels = copy_to_device(pattern.indices.astype(np.int32, copy=False), device)
        self.used_by_row = (  # (n,)
            sp.csr_array((np.ones(X.nnz, np.int64), X.indices, X.indptr), X.shape) @ counts if pattern.nnz else None
        )

    def used(self, rows: HostArray, places: Tensor, columns: Tensor, values: Tensor) -> UsedWeights:
        """Returns the weights that each entry of some rows uses."""
        assert self.used_by_row is not None
        total = int(self.used_by_row[rows].sum())
        starts, ends = self.indptr.index_select(0, columns), self.indptr[1:].index_select(0, columns)
        entry, number = device_ranges(starts, ends, total)
        of_row, labels = places.index_select(0, entry), self.labels.index_select(0, number)
        return UsedWeights(number, of_row, labels, values.index_select(0, entry))


def step_rows(A: Tensor, gradient: Tensor, squares: Tensor, count: int, rate: float) -> None:
    """Moves A by Adagrad with one rate per row, in place; a row's gradient has `count` numbers, the rest is padding."""
    squares += (gradient * gradient).sum(1) / count
    A.addcmul_(gradient, (rate / squares.clamp(min=LEAST_LENGTH**2).sqrt())[:, None], value=-1)


class FineTuneStep:
    """One step of all weights of a model, on a device; the sparse weights start at 0."""

    def __init__(
        self,
        rows: JointRows,
        pattern: sp.csr_array,
        start: JointWeights,
        rates: LearningRates,
        machine: Device,
        *,
        dropout: float,
        softmax_weight: float = SOFTMAX_WEIGHT,
    ) -> None:
        self.machine, self.rates, self.dropout = machine, rates, dropout
        self.softmax, self.softmax_weight, self.normalize = rows.softmax, softmax_weight, start.normalize
        W, self.R, self.b, V = (copy_to_device(A, machine.name) for A in (start.W, *start.features[:2], start.V))
        self.linear, self.last, self.shape = start.features.linear, len(W) - 1, (V.shape[0] - 1, V.shape[1])
        self.intercepts = self.padded(V[-1:])[0]
        D = torch.zeros(pattern.nnz, device=W.device)
        self.state = JointState.start(W, self.padded(V[:-1]).T, D)
        self.X, self.Y = DeviceRows(rows.X, machine.name), DeviceRows(rows.Y, machine.name)
        self.w, self.sparse = copy_to_device(rows.w, machine.name), SparseOnDevice(pattern, rows.X, machine.name)
        self.W_gradient, self.columns = (
            torch.zeros_like(W),
            self.sparse.labels[:0].long(),
        )  # and the features that it is of
        self.D_gradient = torch.zeros_like(D)
        moved = [self.intercepts, *([] if self.linear else [self.R, self.b])]
        self.adam = torch.optim.Adam(
            [{"params": [part], "lr": 0.0} for part in moved], betas=ADAM_BETAS, eps=ADAM_EPSILON, fused=machine.half
        )

    def __call__(self, batch: RowBatch, rate: float) -> None:
        """Moves all weights by one step; dropout leaves features out of the embedding, but not for the sparse ones."""
        rates, rows = LearningRates(*(rate * r for r in self.rates)), batch.rows
        on_device = copy_to_device(rows, self.machine.name)
        whole = self.X.select(rows, on_device)
        x = self.drop_features(whole, batch.rng)
        h, lengths, angles, Phi = self.featurize(x, len(rows))
        Phi, V = self.half(Phi), self.half(self.state.V.T)
        used = self.sparse.used(rows, *whole) if len(self.state.D) else None
        G = self.score_gradient(self.score(Phi, V, used), rows, on_device)
        if used is not None:
            self.step_sparse(G, used, rates.D)
        G_half = self.half(G)
        self.V_gradient, self.intercepts.grad = self.product(Phi.T, G_half), G.sum(0)
        self.backward(self.product(G_half, V.T)[:, : self.shape[0]], h, lengths, angles, x)
        step_rows(self.state.V, self.V_gradient.T, self.state.v_squares, self.shape[0], rates.V)
        self.step_embedding(x, rates.W)
        for group, adam_rate in zip(self.adam.param_groups, (rates.intercept, rates.R, rates.R), strict=False):
            group["lr"] = adam_rate
        self.adam.step()

    def restart(self, intercepts: HostArray) -> None:
        """Sets V to 0 but for the intercepts (c,)."""
        self.state.V.zero_()
        self.intercepts[: self.shape[1]] = copy_to_device(intercepts.astype(np.float32), self.machine.name)

    def scores(self, rows: HostArray) -> HostArray:
        """Returns the scores (b, c) of some rows with all their features, on the host."""
        x = self.X.select(rows, copy_to_device(rows, self.machine.name))
        Phi = self.featurize(x, len(rows))[3]
        used = self.sparse.used(rows, *x) if len(self.state.D) else None
        return to_host(self.score(self.half(Phi), self.half(self.state.V.T), used)[:, : self.shape[1]])

    def weights(self) -> JointWeights:
        """Returns all weights on the host."""
        s, c = self.shape
        V = torch.vstack([self.state.V.T[:s, :c], self.intercepts[:c]])
        W, R, b, decoder, D = (np.array(to_host(A)) for A in (self.state.W, self.R, self.b, V, self.state.D))
        P = self.sparse.pattern
        sparse = sparse_weights(sp.csr_array((D, P.indices, P.indptr), P.shape))
        return JointWeights(W, Features(R, b), decoder, sparse, self.normalize)

    def save(self) -> dict[str, HostArray]:
        """Returns all that steps move, on the host."""
        parts = {**vars(self.state), "R": self.R, "b": self.b, "intercepts": self.intercepts}
        for i, group in enumerate(self.adam.param_groups):
            parts |= {f"{name}{i}": A for name, A in self.adam.state[group["params"][0]].items()}
        return {name: to_host(A) for name, A in parts.items()}

    def load(self, saved: dict[str, HostArray]) -> None:
        """Takes over what `save` returned."""
        for name, A in {**vars(self.state), "R": self.R, "b": self.b, "intercepts": self.intercepts}.items():
            A.copy_(torch.from_numpy(saved[name]))
        for i, group in enumerate(self.adam.param_groups):
            moments = {name: copy_to_device(saved[f"{name}{i}"], self.machine.name) for name in ADAM_MOMENTS}
            count = torch.from_numpy(saved[f"step{i}"])
            moments["step"] = count.to(self.machine.name) if self.machine.half else count
            self.adam.state[group["params"][0]] = moments

    def drop_features(self, x: Any, rng: np.random.Generator) -> Any:
        """Returns rows with some features 0 and the others larger, so that their mean stays; the intercept stays."""
        whole = x[2] if self.X.sparse else x
        kept = rng.random(whole.numel(), np.float32) >= self.dropout
        factors = copy_to_device((kept / np.float32(1 - self.dropout)).astype(np.float32), self.machine.name)
        values = whole * factors.view(whole.shape)
        if self.X.sparse:
            return *x[:2], torch.where(x[1] == self.last, whole, values)
        values[:, -1] = 1
        return values

    def featurize(self, x: Any, count: int) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        """Returns h (b, k), its lengths before they were made 1, the angles of its random features, and phi (b, s)."""
        if self.X.sparse:
            places, columns, values = x
            h = torch.zeros((count, self.state.W.shape[1]), device=self.state.W.device)
            h.index_add_(0, places, self.state.W[columns] * values[:, None])
        else:
            h = x @ self.state.W
        lengths = None
        if self.normalize:
            lengths = h.norm(dim=1, keepdim=True).clamp_(min=LEAST_LENGTH)
            h = h / lengths
        if self.linear:
            return h, lengths, None, h
        angles = torch.addmm(self.b, h, self.R)
        return h, lengths, angles, angles.cos() * float(np.sqrt(2))

    def score(self, Phi: Tensor, V: Tensor, used: UsedWeights | None) -> Tensor:
        """Returns V'phi + b + D'x (b, c)."""
        Z = self.product(Phi, V)
        Z += self.intercepts
        if used is not None:
            Z.view(-1).index_add_(0, used.at(Z.shape[1]), used.value * self.state.D.index_select(0, used.number))
        return Z

    def score_gradient(self, Z: Tensor, rows: HostArray, on_device: Tensor) -> Tensor:
        """Returns the gradient of the loss by scores: weighted probabilities less labels."""
        Z[:, self.shape[1] :] = -float("inf")  # padding
        places, labels, values = self.Y.entries(rows, on_device)
        if self.softmax:
            P = Z.softmax(1)
        else:
            S = Z.softmax(1)
            counts = torch.zeros(len(Z), device=Z.device).index_add_(0, places, values)
            S *= (counts > 0)[:, None]  # a row without labels has no softmax loss
            P = Z.sigmoid_().add_(S, alpha=self.softmax_weight)
            values = values * (1 + self.softmax_weight / counts[places])
        P.view(-1).index_add_(0, places * P.shape[1] + labels, values, alpha=-1)
        P *= self.w[on_device, None]
        return P

    def step_sparse(self, G: Tensor, used: UsedWeights, rate: float) -> None:
        """Moves D by Adagrad with one rate per weight."""
        gradient, state = self.D_gradient.zero_(), self.state
        gradient.index_add_(0, used.number, used.value * G.view(-1)[used.at(G.shape[1])])
        state.d_squares.addcmul_(gradient, gradient)
        state.D.addcdiv_(gradient, state.d_squares.sqrt(), value=-rate)

    def step_embedding(self, x: Any, rate: float) -> None:
        """Moves W by Adagrad with one rate per feature; where X is sparse, only the features of these rows.

        A feature of several rows takes its step once: the same numbers are written more than once.
        """
        W, squares = self.state.W, self.state.w_squares
        if not self.X.sparse:
            step_rows(W, self.W_gradient, squares, W.shape[1], rate)
            return
        self.columns = x[1]
        some, some_squares = W[self.columns], squares[self.columns]
        step_rows(some, self.W_gradient[self.columns], some_squares, W.shape[1], rate)
        W[self.columns], squares[self.columns] = some, some_squares

    def backward(self, gradient: Tensor, h: Tensor, lengths: Tensor | None, angles: Tensor | None, x: Any) -> None:
        """Sets the gradients of W, R and b from that of phi (b, s)."""
        if angles is not None:
            gradient = gradient * angles.sin_() * -float(np.sqrt(2))
            self.R.grad, self.b.grad = h.T @ gradient, gradient.sum(0)
            gradient = gradient @ self.R.T
        if lengths is not None:
            gradient = (gradient - h * (gradient * h).sum(1, keepdim=True)) / lengths
        if self.X.sparse:
            places, columns, values = x
            self.W_gradient[self.columns] = 0  # of the step before
            self.W_gradient.index_add_(0, columns, gradient[places] * values[:, None])
        else:
            self.W_gradient = x.T @ gradient

    def padded(self, A: Tensor) -> Tensor:
        """Returns A with zeros to the right and below: rows of half-precision numbers must begin at multiples of 16
        bytes, or products go by slower kernels."""
        if not self.machine.half:
            return A.contiguous()
        rows = -(-A.shape[0] // FEATURE_MULTIPLE) * FEATURE_MULTIPLE
        out = A.new_zeros((rows, -(-A.shape[1] // LABEL_MULTIPLE) * LABEL_MULTIPLE))
        out[: A.shape[0], : A.shape[1]] = A
        return out

    def half(self, A: Tensor) -> Tensor:
        """Returns features (b, s) or weights (s, c) in the precision of products, padded."""
        if not self.machine.half:
            return A
        s = self.state.V.shape[1]
        if A.shape[1] == self.shape[0] != s:
            A = torch.nn.functional.pad(A, (0, s - self.shape[0]))
        return A.bfloat16()

    def product(self, A: Tensor, B: Tensor) -> Tensor:
        return torch.mm(A, B, out_dtype=torch.float32) if self.machine.half else A @ B
