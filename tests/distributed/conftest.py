"""One Dask cluster of three local processes for all tests that kill no worker. Without Dask no test here runs."""

import importlib.util

import numpy as np
import pytest
import scipy.sparse as sp
from small import words

from smoothlink.data.read import Data
from smoothlink.distributed.client import connect

collect_ignore_glob = [] if importlib.util.find_spec("distributed") else ["test_*.py"]


@pytest.fixture(scope="session")
def workers():
    with connect("local:3") as found:
        yield found


@pytest.fixture(scope="session")
def address(workers):
    return workers.client.scheduler.address


@pytest.fixture
def data(rng):
    """Sparse counts with labels, as they are in files."""
    X, Y = words(rng)
    return Data(X.astype(np.float32), sp.csr_array(np.asarray(Y, np.float32)))
