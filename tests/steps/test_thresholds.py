"""Thresholds by their aim: the best of all that brute force finds, and what they reach counted directly."""

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.errors import DataError
from smoothlink.parameters import parse_aim
from smoothlink.steps.infer import f1_thresholds
from smoothlink.steps.thresholds import (
    HALF,
    LEAST_PAIRS,
    Aim,
    ThresholdCounts,
    choose_thresholds,
    shrink,
    threshold_array,
)


class Case:
    """Probabilities of 300 rows and 12 labels, from frequent to rare, and labels drawn by them."""

    def __init__(self, rng):
        self.P = rng.beta(0.4, np.linspace(0.6, 20, 12), (300, 12)).astype(np.float32)
        self.Y = rng.random(self.P.shape) < self.P
        self.w = rng.integers(1, 3, 300).astype(np.float64)

    def blocks(self):
        for start in (0, 5):
            labels = slice(start, 5 if start == 0 else 12)
            yield labels, self.P[:, labels], sp.csr_array(self.Y[:, labels].astype(np.float32))

    def choose(self, aim):
        return choose_thresholds(self.blocks, self.Y.mean(axis=0), self.w, Aim(*parse_aim(aim)))

    def counted(self, thresholds):
        """Precision, recall and labels per row, by definition."""
        sets, w = thresholds <= self.P, self.w[:, None]
        hits, predicted, true = (float((w * A).sum()) for A in (sets & self.Y, sets, self.Y))
        return hits / predicted, hits / true, predicted / self.w.sum()


@pytest.fixture
def case(rng):
    return Case(rng)


@pytest.mark.parametrize("aim", ["half", "precision=0.8", "recall=0.7", "labels=2"])
def test_what_is_reached_is_what_is_counted(case, aim):
    found = case.choose(aim)
    reached = [found.reached[name] for name in ("precision", "recall", "labels_per_row")]
    np.testing.assert_allclose(reached, case.counted(found.shared))
    assert found.reached["threshold"] == found.shared
    assert (found.reached["aim"], found.reached["rows"]) == (aim, 300)


def test_the_precision_is_reached_by_no_smaller_threshold(case):
    found = case.choose("precision=0.8")
    assert case.counted(found.shared)[0] >= 0.8
    lower = [case.counted(t)[0] for t in ThresholdCounts().edges if t < found.shared]
    assert max(lower) < 0.8


def test_the_recall_is_reached_by_no_larger_threshold(case):
    found = case.choose("recall=0.7")
    assert case.counted(found.shared)[1] >= 0.7
    step = 1.02 * found.shared  # thresholds are 0.5 % of the odds apart
    assert case.counted(step)[1] < 0.7


def test_no_other_threshold_is_nearer_to_the_labels_per_row(case):
    found = case.choose("labels=2")
    off = min(abs(case.counted(t)[2] - 2) for t in np.unique(case.P))
    assert abs(case.counted(found.shared)[2] - 2) == pytest.approx(off, abs=0.02)


def test_half_is_strictly_above_one_half():
    counts = ThresholdCounts()
    counts.add(np.array([[0.5, 0.50001]], np.float32), sp.csr_array(np.ones((1, 2), np.float32)), np.ones(1))
    found = counts.choose(Aim("half"))
    assert (found.value, found.reached.labels_per_row, found.reached.recall) == (HALF, 1, 0.5)


@pytest.mark.parametrize(
    ("aim", "said"),
    [("precision=1", "a precision of 0."), ("labels=40", "labels per row"), ("labels=0.001", "0 labels")],
)
def test_where_an_aim_cannot_be_reached_the_warning_says_what_can(case, aim, said):
    case.Y[case.P > 0.8] = False
    with pytest.warns(UserWarning, match=f"aim is '{aim}', which no threshold reaches on 300 held-out rows") as caught:
        found = case.choose(aim)
    assert said in str(caught[0].message)
    assert found.reached["missed"] in str(caught[0].message)


def test_the_precision_of_a_few_pairs_counts_for_nothing(case):
    best = np.argsort(-case.P, axis=None)[: LEAST_PAIRS // 4]
    case.Y[case.P > 0.5] = False
    case.Y.ravel()[best] = True
    with pytest.warns(UserWarning, match="no threshold reaches"):
        assert case.choose("precision=0.99").reached["precision"] < 0.99


# F1


def test_labels_expected_in_many_rows_keep_the_cut_of_algorithm_4_and_rare_ones_take_the_shared_one():
    found = shrink(np.array([0.2, 0.2, np.inf]), np.array([1e9, 0.0, 0.3]), 0.4)
    np.testing.assert_allclose(found, [0.2, 0.4, 0.4], atol=1e-6)


def test_f1_thresholds_lie_between_the_cut_of_the_label_and_the_shared_one(case):
    found = case.choose("f1")
    own = f1_thresholds(case.P, case.Y.mean(axis=0), case.w)
    shared = max(ThresholdCounts().edges[::20], key=lambda t: macro_f1(case, t))
    expected = case.Y.mean(axis=0) * case.w.sum()
    np.testing.assert_allclose(found.f1, shrink(own, expected, shared))
    assert found.reached["macro_f1"] == pytest.approx(macro_f1(case, found.f1))
    assert found.shared is None
    precision, recall, per_row = case.counted(found.f1)
    assert found.reached["precision"] == pytest.approx(precision)
    assert found.reached["recall"] == pytest.approx(recall)
    assert found.reached["labels_per_row"] == pytest.approx(per_row)


def macro_f1(case, threshold):
    sets, w = threshold <= case.P, case.w[:, None]
    hits, both = (w * (sets & case.Y)).sum(axis=0), (w * (sets + case.Y.astype(int))).sum(axis=0)
    return (2 * hits / np.maximum(both, 1)).mean()


def test_a_rare_label_with_equal_probabilities_is_not_predicted_in_all_rows(rng):
    P = np.column_stack([rng.beta(0.5, 0.5, 400), np.full(400, 0.004)]).astype(np.float32)
    Y = rng.random(P.shape) < P

    def blocks():
        yield slice(0, 2), P, sp.csr_array(Y.astype(np.float32))

    found = choose_thresholds(blocks, np.array([0.5, 0.002]), np.ones(400), Aim("f1"))
    assert (P[:, 1] >= f1_thresholds(P, [0.5, 0.002])[1]).all()
    assert not (P[:, 1] >= found.f1[1]).any()


# What is given


@pytest.mark.parametrize(
    ("text", "aim"),
    [
        ("half", Aim("half")),
        ("precision=0.9", Aim("precision", 0.9)),
        ("recall=1", Aim("recall", 1.0)),
        ("labels = 4", Aim("labels", 4.0)),
    ],
)
def test_an_aim_is_a_word_or_a_name_and_a_number(text, aim):
    found = Aim(*parse_aim(text))
    assert str(found) == str(aim) == text.replace(" ", "")
    assert found.name == aim.name


@pytest.mark.parametrize(
    "text", ["", "f2", "precision", "precision=0", "precision=1.1", "labels=-1", "recall=x", 0.5, None]
)
def test_anything_else_is_no_aim(text):
    assert parse_aim(text) is None


@pytest.mark.parametrize("given", [50, -0.1, np.nan, "high", [0.5, 0.5], [[0.1, 0.2, 0.3]], [0.1, 2, 0.3]])
def test_a_threshold_that_is_no_probability_is_refused(given):
    with pytest.raises(DataError, match=r"threshold is .* possible are a number from 0 to 1, one for each of 3 labels"):
        threshold_array(given, 3)


def test_a_number_is_the_threshold_of_every_label():
    np.testing.assert_array_equal(threshold_array(0.3, 3), [0.3, 0.3, 0.3])
    np.testing.assert_array_equal(threshold_array([0.1, np.inf, 1], 3), [0.1, np.inf, 1])


def test_probabilities_that_equal_a_threshold_are_counted_at_that_threshold():
    edges = ThresholdCounts().edges
    P = edges.astype(np.float32)[:, None]
    counts = ThresholdCounts()
    counts.add(P, sp.csr_array(np.ones_like(P)), np.ones(len(P)))
    at, expected = np.unique(np.searchsorted(edges, edges, side="right") - 1, return_counts=True)
    np.testing.assert_array_equal(counts.pairs[at], expected)
    np.testing.assert_array_equal(counts.hits[at], expected)
