"""Where in a text its features stand, so that what they say can be shown on the words themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from smoothlink.text.features import NgramBlock, TextFeatures, column_finder

WORD = re.compile(r"\w+")


class Span(NamedTuple):
    """A part of a text, in code points."""

    start: int
    end: int


def places(features: TextFeatures, text: str) -> dict[int, list[Span]]:
    """For each column that a text has, where its n-grams stand. Words are cut before letters are made small, since
    small letters may be more letters; texts where that makes a difference to the words lose their places."""
    found: dict[int, list[Span]] = {}
    start = 0
    for block in features.blocks_:
        prepared, place = features._vectorizer(block.kind, block.ngrams).build_preprocessor(), column_finder(block)
        grams = word_grams if block.kind == "words" else letter_grams
        for term, span in grams(features, block, text, prepared):
            at = place(term)
            if at is not None:
                found.setdefault(start + at, []).append(span)
        start += block.width
    return found


def word_grams(
    features: TextFeatures, block: NgramBlock, text: str, prepared: Callable[[str], str]
) -> Iterator[tuple[str, Span]]:
    """Runs of words."""
    words = [(prepared(match.group()), Span(*match.span())) for match in re.finditer(features.token_pattern, text)]
    for n in range(block.ngrams[0], block.ngrams[1] + 1):
        for i in range(len(words) - n + 1):
            run = words[i : i + n]
            yield " ".join(word for word, _ in run), Span(run[0][1].start, run[-1][1].end)


def letter_grams(
    features: TextFeatures, block: NgramBlock, text: str, prepared: Callable[[str], str]
) -> Iterator[tuple[str, Span]]:
    """Runs of characters within words that blanks stand around, as scikit-learn's "char_wb" has them."""
    for match in re.finditer(r"\S+", text):
        padded = f" {prepared(match.group())} "
        for n in range(block.ngrams[0], block.ngrams[1] + 1):
            for i in range(max(1, len(padded) - n + 1)):
                start = match.start() + max(0, i - 1)
                yield padded[i : i + n], Span(start, min(match.end(), max(start + 1, match.start() + i - 1 + n)))
            if len(padded) <= n:
                break  # short words count once


def on_words(text: str, added: Mapping[int, float], where: Mapping[int, list[Span]]) -> list[tuple[Span, float]]:
    """What each word adds: a column's part is shared by the places of its n-grams, and by the words in each."""
    spans = [Span(*match.span()) for match in WORD.finditer(text)]
    sums = [0.0] * len(spans)
    owner: list[int] = [-1] * len(text)  # which word each character is in
    for i, span in enumerate(spans):
        owner[span.start : span.end] = [i] * (span.end - span.start)
    for column, amount in added.items():
        here = where.get(column, [])
        for span in here:
            words = sorted({owner[j] for j in range(span.start, span.end)} - {-1})
            for i in words:
                sums[i] += amount / (len(here) * len(words))
    return [(span, total) for span, total in zip(spans, sums, strict=True) if total]
