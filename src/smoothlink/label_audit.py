"""Rows with labels -> the labels that are probably wrong, and those that are probably missing, most certain first.

Each pair of a row and a label is predicted without itself, twice. Ridge regression onto all labels gives what a row
would be predicted had it not been learned from, (y - residual / (1 - leverage)), from one factor. What that leaves
unexplained of a label is regressed on what it leaves unexplained of the other labels that the row has, so that a row of
a narrower label lacks the wider one; this too without the pair itself, in closed form. Only labels that are there are
believed: where a true label was replaced by a wrong one, its absence would speak for the wrong one. A given label is
not suspected because of others, only for want of them; whether a label is missing others may speak against too.

Scores become probabilities p by the maps of `steps.calibrate`. A label j that is given is wrong with the odds
q_j (1 - p) / p, and one that is not given is missing with the odds r p / (1 - p). How often label j is given wrongly,
q_j, goes with the root of its frequency: random mistakes would have it the same for all labels, and mistakes between
labels that occur together in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.matching import label_names
from smoothlink.errors import DataError, plural
from smoothlink.fitting.choose import rule_of_thumb
from smoothlink.labels import is_multiclass, matrix_and_names, read_labels, read_targets
from smoothlink.machines.arrays import sigmoid
from smoothlink.machines.matrices import row_range
from smoothlink.machines.rows import Rows
from smoothlink.machines.rows_in_files import check_sparse
from smoothlink.machines.threads import single_thread
from smoothlink.model import blocks
from smoothlink.parameters import Values, check_value
from smoothlink.predict import block_probabilities
from smoothlink.solve import Cholesky, DualCholesky
from smoothlink.solve.leave_out import DualRidge, PrimalRidge, fitted_ridge
from smoothlink.steps.calibrate import LEAST_PROBABILITY, Calibration, Histogram, PairSample
from smoothlink.steps.scale import choose_scaling
from smoothlink.vocabulary import display_names

if TYPE_CHECKING:
    from smoothlink.reports.labelled_rows import LabelledRows
    from smoothlink.text.features import TextFeatures
    from smoothlink.types import FittedModel, Frame, Labels, Matrix, Targets, Texts

Array = NDArray[Any]

MOST_ROWS = 10_000  # of the n x n factor; beyond it, or with fewer features than rows, it is one of features
MOST_FEATURES = 8_000  # of that factor, those of the largest sums of squares: 512 MB
MOST_CONDITIONS = 2_000  # labels that others are predicted from, the most frequent
LABELS_SOLVED = 256  # whose weights (d, m) are made together
LEAST_RIDGE = 10.0  # more than predictions of new rows want: 3 to 30 found more on enron, corel5k and delicious than 1
SHRINKAGE = 2.0  # of the regression on other labels, times its mean diagonal; 1 to 3 were near the best on four sets
FREQUENCY_POWER = 0.5  # of q_j: 0 finds random mistakes best and 1 confusable ones; reuters21578, delicious, enron
BLOCK_BYTES = 64 << 20  # of scores at a time
SPARSER = 4  # times fewer pairs without a label than models are calibrated by: still 50,000
CALIBRATED_PAIRS = 100_000_000  # that the maps are fitted to, at most about so many


class Suspect(NamedTuple):
    """A label of a row that is probably wrong, or probably missing."""

    row: int  # from 0 on
    id: str  # of the row, its number where it has none
    label: Any
    probability: float  # that the row has the label, predicted without this pair
    sureness: float  # the probability that the data are wrong here
    number: int  # of the label


@dataclass(frozen=True)
class Audit:
    """Labels that are probably wrong, and labels that are probably missing, the most certain first."""

    wrong: tuple[Suspect, ...]
    missing: tuple[Suspect, ...]
    data: AuditedData = field(repr=False)

    def as_frame(self) -> Frame:
        """Returns both lists in one pandas data frame, with a column `finding` of "wrong" and "missing"."""
        import pandas as pd

        return pd.DataFrame(self.records(), columns=["finding", *Suspect._fields])

    def records(self) -> list[dict[str, Any]]:
        """Returns both lists, one after the other, as dictionaries."""
        lists = {"wrong": self.wrong, "missing": self.missing}
        return [{"finding": finding, **one._asdict()} for finding, found in lists.items() for one in found]


class Scores(Protocol):
    """Scores of rows that were not learned from."""

    def of(self, part: slice) -> Array:
        """Returns scores (b, c) of some rows, about 1 for labels that they have and 0 for others."""


@dataclass(frozen=True)
class AuditedData:
    """What was audited, as the page shows it."""

    A: Any  # (n, d) scaled rows; with a model (n, k) their embeddings
    Y: sp.csr_array  # (n, c)
    names: list[Any]
    shown_names: list[str]  # in the model's vocabulary, where it has one
    ids: list[str]
    scores: Scores
    X: Any  # (n, d) as the model takes them
    texts: Sequence[str] | None = None
    features: TextFeatures | None = None
    feature_names: Sequence[Any] | None = None
    model: FittedModel | None = None

    @property
    def n(self) -> int:
        return int(self.Y.shape[0])


def audit(
    X: Matrix | Texts,
    y: Targets | Labels,
    *,
    model: FittedModel | None = None,
    limit: int = 100,
    ids: Sequence[Any] | None = None,
    expected: float = 0.05,
    block_rows: int | None = None,
) -> Audit:
    """Returns the labels that are probably wrong, and those that are probably missing.

    X, y: rows of numbers or texts, and their labels, as SmoothLinkClassifier.fit or TextSmoothLink.fit takes them.
    model: a fitted one that predicts the rows in place of a ridge regression that leaves each of them out; it should
    not have been trained on them. limit: how many of either are returned, at most. ids: what each row is called, if not
    by its number. expected: the share of labels that is taken to be wrong, and to be missing, before anything is known
    of them; the order does not depend on it. block_rows: rows that are scored together.

    No array of rows times labels is ever made.
    """
    check_value("limit", limit, Values(whole=1))
    if not 0 < expected < 1:
        raise ValueError(f"expected is {expected!r}; it is a share of the labels, above 0 and below 1: expected=0.05.")
    return audit_data(audited_data(X, y, model, ids), limit, expected, block_rows)


def audit_data(data: AuditedData, limit: int, expected: float, block_rows: int | None = None) -> Audit:
    """Returns `audit` of data that were read."""
    n, c = data.Y.shape
    step = block_rows or int(min(4096, max(1, BLOCK_BYTES // (8 * max(c, 1)))))
    parts = list(blocks(n, step))
    whole = data
    if len(parts) == 1:  # scores that fit into one block are made once
        data = replace(data, scores=KnownScores(data.scores.of(parts[0])))
    frequencies = np.bincount(data.Y.indices, minlength=c) / n
    others = condition(data, parts)
    regressions = [others.in_favour(), *([] if is_multiclass(data.Y) else [others])]
    for_wrong, *more = fit_maps(data, regressions, parts, frequencies)
    for_missing = more[0] if more else for_wrong
    absent = n * (frequencies**FREQUENCY_POWER * (1 - frequencies)).sum()
    scale = expected * data.Y.nnz / max(absent, 1.0)
    with np.errstate(divide="ignore"):
        wrongly = np.log(scale * frequencies**FREQUENCY_POWER)  # (c,) log q_j
    wrong, missing = Best(limit), Best(limit)
    for part in parts:
        Y = row_range(data.Y, part)
        S, given = data.scores.of(part), Y.toarray() > 0
        Z = for_wrong.log_odds(S, Y)
        wrong.add(part.start, np.where(given, wrongly - Z, -np.inf), Z)
        Z = Z if for_missing is for_wrong else for_missing.log_odds(S, Y)
        missing.add(part.start, np.where(given, -np.inf, Z + np.log(expected / (1 - expected))), Z)
    return Audit(suspects(wrong, data), suspects(missing, data), whole)


def suspects(best: Best, data: AuditedData) -> tuple[Suspect, ...]:
    """Returns the best pairs with their names and probabilities."""
    rows, labels = best.rows.tolist(), best.labels.tolist()
    called = [data.ids[i] for i in rows], [data.names[j] for j in labels]
    each = zip(rows, *called, sigmoid(best.values).tolist(), sigmoid(best.keys).tolist(), labels, strict=True)
    return tuple(map(Suspect._make, each))


class Best:
    """The pairs of the highest keys, found block by block; of equal keys the first rows, and of these labels."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.rows, self.labels = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.keys, self.values = np.zeros(0), np.zeros(0)

    def add(self, first: int, keys: Array, values: Array) -> None:
        """Adds keys (b, c), -inf for pairs that do not count, and what to keep of each; rows count from `first`."""
        flat = keys.ravel()
        at = np.flatnonzero(flat > -np.inf)
        if len(at) > self.limit:
            at = at[flat[at] >= np.partition(flat[at], len(at) - self.limit)[len(at) - self.limit]]
        self.rows = np.concatenate([self.rows, first + at // keys.shape[1]])
        self.labels = np.concatenate([self.labels, at % keys.shape[1]])
        self.keys, self.values = np.append(self.keys, flat[at]), np.append(self.values, values.ravel()[at])
        order = np.lexsort((self.labels, self.rows, -self.keys))[: self.limit]
        self.rows, self.labels = self.rows[order], self.labels[order]
        self.keys, self.values = self.keys[order], self.values[order]


# What is read


def audited_data(X: Any, y: Any, model: Any = None, ids: Sequence[Any] | None = None) -> AuditedData:
    """Returns rows and labels as they are audited; raises an error where there is nothing to compare."""
    if model is not None:
        from smoothlink.reports.labelled_rows import labelled_rows

        return data_of_model(labelled_rows(model, X, y, ids))
    texts, features, feature_names = None, None, None
    if reads_texts(X):
        from smoothlink.text.classifier import labels_in, texts_to_learn
        from smoothlink.text.features import TextFeatures

        labels = labels_in(y)
        texts = list(texts_to_learn(X, labels).texts)
        Y, names = read_labels(labels)[:2]
        check_labels(len(texts), Y)
        features = TextFeatures()
        X = features.fit_transform(texts, None)
    else:
        feature_names = list(X.columns) if hasattr(X, "columns") else None
        y, columns = matrix_and_names(y)
        if np.ndim(y) == 2 and not (y.nnz if sp.issparse(y) else np.any(y)):
            raise DataError(NO_LABELS)
        targets = read_targets(y, "auto")
        Y, names = targets.Y, columns if columns is not None and targets.indicator else targets.classes.tolist()
        X = check_sparse(X, "X")
        X = sp.csr_array(X) if sp.issparse(X) else np.atleast_2d(np.asarray(X, np.float32))
        check_labels(X.shape[0], Y)
        if not np.isfinite(X.data if sp.issparse(X) else X).all():
            raise DataError("X has numbers that are not finite.\nReplace them, or leave these rows out.")
    if ids is not None and len(ids) != Y.shape[0]:
        raise DataError(f"There are {len(ids):,} ids for {plural(Y.shape[0], 'row')}. Pass one for each row.")
    A = choose_scaling(X, "auto", np.ones(X.shape[0]))(X)
    called = [str(one) for one in (range(Y.shape[0]) if ids is None else ids)]
    shown = [str(name) for name in names]
    return AuditedData(A[:, :-1], Y, names, shown, called, fit_ridge(A, Y), X, texts, features, feature_names)


def data_of_model(rows: LabelledRows) -> AuditedData:
    """Returns rows that a fitted model scores, as they are audited."""
    classifier, names = rows.classifier, label_names(rows.classifier)
    unknown = int(rows.Y[:, len(names) :].nnz)
    if unknown:
        raise DataError(
            f"The data have {plural(unknown, 'label')} that the model does not know.\n"
            "Leave the model out, so that one is fitted to these data."
        )
    Y = sp.csr_array(rows.Y[:, : len(names)])
    check_labels(rows.X.shape[0], Y)
    known = getattr(classifier, "feature_names_in_", None)
    return AuditedData(
        A=np.nan_to_num(classifier.model_.embed(rows.X)),
        Y=Y,
        names=names,
        shown_names=display_names(classifier),
        ids=[str(one) for one in (range(Y.shape[0]) if rows.ids is None else rows.ids)],
        scores=ModelScores(classifier.model_, classifier.model_.embed_rows(rows.X)),
        X=rows.X,
        texts=rows.texts,
        features=rows.features,
        feature_names=None if known is None else list(known),
        model=rows.model,
    )


NO_LABELS = "No row has a label: there is nothing to audit.\nName the column of the labels with --labels."


def reads_texts(X: Any) -> bool:
    """Returns whether X holds texts: a list or column of them, or a table whose first column does."""
    if sp.issparse(X) or (isinstance(X, np.ndarray) and X.dtype.kind in "biuf"):
        return False
    from smoothlink.text.data_frames import column_names, values_of

    names = column_names(X)
    first = next(iter(values_of(X) if names is None else values_of(X[names[0]])), None)
    return isinstance(first, str)


def check_labels(n: int, Y: sp.csr_array) -> None:
    """Raises an error where rows and labels do not go together, or where there is nothing to compare."""
    if Y.shape[0] != n:
        raise DataError(f"There are {plural(n, 'row')} and labels for {Y.shape[0]}.\nPass labels for each row.")
    if not Y.nnz:
        raise DataError(NO_LABELS)
    if np.count_nonzero(np.bincount(Y.indices, minlength=Y.shape[1])) < 2:
        raise DataError("All labels are the same: there is nothing to compare.\nPass data with two labels or more.")


# Scores of rows that were not learned from


@dataclass(frozen=True)
class ModelScores:
    """Probabilities by a model, which is taken not to know the rows."""

    model: Any
    rows: Any  # embedded

    def of(self, part: slice) -> Array:
        return block_probabilities(self.model, self.model.featurize(self.rows[part]), None).astype(np.float64)


@dataclass(frozen=True)
class KnownScores:
    """Scores (n, c) that were made before."""

    S: Array

    def of(self, part: slice) -> Array:
        return self.S[part]


@dataclass(frozen=True)
class DualScores:
    """Leave-one-out scores from P (n, n), the matrix that turns labels into the residuals of the fit."""

    ridge: DualRidge
    Y: sp.csc_array

    def of(self, part: slice) -> Array:
        numbers = np.arange(part.start, part.stop)
        P = self.ridge.residual_rows(numbers)
        return leave_one_out(self.Y[part].toarray(), (self.Y.T @ P.T).T, P[np.arange(len(numbers)), numbers])

    def label_weights(self, Y: sp.csc_array) -> Array:
        return self.ridge.label_weights(Y)


@dataclass(frozen=True)
class PrimalScores:
    """Leave-one-out scores from the weights B (d, c) of all labels and G^-1 (d, d), G = A'A + rho."""

    A: Any  # (n, d), the intercept last
    Y: sp.csr_array
    B: Array
    inverse: Array
    leverages: Array  # (n,)
    columns: Array  # (d,) which columns of all features these are
    all_columns: int

    def of(self, part: slice) -> Array:
        Y = row_range(self.Y, part).toarray()
        return leave_one_out(Y, Y - row_range(self.A, part) @ self.B, 1 - self.leverages[part])

    def label_weights(self, Y: sp.csc_array) -> Array:
        """Returns the weights (all columns, m) of labels Y (n, m); features that were left out have none."""
        found = np.zeros((self.all_columns, Y.shape[1]), np.float32)
        sums = self.A.T @ Y
        found[self.columns] = self.inverse @ (sums.toarray() if sp.issparse(sums) else np.asarray(sums))
        return found


def leave_one_out(Y: Array, residuals: Array, left: Array) -> Array:
    """Returns what rows are predicted without themselves, from residuals (b, c) and 1 - leverages (b,)."""
    return np.asarray(Y - residuals / np.maximum(left, 1e-6)[:, None], np.float64)


def fit_ridge(A: Any, Y: sp.csr_array) -> DualScores | PrimalScores:
    """Returns the scores of a ridge regression onto all labels that leaves out the row it scores; A (n, d + 1)."""
    n, d = A.shape[0], A.shape[1] - 1
    rows = Rows.of(A, Y)
    strength = max(LEAST_RIDGE, rule_of_thumb(rows))
    if n <= min(d, MOST_ROWS):
        ridge = fitted_ridge(rows, DualCholesky().prepare(rows).at(strength))
        assert isinstance(ridge, DualRidge)
        return DualScores(ridge, sp.csc_array(Y))
    columns = np.arange(d + 1)
    if d > MOST_FEATURES:
        squares = np.asarray((A.multiply(A) if sp.issparse(A) else A * A).sum(axis=0)).ravel()[:-1]
        columns = np.append(np.sort(np.argsort(-squares, kind="stable")[:MOST_FEATURES]), d)
        A = A[:, columns]
        rows = Rows.of(A, Y)
    solve = Cholesky().prepare(rows).at(strength)
    weights, by_label = PrimalRidge(rows, solve).label_weights, sp.csc_array(Y)
    B = np.concatenate([weights(by_label[:, part]) for part in blocks(Y.shape[1], LABELS_SOLVED)], axis=1)
    inverse, leverages = solve.factor.inverse(), np.empty(n)
    for part in blocks(n, BLOCK_BYTES // (8 * len(columns))):
        X = row_range(A, part)
        G = X @ inverse
        leverages[part] = np.asarray((X.multiply(G) if sp.issparse(X) else X * G).sum(axis=1)).ravel()
    return PrimalScores(A, Y, B, inverse, leverages, columns, d + 1)


# What the other labels of a row say


class OtherLabels(NamedTuple):
    """The regression of what scores leave unexplained of each label on what they leave of others that a row has.

    T = Y * (Y - S) has a column for each label that is regressed on, and Omega = (T'T + t)^-1, B = Omega T'R. Without
    its own column j a label has the weights B_j - Omega_j B_jj / Omega_jj, and row i the leverage T_i Omega T_i' -
    (T Omega)_ij^2 / Omega_jj, so that all labels and rows are left out at the cost of one inverse.
    """

    labels: Array  # (k,) that are regressed on
    inverse: Array  # (k, k) Omega
    weights: Array  # (k, c), 0 of a label with itself

    def applied(self, S: Array, Y: sp.csr_array) -> Array:
        """Returns scores (b, c) by the other labels too, of S (b, c)."""
        given = Y.toarray()
        R = given - S
        T = sp.csr_array(Y.multiply(R))[:, self.labels]
        TO = T @ self.inverse
        used = np.repeat(np.asarray(T.multiply(TO).sum(axis=1)).reshape(-1, 1), S.shape[1], axis=1)
        used[:, self.labels] -= TO**2 / np.diag(self.inverse)
        return np.asarray(given - (R - T @ self.weights) / np.maximum(1 - used, 1e-3))

    def in_favour(self) -> OtherLabels:
        """Returns the same without weights below 0.

        Where rows have one label each, another label that is there rules out all that are not given and none that is,
        right or wrong: given labels would all look right.
        """
        return self._replace(weights=np.maximum(self.weights, 0))


def condition(data: AuditedData, parts: list[slice]) -> OtherLabels:
    """Returns the regression on other labels, from sums over blocks of rows."""
    counts = np.bincount(data.Y.indices, minlength=data.Y.shape[1])
    labels = np.sort(np.argsort(-counts, kind="stable")[:MOST_CONDITIONS])
    TT, TR = np.zeros((len(labels), len(labels))), np.zeros((len(labels), len(counts)))
    for part in parts:
        Y = row_range(data.Y, part)
        R = Y.toarray() - data.scores.of(part)
        T = sp.csr_array(Y.multiply(R))[:, labels]
        TT += (T.T @ T).toarray()
        TR += T.T @ R
    shrinkage = max(SHRINKAGE * float(np.trace(TT)) / len(labels), 1e-12)
    inverse = np.linalg.inv(TT + shrinkage * np.eye(len(labels)))
    weights = inverse @ TR
    own = weights[np.arange(len(labels)), labels] / np.diag(inverse)
    weights[:, labels] -= inverse * own
    return OtherLabels(labels, inverse, weights)


# Scores -> log-odds


class Evidence(NamedTuple):
    """The other labels of rows, and the maps of the scores that they lead to."""

    others: OtherLabels
    maps: Calibration

    def log_odds(self, S: Array, Y: sp.csr_array) -> Array:
        """Returns the log-odds (b, c) of labels, from scores S (b, c) of rows whose labels are Y."""
        S = self.others.applied(S, Y).astype(np.float32)
        if self.maps.labels is not None:
            return self.maps.log_odds(S, slice(None), loss="squared").astype(np.float64)
        p = self.maps.probabilities(S, loss="squared").astype(np.float64)
        p = np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        return np.asarray(np.log(p) - np.log1p(-p))


def fit_maps(
    data: AuditedData, regressions: list[OtherLabels], parts: list[slice], frequencies: Array
) -> list[Evidence]:
    """Returns the maps of scores to probabilities, fitted to scores of rows that were not learned from, of each
    regression on other labels."""
    n, c = data.Y.shape
    every = max(1, n * c // CALIBRATED_PAIRS)
    histograms = [Histogram("squared") for _ in regressions]
    samples = [PairSample(SPARSER * n * c // every, frequencies) for _ in regressions]
    for part in parts[::every]:
        scores, Y, w = data.scores.of(part), row_range(data.Y, part), np.ones(part.stop - part.start)
        for others, histogram, pairs in zip(regressions, histograms, samples, strict=True):
            S = others.applied(scores, Y).astype(np.float32)
            histogram.add(S, Y, w)
            pairs.add(slice(0, c), S, Y, w)
    each = zip(regressions, histograms, samples, strict=True)
    with single_thread(0.0):  # products of a few columns: threads would wait for each other longer than they work
        return [Evidence(others, pairs.fit(made.monotone(), loss="squared")) for others, made, pairs in each]
