"""What both joint trainers share: which sparse weights there are, the rates, the passes, and that their steps agree."""

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.joint.batches import RowBatch, RowBatches
from smoothlink.joint.joint_training import (
    FREQUENT_ROWS,
    JointRows,
    JointWeights,
    finds_hard_negatives,
    rate_factor,
    sparse_pattern,
    sparse_weights,
    train,
)
from smoothlink.steps.featurize import Features


def sparse_rows(rng, n=40, d=12, c=7):
    """Sparse rows with their intercept, and labels."""
    X = sp.random(n, d, 0.3, random_state=rng, dtype=np.float32, format="csr")
    X = sp.csr_array(sp.hstack([X, np.ones((n, 1), np.float32)], format="csr"))
    return X, sp.csr_array((rng.random((n, c)) < 0.2).astype(np.float32))


def test_the_pattern_has_the_features_and_labels_that_share_a_row(rng):
    X, Y = sparse_rows(rng)
    rows = np.arange(5, 30)
    expected = (X[rows].toarray() != 0).T.astype(int) @ Y[rows].toarray() > 0
    expected[-1] = False  # the intercept
    found = sparse_pattern(X, Y, rows, 0.05)
    np.testing.assert_array_equal(found.toarray() > 0, expected)
    assert found.has_sorted_indices


@pytest.mark.parametrize(("frequent", "with_weights"), [(0.002, [1]), (0.6, [0, 1]), (None, [])])
def test_a_frequent_feature_has_no_sparse_weights(frequent, with_weights):
    n = 2 * FREQUENT_ROWS
    columns = [np.arange(n) <= FREQUENT_ROWS, np.arange(n) < FREQUENT_ROWS, np.ones(n)]
    X, Y = sp.csr_array(np.column_stack(columns).astype(np.float32)), sp.csr_array(np.ones((n, 1), np.float32))
    assert np.flatnonzero(np.diff(sparse_pattern(X, Y, np.arange(n), frequent).indptr)).tolist() == with_weights


def test_there_are_no_sparse_weights_where_they_would_be_too_many_or_x_is_dense(rng):
    X, Y = sparse_rows(rng)
    rows = np.arange(40)
    most = int((np.diff(X.indptr) - 1) @ np.diff(Y.indptr))
    assert sparse_pattern(X, Y, rows, 0.05, most).nnz
    assert not sparse_pattern(X, Y, rows, 0.05, most - 1).nnz
    assert not sparse_pattern(X.toarray(), Y, rows, 0.05).nnz


def test_pairs_are_counted_beyond_32_bits():
    X, Y = (sp.csr_array(np.ones((1, count), np.float32)) for count in (50_001, 50_000))
    for A in (X, Y):
        A.indptr = A.indptr.astype(np.int32)
    assert not sparse_pattern(X, Y, np.arange(1), 0.05).nnz


def test_weights_of_zero_are_not_kept_and_the_pattern_stays(rng):
    D = sp.csr_array(np.where(rng.random((9, 5)) < 0.4, 1, 0).astype(np.float32))
    D.data[::2] = 0
    before = D.indices.copy()
    found = sparse_weights(D)
    assert found.size == np.count_nonzero(D.data)
    np.testing.assert_array_equal(
        sp.csr_array((found.values, found.labels, found.indptr), (9, 5)).toarray(), D.toarray()
    )
    np.testing.assert_array_equal(D.indices, before)
    assert sparse_weights(0 * D) is None


def test_rates_rise_within_the_warm_up_and_fall_to_zero_along_a_line():
    factors = np.array([rate_factor(step, 1000, 100) for step in range(1000)])
    assert factors.argmax() == 99
    np.testing.assert_allclose(factors[:100] / (1 - np.arange(100) / 1000), np.arange(1, 101) / 100)
    np.testing.assert_allclose(factors[99:], 1 - np.arange(99, 1000) / 1000)
    assert [rate_factor(step, 4, 1) for step in range(4)] == [1, 0.75, 0.5, 0.25]


@pytest.mark.parametrize(("passes", "found"), [(1, [1]), (2, [1]), (4, [1, 2]), (5, [1, 3]), (6, [1, 3])])
def test_hard_negatives_are_found_after_the_first_pass_and_halfway(passes, found):
    assert [done for done in range(1, passes + 1) if finds_hard_negatives(done, passes)] == found


def test_training_goes_on_after_the_passes_that_are_done_and_tells_its_progress():
    batches = RowBatches.of_rows(np.arange(10), 5, seed=0)
    steps, progress = [], []
    passes = list(train(lambda batch, rate: steps.append(rate), batches, 4, 2.0, 1, progress.append, done=1))
    assert passes == [2, 3, 4]
    assert steps == [2 * rate_factor(step, 8, 1) for step in range(2, 8)]
    assert progress == [0.25, 0.5, 0.75]


@pytest.mark.torch
@pytest.mark.parametrize("softmax", [False, True])
def test_both_steps_are_the_same_where_every_label_is_scored_and_nothing_dropped(rng, softmax):
    """Linear link, h of fixed length: V is 3 times as large for h of length 1, as its steps are."""
    pytest.importorskip("torch", reason="torch is not installed")
    from smoothlink.joint.finetune import FineTuneStep, LearningRates
    from smoothlink.joint.joint_training import NEGATIVES
    from smoothlink.joint.negatives import EMBEDDING_LENGTH, RATE, SampledState, SampledStep
    from smoothlink.machines.host_and_device import find_machine

    n, d, k, c = 40, 12, 5, 7
    X, Y = sparse_rows(rng, n, d, c)
    Y = sp.csr_array(np.eye(c, dtype=np.float32)[rng.integers(0, c, n)]) if softmax else Y
    w, pattern = rng.uniform(0.5, 2, n).astype(np.float32), sparse_pattern(X, Y, np.arange(n), 0.05)
    W, V = (rng.standard_normal(shape).astype(np.float32) for shape in ((d, k), (c, k)))
    intercepts = rng.standard_normal(c).astype(np.float32)
    batches = RowBatches.of_groups([np.arange(n)], n, seed=0)
    state = SampledState.begin(W.copy(), intercepts, pattern, groups=1)
    state.V[:] = V
    data = JointRows(X[:, :-1], Y, w, softmax)
    sampled = SampledStep(data, pattern, batches, state, negatives=c, small_gradient=0)
    start = JointWeights(
        np.vstack([W, np.zeros((1, k), np.float32)]),
        Features(np.zeros((k, 0), np.float32), np.zeros(0, np.float32)),
        np.vstack([EMBEDDING_LENGTH * V.T, intercepts]).astype(np.float32),
        None,
        normalize=True,
    )
    rates = LearningRates(W=RATE, R=0, V=EMBEDDING_LENGTH * RATE, D=NEGATIVES.sparse_rate, intercept=0)
    tuned = FineTuneStep(
        JointRows(X, Y, w, softmax), pattern, start, rates, find_machine("torch"), dropout=0, softmax_weight=0
    )
    for step in (sampled, tuned):
        step(RowBatch(np.arange(n), np.zeros(n, np.int64), np.zeros(1, np.int64), np.random.default_rng(0)), 0.5)
    ours, theirs = sampled.weights(), tuned.weights()
    np.testing.assert_allclose(ours.W[:-1], theirs.W[:-1], atol=2e-5)  # the host's has no intercept
    np.testing.assert_allclose(ours.V[:-1], theirs.V[:-1], atol=1e-4)
    np.testing.assert_allclose(ours.D.values, theirs.D.values, atol=2e-5)
    for name in ("indptr", "labels"):
        np.testing.assert_array_equal(getattr(ours.D, name), getattr(theirs.D, name))
