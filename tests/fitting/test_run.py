"""run(): the path put together, against the steps composed by hand and against closed forms."""

import subprocess
import sys
import warnings
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from problems import (
    class_problem,
    complete,
    dense_problem,
    posed,
    relative_error,
    request,
    ridge_solution,
    sparse_problem,
)
from scipy.special import expit, softmax
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from smoothlink import SmoothLinkClassifier, Softmax
from smoothlink.fitting.calibration import not_calibrated
from smoothlink.fitting.holdout import MANY_ROWS, validation_rows
from smoothlink.fitting.link import fit_link
from smoothlink.fitting.prepare import feature_count, largest_rank_of, resolve_solver
from smoothlink.fitting.run import finish, run
from smoothlink.fitting.settings import ChosenSettings, Clock, TrainingData, peak_memory_mb
from smoothlink.machines.rows import Rows
from smoothlink.machines.seeded_numbers import derive_seed
from smoothlink.solve import Cholesky, ConjugateGradient, DualCholesky
from smoothlink.steps.embed import embed_rows, label_embedding, rank_for_share
from smoothlink.steps.featurize import draw_features, median_squared_distance, parse_kernel
from smoothlink.steps.scale import choose_scaling
from smoothlink.steps.sgd import SGD, sgd_passes
from smoothlink.steps.squared import Smoothing, link_sums, prior, squared


def raw(p):
    """Features without the intercept, which a fit appends itself."""
    return sp.csr_array(p.X[:, :-1]) if sp.issparse(p.X) else np.ascontiguousarray(p.X[:, :-1])


def trained(p, asked=None, *, X=None, multiclass=False, label_weight=None, **more):
    data = TrainingData(raw(p) if X is None else X, p.Y, p.w, multiclass, label_weight)
    return run(data, asked or complete(), **more)


def scored(model, X):
    return model.scores(model.embed(X))


# By hand


@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_training_at_given_settings_is_the_steps_composed_by_hand(rng, make, loss, seed):
    p = make(rng, c=40)
    asked = complete(
        scale="auto", kernel="matern(3)", normalize_embedding=True, oversample=7, power=2,
        label_smoothing=0.9, loss=loss, passes=3, batch_rows=30, momentum=0.5, decay=0.7, learning_rate=0.8, seed=seed,
    )  # fmt: skip
    model = trained(p, asked).model

    scaling = choose_scaling(raw(p), "auto", p.w)
    rows = Rows.of(scaling(raw(p)), p.Y, p.w)
    solve = Cholesky().prepare(rows).at(0.5)
    e = label_embedding(rows, 5, solve, np.random.default_rng([seed, 1]), oversample=7, power=2)
    H = rows.map(embed_rows, e.W)
    H /= np.linalg.norm(H, axis=1, keepdims=True)
    length = median_squared_distance(H, rows.w)
    draws = derive_seed(seed, 2)
    features = draw_features(parse_kernel("matern(3)"), 5, 60, length, 1.5, draws)
    sums = link_sums(rows.with_inputs(H), features)
    smoothing = Smoothing.of(0.9, 40, multiclass=False)
    if loss == "squared":
        V = squared(sums, 0.05, smoothing)
    else:
        knobs = SGD(learning_rate=0.8, momentum=0.5, decay=0.7, batch=30)
        run = sgd_passes(
            rows.with_inputs(H), features, sums, 0.05, softmax=False, sgd=knobs, smoothing=smoothing, seed=seed
        )
        V = next(islice(run, 2, None))

    np.testing.assert_allclose(model.embed(raw(p)), H, atol=1e-5)
    np.testing.assert_allclose(model.features.R, features.R, rtol=1e-4)
    assert relative_error(model.V.columns(), V) < 1e-3
    np.testing.assert_allclose(scored(model, raw(p)), features(H) @ V, atol=1e-3)


def test_a_linear_link_over_every_direction_is_two_ridge_regressions(rng):
    p = dense_problem(rng, c=6)
    X, Y = p.dense
    model = trained(p, complete(kernel="linear", rank=6)).model
    H = X @ ridge_solution(X, Y, p.w, 0.5)  # the directions are a rotation, which no relative ridge notices
    H1 = np.hstack([H, np.ones((120, 1))])
    exact = H1 @ ridge_solution(H1, Y, p.w, 0.05)
    np.testing.assert_allclose(scored(model, raw(p)), exact, atol=1e-3)


def test_no_embedding_and_a_linear_link_is_ridge_regression(rng):
    p = dense_problem(rng)
    X, Y = p.dense
    model = trained(p, complete(embedding="none", kernel="linear", final_ridge=0.2)).model
    np.testing.assert_allclose(scored(model, raw(p)), X @ ridge_solution(X, Y, p.w, 0.2), atol=1e-4)
    assert model.W is None


@pytest.mark.parametrize("block_rows", [1, 50, 119])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_row_blocks_of_any_size_give_the_same_model(rng, make, loss, block_rows):
    p = make(rng)
    asked = {"loss": loss, "passes": 2, "calibrate": True}
    whole, blocked = (trained(p, complete(block_rows=b, **asked)).model for b in (None, block_rows))
    np.testing.assert_allclose(scored(blocked, raw(p)), scored(whole, raw(p)), atol=2e-3)
    np.testing.assert_allclose(blocked.thresholds, whole.thresholds, atol=0.02)


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
@pytest.mark.parametrize("scale", ["none", "variance"])
def test_seeing_every_row_twice_is_seeing_it_once_with_weight_two(rng, kernel, scale):
    p = dense_problem(rng)
    asked = complete(kernel=kernel, scale=scale)
    twice, heavy = (trained(q, asked).model for q in (p.repeated(2), p._replace(w=2 * p.w)))
    plain = trained(p, asked).model
    np.testing.assert_allclose(scored(twice, raw(p)), scored(heavy, raw(p)), atol=1e-3)
    np.testing.assert_allclose(scored(plain, raw(p)), scored(heavy, raw(p)), atol=1e-3)
    assert twice.total == heavy.total == 2 * plain.total


def test_rows_of_weight_zero_are_not_there(rng):
    p = dense_problem(rng)
    kept = rng.random(120) < 0.6
    silent = p._replace(w=p.w * kept)
    alone = p._replace(X=p.X[kept], Y=p.Y[kept], w=p.w[kept])
    a, b = (trained(q, complete(scale="variance")).model for q in (silent, alone))
    np.testing.assert_allclose(scored(a, raw(p)), scored(b, raw(p)), atol=1e-3)


def test_the_same_seed_repeats_exactly_and_another_does_not(rng):
    p = sparse_problem(rng, c=40)
    a, b, c = (trained(p, complete(seed=s, loss="logistic", passes=2)).model for s in (3, 3, 4))
    np.testing.assert_array_equal(a.V, b.V)
    assert not np.allclose(a.V.columns(), c.V.columns())


# Probabilities


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
def test_labels_never_seen_get_their_prior_and_rank_last(rng, loss):
    multiclass = loss == "softmax"
    p = class_problem(rng) if multiclass else dense_problem(rng)
    c = p.Y.shape[1]
    wider = sp.csr_array((p.Y.data, p.Y.indices, p.Y.indptr), (p.Y.shape[0], c + 2))
    model = trained(p._replace(Y=wider), complete(loss=loss), multiclass=multiclass).model
    S = scored(model, raw(p))
    P = model.probabilities(S)
    assert np.isneginf(S[:, c:]).all()
    assert (P[:, c:] > 0).all()
    assert P[:, c:].max() < 1 / p.w.sum()
    assert (np.argsort(-S, axis=1, kind="stable")[:, -2:] >= c).all()
    if multiclass:
        np.testing.assert_allclose(P.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
def test_a_row_without_features_gets_the_label_frequencies(rng, loss):
    multiclass = loss == "softmax"
    p = sparse_problem(rng, n=150, d=40, density=0.1)
    if multiclass:
        p = p._replace(Y=class_problem(rng).Y)
    model = trained(p, complete(loss=loss, passes=3, scale="unit"), multiclass=multiclass).model
    P = model.probabilities(scored(model, sp.csr_array((2, 40), dtype=np.float32)))
    frequencies = prior(p.w @ p.dense[1], p.w.sum())
    exact = frequencies / frequencies.sum() if multiclass else frequencies
    np.testing.assert_allclose(P, np.tile(exact, (2, 1)), rtol=1e-4)


def test_an_endless_ridge_answers_every_row_with_the_label_frequencies(rng):
    p = dense_problem(rng)
    model = trained(p, complete(ridge=1e6, final_ridge=1e6, kernel="linear")).model
    np.testing.assert_allclose(scored(model, raw(p)), np.tile(p.w @ p.dense[1] / p.w.sum(), (120, 1)), atol=1e-3)


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
def test_probabilities_are_the_losses_own_link_where_nothing_is_calibrated(rng, loss):
    multiclass = loss == "softmax"
    p = class_problem(rng) if multiclass else dense_problem(rng)
    model = trained(p, complete(loss=loss, passes=3), multiclass=multiclass).model
    S = scored(model, raw(p)).astype(np.float64)
    link = {"squared": lambda Z: np.clip(Z, 0, 1), "logistic": expit, "softmax": lambda Z: softmax(Z, axis=1)}[loss]
    np.testing.assert_allclose(model.probabilities(S.astype(np.float32)), link(S), atol=1e-5)


@pytest.mark.parametrize("multiclass", [False, True])
def test_calibrated_probabilities_are_right_on_average(rng, multiclass):
    p = class_problem(rng, n=600) if multiclass else dense_problem(rng, n=600)
    train_part, test_part = np.arange(400), np.arange(400, 600)
    seen = p._replace(X=p.X[train_part], Y=p.Y[train_part], w=np.ones(400))
    model = trained(seen, complete(loss="auto", calibrate=True), multiclass=multiclass).model
    P = model.probabilities(scored(model, raw(p)[test_part]))
    Y = p.Y[test_part].toarray()
    sure = P > 0.5
    # Some 200 pairs or more: a standard error of about .03.
    assert P[sure].mean() == pytest.approx(Y[sure].mean(), abs=0.12)
    assert P.mean() == pytest.approx(Y.mean(), abs=0.05)


# The kernel first stage and Algorithm 2


@pytest.mark.parametrize("make", [sparse_problem, dense_problem])
def test_an_input_kernel_is_ridge_regression_on_random_features_of_x(rng, make):
    p = make(rng)
    asked = complete(
        embedding="per_label",
        input_kernel="laplacian",
        input_features=80,
        input_bandwidth=3.0,
        input_map="random",
        kernel="linear",
    )
    model = trained(p, asked).model
    X, Y = p.dense
    length = median_squared_distance(X[:, :-1].astype(np.float32), p.w)
    draws = derive_seed(0, 4)
    features = draw_features(parse_kernel("laplacian"), X.shape[1] - 1, 80, length, 3.0, draws)
    np.testing.assert_allclose(model.input_features.R, features.R, rtol=1e-4)
    Phi = features(X[:, :-1].astype(np.float32)).astype(np.float64)
    np.testing.assert_allclose(model.embed(raw(p)), Phi @ ridge_solution(Phi, Y, p.w, 0.5), atol=1e-3)


def test_a_kernel_first_stage_fits_what_no_linear_one_can(rng):
    X = rng.standard_normal((400, 2)).astype(np.float32)
    Y = sp.csr_array(np.column_stack([X[:, 0] * X[:, 1] > 0, (X**2).sum(axis=1) > 1.4]).astype(np.float32))
    p = sparse_problem(rng)._replace(X=np.hstack([X, np.ones((400, 1), np.float32)]), Y=Y, w=np.ones(400))

    def hits(**changes):
        model = trained(p, complete(rank=2, kernel="linear", ridge=1e-2, **changes)).model
        return ((scored(model, X) > 0.5) == Y.toarray()).mean()

    assert hits() < 0.75
    assert hits(input_kernel="gaussian", input_features=300, input_bandwidth=0.7) > 0.93


KERNELS_OF_DISTANCES = {
    "gaussian": lambda D, width: np.exp(-((D / width) ** 2)),
    "exponential": lambda D, width: np.exp(-D / width),
    "matern(3)": lambda D, width: (1 + np.sqrt(3) * D / width) * np.exp(-np.sqrt(3) * D / width),
}


@pytest.mark.parametrize("kernel", KERNELS_OF_DISTANCES)
def test_landmarks_at_every_row_are_kernel_ridge_regression(rng, kernel):
    p = dense_problem(rng)._replace(w=np.ones(len(dense_problem(rng).w)))
    asked = complete(embedding="per_label", input_kernel=kernel, input_bandwidth=0.8, kernel="linear", ridge=0.3)
    model = trained(p, asked).model
    X, Y = p.dense
    X = X[:, :-1]
    width = 0.8 * np.sqrt(median_squared_distance(X.astype(np.float32)))
    distances = np.sqrt(np.maximum(((X[:, None] - X) ** 2).sum(axis=2), 0))
    K = KERNELS_OF_DISTANCES[kernel](distances, width)
    n = len(X)
    assert model.input_features.points.shape == X.shape
    # [K + rho, 1; 1', 0]: the constant is free, and the ridge is relative to the mean of K's n diagonal ones.
    system = np.block([[K + 0.3 * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.vstack([Y, np.zeros((1, Y.shape[1]))]))
    np.testing.assert_allclose(model.embed(raw(p)), K @ solution[:-1] + solution[-1], atol=2e-3)


def test_a_kernel_of_the_inputs_is_chosen_where_it_pays_and_only_there(rng):
    X = rng.standard_normal((300, 2)).astype(np.float32)
    free = {"ridge": "auto", "input_kernel": "auto", "scale": "variance", "kernel": "linear", "rank": 2}
    curved = np.column_stack([X[:, 0] * X[:, 1] > 0, (X**2).sum(axis=1) > 1.4])
    straight = np.column_stack([X[:, 0] > 0.3, X[:, 0] + X[:, 1] > 0])
    for truth, chosen in ((curved, "gaussian"), (straight, None)):
        Y = sp.csr_array(truth.astype(np.float32))
        fitted = run(TrainingData(X, Y, np.ones(300), False), complete(**free))
        assert fitted.summary["input_kernel"] == chosen
        assert fitted.summary["chosen_by"]["input_kernel"] == "held-out rows"
    text = sp.csr_array(np.where(rng.random((300, 40)) < 0.1, 1.0, 0.0).astype(np.float32))
    found = run(TrainingData(text, Y, np.ones(300), False), complete(**free | {"scale": "unit"}))
    assert found.summary["input_kernel"] is None


def test_logistic_regression_as_first_stage_is_a_linear_map(rng):
    p = dense_problem(rng, c=5)
    model = trained(p, complete(embedding="per_label", classifier=LogisticRegression())).model
    assert model.classifier is None
    one = LogisticRegression().fit(raw(p), p.dense[1][:, 3], sample_weight=p.w)
    np.testing.assert_allclose(model.embed(raw(p))[:, 3], one.decision_function(raw(p)), atol=1e-3)


def test_a_forest_as_first_stage_is_kept_in_the_model(rng):
    p = dense_problem(rng, c=3)
    forest = RandomForestClassifier(5, max_depth=2, random_state=0)
    model = trained(p, complete(embedding="per_label", classifier=forest, kernel="linear")).model
    H = model.embed(raw(p))
    one = RandomForestClassifier(5, max_depth=2, random_state=0).fit(raw(p), p.dense[1][:, 1], sample_weight=p.w)
    odds = one.predict_proba(raw(p))[:, 1].clip(1e-6, 1 - 1e-6)
    np.testing.assert_allclose(H[:, 1], np.log(odds / (1 - odds)), atol=1e-3)
    H1 = np.hstack([H, np.ones((120, 1))]).astype(np.float64)
    np.testing.assert_allclose(scored(model, raw(p)), H1 @ ridge_solution(H1, p.dense[1], p.w, 0.05), atol=1e-3)


def test_label_weights_reach_the_embedding(rng):
    p = dense_problem(rng)
    weight = np.zeros(12)
    weight[7] = 1
    found = trained(p, complete(rank=1), label_weight=weight)
    np.testing.assert_allclose(np.abs(found.U[:, 0]), np.arange(12) == 7, atol=1e-5)


# Sizes


@pytest.mark.parametrize(
    ("rank", "multiclass", "largest", "share"),
    [
        (3, False, 3, None),
        (np.int64(3), True, 3, None),
        (99, False, 12, None),  # no more than labels, features and rows
        ("auto", False, 12, None),
        ("adaptive", False, 12, None),
        (0.9, True, 12, 0.9),
    ],
)
def test_the_largest_rank(rng, rank, multiclass, largest, share):
    rows = sparse_problem(rng).rows()
    assert largest_rank_of(rows, complete(rank=rank), 120, multiclass) == (largest, share)


def test_a_share_is_the_rank_that_holds_it(rng):
    rows = sparse_problem(rng).rows()
    exact = rank_for_share(rows, 0.8, 12, np.random.default_rng([0, 5]))
    assert largest_rank_of(rows, complete(rank=0.8), 120, False) == (exact, None)


def test_the_largest_rank_of_other_embeddings_is_their_width(rng):
    rows = sparse_problem(rng).rows()
    assert largest_rank_of(rows, request(embedding="per_label"), 120, False) == (12, None)
    assert largest_rank_of(rows, request(embedding="none"), 120, False) == (25, None)


@pytest.mark.parametrize("rank", ["auto", "adaptive", 0.8])
@pytest.mark.parametrize("multiclass", [False, True])
def test_every_way_to_say_a_rank_trains(rng, rank, multiclass):
    p = class_problem(rng) if multiclass else sparse_problem(rng)
    found = trained(p, complete(rank=rank), multiclass=multiclass)
    k = found.summary["rank"]
    assert found.U.shape == (p.Y.shape[1], k)
    assert found.model.W.shape[1] == k
    assert 0 < found.summary["captured_share"] <= 1
    assert np.isfinite(scored(found.model, raw(p))).all()


def test_n_features_auto_is_three_for_five_rows_within_limits():
    assert feature_count(request(), 100, 10) == 200
    assert feature_count(request(), 300, 10) == 600
    assert feature_count(request(), 1000, 10) == 1000
    assert feature_count(request(), 2000, 10) == 1200
    assert feature_count(request(), 10_000, 10) == 2000
    assert feature_count(request(), 10**7, 10) == 1000
    assert feature_count(request(n_features=17), 10**6, 10) == 17


def test_solvers_go_by_name_by_cost_or_as_they_are():
    sizes = 200, 41, 5, 2000
    assert isinstance(resolve_solver("cholesky", *sizes), Cholesky)
    assert isinstance(resolve_solver("dual", *sizes), DualCholesky)
    assert isinstance(resolve_solver("cg", *sizes), ConjugateGradient)
    assert isinstance(resolve_solver("auto", *sizes), Cholesky)
    assert isinstance(resolve_solver("auto", 10**6, 10**6, 300, 10**7), ConjugateGradient)
    mine = ConjugateGradient(tol=0.5)
    assert resolve_solver(mine, *sizes) is mine


def test_both_solvers_train_the_same_model(rng):
    p = sparse_problem(rng)
    a, b = (trained(p, complete(solver=s)).model for s in ("cholesky", ConjugateGradient(tol=1e-6)))
    np.testing.assert_allclose(scored(a, raw(p)), scored(b, raw(p)), atol=5e-3)


# Small and odd data


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("c", [2, 40])
def test_a_few_rows_train_with_everything_auto(rng, n, c):
    X = rng.random((n, 4)).astype(np.float32)
    Y = np.zeros((n, c), np.float32)
    Y[0, 1] = 1  # so that some folds have no label at all
    p = sparse_problem(rng)._replace(X=np.hstack([X, np.ones((n, 1), np.float32)]), Y=sp.csr_array(Y), w=np.ones(n))
    with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one row alone is like all others
        model = trained(p, request(n_features=20)).model
    P = model.probabilities(scored(model, X))
    assert ((P > 0) & (P < 1)).all()


def test_one_random_feature_and_a_rank_beyond_everything_train(rng):
    p = sparse_problem(rng)
    found = trained(p, complete(n_features=1, rank=500))
    assert found.model.V.shape == (2, 12)
    assert found.summary["rank"] == 12


def test_features_that_do_not_vary_leave_the_label_frequencies(rng):
    p = dense_problem(rng)
    X = np.full((120, 3), 2, np.float32)
    with pytest.warns(RuntimeWarning, match="All embedded rows are equal"):
        model = trained(p, complete(scale="variance"), X=X).model
    np.testing.assert_allclose(scored(model, X), np.tile(p.w @ p.dense[1] / p.w.sum(), (120, 1)), atol=1e-4)


# The story of a fit


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_summary_tells_settings_sizes_and_costs(rng, loss):
    p = sparse_problem(rng)
    told = []
    found = trained(p, complete(loss=loss, passes=3), notify=lambda stage, share, words: told.append((stage, share)))
    s = found.summary
    assert (s["rows"], s["features"], s["labels"], s["task"]) == (120, 25, 12, "multilabel")
    assert (s["rank"], s["ridge"], s["bandwidth"], s["final_ridge"]) == (5, 0.5, 1.5, 0.05)
    assert (s["kernel"], s["random_features"], s["scale"], s["solver"]) == ("gaussian", 60, "none", "Cholesky")
    assert (s["loss"], s["passes"], s["held_out_rows"]) == (loss, 3 if loss == "logistic" else 0, 0)
    assert 0 < s["captured_share"] <= 1
    stages = ["scale", "choose", "calibrate", "embed", "featurize", "fit"]
    assert list(s["seconds"]) == list(s["peak_memory_mb"]) == stages
    assert [name for name, share in told if share == 0.0] == stages
    assert [name for name, share in told if share == 1.0] == stages
    assert [share for name, share in told if name == "fit" and 0 < share < 1] == [1 / 3, 2 / 3] * (loss == "logistic")


def test_a_fit_that_chooses_counts_trials_and_folds(rng):
    told = []
    trained(sparse_problem(rng), request(input_kernel=None), notify=lambda *now: told.append(now))
    chosen = [(share, words) for step, share, words in told if step == "choose"]
    assert [words for _, words in chosen[1:-1]] == ["1 trial", *(f"{n} trials" for n in range(2, len(chosen) - 1))]
    assert chosen[0] == (0.0, "")
    assert chosen[-1] == (1.0, "")
    calibrated = [words for step, _, words in told if step == "calibrate"]
    assert calibrated[1] == "10 fits, 10 folds embedded"
    assert any("loss" in words for words in calibrated)
    assert all(0 <= share <= 1 for _, share, _ in told)


def test_a_dense_table_counts_the_trials_of_each_stage(rng):
    words = []
    trained(
        dense_problem(rng), request(), notify=lambda step, share, now: words.append(now) if step == "choose" else None
    )
    for part in ("1 of 2, without trees: ", "2 of 2, with trees: "):
        for stage in ("1 of 3, width of the input kernel: 1 trial", "2 of 3, settings", "3 of 3, settings"):
            assert any(now.startswith(part + stage) for now in words)


@pytest.mark.parametrize(("curved", "stage", "left_out"), [(True, "3 of 3", "2 of 3"), (False, "2 of 3", "3 of 3")])
def test_a_link_is_searched_for_x_or_for_its_kernel_alone_where_ridge_regression_tells_which(
    rng, curved, stage, left_out
):
    X, words = rng.standard_normal((1100, 3)), []
    scores = 1 - np.abs(X) if curved else X  # no linear function of x knows the first
    Y = sp.csr_array((scores + 0.1 * rng.standard_normal(X.shape) > 0).astype(np.float32))
    fitted = run(
        TrainingData(X, Y, None, False),
        request(trees=False, n_features=30, input_features=60, loss="squared"),
        notify=lambda step, share, now: words.append(now[:6]) if step == "choose" else None,
    )
    assert (fitted.summary["input_kernel"] is not None) == curved
    assert stage in words
    assert left_out not in words


def test_a_table_of_which_ridge_regression_predicts_every_row_is_fitted_over_x(rng):
    X = np.repeat([[-1.0, 0.0], [1.0, 0.0]], 550, axis=0) + [0, 1] * rng.standard_normal((1100, 2))
    Y = sp.csr_array(np.column_stack([X[:, 0] > 0, X[:, 0] < 0]).astype(np.float32))
    asked = request(trees=False, n_features=30, input_features=60, loss="squared")
    assert run(TrainingData(X, Y, None, False), asked).summary["input_kernel"] is None


def test_the_captured_share_is_that_of_the_rank_kept(rng):
    p = sparse_problem(rng)
    exact = trained(p, complete(rank=2, scale="none")).summary
    problem, settings = posed(p, complete(rank=9))  # nine directions are sought and two kept
    choice = ChosenSettings(problem, replace(settings, rank=2, ridge=0.5), {})
    model, embedded = fit_link(problem, problem.rows, choice.settings, not_calibrated(12), Clock())
    found = finish(model, embedded, choice, not_calibrated(model.n_labels), {}, complete(rank=9), Clock())
    assert found.summary["rank"] == exact["rank"] == 2
    assert found.summary["captured_share"] == pytest.approx(exact["captured_share"], rel=1e-4)
    assert found.U.shape == (12, 2)


def without_held(p, held):
    w = p.w.copy()
    w[held] = 0
    return p._replace(w=w)


def test_of_many_rows_those_that_calibrate_have_no_part_in_the_embedding_but_in_the_decoder(rng, tmp_path):
    p, given = (
        dense_problem(rng, n=MANY_ROWS, d=3, c=3, weighted=False),
        {"rank": 3, "n_features": 20, "final_ridge": 0.1},
    )
    asked = complete(calibrate=True, **given)
    held = validation_rows(p.w, asked)[0]
    fitted, saved = trained(p, asked), trained(p, replace(asked, checkpoint=tmp_path))
    others = trained(without_held(p, held), complete(**given))
    problem, _ = posed(p, complete(**given))
    rows = problem.rows.with_inputs(fitted.model.embed(raw(p)))
    V = squared(link_sums(rows, fitted.model.features), 0.1)
    X = raw(p)[:50]
    assert fitted.summary["held_out_rows"] == len(held)
    assert fitted.model.total == MANY_ROWS
    np.testing.assert_array_equal(np.asarray(fitted.model.W), np.asarray(others.model.W))
    np.testing.assert_allclose(np.asarray(fitted.model.V), V, rtol=1e-4, atol=5e-5)
    assert np.abs(np.asarray(others.model.V) - V).max() > 5e-4
    np.testing.assert_allclose(scored(saved.model, X), scored(fitted.model, X), atol=1e-3)


def test_of_many_rows_a_logistic_decoder_does_without_those_that_calibrate(rng):
    p, given = (
        dense_problem(rng, n=MANY_ROWS, d=3, c=3, weighted=False),
        {"rank": 3, "n_features": 20, "loss": "logistic"},
    )
    asked = complete(calibrate=True, passes=1, **given)
    held = validation_rows(p.w, asked)[0]
    fitted, others = trained(p, asked), trained(without_held(p, held), complete(passes=1, **given))
    assert fitted.model.total == MANY_ROWS
    np.testing.assert_array_equal(np.asarray(fitted.model.W), np.asarray(others.model.W))
    np.testing.assert_array_equal(np.asarray(fitted.model.V), np.asarray(others.model.V))


def test_a_clock_without_listeners_still_measures():
    clock = Clock()
    with clock.step("rest"):
        pass
    assert clock.seconds["rest"] >= 0
    assert clock.peak_mb["rest"] > 1


def test_without_the_files_of_linux_memory_is_told_by_other_means(monkeypatch):
    monkeypatch.setattr(Path, "read_text", fail_to_read)
    assert peak_memory_mb() > 20


def test_where_the_system_does_not_say_memory_is_not_a_number(monkeypatch):
    monkeypatch.setattr(Path, "read_text", fail_to_read)
    monkeypatch.setitem(sys.modules, "resource", None)
    assert np.isnan(peak_memory_mb())


def fail_to_read(self):
    raise FileNotFoundError(self)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="other systems count the parent's memory too")
def test_the_peak_of_a_child_is_its_own():
    held = np.ones(1 << 26)  # 512 MB
    code = "from smoothlink.fitting.settings import peak_memory_mb; print(peak_memory_mb())"
    found = float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert 20 < found < held.nbytes / (1 << 20)


LOGISTIC_REGRESSION = {"embedding": "none", "kernel": "linear", "loss": Softmax(passes=10), "final_ridge": 0.01}


@pytest.mark.parametrize(
    "given", [LOGISTIC_REGRESSION, pytest.param({}, marks=pytest.mark.slow)], ids=["given", "auto"]
)
@pytest.mark.parametrize("size", [1, 1000])
def test_numbers_beside_one_hot_columns_are_predicted_as_well_as_by_logistic_regression(rng, size, given):
    n, train = 4000, 1000
    numbers, levels = rng.standard_normal((n, 5)), rng.integers(0, 6, (n, 10))
    X = np.hstack([numbers, np.eye(6)[levels].reshape(n, -1)])
    scores = StandardScaler().fit_transform(X) @ rng.standard_normal((65, 4)) / 3
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    X[:, 2] *= size
    fitted = SmoothLinkClassifier(**given).fit(sp.csr_array(X[:train]), y[:train])
    peer = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:train], y[:train])
    assert fitted.summary_["scale"] == "variance"
    assert fitted.score(X[train:], y[train:]) > peer.score(X[train:], y[train:]) - 0.01
