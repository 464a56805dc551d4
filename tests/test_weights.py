"""The forms of V: each scores as the array that it stands for, whatever rows and labels are asked for."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.errors import ModelFileError
from smoothlink.machines.grouped_codes import GROUP, quantize_groups
from smoothlink.weights import (
    COMPACT_ROWS,
    ArrayWeights,
    HalfWeights,
    convert,
    open_shards,
    to_half,
    widened,
    write_shard,
)

COLUMNS = [slice(None), slice(5, 33), np.array([40, 2, 2]), np.array([], np.int64)]


def weights(form, A, folder):
    if form in ("float16", "int8", "int4"):
        return convert(A, form)
    if form == "shards":
        names = [f"m-V-0123abcd-{i}-of-00003.safetensors" for i in ("00001", "00002", "00003")]
        for name, part in zip(names, np.split(A, [10, 11], axis=1), strict=True):
            write_shard(np.ascontiguousarray(part), str(folder / name))
        return open_shards(folder, names)
    return ArrayWeights(A, one_row_entries=0 if form == "one row on all threads" else 1 << 20)


def bound(form, A):
    """How far an entry may be from that of A."""
    if form in ("int8", "int4"):
        groups = [np.abs(A[start : start + GROUP]).max(axis=0) for start in range(0, len(A), GROUP)]
        return 1.01 / {"int8": 254, "int4": 14}[form] * np.repeat(groups, GROUP, axis=0)[: len(A)]
    return 2.0**-11 * np.maximum(np.abs(A), 2.0**-13 * np.abs(A).max(axis=0)) if form == "float16" else 0 * A


@pytest.mark.parametrize("form", ["array", "one row on all threads", "float16", "int8", "int4", "shards"])
@pytest.mark.parametrize("columns", COLUMNS, ids=str)
@pytest.mark.parametrize("height", [31, 150])
def test_every_form_scores_as_its_columns_do(rng, tmp_path, form, columns, height):
    A = rng.standard_normal((height, 70)).astype(np.float32)
    V = weights(form, A, tmp_path)
    assert V.shape == A.shape
    assert (np.abs(V.columns(columns) - A[:, columns]) <= bound(form, A)[:, columns]).all()
    np.testing.assert_array_equal(np.asarray(V), V.columns())
    for rows in (1, COMPACT_ROWS, COMPACT_ROWS + 1):
        Phi = rng.standard_normal((rows, height)).astype(np.float32)
        expected = Phi @ V.columns(columns)
        np.testing.assert_allclose(V.scores(Phi, columns), expected, rtol=1e-5, atol=1e-4)
        out = np.empty_like(expected)
        assert V.scores(Phi, columns, out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", ["array", "float16", "int8", "int4"])
@pytest.mark.parametrize("width", [6, 700])  # 700: by the kernels, not by NumPy
def test_rows_and_projections_are_those_of_the_columns(rng, tmp_path, form, width):
    W = weights(form, rng.standard_normal((151, width)).astype(np.float32), tmp_path)
    A = sp.random_array((40, 151), density=0.2, format="csr", dtype=np.float32, rng=rng)
    some = np.array([7, 150, 7, 2] * 8)
    np.testing.assert_array_equal(W.rows(some), W.columns()[some])
    for rows in (A, A.toarray()):
        np.testing.assert_allclose(W.project(rows), A @ W.columns(), rtol=1e-5, atol=1e-5)


FORMS = ["array", "float16", "int8", "int4"]
TYPES = {"float32": np.float32, "float16": np.float16, "int8": np.int8, "int4": np.uint8}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [None, *TYPES])
def test_what_is_stored_is_of_the_precision_asked_for_or_as_it_is(rng, tmp_path, form, dtype):
    V = weights(form, rng.standard_normal((5, 4)).astype(np.float32), tmp_path)
    stored = V.store(Path("m"), dtype)
    kind = dtype or ("float32" if form == "array" else form)
    assert stored.meta == {}
    assert stored.arrays["V"].dtype == TYPES[kind]
    assert stored.arrays.keys() == ({"V"} if kind == "float32" else {"V", "V_scale"})


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("height", [1, 64, 129])
def test_codes_move_no_entry_by_more_than_half_a_scale_and_come_back_the_same(rng, dtype, height):
    A = (rng.standard_normal((height, 9)) * 10.0 ** np.arange(-24, 12, 4)).astype(np.float32)
    A[:, 4] = 0
    found = convert(A, dtype)
    scale = np.repeat(found.codes.scale, GROUP, axis=0)[:height]
    assert (np.abs(found.columns() - A) <= 0.5 * scale).all()
    assert (scale <= np.maximum(2 * bound(dtype, A), 1.01e-30)).all()
    again = convert(found.columns(), dtype)
    np.testing.assert_array_equal(again.columns(), found.columns())
    for one, other in zip(again.stored(), found.stored(), strict=True):
        np.testing.assert_array_equal(one, other)


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


@pytest.mark.parametrize("rows", [1, COMPACT_ROWS, COMPACT_ROWS + 1])
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


@pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_weights_that_are_not_finite_are_not_stored_in_fewer_bits(dtype, wrong):
    with pytest.raises(ModelFileError, match="not finite"):
        convert(np.array([[1.0, wrong]], np.float32), dtype)


def test_many_codes_are_in_a_file_and_the_same(rng):
    A = rng.standard_normal((130, 50)).astype(np.float32)
    in_memory, in_file = (quantize_groups(A, "int4", piece_bytes=size) for size in (1 << 20, 1000))
    assert isinstance(in_file.values, np.memmap)
    np.testing.assert_array_equal(in_file.values, in_memory.values)


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_the_score_of_a_label_does_not_depend_on_the_labels_beside_it(rng, dtype):
    V = convert(rng.standard_normal((150, 2000)).astype(np.float32), dtype)
    Phi, some = rng.standard_normal((1, 150)).astype(np.float32), np.sort(rng.choice(2000, 7, replace=False))
    np.testing.assert_array_equal(V.scores(Phi)[:, some], V.scores(Phi, some))
