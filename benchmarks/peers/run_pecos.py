"""PECOS XR-Linear: label trees from PIFA embeddings, as its command `pecos.xmc.xlinear.train` makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

PACKAGE = "libpecos"


def prepare(X: sp.csr_matrix, Y: sp.csr_matrix, job: dict[str, Any]) -> Any:
    return unit(X), Y.astype(np.float32).tocsc()


def fit(data: Any, job: dict[str, Any]) -> Any:
    X, Y = data
    settings = dict(job["settings"])
    job["beam_size"] = settings.pop("beam_size", 10)
    labels = LabelEmbeddingFactory.create(Y, X, method="pifa", threads=job["threads"])
    chain = Indexer.gen(labels, seed=job["seed"], threads=job["threads"])
    return XLinearModel.train(X, Y, C=chain, threads=job["threads"], **settings)


def predict(model: Any, X: sp.csr_matrix, job: dict[str, Any]) -> Any:
    top = job["top"] or job["labels"]
    return model.predict(unit(X), only_topk=top, beam_size=job["beam_size"], threads=job["threads"])


def save(model: Any, path: Path) -> None:
    model.save(str(path))


def unit(X: sp.csr_matrix) -> sp.csr_matrix:
    """Rows of length 1, which the library does not see to (omikuji and napkinXC do), and cannot do without."""
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    scale = np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1), 0)
    data = X.data * np.repeat(scale, np.diff(X.indptr))
    return sp.csr_matrix((data.astype(np.float32), X.indices, X.indptr), X.shape)
