"""machines/sorting.py against NumPy."""

import numpy as np
import pytest

from smoothlink.machines.sorting import sort_by


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("values", [2, 10**6])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_sorting_some_numbers_by_their_keys_is_a_stable_argsort(rng, count, values, dtype):
    keys = rng.integers(0, values, 2 * count).astype(dtype)
    some = np.sort(rng.permutation(2 * count)[:count])
    order = rng.permutation(some)
    sort_by(keys, order)
    np.testing.assert_array_equal(order, some[np.argsort(keys[some], kind="stable")])
