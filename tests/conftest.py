"""Random data comes from one seed: `pytest --seed 7` runs every test on other data."""

import gc

import hypothesis
import numpy as np
import pytest

from smoothlink.machines.host_and_device import find_machine

hypothesis.settings.register_profile("smoothlink", deadline=None)  # on busy cores an example may take any time
hypothesis.settings.load_profile("smoothlink")


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="seed of the tests' random data")


@pytest.hookimpl(tryfirst=True)  # before `-m torch` selects
def pytest_collection_modifyitems(items):
    """Tests that use the fixture `torch`, directly or through another, have the marker too."""
    for item in items:
        if "torch" in getattr(item, "fixturenames", ()):
            item.add_marker("torch")


def pytest_collection_finish():
    """Thousands of tests and their modules stay: the garbage collector need not look at them again and again."""
    gc.freeze()


def pytest_runtest_setup(item):
    if item.get_closest_marker("torch"):
        pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def torch():
    import torch

    return torch


@pytest.fixture
def seed(request):
    return request.config.getoption("--seed")


@pytest.fixture
def rng(seed):
    return np.random.default_rng([2015, seed])


@pytest.fixture
def as_on_a_card(torch, monkeypatch):
    """NumPy refuses tensors of torch's CPU device as it would those of a card: where it reads one unasked is a bug."""

    def refuse(*_, **__):
        raise TypeError("NumPy was given a tensor: bring it home with arrays.host")

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)


@pytest.fixture(params=["cpu", pytest.param("torch", marks=pytest.mark.torch)])
def machine(request):
    """The host, and torch's CPU device in its stead."""
    if request.param == "torch":
        request.getfixturevalue("as_on_a_card")
    return find_machine(request.param)
