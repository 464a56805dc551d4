"""napkinXC: probabilistic label trees (PLT) and binary relevance (BR). Its models live in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from napkinxc import models

PACKAGE = "napkinxc"


def prepare(X: sp.csr_matrix, Y: sp.csr_matrix, job: dict[str, Any]) -> Any:
    return X.astype(np.float32), Y.astype(np.float32)


def fit(data: Any, job: dict[str, Any]) -> Any:
    settings = dict(job["settings"])
    kind = getattr(models, settings.pop("model"))
    output = str(Path(job["folder"]) / "model")
    model = kind(output=output, threads=job["threads"], seed=job["seed"], **settings)
    model.fit(*data)
    return model


def predict(model: Any, X: sp.csr_matrix, job: dict[str, Any]) -> Any:
    return model.predict_proba(X, top_k=job["top"] or job["labels"])


def save(model: Any, path: Path) -> None:
    """Training has left it there."""
