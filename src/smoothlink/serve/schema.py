"""What is asked and answered, as the OpenAPI description shows it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

LARGEST = 1e30  # of a value: products of larger ones leave what float32 can hold


def whole(text: str) -> str:
    """The text, unless it holds half a character, which JSON can spell and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half of a surrogate pair") from None
    return text


Text = Annotated[str, AfterValidator(whole)]


class Asked(BaseModel):
    """A request: nothing is converted, nothing unknown is passed over."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Vector(Asked):
    """A sparse row: the numbers of its features, from 0, and their values."""

    indices: list[Annotated[int, Field(ge=0, lt=1 << 31)]]
    values: list[Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]]

    @model_validator(mode="after")
    def as_many(self) -> Self:
        if len(self.indices) != len(self.values):
            raise ValueError(f"{len(self.indices)} indices and {len(self.values)} values; they must be as many")
        return self


class PredictRequest(Asked):
    """Texts, or vectors for a model that was trained on vectors."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"texts": ["solve a sparse linear system"], "k": 5}]})

    texts: list[Text] | None = Field(None, min_length=1)
    vectors: list[Vector] | None = Field(None, min_length=1)
    k: int | None = Field(None, ge=1, description="The k best labels; 5 unless there is a threshold.")
    threshold: float | None = Field(None, ge=0, le=1, description="Labels of this probability or more.")
    only: list[str] | None = Field(None, min_length=1, description="Only these labels.")

    @model_validator(mode="after")
    def either(self) -> Self:
        if (self.texts is None) == (self.vectors is None):
            raise ValueError('send either "texts" or "vectors"')
        return self


class ExplainRequest(Asked):
    """One text or vector, and the labels to explain."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "solve a sparse linear system", "labels": ["sparse"]}]}
    )

    text: Text | None = Field(None, max_length=20_000)
    vector: Vector | None = None
    labels: list[str] | None = Field(
        None, min_length=1, max_length=20, description="The three most likely ones where none are named."
    )
    top: int = Field(10, ge=1, le=1000, description="Features of each label, those of most weight.")

    @model_validator(mode="after")
    def either(self) -> Self:
        if (self.text is None) == (self.vector is None):
            raise ValueError('send either "text" or "vector"')
        return self


class Likely(BaseModel):
    """A label and its calibrated probability."""

    label: str
    probability: float


class Prediction(BaseModel):
    """The labels of one row, the best first."""

    labels: list[Likely]
    features: int = Field(description="How many features of the row the model knows; 0: label frequencies answer.")


class Predicted(BaseModel):
    """A prediction for each row, in order."""

    predictions: list[Prediction]


class Spoken(BaseModel):
    """What a feature adds to the score of a label."""

    feature: str
    contribution: float


class Word(BaseModel):
    """A word of the text, from code point `start` up to `end`, and what it adds to the score."""

    start: int
    end: int
    contribution: float


class Neighbour(BaseModel):
    """A label that travels with another: the cosine of their rows of U."""

    label: str
    similarity: float


class Explanation(BaseModel):
    """Why a label has its probability."""

    label: str
    probability: float
    features: list[Spoken]
    words: list[Word] = Field(description="Of a text, those that spoke for or against the label.")
    neighbours: list[Neighbour]


class Explained(BaseModel):
    """An explanation for each label, in order."""

    explanations: list[Explanation]


class Known(BaseModel):
    """A label, its number and how many training rows have it."""

    label: str
    number: int
    count: float


class Labels(BaseModel):
    """A page of the labels that were searched for."""

    total: int
    offset: int
    labels: list[Known]


class Example(BaseModel):
    """A text of the training set and its labels."""

    text: str
    labels: list[str]


class About(BaseModel):
    """What is served."""

    name: str
    takes: str = Field(description='"texts" or "vectors"')
    labels: int
    features: int
    version: str
    examples: list[Example]
    max_rows: int
    max_labels: int
    max_body: int


class Health(BaseModel):
    """Whether it serves."""

    status: str


class Problem(BaseModel):
    """Why a request was refused."""

    status: int
    reason: str
