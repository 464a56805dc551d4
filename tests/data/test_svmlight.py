"""svmlight files of a model count their features from one number, which the model keeps."""

import pytest
from commands import FIXED, labelled, run, succeed
from scipy.sparse import csr_array

import smoothlink
from smoothlink.data.read import read, write


def without_first_feature(data):
    """The same rows with nothing in column 0."""
    X = data.X.tolil()
    X[:, 0] = 0
    return data._replace(X=csr_array(X.tocsr()))


@pytest.fixture
def folder(tmp_path, rng):
    """Files that count from 0: one that shows it, and one that does not."""
    data = labelled(rng, 40)._replace(label_names=None, feature_names=None, zero_based=True)
    write(data, tmp_path / "train.svm")
    write(without_first_feature(data), tmp_path / "test.svm")
    return tmp_path


def trained(folder, *files):
    model = folder / "m.safetensors"
    sizes = ("--features", read(folder / "train.svm").X.shape[1])
    ran = succeed("train", *(folder / name for name in files), "-o", model, *FIXED, *sizes)
    return smoothlink.load(model), ran


def test_a_file_without_feature_0_is_read_as_the_files_of_the_training(folder):
    model, _ = trained(folder, "train.svm")
    assert model.zero_based_ is True
    known = model.predict_topk(read(folder / "test.svm", zero_based=True, n_features=model.n_features_in_).X, k=1)
    ran = succeed("predict", folder / "m.safetensors", folder / "test.svm", "-k", 1, "--output-format", "xmc")
    found = [int(line.split(":")[0]) for line in ran.out.splitlines()[1:]]
    assert found == known.indices.tolist()
    assert "--one-based overrides" in ran.err
    other = succeed("predict", folder / "m.safetensors", folder / "test.svm", "-k", 1, "--one-based")
    assert other.out != succeed("predict", folder / "m.safetensors", folder / "test.svm", "-k", 1).out


@pytest.mark.parametrize("files", [("train.svm", "test.svm"), ("test.svm", "train.svm")], ids=str)
def test_a_feature_0_of_one_file_settles_it_for_all_files_of_a_fit(folder, files):
    model, _ = trained(folder, *files)
    assert model.zero_based_ is True
    assert model.summary_["rows"] == 80


def test_copies_in_a_test_file_without_feature_0_are_found(tmp_path):
    (tmp_path / "train.svm").write_text("0 0:1 2:1\n1 1:2 3:1\n0 1:3 2:2\n")
    (tmp_path / "test.svm").write_text("1 1:2 3:1\n")
    whole, test = tmp_path / "train.svm", tmp_path / "test.svm"
    findings = succeed("check", whole, test, "--json").json["findings"]
    assert findings[0]["title"] == "Test rows that are in the training data: 1 of 1 (100 %)"


def test_a_guess_is_told_and_a_feature_0_refused_afterwards(folder):
    model, ran = trained(folder, "test.svm")
    assert model.zero_based_ is False
    assert "no feature is 0, so features are taken to count from 1; --zero-based overrides" in ran.err
    ran = run("evaluate", folder / "m.safetensors", folder / "train.svm")
    assert ran.code == 1
    assert "train the model with --zero-based" in ran.err


def test_the_result_of_read_says_what_was_used_and_write_keeps_it(folder):
    assert [read(folder / name).zero_based for name in ("train.svm", "test.svm")] == [True, False]
    data = read(folder / "test.svm", zero_based=True)
    write(data, folder / "again.svm")
    assert (folder / "again.svm").read_bytes() == (folder / "test.svm").read_bytes()
    (folder / "empty.svm").write_text("1\n2\n")
    assert read(folder / "empty.svm", format="svmlight").zero_based is None
