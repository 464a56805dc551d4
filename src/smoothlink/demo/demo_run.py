"""The demo's steps: a corpus -> features, split -> a model and a baseline -> metrics of both, labels of sentences."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from smoothlink.choices import Gaussian
from smoothlink.demo.corpus import Corpus
from smoothlink.demo.independent_baseline import fit_independent
from smoothlink.estimator import SmoothLinkClassifier
from smoothlink.fitting.settings import Notify
from smoothlink.metrics.evaluate import Evaluation, evaluate
from smoothlink.solve import ConjugateGradient

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

SENTENCES = (
    "solve a sparse linear system",
    "train a random forest",
    "read a csv file",
    "open a url and read the response",
    "draw from a normal distribution",
    "fast fourier transform of a real signal",
)
COMPARED = ("p@1", "p@3", "p@5", "ndcg@5", "psp@5", "hamming", "micro_f1", "macro_f1_alg4", "ece_top")
# Ridge systems solved to 1 % instead of 0.1 % halve the time; the logistic loss, which "auto" would try too, is found
# to be worse here and takes 10 s.
QUICK: dict[str, Any] = {"solver": ConjugateGradient(tol=1e-2), "loss": "squared"}
SELECTED: dict[str, Any] = {
    "ridge": 3.0,
    "kernel": Gaussian(bandwidth=1.0),
    "final_ridge": 3e-4,
}  # what held-out rows select
TEST_SHARE = 5  # one document in so many is for testing


class DemoProblem(NamedTuple):
    """Documents as TF-IDF rows, some of them for testing."""

    X: csr_array  # (n, d) float32, unit rows
    Y: csr_array  # (n, c)
    X_test: csr_array
    Y_test: csr_array
    label_names: list[str]
    vectorizer: TfidfVectorizer


def demo_problem(corpus: Corpus) -> DemoProblem:
    """Returns the documents as TF-IDF rows; a hash of its name decides whether a document is for testing."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    tested = np.array([zlib.crc32(name.encode()) % TEST_SHARE == 0 for name in corpus.names], bool)
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    texts = {test: [t for t, at in zip(corpus.texts, tested, strict=True) if at == test] for test in (False, True)}
    X, X_test = vectorizer.fit_transform(texts[False]), vectorizer.transform(texts[True])
    rows = np.flatnonzero(~tested), np.flatnonzero(tested)
    Y, Y_test = (csr_array(corpus.labels[numbers]) for numbers in rows)
    return DemoProblem(csr_array(X), Y, csr_array(X_test), Y_test, corpus.label_names, vectorizer)


def train(problem: DemoProblem, notify: Notify | None = None, *, selected: bool = False) -> SmoothLinkClassifier:
    """Returns a model with the defaults, less what takes time and changes nothing here.

    selected: with the settings that held-out rows select, to be done sooner.
    """
    model = SmoothLinkClassifier(**QUICK | (SELECTED if selected else {}))
    model._notify = notify
    model.fit(problem.X, problem.Y)
    model.label_names_ = problem.label_names
    return model


def compare_with_baseline(problem: DemoProblem, model: SmoothLinkClassifier) -> tuple[Evaluation, Evaluation]:
    """Returns the metrics of both on the same test documents."""
    counts = np.bincount(problem.Y.indices, minlength=problem.Y.shape[1])
    baseline = fit_independent(problem.X, problem.Y)
    predicted = baseline.predictions(problem.X_test, problem.Y_test)
    theirs = evaluate(problem.Y_test, predicted, label_counts=counts, n_train=problem.X.shape[0])
    return model.evaluate(problem.X_test, problem.Y_test), theirs


def label_sentences(
    problem: DemoProblem, model: SmoothLinkClassifier, sentences: Sequence[str], k: int = 5
) -> list[list[tuple[str, float]]]:
    """Returns the k most likely labels of each sentence, with their probabilities."""
    best: Any = model.predict_topk(csr_array(problem.vectorizer.transform(list(sentences))), k)
    names = np.array(problem.label_names, object)[best.indices].reshape(len(sentences), -1)
    chances = best.data.reshape(len(sentences), -1)
    return [list(zip(a.tolist(), p.tolist(), strict=True)) for a, p in zip(names, chances, strict=True)]
