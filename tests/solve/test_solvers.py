"""Each solver against numpy.linalg.solve, SciPy's LSQR and scikit-learn's Ridge."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from problems import Problem, dense_problem, home, relative_error, ridge_solution, sparse_problem
from scipy.sparse.linalg import lsqr
from sklearn.linear_model import Ridge

from smoothlink.machines.host_and_device import HOST
from smoothlink.machines.rows import Rows
from smoothlink.machines.simd import VECTOR_WIDTH
from smoothlink.solve import NEARLY_EXACT, Cholesky, ConjugateGradient, DualCholesky, choose_solver
from smoothlink.solve.cholesky import Factorable, GramSystem

SOLVERS = [Cholesky(), ConjugateGradient(tol=1e-6), DualCholesky()]
PROBLEMS = [sparse_problem, dense_problem]
RIDGES = [1e-3, 0.3, 30.0]


def targets(p, T):
    """X'WT in float32, where the rows of p are."""
    X, _ = p.dense
    return p.machine.to_device((X.T @ (p.w[:, None] * T)).astype(np.float32))


@pytest.mark.parametrize("make", PROBLEMS)
@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize(("solver", "accuracy"), [(SOLVERS[0], 2e-5), (SOLVERS[1], 2e-4), (SOLVERS[2], 2e-5)])
def test_solution_is_numpys(rng, make, ridge, solver, accuracy, machine):
    p = make(rng).on(machine)
    X, Y = p.dense
    solve = solver.prepare(p.rows(block_rows=50)).at(ridge)
    Z = home(solve(targets(p, Y)))
    assert Z.dtype == np.float32
    assert relative_error(Z, ridge_solution(X, Y, p.w, ridge)) < accuracy


@pytest.mark.parametrize("make", PROBLEMS)
@pytest.mark.parametrize(
    ("solver", "ridge", "accuracy"), [(SOLVERS[0], 1e-3, 2e-5), (SOLVERS[1], 0.3, 2e-4), (SOLVERS[2], 30.0, 2e-5)]
)
def test_solution_is_scikit_learns_ridge_with_an_intercept(rng, make, ridge, solver, accuracy, machine):
    p = make(rng).on(machine)
    X, Y = p.dense
    solve = solver.prepare(p.rows()).at(ridge)
    Z = home(solve(targets(p, Y)))
    peer = Ridge(alpha=solve.rho[0], solver="svd", tol=1e-12).fit(X[:, :-1], Y, sample_weight=p.w)
    scale = np.abs(peer.coef_).max()
    assert np.abs(Z[:-1] - peer.coef_.T).max() < accuracy * scale
    assert np.abs(Z[-1] - peer.intercept_).max() < accuracy * scale


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("block_rows", [1, 13])
def test_row_blocks_of_any_size_give_the_same_solution(rng, solver, block_rows, machine):
    p = sparse_problem(rng).on(machine)
    B = targets(p, p.dense[1])
    whole, blocked = (solver.prepare(rows).at(0.3)(B) for rows in (p.rows(), p.rows(block_rows=block_rows)))
    assert relative_error(blocked, whole) < 1e-5


def test_one_prepared_system_serves_every_ridge(rng, machine):
    p = sparse_problem(rng).on(machine)
    B = targets(p, p.dense[1])
    for solver in SOLVERS:
        system = solver.prepare(p.rows())
        for ridge in (10.0, 0.1, 10.0):
            again = solver.prepare(p.rows()).at(ridge)
            np.testing.assert_array_equal(home(system.at(ridge)(B)), home(again(B)))


@pytest.mark.parametrize("solver", [Cholesky(), DualCholesky()])
def test_a_solver_whose_memory_has_the_factor_of_another_ridge_refuses(rng, solver):
    p = sparse_problem(rng)
    B, system = targets(p, p.dense[1]), solver.prepare(p.rows())
    first = system.at(1.0)
    system.at(0.1)
    with pytest.raises(RuntimeError, match="factored again"):
        first(B)


def test_a_gram_system_returns_the_same_matrix_after_factors_in_its_memory(rng, machine):
    X = rng.normal(size=(700, 600))  # more than one block of rows is mirrored
    G = X.T @ X
    system = GramSystem(machine.to_device(G.copy()))
    before = home(system.at(0.3)(machine.to_device(G[:, :2].copy())))
    np.testing.assert_array_equal(home(system.G), G)
    np.testing.assert_array_equal(home(system.at(0.3)(machine.to_device(G[:, :2].copy()))), before)


def test_inverse_times_gram_plus_rho_is_the_identity(rng, machine):
    p = dense_problem(rng).on(machine)
    X, _ = p.dense
    solve = p.solve(0.3)
    A = X.T @ (p.w[:, None] * X) + np.diag(solve.rho)
    M = home(solve.factor.inverse())
    np.testing.assert_array_equal(M, M.T)
    np.testing.assert_allclose(M @ A, np.eye(len(A)), atol=1e-5)


# Large d: sparse products only


def test_conjugate_gradients_are_lsqr_at_200_000_features(rng):
    n, d = 2000, 200_000
    A = sp.random_array((n, d - 1), density=40 / d, rng=rng, dtype=np.float32, format="csr")
    X = sp.csr_array(sp.hstack([A, np.ones((n, 1), np.float32)], format="csr"))
    Y = sp.csr_array((rng.random((n, 2)) < 0.2).astype(np.float32))
    w = rng.integers(1, 5, n) / 2
    solve = ConjugateGradient(tol=1e-6).prepare(Rows.of(X, Y, w, block_rows=700)).at(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = solve((X.T @ (w[:, None] * Y.toarray())).astype(np.float32))
    root, penalty = np.sqrt(w), sp.eye_array(d - 1, d) * np.sqrt(solve.rho[0])  # the intercept is not penalised
    tall = sp.vstack([sp.diags_array(root) @ X.astype(np.float64), penalty], format="csr")
    for column in range(2):
        target = np.concatenate([root * Y.toarray()[:, column], np.zeros(d - 1)])
        exact = lsqr(tall, target, atol=1e-10, btol=1e-10)[0]
        # The features sum to nearly a constant, so the residual of 1e-6 is amplified in Z but not in XZ.
        assert np.linalg.norm(Z[:, column] - exact) < 2e-4 * np.linalg.norm(exact)
        assert np.linalg.norm(X @ (Z[:, column] - exact)) < 1e-5 * np.linalg.norm(X @ exact)


def test_features_beyond_the_data_keep_a_weight_of_zero(rng, machine):
    p = sparse_problem(rng, d=400, density=0.01).on(machine)
    X, Y = p.dense
    for solver in SOLVERS:
        Z = home(solver.prepare(p.rows()).at(0.3)(targets(p, Y)))
        empty = ~X.any(axis=0)
        assert empty.any()
        assert not Z[empty].any()


# Fewer rows than features


@pytest.mark.parametrize("make", PROBLEMS)
@pytest.mark.parametrize("penalize_intercept", [False, True])
def test_the_dual_solution_is_the_primal_one_with_rows_of_weight_zero_left_out(rng, make, penalize_intercept, machine):
    p = make(rng, n=60, d=150).on(machine)
    w = p.w.copy()
    w[::4] = 0
    rows = p.rows(block_rows=17).weighted(w)
    B = targets(p._replace(w=w), p.dense[1])
    dual, primal = (
        s.prepare(rows, penalize_intercept=penalize_intercept).at(0.3) for s in (DualCholesky(), Cholesky())
    )
    np.testing.assert_allclose(dual.rho, primal.rho)
    assert relative_error(dual(B), primal(B)) < 1e-5


def test_the_dual_solves_for_right_hand_sides_outside_the_span_of_the_rows(rng, machine):
    p = sparse_problem(rng, n=30, d=80).on(machine)
    B = rng.standard_normal((81, 5)).astype(np.float32)
    B[~p.dense[0].any(axis=0)] = 0
    B = machine.to_device(B)
    assert relative_error(DualCholesky().prepare(p.rows()).at(0.3)(B), p.solve(0.3)(B)) < 1e-5


def test_the_dual_needs_a_ridge_and_says_so(rng, machine):
    p = sparse_problem(rng, n=20, d=40).on(machine)
    with pytest.warns(RuntimeWarning, match="DualCholesky needs a ridge"):
        solve = DualCholesky().prepare(p.rows()).at(0.0)
    X, Y = p.dense
    assert np.abs(X @ home(solve(targets(p, Y))) - Y).max() < 1e-2


def test_the_dual_of_features_that_are_all_zero_is_the_weighted_mean(rng, machine):
    X = np.zeros((9, 4), np.float32)
    X[:, -1] = 1
    p = Problem(sp.csr_array(X), sp.csr_array(np.eye(9, 2, dtype=np.float32)), np.arange(1.0, 10), machine)
    Z = home(DualCholesky().prepare(p.rows()).at(0.3)(targets(p, p.dense[1])))
    np.testing.assert_allclose(Z, np.vstack([np.zeros((3, 2)), [[1 / 45, 2 / 45]]]), atol=1e-7)


# Preconditioners, groups and starts


def correlated_problem(rng, n=400, d=300, factors=8):
    """Features that few factors drive: their diagonal says little about them."""
    A = rng.standard_normal((n, factors)) @ rng.standard_normal((factors, d)) + 0.1 * rng.standard_normal((n, d))
    Y = (rng.random((n, 150)) < 0.2).astype(np.float32)
    return Problem(np.hstack([A, np.ones((n, 1))]).astype(np.float32), sp.csr_array(Y), rng.integers(1, 9, n) / 4)


@pytest.mark.parametrize("make", [sparse_problem, correlated_problem])
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_every_preconditioner_gives_the_same_solution(rng, make, ridge, machine):
    p = make(rng).on(machine)
    B, exact = targets(p, p.dense[1]), p.solve(ridge)(targets(p, p.dense[1]))
    for preconditioner in ("diagonal", "nystrom", "auto"):
        knobs = ConjugateGradient(tol=1e-5, preconditioner=preconditioner, rank=20, iterations=1000)
        assert relative_error(knobs.prepare(p.rows()).at(ridge)(B), exact) < 2e-3


def test_where_few_factors_drive_the_features_the_correction_saves_most_iterations(rng, machine):
    p = correlated_problem(rng).on(machine)
    B, solves = targets(p, p.dense[1]), {}
    for kind in ("diagonal", "nystrom", "auto"):
        knobs = ConjugateGradient(tol=1e-4, preconditioner=kind, rank=20, iterations=1000, group=64)
        solves[kind] = knobs.prepare(p.rows()).at(1e-4)
        solves[kind](B)
    assert solves["nystrom"].iterations < solves["diagonal"].iterations / 2
    assert solves["diagonal"].iterations > 30  # so that "auto" looks, after its first group
    assert solves["nystrom"].products < solves["auto"].products < solves["diagonal"].products


def test_auto_leaves_the_diagonal_alone_where_no_eigenvalue_is_large(rng, machine):
    X = np.hstack([rng.standard_normal((400, 300)), np.ones((400, 1))]).astype(np.float32)
    p = Problem(X, sp.csr_array((rng.random((400, 200)) < 0.2).astype(np.float32)), np.ones(400), machine)
    solve = ConjugateGradient(tol=1e-6, rank=10, iterations=1000, group=64).prepare(p.rows()).at(1e-4)
    solve(targets(p, p.dense[1]))
    assert solve.iterations > 30
    assert solve.flat
    assert solve.correction is None


def test_one_sketch_serves_every_ridge(rng, machine):
    p = correlated_problem(rng).on(machine)
    system = ConjugateGradient(tol=1e-5, preconditioner="nystrom", rank=20, iterations=1000).prepare(p.rows())
    B = targets(p, p.dense[1])[:, :5]
    for ridge in (1.0, 1e-2):
        assert relative_error(system.at(ridge)(B), p.solve(ridge)(B)) < 1e-3
    assert len(system._sketches) == 1


def test_an_unknown_preconditioner_is_refused():
    with pytest.raises(ValueError, match="preconditioner is 'jacobi'; possible are 'auto', 'diagonal', 'nystrom'"):
        ConjugateGradient(preconditioner="jacobi")


def test_a_start_changes_nothing_but_the_count_of_iterations(rng, machine):
    p = sparse_problem(rng).on(machine)
    B = targets(p, p.dense[1])
    system = ConjugateGradient(tol=1e-5).prepare(p.rows())
    solve = system.at(0.1)
    cold, near = solve(B), system.at(0.12)(B)
    solve(B)
    iterations = solve.iterations
    assert relative_error(solve(B, start=near), cold) < 1e-3
    assert solve.iterations < iterations
    solve(B, start=p.solve(0.1)(B))
    assert solve.iterations == 0


@pytest.mark.parametrize("group", [1, 5, 64])
def test_groups_of_any_width_give_the_same_solution(rng, group, machine):
    p = sparse_problem(rng).on(machine)
    B = targets(p, p.dense[1])
    solve = ConjugateGradient(tol=1e-6, group=group).prepare(p.rows()).at(0.3)
    assert relative_error(solve(B), p.solve(0.3)(B)) < 2e-4
    assert solve.residual <= 1e-6


def test_groups_in_threads_are_bit_for_bit_those_one_after_the_other(rng, monkeypatch):
    p = sparse_problem(rng, n=300, d=40, c=20)
    B = rng.standard_normal((p.X.shape[1], 6 * HOST.columns(40))).astype(np.float32)
    found = []
    for short in (0, 1 << 22):
        monkeypatch.setattr("smoothlink.solve.conjugate.SHORT_LOOPS", short)
        solve = ConjugateGradient().prepare(p.rows()).at(0.1)
        found.append((solve(B), solve.iterations, solve.products, solve.residual))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]


def test_columns_advance_in_the_groups_that_kernels_like():
    assert HOST.columns(1000) == VECTOR_WIDTH


# When it goes wrong


def test_conjugate_gradients_say_when_they_stop_early(rng, machine):
    p = sparse_problem(rng).on(machine)
    solve = ConjugateGradient(tol=1e-6, iterations=3).prepare(p.rows()).at(1e-4)
    with pytest.warns(RuntimeWarning, match=r"12 conjugate-gradient columns stopped after 3 .* \(wanted 1.0e-06\)"):
        solve(targets(p, p.dense[1]))
    assert solve.iterations == 3
    assert solve.residual > 1e-6


def test_columns_stop_on_their_own_and_a_column_of_zeros_at_once(rng, machine):
    p = sparse_problem(rng).on(machine)
    X, Y = p.dense
    T = np.column_stack([np.zeros(120), np.ones(120), Y[:, 0]])  # the constant answers the second in no time
    solve = ConjugateGradient(tol=1e-5).prepare(p.rows()).at(0.3)
    Z = home(solve(targets(p, T)))
    assert not Z[:, 0].any()
    assert relative_error(Z, ridge_solution(X, T, p.w, 0.3)) < 1e-3
    assert 0 < solve.iterations < 100
    assert solve(targets(p, T[:, :1])).shape == (26, 1)
    assert solve.iterations == 0


def test_the_residual_meets_the_tolerance_asked_for(rng, machine):
    p = sparse_problem(rng).on(machine)
    X, Y = p.dense
    B = targets(p, Y)
    for tol in (1e-1, 1e-3):
        solve = ConjugateGradient(tol=tol).prepare(p.rows()).at(0.3)
        A = X.T @ (p.w[:, None] * X) + np.diag(solve.rho)
        M, b = home(solve.inverse_diagonal).astype(np.float64), home(B)
        R = b - A @ home(solve(B))
        norms = np.sqrt(np.einsum("ij,i,ij->j", R, M, R) / np.einsum("ij,i,ij->j", b, M, b))
        assert norms.max() <= 1.01 * tol


def test_a_singular_system_warns_and_still_solves_the_normal_equations(rng, machine):
    p = dense_problem(rng, n=40, d=60).on(machine)  # more features than rows and no ridge; dense sums are float32
    X, Y = p.dense
    with pytest.warns(RuntimeWarning, match="singular"):
        solve = p.solve(0.0)
    Z = home(solve(targets(p, Y)))
    assert np.abs(X @ Z - Y).max() < 1e-2


def test_one_hot_features_without_a_ridge_warn_and_give_the_group_means(rng, machine):
    groups = rng.integers(0, 6, 300)
    X = sp.csr_array(np.hstack([np.eye(6)[groups], np.ones((300, 1))]).astype(np.float32))  # they sum to the constant
    Y = (rng.random((300, 5)) < 0.3).astype(np.float64)
    for weight in (1.0, 1.3, 0.7):
        p = Problem(X, sp.csr_array(Y.astype(np.float32)), np.full(300, weight), machine)
        with pytest.warns(RuntimeWarning, match="singular"):
            Z = home(p.solve(0.0)(targets(p, Y)))
        assert np.abs(Z).max() < (10 if machine is HOST else 100)  # a device sums float32 products
        np.testing.assert_allclose(Z[:-1] + Z[-1], [Y[groups == g].mean(axis=0) for g in range(6)], atol=1e-4)


def test_a_twin_feature_without_ridge_shares_the_weight_of_its_twin(rng, machine):
    p = sparse_problem(rng).on(machine)
    X, Y = p.dense
    twins = sp.csr_array(np.hstack([X[:, :1], X]).astype(np.float32))
    q = p._replace(X=twins)
    with pytest.warns(RuntimeWarning, match="singular"):
        Z = home(q.solve(0.0)(targets(q, Y)))
    alone = ridge_solution(X, Y, p.w, 0.0)
    assert relative_error(Z[0] + Z[1], alone[0]) < 1e-3
    assert relative_error(Z[2:], alone[1:]) < 1e-3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_not_numbers_are_named(bad, machine):
    X = np.array([[bad, 1], [1, 1]], np.float32)
    with np.errstate(invalid="ignore"), pytest.raises(np.linalg.LinAlgError, match="NaN"):
        Problem(X, sp.csr_array(np.eye(2, dtype=np.float32)), np.ones(2), machine).solve(1.0)


def test_a_matrix_that_no_jitter_makes_positive_definite_is_refused(machine):
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        Factorable(machine.to_device(np.array([[1.0, 2.0], [2.0, 1.0]]))).factor(np.zeros(2))


# Which solver


@pytest.mark.parametrize(
    ("n", "d", "entries_per_row", "columns", "kind"),
    [
        (5000, 1837, 70, 132, Cholesky),  # the size of bibtex
        (2000, 104, 104, 34, Cholesky),  # yeast
        (20_000, 50_000, 75, 148, ConjugateGradient),  # rcv1: too wide for a Gram matrix
        (500_000, 150_000, 5, 520, ConjugateGradient),
        (1_000, 19_000, 20, 30, DualCholesky),  # few rows: n^3 costs next to nothing
        (600, 1_400, 13, 53, DualCholesky),  # medical
        (300_000, 1_000, 1_000, 100, Cholesky),  # dense and long
    ],
)
def test_small_d_is_factored_and_large_d_iterated(n, d, entries_per_row, columns, kind):
    assert isinstance(choose_solver(n, d, columns, n * entries_per_row), kind)


def test_a_width_beyond_the_largest_factor_is_iterated_however_many_columns():
    assert isinstance(choose_solver(10**6, 20_001, 10**6, 10**9), ConjugateGradient)


def test_where_the_dual_would_be_factored_sums_are_iterated_until_nearly_exact():
    n, d, columns, entries = 1_000, 19_000, 30, 20_000
    assert isinstance(choose_solver(n, d, columns, entries), DualCholesky)
    assert choose_solver(n, d, columns, entries, by_sums=True) == ConjugateGradient(tol=NEARLY_EXACT)
    assert choose_solver(500_000, 150_000, 520, 2_500_000, by_sums=True) == ConjugateGradient()
