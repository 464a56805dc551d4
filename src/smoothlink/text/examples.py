"""A few training texts that show what a model was made for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from smoothlink.labels import NamedLabels

LONGEST_EXAMPLE = 500  # characters
ROWS_SAMPLED = 2000  # rows


class TrainingExample(NamedTuple):
    """A training text, perhaps cut, with its labels."""

    text: str
    labels: list[str]


def some_examples(texts: Sequence[str], given: NamedLabels, count: int) -> list[TrainingExample]:
    """Returns texts of labels that differ from each other, uncut ones of some length before others; always the same."""
    if not count:
        return []
    n, Y = len(texts), given.Y
    among = np.flatnonzero(np.diff(Y.indptr) > 0)
    among = np.random.default_rng(0).permutation(among)[:ROWS_SAMPLED].tolist()
    among.sort(key=lambda row: not 40 <= len(texts[row]) <= LONGEST_EXAMPLE)  # stable
    found: list[TrainingExample] = []
    seen: set[int] = set()
    for row in among:
        labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()
        if len(found) < min(count, n) and texts[row].strip() and not seen & set(labels):
            found.append(TrainingExample(shorten_text(texts[row]), [given.names[j] for j in labels]))
            seen |= set(labels)
    return found


def shorten_text(text: str) -> str:
    """Returns at most LONGEST_EXAMPLE characters, whole words where possible."""
    text = text.strip()
    if len(text) <= LONGEST_EXAMPLE:
        return text
    head = text[: LONGEST_EXAMPLE - 1]
    return (head.rsplit(maxsplit=1)[0] if " " in head else head) + "…"
