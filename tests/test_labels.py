"""y in every form scikit-learn knows, and the weights that class_weight makes of it."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import compute_sample_weight

from smoothlink.labels import is_multiclass, read_classes, read_indicator, read_targets, weigh

Y = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize("form", [np.asarray, list, sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_array])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, bool, np.float32, np.float64])
def test_an_indicator_is_read_as_float32_ones_whatever_its_form(form, dtype):
    given = form(Y.astype(dtype))
    found = read_targets(given, "auto")
    np.testing.assert_array_equal(found.Y.toarray(), Y)
    assert found.Y.dtype == np.float32
    assert found.Y.has_canonical_format
    assert (found.indicator, found.sparse, found.multiclass) == (True, sp.issparse(given), False)
    assert found.classes.tolist() == [0, 1, 2]


def test_what_was_given_is_never_written_to():
    given = sp.csr_array(Y.astype(np.float32))
    given.data[0] = 0  # a stored zero
    before = given.copy()
    read_targets(given, "auto")
    np.testing.assert_array_equal(given.data, before.data)
    assert given.nnz == before.nnz


def test_stored_zeros_are_no_labels():
    given = sp.csr_array(Y)
    given.data[:1] = 0
    assert read_targets(given, "auto").Y.nnz == Y.sum() - 1


@pytest.mark.parametrize("ids", [[3, -1, 3, 7], ["b", "a", "b", "c"], [True, False, True, True], [0.0, 2.0, 2.0, 1.0]])
def test_class_ids_are_numbered_in_order(ids):
    found = read_targets(ids, "auto")
    classes, numbers = np.unique(ids, return_inverse=True)
    np.testing.assert_array_equal(found.classes, classes)
    np.testing.assert_array_equal(found.Y.toarray(), np.eye(len(classes))[numbers])
    assert (found.indicator, found.sparse, found.multiclass) == (False, False, True)


def test_a_column_of_class_ids_is_flattened_with_a_warning():
    with pytest.warns(DataConversionWarning, match="column-vector"):
        assert read_targets([[1], [2], [1]], "auto").classes.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("matrix", "task", "multiclass"),
    [
        (np.eye(3), "auto", True),
        (np.eye(3), "multiclass", True),
        (np.eye(3), "multilabel", False),
        (Y, "auto", False),
        (Y, "multilabel", False),
        (sp.csr_array(np.ones((4, 1))), "auto", False),  # one label is no choice between labels
    ],
)
def test_one_label_in_every_row_makes_classes_unless_told_otherwise(matrix, task, multiclass):
    assert read_targets(matrix, task).multiclass is multiclass


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        (Y, "rank", "task is 'rank'; possible are 'auto', 'multilabel', 'multiclass'"),
        (Y, 3, "task is 3"),
        (Y, "multiclass", "some rows have no label or several"),
        ([1, 2, 1], "multilabel", "one class id per row"),
        (np.zeros((3, 2)), "auto", "no positive label"),
        (sp.csr_array((3, 2)), "auto", "no positive label"),
        (sp.csr_array(2 * Y), "auto", "value 2"),
        (sp.csr_array(-Y), "auto", "value -1"),
        (sp.csr_array(np.where(Y, np.nan, 0)), "auto", "value nan"),
        (2 * Y, "auto", "0 and 1|multiclass-multioutput"),
        (Y / 3, "auto", "continuous"),
        (np.where(Y, np.nan, 0), "auto", "NaN"),
        (Y.astype(object), "auto", "0 and 1|nknown label type"),
        (np.array([["a", "b"], ["c", "a"]]), "auto", "0 and 1|multioutput"),
        ([0.5, 1.5, 2.25], "auto", "continuous"),
        ([1.0, np.nan, 2.0], "auto", "NaN"),
        ([1.0, np.inf, 2.0], "auto", "infinity"),
        (np.array(["a", None, "b"], dtype=object), "auto", "None or NaN"),
        (np.array(["a", np.nan, "b"], dtype=object), "auto", "None or NaN"),
        (np.array(["a", 1, "b"], dtype=object), "auto", "int, str|nknown label type"),
        (3, "auto", "1d|0d|shape"),
        (np.zeros((2, 2, 2)), "auto", "3|shape"),
        ([[1, 2], [1]], "auto", "inhomogeneous|sequence"),
    ],
)
def test_what_is_no_target_is_refused_in_words(y, task, message):
    with pytest.raises(ValueError, match=message):
        read_targets(y, task)


def test_readers_for_evaluation_accept_rows_without_any_label():
    assert read_indicator(np.zeros((3, 2))).nnz == 0
    assert read_classes(["x", "y"]).tolist() == ["x", "y"]
    with pytest.raises(ValueError, match="shape"):
        read_indicator([0, 1])


# Weights

ONES = np.ones(4)


def test_without_class_weights_nothing_changes():
    w, labels = weigh(read_targets(Y, "auto"), ONES, None)
    np.testing.assert_array_equal(w, ONES)
    assert labels is None


@pytest.mark.parametrize("class_weight", ["balanced", {"a": 2.0, "b": 0.5}, {"b": 7.0}])
def test_class_weights_are_scikit_learns(class_weight):
    y = np.array(["a", "b", "b", "b"])
    w, labels = weigh(read_targets(y, "auto"), 2 * ONES, class_weight)
    np.testing.assert_allclose(w, 2 * compute_sample_weight(class_weight, y))
    assert labels is None


def test_label_weights_do_not_touch_the_examples():
    targets = read_targets(Y, "auto")
    for class_weight, expected in (({1: 3.0}, [1, 3, 1]), ([2, 0, 1], [2, 0, 1]), ("balanced", [1, 1, 1])):
        w, labels = weigh(targets, ONES, class_weight)
        np.testing.assert_array_equal(w, ONES)
        np.testing.assert_allclose(labels, expected)


def test_balanced_label_weights_are_inverse_to_counts_and_0_for_labels_never_seen():
    counts = np.array([[1, 1, 0, 1], [0, 1, 0, 1], [0, 1, 0, 0]])  # 1, 3, 0 and 2 times
    labels = weigh(read_targets(counts, "auto"), np.ones(3), "balanced")[1]
    np.testing.assert_allclose(labels, [2, 2 / 3, 0, 1])


def test_a_weight_for_a_class_that_a_fold_lacks_is_no_mistake():
    y = np.array(["a", "b", "b", "b"])
    w, _ = weigh(read_targets(y, "auto"), ONES, {"a": 2.0, "b": 1.0, "c": 9.0})
    np.testing.assert_array_equal(w, [2, 1, 1, 1])


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("uniform", "'uniform'; possible are None, 'balanced'"),
        ({5: 2.0}, r"'5'.*not labels"),
        ([1.0, 2.0], r"shape \(2,\); it needs 3"),
        ([1.0, 2.0, -1.0], "at least 0"),
        ([1.0, np.nan, 1.0], "finite"),
        ({0: np.inf}, "finite"),
        (object(), "possible are None, 'balanced'"),
    ],
)
def test_impossible_class_weights_are_refused_in_words(class_weight, message):
    with pytest.raises(ValueError, match=message):
        weigh(read_targets(Y, "auto"), ONES, class_weight)


def test_rows_of_one_label_each_are_multiclass_where_there_are_several_labels_or_the_task_says_so():
    single, several, column = (sp.csr_array(np.array(Y, np.float32)) for Y in ([[1, 0], [0, 1]], [[1, 1]], [[1], [1]]))
    assert [is_multiclass(Y) for Y in (single, several, column)] == [True, False, False]
    assert is_multiclass(column, "multiclass")
    assert not is_multiclass(single, "multilabel")
    with pytest.raises(ValueError, match="some rows have no label or several"):
        is_multiclass(several, "multiclass")
