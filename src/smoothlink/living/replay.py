"""What a model that is trained by SGD keeps of its training rows, so that training can go on: a bounded sample of them.

Every row has a number u in [0, 1), a keyed hash of what it holds. A label keeps its rows of the smallest u, and of all
rows those of the smallest u fill what room is left. So a row is in the sample if u is below a bound pi, which is the
chance that it is: at weight w / pi it stands for the rows that are not. A second sample of the union of two samples is
the sample of all rows, since u stays.

Rows that no training has seen are kept apart: they calibrate, and tell which of two updated models loses less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import ModelFileError
from smoothlink.fitting.holdout import ONE_FIT_ROWS
from smoothlink.fitting.settings import Request
from smoothlink.fitting.train_jointly import number_of_negatives
from smoothlink.joint.joint_training import NEGATIVES
from smoothlink.living.known_rows import check_arrays, csr_of
from smoothlink.machines.copies import row_hashes
from smoothlink.machines.rows import row_hash, stack
from smoothlink.model import Model
from smoothlink.parameters import parse_aim
from smoothlink.steps.sgd import SGD
from smoothlink.steps.thresholds import Aim

Array = NDArray[Any]

REPLAYED_ROWS = 100_000  # at most
REPLAYED_ENTRIES = 20_000_000  # of X in them: 160 MB
ROWS_PER_LABEL = 20  # that a label keeps at most, where labels are few
LEARNERS = ("joint", "stepwise", "finetune")
ADAGRAD = ("w_squares", "v_squares", "b_squares", "d_squares")  # sums of squared gradients


class Training(NamedTuple):
    """What training goes on with: the learner of the fit and its settings."""

    learner: str  # one of LEARNERS
    final_ridge: float = 1e-4  # of the SGD, as the next four
    learning_rate: float = SGD().learning_rate
    momentum: float = SGD().momentum
    decay: float = SGD().decay
    batch_rows: int | None = None  # of the SGD, or of joint training
    rate: float = 1.0  # of joint training, as the next three
    negatives: int = 300
    sparse_weights: bool = True
    passes: int = NEGATIVES.passes  # of the fit
    calibrate: bool = True
    aim: str = "half"

    @classmethod
    def of(cls, request: Request, summary: dict[str, Any]) -> Training:
        """Returns what the fit of a request was trained with, from its summary."""
        joint = "negatives" in summary
        return cls(
            learner="joint" if joint else "finetune" if "finetune_passes" in summary else "stepwise",
            final_ridge=float(summary["final_ridge"]),
            learning_rate=request.learning_rate,
            momentum=request.momentum,
            decay=request.decay,
            batch_rows=request.training_batch if joint else request.batch_rows,
            rate=request.training_rate,
            negatives=number_of_negatives(request),
            sparse_weights=request.sparse_weights,
            passes=int(summary["passes"]),
            calibrate=request.calibrate,
            aim=request.aim,
        )

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> Training:
        """Returns what was stored as a dictionary; raises an error where a value is not possible."""
        found = cls(**meta)
        numbers = found.final_ridge, found.learning_rate, found.decay, found.rate, found.momentum
        counts = found.negatives, found.passes, 1 if found.batch_rows is None else found.batch_rows
        possible = (
            found.learner in LEARNERS
            and all(type(number) in (int, float) and 0 <= number < math.inf for number in numbers)
            and found.momentum < 1
            and 0 < found.decay <= 1
            and all(type(count) is int and 0 <= count < 2**31 for count in counts)
            and isinstance(found.aim, str)
            and parse_aim(found.aim) is not None
        )
        if not possible or found.batch_rows == 0:
            raise ValueError("the settings of the training are not possible")
        return found

    @property
    def sgd(self) -> SGD:
        return SGD(self.learning_rate, self.momentum, self.decay, self.batch_rows)

    @property
    def threshold_aim(self) -> Aim:
        return Aim(*(parse_aim(self.aim) or ()))


@dataclass(frozen=True)
class Replay:
    """Some of the rows that a model was trained on, a few that it was not, and the state of its optimiser."""

    X: Any  # (m, d + 1) scaled, the intercept last; CSR or dense
    Y: sp.csr_array  # (m, c)
    w: Array  # (m,) float64
    u: Array  # (m,) uint64, the keyed hash of each row's features and labels
    share: Array  # (m,) the chance pi that a row like it is kept
    held: Array  # (m,) bool: no training has seen it
    optimiser: dict[str, Array]  # Adagrad sums of W (d,), V (c,), intercepts (c,) and the sparse weights of the model
    training: Training
    key: int  # of the hashes

    def __len__(self) -> int:
        return len(self.w)

    def take(self, rows: Array) -> Replay:
        """Returns some of the rows, by number or by a mask."""
        if rows.dtype == bool:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        some: dict[str, Any] = {name: getattr(self, name)[rows] for name in ("X", "Y", "w", "u", "share", "held")}
        return replace(self, **some)

    @classmethod
    def of(cls, X: Any, Y: sp.csr_array, w: Array, training: Training, key: int) -> Replay:
        """Returns a store of all these raw rows X (n, d), not yet scaled, for training."""
        n, u = X.shape[0], content_hash(X, Y, key)
        return cls(X, Y, np.asarray(w, np.float64), u, np.ones(n), np.zeros(n, bool), {}, training, key)

    def scaled(self, model: Model) -> Replay:
        """Returns the store of raw rows as the model scales them."""
        return replace(self, X=model.scaling(self.X))

    def joined(self, other: Replay) -> Replay:
        """Returns the rows of both; labels of this store that are fewer than the other's are its first."""
        Y = self.Y if self.Y.shape[1] == other.Y.shape[1] else widened(self.Y, other.Y.shape[1])
        names = ("w", "u", "share", "held")
        columns: dict[str, Any] = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names}
        return replace(self, X=stack([self.X, other.X]), Y=stack([Y, other.Y]), **columns)

    def thinned(self, rows: int, entries: int = REPLAYED_ENTRIES) -> Replay:
        """Returns at most about so many training rows and entries of X, some of each label, and as many held-out rows
        as calibrate."""
        trained, held = np.flatnonzero(~self.held), np.flatnonzero(self.held)
        per_row = max(1.0, (self.X.nnz if sp.issparse(self.X) else self.X.size) / max(1, len(self)))
        share = inclusion(unit(self.u[trained]), self.Y[trained], int(min(rows, entries / per_row)))
        kept = unit(self.u[trained]) < share
        held = held[np.argsort(self.u[held], kind="stable")[:ONE_FIT_ROWS]]
        found = self.take(np.concatenate([trained[kept], np.sort(held)]))
        bounds = np.append(share[kept], np.ones(len(held)))
        return replace(found, share=np.minimum(found.share, bounds))

    def forget(self, X: Any, Y: sp.csr_array, left: Array | None = None) -> tuple[Replay, int]:
        """Returns the store without raw rows X (n, d) of labels Y, and how many of its rows these were. left (n,): the
        share of the weight of such a row that copies of it have, which stay; None: there are none. What the sums of
        squared gradients owe to the rows stays: no row can be read from it."""
        u, first = np.unique(content_hash(X, sp.csr_array(Y), self.key), return_index=True)
        place = np.minimum(np.searchsorted(u, self.u), len(u) - 1)
        share = np.where(u[place] == self.u, 0.0 if left is None else left[first][place], 1.0)
        return replace(self, w=self.w * share).take(share > 0), int(np.count_nonzero(share == 0))

    def with_labels(self, c: int) -> Replay:
        """Returns the store with c labels, of which no row has the last ones."""
        optimiser = self.optimiser
        if optimiser:
            more = np.zeros(c - len(optimiser["v_squares"]), np.float32)
            optimiser = optimiser | {name: np.append(optimiser[name], more) for name in ("v_squares", "b_squares")}
        return replace(self, Y=widened(self.Y, c), optimiser=optimiser)

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Returns arrays and a JSON-able description for `safetensors_file.save`."""
        arrays = {f"optimiser_{name}": values for name, values in self.optimiser.items()}
        arrays |= {"w": self.w, "u": self.u.view(np.int64), "share": self.share, "held": self.held}
        arrays |= {f"Y_{name}": getattr(self.Y, name) for name in ("indptr", "indices")}
        X = {name: getattr(self.X, name) for name in ("indptr", "indices", "data")} if sp.issparse(self.X) else {}
        arrays |= {f"X_{name}": values for name, values in X.items()} if X else {"X": self.X}
        sizes = {"features": self.X.shape[1], "labels": self.Y.shape[1]}
        return arrays, {"replay": {**sizes, "key": self.key, "training": self.training._asdict()}}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], meta: dict[str, Any]) -> Replay:
        """Returns the store that `to_arrays` described; other arrays may be among these."""
        try:
            found = meta["replay"]
            m, d, c = len(arrays["w"]), int(found["features"]), int(found["labels"])
            optimiser = {name: arrays[f"optimiser_{name}"] for name in ADAGRAD if f"optimiser_{name}" in arrays}
            columns = {"w": np.float64, "share": np.float64, "held": np.bool_, "u": np.int64}
            expected: dict[str, tuple[Any, tuple[int, ...]]] = {name: (kind, (m,)) for name, kind in columns.items()}
            sparse = "X" not in arrays
            expected["X_data" if sparse else "X"] = np.float32, arrays["X_indices"].shape if sparse else (m, d)
            if optimiser:
                sizes = d - 1, c, c, len(optimiser["d_squares"])
                squares = {name: (np.float32, (size,)) for name, size in zip(ADAGRAD, sizes, strict=True)}
                expected |= {f"optimiser_{name}": value for name, value in squares.items()}
            check_arrays(arrays, expected)
            if (arrays["w"] < 0).any() or (arrays["share"] <= 0).any() or (arrays["share"] > 1).any():
                raise ValueError("weights or shares")
            if type(found["key"]) is not int:
                raise ValueError("key")
            X: Any = arrays.get("X")
            if X is None:
                X = csr_of(arrays["X_data"], arrays["X_indices"], arrays["X_indptr"], (m, d))
            ones = np.ones(len(arrays["Y_indices"]), np.float32)
            Y = csr_of(ones, arrays["Y_indices"], arrays["Y_indptr"], (m, c))
            known = {name: arrays[name] for name in ("w", "share", "held")} | {"u": arrays["u"].view(np.uint64)}
            training = Training.from_meta(found["training"])
            return cls(X, Y, optimiser=optimiser, training=training, key=found["key"], **known)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelFileError(f"The replayed rows cannot be read: {error}.\nTrain the model again.") from error


def content_hash(X: Any, Y: sp.csr_array, key: int) -> Array:
    """Returns a hash (n,) of the labels of each row and of its features in float32, which the key decides too; labels
    that no row has may follow."""
    X = X if X.dtype == np.float32 else X.astype(np.float32)
    return row_hash(row_hashes(X) ^ row_hash(row_hashes(Y), key), key)


def unit(u: Array) -> Array:
    """Returns hashes as numbers in [0, 1)."""
    return (u >> np.uint64(11)) * 2.0**-53


def widened(Y: sp.csr_array, c: int) -> sp.csr_array:
    """Returns Y (n, c) with labels to its right that no row has."""
    return sp.csr_array((Y.data, Y.indices, Y.indptr), (Y.shape[0], c))


def inclusion(u: Array, Y: sp.csr_array, room: int) -> Array:
    """Returns the bound pi (n,) below which the number u (n,) of a row must be, so that about `room` rows are kept.

    A label keeps its r rows of the smallest u, where r takes at most half of the room: the bound of its rows is the
    next smallest, or 1 where there is none.
    """
    n, c = Y.shape
    if n <= room:
        return np.ones(n)
    r = int(np.clip(room // (2 * c), 1, ROWS_PER_LABEL))
    order = np.argsort(u, kind="stable")
    by_label = sp.csc_array(Y[order])  # the rows of a label, by u ascending
    starts, counts = by_label.indptr[:-1], np.diff(by_label.indptr)
    bounds = np.ones(c)
    many = np.flatnonzero(counts > r)
    bounds[many] = u[order[by_label.indices[starts[many] + r]]]
    share, row = np.zeros(n), np.repeat(np.arange(n), np.diff(Y.indptr))
    np.maximum.at(share, row, bounds[Y.indices])
    left = np.sort(u[u >= share])
    free = room - (n - len(left))
    return np.maximum(share, left[free] if 0 < free < len(left) else 0.0)
