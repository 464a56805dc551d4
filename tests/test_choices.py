"""Parameters are declared once: signatures, checks, options and pages follow the table; choices have their own."""

import inspect
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from blocks import ROOT
from commands import prepared, run, succeed
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from small import fixed, multilabel, shown, words

import smoothlink
from smoothlink import (
    FineTune,
    Gaussian,
    InputKernel,
    Joint,
    Linear,
    Logistic,
    Matern,
    ModelFileError,
    PerLabel,
    Randomized,
    SmoothLinkClassifier,
    Softmax,
    Squared,
    TextSmoothLink,
)
from smoothlink.choices import CLASSES, as_choice, from_former, from_json, nest, to_json
from smoothlink.parameters import CHOICES, CLUSTER, FORMER, LIMITS, PARAMETERS, check, flat_table, parse_setting
from smoothlink.safetensors_file import load as load_file
from smoothlink.safetensors_file import save as save_file

# The table and the signatures


@pytest.mark.parametrize(
    ("kind", "table"),
    [(SmoothLinkClassifier, PARAMETERS), *((CLASSES[choice.name], choice.parameters) for choice in CHOICES)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_signature_has_the_names_the_order_and_the_defaults_of_the_table(kind, table):
    signature = inspect.signature(kind).parameters.values()
    assert [(p.name, p.default) for p in signature] == [(p.name, p.default) for p in table]
    assert list(kind().get_params()) == sorted(p.name for p in table)


def test_every_default_is_possible():
    for p in [*PARAMETERS, *(p for choice in CHOICES for p in choice.parameters)]:
        assert p.default in p.values, p.name
    check(SmoothLinkClassifier().get_params(deep=False))
    check(SmoothLinkClassifier().get_params(deep=False), cluster=True)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name)
def test_a_choice_and_its_word_are_possible_and_make_the_same_model(rng, choice):
    X, Y = words(rng)
    Y = Y.argmax(axis=1) if choice.name == "Softmax" else Y
    made = CLASSES[choice.name]()
    given = SmoothLinkClassifier().get_params(deep=False)
    check(given | {choice.parameter: made})
    if choice.word and choice.name != "FineTune":  # which needs torch
        assert to_json(as_choice(choice.parameter, choice.word)) == to_json(made)
        both = [fixed(**{choice.parameter: value}).fit(X, Y).predict_proba(X) for value in (choice.word, made)]
        np.testing.assert_array_equal(*both)


def test_a_kernel_with_its_number_is_a_choice_with_that_number():
    assert as_choice("kernel", "matern(5)").nu == 5.0
    assert as_choice("input_kernel", "matern(5)").kernel == "matern(5)"
    assert as_choice("kernel", "auto") == "auto"


# scikit-learn's contract

CHOSEN = {"kernel": Gaussian(2.0, 30), "loss": Logistic(passes=2), "embedding": PerLabel(LogisticRegression(C=2.0))}


def test_clones_have_choices_of_their_own():
    first = SmoothLinkClassifier(**CHOSEN)
    second = clone(first).set_params(kernel__bandwidth=3.0, embedding__classifier__C=0.5)
    assert (first.kernel.bandwidth, second.kernel.bandwidth) == (2.0, 3.0)
    assert (first.embedding.classifier.C, second.embedding.classifier.C) == (2.0, 0.5)
    assert shown(clone(first)) | {"embedding": None} == shown(first) | {"embedding": None}


def test_deep_parameters_are_those_of_the_choices_too():
    deep = SmoothLinkClassifier(**CHOSEN).get_params(deep=True)
    assert (deep["kernel__features"], deep["loss__passes"], deep["embedding__classifier__C"]) == (30, 2, 2.0)
    assert not any("__" in name for name in SmoothLinkClassifier().get_params())  # words have none


@pytest.mark.parametrize("model", [SmoothLinkClassifier, TextSmoothLink])
def test_parameters_of_choices_are_set_by_name(model):
    changed = model(**CHOSEN).set_params(loss__momentum=0.5, kernel__features=9)
    assert (changed.loss.momentum, changed.kernel.features) == (0.5, 9)
    assert model().set_params(loss=Logistic(), loss__momentum=0.5).loss.momentum == 0.5


@pytest.mark.parametrize("model", [SmoothLinkClassifier, TextSmoothLink])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("loss__momentum", "loss is 'auto', which has no parameter momentum; give loss=Logistic(momentum=...)."),
        ("kernel__nu", "kernel is Gaussian(), which has no parameter nu; give kernel=Matern(nu=...)."),
        ("loss__momentun", "There is no parameter loss.momentun. Did you mean loss.momentum"),
        ("loss__title", "There is no parameter loss.title."),
        ("bandwidth", "The parameter bandwidth is now kernel=Gaussian(bandwidth=...)"),
        ("quasi_random", "There is no parameter quasi_random. It was removed"),
        ("rigde", "There is no parameter rigde. Did you mean ridge"),
    ],
)
def test_a_name_that_cannot_be_set_is_refused_with_what_to_give(model, name, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        model(kernel=Gaussian()).set_params(**{name: 0.5})


@pytest.mark.parametrize(
    "grid",
    [{"loss__momentum": [0.0, 0.5]}, {"kernel": [Gaussian(2.0, 20), Linear()]}, {"kernel__bandwidth": [0.5, 4.0]}],
    ids=lambda grid: next(iter(grid)),
)
def test_a_grid_searches_choices_and_their_parameters(rng, grid):
    X, Y = multilabel(rng)
    search = GridSearchCV(fixed(loss=Logistic(passes=2)), grid, cv=2, error_score="raise").fit(X, Y)
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) == 2
    assert search.best_score_ == max(scores)


def test_a_fit_leaves_the_choices_as_they_were_given(rng):
    X, Y = multilabel(rng)
    given = fixed(kernel=Gaussian(), loss=Logistic())
    before = shown(given)
    given.fit(X, Y)
    assert shown(given) == before


# What a learner does not use is refused

APPLIES = {
    "training='joint'": {"training": "joint"},
    "training='finetune'": {"training": FineTune(passes=1)},
    "embedding='none'": {"embedding": "none"},
    "embedding='per_label'": {"embedding": "per_label"},
    "embedding=PerLabel(classifier)": {"embedding": PerLabel(LogisticRegression())},
    "effort='quick'": {"effort": "quick"},
    "calibrate=False": {"calibrate": False},
    "updatable=True": {"updatable": True},
    "a cluster": {},
}
OTHERS = {  # possible in themselves
    "rank": [3, 0.5],
    "embedding": ["none", PerLabel(LogisticRegression())],
    "ridge": [1.0],
    "kernel": ["gaussian", Matern()],
    "final_ridge": [0.1],
    "loss": ["squared", Squared()],
    "training": ["joint", FineTune()],
    "label_smoothing": [0.9],
    "normalize_embedding": [True],
    "trees": [True],
    "input_kernel": ["gaussian", InputKernel(map="landmarks")],
    "solver": ["dual"],
    "holdout": [0.2],
    "device": ["torch"],
    "memory": ["2G"],
    "checkpoint": ["state"],
    "aim": ["f1"],
    "conformal": [0.1],
    "updatable": [True],
}


@pytest.mark.parametrize(
    ("limit", "name"),
    [pytest.param(limit, name, id=f"{limit.who} {name}") for limit in (*LIMITS, CLUSTER) for name in limit.values],
)
def test_every_limit_refuses_what_it_says_and_nothing_at_its_default(limit, name):
    given = SmoothLinkClassifier(**APPLIES[limit.who]).get_params(deep=False)
    check(given, cluster=limit is CLUSTER)
    refused = [value for value in OTHERS[name] if value not in limit.values[name]]
    assert refused
    for value in refused:
        with pytest.raises(
            ValueError, match=rf"^{name} is .*, which {re.escape(limit.who)} cannot use; possible there"
        ):
            check(given | {name: value}, cluster=limit is CLUSTER)


@pytest.mark.parametrize("name", APPLIES)
def test_words_and_choice_objects_are_limited_alike(name):
    """`chosen_word` reads both: a limit that applies to the word applies to the object."""
    limit = next(limit for limit in (*LIMITS, CLUSTER) if limit.who == name)
    for parameter, value in APPLIES[name].items():
        for form in (value, as_choice(parameter, value)):
            assert limit.applies(SmoothLinkClassifier(**{parameter: form}).get_params(deep=False))


# Model files


def test_choices_are_saved_by_name_and_come_back(rng, tmp_path):
    X, Y = multilabel(rng)
    given = {
        "kernel": Matern(5.0, np.float64(1.5), np.int64(30)),
        "embedding": Randomized(power=2),
        "loss": Logistic(passes=2, batch_rows=50),
        "input_kernel": InputKernel(features=20, map="random"),
    }
    fixed(**given).fit(X, Y).save(tmp_path / "m")
    loaded = smoothlink.load(tmp_path / "m")
    for name, value in given.items():
        assert type(getattr(loaded, name)) is type(value)
        assert getattr(loaded, name).get_params() == value.get_params()
    stored = load_file(tmp_path / "m").meta["parameters"]["kernel"]
    assert stored == {"choice": "Matern", "nu": 5.0, "bandwidth": 1.5, "features": 30}


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name)
def test_json_of_a_choice_makes_the_choice(choice):
    found = from_json(to_json(CLASSES[choice.name]()))
    assert type(found) is CLASSES[choice.name]
    assert found.get_params() == CLASSES[choice.name]().get_params()


@pytest.mark.parametrize(
    "wrong", [{"choice": "Popen"}, {"choice": ["x"]}, {"choice": "Gaussian", "width": 2.0}], ids=str
)
def test_a_file_with_a_choice_that_does_not_exist_is_refused(rng, tmp_path, wrong):
    fixed().fit(*multilabel(rng)).save(tmp_path / "m")
    with_parameters(tmp_path / "m", {"kernel": wrong}, new=True)
    with pytest.raises(ModelFileError, match="does not make a model"):
        smoothlink.load(tmp_path / "m")


def with_parameters(path, parameters, *, new=False):
    """Writes the model file again with other parameters, as 0.1 or as this version has them."""
    found = load_file(path, mmap=False)
    meta = {**found.meta, "parameters": parameters}
    if not new:
        del meta["parameters_of"]
    save_file(path, found.arrays, meta)


FLAT = {  # every parameter of 0.1, at its default
    "rank": "auto",
    "embedding": "randomized",
    "ridge": "auto",
    "kernel": "auto",
    "bandwidth": "auto",
    "n_features": "auto",
    "final_ridge": "auto",
    "loss": "auto",
    "task": "auto",
    "passes": "auto",
    "learning_rate": 1.0,
    "momentum": 0.9,
    "decay": 0.9,
    "batch_rows": None,
    "negatives": "auto",
    "direct": True,
    "label_smoothing": 1.0,
    "class_weight": None,
    "rank_by": "probability",
    "scale": "auto",
    "normalize_embedding": False,
    "quasi_random": None,
    "input_kernel": "auto",
    "input_bandwidth": "auto",
    "input_features": "auto",
    "input_map": "auto",
    "first_stage": None,
    "power": 1,
    "oversample": 20,
    "half_step": False,
    "penalize_constant": False,
    "solver": "auto",
    "effort": "full",
    "finetune": False,
    "dropout": 0.3,
    "holdout": 0.1,
    "calibrate": True,
    "block_rows": None,
    "memory": None,
    "checkpoint": None,
    "device": "cpu",
    "random_state": 0,
    "verbose": 0,
}
BECAME = {
    "defaults": ({}, {}),
    "kernel": ({"bandwidth": 2.0, "n_features": 40}, {"kernel": Gaussian(2.0, 40)}),
    "matern": ({"kernel": "matern(5)", "bandwidth": 2.0}, {"kernel": Matern(5.0, 2.0)}),
    "linear": ({"kernel": "linear", "bandwidth": 2.0}, {"kernel": "linear"}),
    "logistic": ({"loss": "logistic", "passes": 3, "decay": 0.5}, {"loss": Logistic(passes=3, decay=0.5)}),
    "softmax": ({"loss": "softmax", "batch_rows": 9}, {"loss": Softmax(batch_rows=9)}),
    "squared": ({"loss": "squared", "passes": 3}, {"loss": "squared"}),
    "probes": ({"power": 2, "oversample": 3}, {"embedding": Randomized(2, 3)}),
    "identity": ({"embedding": "identity", "rank": 4, "power": 2}, {"embedding": "per_label"}),
    "none": ({"embedding": "none", "rank": 4, "ridge": 1.0, "solver": "cg"}, {"embedding": "none"}),
    "stepwise": ({"negatives": "all"}, {"training": "stepwise"}),
    "joint": (
        {"negatives": 20, "direct": False, "passes": 2, "learning_rate": 0.5, "normalize_embedding": True},
        {"training": Joint(20, False, 2, 0.5)},
    ),
    "finetune": ({"finetune": True, "dropout": 0.1}, {"training": FineTune(dropout=0.1)}),
    "passes of finetune": ({"finetune": 2, "batch_rows": 64}, {"training": FineTune(2, batch_rows=64)}),
    "inputs": (
        {"input_kernel": "laplacian", "input_bandwidth": 2.0, "input_features": 50, "input_map": "random"},
        {"input_kernel": InputKernel("laplacian", 2.0, 50, "random")},
    ),
    "quick": ({"effort": "quick", "holdout": 0.3}, {"effort": "quick"}),
}


@pytest.mark.parametrize(("old", "new"), BECAME.values(), ids=BECAME)
def test_a_file_with_the_flat_parameters_of_the_first_version_loads(rng, tmp_path, old, new):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    fitted.save(tmp_path / "m")
    with_parameters(tmp_path / "m", FLAT | old)
    loaded = smoothlink.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    expected = {name: to_json(as_choice(name, value)) for name, value in shown(SmoothLinkClassifier(**new)).items()}
    assert {name: to_json(as_choice(name, value)) for name, value in shown(loaded).items()} == expected
    check(loaded.get_params(deep=False))  # so that it can be fitted again


def test_what_is_gone_is_said_and_the_model_loads_all_the_same():
    for name, value in {"rank_by": "psp", "quasi_random": "sobol", "half_step": True}.items():
        with pytest.warns(UserWarning, match=f"{name} of 0.1 is no parameter"):
            assert name not in from_former(FLAT | {name: value})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_former(FLAT)["rank"] == "auto"


def test_every_parameter_of_the_first_version_is_here_or_among_the_former():
    assert set(FLAT) - {p.name for p in PARAMETERS} == set(FORMER)
    assert all(" " in became or became in flat_table() for became in FORMER.values())


# The command line


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("choices"), 0)


def said(ran):
    """What a command wrote on standard error, without its box."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", ran.err).split())


@pytest.mark.parametrize("name", FORMER)
def test_an_option_of_the_first_version_says_what_it_is_called_now(files, name):
    ran = run("train", files.train, "-o", files.folder / "m", f"--{name.replace('_', '-')}", "2")
    assert ran.code == 2
    wanted = FORMER[name] if " " in FORMER[name] else f"--set {FORMER[name]}=..."
    assert wanted in said(ran)
    again = run("train", files.train, "-o", files.folder / "m", "--set", f"{name}=2")
    assert again.code == 2
    assert wanted in said(again)


def test_set_reaches_the_choice(files):
    target = files.folder / "set.safetensors"
    typed = ["kernel.bandwidth=2", "kernel.features=30", "loss.passes=2", "loss.batch-rows=none", "ridge=1"]
    words = [word for text in typed for word in ("--set", text)]
    succeed("train", files.train, "-o", target, "-q", "--loss", "logistic", *words)
    model = smoothlink.load(target)
    assert (model.kernel.bandwidth, model.kernel.features, type(model.kernel)) == (2, 30, Gaussian)
    assert (model.loss.passes, model.loss.batch_rows, model.ridge) == (2, None, 1)


@pytest.mark.parametrize(
    ("typed", "code", "message"),
    [
        (["--set", "kernel.bandwidth=wide"], 2, "kernel.bandwidth is 'wide'; possible are 'auto' or a number above 0."),
        (["--set", "kernel.bandwith=2"], 2, "There is no parameter kernel.bandwith. Did you mean kernel.bandwidth"),
        (["--set", "kernel"], 2, "'kernel' has no value; write name=value"),
        (["--set", "embedding.classifier=x"], 2, "only Python can give: embedding=PerLabel(classifier=...)"),
        (["--set", "loss.momentum=.5"], 1, "loss.momentum goes with --loss logistic or --loss softmax; say which."),
        (["--kernel", "linear", "--set", "kernel.bandwidth=2"], 1, "Linear has no parameter bandwidth"),
        (["--embedding", "none", "--rank", "4"], 1, "rank is 4, which embedding='none' cannot use"),
    ],
)
def test_a_setting_that_is_not_possible_is_refused_before_anything_is_read(files, monkeypatch, typed, code, message):
    monkeypatch.setattr("smoothlink.cli.train_command.read_several", None)  # would fail
    ran = run("train", files.train, "-o", files.folder / "m", *typed)
    assert (ran.code, "Traceback" in ran.err) == (code, False)
    assert message in said(ran)


def test_settings_by_name_and_their_choices_are_told_apart():
    assert parse_setting("loss__passes=auto") == ("loss.passes", "auto")
    assert parse_setting("kernel.bandwidth=2") == ("kernel.bandwidth", 2)
    assert parse_setting("training.sparse_weights=false") == ("training.sparse_weights", False)
    nested = nest({"kernel": "matern(5)", "kernel.bandwidth": 2.0, "rank": 3})
    assert (nested["kernel"].nu, nested["kernel"].bandwidth, nested["rank"]) == (5.0, 2.0, 3)


@pytest.mark.parametrize(
    "settings",
    [{"kernel": "round", "kernel.bandwidth": 2.0}, {"input_kernel": None, "input_kernel.features": 20}],
    ids=str,
)
def test_a_setting_of_a_choice_does_not_replace_a_value_that_has_none(settings):
    parameter, value = next(iter(settings.items()))
    with pytest.raises(ValueError, match=f"{parameter} is {value!r}, which has no parameter"):
        nest(settings)


# A parameter that is added to the table is everywhere

ADDED = """
import contextlib, sys
import smoothlink.parameters as table
dummy = table.Parameter("dummy_share", 0.5, table.Values(number=table.Interval(0, 1)), "Share of dummies.", "Data")
table.PARAMETERS += (dummy,)
sys.path.insert(0, sys.argv[1] + "/docs")
from generate.parameters_page import parameters_page
from smoothlink import SmoothLinkClassifier
from smoothlink.cli import main
from smoothlink.estimator import SmoothLinkClassifier as made
print(parameters_page())
print(made.__doc__)
for words in (["--help-all"], ["x", "-o", "y", "--dummy-share", "7"], ["x", "-o", "y", "--set", "dummy_share=7"]):
    print("## command")
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(sys.stdout):
        main(["train", *words])
print("## check")
try:
    table.check(SmoothLinkClassifier().get_params(deep=False) | {"dummy_share": 7})
except ValueError as error:
    print(error)
"""


def test_a_parameter_added_to_the_table_is_in_the_help_the_pages_the_docstring_and_the_errors():
    """The command and the page are made of the table in a process of their own."""
    done = subprocess.run([sys.executable, "-c", ADDED, ROOT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages, shown_help, option, setting, checked = done.stdout.split("\n## c")
    assert "### dummy_share" in pages
    assert "dummy_share : a number at least 0 and at most 1, default=0.5" in pages
    assert "--dummy-share" in shown_help
    assert "Share of dummies." in shown_help
    flat = re.compile(r"[│╭╮╰╯─\s]+")
    assert "'7' is none of a number at least 0 and at most 1." in flat.sub(" ", option)
    assert "dummy_share is '7'; possible are a number at least 0 and at most 1." in flat.sub(" ", setting)
    assert checked.splitlines()[1] == "dummy_share is 7; possible are a number at least 0 and at most 1."
