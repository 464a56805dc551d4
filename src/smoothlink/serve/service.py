"""A model as a service: texts or vectors in, label names and probabilities out. No HTTP here but the errors."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from smoothlink.conformal import checked_conformal, set_thresholds
from smoothlink.data.matching import inside, label_names, unnamed
from smoothlink.data.predictions import DEFAULT_K, LabelRequest, predicted_labels
from smoothlink.errors import plural
from smoothlink.serve import ServerSettings
from smoothlink.serve.batching import Piece
from smoothlink.serve.schema import Guarantee, LabelInfo, RefusedRequest, Vector
from smoothlink.serve.served_rows import ServedRows
from smoothlink.text.documents import DocumentSource, from_meta
from smoothlink.text.numbers import Document
from smoothlink.vocabulary import display_names

GUARANTEED_LEVELS = (0.8, 0.9, 0.95)  # of coverage and recall, that the page offers
EXAMPLE_LENGTH = 80  # characters
SIZE_PER_ROW, LABELS_PER_ROW = 500, 200  # characters or entries, and labels, that take as long as another row
LONG_TEXT = 20_000  # characters from which the features of a text are computed in a thread of their own
UNDERFLOW = 1e-30  # values up to this are set to zero: their squares are zero in float32


class RowsRequest(NamedTuple):
    """Rows and which of their labels to predict."""

    rows: Sequence[Any]  # texts, or vectors, or their features
    labels: LabelRequest

    def pieces(self, most: int) -> list[Piece[RowsRequest]]:
        """Returns the request in pieces that each count for `most` rows at most, or have one row."""
        per_row = 1 + (self.labels.k or 0) // LABELS_PER_ROW
        found: list[Piece[RowsRequest]] = []
        start = rows = 0
        for i, row in enumerate(self.rows):
            one = per_row + row_size(row) // SIZE_PER_ROW
            if rows and rows + one > most:
                found.append(Piece(self._replace(rows=self.rows[start:i]), rows))
                start, rows = i, 0
            rows += one
        return [*found, Piece(self._replace(rows=self.rows[start:]), rows)]


def row_size(row: Any) -> int:
    """Returns the characters of a text, or the entries of a vector; of features that are at hand nothing."""
    return 0 if sp.issparse(row) else len(row if isinstance(row, str) else row.indices)


class RowPrediction(NamedTuple):
    """The labels of a row, which of them the model predicts, and how many features of the row it knows."""

    names: list[str]
    probabilities: list[float]
    predicted: list[bool]
    features: int


class LabelTable(NamedTuple):
    """What the labels of a model are called."""

    names: list[str]
    numbers: dict[str, int]  # by name
    display_names: list[str]

    @classmethod
    def of(cls, model: Any) -> LabelTable:
        names = [str(name) for name in label_names(inside(model))]
        return cls(names, {name: j for j, name in reversed(list(enumerate(names)))}, display_names(model))


class PredictionService:
    """A fitted model with its label names and the limits of a request; `check` raises where it must not be used."""

    def __init__(
        self,
        model: Any,
        settings: ServerSettings,
        check: Callable[[], None] = lambda: None,
        former: PredictionService | None = None,
    ) -> None:
        """former: a service of an earlier version of the model, whose names are taken over if they are the same."""
        self.model, self.settings, self.check = model, settings, check
        self.watch: ServedRows | None = None  # of rows that are served; those of `warm_up` are not
        self.text_features = getattr(model, "features_", None)
        self.classifier = model if self.text_features is None else model.classifier_
        self.takes = "vectors" if self.text_features is None else "texts"
        if former is not None and former.classifier.classes_ is self.classifier.classes_:
            self.labels: LabelTable = former.labels
        else:
            self.labels = LabelTable.of(model)
        self.names, self.numbers, self.display_names = self.labels
        self.thresholds = self.classifier.thresholds_
        self.multiclass = bool(self.classifier.model_.multiclass)
        scale = getattr(self.text_features, "numbers_", None)
        self.width = 0 if scale is None else len(scale.mean)  # numbers beside each text
        self.source = from_meta(getattr(model, "source_", None)) or DocumentSource("table")

    def become(self, other: PredictionService) -> None:
        """Serves the model of another service from now on, at once and as a whole."""
        self.__dict__ = other.__dict__

    @property
    def threshold(self) -> float | None:
        """The model's own threshold; None where labels have different ones, or the best label is taken."""
        of_trained = self.thresholds[np.isfinite(self.thresholds)]
        same = len(of_trained) > 0 and of_trained.min() == of_trained.max() and not self.multiclass
        return round(float(of_trained[0]), 6) if same else None

    @property
    def number_names(self) -> dict[int, str]:
        """Returns the columns of the training file by the features that are their numbers, where each is one."""
        names = self.source.numbers
        return dict(enumerate(names, self.classifier.n_features_in_ - self.width)) if len(names) == self.width else {}

    @cached_property
    def known_labels(self) -> list[LabelInfo]:
        """The labels of the model, then the concepts of its vocabulary that it has no training rows of."""
        counts, vocabulary = self.classifier.model_.counts.tolist(), self.classifier.vocabulary_
        each = enumerate(zip(self.names, self.display_names, counts, strict=True))
        found = [LabelInfo(label=label, name=name, number=j, count=count) for j, (label, name, count) in each]
        if vocabulary is None:
            return found
        others = [i for i in vocabulary.ids if i not in self.numbers and not vocabulary.deprecated(i)]
        return [*found, *(LabelInfo(label=i, name=vocabulary.name(i), number=None, count=0) for i in others)]

    @cached_property
    def searched_labels(self) -> tuple[list[LabelInfo], list[str]]:
        """The known labels, and of each the name to show, with the label where it differs, without upper case."""
        each = self.known_labels
        return each, [(one.name if one.name == one.label else f"{one.name}\n{one.label}").casefold() for one in each]

    def label_numbers(self, names: Sequence[str]) -> tuple[int, ...]:
        """Returns the numbers of these labels, each once."""
        unknown = next((name for name in names if name not in self.numbers), None)
        if unknown is not None:
            shown = unknown if len(unknown) <= 60 else f"{unknown[:60]}..."
            reason = f"The model has no label {shown!r}. GET /labels?q=... searches those it has."
            raise RefusedRequest(422, reason)
        return tuple(dict.fromkeys(self.numbers[name] for name in names))

    def label_and_name(self, label: str) -> dict[str, str]:
        """Returns a label and the name to show for it."""
        return {"label": label, "name": self.display_names[self.numbers[label]]}

    def check_request(
        self,
        texts: Sequence[str] | None,
        vectors: list[Vector] | None,
        *,
        k: int | None = None,
        threshold: float | None = None,
        sets: bool = False,
        only: Sequence[str] = (),
        coverage: float | None = None,
        recall: float | None = None,
    ) -> RowsRequest:
        """Returns the request if the model can predict it and the limits allow it, else raises RefusedRequest."""
        rows: Sequence[Any] | None = texts if self.takes == "texts" else vectors
        if rows is None:
            example = {"texts": '{"texts": ["..."]}', "vectors": '{"vectors": [{"indices": [0], "values": [1.0]}]}'}
            raise RefusedRequest(422, f"This model takes {self.takes}: send {example[self.takes]}.")
        if len(rows) > self.settings.max_rows:
            reason = f"{len(rows)} rows are more than {self.settings.max_rows}. Send fewer at a time."
            raise RefusedRequest(413, reason)
        self.check_numbers(rows)
        d = self.classifier.n_features_in_
        largest = max((max(vector.indices, default=0) for vector in vectors or []), default=0)
        if largest >= d:
            raise RefusedRequest(422, f"Feature {largest} is outside 0..{d - 1}, the features of this model.")
        if k is not None and k > self.settings.max_labels:
            reason = f"k is {k}; at most {self.settings.max_labels} labels are predicted per row."
            raise RefusedRequest(422, reason)
        most = min(self.settings.max_labels, len(self.names))
        if (coverage, recall) != (None, None):
            try:
                labels = LabelRequest(most, self.guaranteed(coverage, recall), coverage=coverage, recall=recall)
            except ValueError as error:
                raise RefusedRequest(422, str(error)) from error
            return RowsRequest(rows, labels)
        sets = sets or (k is None and threshold is None and self.classifier.model_.has_aim)
        labels = LabelRequest(k, threshold, sets=sets, only=self.label_numbers(only))
        k = min(k or (most if labels.wants_sets else DEFAULT_K), most)
        if not sets and not threshold:  # so many labels, whatever the rows are
            self.check_response(len(rows) * min(k, len(labels.only) or k))
        return RowsRequest(rows, labels._replace(k=k))

    def guaranteed(self, coverage: float | None, recall: float | None) -> float:
        """Returns the least probability of the labels in sets with a guarantee; ValueError where there is none."""
        return float(set_thresholds(checked_conformal(self.classifier.conformal_), 1, coverage, recall)[0])

    @cached_property
    def guarantees(self) -> list[Guarantee]:
        """The promises that the page offers: those that the model can keep."""
        found = []
        for promise in ("coverage", "recall"):
            for level in GUARANTEED_LEVELS:
                with suppress(ValueError):
                    threshold = self.guaranteed(**{"coverage": None, "recall": None, promise: level})
                    if threshold <= 1:  # else the sets are empty, since rows have no labels
                        found.append(Guarantee(promise=promise, level=level, threshold=threshold))
        return found

    def check_response(self, labels: int) -> None:
        """Raises RefusedRequest where a response has too many labels."""
        most = self.settings.max_response_labels
        if labels > most:
            reason = (
                f"The response has {labels:,} labels, more than {most:,}. Send fewer rows, or ask for fewer labels."
            )
            raise RefusedRequest(413, reason)

    def check_numbers(self, rows: Sequence[Any]) -> None:
        """Raises RefusedRequest where the numbers beside texts are not as many as in training."""
        for row in rows:
            if isinstance(row, Document) and row.numbers is not None and len(row.numbers) != self.width:
                sent = plural(len(row.numbers), "number")
                reason = f"A text has {sent} beside it, and this model takes {self.width or 'none'}."
                raise RefusedRequest(422, reason)

    def features_of(self, rows: Sequence[Any]) -> sp.csr_array:
        """Returns the features (n, d) of texts or vectors, some of which may be at hand."""
        if self.text_features is None:
            return stack_vectors(rows, self.classifier.n_features_in_)
        blocks = [
            sp.vstack(list(group), format="csr") if ready else self.text_features.transform(list(group))
            for ready, group in groupby(rows, sp.issparse)
        ]
        return sp.csr_array(blocks[0] if len(blocks) == 1 else sp.vstack(blocks, format="csr"))

    def with_features(self, request: RowsRequest) -> RowsRequest:
        """Returns the request with the features of its long texts."""
        return request._replace(rows=[self.features_of([row]) if is_long(row) else row for row in request.rows])

    def predict_batch(self, requests: list[RowsRequest]) -> list[list[RowPrediction] | Exception]:
        """Returns a prediction per row of each request, or its error.

        The most probable k labels, those above a threshold and those that the model predicts are all found in one list,
        so that requests with the same `only` share one prediction of the largest k among them.
        """
        starts = np.cumsum([0, *(len(request.rows) for request in requests)])
        X = self.features_of([row for request in requests for row in request.rows])
        groups: dict[tuple[int, ...], list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(request.labels.only, []).append(i)
        results: list[list[RowPrediction] | Exception] = [[] for _ in requests]
        for only, members in groups.items():
            shared = LabelRequest(max(requests[i].labels.k or DEFAULT_K for i in members), only=only)
            rows = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in members])
            found_rows = self.predict_rows(X[rows] if len(groups) > 1 else X, shared)
            if self.watch is not None and not only:
                self.watch.add(self, found_rows, [row for i in members for row in requests[i].rows])
            predictions = iter(found_rows)
            for i in members:
                found = [first_labels(next(predictions), requests[i].labels) for _ in requests[i].rows]
                sound = all(p == p for one in found for p in one.probabilities)
                whole = self.whole_sets(found) if requests[i].labels.guarantees else found
                results[i] = whole if sound else overflow_error()
        return results

    def whole_sets(self, found: list[RowPrediction]) -> list[RowPrediction] | Exception:
        """Returns sets with a guarantee, without labels that have no training rows, or the error of a set that is cut:
        nothing would be guaranteed of it."""
        most = min(self.settings.max_labels, len(self.names))
        if most < len(self.names) and any(len(one.names) == most for one in found):
            reason = f"A set has more than {most} labels, the most that this server sends. Ask for a lower level."
            return RefusedRequest(422, reason)
        trained = ~self.classifier.model_.untrained
        kept = [[i for i, name in enumerate(one.names) if trained[self.numbers[name]]] for one in found]
        return [
            RowPrediction(
                [one.names[i] for i in some],
                [one.probabilities[i] for i in some],
                [one.predicted[i] for i in some],
                one.features,
            )
            for one, some in zip(found, kept, strict=True)
        ]

    def predict_rows(self, X: sp.csr_array, request: LabelRequest) -> list[RowPrediction]:
        """Returns a prediction per row, computed in blocks of rows that fit into memory."""
        known = np.diff(X.indptr).tolist()
        blocks = self.classifier.model_.row_blocks(X.shape[0]) if request.only else [slice(None)]
        with unnamed():
            found = [pair for block in blocks for pair in predicted_labels(self.classifier, X[block], request)]
            best = self.classifier.predict_topk(X, k=1).indices.tolist() if self.multiclass and request.only else None
        predictions = []
        for i, (labels, probabilities) in enumerate(found):
            if not self.multiclass:
                predicted = (np.array(probabilities) >= self.thresholds[labels]).tolist()
            else:
                predicted = [j == (labels[0] if best is None else best[i]) for j in labels]
            names = [self.names[j] for j in labels]
            predictions.append(RowPrediction(names, probabilities, predicted, known[i]))
        return predictions

    def search_labels(
        self, text: str, offset: int, limit: int, *, vocabulary: bool = False
    ) -> tuple[int, list[LabelInfo]]:
        """Returns how many labels have this text in their names, and a page of them: those that begin with it first."""
        labels, names = self.searched_labels
        wanted, among = text.casefold(), len(labels) if vocabulary else min(len(labels), len(self.names))
        found = [j for j in range(among) if wanted in names[j]] if wanted else list(range(among))
        if wanted:
            found.sort(key=lambda j: (not names[j].startswith(wanted), names[j]))
        return len(found), [labels[j] for j in found[offset : offset + limit]]

    def warm_up(self) -> None:
        """Compiles and reads what the first requests would wait for: one row and several, some labels and all."""
        self.classifier.model_.candidate_search.prepare()
        kinds = (LabelRequest(DEFAULT_K), LabelRequest(DEFAULT_K, only=(0,)), LabelRequest(DEFAULT_K, threshold=0.5))
        for n in (1, 3):
            for kind in kinds:
                self.predict_batch([RowsRequest([self.example_row()] * n, kind)])

    def example_row(self) -> Any:
        """Returns a text or a vector that this model takes: the beginning of a training text, where it stores some."""
        if self.takes == "vectors":
            return Vector(indices=[0], values=[1.0])
        texts = [one.text for one in getattr(self.model, "examples_", [])]
        short = (
            textwrap.shorten(texts[0], EXAMPLE_LENGTH, placeholder="") or texts[0][:EXAMPLE_LENGTH] if texts else "a"
        )
        return Document(short)


def is_long(row: Any) -> bool:
    return isinstance(row, str) and len(row) >= LONG_TEXT


def stack_vectors(vectors: Sequence[Vector], d: int) -> sp.csr_array:
    """Returns vectors as sparse rows (n, d); values whose squares underflow float32 are zero."""
    lengths = [len(vector.indices) for vector in vectors]
    indices = np.fromiter((j for vector in vectors for j in vector.indices), np.int32, sum(lengths))
    values = np.fromiter((x for vector in vectors for x in vector.values), np.float64, sum(lengths))
    values[np.abs(values) < UNDERFLOW] = 0
    X = sp.csr_array((values, indices, np.cumsum([0, *lengths], dtype=np.int32)), (len(vectors), d))
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def first_labels(prediction: RowPrediction, request: LabelRequest) -> RowPrediction:
    """Returns those labels of a prediction that were requested: at most k, at the threshold, or predicted."""
    names, probabilities, predicted, features = prediction
    least = 0 if request.threshold is None else request.threshold
    kept = [i for i, p in enumerate(probabilities) if (p >= least or p != p) and (predicted[i] or not request.sets)]
    kept = kept[: request.k]
    return RowPrediction(
        [names[i] for i in kept], [probabilities[i] for i in kept], [predicted[i] for i in kept], features
    )


def overflow_error() -> RefusedRequest:
    """Returns the error of a request whose probabilities are not numbers."""
    return RefusedRequest(
        422, "The values are too large for this model: their sums overflow. Scale them as in training."
    )
