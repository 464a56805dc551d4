"""How data files are read together with others."""

import os

import pytest

from smoothlink.data.matching import Reading
from smoothlink.errors import DataError


def test_a_feature_0_in_one_svmlight_file_settles_where_all_count_from(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.svm", "b.svm", "c.txt")]
    for path, content in zip(paths, ("1 1:1\n", "1 0:1\n", "1 1 1\n0 0:1\n"), strict=True):
        with open(path, "w") as file:
            file.write(content)
    assert Reading().with_common_first_index(*paths[:2]).zero_based is True
    assert Reading().with_common_first_index(paths[0]).zero_based is False
    assert Reading().with_common_first_index(*paths).zero_based is None
    (tmp_path / "b.svm").write_text(f"1 0:1 {2**30}:1\n")
    assert Reading(features=2**30 + 1).with_common_first_index(*paths[:2]).zero_based is True
    assert Reading(zero_based=False).with_common_first_index(*paths[:2]).zero_based is False


def test_files_that_are_read_with_the_data_are_found_from_any_folder():
    how = Reading(labels_file="y.xml", label_names="names.txt")
    assert how.others == ["y.xml", "names.txt"]
    assert how.absolute().others == [os.path.abspath(name) for name in how.others]


def test_a_file_of_labels_is_that_of_one_file():
    assert Reading(labels_file="y").for_many(["a"]).labels_file == "y"
    with pytest.raises(DataError, match="holds the labels of one file, and there are 2"):
        Reading(labels_file="y").for_many(["a", "b"])
