"""Sets with a guarantee (split conformal prediction, conformal risk control), and rows that need no person (Learn then
Test), from labelled rows that were used for nothing else. docs/guarantees.md states the theorems and their limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import bdtr

from smoothlink.errors import plural
from smoothlink.model import Model
from smoothlink.parameters import LEVEL, check_value
from smoothlink.predict import checked_sets
from smoothlink.steps.infer import RunningTopK, TopK

Array = NDArray[Any]

RELEASED_SHARES = 20  # of the rows that a release may consist of: 5 %, 10 %, ..., 100 %
DELTA = 0.05  # probability that a release may miss its precision
MISSING = (
    "This model has no conformal rows, which a guarantee needs: train it with conformal=0.1 (--conformal 0.1), or pass "
    "labelled rows that it was not trained on to recalibrate_sets (`smoothlink recalibrate`)."
)


class Observed(NamedTuple):
    """What a model says of rows whose true labels are known."""

    true: Array  # (nnz of Y,) the probability of each true label; 0 for labels that no set can hold
    confidence: Array  # (n,) the mean probability of the labels that it predicts; 0 where it predicts none
    precision: Array  # (n,) the share of these that is true; 0 where there are none
    sizes: Array  # (cuts, n) how many labels have at least the probability of each cut


def observe(model: Model, rows: Any, Y: sp.csr_array, cuts: tuple[float, ...] = ()) -> Observed:
    """Returns what a model says of embedded rows with true labels Y (n, >= c), in blocks of rows and of labels.

    Labels without training rows, and those unknown to the model, are in no set: their probability counts as 0.
    """
    n, c = len(rows), model.n_labels
    true, sizes = np.zeros(Y.nnz, np.float32), np.zeros((len(cuts), n), np.int64)
    count, total, hits = np.zeros(n, np.int64), np.zeros(n), np.zeros(n)
    levels = [model.for_trained_labels(np.full(c, cut)) for cut in cuts]
    for part in model.feature_blocks(n):
        inputs, b = model.featurize(rows[part]), part.stop - part.start
        normalisers = model.all_normalisers(inputs) if model.multiclass else None
        entries = slice(Y.indptr[part.start], Y.indptr[part.stop])
        row, label = np.repeat(np.arange(b), np.diff(Y.indptr[part.start : part.stop + 1])), Y.indices[entries]
        p, top1 = true[entries], RunningTopK(b, 1)
        for labels in model.label_blocks(b):
            S = model.score(inputs, labels)
            P = model.probabilities(S, normalisers)
            inside = (label >= labels.start) & (label < labels.stop)
            p[inside] = P[row[inside], label[inside] - labels.start]
            top1.add(S, P)
            for level, size in zip(levels, sizes[:, part], strict=True):
                size += np.diff(checked_sets(P, level[labels]).indptr)
            if not model.multiclass:
                sets = checked_sets(P, model.own_thresholds[labels])
                members = np.repeat(np.arange(b), np.diff(sets.indptr))
                count[part] += np.diff(sets.indptr)
                total[part] += np.bincount(members, P[members, sets.indices], b)
        best = TopK(*(found[:, 0] for found in top1.best()))
        if model.multiclass:
            count[part], total[part] = 1, best.values
            hits[part] = np.bincount(row, label == best.indices[row], b)
            continue
        if model.recalibrates_top1:
            q = model.recalibrate_top1(best.values)
            first = label == best.indices[row]
            p[first] = q[row[first]]
            for level, size in zip(levels, sizes[:, part], strict=True):
                size += (best.values < level[best.indices]) & (q >= level[best.indices])
            least = model.own_thresholds[best.indices]
            before, after = best.values >= least, q >= least
            count[part] += after & ~before
            total[part] += np.where(after, q, 0) - np.where(before, best.values, 0)
        known = label < c
        above = p[known] >= model.own_thresholds[label[known]]
        hits[part] = np.bincount(row[known], above, b)
    true[(Y.indices >= c) | model.untrained[np.minimum(Y.indices, c - 1)]] = 0
    share = np.maximum(count, 1)
    return Observed(true, (total / share).astype(np.float32), (hits / share).astype(np.float32), sizes)


@dataclass(frozen=True)
class Conformal:
    """Labelled rows that were used for nothing else: all that a guarantee needs to know of them."""

    indptr: Array  # (n + 1,) int64, where the true labels of each row begin
    labels: Array  # (m,) int32; those unknown to the model have the number c
    probabilities: Array  # (m,) float32, of these labels; 0: no set can hold them
    confidence: Array  # (n,) float32, of the labels that the model predicts for each row
    precision: Array  # (n,) float32, the share of these that is true
    void: str | None = None  # why nothing is guaranteed any more

    @staticmethod
    def of(model: Model, rows: Any, Y: sp.csr_array) -> Conformal:
        """Returns what a model says of embedded rows that it does not know, with their true labels Y (n, >= c)."""
        found = observe(model, rows, Y)
        labels = np.minimum(Y.indices, model.n_labels).astype(np.int32)
        return Conformal(Y.indptr.astype(np.int64), labels, found.true, found.confidence, found.precision)

    @staticmethod
    def voided(reason: str) -> Conformal:
        """Returns no rows, and why the guarantee is void: nothing is left of the rows that there were."""
        empty = np.zeros(0, np.float32)
        return Conformal(np.zeros(1, np.int64), np.zeros(0, np.int32), empty, empty, empty, reason)

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def rows(self) -> Array:
        """Returns the row (m,) of each true label."""
        return np.repeat(np.arange(self.n), np.diff(self.indptr))

    def with_labels(self, member: Array) -> Conformal:
        """Returns the rows that have labels of a group (c,), with these labels alone."""
        kept = np.append(member, False)[self.labels]
        count = np.bincount(self.rows[kept], minlength=self.n)
        has = count > 0
        return Conformal(
            np.append(0, np.cumsum(count[has])),
            self.labels[kept],
            self.probabilities[kept],
            self.confidence[has],
            self.precision[has],
        )


def checked_conformal(conformal: Conformal | None) -> Conformal:
    """Returns the conformal rows of a model; raises an error where there are none, or the guarantee is void."""
    if conformal is None:
        raise ValueError(MISSING)
    if conformal.void is not None:
        raise ValueError(
            f"The guarantee of this model is void: {conformal.void} Pass labelled rows that it was not trained on to "
            "recalibrate_sets (`smoothlink recalibrate`)."
        )
    return conformal


def coverage_threshold(conformal: Conformal, coverage: float, who: str = "the model") -> float:
    """Returns the largest q for which {l : p_l >= q} holds all true labels of a new row with probability `coverage`.

    Split conformal prediction (Vovk et al. 2005; Papadopoulos et al. 2002): the score of a row is the least probability
    of its true labels, and q the floor((1 - coverage)(n + 1))-th smallest of n scores. A row without labels is covered
    by every set.
    """
    rank = affordable(conformal, "coverage", coverage, who)
    scores = np.full(conformal.n, np.inf)
    np.minimum.at(scores, conformal.rows, conformal.probabilities)
    return possible(conformal, float(np.partition(scores, rank - 1)[rank - 1]), "coverage", coverage, scores == 0)


def recall_threshold(conformal: Conformal, recall: float, who: str = "the model") -> float:
    """Returns the largest q for which {l : p_l >= q} holds, on average over new rows, this share of a row's labels.

    Conformal risk control (Angelopoulos et al. 2022): the largest q with (n R(q) + 1) / (n + 1) <= 1 - recall, where
    R(q) is the mean share of labels below q. A row without labels misses none.
    """
    affordable(conformal, "recall", recall, who)
    weight = 1 / np.diff(conformal.indptr)[conformal.rows]  # of one label in the recall of its row
    order = np.argsort(conformal.probabilities, kind="stable")
    p, missed = conformal.probabilities[order].astype(np.float64), np.append(0, np.cumsum(weight[order]))
    cuts = np.append(p, np.inf)
    most = float((1 - exact(recall)) * (conformal.n + 1) - 1) * (1 + 1e-12)  # sums of weights are rounded
    kept = missed[np.searchsorted(p, cuts)] <= most  # missed are the labels below a cut, not those equal to it
    never = np.bincount(conformal.rows, weight * (conformal.probabilities == 0), conformal.n)
    return possible(conformal, float(cuts[kept].max()), "recall", recall, never)


def set_thresholds(
    conformal: Conformal, c: int, coverage: float | None = None, recall: float | None = None, groups: Any = None
) -> Array:
    """Returns the threshold (c,) of each label for a coverage or a recall: one for all, or for each group of labels
    (c,), so that the promise holds for each group's labels among the rows that have some."""
    if (coverage is None) == (recall is None):
        given = "both" if recall is not None else "neither"
        raise ValueError(
            f"A set has one guarantee, and {given} of coverage and recall came: pass one, as coverage=0.9."
        )

    def threshold(rows: Conformal, who: str) -> float:
        if coverage is not None:
            return coverage_threshold(rows, coverage, who)
        return recall_threshold(rows, recall or 0.0, who)

    if groups is None:
        return np.full(c, threshold(conformal, "the model"))
    values = np.asarray(groups)
    if values.shape != (c,):
        raise ValueError(f"label_groups has the shape {values.shape}; pass one value for each of the {c} labels.")
    names, number = np.unique(values, return_inverse=True)
    each = [threshold(conformal.with_labels(number == g), f"label group {name}") for g, name in enumerate(names)]
    return np.array(each)[number]


def exact(level: float) -> Fraction:
    """Returns the number that was typed: 0.9 is nine tenths, so that no count is off by one."""
    return Fraction(repr(float(level)))


def affordable(conformal: Conformal, name: str, level: float, who: str) -> int:
    """Returns how many of n + 1 rows may miss a promise, at least one; raises an error where it is none."""
    check_value(name, level, LEVEL)
    allowed = math.floor((1 - exact(level)) * (conformal.n + 1))
    if allowed < 1:
        needed = math.ceil(1 / (1 - exact(level))) - 1
        most = f", or ask for at most {math.floor(1000 * conformal.n / (conformal.n + 1)) / 1000:g}" * (conformal.n > 0)
        raise ValueError(
            f"{name} is {level:g}, which needs {needed:,} conformal rows, and {who} has {conformal.n:,}: pass more to "
            f"recalibrate_sets, train with a larger `conformal`{most}."
        )
    return allowed


def possible(conformal: Conformal, q: float, name: str, level: float, never: Array) -> float:
    """Returns the threshold q; raises an error where it is 0, because true labels are too often such as no set holds.

    never (n,): the share of each row that is missed whatever the threshold.
    """
    if q > 0:
        return q
    raise ValueError(
        f"{name} is {level:g}, which no set keeps: {100 * np.mean(never):.2g} % is missed by every set on "
        f"{plural(conformal.n, 'conformal row')}, because labels without training rows are in none. Ask for less."
    )


class Release(NamedTuple):
    """Which rows need no person: those of a confidence above the threshold."""

    threshold: float  # infinite: none
    precision: float  # that their labels have on average
    delta: float  # with at least the probability 1 - delta over the conformal rows
    share: float  # of the conformal rows


def release_threshold(conformal: Conformal, precision: float, delta: float = DELTA) -> Release:
    """Returns the least confidence above which predicted labels have this precision on average, with probability
    1 - delta: Learn then Test (Angelopoulos et al. 2021).

    Candidates are the m-th largest confidences for m = 5 %, 10 %, ... of the rows. Given the m-th largest confidence t,
    rows above t are independent draws of those with confidence above t, so the Hoeffding-Bentkus p-value of their
    losses 1 - precision is valid whatever t is; Bonferroni's correction allows to take the largest release whose
    p-value is at most delta / 20. Rows without predicted labels, of confidence 0, are always for a person.
    """
    for name, level in (("precision", precision), ("delta", delta)):
        check_value(name, level, LEVEL)
    alpha, each = 1 - precision, delta / RELEASED_SHARES
    needed = math.ceil(math.log(each) / math.log1p(-alpha))  # without a single error
    if conformal.n < needed:
        raise ValueError(
            f"precision is {precision:g} with delta {delta:g}, which needs {needed:,} conformal rows, and the model "
            f"has {conformal.n:,}: pass more to recalibrate_sets, train with a larger `conformal`, or ask for less."
        )
    ranked = np.append(-np.sort(-conformal.confidence), 0.0)
    for part in range(RELEASED_SHARES, 0, -1):
        t = float(ranked[-(-conformal.n * part // RELEASED_SHARES)])
        released = conformal.confidence > t
        m = int(released.sum())
        if m and p_value(float(np.mean(1 - conformal.precision[released], dtype=np.float64)), m, alpha) <= each:
            return Release(t, precision, delta, m / conformal.n)
    return Release(math.inf, precision, delta, 0.0)


def p_value(risk: float, n: int, alpha: float) -> float:
    """Returns the Hoeffding-Bentkus p-value of the hypothesis that n losses in [0, 1] of mean `risk` have an
    expectation above alpha (Bates et al. 2021)."""
    if risk >= alpha:
        return 1.0
    h = (risk * math.log(risk / alpha) if risk else 0.0) + (1 - risk) * math.log((1 - risk) / (1 - alpha))
    return min(1.0, math.exp(-n * h), math.e * float(bdtr(math.ceil(n * risk - 1e-9), n, alpha)))


class Review(NamedTuple):
    """Which rows may be released without a person, and the order in which a person sees the others."""

    released: Array  # (n,) bool
    queue: Array  # (rows not released,) their numbers, the least certain first
    confidence: Array  # (n,) the mean probability of the labels that are predicted; 0 where there are none
    bound: Release  # what is promised of the released rows

    @staticmethod
    def of(confidence: Array, bound: Release) -> Review:
        """Returns the review of rows (n,) by the confidence of their predicted labels."""
        released = confidence > bound.threshold
        waiting = np.flatnonzero(~released)
        return Review(released, waiting[np.argsort(confidence[waiting], kind="stable")], confidence, bound)
