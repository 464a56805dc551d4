"""Estimates of P@1 without labels on slices of test rows, and alarms of a watch.

    python benchmarks/drift.py develop      # slices of other sets, on which corrections are chosen
    python benchmarks/drift.py estimate [SET ...]   # the five sets of docs/drift.md: estimate against truth
    python benchmarks/drift.py alarms [SET ...]     # false alarms of watches without a shift, rows until an alarm
    python benchmarks/drift.py page         # the tables of docs/drift.md

The slices are a third of the test rows each, and were fixed before any of them was measured. Four are chosen by the
features of the rows; the fifth by their true labels, which nothing that is without labels can know.
"""

from __future__ import annotations

import json
import lzma
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import smoothlink
from results import DATA, ROOT, results, store

SETS = ("yso-finna-en", "cooking-stackexchange", "debtags", "rcv1-topics-28k", "delicious")
DEVELOPMENT = ("bibtex", "enron", "rcv1-subset1", "corel5k", "medical", "yeast")  # and reuters21578, of texts
BY_FEATURES = ("few features", "unknown words", "unlike the mean", "a topic")
PARTS = {"yso-finna-en": (40_000, 20_000)}  # rows that are fitted and tested, the first after a shuffle
BAR = 2.0  # points of P@1


class Rows(NamedTuple):
    """The rows of a set: texts or a matrix, and labels."""

    rows: Any
    Y: Any  # names of each text, or a 0/1 matrix


def read(name: str) -> tuple[Rows, Rows]:
    """Returns training and test rows."""
    if name in ("bibtex", "enron", "rcv1-subset1", "corel5k", "medical", "yeast", "rcv1-topics-28k", "delicious"):
        train, test = (smoothlink.read(DATA / name / f"{part}.txt.xz") for part in ("train", "test"))
        d, c = max(train.X.shape[1], test.X.shape[1]), max(train.Y.shape[1], test.Y.shape[1])
        for data in (train, test):
            data.X.resize(data.X.shape[0], d)
            data.Y.resize(data.Y.shape[0], c)
        return Rows(train.X, train.Y), Rows(test.X, test.Y)
    return texts(name, "train"), texts(name, "test")


def texts(name: str, part: str) -> Rows:
    """Returns the texts of a set with the names of their labels; rows without a label are left out."""
    suffix = "txt" if name == "cooking-stackexchange" else "tsv"
    with lzma.open(DATA / name / f"{part}.{suffix}.xz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if name == "cooking-stackexchange":
            words = line.split(" ")
            labels = [word.removeprefix("__label__") for word in words if word.startswith("__label__")]
            found.append((" ".join(words[len(labels) :]), labels))
        elif name == "yso-finna-en":
            ids, title = line.split("\t", 1)
            found.append((title, ids.split(",")))
        else:
            _, labels_, *text = line.split("\t")
            prefix = "topics:" if name == "reuters21578" else ""
            each = [label for label in labels_.split(",") if label.startswith(prefix)]
            found.append(("\n".join(text), each))
    found = [(text, labels) for text, labels in found if any(labels)]
    if name in PARTS:
        order = np.random.default_rng(0).permutation(len(found))[: PARTS[name][part == "test"]]
        found = [found[i] for i in order]
    return Rows([text for text, _ in found], [labels for _, labels in found])


def fit(train: Rows) -> Any:
    """Returns a model with default settings of a quick fit."""
    if isinstance(train.rows, list):
        return smoothlink.TextSmoothLink(effort="quick", label_separator="none").fit(train.rows, train.Y)
    return smoothlink.SmoothLinkClassifier(effort="quick").fit(train.rows, train.Y)


class Tested(NamedTuple):
    """Test rows as a model gets them, and their true labels."""

    X: sp.csr_array
    Y: sp.csr_array  # (n, >= c)
    slices: dict[str, Any]  # numbers of the rows of each


def third(keys: Any) -> Any:
    """Returns the numbers, in order, of the third of the rows whose keys are smallest."""
    return np.sort(np.argsort(keys, kind="stable")[: len(keys) // 3])


def test_slices(model: Any, train: Rows, test: Rows) -> Tested:
    """Returns the test rows and their slices."""
    from sklearn.decomposition import TruncatedSVD

    of_texts = isinstance(train.rows, list)
    A = model.transform(train.rows) if of_texts else sp.csr_array(train.rows)
    X = model.transform(test.rows) if of_texts else sp.csr_array(test.rows)
    Y = model._read_labels(test.Y).Y if of_texts else sp.csr_array(test.Y)
    counts = (model.classifier_ if of_texts else model).model_.counts
    if of_texts:
        words = model.features_.unknown_words(test.rows)
        novelty = words[:, 0] / np.maximum(words[:, 1], 1)
    else:  # vectors have no unknown words: the mean rarity of their features
        rarity = np.log((1 + A.shape[0]) / (1 + np.bincount(A.indices, minlength=A.shape[1])))
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        novelty = np.bincount(rows, rarity[X.indices], X.shape[0]) / np.maximum(np.diff(X.indptr), 1)
    mean = np.asarray(A.mean(axis=0)).ravel()
    lengths = np.maximum(sp.linalg.norm(X, axis=1), 1e-12)
    directions = TruncatedSVD(2, random_state=0).fit(A[: min(A.shape[0], 20_000)])
    frequency = np.concatenate([counts, np.zeros(Y.shape[1] - len(counts))])
    most = sp.csr_array((frequency[Y.indices], Y.indices, Y.indptr), Y.shape).max(axis=1).toarray().ravel()
    return Tested(
        X,
        Y,
        {
            "all rows": np.arange(X.shape[0]),
            "few features": third(np.diff(X.indptr)),
            "unknown words": third(-novelty),
            "unlike the mean": third((X @ mean) / lengths),
            "a topic": third(-directions.transform(X)[:, 1] / lengths),
            "rare labels": third(most),
        },
    )


def develop(name: str) -> None:
    """Prints the mean probability of top labels and their truth, on slices of sets that docs/drift.md does not use."""
    train, test = read(name)
    began = time.perf_counter()
    model = fit(train)
    tested = test_slices(model, train, test)
    classifier = getattr(model, "classifier_", model)
    best = classifier.predict_topk(tested.X, k=1)
    hits = np.asarray(tested.Y[np.arange(tested.X.shape[0]), best.indices]).ravel() > 0
    print(f"{name} ({time.perf_counter() - began:.0f} s)")
    for key, rows in tested.slices.items():
        p, true = 100 * best.data[rows].mean(), 100 * hits[rows].mean()
        error = 100 * np.sqrt(hits[rows].var() / len(rows))
        print(f"  {key:16} {len(rows):6} estimated {p:6.2f} true {true:6.2f} +- {error:.2f} gap {p - true:+.2f}")


if __name__ == "__main__":
    kind, names = sys.argv[1], sys.argv[2:]
    actions: dict[str, Callable[[str], None]] = {"develop": develop}
    for name in names or ((*DEVELOPMENT, "reuters21578") if kind == "develop" else SETS):
        actions[kind](name)
