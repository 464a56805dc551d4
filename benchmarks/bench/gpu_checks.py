"""Does the device compute what it should? Each piece of a fit on a small problem beside float64 NumPy.

The references are written from the formulas and use nothing of the library but its random draws and the order of its
batches. An error is |found - reference| / |reference|; its limit tells float32 from anything coarser, but for what is
computed from halves on a card.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bench.gpu_made import Sizes, made
from smoothlink import Gaussian, Logistic, SmoothLinkClassifier
from smoothlink.machines.arrays import PINNED_BYTES, to_host
from smoothlink.machines.host_and_device import Host, find_machine
from smoothlink.machines.rows import Rows
from smoothlink.solve import Cholesky, ConjugateGradient
from smoothlink.solve.cholesky import add_gram
from smoothlink.solve.conjugate import xt_xp
from smoothlink.steps.embed import xt_yq, yt_xz
from smoothlink.steps.featurize import Features, draw_features, parse_kernel
from smoothlink.steps.sgd import SGD, sgd_passes
from smoothlink.steps.squared import link_sums, squared

Array = NDArray[Any]

SIZES = Sizes(4000, 1200, 640, 14, 2.5)  # large enough that no fit is held to one thread
TEST_ROWS, STEP_ROWS, COLUMNS, RANK, FEATURES, TOP = 512, 300, 48, 40, 500, 5
RIDGE, FINAL_RIDGE = 0.5, 0.01
EXACT, SOLVED, HALF = 2e-5, 2e-4, 2e-2  # limits: products of float32, systems solved in it, products of halves


class Check(NamedTuple):
    """A piece, how far it was off, and how far it may be."""

    name: str
    error: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.error <= self.limit  # never where it is NaN

    def __str__(self) -> str:
        return (
            f"{'pass' if self.passed else 'FAIL'}  {self.name}: relative error {self.error:.1e}, at most {self.limit:g}"
        )


class Problem(NamedTuple):
    """Rows as the library gets them, and in float64."""

    X: sp.csr_array  # (n, d), the intercept last
    Y: sp.csr_array  # (n, c)
    w: Array  # (n,)
    A: Array  # X
    B: Array  # Y

    def rows(self, machine: Any) -> Rows:
        return Rows.of(self.X, self.Y, self.w, machine=machine, block_rows=1500)  # several blocks, the last one short


def checks(device: str, seed: int) -> Iterator[Check]:
    """All of them, in the order of a fit."""
    rng, machine = np.random.default_rng([5, seed]), find_machine(device)
    problem = problem_of(seed, rng)
    yield from check_products(problem, machine, rng)
    yield from check_solvers(problem, machine, rng)
    yield from check_link(problem, machine, rng, bool(machine.half))
    if not isinstance(machine, Host):
        yield check_sampled(problem, machine, rng)
    yield check_top(device, seed, bool(machine.half))
    yield check_return(machine, rng)


def problem_of(seed: int, rng: np.random.Generator) -> Problem:
    rows = made(SIZES, 1, seed).train
    ones = np.ones((SIZES.rows, 1), np.float32)
    X = sp.csr_array(sp.hstack([rows.X, ones], format="csr"))
    w = rng.integers(1, 9, SIZES.rows) / 4  # float32 holds these exactly
    return Problem(X, rows.Y, w, X.toarray().astype(np.float64), rows.Y.toarray().astype(np.float64))


def off(found: Any, reference: Array) -> float:
    """The relative error of an array that may be on the device."""
    return float(np.linalg.norm(to_host(found).astype(np.float64) - reference) / np.linalg.norm(reference))


def check_products(p: Problem, machine: Any, rng: np.random.Generator) -> Iterator[Check]:
    rows, Aw, Bw = p.rows(machine), p.A * p.w[:, None], p.B * p.w[:, None]
    Q, Z = (rng.standard_normal((side, COLUMNS)).astype(np.float32) for side in (rows.c, rows.d))
    yield Check("X'YQ", off(rows.sum(xt_yq, Q, out=(rows.d, COLUMNS)), Aw.T @ (p.B @ Q)), EXACT)
    yield Check("Y'XZ", off(rows.sum(yt_xz, Z, out=(rows.c, COLUMNS)), Bw.T @ (p.A @ Z)), EXACT)
    yield Check("X'XZ", off(rows.sum(xt_xp, Z, out=(rows.d, COLUMNS)), Aw.T @ (p.A @ Z)), EXACT)
    G = rows.sum(add_gram, out=(rows.d, rows.d), dtype=np.float64)
    yield Check("Gram matrix X'X", off(G, Aw.T @ p.A), EXACT)


def check_solvers(p: Problem, machine: Any, rng: np.random.Generator) -> Iterator[Check]:
    rows, G = p.rows(machine), p.A.T @ (p.A * p.w[:, None])
    B = (G @ rng.standard_normal((rows.d, COLUMNS))).astype(np.float32)
    exact = np.linalg.solve(G + np.diag(penalty(G, RIDGE)), B.astype(np.float64))
    for solver in (Cholesky(), ConjugateGradient(tol=1e-6, preconditioner="diagonal")):
        Z = solver.prepare(rows).at(RIDGE)(rows.to_device(B))
        yield Check(f"{type(solver).__name__} solve", off(Z, exact), SOLVED)


def penalty(G: Array, ridge: float) -> Array:
    """rho (d,) of a Gram matrix whose last column is the intercept: relative to the mean diagonal of live columns."""
    squares = np.diag(G)[:-1]
    return np.append(np.full(len(squares), ridge * squares.sum() / np.count_nonzero(squares)), 0.0)


def check_link(p: Problem, machine: Any, rng: np.random.Generator, half: bool) -> Iterator[Check]:
    """Random features, the squared loss and one pass of the others, from embedded rows."""
    H = (p.A @ rng.standard_normal((p.A.shape[1], RANK)) / RANK**0.5).astype(np.float32)
    length = 2.0 * float(H.var(axis=0).sum())
    cauchy = draw_features(parse_kernel("laplacian"), RANK, FEATURES, length, 30.0, 1)
    gauss = draw_features(parse_kernel("gaussian"), RANK, FEATURES, length, 1.0, 2)
    rows = p.rows(machine).with_inputs(H)
    # Angles of 1e4 have an error of 1e-3 in float32, and with halves nothing would be left of them.
    yield Check("cosines, Laplacian kernel", off(rows.to_device(cauchy)(rows.to_device(H)), phi(cauchy, H)), 1e-4)
    Phi, sums = phi(gauss, H), link_sums(rows, gauss)
    G, T = Phi.T @ (Phi * p.w[:, None]), Phi.T @ (p.B * p.w[:, None])
    yield Check("Gram matrix Phi'Phi", off(sums.gram.G, G), EXACT)
    yield Check("targets Phi'Y", off(sums.targets, T), EXACT)
    V = np.linalg.solve(G + np.diag(penalty(G, FINAL_RIDGE)), T)
    yield Check("squared loss V", off(squared(sums, FINAL_RIDGE), V), SOLVED)
    one = sp.csr_array(
        (np.ones(SIZES.rows, np.float32), p.Y.indices[p.Y.indptr[:-1]], np.arange(SIZES.rows + 1)), p.Y.shape
    )
    single = Rows.of(p.X, one, p.w, machine=machine).with_inputs(H)
    for name, data, truth, softmax, batch in (
        ("logistic pass, gradient times M", rows, p.B, False, 1000),
        ("logistic pass, features turned", rows, p.B, False, 64),
        ("softmax pass", single, one.toarray().astype(np.float64), True, 500),
    ):
        found = next(
            sgd_passes(data, gauss, link_sums(data, gauss), FINAL_RIDGE, softmax=softmax, sgd=SGD(batch=batch))
        )
        start, V = one_pass(data, Phi, truth, p.w, softmax=softmax, batch=batch)
        yield Check(name, off(to_host(found).astype(np.float64) - start, V - start), HALF if half else SOLVED)


def check_sampled(p: Problem, machine: Any, rng: np.random.Generator) -> Check:
    """A step of joint training on rows of one group, with all labels scored: how W, V, D and intercepts move."""
    from smoothlink.joint.batches import RowBatches
    from smoothlink.joint.joint_training import NEGATIVES, SPARSE_SQUARES, JointRows, sparse_pattern
    from smoothlink.joint.negatives import EMBEDDING_LENGTH, RATE, SampledState
    from smoothlink.joint.negatives_on_device import DeviceSampledStep

    rows = np.arange(STEP_ROWS)
    pattern = sparse_pattern(p.X, p.Y, rows, 1.0)
    batches = RowBatches.of_groups([rows], STEP_ROWS, 0)
    W, V = (rng.standard_normal(shape).astype(np.float32) for shape in ((p.X.shape[1] - 1, RANK), (p.Y.shape[1], RANK)))
    b = rng.standard_normal(p.Y.shape[1]) - 4
    state = SampledState.begin(W, b, pattern, 1)
    state.V[:] = V
    step = DeviceSampledStep(
        JointRows(p.X[:, :-1], p.Y, p.w.astype(np.float32), False), pattern, batches, state, len(b), machine
    )
    step(next(batches.in_pass(0)), 1.0)
    A, B, w = p.A[rows, :-1], p.B[rows], p.w[rows, None]
    h = A @ W
    lengths = np.linalg.norm(h, axis=1, keepdims=True)
    H = EMBEDDING_LENGTH * h / lengths
    G = w * (1 / (1 + np.exp(-(H @ V.T + b))) - B)
    back = G @ V
    back = (back - H * (back * H).sum(axis=1, keepdims=True) / EMBEDDING_LENGTH**2) * EMBEDDING_LENGTH / lengths
    moved = [RATE * scaled_rows(gradient) for gradient in (A.T @ back, G.T @ H, G.sum(axis=0)[:, None])]
    gradient = (A.T @ G)[pattern.tocoo().coords]
    moved.append(NEGATIVES.sparse_rate * gradient / np.sqrt(SPARSE_SQUARES + gradient**2))
    found = [before - to_host(after) for before, after in ((W, step.W), (V, step.V), (b[:, None], step.b), (0, step.D))]
    errors = [off(ours, theirs) for ours, theirs in zip(found, moved, strict=True)]
    return Check("step with sampled negatives", max(errors), HALF if machine.half else SOLVED)


def scaled_rows(G: Array) -> Array:
    """Each row divided by the root of its mean square: the first step of Adagrad with one rate per row."""
    size = np.sqrt((G**2).mean(axis=1, keepdims=True))
    return np.divide(G, size, out=np.zeros_like(G), where=size > 0)


def phi(features: Features, H: Array) -> Array:
    """sqrt(2) cos(r'h + b) and the intercept, in float64."""
    angles = H.astype(np.float64) @ features.R.astype(np.float64) + features.b
    return np.hstack([np.sqrt(2) * np.cos(angles), np.ones((len(H), 1))])


def one_pass(rows: Rows, Phi: Array, B: Array, w: Array, *, softmax: bool, batch: int) -> tuple[Array, Array]:
    """V at the start and after a pass of the SGD, with its default parameters."""
    total, momentum = w.sum(), SGD().momentum
    G = Phi.T @ (Phi * w[:, None])
    rho = penalty(G, FINAL_RIDGE)[:, None]
    M = np.linalg.inv(G + np.diag(rho[:, 0]))
    frequency = (w @ B + 0.5) / (total + 1)
    V = np.zeros((Phi.shape[1], B.shape[1]))
    V[-1] = np.log(frequency / frequency.sum()) if softmax else np.log(frequency / (1 - frequency))
    start, velocity, activated = V.copy(), np.zeros_like(V), softmax_rows if softmax else sigmoid
    p = activated(V[-1:])
    targets = Phi.T @ (w[:, None] * (B - p))
    eta = 8.0 / (1 + np.sqrt(np.sum(M * G) / batch)) ** 2
    for some in rows.batches(batch, seed=0, pass_number=0):
        weights = w[some] * (total / w[some].sum())
        gradient = Phi[some].T @ ((activated(Phi[some] @ V) - p) * weights[:, None])
        velocity = momentum * velocity + eta * (1 - momentum) * (M @ (targets - gradient - rho * V))
        V += velocity
    return start, V


def sigmoid(Z: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-Z)))


def softmax_rows(Z: Array) -> Array:
    E = np.exp(Z - Z.max(axis=1, keepdims=True))
    return np.asarray(E / E.sum(axis=1, keepdims=True))


def check_return(machine: Any, rng: np.random.Generator) -> Check:
    """A matrix so large that it comes back in parts, and one whose rows do not follow each other."""
    A = rng.standard_normal((2 * PINNED_BYTES // 4 // 1000, 1000), dtype=np.float32)
    return Check(
        "a large matrix there and back", off(to_host(machine.to_device(A)[:, 1:]), A[:, 1:].astype(np.float64)), 0
    )


def check_top(device: str, seed: int, half: bool) -> Check:
    """What the scores of the chosen labels lack of those of the best ones, in scores of float64."""
    train, test = made(SIZES, TEST_ROWS, seed)
    settings: dict[str, Any] = {"rank": RANK, "ridge": RIDGE, "kernel": Gaussian(2.0, FEATURES)}
    settings |= {"final_ridge": FINAL_RIDGE, "loss": Logistic(passes=2), "training": "stepwise"}
    fitted = SmoothLinkClassifier(**settings, calibrate=False, device=device, random_state=seed).fit(train.X, train.Y)
    model = fitted.model_
    H = model.scaling(test.X).toarray().astype(np.float64) @ to_host(model.W)
    S = phi(model.features, H) @ to_host(model.V)
    S[:, model.untrained] = -np.inf
    chosen = fitted.predict_topk(test.X, k=TOP).indices.reshape(TEST_ROWS, TOP)
    best, reached = np.sort(S, axis=1)[:, : -TOP - 1 : -1], np.take_along_axis(S, chosen, axis=1)
    return Check(
        f"top {TOP} labels", float(np.abs(best - reached).max() / np.abs(best).max()), HALF if half else SOLVED
    )
