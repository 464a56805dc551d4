"""Codes of labels in one byte per weight: their bounds hold for the rows where rounding adds up most."""

import numpy as np
import pytest

from smoothlink.machines.quantized import PLANE, KeyTable, find_candidates, quantize


def codes_of(V):
    return quantize(lambda labels: V[:, labels], V.shape, np.arange(V.shape[1]))


def by_score(c):
    """The table of labels that are ranked by their scores."""
    return KeyTable(np.zeros(c, np.uint16), np.zeros(0, np.float32), np.zeros((0, 0), np.float32), 2**-22, 0.0)


def flat(codes):
    """The coded weights (m, s rotated) in float64."""
    return codes.scale[:, None].astype(np.float64) * np.hstack(list(codes.codes.astype(np.float64)))


@pytest.mark.parametrize("s", [5, 64, 150])
def test_a_score_is_as_far_from_that_of_its_codes_as_the_bound_says_and_no_further(rng, s):
    V = rng.standard_normal((s + 1, 700), dtype=np.float32)
    V[:, :100] *= 1e12
    V[:, 100:200] *= 1e-12
    codes = codes_of(V)
    coded, R = flat(codes), codes.R.astype(np.float64)
    left = V[:-1].T - coded @ R.T  # (m, s)
    for label in range(0, 700, 35):
        q = 1e3 * left[label] / np.linalg.norm(left[label])  # the row for which all errors have the same sign
        phi = np.append(q, 1).astype(np.float32).astype(np.float64)
        exact, approximate = (
            phi @ V[:, label].astype(np.float64),
            codes.intercept[label] + coded[label] @ (R.T @ phi[:-1]),
        )
        bound = np.linalg.norm(phi) * codes.error[label]
        assert 0.85 * bound < abs(exact - approximate) <= bound


def test_lengths_beyond_a_plane_are_those_of_the_codes_after_it(rng):
    codes = codes_of(rng.standard_normal((PLANE * 2 + 3, 600), dtype=np.float32))
    parts = codes.codes.astype(np.float64) * codes.scale[None, :, None]
    for p in range(3):
        np.testing.assert_allclose(codes.beyond[p], np.sqrt((parts[p + 1 :] ** 2).sum(axis=(0, 2))), rtol=1e-5)


def test_a_label_that_only_the_last_direction_tells_from_others_is_found(rng):
    s = PLANE * 3
    c = 20 * s
    V = np.zeros((s + 1, c), np.float32)
    at = np.arange(c) % s  # each label has one direction, and the first have the largest weights
    V[at, np.arange(c)] = rng.uniform(0.5, 1, c) * np.linspace(10, 1, s)[at]
    V[-1] = np.linspace(0, 1, c)
    V[-2, -1], V[-2, s - 1] = 0.5, 0.8  # the last label is the best by its intercept, and the other with all directions
    V[-2, 2 * s - 1 : -1] = 0
    phi = np.zeros(s + 1, np.float32)
    phi[-2:] = 5, 1  # the direction that is added last
    found = find_candidates(codes_of(V), by_score(c), phi[None], np.zeros((1, 0), np.float32), 1)
    assert s - 1 in found
    assert len(found) < 10


def test_labels_without_training_rows_have_no_codes(rng):
    V = rng.standard_normal((9, 300), dtype=np.float32)
    trained = np.arange(0, 300, 3)
    codes = quantize(lambda labels: V[:, labels], V.shape, trained)
    found = find_candidates(codes, by_score(100), V[None, :, 0], np.zeros((1, 0), np.float32), 4)
    assert set(found.tolist()) <= set(trained.tolist())
