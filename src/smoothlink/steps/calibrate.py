"""scores -> probabilities: a map for each label, fitted on held-out rows and stored with the model.

One monotone map g of scores to log-odds is fitted to all held-out pairs of a row and a label. It mixes labels: at the
same low score a frequent label is true far more often than a rare one, and at a high score about as often. So the
log-odds of label l are g(s) + q(s) (r + t g(s)), q = (1 - sigmoid(g))^2, where r and t change with the logarithm of its
frequency: what differs between labels fades where they are likely. Labels are ranked by these. Those of classes are
a + b s + e g(s), and those of labels too where that is far better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.machines.arrays import log_sums, sigmoid

Array = NDArray[Any]

LINEAR_SCORES = 1e-4  # of the squared loss: up to this size bins are linear, and beyond it logarithmic
LARGEST_LOGIT = 40.0
HISTOGRAM_BINS = 1024
LEAST_PROBABILITY = 1e-7  # of the log-loss
FEW_SCORES = 256  # that NumPy maps faster than a kernel is loaded
SAMPLED_PAIRS = 200_000  # of a row and a label that it does not have: enough for seven numbers
CLASS_PAIRS = 2_000_000  # of held-out rows and classes that multiclass maps are fitted to
COMPARED_PAIRS = 500_000  # that the curve of one map is fitted to, by which losses and passes are compared
FEWEST_ROWS = 100  # that they are fitted to, however many classes there are
BLOCK_PAIRS = 1 << 14  # of rows and classes at a time: their terms stay in the cache
CURVE_TURNS = 2  # in which the curve of classes and the maps of each are fitted; a third changes nothing
LEAST_WIDTH = 0.02  # of a piece of this curve, on the axis of `stretch`
LEAST_LOGIT = -16.0  # of its values: LEAST_PROBABILITY
LEAST_STEP = 1e-4  # of a log-loss summed over pairs or rows: Newton steps that bring less are the last
LEAST_SLOPE = 0.05  # of log-odds in the score, so that no two scores of a label have the same probability
FADE = 2  # power of 1 - p by which the maps of labels become the shared one; 4 and 8 hold back the rarest too much
WHOLE_GAIN = 0.02  # of the log-loss: maps a + b s + e g, which change the ranking of likely labels, must gain more
RISE = 0.01  # of a label's log-odds in its score, where the shared map is level; times the shared map's rise, the least
SHARED_MAP = np.array([0, 0, 0, LEAST_SLOPE, LEAST_SLOPE, 1, 1])  # weights of `map_terms` that leave it as it is


class Calibration(NamedTuple):
    """With `labels`, a score s becomes log-odds a + b s + e g(s) + r q(s) + t q(s) g(s), q = (1 - sigmoid(g))^2, where
    g, q and q g are interpolated from the knots; their sigmoid is p, or in multiclass models their softmax. Without
    `labels` p is interpolated from the knots, or softmax(temperature s).

    The top label of a row is true more often than others of the same score: most rows have a label at least, and it
    is the likeliest. So its log-odds x become a + b x, where that is more: top-1 recalibration. (bibtex: top labels of
    mean probability 0.631 are true in 0.662 of the rows, and no map of single scores can correct that.)
    """

    knots: Array  # (m,) stretched scores, ascending; empty where the map is sigmoid, clip or softmax
    values: Array  # (m,) their probabilities; of classes those of g, up to a factor
    temperature: float = 1.0
    top1: tuple[float, float] = (0.0, 1.0)  # a, b of the top-1 recalibration (multilabel)
    labels: Array | None = None  # (5, c) a, b, e, r and t of each label

    def log_odds(self, S: Array, labels: Any, *, loss: str) -> Array:
        """Returns what some labels are ranked by, from their scores (b, m): their log-odds, or the scores themselves
        where labels have no maps of their own."""
        if self.labels is None:
            return S
        maps = self.labels[:, labels]
        if np.size(S) < FEW_SCORES and self.labels.shape[1] < FEW_SCORES:
            wide = stretch(np.asarray(S, np.float64), loss)
            found = maps[0] + maps[1] * S
            for weight, f in zip(maps[2:], self.functions, strict=True):
                found += weight * np.interp(wide, self.knots, f)
            return found.astype(np.float32)
        from smoothlink.machines.prediction_kernels import map_labels

        tiny = LINEAR_SCORES if loss == "squared" else 0.0
        return map_labels(S, self.knots, self.functions, tiny, np.ascontiguousarray(maps))

    def device_maps(self, *, loss: str) -> Any:
        """Returns `device_weights.LabelMaps`, or None where labels have none."""
        if self.labels is None:
            return None
        from smoothlink.machines.device_weights import LabelMaps

        tiny = LINEAR_SCORES if loss == "squared" else 0.0
        return LabelMaps(self.knots, self.functions, self.labels, tiny)

    @property
    def shared_log_odds(self) -> Array:
        """Returns g (m,) at the knots."""
        p = np.clip(self.values, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        return np.log(p / (1 - p))

    @property
    def functions(self) -> Array:
        """Returns g, q and q g (3, m) at the knots."""
        g = self.shared_log_odds
        q = (1 - sigmoid(g.copy())) ** FADE
        return np.stack([g, q, q * g])

    def interpolate(self, scores: Array, values: Array, loss: str) -> Array:
        """Returns what scores of any shape have in between values (m,) at the knots, as float32."""
        if np.size(scores) < FEW_SCORES and (self.labels is None or self.labels.shape[1] < FEW_SCORES):
            wide = stretch(np.asarray(scores, np.float64), loss)
            return np.interp(wide, self.knots, values).astype(np.float32)
        from smoothlink.machines.prediction_kernels import interpolate

        return interpolate(scores, self.knots, values, LINEAR_SCORES if loss == "squared" else 0.0)

    @property
    def recalibrates_top1(self) -> bool:
        """Returns whether the top label of a row has a map of its own."""
        return self.top1 != (0.0, 1.0)

    def recalibrate_top1(self, p: Array) -> Array:
        """Returns the probabilities of top labels, from p, those of any label of their scores."""
        a, b = self.top1
        q = np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY).astype(np.float64)
        return np.maximum(p, sigmoid(a + b * np.log(q / (1 - q)))).astype(np.float32)

    def probabilities(self, scores: Array, *, loss: str) -> Array:
        """Returns multilabel probabilities of what labels are ranked by, an array of any shape."""
        if self.labels is None and len(self.knots):
            return self.interpolate(scores, self.values, loss)
        if self.labels is None and loss == "squared":
            return np.clip(scores, 0, 1)
        return sigmoid(np.array(scores, np.float32))


def no_calibration() -> Calibration:
    """Returns the sigmoid, or the clip of the squared loss."""
    return Calibration(np.zeros(0), np.zeros(0))


def stretch(scores: Array, loss: str) -> Array:
    """Returns scores on an axis where equal bins make sense: logits as they are, squared-loss scores symmetric-log."""
    if loss == "squared":
        return np.sign(scores) * np.log1p(np.abs(scores) / LINEAR_SCORES)
    return np.clip(scores, -LARGEST_LOGIT, LARGEST_LOGIT)


def score_grid(loss: str) -> Array:
    """Returns scores (g,) in ascending order, dense where labels that may be best have theirs."""
    if loss == "squared":
        t = np.linspace(0, float(stretch(np.array(10.0), loss)), 256)[1:]
        upper = LINEAR_SCORES * np.expm1(t)
    else:
        upper = np.concatenate([np.arange(0, 12, 1 / 16)[1:], np.arange(12, LARGEST_LOGIT + 1)])
    return np.concatenate([-upper[::-1], [0.0], upper]).astype(np.float32)


class Histogram:
    """Weighted counts of (score, positive) pairs in fine bins, added block by block: all pairs never are in memory."""

    def __init__(self, loss: str) -> None:
        self.loss = loss
        reach = float(stretch(np.array(10.0), loss)) if loss == "squared" else LARGEST_LOGIT
        self.edges = np.linspace(-reach, reach, HISTOGRAM_BINS + 1)
        self.sums = np.zeros((3, HISTOGRAM_BINS))
        self.pairs, self.positives, self.places = self.sums  # views
        self.count = 0  # pairs of positive weight

    def add(self, scores: Array, Y: sp.csr_array, w: Array) -> None:
        """Adds a block: scores (b, c), labels (b, c), weights (b,)."""
        from smoothlink.machines.prediction_kernels import add_to_bins

        tiny, width = LINEAR_SCORES if self.loss == "squared" else 0.0, self.edges[1] - self.edges[0]
        w = np.asarray(w, np.float64)
        add_to_bins(np.ascontiguousarray(scores), Y.indptr, Y.indices, w, tiny, self.edges[0], width, self.sums)
        self.count += int(np.count_nonzero(w)) * scores.shape[1]

    def monotone(self) -> Calibration:
        """Returns isotonic regression of the bins (pool adjacent violators), interpolated between block centres."""
        full, block = self._pooled()
        if not len(full):
            return no_calibration()
        n, hits, place = (np.bincount(block, v[full]) for v in (self.pairs, self.positives, self.places))
        # One pseudo-pair of mean weight at the overall rate keeps every probability inside (0, 1).
        one = n.sum() / self.count
        rate = np.clip(hits.sum() / n.sum(), 1e-9, 1 - 1e-9)
        centres, values = place / n, np.maximum.accumulate((hits + one * rate) / (n + one))
        if len(centres) == 1:
            return Calibration(centres, values)
        # The outer blocks are wide, and flat up to their inner ends: where labels are separable there are no others,
        # and on a ramp from centre to centre a score of 0.05 would be more likely than not.
        bins = self.places[full] / self.pairs[full]
        ends = bins[block == 0][-1:], bins[block == block[-1]][:1]
        knots = np.concatenate([centres[:1], ends[0], centres[1:-1], ends[1], centres[-1:]])
        return Calibration(knots, np.repeat(values, [2, *[1] * (len(values) - 2), 2]))

    def brier(self) -> float:
        """Returns the sum over pairs of (y - p)^2 with p the isotonic fit: monotone changes of scores do not matter.

        Of the criteria tried for "auto", this one agrees best with P@k, Hamming loss and F1 on test rows.
        """
        full, block = self._pooled()
        n, hits = (np.bincount(block, v[full]) for v in (self.pairs, self.positives))
        return float(np.sum(hits * (1 - hits / n)))

    def _pooled(self) -> tuple[Array, Array]:
        """Returns the bins in use and the isotonic block that each belongs to."""
        from smoothlink.machines.prediction_kernels import isotonic_blocks

        full = np.flatnonzero(self.pairs > 0)
        return full, isotonic_blocks(self.positives[full], self.pairs[full])


class TopLabels:
    """The top label of each of n held-out rows, found block by block of labels: its score, and whether it is true."""

    def __init__(self, n: int) -> None:
        self.scores, self.hits = np.full(n, -np.inf, np.float32), np.zeros(n, bool)
        self.labels, self.added = np.zeros(n, np.int64), 0

    def add(self, scores: Array, Y: sp.csr_array) -> None:
        """Adds scores (n, m) and labels (n, m) of the next block."""
        if not scores.shape[1]:
            return
        best = scores.argmax(axis=1)
        found = scores[np.arange(len(best)), best]
        rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        hits = np.bincount(rows, Y.indices == best[rows], Y.shape[0]) > 0
        better = found > self.scores
        self.scores[better], self.hits[better] = found[better], hits[better]
        self.labels[better] = self.added + best[better]
        self.added += scores.shape[1]

    def recalibrate(self, calibration: Calibration, w: Array, *, loss: str) -> Calibration:
        """Returns the calibration with top-1 recalibration: a logistic regression on the log-odds of top labels.

        A prior worth a row or so keeps (a, b) at (0, 1) where rows are few.
        """
        p = np.clip(
            calibration.probabilities(self.scores[:, None], loss=loss)[:, 0], LEAST_PROBABILITY, 1 - LEAST_PROBABILITY
        )
        p = p.astype(np.float64)
        A = np.column_stack([np.ones(len(p)), np.log(p / (1 - p))])
        theta = np.array([0.0, 1.0])
        for _ in range(30):
            q = 1 / (1 + np.exp(-(A @ theta)))
            gradient = A.T @ (w * (q - self.hits)) + theta - (0.0, 1.0)
            step = np.linalg.solve((A.T * (w * q * (1 - q))) @ A + np.eye(2), gradient)
            theta -= step
            if np.abs(step).max() < 1e-8:
                break
        a, b = theta.tolist()
        fine = bool(np.isfinite(theta).all()) and b > 0
        return calibration._replace(top1=(a, b)) if fine else calibration


class PairSample:
    """Scores of held-out pairs of a row and a label, added block by block: all true ones, and a sample of others."""

    def __init__(
        self,
        pairs: int,
        frequencies: Array,
        fitted: Array | None = None,
        folds: Array | None = None,
        seed: int = 0,
    ) -> None:
        """Prepares for so many pairs of labels whose frequencies are (c,).

        fitted (f, c): their frequencies in the rows to which each of f models was fitted that score held-out rows.
        folds (n,): which of them scores each row. A label that few rows of a fit have is more frequent in the others,
        as it is in new rows, but not by frequencies that count the held-out rows too.
        """
        self.share, self.rng = min(1.0, SAMPLED_PAIRS / max(1, pairs)), np.random.default_rng(seed)
        fitted = frequencies[None] if fitted is None else fitted
        self.places, self.folds = label_places(frequencies), folds
        self.trained, self.fitted_places = fitted > 0, np.stack([label_places(each) for each in fitted])
        self.parts: list[tuple[Array, ...]] = []

    def add(self, labels: slice, scores: Array, Y: sp.csr_array, w: Array) -> None:
        """Adds scores (n, m) of some labels and their truth (n, m); rows have weights (n,)."""
        n, m = scores.shape
        true = Y.toarray() > 0
        hits = np.flatnonzero(true)
        count = round(self.share * n * m)
        others = np.arange(n * m) if count >= n * m else self.rng.integers(0, max(1, n * m), count)
        others = others[~true.ravel()[others]]
        each = max(1, n * m - len(hits)) / max(1, len(others))
        at = np.concatenate([hits, others])
        at_weight = np.repeat([1.0, each], [len(hits), len(others)]) * w[at // max(1, m)]
        columns, fold = labels.start + at % max(1, m), 0 if self.folds is None else self.folds[at // max(1, m)]
        kept = self.trained[fold, columns] & (at_weight > 0)
        part = scores.ravel()[at], self.fitted_places[fold, columns], true.ravel()[at], at_weight
        self.parts.append(tuple(values[kept] for values in part))

    def fit(self, shared: Calibration, *, loss: str) -> Calibration:
        """Returns the calibration in which each label has its own map, from the one that all share: the logistic
        regression of the pairs. Where logits need none, there is none."""
        s, places, true, w = (np.concatenate(values) for values in zip(*self.parts, strict=True))
        if not (len(shared.knots) and true.any()):
            return shared
        g, q, qg = (shared.interpolate(s, f, loss).astype(np.float64) for f in shared.functions)

        def loss_of(terms: Array, others: Any) -> Callable[[Array], tuple[float, Array, Array]]:
            def descent(theta: Array) -> tuple[float, Array, Array]:
                z = terms @ theta + others
                p = sigmoid(z.copy())
                value = float(w @ (np.logaddexp(0, z) - true * z))
                return value, terms.T @ (w * (p - true)), (terms.T * (w * p * (1 - p))) @ terms

            return descent

        fading, whole = loss_of(fading_terms(q, qg, places), g + RISE * s), loss_of(map_terms(s, g, places), 0.0)
        theta = add_up(minimise(fading, FADING_PRIOR), (g + RISE * s, q, qg), places, true, w)
        theta, other = rising(theta, shared.functions), minimise(whole, MAP_PRIOR)
        before, least = fading(0 * theta)[0], min(fading(theta)[0], whole(other)[0])
        fitted = len(shared.knots) + len(theta)
        if loss == "logistic" and float(w @ (np.logaddexp(0, s) - true * s)) < least + fitted:
            return no_calibration()  # by Akaike's criterion: the sigmoid is as good in new rows
        r, t = fading_maps(theta, self.places)
        maps = np.stack([0 * r, 0 * r + RISE, 0 * r + 1, r, t])
        if fading(theta)[0] - least > WHOLE_GAIN * before:
            maps = np.vstack([label_maps(other, self.places), 0 * maps[3:]])
        return shared._replace(labels=maps)


def fading_terms(q: Array, qg: Array, places: Array) -> Array:
    """Returns the terms (..., 5) whose weighted sum is r q + t q g: r is a parabola in the label's place, and t between
    its values for the rarest and the most frequent labels."""
    u = np.broadcast_to(places, q.shape)
    return np.stack([q, q * u, q * u * u, qg * (1 - u), qg * u], axis=-1)


def fading_maps(theta: Array, places: Array) -> tuple[Array, Array]:
    """Returns r and t (c,) of labels at these places."""
    zero, one = np.zeros_like(places), np.ones_like(places)
    return fading_terms(one, zero, places) @ theta, fading_terms(zero, one, places) @ theta


def add_up(theta: Array, values: tuple[Array, Array, Array], places: Array, true: Array, w: Array) -> Array:
    """Returns theta with r shifted by d (1 - u)^2, so that the probabilities of rare labels add up to their true pairs:
    the sum of w (1 - u)^2 (p - y) is 0. values: g, q and q g of each pair.

    The logistic regression sees to it only as far as q does, which is small where rare labels are likely: without the
    shift the rarer half of debtags' labels summed to .74 to .85 of the truth on held-out training rows (decision 50).
    """
    g, q, qg = values
    rare, shift = (1 - places) ** 2, np.array([1.0, -2.0, 1.0, 0.0, 0.0])
    z, d = fading_terms(q, qg, places) @ theta + g, 0.0
    for _ in range(30):
        p = sigmoid(z + d * q * rare)
        off, slope = float((w * rare) @ (p - true)), float((w * rare**2) @ (p * (1 - p) * q))
        step = float(np.clip(off / max(slope, 1e-30), -1, 1))
        d -= step
        if abs(step) < 1e-6:
            return theta + d * shift
    return theta


def rising(theta: Array, functions: Array) -> Array:
    """Returns theta, or as much of it that the log-odds of every label rise with the score wherever the shared ones do.

    The rise of a label over that of g, from knot to knot, is 1 plus a part that is proportional to theta.
    """
    g, q, qg = (np.diff(f) for f in functions)
    r, t = fading_maps(theta, np.linspace(0, 1, 65))
    share = (r[:, None] * q + t[:, None] * qg) / np.where(g > 0, g, np.inf)
    return np.asarray(theta * min(1.0, (1 - RISE) / max(1e-30, -share.min(initial=0))))


def label_places(frequencies: Array) -> Array:
    """Returns where labels (c,) are between the rarest (0) and the most frequent (1), by the logarithm of their
    frequencies."""
    trained = frequencies > 0
    if not trained.any():
        return np.zeros(len(frequencies))
    x = np.log(np.where(trained, frequencies, frequencies[trained].min()))
    return np.asarray((x - x.min()) / (np.ptp(x) or 1.0))


def map_terms(s: Array, g: Array, places: Array) -> Array:
    """Returns the terms (..., 7) whose weighted sum is the log-odds a + b s + e g, of scores s (...) and the shared
    log-odds g: a is a parabola in the label's place, b and e are between their values for the rarest and the most
    frequent labels."""
    u, one = np.broadcast_to(places, s.shape), np.ones(s.shape)
    return np.stack([one, u, u * u, s * (1 - u), s * u, g * (1 - u), g * u], axis=-1, dtype=np.float64)


def label_maps(theta: Array, places: Array) -> Array:
    """Returns a, b and e (3, c) of labels at these places."""
    zero, one = np.zeros_like(places), np.ones_like(places)
    a = map_terms(zero, zero, places) @ theta
    return np.stack([a, map_terms(one, zero, places) @ theta - a, map_terms(zero, one, places) @ theta - a])


class Prior(NamedTuple):
    """What weights are taken to be where pairs are few, and the least that each may be."""

    centre: Array  # (k,)
    lower: Array
    precision: Array


MAP_PRIOR = Prior(  # worth a pair or so, at the shared map; scores of the squared loss are small
    SHARED_MAP,
    np.array([-np.inf, -np.inf, -np.inf, LEAST_SLOPE, LEAST_SLOPE, 0, 0]),  # no log-odds fall with the score
    np.array([0.1, 0.1, 0.1, 0.01, 0.01, 0.1, 0.1]),
)


FADING_PRIOR = Prior(np.zeros(5), np.full(5, -np.inf), np.full(5, 0.1))


def minimise(descent: Callable[[Array], tuple[float, Array, Array]], prior: Prior) -> Array:
    """Returns the weights (k,) at which a convex loss is least, by Newton steps; `descent` returns its value, gradient
    and Hessian."""

    def penalised(theta: Array) -> tuple[float, Array, Array]:
        value, gradient, hessian = descent(theta)
        off, precision = theta - prior.centre, prior.precision
        return value + 0.5 * float(precision @ off**2), gradient + precision * off, hessian + np.diag(precision)

    theta = prior.centre
    value, gradient, hessian = penalised(theta)
    for _ in range(30):
        free = (theta > prior.lower) | (gradient < 0)
        step = np.zeros(len(theta))
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        for _ in range(20):
            moved = np.maximum(theta - step, prior.lower)
            found = penalised(moved)
            if found[0] <= value:
                break
            step /= 2
        else:
            break
        gain, theta = value - found[0], moved
        value, gradient, hessian = found
        if gain < LEAST_STEP:
            break
    return theta


def fit_multiclass(
    scores: Array, labels: Array, w: Array, frequencies: Array | None = None, *, loss: str
) -> tuple[float, Calibration]:
    """Returns the log-loss of softmax(a + b s + e g(s)) on held-out rows of one label each, and the calibration that
    minimises it. Without frequencies all classes have one map.

    g rises in straight pieces, and is fitted in turn with a, b and e. The isotonic map of pairs would not do: it knows
    nothing of the other classes of a row, and its softmax says too much of likely classes and too little of others.
    One row more, whose label may be any, keeps probabilities from 0 and 1 where all held-out rows are predicted: of 106
    rows of wine they were, and 1.4 % of others were not, at a mean probability of 1.000.
    """
    c = scores.shape[1]
    trained = np.ones(c, bool) if frequencies is None else frequencies > 0
    kept = np.flatnonzero(trained[labels] & (w > 0))[: max(FEWEST_ROWS, CLASS_PAIRS // c)]
    if not len(kept):
        return float("inf"), no_calibration()
    places, untrained = label_places(np.ones(c) if frequencies is None else frequencies), np.where(trained, 0, -np.inf)
    scores, labels, w = scores[kept], labels[kept], w[kept]
    fitted = min(len(kept), max(FEWEST_ROWS, (COMPARED_PAIRS if frequencies is None else CLASS_PAIRS) // c))
    stretched = stretch(scores[:fitted].astype(np.float64), loss)
    knots = curve_knots(stretched[:, trained])
    widths = np.diff(knots)
    anything = 1 / (float(w[:fitted].sum()) + 1)  # the share of that row
    any_class = trained / np.count_nonzero(trained)  # (c,) its label

    def softmax_fit(terms: Callable[[slice], Array], others: Callable[[slice], Any], prior: Prior) -> Array:
        """Returns the weights (k,) of terms (b, c, k) of some rows; `others` are log-odds (b, c) to add to them."""

        def descent(theta: Array) -> tuple[float, Array, Array]:
            value, gradient, hessian = 0.0, np.zeros(len(theta)), np.zeros((len(theta), len(theta)))
            for rows in row_blocks(fitted, c):
                A = terms(rows)
                Z, y, weights = A @ theta + others(rows), labels[rows], w[rows]
                Z -= log_sums(Z)
                P, at = np.exp(Z), (np.arange(len(y)), y)
                M, flat = np.einsum("nc,nck->nk", P, A), A.reshape(-1, len(theta))
                value -= float(weights @ ((1 - anything) * Z[at] + anything * Z[:, trained].mean(axis=1)))
                gradient += weights @ (M - (1 - anything) * A[at] - anything * np.einsum("c,nck->nk", any_class, A))
                hessian += (flat.T * (P * weights[:, None]).ravel()) @ flat - (M.T * weights) @ M
            return value, gradient, hessian

        return minimise(descent, prior)

    def fit_slopes(slopes: Array, maps: Array) -> Array:
        a, b, e = maps
        return softmax_fit(
            lambda rows: np.clip(stretched[rows, :, None] - knots[:-1], 0, widths) * e[:, None],
            lambda rows: a + b * scores[rows] + untrained,
            Prior(slopes, np.zeros(len(widths)), widths**2),
        )

    def fit_maps(g: Array) -> Array:
        theta = softmax_fit(
            lambda rows: map_terms(scores[rows], np.interp(stretched[rows], knots, g), places),
            lambda rows: untrained,
            MAP_PRIOR,
        )
        return label_maps(theta, places)

    maps, slopes = label_maps(SHARED_MAP, places), np.ones(len(widths))
    for _ in range(1 if frequencies is None else CURVE_TURNS):
        slopes = fit_slopes(slopes, maps)
        g = np.append(0, np.cumsum(slopes * widths))
        maps = maps if frequencies is None else fit_maps(g)
    # What is stored are the probabilities of g: the same for all classes may be added to it, and what divides it
    # multiplies e.
    scale = max(1.0, g[-1] / -LEAST_LOGIT)
    maps = np.stack([maps[0] + maps[2] * g[-1], maps[1], maps[2] * scale, *np.zeros((2, c))])
    calibration = Calibration(knots, sigmoid((g - g[-1]) / scale), labels=maps)
    Z = calibration.log_odds(scores, slice(None), loss=loss) + untrained
    return float(w @ (log_sums(Z)[:, 0] - Z[np.arange(len(labels)), labels]) / w.sum()), calibration


def curve_knots(stretched: Array) -> Array:
    """Returns where the curve of classes may bend: at quantiles of all held-out scores (n, c), and of the best three of
    each row, by which most is decided."""
    best = np.partition(stretched, -min(3, stretched.shape[1]), axis=1)[:, -3:]
    places = np.linspace(0.01, 0.99, 6), np.linspace(0.02, 0.995, 10)
    found = np.unique(np.concatenate([np.quantile(S, at) for S, at in zip((stretched, best), places, strict=True)]))
    found = found[np.append(True, np.diff(found) > LEAST_WIDTH)]
    return found if len(found) > 1 else found[0] + np.array([0, LEAST_WIDTH])


def row_blocks(n: int, c: int) -> Iterator[slice]:
    """Yields rows whose pairs with all c labels are a block."""
    step = max(1, BLOCK_PAIRS // c)
    yield from (slice(start, min(n, start + step)) for start in range(0, n, step))


def row_logloss(P: Array, Y: sp.csr_array, *, multiclass: bool) -> Array:
    """Returns the log-loss (b,) of each row: summed over labels, or -log p of the one label (tiny where unknown)."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    p = np.clip(P[rows, Y.indices], LEAST_PROBABILITY, 1 - LEAST_PROBABILITY).astype(np.float64)
    if multiclass:
        return np.where(np.diff(Y.indptr) > 0, -np.bincount(rows, np.log(p), Y.shape[0]), -np.log(LEAST_PROBABILITY))
    from smoothlink.machines.prediction_kernels import add_absent_losses

    losses = np.bincount(rows, np.log1p(-p) - np.log(p), Y.shape[0])
    add_absent_losses(np.ascontiguousarray(P), LEAST_PROBABILITY, losses)
    return losses
