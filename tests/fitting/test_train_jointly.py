"""Joint training from end to end: when it is chosen, what it reaches and refuses, and that a killed fit goes on."""

import builtins
import inspect
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from cards import pretend
from small import classes, fixed, multilabel, shown, words

import smoothlink
from smoothlink import FineTune, Gaussian, Joint, Logistic, Randomized, SmoothLinkClassifier
from smoothlink.errors import DeviceError, ModelFileError
from smoothlink.fitting.checkpoint import FitState
from smoothlink.fitting.run import run
from smoothlink.fitting.settings import Request, TrainingData
from smoothlink.fitting.train_jointly import rows_per_batch, trains_jointly
from smoothlink.machines.host_and_device import HOST, Device
from smoothlink.machines.matrices import Sparse
from smoothlink.steps.calibrate import no_calibration
from smoothlink.synth import Shape, synthesise

PARAMETERS = {"training": Joint(20), "rank": 24}
DEVICE = Device("cpu", 1 << 30)


@pytest.fixture(scope="module")
def data():
    made = synthesise(Shape(300, 80, 12, 2, seed=3), 1500)
    return made.X, made.Y


@pytest.fixture(scope="module")
def fitted(data):
    return SmoothLinkClassifier(**PARAMETERS).fit(*data)


def test_probabilities_are_calibrated_and_ranks_are_better_than_frequencies(data, fitted):
    X, Y = data
    P = fitted.predict_proba(X)
    assert P.sum() == pytest.approx(Y.nnz, rel=0.3)
    best = Y[:, [int(np.argmax(np.bincount(Y.indices)))]].sum() / 1500
    top = fitted.predict_topk(X, 1).indices
    assert np.asarray(Y[np.arange(1500), top]).mean() > 2 * best


def test_every_prediction_is_made_of_the_same_scores(data, fitted):
    X, _ = data
    S, P = fitted.decision_function(X), fitted.predict_proba(X)
    some = [70, 3, 3, 41]
    np.testing.assert_allclose(fitted.decision_function(X, labels=some), S[:, some], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fitted.predict_proba(X, labels=some), P[:, some], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(fitted.decision_function(X[[7]]), S[[7]], rtol=1e-4, atol=1e-4)
    order = fitted.predict_topk(X, 3).indices.reshape(-1, 3)
    np.testing.assert_allclose(np.take_along_axis(S, order, 1), -np.sort(-S, axis=1)[:, :3], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(fitted.predict(X).toarray(), (P > 0.5).astype(int))


def test_scores_are_those_of_the_written_formula(data, fitted):
    X, _ = data
    m = replace(fitted.model_, calibration=no_calibration())
    values, labels, indptr = m.sparse_weights.values, m.sparse_weights.labels, m.sparse_weights.indptr
    D, W, V = sp.csr_array((values, labels, indptr), (301, 80)).toarray()[:300], np.asarray(m.W), np.asarray(m.V)
    x = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
    h = x @ W[:-1]
    u = h / np.linalg.norm(h, axis=1, keepdims=True)
    scores = m.scores(m.embed_rows(X))
    np.testing.assert_allclose(scores, u @ V[:-1] + V[-1] + x @ D, rtol=1e-3, atol=1e-3)


def test_a_row_without_features_gets_the_frequencies(data, fitted):
    _, Y = data
    P = fitted.predict_proba(sp.csr_array((1, 300), dtype=np.float32))[0]
    share = np.asarray(Y.mean(axis=0)).ravel()
    assert np.corrcoef(P, share)[0, 1] > 0.95


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_a_saved_model_predicts_the_same(data, fitted, tmp_path, dtype):
    X, _ = data
    fitted.save(tmp_path / "m", dtype=dtype)
    loaded = smoothlink.load(tmp_path / "m")
    # Half precision may exchange two labels of nearly one score, of which the first has a probability of its own.
    found, expected = (np.sort(m.predict_proba(X), axis=1) if dtype else m.predict_proba(X) for m in (loaded, fitted))
    np.testing.assert_allclose(found, expected, atol=1e-6 if dtype is None else 0.01)
    assert shown(loaded) == shown(fitted)


DAMAGES = {
    "label": lambda D: D._replace(labels=np.where(np.arange(len(D.labels)) == 5, 80, D.labels).astype(np.int32)),
    "end": lambda D: D._replace(indptr=D.indptr + 1),
    "order": lambda D: D._replace(indptr=np.concatenate([[0, 9, 3], D.indptr[3:]])),
    "type": lambda D: D._replace(values=D.values.astype(np.float64)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_with_damaged_sparse_weights_is_refused(fitted, tmp_path, monkeypatch, damage):
    monkeypatch.setitem(fitted.model_.__dict__, "sparse_weights", DAMAGES[damage](fitted.model_.sparse_weights))
    fitted.save(tmp_path / "m")
    with pytest.raises(ModelFileError):
        smoothlink.load(tmp_path / "m")


def test_a_file_without_one_array_of_the_sparse_weights_is_refused(fitted, tmp_path):
    from smoothlink.safetensors_file import load, save

    fitted.save(tmp_path / "m")
    found = load(tmp_path / "m")
    save(tmp_path / "m2", {name: A for name, A in found.arrays.items() if name != "D_values"}, found.meta)
    with pytest.raises(ModelFileError):
        smoothlink.load(tmp_path / "m2")


def test_classes_have_sampled_negatives_too():
    made = synthesise(Shape(300, 40, 12, multiclass=True, seed=1), 1500)
    y = made.Y.indices
    model = SmoothLinkClassifier(training=Joint(10), rank=16).fit(made.X, y)
    assert model.summary_["loss"] == "softmax"
    np.testing.assert_allclose(model.predict_proba(made.X).sum(axis=1), 1, rtol=1e-3)
    assert model.score(made.X, y) > 2 * np.bincount(y).max() / len(y)


@pytest.mark.parametrize(
    "change",
    [
        {"training": Joint(20, sparse_weights=False)},
        {"training": Joint(5)},
        {"training": Joint(20, passes=2)},
        {"training": Joint(20, learning_rate=0.5)},
        {"training": Joint(20, batch_rows=100)},
        {"rank": 8},
        {"ridge": 0.01},
        {"embedding": Randomized(power=2)},
    ],
    ids=str,
)
def test_each_parameter_of_joint_training_changes_the_model(data, fitted, change):
    other = SmoothLinkClassifier(**PARAMETERS | change).fit(*data)
    assert np.abs(other.decision_function(data[0]) - fitted.decision_function(data[0])).max() > 1e-3
    assert (other.model_.sparse_weights is not None) == getattr(change.get("training"), "sparse_weights", True)


def test_more_negatives_than_labels_are_all_labels(data):
    X, Y = data
    model, more = (SmoothLinkClassifier(training=Joint(count), rank=24).fit(X, Y) for count in (80, 10**6))
    np.testing.assert_array_equal(model.decision_function(X), more.decision_function(X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "gaussian"}, "kernel is 'gaussian'"),
        ({"loss": "squared"}, "loss is 'squared'"),
        ({"kernel": Gaussian(1.0)}, r"kernel is Gaussian\(bandwidth=1.0\)"),
        ({"final_ridge": 0.1}, "final_ridge is 0.1"),
        ({"embedding": "random"}, "embedding is 'random'"),
        ({"normalize_embedding": True}, "normalize_embedding is True"),
        ({"rank": 0.5}, "rank is 0.5"),
        ({"label_smoothing": 0.9}, "label_smoothing is 0.9"),
        ({"class_weight": "balanced"}, "class_weight is given for multilabel y"),
        ({"input_kernel": "gaussian"}, "input_kernel is 'gaussian'"),
    ],
    ids=str,
)
def test_what_joint_training_cannot_use_is_refused(data, change, message):
    with pytest.raises(ValueError, match=f"{message}, which training='joint' cannot use"):
        SmoothLinkClassifier(**PARAMETERS | change).fit(*data)


def test_dense_rows_are_refused(data, rng):
    _, Y = data
    with pytest.raises(ValueError, match="X is dense, and training='joint' needs sparse rows"):
        SmoothLinkClassifier(**PARAMETERS).fit(rng.standard_normal((1500, 9)), Y)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"c": 1999}, False),
        ({"n": 1000}, False),
        ({"training": "stepwise"}, False),
        ({"training": "joint", "n": 10, "c": 3}, True),
        ({"joint_conflict": "kernel is 'gaussian', which training='joint' cannot use."}, False),
        ({"label_scale": np.ones(2000)}, False),
        ({"X": np.ones((2, 2))}, False),
        ({"remote": True, "sparse": False}, False),
        ({"remote": True, "sparse": True, "blocks": []}, True),
        ({"writes_decoder": True}, False),
    ],
    ids=str,
)
def test_auto_trains_jointly_where_passes_over_many_labels_would_be_long(change, expected):
    given = {"n": 1_000_000, "c": 2000, "training": "auto", "joint_conflict": None, "label_scale": None}
    given |= {"X": Sparse(sp.csr_array((2, 2), dtype=np.float32)), **change}
    given = {"remote": False, "writes_decoder": False, "blocks": [SimpleNamespace(X=given["X"])], **given}
    problem = SimpleNamespace(rows=SimpleNamespace(**given), label_scale=given["label_scale"], state=FitState())
    request = SimpleNamespace(training=given["training"], joint_conflict=given["joint_conflict"], memory=None)
    assert trains_jointly(problem, SimpleNamespace(features=500), request) == expected


def test_the_defaults_of_joint_training_are_in_the_summary(data):
    summary = SmoothLinkClassifier(training="joint", calibrate=False).fit(*data).summary_
    assert {name: summary[name] for name in ("negatives", "kernel", "passes", "rank")} == {
        "negatives": 300,
        "kernel": "linear",
        "passes": 4,
        "rank": 512,
    }
    by = summary["chosen_by"]
    assert (by["rank"], by["passes"]) == ("rule", "rule")


def request_of(**parameters):
    return Request.of(SmoothLinkClassifier(**parameters).get_params(deep=False), seed=0)


@pytest.mark.parametrize(("n", "fits"), [(1000, 2), (50_000, 1)])
def test_many_rows_are_fitted_once_without_those_that_calibrate(n, fits):
    made, steps = synthesise(Shape(20, 8, 4, 2, seed=3), n), []
    data = TrainingData(made.X, made.Y, None, multiclass=False)
    request = request_of(training=Joint(4, passes=1), rank=4)
    summary = run(data, request, notify=lambda step, share, words: steps.append((step, share))).summary
    assert steps.count(("embed", 0.0)) == fits
    assert list(summary["seconds"]) == ["scale", "embed", "fit", "calibrate"]  # those of both fits add up
    assert summary["held_out_rows"] == (n // 10 if n < 50_000 else n // 20)


def test_a_fit_that_was_stopped_goes_on_bit_for_bit(data, tmp_path):
    training_data = TrainingData(data[0], data[1], None, multiclass=False)
    halfway = []

    def stop(step, share, words):
        if (step, share) == ("fit", 0.5):
            halfway.append(share)
            if len(halfway) == 2:  # of the fit to all rows
                raise KeyboardInterrupt

    whole = run(training_data, request_of(**PARAMETERS)).model
    request = request_of(**PARAMETERS, checkpoint=tmp_path / "state")
    with pytest.raises(KeyboardInterrupt):
        run(training_data, request, notify=stop)
    shares = []
    again = run(
        training_data, request, notify=lambda step, share, words: shares.append(share) if step == "fit" else None
    )
    assert shares.count(0.25) == 0  # those passes are done
    assert_same_model(again.model, whole)


def assert_same_model(one, other):
    for name in ("W", "V"):
        np.testing.assert_array_equal(np.asarray(getattr(one, name)), np.asarray(getattr(other, name)))
    for ours, theirs in zip(one.sparse_weights or (), other.sparse_weights or (), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("change", [{}, {"block_rows": 700}, {"training": Joint(5, sparse_weights=False)}], ids=str)
def test_within_a_budget_joint_training_fits_the_same_model(data, change):
    X, Y = data
    free, counted = (SmoothLinkClassifier(**PARAMETERS | change, memory=memory).fit(X, Y) for memory in (None, "2G"))
    assert counted.summary_["plan"]["joint"]
    assert counted.summary_["negatives"] == free.summary_["negatives"]
    assert_same_model(counted.model_, free.model_)
    np.testing.assert_array_equal(counted.predict_proba(X), free.predict_proba(X))


def test_within_a_budget_classes_are_trained_jointly_too():
    made = synthesise(Shape(300, 40, 12, multiclass=True, seed=1), 600)
    models = (
        SmoothLinkClassifier(training=Joint(10), rank=16, memory=memory).fit(made.X, made.Y.indices)
        for memory in (None, "2G")
    )
    assert_same_model(*(model.model_ for model in models))


def test_a_fit_within_a_budget_that_was_stopped_goes_on_bit_for_bit(data, tmp_path):
    training_data = TrainingData(data[0], data[1], None, multiclass=False)
    request = request_of(**PARAMETERS, calibrate=False, memory="2G", checkpoint=tmp_path / "state")
    left = []

    def stop(step, share, words):
        if (step, share) == ("fit", 0.5):
            left.extend(path.name for path in (tmp_path / "state").iterdir())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(training_data, request, notify=stop)
    assert sorted(left) == ["held-joint.npz", "job.json", "plan.npz"]
    shares = []
    again = run(training_data, request, notify=lambda step, share, words: shares.append((step, share)))
    assert ("fit", 0.25) not in shares
    assert_same_model(again.model, run(training_data, request_of(**PARAMETERS, calibrate=False)).model)


def test_a_budget_on_a_device_is_refused_for_joint_training(as_on_a_card, data):
    with pytest.raises(ValueError, match="memory is given, and on a device training='joint' needs the rows"):
        SmoothLinkClassifier(**PARAMETERS, memory="2G", device="torch").fit(*data)


def top_precision(model, X, Y):
    return np.asarray(Y[np.arange(X.shape[0]), model.predict_topk(X, 1).indices]).mean()


@pytest.mark.parametrize("multiclass", [False, True])
def test_a_device_trains_a_model_as_good_as_the_host_does(as_on_a_card, multiclass):
    made = synthesise(Shape(300, 80, 12, 1 if multiclass else 2, multiclass=multiclass, seed=3), 3000)
    X, Y, few, rest = made.X, made.Y, slice(1500), slice(1500, None)
    y = Y.indices if multiclass else Y
    models = [SmoothLinkClassifier(**PARAMETERS, device=name).fit(X[few], y[few]) for name in ("cpu", "torch")]
    host, device = (top_precision(model, X[rest], Y[rest]) for model in models)
    assert device == pytest.approx(host, abs=0.03)
    assert models[1].summary_["device"] == "torch"
    assert models[1].summary_["negatives"] == 20
    sizes = [model.summary_["sparse_weights"] for model in models]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)


def test_a_gpu_takes_more_rows_per_step_unless_their_number_is_given(monkeypatch):
    pytest.importorskip("torch")
    gpu = pretend(monkeypatch)
    request = SimpleNamespace(training_batch=None)
    assert rows_per_batch(request, gpu) == 4 * rows_per_batch(request, HOST) == 4 * rows_per_batch(request, DEVICE)
    assert rows_per_batch(SimpleNamespace(training_batch=100), gpu) == 100


def test_a_fit_that_was_stopped_goes_on_on_a_device(as_on_a_card, data, tmp_path):
    training_data = TrainingData(data[0], data[1], None, multiclass=False)
    parameters = {**PARAMETERS, "calibrate": False, "checkpoint": tmp_path / "state"}

    def stop(step, share, words):
        if (step, share) == ("fit", 0.5):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(training_data, request_of(**parameters), notify=stop)
    shares, device = [], request_of(**parameters, device="torch")
    found = run(training_data, device, notify=lambda step, share, words: shares.append((step, share)))
    assert ("fit", 0.25) not in shares
    assert ("fit", 0.75) in shares
    assert found.summary["device"] == "torch"


def test_a_row_of_weight_zero_is_no_row(data):
    X, Y = data
    w = np.ones(1500)
    w[:40] = 0
    parameters = {**PARAMETERS, "calibrate": False}
    one = SmoothLinkClassifier(**parameters).fit(X, Y, sample_weight=w)
    Z = Y.copy()
    Z.data[: Z.indptr[40]] = 0
    Z.eliminate_zeros()
    two = SmoothLinkClassifier(**parameters, task="multilabel").fit(X, Z, sample_weight=w)
    np.testing.assert_allclose(one.decision_function(X), two.decision_function(X), rtol=1e-3, atol=1e-3)


def test_the_command_shows_the_settings_of_joint_training(data, tmp_path, capsys):
    from smoothlink.cli import main
    from smoothlink.data.read import Data, write

    write(Data(*data, None, None), tmp_path / "train.txt")
    joint = ["--training", "joint", "--set", "training.negatives=20"]
    with pytest.raises(SystemExit) as end:
        main(["train", str(tmp_path / "train.txt"), "-o", str(tmp_path / "m"), "--rank", "24", *joint])
    assert not end.value.code
    printed = capsys.readouterr().out
    for word in ("negatives", "sparse weights", "kernel", "linear", "logistic"):
        assert word in printed
    assert "bandwidth" not in printed


def finetuned(data, **changes):
    X, y = data
    return fixed(**{"loss": Logistic(passes=2), "training": FineTune(passes=2), **changes}).fit(X, y)


def logloss(model, X, Y):
    P = np.clip(model.predict_proba(X), 1e-6, 1 - 1e-6)
    return -(Y * np.log(P) + (1 - Y) * np.log(1 - P)).sum(axis=1).mean()


@pytest.mark.parametrize("make", [words, multilabel])
def test_fine_tuning_lowers_the_loss_of_the_rows_that_are_trained_on(as_on_a_card, rng, make):
    X, Y = make(rng)
    trainings = ("stepwise", FineTune(passes=30, dropout=0.0, batch_rows=8))
    stepwise, further = (finetuned((X, Y), training=training) for training in trainings)
    assert logloss(further, X, Y) < 0.95 * logloss(stepwise, X, Y)
    assert further.summary_["finetune_passes"] == 30


CHANGES = {"passes": 3, "dropout": 0.7, "sparse_weights": False, "learning_rate": 0.3, "batch_rows": 9}


def test_each_parameter_of_fine_tuning_changes_the_model(as_on_a_card, rng):
    assert list(CHANGES) == list(inspect.signature(FineTune).parameters)
    data = words(rng)
    P = finetuned(data).predict_proba(data[0])
    for name, value in CHANGES.items():
        other = finetuned(data, **{f"training__{name}": value})
        assert np.abs(other.predict_proba(data[0]) - P).max() > 1e-4, name


@pytest.mark.parametrize("settings", [{}, {"normalize_embedding": True}, {"kernel": "linear"}], ids=str)
def test_the_host_and_a_device_tune_the_same_model(as_on_a_card, rng, settings):
    data = words(rng)
    host, device = (finetuned(data, device=where, **settings).predict_proba(data[0]) for where in ("cpu", "torch"))
    np.testing.assert_allclose(host, device, atol=5e-3)


def test_held_out_rows_select_the_fitted_model_where_fine_tuning_cannot_gain(as_on_a_card, rng):
    X, Y = words(rng, n=300)
    Y = Y[rng.permutation(len(Y))]  # nothing to learn
    model = finetuned((X, Y), training="finetune", calibrate=True, holdout=0.25)
    assert model.summary_["finetune_passes"] <= 2
    assert model.summary_["held_out_rows"] == 75


def test_classes_are_fine_tuned_by_softmax_and_their_probabilities_sum_to_one(as_on_a_card, rng):
    X, y = classes(rng)
    model = finetuned((X, y), loss="softmax", training="finetune", calibrate=True)
    assert model.summary_["loss"] == "softmax"
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-4)


@pytest.mark.parametrize("effort", ["full", "quick"])
def test_fine_tuning_needs_no_other_parameter(as_on_a_card, rng, effort):
    model = fixed(
        **dict.fromkeys(("rank", "ridge", "kernel__bandwidth", "final_ridge", "loss"), "auto"),
        calibrate=True,
        training="finetune",
        effort=effort,
    ).fit(*words(rng))
    assert model.summary_["loss"] == "logistic"
    assert "finetune" in model.summary_["seconds"]


@pytest.mark.parametrize(
    ("passes", "settings"),
    [
        (3, {"calibrate": False}),
        (3, {"calibrate": True, "normalize_embedding": True}),
        (3, {"calibrate": False, "kernel": "linear"}),
        ("auto", {"calibrate": True, "holdout": 0.25}),
    ],
    ids=str,
)
def test_fine_tuning_that_was_stopped_anywhere_goes_on_bit_for_bit(as_on_a_card, rng, tmp_path, passes, settings):
    X, Y = (sp.csr_array(A, dtype=np.float32) for A in words(rng, n=200))
    given = {"loss": Logistic(passes=2), "training": FineTune(passes=passes, batch_rows=20), **settings}
    training_data = TrainingData(X, Y, None, multiclass=False)

    def fit(notify=None, **others):
        return run(training_data, Request.of(fixed(**given, **others).get_params(deep=False), 0), notify=notify)

    whole, stops = fit(), 0
    while True:

        def stop(step, share, words, begun=[]):  # noqa: B006
            begun += [share] if step == "finetune" and share and not begun else []
            if step == "finetune" and begun and begun[0] < share < 1:  # after one more pass
                raise KeyboardInterrupt

        try:
            found = fit(stop, checkpoint=tmp_path / "state")
            break
        except KeyboardInterrupt:
            stops += 1
    assert stops >= 1
    assert found.summary["finetune_passes"] == whole.summary["finetune_passes"]
    assert_same_model(found.model, whole.model)
    np.testing.assert_array_equal(found.model.features.R, whole.model.features.R)
    np.testing.assert_array_equal(found.model.features.b, whole.model.features.b)


def test_a_fine_tuned_model_is_saved_and_loaded(as_on_a_card, rng, tmp_path):
    data = words(rng)
    model = finetuned(data)
    assert model.summary_["sparse_weights"] > 0
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_allclose(
        smoothlink.load(tmp_path / "m.safetensors").predict_proba(data[0]),
        model.predict_proba(data[0]),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    "given",
    [
        {"loss": "squared"},
        {"embedding": "none"},
        {"input_kernel": "gaussian"},
        {"memory": "2G"},
        {"label_smoothing": 0.9},
    ],
    ids=str,
)
def test_what_fine_tuning_cannot_use_is_refused(as_on_a_card, rng, given):
    with pytest.raises(ValueError, match=r"\w+ is .*, which training='finetune' cannot use; possible there: "):
        finetuned(words(rng), **given)


def test_without_torch_a_message_says_what_to_install(rng, monkeypatch):
    before = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "torch":
            raise ImportError(name)
        return before(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeviceError, match="training is 'finetune', which needs torch, and torch is not installed"):
        finetuned(words(rng))
