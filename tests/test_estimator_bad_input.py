"""What cannot be learnt is refused with a ValueError that says what came and what is possible; the rest works."""

import os
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from small import classes, fixed, multilabel, words

from smoothlink import (
    Exponential,
    FineTune,
    Gaussian,
    InputKernel,
    Joint,
    Laplacian,
    Linear,
    Logistic,
    Matern,
    PerLabel,
    Randomized,
    SmoothLinkClassifier,
    Softmax,
    Squared,
)
from smoothlink.choices import CLASSES
from smoothlink.parameters import CHOICES, PARAMETERS

# Data


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((3, 2)), [0, 1], "X has 3 rows and y has 2"),
        (sp.csr_array((3, 2)), sp.csr_array(np.eye(2)), "X has 3 rows and y has 2"),
        (np.ones(3), [0, 1, 0], "1D array"),
        (np.ones((3, 2)), None, "y"),
        (np.ones((0, 2)), [], "0 sample"),
        (np.ones((3, 0)), [0, 1, 0], "0 feature"),
        (np.array([["a", "b"]]), [0], "float"),
        (np.ones((3, 2)), np.zeros((3, 2)), "no positive label"),
        (np.ones((3, 2)), [0.5, 1.5, 0.25], "continuous"),
        (np.ones((3, 2)), np.ones((3, 3)) / 3, "continuous"),
        (np.ones((3, 2)), [0, np.nan, 1], "NaN"),
    ],
)
def test_data_that_do_not_fit_are_refused(X, y, message):
    with pytest.raises(ValueError, match=message):
        fixed().fit(X, y)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_features_that_are_not_finite_numbers_are_refused(rng, wrong, form):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    X[3, 4] = wrong
    with pytest.raises(ValueError, match=r"NaN|infinity|too large"):
        fixed().fit(form(X), Y)
    with pytest.raises(ValueError, match=r"NaN|infinity|too large"):
        fitted.predict(form(X))


@pytest.mark.parametrize(
    ("w", "message"),
    [
        (np.zeros(90), "zero"),
        (-np.ones(90), "[Nn]egative"),
        (np.ones(89), "89|sample_weight.shape"),
        (np.full(90, np.nan), "NaN"),
        (np.ones((90, 2)), "1D|2"),
    ],
)
def test_impossible_weights_are_refused(rng, w, message):
    X, Y = multilabel(rng)
    with pytest.raises(ValueError, match=message):
        fixed().fit(X, Y, sample_weight=w)


def test_weights_that_leave_no_label_are_refused(rng):
    X, Y = multilabel(rng)
    Y[0], Y[1:] = 1, 0
    with pytest.raises(ValueError, match="No row of positive weight has a label"):
        fixed().fit(X, Y, sample_weight=np.arange(90) > 0)


def test_methods_of_a_classifier_that_is_not_fitted_say_so(rng, tmp_path):
    X, _ = multilabel(rng)
    for call in ("predict", "predict_proba", "decision_function", "predict_topk", "predict_f1"):
        with pytest.raises(NotFittedError):
            getattr(SmoothLinkClassifier(), call)(X)
    with pytest.raises(NotFittedError):
        SmoothLinkClassifier().save(tmp_path / "m.safetensors")


@pytest.mark.parametrize("k", [0, -1, 2.0, True, "5", None])
def test_a_k_that_counts_nothing_is_refused(rng, k):
    X, Y = multilabel(rng)
    with pytest.raises(ValueError, match=r"k is .* whole number of at least 1"):
        fixed().fit(X, Y).predict_topk(X, k=k)


# Extremes that work


def works(classifier, X, y):
    """Fits, and gives probabilities that are numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        fitted = classifier.fit(X, y)
    P = fitted.predict_proba(X)
    assert np.isfinite(P).all()
    assert fitted.predict(X).shape[0] == fitted.predict_f1(X).shape[0] == X.shape[0]
    assert fitted.predict_topk(X, k=2).shape[0] == X.shape[0]
    return fitted


EXTREMES = {
    "fixed": fixed(),
    "everything auto": SmoothLinkClassifier(),
    "one random feature": fixed(kernel__features=1),
    "rank above every bound": fixed(rank=10_000),
    "any loss": fixed(loss="auto"),
    "linear": fixed(kernel="linear"),
    "no ridge": fixed(ridge=0.0, final_ridge=0.0),
    "share": fixed(rank=0.5),
    "adaptive": fixed(rank="adaptive"),
    "none": fixed(embedding="none"),
    "conjugate gradients": fixed(solver="cg"),
    "input kernel": fixed(input_kernel=InputKernel(features=3)),
    "calibrated": fixed(calibrate=True),
}


@pytest.mark.parametrize("classifier", EXTREMES.values(), ids=EXTREMES)
def test_extreme_data_are_learnt_all_the_same(rng, classifier):
    X, Y = multilabel(rng, n=20, d=4, c=3)
    works(classifier, X[:1], np.array([[0, 1, 1]]))  # one row
    works(classifier, X[:1], ["only"])  # one row of one class
    works(classifier, X, np.full(20, "only"))  # one class
    works(classifier, np.ones((20, 4)), Y)  # constant features
    works(classifier, np.zeros((20, 4)), Y)  # nothing but zeros
    works(classifier, sp.csr_array((20, 4)), Y)  # ... and nothing stored
    works(classifier, X[:2], [0, 1])  # as many classes as rows
    works(classifier, X, np.ones((20, 2), int))  # labels that every row has
    works(classifier, X, np.arange(20))  # every row a class of its own
    works(classifier, 1e-6 * X, Y)
    works(classifier, 1e6 * X, Y)
    works(classifier, X[:, :1], Y)  # one feature


def test_one_class_is_all_there_is_to_say(rng):
    X, _ = multilabel(rng)
    fitted = works(fixed(), X, np.full(90, "only"))
    assert (fitted.predict(X) == "only").all()
    np.testing.assert_allclose(fitted.predict_proba(X), 1)


def test_constant_features_give_the_label_frequencies(rng):
    X, Y = multilabel(rng)
    P = works(fixed(), np.full_like(X, 3.0), Y).predict_proba(X[:2])
    np.testing.assert_allclose(P, np.tile(Y.mean(axis=0), (2, 1)), atol=0.02)


def test_a_rank_above_labels_features_or_rows_is_the_most_there_can_be(rng):
    X, Y = multilabel(rng, c=6)
    assert fixed(rank=99).fit(X, Y).summary_["rank"] <= 6  # labels
    assert fixed(rank=99).fit(X[:, :2], Y).summary_["rank"] <= 3  # features and their constant
    assert fixed(rank=99).fit(X[:4], np.eye(4, 6, dtype=int)).summary_["rank"] <= 4  # rows


# Parameters

WRONG = {
    "rank": [0, -1, 1.5, 0.0, "all", True, None, [3], Gaussian()],
    "embedding": ["svd", "identity", "plst", None, 3, PerLabel, Linear()],
    "ridge": [-1.0, np.nan, np.inf, "big", None, True],
    "kernel": ["rbf", "matern(0)", "matern(x)", "matern(1.2.3)", "", None, 3, Gaussian, Logistic(), Squared()],
    "final_ridge": [-1e-9, np.nan, "small"],
    "loss": ["hinge", None, "softmax", Softmax(), Gaussian(), Linear()],
    "training": ["all", None, 20, Joint, Logistic()],
    "task": ["rank", None, "multiclass"],
    "label_smoothing": [0.5, 1.1, None],
    "class_weight": ["uniform", [1.0], {77: 1.0}],
    "scale": ["max", None],
    "normalize_embedding": ["yes", 1, None],
    "trees": ["yes", 2, None],
    "input_kernel": ["rbf", "linear", "matern(0)", 3, Gaussian()],
    "solver": ["lu", None, 3, dict],
    "effort": ["fast", None, 1],
    "holdout": [0.0, 0.6, "tenth"],
    "calibrate": ["isotonic", None],
    "aim": ["best", "precision=2", "labels=none", 0.5, None],
    "conformal": [-0.1, 1.0, "tenth", None, True],
    "device": ["gpu", "cuda0", None, 0],
    "memory": ["much", "4X", "", 0, -1, "-4G", True, [], 1 << 20],
    "block_rows": [0, -1, 0.5],
    "checkpoint": [3, True, "", os.devnull, f"{os.devnull}/state"],
    "updatable": ["yes", None],
    "random_state": [-1, "seed", 1.5],
    "verbose": [-1, "loud"],
}
WIDTH, SIZE, FLAG = [0.0, -1.0, np.inf, "wide", None], [0, -5, 1.5, "many", True], ["yes", 1, None]
SGD = {
    "passes": [0, 1.5, "few"],
    "learning_rate": [0.0, -1.0, "fast"],
    "momentum": [-0.1, 1.0, "high", None],
    "decay": [0.0, 1.1, None],
    "batch_rows": [0, 1.5, "all"],
}
WRONG_OF = {  # of the choices
    Gaussian: {"bandwidth": WIDTH, "features": SIZE},
    Laplacian: {"bandwidth": WIDTH, "features": SIZE},
    Exponential: {"bandwidth": WIDTH, "features": SIZE},
    Matern: {"nu": [0.0, -1.0, "smooth", None], "bandwidth": WIDTH, "features": SIZE},
    Linear: {},
    Squared: {},
    Logistic: SGD,
    Softmax: SGD,
    Randomized: {"power": [0, -1, 1.5], "oversample": [-1, 0.5]},
    PerLabel: {"classifier": ["ridge", LogisticRegression]},
    Joint: {
        "negatives": [0, 1.5, "all", True],
        "sparse_weights": FLAG,
        "passes": SGD["passes"],
        "learning_rate": SGD["learning_rate"],
        "batch_rows": SGD["batch_rows"],
    },
    FineTune: {
        "passes": SGD["passes"],
        "dropout": [-0.1, 1.0, "half", None],
        "sparse_weights": FLAG,
        "learning_rate": SGD["learning_rate"],
        "batch_rows": SGD["batch_rows"],
    },
    InputKernel: {
        "kernel": ["rbf", "linear", None, 3],
        "bandwidth": WIDTH,
        "features": SIZE,
        "map": ["nystrom", None],
    },
}


def test_every_parameter_is_given_wrong_values():
    assert list(WRONG) == [p.name for p in PARAMETERS]
    assert {kind.__name__: list(wrong) for kind, wrong in WRONG_OF.items()} == {
        choice.name: [p.name for p in choice.parameters] for choice in CHOICES
    }


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_values_are_refused_with_the_name_of_the_parameter(rng, name, value):
    X, Y = multilabel(rng)
    with pytest.raises(ValueError, match=name.replace("random_state", "random_state|seed")) as raised:
        fixed(**{name: value}).fit(X, Y)
    assert len(str(raised.value)) > len(name) + 20  # says what is possible


@pytest.mark.parametrize(
    ("choice", "name", "value"),
    [
        pytest.param(choice, name, value, id=f"{choice.name}({name}={value})")
        for choice in CHOICES
        for name, values in WRONG_OF[CLASSES[choice.name]].items()
        for value in values
    ],
)
def test_wrong_values_of_a_choice_are_refused_with_both_names(rng, choice, name, value):
    X, Y = multilabel(rng)
    wrong = CLASSES[choice.name](**{name: value})
    with pytest.raises(ValueError, match=rf"^{choice.parameter}\.{name} is .*; possible are "):
        fixed(**{choice.parameter: wrong}).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "logistic"}, "exactly one label; use 'softmax', or task='multilabel'"),
        ({"loss": Logistic()}, "exactly one label; use 'softmax', or task='multilabel'"),
        ({"embedding": PerLabel(LogisticRegression()), "memory": "2G"}, "PerLabel.classifier. cannot use"),
        ({"embedding": "plst"}, r"now smoothlink_paper\.LabelSpace\(method='plst'\)"),
        ({"embedding": "cplst"}, r"now smoothlink_paper\.LabelSpace\(method='cplst'\)"),
        (
            {"checkpoint": "state", "random_state": None},
            "random_state is None, but a fit with a checkpoint must repeat",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(rng, settings, message):
    X, y = classes(rng)
    with pytest.raises(ValueError, match=message):
        fixed(**settings).fit(X, y)


@pytest.mark.parametrize("settings", [{"embedding": "none"}, {"embedding": PerLabel(LogisticRegression())}])
def test_label_weights_are_refused_where_nothing_would_heed_them(rng, settings):
    X, Y = multilabel(rng)
    with pytest.raises(ValueError, match="class_weight of multilabel y"):
        fixed(class_weight="balanced", embedding="none").fit(X, Y)
    y = np.arange(90) % 3
    assert fixed(class_weight={0: 5.0}, embedding="none").fit(X, y).model_.total == pytest.approx(5 * 30 + 60)


def test_label_weights_of_zero_are_refused(rng):
    X, Y = multilabel(rng)
    with pytest.raises(ValueError, match="All class weights are zero"):
        fixed(class_weight=np.zeros(6)).fit(X, Y)


def test_a_first_stage_without_weights_works_where_none_differ_and_is_refused_where_they_do(rng):
    X, Y = words(rng)
    stage = fixed(embedding=PerLabel(KNeighborsClassifier(3)))
    assert stage.fit(X, Y).predict_proba(X).shape == Y.shape
    with pytest.raises(ValueError, match="KNeighborsClassifier of PerLabel takes no sample_weight"):
        stage.fit(X, Y, sample_weight=1.0 + np.arange(90))
