"""Why a label has its probability: `smoothlink.explain`, and for a text what each of its words contributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import scipy.sparse as sp

from smoothlink.explanation import LabelExplanation, Reason, explain, words_of
from smoothlink.serve.schema import RefusedRequest
from smoothlink.serve.service import PredictionService
from smoothlink.text.features import NgramBlock, TextFeatures, column_finder

EXPLAINED_LABELS = 3  # where the request names none
EXPLAINED_CHARACTERS = 20_000  # of a text
SHOWN_SPANS = 5  # of a feature
WORD = re.compile(r"\w+")


class Span(NamedTuple):
    """A part of a text, in code points."""

    start: int
    end: int


class PreparedRow(NamedTuple):
    """A text or vector with what its explanation needs besides the model."""

    row: Any
    X: sp.csr_array  # (1, d)
    name: Callable[[Reason], str]  # of a feature
    spans: Mapping[int, list[Span]]  # of the features of a text


def prepare_row(service: PredictionService, row: Any) -> PreparedRow:
    """Returns the features of a row, their names and where they are: most of the time that a long text takes."""
    X = service.features_of([row])
    if service.text_features is None:
        return PreparedRow(row, X, lambda reason: reason.name, {})
    word, numbers = words_of(service.text_features, row), service.number_names
    spans = feature_spans(service.text_features, row)
    return PreparedRow(row, X, lambda reason: numbers.get(reason.feature) or word(reason.feature), spans)


def explain_labels(service: PredictionService, X: sp.csr_array, labels: tuple[int, ...]) -> list[LabelExplanation]:
    """Returns an explanation per label; without labels those of the most probable ones."""
    try:
        return explain(service.classifier, X, labels=labels or None, k=EXPLAINED_LABELS, top=None)
    except ValueError as error:  # an embedding that cannot be explained
        raise RefusedRequest(422, str(error)) from error


def to_json(service: PredictionService, prepared: PreparedRow, found: LabelExplanation, top: int) -> dict[str, Any]:
    """Returns an explanation in JSON's types."""
    spans = prepared.spans
    added = {reason.feature: reason.added for reason in found.reasons}
    words = word_contributions(prepared.row, added, spans) if spans else []
    features = [
        {
            "feature": prepared.name(reason),
            "contribution": round(reason.added, 6),
            "spans": [span._asdict() for span in spans.get(reason.feature, [])[:SHOWN_SPANS]],
        }
        for reason in found.reasons[:top]
    ]
    return {
        **service.label_and_name(str(found.name)),
        "probability": round(found.probability, 6),
        "features": features,
        "words": [{**span._asdict(), "contribution": round(amount, 6)} for span, amount in words],
        "neighbours": [
            {**service.label_and_name(str(near.name)), "similarity": round(near.similarity, 4)}
            for near in found.neighbours
        ],
    }


def check_explained(service: PredictionService, row: Any) -> None:
    """Raises RefusedRequest where a text is too long to be explained."""
    if service.takes == "texts" and len(row) > EXPLAINED_CHARACTERS:
        reason = (
            f"This text has {len(row):,} characters; labels are explained for texts of up to {EXPLAINED_CHARACTERS:,}."
        )
        raise RefusedRequest(422, reason)


def warm_up(service: PredictionService) -> bool:
    """Loads and compiles what the first explanation would wait for; returns whether the model can be explained."""
    try:
        prepared = prepare_row(service, service.example_row())
        for found in explain_labels(service, prepared.X, ()):
            to_json(service, prepared, found, 1)
    except RefusedRequest:
        return False
    return True


def feature_spans(features: TextFeatures, text: str) -> dict[int, list[Span]]:
    """Returns for each feature of a text where its n-grams are. Words are split before they are made lower case, since
    lower case may have more letters; texts where that makes a difference to the words lose their spans."""
    found: dict[int, list[Span]] = {}
    start = 0
    for block in features.blocks_:
        preprocess, column_of = (
            features._vectorizer(block.kind, block.ngrams).build_preprocessor(),
            column_finder(block),
        )
        ngrams = word_ngrams if block.kind == "words" else letter_ngrams
        for term, span in ngrams(features, block, text, preprocess):
            column = column_of(term)
            if column is not None:
                found.setdefault(start + column, []).append(span)
        start += block.width
    return found


def word_ngrams(
    features: TextFeatures, block: NgramBlock, text: str, preprocess: Callable[[str], str]
) -> Iterator[tuple[str, Span]]:
    """Yields runs of words and where they are."""
    words = [(preprocess(match.group()), Span(*match.span())) for match in re.finditer(features.token_pattern, text)]
    for n in range(block.ngrams[0], block.ngrams[1] + 1):
        for i in range(len(words) - n + 1):
            run = words[i : i + n]
            yield " ".join(word for word, _ in run), Span(run[0][1].start, run[-1][1].end)


def letter_ngrams(
    features: TextFeatures, block: NgramBlock, text: str, preprocess: Callable[[str], str]
) -> Iterator[tuple[str, Span]]:
    """Yields runs of characters within words padded by blanks, like scikit-learn's "char_wb", and where they are."""
    for match in re.finditer(r"\S+", text):
        padded = f" {preprocess(match.group())} "
        for n in range(block.ngrams[0], block.ngrams[1] + 1):
            for i in range(max(1, len(padded) - n + 1)):
                start = match.start() + max(0, i - 1)
                yield padded[i : i + n], Span(start, min(match.end(), max(start + 1, match.start() + i - 1 + n)))
            if len(padded) <= n:
                break  # short words count once


def word_contributions(
    text: str, contributions: Mapping[int, float], spans: Mapping[int, list[Span]]
) -> list[tuple[Span, float]]:
    """Returns what each word contributes: a feature's contribution is divided evenly among its n-grams in the text, and
    that of an n-gram among its words."""
    words = [Span(*match.span()) for match in WORD.finditer(text)]
    sums = [0.0] * len(words)
    word_at: list[int] = [-1] * len(text)  # which word each character belongs to
    for i, word in enumerate(words):
        word_at[word.start : word.end] = [i] * (word.end - word.start)
    for feature, contribution in contributions.items():
        occurrences = spans.get(feature, [])
        for span in occurrences:
            covered = sorted(set(word_at[span.start : span.end]) - {-1})
            for i in covered:
                sums[i] += contribution / (len(occurrences) * len(covered))
    return [(word, total) for word, total in zip(words, sums, strict=True) if total]
