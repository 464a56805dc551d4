"""All that a model must remember to be updated: its sums, digests of its rows, counts of features, calibration rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError, plural
from smoothlink.fitting.calibration import Calibrated, HeldOut, calibrate, not_calibrated
from smoothlink.living.low_rank import CorrectedWeights, correction
from smoothlink.living.row_digests import PART, Digest, RowDigests, calibrating, digest_of
from smoothlink.living.sums import Sums
from smoothlink.machines.copies import RowContents
from smoothlink.model import Model
from smoothlink.solve.cholesky import Factor
from smoothlink.steps.squared import Smoothing
from smoothlink.steps.thresholds import Aim
from smoothlink.weights import ArrayWeights, HostProjection

Array = NDArray[Any]

ROWS = 1024  # embedded and added to the sums at a time
# Rows that wait for the sums to be solved anew, and change predictions by a correction of V until then. A correction of
# rank r costs r (s + c) per row predicted, V itself s c: results/living has the times.
WAITING_ROWS = 64
SLOW_SOLVE = 2e10  # operations of a solve from which on rows wait: less takes no second
MEASURED_ROWS = 2000  # that say how much of rows the embedding misses


class CalibrationRows(NamedTuple):
    """Rows that calibrate: they are in the sums, and the embedding was fitted without them."""

    H: Array  # (h, k) embedded
    Y: sp.csr_array  # (h, c)
    w: Array  # (h,)
    digests: Array  # (h, 2 * PART) uint8


class WaitingRows(NamedTuple):
    """Rows that are not yet in the sums."""

    Phi: Array  # (b, s + 1)
    Y: sp.csr_array  # (b, c)
    w: Array  # (b,) negative for rows that go


@dataclass
class LivingState:
    """What updates change, and what they leave as it is: seed, share, class weights, aim."""

    sums: Sums
    digests: RowDigests
    label_rows: Array  # (c,) int64 rows of each label
    feature_rows: Array | None  # (d,) int64 rows of each feature; None where X is dense
    calibration: CalibrationRows
    share: float  # of the rows that calibrate
    seed: int
    class_weight: Array | None  # (c,) by which rows of a multiclass model are weighed
    aim: Aim
    calibrates: bool
    missed: float | None = None  # share of the length of training rows that the embedding misses
    generation: str | None = None  # of the file that it comes from
    changed: bool = False  # whether the model lags behind
    factor: Factor | None = None  # of the sums as they were last solved, and what the model's V then was
    solved: Array | None = None
    latest: Calibrated | None = None  # calibration
    waiting: WaitingRows | None = None
    inverse: Array | None = None  # (k, k) of W'W, by which `missed_share` measures

    @property
    def n_labels(self) -> int:
        return len(self.label_rows)

    def add_rows(self, model: Model, X: Any, Y: sp.csr_array, w: Array, held: Array | None = None) -> None:
        """Adds rows X (n, d) with labels Y (n, c) and weights w (n,); held (n,): those that calibrate, else by their
        contents."""
        if held is None and self.calibrates:
            held = calibrating(RowContents.of(X, Y), self.share, self.seed)
        found = list(self.digests.of(X, Y))
        for digest, weight in zip(found, w.tolist(), strict=True):
            self.digests.add(digest, weight)
        self._count(X, Y, 1)
        for start in range(0, Y.shape[0], ROWS):
            part = slice(start, min(Y.shape[0], start + ROWS))
            H = embed(model, X[part])
            self._change(featurize(model, H), Y[part], w[part])
            if held is not None and held[part].any():
                rows = np.flatnonzero(held[part])
                own = [b"".join(found[start + row]) for row in rows.tolist()]
                joined = np.frombuffer(b"".join(own), np.uint8).reshape(-1, 2 * PART)
                old = self.calibration
                self.calibration = CalibrationRows(
                    np.concatenate([old.H, H[rows]]),
                    sp.csr_array(sp.vstack([old.Y, Y[part][rows]], format="csr")),
                    np.concatenate([old.w, w[part][rows]]),
                    np.concatenate([old.digests, joined]),
                )

    def check_there(self, found: Sequence[Digest]) -> None:
        """Raises an error unless each of these rows is in the model, as often as it is named."""
        wanted: dict[Digest, list[int]] = {}
        for row, digest in enumerate(found):
            wanted.setdefault(digest, []).append(row)
        lacking = [row for digest, rows in wanted.items() for row in rows[self.digests.count(digest) :]]
        if lacking:
            raise DataError(
                f"{plural(len(lacking), 'row')} of {len(found):,}, the first of them row {min(lacking)}, cannot be "
                "forgotten: the model has no such row with these labels. Nothing was changed.\n"
                "Pass rows as they were learnt, with all of their labels."
            )
        if len(found) >= len(self.digests):
            raise DataError("These are all rows of the model: nothing would be left. Delete its files instead.")

    def remove_rows(self, model: Model, X: Any, Y: sp.csr_array, found: Sequence[Digest]) -> None:
        """Removes rows X (n, d) with labels Y (n, c), whose digests `check_there` has looked for."""
        w = np.array([self.digests.remove(digest) for digest in found])
        self._count(X, Y, -1)
        for start in range(0, Y.shape[0], ROWS):
            part = slice(start, min(Y.shape[0], start + ROWS))
            self._change(featurize(model, embed(model, X[part])), Y[part], -w[part])
        labels = np.unique(Y.indices)
        gone = labels[self.label_rows[labels] == 0]
        if len(gone):
            self._fold_in()
            self.sums.T[gone] = 0.0  # what rounding left
        numbers: dict[Digest, list[int]] = {}
        for row, digest in enumerate(self.calibration.digests):
            numbers.setdefault(digest_of(digest), []).append(row)
        lost = [numbers[digest].pop() for digest in found if numbers.get(digest)]
        if lost:
            kept = np.setdiff1d(np.arange(len(self.calibration.w)), lost)
            self.calibration = CalibrationRows(*(part[kept] for part in self.calibration))

    def add_labels(self, count: int) -> None:
        """Adds labels that no row has."""
        c = self.n_labels + count
        self.sums.add_labels(count)
        if self.waiting is not None:
            self.waiting = self.waiting._replace(Y=with_labels(self.waiting.Y, c))
        if self.solved is not None:  # the column of A that stands for the intercept has no ridge: A^-1 takes it to 1
            new = np.zeros((len(self.solved), count), np.float32)
            new[-1] = self.sums.smoothing.shift
            self.solved = np.column_stack([self.solved, new])
        self.label_rows = np.append(self.label_rows, np.zeros(count, np.int64))
        self.calibration = self.calibration._replace(Y=with_labels(self.calibration.Y, c))
        if self.class_weight is not None:
            self.class_weight = np.append(self.class_weight, np.ones(count))

    def prepare(self, model: Model) -> None:
        """Factors the sums of a model that was just loaded, where solving takes long: its first rows then correct V."""
        if 2.0 * model.V.shape[0] ** 2 * self.n_labels >= SLOW_SOLVE:
            self.factor, self.solved = self.sums.factor(), np.asarray(model.V.columns(), np.float32)

    def refreshed(self, model: Model) -> Model:
        """Returns the model with V, counts, calibration and thresholds of the rows that there are now.

        Where a solve takes long and few rows wait, V is corrected, and the calibration stays until they are folded in.
        """
        self.changed = False
        s, c = model.V.shape[0], self.n_labels
        waits = self.waiting is not None and len(self.waiting.w) <= WAITING_ROWS and c == model.n_labels
        if waits and self.factor is not None and self.solved is not None and 2.0 * s * s * c >= SLOW_SOLVE:
            return replace(model, V=self._corrected(), **self._frequencies())
        return self.solved_model(model)

    def solved_model(self, model: Model) -> Model:
        """Returns the model of the sums, with all rows in them."""
        self.changed = False
        self._fold_in()
        self.factor = None
        factor = self.sums.factor()
        V = self.sums.solve(factor)
        if 2.0 * V.shape[0] * V.size >= SLOW_SOLVE:
            self.factor, self.solved = factor, V
        found = self.latest = self.calibrated(model)
        maps: dict[str, Any] = {
            "calibration": found.calibration,
            "thresholds": found.thresholds,
            "threshold": found.threshold,
        }
        return replace(model, V=ArrayWeights(V), **self._frequencies(), **maps)

    def calibrated(self, model: Model) -> Calibrated:
        """Returns the calibration that the stored rows give, scored by a decoder without them."""
        rows, totals = self.calibration, self._frequencies()
        if not (len(rows.w) and rows.w.any() and totals["total"] > rows.w.sum()):
            return not_calibrated(self.n_labels)
        scores = self.sums.held_out_scores(featurize(model, rows.H), rows.Y, rows.w)
        frequencies = np.clip(totals["counts"] / totals["total"], 0, 1)
        held = [HeldOut(scores, rows.Y, rows.w)]
        return calibrate(held, frequencies, "squared", multiclass=model.multiclass, aim=self.aim)

    @property
    def held_out(self) -> dict[str, Any]:
        """Returns what `summary_` says of the rows that calibrated the model last."""
        found = self.latest
        if found is None or not found.rows:
            return {} if found is None else {"held_out_rows": 0, "held_out_metrics": None, "threshold": None}
        return {"held_out_rows": found.rows, "held_out_metrics": found.metrics, "threshold": found.reached}

    def missed_share(self, model: Model, X: Any) -> float | None:
        """Returns the share of the squared length of rows that is outside of the directions of the embedding; None
        where the embedding is not linear in sparse rows."""
        if model.W is None or not model.linear_in_x or not sp.issparse(X):
            return None
        if self.inverse is None:  # features that are removed later would change it by next to nothing
            W = model.W.columns()
            self.inverse = np.linalg.pinv((W.T @ W).astype(np.float64), rcond=1e-6, hermitian=True)
        H, A = embed(model, X).astype(np.float64), model.scaling(X)
        inside = float(np.einsum("ij,jk,ik->", H, self.inverse, H, optimize=True))
        return float(np.clip(1 - inside / max(float(A.data.astype(np.float64) @ A.data), 1e-300), 0, 1))

    def _frequencies(self) -> dict[str, Any]:
        """Returns the label frequencies that a model holds, waiting rows included."""
        counts, total = self.sums.counts, self.sums.total
        if self.waiting is not None:
            counts = counts + self.waiting.Y.T @ self.waiting.w
            total += float(self.waiting.w.sum())
        return {"counts": np.where(self.label_rows > 0, counts, 0.0), "total": total}

    def _corrected(self) -> CorrectedWeights:
        assert self.waiting is not None
        assert self.factor is not None
        assert self.solved is not None
        return correction(self.solved, self.factor, *self.waiting, self.sums.smoothing)

    def _count(self, X: Any, Y: sp.csr_array, sign: int) -> None:
        self.changed = True
        self.label_rows += sign * np.bincount(Y.indices, minlength=self.n_labels)
        if self.feature_rows is not None:
            self.feature_rows += sign * np.bincount(X.indices, minlength=len(self.feature_rows))

    def _change(self, Phi: Array, Y: sp.csr_array, w: Array) -> None:
        """Lets rows wait for the sums; many are added at once."""
        new = WaitingRows(Phi, Y, np.asarray(w, np.float64))
        if self.waiting is not None:
            old = self.waiting
            joined = sp.csr_array(sp.vstack([old.Y, new.Y], format="csr"))
            new = WaitingRows(np.concatenate([old.Phi, Phi]), joined, np.concatenate([old.w, new.w]))
        self.waiting = new
        if len(new.w) > WAITING_ROWS:
            self._fold_in()

    def _fold_in(self) -> None:
        """Adds the waiting rows to the sums; the last solution is then of other sums."""
        if self.waiting is not None:
            self.sums.add(*self.waiting)
            self.waiting = self.factor = self.solved = None


@dataclass(frozen=True)
class ExactProjection:
    """W, whose products are summed in float64: h of a row does not depend on the rows beside it, as in float32."""

    W: HostProjection

    @property
    def shape(self) -> tuple[int, int]:
        return self.W.shape

    def project(self, A: Any) -> Array:
        if not sp.issparse(A):
            return (np.asarray(A, np.float64) @ self.W.columns().astype(np.float64)).astype(np.float32)
        needed, places = np.unique(A.indices, return_inverse=True)
        few = sp.csr_array((A.data.astype(np.float64), places, A.indptr), (A.shape[0], len(needed)))
        return np.asarray(few @ self.W.rows(needed).astype(np.float64)).astype(np.float32)


def embed(model: Model, X: Any) -> Array:
    """Returns h (n, k) as the fit sees rows: those without features are embedded as others are."""
    W = None if model.W is None else ExactProjection(model.W)
    return np.asarray(model.project_scaled(model.scaling(X), W)[0])


def featurize(model: Model, H: Array) -> Array:
    """Returns Phi (n, s + 1) of embedded rows in float64. In float32 a row that goes would differ by 1e-7 from the same
    row when it came with others, and 10,000 changes moved scores of debtags by 6e-6."""
    R, b, _ = model.features
    H = H.astype(np.float64)
    Phi = H if model.features.linear else np.sqrt(2) * np.cos(H @ R.astype(np.float64) + b)
    return np.column_stack([Phi, np.ones(len(H))])


def with_labels(Y: sp.csr_array, c: int) -> sp.csr_array:
    """Returns Y with c columns."""
    return sp.csr_array((Y.data, Y.indices, Y.indptr), (Y.shape[0], c))


def new_state(
    model: Model,
    X: Any,
    Y: sp.csr_array,
    w: Array,
    held: Array | None,
    *,
    ridge: float,
    smoothing: float,
    share: float,
    seed: int,
    class_weight: Array | None,
    aim: Aim,
) -> LivingState:
    """Returns the state of a model that was fitted to rows X (n, d), of which those held (n,) calibrate; ridge: the
    relative one of the decoder."""
    (s, c), k = model.V.shape, embed(model, X[:1]).shape[1]
    none = np.zeros((0, k), np.float32), sp.csr_array((0, c), dtype=np.float32), np.zeros(0)
    smooth = Smoothing.of(smoothing, c, multiclass=model.multiclass)
    state = LivingState(
        Sums.empty(s, c, smooth),
        RowDigests(),
        np.zeros(c, np.int64),
        np.zeros(X.shape[1], np.int64) if sp.issparse(X) else None,
        CalibrationRows(*none, np.zeros((0, 2 * PART), np.uint8)),
        share,
        seed,
        class_weight,
        aim,
        held is not None,
    )
    state.add_rows(model, X, Y, w, np.zeros(len(w), bool) if held is None else held)
    state._fold_in()
    state.sums.freeze_ridge(ridge)
    state.missed = state.missed_share(model, X[:MEASURED_ROWS])
    return state
