"""Ridge regression onto all labels: held-out scores from one factor, and weights, against refits and scikit-learn."""

import numpy as np
import pytest
import scipy.sparse as sp
from problems import dense_problem, relative_error, sparse_problem
from sklearn.linear_model import Ridge

from smoothlink.solve import Cholesky, DualCholesky
from smoothlink.solve.leave_out import fitted_ridge, held_out_smoother

SOLVERS = [Cholesky(), DualCholesky()]


def refit_scores(p, held, ridge):
    """Scores of held-out rows by a ridge regression fitted without them; its penalty is that of all rows."""
    (X, Y), w = p.dense, p.w
    rho = ridge * np.einsum("ij,ij,i->j", X, X, w)[:-1].sum() / (X.shape[1] - 1)
    kept = np.setdiff1d(np.arange(len(X)), held)
    fitted = Ridge(alpha=rho, solver="cholesky").fit(X[kept, :-1], Y[kept], sample_weight=w[kept])
    return fitted.predict(X[held, :-1])


@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
@pytest.mark.parametrize("solver", SOLVERS, ids=str)
@pytest.mark.parametrize("held", [[7], [3, 50, 90, 91]], ids=["one row", "a group"])
def test_held_out_scores_are_those_of_a_refit_without_these_rows(rng, make, solver, held):
    p = make(rng)
    rows, held = p.rows(block_rows=50), np.array(held)
    L = held_out_smoother(fitted_ridge(rows, solver.prepare(rows).at(0.5)), held)
    Y = p.dense[1]
    assert relative_error(L @ Y, refit_scores(p, held, 0.5)) < 1e-4
    assert not L[:, held].any()


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_weights_onto_all_labels_are_those_of_scikit_learn(rng, solver):
    p = sparse_problem(rng, n=60, d=80)
    rows, (X, Y), w = p.rows(), p.dense, p.w
    used = np.count_nonzero((w[:, None] * X[:, :-1] ** 2).sum(axis=0))
    rho = 0.3 * np.einsum("ij,ij,i->", X[:, :-1], X[:, :-1], w) / used
    wanted = Ridge(alpha=rho, solver="cholesky").fit(X[:, :-1], Y, sample_weight=w)
    labels = np.array([0, 3, 4])
    B = fitted_ridge(rows, solver.prepare(rows).at(0.3)).label_weights(sp.csc_array(Y[:, labels]))
    assert relative_error(B[:-1], wanted.coef_[labels].T) < 1e-4
    assert relative_error(B[-1], wanted.intercept_[labels]) < 1e-4
