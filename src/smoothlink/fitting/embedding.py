"""The embedding, whichever was chosen: from scaled rows to h, the input of the link function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.checkpoint import FitState
from smoothlink.machines.arrays import contiguous, to_host, unit_rows
from smoothlink.machines.rows import Block, Rows, stack
from smoothlink.solve import Solve, Solver, System
from smoothlink.steps import embed as steps
from smoothlink.steps.embed import Basis, Embedding, TraceProbes

Array = NDArray[Any]
Saved = Callable[[Callable[[], Basis]], Basis]


class Convergence(NamedTuple):
    """How the last solve of conjugate gradients ended; nothing where the solver is exact."""

    iterations: int | None = None  # the most of any column
    residual: float | None = None  # the largest, relative to the right-hand side


class Embedded(NamedTuple):
    """A fitted embedding, and h of all rows, held-out ones included."""

    U: Any  # (c, k), or None; as W and H where the rows are
    W: Any  # (d, k); None where h is x itself or a classifier's activations
    classifier: Any  # a fitted scikit-learn classifier, where its activations are not linear
    H: Any  # (n, k), an array or in a file
    spectrum: Array
    captured: float
    convergence: Convergence = Convergence()


@dataclass(frozen=True)
class Embedder:
    """How U and W are found. `fit` uses only rows of positive weight; `prepare` sums what all ridges share."""

    embedding: str
    solver: Solver
    rank: int  # the largest that may be chosen
    adaptive: bool = False
    share: float | None = None  # of tr Y'PY: as many directions as hold it
    power: int = 1
    oversample: int = 20
    classifier: Any = None
    seed: int = 0
    label_scale: Array | None = None  # (c,) square roots of label weights

    def prepare(self, rows: Rows) -> System | None:
        if self.embedding == "none" or self.classifier is not None:
            return None
        return self.solver.prepare(rows)

    def fit(self, rows: Rows, system: System | None, ridge: float) -> Embedded:
        """Fits the embedding to the rows of positive weight and embeds all rows."""
        if self.classifier is not None:
            return fit_classifier(self.classifier, rows)
        if system is None:
            H = rows.map(inputs_as_they_are)
            return Embedded(None, None, None, H, np.zeros(0), float("nan"))
        e, convergence = self.directions(rows, system, ridge)
        return Embedded(e.U, e.W, None, rows.map(steps.embed_rows, e.W), e.spectrum, e.captured, convergence)

    def fit_saved(self, state: FitState, name: str, rows: Rows, ridge: float, rank: int, normalize: bool) -> Embedded:
        """`fit` at full size, with h as the link gets it: from a saved state, or into a file, where `state` says so."""
        if self.classifier is not None:
            found = self.fit(rows, None, ridge)
            return found._replace(H=leading_coordinates(found.H, rank, normalize))
        if self.embedding == "none":
            H = rows.map(leading_inputs, rank, normalize)
            return Embedded(None, None, None, H, np.zeros(0), float("nan"))
        state.trim()
        saved = state.load(name)
        if saved is None:
            basis = partial(saved_basis, state, f"{name}-basis")
            e, convergence = self.directions(rows, self.prepare(rows), ridge, basis)
            e = e._replace(U=to_host(e.U))
            meta = {"captured": e.captured, "convergence": convergence}
            state.save(name, meta, U=e.U, W=to_host(e.W), spectrum=e.spectrum)
        else:
            e = Embedding(captured=saved[0]["captured"], **saved[1])
            convergence = Convergence(*saved[0]["convergence"])
        state.remove(f"{name}-basis")
        W = contiguous(e.W[:, :rank])
        into: Any = None if rows.machine.keeps(4 * rows.n * W.shape[1]) else np.empty((rows.n, W.shape[1]), np.float32)
        into = state.array(f"{name}-h", (rows.n, W.shape[1])) if state.plan.embedding_in_file else into
        H = rows.map(embed_block, W, normalize, into=into)
        rows.release()  # the link sees neither X nor these
        return Embedded(e.U, to_host(e.W), None, H, e.spectrum, e.captured, convergence)

    def directions(
        self, rows: Rows, system: System | None, ridge: float, saved: Saved = lambda make: make()
    ) -> tuple[Embedding, Convergence]:
        """Returns U and W from rows of positive weight, and how the solver ended; `saved` may have the basis."""
        assert system is not None
        solve = system.at(ridge)
        rows = rows if self.label_scale is None else rows.with_scaled_labels(self.label_scale)
        found = self._directions(rows, solve, saved)
        return found, Convergence(getattr(solve, "iterations", None), getattr(solve, "residual", None))

    def _directions(self, rows: Rows, solve: Solve, saved: Saved) -> Embedding:
        rng, k = np.random.default_rng([self.seed, 1]), self.rank
        if self.embedding == "random":
            return steps.random_directions(rows, k, solve, rng)
        if self.embedding == "principal":
            return steps.principal_directions(rows, k, solve, rng)
        if self.embedding == "per_label":
            return steps.every_label(rows, solve)
        if self.adaptive:
            return steps.adaptive_embedding(rows, k, solve, rng, power=self.power)
        found = steps.label_embedding(rows, k, solve, rng, oversample=self.oversample, power=self.power, saved=saved)
        return found if self.share is None else steps.share_of_predictable(found, self.share)


def saved_basis(state: FitState, name: str, make: Callable[[], Basis]) -> Basis:
    """Returns the basis that an earlier run saved, or a new one, which is saved."""
    found = state.load(name)
    if found is not None:
        Q = found[1].pop("Q")
        return Basis(Q, TraceProbes(**found[1]) if found[1] else None)
    basis = make()
    if not state.saves:
        return basis
    others = {} if basis.probes is None else basis.probes._asdict()
    state.save(name, {}, Q=to_host(basis.Q), **{part: to_host(A) for part, A in others.items()})
    return basis


def inputs_as_they_are(block: Block) -> Array:
    """Returns the rows themselves, without the intercept."""
    return contiguous(block.X.dense_rows(0, len(block.w))[:, :-1])


def embed_block(block: Block, W: Array, normalize: bool) -> Array:
    """Returns h of each row of a block, of unit length where `normalize` says so."""
    H = block.X @ W
    return unit_rows(H) if normalize else H


def leading_inputs(block: Block, rank: int, normalize: bool) -> Array:
    """Returns the first `rank` features of each row of a block, of unit length if asked."""
    return leading_coordinates(inputs_as_they_are(block), rank, normalize)


def leading_coordinates(H: Array, rank: int, normalize: bool) -> Array:
    """Returns the first `rank` coordinates, of unit length where `normalize` says so."""
    H = contiguous(H[:, :rank])
    return unit_rows(H) if normalize else H


@dataclass
class Activations:
    """The decision functions of a scikit-learn classifier fitted to each label."""

    fitted: list[Any] = field(default_factory=list)

    def __call__(self, X: Any) -> Array:
        return np.column_stack([activation(f, X) for f in self.fitted]).astype(np.float32)

    def weights(self) -> Array | None:
        """W (d + 1, c) where every classifier is linear, else None."""
        columns = []
        for f in self.fitted:
            if not isinstance(f, float) and not (hasattr(f, "coef_") and hasattr(f, "intercept_")):
                return None
            columns.append(f)
        d = max((f.coef_.size for f in columns if not isinstance(f, float)), default=0)
        W = [
            np.append(np.zeros(d), f) if isinstance(f, float) else np.append(dense_coef(f), np.ravel(f.intercept_)[0])
            for f in columns
        ]
        return np.column_stack(W).astype(np.float32) if d else None


def dense_coef(f: Any) -> Array:
    coef = f.coef_.toarray() if sp.issparse(f.coef_) else np.asarray(f.coef_)
    return np.ravel(coef)


def activation(f: Any, X: Any) -> Array:
    """One label's activations: a constant, a decision function, or the log-odds of a probability."""
    if isinstance(f, float):
        return np.full(X.shape[0], f)
    if hasattr(f, "decision_function"):
        return np.asarray(f.decision_function(X))
    if hasattr(f, "predict_proba"):
        p = np.clip(f.predict_proba(X)[:, 1], 1e-6, 1 - 1e-6)
        return np.asarray(np.log(p / (1 - p)))
    return np.asarray(f.predict(X), np.float64)


def fit_classifier(classifier: Any, rows: Rows) -> Embedded:
    """Fits Algorithm 2's activations: one clone of any classifier per label, on the rows of positive weight."""
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    X = stack([b.X.csr if hasattr(b.X, "csr") else to_host(b.X.array) for b in rows.each()])[:, :-1]
    Y, w = stack([b.Y.csr for b in rows.blocks]).tocsc(), rows.w
    live = w > 0
    weights = {"sample_weight": w[live]}
    if not has_fit_parameter(classifier, "sample_weight"):
        if (w[live] != w[live][0]).any():
            raise ValueError(
                f"The classifier {type(classifier).__name__} of PerLabel takes no sample_weight, and weights differ."
            )
        weights = {}
    activations = Activations()
    for label in range(rows.c):
        y = np.zeros(rows.n, np.int64)
        y[Y.indices[Y.indptr[label] : Y.indptr[label + 1]]] = 1
        one_sided = len(np.unique(y[live])) < 2
        activations.fitted.append(
            float(2 * y[live][0] - 1) if one_sided else clone(classifier).fit(X[live], y[live], **weights)
        )
    W = activations.weights()
    return Embedded(None, W, None if W is not None else activations, activations(X), np.zeros(0), float("nan"))
