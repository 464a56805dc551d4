"""What rows hold, by hashes: copies are found whatever the form of the matrix, and groups are checked."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from smoothlink.data.read import Data, read, write
from smoothlink.machines.copies import Groups, RowContents, TrainingRows, first_equal, group_numbers, row_hashes


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


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_a_group_is_known_by_its_first_row_and_rows_without_features_are_alone(values):
    X = np.array(values, np.float32)[:, None]
    expected = [i if v == 0 else values.index(v) for i, v in enumerate(values)]
    groups = contents(X).groups()
    if groups is None:
        assert expected == list(range(len(values)))
    else:
        assert groups.first.tolist() == expected
        assert groups.copies.tolist() == [first != i for i, first in enumerate(expected)]


def test_the_groups_of_some_rows_are_numbered_anew():
    groups = Groups(np.array([0, 1, 0, 3, 1, 1]), np.array([0, 0, 1, 0, 1, 1], bool))
    assert groups.take(np.array([2, 3, 4, 5])).first.tolist() == [0, 1, 2, 2]
    assert first_equal(np.array([7, 3, 7, 3])).tolist() == [0, 1, 0, 1]


def test_given_groups_decide_alone_and_copies_are_still_known():
    groups = contents([[1], [1], [2], [3]]).groups(group_numbers(["a", "b", "b", "c"], 4))
    assert groups.first.tolist() == [0, 1, 1, 3]
    assert groups.copies.tolist() == [False, True, False, False]


def test_rows_of_a_few_kinds_with_labels_of_their_own_are_no_copies(rng):
    kinds, labels = np.arange(1, 5).repeat(30)[:, None], rng.permutation(120)[:, None] % 2
    assert contents(kinds, labels).groups() is None
    assert contents(kinds, kinds).groups().copies.sum() == 116  # with the same labels they are
    few = np.arange(1, 61).repeat(2)[:, None]
    assert contents(few, labels).groups().copies.sum() == 60  # and so are pairs


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
