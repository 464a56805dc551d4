"""What rows hold, by hashes: copies are found whatever the form of the matrix, and groups are checked."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from smoothlink.data.read import Data, read, write
from smoothlink.machines.copies import RowContents, TrainingRows, first_equal, group_numbers, notable, row_hashes


def table(rng, n=60, d=9):
    return rng.poisson(0.6, (n, d)).astype(np.float32)


def test_rows_have_the_same_hash_exactly_where_they_are_the_same(rng):
    X = table(rng, 300, 5)
    same = (X[:, None] == X[None]).all(axis=2)
    hashes = row_hashes(X)
    np.testing.assert_array_equal(hashes[:, None] == hashes[None], same)
    np.testing.assert_array_equal(hashes == 0, ~X.any(axis=1))


@pytest.mark.parametrize("form", [np.asfortranarray, np.float64, sp.csr_array, sp.csr_matrix], ids=lambda f: f.__name__)
def test_the_form_of_a_matrix_does_not_change_the_hashes_of_its_rows(rng, form):
    X = table(rng)
    np.testing.assert_array_equal(row_hashes(form(X)), row_hashes(X))


def test_stored_zeros_and_the_order_of_entries_do_not_change_the_hash_of_a_row():
    plain = sp.csr_array((np.array([2.0, 3.0], np.float32), [1, 4], [0, 2]), (1, 6))
    other = sp.csr_array((np.array([3.0, 0.0, 2.0], np.float32), [4, 0, 1], [0, 3]), (1, 6))
    np.testing.assert_array_equal(row_hashes(plain), row_hashes(other))


def test_rows_in_files_have_the_hashes_of_rows_in_memory(rng, tmp_path):
    X, Y = sp.csr_array(table(rng)), sp.csr_array(np.eye(60, dtype=np.float32))
    write(Data(X, Y), tmp_path / "a.sl")
    np.testing.assert_array_equal(row_hashes(read(tmp_path / "a.sl").X), row_hashes(X))


def contents(X, Y=None):
    X = np.asarray(X, np.float32)
    return RowContents.of(X, np.ones((len(X), 1), np.float32) if Y is None else np.asarray(Y, np.float32))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), min_size=1, max_size=40))
def test_a_copy_has_the_features_of_its_first_row_where_no_row_of_these_has_other_labels(rows):
    values, labels = (list(column) for column in zip(*rows, strict=True))
    kinds = {v: {label for value, label in rows if value == v} for v in values}
    expected = [i if v == 0 or len(kinds[v]) > 1 else values.index(v) for i, v in enumerate(values)]
    found = contents(np.array(values)[:, None], np.array(labels)[:, None]).first_copies()
    assert found.tolist() == expected


def test_few_copies_and_tables_of_few_categories_are_left_as_they_are():
    n = np.arange(100)
    assert notable(n) is None
    assert notable(np.minimum(n, 96)) is None  # three of a hundred
    assert notable(np.minimum(n, 95)).tolist() == np.minimum(n, 95).tolist()
    assert notable(n % 9) is None
    assert notable(n % 13) is not None
    assert notable(n[:20] % 5) is not None  # few rows, each four times
    assert notable(np.minimum(n, 98), 0) is not None


def test_equal_keys_have_the_place_of_the_first():
    assert first_equal(np.array([7, 3, 7, 3])).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1, 2], "groups has 2 values, and there are 3 rows"),
        (np.ones((3, 2)), r"groups has 3 values of shape \(3, 2\)"),
        ([1, None, 2], "no value for 1 of 3 rows, the first of them row 1"),
        ([1.0, float("nan"), float("nan")], "no value for 2 of 3 rows, the first of them row 1"),
        (["a", "b", " "], "no value for 1 of 3 rows, the first of them row 2"),
    ],
)
def test_groups_of_another_length_or_with_missing_values_are_refused_in_a_sentence(groups, message):
    with pytest.raises(ValueError, match=message):
        group_numbers(groups, 3)


def test_groups_come_as_lists_arrays_and_columns_of_tables():
    pandas = pytest.importorskip("pandas")
    forms = (["x", "y", "x"], np.array(["x", "y", "x"]), pandas.Series(["x", "y", "x"], dtype="category"), (2, 0, 2))
    for form in forms:
        assert group_numbers(form, 3).tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="row 1"):
        group_numbers(pandas.Series([1, None, 2], dtype="Int64"), 3)


def test_the_sketch_of_training_rows_counts_rows_that_are_among_them(rng):
    hashes = rng.integers(1, 1 << 63, 50_000, dtype=np.uint64)
    sketch = TrainingRows.of(hashes[:40_000])
    assert sketch.overlap(hashes[30_000:]) == 10_000
    assert sketch.overlap(hashes[40_000:]) == 0
    assert sketch.overlap(np.zeros(5, np.uint64)) == 0  # rows without features


def test_the_sketch_of_many_rows_is_a_sample_that_counts_about_as_many(rng):
    hashes = rng.integers(1, 1 << 63, 3_000_000, dtype=np.uint64)
    sketch = TrainingRows.of(hashes)
    assert sketch.every == 4
    assert sketch.hashes.nbytes <= 4 << 20
    assert sketch.overlap(hashes[:100_000]) == pytest.approx(100_000, rel=0.05)
