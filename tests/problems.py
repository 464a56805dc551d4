"""Small data whose exact answer is known, and the exact answers: dense float64 NumPy, straight from the formulas.

Nothing here calls the library for an answer. X always has its constant as the last column.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from smoothlink.machines.arrays import to_host
from smoothlink.machines.host_and_device import HOST, Machine
from smoothlink.machines.rows import Rows
from smoothlink.solve import Cholesky


class Problem(NamedTuple):
    """Features with their constant, labels and weights; `X` and `Y` are what the library gets."""

    X: object  # (n, d) CSR or dense, float32
    Y: sp.csr_array  # (n, c) float32
    w: np.ndarray  # (n,) float64
    machine: Machine = HOST

    @property
    def dense(self):
        """X and Y in float64."""
        X = self.X.toarray() if sp.issparse(self.X) else self.X
        return X.astype(np.float64), self.Y.toarray().astype(np.float64)

    def on(self, machine: Machine):
        """The same problem for another machine."""
        return self._replace(machine=machine)

    def rows(self, **options) -> Rows:
        return Rows.of(self.X, self.Y, self.w, machine=self.machine, **options)

    def solve(self, ridge: float):
        return Cholesky().prepare(self.rows()).at(ridge)

    def repeated(self, times: int):
        """Every row seen several times."""
        stack = sp.vstack if sp.issparse(self.X) else np.vstack
        X = stack([self.X] * times)
        Y = sp.vstack([self.Y] * times, format="csr")
        return self._replace(X=X.tocsr() if sp.issparse(X) else X, Y=Y, w=np.tile(self.w, times))


def weights(rng, n):
    """Weights that float32 holds exactly, none of them 0."""
    return rng.integers(1, 9, n) / 4


def sparse_problem(rng, n=120, d=25, c=12, *, density=0.3, weighted=True) -> Problem:
    """Sparse features and labels that depend on them through a noisy linear rule."""
    A = sp.random_array((n, d), density=density, rng=rng, dtype=np.float32, format="csr")
    scores = A @ rng.standard_normal((d, c)) + 0.3 * rng.standard_normal((n, c))
    Y = sp.csr_array((scores > np.quantile(scores, 0.8, axis=0)).astype(np.float32))
    X = sp.hstack([A, np.ones((n, 1), np.float32)], format="csr")
    return Problem(sp.csr_array(X), Y, weights(rng, n) if weighted else np.ones(n))


def dense_problem(rng, n=120, d=8, c=12, *, weighted=True) -> Problem:
    """The same with dense Gaussian features."""
    A = rng.standard_normal((n, d)).astype(np.float32)
    scores = A @ rng.standard_normal((d, c)) + 0.3 * rng.standard_normal((n, c))
    Y = sp.csr_array((scores > np.quantile(scores, 0.8, axis=0)).astype(np.float32))
    X = np.hstack([A, np.ones((n, 1), np.float32)])
    return Problem(X, Y, weights(rng, n) if weighted else np.ones(n))


def class_problem(rng, n=150, d=6, c=4, *, weighted=True) -> Problem:
    """One label a row: classes that overlap."""
    centres = 1.5 * rng.standard_normal((c, d))
    labels = np.concatenate([np.arange(c), rng.integers(0, c, n - c)])
    A = (centres[labels] + rng.standard_normal((n, d))).astype(np.float32)
    Y = sp.csr_array((np.ones(n, np.float32), labels.astype(np.int32), np.arange(n + 1)), (n, c))
    return Problem(np.hstack([A, np.ones((n, 1), np.float32)]), Y, weights(rng, n) if weighted else np.ones(n))


def groups_problem(rng, n=200, d=30, groups=5, copies=30) -> Problem:
    """Labels of exact rank `groups`: each of c = groups * copies columns is one of `groups` different ones."""
    p = sparse_problem(rng, n, d, groups)
    Y = sp.csr_array(p.Y.toarray()[:, rng.permutation(np.arange(groups * copies) % groups)])
    return Problem(p.X, Y, p.w)


# The exact answers


def rho_of(G, ridge):
    """The relative ridge of a Gram matrix whose last column is the constant: what is added to its diagonal."""
    squares = np.diag(G)[:-1]
    rho = np.full(len(G), ridge * squares.sum() / np.count_nonzero(squares))
    rho[-1] = 0
    return rho


def ridge_solution(X, T, w, ridge):
    """argmin sum_i w_i |T_i - X_i Z|^2 + rho |Z|^2, the constant free; columns of zeros get 0."""
    G = X.T @ (w[:, None] * X)
    rho = rho_of(G, ridge)
    rho[np.diag(G) == 0] = 1
    return np.linalg.solve(G + np.diag(rho), X.T @ (w[:, None] * T))


def predictable(p: Problem, ridge):
    """Y'PY (c, c) with P = X (X'X + rho)^-1 X', all sums weighted."""
    X, Y = p.dense
    return Y.T @ (p.w[:, None] * (X @ ridge_solution(X, Y, p.w, ridge)))


def eigen(A):
    """Eigenvalues, descending, and eigenvectors of a symmetric matrix."""
    lam, E = np.linalg.eigh((A + A.T) / 2)
    return lam[::-1], E[:, ::-1]


def relative_error(got, wanted):
    got, wanted = (np.asarray(home(A), np.float64) for A in (got, wanted))
    return np.abs(got - wanted).max() / np.abs(wanted).max()


def home(A):
    """An array, or each of a named tuple's, on the host; anything else as it is."""
    if hasattr(A, "_fields"):
        return type(A)(*map(home, A))
    return to_host(A) if hasattr(A, "shape") else A


def at_home(f):
    """f with its result on the host."""
    return lambda *args, **options: home(f(*args, **options))


def request(**changes):
    """The estimator's defaults, as a fit gets them, with some changed."""
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.fitting.settings import Request

    return replace(Request.of(SmoothLinkClassifier().get_params(deep=False), seed=0), **changes)


def complete(**changes):
    """A request that leaves nothing to held-out rows."""
    given = {
        "rank": 5,
        "ridge": 0.5,
        "bandwidth": 1.5,
        "n_features": 60,
        "final_ridge": 0.05,
        "loss": "squared",
        "scale": "none",
        "calibrate": False,
    }
    return request(**given | changes)


def posed(p, asked, Y=None, multiclass=False, plan=None, state=None, label_weight=None):
    """The problem that a request poses with the rows of p, and the settings with which a search begins."""
    from smoothlink.fitting.checkpoint import FitState
    from smoothlink.fitting.prepare import make_problem, number_of_entries, start_settings
    from smoothlink.fitting.settings import TrainingData
    from smoothlink.steps.scale import Scaling

    none = np.zeros(0, np.float32)
    scaling = Scaling("none", none, none, not sp.issparse(p.X))
    data = TrainingData(p.X, p.Y if Y is None else Y, p.w, multiclass, label_weight)
    problem = make_problem(p.X, data, scaling, asked, state or FitState(plan))
    return problem, start_settings(problem, asked, number_of_entries(p.X))
