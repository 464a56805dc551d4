"""How good predictions for new rows are likely to be, without their labels, and an alarm when rows change.

The alarm is a test that stays valid however often it is looked at. The rank of a new row among the held-out rows of the
fit and all rows since, ties broken at random, is a p-value; as long as rows are exchangeable, p-values are independent
and uniform. A bet that multiplies its capital by f(p), where f has the mean 1, then wins nothing on average, and the
probability that its capital ever reaches 1 / a is at most a (Ville's inequality). (V. Vovk, I. Nouretdinov, A.
Gammerman, "Testing exchangeability on-line", 2003; V. Vovk et al., "Retrain or not retrain", 2021.)
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.atomic import replace_file
from smoothlink.data.matching import inside, label_names
from smoothlink.data.overwrite import WATCH_KEY
from smoothlink.errors import DataError
from smoothlink.machines.seeded_numbers import uniforms
from smoothlink.metrics.names import KS
from smoothlink.model import EmbeddedRows, Model
from smoothlink.parameters import Interval, Values, check_value
from smoothlink.steps.infer import RunningTopK
from smoothlink.steps.reference import BINNED, BINS, Reference, correct_by_size, count, no_correction
from smoothlink.types import FilePath, FittedModel, Matrix, Texts

Array = NDArray[Any]

FALSE_ALARMS = 0.01  # over a whole watch, however long
SLOPES = np.array([0.0, 0.5, -0.5, 1.0, -1.0, 1.9, -1.9, 0.0, 0.0])  # of each bet: on high or low ranks,
CURVES = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.8, -0.9])  # on both ends or on the middle, or on nothing
JUMPS = np.array([0.0, 1e-4, 1e-2])  # share of the capital that changes its bet at each row: one part of it for each
SHIFTED_LABELS = 5  # that a status names
RATE = Values(number=Interval(0, 1, with_low=False, with_high=False))
STATE_VERSION = 1


class RowSums(NamedTuple):
    """Sums over rows of what calibrated probabilities say that is to be expected."""

    rows: int
    hits: Array  # (len(KS),) true labels among the k best
    found: float  # true labels in the sets of `predict`
    predicted: float  # labels in these sets
    true: float  # true labels
    labels: Array  # (c,) true labels by label

    def __add__(self, other: RowSums) -> RowSums:  # type: ignore[override]
        pairs: list[tuple[Any, Any]] = list(zip(self, other, strict=True))
        return RowSums(*(mine + theirs for mine, theirs in pairs))

    @property
    def f1(self) -> float:
        """Returns the micro-F1 of the sets: the ratio of the expected numbers."""
        return float(2 * self.found / max(self.predicted + self.true, 1e-300))


class ScoredRows(NamedTuple):
    """What a model computes of rows."""

    sums: RowSums
    top: Array  # (n,) probability of the top label
    labels: Array  # (n,) the top label
    lengths: Array | None  # (n,) of h; None where the model has no embedding


class Expected(NamedTuple):
    """The metrics that are to be expected of predictions, by the model's own probabilities."""

    rows: int
    precision: dict[int, float]  # P@k by k
    f1: float  # micro-F1 of the sets of `predict`
    labels: Array  # (c,) share of the rows that have each label


def score_rows(model: Model, rows: Any, sizes: Array) -> ScoredRows:
    """Returns what is to be expected of embedded rows that have so many features (n,), a block of labels at a time."""
    n, c, thresholds = len(rows), model.n_labels, model.own_thresholds
    by_size = no_correction() if model.reference is None else model.reference.by_size
    sums = RowSums(0, np.zeros(len(KS)), 0.0, 0.0, 0.0, np.zeros(c))
    tops, ids = np.zeros(n, np.float32), np.zeros(n, np.int64)
    for part in model.feature_blocks(n):
        inputs = model.featurize(rows[part])
        b = len(inputs.without_features)
        ranking, labels_sum, found, predicted = RunningTopK(b, min(max(KS), c)), np.zeros(c), 0.0, 0
        normalisers = model.all_normalisers(inputs) if model.multiclass else None
        for labels in model.label_blocks(b):
            S = model.score(inputs, labels)
            P = model.probabilities(S, normalisers)
            ranking.add(S, P)
            labels_sum[labels] = P.sum(axis=0, dtype=np.float64)
            if not model.multiclass:
                above = thresholds[labels] <= P
                found, predicted = found + float(P[above].sum(dtype=np.float64)), predicted + int(above.sum())
        best = ranking.best()
        first, p = best.indices[:, 0], best.values[:, 0]
        top = model.recalibrate_top1(p) if model.recalibrates_top1 else p
        likely = correct_by_size(by_size, top, sizes[part])  # of the top label, given also the size of the row
        if model.multiclass:
            found, predicted = float(likely.sum()), b
        else:
            was, now = p >= thresholds[first], top >= thresholds[first]
            found += float(likely[now].sum() - p[was].sum(dtype=np.float64))
            predicted += int(now.sum()) - int(was.sum())
        gained, total = likely - p, labels_sum.sum()
        np.add.at(labels_sum, first, np.asarray(top, np.float64) - p)
        values = best.values.astype(np.float64)
        hits = np.array([values[:, :k].sum() + gained.sum() for k in KS])
        true = float(b if model.multiclass else total + gained.sum())
        sums += RowSums(b, hits, found, float(predicted), true, labels_sum)
        tops[part], ids[part] = top, first
    H = rows.H if isinstance(rows, EmbeddedRows) else rows
    embedded = isinstance(H, np.ndarray) and model.W is not None
    lengths = np.sqrt(np.einsum("ij,ij->i", H, H, dtype=np.float64)) if embedded else None
    return ScoredRows(sums, tops, ids, lengths)


class NewRows(NamedTuple):
    """Rows as a model takes them."""

    X: Any  # (n, d)
    sizes: Array  # (n,) features of each
    unknown: Array | None  # (n, 2) unknown words and words of each text; None where they are not texts

    @classmethod
    def of(cls, model: FittedModel, rows: Any) -> NewRows:
        """Returns the texts, or the rows X, for a model."""
        classifier, unknown, X = inside(model), None, rows
        if classifier is not model:
            texts = list(model._texts(rows))
            features = model.features_
            X = features.transform(texts)
            unknown = None if features.unknown_ is None else features.unknown_words(texts)
        if (X.shape[0] if hasattr(X, "shape") else len(X)) == 0:
            raise DataError("There are no rows to look at.\nPass one text or one row of features at least.")
        X = classifier._validated_rows(X)
        sizes = np.diff(X.indptr) if sp.issparse(X) else np.full(X.shape[0], X.shape[1])
        return cls(X, sizes, unknown)

    def scored(self, model: FittedModel) -> ScoredRows:
        """Returns what the model, on its device, computes of them."""
        return inside(model)._run_prediction(self.X, score_rows, self.sizes)


def expected_metrics(model: FittedModel, rows: Texts | Matrix) -> Expected:
    """Returns the P@k and the micro-F1 that are to be expected of predictions for texts, or rows X (n, d), whose labels
    are not known.

    The mean probability of top labels is their expected P@1: a calibrated model's 0.7 is true in 70 of 100 rows. It is
    corrected by how many features each row has, as held-out rows taught. It stays right on rows of which the model saw
    too few, not on rows whose labels came to mean something else.
    """
    return expected_of(NewRows.of(model, rows).scored(model).sums)


def expected_of(sums: RowSums) -> Expected:
    precision = {k: float(hits / (k * sums.rows)) for k, hits in zip(KS, sums.hits, strict=True)}
    known = {k: value for k, value in precision.items() if k <= len(sums.labels)}
    return Expected(sums.rows, known, sums.f1, sums.labels / sums.rows)


class Martingale:
    """The capital of bets against rows that are exchangeable with those before them, by one number of each row."""

    def __init__(self, counts: Array) -> None:
        self.counts = np.array(counts, np.float64)  # (BINS,) rows so far
        self.capital = np.full((len(JUMPS), len(SLOPES)), 1 / (len(JUMPS) * len(SLOPES)))  # share of each bet
        self.log = self.highest = 0.0  # of the whole capital, now and at its highest
        self.rows = 0

    def add(self, bins: Array, seed: int) -> None:
        """Bets on the next rows, whose bins are (n,), in random order: files are sorted by all kinds of things."""
        from smoothlink.machines.prediction_kernels import bet_on_ranks

        draws, bets = uniforms(seed, self.rows, len(bins)), (SLOPES, CURVES, JUMPS)
        bins = bins[np.argsort(uniforms(seed + len(BINNED), self.rows, len(bins)), kind="stable")]
        self.log, self.highest = bet_on_ranks(bins, draws, *bets, self.counts, self.capital, self.log, self.highest)
        self.rows += len(bins)


class SequentialTest:
    """Several martingales, one for each statistic of a row; their false alarms together are at most the rate given."""

    def __init__(self, references: Mapping[str, Array], false_alarms: float) -> None:
        """Prepares to compare with so many rows in each bin (BINS,), by statistic: keys of `reference.BINNED`."""
        self.false_alarms = false_alarms
        self.tests = {name: Martingale(counts) for name, counts in references.items()}

    def add(self, name: str, values: Array) -> None:
        """Takes the values (n, ...) of the next rows, if there is something to compare them with."""
        if name in self.tests:
            self.tests[name].add(BINNED[name](values), seed=list(BINNED).index(name))

    @property
    def evidence(self) -> float:
        """Returns the logarithm of the largest capital so far over the number of statistics: each has its part of the
        false alarms."""
        return max(test.highest for test in self.tests.values()) - math.log(len(self.tests))

    @property
    def alarm(self) -> bool:
        return self.evidence >= -math.log(self.false_alarms)

    @property
    def alarmed(self) -> list[str]:
        """Returns the statistics that raised the alarm."""
        least = math.log(len(self.tests) / self.false_alarms)
        return [name for name, test in self.tests.items() if test.highest >= least]


class LabelShift(NamedTuple):
    """A label whose share of the rows changed."""

    label: str
    before: float
    now: float
    certainty: float  # that it changed, at least, allowing for the number of labels looked at


class Status(NamedTuple):
    """What a watch has seen. "Before" is the held-out rows of the fit, or the reference; nan where it is not known."""

    rows: int
    expected_p1: float
    p1_before: float  # measured on held-out rows
    expected_p1_before: float
    expected_f1: float
    f1_before: float
    unknown_words: float  # share
    unknown_words_before: float
    length: float  # median of h
    length_before: float
    labels: list[LabelShift]  # that changed most
    evidence: float  # an alarm from log(1 / false_alarms) on
    false_alarms: float
    alarm: bool
    alarmed: list[str]  # statistics that raised it


class Watch:
    """Compares new rows with the held-out rows of a fit, and raises an alarm when rows are unlike those before them.

    model: a fitted TextSmoothLink or SmoothLinkClassifier. false_alarms: the probability of an alarm, ever, while
    nothing changes. reference: texts or rows X that are as they should be and were not trained on, which take the place
    of the held-out rows, and which the first rows are compared with.

    The held-out rows themselves raise no alarm: a fit without them scored and embedded them, and the vocabulary has
    their words. New rows differ from them without any change; on debtags nearly every watch raised an alarm by that.
    """

    def __init__(
        self, model: FittedModel, false_alarms: float = FALSE_ALARMS, reference: Texts | Matrix | None = None
    ) -> None:
        check_value("false_alarms", false_alarms, RATE)
        self.model = model
        fitted, features = inside(model).model_, getattr(model, "features_", None)
        unknown = getattr(features, "unknown_", None)
        before, self.words_before = fitted.reference, None if unknown is None else unknown.words
        counts = {} if unknown is None else {"unknown": np.zeros(BINS)}
        if reference is not None:
            rows = NewRows.of(model, reference)
            before = reference_of_rows(fitted, rows.scored(model))
            if rows.unknown is not None:
                counts, self.words_before = {"unknown": count("unknown", rows.unknown)}, rows.unknown.sum(axis=0)
        if before is None:
            raise DataError(
                "The model has no held-out rows to compare with: it is of a version before 0.9, or was trained without "
                "calibration.\nTrain it again, or pass rows as they should be, which it was not trained on: "
                "Watch(model, reference=rows), smoothlink watch --reference FILE."
            )
        self.before: Reference = before
        for name in ("top", "frequency", "length"):
            if (known := getattr(before, name)) is not None:
                counts[name] = known if reference is not None else np.zeros(BINS)
        self.test = SequentialTest(counts, false_alarms)
        self.lengths = np.zeros(BINS)  # rows of the watch by the length of h
        self.sums = RowSums(0, np.zeros(len(KS)), 0.0, 0.0, 0.0, np.zeros(fitted.n_labels))
        self.words = np.zeros(2)

    def add(self, rows: Texts | Matrix) -> Status:
        """Takes the next texts or rows X (n, d); returns what all rows of the watch say."""
        new = NewRows.of(self.model, rows)
        scored, fitted = new.scored(self.model), inside(self.model).model_
        self.sums += scored.sums
        self.test.add("top", scored.top)
        self.test.add("frequency", fitted.counts[scored.labels] / fitted.total)
        if scored.lengths is not None:
            self.test.add("length", scored.lengths)
            self.lengths += count("length", scored.lengths)
        if new.unknown is not None:
            self.test.add("unknown", new.unknown)
            self.words = self.words + new.unknown.sum(axis=0)
        return self.status

    @property
    def status(self) -> Status:
        """Returns what the rows so far say."""
        if not self.sums.rows:
            raise DataError("The watch has seen no rows yet.\nPass some to add().")
        before, test = self.before, self.test
        length = now = math.nan
        if before.length is not None and self.lengths.any():
            length, now = median_length(before.length), median_length(self.lengths)
        return Status(
            rows=self.sums.rows,
            expected_p1=float(self.sums.hits[0] / self.sums.rows),
            p1_before=before.p1,
            expected_p1_before=before.expected_p1,
            expected_f1=self.sums.f1,
            f1_before=before.f1,
            unknown_words=share(self.words),
            unknown_words_before=math.nan if self.words_before is None else share(self.words_before),
            length=now,
            length_before=length,
            labels=shifted_labels(self.sums, before, [str(name) for name in label_names(inside(self.model))]),
            evidence=test.evidence,
            false_alarms=test.false_alarms,
            alarm=test.alarm,
            alarmed=test.alarmed,
        )

    def state(self) -> dict[str, Any]:
        """Returns all that a watch has seen, in JSON's types, for `Watch.resumed` to go on from."""
        before = None if self.before is inside(self.model).model_.reference else self.before
        return {
            WATCH_KEY: STATE_VERSION,
            "model": fingerprint(inside(self.model).model_),
            "false_alarms": self.test.false_alarms,
            "sums": [as_list(value) for value in self.sums],
            "words": self.words.tolist(),
            "lengths": self.lengths.tolist(),
            "words_before": None if self.words_before is None else np.asarray(self.words_before).tolist(),
            "before": None if before is None else [as_list(value) for value in before],
            "tests": {
                name: [test.counts.tolist(), test.capital.tolist(), test.log, test.highest, test.rows]
                for name, test in self.test.tests.items()
            },
        }

    @classmethod
    def resumed(cls, model: FittedModel, state: Mapping[str, Any]) -> Self:
        """Returns the watch of a `state`, which goes on as if it had never stopped."""
        if WATCH_KEY not in state:
            raise DataError("This is no state of a watch.\nPass what Watch.state() returned.")
        if state[WATCH_KEY] != STATE_VERSION or state.get("model") != fingerprint(inside(model).model_):
            raise DataError("The watch is of another model.\nGo on with that model, or begin a new watch.")
        watch = cls.__new__(cls)
        try:
            watch.model, fitted = model, inside(model).model_
            given, words = state["before"], state["words_before"]
            before = fitted.reference if given is None else Reference(*(as_array(v) for v in given))
            if before is None:
                raise ValueError("before")
            check_reference(before, fitted.n_labels)
            watch.before = before
            watch.words_before = None if words is None else amounts(words, 2)
            watch.words, watch.lengths = amounts(state["words"], 2), amounts(state["lengths"], BINS)
            watch.sums = RowSums(*(as_array(value) for value in state["sums"]))
            amounts(watch.sums.hits, len(KS)), amounts(watch.sums.labels, fitted.n_labels)
            amounts([watch.sums.found, watch.sums.predicted, watch.sums.true], 3)
            check_value("false_alarms", state["false_alarms"], RATE)
            watch.test = SequentialTest({}, state["false_alarms"])
            rows = [watch.sums.rows]
            for name, (counts, capital, log, highest, seen) in state["tests"].items():
                test = watch.test.tests[name] = Martingale(amounts(counts, BINS))
                test.capital, test.log, test.highest, test.rows = (
                    amounts(capital, *test.capital.shape),
                    log,
                    highest,
                    seen,
                )
                rows.append(seen)
                if name not in BINNED or not all(
                    type(number) is float and number < math.inf for number in (log, highest)
                ):
                    raise ValueError(name)
            if not watch.test.tests or not all(type(count) is int and 0 <= count < 2**53 for count in rows):
                raise ValueError("tests")
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise DataError("The state of the watch is damaged.\nBegin a new watch.") from error
        return watch

    def save(self, path: FilePath) -> None:
        """Writes the state to a file, whole or not at all."""
        with replace_file(path) as stream:
            stream.write(json.dumps(self.state()).encode())

    @classmethod
    def load(cls, model: FittedModel, path: FilePath) -> Self:
        """Returns the watch whose state is in a file."""
        remedy = "Name the file of a watch, or one that does not exist, to begin a new watch."
        try:
            with open(path, "rb") as stream:
                state = json.loads(stream.read())
        except (ValueError, RecursionError) as error:
            raise DataError(f"{os.fspath(path)} is no file of a watch, or was cut short.\n{remedy}") from error
        try:
            return cls.resumed(model, state if isinstance(state, dict) else {})
        except DataError as error:
            raise DataError(f"{os.fspath(path)}: {error}") from error


def reference_of_rows(model: Model, scored: ScoredRows) -> Reference:
    """Returns what rows without labels are like."""
    by_size = no_correction() if model.reference is None else model.reference.by_size
    return Reference(
        count("top", scored.top),
        count("frequency", model.counts[scored.labels] / model.total),
        None if scored.lengths is None else count("length", scored.lengths),
        (scored.sums.labels / scored.sums.rows).astype(np.float32),
        by_size,
        float(scored.sums.hits[0] / scored.sums.rows),
        math.nan,
        math.nan,
    )


def shifted_labels(sums: RowSums, before: Reference, names: list[str]) -> list[LabelShift]:
    """Returns the labels whose share changed most for its size, the surest first.

    The probability of a label varies less from row to row than the label itself, so that the test of two shares by
    their binomial variance says too little rather than too much.
    """
    n, m = sums.rows, max(before.rows, 1.0)
    now, then = sums.labels / n, before.labels.astype(np.float64)
    pooled = np.clip((sums.labels + m * then) / (n + m), 1e-12, 1 - 1e-12)
    z = np.abs(now - then) / np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    found = np.argsort(-z, kind="stable")[:SHIFTED_LABELS].tolist()
    chance = [min(1.0, len(names) * math.erfc(float(z[j]) / math.sqrt(2))) for j in found]
    return [LabelShift(names[j], float(then[j]), float(now[j]), 1 - p) for j, p in zip(found, chance, strict=True)]


def median_length(counts: Array) -> float:
    """Returns the length in the middle of the bin in which half of the rows are reached."""
    half = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    return float(2 ** ((half + 0.5 - BINS / 2) / 8))


def share(words: Array) -> float:
    return float(words[0] / words[1]) if words[1] else math.nan


def as_list(value: Any) -> Any:
    """Returns an array as a list, and a number as it is; nan as None, which JSON lacks."""
    if isinstance(value, np.ndarray):
        return [value.dtype.str, value.tolist()]
    return None if isinstance(value, float) and math.isnan(value) else value


def as_array(value: Any) -> Any:
    """Returns what `as_list` made a list."""
    if isinstance(value, list):
        kind, numbers = value
        if kind not in ("<f4", "<f8"):
            raise ValueError(kind)
        return np.array(numbers, kind)
    return math.nan if value is None else value


def amounts(values: Any, *shape: int) -> Array:
    """Returns numbers of this shape; raises ValueError where one is missing, negative or not finite."""
    found = np.array(values, np.float64)
    if found.shape != shape or not np.isfinite(found).all() or (found < 0).any():
        raise ValueError("numbers")
    return found


def check_reference(reference: Reference, c: int) -> None:
    """Raises ValueError unless a reference is one of c labels."""
    sizes: dict[str, int] = {"top": BINS, "frequency": BINS, "length": BINS, "labels": c}
    for name, size in sizes.items():
        if name != "length" or reference.length is not None:
            amounts(getattr(reference, name), size)
    if np.shape(reference.by_size) != (2,) or not np.isfinite(reference.by_size).all():
        raise ValueError("sizes")
    if not all(isinstance(number, float) for number in reference.numbers):
        raise ValueError("numbers")


def fingerprint(model: Model) -> str:
    """Returns a digest of what a watch depends on: the calibration, the thresholds and the reference of a model."""
    reference = {} if model.reference is None else model.reference.arrays
    parts = (model.counts, model.thresholds, model.calibration.knots, model.calibration.values, *reference.values())
    found = hashlib.sha256()
    for array in parts:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
