"""Small data under the names that README, docs/ and examples/ use."""

import numpy as np
import scipy.sparse as sp

import smoothlink
from smoothlink.demo.corpus import Corpus
from smoothlink.synth import Shape, synthesise

TOPICS = {
    "scipy": "solve linear system integral spline",
    "sparse": "sparse csr coo matrix nonzero",
    "numpy": "array shape broadcast dtype axis",
    "csv": "read csv file rows delimiter",
    "stats": "draw normal distribution sample variance",
    "urllib": "open url read response request",
}


def texts_and_labels(n=120):
    """Texts of one or two topics, which are their labels."""
    rng, names = np.random.default_rng(2015), list(TOPICS)
    labels = [sorted(rng.choice(names, rng.integers(1, 3), replace=False).tolist()) for _ in range(n)]
    texts = [" ".join(str(word) for name in row for word in rng.choice(TOPICS[name].split(), 4)) for row in labels]
    return texts, labels


def some_rows(n):
    """Sparse rows of 60 features with about two of 8 labels."""
    return synthesise(Shape(60, 8, 6, 2), n)


def write_rows(folder):
    """train.txt.xz, test.txt.xz and new.txt."""
    made = some_rows(160)
    for name, rows in {"train.txt.xz": slice(120), "test.txt.xz": slice(120, 160), "new.txt": slice(130, 140)}.items():
        smoothlink.write(made._replace(X=made.X[rows], Y=made.Y[rows]), folder / name)


def small_corpus():
    """In place of the demo's docstrings, whose reading and learning take long."""
    texts, labels = texts_and_labels()
    names = sorted(TOPICS)
    Y = sp.csr_array(np.array([[float(name in row) for name in names] for row in labels], np.float32))
    return Corpus(texts, names, Y, [f"document.{i}" for i in range(len(texts))])
