"""The forms of V: each scores as the array that it stands for, whatever rows and labels are asked for."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.errors import ModelFileError
from smoothlink.weights import HALF_ROWS, ArrayWeights, HalfWeights, open_shards, to_half, widened, write_shard

COLUMNS = [slice(None), slice(5, 33), np.array([40, 2, 2]), np.array([], np.int64)]


def weights(form, A, folder):
    if form == "half":
        return to_half(A)
    if form == "shards":
        names = [f"m-V-0123abcd-{i}-of-00003.safetensors" for i in ("00001", "00002", "00003")]
        for name, part in zip(names, np.split(A, [10, 11], axis=1), strict=True):
            write_shard(np.ascontiguousarray(part), str(folder / name))
        return open_shards(folder, names)
    return ArrayWeights(A, one_row_entries=0 if form == "one row on all threads" else 1 << 20)


@pytest.mark.parametrize("form", ["array", "one row on all threads", "half", "shards"])
@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_every_form_scores_as_its_columns_do(rng, tmp_path, form, columns):
    A = rng.standard_normal((31, 70)).astype(np.float32)
    V = weights(form, A, tmp_path)
    assert V.shape == A.shape
    np.testing.assert_allclose(V.columns(columns), A[:, columns], rtol=2.0**-11 if form == "half" else 0)
    np.testing.assert_array_equal(np.asarray(V), V.columns())
    for rows in (1, HALF_ROWS, HALF_ROWS + 1):
        Phi = rng.standard_normal((rows, 31)).astype(np.float32)
        expected = Phi @ V.columns(columns)
        np.testing.assert_allclose(V.scores(Phi, columns), expected, rtol=1e-5, atol=1e-5)
        out = np.empty_like(expected)
        assert V.scores(Phi, columns, out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["array", "half"])
def test_rows_and_projections_are_those_of_the_columns(rng, tmp_path, form):
    W = weights(form, rng.standard_normal((20, 6)).astype(np.float32), tmp_path)
    A = sp.random_array((7, 20), density=0.2, format="csr", dtype=np.float32, rng=rng)
    np.testing.assert_array_equal(W.rows(np.array([7, 7, 2])), W.columns()[[7, 7, 2]])
    for rows in (A, A.toarray()):
        np.testing.assert_allclose(W.project(rows), A @ W.columns(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("form", "dtype"), [("array", None), ("array", "float16"), ("half", None), ("half", "float32")]
)
def test_what_is_stored_is_of_the_precision_asked_for_or_as_it_is(rng, tmp_path, form, dtype):
    V = weights(form, rng.standard_normal((5, 4)).astype(np.float32), tmp_path)
    stored = V.store(Path("m"), dtype)
    single = dtype == "float32" or (form == "array" and dtype is None)
    assert stored.meta == {}
    assert stored.arrays.keys() == ({"V"} if single else {"V", "V_scale"})
    found = ArrayWeights(stored.arrays["V"]) if single else HalfWeights(stored.arrays["V"], stored.arrays["V_scale"])
    np.testing.assert_allclose(found.columns(), V.columns(), rtol=2.0**-11)


def test_every_finite_half_is_widened_exactly():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    finite = np.isfinite(halves)
    found = widened(np.where(finite, halves, np.float16(0)), np.full(256, 4, np.float32))
    assert halves.size > 1 << 14  # by the kernel, not by NumPy
    np.testing.assert_array_equal(found[finite], 4 * halves[finite].astype(np.float32))


def test_halves_keep_eleven_bits_of_columns_of_any_size(rng):
    A = (rng.uniform(0.01, 1, (50, 9)) * 10.0 ** np.arange(-20, 16, 4)).astype(np.float32)
    A[:, 4] = 0
    half = to_half(A)
    assert half.shape == A.shape
    assert half.values.dtype == np.float16
    np.testing.assert_allclose(half.columns(), A, rtol=2.0**-11)
    np.testing.assert_array_equal(half.columns(np.array([3, 1])), half.columns()[:, [3, 1]])
    np.testing.assert_array_equal(half.rows(np.array([7, 7, 2])), half.columns()[[7, 7, 2]])
    np.testing.assert_array_equal(np.frexp(half.scale)[0], 0.5)  # powers of two


@pytest.mark.parametrize("rows", [1, HALF_ROWS, HALF_ROWS + 1])
@pytest.mark.parametrize("columns", [slice(None), slice(5, 33), np.array([40, 2, 2])], ids=str)
def test_products_with_halves_are_those_with_the_widened_matrix(rng, rows, columns):
    half = to_half(rng.standard_normal((31, 70)).astype(np.float32))
    half = HalfWeights(
        np.frombuffer(half.values.tobytes(), np.float16).reshape(31, 70), half.scale
    )  # read-only, as mapped
    A = rng.standard_normal((rows, 31)).astype(np.float32)
    expected = A @ half.columns()[:, columns]
    np.testing.assert_allclose(half.scores(A, columns), expected, rtol=1e-5, atol=1e-5)
    out = np.empty_like(expected)
    assert half.scores(A, columns, out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_large_float16_weights_are_in_a_file_and_the_same(rng):
    A = rng.standard_normal((37, 50)).astype(np.float32)
    in_memory, in_file = to_half(A), to_half(A, piece_bytes=1000)
    assert isinstance(in_file.values, np.memmap)
    np.testing.assert_array_equal(in_file.values, in_memory.values)
    np.testing.assert_array_equal(in_file.scale, in_memory.scale)


def test_weights_that_are_not_finite_are_not_halved():
    with pytest.raises(ModelFileError, match="not finite"):
        to_half(np.array([[1.0, np.inf]], np.float32))
