"""Random data comes from one seed: `pytest --seed 7` runs every test on other data."""

import numpy as np
import pytest


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="seed of the tests' random data")


@pytest.fixture
def seed(request):
    return request.config.getoption("--seed")


@pytest.fixture
def rng(seed):
    return np.random.default_rng([2015, seed])
