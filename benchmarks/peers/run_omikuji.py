"""omikuji: Parabel-like trees. It trains from a file only, and predicts one row at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import omikuji
import scipy.sparse as sp

PACKAGE = "omikuji"


def prepare(X: sp.csr_matrix, Y: sp.csr_matrix, job: dict[str, Any]) -> Any:
    """An XMC file, read by the library: `Model.train_on_data` in two steps, so that training is timed alone."""
    kept = np.diff(X.indptr) > 0  # a row without features stops the training
    path = Path(job["folder"]) / "train.txt"
    write(X[kept], Y[kept], path)
    name = omikuji.ffi.new("char[]", str(path).encode())
    pool = omikuji._ThreadPoolHandle(job["threads"])
    data = omikuji.lib.load_omikuji_data_set(name, pool.ptr)
    if data == omikuji.ffi.NULL:
        raise RuntimeError("omikuji could not read its training file")
    return omikuji.ffi.gc(data, omikuji.lib.free_omikuji_data_set), pool


def fit(data: Any, job: dict[str, Any]) -> Any:
    settings = dict(job["settings"])
    job["beam_size"] = settings.pop("beam_size", 10)
    hyper = omikuji.Model.default_hyper_param()
    if "loss" in settings:
        hyper.linear_loss_type = omikuji.LossType[settings.pop("loss").upper()].value
    for name, value in settings.items():
        setattr(hyper, name, value)
    rows, pool = data
    model = omikuji.lib.train_omikuji_model(rows, hyper, pool.ptr)
    if model == omikuji.ffi.NULL:
        raise RuntimeError("omikuji could not train")
    return omikuji.Model(model, pool)


def predict(model: Any, X: sp.csr_matrix, job: dict[str, Any]) -> Any:
    top = job["top"] or job["labels"]
    rows = zip(X.indptr[:-1], X.indptr[1:], strict=True)
    pairs = (list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)) for a, b in rows)
    return [model.predict(row, beam_size=job["beam_size"], top_k=top) for row in pairs]


def save(model: Any, path: Path) -> None:
    model.save(str(path))


def write(X: sp.csr_matrix, Y: sp.csr_matrix, path: Path) -> None:
    """XMC text: a header `n d c`, then `l1,l2 f:v f:v` per row."""
    with path.open("w") as out:
        print(*X.shape, Y.shape[1], file=out)
        for i in range(X.shape[0]):
            a, b = X.indptr[i], X.indptr[i + 1]
            features = zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)
            labels = Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist()
            print(",".join(map(str, labels)), *(f"{j}:{v:.8g}" for j, v in features), file=out)
