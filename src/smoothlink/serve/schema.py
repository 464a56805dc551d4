"""Requests and responses, as the OpenAPI description shows them, and the errors of requests that are refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from smoothlink.text.numbers import Document

MAX_VALUE = 1e30  # of a feature: products of larger values overflow float32
SHOWN_ERRORS = 3  # validation errors that one response names


class RefusedRequest(HTTPException):
    """A request that gets a status and a reason instead of a result."""


def error_response(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Returns the response {"status": 413, "reason": "..."}."""
    return JSONResponse({"status": status, "reason": reason}, status, headers)


def validation_reason(errors: Sequence[Any]) -> str:
    """Returns in one line what pydantic found wrong; nothing of the input is repeated, which may be anything."""
    reasons = []
    for error in errors[:SHOWN_ERRORS]:
        place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query"))
        text = str(error["msg"]).removeprefix("Value error, ")
        reasons.append(f"{place}: {text}" if place else text)
    more = len(errors) - SHOWN_ERRORS
    return "; ".join(reasons) + (f"; and {more} more" if more > 0 else "")


def check_surrogates(text: str) -> str:
    """Returns the text, unless it holds half a surrogate pair, which JSON can spell and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half of a surrogate pair") from None
    return text


Text = Annotated[str, AfterValidator(check_surrogates)]
LabelName = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(check_surrogates)]


class RequestBody(BaseModel):
    """A request: values are not converted, unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid")


Item = TypeVar("Item")
# Validated up to the first error: a request of 1 MiB may have 700,000, which took 5 s, and all other requests wait.
Items = Annotated[list[Item], Field(fail_fast=True)]
Value = Annotated[float, Field(ge=-MAX_VALUE, le=MAX_VALUE, allow_inf_nan=False)]
Row = Items[Value]
Numbers = Items[Value | None]


def to_document(text: str, numbers: Numbers | None) -> Document:
    return Document(text, None if numbers is None else [math.nan if one is None else one for one in numbers])


class Vector(RequestBody):
    """A sparse row: the numbers of its features, from 0, and their values."""

    indices: Items[Annotated[int, Field(ge=0, lt=1 << 31)]]
    values: Row

    @model_validator(mode="after")
    def check_lengths(self) -> Self:
        if len(self.indices) != len(self.values):
            raise ValueError(f"{len(self.indices)} indices and {len(self.values)} values; they must be as many")
        return self


class RowsRequestBody(RequestBody):
    """Texts, or vectors for a model that was trained on vectors."""

    texts: Items[Text] | None = Field(None, min_length=1)
    numbers: Items[Numbers | None] | None = Field(
        None, description="The numbers beside each text, for a model that was trained with them. null: not known."
    )
    vectors: Items[Vector] | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def check_rows(self) -> Self:
        if (self.texts is None) == (self.vectors is None):
            raise ValueError('send either "texts" or "vectors"')
        if self.numbers is not None and len(self.numbers) != len(self.texts or ()):
            raise ValueError(f"{len(self.numbers)} lists of numbers and {len(self.texts or ())} texts")
        return self

    @property
    def documents(self) -> list[Document] | None:
        """The texts, with the numbers beside them."""
        if self.texts is None:
            return None
        return [to_document(*pair) for pair in zip(self.texts, self.numbers or [None] * len(self.texts), strict=True)]


class PredictRequest(RowsRequestBody):
    """Texts, or vectors for a model that was trained on vectors."""

    k: int | None = Field(
        None, ge=1, description="How many labels to return at most. The default is 5, or all where a threshold is set."
    )
    threshold: float | None = Field(
        None,
        ge=0,
        le=1,
        description="The least probability of a returned label; null: the labels that the model predicts, by its own "
        "thresholds. That is also the default of a model that was trained for an aim (train --aim), without k.",
    )
    only: Items[str] | None = Field(None, min_length=1, description="The labels to choose from.")
    coverage: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Return sets that hold all labels of a row with this probability (docs/guarantees.md). It goes "
        "with neither k, threshold, only nor recall.",
    )
    recall: float | None = Field(
        None, gt=0, lt=1, description="Return sets that hold this share of a row's labels on average, in the same way."
    )

    @model_validator(mode="after")
    def check_guarantee(self) -> Self:
        given = [name for name in ("coverage", "recall") if getattr(self, name) is not None]
        others = [name for name in ("k", "threshold", "only") if name in self.model_fields_set]
        if given and [*given[1:], *others]:
            raise ValueError(f'"{given[0]}" goes with none of the others: leave "{[*given[1:], *others][0]}" out')
        return self


class LabelledRequest(RowsRequestBody):
    """Texts or vectors with their labels, for the model to learn or to forget."""

    labels: Items[Items[LabelName]] = Field(description="All labels of each row, by name.")

    @model_validator(mode="after")
    def check_labels(self) -> Self:
        rows = len(self.texts or self.vectors or ())
        if len(self.labels) != rows:
            raise ValueError(f"{len(self.labels)} lists of labels and {rows} rows; they must be as many")
        return self


class ExplainRequest(RequestBody):
    """One text or vector, and the labels to explain."""

    text: Text | None = None
    numbers: Numbers | None = Field(
        None, description="The numbers beside the text, if the model was trained with them."
    )
    vector: Vector | None = None
    labels: Items[str] | None = Field(
        None, min_length=1, max_length=20, description="The default is the three most probable labels."
    )
    top: int = Field(10, ge=1, le=1000, description="How many features to return per label, the largest first.")

    @model_validator(mode="after")
    def check_row(self) -> Self:
        if (self.text is None) == (self.vector is None):
            raise ValueError('send either "text" or "vector"')
        return self


class CorrectionRequest(RequestBody):
    """A document and the labels that a person gave it."""

    text: Text
    labels: Items[Text]
    numbers: Numbers | None = Field(None, description="The numbers beside the text, if the model takes some.")
    id: Text | None = Field(None, description="What the document is called in its table.")
    file: Text | None = Field(None, description="The name of the table.")


class LabelProbability(BaseModel):
    """A label, the name to show for it, its calibrated probability, and whether the model predicts it."""

    label: str
    name: str
    probability: float
    predicted: bool = Field(
        description="Whether it is above the model's own threshold, or of a multiclass model the best."
    )


class Prediction(BaseModel):
    """The labels of one row, the most probable first."""

    labels: list[LabelProbability]
    features: int = Field(
        description="How many features of the row the model knows. With 0 the prediction is the labels' frequencies."
    )


class PredictResponse(BaseModel):
    """A prediction per row, in order."""

    predictions: list[Prediction]


class TextSpan(BaseModel):
    """A part of the text, from code point `start` up to `end`."""

    start: int
    end: int


class FeatureContribution(BaseModel):
    """What a feature adds to the score of a label."""

    feature: str
    contribution: float
    spans: list[TextSpan] = Field(description="The first places of an n-gram in the text.")


class WordContribution(TextSpan):
    """A word of the text and what it adds to the score."""

    contribution: float


class SimilarLabel(BaseModel):
    """A label that often occurs with another, and the cosine similarity of their embeddings."""

    label: str
    name: str
    similarity: float


class Explanation(BaseModel):
    """Why a label has its probability."""

    label: str
    name: str
    probability: float
    features: list[FeatureContribution]
    words: list[WordContribution] = Field(description="The words of a text that raise or lower the score.")
    neighbours: list[SimilarLabel]


class ExplainResponse(BaseModel):
    """An explanation per label, in order."""

    explanations: list[Explanation]


class LabelInfo(BaseModel):
    """A label, the name to show for it, its number and how many training rows have it."""

    label: str
    name: str
    number: int | None = Field(description="null: a concept of the vocabulary that the model does not know.")
    count: float


class LabelsResponse(BaseModel):
    """A page of the labels that match a search."""

    total: int
    offset: int
    labels: list[LabelInfo]


class ExampleText(BaseModel):
    """A text of the training set and its labels."""

    text: str
    labels: list[str]


class Guarantee(BaseModel):
    """A promise that the model can keep, and the least probability of the labels in its sets."""

    promise: str = Field(description='"coverage" or "recall".')
    level: float
    threshold: float


class ModelResponse(BaseModel):
    """The model that is served, and the limits of a request."""

    name: str
    takes: str = Field(description='The kind of rows that the model takes: "texts" or "vectors".')
    labels: int
    features: int
    version: str
    examples: list[ExampleText]
    multiclass: bool = Field(description="Whether each row has exactly one label.")
    threshold: float | None = Field(
        description="The model's own threshold; null where labels have different ones, or the best label is predicted."
    )
    guarantees: list[Guarantee] = Field(
        description="Sets with a guarantee; none where the model has no conformal rows."
    )
    text_columns: list[str] = Field(description="The columns of the text in the training file, where they are known.")
    numbers: int = Field(description="How many numbers the model takes beside a text.")
    number_columns: list[str] = Field(description="Their columns in the training file, where they are known.")
    labels_column: str | None = Field(description="The column of the labels in the training file, where it is known.")
    id_column: str | None = Field(description="The column that says which document it is, where it is known.")
    stores: bool = Field(description="Whether the server stores corrections.")
    updatable: bool = Field(description="Whether the model learns rows that are sent to /update.")
    max_rows: int
    max_labels: int
    max_body: int
    max_upload: int


class UpdateResponse(BaseModel):
    """Rows that the model learns: they are on the server's disk, and predictions know of them within about a second."""

    rows: int
    new_labels: list[str] = Field(description="Labels that the model did not have before.")


class ForgetResponse(BaseModel):
    """Rows that the model has forgotten, and what only they had."""

    rows: int
    labels_removed: int
    features_removed: int
    approximate: str = Field(description="What was learnt with these rows and stays until the model is trained again.")


class HealthResponse(BaseModel):
    """The state of the server."""

    status: str


class ErrorResponse(BaseModel):
    """Why a request was refused."""

    status: int
    reason: str
