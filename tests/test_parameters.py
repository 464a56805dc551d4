"""Every parameter, changed from its default, does what its documentation says; none is silently ignored."""

import inspect
import re
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from small import classes, fixed, multilabel

from smoothlink import (
    Cholesky,
    ConjugateGradient,
    DualCholesky,
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
from smoothlink.machines.rows import Rows
from smoothlink.parameters import CHOICES, PARAMETERS


class Change(NamedTuple):
    """Values other than the default, and the setting in which they must change the probabilities."""

    values: list
    given: dict = {}  # noqa: RUF012
    task: str = "multilabel"


CHANGES = {
    "rank": Change([1, 2, 0.3, "adaptive"]),
    "embedding": Change(["random", "principal", "per_label", "none"]),
    "ridge": Change([0.0, 0.01, 100.0]),
    "kernel": Change(["matern(3)", Matern(5.0, 2.0, 40), Exponential(2.0, 40), Laplacian(2.0, 40), "linear", Linear()]),
    "final_ridge": Change([1e-3, 10.0]),
    "loss": Change(["logistic", Logistic()]),
    "training": Change([]),  # fitting/test_train_jointly.py
    "task": Change(["multilabel"], task="indicator"),
    "label_smoothing": Change([0.9, 0.6]),
    "class_weight": Change(["balanced", {3: 30.0}, np.arange(1.0, 36.0)]),
    "scale": Change(["none", "unit"]),  # "auto" is "variance" here
    "normalize_embedding": Change([True]),
    "trees": Change([True]),
    "input_kernel": Change(["gaussian", InputKernel("matern(3)", features=60), InputKernel("laplacian", features=60)]),
    "solver": Change([ConjugateGradient(tol=0.5, iterations=1)]),
    "effort": Change([]),  # fitting/test_quick.py
    "holdout": Change([0.05, 0.3], {"calibrate": True}),
    "calibrate": Change([False], {"calibrate": True}),
    "aim": Change([]),  # test_aim.py
    "device": Change([]),  # test_device.py
    "memory": Change([]),  # below
    "block_rows": Change([]),  # below
    "checkpoint": Change([]),  # below
    "updatable": Change([]),  # living/
    "random_state": Change([1, np.random.RandomState(0), None]),
    "verbose": Change([]),  # below
}

CLASSES = {  # what only classes have, or where they take another way
    "rank": Change([1, 0.3, "adaptive"], task="classes"),
    "loss": Change(["softmax"], task="classes"),
    "label_smoothing": Change([0.8], task="classes"),
    "class_weight": Change(["balanced", {0: 9.0}], task="classes"),
    "embedding": Change(["random", "principal", "per_label", "none"], task="classes"),
    "calibrate": Change([False], {"calibrate": True}, task="classes"),
}

WIDTH, SIZE = [0.5, 8.0], [10, 41]
SGD = {
    "passes": [1, 2, 10],
    "learning_rate": [0.1, 1.5],
    "momentum": [0.0, 0.5],
    "decay": [0.5, 1.0],
    "batch_rows": [1, 30, 1000],
}
CHOSEN = {  # the choice that is changed, and other values of its parameters
    "Gaussian": (Gaussian(2.0, 40), {"bandwidth": WIDTH, "features": SIZE}),
    "Laplacian": (Laplacian(2.0, 40), {"bandwidth": WIDTH, "features": SIZE}),
    "Exponential": (Exponential(2.0, 40), {"bandwidth": WIDTH, "features": SIZE}),
    "Matern": (Matern(3.0, 2.0, 40), {"nu": [2.5, 5.0], "bandwidth": WIDTH, "features": SIZE}),
    "Linear": (Linear(), {}),
    "Squared": (Squared(), {}),
    "Logistic": (Logistic(passes=3), SGD),
    "Softmax": (Softmax(passes=3), SGD),
    "Randomized": (Randomized(), {"power": [2, 3], "oversample": [0, 5]}),
    "PerLabel": (PerLabel(), {"classifier": [LogisticRegression(C=0.01), RidgeClassifier(), GaussianNB()]}),
    "Joint": (Joint(), dict.fromkeys(inspect.signature(Joint).parameters, ())),  # fitting/test_together.py
    "FineTune": (
        FineTune(),
        dict.fromkeys(inspect.signature(FineTune).parameters, ()),
    ),  # fitting/test_train_jointly.py
    "InputKernel": (
        InputKernel("gaussian", 1.0, 60),
        {"kernel": ["laplacian"], "bandwidth": [0.5, 3.0], "features": [20, 61], "map": ["random"]},
    ),
}
OWN = {
    f"{choice.parameter}__{name}:{choice.name}": Change(
        list(values),
        {choice.parameter: CHOSEN[choice.name][0]},
        "classes" if choice.name == "Softmax" else "multilabel",
    )
    for choice in CHOICES
    for name, values in CHOSEN[choice.name][1].items()
}


def data(task):
    """More labels and features than rank + oversample, so that the probes do not span them; means that are not 0."""
    rng = np.random.default_rng(11)
    if task == "classes":
        return classes(rng, n=120, d=40, c=35)
    X, Y = multilabel(rng, n=120, d=40, c=35)
    Y[rng.random(Y.shape) < np.linspace(0, 0.7, 35)] = 0  # labels of different frequency
    return X + 1, (np.eye(35, dtype=int)[np.arange(120) % 35] if task == "indicator" else Y)


def probabilities(task, **settings):
    X, y = data(task)
    return fixed(**settings).fit(X, y).predict_proba(X)


def cases(table):
    return [
        pytest.param(name.partition(":")[0], change, value, id=f"{name}={value}")
        for name, change in table.items()
        for value in change.values
    ]


def test_every_parameter_of_the_table_and_of_every_choice_is_changed():
    assert list(CHANGES) == [p.name for p in PARAMETERS]
    assert {name: list(values) for name, (_, values) in CHOSEN.items()} == {
        choice.name: [p.name for p in choice.parameters] for choice in CHOICES
    }


def test_no_changed_value_is_the_default():
    for name, change in CHANGES.items():
        default = SmoothLinkClassifier().get_params()[name]
        assert all(value is not default and not np.array_equal(value, default) for value in change.values), name


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # one step of conjugate gradients is not enough, and says so
@pytest.mark.parametrize(("name", "change", "value"), cases({**CHANGES, **OWN}) + cases(CLASSES))
def test_a_changed_parameter_changes_the_model(name, change, value):
    X, y = data(change.task)
    plain = fixed(**change.given).fit(X, y)
    changed = fixed(**change.given | {name: value}).fit(X, y)
    difference = np.abs(plain.predict_proba(X) - changed.predict_proba(X)).max()
    assert difference > 1e-4, f"{name}={value!r} is ignored"


# Those that must not change the model


@pytest.mark.parametrize("block_rows", [1, 50])
def test_block_rows_cut_the_rows_and_leave_the_model_alone(block_rows, monkeypatch):
    cuts = []
    made = Rows.of.__func__
    monkeypatch.setattr(
        Rows, "of", classmethod(lambda cls, *a, **k: [made(cls, *a, **k), cuts.append(k["block_rows"])][0])
    )
    found = probabilities("multilabel", block_rows=block_rows)
    assert cuts == [block_rows]
    np.testing.assert_allclose(found, probabilities("multilabel"), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("memory", ["2G", 2 << 30])
def test_memory_is_planned_and_leaves_the_model_alone(memory, capsys):
    X, Y = data("multilabel")
    fitted = fixed(memory=memory, verbose=1).fit(X, Y)
    assert fitted.summary_["plan"]["memory"] == 2 << 30
    assert re.search(
        r"smoothlink: Memory: [\d.]+[MG] of 2\.00G expected, most to \w+; X stays", capsys.readouterr().err
    )
    np.testing.assert_allclose(fitted.predict_proba(X), probabilities("multilabel"), rtol=1e-3, atol=1e-5)


def test_checkpoint_puts_the_state_by_and_leaves_the_model_alone(tmp_path):
    found = [probabilities("multilabel", checkpoint=tmp_path / "state") for _ in range(2)]
    assert (tmp_path / "state" / "job.json").exists()
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], probabilities("multilabel"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("verbose", [1, True])
def test_verbose_only_talks(capsys, verbose):
    quiet = probabilities("multilabel")
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(probabilities("multilabel", verbose=verbose), quiet)
    assert capsys.readouterr().err.startswith("smoothlink: ")


# Solvers agree, so they are told apart by name


@pytest.mark.parametrize("solver", ["cholesky", Cholesky(), "dual", DualCholesky(), "cg", ConjugateGradient(tol=1e-6)])
def test_solvers_agree(solver):
    X, Y = data("multilabel")
    fitted = fixed(solver=solver, embedding=Randomized(power=3)).fit(X, Y)
    named = {"cholesky": "Cholesky", "dual": "DualCholesky", "cg": "ConjugateGradient"}
    expected = named[solver] if isinstance(solver, str) else type(solver).__name__
    assert fitted.summary_["solver"] == expected
    if expected == "ConjugateGradient":
        assert fitted.summary_["solver_iterations"] > 0
        assert 0 < fitted.summary_["solver_residual"] <= (1e-3 if solver == "cg" else 1e-6)
    else:
        assert fitted.summary_["solver_iterations"] is None
    # Directions that hardly differ in strength may turn within their span: 1e-3 of conjugate gradients shows.
    tolerance = 0.15 if solver == "cg" else 0.02
    np.testing.assert_allclose(
        fitted.predict_proba(X), probabilities("multilabel", embedding=Randomized(power=3)), atol=tolerance
    )


# What is said to be chosen on held-out rows is


@pytest.mark.parametrize(("name", "bad"), [("ridge", 1e4), ("kernel__bandwidth", 1e3), ("final_ridge", 1e4)])
def test_auto_settings_are_chosen_and_told(name, bad):
    X, Y = data("multilabel")
    fitted, poor = (fixed(**{name: value}).fit(X, Y) for value in ("auto", bad))
    name = name.removeprefix("kernel__")
    assert fitted.summary_["chosen_by"][name] == "held-out rows"
    other = {"ridge", "bandwidth", "final_ridge"} - {name}
    assert all(fitted.summary_["chosen_by"][known] == "given" for known in other)
    assert fitted.summary_[name] < bad / 10
    assert fitted.score(X, Y) >= poor.score(X, Y)


def test_loss_and_passes_are_chosen_on_held_out_rows():
    X, Y = data("multilabel")
    story = fixed(loss="auto").fit(X, Y).summary_
    assert set(story["held_out_criterion"]) == {"squared", "logistic"}
    assert story["loss"] == min(story["held_out_criterion"], key=story["held_out_criterion"].get)
    assert fixed(loss="logistic").fit(X, Y).summary_["passes"] >= 1
    X, y = data("classes")
    assert set(fixed(loss="auto").fit(X, y).summary_["held_out_criterion"]) == {"squared", "softmax"}


def test_auto_sizes_come_from_the_data():
    X, Y = data("multilabel")
    assert fixed(kernel__features="auto").fit(X, Y).summary_["random_features"] == 2 * len(X)
    assert fixed(rank="auto").fit(X, Y).summary_["rank"] == 35  # every direction


def test_given_settings_are_kept():
    X, Y = data("multilabel")
    story = fixed(kernel=Matern(3.0, 2.0, 40)).fit(X, Y).summary_
    assert (story["rank"], story["ridge"], story["bandwidth"], story["final_ridge"]) == (4, 1.0, 2.0, 0.1)
    assert (story["random_features"], story["kernel"], story["loss"]) == (40, "matern(3)", "squared")
    assert story["held_out_rows"] == 0
    assert fixed(loss=Logistic(passes=3)).fit(X, Y).summary_["passes"] == 3


# The documentation


def test_every_parameter_is_documented_in_order_with_its_default():
    text = inspect.getdoc(SmoothLinkClassifier).split("Attributes\n")[0]
    found = re.findall(r"^(\w+) : .*default=(.*)$", text, re.MULTILINE)
    signature = inspect.signature(SmoothLinkClassifier).parameters
    assert [name for name, _ in found] == list(signature)
    for name, default in found:
        assert default == repr(signature[name].default), name


def test_only_the_rank_may_be_given_by_position():
    kinds = [parameter.kind for parameter in inspect.signature(SmoothLinkClassifier).parameters.values()]
    assert kinds.count(inspect.Parameter.KEYWORD_ONLY) == len(kinds) - 1
    assert SmoothLinkClassifier(7).rank == 7
