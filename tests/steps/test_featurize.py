"""Random features against the exact kernels, with the error that s features should have."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from problems import home
from scipy.special import gamma, kv

from smoothlink.machines.arrays import unit_rows
from smoothlink.steps.featurize import (
    Features,
    Kernel,
    draw_features,
    median_squared_distance,
    parse_kernel,
)

LENGTH, BETA, K = 2.5, 1.7, 3  # m, bandwidth and dimensions: none of them 1
KERNELS = ["gaussian", "laplacian", "exponential", "matern(3)", "matern(5)", "matern(2.5)", "matern(0.7)"]


def exact_kernel(name, D):
    """The kernel at differences D (..., k), from its closed form."""
    euclidean, city = np.linalg.norm(D, axis=-1), np.abs(D).sum(axis=-1)
    t = euclidean / (BETA * np.sqrt(LENGTH))
    if name == "gaussian":
        return np.exp(-(euclidean**2) / (BETA**2 * LENGTH))
    if name == "laplacian":
        return np.exp(-city * np.sqrt(2 / LENGTH) / BETA)
    if name == "exponential":
        return np.exp(-t)
    if name == "matern(3)":
        return (1 + np.sqrt(3) * t) * np.exp(-np.sqrt(3) * t)
    if name == "matern(5)":
        return (1 + np.sqrt(5) * t + 5 * t**2 / 3) * np.exp(-np.sqrt(5) * t)
    # The characteristic function of a Student of nu degrees of freedom is a Matern kernel of smoothness nu / 2.
    nu = float(name[7:-1])
    z = np.sqrt(nu) * np.maximum(t, 1e-12)
    return np.where(t == 0, 1, 2 ** (1 - nu / 2) / gamma(nu / 2) * z ** (nu / 2) * kv(nu / 2, z))


def approximate_kernel(features, H):
    Phi = features(H)[:, :-1].astype(np.float64)
    return Phi @ Phi.T / Phi.shape[1]


def points(rng, n=25):
    return (rng.standard_normal((n, K)) * 1.5).astype(np.float32)


def draw(name, s, rng):
    return draw_features(parse_kernel(name), K, s, LENGTH, BETA, int(rng.integers(1 << 53)))


def expected_error(name, H):
    """The standard deviation of one feature's 2 cos(r'h + b) cos(r'h' + b), for each pair of rows.

    It is cos(r'd) + cos(r'(h + h') + 2b) with d = h - h', of variance (1 + k(2d)) / 2 - k(d)^2 + 1/2.
    """
    D = H[:, None].astype(np.float64) - H
    return np.sqrt((1 + exact_kernel(name, 2 * D)) / 2 - exact_kernel(name, D) ** 2 + 0.5)


def test_the_matern_closed_forms_agree_with_the_bessel_form(rng):
    D = rng.standard_normal((50, K))
    for name, nu in (("exponential", "matern(1.0)"), ("matern(3)", "matern(3.0)"), ("matern(5)", "matern(5.0)")):
        np.testing.assert_allclose(exact_kernel(name, D), exact_kernel(nu, D), rtol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_features_have_the_kernel_within_five_standard_errors_everywhere(rng, name):
    H = points(rng)
    error = approximate_kernel(draw(name, 4000, rng), H) - exact_kernel(name, H[:, None] - H)
    z = error / (expected_error(name, H) / np.sqrt(4000))
    assert np.abs(z).max() < 5
    # Pairs share their frequencies, so that their mean square strays from 1 more than 325 independent ones would.
    assert 0.5 < np.sqrt(np.mean(z**2)) < 1.6


@pytest.mark.parametrize("name", ["gaussian", "matern(3)", "laplacian"])
def test_the_error_falls_as_one_over_root_s(rng, name):
    H = points(rng)
    exact = exact_kernel(name, H[:, None] - H)

    def rms(s):
        errors = [approximate_kernel(draw(name, s, rng), H) - exact for _ in range(12)]
        return np.sqrt(np.mean(np.square(errors)))

    wanted = np.sqrt(np.mean(expected_error(name, H) ** 2))
    assert rms(100) * np.sqrt(100) == pytest.approx(wanted, rel=0.25)
    assert rms(1600) * np.sqrt(1600) == pytest.approx(wanted, rel=0.25)


def test_exponential_and_laplacian_differ_in_many_dimensions():
    one = np.ones(64) / 8  # of length 1, of city-block length 8
    assert exact_kernel("exponential", one) > 0.6
    assert exact_kernel("laplacian", one) < 0.02


@pytest.mark.parametrize("name", KERNELS)
def test_a_wider_bandwidth_is_the_same_draw_at_a_smaller_scale(seed, name):
    kernel = parse_kernel(name)
    a, b, c = (
        draw_features(kernel, K, 50, m, beta, seed)
        for m, beta in ((LENGTH, BETA), (LENGTH, 2 * BETA), (4 * LENGTH, BETA))
    )
    np.testing.assert_allclose(a.R, 2 * b.R, rtol=1e-6)
    np.testing.assert_array_equal(b.R, c.R)
    np.testing.assert_array_equal(a.b, b.b)


def test_phases_fill_the_circle(rng):
    b = draw("gaussian", 2000, rng).b
    assert b.min() >= 0
    assert b.max() <= np.float32(2 * np.pi)
    assert abs(np.exp(1j * b).mean()) < 5 / np.sqrt(2000)


@pytest.mark.parametrize("name", [*KERNELS, "matern(0.05)"])
def test_features_are_finite_whatever_the_tails(rng, name, machine):
    H = machine.to_device(100 * rng.standard_normal((20, 4)).astype(np.float32))
    Phi = home(draw_features(parse_kernel(name), 4, 3000, 1e-3, 0.1, 0)(H))
    assert Phi.dtype == np.float32
    assert np.abs(Phi).max() <= np.float32(np.sqrt(2))


# What phi is


def test_phi_is_root_two_cosine_with_the_intercept_last(rng, machine):
    features, H = draw("gaussian", 7, rng), points(rng)
    Phi = home(features(machine.to_device(H)))
    np.testing.assert_array_equal(home(machine.to_device(features)(machine.to_device(H))), Phi)
    exact = np.sqrt(2) * np.cos(H.astype(np.float64) @ features.R + features.b)
    np.testing.assert_allclose(Phi[:, :-1], exact, atol=1e-5)
    np.testing.assert_array_equal(Phi[:, -1], 1)
    assert features.width(K) == 8
    assert not features.linear


def test_sparse_rows_have_the_features_of_dense_ones(rng):
    features, H = draw("gaussian", 9, rng), points(rng)
    H[H < 0] = 0
    np.testing.assert_allclose(features(sp.csr_array(H)), features(H), atol=1e-6)


def test_the_linear_link_is_h_itself_with_the_intercept(rng, machine):
    features, H = draw("linear", 7, rng), points(rng)
    assert features.linear
    assert features.width(K) == K + 1
    np.testing.assert_array_equal(home(features(machine.to_device(H))), np.hstack([H, np.ones((25, 1))]))


def test_no_rows_have_no_features(rng, machine):
    assert tuple(draw("gaussian", 7, rng)(machine.to_device(np.zeros((0, K), np.float32))).shape) == (0, 8)


# Names


@pytest.mark.parametrize(
    ("text", "kernel", "printed"),
    [
        ("gaussian", Kernel("gaussian"), "gaussian"),
        ("laplacian", Kernel("laplacian"), "laplacian"),
        ("linear", Kernel("linear"), "linear"),
        ("exponential", Kernel("matern", 1.0), "matern(1)"),
        ("matern(3)", Kernel("matern", 3.0), "matern(3)"),
        ("matern2.5", Kernel("matern", 2.5), "matern(2.5)"),
        (Kernel("matern", 4.0), Kernel("matern", 4.0), "matern(4)"),
    ],
)
def test_a_kernel_has_a_name_that_reads_back(text, kernel, printed):
    assert parse_kernel(text) == kernel
    assert str(kernel) == printed
    assert parse_kernel(printed) == kernel


@pytest.mark.parametrize("text", ["rbf", "matern", "matern(0)", "matern(-1)", "matern(1.2.3)", "matern(.)", ""])
def test_an_unknown_kernel_is_answered_with_those_there_are(text):
    with pytest.raises(ValueError, match=r"possible are gaussian, matern\(NU\)"):
        parse_kernel(text)


def test_the_same_seed_draws_the_same_features():
    a, b = (draw("matern(3)", 20, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(a.R, b.R)


# The length scale


def test_median_squared_distance_is_that_of_all_pairs(rng):
    H = points(rng, 41)
    distances = [np.sum((H[i].astype(np.float64) - H[j]) ** 2) for i in range(41) for j in range(i)]
    assert median_squared_distance(H) == pytest.approx(np.median(distances), rel=1e-10)
    assert median_squared_distance(H, np.full(41, 3.0)) == median_squared_distance(H)


def test_pairs_of_equal_rows_do_not_count():
    H = np.zeros((10, 2), np.float32)
    H[0] = 3, 4
    assert median_squared_distance(H) == pytest.approx(25)


@pytest.mark.parametrize("n", [4, 7, 40])
def test_a_row_seen_several_times_is_a_row_of_that_weight(rng, n):
    H = points(rng, n)
    times = rng.integers(1, 6, n)
    times[0] = 7
    seen = median_squared_distance(np.repeat(H, times, axis=0))
    assert median_squared_distance(H, times.astype(np.float64)) == pytest.approx(seen, rel=1e-10)
    assert median_squared_distance(H, np.full(n, 2.0)) == pytest.approx(median_squared_distance(np.repeat(H, 2, 0)))


@pytest.mark.parametrize("row", [[0.0, 0.0], [0.1, 1e4], [3.3e-5, -7e-6]])
def test_equal_rows_warn_and_have_length_one(row):
    with pytest.warns(RuntimeWarning, match="equal"):
        assert median_squared_distance(np.tile(np.float32(row), (20, 1))) == 1
    with pytest.warns(RuntimeWarning, match="equal"):
        assert median_squared_distance(np.float32([row])) == 1  # one row has no pair


def test_the_length_scale_uses_the_first_rows(rng):
    H = points(rng, 30)
    assert median_squared_distance(H, rows=10) == median_squared_distance(H[:10])


def test_nearly_equal_rows_far_from_the_origin_still_have_a_distance():
    H = np.float32([[1000, 0], [1000, 1], [1000, 3]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert median_squared_distance(H) == pytest.approx(4, rel=1e-6)


def test_unit_rows_have_length_one_and_zeros_stay(rng, machine):
    H = points(rng)
    H[3] = 0
    U = home(unit_rows(machine.to_device(H)))
    assert U.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(U, axis=1), np.arange(25) != 3, atol=1e-6)
    np.testing.assert_allclose(U * np.linalg.norm(H, axis=1, keepdims=True), H, atol=1e-6)


def test_features_without_columns_are_linear():
    assert Features(np.zeros((2, 0), np.float32), np.zeros(0, np.float32)).linear
