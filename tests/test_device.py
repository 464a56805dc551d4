"""A device gives the same model as the host, whatever is asked of the fit; without one, messages say what to do."""

import builtins

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from small import fixed
from test_parameters import CHANGES, CLASSES, OWN, cases, data

from smoothlink import ConjugateGradient, Logistic, PerLabel, SmoothLinkClassifier
from smoothlink.errors import DeviceError
from smoothlink.machines.host_and_device import HOST, find_machine

TOLERANCE = 2e-3  # of probabilities: sums go in another order, and conjugate gradients stop at 1e-3
LOOSE = {"loss__passes", "loss__batch_rows"}  # where rounding grows along the way


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("as_on_a_card")
@pytest.mark.parametrize(("name", "change", "value"), cases({**CHANGES, **OWN}) + cases(CLASSES))
def test_a_device_fits_the_same_model_with_every_parameter_off_its_default(name, change, value):
    X, y = data(change.task)
    settings = change.given | {name: value}
    if name == "solver":  # one step of conjugate gradients leaves directions that rounding turns
        settings["solver"] = ConjugateGradient(tol=1e-4, group=3)
    if name == "random_state" and not isinstance(value, int):
        settings["random_state"] = 7
    host, device = (fixed(**settings, device=where).fit(X, y) for where in ("cpu", "torch"))
    difference = np.abs(host.predict_proba(X) - device.predict_proba(X)).max()
    assert difference < (5 if name in LOOSE else 1) * TOLERANCE


ACTIVATIONS = {"embedding": PerLabel(LogisticRegression())}
TOGETHER = {  # what one parameter alone does not reach
    "activations judged": ACTIVATIONS | {"calibrate": True, "holdout": 0.5},
    "activations chosen for": ACTIVATIONS | {"final_ridge": "auto", "holdout": 0.5},
    "rows themselves, descended on": {"embedding": "none", "loss": Logistic(passes=2)},
    "rows of unit length in a budget": {"normalize_embedding": True, "memory": "2G", "calibrate": True},
    "descent in a budget": {"memory": "2G", "loss": Logistic(passes=2), "block_rows": 50},
    "rule of thumb": {"effort": "quick", "calibrate": True, "loss": "logistic"},
}


@pytest.mark.usefixtures("as_on_a_card")
@pytest.mark.parametrize("settings", TOGETHER.values(), ids=TOGETHER)
def test_a_device_finds_the_scores_of_the_host_where_several_parameters_are_given(settings):
    X, y = data("multilabel")
    host, device = (fixed(**settings, device=where).fit(X, y) for where in ("cpu", "torch"))
    assert host.summary_["final_ridge"] == device.summary_["final_ridge"]
    np.testing.assert_allclose(device.decision_function(X), host.decision_function(X), atol=20 * TOLERANCE)


@pytest.mark.parametrize("name", ["gpu", "tpu:0", 3, None, "cuda0"])
def test_a_device_of_another_name_is_refused(name):
    with pytest.raises(ValueError, match=r"device is .*possible are 'cpu' \(NumPy\), 'auto', 'cuda'"):
        find_machine(name)


def test_without_torch_a_message_says_what_to_install(monkeypatch):
    before = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "torch":
            raise ImportError(name)
        return before(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeviceError, match=r"torch is not installed.\npip install 'smoothlink\[gpu\]'"):
        find_machine("cuda")
    assert find_machine("auto") is HOST


def test_without_a_card_a_message_says_so_before_anything_is_fitted(torch):
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    X, y = data("classes")
    with pytest.raises(DeviceError, match=r"sees no CUDA device here.\nLook at nvidia-smi"):
        SmoothLinkClassifier(device="cuda").fit(X, y)
    assert find_machine("auto") is HOST
