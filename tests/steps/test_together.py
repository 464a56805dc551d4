"""W, V and D trained together on labels that a batch shares: groups, inclusion, exact steps, calibrated outcomes."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, log_softmax, softmax

from smoothlink.joint.negatives import (
    DIRECT_RATE,
    DIRECT_ROWS,
    DIRECT_START,
    LENGTH,
    RATE,
    Sampling,
    batch_labels,
    batches,
    by_feature,
    cluster_rows,
    cooccurring_pairs,
    initial_state,
    no_pairs,
    sparse_weights_of,
    start_weights,
    train_with_negatives,
    unseen_logs,
)


def problem(rng, n=400, d=60, c=30, multiclass=False):
    """Sparse rows whose labels follow from a few directions."""
    X = sp.csr_array(np.where(rng.random((n, d)) < 0.1, rng.random((n, d)), 0).astype(np.float32))
    S = 4 * X.toarray() @ rng.standard_normal((d, 5)) @ rng.standard_normal((5, c)) / np.sqrt(5) - 2
    if multiclass:
        Y = np.eye(c)[(S + rng.gumbel(size=S.shape)).argmax(axis=1)]
    else:
        Y = rng.random(S.shape) < expit(S)
    X.indices = X.indices.astype(np.int32)
    return X, sp.csr_array(Y.astype(np.float32))


def start(rng, d=60, k=8):
    return rng.standard_normal((d, k), dtype=np.float32)


def descent(X, Y, W, groups, knobs, *, w=None, softmax=False, pairs=None, state=None, stop=None, **rest):
    """The state after all passes, or after `stop` of them."""
    w = np.ones(X.shape[0], np.float32) if w is None else w
    pairs = no_pairs(Y.shape[1]) if pairs is None else pairs
    if state is None:
        state = initial_state(W.copy(), w @ Y, float(w.sum()), pairs, softmax=softmax)
    passes = train_with_negatives(X, Y, w, groups, state, pairs, softmax=softmax, knobs=knobs, **{"seed": 0, **rest})
    return next((found for found in passes if found.done == stop), state)


def scores(X, state, D=None):
    H = X @ state.W
    H /= np.maximum(np.linalg.norm(H, axis=1, keepdims=True), 1e-30)
    S = np.hstack([H, np.ones((len(H), 1))]) @ state.decoder()
    return S if D is None else S + X @ D


def in_groups(n, size):
    return np.array_split(np.arange(n), n // size)


def test_groups_are_all_rows_once_in_about_the_size_asked_for(rng):
    rows = np.sort(rng.permutation(1000)[:777])
    groups = cluster_rows(rng.standard_normal((1000, 6)), rows, 17, seed=3)
    np.testing.assert_array_equal(np.sort(np.concatenate(groups)), rows)
    assert {len(g) for g in groups} <= set(range(8, 18))


def test_rows_that_point_the_same_way_share_a_group(rng):
    kind = rng.permutation(np.repeat(np.arange(16), 16))
    H = 5 * rng.standard_normal((16, 10))[kind] * rng.random((256, 1)) + 0.01 * rng.standard_normal((256, 10))
    groups = cluster_rows(H, np.arange(256), 16, seed=0)
    pure = [np.bincount(kind[g]).max() / len(g) for g in groups]
    assert np.mean(pure) > 0.7 > 3 * np.mean([np.bincount(kind[g]).max() / len(g) for g in in_groups(256, 16)]) - 0.5


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_a_few_rows_are_a_few_groups(rng, n):
    groups = cluster_rows(rng.standard_normal((9, 3)), np.arange(n), 4, seed=0)
    assert sorted(np.concatenate([*groups, []])) == list(range(n))


def test_every_pass_sees_every_row_once(rng):
    groups = in_groups(100, 7)
    orders = []
    for sweep in range(2):
        orders.append(np.concatenate([rows for rows, _ in batches(groups, 3, sweep, seed=1)]))
        np.testing.assert_array_equal(np.sort(orders[-1]), np.arange(100))
    assert (orders[0] != orders[1]).any()
    for rows, group in batches(groups, 3, 0, seed=1):
        for g in np.unique(group):
            assert any(np.array_equal(rows[group == g], rows_of) for rows_of in groups)


def test_a_batch_sees_the_labels_of_its_rows_and_some_more(rng):
    _, Y = problem(rng)
    place = np.full(30, -1, np.int32)
    rows = np.array([5, 17, 3])
    labels, at, who = batch_labels(rows, Y, 4, np.random.default_rng(0), place)
    assert set(labels) >= set(Y[rows].indices)
    assert len(labels) <= len(set(Y[rows].indices)) + 4
    found = np.zeros((3, 30))
    found[who, labels[at]] = 1
    np.testing.assert_array_equal(found, Y[rows].toarray())


def test_a_label_is_as_likely_to_be_seen_as_its_log_says(rng):
    _, Y = problem(rng, n=120)
    groups = in_groups(120, 6)
    expected = np.exp(unseen_logs(groups, Y, 3, 10))
    seen, tries = np.zeros(30), 4000
    has = np.array([np.asarray(Y[g].sum(axis=0)).ravel() > 0 for g in groups])
    for _ in range(tries):
        others = rng.integers(0, len(groups), 2)  # beside a row's own group
        seen += has[others].any(axis=0) | np.isin(np.arange(30), rng.integers(0, 30, 10))
    np.testing.assert_allclose(seen / tries, expected, atol=0.05)


def test_entries_by_word_are_the_same_entries(rng):
    columns, places = rng.integers(0, 9, 40).astype(np.int32), rng.integers(0, 5, 40).astype(np.int32)
    values = rng.random(40).astype(np.float32)
    words, starts, at, what = by_feature(columns, places, values)
    A = sp.coo_array((values, (columns, places)), (9, 5)).toarray()
    found = np.zeros((9, 5))
    for i, word in enumerate(words):
        np.add.at(found[word], at[starts[i] : starts[i + 1]], what[starts[i] : starts[i + 1]])
    np.testing.assert_allclose(found, A, rtol=1e-6)
    assert [len(x) for x in by_feature(columns[:0], places[:0], values[:0])] == [0, 1, 0, 0]


@pytest.mark.parametrize("multiclass", [False, True])
def test_one_group_that_sees_every_label_takes_the_exact_gradient_step(rng, multiclass):
    X, Y = problem(rng, n=50, multiclass=multiclass)
    Y = sp.csr_array(Y[:, np.asarray(Y.sum(axis=0)).ravel() > 0])
    w = rng.random(50).astype(np.float32) + 0.5
    W, pairs = start(rng), cooccurring_pairs(X, Y, np.arange(50))
    knobs = Sampling(passes=1, negatives=3, batch=50)
    got = descent(X, Y, W, [np.arange(50)], knobs, w=w, softmax=multiclass, pairs=pairs)
    y = Y.toarray()
    p = (w @ y + 0.5) / (w.sum() + (0.5 * y.shape[1] if multiclass else 1))
    b = np.log(p / p.sum()) if multiclass else np.log(p / (1 - p))
    G = w[:, None] * ((softmax if multiclass else lambda z, axis: expit(z))(np.tile(b, (50, 1)), axis=1) - y)
    h = X.toarray() @ W
    gradient = G.T @ (LENGTH * h / np.linalg.norm(h, axis=1, keepdims=True))
    size = np.sqrt((gradient**2).mean(axis=1, keepdims=True))
    np.testing.assert_allclose(got.V, -RATE * gradient / size, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(got.b[:, 0], b - RATE * np.sign(G.sum(axis=0)), atol=1e-5)
    np.testing.assert_array_equal(got.W, W)  # V was 0, so W had no gradient yet
    gradient = np.where((X.toarray() != 0).T @ y > 0, X.T @ G, 0)
    expected = -DIRECT_RATE * gradient / np.sqrt(DIRECT_START + gradient**2)
    np.testing.assert_allclose(sparse_weights_of(got, pairs, 60).toarray(), expected, rtol=1e-3, atol=1e-6)


def test_the_gradient_of_w_is_that_of_the_loss_by_finite_differences(rng):
    """After V has moved, a second step moves each row of W against its gradient, through the fixed length."""
    X, Y = problem(rng, n=30, d=12, c=5)
    X = X[np.diff(X.indptr) > 0]
    Y = Y[: X.shape[0]]
    n, knobs = X.shape[0], Sampling(passes=4, negatives=5, batch=30)
    one = descent(X, Y, start(rng, 12, 4), [np.arange(n)], knobs, stop=2)
    before = one.W.astype(np.float64), one.V.astype(np.float64), one.b.astype(np.float64)
    squares = one.w_squares.copy()
    two = descent(X, Y, None, [np.arange(n)], knobs, state=one, stop=3)

    def loss(W):
        h = X @ W
        S = LENGTH * h / np.linalg.norm(h, axis=1, keepdims=True) @ before[1].T + before[2].T
        return (np.logaddexp(0, S) - Y.toarray() * S).sum()

    gradient = np.zeros((12, 4))
    for i in np.ndindex(12, 4):
        step = np.zeros((12, 4))
        step[i] = 1e-5
        gradient[i] = (loss(before[0] + step) - loss(before[0] - step)) / 2e-5
    squares = squares + (gradient**2).mean(axis=1)
    np.testing.assert_allclose(two.w_squares, squares, rtol=1e-3)
    expected = before[0] - 0.5 * RATE * gradient / np.sqrt(np.maximum(squares, 1e-30))[:, None]
    np.testing.assert_allclose(two.W, expected, atol=1e-5)


@pytest.mark.parametrize("multiclass", [False, True])
def test_the_descent_repeats_bit_for_bit_and_learns(rng, multiclass):
    X, Y = problem(rng, multiclass=multiclass)
    W, groups, pairs = start(rng), in_groups(400, 10), cooccurring_pairs(X, Y, np.arange(400))
    knobs = Sampling(passes=12, negatives=5, batch=50)
    one, two = (descent(X, Y, W, groups, knobs, softmax=multiclass, pairs=pairs, seed=4) for _ in range(2))
    for name, value in vars(one).items():
        np.testing.assert_array_equal(value, getattr(two, name))
    S = scores(X, one, sparse_weights_of(one, pairs, 60))
    y = Y.toarray()
    share = y.mean(axis=0)
    if multiclass:
        assert -(y * log_softmax(S, axis=1)).sum(axis=1).mean() < 0.7 * -(share * np.log(share + 1e-9)).sum()
    else:
        assert ((expit(S) - y) ** 2).mean() < 0.7 * ((share - y) ** 2).mean()


def test_a_descent_that_stopped_after_a_pass_goes_on_bit_for_bit(rng):
    X, Y = problem(rng)
    W, groups, pairs = start(rng), in_groups(400, 10), cooccurring_pairs(X, Y, np.arange(400))
    knobs = Sampling(passes=3, negatives=5, batch=50)
    whole = descent(X, Y, W, groups, knobs, pairs=pairs)
    part = descent(X, Y, W, groups, knobs, pairs=pairs, stop=1)
    again = descent(X, Y, None, groups, knobs, pairs=pairs, state=part)
    for name, value in vars(whole).items():
        np.testing.assert_array_equal(value, getattr(again, name))


def test_probabilities_are_those_of_all_labels_though_few_are_seen(rng):
    """Without the log of how likely a label is to be seen, rare ones would come out several times too likely."""
    n, c = 4000, 300
    X = sp.csr_array(np.ones((n, 1), np.float32))
    X.indices = X.indices.astype(np.int32)
    share = 0.1 * (1 + np.arange(c)) ** -0.7
    Y = sp.csr_array((rng.random((n, c)) < share).astype(np.float32))
    state = descent(X, Y, start(rng, 1, 2), in_groups(n, 4), Sampling(passes=6, negatives=20, batch=40))
    P = expit(scores(X[:1], state))[0]
    truth = np.asarray(Y.mean(axis=0)).ravel()
    assert 0.8 < P.sum() / truth.sum() < 1.25
    rare = slice(150, None)
    assert 0.7 < P[rare].sum() / truth[rare].sum() < 1.5


def test_seen_pairs_are_the_labels_and_features_that_share_a_row(rng):
    X, Y = problem(rng, n=40)
    rows = np.arange(5, 30)
    pairs = cooccurring_pairs(X, Y, rows)
    found = sp.csr_array((np.ones(len(pairs.features)), pairs.features, pairs.indptr), (30, 60)).toarray()
    np.testing.assert_array_equal(found, Y[rows].toarray().T @ (X[rows].toarray() != 0) > 0)


def test_a_feature_of_very_many_rows_has_no_weights_of_its_own():
    n = 2 * DIRECT_ROWS
    X = sp.csr_array(np.column_stack([np.ones(n), np.arange(n) < DIRECT_ROWS]).astype(np.float32))
    pairs = cooccurring_pairs(X, sp.csr_array(np.ones((n, 1), np.float32)), np.arange(n))
    assert pairs.features.tolist() == [1]


def test_weights_start_at_the_embedding_and_at_noise_of_its_size(rng):
    first, H = rng.standard_normal((500, 6)), 9 * rng.standard_normal((300, 6))
    W = start_weights(first, H, 24, rng)
    factor = W[:, :6] / first
    np.testing.assert_allclose(factor, factor[0, 0], rtol=1e-5)
    np.testing.assert_allclose(((factor[0, 0] * H) ** 2).sum(axis=1).mean(), LENGTH**2 * 6 / 24, rtol=1e-5)
    np.testing.assert_allclose((W[:, 6:] ** 2).mean(), LENGTH**2 / 24, rtol=0.1)
    np.testing.assert_array_equal(start_weights(first, H, 4, rng).shape, (500, 4))


def test_telling_goes_from_nothing_to_less_than_all(rng):
    X, Y = problem(rng)
    told = []
    descent(X, Y, start(rng), in_groups(400, 2), Sampling(passes=2, batch=4), tell=told.append)
    assert told[0] == 0
    assert told == sorted(told)
    assert 0.5 < told[-1] < 1
