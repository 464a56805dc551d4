"""Small labelled data and settings that leave nothing to held-out rows, for tests of the estimator."""

import numpy as np
import scipy.sparse as sp

from smoothlink import SmoothLinkClassifier

# Every setting given and nothing calibrated: a fit takes a few milliseconds.
FIXED = {
    "rank": 4,
    "ridge": 1.0,
    "bandwidth": 2.0,
    "n_features": 40,
    "final_ridge": 0.1,
    "loss": "squared",
    "calibrate": False,
}


def fixed(**changes) -> SmoothLinkClassifier:
    return SmoothLinkClassifier(**FIXED | changes)


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
