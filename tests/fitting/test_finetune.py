"""Fine-tuning goes on from the fitted model, stops on held-out rows, and refuses what it cannot train."""

import builtins
import inspect

import numpy as np
import pytest
from small import classes, fixed, multilabel, words

from smoothlink import FineTune, Logistic, load
from smoothlink.errors import DeviceError
from smoothlink.machines.rows import Rows


def tuned(data, **changes):
    X, y = data
    return fixed(**{"loss": Logistic(passes=2), "training": FineTune(passes=2), **changes}).fit(X, y)


def logloss(model, X, Y):
    P = np.clip(model.predict_proba(X), 1e-6, 1 - 1e-6)
    return -(Y * np.log(P) + (1 - Y) * np.log(1 - P)).sum(axis=1).mean()


@pytest.mark.parametrize("make", [words, multilabel])
def test_passes_lower_the_loss_of_the_rows_that_are_trained_on(as_on_a_card, rng, make):
    X, Y = make(rng)
    plain, further = (tuned((X, Y), training=t) for t in ("stepwise", FineTune(passes=30, dropout=0.0, batch_rows=8)))
    assert logloss(further, X, Y) < 0.95 * logloss(plain, X, Y)
    assert further.summary_["finetune_passes"] == 30


CHANGES = {"passes": 3, "dropout": 0.7, "sparse_weights": False, "learning_rate": 0.3, "batch_rows": 9}


def test_every_parameter_of_finetune_is_changed():
    assert list(CHANGES) == list(inspect.signature(FineTune).parameters)


@pytest.mark.parametrize("change", CHANGES.items(), ids=str)
def test_every_parameter_changes_the_model(as_on_a_card, rng, change):
    data = words(rng)
    other = tuned(data, **{f"training__{change[0]}": change[1]})
    difference = np.abs(other.predict_proba(data[0]) - tuned(data).predict_proba(data[0])).max()
    assert difference > 1e-4


@pytest.mark.parametrize("settings", [{}, {"normalize_embedding": True}, {"kernel": "linear"}], ids=str)
def test_the_host_and_a_device_tune_the_same_model(as_on_a_card, rng, settings):
    data = words(rng)
    host, device = (tuned(data, device=where, **settings).predict_proba(data[0]) for where in ("cpu", "torch"))
    np.testing.assert_allclose(host, device, atol=5e-3)


def test_held_out_rows_keep_a_model_that_cannot_gain(as_on_a_card, rng):
    X, Y = words(rng, n=300)
    Y = Y[rng.permutation(len(Y))]  # nothing to learn
    model = tuned((X, Y), training="finetune", calibrate=True, holdout=0.25)
    assert model.summary_["finetune_passes"] <= 2
    assert model.summary_["held_out_rows"] == 75


def test_classes_are_tuned_by_softmax_and_their_probabilities_sum_to_one(as_on_a_card, rng):
    X, y = classes(rng)
    model = tuned((X, y), loss="softmax", training="finetune", calibrate=True)
    assert model.summary_["loss"] == "softmax"
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-4)


@pytest.mark.parametrize("effort", ["full", "quick"])
def test_nothing_has_to_be_given(as_on_a_card, rng, effort):
    X, Y = words(rng)
    model = fixed(
        **dict.fromkeys(("rank", "ridge", "kernel__bandwidth", "final_ridge", "loss"), "auto"),
        calibrate=True,
        training="finetune",
        effort=effort,
    ).fit(X, Y)
    assert model.summary_["loss"] == "logistic"
    assert "finetune" in model.summary_["seconds"]


def test_a_tuned_model_is_saved_and_loaded(as_on_a_card, rng, tmp_path):
    data = words(rng)
    model = tuned(data)
    assert model.summary_["direct_weights"] > 0
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_allclose(
        load(tmp_path / "m.safetensors").predict_proba(data[0]), model.predict_proba(data[0]), rtol=1e-5, atol=1e-6
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
def test_what_cannot_be_tuned_is_refused(as_on_a_card, rng, given):
    with pytest.raises(ValueError, match=r"\w+ is .*, which training='finetune' cannot use; possible there: "):
        tuned(words(rng), **given)


def test_without_torch_a_message_says_what_to_install(rng, monkeypatch):
    before = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "torch":
            raise ImportError(name)
        return before(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeviceError, match="training is 'finetune', which needs torch, and torch is not installed"):
        tuned(words(rng))


def test_a_fit_that_runs_out_of_memory_begins_again_with_smaller_blocks(as_on_a_card, torch, rng, monkeypatch):
    X, Y = words(rng)
    made, shares = Rows.of, []

    def of(*args, machine, **kwargs):
        shares.append(machine.share)
        if len(shares) < 3:
            raise torch.OutOfMemoryError("no room")
        return made(*args, machine=machine, **kwargs)

    monkeypatch.setattr(Rows, "of", of)
    model = fixed(device="torch").fit(X, Y)
    assert shares[:3] == [1, 1 / 4, 1 / 16]
    monkeypatch.setattr(Rows, "of", made)
    np.testing.assert_allclose(model.predict_proba(X), fixed().fit(X, Y).predict_proba(X), atol=2e-3)


def test_a_fit_that_no_block_is_small_enough_for_is_refused(as_on_a_card, torch, rng, monkeypatch):
    def of(*args, **kwargs):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(Rows, "of", of)
    with pytest.raises(DeviceError, match=r"memory does not hold the fit, however small the blocks.\nAsk"):
        fixed(device="torch").fit(*words(rng))
