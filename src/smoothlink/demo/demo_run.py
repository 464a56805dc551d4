"""The demo's parts: a corpus -> features, split -> a model and a baseline -> metrics of both, answers to questions."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from smoothlink.demo.corpus import Corpus
from smoothlink.demo.independent_baseline import Independent, fit_independent
from smoothlink.estimator import SmoothLinkClassifier
from smoothlink.metrics.evaluate import Evaluation, evaluate
from smoothlink.solve import ConjugateGradient

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

QUESTIONS = (
    "solve a sparse linear system",
    "train a random forest",
    "read a csv file",
    "open a url and read the response",
    "draw from a normal distribution",
    "fast fourier transform of a real signal",
)
METRICS = ("p@1", "p@3", "p@5", "ndcg@5", "psp@5", "hamming", "micro_f1", "macro_f1_alg4", "ece_top")
# Ridge systems solved to 1 % instead of 0.1 % halve the time; the logistic loss, which "auto" would try too, is found
# to be worse here and takes 10 s.
QUICK: dict[str, Any] = {"solver": ConjugateGradient(tol=1e-2), "loss": "squared"}
SETTLED = {"ridge": 3.0, "bandwidth": 1.0, "final_ridge": 3e-4}  # what the held-out rows say
TEST_SHARE = 5  # one document in so many is for testing


class Problem(NamedTuple):
    """Documents as TF-IDF rows, some of them held for testing."""

    X: csr_array  # (n, d) float32, unit rows
    Y: csr_array  # (n, c)
    X_test: csr_array
    Y_test: csr_array
    label_names: list[str]
    vectorizer: TfidfVectorizer


def pose(corpus: Corpus) -> Problem:
    """TF-IDF of the documents; a hash of its name decides whether a document is for testing."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    tested = np.array([zlib.crc32(name.encode()) % TEST_SHARE == 0 for name in corpus.names], bool)
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    texts = {test: [t for t, at in zip(corpus.texts, tested, strict=True) if at == test] for test in (False, True)}
    X, X_test = vectorizer.fit_transform(texts[False]), vectorizer.transform(texts[True])
    rows = np.flatnonzero(~tested), np.flatnonzero(tested)
    Y, Y_test = (csr_array(corpus.labels[numbers]) for numbers in rows)
    return Problem(csr_array(X), Y, csr_array(X_test), Y_test, corpus.label_names, vectorizer)


def train(
    problem: Problem, notify: Callable[[str, float], None] | None = None, *, settled: bool = False
) -> SmoothLinkClassifier:
    """A model with the defaults, less what takes time and changes nothing here; settled: to answer sooner."""
    model = SmoothLinkClassifier(**QUICK | (SETTLED if settled else {}))
    model._notify = notify
    model.fit(problem.X, problem.Y)
    model.label_names_ = problem.label_names
    return model


def compare(problem: Problem, model: SmoothLinkClassifier, baseline: Independent) -> tuple[Evaluation, Evaluation]:
    """Both on the same test documents, by the same measures."""
    counts = np.bincount(problem.Y.indices, minlength=problem.Y.shape[1])
    said = baseline.predictions(problem.X_test, problem.Y_test)
    theirs = evaluate(problem.Y_test, said, label_counts=counts, n_train=problem.X.shape[0])
    return model.evaluate(problem.X_test, problem.Y_test), theirs


def train_baseline(problem: Problem) -> Independent:
    """Independent classifiers on the same features."""
    return fit_independent(problem.X, problem.Y)


def answer(
    problem: Problem, model: SmoothLinkClassifier, questions: Sequence[str], k: int = 5
) -> list[list[tuple[str, float]]]:
    """The k most likely labels of each question, with their probabilities."""
    best: Any = model.predict_topk(csr_array(problem.vectorizer.transform(list(questions))), k)
    names = np.array(problem.label_names, object)[best.indices].reshape(len(questions), -1)
    chances = best.data.reshape(len(questions), -1)
    return [list(zip(a.tolist(), p.tolist(), strict=True)) for a, p in zip(names, chances, strict=True)]
