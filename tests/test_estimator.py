"""The classifier's answers: forms of y, what the methods say of each other, weights, seeds and blocks."""

from dataclasses import replace

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, dense, fixed, multilabel, words

from smoothlink import InputKernel, Laplacian, Logistic, SmoothLinkClassifier, Softmax, estimator
from smoothlink.estimator import _largest_product
from smoothlink.machines import threads
from smoothlink.steps.infer import propensities

METHODS = ("predict", "predict_proba", "decision_function", "predict_topk", "predict_f1")


def answers(fitted, X):
    """What every method says, as dense arrays."""
    return {name: dense(getattr(fitted, name)(X)) for name in METHODS}


def assert_same(found, expected, **tolerances):
    for name, answer in expected.items():
        if tolerances and answer.dtype.kind == "f":
            np.testing.assert_allclose(found[name], answer, err_msg=name, **tolerances)
        else:
            np.testing.assert_array_equal(found[name], answer, err_msg=name)


# Forms of y


@pytest.mark.parametrize(
    "form",
    [
        lambda Y: Y.astype(np.int8),
        lambda Y: Y.astype(bool),
        lambda Y: Y.astype(np.float64),
        lambda Y: Y.tolist(),
        lambda Y: np.asfortranarray(Y),
        sp.csr_matrix,
        sp.csr_array,
        sp.csc_matrix,
        sp.coo_array,
        sp.lil_array,
        lambda Y: sp.csr_array(Y.astype(bool)),
        lambda Y: sp.csr_matrix(Y.astype(np.int8)),
        lambda Y: sp.csc_array(Y.astype(np.float32)),
    ],
)
def test_label_matrices_of_every_form_give_one_model_and_sparse_ones_give_sparse_sets(rng, form):
    X, Y = multilabel(rng)
    plain, fitted = fixed().fit(X, Y), fixed().fit(X, form(Y))
    assert_same(answers(fitted, X), answers(plain, X))
    np.testing.assert_array_equal(fitted.classes_, np.arange(Y.shape[1]))
    assert isinstance(plain.predict(X), np.ndarray)
    assert plain.predict(X).dtype.kind == "i"
    for sets in (fitted.predict(X), fitted.predict_f1(X)):
        assert sp.issparse(sets) == sp.issparse(form(Y))
        assert not sp.issparse(sets) or sets.format == "csr"


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_matrix])
def test_features_of_every_form_give_one_model(rng, container):
    X, Y = words(rng)
    plain = fixed().fit(X.toarray(), Y)
    form = container(X.toarray())
    assert_same(answers(fixed().fit(form, Y), form), answers(plain, X), rtol=1e-3, atol=1e-5)


def test_stored_zeros_repeated_entries_and_unsorted_rows_change_nothing(rng):
    X, Y = words(rng)
    X = sp.vstack([sp.csr_array((3, X.shape[1])), X[3:]], format="csr")
    odd = sp.coo_array(X)
    rows, columns = np.concatenate([odd.row[::-1], odd.row, [0, 1]]), np.concatenate([odd.col[::-1], odd.col, [5, 6]])
    order = np.argsort(rows, kind="stable")
    data = np.concatenate([odd.data[::-1] / 2, odd.data / 2, [0, 0]])[order]
    indptr = np.searchsorted(rows[order], np.arange(X.shape[0] + 1))
    odd = sp.csr_array((data, columns[order], indptr), X.shape)
    before = odd.copy()
    assert not odd.has_canonical_format
    fitted = fixed(scale="unit").fit(odd, Y)
    expected = fixed(scale="unit").fit(X, Y)
    for test in (X, odd):
        assert_same(answers(fitted, test), answers(expected, X), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(odd.indices, before.indices)  # what was given stays as it is
    np.testing.assert_array_equal(odd.data, before.data)


@pytest.mark.parametrize(
    "ids",
    [[0, 1, 2], [-7, 3, 1000], [0.0, 1.0, 2.5e6], ["a", "bb", "ccc"]],
    ids=["numbers", "gaps", "floats", "texts"],
)
def test_class_ids_of_every_type_come_back(rng, ids):
    X, y = classes(rng)
    ids = np.array(ids)
    fitted, plain = fixed().fit(X, ids[y]), fixed().fit(X, y)
    np.testing.assert_array_equal(fitted.classes_, ids)
    np.testing.assert_array_equal(fitted.predict(X), ids[plain.predict(X)])
    np.testing.assert_array_equal(fitted.predict_proba(X), plain.predict_proba(X))
    assert fitted.predict(X).dtype == ids.dtype
    assert fitted.score(X, ids[y]) > 0.6


@pytest.mark.parametrize("ids", [[False, True], [-1, 1], ["no", "yes"]])
def test_binary_decisions_are_positive_for_the_second_class(rng, ids):
    X, y = classes(rng, c=2)
    ids = np.array(ids)
    fitted = fixed().fit(X, ids[y])
    decisions, P = fitted.decision_function(X), fitted.predict_proba(X)
    assert decisions.shape == (len(X),)
    assert P.shape == (len(X), 2)
    np.testing.assert_array_equal(fitted.predict(X), ids[(decisions > 0).astype(int)])
    np.testing.assert_array_equal(P[:, 1] > P[:, 0], decisions > 0)


def test_class_ids_as_objects_and_as_a_list_are_the_same(rng):
    X, y = classes(rng)
    names = np.array(["p", "q", "r"], dtype=object)[y]
    np.testing.assert_array_equal(fixed().fit(X, names).predict(X), fixed().fit(X, names.tolist()).predict(X))


def test_an_indicator_of_one_label_a_row_is_multiclass_unless_told_otherwise(rng):
    X, y = classes(rng)
    Y = np.eye(3, dtype=int)[y]
    by_ids, auto, told = fixed().fit(X, y), fixed().fit(X, Y), fixed(task="multilabel").fit(X, Y)
    np.testing.assert_array_equal(auto.predict_proba(X), by_ids.predict_proba(X))
    np.testing.assert_array_equal(auto.predict(X).argmax(axis=1), by_ids.predict(X))
    assert (auto.predict(X).sum(axis=1) == 1).all()
    assert auto.summary_["task"] == "multiclass"
    assert told.summary_["task"] == "multilabel"
    assert not np.allclose(told.predict_proba(X).sum(axis=1), 1)


def test_one_column_is_one_label_where_it_is_sparse_or_the_task_says_so(rng):
    X, Y = multilabel(rng, c=2)
    Y = Y[:, :1]
    sparse, told = fixed().fit(X, sp.csr_array(Y)), fixed(task="multilabel").fit(X, Y)
    assert sparse.predict_proba(X).shape == told.predict_proba(X).shape == (len(X), 1)
    np.testing.assert_array_equal(sparse.predict(X).toarray(), told.predict(X))
    assert (told.predict(X) == Y).mean() > 0.7


# What the methods say of each other


@pytest.mark.parametrize("labels", ["multilabel", "classes", "unseen labels"])
@pytest.mark.parametrize("calibrate", [False, True])
def test_probabilities_of_some_labels_are_columns_of_all(rng, labels, calibrate):
    X, Y = multilabel(rng)
    if labels == "classes":
        Y = np.arange(len(X)) % 5
    if labels == "unseen labels":
        Y[:, [0, 3]] = 0
    fitted = fixed(calibrate=calibrate).fit(X, Y)
    for some in ([3], [2, 0], [0, 3], [], np.array([1, 1, 4], np.uint8)):
        at = np.asarray(some, int)
        P, S = fitted.predict_proba(X), fitted.decision_function(X)
        np.testing.assert_allclose(fitted.predict_proba(X, labels=some), P[:, at], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(fitted.decision_function(X, labels=some), S[:, at], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("labels", [[1.5], [-1], [6], "01", [[0]], True])
def test_labels_that_are_no_positions_are_refused(rng, labels):
    X, Y = multilabel(rng)
    with pytest.raises(ValueError, match="labels"):
        fixed().fit(X, Y).predict_proba(X, labels=labels)


@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
@pytest.mark.parametrize("calibrate", [False, True])
def test_the_k_best_labels_are_those_of_the_highest_decisions_with_their_probabilities(rng, task, calibrate):
    X, Y = multilabel(rng)
    fitted = fixed(calibrate=calibrate).fit(X, Y if task == "multilabel" else np.arange(len(X)) % 5)
    S, P = fitted.decision_function(X), fitted.predict_proba(X)
    top = fitted.predict_topk(X, k=3)
    assert top.shape == S.shape
    assert top.nnz == 3 * len(X)
    ranked, values = top.indices.reshape(-1, 3), top.data.reshape(-1, 3)
    np.testing.assert_array_equal(ranked, np.argsort(-S, axis=1, kind="stable")[:, :3])
    np.testing.assert_array_equal(values, np.take_along_axis(P, ranked, axis=1))
    assert (np.diff(values, axis=1) <= 0).all()
    assert fitted.predict_topk(X, k=50).nnz == S.size  # no more than there are
    assert fitted.predict_topk(X).nnz == 5 * len(X)


def test_sets_are_the_labels_of_probability_above_one_half(rng):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    np.testing.assert_array_equal(fitted.predict(X), fitted.predict_proba(X) > 0.5)


@pytest.mark.parametrize("changes", [{}, {"loss": "logistic", "final_ridge": 1e-4}, {"calibrate": True}])
def test_probabilities_of_labels_lie_strictly_between_0_and_1(rng, changes):
    X, Y = multilabel(rng)
    P = fixed(**changes).fit(X, Y).predict_proba(100 * X)
    assert P.min() > 0
    assert P.max() < 1


def test_probabilities_of_classes_sum_to_one_even_with_classes_never_seen(rng):
    X, y = classes(rng)
    Y = sp.csr_array(np.eye(2000, dtype=int)[y])  # far more classes than rows
    P = fixed().fit(X, Y).predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(P[:, 3:], 0.5 / (len(X) + 1000), rtol=1e-5)


def test_a_row_alone_is_answered_as_among_others_but_for_batch_f1(rng):
    X, Y = multilabel(rng, n=200)
    fitted = fixed(calibrate=True).fit(X, Y)
    alone = sp.vstack([sp.csr_array(fitted.predict_f1(X[i : i + 1])) for i in range(40)]).toarray()
    np.testing.assert_array_equal(alone, fitted.predict_f1(X[:40]))
    # A row alone is all there is: where no label is more expected than found, it gets them all.
    batch = fitted.predict_f1(X[:1], over="batch")
    assert batch.sum() > fitted.predict_f1(X, over="batch")[0].sum()


def test_f1_sets_are_cut_at_the_thresholds(rng):
    X, Y = multilabel(rng, n=200)
    fitted = fixed(calibrate=True, aim="f1").fit(X, Y)
    assert fitted.thresholds_.shape == (Y.shape[1],)
    found = fitted.predict_f1(X, over="thresholds")
    np.testing.assert_array_equal(found, fitted.predict_proba(X) >= fitted.thresholds_)
    with pytest.raises(ValueError, match=r"over is 'rows'.*'batch'.*'thresholds'.*'auto'"):
        fitted.predict_f1(X, over="rows")


def test_f1_sets_of_class_ids_are_a_sparse_matrix_over_the_classes(rng):
    X, y = classes(rng)
    fitted = fixed(calibrate=True).fit(X, y)
    for over in ("thresholds", "batch"):
        sets = fitted.predict_f1(X, over=over)
        assert sets.shape == (len(X), 3)
        assert sets.format == "csr"


def test_ranking_by_propensity_lifts_rare_labels(rng):
    X, Y = multilabel(rng, n=300, c=8)
    for label in range(8):
        Y[rng.random(300) < label / 9, label] = 0  # ever rarer
    fitted = fixed(rank=8).fit(X, Y)
    found, lifted = (fitted.predict_topk(X, k=3, rank_by=by).indices for by in ("probability", "psp"))
    counts = Y.sum(axis=0)
    assert counts[lifted].mean() < counts[found].mean() - 1
    gains = fitted.predict_proba(X) * propensities(counts, len(X))
    np.testing.assert_array_equal(lifted.reshape(-1, 3), np.argsort(-gains, axis=1)[:, :3])


# Labels never seen, rows without labels or features


@pytest.mark.parametrize("changes", [{}, {"loss": "logistic"}, {"calibrate": True}, {"kernel": "linear"}])
def test_labels_never_seen_get_their_smoothed_prior_and_never_rank_above_seen_ones(rng, changes):
    X, Y = multilabel(rng, c=8)
    Y[:, [2, 5]] = 0
    fitted = fixed(**changes).fit(X, Y)
    np.testing.assert_allclose(fitted.predict_proba(X)[:, [2, 5]], 0.5 / (len(X) + 1), rtol=1e-6)
    ranked = fitted.predict_topk(X, k=8).indices.reshape(-1, 8)
    assert (np.sort(ranked[:, 6:], axis=1) == [2, 5]).all()
    S = fitted.decision_function(X)
    assert np.isfinite(S).all()
    assert (S[:, [2, 5]].max(axis=1) < np.delete(S, [2, 5], axis=1).min(axis=1)).all()
    assert not fitted.predict(X)[:, [2, 5]].any()
    for over in ("thresholds", "batch"):
        assert not fitted.predict_f1(X, over=over)[:, [2, 5]].any()


def test_labels_never_seen_do_not_rank_by_propensity_either(rng):
    X, Y = multilabel(rng, c=8)
    Y[:, [2, 5]] = 0
    ranked = fixed().fit(X, Y).predict_topk(X, k=8, rank_by="psp").indices.reshape(-1, 8)
    assert (np.sort(ranked[:, 6:], axis=1) == [2, 5]).all()


def test_a_class_whose_rows_all_weigh_nothing_counts_as_never_seen(rng):
    X, y = classes(rng)
    fitted = fixed().fit(X, y, sample_weight=(y != 1).astype(float))
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert 1 not in fitted.predict(X)
    np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1, rtol=1e-5)


def test_rows_without_labels_and_rows_of_zeros_are_legal(rng):
    X, Y = words(rng)
    X, Y[10:20] = sp.vstack([sp.csr_array((5, X.shape[1])), X[5:]], format="csr"), 0
    fitted = fixed().fit(X, sp.csr_array(Y))
    P = fitted.predict_proba(X)
    assert np.isfinite(P).all()
    np.testing.assert_array_equal(P[:5], P[:1].repeat(5, axis=0))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_row_without_features_is_answered_with_the_label_frequencies(rng, loss):
    X, Y = words(rng, n=300)
    empty = sp.csr_array((2, X.shape[1]))
    P = fixed(loss=loss).fit(X, Y).predict_proba(empty)
    np.testing.assert_allclose(P, np.tile((Y.sum(axis=0) + 0.5) / 301, (2, 1)), atol=2e-3)


# Weights


def repeated(X, y, times):
    stack = sp.vstack if sp.issparse(X) else np.vstack
    return stack([X] * times), np.concatenate([y] * times)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scale": "variance"},
        {"kernel": Laplacian(2.0, 40)},
        {"embedding": "principal"},
        {"embedding": "per_label"},
        {"embedding": "none"},
        {"input_kernel": InputKernel(bandwidth=1.0, features=30, map="random")},
        {"input_kernel": InputKernel(bandwidth=1.0)},  # every row is a landmark
        {"label_smoothing": 0.9},
        # One step a pass over all rows: the batches of a descent are drawn by row number.
        {"loss": Logistic(passes=3, batch_rows=10**6)},
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [multilabel, words])
def test_seeing_every_row_twice_is_seeing_it_once_with_weight_two(rng, make, changes):
    X, Y = make(rng)
    twice, weighted = fixed(**changes).fit(*repeated(X, Y, 2)), fixed(**changes).fit(X, Y, np.full(len(Y), 2.0))
    np.testing.assert_allclose(twice.predict_proba(X), weighted.predict_proba(X), rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(twice.model_.counts, weighted.model_.counts, rtol=1e-6)


@pytest.mark.parametrize("changes", [{}, {"loss": Softmax(passes=3, batch_rows=10**6)}], ids=str)
def test_whole_weights_are_repetitions_and_zero_is_absence(rng, changes):
    X, y = classes(rng)
    w = rng.integers(0, 4, len(y))
    once = fixed(**changes).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    weighted = fixed(**changes).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(weighted.predict_proba(X), once.predict_proba(X), rtol=1e-3, atol=1e-5)


def test_doubling_all_weights_changes_nothing(rng):
    X, Y = multilabel(rng)
    w = rng.random(len(X)) + 0.1
    one, two = fixed().fit(X, Y, w), fixed().fit(X, Y, 2 * w)
    np.testing.assert_allclose(two.predict_proba(X), one.predict_proba(X), rtol=1e-4, atol=1e-6)


def test_a_feature_of_zeros_changes_nothing(rng):
    X, Y = multilabel(rng)
    wide = np.hstack([X, np.zeros((len(X), 3))])
    np.testing.assert_allclose(
        fixed().fit(wide, Y).predict_proba(wide), fixed().fit(X, Y).predict_proba(X), rtol=1e-3, atol=1e-5
    )


def test_weights_move_the_fit_towards_the_heavy_rows(rng):
    X, y = classes(rng)
    heavy = np.where(y == 2, 50.0, 1.0)
    plain, moved = (fixed().fit(X, y, w).predict_proba(X)[:, 2] for w in (None, heavy))
    assert moved.mean() > plain.mean()


# Class weights


def test_class_weights_of_classes_are_example_weights(rng):
    X, y = classes(rng)
    names = np.array(["a", "b", "c"])[y]
    weights = {"a": 1.0, "b": 3.0, "c": 0.5}
    expected = fixed().fit(X, names, sample_weight=np.array([1.0, 3.0, 0.5])[y]).predict_proba(X)
    for class_weight in (weights, [1.0, 3.0, 0.5], np.array([1.0, 3.0, 0.5])):
        fitted = fixed(class_weight=class_weight).fit(X, names)
        np.testing.assert_array_equal(fitted.predict_proba(X), expected)
    share = len(y) / 3 / np.bincount(y)
    balanced = fixed(class_weight="balanced").fit(X, names).predict_proba(X)
    np.testing.assert_array_equal(balanced, fixed().fit(X, names, sample_weight=share[y]).predict_proba(X))


def test_class_weights_and_sample_weights_multiply(rng):
    X, y = classes(rng)
    w = rng.random(len(y)) + 0.5
    both = fixed(class_weight={1: 3.0}).fit(X, y, w).predict_proba(X)
    np.testing.assert_array_equal(both, fixed().fit(X, y, w * np.where(y == 1, 3.0, 1.0)).predict_proba(X))


def test_label_weights_turn_the_embedding_towards_the_heavy_labels(rng):
    X, Y = multilabel(rng)
    plain, heavy = fixed(rank=1).fit(X, Y), fixed(rank=1, class_weight={3: 100.0}).fit(X, Y)
    assert abs(heavy.label_directions_[3, 0]) > 0.95
    assert abs(plain.label_directions_[3, 0]) < 0.9
    array = np.ones(6)
    array[3] = 100
    np.testing.assert_array_equal(fixed(rank=1, class_weight=array).fit(X, Y).predict_proba(X), heavy.predict_proba(X))


def test_balanced_label_weights_favour_rare_labels(rng):
    X, Y = multilabel(rng, n=200)
    Y[20:, 4] = 0
    plain, balanced = fixed(rank=1).fit(X, Y), fixed(rank=1, class_weight="balanced").fit(X, Y)
    assert abs(balanced.label_directions_[4, 0]) > abs(plain.label_directions_[4, 0])


# Seeds and blocks


@pytest.mark.parametrize("settings", [{}, {"loss": "logistic"}])
def test_the_same_seed_repeats_exactly_with_everything_left_to_held_out_rows(rng, settings):
    X, Y = multilabel(rng)
    first, again = (SmoothLinkClassifier(random_state=7, **settings).fit(X, Y) for _ in range(2))
    assert_same(answers(again, X), answers(first, X))
    np.testing.assert_array_equal(first.model_.V, again.model_.V)


def test_the_same_seed_repeats_exactly_on_all_threads(rng):
    X, Y = words(rng, n=700, d=60)
    first, again = (fixed(kernel__features=900, loss=Logistic(passes=2)).fit(X, Y) for _ in range(2))
    assert _largest_product(X, 6, first._request()) > threads.SMALL_FIT
    np.testing.assert_array_equal(first.model_.V, again.model_.V)


def test_a_small_fit_runs_on_one_thread_and_gives_the_others_back(rng, monkeypatch):
    X, Y = multilabel(rng)
    most, seen = numba.get_num_threads(), []

    def train(*arguments, **options):
        seen.append(numba.get_num_threads())
        raise KeyboardInterrupt

    monkeypatch.setattr(estimator, "run", train)
    for n_features in (40, 10_000):
        with pytest.raises(KeyboardInterrupt):
            fixed(kernel__features=n_features).fit(X, Y)
        assert numba.get_num_threads() == most
    assert seen == [1, most]


def test_other_seeds_draw_other_features(rng):
    X, Y = multilabel(rng)
    found = [fixed(random_state=seed).fit(X, Y).model_.features.R for seed in (0, 1, np.int64(2), None)]
    assert len({R.tobytes() for R in found}) == 4
    same = [fixed(random_state=np.random.RandomState(3)).fit(X, Y).model_.features.R for _ in range(2)]
    np.testing.assert_array_equal(*same)


@pytest.mark.parametrize("block_rows", [1, 7, 45, 90, 1000])
@pytest.mark.parametrize("make", [multilabel, words])
@pytest.mark.parametrize("changes", [{}, {"loss": Logistic(passes=2)}, {"embedding": "none"}], ids=str)
def test_row_blocks_of_any_size_give_the_same_result(rng, make, block_rows, changes):
    X, Y = make(rng)
    whole, blocks = fixed(**changes).fit(X, Y), fixed(block_rows=block_rows, **changes).fit(X, Y)
    np.testing.assert_allclose(blocks.predict_proba(X), whole.predict_proba(X), rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_answers_do_not_depend_on_the_blocks_they_are_computed_in(rng, task):
    X, Y = multilabel(rng)
    fitted = fixed(calibrate=True).fit(X, Y if task == "multilabel" else np.arange(len(X)) % 5)
    expected = answers(fitted, X) | {"batch": dense(fitted.predict_f1(X, over="batch"))}
    fitted.model_ = replace(fitted.model_, block_bytes=700)
    assert len(list(fitted.model_.row_blocks(len(X)))) > 10
    assert len(list(fitted.model_.label_blocks(len(X)))) > 2
    found = answers(fitted, X) | {"batch": dense(fitted.predict_f1(X, over="batch"))}
    assert_same(found, expected, rtol=1e-4, atol=1e-5)


# The size of values


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array, lambda X: np.round(X * 1e3).astype(np.int64)])
def test_numbers_far_from_zero_are_learnt_from_as_if_they_were_near(rng, store, device):
    if device == "torch":
        pytest.importorskip("torch")
    X, Y = multilabel(rng)
    near = fixed(device=device).fit(X, Y).predict_proba(X)
    there = fixed(device=device).fit(store(X + 1e8), Y)
    np.testing.assert_allclose(there.predict_proba(store(X + 1e8)), near, atol=2e-3)


@pytest.mark.parametrize("wide", [("indptr",), ("indptr", "indices")])
def test_sparse_rows_with_64_bit_pointers_are_the_same_rows(rng, wide):
    """As they are where there are more than 2^31 values."""
    X, Y = words(rng)
    there = sp.csr_array(X)
    for name in wide:
        setattr(there, name, getattr(there, name).astype(np.int64))
    near = fixed().fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(fixed().fit(there, Y).predict_proba(there), near)


@pytest.mark.parametrize("size", [1e-23, 1e20])
def test_words_are_learnt_from_whatever_their_size(rng, size):
    X, Y = words(rng)
    near, there = (fixed().fit(A, Y).predict_proba(A) for A in (X, X * size))
    np.testing.assert_allclose(there, near, atol=1e-4)


# The story of a fit


def test_the_summary_tells_what_was_settled_and_what_it_took(rng):
    X, Y = multilabel(rng)
    fitted = SmoothLinkClassifier().fit(X, Y)
    story = fitted.summary_
    assert (story["rows"], story["features"], story["labels"]) == (90, 10, 6)
    assert story["rank"] == fitted.label_directions_.shape[1]
    assert 0 < story["captured_share"] <= 1
    assert all(story[name] > 0 for name in ("ridge", "final_ridge", "bandwidth", "random_features"))
    assert set(story["chosen_by"]) >= {"ridge", "rank", "bandwidth", "final_ridge"}
    assert story["chosen_by"]["scale"].startswith("X looks like a table, so columns have unit variance: 100 %")
    assert set(story["seconds"]) == set(story["peak_memory_mb"]) >= {"choose", "embed", "fit"}
    assert story["loss"] in story["held_out_criterion"]


def test_verbose_writes_the_stages_to_standard_error(rng, capsys):
    X, Y = multilabel(rng)
    fixed().fit(X, Y)
    assert capsys.readouterr().err == ""
    fixed(verbose=1).fit(X, Y)
    assert "embed" in capsys.readouterr().err


# Evaluation


def test_evaluation_of_class_ids_counts_unknown_classes_as_misses(rng):
    X, y = classes(rng)
    names = np.array(["a", "b", "c", "strange"])
    fitted = fixed().fit(X, names[y])
    plain = fitted.evaluate(X, names[y], bootstraps=20)
    assert plain.metrics["error"].value == pytest.approx(np.mean(fitted.predict(X) != names[y]))
    y[:30] = 3
    assert fitted.evaluate(X, names[y], bootstraps=20).metrics["error"].value >= 1 / 3


def test_evaluation_of_labels_takes_more_and_fewer_columns_than_were_trained(rng):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    same = fitted.evaluate(X, Y, bootstraps=20).metrics["p@1"].value
    assert same == pytest.approx(np.mean(Y[np.arange(90), fitted.decision_function(X).argmax(axis=1)]))
    more = np.hstack([Y, np.ones((90, 2), int)])
    assert fitted.evaluate(X, sp.csr_array(more), bootstraps=20).metrics["p@1"].value == pytest.approx(same)
    assert fitted.evaluate(X, Y[:, :4], bootstraps=20).metrics["p@1"].value <= same
    nothing = fitted.evaluate(X, np.zeros_like(Y), bootstraps=20).metrics["p@1"].value
    assert nothing == 0


def test_evaluation_refuses_what_it_cannot_compare(rng):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    with pytest.raises(ValueError, match="90 rows and y has 89"):
        fitted.evaluate(X, Y[1:])
    with pytest.raises(ValueError, match="shape"):
        fitted.evaluate(X, Y[:, 0])
    with pytest.raises(ValueError, match=r"0 and 1|0/1"):
        fitted.evaluate(X, 3 * Y)
