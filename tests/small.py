"""Small labelled data and settings that leave nothing to held-out rows, for tests of the estimator."""

import copy

import numpy as np
import scipy.sparse as sp

from smoothlink import Gaussian, SmoothLinkClassifier
from smoothlink.choices import to_json
from smoothlink.parameters import LIMITS

# Every setting given and nothing calibrated: a fit takes a few milliseconds.
FIXED = {
    "rank": 4,
    "ridge": 1.0,
    "kernel": Gaussian(bandwidth=2.0, features=40),
    "final_ridge": 0.1,
    "loss": "squared",
    "calibrate": False,
}

WORDS = {"fruit": "apple pear plum", "metal": "iron copper zinc", "colour": "red green blue", "rare": "okapi tapir"}


def fixed(**changes) -> SmoothLinkClassifier:
    """A classifier of FIXED and changes such as kernel__features=9, without what its learner does not use of FIXED."""
    given = copy.deepcopy({name: value for name, value in (FIXED | changes).items() if "__" not in name})
    nested = {name: value for name, value in changes.items() if "__" in name}
    classifier = SmoothLinkClassifier(**given).set_params(**nested)
    for limit in LIMITS:
        if limit.applies(classifier.get_params(deep=False)):
            for name in FIXED.keys() - changes.keys() & limit.values.keys():
                if getattr(classifier, name) not in limit.values[name]:
                    setattr(classifier, name, "auto")
    return classifier


def shown(model) -> dict:
    """The parameters of a model, choices as names and values, which can be compared."""
    return {name: to_json(value) for name, value in model.get_params(deep=False).items()}


def multilabel(rng, n=90, d=10, c=6):
    """Dense features and 0/1 labels (n, c) that depend on them; every label occurs, and some row has several."""
    X = rng.standard_normal((n, d))
    scores = X @ rng.standard_normal((d, c)) + 0.5 * rng.standard_normal((n, c))
    return X, (scores > np.quantile(scores, 0.7, axis=0)).astype(np.int64)


def words(rng, n=90, d=40, c=6):
    """Sparse counts like those of words, with labels as above."""
    X = sp.csr_array(rng.poisson(0.15, (n, d)).astype(np.float64))
    scores = X @ rng.standard_normal((d, c)) + 0.5 * rng.standard_normal((n, c))
    return X, (scores > np.quantile(scores, 0.7, axis=0)).astype(np.int64)


def classes(rng, n=90, d=6, c=3):
    """Features and class numbers 0 .. c - 1, each of which occurs."""
    y = np.concatenate([np.arange(c), rng.integers(0, c, n - c)])
    return 1.5 * rng.standard_normal((c, d))[y] + rng.standard_normal((n, d)), y


def dense(A):
    return A.toarray() if sp.issparse(A) else np.asarray(A)


def documents(n=200, seed=0):
    """Each label says its words; every tenth row has no label."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for row in range(n):
        names = rng.choice(list(WORDS), size=rng.integers(1, 3), replace=False, p=[0.4, 0.3, 0.25, 0.05]).tolist()
        names = [] if row % 10 == 9 else names
        words = [rng.choice(WORDS[name].split()) for name in names for _ in range(3)]
        texts.append(" ".join([*words, *rng.choice(["the", "of", "and"], 3)]))
        labels.append(names)
    return texts, labels
