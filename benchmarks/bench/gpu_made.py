"""Made data of the authors' sizes in seconds, by NumPy alone: nothing has to be compiled on the machine of the card.

The plan is that of `smoothlink synth`, words and labels by power laws that topics tie together: a row takes a first
label, further ones mostly of the same topic, then words, most of them from the topics of its labels. Chunks of rows
have streams of their own, so that it does not matter how many threads draw them.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.read import Data
from smoothlink_paper.data_sets import Split

Array = NDArray[Any]

TOPICS, TOPICS_A_LABEL = 1000, 3
ON_TOPIC = 0.7  # of the words of a row
TOGETHER = 0.7  # of the further labels of a row that share the first one's topic
CHUNK = 1 << 16  # rows drawn together
MOST_LABELS = 16  # per row
THREADS = 16


class Sizes(NamedTuple):
    """Sizes of a synthetic set. Of the draws of a row some meet the same word or label, which counts once."""

    rows: int
    features: int
    labels: int
    words_drawn: float  # per row, on average
    labels_drawn: float = 1.0  # per row, on average; 1: exactly one

    def scaled(self, scale: float) -> Sizes:
        """The same, smaller."""
        rows, features, labels = (max(64, round(size * scale)) for size in self[:3])
        return self._replace(rows=rows, features=features, labels=labels)

    @property
    def topics(self) -> int:
        return max(1, min(TOPICS, self.features // 16, self.labels // 4))


class Tables(NamedTuple):
    """What ranks, 0 being the most frequent, stand for."""

    word: Array  # (d,) its column
    label: Array  # (c,) its column
    topics: Array  # (c, 3) of each rank of a label; the first is the rank modulo the number of topics
    idf: Array  # (d,) of each column


def made(sizes: Sizes, test_rows: int, seed: int) -> Split:
    """Training and test rows of one stream."""
    tables, n = tables_of(sizes, seed), sizes.rows + test_rows
    counts = [min(CHUNK, n - start) for start in range(0, n, CHUNK)]
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        parts = list(
            pool.map(lambda i: chunk(sizes, tables, counts[i], np.random.default_rng([seed, i])), range(len(counts)))
        )
    X, Y = (stacked([part[i] for part in parts], columns) for i, columns in enumerate((sizes.features, sizes.labels)))
    X.data = unit(tables.idf[X.indices], X.indptr)
    del parts
    return Split(*(Data(X[some], Y[some]) for some in (slice(sizes.rows), slice(sizes.rows, n))))


def tables_of(sizes: Sizes, seed: int) -> Tables:
    rng = np.random.default_rng([2015, seed])
    word, label = (rng.permutation(count).astype(np.int32) for count in (sizes.features, sizes.labels))
    others = rng.integers(0, sizes.topics, (sizes.labels, TOPICS_A_LABEL - 1), dtype=np.int32)
    first = np.arange(sizes.labels, dtype=np.int32) % sizes.topics
    idf = np.empty(sizes.features, np.float32)
    idf[word] = 1 + np.log1p(np.arange(sizes.features))  # the r-th word is r times rarer than the first
    return Tables(word, label, np.column_stack([first, others]), idf)


def chunk(sizes: Sizes, tables: Tables, b: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """The words and the labels of b rows."""
    t = sizes.topics
    first = ranks(rng, (b, 1), sizes.labels)
    together = rng.random((b, MOST_LABELS - 1)) < TOGETHER
    alike = ranks(rng, together.shape, sizes.labels // t) * t + first % t
    labels = np.hstack([first, np.where(together, alike, ranks(rng, together.shape, sizes.labels))])
    tagged = drawn(rng, b, sizes.labels_drawn, MOST_LABELS)
    wanted = drawn(rng, b, sizes.words_drawn, int(sizes.words_drawn + 5 * sizes.words_drawn**0.5))
    shape = b, int(wanted.max())
    label = np.take_along_axis(labels, (rng.random(shape) * tagged).astype(np.int32), axis=1)
    topic = tables.topics[label, rng.integers(0, TOPICS_A_LABEL, shape, dtype=np.int8)]
    words = ranks(rng, shape, sizes.features // t) * t + topic
    anywhere = rng.random(shape) >= ON_TOPIC
    words[anywhere] = ranks(rng, (int(anywhere.sum()),), sizes.features)
    return distinct(tables.word[words], wanted, sizes.features), distinct(tables.label[labels], tagged, sizes.labels)


def ranks(rng: np.random.Generator, shape: tuple[int, ...], count: int) -> Array:
    """Ranks 0 .. count - 1, the r-th about as often as 1 / r: floors of log-uniform numbers."""
    return np.exp(rng.random(shape) * np.log(count + 1)).astype(np.int32) - 1


def drawn(rng: np.random.Generator, b: int, mean: float, most: int) -> Array:
    """How often each row (b, 1) draws, at least once."""
    return np.minimum(1 + rng.poisson(mean - 1, (b, 1)), max(1, most))


class Rows(NamedTuple):
    """How long rows are, and their columns one after the other."""

    lengths: Array
    columns: Array


def distinct(names: Array, wanted: Array, count: int) -> Rows:
    """Of each row the first `wanted` names, ascending and each once."""
    names[np.arange(names.shape[1]) >= wanted] = count
    names.sort(axis=1)
    kept = names < count
    kept[:, 1:] &= names[:, 1:] != names[:, :-1]
    return Rows(kept.sum(axis=1, dtype=np.int32), names[kept])


def stacked(parts: list[Rows], columns: int) -> sp.csr_array:
    """Chunks under one another; every value is 1."""
    ptr = np.cumsum(np.concatenate([[0], *(part.lengths for part in parts)])).astype(np.int32)
    indices = np.concatenate([part.columns for part in parts])
    return sp.csr_array((np.ones(len(indices), np.float32), indices, ptr), (len(ptr) - 1, columns))


def unit(values: Array, ptr: Array) -> Array:
    """Values in rows of unit length; no row is empty."""
    lengths = np.sqrt(np.add.reduceat(values * values, ptr[:-1]))
    values /= np.repeat(lengths, np.diff(ptr))
    return values
