"""A fitted model: the parts of the path, put together to score rows in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.arrays import contiguous, to_device_of, unit_rows
from smoothlink.machines.half_precision import Half
from smoothlink.machines.host_and_device import Host, Machine
from smoothlink.machines.products import product, project
from smoothlink.machines.shards import Shards
from smoothlink.machines.sparse_weights import SparseWeights
from smoothlink.safetensors_file import Verification
from smoothlink.steps.calibrate import FEW_SCORES, LEAST_PROBABILITY, Calibration
from smoothlink.steps.featurize import Features
from smoothlink.steps.landmarks import Landmarks
from smoothlink.steps.scale import Scaling
from smoothlink.steps.squared import prior

Array = NDArray[Any]

BLOCK_BYTES = 64 << 20  # of scores or features at a time
BLOCK_ROWS = 2048  # more do not make a product faster, and labels of a block would be few
ALL = slice(None)


class DecoderInputs(NamedTuple):
    """What the decoder sees of some rows."""

    Phi: Any  # (b, s + 1), as V wants them
    blank: Array  # (b,) rows of which nothing is known
    X: Any = None  # (b, d + 1) the scaled rows themselves, where labels have weights for single features


@dataclass(frozen=True)
class EmbeddedRows:
    """Embedded rows of a model whose labels have weights for single features too, with the rows themselves."""

    H: Array  # (n, k)
    X: sp.csr_array  # (n, d + 1), scaled

    def __len__(self) -> int:
        return len(self.H)

    def __getitem__(self, part: Any) -> EmbeddedRows:
        return EmbeddedRows(self.H[part], self.X[part])


@dataclass(frozen=True)
class RawRows:
    """Rows as they came, for a model on a device: they are sent and embedded there a block at a time."""

    X: Any  # (n, d)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def __getitem__(self, part: Any) -> RawRows:
        return RawRows(self.X[part])


@dataclass(frozen=True)
class Model:
    """x -> scale -> (input features) -> h = W'x -> phi(h) -> scores V'phi (+ D'x) -> probabilities."""

    scaling: Scaling
    input_features: Features | Landmarks | None  # the kernel first stage, where there is one
    W: Any  # (d + 1, k), an array, Half or a tensor; None: h is x, or the classifier's activations
    classifier: Any  # a scikit-learn first stage that is not linear (Algorithm 2); such a model cannot be saved
    normalize: bool  # whether h is scaled to unit length
    features: Features
    V: Any  # (s + 1, c), an array, Half, or Placed on a device
    loss: str  # "squared", "logistic" or "softmax"
    multiclass: bool
    calibration: Calibration
    counts: Array  # (c,) weighted training count of each label
    total: float  # total training weight
    thresholds: Array  # (c,) Algorithm 4's, from held-out rows
    D: SparseWeights | None = None  # (d + 1, c) sparse feature weights of labels, where they were trained jointly
    verification: Verification | None = None  # of the mapped arrays, where it goes on in the background

    def on(self, machine: Machine) -> Model:
        """The same model with its large arrays on a device: rows are embedded and scored there."""
        if isinstance(machine, Host):
            return self
        from smoothlink.machines.device_weights import DeviceWeights

        W, V = self.W, DeviceWeights(self.V, self.unseen, machine, self.D)
        W = machine.to_device(W.wide() if isinstance(W, Half) else W)
        return replace(self, W=W, features=machine.to_device(self.features), V=V)

    @property
    def placed(self) -> bool:
        """Whether it is on a device."""
        return hasattr(self.V, "machine")

    @cached_property
    def n_labels(self) -> int:
        return int(self.V.shape[1])

    @cached_property
    def unseen(self) -> Array:
        """Whether each label (c,) was never seen in training."""
        return np.asarray(self.counts <= 0)

    @cached_property
    def any_unseen(self) -> bool:
        return bool(self.unseen.any())

    def embed(self, X: Any) -> Array:
        """h (n, k) of raw rows X (n, d); nan marks sparse rows without any feature."""
        if X.shape[0] == 1 and sp.issparse(X) and self.W is not None and self.plain and not self.placed:
            return self.embed_one(X, self.W)
        return self.embed_scaled(self.scaling(X))

    def embed_scaled(self, A: Any) -> Array:
        """h (n, k) of scaled rows A (n, d + 1), the constant last."""
        H, blank = self.embedded(A)
        if blank.any():
            H[to_device_of(H, blank)] = np.nan
        return H

    def embedded(self, A: Any) -> tuple[Array, Array]:
        """h (n, k) of scaled rows, and which of them (n,) have no feature but the constant."""
        blank = np.diff(A.indptr) == 1 if sp.issparse(A) else np.zeros(len(A), bool)
        if self.input_features is not None:
            A = self.input_features(A[:, :-1])
        if self.classifier is not None:
            H = self.classifier(A[:, :-1])
        elif self.W is None:
            H = A[:, :-1].toarray() if sp.issparse(A) else A[:, :-1]
        else:
            H = project(A, self.W)
        H = self.V.machine.to_device(H) if self.placed else H
        return unit_rows(H) if self.normalize else contiguous(H), blank

    def embed_rows(self, X: Any) -> Array | EmbeddedRows | RawRows:
        """What scores are made of: h (n, k) of raw rows X (n, d), and where labels have weights for x, x itself."""
        if self.verification is not None:
            self.verification.check()
        if self.placed:
            return RawRows(X)
        if self.D is None:
            return self.embed(X)
        if X.shape[0] == 1:  # of which `embed` makes less ado
            return EmbeddedRows(self.embed(X), self.scaling(X))
        return self.embed_scaled_rows(self.scaling(X))

    def embed_scaled_rows(self, A: sp.csr_array) -> Array | EmbeddedRows:
        """`sight` of scaled rows A (n, d + 1)."""
        H = self.embed_scaled(A)
        return H if self.D is None else EmbeddedRows(H, A)

    @property
    def plain(self) -> bool:
        """Whether h = W'x has nothing between W and a sparse x but a scale."""
        return not (self.scaling.dense or self.classifier is not None or self.input_features is not None)

    def embed_one(self, X: sp.csr_array, W: Array | Half) -> Array:
        """`embed` of one sparse row, to within rounding, in a tenth of the time: only its rows of W are touched."""
        k = int(W.shape[1])
        if not X.nnz:
            return np.full((1, k), np.nan, np.float32)
        x = X.data.astype(np.float32)
        if self.scaling.kind == "unit":
            x = x / np.sqrt(x.astype(np.float64) @ x).astype(np.float32)
        elif self.scaling.kind == "variance":
            x = x * self.scaling.factor[X.indices]
        names = np.append(X.indices, W.shape[0] - 1)
        rows = W.rows(names) if isinstance(W, Half) else W[names]
        H = (np.append(x, np.float32(1)) @ rows)[None]
        return unit_rows(H) if self.normalize else H

    def see(self, rows: Array | EmbeddedRows | RawRows) -> DecoderInputs:
        """The link's features of embedded rows, or of those still to be embedded."""
        if isinstance(rows, RawRows):
            A = self.scaling(rows.X)
            H, blank = self.embedded(A)
            X = None if self.D is None else A
            return DecoderInputs(self.V.see(self.features(H), X), blank, X)
        H, X = (rows.H, rows.X) if isinstance(rows, EmbeddedRows) else (rows, None)
        blank = np.isnan(H[:, 0])
        return DecoderInputs(self.features(np.where(blank[:, None], np.float32(0), H) if blank.any() else H), blank, X)

    def scores(self, rows: Array | EmbeddedRows | RawRows, labels: Array | None = None) -> Array:
        """Scores (n, c) of embedded rows, for all labels or the given ones; never-seen labels score -inf."""
        return self.score(self.see(rows), ALL if labels is None else labels)

    def score(self, seen: DecoderInputs, labels: slice | Array = ALL, out: Array | None = None) -> Array:
        """Scores (b, m) of these labels, which alone are read: s + 1 products for each row and label."""
        if isinstance(self.V, Half | Shards) or self.placed:
            S = self.V.left(seen.Phi, labels, out)
        else:
            S = product(seen.Phi, self.V[:, labels], out)
        if self.D is not None:
            self.D.add(S, seen.X, labels, self.n_labels)
        if seen.blank.any():
            S[seen.blank] = self.prior_scores[labels]
        if self.any_unseen:
            S[:, self.unseen[labels]] = -np.inf
        return S

    @property
    def prior_scores(self) -> Array:
        """Scores (c,) of the label frequencies: the answer to a row of which nothing is known."""
        p = prior(self.counts, self.total)
        if self.multiclass:
            return np.log(p / p.sum()) / self.calibration.temperature
        return p if self.loss == "squared" else np.log(p / (1 - p))

    @property
    def nothing_known(self) -> Array:
        """Scores (1, c) of such a row."""
        return np.where(self.unseen, -np.inf, self.prior_scores)[None].astype(np.float32)

    def probabilities(self, S: Array, normalisers: Array | None = None) -> Array:
        """Probabilities of scores (n, any); a score of -inf, of a label never seen, becomes the smoothed prior.

        None is 0 or 1: no finite training set says so. Multiclass rows sum to 1; where S has not all labels, the
        `normalisers` (n,) of its rows are needed.
        """
        return self.finished(self.calibrated(S, normalisers), S)

    @property
    def lifts(self) -> bool:
        """Whether the best label of a row has a probability of its own kind."""
        return not self.multiclass and self.calibration.recalibrates_top1

    def lifted(self, P: Array) -> Array:
        """Probabilities of best labels, which on their own would be P."""
        return np.clip(
            self.calibration.recalibrate_top1(P), np.float32(LEAST_PROBABILITY), np.float32(1 - LEAST_PROBABILITY)
        )

    def finished(self, P: Array, S: Array) -> Array:
        """Calibrated probabilities P of scores S away from 0 and 1, in place; never-seen labels get their prior."""
        c = self.n_labels if self.multiclass else 2  # half a row is added to each class, or to either side
        little = 0.5 / (self.total + 0.5 * c)
        if self.multiclass and self.any_unseen:
            P *= np.float32(1 - little * np.count_nonzero(self.unseen))
        return self.settled(
            P, S, *((-np.inf, np.inf) if self.multiclass else (LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)), little
        )

    def calibrated(self, S: Array, normalisers: Array | None = None) -> Array:
        """What held-out rows make of scores, as Algorithm 4 and its thresholds see it: 0 for labels never seen."""
        if self.multiclass:
            normalisers = self.normalisers(S) if normalisers is None else normalisers
            return np.asarray(np.exp(S * np.float32(self.calibration.temperature) - normalisers[:, None]))
        return self.settled(self.calibration.probabilities(S, loss=self.loss), S, 0, 1, 0)

    def settled(self, P: Array, S: Array, least: float, most: float, never: float) -> Array:
        """P cut to least .. most, in place; `never` for labels never seen."""
        if self.any_unseen and P.size > FEW_SCORES:
            from smoothlink.machines import prediction_kernels as selection

            selection.settle(P, S, float(least), float(most), float(never))
            return P
        np.clip(P, np.float32(least), np.float32(most), out=P)
        if self.any_unseen:
            P[np.isneginf(S)] = never
        return P

    def normalisers(self, S: Array) -> Array:
        """log sum exp (n,) of each row's tempered scores."""
        Z = S * np.float32(self.calibration.temperature)
        top = np.maximum(Z.max(axis=1, initial=-np.inf), np.finfo(Z.dtype).min)  # finite, even if no label was seen
        with np.errstate(divide="ignore"):
            return np.asarray(top + np.log(np.exp(Z - top[:, None]).sum(axis=1)))

    def all_normalisers(self, seen: DecoderInputs) -> Array:
        """`normalisers` over all labels, a block of them at a time."""
        if self.placed:
            total = self.V.normalisers(seen.Phi, self.calibration.temperature)
            total[seen.blank] = self.normalisers(self.nothing_known)
            return total
        total = np.full(len(seen.blank), -np.inf, np.float32)
        for labels in self.label_blocks(len(total)):
            total = np.logaddexp(total, self.normalisers(self.score(seen, labels)))
        return total

    def row_blocks(self, n: int) -> Iterator[slice]:
        """Rows whose features and scores fit a block."""
        yield from blocks(n, BLOCK_BYTES // (4 * max(self.n_labels, self.V.shape[0])))

    def feature_blocks(self, n: int) -> Iterator[slice]:
        """Rows whose features fit a block; of their scores a block holds `label_blocks`."""
        yield from blocks(n, min(BLOCK_ROWS, BLOCK_BYTES // (4 * self.V.shape[0])))

    def label_blocks(self, n: int) -> Iterator[slice]:
        """Labels whose scores for all n rows fit a quarter of a block: they stay in the cache until they are ranked."""
        yield from blocks(self.n_labels, BLOCK_BYTES // (16 * max(1, n)))


def blocks(n: int, size: int) -> Iterator[slice]:
    """0 .. n in slices of at most `size`, at least 1."""
    step = max(1, size)
    yield from (slice(start, min(n, start + step)) for start in range(0, n, step))
