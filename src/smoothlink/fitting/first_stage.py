"""The first stage, whichever was chosen: from scaled rows to the embedding h that the link function sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.checkpoint import Work
from smoothlink.machines.arrays import contiguous, host, unit_rows
from smoothlink.machines.cluster import ClusterRows
from smoothlink.machines.rows import Block, Rows, stack
from smoothlink.solve import Solve, Solver, System
from smoothlink.steps import embed as steps
from smoothlink.steps.embed import Basis, Embedding

Array = NDArray[Any]
Keep = Callable[[Callable[[], Basis]], Basis]

EMBEDDINGS = ("randomized", "random", "principal", "identity", "none")


class Effort(NamedTuple):
    """What the last solve of conjugate gradients took; nothing where the solver is exact."""

    iterations: int | None = None  # the most of a column
    residual: float | None = None  # the largest, relative to the right-hand side


class Embedded(NamedTuple):
    """A fitted first stage and what it makes of all rows, held-out ones included."""

    U: Any  # (c, k), or None; as W and H where the rows are
    W: Any  # (d, k); None where h is x itself or a classifier's activations
    classifier: Any  # a fitted scikit-learn classifier, where its activations are not linear
    H: Any  # (n, k), an array or in a file
    spectrum: Array
    captured: float
    effort: Effort = Effort()


@dataclass(frozen=True)
class FirstStage:
    """How U and W are found. `fit` sees only rows of positive weight; `prepare` sums what all ridges share."""

    embedding: str
    solver: Solver
    rank: int  # the largest that will be asked for
    adaptive: bool = False
    share: float | None = None  # of tr Y'PY: cut the embedding there
    power: int = 1
    oversample: int = 20
    half_step: bool = False
    penalize_constant: bool = False
    classifier: Any = None
    seed: int = 0
    label_scale: Array | None = None  # (c,) square roots of label weights

    def prepare(self, rows: Rows) -> System | None:
        if self.embedding == "none" or self.classifier is not None:
            return None
        return self.solver.prepare(rows, penalize_constant=self.penalize_constant)

    def fit(self, rows: Rows, system: System | None, ridge: float) -> Embedded:
        """Fits the stage to the rows of positive weight and embeds them all."""
        if self.classifier is not None:
            return fit_classifier(self.classifier, rows)
        if system is None:
            H = rows.map(plain_inputs)
            return Embedded(None, None, None, H, np.zeros(0), float("nan"))
        e, effort = self.directions(rows, system, ridge)
        return Embedded(e.U, e.W, None, rows.map(steps.embed_rows, e.W), e.spectrum, e.captured, effort)

    def fit_in(self, work: Work, name: str, rows: Rows, ridge: float, rank: int, normalize: bool) -> Embedded:
        """`fit` at full size, with h as the link sees it: from a state put by, and into a file, where work says so."""
        if self.classifier is not None or self.embedding == "none":
            found = self.fit(rows, None, ridge)
            return found._replace(H=shaped(found.H, rank, normalize))
        work.tidy()
        kept = work.recall(name)
        if kept is None:
            basis = partial(basis_in, work, f"{name}-basis")
            e, effort = self.directions(rows, self.prepare(rows), ridge, basis)
            story = {"captured": e.captured, "effort": effort}
            work.keep(name, story, U=host(e.U), W=host(e.W), spectrum=e.spectrum)
        else:
            e, effort = Embedding(captured=kept[0]["captured"], **kept[1]), Effort(*kept[0]["effort"])
        work.forget(f"{name}-basis")
        W = contiguous(e.W[:, :rank])
        into = work.array(f"{name}-h", (rows.n, W.shape[1])) if work.plan.embedding_in_file else None
        H = rows.map(link_inputs, W, normalize, into=into)
        if work.plan.memory is not None:  # the link does not see X
            rows.let_go()
        return Embedded(e.U, e.W, None, H, e.spectrum, e.captured, effort)

    def directions(
        self, rows: Rows, system: System | None, ridge: float, kept: Keep = lambda make: make()
    ) -> tuple[Embedding, Effort]:
        """U and W from the rows of positive weight, and what the solver took; `kept` may know the basis from before."""
        assert system is not None
        solve = system.at(ridge)
        rows = rows if self.label_scale is None else scaled_labels(rows, self.label_scale)
        found = self._directions(rows, solve, kept)
        return found, Effort(getattr(solve, "iterations", None), getattr(solve, "residual", None))

    def _directions(self, rows: Rows, solve: Solve, kept: Keep) -> Embedding:
        rng, k = np.random.default_rng([self.seed, 1]), self.rank
        if self.embedding == "random":
            return steps.random_directions(rows, k, solve, rng)
        if self.embedding == "principal":
            return steps.principal_directions(rows, k, solve, rng)
        if self.embedding == "identity":
            return steps.every_label(rows, solve)
        if self.adaptive:
            return steps.adaptive_embedding(rows, k, solve, rng, power=self.power, half_step=self.half_step)
        knobs: dict[str, Any] = {"oversample": self.oversample, "power": self.power, "half_step": self.half_step}
        found = steps.label_embedding(rows, k, solve, rng, **knobs, kept=kept)
        return found if self.share is None else steps.share_of_predictable(found, self.share)


def basis_in(work: Work, name: str, make: Callable[[], Basis]) -> Basis:
    """The basis that an earlier run put by, or a new one, put by."""
    found = work.recall(name)
    if found is not None:
        return Basis(found[1]["Q"], found[0]["trace"])
    basis = make()
    work.keep(name, {"trace": basis.trace}, Q=host(basis.Q))
    return basis


def plain_inputs(block: Block) -> Array:
    """The rows themselves, without the constant."""
    return contiguous(block.X.dense_rows(0, len(block.w))[:, :-1])


def link_inputs(block: Block, W: Array, normalize: bool) -> Array:
    """h of each row of a block, of unit length if asked."""
    H = block.X @ W
    return unit_rows(H) if normalize else H


def shaped(H: Array, rank: int, normalize: bool) -> Array:
    """The first `rank` coordinates, of unit length if asked."""
    H = contiguous(H[:, :rank])
    return unit_rows(H) if normalize else H


def scaled_labels(rows: Rows, scale: Array) -> Rows:
    """The same rows with column l of Y multiplied by scale[l]: label weights in the embedding's objective."""
    if isinstance(rows, ClusterRows):
        return rows.with_label_scale(scale)
    blocks = []
    for b in rows.blocks:
        Y = b.Y.csr
        Y = sp.csr_array((Y.data * scale[Y.indices], Y.indices, Y.indptr), Y.shape)
        blocks.append(b._replace(Y=rows.machine.matrix(Y)))
    return Rows(blocks, rows.d, rows.c, machine=rows.machine)


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
    """Algorithm 2 over any scikit-learn classifier: one clone a label, fitted to the rows of positive weight."""
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    X = stack([b.X.csr if hasattr(b.X, "csr") else host(b.X.array) for b in rows.each()])[:, :-1]
    Y, w = stack([b.Y.csr for b in rows.blocks]).tocsc(), rows.w
    live = w > 0
    weights = {"sample_weight": w[live]}
    if not has_fit_parameter(classifier, "sample_weight"):
        if (w[live] != w[live][0]).any():
            raise ValueError(f"first_stage {type(classifier).__name__} takes no sample_weight, and weights differ.")
        weights = {}
    stage = Activations()
    for label in range(rows.c):
        y = np.zeros(rows.n, np.int64)
        y[Y.indices[Y.indptr[label] : Y.indptr[label + 1]]] = 1
        one_sided = len(np.unique(y[live])) < 2
        stage.fitted.append(
            float(2 * y[live][0] - 1) if one_sided else clone(classifier).fit(X[live], y[live], **weights)
        )
    W = stage.weights()
    return Embedded(None, W, None if W is not None else stage, stage(X), np.zeros(0), float("nan"))
