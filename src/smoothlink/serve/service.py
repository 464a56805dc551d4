"""A model as a service: texts or vectors in, label names and probabilities out. No HTTP here but the errors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from smoothlink.data.matching import label_names, unnamed
from smoothlink.data.predictions import DEFAULT_K, LabelRequest, predicted_labels
from smoothlink.serve import ServerSettings
from smoothlink.serve.schema import RefusedRequest, Vector

UNDERFLOW = 1e-30  # values up to this are set to zero: their squares are zero in float32


class RowsRequest(NamedTuple):
    """Rows and which of their labels to predict."""

    rows: Sequence[Any]  # texts, or vectors
    labels: LabelRequest


class RowPrediction(NamedTuple):
    """The labels of a row, and how many of its features the model knows."""

    names: list[str]
    probabilities: list[float]
    features: int


class PredictionService:
    """A fitted model with its label names and the limits of a request."""

    def __init__(self, model: Any, settings: ServerSettings) -> None:
        self.model, self.settings = model, settings
        self.text_features = getattr(model, "features_", None)
        self.classifier = model if self.text_features is None else model.classifier_
        self.takes = "vectors" if self.text_features is None else "texts"
        self.names = [str(name) for name in label_names(self.classifier)]
        self.numbers = {name: j for j, name in reversed(list(enumerate(self.names)))}

    @cached_property
    def folded_names(self) -> list[str]:
        """The label names without upper case, as they are searched."""
        return [name.casefold() for name in self.names]

    def label_numbers(self, names: Sequence[str]) -> tuple[int, ...]:
        """Returns the numbers of these labels, each once."""
        unknown = next((name for name in names if name not in self.numbers), None)
        if unknown is not None:
            shown = unknown if len(unknown) <= 60 else f"{unknown[:60]}..."
            reason = f"The model has no label {shown!r}. GET /labels?q=... searches those it has."
            raise RefusedRequest(422, reason)
        return tuple(dict.fromkeys(self.numbers[name] for name in names))

    def check_request(
        self,
        texts: list[str] | None,
        vectors: list[Vector] | None,
        *,
        k: int | None = None,
        threshold: float | None = None,
        only: Sequence[str] = (),
    ) -> RowsRequest:
        """Returns the request if the model can predict it and the limits allow it, else raises RefusedRequest."""
        rows: list[Any] | None = texts if self.takes == "texts" else vectors
        if rows is None:
            example = {"texts": '{"texts": ["..."]}', "vectors": '{"vectors": [{"indices": [0], "values": [1.0]}]}'}
            raise RefusedRequest(422, f"This model takes {self.takes}: send {example[self.takes]}.")
        if len(rows) > self.settings.max_rows:
            reason = f"{len(rows)} rows are more than {self.settings.max_rows}. Send fewer at a time."
            raise RefusedRequest(413, reason)
        d = self.classifier.n_features_in_
        largest = max((max(vector.indices, default=0) for vector in vectors or []), default=0)
        if largest >= d:
            raise RefusedRequest(422, f"Feature {largest} is outside 0..{d - 1}, the features of this model.")
        if k is not None and k > self.settings.max_labels:
            reason = f"k is {k}; at most {self.settings.max_labels} labels are predicted per row."
            raise RefusedRequest(422, reason)
        most = min(self.settings.max_labels, len(self.names))
        k = k or (DEFAULT_K if threshold is None else most)
        return RowsRequest(rows, LabelRequest(min(k, most), threshold, only=self.label_numbers(only)))

    def features_of(self, rows: Sequence[Any]) -> sp.csr_array:
        """Returns the features (n, d) of texts or vectors."""
        if self.text_features is not None:
            return sp.csr_array(self.text_features.transform(list(rows)))
        return stack_vectors(rows, self.classifier.n_features_in_)

    def predict_batch(self, requests: list[RowsRequest]) -> list[list[RowPrediction] | Exception]:
        """Returns a prediction per row of each request, or its error.

        The most probable k labels and those above a threshold are both first parts of one list, so that all requests
        without `only` share one prediction of the largest k among them.
        """
        starts = np.cumsum([0, *(len(request.rows) for request in requests)])
        X = self.features_of([row for request in requests for row in request.rows])
        groups: dict[LabelRequest, list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(request.labels if request.labels.only else LabelRequest(), []).append(i)
        results: list[list[RowPrediction] | Exception] = [[] for _ in requests]
        for shared, members in groups.items():
            if not shared.only:
                shared = LabelRequest(max(requests[i].labels.k or DEFAULT_K for i in members))
            rows = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in members])
            predictions = iter(self.predict_rows(X[rows] if len(groups) > 1 else X, shared))
            for i in members:
                found = [first_labels(next(predictions), requests[i].labels) for _ in requests[i].rows]
                results[i] = found if all(p == p for one in found for p in one.probabilities) else overflow_error()
        return results

    def predict_rows(self, X: sp.csr_array, request: LabelRequest) -> list[RowPrediction]:
        """Returns a prediction per row, computed in blocks of rows that fit into memory."""
        known = np.diff(X.indptr).tolist()
        blocks = self.classifier.model_.row_blocks(X.shape[0]) if request.only else [slice(None)]
        with unnamed():
            found = [pair for block in blocks for pair in predicted_labels(self.classifier, X[block], request)]
        return [
            RowPrediction([self.names[j] for j in labels], probabilities, n)
            for (labels, probabilities), n in zip(found, known, strict=True)
        ]

    def search_labels(self, text: str, offset: int, limit: int) -> tuple[int, list[int]]:
        """Returns how many labels have this text in their names, and a page of their numbers: those that begin with it
        first."""
        wanted = text.casefold()
        if not wanted:
            return len(self.names), list(range(offset, min(offset + limit, len(self.names))))
        found = [j for j, name in enumerate(self.folded_names) if wanted in name]
        found.sort(key=lambda j: (not self.folded_names[j].startswith(wanted), self.folded_names[j]))
        return len(found), found[offset : offset + limit]

    def warm_up(self) -> None:
        """Compiles and reads what the first requests would wait for: one row and several, some labels and all."""
        kinds = (LabelRequest(DEFAULT_K), LabelRequest(DEFAULT_K, only=(0,)), LabelRequest(DEFAULT_K, threshold=0.5))
        for n in (1, 3):
            for kind in kinds:
                self.predict_batch([RowsRequest([self.example_row()] * n, kind)])

    def example_row(self) -> Any:
        """Returns a text or a vector that every model takes."""
        return "a" if self.takes == "texts" else Vector(indices=[0], values=[1.0])


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
    """Returns the first labels of a prediction: at most k, and none below the threshold."""
    kept = len(prediction.names) if request.k is None else request.k
    if request.threshold is not None:
        kept = min(kept, sum(p >= request.threshold for p in prediction.probabilities))
    return RowPrediction(prediction.names[:kept], prediction.probabilities[:kept], prediction.features)


def overflow_error() -> RefusedRequest:
    """Returns the error of a request whose probabilities are not numbers."""
    return RefusedRequest(
        422, "The values are too large for this model: their sums overflow. Scale them as in training."
    )
