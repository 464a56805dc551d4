"""The relative ridge: what it is, and what does not change it."""

import numpy as np
import pytest
import scipy.sparse as sp
from problems import dense_problem, home, relative_error, rho_of, ridge_solution, sparse_problem

from smoothlink.solve import Cholesky, ConjugateGradient, DualCholesky
from smoothlink.solve.ridge import diagonal, penalties

SOLVERS = [Cholesky(), ConjugateGradient(tol=1e-6), DualCholesky()]


def solution(p, solver, ridge=0.3, **options):
    X, Y = p.dense
    rows = p.rows()
    return home(
        solver.prepare(rows, **options).at(ridge)(rows.to_device((X.T @ (p.w[:, None] * Y)).astype(np.float32)))
    )


def test_rho_is_ridge_times_the_mean_square_sum_of_columns_in_use():
    squares = np.array([4.0, 0.0, 2.0, 100.0])  # the last is the intercept's
    np.testing.assert_array_equal(penalties(0.5, squares), [1.5, 1.5, 1.5, 0])


def test_penalised_the_intercept_counts_and_so_do_empty_columns():
    squares = np.array([4.0, 0.0, 2.0, 10.0])
    np.testing.assert_array_equal(penalties(0.5, squares, penalize_intercept=True), [2.0, 2.0, 2.0, 2.0])


def test_with_no_column_in_use_rho_is_zero():
    np.testing.assert_array_equal(penalties(0.5, np.array([0.0, 7.0])), [0, 0])


@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_diagonal_is_that_of_xtwx(rng, make, machine):
    p = make(rng).on(machine)
    X, _ = p.dense
    np.testing.assert_allclose(diagonal(p.rows(block_rows=50)), (p.w[:, None] * X**2).sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_an_all_zero_feature_changes_nothing(rng, solver, make, machine):
    p = make(rng).on(machine)
    X = p.X.toarray() if sp.issparse(p.X) else p.X
    wider = np.insert(X, [0, 3, X.shape[1] - 1], 0, axis=1)
    wider = p._replace(X=sp.csr_array(wider) if sp.issparse(p.X) else wider)
    Z, wide = solution(p, solver), solution(wider, solver)
    added = [0, 4, X.shape[1] + 1]
    assert not wide[added].any()
    assert relative_error(np.delete(wide, added, axis=0), Z) < 1e-5


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("penalize_intercept", [False, True])
def test_doubling_all_weights_changes_nothing(rng, solver, penalize_intercept, machine):
    p = sparse_problem(rng).on(machine)
    Z = solution(p, solver, penalize_intercept=penalize_intercept)
    doubled = solution(p._replace(w=2 * p.w), solver, penalize_intercept=penalize_intercept)
    assert relative_error(doubled, Z) < 1e-6


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_row_twice_is_every_row_once_with_weight_two(rng, solver, machine):
    p = sparse_problem(rng).on(machine)
    assert relative_error(solution(p.repeated(2), solver), solution(p._replace(w=2 * p.w), solver)) < 1e-5


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_shift_of_the_targets_moves_the_intercept_alone(rng, solver, machine):
    rows = (p := dense_problem(rng).on(machine)).rows()
    X, Y = p.dense
    solve = solver.prepare(rows).at(2.0)
    Z, shifted = (home(solve(rows.to_device((X.T @ (p.w[:, None] * T)).astype(np.float32)))) for T in (Y, Y + 3))
    moved = np.zeros_like(Z)
    moved[-1] = 3
    np.testing.assert_allclose(shifted - Z, moved, atol=2e-5)


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_endless_ridge_leaves_the_intercept_with_the_weighted_means(rng, solver, machine):
    p = dense_problem(rng).on(machine)
    Z = solution(p, solver, ridge=1e6)
    np.testing.assert_allclose(Z[-1], p.w @ p.dense[1] / p.w.sum(), atol=1e-5)
    assert np.abs(Z[:-1]).max() < 1e-5


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_penalised_the_intercept_shrinks_like_the_rest(rng, solver, make, machine):
    p = make(rng).on(machine)
    X, Y = p.dense
    G = X.T @ (p.w[:, None] * X)
    exact = np.linalg.solve(
        G + 0.3 * np.trace(G) / len(G) * np.eye(len(G)),
        X.T @ (p.w[:, None] * Y),
    )
    assert relative_error(solution(p, solver, penalize_intercept=True), exact) < 1e-5
    assert relative_error(ridge_solution(X, Y, p.w, 0.3), exact) > 1e-2  # not penalised, it is another solution


def test_the_oracle_of_these_tests_agrees_on_rho(rng, machine):
    p = sparse_problem(rng).on(machine)
    X, _ = p.dense
    np.testing.assert_allclose(p.solve(0.7).rho, rho_of(X.T @ (p.w[:, None] * X), 0.7), rtol=1e-6)
