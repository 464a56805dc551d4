"""All that a model of the squared loss must remember to be updated: its sums, its rows by digest, calibration rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.calibration import Calibrated, HeldOut, calibrate, not_calibrated
from smoothlink.living.known_rows import KnownRows, check_arrays, csr_of
from smoothlink.living.low_rank import CorrectedWeights, correction
from smoothlink.living.replay import widened
from smoothlink.living.row_digests import PART, Digest, calibrating, digest_of
from smoothlink.living.sums import Sums
from smoothlink.machines.copies import RowContents
from smoothlink.machines.matrices import row_range
from smoothlink.model import Model
from smoothlink.parameters import parse_aim
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


@dataclass(kw_only=True)
class LivingState(KnownRows):
    """The sums of a model, and what updates leave as it is: share, aim."""

    approximate: ClassVar[str] = (
        "The embedding, the scaling, the weights of words and all settings stay as they were chosen, with the help of "
        "the rows that are forgotten, until the model is trained again."
    )

    sums: Sums
    calibration: CalibrationRows
    share: float  # of the rows that calibrate
    aim: Aim
    calibrates: bool
    missed: float | None = None  # share of the length of training rows that the embedding misses
    factor: Factor | None = None  # of the sums as they were last solved, and what the model's V then was
    solved: Array | None = None
    waiting: WaitingRows | None = None
    inverse: Array | None = None  # (k, k) of W'W, by which `missed_share` measures

    @property
    def calibration_rows(self) -> int:
        return len(self.calibration.w)

    def update(self, model: Model, X: Any, Y: sp.csr_array, w: Array) -> tuple[Model, dict[str, Any]]:
        self.add_rows(model, X, Y, w)
        missed = self.missed_share(model, X)
        known = None if missed is None else self.missed
        return model, {"missed_by_embedding": missed, "missed_in_training": known}

    def add_rows(self, model: Model, X: Any, Y: sp.csr_array, w: Array, held: Array | None = None) -> None:
        """Adds rows X (n, d) with labels Y (n, c) and weights w (n,); held (n,): those that calibrate, else by their
        contents."""
        if held is None and self.calibrates:
            held = calibrating(RowContents.of(X, Y), self.share, self.seed)
        found = list(self.digests.of(X, Y))
        for digest, weight in zip(found, w.tolist(), strict=True):
            self.digests.add(digest, weight)
        self._count(X, Y, 1)
        self.changed = True
        for start in range(0, Y.shape[0], ROWS):
            part = slice(start, min(Y.shape[0], start + ROWS))
            H, Y_part = embed(model, row_range(X, part)), row_range(Y, part)
            self._change(featurize(model, H), Y_part, w[part])
            if held is not None and held[part].any():
                rows = np.flatnonzero(held[part])
                own = [b"".join(found[start + row]) for row in rows.tolist()]
                joined = np.frombuffer(b"".join(own), np.uint8).reshape(-1, 2 * PART)
                old = self.calibration
                self.calibration = CalibrationRows(
                    np.concatenate([old.H, H[rows]]),
                    sp.csr_array(sp.vstack([old.Y, Y_part[rows]], format="csr")),
                    np.concatenate([old.w, w[part][rows]]),
                    np.concatenate([old.digests, joined]),
                )

    def remove(self, model: Model, X: Any, Y: sp.csr_array, found: Sequence[Digest]) -> Model:
        w = np.array([self.digests.remove(digest) for digest in found])
        self._count(X, Y, -1)
        self.changed = True
        for start in range(0, Y.shape[0], ROWS):
            part = slice(start, min(Y.shape[0], start + ROWS))
            self._change(featurize(model, embed(model, row_range(X, part))), row_range(Y, part), -w[part])
        gone = self.gone(X, Y)
        if len(gone.labels):
            self._fold_in()
            self.sums.T[gone.labels] = 0.0  # what rounding left
        numbers: dict[Digest, list[int]] = {}
        for row, digest in enumerate(self.calibration.digests):
            numbers.setdefault(digest_of(digest), []).append(row)
        lost = [numbers[digest].pop() for digest in found if numbers.get(digest)]
        if lost:
            kept = np.setdiff1d(np.arange(len(self.calibration.w)), lost)
            self.calibration = CalibrationRows(*(part[kept] for part in self.calibration))
        return model

    def add_labels(self, count: int) -> None:
        super().add_labels(count)
        self.sums.add_labels(count)
        if self.waiting is not None:
            self.waiting = self.waiting._replace(Y=widened(self.waiting.Y, self.n_labels))
        if self.solved is not None:  # the column of A that stands for the intercept has no ridge: A^-1 takes it to 1
            new = np.zeros((len(self.solved), count), np.float32)
            new[-1] = self.sums.smoothing.shift
            self.solved = np.column_stack([self.solved, new])
        self.calibration = self.calibration._replace(Y=widened(self.calibration.Y, self.n_labels))

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

    def model_to_save(self, model: Model) -> Model:
        return self.solved_model(model) if self.changed or self.waiting is not None else model

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
            "reference": found.reference,
        }
        return replace(model, V=ArrayWeights(V), **self._frequencies(), **maps)

    def calibrated(self, model: Model) -> Calibrated:
        """Returns the calibration that the stored rows give, scored by a decoder without them."""
        rows, totals = self.calibration, self._frequencies()
        if not (len(rows.w) and rows.w.any() and totals["total"] > rows.w.sum()):
            return not_calibrated(self.n_labels)
        scores = self.sums.held_out_scores(featurize(model, rows.H), rows.Y, rows.w)
        frequencies = np.clip(totals["counts"] / totals["total"], 0, 1)
        others = np.maximum(totals["counts"] - rows.w @ rows.Y, 0) / (totals["total"] - rows.w.sum())
        held = [HeldOut(scores, rows.Y, rows.w, rows.H, frequencies=np.clip(others, 0, 1))]
        return calibrate(held, frequencies, "squared", multiclass=model.multiclass, aim=self.aim)

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

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        self._fold_in()
        rows, sums = self.calibration, self.sums
        arrays: dict[str, Array] = {
            **self.known_arrays(),
            "G": sums.G,
            "T": sums.T,
            "calibration_h": rows.H,
            "calibration_indptr": rows.Y.indptr.astype(np.int64),
            "calibration_labels": rows.Y.indices.astype(np.int64),
            "calibration_weights": rows.w,
            "calibration_digests": rows.digests,
        }
        meta = {
            "kind": "sums",
            "rho": sums.rho,
            "smoothing": list(sums.smoothing),
            "share": self.share,
            "seed": self.seed,
            "aim": [self.aim.name, None if np.isnan(self.aim.value) else self.aim.value],
            "calibrates": self.calibrates,
            "missed": self.missed,
        }
        return arrays, meta

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], meta: dict[str, Any], model: Model) -> LivingState:
        s, c = model.V.shape
        H, indptr, labels = (arrays[f"calibration_{name}"] for name in ("h", "indptr", "labels"))
        h = len(H)
        known = KnownRows.known_of(arrays, c)
        expected: dict[str, tuple[Any, tuple[int, ...]]] = {
            "G": (np.float64, (s, s)),
            "T": (np.float64, (c, s)),
            "calibration_h": (np.float32, (h, len(model.features.R) if not model.features.linear else s - 1)),
            "calibration_indptr": (np.int64, (h + 1,)),
            "calibration_labels": (np.int64, labels.shape[:1]),
            "calibration_weights": (np.float64, (h,)),
            "calibration_digests": (np.uint8, (h, 2 * PART)),
        }
        check_arrays(arrays, expected)
        aim, value = meta["aim"]
        if (
            not isinstance(meta["rho"], float)
            or not 0 <= meta["rho"] < np.inf
            or not 0 <= meta["share"] < 1
            or type(meta["seed"]) is not int
            or not (meta["missed"] is None or isinstance(meta["missed"], float))
            or not np.isfinite(np.array(meta["smoothing"], np.float64)).all()
            or (arrays["calibration_weights"] < 0).any()
            or parse_aim(aim if value is None else f"{aim}={value}") is None
        ):
            raise ValueError("a number of its settings is not possible")
        Y = csr_of(np.ones(len(labels), np.float32), labels, indptr, (h, c))
        return cls(
            **known,
            sums=Sums(arrays["G"], arrays["T"], meta["rho"], Smoothing(*map(float, meta["smoothing"]))),
            calibration=CalibrationRows(H, Y, arrays["calibration_weights"], arrays["calibration_digests"]),
            share=float(meta["share"]),
            seed=int(meta["seed"]),
            aim=Aim(aim, float("nan") if value is None else value),
            calibrates=bool(meta["calibrates"]),
            missed=meta["missed"],
            generation=meta["generation"],
        )

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
    (s, c), k = model.V.shape, embed(model, row_range(X, slice(1))).shape[1]
    none = np.zeros((0, k), np.float32), sp.csr_array((0, c), dtype=np.float32), np.zeros(0)
    smooth = Smoothing.of(smoothing, c, multiclass=model.multiclass)
    state = LivingState(
        **KnownRows.none(X, c),
        sums=Sums.empty(s, c, smooth),
        calibration=CalibrationRows(*none, np.zeros((0, 2 * PART), np.uint8)),
        share=share,
        seed=seed,
        class_weight=class_weight,
        aim=aim,
        calibrates=held is not None,
    )
    state.add_rows(model, X, Y, w, np.zeros(len(w), bool) if held is None else held)
    state._fold_in()
    state.sums.freeze_ridge(ridge)
    state.missed = state.missed_share(model, row_range(X, slice(MEASURED_ROWS)))
    return state
