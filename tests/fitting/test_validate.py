"""What held-out rows settle at full size: the loss, its passes, calibration and thresholds."""

from itertools import islice

import numpy as np
import pytest
from problems import class_problem, options, settled, sparse_problem
from scipy.special import softmax
from smoothlink.fitting.judge import candidate_losses, criterion, descent, held_fit, judge
from smoothlink.fitting.setup import set_up

from smoothlink.fitting import judge as judging
from smoothlink.fitting.choose import choose, cut, holdouts, trials_over
from smoothlink.steps.calibrate import Histogram, fit_temperature
from smoothlink.steps.embed import label_means
from smoothlink.steps.infer import f1_thresholds
from smoothlink.steps.squared import squared


class Court:
    """A problem cut into folds, with a link fitted on each, at settings that are given."""

    def __init__(self, rng, *, multiclass=False, **asked):
        p = class_problem(rng) if multiclass else sparse_problem(rng)
        self.p, self.options = p, settled(**{"calibrate": True} | asked)
        self.setup = set_up(p.X, p.Y, p.w, self.options, multiclass, None)
        self.chosen = choose(self.setup, self.options).chosen
        self.held = holdouts(p.w, self.options)
        self.cuts = [cut(self.setup.rows, p.Y, h, self.setup.stage) for h in self.held]
        trials = trials_over(self.cuts, self.setup, self.options, 10**9)
        self.links = [trials.link(f, self.chosen.ridge, self.chosen.rank, self.chosen.bandwidth) for f in self.cuts]

    def scores(self, Vs):
        """Scores of all held-out rows, each by the fit that has not seen it."""
        return np.vstack([link.features(link.held) @ V for link, V in zip(self.links, Vs, strict=True)])

    @property
    def numbers(self):
        return np.concatenate(self.held)

    def verdict(self):
        return judge(self.setup, self.options, self.chosen)

    def fit(self, loss):
        return held_fit(loss, self.cuts, self.links, self.chosen, self.setup, self.options)


# The criterion


def test_multilabel_losses_are_compared_by_brier_score_after_calibration(rng):
    court = Court(rng)
    Vs = [squared(link.sums, 0.05) for link in court.links]
    histogram = Histogram("squared")
    histogram.add(court.scores(Vs), court.p.Y[court.numbers], court.p.w[court.numbers])
    value, calibration = criterion("squared", court.cuts, court.links, Vs, court.setup)
    assert value == pytest.approx(histogram.brier(), rel=1e-9)
    np.testing.assert_allclose(calibration.values, histogram.monotone().values)


def test_multiclass_losses_are_compared_by_log_loss_at_the_best_temperature(rng):
    court = Court(rng, multiclass=True)
    Vs = [squared(link.sums, 0.05) for link in court.links]
    labels = court.p.Y.indices[court.numbers]
    exact, calibration = fit_temperature(court.scores(Vs), labels, court.p.w[court.numbers])
    found = criterion("squared", court.cuts, court.links, Vs, court.setup)
    assert found[0] == pytest.approx(exact, rel=1e-9)
    assert found[1].temperature == pytest.approx(calibration.temperature, rel=1e-9)


# Losses and passes


def test_auto_tries_squared_and_the_descent_that_fits_the_task_where_a_pass_is_cheap(rng, monkeypatch):
    for multiclass, losses in ((False, ["squared", "logistic"]), (True, ["squared", "softmax"])):
        court = Court(rng, multiclass=multiclass, loss="auto")
        assert candidate_losses(court.setup, court.options) == losses
        with monkeypatch.context() as patch:
            patch.setattr(judging, "LOGISTIC_FLOPS", 1.0)
            assert candidate_losses(court.setup, court.options) == ["squared"]
    assert candidate_losses(court.setup, settled(loss="logistic")) == ["logistic"]


@pytest.mark.parametrize("multiclass", [False, True])
def test_the_loss_of_least_criterion_wins(rng, multiclass):
    court = Court(rng, multiclass=multiclass, loss="auto")
    verdict = court.verdict()
    assert set(verdict.criteria) == {"squared", "softmax" if multiclass else "logistic"}
    assert verdict.chosen.loss == min(verdict.criteria, key=verdict.criteria.get)
    assert verdict.held_rows == len(court.numbers)
    for loss, value in verdict.criteria.items():
        assert court.fit(loss).criterion == pytest.approx(value, rel=1e-6)


def test_only_some_folds_compare_losses_but_all_calibrate(rng, monkeypatch):
    court = Court(rng, loss="auto")
    monkeypatch.setattr(judging, "COMPARED_ROWS", 30)  # three folds of twelve
    verdict = court.verdict()
    few = [held_fit(x, court.cuts[:3], court.links[:3], court.chosen, court.setup, court.options) for x in ("squared",)]
    assert verdict.criteria["squared"] == pytest.approx(few[0].criterion, rel=1e-6)
    np.testing.assert_allclose(verdict.calibration.values, court.fit(verdict.chosen.loss).calibration.values)


def test_passes_stop_when_two_in_a_row_bring_too_little_and_the_best_is_kept(rng, monkeypatch):
    values = iter([10.0, 8.0, 7.95, 7.9, 7.89, 7.88, 1.0])
    monkeypatch.setattr(judging, "criterion", lambda *_: (next(values), None))
    best = Court(rng, loss="logistic").fit("logistic")
    assert (best.criterion, best.passes) == (7.9, 4)  # gains of 0.6 % and 0.6 %: enough of it


def test_a_pass_that_makes_it_worse_is_not_kept(rng, monkeypatch):
    values = iter([10.0, 11.0, 9.0, 12.0, 12.0])
    monkeypatch.setattr(judging, "criterion", lambda *_: (next(values), None))
    best = Court(rng, loss="logistic").fit("logistic")
    assert (best.criterion, best.passes) == (9.0, 3)


def test_passes_never_go_on_forever(rng, monkeypatch):
    values = iter(0.5 ** np.arange(100))
    monkeypatch.setattr(judging, "criterion", lambda *_: (next(values), None))
    monkeypatch.setattr(judging, "MOST_PASSES", 6)
    assert Court(rng, loss="logistic").fit("logistic").passes == 6


def test_a_criterion_of_zero_is_the_best_there_is(rng, monkeypatch):
    values = iter([0.0] * 100)
    monkeypatch.setattr(judging, "criterion", lambda *_: (next(values), None))
    assert Court(rng, loss="logistic").fit("logistic").passes == 1


def test_given_passes_are_all_made_even_where_fewer_are_better(rng):
    court = Court(rng, loss="logistic", passes=7)
    best = court.fit("logistic")
    assert best.passes == 7
    V = next(islice(descent("logistic", court.links[0], court.chosen, court.setup, court.options), 6, None))
    np.testing.assert_array_equal(best.Vs[0], V)
    assert court.verdict().chosen.passes == 7


def test_the_best_pass_is_what_the_descent_gives_after_as_many(rng):
    court = Court(rng, loss="logistic")
    best = court.fit("logistic")
    V = next(
        islice(descent("logistic", court.links[0], court.chosen, court.setup, court.options), best.passes - 1, None)
    )
    np.testing.assert_array_equal(best.Vs[0], V)


def test_every_knob_reaches_the_descent(rng):
    plain = Court(rng, loss="logistic", passes=2)
    V = plain.fit("logistic").Vs[0]
    for knob in (
        {"learning_rate": 0.01},
        {"momentum": 0.1},
        {"decay": 0.2},
        {"batch_rows": 50},
        {"seed": 1},
        {"label_smoothing": 0.8},
    ):
        other = settled(**{"calibrate": True, "loss": "logistic", "passes": 2} | knob)
        setup = set_up(plain.p.X, plain.p.Y, plain.p.w, other, False, None)
        fitted = held_fit("logistic", plain.cuts, plain.links, plain.chosen, setup, other)
        assert not np.allclose(fitted.Vs[0], V, rtol=1e-3), knob


# The final ridge


def test_the_final_ridge_is_refined_around_the_one_found(rng):
    court = Court(rng, final_ridge="auto")
    verdict = court.verdict()
    steps = np.log10(verdict.chosen.final_ridge / court.chosen.final_ridge) * 2
    assert abs(steps - round(steps)) < 1e-6
    assert abs(steps) <= 3
    trials = trials_over(court.cuts, court.setup, court.options, 10**9)
    point = (court.chosen.ridge, court.chosen.rank, court.chosen.bandwidth)
    assert trials.loss((*point, verdict.chosen.final_ridge)) <= trials.loss((*point, court.chosen.final_ridge))


# Calibration and thresholds


@pytest.mark.parametrize("calibrate", [True, False])
def test_thresholds_are_algorithm_4_on_held_out_probabilities(rng, calibrate, monkeypatch):
    monkeypatch.setattr(judging, "LABEL_BLOCK", 5)
    court = Court(rng, loss="logistic", calibrate=calibrate)
    verdict = court.verdict()
    fit = court.fit("logistic")
    P = verdict.calibration.probabilities(court.scores(fit.Vs), loss="logistic")
    exact = f1_thresholds(P, label_means(court.setup.rows), court.p.w[court.numbers])
    np.testing.assert_allclose(verdict.thresholds, exact, rtol=1e-5)
    assert bool(len(verdict.calibration.knots)) == calibrate


def test_multiclass_thresholds_are_on_tempered_softmax_probabilities(rng):
    court = Court(rng, multiclass=True)
    verdict = court.verdict()
    S = court.scores(court.fit("squared").Vs)
    P = softmax(verdict.calibration.temperature * S, axis=1)
    exact = f1_thresholds(P, label_means(court.setup.rows), court.p.w[court.numbers])
    np.testing.assert_allclose(verdict.thresholds, exact, rtol=1e-4)


@pytest.mark.parametrize(
    ("asked", "loss", "passes"),
    [
        ({"loss": "squared", "calibrate": False}, "squared", 0),
        ({"loss": "logistic", "passes": 4, "calibrate": False}, "logistic", 4),
    ],
)
def test_where_nothing_is_left_to_settle_no_row_is_held_out(rng, asked, loss, passes):
    verdict = Court(rng, **asked).verdict()
    assert (verdict.chosen.loss, verdict.chosen.passes, verdict.held_rows, verdict.criteria) == (loss, passes, 0, {})
    np.testing.assert_array_equal(verdict.thresholds, 0.5)
    assert not len(verdict.calibration.knots)


def test_one_row_is_fitted_by_default_passes_without_calibration(rng):
    p = sparse_problem(rng)
    asked = options(scale="none", loss="logistic")
    setup = set_up(p.X[:1], p.Y[:1], p.w[:1], asked, False, None)
    verdict = judge(setup, asked, choose(setup, asked)[0])
    assert (verdict.chosen.loss, verdict.chosen.passes, verdict.held_rows) == ("logistic", judging.DEFAULT_PASSES, 0)
