"""A fitted model: the parts of the path, put together to score rows in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.candidates import CandidateSearch, Keys
from smoothlink.machines.arrays import contiguous, unit_rows
from smoothlink.machines.matrices import row_range
from smoothlink.machines.sparse_weights import SparseWeights
from smoothlink.safetensors_file import Verification
from smoothlink.steps.calibrate import FEW_SCORES, LEAST_PROBABILITY, Calibration
from smoothlink.steps.featurize import Features
from smoothlink.steps.infer import RunningTopK
from smoothlink.steps.landmarks import Landmarks
from smoothlink.steps.reference import Reference
from smoothlink.steps.scale import Scaling
from smoothlink.steps.squared import prior
from smoothlink.steps.thresholds import HALF
from smoothlink.steps.trees import Trees
from smoothlink.weights import ALL, HostProjection, Projection, Weights

Array = NDArray[Any]

BLOCK_BYTES = 64 << 20
PREDICTION_ROWS = 2048  # more do not make a product faster, and labels of a block would be few
FEATURE_BYTES = 1 << 30  # of features that are kept while the labels pass by


class DecoderInputs(NamedTuple):
    """What the decoder computes scores from."""

    Phi: Any  # (b, s + 1), as V takes them
    without_features: Array  # (b,) rows that have no feature
    X: Any = None  # (b, d + 1) the scaled rows themselves, where labels have sparse weights


@dataclass(frozen=True)
class EmbeddedRows:
    """Embedded rows of a model whose labels have sparse weights, with the rows themselves."""

    H: Array  # (n, k)
    X: sp.csr_array  # (n, d + 1), scaled

    def __len__(self) -> int:
        return len(self.H)

    def __getitem__(self, part: Any) -> EmbeddedRows:
        if part == slice(0, len(self)):  # of few rows, to slice X would take as long as all else
            return self
        return EmbeddedRows(self.H[part], row_range(self.X, part) if isinstance(part, slice) else self.X[part])


class BestScores(NamedTuple):
    """The best labels of each row, best first."""

    ids: Array  # (b, k)
    scores: Array  # (b, k)
    normalisers: Array | None  # (b,) of a multiclass model


@dataclass(frozen=True)
class Model:
    """x -> scale -> (trees) -> (input features) -> h = W'x -> phi(h) -> scores V'phi (+ D'x) -> probabilities."""

    scaling: Scaling
    input_features: Features | Landmarks | None  # the kernel first stage, where there is one
    W: HostProjection | None  # (d + 1, k); None: h is x, or the classifier's activations
    classifier: Any  # a scikit-learn first stage that is not linear (Algorithm 2); such a model cannot be saved
    normalize: bool  # whether h is scaled to unit length
    features: Features
    V: Weights  # (s + 1, c)
    loss: str  # "squared", "logistic" or "softmax"
    multiclass: bool
    calibration: Calibration
    counts: Array  # (c,) weighted training count of each label
    total: float  # total training weight
    thresholds: Array  # (c,) for a high F1 of each label, from held-out rows
    threshold: float | None = HALF  # of all labels, by the model's aim; None: `thresholds`
    sparse_weights: SparseWeights | None = None  # D (d + 1, c), of joint training and of the ridge onto all labels
    reference: Reference | None = None  # what held-out rows were like, where there were any
    trees: Trees | None = None  # whose predictions stand beside the scaled x, where there are any
    verification: Verification | None = None  # of the mapped arrays, where it goes on in the background
    block_bytes: int = BLOCK_BYTES  # of scores or features at a time

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields alone: what is derived from them is derived again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def n_labels(self) -> int:
        return self.V.shape[1]

    @cached_property
    def untrained(self) -> Array:
        """Returns whether each label (c,) has no training rows."""
        return np.asarray(self.counts <= 0)

    @cached_property
    def any_untrained(self) -> bool:
        return bool(self.untrained.any())

    @cached_property
    def own_thresholds(self) -> Array:
        """Returns the least probability (c,) at which `predict` returns each label, by the model's aim."""
        found = self.thresholds if self.threshold is None else np.full(self.n_labels, self.threshold)
        return self.for_trained_labels(found)

    @property
    def has_aim(self) -> bool:
        """Returns whether thresholds were chosen for an aim other than labels more likely than not."""
        return self.threshold != HALF

    def for_trained_labels(self, thresholds: Array) -> Array:
        """Returns thresholds (c,) that are infinite for labels without training rows."""
        return np.where(self.untrained, np.inf, thresholds)

    # Rows -> h

    def embed(self, X: Any) -> Array:
        """Returns h (n, k) of raw rows X (n, d); nan marks sparse rows without any feature."""
        return self.embed_scaled(self.scaling(X))

    def embed_scaled(self, A: Any) -> Array:
        """Returns h (n, k) of scaled rows A (n, d + 1), the intercept last."""
        if A.shape[0] == 1 and sp.issparse(A) and self.W is not None and self.linear_in_x:
            return self.embed_one(A, self.W)
        H, without_features = self.project_scaled(A, self.W)
        if without_features.any():
            H[without_features] = np.nan
        return H

    def project_scaled(self, A: Any, W: Projection | None) -> tuple[Any, Array]:
        """Returns h (n, k) of scaled rows, and which of them (n,) have no feature but the intercept."""
        without_features = np.diff(A.indptr) == 1 if sp.issparse(A) else np.zeros(len(A), bool)
        if self.trees is not None:
            A = self.trees(A[:, :-1])
        if self.input_features is not None:
            A = self.input_features(A[:, :-1])
        if self.classifier is not None:
            H = self.classifier(A[:, :-1])
        elif W is None:
            H = A[:, :-1].toarray() if sp.issparse(A) else A[:, :-1]
        else:
            H = W.project(A)
        return unit_rows(H) if self.normalize else contiguous(H), without_features

    def embed_rows(self, X: Any) -> Any:
        """Returns what scores are made of: h (n, k) of raw rows X (n, d), and x where labels have sparse weights."""
        self.check_arrays()
        return self.embed_scaled_rows(self.scaling(X))

    def check_arrays(self) -> None:
        """Raises an error if the mapped arrays were found to be damaged."""
        if self.verification is not None:
            self.verification.check()

    def finish_verification(self) -> None:
        """Raises an error if a mapped array is damaged, once all of them were compared with their checksums."""
        if self.verification is not None:
            self.verification.wait()

    def embed_scaled_rows(self, A: sp.csr_array) -> Array | EmbeddedRows:
        """Returns `embed_rows` of scaled rows A (n, d + 1)."""
        H = self.embed_scaled(A)
        return H if self.sparse_weights is None else EmbeddedRows(H, A)

    @property
    def linear_in_x(self) -> bool:
        """Returns whether h = W'x has nothing between W and a sparse x but a scale."""
        return not (self.scaling.dense or self.classifier is not None or self.input_features is not None)

    def embed_one(self, A: sp.csr_array, W: HostProjection) -> Array:
        """Returns `embed_scaled` of one sparse row, to within rounding, in a tenth of the time: it reads few rows of
        W."""
        if A.nnz == 1:  # the intercept
            return np.full((1, W.shape[1]), np.nan, np.float32)
        H = (A.data @ W.rows(A.indices))[None]
        return unit_rows(H) if self.normalize else H

    # h -> scores

    def featurize(self, rows: Any) -> DecoderInputs:
        """Returns the link's features of rows that `embed_rows` embedded."""
        H, X = (rows.H, rows.X) if isinstance(rows, EmbeddedRows) else (rows, None)
        without_features = np.isnan(H[:, 0])
        if without_features.any():
            H = np.where(without_features[:, None], np.float32(0), H)
        return DecoderInputs(self.features(H), without_features, X)

    def scores(self, rows: Any, labels: Array | None = None) -> Array:
        """Returns `score` (n, c) of embedded rows, for all labels or the given ones; untrained labels have -inf."""
        return self.score(self.featurize(rows), ALL if labels is None else labels)

    def score(self, inputs: DecoderInputs, labels: slice | Array = ALL, out: Array | None = None) -> Array:
        """Returns what these labels are ranked by (b, m), their log-odds where each has a map, else V'phi + D'x. Only
        these are read: s + 1 products for each row and label."""
        S = self.decode(inputs.Phi, labels, out)
        if self.sparse_weights is not None:
            self.sparse_weights.add(S, inputs.X, labels, self.n_labels)
        if self.calibration.labels is not None:
            S[:] = self.log_odds(S, labels)
        if inputs.without_features.any():
            S[inputs.without_features] = self.prior_scores[labels]
        if self.any_untrained:
            S[:, self.untrained[labels]] = -np.inf
        return S

    def decode(self, Phi: Any, labels: slice | Array, out: Array | None) -> Array:
        """Returns Phi V[:, labels] (b, m)."""
        return self.V.scores(Phi, labels, out)

    @property
    def prior_scores(self) -> Array:
        """Returns scores (c,) of the label frequencies: the prediction for a row without features."""
        p = prior(self.counts, self.total)
        if self.multiclass:
            return np.log(p / p.sum()) / self.calibration.temperature
        return p if self.loss == "squared" and self.calibration.labels is None else np.log(p / (1 - p))

    # Scores -> probabilities

    def probabilities(self, S: Array, normalisers: Array | None = None) -> Array:
        """Returns probabilities of scores (n, any); a score of -inf, of an untrained label, becomes the smoothed prior.

        None is 0 or 1: no finite training set says so. Multiclass rows sum to 1; where S has not all labels, the
        `normalisers` (n,) of its rows are needed.
        """
        return self.smooth(self.calibrated(S, normalisers), S)

    @property
    def recalibrates_top1(self) -> bool:
        """Returns whether the best label of a row has a calibration of its own."""
        return not self.multiclass and self.calibration.recalibrates_top1

    def recalibrate_top1(self, P: Array) -> Array:
        """Returns probabilities of best labels, which as one of all labels would have P."""
        return np.clip(
            self.calibration.recalibrate_top1(P), np.float32(LEAST_PROBABILITY), np.float32(1 - LEAST_PROBABILITY)
        )

    def smooth(self, P: Array, S: Array) -> Array:
        """Moves calibrated probabilities P of scores S away from 0 and 1, in place; untrained labels get a prior."""
        c = self.n_labels if self.multiclass else 2  # half a row is added to each class, or to either side
        smallest = 0.5 / (self.total + 0.5 * c)
        if self.multiclass and self.any_untrained:
            P *= np.float32(1 - smallest * np.count_nonzero(self.untrained))
        return self.clip(
            P, S, *((-np.inf, np.inf) if self.multiclass else (LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)), smallest
        )

    def calibrated(self, S: Array, normalisers: Array | None = None) -> Array:
        """Returns what held-out rows make of scores, as Algorithm 4 and its thresholds see it: 0 for untrained
        labels."""
        if self.multiclass:
            normalisers = self.normalisers(S) if normalisers is None else normalisers
            return np.asarray(np.exp(S * np.float32(self.calibration.temperature) - normalisers[:, None]))
        return self.clip(self.calibration.probabilities(S, loss=self.loss), S, 0, 1, 0)

    def clip(self, P: Array, S: Array, least: float, most: float, untrained: float) -> Array:
        """Clips P to least .. most, in place; it is `untrained` for labels without training rows."""
        if self.any_untrained and P.size > FEW_SCORES:
            from smoothlink.machines import prediction_kernels as kernels

            kernels.clip_trained(P, S, float(least), float(most), float(untrained))
            return P
        np.clip(P, np.float32(least), np.float32(most), out=P)
        if self.any_untrained:
            P[np.isneginf(S)] = untrained
        return P

    def normalisers(self, S: Array) -> Array:
        """Returns log sum exp (n,) of each row's tempered scores."""
        Z = S * np.float32(self.calibration.temperature)
        top = np.maximum(Z.max(axis=1, initial=-np.inf), np.finfo(Z.dtype).min)  # finite, even if no label was trained
        with np.errstate(divide="ignore"):
            return np.asarray(top + np.log(np.exp(Z - top[:, None]).sum(axis=1)))

    # A block of labels at a time

    def all_normalisers(self, inputs: DecoderInputs) -> Array:
        """Returns `normalisers` over all labels."""
        total = np.full(len(inputs.without_features), -np.inf, np.float32)
        for labels in self.label_blocks(len(total)):
            total = np.logaddexp(total, self.normalisers(self.score(inputs, labels)))
        return total

    @cached_property
    def candidate_search(self) -> CandidateSearch:
        return CandidateSearch(self)

    def contenders(
        self, inputs: DecoderInputs, k: int, rank_by: str = "probability", keys: Keys | None = None
    ) -> Iterable[slice] | Iterable[Array]:
        """Returns blocks of labels among which the k best of each row are: candidates, or all labels. The keys are what
        they are ranked by, of their scores before `log_odds`, which is the default."""
        found = self.candidate_search.find(inputs, k, rank_by, keys or self.log_odds)
        return self.label_blocks(len(inputs.without_features)) if found is None else [found]

    def log_odds(self, S: Array, labels: slice | Array) -> Array:
        """Returns what labels are ranked by, from V'phi + D'x (b, m)."""
        return self.calibration.log_odds(S, labels, loss=self.loss)

    def best_labels(self, inputs: DecoderInputs, k: int) -> BestScores:
        """Returns the k best labels of a block of rows."""
        b = len(inputs.without_features)
        ranking, total = RunningTopK(b, min(k, self.n_labels)), np.full(b, -np.inf, np.float32)
        for labels in self.contenders(inputs, k):
            S = self.score(inputs, labels)
            ranking.add(S, labels=labels)
            if self.multiclass:
                total = np.logaddexp(total, self.normalisers(S))
        return BestScores(*ranking.best(), total if self.multiclass else None)

    def best_in_blocks(self, rows: Any, k: int) -> Iterator[BestScores]:
        """Yields `best_labels` of embedded rows, block after block."""
        for part in self.feature_blocks(len(rows)):
            yield self.best_labels(self.featurize(rows[part]), k)

    @property
    def feature_bytes(self) -> int:
        """Returns how many bytes of features may be kept while the labels pass by."""
        return FEATURE_BYTES

    def row_blocks(self, n: int) -> Iterator[slice]:
        """Yields rows whose features and scores fit a block."""
        yield from blocks(n, self.block_bytes // (4 * max(self.n_labels, self.V.shape[0])))

    def feature_blocks(self, n: int) -> Iterator[slice]:
        """Yields rows whose features fit a block; of their scores a block holds `label_blocks`."""
        yield from blocks(n, min(PREDICTION_ROWS, self.block_bytes // (4 * self.V.shape[0])))

    def label_blocks(self, n: int) -> Iterator[slice]:
        """Yields labels whose scores for all n rows fit a quarter of a block: they stay in the cache until they are
        ranked."""
        yield from blocks(self.n_labels, self.block_bytes // (16 * max(1, n)))


def blocks(n: int, size: int) -> Iterator[slice]:
    """Yields 0 .. n in slices of at most `size`, at least 1."""
    step = max(1, size)
    yield from (slice(start, min(n, start + step)) for start in range(0, n, step))
