"""A model on a device predicts as on the host, is copied there once, and goes with no copy of the classifier."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from commands import FIXED, prepared, run, succeed
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from small import classes, fixed, multilabel, words

import smoothlink
from smoothlink import InputKernel, Joint, Logistic, PerLabel, Softmax
from smoothlink.device_model import DeviceModel
from smoothlink.errors import DataError, DeviceError

pytest.importorskip("torch", reason="torch is not installed")

from smoothlink.machines.device_weights import BlockSizes, DeviceWeights
from smoothlink.weights import ArrayWeights

pytestmark = pytest.mark.usefixtures("as_on_a_card")

TOLERANCE = 1e-4  # of scores and probabilities: sums go in another order


class OutOfMemoryError(Exception):
    """Named as torch's."""


def with_gaps(rng, n=90, d=40, c=6):
    """Sparse rows, two of them empty, and a label that no row has."""
    X, Y = words(rng, n, d, c)
    X = sp.csr_array(sp.diags_array(np.isin(np.arange(n), [3, 77], invert=True).astype(float)) @ X)
    X.eliminate_zeros()
    Y[:, 2] = 0
    return X, Y


def jointly_trained(rng):
    """Labels that have sparse weights."""
    X, Y = words(rng, 90, 40, 8)
    return X, sp.csr_array(Y)


CASES = {
    "dense": (multilabel, {}),
    "sparse": (with_gaps, {}),
    "logistic": (with_gaps, {"loss": Logistic(passes=3), "calibrate": True}),
    "classes": (classes, {"calibrate": True}),
    "softmax": (classes, {"loss": Softmax(passes=3)}),
    "linear": (with_gaps, {"kernel": "linear", "normalize_embedding": True}),
    "landmarks": (multilabel, {"input_kernel": InputKernel(bandwidth=2.0, features=30)}),
    "trees": (multilabel, {"trees": True, "input_kernel": None}),
    "random inputs": (words, {"input_kernel": InputKernel(features=30, map="random")}),
    "no embedding": (with_gaps, {"embedding": "none"}),
    "a first stage": (multilabel, {"embedding": PerLabel(LogisticRegression())}),
    "joint training": (jointly_trained, {"ridge": "auto", "training": Joint(4, passes=2)}),
}


def predictions_of(fitted, X, Y):
    """What each method says, by name."""
    return {
        "topk": fitted.predict_topk(X, 4).toarray(),
        "order": fitted.predict_topk(X, 4).indices,
        "by propensity": fitted.predict_topk(X, 4, rank_by="psp").indices,
        "proba": fitted.predict_proba(X),
        "some": fitted.predict_proba(X, labels=[2, 0]),
        "scores": fitted.decision_function(X),
        "sets": dense(fitted.predict(X)),
        "f1": dense(fitted.predict_f1(X)),
        "batch": dense(fitted.predict_f1(X, over="batch")),
        "metrics": [metric.value for metric in fitted.evaluate(X, Y, bootstraps=0).metrics.values()],
    }


def dense(A):
    return A.toarray() if sp.issparse(A) else A


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, None) for name in CASES),
        *((name, dtype) for name in ("sparse", "softmax", "joint training") for dtype in ("float16", "int8", "int4")),
    ],
)
def test_a_device_predicts_as_the_host(rng, tmp_path, name, dtype):
    make, settings = CASES[name]
    X, Y = make(rng)
    fitted = fixed(**settings).fit(X, Y)
    if dtype is not None:
        fitted.save(tmp_path / "m.safetensors", dtype=dtype)
        fitted = smoothlink.load(tmp_path / "m.safetensors")
    if name == "joint training":
        assert fitted.model_.sparse_weights is not None
    host, there = predictions_of(fitted, X, Y), predictions_of(fitted.set_params(device="torch"), X, Y)
    for method, expected in host.items():
        np.testing.assert_allclose(there[method], expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=method)


@pytest.mark.parametrize("k", [1, 3, 9])
def test_rows_without_features_get_the_hosts_prediction_exactly(rng, k):
    X, Y = with_gaps(rng)
    Y[:, 4] = Y[:, 1]  # as frequent: a tie
    fitted = fixed().fit(X, Y)
    expected = fitted.predict_topk(X, k)[[3, 77]]
    found = fitted.set_params(device="torch").predict_topk(X, k)[[3, 77]]
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.data, expected.data)


def test_blocks_of_rows_make_no_difference(rng):
    X, Y = with_gaps(rng)
    fitted = fixed(device="torch").fit(X, Y)
    expected = fitted.predict_topk(X, 4)
    fitted._device_copy.model.decoder.sizes = BlockSizes(rows=7)
    found = fitted.predict_topk(X, 4)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data, rtol=1e-5, atol=1e-6)


def test_scores_that_are_no_numbers_are_refused_as_on_the_host(rng):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    V = np.array(fitted.model_.V)
    V[1, 2] = np.nan
    fitted.model_ = replace(fitted.model_, V=ArrayWeights(V))
    for device in ("cpu", "torch"):
        with pytest.raises(DataError, match=r"are NaN\. Check the features and the model"):
            fitted.set_params(device=device).predict_topk(X)


@pytest.fixture
def copies(monkeypatch):
    """How often a model was copied to a device."""
    count, before = [], DeviceModel.of

    def of(model, machine):
        count.append(machine)
        return before(model, machine)

    monkeypatch.setattr(DeviceModel, "of", of)
    return count


def test_a_model_is_copied_to_its_device_once_and_again_after_a_fit_or_another_device(rng, copies):
    X, Y = multilabel(rng)
    fitted = fixed(device="torch").fit(X, Y)
    assert not copies
    fitted.predict(X)
    fitted.predict_topk(X)
    fitted.predict_topk(X, rank_by="psp")
    assert len(copies) == 1
    fitted.fit(X, Y).predict(X)
    assert len(copies) == 2
    fitted.set_params(device="cpu").predict(X)
    assert len(copies) == 2
    fitted.set_params(device="torch").predict(X)
    assert len(copies) == 3


def test_another_device_lets_go_of_what_the_last_one_holds(rng):
    X, Y = multilabel(rng)
    fitted = fixed(device="torch").fit(X, Y)
    fitted.predict(X)
    assert fitted._device_copy.model is not None
    fitted.set_params(device="cpu")
    assert fitted._device_copy.model is None


def test_what_is_on_a_device_is_not_copied_pickled_or_saved(rng, tmp_path):
    X, Y = multilabel(rng)
    fitted = fixed(device="torch").fit(X, Y)
    expected = fitted.predict_proba(X)
    before = len(pickle.dumps(fitted.set_params(device="torch")))  # which lets go of what it held
    fitted.predict_proba(X)
    assert len(pickle.dumps(fitted)) == before
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert other._device_copy.model is None
        np.testing.assert_array_equal(other.predict_proba(X), expected)
    assert not hasattr(clone(fitted), "_device_copy")
    fitted.save(tmp_path / "m.safetensors")
    assert smoothlink.load(tmp_path / "m.safetensors").device == "cpu"


def test_a_device_that_runs_out_of_memory_predicts_again_with_smaller_blocks(rng, monkeypatch):
    X, Y = multilabel(rng)
    fitted = fixed(device="torch").fit(X, Y)
    expected, before, asked = fitted.predict_topk(X), DeviceWeights.top_k, []

    def top_k(self, *args):
        asked.append(self.machine.share)
        if self.machine.share > 1 / 16:
            raise OutOfMemoryError
        return before(self, *args)

    monkeypatch.setattr(DeviceWeights, "top_k", top_k)
    np.testing.assert_array_equal(fitted.predict_topk(X).toarray(), expected.toarray())
    assert asked == [1, 1 / 4, 1 / 16]
    fitted.predict_topk(X)
    assert asked[3:] == [1 / 16]


@pytest.mark.parametrize("what", ["scale_features", "__init__"])
def test_a_device_too_small_for_a_few_rows_or_for_the_model_is_an_error_that_says_what_to_do(rng, monkeypatch, what):
    X, Y = multilabel(rng)
    fitted = fixed(device="torch").fit(X, Y)

    def full(*args):
        raise OutOfMemoryError

    monkeypatch.setattr(DeviceWeights, what, full)
    with pytest.raises(DeviceError, match=r"its memory does not hold the model and a few rows.\n.*leave device 'cpu'"):
        fitted.predict(X)
    assert fitted._device_copy.model is None


def test_other_errors_pass(rng, monkeypatch):
    X, Y = multilabel(rng)
    fitted = fixed(device="torch").fit(X, Y)
    for method in ("scale_features", "__init__"):
        monkeypatch.setattr(DeviceWeights, method, lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fitted.predict(X)
        fitted.set_params(device="torch")


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    return prepared(tmp_path_factory.mktemp("device"), pytestconfig.getoption("--seed"))


@pytest.mark.parametrize("asked", [["-k", 2], ["--f1"], ["--only", "label1,label3"], ["--rank-by", "psp"]])
def test_predict_says_the_same_on_a_device(files, monkeypatch, asked):
    monkeypatch.setattr("smoothlink.data.predictions.DEVICE_ROWS", 7)
    rows = [
        [line.split("\t") for line in succeed(*args, "--long", "--output-format", "tsv", *asked).out.splitlines()[1:]]
        for args in (["predict", files.model, files.test, *extra] for extra in ([], ["--device", "torch"]))
    ]
    assert [row[:2] for row in rows[0]] == [row[:2] for row in rows[1]]
    np.testing.assert_allclose(*([float(row[2]) for row in one] for one in rows), atol=TOLERANCE)


def test_evaluate_measures_the_same_on_a_device(files):
    args = "evaluate", files.model, files.test, "--bootstraps", 0, "--json"
    host, there = (succeed(*args, *extra).json for extra in ([], ["--device", "torch"]))
    for key in ("p@1", "ndcg@5", "macro_f1_alg4", "logloss"):
        assert there[key]["value"] == pytest.approx(host[key]["value"], abs=TOLERANCE)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_an_unknown_device_is_refused_with_those_possible(files, command):
    ran = run(command, files.model, files.test, "--device", "gpu")
    assert ran.code == 2
    assert "--device" in ran.err
    assert "'cuda:1'" in ran.err


@pytest.mark.parametrize("command", ["predict", "evaluate", "train"])
def test_a_device_that_is_not_there_is_one_message(files, tmp_path, monkeypatch, command):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    rest = [files.train, "-o", tmp_path / "m.safetensors", *FIXED] if command == "train" else [files.model, files.test]
    ran = run(command, *rest, "--device", "cuda")
    assert ran.code == 1
    assert "error: device is 'cuda', and torch" in ran.err
    assert "Traceback" not in ran.err


def test_train_and_info_show_the_device_and_its_memory_where_one_was_used(files, tmp_path, monkeypatch):
    monkeypatch.setattr("smoothlink.machines.host_and_device.Device.peak_mb", 3.0)
    model = tmp_path / "m.safetensors"
    assert "on torch" in succeed("train", files.train, "-o", model, *FIXED, "--device", "torch").out
    assert "on torch" in succeed("info", model).out
    assert succeed("info", model, "--json").json["summary"]["peak_device_mb"] == 3
    assert "on cpu" not in succeed("info", files.model).out
