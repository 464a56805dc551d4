"""The embedding against exact eigenvectors of Y'PY, and the identities that hold for every variant."""

import numpy as np
import pytest
import scipy.sparse as sp
from problems import (
    Problem,
    at_home,
    class_problem,
    dense_problem,
    eigen,
    groups_problem,
    home,
    predictable,
    relative_error,
    ridge_solution,
    sparse_problem,
)
from scipy.linalg import subspace_angles

from smoothlink.solve import Cholesky, ConjugateGradient
from smoothlink.steps import embed
from smoothlink.steps.embed import orthonormal, rank_for_share, share_of_predictable, truncate, upright

RIDGE = 0.3

adaptive_embedding = at_home(embed.adaptive_embedding)
every_label = at_home(embed.every_label)
label_eigenvectors = at_home(embed.label_eigenvectors)
label_embedding = at_home(embed.label_embedding)
principal_directions = at_home(embed.principal_directions)
random_directions = at_home(embed.random_directions)


def angle(A, B):
    """The largest canonical angle of two subspaces."""
    return subspace_angles(np.asarray(A, np.float64), np.asarray(B, np.float64)).max()


def wide_problem(rng, c=80):
    """More labels than probes, with a spectrum that falls slowly."""
    return sparse_problem(rng, n=300, d=60, c=c)


# Against the exact eigenvectors


@pytest.mark.parametrize("make", [sparse_problem, dense_problem, class_problem])
def test_when_probes_span_every_label_the_directions_are_exact_eigenvectors(rng, make, machine):
    p = make(rng).on(machine)
    c = p.Y.shape[1]
    lam, E = eigen(predictable(p, RIDGE))
    found = label_embedding(p.rows(), 3, p.solve(RIDGE), rng)
    np.testing.assert_allclose(found.spectrum, lam[:3], rtol=1e-4)
    assert found.captured == pytest.approx(lam[:3].sum() / lam.sum(), rel=1e-4)
    for k in range(3):  # each on its own, up to its sign
        assert abs(found.U[:, k] @ E[:, k]) == pytest.approx(1, abs=1e-3 * lam[0] / np.abs(np.diff(lam[:4])).min())
    assert label_embedding(p.rows(), c, p.solve(RIDGE), rng).captured == pytest.approx(1, rel=1e-5)


def test_randomized_directions_are_the_exact_ones_where_the_spectrum_has_a_gap(rng, machine):
    p = groups_problem(rng).on(machine)  # 150 labels of rank 5
    lam, E = eigen(predictable(p, RIDGE))
    found = label_embedding(p.rows(), 5, p.solve(RIDGE), rng, oversample=20)
    assert angle(found.U, E[:, :5]) < 1e-3
    np.testing.assert_allclose(found.spectrum, lam[:5], rtol=1e-4)


def test_oversampling_and_power_steps_close_the_canonical_angles(rng, machine):
    p = wide_problem(rng).on(machine)
    _, E = eigen(predictable(p, RIDGE))

    def mean_angle(**options):
        draws = [np.random.default_rng(i) for i in range(5)]
        return np.mean([angle(label_embedding(p.rows(), 4, p.solve(RIDGE), r, **options).U, E[:, :4]) for r in draws])

    assert mean_angle(oversample=30, power=1) < mean_angle(oversample=5, power=1)
    angles = [mean_angle(oversample=10, power=q) for q in (1, 2, 4, 8)]
    assert angles == sorted(angles, reverse=True)
    assert angles[-1] < 0.05


def test_no_power_step_still_orthogonalises_what_the_probes_saw(rng, machine):
    p = wide_problem(rng).on(machine)
    none, one = (label_embedding(p.rows(), 6, p.solve(RIDGE), np.random.default_rng(3), power=q) for q in (0, 1))
    np.testing.assert_array_equal(none.U, one.U)  # Algorithm 1 needs one product to have any basis


def test_half_a_power_step_more_is_closer_and_costs_one_solve(rng, machine):
    p = wide_problem(rng).on(machine)
    _, E = eigen(predictable(p, RIDGE))

    def found(seed, **options):
        return label_embedding(p.rows(), 4, p.solve(RIDGE), np.random.default_rng(seed), oversample=6, **options)

    plain, half, whole = (
        np.mean([angle(found(i, **options).U, E[:, :4]) for i in range(8)])
        for options in ({}, {"half_step": True}, {"power": 2})
    )
    assert whole < half < plain


@pytest.mark.parametrize("options", [{}, {"power": 3, "oversample": 5}, {"half_step": True}])
def test_directions_are_orthonormal_and_the_spectrum_descends_below_the_exact_one(rng, options, machine):
    p = wide_problem(rng).on(machine)
    lam, _ = eigen(predictable(p, RIDGE))
    found = label_embedding(p.rows(), 12, p.solve(RIDGE), rng, **options)
    np.testing.assert_allclose(found.U.T @ found.U, np.eye(12), atol=1e-4)
    assert (np.diff(found.spectrum) <= 0).all()
    assert (found.spectrum <= lam[:12] * (1 + 1e-5)).all()  # singular values of Y'PYQ interlace


def flat_problem(rng):
    """Labels that are all predicted alike: the spectrum does not fall."""
    return class_problem(rng, n=900, d=150, c=150)


def steep_problem(rng):
    """One direction that outweighs all the others: the first label is in most rows."""
    p = sparse_problem(rng, n=500, d=80, c=120)
    Y = p.Y.tolil()
    Y[:450, 0] = 1
    return p._replace(Y=sp.csr_array(Y, dtype=np.float32))


@pytest.mark.parametrize("make", [lambda rng: wide_problem(rng, c=120), flat_problem, steep_problem, groups_problem])
@pytest.mark.parametrize(("rank", "power"), [(3, 1), (30, 1), (30, 3)])
def test_captured_share_is_within_two_points_of_that_of_the_exact_trace(rng, make, rank, power, machine):
    p = make(rng).on(machine)
    lam, _ = eigen(predictable(p, RIDGE))
    for seed in range(5):
        found = label_embedding(p.rows(), rank, p.solve(RIDGE), np.random.default_rng(seed), power=power)
        assert found.captured == pytest.approx(found.spectrum.sum() / lam.sum(), abs=0.02)


# W


@pytest.mark.parametrize(
    ("make", "options"), [(wide_problem, {}), (wide_problem, {"half_step": True}), (dense_problem, {"power": 2})]
)
def test_w_is_the_ridge_fit_to_yu(rng, make, options, machine):
    p = make(rng).on(machine)
    X, Y = p.dense
    found = label_embedding(p.rows(), 5, p.solve(RIDGE), rng, **options)
    assert relative_error(found.W, ridge_solution(X, Y @ found.U, p.w, RIDGE)) < 1e-3


def test_with_every_direction_uw_is_the_independent_ridge_classifiers(rng, machine):
    p = sparse_problem(rng).on(machine)
    X, Y = p.dense
    found = label_embedding(p.rows(), 12, p.solve(RIDGE), rng)
    assert relative_error(found.W @ found.U.T, ridge_solution(X, Y, p.w, RIDGE)) < 1e-4


@pytest.mark.parametrize("solver", [Cholesky(), ConjugateGradient(tol=1e-6)])
def test_both_solvers_find_the_same_directions(rng, solver, machine):
    p = wide_problem(rng).on(machine)
    exact = label_embedding(p.rows(), 6, p.solve(RIDGE), np.random.default_rng(1), power=3)
    found = label_embedding(p.rows(), 6, solver.prepare(p.rows()).at(RIDGE), np.random.default_rng(1), power=3)
    np.testing.assert_allclose(np.abs(np.sum(found.U * exact.U, axis=0)), 1, atol=1e-4)


@pytest.mark.parametrize("block_rows", [1, 37])
def test_row_blocks_of_any_size_give_the_same_embedding(rng, block_rows, machine):
    p = wide_problem(rng).on(machine)
    found, blocked = (
        label_embedding(rows, 6, p.solve(RIDGE), np.random.default_rng(1))
        for rows in (p.rows(), p.rows(block_rows=block_rows))
    )
    np.testing.assert_allclose(blocked.U, found.U, atol=1e-3)
    np.testing.assert_allclose(blocked.spectrum, found.spectrum, rtol=1e-5)


@pytest.mark.parametrize("variant", [label_embedding, random_directions, principal_directions])
def test_seeing_every_row_twice_is_seeing_it_once_with_weight_two(rng, variant, machine):
    p = sparse_problem(rng).on(machine)
    twice, heavy = p.repeated(2), p._replace(w=2 * p.w)
    a, b = (variant(q.rows(), 4, q.solve(RIDGE), np.random.default_rng(2)) for q in (twice, heavy))
    signs = np.sign(np.sum(a.U * b.U, axis=0))
    np.testing.assert_allclose(a.U * signs, b.U, atol=1e-4)
    assert relative_error(a.W * signs, b.W) < 1e-3
    np.testing.assert_allclose(a.spectrum, b.spectrum, rtol=1e-5)


def test_rows_of_weight_zero_do_not_matter(rng, machine):
    p = sparse_problem(rng).on(machine)
    kept = rng.random(120) < 0.7
    weightless = p._replace(w=p.w * kept)
    without = Problem(p.X[kept], p.Y[kept], p.w[kept], machine)
    a, b = (label_embedding(q.rows(), 4, q.solve(RIDGE), rng) for q in (weightless, without))
    np.testing.assert_allclose(np.abs(a.U), np.abs(b.U), atol=1e-4)
    np.testing.assert_allclose(np.abs(a.W), np.abs(b.W), atol=1e-4)


def test_the_largest_entry_of_every_direction_is_positive_whatever_rounding_says(rng, machine):
    U = rng.standard_normal((20, 6))
    signs = upright(machine.to_device(U))
    np.testing.assert_array_equal(np.abs(signs), 1)
    assert ((U * signs).max(axis=0) == np.abs(U).max(axis=0)).all()
    np.testing.assert_array_equal(U * signs, -U * upright(machine.to_device(-U)))
    p = wide_problem(rng).on(machine)
    for found in (
        label_embedding(p.rows(), 6, p.solve(RIDGE), rng),
        label_embedding(p.rows(), 6, p.solve(RIDGE), rng, half_step=True),
        adaptive_embedding(p.rows(), 6, p.solve(RIDGE), rng),
        label_eigenvectors(p.rows(), 6, rng),
    ):
        assert (found.U.max(axis=0) >= -found.U.min(axis=0)).all()


# Rank


def test_columns_lost_to_rank_deficiency_are_dropped(rng, machine):
    p = groups_problem(rng, groups=5, copies=30).on(machine)
    found = label_embedding(p.rows(), 40, p.solve(RIDGE), rng)
    assert found.U.shape == (150, 5)
    assert found.W.shape == (31, 5)
    assert found.captured == pytest.approx(1, rel=1e-4)
    exact = label_embedding(p.rows(), 150, p.solve(RIDGE), rng)  # no probes: nothing is random
    assert exact.U.shape == (150, 5)
    assert exact.captured == pytest.approx(1, rel=1e-5)


def test_adaptive_finds_the_rank_of_exactly_low_rank_labels_and_stops(rng, machine):
    p = groups_problem(rng, groups=7, copies=40).on(machine)  # 280 labels
    solves, solve = [], p.solve(RIDGE)
    found = adaptive_embedding(p.rows(), 280, lambda B, **given: solves.append(1) or solve(B, **given), rng)
    _, E = eigen(predictable(p, RIDGE))
    assert found.U.shape[1] == 7
    assert angle(found.U, E[:, :7]) < 1e-3
    assert len(solves) == 3  # two for the first block of 64; the second finds nothing new


def test_adaptive_goes_on_while_blocks_pay_and_is_as_good_as_a_given_rank(rng, machine):
    p = sparse_problem(rng, n=400, d=120, c=100).on(machine)
    lam, _ = eigen(predictable(p, RIDGE))
    found = adaptive_embedding(p.rows(), 100, p.solve(RIDGE), rng, power=2, block=8)
    k = found.U.shape[1]
    assert 8 < k < 100
    assert k % 8 == 0
    given = label_embedding(p.rows(), k, p.solve(RIDGE), rng, power=2)
    assert found.spectrum.sum() > 0.97 * given.spectrum.sum()
    # The rest is flat: what the eight next exact directions would add is about the least gain.
    assert lam[k : k + 8].sum() < 3 * embed.ADAPTIVE_GAIN * lam.sum()
    X, Y = p.dense
    assert relative_error(found.W, ridge_solution(X, Y @ found.U, p.w, RIDGE)) < 1e-3
    assert found.captured == pytest.approx(found.spectrum.sum() / lam.sum(), abs=0.02)


def test_adaptive_never_exceeds_what_is_asked(rng, machine):
    p = wide_problem(rng).on(machine)
    found = adaptive_embedding(p.rows(), 10, p.solve(RIDGE), rng, half_step=True)
    assert found.U.shape == (80, 10)
    np.testing.assert_allclose(found.U.T @ found.U, np.eye(10), atol=1e-4)


def test_labels_that_no_row_has_leave_one_direction_of_nothing(rng, machine):
    p = wide_problem(rng).on(machine)
    empty = p._replace(Y=sp.csr_array(p.Y.shape, dtype=np.float32))
    for found in (
        label_embedding(empty.rows(), 5, empty.solve(RIDGE), rng),
        label_embedding(empty.rows(), 80, empty.solve(RIDGE), rng),
        adaptive_embedding(empty.rows(), 80, empty.solve(RIDGE), rng),
    ):
        assert found.U.shape == (80, 1)
        assert found.captured == 0
        assert not found.W.any()


@pytest.mark.parametrize("share", [0.3, 0.9, 1.0])
def test_rank_for_share_is_the_papers_rule_on_exact_eigenvalues(rng, share, machine):
    p = sparse_problem(rng, n=300, c=60).on(machine)
    _, Y = p.dense
    lam, _ = eigen(Y.T @ (p.w[:, None] * Y))
    exact = int(np.flatnonzero(np.cumsum(lam) / lam.sum() >= share - 1e-9)[0]) + 1
    assert rank_for_share(p.rows(), share, 60, rng) == exact
    assert rank_for_share(p.rows(), share, 4, rng) == min(4, exact)


def test_rank_for_share_doubles_its_search_until_the_share_is_held(rng, machine):
    n, c = 900, 700
    Y = sp.csr_array((np.ones(n, np.float32), rng.permutation(np.arange(n) % c), np.arange(n + 1)), (n, c))
    p = Problem(np.ones((n, 1), np.float32), sp.csr_array(Y), np.ones(n), machine)
    # Y'Y is diagonal: 200 labels twice and 500 once, 900 in all; 400 of these are held by the first 200.
    assert rank_for_share(p.rows(), 0.8, 700, rng) == pytest.approx(200 + 0.8 * 900 - 400, abs=2)
    assert rank_for_share(p.rows(), 0.8, 300, rng) == 300


def test_share_of_predictable_is_the_least_rank_on_exact_eigenvalues(rng, machine):
    p = class_problem(rng, c=12, d=20).on(machine)
    lam, _ = eigen(predictable(p, RIDGE))
    whole = label_embedding(p.rows(), 12, p.solve(RIDGE), rng)
    for share in (0.2, 0.5, 0.9, 1.0):
        cut = share_of_predictable(whole, share)
        exact = int(np.flatnonzero(np.cumsum(lam) / lam.sum() >= share - 1e-6)[0]) + 1
        assert abs(cut.U.shape[1] - exact) <= (share == 1.0)
        assert cut.captured == pytest.approx(lam[: cut.U.shape[1]].sum() / lam.sum(), rel=1e-4)
    half = truncate(whole, 6)
    assert share_of_predictable(half, 1.0).U.shape == half.U.shape  # all there is, where that does not suffice


def test_truncate_is_the_embedding_of_lower_rank(rng, machine):
    p = sparse_problem(rng).on(machine)
    whole, less = (label_embedding(p.rows(), k, p.solve(RIDGE), rng) for k in (9, 4))
    cut = truncate(whole, 4)
    np.testing.assert_array_equal(cut.U, less.U)
    np.testing.assert_allclose(cut.W, less.W, atol=1e-6)
    assert cut.captured == pytest.approx(less.captured, rel=1e-6)


def test_orthonormal_spans_its_columns_drops_the_dependent_and_avoids_what_is_outside(rng, machine):
    A = rng.standard_normal((40, 6)) * 10.0 ** -np.arange(6)  # nearly dependent columns
    outside = np.linalg.qr(rng.standard_normal((40, 3)))[0].astype(np.float32)
    given = np.hstack([A, A[:, :2] @ rng.standard_normal((2, 4))])
    Q = home(orthonormal(machine.to_device(given), machine.to_device(outside)))
    assert Q.shape[1] <= 6
    np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-6)
    np.testing.assert_allclose(outside.T @ Q, 0, atol=1e-6)
    R = A[:, :4] - outside @ (outside.T @ A[:, :4])
    np.testing.assert_allclose(Q @ (Q.T @ R), R, atol=1e-5)


# Other directions


def test_identity_directions_are_one_ridge_classifier_per_label(rng, machine):
    p = sparse_problem(rng).on(machine)
    X, Y = p.dense
    found = every_label(p.rows(), p.solve(RIDGE))
    np.testing.assert_array_equal(found.U, np.eye(12))
    assert relative_error(found.W, ridge_solution(X, Y, p.w, RIDGE)) < 1e-4
    assert found.spectrum.size == 0
    assert np.isnan(found.captured)


def test_random_directions_are_gaussian_and_preserve_lengths_on_average(rng, machine):
    p = sparse_problem(rng, c=50).on(machine)
    X, Y = p.dense
    found = random_directions(p.rows(), 400, p.solve(RIDGE), rng)
    # E U U' = (400/50) I; each entry is a sum of 400 products with standard deviation 1/50.
    np.testing.assert_allclose(found.U @ found.U.T, 8 * np.eye(50), atol=6 * np.sqrt(2 * 400) / 50)
    assert relative_error(found.W, ridge_solution(X, Y @ found.U, p.w, RIDGE)) < 1e-3


@pytest.mark.parametrize("c", [12, 60])
def test_principal_directions_are_top_eigenvectors_of_yty(rng, c, machine):
    p = sparse_problem(rng, n=400, c=c).on(machine)
    X, Y = p.dense
    lam, E = eigen(Y.T @ (p.w[:, None] * Y))
    found = principal_directions(p.rows(), 1, p.solve(RIDGE), rng)
    assert angle(found.U, E[:, :1]) < 2e-2
    assert relative_error(found.W, ridge_solution(X, Y @ found.U, p.w, RIDGE)) < 1e-3
    top = label_eigenvectors(p.rows(), 3, rng)
    np.testing.assert_allclose(top.eigenvalues, lam[:3], rtol=1e-4 if c == 12 else 2e-2)
    assert top.trace == pytest.approx(lam.sum(), rel=1e-6)


def test_label_eigenvectors_of_centred_labels(rng, machine):
    p = sparse_problem(rng).on(machine)
    _, Y = p.dense
    means = p.w @ Y / p.w.sum()
    lam, E = eigen((Y - means).T @ (p.w[:, None] * (Y - means)))
    top = label_eigenvectors(p.rows(), 3, rng, means=means)
    np.testing.assert_allclose(top.eigenvalues, lam[:3], rtol=1e-4)
    assert top.trace == pytest.approx(lam.sum(), rel=1e-5)
    assert angle(top.U, E[:, :3]) < 1e-3 * lam[0] / (lam[2] - lam[3])
