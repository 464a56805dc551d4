"""A device that is too small says at once what is needed and what would fit; one that is tight fits the same model."""

import re
from dataclasses import replace

import numpy as np
import pytest
from small import fixed

from smoothlink import Joint, Laplacian, Logistic
from smoothlink.errors import DeviceError
from smoothlink.fitting.device_memory import check_device, embedding_bytes, joint_bytes, sgd_bytes
from smoothlink.fitting.run import run
from smoothlink.fitting.settings import Request, TrainingData
from smoothlink.machines.host_and_device import HOST, Device
from smoothlink.synth import Shape, synthesise

GIB = 1 << 30


def fit(data, free, **parameters):
    """A fit on torch's processor device with so many bytes free."""
    request = Request.of(fixed(**parameters).get_params(deep=False), seed=0)
    return run(TrainingData(*data, None, multiclass=False), replace(request, device=Device("cpu", free)))


@pytest.fixture(scope="module")
def data():
    made = synthesise(Shape(300, 80, 12, 2, seed=3), 400)
    return made.X, made.Y


def test_lshtc_fits_a_card_of_24_gib_and_with_sampled_negatives_one_of_16():
    n, d, c = 2_400_000, 1_600_001, 325_000
    assert 20 * GIB < sgd_bytes(c, 4001, 65536) < 21 * GIB
    assert embedding_bytes(d, c, 820) < 9 * GIB
    assert joint_bytes(d, c, 512, 43 * n, 0) < 9 * GIB


CASES = {
    "joint": (
        {"training": Joint(20, sparse_weights=False), "rank": 24},
        "joint training of rank 24",
        r"rank=(\d+) would fit",
    ),
    "joint with sparse weights": (
        {"training": Joint(20), "rank": 24},
        r"joint training of rank 24 with 80 labels, 301 features and \d,\d{3} sparse weights",
        r"rank=(\d+) would fit. Joint\(sparse_weights=False\) needs less",
    ),
    "embedding": ({"rank": 30}, "an embedding of rank 30", r"rank=(\d+) would fit"),
    "SGD": (
        {"rank": 2, "loss": Logistic(passes=1), "kernel": Laplacian(1.0, 400)},
        "SGD for 80 labels with 400 random features",
        r"kernel=Laplacian\(features=(\d+)\) would fit. loss='squared' needs a third",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_device_too_small_says_what_would_fit_and_that_fits(as_on_a_card, data, case):
    given, what, remedy = CASES[case]
    free = {"joint": 100_000, "joint with sparse weights": 200_000, "embedding": 60_000, "SGD": 200_000}[case]
    with pytest.raises(DeviceError, match=rf"device is 'torch' with 0M of memory free, and {what}.* needs \dM") as told:
        fit(data, free, **given)
    size = int(re.search(remedy, str(told.value))[1])
    assert size >= 1
    smaller = {"rank": size} if case != "SGD" else {"kernel": Laplacian(1.0, size)}
    fit(data, free, **given | smaller)
    larger = {"rank": size + 1} if case != "SGD" else {"kernel": Laplacian(1.0, size + 1)}
    with pytest.raises(DeviceError, match="would fit"):
        fit(data, free, **given | larger)


def test_the_host_is_never_refused_and_sizes_that_never_fit_are_not_named():
    check_device(HOST, "anything", 9, lambda size: 1 << 60, "rank={}")
    with pytest.raises(DeviceError, match=r"needs 9.00G there.\nNo smaller size would fit. Or leave device 'cpu'."):
        check_device(Device("cuda:0", GIB // 2), "it", 9, lambda size: size * GIB, "rank={}")


@pytest.mark.parametrize("loss", ["squared", Logistic(passes=3)])
def test_a_tight_device_fits_the_same_model_with_large_arrays_on_the_host(as_on_a_card, data, loss):
    parameters = {"rank": 24, "loss": loss, "kernel": Laplacian(1.0, 120), "final_ridge": 0.01}
    tight, wide = (fit(data, free, **parameters).model for free in (210_000, 1 << 30))
    assert not Device("cpu", 210_000).keeps(4 * 400 * 24)  # neither the embeddings nor what is larger
    np.testing.assert_allclose(np.asarray(tight.W), np.asarray(wide.W), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(np.asarray(tight.V), np.asarray(wide.V), rtol=1e-3, atol=1e-4)
