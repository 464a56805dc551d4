"""`smoothlink.explain`: parts of each model's own scores, names, labels asked for, and what is refused."""

import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, dense, fixed, multilabel, words

import smoothlink
from smoothlink import InputKernel, Joint, Laplacian, Logistic, PerLabel
from smoothlink.explanation import (
    Row,
    contributions,
    cosine_path,
    explain,
    identity_path,
    landmark_path,
    linear_path,
    nearest,
    neighbours,
    secants,
    spelled,
    through_weights,
    to_unit_length,
)
from smoothlink.steps.featurize import Features, parse_kernel
from smoothlink.steps.landmarks import Landmarks


def parts_sum_up(model, X, labels=None, tolerance=2e-5):
    """Base and all parts of the explanation are the scores that the model itself gives; what is shown comes sorted."""
    for row in range(0, 20, 5):
        for one in explain(model, X[[row]], labels, k=3, top=None):
            total = one.base + sum(reason.added for reason in one.reasons)
            assert total == pytest.approx(one.score, abs=tolerance)
            assert one.rest == pytest.approx(0, abs=1e-12)
            sizes = [abs(reason.added) for reason in one.reasons]
            assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kernel": "linear"},
        {"kernel": Laplacian(3.0, 40)},
        {"normalize_embedding": True},
        {"scale": "none", "loss": Logistic(passes=2)},
        {"scale": "variance"},
        {"embedding": "none"},
        {"embedding": "per_label"},
        {"input_kernel": InputKernel(bandwidth=1.0, features=30, map="random")},
        {"embedding": "none", "input_kernel": InputKernel(bandwidth=1.0, map="random")},
    ],
    ids=str,
)
def test_parts_and_base_are_the_score_of_sparse_rows(rng, changes):
    X, Y = words(rng)
    parts_sum_up(fixed(**changes).fit(X, Y), X)


@pytest.mark.parametrize("kernel", [None, "gaussian", "matern(3)", "laplacian"])
def test_parts_and_base_are_the_score_of_dense_rows(rng, kernel):
    X, Y = multilabel(rng)
    given = None if kernel is None else InputKernel(kernel, 1.0, 40)
    for trees in (False, True):
        parts_sum_up(fixed(input_kernel=given, trees=trees).fit(X, Y), X)


def test_parts_and_base_are_the_score_of_joint_training(rng):
    """There labels have sparse weights too, and embedded rows unit length."""
    X, Y = words(rng, 200, 60, 30)
    model = smoothlink.SmoothLinkClassifier(training=Joint(8, passes=2), rank=4, calibrate=False).fit(X, Y)
    assert model.model_.sparse_weights is not None
    parts_sum_up(model, X)
    assert neighbours(model, [0])[0]


def test_parts_and_base_are_the_score_of_halves(rng, tmp_path):
    X, Y = words(rng)
    fixed().fit(X, Y).save(tmp_path / "m.safetensors", dtype="float16")
    parts_sum_up(smoothlink.load(tmp_path / "m.safetensors"), X)


def test_scores_and_probabilities_are_those_of_the_classifier(rng):
    X, y = classes(rng)
    model = fixed(rank=2, loss="auto").fit(X, y)
    best = model.predict_topk(X[[4]], k=3)
    found = explain(model, X[[4]], k=3)
    assert [one.label for one in found] == best.indices.tolist()
    assert [one.probability for one in found] == pytest.approx(best.data.tolist(), rel=1e-5)
    given = explain(model, X[4], labels=[2, 0])
    assert [one.probability for one in given] == pytest.approx(model.predict_proba(X[[4]], labels=[2, 0])[0].tolist())
    assert [one.score for one in given] == pytest.approx(model.decision_function(X[[4]])[0, [2, 0]].tolist(), rel=1e-4)


def test_the_best_label_is_as_likely_when_it_is_asked_for(rng):
    X, Y = words(rng)
    model = fixed(calibrate=True).fit(X, Y)
    for i in range(5):
        best = model.predict_topk(X[[i]], k=1)
        (found,) = explain(model, X[[i]], labels=best.indices.tolist())
        assert found.probability == pytest.approx(float(best.data[0]))
        assert found.probability == pytest.approx(float(model.predict_proba(X[[i]])[0, best.indices[0]]))


def test_what_is_not_shown_is_the_rest(rng):
    X, Y = words(rng)
    model = fixed().fit(X, Y)
    whole, short = (explain(model, X[[3]], k=1, top=top)[0] for top in (None, 2))
    assert short.reasons == whole.reasons[:2]
    assert short.rest == pytest.approx(sum(reason.added for reason in whole.reasons[2:]))
    values = dense(X)[3]
    assert all(reason.value == pytest.approx(values[reason.feature]) for reason in whole.reasons)
    assert {reason.feature for reason in whole.reasons} == set(np.flatnonzero(values).tolist())


def test_a_feature_that_a_label_hangs_on_comes_first(rng):
    X = sp.csr_array(rng.poisson(0.5, (300, 12)).astype(float))
    Y = dense(X)[:, :3] > 0
    model = smoothlink.SmoothLinkClassifier(effort="quick").fit(X, Y.astype(int))
    row = int(np.flatnonzero(Y.all(axis=1))[0])
    for label in range(3):
        reason = explain(model, X[[row]], labels=[label], top=1)[0].reasons[0]
        assert reason.feature == label
        assert reason.added > 0


def test_a_row_without_features_and_an_untrained_label_have_no_reasons(rng):
    X, Y = words(rng)
    Y[:, 2] = 0
    model = fixed().fit(X, Y)
    (empty,) = explain(model, sp.csr_array((1, 40)), k=1)
    assert (empty.reasons, empty.base) == ((), pytest.approx(empty.score))
    (untrained,) = explain(model, X[[0]], labels=[2])
    assert (untrained.reasons, untrained.score, untrained.base) == ((), -np.inf, -np.inf)
    assert 0 < untrained.probability < 0.1


def test_names_of_labels_and_features_come_back(rng):
    X, Y = words(rng)
    model = fixed().fit(X, Y)
    model.label_names_ = [f"label{j}" for j in range(6)]
    model.feature_names_in_ = np.array([f"word{j}" for j in range(40)], dtype=object)
    (one,) = explain(model, X[[0]], labels=["label4"])
    assert (one.label, one.name) == (4, "label4")
    assert all(reason.name == f"word{reason.feature}" for reason in one.reasons)
    assert all(near.name == f"label{near.label}" for near in one.neighbours)
    assert neighbours(model, ["label4"])[0] == list(one.neighbours)


def test_labels_that_always_come_together_are_neighbours(rng):
    X, Y = words(rng, 300)
    Y = np.hstack([Y, Y[:, :2]])
    for first, near in zip((0, 1, 6), neighbours(fixed(rank=8).fit(X, Y), [0, 1, 6], k=3), strict=True):
        assert near[0].label == (first + 6) % 12
        assert near[0].similarity == pytest.approx(1, abs=1e-3)
        assert [one.similarity for one in near] == sorted((one.similarity for one in near), reverse=True)


def test_a_model_without_directions_has_no_neighbours(rng):
    X, Y = words(rng)
    assert neighbours(fixed(embedding="none").fit(X, Y), [0, 3]) == [[], []]


def test_ngrams_that_share_a_column_are_all_named():
    assert spelled([(3, "a b"), (1, "c"), (3, "d"), (3, "a b")]) == {3: "a b / d", 1: "c"}


@pytest.mark.parametrize(
    ("given", "error", "words_of_it"),
    [
        ({"row": "a text"}, TypeError, "not texts"),
        ({"row": sp.csr_array(np.ones((2, 40)))}, smoothlink.DataError, "2 rows were given"),
        ({"row": np.ones(3)}, ValueError, "3 features"),
        ({"labels": ["nothing"]}, smoothlink.DataError, "no label 'nothing'; it has 6 labels"),
        ({"labels": [6]}, smoothlink.DataError, "no label number 6"),
        ({"labels": 3}, TypeError, r"labels=\[3\]"),
        ({"k": 0}, ValueError, "k is 0"),
        ({"top": 0}, ValueError, "top is 0"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_words(rng, given, error, words_of_it):
    X, Y = words(rng)
    model = fixed().fit(X, Y)
    with pytest.raises(error, match=words_of_it):
        explain(model, **{"row": X[[0]]} | given)


def test_a_first_stage_that_is_not_linear_is_refused(rng):
    from sklearn.tree import DecisionTreeClassifier

    X, Y = multilabel(rng)
    model = fixed(embedding=PerLabel(DecisionTreeClassifier(max_depth=2))).fit(X, Y)
    with pytest.raises(ValueError, match="DecisionTreeClassifier, which cannot be explained"):
        explain(model, X[[0]])


# The path from the empty row


def some_features(rng, k, s):
    return Features(rng.standard_normal((k, s)).astype(np.float32), rng.uniform(0, 6, s).astype(np.float32))


def test_a_secant_is_the_mean_of_the_gradient(rng):
    u, change = rng.uniform(-5, 5, 50), rng.uniform(-9, 9, 50)
    at, w = np.polynomial.legendre.leggauss(40)
    along = u + change * ((at + 1) / 2)[:, None]
    assert secants(u, change) == pytest.approx(w / 2 @ (-np.sqrt(2) * np.sin(along)))
    assert secants(u, change) * change == pytest.approx(np.sqrt(2) * (np.cos(u + change) - np.cos(u)))


def test_where_nothing_changes_the_secant_is_the_gradient(rng):
    u = rng.uniform(-5, 5, 50)
    assert secants(u, np.zeros(50)) == pytest.approx(-np.sqrt(2) * np.sin(u))
    assert secants(u, np.full(50, 1e-9)) == pytest.approx(-np.sqrt(2) * np.sin(u), abs=1e-7)


def test_parts_are_integrated_gradients_of_the_score(rng):
    """Against 60 points of Gauss and Legendre on the path from the empty row to the row, by finite differences."""
    W, V, f = rng.standard_normal((5, 3)), rng.standard_normal((21, 2)), some_features(rng, 3, 20)
    x, constant = rng.standard_normal(5), rng.standard_normal(3)

    def score(z):
        return np.append(np.sqrt(2) * np.cos((z @ W + constant) @ f.R.astype(float) + f.b), 1) @ V

    at, w = np.polynomial.legendre.leggauss(60)
    expected = np.zeros((5, 2))
    for t, share in zip((at + 1) / 2, w / 2, strict=True):
        for i, step in enumerate(1e-5 * np.eye(5)):
            expected[i] += share * x[i] * (score(t * x + step) - score(t * x - step)) / 2e-5
    found = contributions(linear_path(Row(np.arange(5), x), W, constant), f, V)
    assert found.added == pytest.approx(expected, abs=1e-4)
    assert found.base == pytest.approx(score(np.zeros(5)), abs=1e-4)


def test_of_a_linear_link_parts_are_its_terms(rng):
    W, V, x = rng.standard_normal((4, 3)), rng.standard_normal((4, 2)), rng.standard_normal(4)
    linear = Features(np.zeros((3, 0), np.float32), np.zeros(0, np.float32))
    found = contributions(linear_path(Row(np.arange(4), x), W, np.zeros(3)), linear, V)
    assert found.added == pytest.approx(x[:, None] * (W @ V[:-1]), rel=1e-5)
    assert found.base == pytest.approx(V[-1], rel=1e-5)


def test_scaling_to_unit_length_scales_all_parts_of_h_alike(rng):
    path = to_unit_length(linear_path(Row(np.arange(4), np.ones(4)), rng.standard_normal((4, 3)), np.ones(3)))
    assert np.linalg.norm(path.end) == pytest.approx(1)
    assert path.start + path.back(np.eye(3)).sum(axis=0) == pytest.approx(path.end)


@pytest.mark.parametrize("kernel", ["gaussian", "matern(3)", "laplacian"])
def test_kernel_values_are_reached_by_their_parts(rng, kernel):
    marks = Landmarks(rng.standard_normal((30, 4)).astype(np.float32), parse_kernel(kernel), 6.0)
    x = rng.standard_normal((1, 4)).astype(np.float32)
    path = landmark_path(Row(np.arange(4), x[0]), marks)
    assert path.start == pytest.approx(marks.values(np.zeros((1, 4), np.float32))[0], abs=1e-5)
    assert path.end == pytest.approx(marks.values(x)[0], abs=1e-5)
    assert path.start + path.back(np.eye(30)).sum(axis=0) == pytest.approx(path.end, abs=1e-7)


@pytest.mark.parametrize("kernel", ["gaussian", "matern(3)", "laplacian"])
def test_a_landmark_as_far_from_the_row_as_from_the_empty_one_gives_parts_that_cancel(kernel):
    marks = Landmarks(np.array([[1.0, 0.0, 1.0]], np.float32), parse_kernel(kernel), 6.0)
    row = Row(np.arange(3), np.array([2.0, 0.0, 0.0], np.float32))  # as far from (1, 0, 1) as 0 is
    found = landmark_path(row, marks).back(np.ones((1, 1)))
    assert found == pytest.approx(0, abs=1e-6)
    both = Row(np.arange(3), np.array([2.0, 1.0, 1.0], np.float32))  # nearer by the third, farther by the second
    found = landmark_path(both, marks).back(np.ones((1, 1)))[:, 0]
    assert found[1] < 0 < found[2]
    assert np.isfinite(found).all()


def test_a_first_stage_of_random_features_is_reached_by_its_parts(rng):
    f, W = some_features(rng, 4, 20), rng.standard_normal((20, 3))
    x = rng.standard_normal((1, 4)).astype(np.float32)
    path = through_weights(cosine_path(Row(np.arange(4), x[0]), f), W, np.ones(3))
    assert path.end == pytest.approx(f(x)[0, :-1] @ W + 1, abs=1e-4)
    assert path.start + path.back(np.eye(3)).sum(axis=0) == pytest.approx(path.end, abs=1e-4)


def test_without_an_embedding_h_is_x():
    path = identity_path(Row(np.array([1, 3]), np.array([2.0, -1.0])), 5)
    assert path.end.tolist() == [0, 2, 0, -1, 0]
    assert path.back(np.eye(5)).sum(axis=0).tolist() == path.end.tolist()


def test_nearest_rows_are_those_of_the_highest_cosine(rng):
    A = rng.standard_normal((40, 6)).astype(np.float32)
    A[7] = 0
    unit = A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-9)
    C = unit @ unit.T
    np.fill_diagonal(C, -9)
    ids, cosines = nearest(A, np.array([3, 11]), 4)
    assert ids.tolist() == np.argsort(-C[[3, 11]], axis=1)[:, :4].tolist()
    assert cosines == pytest.approx(np.sort(C[[3, 11]], axis=1)[:, :-5:-1], abs=1e-5)
    assert np.abs(nearest(A, np.array([7]), 4)[1]).max() == 0
    assert nearest(A[:1], np.array([0]), 4)[0].shape == (1, 0)
