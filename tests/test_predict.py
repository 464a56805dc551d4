"""Answers in blocks: no array of all rows by all labels is ever made, and labels never seen stay last."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, fixed, multilabel

from smoothlink import model as module
from smoothlink.predict import best, label_gains, one_each, predict_f1, predict_topk, predictions
from smoothlink.steps.infer import f1_thresholds, propensities


@pytest.fixture(scope="module")
def many_labels():
    """200,000 labels, of which most occur once or never, a model of theirs, and 60 rows."""
    rng = np.random.default_rng(5)
    n, c = 60, 200_000
    X = rng.standard_normal((n, 8))
    Y = sp.csr_array((np.ones(3 * n, np.int8), rng.integers(0, c, 3 * n), np.arange(0, 3 * n + 1, 3)), (n, c))
    Y.sum_duplicates()
    Y.data[:] = 1
    return fixed(rank=3, n_features=10).fit(X, Y), X


def peak_of(call):
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("rank_by", ["probability", "psp"])
def test_the_best_of_200_000_labels_never_make_a_dense_array_of_all(many_labels, monkeypatch, rank_by):
    fitted, X = many_labels
    monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 20)
    fitted.set_params(rank_by=rank_by)
    top, peak = peak_of(lambda: fitted.predict_topk(X, k=5))
    assert top.nnz == 5 * len(X)
    assert top.shape == (60, 200_000)
    whole = 4 * top.shape[0] * top.shape[1]  # bytes of float32 scores: 48 MB
    assert peak < whole / 4


def test_sets_of_200_000_labels_never_make_a_dense_array_of_all(many_labels, monkeypatch):
    fitted, X = many_labels
    monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 20)
    for call in (fitted.predict, fitted.predict_f1):
        sets, peak = peak_of(lambda call=call: call(X))
        assert sets.shape == (60, 200_000)
        assert peak < 4 * 60 * 200_000 / 4


def test_the_default_block_bounds_the_rows_and_the_labels_at_a_time(many_labels):
    model = many_labels[0].model_
    rows = [part.stop - part.start for part in model.row_blocks(1000)]
    assert sum(rows) == 1000
    assert max(rows) * model.n_labels * 4 <= module.BLOCK_BYTES
    labels = [len(part) for part in model.label_blocks(1000)]
    assert sum(labels) == model.n_labels
    assert max(labels) * 1000 * 4 <= module.BLOCK_BYTES


def test_blocks_cover_all_rows_even_where_one_row_is_more_than_a_block(rng, monkeypatch):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    expected = fitted.predict_topk(X).toarray()
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    np.testing.assert_allclose(fitted.predict_topk(X).toarray(), expected, rtol=1e-4, atol=1e-6)


def test_gains_are_inverse_propensities_of_the_training_counts(rng):
    X, Y = multilabel(rng)
    model = fixed().fit(X, Y).model_
    np.testing.assert_allclose(label_gains(model), propensities(Y.sum(axis=0), len(X)))


def test_ties_go_to_the_lower_label_in_both_rankings(rng):
    X, Y = multilabel(rng)
    Y[:, 4] = Y[:, 1]
    model = fixed().fit(X, Y).model_
    H = model.embed(X.astype(np.float32))
    S = model.scores(H)
    S[:, 4] = S[:, 1]
    for rank_by in ("probability", "psp"):
        ranked = best(model, S, 6, rank_by).indices
        assert (np.argwhere(ranked == 1)[:, 1] < np.argwhere(ranked == 4)[:, 1]).all()


def test_one_each_puts_one_label_in_a_row():
    np.testing.assert_array_equal(one_each(np.array([2, 0]), 3).toarray(), [[0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_batch_f1_is_algorithm_4_over_the_probabilities_of_these_rows(rng, task):
    X, Y = multilabel(rng) if task == "multilabel" else classes(rng)
    fitted = fixed(calibrate=True).fit(X, Y)
    counts = Y.sum(axis=0) if task == "multilabel" else np.bincount(Y)
    P = fitted.predict_proba(X)
    cuts = f1_thresholds(np.clip(P, 0, 1), counts / len(X))
    found = predict_f1(fitted.model_, fitted.model_.embed(X.astype(np.float32)), over="batch")
    np.testing.assert_array_equal(found.toarray(), cuts <= P)


def test_predictions_agree_with_the_methods_of_the_classifier(rng):
    X, Y = multilabel(rng)
    fitted = fixed(calibrate=True).fit(X, Y)
    said = predictions(fitted.model_, fitted.model_.embed(X.astype(np.float32)), sp.csr_array(Y))
    P = np.clip(fitted.predict_proba(X).astype(np.float64), 1e-7, 1 - 1e-7)
    np.testing.assert_array_equal(said.topk.indices, fitted.predict_topk(X, k=5).indices)
    np.testing.assert_array_equal(said.sets.toarray(), fitted.predict(X))
    np.testing.assert_array_equal(said.f1_sets.toarray(), fitted.predict_f1(X, over="batch"))
    expected = -(Y * np.log(P) + (1 - Y) * np.log1p(-P)).sum(axis=1)
    np.testing.assert_allclose(said.row_logloss, expected, rtol=1e-5)
    np.testing.assert_allclose(said.top_probability, P[np.arange(90), said.topk.indices.reshape(90, -1)[:, 0]])


def test_a_model_without_any_features_in_a_row_ranks_by_frequency(rng):
    X, Y = multilabel(rng)
    Y[30:, 2] = 0
    fitted = fixed().fit(sp.csr_array(np.where(rng.random(X.shape) < 0.15, X, 0)), Y)
    order = predict_topk(fitted.model_, fitted.model_.embed(sp.csr_array((1, X.shape[1]), dtype=np.float32)), 6)
    assert (np.diff(Y.sum(axis=0)[order.indices]) <= 0).all()
