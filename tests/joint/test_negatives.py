"""Joint training with sampled negatives: inclusion of labels, exact steps, calibrated outcomes."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, log_softmax, softmax

from smoothlink.joint.batches import RowBatches
from smoothlink.joint.joint_training import NEGATIVES, SPARSE_SQUARES, JointRows, sparse_pattern, train
from smoothlink.joint.negatives import (
    EMBEDDING_LENGTH,
    RATE,
    SampledState,
    SampledStep,
    batch_features,
    batch_labels,
    labels_of_groups,
    log_inclusion,
    sample_entries,
    sigmoid,
    start_weights,
)
from smoothlink.steps.squared import prior_scores


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


class Training:
    """Joint training of all rows, which can be stopped after a pass."""

    def __init__(
        self, X, Y, W, groups, *, passes, batch, negatives=5, w=None, softmax=False, sparse=False, seed=0, small=0.05
    ):
        w = np.ones(X.shape[0], np.float32) if w is None else w
        with_intercept = sp.csr_array(sp.hstack([X, np.ones((X.shape[0], 1), np.float32)], format="csr"))
        self.pattern = sparse_pattern(with_intercept, Y, np.arange(X.shape[0]), 1.0 if sparse else None)
        intercepts = prior_scores(w @ Y, float(w.sum()), softmax=softmax)
        self.state = SampledState.begin(W.copy(), intercepts, self.pattern, len(groups))
        self.batches = RowBatches.of_groups(groups, batch, seed)
        rows = JointRows(X, Y, w, softmax)
        self.step = SampledStep(rows, self.pattern, self.batches, self.state, negatives, small)
        self.passes, self.done = passes, 0

    def run(self, stop=None):
        """Trains until all passes, or `stop` of them, are done; returns the training."""
        passes = train(self.step, self.batches, self.passes, 1.0, 1, lambda share: None, self.done)
        self.done = next((done for done in passes if done == stop), self.passes)
        return self

    def scores(self, X):
        weights = self.step.weights()
        H = X @ weights.W[:-1]
        H /= np.maximum(np.linalg.norm(H, axis=1, keepdims=True), 1e-30)
        S = H @ weights.V[:-1] + weights.V[-1]
        return S if weights.D is None else S + X @ self.sparse_weights()[:-1]

    def sparse_weights(self):
        D = self.step.weights().D
        return sp.csr_array((D.values, D.labels, D.indptr), self.pattern.shape).toarray()


def in_groups(n, size):
    return np.array_split(np.arange(n), n // size)


def test_a_batch_has_the_labels_of_its_groups_and_some_more(rng):
    own = np.array([3, 8, 3, 20])
    labels = batch_labels(own, 30, 4, np.random.default_rng(0))
    assert set(labels) >= set(own)
    assert len(labels) <= 3 + 4
    assert (np.diff(labels) > 0).all()
    np.testing.assert_array_equal(batch_labels(own, 30, 30, rng), np.arange(30))


def test_the_labels_of_a_group_are_those_of_its_rows_and_its_hard_negatives(rng):
    _, Y = problem(rng, n=40)
    groups = [rng.permutation(40)[:15], np.zeros(0, np.int64), np.arange(3)]
    hard = rng.integers(0, 30, (3, 2))
    found = labels_of_groups(RowBatches.of_groups(groups, 18, seed=0), Y, hard).toarray() > 0
    for rows, some, row in zip(groups, hard, found, strict=True):
        assert set(np.flatnonzero(row)) == set(Y[rows].indices) | set(some)


def test_hard_negatives_have_the_highest_scores_at_the_mean_of_a_group(rng):
    X, Y = problem(rng)
    groups = in_groups(400, 16)
    training = Training(X, Y, start(rng), groups, passes=2, batch=64).run(stop=1)
    training.step.find_hard_negatives()
    H = X @ training.state.W
    H *= EMBEDDING_LENGTH / np.maximum(np.linalg.norm(H, axis=1, keepdims=True), 1e-30)
    for rows, found in zip(groups, training.state.hard, strict=True):
        scores = training.state.V @ H[rows].mean(axis=0) + training.state.b[:, 0]
        np.testing.assert_allclose(scores[found], np.sort(scores)[::-1][:10], atol=1e-4)
    before = training.step.log_inclusion
    again = SampledStep(training.step.rows, training.pattern, training.batches, training.state, 5)
    np.testing.assert_array_equal(again.log_inclusion, before)  # as after a checkpoint


def sampled(G, small, offsets):
    """Returns what `sample_entries` selects of each row of G, as an array."""
    found = np.zeros_like(G)
    for row, offset, out in zip(G, offsets, found, strict=True):
        columns, values = np.empty(len(row), np.int32), np.empty(len(row), np.float32)
        count = sample_entries(row, small, offset, columns, values)
        out[columns[:count]] = values[:count]
    return found


def test_sampled_gradients_are_right_on_average_and_exact_where_they_are_large(rng):
    G = (rng.standard_normal((6, 40)) * rng.choice([0.01, 1], (6, 40))).astype(np.float32)
    draws = 4000
    total = sum(sampled(G, 0.05, rng.random(6, np.float32)) for _ in range(draws))
    np.testing.assert_allclose(total / draws, G, atol=5 * 0.05 * 0.5 / np.sqrt(draws))
    one = sampled(G, 0.05, rng.random(6, np.float32))
    large = np.abs(G) >= 0.05
    np.testing.assert_array_equal(one[large], G[large])
    assert set(np.unique(np.abs(one[~large]))) <= {np.float32(0), np.float32(0.05)}
    np.testing.assert_array_equal(sampled(G, 0, np.zeros(6, np.float32)), G)


def test_the_sigmoid_without_a_call_is_the_sigmoid():
    z = np.linspace(-40, 40, 801).astype(np.float32)
    found = np.array([sigmoid(x) for x in z])
    np.testing.assert_allclose(found, expit(z.astype(float)), atol=1e-6)
    np.testing.assert_allclose(found[abs(z) <= 10], expit(z.astype(float))[abs(z) <= 10], rtol=1e-4)


def test_a_label_is_scored_as_often_as_its_log_says(rng):
    _, Y = problem(rng, n=120)
    groups = in_groups(120, 6)
    batches = RowBatches.of_groups(groups, 18, seed=0)
    none = np.zeros((len(groups), 0), np.int32)
    expected = np.exp(log_inclusion(labels_of_groups(batches, Y, none), batches.per_batch, 10))
    scored, tries = np.zeros(30), 4000
    has = np.array([np.asarray(Y[g].sum(axis=0)).ravel() > 0 for g in groups])
    for _ in range(tries):
        others = rng.integers(0, len(groups), 2)  # beside a row's own group
        scored += has[others].any(axis=0) | np.isin(np.arange(30), rng.integers(0, 30, 10))
    np.testing.assert_allclose(scored / tries, expected, atol=0.05)


def test_entries_by_feature_and_by_row_are_those_of_the_rows(rng):
    X, _ = problem(rng, n=40, d=9)
    for rows in (rng.permutation(40)[:15], np.zeros(0, np.int64)):
        at = np.full(9, -1, np.int32)
        x = batch_features(rows, X.indptr, X.indices, X.data, at)
        b, f = len(rows), len(x.features)
        by_feature = sp.csr_array((x.values, x.rows, x.starts), (f, b)).toarray()
        by_row = sp.csr_array((x.row_values, x.row_places, x.row_starts), (b, f)).toarray()
        expected = X[rows].toarray()
        np.testing.assert_array_equal(by_feature.T, expected[:, x.features])
        np.testing.assert_array_equal(by_row, expected[:, x.features])
        np.testing.assert_array_equal(np.flatnonzero(expected.any(axis=0)), np.sort(x.features))
        np.testing.assert_array_equal(at[x.features], np.arange(f))


@pytest.mark.parametrize("multiclass", [False, True])
def test_one_group_that_has_every_label_takes_the_exact_gradient_step(rng, multiclass):
    X, Y = problem(rng, n=50, multiclass=multiclass)
    Y = sp.csr_array(Y[:, np.asarray(Y.sum(axis=0)).ravel() > 0])
    w = rng.random(50).astype(np.float32) + 0.5
    W, groups = start(rng), [np.arange(50)]
    options = {"negatives": 3, "w": w, "softmax": multiclass, "sparse": True, "small": 0}
    training = Training(X, Y, W, groups, passes=1, batch=50, **options).run()
    state, y = training.state, Y.toarray()
    p = (w @ y + 0.5) / (w.sum() + (0.5 * y.shape[1] if multiclass else 1))
    b = np.log(p / p.sum()) if multiclass else np.log(p / (1 - p))
    G = w[:, None] * ((softmax if multiclass else lambda z, axis: expit(z))(np.tile(b, (50, 1)), axis=1) - y)
    h = X.toarray() @ W
    gradient = G.T @ (EMBEDDING_LENGTH * h / np.linalg.norm(h, axis=1, keepdims=True))
    size = np.sqrt((gradient**2).mean(axis=1, keepdims=True))
    np.testing.assert_allclose(state.V, -RATE * gradient / size, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(state.b[:, 0], b - RATE * np.sign(G.sum(axis=0)), atol=1e-5)
    np.testing.assert_array_equal(state.W, W)  # V was 0, so W had no gradient yet
    gradient = np.where((X.toarray() != 0).T @ y > 0, X.T @ G, 0)
    expected = -NEGATIVES.sparse_rate * gradient / np.sqrt(SPARSE_SQUARES + gradient**2)
    np.testing.assert_allclose(training.sparse_weights()[:-1], expected, rtol=1e-3, atol=1e-6)


def test_the_gradient_of_w_is_that_of_the_loss_by_finite_differences(rng):
    """After V has moved, a second step moves each row of W against its gradient, through the fixed length."""
    X, Y = problem(rng, n=30, d=12, c=5)
    X = X[np.diff(X.indptr) > 0]
    Y = Y[: X.shape[0]]
    training = Training(X, Y, start(rng, 12, 4), [np.arange(X.shape[0])], passes=4, batch=30, small=0)
    training.run(stop=2)
    state = training.state
    before = state.W.astype(np.float64), state.V.astype(np.float64), state.b.astype(np.float64)
    squares = state.w_squares.copy()
    training.run(stop=3)

    def loss(W):
        h = X @ W
        S = EMBEDDING_LENGTH * h / np.linalg.norm(h, axis=1, keepdims=True) @ before[1].T + before[2].T
        return (np.logaddexp(0, S) - Y.toarray() * S).sum()

    gradient = np.zeros((12, 4))
    for i in np.ndindex(12, 4):
        step = np.zeros((12, 4))
        step[i] = 1e-5
        gradient[i] = (loss(before[0] + step) - loss(before[0] - step)) / 2e-5
    squares = squares + (gradient**2).mean(axis=1)
    np.testing.assert_allclose(state.w_squares, squares, rtol=1e-3)
    expected = before[0] - 0.5 * RATE * gradient / np.sqrt(np.maximum(squares, 1e-30))[:, None]
    np.testing.assert_allclose(state.W, expected, atol=1e-5)


@pytest.mark.parametrize("multiclass", [False, True])
def test_training_repeats_bit_for_bit_goes_on_after_a_stop_and_learns(rng, multiclass):
    X, Y = problem(rng, multiclass=multiclass)
    W, groups = start(rng), in_groups(400, 10)
    parameters = {"passes": 12, "batch": 50, "softmax": multiclass, "sparse": True, "seed": 4}
    one, two = (Training(X, Y, W, groups, **parameters) for _ in range(2))
    one.run()
    two.run(stop=5).run()
    for name, value in vars(one.state).items():
        np.testing.assert_array_equal(value, getattr(two.state, name))
    S, y = one.scores(X), Y.toarray()
    share = y.mean(axis=0)
    if multiclass:
        assert -(y * log_softmax(S, axis=1)).sum(axis=1).mean() < 0.7 * -(share * np.log(share + 1e-9)).sum()
    else:
        assert ((expit(S) - y) ** 2).mean() < 0.7 * ((share - y) ** 2).mean()


def test_probabilities_are_those_of_all_labels_though_few_are_scored(rng):
    """Without the log of how likely a label is to be scored, rare ones would come out several times too likely."""
    n, c = 4000, 300
    X = sp.csr_array(np.ones((n, 1), np.float32))
    X.indices = X.indices.astype(np.int32)
    share = 0.1 * (1 + np.arange(c)) ** -0.7
    Y = sp.csr_array((rng.random((n, c)) < share).astype(np.float32))
    training = Training(X, Y, start(rng, 1, 2), in_groups(n, 4), passes=6, negatives=20, batch=40).run()
    P = expit(training.scores(X[:1]))[0]
    truth = np.asarray(Y.mean(axis=0)).ravel()
    assert 0.8 < P.sum() / truth.sum() < 1.25
    rare = slice(150, None)
    assert 0.7 < P[rare].sum() / truth[rare].sum() < 1.5


def test_weights_start_at_the_embedding_and_at_noise_of_its_size(rng):
    first, H = rng.standard_normal((500, 6)), 9 * rng.standard_normal((300, 6))
    W = start_weights(first, H, 24, rng)
    factor = W[:, :6] / first
    np.testing.assert_allclose(factor, factor[0, 0], rtol=1e-5)
    np.testing.assert_allclose(((factor[0, 0] * H) ** 2).sum(axis=1).mean(), EMBEDDING_LENGTH**2 * 6 / 24, rtol=1e-5)
    np.testing.assert_allclose((W[:, 6:] ** 2).mean(), EMBEDDING_LENGTH**2 / 24, rtol=0.1)
    assert start_weights(first, H, 4, rng).shape == (500, 4)
