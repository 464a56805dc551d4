"""machines/sorting.py against NumPy."""

import numpy as np
import pytest

from smoothlink.machines.sorting import sort_by


@pytest.mark.parametrize(
    ("count", "values", "dtype"),
    [
        (0, 2, np.int64),
        (1, 2, np.int64),
        (3, 9, np.int64),
        (64, 2, np.int32),
        (999, 2, np.float32),
        (1000, 10**6, float),
    ],
)
def test_sorting_some_numbers_by_their_keys_is_a_stable_argsort(rng, count, values, dtype):
    keys = rng.integers(0, values, 2 * count).astype(dtype)
    some = np.sort(rng.permutation(2 * count)[:count])
    order = rng.permutation(some)
    sort_by(keys, order)
    np.testing.assert_array_equal(order, some[np.argsort(keys[some], kind="stable")])
