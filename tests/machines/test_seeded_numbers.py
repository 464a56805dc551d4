"""Seeded numbers: SplitMix64 by its published outputs, normal numbers by SciPy's quantile."""

import zlib

import numpy as np
from scipy.special import ndtri
from scipy.stats import kstest

from smoothlink.machines.seeded_numbers import derive_seed, normals, uniforms, whole_numbers


def test_whole_numbers_are_those_of_splitmix64():
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert whole_numbers(1234567, 0, 5).tolist() == known
    assert whole_numbers(1234567, 3, 2).tolist() == known[3:]


def test_normal_numbers_are_the_quantiles_of_the_uniform_ones(seed):
    p = np.concatenate([uniforms(seed, 0, 100_000), uniforms(seed, 10**12, 1000)])
    found = np.concatenate([normals(seed, 0, 100_000), normals(seed, 10**12, 1000)])
    assert ((p > 0) & (p < 1)).all()
    np.testing.assert_allclose(found, ndtri(p), rtol=2e-9)
    assert kstest(found[:100_000], "norm").pvalue > 1e-4


def test_normal_numbers_have_the_bits_that_model_files_rely_on():
    """A change here would make every stored seed useless: it needs another distribution by name, not another result."""
    assert zlib.crc32(normals(2015, 7, 100_000).tobytes()) == 704223781
    assert derive_seed(0, 2) == 4592581745434984


def test_seeds_differ_where_any_number_or_the_order_differs():
    seeds = {derive_seed(*numbers) for numbers in [(), (0,), (1,), (0, 1), (1, 0), (1, 1), (2**32 - 1, 4), (2**63, 4)]}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_neighbouring_seeds_give_unrelated_numbers():
    A = np.stack([normals(derive_seed(seed, 2), 0, 10_000) for seed in range(20)])
    correlations = np.corrcoef(A)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(10_000)
