"""Predictions in blocks: no array of all rows by all labels is ever made, and untrained labels stay last."""

import tracemalloc
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, fixed, multilabel, words

from smoothlink import Logistic, Softmax
from smoothlink.predict import (
    Batch,
    label_gains,
    label_part,
    merge_label_parts,
    one_each,
    predict_f1,
    predict_proba,
    predict_topk,
    predictions,
)
from smoothlink.steps.infer import f1_thresholds, propensities
from smoothlink.weights import ArrayWeights, to_half


@pytest.fixture(scope="module")
def many_labels():
    """200,000 labels, of which most occur once or never, a model of theirs, and 60 rows."""
    rng = np.random.default_rng(5)
    n, c = 60, 200_000
    X = rng.standard_normal((n, 8))
    Y = sp.csr_array((np.ones(3 * n, np.int8), rng.integers(0, c, 3 * n), np.arange(0, 3 * n + 1, 3)), (n, c))
    Y.sum_duplicates()
    Y.data[:] = 1
    return fixed(rank=3, kernel__features=10).fit(X, Y), X


def with_blocks(fitted, size):
    """A classifier that takes scores and features of so many bytes at a time."""
    found = copy(fitted)
    found.model_ = replace(fitted.model_, block_bytes=size)
    return found


def peak_of(call):
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("rank_by", ["probability", "psp"])
def test_the_best_of_200_000_labels_never_make_a_dense_array_of_all(many_labels, rank_by):
    fitted, X = with_blocks(many_labels[0], 1 << 20), many_labels[1]
    top, peak = peak_of(lambda: fitted.predict_topk(X, k=5, rank_by=rank_by))
    assert top.nnz == 5 * len(X)
    assert top.shape == (60, 200_000)
    whole = 4 * top.shape[0] * top.shape[1]  # bytes of float32 scores: 48 MB
    assert peak < whole / 4


def test_sets_of_200_000_labels_never_make_a_dense_array_of_all(many_labels):
    fitted, X = with_blocks(many_labels[0], 1 << 20), many_labels[1]
    for call in (fitted.predict, fitted.predict_f1):
        sets, peak = peak_of(lambda call=call: call(X))
        assert sets.shape == (60, 200_000)
        assert peak < 4 * 60 * 200_000 / 4


def test_the_default_block_bounds_the_rows_and_the_labels_at_a_time(many_labels):
    model = many_labels[0].model_
    rows = [part.stop - part.start for part in model.row_blocks(1000)]
    assert sum(rows) == 1000
    assert max(rows) * model.n_labels * 4 <= model.block_bytes
    labels = [part.stop - part.start for part in model.label_blocks(1000)]
    assert sum(labels) == model.n_labels
    assert max(labels) * 1000 * 4 <= model.block_bytes


def test_blocks_cover_all_rows_even_where_one_row_is_more_than_a_block(rng):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    expected = fitted.predict_topk(X).toarray()
    fitted = with_blocks(fitted, 1)
    np.testing.assert_allclose(fitted.predict_topk(X).toarray(), expected, rtol=1e-4, atol=1e-6)


def test_gains_are_inverse_propensities_of_the_training_counts(rng):
    X, Y = multilabel(rng)
    model = fixed().fit(X, Y).model_
    np.testing.assert_allclose(label_gains(model), propensities(Y.sum(axis=0), len(X)))


def test_ties_go_to_the_lower_label_in_both_rankings(rng):
    X, Y = multilabel(rng)
    Y[:, 4] = Y[:, 1]
    model = fixed().fit(X, Y).model_
    V = np.zeros(model.V.shape, np.float32)
    V[-1] = [0.25, 0.5, 0, 0.125, 0.5, 0.75]  # the intercept alone: whatever the order of summation, no rounding
    model = replace(model, V=ArrayWeights(V))
    for rank_by in ("probability", "psp"):
        order = predict_topk(model, model.embed(X.astype(np.float32)), 6, rank_by=rank_by).indices.reshape(-1, 6)
        assert (np.argwhere(order == 1)[:, 1] < np.argwhere(order == 4)[:, 1]).all()


def test_one_each_puts_one_label_in_a_row():
    np.testing.assert_array_equal(one_each(np.array([2, 0]), 3).toarray(), [[0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_batch_f1_is_algorithm_4_over_the_probabilities_of_these_rows(rng, task):
    X, Y = multilabel(rng) if task == "multilabel" else classes(rng)
    fitted = fixed(calibrate=True).fit(X, Y)
    counts = Y.sum(axis=0) if task == "multilabel" else np.bincount(Y)
    P = fitted.model_.calibrated(fitted.decision_function(X))
    cuts = f1_thresholds(np.clip(P, 0, 1), counts / len(X))
    found = predict_f1(fitted.model_, fitted.model_.embed(X.astype(np.float32)), over="batch")
    np.testing.assert_array_equal(found.toarray(), cuts <= P)


def test_predictions_agree_with_the_methods_of_the_classifier(rng):
    X, Y = multilabel(rng)
    fitted = fixed(calibrate=True).fit(X, Y)
    said = predictions(fitted.model_, fitted.model_.embed(X), sp.csr_array(Y))
    P = np.clip(fitted.predict_proba(X).astype(np.float64), 1e-7, 1 - 1e-7)
    np.testing.assert_array_equal(said.topk.indices, fitted.predict_topk(X, k=5).indices)
    np.testing.assert_array_equal(said.sets.toarray(), fitted.predict(X))
    np.testing.assert_array_equal(said.f1_sets.toarray(), fitted.predict_f1(X, over="batch"))
    expected = -(Y * np.log(P) + (1 - Y) * np.log1p(-P)).sum(axis=1)
    np.testing.assert_allclose(said.row_logloss, expected, rtol=1e-5)
    np.testing.assert_allclose(said.top_probability, P[np.arange(90), said.topk.indices.reshape(90, -1)[:, 0]])


@pytest.mark.parametrize("rank_by", ["probability", "psp"])
@pytest.mark.parametrize("task", ["multilabel", "classes"])
def test_parts_of_the_labels_put_together_are_the_predictions(rng, task, rank_by):
    X, y = multilabel(rng) if task == "multilabel" else classes(rng, c=6)
    fitted = fixed().fit(X, y)
    model, Y = fitted.model_, fitted._true_labels(y)
    H = model.embed_rows(fitted._validated_rows(X))
    parts = [
        label_part(model, Batch(model, H), Y, labels, k=3, rank_by=rank_by)
        for labels in (slice(0, 1), slice(1, 4), slice(4, 6))
    ]
    found, whole = (
        merge_label_parts(model, parts, Y, k=3, rank_by=rank_by),
        predictions(model, H, Y, k=3, rank_by=rank_by),
    )
    np.testing.assert_array_equal(found.topk.indices, whole.topk.indices)
    np.testing.assert_allclose(found.topk.data, whole.topk.data, rtol=1e-5)
    for name in ("sets", "f1_sets"):
        assert (getattr(found, name) != getattr(whole, name)).nnz == 0
    np.testing.assert_allclose(found.row_logloss, whole.row_logloss, rtol=1e-5)


def test_a_model_without_any_features_in_a_row_ranks_by_frequency(rng):
    X, Y = multilabel(rng)
    Y[30:, 2] = 0
    fitted = fixed().fit(sp.csr_array(np.where(rng.random(X.shape) < 0.15, X, 0)), Y)
    order = predict_topk(fitted.model_, fitted.model_.embed(sp.csr_array((1, X.shape[1]), dtype=np.float32)), 6)
    assert (np.diff(Y.sum(axis=0)[order.indices]) <= 0).all()


# Any block size, any precision


def tasks(rng, task):
    return multilabel(rng) if task != "multiclass" else classes(rng)


def settings_of(task):
    loss = {"multilabel": "squared", "logistic": Logistic(passes=2), "multiclass": Softmax(passes=2)}[task]
    return fixed(calibrate=True, loss=loss)


@pytest.mark.parametrize(
    ("task", "rank_by", "size"),
    [
        ("multilabel", "probability", 64),
        ("multilabel", "psp", 1),
        ("logistic", "probability", 1),
        ("logistic", "psp", 700),
        ("multiclass", "probability", 700),
        ("multiclass", "psp", 64),
    ],  # bytes, for 90 rows and 6 labels or 3
)
def test_the_best_in_blocks_of_any_size_are_the_best_of_all_probabilities(rng, task, rank_by, size):
    X, y = tasks(rng, task)
    fitted = settings_of(task).fit(X, y)
    P = fitted.predict_proba(X)
    S = fitted.decision_function(X)
    worth = P * label_gains(fitted.model_) if rank_by == "psp" else S
    order = np.argsort(-worth, axis=1, kind="stable")[:, :3]
    found = with_blocks(fitted, size).predict_topk(X, k=3, rank_by=rank_by)
    ranked = found.indices.reshape(len(X), 3)
    same = (ranked == order).all(axis=1)
    # Products of other blocks round otherwise: an order may differ only where two labels are worth the same to 1e-5.
    swapped = np.abs(np.take_along_axis(worth, ranked, 1) - np.take_along_axis(worth, order, 1)).max(axis=1)
    assert (swapped[~same] < 1e-5).all()
    np.testing.assert_allclose(found.data.reshape(-1, 3), np.take_along_axis(P, ranked, 1), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("task", "kept"), [("multilabel", 0), ("logistic", 1 << 30), ("multiclass", 0)])
def test_sets_and_losses_do_not_depend_on_blocks_or_on_keeping_features(rng, task, kept):
    X, y = tasks(rng, task)
    fitted = settings_of(task).fit(X, y)
    H, Y = fitted.model_.embed(X.astype(np.float32)), fitted._true_labels(y)
    expected, model = predictions(fitted.model_, H, Y), replace(fitted.model_, block_bytes=700)
    batch = Batch(model, H, feature_bytes=kept, batch_bytes=1, fewest_labels=2)
    found = merge_label_parts(model, [label_part(model, batch, Y, slice(0, model.n_labels))], Y)
    for name in ("sets", "f1_sets"):
        np.testing.assert_array_equal(getattr(found, name).toarray(), getattr(expected, name).toarray(), err_msg=name)
    np.testing.assert_array_equal(found.topk.indices, expected.topk.indices)
    np.testing.assert_allclose(found.row_logloss, expected.row_logloss, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.top_probability, expected.top_probability, rtol=1e-4)
    np.testing.assert_array_equal(fitted.predict_f1(X).shape, expected.sets.shape)


@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_probabilities_of_some_labels_are_columns_of_those_of_all(rng, task):
    X, y = tasks(rng, task)
    fitted = settings_of(task).fit(X, y)
    found = fitted.predict_proba(X, labels=[2, 0, 2])
    np.testing.assert_allclose(found, fitted.predict_proba(X)[:, [2, 0, 2]], rtol=1e-4, atol=1e-6)


def test_scores_of_some_labels_read_no_other_column(rng):
    X, Y = multilabel(rng)
    model = fixed().fit(X, Y).model_
    V = np.full(model.V.shape, np.nan, np.float32)
    V[:, [1, 4]] = model.V.columns([1, 4])
    H = model.embed(X.astype(np.float32))
    np.testing.assert_allclose(
        predict_proba(replace(model, V=ArrayWeights(V)), H, np.array([4, 1])),
        predict_proba(model, H)[:, [4, 1]],
        atol=1e-6,
    )


@pytest.mark.parametrize(("scale", "normalize"), [("unit", True), ("variance", False), ("none", False)])
def test_one_sparse_row_is_embedded_as_among_others(rng, scale, normalize):
    X, Y = words(rng)
    X = sp.csr_array(X.toarray() * (np.arange(X.shape[0]) != 5)[:, None])
    X.resize(X.shape[0], 1200)  # too wide to become dense
    model = fixed(scale=scale, normalize_embedding=normalize).fit(X, Y).model_
    assert model.linear_in_x
    X = X.astype(np.float32)
    alone = np.concatenate([model.embed(X[[i]]) for i in range(10)])
    np.testing.assert_allclose(alone, model.embed(X)[:10], rtol=1e-4, atol=1e-5)
    assert np.isnan(alone[5]).all()
    half = replace(model, W=to_half(model.W.values), V=to_half(model.V.values))
    np.testing.assert_allclose(half.embed(X), model.embed(X), rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(half.embed(X[[3]]), half.embed(X)[[3]], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(half.scores(half.embed(X)), model.scores(model.embed(X)), atol=0.02)
