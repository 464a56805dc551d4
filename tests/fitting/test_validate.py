"""Held-out rows at full size: the loss, its passes, calibration and thresholds."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import scipy.sparse as sp
from problems import class_problem, complete, posed, request, sparse_problem
from scipy.special import softmax

from smoothlink.fitting.calibration import calibrate, criterion
from smoothlink.fitting.choose import Trials, choose, make_fold
from smoothlink.fitting.holdout import holdouts
from smoothlink.fitting.link import decoder_passes
from smoothlink.fitting.validate import (
    DEFAULT_PASSES,
    EarlyStopping,
    Work,
    candidate_losses,
    fit_folds,
    held_out,
    validate,
    with_loss,
)
from smoothlink.steps.calibrate import Histogram, fit_multiclass
from smoothlink.steps.embed import label_means
from smoothlink.steps.squared import squared
from smoothlink.steps.thresholds import Aim, choose_thresholds


class Validated:
    """A problem in folds, with a link fitted on each, at settings that are given."""

    def __init__(self, rng, *, multiclass=False, **asked):
        self.p = p = class_problem(rng) if multiclass else sparse_problem(rng)
        self.request = complete(**{"calibrate": True} | asked)
        self.problem, settings = posed(p, self.request, multiclass=multiclass)
        self.choice = choose(self.problem, settings, self.request)
        self.settings = self.choice.settings
        self.held = holdouts(p.w, self.request)
        self.folds = [make_fold(self.problem.rows, p.Y, h, settings.embedder, at_once=False) for h in self.held]
        trials = Trials(self.folds, self.settings)
        self.links = [trials.link(fold, self.settings) for fold in self.folds]

    def scores(self, Vs):
        """Scores of all held-out rows, each by the fit without it."""
        return np.vstack([link.features(link.held) @ V for link, V in zip(self.links, Vs, strict=True)])

    @property
    def numbers(self):
        return np.concatenate(self.held)

    def validation(self, **more):
        return validate(self.choice, self.request, **more)

    def fit(self, loss, folds=None):
        some = slice(folds)
        settings = replace(self.settings, loss=loss)
        return fit_folds(self.folds[some], self.links[some], settings, self.problem, self.request, Work(1, None))


def test_a_fit_of_all_rows_that_were_searched_goes_on_from_their_embeddings(rng):
    p, asked = sparse_problem(rng), request(calibrate=True, loss="squared")
    choice = choose(*posed(p, asked), asked)
    assert [list(fold.embedded) for fold in choice.folds] == [[choice.settings.ridge]] * len(choice.folds)
    anew, shared = (validate(found, asked) for found in (choice._replace(folds=None), choice))
    assert shared.settings.final_ridge == anew.settings.final_ridge
    assert shared.criteria["squared"] == pytest.approx(anew.criteria["squared"], rel=1e-6)
    np.testing.assert_allclose(shared.calibrated.calibration.values, anew.calibrated.calibration.values, rtol=1e-5)


# The criterion


def test_multilabel_losses_are_compared_by_brier_score_after_calibration(rng):
    v = Validated(rng)
    Vs = [squared(link.sums, 0.05) for link in v.links]
    histogram = Histogram("squared")
    histogram.add(v.scores(Vs), v.p.Y[v.numbers], v.p.w[v.numbers])
    value, calibration = criterion(held_out(v.folds, v.links, Vs), "squared", multiclass=False)
    assert value == pytest.approx(histogram.brier(), rel=1e-9)
    np.testing.assert_allclose(calibration.values, histogram.monotone().values)


def test_multiclass_losses_are_compared_by_log_loss_after_one_map_of_all_classes(rng):
    v = Validated(rng, multiclass=True)
    Vs = [squared(link.sums, 0.05) for link in v.links]
    given = v.scores(Vs), v.p.Y.indices[v.numbers], v.p.w[v.numbers]
    exact, calibration = fit_multiclass(*given, loss="squared")
    found = criterion(held_out(v.folds, v.links, Vs), "squared", multiclass=True)
    assert found[0] == pytest.approx(exact, rel=1e-9)
    np.testing.assert_allclose(found[1].labels, calibration.labels, rtol=1e-6)
    assert (np.ptp(calibration.labels, axis=1) == 0).all()


# Losses and passes


@pytest.mark.parametrize(("multiclass", "sgd"), [(False, "logistic"), (True, "softmax")])
def test_auto_tries_squared_and_where_a_pass_is_cheap_the_loss_of_the_task(rng, multiclass, sgd):
    v = Validated(rng, multiclass=multiclass, loss="auto")
    assert candidate_losses(v.problem, v.settings, v.request) == ["squared", sgd]
    assert candidate_losses(v.problem, v.settings, v.request, affordable=1.0) == ["squared"]
    assert candidate_losses(v.problem, v.settings, complete(loss="logistic")) == ["logistic"]


def test_the_ridge_of_a_softmax_over_few_directions_weighs_as_much_as_that_of_the_squared_loss(rng):
    v = Validated(rng, multiclass=True, kernel="linear", final_ridge="auto")
    p = label_means(v.problem.rows)
    for loss, factor in (("squared", 1.0), ("softmax", float(np.mean(p * (1 - p))))):
        found = with_loss(v.settings, loss, v.problem, v.request)
        assert (found.loss, found.final_ridge) == (loss, pytest.approx(v.settings.final_ridge * factor))
    given = complete(final_ridge=0.5, kernel="linear")
    assert with_loss(v.settings, "softmax", v.problem, given).final_ridge == v.settings.final_ridge
    gaussian = Validated(rng, multiclass=True, final_ridge="auto")
    assert with_loss(gaussian.settings, "softmax", gaussian.problem, gaussian.request).final_ridge == (
        gaussian.settings.final_ridge
    )


@pytest.mark.parametrize("multiclass", [False, True])
def test_the_loss_of_least_criterion_wins(rng, multiclass):
    v = Validated(rng, multiclass=multiclass, loss="auto")
    found = v.validation()
    assert set(found.criteria) == {"squared", "softmax" if multiclass else "logistic"}
    assert found.settings.loss == min(found.criteria, key=found.criteria.get)
    assert found.calibrated.rows == len(v.numbers)
    for loss, value in found.criteria.items():  # one that falls behind is not fitted to the end
        best = loss == found.settings.loss
        assert (
            v.fit(loss).criterion == pytest.approx(value, rel=1e-6) if best else v.fit(loss).criterion < value * 1.001
        )


def test_only_some_folds_compare_losses_but_all_calibrate(rng):
    v = Validated(rng, loss="auto")
    found = v.validation(compared_rows=30)  # three folds of twelve
    assert found.criteria["squared"] == pytest.approx(v.fit("squared", folds=3).criterion, rel=1e-6)
    held = held_out(v.folds, v.links, v.fit(found.settings.loss).Vs)
    exact = calibrate(held, label_means(v.problem.rows), found.settings.loss, multiclass=False)
    np.testing.assert_allclose(found.calibrated.calibration.values, exact.calibration.values)


@pytest.mark.parametrize(
    ("values", "best", "passes"),
    [
        ([10.0, 8.0, 7.95, 7.9], 7.9, 4),  # gains of 0.6 % and 0.6 %: enough of it
        ([10.0, 11.0, 9.0, 12.0, 12.0], 9.0, 3),  # a pass that makes it worse is not the best
        ([0.0, 0.0, 0.0], 0.0, 1),
    ],
)
def test_passes_stop_when_two_in_a_row_bring_too_little(values, best, passes):
    progress = EarlyStopping()
    stops = [(progress.improves(value), progress.stops)[1] for value in values]
    assert stops == [False] * (len(values) - 1) + [True]
    assert (progress.best, progress.best_pass) == (best, passes)


def test_cheap_passes_go_on_until_five_in_a_row_bring_nothing():
    progress = EarlyStopping(None, 0.0, 5)
    values = [10.0, 9.999, 9.998, 9.999, 9.999, 9.997, *[9.998] * 5]
    stops = [(progress.improves(value), progress.stops)[1] for value in values]
    assert stops == [False] * 10 + [True]
    assert progress.best_pass == 6


def test_passes_stop_when_the_other_loss_cannot_be_reached_soon():
    progress = EarlyStopping(to_beat=5.0)
    progress.improves(10.0)
    assert not progress.stops
    progress.improves(9.5)  # four more gains of 5 % end at 7.7
    assert progress.stops


def test_given_passes_are_all_made_even_where_fewer_are_better(rng):
    v = Validated(rng, loss="logistic", passes=7)
    best = v.fit("logistic")
    assert best.passes == 7
    V = next(islice(decoder_passes(v.links[0], replace(v.settings, loss="logistic")), 6, None))
    np.testing.assert_array_equal(best.Vs[0], V)
    assert v.validation().settings.passes == 7


def test_the_best_pass_is_what_the_sgd_gives_after_as_many(rng):
    v = Validated(rng, loss="logistic")
    best = v.fit("logistic")
    V = next(islice(decoder_passes(v.links[0], replace(v.settings, loss="logistic")), best.passes - 1, None))
    np.testing.assert_array_equal(best.Vs[0], V)


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0.01},
        {"momentum": 0.1},
        {"decay": 0.2},
        {"batch_rows": 50},
        {"seed": 1},
        {"label_smoothing": 0.8},
    ],
    ids=str,
)
def test_every_parameter_reaches_the_sgd(rng, change):
    v = Validated(rng, loss="logistic", passes=2)
    other = complete(**{"loss": "logistic", "passes": 2} | change)
    settings = replace(posed(v.p, other)[1], ridge=0.5, final_ridge=0.05)
    V, changed = (next(islice(decoder_passes(v.links[0], s), 1, None)).copy() for s in (v.settings, settings))
    assert not np.allclose(changed, V, rtol=1e-3)


# The final ridge


def test_the_final_ridge_is_refined_around_the_one_found(rng):
    v = Validated(rng, final_ridge="auto")
    found = v.validation().settings.final_ridge
    steps = np.log10(found / v.settings.final_ridge) * 2
    assert abs(steps - round(steps)) < 1e-6
    assert abs(steps) <= 3
    trials, point = Trials(v.folds, v.settings), (v.settings.ridge, v.settings.rank, v.settings.bandwidth)
    assert trials.loss((*point, found)) <= trials.loss((*point, v.settings.final_ridge))


# Calibration and thresholds


@pytest.mark.parametrize("maps", [True, False])
def test_thresholds_are_chosen_on_held_out_probabilities(rng, maps):
    v = Validated(rng, loss="logistic", calibrate=maps)
    found = v.validation().calibrated
    S = found.calibration.log_odds(v.scores(v.fit("logistic").Vs), slice(None), loss="logistic")
    P = found.calibration.probabilities(S, loss="logistic")
    top = np.arange(len(S)), S.argmax(axis=1)
    P[top] = found.calibration.recalibrate_top1(P[top])
    exact = chosen_at_once(v, P)
    np.testing.assert_allclose(found.thresholds, exact.f1, rtol=1e-5)
    assert found.threshold == exact.shared
    assert found.reached == pytest.approx(exact.reached)
    assert found.calibration.recalibrates_top1 == maps


@pytest.mark.parametrize("multiclass", [False, True])
def test_scores_that_are_kept_and_scores_that_are_computed_again_give_the_same_calibration(rng, multiclass):
    v = Validated(rng, multiclass=multiclass)
    held, scored = held_out(v.folds, v.links, v.fit("squared").Vs), []

    def noting(part):
        return part._replace(scores=lambda labels, count: (scored.append(labels), part.scores(labels, count))[1])

    found, times = [], []
    for most_kept in (10**9, 0):
        scored.clear()
        frequencies, parts = label_means(v.problem.rows), [noting(part) for part in held]
        found.append(calibrate(parts, frequencies, "squared", multiclass=multiclass, most_kept=most_kept))
        times.append(len(scored) / len(held))
    np.testing.assert_array_equal(found[0].thresholds, found[1].thresholds)
    assert found[0].calibration.top1 == found[1].calibration.top1
    assert times == ([2, 3] if multiclass else [1, 3])  # one map of all classes has scores of its own


def test_multiclass_thresholds_are_on_calibrated_softmax_probabilities(rng):
    v = Validated(rng, multiclass=True)
    found = v.validation().calibrated
    P = softmax(found.calibration.log_odds(v.scores(v.fit("squared").Vs), slice(None), loss="squared"), axis=1)
    np.testing.assert_allclose(found.thresholds, chosen_at_once(v, P).f1, rtol=1e-4)


def chosen_at_once(v, P):
    """The thresholds that probabilities of the held-out rows give, all labels in one block."""
    Y = sp.csr_array(v.problem.Y[v.numbers])

    def blocks():
        yield slice(0, Y.shape[1]), P, Y

    return choose_thresholds(blocks, label_means(v.problem.rows), v.p.w[v.numbers].astype(float), Aim())


@pytest.mark.parametrize(
    ("asked", "loss", "passes"),
    [({"loss": "squared"}, "squared", 0), ({"loss": "logistic", "passes": 4}, "logistic", 4)],
)
def test_where_nothing_is_left_to_choose_no_row_is_held_out(rng, asked, loss, passes):
    found = Validated(rng, calibrate=False, **asked).validation()
    assert (found.settings.loss, found.settings.passes, found.calibrated.rows, found.criteria) == (loss, passes, 0, {})
    np.testing.assert_array_equal(found.calibrated.thresholds, 0.5)
    assert not len(found.calibrated.calibration.knots)


def test_one_row_is_fitted_by_default_passes_without_calibration(rng):
    p, asked = sparse_problem(rng), request(scale="none", loss="logistic")
    one = p._replace(X=p.X[:1], Y=p.Y[:1], w=p.w[:1])
    found = validate(choose(*posed(one, asked), asked), asked)
    assert (found.settings.loss, found.settings.passes, found.calibrated.rows) == ("logistic", DEFAULT_PASSES, 0)
