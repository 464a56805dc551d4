"""Choices on held-out rows: the climb finds minima, and held-out rows do not reach what is fitted."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from problems import class_problem, complete, posed, request, sparse_problem

from smoothlink.fitting import choose as choosing
from smoothlink.fitting.choose import (
    FOLD_WORK,
    RIDGES,
    SEARCH_TOLERANCE,
    Climb,
    Trials,
    candidate_ranks,
    choose,
    climb,
    grid,
    make_fold,
    narrower,
    nearest,
    search_trials,
    validated_labels,
)
from smoothlink.fitting.embedding import leading_coordinates
from smoothlink.fitting.holdout import holdouts, validation_rows
from smoothlink.fitting.memory import Plan
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.calibrate import Histogram
from smoothlink.steps.squared import squared


def at(settings, *point):
    """The settings at (ridge, rank, bandwidth, final ridge)."""
    return Trials([], settings).at(point)


# The climb


@pytest.mark.parametrize("start", [(1, 1, 1), (32, 1, 8), (4, 16, 4), (0.1, 1000, 1)])
@pytest.mark.parametrize("best", [(1, 1, 1), (32, 32, 32), (4, 8, 2), (16, 1, 32)])
def test_a_climb_finds_the_minimum_of_a_separable_convex_function_and_asks_for_no_point_twice(start, best):
    grid = tuple(2**i for i in range(6))
    asked = []

    def bowl(point):
        asked.append(point)
        return sum((np.log(a / b)) ** 2 for a, b in zip(point, best, strict=True))

    found = climb(bowl, [grid] * 3, start)
    assert found.point == best
    assert found.loss == 0
    assert len(asked) == len(set(asked)) == len(found.tried) < 6**3
    assert all(found.tried[point] == bowl(point) for point in set(asked))


def test_what_a_climb_searched_is_released_when_it_ends():
    class Bowl:
        def __call__(self, point):
            return sum((v - 3) ** 2 for v in point)

    bowl = Bowl()
    released = weakref.ref(bowl)
    gc.disable()  # what only the collector of cycles would find counts as kept
    try:
        climb(bowl, [(1, 2, 3, 4)] * 2, (1, 1))
        del bowl
        assert released() is None
    finally:
        gc.enable()


def test_a_climb_ends_where_no_single_step_helps(rng):
    table = rng.random((5, 5, 5))
    found = climb(lambda p: table[p], [range(5)] * 3, (2, 2, 2))
    for a in range(3):
        for step in (-1, 1):
            there = list(found.point)
            there[a] += step
            if 0 <= there[a] < 5:
                assert table[tuple(there)] >= found.loss


def test_the_last_axis_is_followed_after_each_step_along_another():
    def tilted(p):  # the best value of the last axis moves along with the first: no step along one axis alone helps
        return abs(p[0] - 5) + 10 * abs(p[1] - p[0])

    assert climb(tilted, [range(6), range(6)], (0, 0)).point == (5, 5)


def test_axes_of_one_value_are_given():
    assert climb(lambda p: 0.0, [(3,), (7,)], (1, 1)).point == (3, 7)


def test_axes_are_followed_in_the_order_given():
    moved = []

    def far(p):
        moved.append(p)
        return -p[0] - p[1]

    climb(far, [range(4), range(4), (0,)], (0, 0, 0), order=(1, 0))
    new = [p[:2] for p in moved if p != (0, 0, 0)]
    assert new[:6] == [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_climb_counts_its_trials_and_its_share_ends_below_one():
    told = []
    found = climb(
        lambda p: (p[0] - 3) ** 2 + (p[1] - 2) ** 2, [range(6), range(6)], (0, 0), lambda *now: told.append(now)
    )
    shares, words = zip(*told, strict=True)
    assert words == ("1 trial", *(f"{n} trials" for n in range(2, len(found.tried) + 1)))
    assert all(0 < share < 1 for share in shares)
    assert shares[0] < shares[-1]


def test_nearest_is_in_ratio():
    assert nearest((1.0, 10.0, 100.0), 4.0) == 1
    assert nearest((1.0, 10.0, 100.0), 3.0) == 0
    assert nearest((0.0, 1.0), 0.0) == 0


def test_an_axis_is_the_grid_or_the_value_given():
    assert grid("auto", RIDGES) == RIDGES
    assert grid(3, RIDGES) == (3.0,)


@pytest.mark.parametrize("embedding", ["randomized", "principal", "per_label", "random", "none"])
def test_labels_of_held_out_rows_change_nothing_that_is_fitted(rng, embedding):
    p = sparse_problem(rng, c=40)
    asked = complete(embedding=embedding, oversample=5)
    (held, *_) = holdouts(p.w, asked)
    other = p.Y.toarray()
    other[held] = 1 - other[held]
    fits = []
    for Y in (p.Y, sp.csr_array(other)):
        problem, settings = posed(p, asked, Y)
        fold = make_fold(problem.rows, problem.Y, held, settings.embedder, at_once=False)
        link = Trials([fold], settings).link(fold, at(settings, 0.5, 5, 1.5, 0.1))
        embedded = fold.embedded[0.5]
        fits.append((embedded, link.features.R, link.sums.gram.G, link.held, squared(link.sums, 0.1)))
        np.testing.assert_array_equal(fold.held_labels.toarray(), Y.toarray()[held])
        np.testing.assert_array_equal(fold.held_weights, p.w[held])
    for a, b in zip(*fits, strict=True):
        np.testing.assert_array_equal(a, b)


# Trials


def trials_of(p, asked, multiclass=False, plan=None) -> Trials:
    return search_trials(*posed(p, asked, multiclass=multiclass, plan=plan), asked)


def test_folds_that_are_fitted_at_once_have_the_loss_of_folds_that_are_fitted_in_turn(rng):
    trials = trials_of(sparse_problem(rng), complete())
    assert all(fold.at_once for fold in trials.folds)
    in_turn = replace(trials, folds=[replace(f, at_once=False, links={}, embedded={}) for f in trials.folds])
    point = (0.5, 5, 1.5, 0.1)
    assert trials.loss(point) == pytest.approx(in_turn.loss(point), rel=1e-6)


def test_folds_are_fitted_in_turn_where_memory_is_counted(rng):
    trials = trials_of(sparse_problem(rng), complete(), plan=Plan(memory=1 << 30))
    assert not any(fold.at_once for fold in trials.folds)


def test_the_loss_of_a_point_is_the_brier_score_of_fits_that_have_not_seen_the_rows(rng):
    p = sparse_problem(rng)
    asked = complete()
    trials = trials_of(p, asked)
    assert len(trials.folds) == 10
    histogram = Histogram("squared")
    for fold, held in zip(trials.folds, holdouts(p.w, asked), strict=True):
        kept = np.setdiff1d(np.arange(120), held)
        part = p._replace(X=p.X[kept], Y=p.Y[kept], w=p.w[kept])
        problem, settings = posed(part, asked)
        first = settings.embedder.fit(problem.rows, settings.embedder.prepare(problem.rows), 0.5)
        link = trials.link(fold, trials.at((0.5, 5, 1.5, 0.05)))
        # The embedding of the rows kept, fitted on them alone, is the fold's up to signs.
        np.testing.assert_allclose(np.abs(first.H), np.abs(fold.embedded[0.5][kept]), atol=2e-3)
        V = squared(link.sums, 0.05)
        histogram.add(link.features(link.held) @ V, p.Y[held], p.w[held])
    assert trials.loss((0.5, 5, 1.5, 0.05)) == pytest.approx(histogram.brier(), rel=1e-6)


def test_points_that_share_a_gram_matrix_share_it(rng, monkeypatch):
    p = sparse_problem(rng)
    trials = trials_of(p, complete())
    count = []
    monkeypatch.setattr(choosing, "link_sums", lambda *a, _f=choosing.link_sums, **k: count.append(1) or _f(*a, **k))
    for final in (0.01, 0.1, 1.0):
        trials.loss((0.5, 5, 1.5, final))
    assert len(count) == 10
    trials.loss((0.5, 5, 3.0, 1.0))
    assert len(count) == 20
    assert all(len(fold.links) == 1 and len(fold.embedded) == 1 for fold in trials.folds)


def test_many_rows_are_searched_by_a_sample(rng):
    p = sparse_problem(rng)
    trials = trials_of(p, complete(), plan=Plan(search_rows=60))
    assert {fold.train.n for fold in trials.folds} == {60}
    rows = p.rows()
    numbers = rows.sample(60, 0)
    np.testing.assert_array_equal(trials.folds[0].held_labels.toarray(), p.Y[numbers][trials.folds[0].held].toarray())


def test_the_search_solves_only_as_well_as_it_needs(rng):
    p = sparse_problem(rng)
    for given, expected in ((1e-4, SEARCH_TOLERANCE), (1e-6, 1e-6)):  # nearly exact ones stay so
        found = trials_of(p, complete(solver=ConjugateGradient(tol=given))).settings.embedder.solver
        assert found.tol == expected


def test_very_many_labels_are_compared_by_some_of_every_frequency(rng):
    counts = rng.permutation(1000).astype(float)
    np.testing.assert_array_equal(validated_labels(counts[:300]), np.arange(300))
    some = validated_labels(counts, 300)
    assert len(some) == 250
    assert (np.diff(some) > 0).all()
    assert np.argmax(counts) in some
    np.testing.assert_allclose(np.sort(counts[some]), np.arange(3, 1000, 4))


def test_leading_coordinates_may_have_unit_length(rng):
    H = rng.standard_normal((9, 5)).astype(np.float32)
    np.testing.assert_array_equal(leading_coordinates(H, 3, False), H[:, :3])
    np.testing.assert_allclose(np.linalg.norm(leading_coordinates(H, 3, True), axis=1), 1, rtol=1e-6)
    assert leading_coordinates(H, 99, False).shape == (9, 5)


@pytest.mark.parametrize(("c", "ranks"), [(90, (90,)), (1024, (500,)), (1025, (32, 64, 128, 256, 500))])
def test_with_many_labels_auto_chooses_among_powers_of_two(rng, c, ranks):
    embedder = replace(posed(sparse_problem(rng), complete())[1].embedder, rank=min(c, 500))
    assert candidate_ranks(c, embedder, request()) == ranks
    for fixed in ({"rank": 3}, {"rank": "adaptive"}):
        assert len(candidate_ranks(c, embedder, request(**fixed))) == 1
    assert len(candidate_ranks(c, replace(embedder, embedding="per_label"), request())) == 1


def test_the_rank_is_chosen_on_held_out_rows_where_labels_are_many(rng):
    p = sparse_problem(rng, n=60, d=200, c=1030, density=0.1)
    asked = complete(rank="auto")
    problem, settings = posed(p, asked)
    found = choose(problem, settings, asked)
    assert found.settings.rank in candidate_ranks(1030, settings.embedder, asked) == (32, 60)
    assert found.chosen_by["rank"] == "held-out rows"


# The choice


def searched(settings):
    return settings.ridge, settings.rank, settings.bandwidth, settings.final_ridge


def test_given_values_are_taken_as_they_are(rng):
    found = choose(*posed(sparse_problem(rng), complete()), complete())
    assert searched(found.settings) == (0.5, 5, 1.5, 0.05)
    assert set(found.chosen_by.values()) == {"given"}


@pytest.mark.parametrize("multiclass", [False, True])
def test_auto_is_the_least_loss_among_its_neighbours(rng, multiclass):
    p = class_problem(rng, n=80) if multiclass else sparse_problem(rng, n=80)
    asked = complete(ridge="auto", final_ridge="auto", bandwidth=2.0)
    problem, settings = posed(p, asked, multiclass=multiclass)
    found = choose(problem, settings, asked)
    by = found.chosen_by
    assert (by["ridge"], by["final_ridge"], by["bandwidth"]) == ("held-out rows", "held-out rows", "given")
    trials, best = search_trials(problem, settings, asked), searched(found.settings)
    loss = trials.loss(best)
    for factor in (0.1, 10.0):
        assert trials.loss((*best[:3], best[3] * factor)) >= loss * (1 - 1e-9)


def test_where_no_row_can_be_held_out_auto_is_its_start(rng):
    p = sparse_problem(rng)
    asked = request(scale="none")
    one = p._replace(X=p.X[:1], Y=p.Y[:1], w=p.w[:1])
    found = choose(*posed(one, asked), asked)
    assert searched(found.settings) == (pytest.approx(10**1.5), 1, 2.0, pytest.approx(0.1))


def test_a_kernel_half_as_wide_is_taken_where_it_is_hardly_worse():
    tried = {(1.0, 5, 2.0, 0.1): 100.0, (1.0, 5, 1.0, 0.1): 100.2, (1.0, 5, 1.0, 0.01): 100.4, (3.0, 5, 1.0, 0.1): 99.0}
    assert narrower(Climb((1.0, 5, 2.0, 0.1), 100.0, tried)) == (1.0, 5, 1.0, 0.1)
    assert narrower(Climb((1.0, 5, 2.0, 0.1), 100.0, tried | {(1.0, 5, 1.0, 0.1): 100.31})) == (1.0, 5, 2.0, 0.1)
    assert narrower(Climb((1.0, 5, 4.0, 0.1), 100.0, tried | {(1.0, 5, 4.0, 0.1): 99.9})) == (1.0, 5, 2.0, 0.1)


def test_embeddings_without_a_ridge_and_links_without_a_bandwidth_have_none_to_choose(rng):
    asked = request(embedding="none", kernel="linear", scale="none", final_ridge=0.1)
    found = choose(*posed(sparse_problem(rng, n=60), asked), asked)
    assert (found.settings.ridge, found.settings.bandwidth) == (1.0, 1.0)
    assert found.chosen_by["ridge"] == found.chosen_by["bandwidth"] == "given"


@pytest.mark.parametrize(("rank", "by"), [("auto", "every direction"), ("adaptive", "adaptive"), (3, "given")])
def test_the_choice_says_what_chose_the_rank(rng, rank, by):
    asked = complete(rank=rank)
    assert choose(*posed(sparse_problem(rng), asked), asked).chosen_by["rank"] == by


def test_few_rows_with_many_labels_are_searched_on_fewer_folds_and_calibrated_on_all(rng):
    n, c = 600, 800  # so that each embedding has 600 directions
    Y = sp.csr_array((np.ones(2 * n, np.float32), rng.integers(0, c, 2 * n), np.arange(0, 2 * n + 1, 2)), (n, c))
    p = sparse_problem(rng, n=n, c=5)
    few, many = (posed(replaced, request()) for replaced in (p, p._replace(Y=Y)))
    assert len(search_trials(*few, request()).folds) == 10
    assert len(search_trials(*many, request()).folds) == round(FOLD_WORK / n**3) == 9
    assert len(validation_rows(p.w, request())) == 10


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_the_search_embeds_many_labels_up_to_a_rotation_which_no_distance_shows(rng, kernel, monkeypatch):
    monkeypatch.setattr("smoothlink.fitting.choose.ROTATED_LABELS", 4)
    asked = request(scale="none", rank=5, oversample=5, kernel=kernel, solver="cholesky")
    p = sparse_problem(rng, n=80, d=12, c=5)
    problem, settings = posed(p, asked)
    trials = search_trials(problem, settings, asked)
    fold, embedder = trials.folds[0], settings.embedder
    assert (trials.settings.embedder is embedder) == (kernel == "laplacian")
    H, other = (e.fit(fold.train, e.prepare(fold.train), 0.5).H for e in (embedder, trials.settings.embedder))
    np.testing.assert_allclose(H @ H.T, other @ other.T, atol=1e-4)
