"""Label sets and rankings, truth -> metrics with 90 % intervals, and the difference of two models.

Conventions. All values are fractions. A row without labels counts 0 in P@k and the like, and 0/0 = 0 in every F1.
Labels that only the truth knows (columns beyond the c of training) are misses wherever the true labels of a row are
counted; averages over labels, and Hamming loss, go over the c labels of training. `logloss` is the mean over rows of
a row's loss in natural logarithms *summed* over its labels: divided by c it would be tiny and not comparable with
the multiclass loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from smoothlink.errors import DataError, plural
from smoothlink.machines.rows_in_files import check_sparse
from smoothlink.metrics.bootstrap import BinnedGap, MeanLabelF1, Metric, Ratio, Statistic, divide, draw, interval
from smoothlink.metrics.names import KS, format_value, interval_text, meaning, metric_of
from smoothlink.metrics.reliability import EQUAL_MASS_BINS, equal_mass_bins
from smoothlink.steps.infer import propensities

if TYPE_CHECKING:
    from smoothlink.model import Model

Array = NDArray[Any]
Task = Literal["multilabel", "multiclass"]


class Predictions(NamedTuple):
    """The predictions of a model for n test rows. Metrics that need a field which is None are left out."""

    topk: csr_array | None = None  # (n, c), 5 or more entries per row in descending order of score: infer.topk_csr
    sets: csr_array | None = None  # (n, c) 0/1, at the model's thresholds or those given; multiclass: the arg-max
    f1_sets: csr_array | None = None  # (n, c) 0/1, Algorithm 4 over all n rows
    row_logloss: Array | None = None  # (n,) summed over labels; multiclass: -log p(true)
    top_probability: Array | None = None  # (n,) of the top label of topk; multiclass: of the one in sets
    top_score: Array | None = None  # (n,) the highest score of each row, which orders rows of equal probabilities


class Evaluation(NamedTuple):
    """Metrics by name, and what of the truth no prediction could have met."""

    metrics: dict[str, Metric]
    n_rows: int
    n_unknown_labels: int  # labels that occur in the test rows but not among the c of training
    n_unknown_pairs: int  # (row, label) pairs of these
    n_training_rows: int = 0  # test rows that occur in the training data, as far as the model can tell

    def table(self) -> list[tuple[str, str, str]]:
        """Returns name, value and 90 % interval of each metric as text; the interval is empty where none was drawn."""
        return [
            (key, format_value(key, metric.value), interval_text(key, metric)) for key, metric in self.metrics.items()
        ]

    @property
    def caption(self) -> str:
        """Returns what was measured: how many rows, and how many of their labels the model does not know."""
        unknown = f", {plural(self.n_unknown_labels, 'label')} unknown to the model" if self.n_unknown_labels else ""
        known = f", {self.n_training_rows:,} of them in the training data" if self.n_training_rows else ""
        return f"{plural(self.n_rows, 'row')}{known}{unknown}"

    @property
    def training_rows_note(self) -> str:
        """Returns a sentence on rows that occur in the training data; empty where there are none."""
        count, n = self.n_training_rows, self.n_rows
        if not count:
            return ""
        if count == n:
            return (
                f"all {n:,} rows occur in the training data, as if it were the training file: "
                "metrics say how well the model remembers them, not how it does on new rows."
            )
        return (
            f"{count:,} of {n:,} rows ({100 * count / n:.2g} %) occur in the training data: "
            "metrics on them say little about new rows."
        )

    def __repr__(self) -> str:
        """Returns the metrics as a table of text."""
        table = [("metric", "value", "90 % interval"), *self.table()]
        widths = [max(len(row[column]) for row in table) for column in range(2)]
        lines = [f"{key:{widths[0]}}  {value:>{widths[1]}}  {interval}".rstrip() for key, value, interval in table]
        return "\n".join([f"Evaluation on {self.caption}", *lines])

    def _repr_html_(self) -> str:
        """Returns the same for notebooks, each metric with its meaning."""
        cells = [(*row, meaning(row[0])) for row in self.table()]
        head = "".join(f"<th>{name}</th>" for name in ("metric", "value", "90 % interval", "meaning"))
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
        return f"<table><caption>{self.caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class MetricStatistics(NamedTuple):
    """The sums over test rows from which all metrics of a model and their intervals follow."""

    by_key: dict[str, Statistic]
    n: int  # rows
    c: int  # labels of training
    groups: Array | None = None  # (n,) rows of the same number are drawn together

    def draw(self, bootstraps: int, seed: int) -> dict[str, Array]:
        """Returns (1 + bootstraps,) values of each metric: its own, then one per draw of rows.

        Draws depend on (seed, n, groups) alone, so those of two models on the same rows can be subtracted.
        """
        return draw(self.by_key, self.n, widest=self.c, draws=bootstraps, seed=seed, groups=self.groups)


def statistics(
    truth: csr_array,  # (n, c') 0/1; columns beyond c are labels unknown to the model
    predictions: Predictions,
    *,
    label_counts: ArrayLike,  # (c,) training rows of each label
    n_train: int,
    ks: Sequence[int] = KS,
    task: Task = "multilabel",
    a: float = 0.55,
    b: float = 1.5,
) -> MetricStatistics:
    """Returns the statistics of all metrics that the predictions allow, in the order of the table of metrics.

    a, b: of the propensities.
    """
    counts = np.asarray(label_counts)
    checked = _CheckedTruth.of(truth, len(counts))
    if task == "multiclass" and (checked.per_row > 1).any():
        row = int(np.argmax(checked.per_row > 1))
        raise DataError(f"Row {row} of the truth has {checked.per_row[row]} labels. Pass task='multilabel'.")
    found: dict[str, Statistic] = {}
    one, top_hit = np.ones(checked.n), None  # (n,) whether the top label of a row is true
    if predictions.topk is not None:
        unknown = np.zeros(checked.truth.shape[1] - checked.c)  # no training rows
        ranked = ranked_labels(checked.matrix(predictions.topk, "topk"), max(ks))
        hit = is_true(checked.truth, ranked)
        found |= _ranking(checked, ranked, hit, propensities(np.append(counts, unknown), n_train, a, b), ks)
        top_hit = hit[:, 0]
    if predictions.sets is not None:
        sets = _zero_one(checked.matrix(predictions.sets, "sets"), "sets")
        found |= _sets(checked, sets)
        top_hit = row_sums(checked.known.multiply(sets)) if top_hit is None and task == "multiclass" else top_hit
    if predictions.f1_sets is not None:
        f1_sets = _zero_one(checked.matrix(predictions.f1_sets, "f1_sets"), "f1_sets")
        found["macro_f1_alg4"] = _macro_f1(checked, f1_sets)
    if task == "multiclass" and top_hit is not None:
        found["error"] = Ratio(one - top_hit, one)
    if predictions.row_logloss is not None:
        found["logloss"] = Ratio(checked.column(predictions.row_logloss, "row_logloss"), one)
    if predictions.top_probability is not None and top_hit is not None:
        p = checked.column(predictions.top_probability, "top_probability")
        found["ece_top"] = BinnedGap(p - top_hit, equal_mass_bins(p), EQUAL_MASS_BINS)
    return MetricStatistics(found, checked.n, checked.c)


def model_statistics(
    model: Model, truth: csr_array, predictions: Predictions, ks: Sequence[int] = KS
) -> MetricStatistics:
    """Returns the statistics of a model's predictions, with the propensities of its own training rows."""
    return statistics(
        truth,
        predictions,
        label_counts=model.counts,
        n_train=max(1, round(model.total)),
        ks=ks,
        task="multiclass" if model.multiclass else "multilabel",
    )


def evaluate(
    truth: csr_array,  # (n, c') 0/1; columns beyond c are labels unknown to the model
    predictions: Predictions,
    *,
    label_counts: ArrayLike,  # (c,) training rows of each label
    n_train: int,
    ks: Sequence[int] = KS,
    task: Task = "multilabel",
    bootstraps: int = 1000,
    seed: int = 0,
    a: float = 0.55,
    b: float = 1.5,
) -> Evaluation:
    """Returns all metrics that the predictions allow, with intervals from `bootstraps` draws of rows (0: none).

    a, b: of the propensities.
    """
    found = statistics(truth, predictions, label_counts=label_counts, n_train=n_train, ks=ks, task=task, a=a, b=b)
    return evaluation(found, truth, bootstraps, seed)


def evaluation(found: MetricStatistics, truth: csr_array, bootstraps: int, seed: int) -> Evaluation:
    """Returns the metrics with their intervals, and what of the truth is unknown to the model."""
    values = found.draw(bootstraps, seed)
    known = csr_array(truth != 0)
    unknown = known.indices[known.indices >= found.c]
    return Evaluation(
        {key: bounded(key, v) for key, v in values.items()}, found.n, len(np.unique(unknown)), len(unknown)
    )


def bounded(key: str, values: Array) -> Metric:
    """Returns a metric with an interval of possible values."""
    return interval(values, 0, metric_of(key).highest)


class Paired(NamedTuple):
    """A metric of two models on the same rows."""

    first: Metric
    second: Metric
    difference: Metric  # first - second, under the same draws of rows


def paired(
    first: MetricStatistics,
    second: MetricStatistics,
    *,
    keys: Sequence[str] | None = None,
    bootstraps: int = 1000,
    seed: int = 0,
) -> dict[str, Paired]:
    """Returns these metrics, or all that both models have, of two models on the same rows, and their differences."""
    for name, side in (("first", first), ("second", second)):
        missing = [key for key in keys or () if key not in side.by_key]
        if missing:
            have = ", ".join(side.by_key)
            raise DataError(f"The {name} predictions have no metric {missing[0]!r}. They have: {have}.")
    wanted = [key for key in first.by_key if key in second.by_key] if keys is None else keys
    x, y = (  # models of other features may see other copies: both get the draws of the first
        side._replace(by_key={key: side.by_key[key] for key in wanted}, groups=first.groups).draw(bootstraps, seed)
        for side in (first, second)
    )
    return {key: Paired(bounded(key, x[key]), bounded(key, y[key]), interval(x[key] - y[key])) for key in wanted}


def paired_difference(
    key: str,
    truth: csr_array,
    first: Predictions,
    second: Predictions,
    *,
    bootstraps: int = 1000,
    seed: int = 0,
    **given: Any,
) -> Metric:
    """Returns metric `key` of the first predictions minus that of the second, both under the same draws of rows."""
    sides = (statistics(truth, predictions, **given) for predictions in (first, second))
    return paired(*sides, keys=(key,), bootstraps=bootstraps, seed=seed)[key].difference


class _CheckedTruth(NamedTuple):
    """The checked truth."""

    truth: csr_array  # (n, >= c) canonical, all entries 1
    known: csr_array  # (n, c) its columns that the model knows
    per_row: Array  # (n,) true labels per row, the unknown ones too
    n: int
    c: int

    @staticmethod
    def of(truth: csr_array, c: int) -> _CheckedTruth:
        Y = _zero_one(truth, "truth")
        if not Y.shape[0] or not c:
            raise DataError(f"{Y.shape[0]} test rows and {c} labels: nothing to evaluate. Pass at least one of each.")
        n, width = Y.shape
        Y = csr_array((Y.data, Y.indices, Y.indptr), (n, max(c, width)))
        return _CheckedTruth(Y, csr_array(Y[:, :c]), np.diff(Y.indptr), n, c)

    def matrix(self, matrix: csr_array, name: str) -> csr_array:
        if matrix.shape != (self.n, self.c):
            raise DataError(
                f"{name} is {matrix.shape[0]} x {matrix.shape[1]}; the truth has {self.n} rows and label_counts "
                f"{self.c} labels. Pass predictions for the same rows and labels."
            )
        return matrix

    def column(self, values: ArrayLike, name: str) -> Array:
        found = np.asarray(values, np.float64)
        if found.shape != (self.n,) or not np.isfinite(found).all():
            raise DataError(
                f"{name} has shape {found.shape} and {np.count_nonzero(~np.isfinite(found))} infinite or NaN values. "
                f"Pass one finite number for each of the {self.n} rows (clip probabilities before the logarithm)."
            )
        return found


def _zero_one(matrix: csr_array, name: str) -> csr_array:
    """Returns a canonical float64 copy, sorted, without explicit zeros; raises DataError for other entries."""
    found: csr_array = csr_array(check_sparse(matrix, name)).astype(np.float64)  # a copy
    found.sum_duplicates()
    found.eliminate_zeros()
    if (found.data != 1).any():
        raise DataError(f"{name} holds {found.data[found.data != 1][0]:g}; entries are 0 or 1. Pass (Y != 0) instead.")
    return found


def ranked_labels(topk: csr_array, k: int) -> Array:
    """Returns the first k labels of each row (n, k), in the order of the entries; -1 where a row has fewer."""
    if not issparse(topk) or topk.format != "csr":
        raise DataError(
            f"topk is {type(topk).__name__}; its rank is the order of CSR entries. Pass infer.topk_csr(...)."
        )
    lengths = np.diff(check_sparse(topk, "topk").indptr)
    if lengths.max() < min(k, topk.shape[1]):
        raise DataError(
            f"topk has at most {lengths.max()} entries per row; metrics at {k} need {min(k, topk.shape[1])}. "
            f"Predict with k={k}, or pass smaller ks."
        )
    place = np.arange(k)
    at = np.minimum(topk.indptr[:-1, None] + place, topk.nnz - 1)
    return np.where(place < lengths[:, None], topk.indices[at], -1)


def is_true(truth: csr_array, labels: Array) -> Array:
    """Returns whether (i, labels[i, j]) is an entry of the truth, for all labels (n, k)."""
    width = truth.shape[1] + 1  # so that the key of label -1, the end of the row before, is nobody's
    n = len(labels)
    keys = np.repeat(np.arange(n), np.diff(truth.indptr)) * width + truth.indices  # ascending
    wanted = np.arange(n)[:, None] * width + labels
    return np.asarray(np.append(keys, -2)[np.searchsorted(keys, wanted)] == wanted)


def _ranking(checked: _CheckedTruth, ranked: Array, hit: Array, q: Array, ks: Sequence[int]) -> dict[str, Statistic]:
    """Returns P@k, nDCG@k and their propensity-scored forms, as in pyxclib: ratios of means for the latter."""
    discount = 1 / np.log2(np.arange(ranked.shape[1]) + 2)
    ideal = np.append(0, np.cumsum(discount))  # DCG of 0, 1, 2 .. hits at the top
    gain, best = hit * q[ranked], _best_gains(checked.truth, q, ranked.shape[1])
    one = np.ones(checked.n)
    found: dict[str, dict[int, Statistic]] = {"p": {}, "ndcg": {}, "psp": {}, "psndcg": {}}
    for k in ks:
        norm = ideal[np.minimum(checked.per_row, k)]
        found["p"][k] = Ratio(hit[:, :k].sum(axis=1) / k, one)
        found["ndcg"][k] = Ratio(divide(hit[:, :k] @ discount[:k], norm), one)
        found["psp"][k] = Ratio(gain[:, :k].sum(axis=1), best[:, :k].sum(axis=1))
        found["psndcg"][k] = Ratio(divide(gain[:, :k] @ discount[:k], norm), divide(best[:, :k] @ discount[:k], norm))
    return {f"{name}@{k}": statistic for name, by_k in found.items() for k, statistic in by_k.items()}


def _best_gains(truth: csr_array, q: Array, k: int) -> Array:
    """Returns the k largest q among each row's true labels, descending (n, k), 0 where it has fewer."""
    rows, gains = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)), q[truth.indices]
    order = np.lexsort((-gains, rows))
    place = np.arange(truth.nnz) - np.repeat(truth.indptr[:-1], np.diff(truth.indptr))
    best = np.zeros((truth.shape[0], k))
    best[rows[place < k], place[place < k]] = gains[order][place < k]
    return best


def _sets(checked: _CheckedTruth, sets: csr_array) -> dict[str, Statistic]:
    """Returns Hamming loss and the three means of F1."""
    hits = row_sums(checked.known.multiply(sets))
    both = checked.per_row + row_sums(sets)
    one = np.ones(checked.n)
    return {
        "hamming": Ratio((both - 2 * hits) / checked.c, one),
        "micro_f1": Ratio(2 * hits, both),
        "macro_f1": _macro_f1(checked, sets),
        "example_f1": Ratio(divide(2 * hits, both), one),
    }


def _macro_f1(checked: _CheckedTruth, sets: csr_array) -> MeanLabelF1:
    """Returns the mean F1; labels that are neither true nor predicted in any row have F1 = 0/0 = 0 and take no time."""
    hits, both = csr_array(checked.known.multiply(sets)), csr_array(checked.known + sets)
    used = np.flatnonzero(np.bincount(both.indices, minlength=checked.c))
    return MeanLabelF1(csr_array(hits.T)[used], csr_array(both.T)[used], checked.c)


def row_sums(matrix: csr_array) -> Array:
    return np.asarray(matrix.sum(axis=1), np.float64).ravel()
