"""Why a label has its probability: `smoothlink.explain`, and on a text the words that spoke."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from smoothlink.data.predictions import LabelRequest
from smoothlink.explanation import LabelExplanation, explain
from smoothlink.serve.http_errors import Refused
from smoothlink.serve.schema import ExplainRequest, Vector
from smoothlink.serve.service import Oracle, Question

BEST = 3  # labels, where none are named


class Wanted(NamedTuple):
    """A request, checked."""

    question: Question
    labels: tuple[int, ...]
    top: int


def wanted(oracle: Oracle, asked: ExplainRequest) -> Wanted:
    """What a request asks, if it can be asked."""
    texts = None if asked.text is None else [asked.text]
    vectors = None if asked.vector is None else [asked.vector]
    return Wanted(oracle.question(texts, vectors), oracle.positions(asked.labels or ()), asked.top)


def explained(oracle: Oracle, asked: Wanted) -> list[dict[str, Any]]:
    """The explanations in JSON's types."""
    row = asked.question.rows[0]
    given = row if oracle.takes == "texts" else oracle.rows([row])
    try:
        found = explain(oracle.model, given, labels=asked.labels or None, k=BEST, top=None)
    except ValueError as error:  # a first stage that is not looked into
        raise Refused(422, str(error)) from error
    where = {}
    if oracle.text_features is not None:
        from smoothlink.serve.highlight import places

        where = places(oracle.text_features, row)
    return [spoken(one, row, where, asked.top) for one in found]


def spoken(found: LabelExplanation, row: Any, where: dict[int, Any], top: int) -> dict[str, Any]:
    words = []
    if where:
        from smoothlink.serve.highlight import on_words

        words = on_words(row, {reason.feature: reason.added for reason in found.reasons}, where)
    return {
        "label": str(found.name),
        "probability": round(found.probability, 6),
        "features": [
            {"feature": reason.name, "contribution": round(reason.added, 6)} for reason in found.reasons[:top]
        ],
        "words": [{"start": s.start, "end": s.end, "contribution": round(added, 6)} for s, added in words],
        "neighbours": [{"label": str(n.name), "similarity": round(n.similarity, 4)} for n in found.neighbours],
    }


def warm_up(oracle: Oracle) -> None:
    """Loads and compiles what the first explanation would wait for."""
    row: Any = "a" if oracle.takes == "texts" else Vector(indices=[0], values=[1.0])
    with contextlib.suppress(Refused):
        explained(oracle, Wanted(Question([row], LabelRequest()), (), 1))
