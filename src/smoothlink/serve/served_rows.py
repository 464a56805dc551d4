"""The rows that a server predicts, compared with those that it predicted before: what /metrics says of drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smoothlink.drift import FALSE_ALARMS, SequentialTest
from smoothlink.steps.reference import BINS

if TYPE_CHECKING:
    from smoothlink.model import Model
    from smoothlink.serve.service import PredictionService, RowPrediction


class RowFigures(NamedTuple):
    """What a batch of rows adds to the metrics."""

    rows: int
    expected_hits: float  # of top labels
    unknown_words: int
    words: int
    evidence: float  # of the whole test so far
    alarm: bool


class ServedRows:
    """The test of a watch over the rows of one process, from what their predictions computed anyway.

    Each of several processes has a test of its own and its part of the false alarms, so that together they raise at
    most FALSE_ALARMS.
    """

    def __init__(self, model: Any, processes: int, report: Callable[[RowFigures], None]) -> None:
        """Prepares for a fitted model that has a reference; `report` is called after each batch."""
        features: Any = getattr(model, "features_", None)
        fitted = (model if features is None else model.classifier_).model_
        self.follow(fitted)
        self.report = report
        self.unknown_words = None if getattr(features, "unknown_", None) is None else features.unknown_words
        names = ("top", "frequency") if self.unknown_words is None else ("top", "frequency", "unknown")
        counts = {name: np.zeros(BINS) for name in names}
        self.test = SequentialTest(counts, FALSE_ALARMS / processes)

    def follow(self, fitted: Model) -> None:
        """Takes the label frequencies of a model that was updated."""
        self.frequencies = fitted.counts / fitted.total

    def add(self, service: PredictionService, predictions: Sequence[RowPrediction], rows: Sequence[Any]) -> None:
        """Takes predictions of all labels, best first, and the texts or vectors that they are of."""
        best = [(one.probabilities[0], service.numbers[one.names[0]]) for one in predictions if one.names]
        best = [pair for pair in best if pair[0] == pair[0]]
        if not best:
            return
        top, labels = (np.array(values) for values in zip(*best, strict=True))
        self.test.add("top", top)
        self.test.add("frequency", self.frequencies[labels])
        texts = [row for row in rows if isinstance(row, str)] if self.unknown_words is not None else []
        unknown = words = 0
        if self.unknown_words is not None and texts:
            counts = self.unknown_words(texts)
            self.test.add("unknown", counts)
            unknown, words = counts.sum(axis=0).tolist()
        self.report(RowFigures(len(best), float(top.sum()), unknown, words, self.test.evidence, self.test.alarm))
