"""Metrics against scikit-learn and hand-worked examples; intervals against the normal approximation."""

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix, vstack
from sklearn.metrics import f1_score, hamming_loss, log_loss, ndcg_score

from smoothlink.errors import DataError
from smoothlink.metrics import bootstrap
from smoothlink.metrics.evaluate import Predictions, evaluate, paired_difference, statistics
from smoothlink.metrics.names import shown_keys
from smoothlink.metrics.reliability import equal_mass_bins, reliability
from smoothlink.steps.infer import TopK, propensities, top_k, topk_csr

KEYS = [key for key in shown_keys() if key != "error"]  # which multiclass problems have


class Case:
    """A random multilabel test set of n rows and c labels, some rows without labels, some labels without rows."""

    def __init__(self, n=200, c=12, seed=0):
        rng = np.random.default_rng(seed)
        self.rng, self.n, self.c = rng, n, c
        self.Y = (rng.random((n, c)) < np.linspace(0.4, 0, c)).astype(float)
        self.scores = 0.5 * self.Y + rng.random((n, c))
        self.P = self.scores / 1.5
        self.counts = np.arange(c) ** 2
        self.n_train = 1000
        self.sets, self.f1_sets = (self.P > 0.5).astype(int), (self.P > 0.6).astype(int)
        self.row_logloss = rng.random(n)

    def predictions(self, **changes):
        found = Predictions(
            topk=topk_csr([top_k(self.P, 5)], self.c),
            sets=csr_array(self.sets),
            f1_sets=csr_array(self.f1_sets),
            row_logloss=self.row_logloss,
            top_probability=self.P.max(axis=1),
        )
        return found._replace(**changes)

    def evaluate(self, predictions=None, truth=None, **options):
        options = {"label_counts": self.counts, "n_train": self.n_train, "bootstraps": 0} | options
        truth = csr_array(self.Y) if truth is None else truth
        return evaluate(truth, predictions or self.predictions(), **options)

    def values(self, *args, **options):
        return {key: metric.value for key, metric in self.evaluate(*args, **options).metrics.items()}


@pytest.fixture
def case():
    return Case()


# Values against scikit-learn


def test_the_keys_are_those_of_the_table_in_its_order(case):
    assert list(case.values()) == KEYS


def test_set_metrics_are_those_of_scikit_learn(case):
    found = case.values()
    assert found["hamming"] == pytest.approx(hamming_loss(case.Y, case.sets))
    for key, average in (("micro_f1", "micro"), ("macro_f1", "macro"), ("example_f1", "samples")):
        assert found[key] == pytest.approx(f1_score(case.Y, case.sets, average=average, zero_division=0))
    assert found["macro_f1_alg4"] == pytest.approx(f1_score(case.Y, case.f1_sets, average="macro", zero_division=0))


def test_ranking_metrics_are_those_of_scikit_learn_and_rows_without_labels_count_zero(case):
    assert not case.Y.sum(axis=1).all()
    ranked, found = np.argsort(-case.P, axis=1), case.values()
    for k in (1, 3, 5):
        assert found[f"p@{k}"] == pytest.approx(np.take_along_axis(case.Y, ranked[:, :k], axis=1).mean())
        assert found[f"ndcg@{k}"] == pytest.approx(ndcg_score(case.Y, case.P, k=k))


def test_logloss_is_the_mean_of_the_rows_sums(case):
    eps = np.clip(case.P, 1e-9, 1 - 1e-9)
    rows = -(case.Y * np.log(eps) + (1 - case.Y) * np.log(1 - eps)).sum(axis=1)
    found = case.values(case.predictions(row_logloss=rows))["logloss"]
    by_label = [log_loss(case.Y[:, j], eps[:, j], labels=[0, 1]) for j in range(case.c)]
    assert found == pytest.approx(sum(by_label))


def test_multiclass_adds_error_and_its_logloss_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    y, P = rng.integers(0, 6, 100), rng.dirichlet(np.ones(6), 100)
    Y, best = np.eye(6)[y], P.argmax(axis=1)
    predictions = Predictions(
        topk=topk_csr([top_k(P, 5)], 6),
        sets=csr_array(np.eye(6)[best]),
        row_logloss=-np.log(P[np.arange(100), y]),
        top_probability=P.max(axis=1),
    )
    options = {"label_counts": np.ones(6), "n_train": 50, "task": "multiclass", "bootstraps": 0}
    metrics = evaluate(csr_array(Y), predictions, **options).metrics
    assert metrics["error"].value == pytest.approx((best != y).mean())
    assert metrics["error"].value == pytest.approx(1 - metrics["p@1"].value)
    assert metrics["logloss"].value == pytest.approx(log_loss(y, P))
    assert list(metrics)[-3:] == ["error", "logloss", "ece_top"]
    by_sets = evaluate(csr_array(Y), predictions._replace(topk=None), **options).metrics
    assert by_sets["error"] == pytest.approx(metrics["error"], nan_ok=True)
    assert by_sets["ece_top"].value == pytest.approx(metrics["ece_top"].value)
    Y[3] = 1
    with pytest.raises(DataError, match=r"Row 3 .* 6 labels.*multilabel"):
        evaluate(csr_array(Y), predictions, **options)


# Values worked by hand


def test_propensity_scored_metrics_of_two_rows_worked_by_hand():
    """Row 0: truth {0, 1}, ranking 1, 2, 0. Row 1: truth {2}, ranking 0, 2, 1."""
    q = propensities([8, 1, 3], 20)
    assert q[1] > q[2] > q[0]
    topk = topk_csr([TopK(np.array([[1, 2, 0], [0, 2, 1]]), np.tile([3.0, 2, 1], (2, 1)))], 3)
    truth = csr_array([[1, 1, 0], [0, 0, 1]])
    evaluation = evaluate(truth, Predictions(topk=topk), label_counts=[8, 1, 3], n_train=20, ks=(1, 3), bootstraps=0)
    d2, d3 = 1 / np.log2(3), 1 / 2  # discounts of the second and third place; the first is 1
    expected = {
        "p@1": 1 / 2,
        "p@3": (2 / 3 + 1 / 3) / 2,
        "ndcg@1": 1 / 2,
        "ndcg@3": ((1 + d3) / (1 + d2) + d2) / 2,
        "psp@1": q[1] / (q[1] + q[2]),
        "psp@3": 1.0,
        "psndcg@1": q[1] / (q[1] + q[2]),
        "psndcg@3": ((q[1] + q[0] * d3) / (1 + d2) + q[2] * d2) / ((q[1] + q[0] * d2) / (1 + d2) + q[2]),
    }
    assert {key: metric.value for key, metric in evaluation.metrics.items()} == pytest.approx(expected)


def test_equal_propensities_make_psp_a_ratio_of_means(case):
    """At n_train < e all q are 1: PSP@k is total hits / total of min(k, labels per row)."""
    found = case.values(n_train=2)
    for k in (1, 3, 5):
        possible = np.minimum(case.Y.sum(axis=1), k).sum()
        assert found[f"psp@{k}"] == pytest.approx(found[f"p@{k}"] * k * case.n / possible)


def test_the_perfect_ranking_has_propensity_scored_metrics_of_one(case):
    gains = case.Y * propensities(case.counts, case.n_train) + 1e-3 * case.rng.random(case.Y.shape)
    found = case.values(Predictions(topk=topk_csr([top_k(gains, 5)], case.c)))
    assert [found[key] for key in KEYS if key.startswith("ps")] == pytest.approx([1] * 6)
    assert len(found) == 12


def test_ece_of_three_bins_worked_by_hand():
    """Probabilities .2 .2 | .6 .8 | .9 1: bins of two, mean gaps .2 - 1/2, .7 - 1, .95 - 1/2."""
    p, hit = np.array([0.2, 0.2, 0.6, 0.8, 0.9, 1.0]), np.array([1, 0, 1, 1, 1, 0])
    assert reliability(p, hit, bins=3).error == pytest.approx((0.3 + 0.3 + 0.45) / 3)


def test_a_calibrated_model_has_a_small_ece():
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    predictions = Predictions(topk=topk_csr([TopK(np.zeros((20_000, 1), int), p[:, None])], 1), top_probability=p)
    options = {"label_counts": [9], "n_train": 9, "ks": (1,), "bootstraps": 0}
    truth = csr_array((rng.random((20_000, 1)) < p[:, None]).astype(int))
    assert evaluate(truth, predictions, **options).metrics["ece_top"].value < 0.02
    wrong = predictions._replace(top_probability=p**2)
    assert evaluate(truth, wrong, **options).metrics["ece_top"].value == pytest.approx(1 / 2 - 1 / 3, abs=0.02)


# Identities


def test_seeing_every_row_twice_leaves_every_value_unchanged(case):
    predictions, Y = case.predictions(), csr_array(case.Y)
    twice = Predictions(*(vstack([f, f]).tocsr() for f in predictions[:3]), *(np.tile(f, 2) for f in predictions[3:]))
    assert case.values(twice, vstack([Y, Y]).tocsr()) == pytest.approx(case.values(predictions, Y))


def test_seeing_every_row_twice_leaves_it_in_its_bin(case):
    for n in range(1, 50):
        p = case.rng.random(n)
        twice = np.tile(p, 2)
        np.testing.assert_array_equal(equal_mass_bins(twice), np.tile(equal_mass_bins(p), 2))


def test_the_order_of_rows_does_not_matter(case):
    predictions, order = case.predictions(), case.rng.permutation(case.n)
    shuffled = Predictions(*(None if field is None else field[order] for field in predictions))
    assert case.values(shuffled, csr_array(case.Y[order])) == pytest.approx(case.values(predictions))


def test_a_weighted_metric_is_that_of_the_repeated_rows(case):
    """The draws are honest: a draw of (2, 0, 1, ..) is the test set with row 0 twice and row 1 left out."""
    weights = next(bootstrap.poisson_weights(case.n, 3, 3, seed=5))
    rows = np.repeat(np.arange(case.n), weights[:, 0].astype(int))
    predictions = case.predictions(top_probability=None)  # its bins are held fixed
    repeated = Predictions(*(None if field is None else field[rows] for field in predictions))
    expected = case.values(repeated, csr_array(case.Y[rows]))
    found = statistics(csr_array(case.Y), predictions, label_counts=case.counts, n_train=case.n_train).by_key
    assert {key: statistic.at(weights)[0] for key, statistic in found.items()} == pytest.approx(expected)


def test_unknown_labels_are_misses_and_are_reported(case):
    extra = np.zeros((case.n, 3))
    extra[:10, 1] = 1
    extra[5:20, 2] = 1
    more = case.evaluate(truth=csr_array(np.hstack([case.Y, extra])))
    assert more[1:4] == (case.n, 2, 25)
    found, before = {key: metric.value for key, metric in more.metrics.items()}, case.values()
    assert found["hamming"] == pytest.approx(before["hamming"] + 25 / (case.n * case.c))
    wide = np.hstack([case.sets, np.zeros((case.n, 3))])
    for key, average in (("micro_f1", "micro"), ("example_f1", "samples")):
        assert found[key] == pytest.approx(f1_score(np.hstack([case.Y, extra]), wide, average=average, zero_division=0))
    for key in ("p@1", "p@5", "macro_f1", "macro_f1_alg4", "logloss", "ece_top"):
        assert found[key] == before[key]
    for key in ("ndcg@5", "psp@1", "psndcg@3"):
        assert found[key] < before[key]


def test_a_truth_with_fewer_columns_lacks_only_zeros(case):
    case.Y[:, 9:] = 0
    assert case.values(truth=csr_array(case.Y[:, :9])) == case.values()


def test_metrics_that_lack_their_field_are_left_out(case):
    assert list(case.values(Predictions(sets=csr_array(case.sets)))) == [
        "hamming",
        "micro_f1",
        "macro_f1",
        "example_f1",
    ]
    assert list(case.values(case.predictions(topk=None))) == KEYS[12:-1]
    assert case.values(Predictions()) == {}


def test_short_rows_of_topk_are_padded_with_misses():
    topk = csr_array((np.ones(4), [1, 0, 1, 2], [0, 1, 4, 4]), (3, 4))
    truth = csr_array([[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 1]])
    options = {"label_counts": np.ones(4), "n_train": 9, "bootstraps": 0}
    found = evaluate(truth, Predictions(topk=topk), ks=(1, 3), **options).metrics
    assert found["p@3"].value == pytest.approx((1 / 3 + 1 / 3 + 0) / 3)
    assert evaluate(csr_array((3, 4)), Predictions(topk=topk), ks=(1, 3), **options).metrics["p@3"].value == 0
    with pytest.raises(DataError, match="at most 3 entries per row; metrics at 5 need 4"):
        evaluate(truth, Predictions(topk=topk), **options)


def test_fewer_labels_than_k_are_all_ranked():
    truth = csr_array([[1, 0], [1, 1]])
    predictions = Predictions(topk=topk_csr([top_k(np.array([[2.0, 1], [2, 1]]), 5)], 2))
    found = evaluate(truth, predictions, label_counts=[1, 1], n_train=9, bootstraps=0).metrics
    assert found["p@5"].value == pytest.approx((1 / 5 + 2 / 5) / 2)
    assert found["ndcg@5"].value == pytest.approx(1)


def test_explicit_zeros_and_old_sparse_matrices_change_nothing(case):
    Y = csr_matrix(case.Y)
    Y.data[0], before = 0, Y.toarray()
    before[0, Y.indices[0]] = 0
    assert case.values(truth=Y) == case.values(truth=csr_array(before))
    assert Y.nnz == csr_array(before).nnz + 1  # the caller's matrix is untouched


# Intervals


def test_the_interval_of_p_at_1_is_close_to_the_normal_approximation():
    case = Case(n=2000)
    p = case.evaluate(bootstraps=1000).metrics["p@1"]
    half = 1.645 * np.sqrt(p.value * (1 - p.value) / case.n)
    assert p.low == pytest.approx(p.value - half, abs=0.15 * half)
    assert p.high == pytest.approx(p.value + half, abs=0.15 * half)


def test_every_value_lies_in_its_interval_even_over_many_rare_labels():
    rng = np.random.default_rng(0)
    n, c = 300, 1000
    truth = csr_array((np.ones(n), (np.arange(n), rng.integers(0, c, n))), (n, c))
    options = {"label_counts": np.ones(c), "n_train": n, "bootstraps": 200}
    for metric in evaluate(truth, Predictions(sets=truth, f1_sets=truth), **options).metrics.values():
        assert metric.low <= metric.value <= metric.high
    for metric in Case().evaluate(bootstraps=200).metrics.values():
        assert metric.low < metric.value < metric.high


def test_intervals_of_the_nearly_perfect_and_the_nearly_hopeless_stay_between_0_and_1():
    Y = np.ones((50, 1))
    sets = np.ones((50, 1))
    sets[0] = 0
    for seed in range(20):  # the shift of either sign
        options = {"label_counts": [9], "n_train": 9, "bootstraps": 20, "seed": seed}
        for metric in evaluate(csr_array(Y), Predictions(sets=csr_array(sets)), **options).metrics.values():
            assert 0 <= metric.low <= metric.high <= 1


def test_intervals_depend_on_the_seed_and_on_nothing_else(case):
    before = case.evaluate(bootstraps=50).metrics
    assert case.evaluate(bootstraps=50, seed=1).metrics["p@1"].low != before["p@1"].low
    alone = case.evaluate(Predictions(sets=csr_array(case.sets)), bootstraps=50).metrics
    assert alone["macro_f1"] == before["macro_f1"]
    by_seven, at_once = (np.hstack(list(bootstrap.poisson_weights(case.n, 50, size, seed=0))) for size in (7, 50))
    np.testing.assert_array_equal(by_seven, at_once)


def test_no_bootstraps_no_interval_and_one_row_still_has_one(case):
    assert np.isnan(case.evaluate().metrics["p@1"][1:]).all()
    one = evaluate(csr_array([[1]]), Predictions(sets=csr_array([[1]])), label_counts=[1], n_train=9, bootstraps=40)
    assert set(one.metrics.values()) == {(0, 0, 0), (1, 1, 1)}


def test_a_model_differs_from_itself_by_nothing_and_from_another_by_the_difference(case):
    other = case.predictions(
        sets=csr_array(case.f1_sets), topk=topk_csr([top_k(case.P + 0.2 * case.rng.random(case.P.shape), 5)], case.c)
    )
    options = {"label_counts": case.counts, "n_train": case.n_train, "bootstraps": 100}
    truth = csr_array(case.Y)
    for key in KEYS:
        assert paired_difference(key, truth, other, other, **options) == (0, 0, 0)
    for key in ("p@1", "macro_f1", "psndcg@5"):
        found = paired_difference(key, truth, case.predictions(), other, **options)
        back = paired_difference(key, truth, other, case.predictions(), **options)
        expected = case.values()[key] - case.values(other)[key]
        assert found.value == pytest.approx(expected)
        assert back == pytest.approx((-found.value, -found.high, -found.low))
    with pytest.raises(DataError, match=r"The first predictions have no metric 'error'. They have: p@1"):
        paired_difference("error", truth, other, other, **options)


def test_pairing_narrows_the_interval_of_a_small_difference():
    case = Case(n=1000)
    close = case.predictions(topk=topk_csr([top_k(case.P + 0.01 * case.rng.random(case.P.shape), 5)], case.c))
    options = {"label_counts": case.counts, "n_train": case.n_train, "bootstraps": 200}
    paired = paired_difference("p@1", csr_array(case.Y), case.predictions(), close, **options)
    single = case.evaluate(bootstraps=200).metrics["p@1"]
    assert paired.high - paired.low < 0.5 * (single.high - single.low)


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sets": csr_array((3, 12))}, "sets is 3 x 12; the truth has 200 rows"),
        ({"sets": csr_array(2 * np.ones((200, 12)))}, "sets holds 2; entries are 0 or 1"),
        ({"topk": csr_array((200, 11))}, "topk is 200 x 11"),
        ({"topk": np.ones((200, 12))}, "topk is ndarray; its rank is the order"),
        ({"row_logloss": np.full(200, np.inf)}, "200 infinite or NaN values"),
        ({"top_probability": np.ones(3)}, r"top_probability has shape \(3,\)"),
    ],
)
def test_predictions_that_do_not_fit_are_refused_in_words(case, changes, message):
    with pytest.raises(DataError, match=message):
        case.evaluate(case.predictions(**changes))


def test_an_empty_test_set_is_refused(case):
    with pytest.raises(DataError, match="nothing to evaluate"):
        case.evaluate(truth=csr_array((0, 12)))


# What is shown


def test_an_evaluation_is_shown_as_a_table_with_a_line_for_each_metric(case):
    found = case.evaluate(truth=csr_array(np.hstack([case.Y, np.ones((case.n, 1))])), bootstraps=20)
    first, head, *lines = repr(found).splitlines()
    assert first == "Evaluation on 200 rows, 1 label unknown to the model"
    assert head.split() == ["metric", "value", "90", "%", "interval"]
    assert [line.split()[0] for line in lines] == KEYS
    metric = found.metrics["p@1"]
    assert lines[0].split() == ["p@1", f"{metric.value:.4f}", f"{metric.low:.4f}", "-", f"{metric.high:.4f}"]
    assert len({line.index(" - ") for line in lines}) <= 2  # columns are aligned; hamming has more digits
    assert str(case.evaluate()).splitlines()[2].split() == ["p@1", f"{case.evaluate().metrics['p@1'].value:.4f}"]
    html = found._repr_html_()
    assert html.count("<tr>") == len(KEYS) + 1
    assert f"<td>{metric.value:.4f}</td>" in html
