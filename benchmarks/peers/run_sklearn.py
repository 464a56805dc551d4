"""scikit-learn: one-vs-rest logistic regressions, and one ridge regression onto all labels."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier

PACKAGE = "scikit-learn"
MOST_COLUMNS, MOST_BYTES = 20_000, 6e9  # of a dense X


def prepare(X: sp.csr_matrix, Y: sp.csr_matrix, job: dict[str, Any]) -> Any:
    n, d = X.shape
    if job["settings"]["model"] == "logistic":
        Y = Y.astype(np.int32)  # LabelBinarizer refuses float labels, and indices of 64 bits
        Y.indices, Y.indptr = Y.indices.astype(np.int32), Y.indptr.astype(np.int32)
        return X, Y
    job["dense"] = d <= MOST_COLUMNS and 4 * n * d <= MOST_BYTES
    return X.toarray() if job["dense"] else X, Y.toarray()


def fit(data: Any, job: dict[str, Any]) -> Any:
    X, Y = data
    settings = dict(job["settings"])
    if settings.pop("model") == "logistic":
        settings = {"solver": "liblinear", "C": 1.0, "max_iter": 1000, "random_state": job["seed"], **settings}
        classifier = OneVsRestClassifier(LogisticRegression(**settings), n_jobs=job["threads"])
        # Threads, because LIBLINEAR works outside Python's lock, and because memory is then that of one process.
        with warnings.catch_warnings(), joblib.parallel_backend("threading"):
            warnings.simplefilter("ignore")  # one for each label without rows
            return classifier.fit(X, Y)
    alpha = 1.0  # the library's own default
    if "ridge" in settings:  # as in smoothlink: a ridge of 1 is the mean diagonal entry of X'X
        squares = float(np.vdot(X, X) if job["dense"] else np.vdot(X.data, X.data))
        alpha = settings["ridge"] * squares / X.shape[1]
    return Ridge(alpha=alpha, solver="cholesky" if job["dense"] else "sparse_cg").fit(X, Y)


def predict(model: Any, X: sp.csr_matrix, job: dict[str, Any]) -> Any:
    if job["settings"]["model"] == "logistic":
        return model.predict_proba(X)
    return np.clip(model.predict(X.toarray() if job["dense"] else X), 0, 1)


def save(model: Any, path: Path) -> None:
    with path.open("wb") as out:
        pickle.dump(model, out)
