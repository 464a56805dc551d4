"""Rows -> what a model says of them, in blocks, so that no n x c array is ever whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.model import Model
from smoothlink.steps.calibrate import row_logloss
from smoothlink.steps.evaluate import Predictions
from smoothlink.steps.infer import TopK, above_half, f1_thresholds, propensities, sets_at, top_k, topk_csr

Array = NDArray[Any]


def predict_topk(model: Model, H: Array, k: int, *, rank_by: str = "probability") -> sp.csr_array:
    """The k best labels of each row in order, with their probabilities."""
    blocks = (best(model, model.scores(H[part]), k, rank_by) for part in model.row_blocks(len(H)))
    return topk_csr(blocks, model.n_labels)


def best(model: Model, S: Array, k: int, rank_by: str, P: Array | None = None) -> TopK:
    """The k best labels of a block of scores with their probabilities; P (b, c) where all are known already."""
    if rank_by == "psp":
        # Inverse propensities lift rare labels: expected propensity-scored gain in place of expected hits.
        P = model.probabilities(S) if P is None else P
        ranked = top_k(np.where(model.unseen, -1, P * label_gains(model).astype(np.float32)), k)
    else:
        ranked = top_k(S, k)
    if P is not None:
        return ranked._replace(values=np.take_along_axis(P, ranked.indices, axis=1))
    normalisers = model.normalisers(S) if model.multiclass else None
    return ranked._replace(values=model.probabilities(ranked.values, normalisers))


def label_gains(model: Model) -> Array:
    """The inverse propensity (c,) of each label."""
    return propensities(model.counts, max(1, round(model.total)))


def predict_sets(model: Model, H: Array) -> sp.csr_array:
    """Labels of probability above 1/2; multiclass: the one best label."""
    return sp.vstack([sets_of(model, model.scores(H[part])) for part in model.row_blocks(len(H))], format="csr")


def sets_of(model: Model, S: Array, P: Array | None = None) -> sp.csr_array:
    if not model.multiclass:
        return above_half(model.probabilities(S) if P is None else P)
    return one_each(S.argmax(axis=1), S.shape[1])


def one_each(labels: Array, c: int) -> sp.csr_array:
    """A 0/1 matrix with one label a row."""
    return sp.csr_array((np.ones(len(labels), np.int64), labels, np.arange(len(labels) + 1)), (len(labels), c))


def predict_f1(model: Model, H: Array, *, over: str) -> sp.csr_array:
    """Label sets that maximise each label's F1: at the stored thresholds, or by Algorithm 4 over these rows."""
    if over == "thresholds":
        return sp.vstack(
            [sets_at(model.calibrated(model.scores(H[part])), model.thresholds) for part in model.row_blocks(len(H))],
            format="csr",
        )
    if over != "batch":
        raise ValueError(f"over is {over!r}; possible are 'thresholds' (stored in the model) and 'batch' (these rows).")
    normalisers = None
    if model.multiclass:
        normalisers = np.concatenate([model.normalisers(model.scores(H[part])) for part in model.row_blocks(len(H))])
    frequency = np.clip(model.counts / max(model.total, 1e-300), 0, 1)
    sets = []
    for labels in model.label_blocks(len(H)):
        S = np.concatenate([model.scores(H[part], labels) for part in model.row_blocks(len(H))])
        Z = np.clip(model.calibrated(S, normalisers), 0, 1)
        sets.append(sets_at(Z, f1_thresholds(Z, frequency[labels])))
    return sp.hstack(sets, format="csr")


def predictions(model: Model, H: Array, Y: sp.csr_array, *, k: int = 5, rank_by: str = "probability") -> Predictions:
    """All that `steps.evaluate` asks for, of embedded rows whose true labels are Y (n, >= c)."""
    known = sp.csr_array(Y)[:, : model.n_labels]
    blocks, sets, losses, tops = [], [], [], []
    for part in model.row_blocks(len(H)):
        S = model.scores(H[part])
        P = model.probabilities(S)
        ranked = best(model, S, k, rank_by, P)
        blocks.append(ranked)
        sets.append(sets_of(model, S, P))
        losses.append(row_logloss(P, known[part], multiclass=model.multiclass))
        tops.append(ranked.values[:, 0])
    return Predictions(
        topk=topk_csr(blocks, model.n_labels),
        sets=sp.vstack(sets, format="csr"),
        f1_sets=predict_f1(model, H, over="batch"),
        row_logloss=np.concatenate(losses),
        top_probability=np.concatenate(tops),
    )
