"""Files that are not what a command needs: each is refused with what it is, nothing is measured or written."""

import numpy as np
import pytest
import scipy.sparse as sp
from commands import left, prepared, run

from smoothlink.data.read import Data, write


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("files"), 4)


def refused(*args):
    ran = run(*args)
    assert ran.code == 1
    assert "Traceback" not in ran.err
    return ran.err


def test_a_file_without_one_feature_of_the_model_is_no_test(files, tmp_path):
    data = files.tested
    X = sp.csr_array((data.X.data, data.X.indices + data.X.shape[1], data.X.indptr), (data.X.shape[0], 50))
    write(Data(X, data.Y), tmp_path / "other.txt")
    for command in ("evaluate", "predict"):
        assert "no feature that the model knows" in refused(command, files.model, tmp_path / "other.txt", "-q")


def test_a_file_without_labels_cannot_be_measured(files, tmp_path):
    data = files.tested
    write(data._replace(Y=sp.csr_array(data.Y.shape, dtype=np.float32)), tmp_path / "bare.txt")
    assert "no row with a label" in refused("evaluate", files.model, tmp_path / "bare.txt")


def test_a_file_without_rows_cannot_be_learnt(tmp_path):
    (tmp_path / "none.txt").write_text("0 2 2\n")
    assert "no rows" in refused("train", tmp_path / "none.txt", "-o", tmp_path / "m.safetensors")
    assert left(tmp_path) == ["none.txt"]


def test_a_model_in_place_of_data_is_called_a_model(files):
    assert "is a model, not a data file" in refused("predict", files.model, files.model)


def test_utf_16_is_told_to_become_utf_8(tmp_path):
    (tmp_path / "wide.txt").write_text("1 2 2\n0 0:1\n", encoding="utf-16")
    assert "UTF-8" in refused("train", tmp_path / "wide.txt", "-o", tmp_path / "m.safetensors")


def test_names_that_lshtc_cannot_hold_are_mentioned(files, tmp_path):
    ran = run("convert", files.test, tmp_path / "l.txt", "--to", "lshtc")
    assert ran.code == 0
    assert "become column numbers" in ran.err
