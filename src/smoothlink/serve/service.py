"""A model as the server asks it: texts or vectors in, names and probabilities out. No HTTP here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from smoothlink.data.matching import label_names, unnamed
from smoothlink.data.predictions import DEFAULT_K, LabelRequest, predicted_labels
from smoothlink.serve.http_errors import Refused
from smoothlink.serve.schema import Example, Vector
from smoothlink.serve.server_settings import Settings

UNDERFLOW = 1e-30  # values up to this are as good as zero, and their squares are zero in float32


class Question(NamedTuple):
    """Rows and which of their labels are wanted."""

    rows: Sequence[Any]  # texts, or vectors
    ask: LabelRequest


class Answer(NamedTuple):
    """The labels of a row, and how many of its features the model knows."""

    names: list[str]
    probabilities: list[float]
    features: int


class Oracle:
    """A fitted model, its names and what it takes."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.text_features = getattr(model, "features_", None)
        self.classifier = model if self.text_features is None else model.classifier_
        self.names = [str(name) for name in label_names(self.classifier)]
        self.place = {name: j for j, name in reversed(list(enumerate(self.names)))}

    @property
    def takes(self) -> str:
        return "vectors" if self.text_features is None else "texts"

    @cached_property
    def folded(self) -> list[str]:
        """The names as they are searched."""
        return [name.casefold() for name in self.names]

    @property
    def examples(self) -> list[Example]:
        """Texts of the training set, where the model has some."""
        return [Example(text=one.text, labels=one.labels) for one in getattr(self.model, "examples_", [])]

    @property
    def counts(self) -> Any:
        """How many training rows have each label (c,)."""
        return self.classifier.model_.counts

    def positions(self, names: Sequence[str]) -> tuple[int, ...]:
        """Where these labels are."""
        unknown = next((name for name in names if name not in self.place), None)
        if unknown is not None:
            shown = unknown if len(unknown) <= 60 else f"{unknown[:60]}..."
            raise Refused(422, f"The model knows no label {shown!r}. GET /labels?q=... searches those it has.")
        return tuple(dict.fromkeys(self.place[name] for name in names))

    def question(
        self,
        texts: list[str] | None,
        vectors: list[Vector] | None,
        *,
        k: int | None = None,
        threshold: float | None = None,
        only: Sequence[str] = (),
    ) -> Question:
        """What a request asks, if it can be asked."""
        rows: list[Any] | None = texts if self.takes == "texts" else vectors
        if rows is None:
            shown = (
                '{"texts": ["..."]}' if self.takes == "texts" else '{"vectors": [{"indices": [0], "values": [1.0]}]}'
            )
            raise Refused(422, f"This model takes {self.takes}: send {shown}.")
        if len(rows) > self.settings.max_rows:
            raise Refused(413, f"{len(rows)} rows are more than {self.settings.max_rows}. Send fewer at a time.")
        if vectors is not None:
            self.check(vectors)
        most = min(self.settings.max_labels, len(self.names))
        if k is not None and k > self.settings.max_labels:
            raise Refused(422, f"k is {k}; at most {self.settings.max_labels} labels are answered.")
        k = k or (DEFAULT_K if threshold is None else most)
        return Question(rows, LabelRequest(min(k, most), threshold, only=self.positions(only)))

    def check(self, vectors: list[Vector]) -> None:
        """Whether the model has these features."""
        d = self.classifier.n_features_in_
        largest = max((max(vector.indices, default=0) for vector in vectors), default=0)
        if largest >= d:
            raise Refused(422, f"Feature {largest} is outside 0..{d - 1}, the features of this model.")

    def check_size(self, found: list[Answer]) -> None:
        """Whether an answer is small enough to be sent."""
        count, most = sum(len(answer.names) for answer in found), self.settings.max_answers
        if count > most:
            raise Refused(
                413, f"The answer has {count:,} labels, more than {most:,}. Ask for fewer rows or labels at a time."
            )

    def rows(self, given: Sequence[Any]) -> sp.csr_array:
        """Texts or vectors as rows of features (n, d)."""
        if self.text_features is not None:
            return sp.csr_array(self.text_features.transform(list(given)))
        return stacked(given, self.classifier.n_features_in_)

    def answer_all(self, questions: list[Question]) -> list[list[Answer] | Exception]:
        """The answers to several questions, a list of rows each; those that ask alike are put to the model together."""
        starts = np.cumsum([0, *(len(question.rows) for question in questions)])
        X = self.rows([row for question in questions for row in question.rows])
        groups: dict[LabelRequest, list[int]] = {}
        for i, question in enumerate(questions):
            groups.setdefault(self.alike(question.ask), []).append(i)
        said: list[list[Answer] | Exception] = [[] for _ in questions]
        for ask, members in groups.items():
            asked = (
                ask if ask.only or ask.whole else LabelRequest(max(questions[i].ask.k or DEFAULT_K for i in members))
            )
            rows = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in members])
            found = self.predicted_labels(X[rows] if len(groups) > 1 else X, asked)
            at = 0
            for i in members:
                n = len(questions[i].rows)
                said[i] = finite([cut(answer, questions[i].ask) for answer in found[at : at + n]])
                at += n
        return said

    def alike(self, ask: LabelRequest) -> LabelRequest:
        """What two questions share if one answer serves both: of labels in the order of their probability the k best
        and those above a threshold are first parts of one list."""
        return ask if ask.only else LabelRequest()

    def predicted_labels(self, X: sp.csr_array, ask: LabelRequest) -> list[Answer]:
        """A row each, in blocks that have room."""
        known = np.diff(X.indptr).tolist()
        blocks = self.classifier.model_.row_blocks(X.shape[0]) if ask.only or ask.whole else [slice(None)]
        with unnamed():
            found = [pair for part in blocks for pair in predicted_labels(self.classifier, X[part], ask)]
        return [
            Answer([self.names[j] for j in labels], probabilities, n)
            for (labels, probabilities), n in zip(found, known, strict=True)
        ]

    def search(self, text: str, offset: int, limit: int) -> tuple[int, list[int]]:
        """How many labels have this text in their names, and a page of them: those that begin with it first."""
        wanted = text.casefold()
        if not wanted:
            return len(self.names), list(range(offset, min(offset + limit, len(self.names))))
        inside = [j for j, name in enumerate(self.folded) if wanted in name]
        inside.sort(key=lambda j: (not self.folded[j].startswith(wanted), self.folded[j]))
        return len(inside), inside[offset : offset + limit]

    def warm_up(self) -> None:
        """Compiles and reads what the first requests would wait for: one row and several, some labels and all."""
        row: Any = "a" if self.takes == "texts" else Vector(indices=[0], values=[1.0])
        for n in (1, 3):
            for ask in (
                LabelRequest(DEFAULT_K),
                LabelRequest(DEFAULT_K, only=(0,)),
                LabelRequest(DEFAULT_K, threshold=0.5),
            ):
                self.answer_all([Question([row] * n, ask)])


def stacked(vectors: Sequence[Vector], d: int) -> sp.csr_array:
    """Sparse rows (n, d) of vectors; what float32 has no square for is zero."""
    lengths = [len(vector.indices) for vector in vectors]
    indices = np.fromiter((j for vector in vectors for j in vector.indices), np.int32, sum(lengths))
    values = np.fromiter((x for vector in vectors for x in vector.values), np.float32, sum(lengths))
    values[np.abs(values) < UNDERFLOW] = 0
    X = sp.csr_array((values, indices, np.cumsum([0, *lengths], dtype=np.int32)), (len(vectors), d))
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def cut(answer: Answer, ask: LabelRequest) -> Answer:
    """The first labels of an answer: at most k, and none below the threshold."""
    kept = len(answer.names) if ask.k is None else ask.k
    if ask.threshold is not None:
        kept = min(kept, sum(p >= ask.threshold for p in answer.probabilities))
    return Answer(answer.names[:kept], answer.probabilities[:kept], answer.features)


def finite(found: list[Answer]) -> list[Answer] | Exception:
    """The answers, or why there are none: values that leave what float32 can hold have no probabilities."""
    if all(p == p for answer in found for p in answer.probabilities):
        return found
    return Refused(422, "The values are too large for this model: their sums overflow. Scale them as in training.")
