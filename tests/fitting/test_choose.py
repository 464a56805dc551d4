"""Choices on held-out rows: the climb finds minima, and what is held out is not seen."""

import numpy as np
import pytest
import scipy.sparse as sp
from problems import class_problem, options, settled, sparse_problem
from smoothlink.fitting.plan import Plan
from smoothlink.fitting.setup import set_up

from smoothlink.fitting import choose as choosing
from smoothlink.fitting.checkpoint import Work
from smoothlink.fitting.choose import (
    RIDGES,
    Trials,
    axis,
    choose,
    climb,
    cut,
    holdouts,
    judged_labels,
    nearest,
    search_trials,
    shaped,
    trials_over,
)
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.calibrate import Histogram
from smoothlink.steps.squared import squared


def setup_of(p, asked, Y=None, multiclass=False):
    return set_up(p.X, p.Y if Y is None else Y, p.w, asked, multiclass, None)


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


def test_nearest_is_in_ratio():
    assert nearest((1.0, 10.0, 100.0), 4.0) == 1
    assert nearest((1.0, 10.0, 100.0), 3.0) == 0
    assert nearest((0.0, 1.0), 0.0) == 0


def test_an_axis_is_the_grid_or_the_value_given():
    assert axis("auto", RIDGES) == RIDGES
    assert axis(3, RIDGES) == (3.0,)


# Held-out rows


@pytest.mark.parametrize("n", [2, 3, 19, 400])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_few_rows_are_each_held_out_once(n, share, seed):
    held = holdouts(np.ones(n), options(holdout=share, seed=seed))
    assert 2 <= len(held) <= round(1 / share)
    np.testing.assert_array_equal(np.sort(np.concatenate(held)), np.arange(n))  # disjoint, and all of them


def test_rows_of_weight_zero_are_never_held_out(rng):
    w = (rng.random(300) < 0.5).astype(np.float32)
    np.testing.assert_array_equal(np.sort(np.concatenate(holdouts(w, options()))), np.flatnonzero(w))


def test_many_rows_have_as_many_folds_as_reach_a_thousand_rows():
    held = holdouts(np.ones(4000), options())
    assert [len(h) for h in held] == [400, 400, 400]
    assert len(np.unique(np.concatenate(held))) == 1200
    assert [len(h) for h in holdouts(np.ones(30_000), options())] == [3000]


def test_where_everything_is_given_one_fold_is_enough_to_calibrate():
    assert len(holdouts(np.ones(4000), settled())) == 1


@pytest.mark.parametrize("w", [np.ones(1), np.array([1.0, 0, 0, 0])])
def test_one_row_cannot_be_held_out(w):
    assert holdouts(w, options()) == []


@pytest.mark.parametrize("embedding", ["randomized", "principal", "per_label", "random", "none"])
def test_labels_of_held_out_rows_change_nothing_that_is_fitted(rng, embedding):
    p = sparse_problem(rng, c=40)
    asked = settled(embedding=embedding, oversample=5)
    (held, *_) = holdouts(p.w, asked)
    other = p.Y.toarray()
    other[held] = 1 - other[held]
    fits = []
    for Y in (p.Y, sp.csr_array(other)):
        setup = setup_of(p, asked, Y)
        fold = cut(setup.rows, setup.Y, held, setup.stage)
        link = trials_over([fold], setup, asked, 100).link(fold, 0.5, 5, 1.5)
        embedded = fold.embedded[0.5]
        fits.append((embedded, link.features.R, link.sums.gram.G, link.held, squared(link.sums, 0.1)))
        np.testing.assert_array_equal(fold.held_labels.toarray(), Y.toarray()[held])
        np.testing.assert_array_equal(fold.held_weights, p.w[held])
    for a, b in zip(*fits, strict=True):
        np.testing.assert_array_equal(a, b)


# Trials


def trials_of(p, asked, multiclass=False) -> Trials:
    return search_trials(setup_of(p, asked, multiclass=multiclass), asked)


def test_the_loss_of_a_point_is_the_brier_score_of_fits_that_have_not_seen_the_rows(rng):
    p = sparse_problem(rng)
    asked = settled()
    trials = trials_of(p, asked)
    assert len(trials.folds) == 10
    histogram = Histogram("squared")
    for fold, held in zip(trials.folds, holdouts(p.w, asked), strict=True):
        kept = np.setdiff1d(np.arange(120), held)
        part = p._replace(X=p.X[kept], Y=p.Y[kept], w=p.w[kept])
        setup = setup_of(part, asked)
        first = setup.stage.fit(setup.rows, setup.stage.prepare(setup.rows), 0.5)
        link = trials.link(fold, 0.5, 5, 1.5)
        # The embedding of the rows kept, fitted on them alone, is the fold's up to signs.
        np.testing.assert_allclose(np.abs(first.H), np.abs(fold.embedded[0.5][kept]), atol=2e-3)
        V = squared(link.sums, 0.05)
        histogram.add(link.features(link.held) @ V, p.Y[held], p.w[held])
    assert trials.loss((0.5, 5, 1.5, 0.05)) == pytest.approx(histogram.brier(), rel=1e-6)


def test_points_that_share_a_gram_matrix_share_it(rng, monkeypatch):
    p = sparse_problem(rng)
    trials = trials_of(p, settled())
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
    setup = setup_of(p, settled())._replace(work=Work(Plan(search_rows=60)))
    trials = search_trials(setup, settled())
    assert {fold.train.n for fold in trials.folds} == {60}
    rows = p.rows()
    numbers = rows.sample(60, 0)
    np.testing.assert_array_equal(trials.folds[0].held_labels.toarray(), p.Y[numbers][trials.folds[0].held].toarray())


def test_the_search_solves_only_as_well_as_it_needs(rng):
    p = sparse_problem(rng)
    assert trials_of(p, settled(solver=ConjugateGradient(tol=1e-6))).stage.solver.tol == choosing.SEARCH_TOL


def test_very_many_labels_are_judged_by_some_of_every_frequency(rng, monkeypatch):
    p = sparse_problem(rng)
    setup = setup_of(p, settled())
    fold = cut(setup.rows, setup.Y, np.arange(10), setup.stage)
    trials = trials_over([fold], setup, settled(), 50)
    sums = trials.link(fold, 0.5, 5, 1.5).sums
    np.testing.assert_array_equal(judged_labels(sums.label_weights), np.arange(12))
    monkeypatch.setattr(choosing, "JUDGED_LABELS", 5)
    judged = judged_labels(sums.label_weights)
    fold.links.clear()
    fewer = trials.link(fold, 0.5, 5, 1.5)
    np.testing.assert_array_equal(fewer.judged, judged)
    np.testing.assert_allclose(fewer.sums.targets, sums.targets[:, judged], rtol=1e-6)
    assert len(judged) == 4
    assert (np.diff(judged) > 0).all()
    assert np.argmax(sums.label_weights) in judged
    assert trials_over([fold], setup, settled(), 50).loss((0.5, 5, 1.5, 0.1)) > 0


def test_shaped_cuts_and_scales_to_unit_length(rng):
    H = rng.standard_normal((9, 5)).astype(np.float32)
    np.testing.assert_array_equal(shaped(H, 3, False), H[:, :3])
    np.testing.assert_allclose(np.linalg.norm(shaped(H, 3, True), axis=1), 1, rtol=1e-6)
    assert shaped(H, 99, False).shape == (9, 5)


# The choice


def test_given_values_are_taken_as_they_are(rng):
    p = sparse_problem(rng)
    chosen, how = choose(setup_of(p, settled()), settled())[:2]
    assert chosen[:4] == (0.5, 5, 1.5, 0.05)
    assert set(how.values()) == {"given"}


@pytest.mark.parametrize("multiclass", [False, True])
def test_auto_is_the_least_loss_among_its_neighbours(rng, multiclass):
    p = class_problem(rng, n=80) if multiclass else sparse_problem(rng, n=80)
    asked = settled(ridge="auto", final_ridge="auto", bandwidth=2.0)
    setup = setup_of(p, asked, multiclass=multiclass)
    chosen, how = choose(setup, asked)[:2]
    assert (how["ridge"], how["final_ridge"], how["bandwidth"]) == ("held-out rows", "held-out rows", "given")
    trials = search_trials(setup, asked)
    best = trials.loss(chosen[:4])
    for factor in (0.1, 10.0):
        assert trials.loss((chosen.ridge, chosen.rank, 2.0, chosen.final_ridge * factor)) >= best * (1 - 1e-9)


def test_where_no_row_can_be_held_out_auto_is_its_start(rng):
    p = sparse_problem(rng)
    asked = options(scale="none")
    one = p._replace(X=p.X[:1], Y=p.Y[:1], w=p.w[:1])
    chosen = choose(setup_of(one, asked), asked).chosen
    assert chosen[:4] == (1.0, 1, 2.0, pytest.approx(0.1))


def test_stages_without_a_ridge_and_links_without_a_bandwidth_have_none_to_choose(rng):
    p = sparse_problem(rng, n=60)
    asked = options(embedding="none", kernel="linear", scale="none", final_ridge=0.1)
    chosen, how = choose(setup_of(p, asked), asked)[:2]
    assert (chosen.ridge, chosen.bandwidth) == (1.0, 1.0)
    assert how["ridge"] == how["bandwidth"] == "given"


@pytest.mark.parametrize(("rank", "said"), [("auto", "every direction"), ("adaptive", "adaptive"), (3, "given")])
def test_the_summary_says_what_settled_the_rank(rng, rank, said):
    p = sparse_problem(rng)
    how = choose(setup_of(p, settled(rank=rank)), settled(rank=rank)).how
    assert how["rank"] == said
