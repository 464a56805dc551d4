"""Made data of any shape: power-law features and labels that latent topics tie together.

A row takes a first label by the power law, further ones mostly from the same topic, and then words: most from the
topics of its labels, the rest from all words alike. A label has a few topics, so labels share words, co-occur, and can
be told apart by what is low-rank: the shares of topics in a row. Values are TF-IDF, rows have unit length.

Each row is a function of the seed and its number alone. So rows 0..9 of a large set are those of a small one, blocks
and threads do not matter, and test rows are further rows of the same stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray
from scipy.sparse import csr_array

from smoothlink.data.read import Data
from smoothlink.errors import DataError
from smoothlink.machines.compiled import compiled
from smoothlink.machines.sorting import sort_by

Array = NDArray[Any]

TOPICS_A_LABEL = 3
ON_TOPIC = 0.7  # of the words of a row
TOGETHER = 0.7  # of the further labels of a row that share the first one's main topic
TRIES = 8  # draws for each distinct word or label that a row is to have
BLOCK_ENTRIES = 1 << 24  # places for words in a block of rows


@dataclass(frozen=True)
class Shape:
    """What is asked for."""

    features: int
    labels: int
    features_per_row: float  # distinct, on average
    labels_per_row: float = 1.0  # on average, at least one
    multiclass: bool = False  # exactly one label a row
    feature_exponent: float = 1.0  # the r-th most frequent feature occurs as r^-exponent
    label_exponent: float = 1.0
    topics: int | None = None
    seed: int = 0

    @property
    def topic_count(self) -> int:
        """As asked, or about two for the square root of the labels, up to 1000."""
        most = min(self.features, self.labels)
        return max(1, min(most, 1000, round(2 * self.labels**0.5)) if self.topics is None else min(most, self.topics))

    def check(self) -> None:
        """One message on what cannot be."""
        within = {"features": (1, 2**31 - 1), "labels": (1, 2**31 - 1)}
        within |= {"features_per_row": (1, self.features), "labels_per_row": (1, self.labels)}
        within |= {"feature_exponent": (0, 10), "label_exponent": (0, 10), "seed": (0, 2**63 - 1)}
        if self.topics is not None:
            within["topics"] = (1, 2**31 - 1)
        for name, (low, high) in within.items():
            value = getattr(self, name)
            if not low <= value <= high:
                what = name.replace("_", " ")
                raise DataError(
                    f"{what} is {value}; possible are {low} to {high}.\nPass --{what.replace(' ', '-')} so."
                )
        if self.multiclass and self.labels_per_row != 1:
            given = f"{self.labels_per_row:g}"
            raise DataError(f"multiclass rows have 1 label, not {given}.\nLeave --multiclass or --labels-per-row out.")

    def check_rows(self, *counts: int) -> None:
        """The same, and on numbers of rows."""
        self.check()
        for count in counts:
            if count < 1:
                raise DataError(f"{count} rows; at least 1 is needed.\nPass --rows and --test from 1 on.")


class Tables(NamedTuple):
    """What the rows are drawn from; all in order of topic, within a topic in order of frequency."""

    label: Array  # (c,) ids
    label_sums: Array  # (c,) running sums of their weights
    label_starts: Array  # (t + 1,) where the labels of each topic begin
    label_topics: Array  # (c, TOPICS_A_LABEL) of each place in `label`; the first is the one it stands under
    feature: Array  # (d,) ids
    feature_sums: Array
    feature_starts: Array
    idf: Array  # (d,) of each place in `feature`


def synthesise(shape: Shape, rows: int, *, start: int = 0, block_rows: int | None = None) -> Data:
    """Rows start .. start + rows - 1 of the stream that `shape` describes."""
    shape.check_rows(rows)
    tables = make_tables(shape)
    width = int(shape.features_per_row + 10 * shape.features_per_row**0.5) + 10
    block_rows = block_rows or max(1, BLOCK_ENTRIES // width)
    parts = list(blocks(shape, tables, width, start, start + rows, block_rows))
    X, Y = (stacked([part[i] for part in parts], c) for i, c in enumerate((shape.features, shape.labels)))
    return Data(X, Y)


class Entries(NamedTuple):
    """The rows of a block: how long they are, and their entries one after the other."""

    lengths: Array
    indices: Array
    values: Array


def blocks(
    shape: Shape, tables: Tables, width: int, start: int, stop: int, block_rows: int
) -> Iterator[tuple[Entries, Entries]]:
    """X and Y of each block of rows."""
    one = shape.multiclass or shape.labels_per_row == 1
    label_width = 1 if one else int(shape.labels_per_row + 10 * shape.labels_per_row**0.5) + 10
    for first in range(start, stop, block_rows):
        b = min(stop, first + block_rows) - first
        words, labels = np.zeros((b, width), np.int32), np.zeros((b, label_width), np.int32)
        values, counts = np.zeros((b, width), np.float32), np.zeros((b, 2), np.int64)
        draw_rows(
            np.uint64(shape.seed),
            first,
            float(shape.features_per_row),
            float(shape.labels_per_row),
            tables,
            words,
            values,
            labels,
            counts,
        )
        filled = np.arange(width) < counts[:, :1]
        tagged = np.arange(label_width) < counts[:, 1:]
        ones = np.ones(int(counts[:, 1].sum()), np.float32)
        yield Entries(counts[:, 0], words[filled], values[filled]), Entries(counts[:, 1], labels[tagged], ones)


def stacked(parts: list[Entries], columns: int) -> csr_array:
    """Blocks of rows under one another."""
    ptr = np.cumsum(np.concatenate([[0], *(part.lengths for part in parts)]))
    index: Any = np.int32 if ptr[-1] < 2**31 else np.int64
    indices = np.concatenate([part.indices for part in parts]).astype(index, copy=False)
    values = np.concatenate([part.values for part in parts])
    return csr_array((values, indices, ptr.astype(index)), (len(ptr) - 1, columns))


def make_tables(shape: Shape) -> Tables:
    """Weights by the power laws, ids and topics by the seed."""
    rng, t = np.random.default_rng([2015, shape.seed]), shape.topic_count
    label, weights, topics = ranked(shape.labels, shape.label_exponent, t, rng)
    feature, occurs, feature_topics = ranked(shape.features, shape.feature_exponent, t, rng)
    others = rng.integers(0, t, (shape.labels, TOPICS_A_LABEL - 1), dtype=np.int32)
    seen = -np.expm1(-shape.features_per_row * occurs)  # about the share of rows that have the feature
    return Tables(
        label=label,
        label_sums=np.cumsum(weights),
        label_starts=np.searchsorted(topics, np.arange(t + 1)),
        label_topics=np.column_stack([topics, others]),
        feature=feature,
        feature_sums=np.cumsum(occurs),
        feature_starts=np.searchsorted(feature_topics, np.arange(t + 1)),
        idf=(1 - np.log(seen)).astype(np.float32),
    )


def ranked(count: int, exponent: float, topics: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Ids, weights (they sum to 1) and topics of all columns, sorted by topic.

    Of each `topics` consecutive ranks every topic gets one, so that all have frequent and rare columns.
    """
    weights = np.arange(1, count + 1) ** -float(exponent)
    rounds = -(-count // topics)
    topic = rng.permuted(np.tile(np.arange(topics, dtype=np.int32), (rounds, 1)), axis=1).ravel()[:count]
    order = np.argsort(topic, kind="stable")
    return rng.permutation(count).astype(np.int32)[order], (weights / weights.sum())[order], topic[order]


@compiled()
def mixed(x: np.uint64) -> np.uint64:  # pragma: no cover - compiled
    """splitmix64's finaliser."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled()
def uniform(state: Array) -> float:  # pragma: no cover - compiled
    """The next number in (0, 1) of a row's stream."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    return (float(mixed(state[0]) >> np.uint64(11)) + 0.5) / 9007199254740992.0


@compiled()
def poisson(state: Array, mean: float) -> int:  # pragma: no cover - compiled
    """Arrivals before time `mean`."""
    count, time = 0, -np.log(uniform(state))
    while time < mean:
        count += 1
        time -= np.log(uniform(state))
    return count


@compiled()
def place(state: Array, sums: Array, start: int, stop: int) -> int:  # pragma: no cover - compiled
    """A place start .. stop - 1 by the weights whose running sums these are."""
    below = sums[start - 1] if start > 0 else 0.0
    u = below + uniform(state) * (sums[stop - 1] - below)
    return min(stop - 1, start + np.searchsorted(sums[start:stop], u))


@compiled()
def draw_labels(state: Array, wanted: int, tables: Tables, places: Array) -> int:  # pragma: no cover - compiled
    """Fills places in `tables.label`, all different -> how many."""
    c = len(tables.label)
    places[0] = place(state, tables.label_sums, 0, c)
    topic = tables.label_topics[places[0], 0]
    start, stop = tables.label_starts[topic], tables.label_starts[topic + 1]
    count = 1
    for _ in range(TRIES * (wanted - 1)):
        if count == wanted:
            break
        together = uniform(state) < TOGETHER
        new = place(state, tables.label_sums, start if together else 0, stop if together else c)
        if not (places[:count] == new).any():
            places[count] = new
            count += 1
    return count


@compiled()
def draw_words(
    state: Array, wanted: int, tables: Tables, labels: Array, places: Array, times: Array
) -> int:  # pragma: no cover - compiled
    """Fills places in `tables.feature`, all different, and how often each came -> how many."""
    count = 0
    for _ in range(TRIES * wanted):
        if count == wanted:
            break
        start, stop = 0, len(tables.feature)
        if uniform(state) < ON_TOPIC:
            label = labels[int(uniform(state) * len(labels))]
            topic = tables.label_topics[label, int(uniform(state) * TOPICS_A_LABEL)]
            start, stop = tables.feature_starts[topic], tables.feature_starts[topic + 1]
        new = place(state, tables.feature_sums, start, stop)
        at = 0
        while at < count and places[at] != new:
            at += 1
        places[at] = new
        times[at] = times[at] + 1 if at < count else 1
        count = max(count, at + 1)
    return count


@compiled(parallel=True)
def draw_rows(
    seed: np.uint64,
    first: int,
    mean_words: float,
    mean_labels: float,
    tables: Tables,
    words: Array,
    values: Array,
    labels: Array,
    counts: Array,
) -> None:  # pragma: no cover - compiled
    """Rows first, first + 1, ..: ids of words (b, width) with their values and of labels, ascending, and how many."""
    for i in prange(len(words)):
        state = np.empty(1, np.uint64)
        state[0] = mixed(mixed(seed + np.uint64(0x632BE59BD9B4E019)) + np.uint64(first + i))
        places, times = np.empty(words.shape[1], np.int64), np.empty(words.shape[1], np.int64)
        tagged = np.empty(labels.shape[1], np.int64)
        n_labels = draw_labels(state, min(labels.shape[1], 1 + poisson(state, mean_labels - 1)), tables, tagged)
        wanted = min(words.shape[1], 1 + poisson(state, mean_words - 1))
        n_words = draw_words(state, wanted, tables, tagged[:n_labels], places, times)
        order = np.arange(n_words)
        sort_by(tables.feature[places[:n_words]], order)
        length = 0.0
        for j in range(n_words):
            at = places[order[j]]
            words[i, j] = tables.feature[at]
            values[i, j] = (1 + np.log(times[order[j]])) * tables.idf[at]
            length += values[i, j] ** 2
        values[i, :n_words] /= np.float32(np.sqrt(length))
        of_labels = np.arange(n_labels)
        sort_by(tables.label[tagged[:n_labels]], of_labels)
        labels[i, :n_labels] = tables.label[tagged[of_labels]]
        counts[i, 0], counts[i, 1] = n_words, n_labels
