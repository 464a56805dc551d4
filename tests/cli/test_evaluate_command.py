"""`smoothlink evaluate`: the metrics of the classifier, as a table and as one JSON object."""

import numpy as np
import pytest
import scipy.sparse as sp
from commands import FIXED, labelled, one_label_each, prepared, run, succeed
from small import classes, fixed

import smoothlink
from smoothlink.data.read import Data, write
from smoothlink.metrics.names import format_value, meaning, shown_keys

KEYS = [key for key in shown_keys() if key != "error"]  # which multiclass models have
COUNTS = ["rows", "unknown_labels", "unknown_pairs", "training_rows"]


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    return prepared(tmp_path_factory.mktemp("evaluate"), pytestconfig.getoption("--seed"))


def figures(files, path):
    """The values of all metrics of the model on a file."""
    found = succeed("evaluate", files.model, path, "--json", "--bootstraps", 0).json
    return {key: metric["value"] for key, metric in found.items() if key not in COUNTS}


def test_json_has_the_metrics_of_the_classifier_with_their_intervals(files):
    model = smoothlink.load(files.model)
    del model.feature_names_in_
    expected = model.evaluate(files.tested.X, files.tested.Y, bootstraps=50, seed=3)
    found = succeed("evaluate", files.model, files.test, "--json", "--bootstraps", 50, "--seed", 3).json
    assert list(found) == [*KEYS, *COUNTS]
    for key, metric in expected.metrics.items():
        assert found[key] == pytest.approx(metric._asdict())
    assert [found[key] for key in COUNTS] == [30, 0, 0, expected.n_training_rows]


def test_the_table_shows_each_metric_with_interval_and_meaning(files):
    ran = succeed("evaluate", files.model, files.test, "--bootstraps", 50)
    found = succeed("evaluate", files.model, files.test, "--bootstraps", 50, "--json").json
    for key in KEYS:
        line = next(line for line in ran.out.splitlines() if line.split()[:1] == [key])
        assert format_value(key, found[key]["value"]) in line
        assert meaning(key)[:20] in line
    assert "90 % interval" in ran.out
    assert "30 rows" in ran.out


def test_no_bootstraps_means_no_interval(files):
    found = succeed("evaluate", files.model, files.test, "--json", "--bootstraps", 0).json
    assert found["p@1"]["low"] is found["p@1"]["high"] is None
    assert " - " not in succeed("evaluate", files.model, files.test, "--bootstraps", 0).out


def test_ranking_by_propensity_is_that_of_the_classifier_and_leaves_the_sets_alone(files):
    plain = succeed("evaluate", files.model, files.test, "--json").json
    rare = succeed("evaluate", files.model, files.test, "--json", "--rank-by", "psp").json
    model = smoothlink.load(files.model)
    del model.feature_names_in_
    assert rare["psp@1"]["value"] == pytest.approx(
        model.evaluate(files.tested.X, files.tested.Y, rank_by="psp").metrics["psp@1"].value
    )
    assert rare["hamming"] == plain["hamming"]


def test_labels_unknown_to_the_model_are_misses_and_are_reported(files, tmp_path):
    X, Y, labels, features, *_ = files.tested
    more = sp.csr_array(np.eye(30, 2, dtype=np.float32))
    write(Data(X, sp.csr_array(sp.hstack([Y, more])), [*labels, "new1", "new2"], features), tmp_path / "t.npz")
    ran = succeed("evaluate", files.model, tmp_path / "t.npz", "--json")
    assert "2 labels unknown to the model, in 2 pairs" in ran.err
    assert (ran.json["unknown_labels"], ran.json["unknown_pairs"]) == (2, 2)
    assert succeed("evaluate", files.model, tmp_path / "t.npz", "--json", "--quiet").err == ""


@pytest.mark.parametrize("name", ["t.vw", "t.txt.xz"])
def test_a_converted_file_has_the_same_metrics(files, tmp_path, name):
    succeed("convert", files.test, tmp_path / name, "-q")
    assert figures(files, tmp_path / name) == pytest.approx(figures(files, files.test))


def test_labels_are_found_by_their_names(files, tmp_path, rng):
    X, Y, labels, features, *_ = files.tested
    order = rng.permutation(Y.shape[1])
    write(Data(X, Y[:, order], [labels[j] for j in order], features), tmp_path / "t.npz")
    assert figures(files, tmp_path / "t.npz") == pytest.approx(figures(files, files.test))


def test_lshtc_files_with_other_gaps_agree_by_id(rng, tmp_path):
    data = labelled(rng, 90)
    ids = {"label_names": [str(7 * j + 3) for j in range(5)], "feature_names": [str(11 * j + 2) for j in range(12)]}
    data = data._replace(**ids)
    for name, rows in (("train", slice(60)), ("test", slice(60, 90))):
        write(data._replace(X=data.X[rows], Y=data.Y[rows]), tmp_path / f"{name}.csv", format="lshtc")
    files = [tmp_path / f"{name}.csv" for name in ("train", "test")]
    succeed("train", files[0], "-o", tmp_path / "m.safetensors", "-q", "--format", "lshtc", *FIXED)
    ran = succeed("evaluate", tmp_path / "m.safetensors", files[1], "--json", "--format", "lshtc")
    assert ran.json["unknown_labels"] == 0
    assert ran.json["p@1"]["value"] > 0.3


def test_a_multiclass_model_has_an_error_rate(rng, tmp_path):
    write(one_label_each(rng), tmp_path / "t.txt")
    succeed(
        "train", tmp_path / "t.txt", "-o", tmp_path / "m.safetensors", "-q", "--set", "kernel.features=30", "--ridge", 1
    )
    found = succeed("evaluate", tmp_path / "m.safetensors", tmp_path / "t.txt", "--json").json
    assert found["error"]["value"] == pytest.approx(1 - found["p@1"]["value"])


@pytest.mark.parametrize("dtype", [int, str])
def test_a_model_of_class_ids_is_measured_on_files_that_name_these_ids(rng, tmp_path, dtype):
    """A model saved from Python knows its classes as 10, 20, 30, or as text; the file names its labels so."""
    X, y = classes(rng)
    y = (10 * (y + 1)).astype(dtype)
    fixed(rank=2, kernel="linear").fit(X, y).save(tmp_path / "m.safetensors")
    names = ["30", "unheard of", "20", "10"]
    place = np.array([names.index(str(label)) for label in y])
    place[0] = 1
    Y = sp.csr_array((np.ones(90, np.float32), place, np.arange(91)), (90, 4))
    write(Data(sp.csr_array(X.astype(np.float32)), Y, names), tmp_path / "t.npz")
    found = succeed("evaluate", tmp_path / "m.safetensors", tmp_path / "t.npz", "--json").json
    assert (found["rows"], found["unknown_labels"], found["unknown_pairs"]) == (90, 1, 1)
    assert found["error"]["value"] < 0.5
    Y = sp.csr_array(np.ones((90, 4), np.float32))
    write(Data(sp.csr_array(X.astype(np.float32)), Y, names), tmp_path / "many.npz")
    ran = run("evaluate", tmp_path / "m.safetensors", tmp_path / "many.npz")
    assert ran.code == 1
    assert "row 0 has 4 labels" in ran.err


def test_extra_features_are_ignored_or_with_strict_refused(files, tmp_path):
    wide = sp.csr_array(sp.hstack([files.tested.X, sp.csr_array(np.ones((30, 1), np.float32))]))
    write(Data(wide, files.tested.Y), tmp_path / "t.txt")
    ran = succeed("evaluate", files.model, tmp_path / "t.txt", "--json")
    assert "1 feature unknown to the model, with 30 values: ignored." in ran.err
    assert ran.json == succeed("evaluate", files.model, files.test, "--json").json
    assert run("evaluate", files.model, tmp_path / "t.txt", "--strict").code == 1


@pytest.mark.parametrize("extra", [["--bootstraps", "-1"], ["--seed", "x"], ["--rank-by", "luck"]])
def test_wrong_usage_is_said(files, extra):
    ran = run("evaluate", files.model, files.test, *extra)
    assert ran.code == 2
    assert extra[0] in ran.err


def test_test_rows_that_were_trained_on_are_counted_in_a_sentence(files, tmp_path):
    ran = succeed("evaluate", files.model, files.train, "--bootstraps", 0)
    assert "rows occur in the training data, as if it were the training file" in " ".join(ran.err.split())
    trained = smoothlink.read(files.train).X.toarray()
    known = sum(row.any() and (row == trained).all(axis=1).any() for row in files.tested.X.toarray())
    ran = succeed("evaluate", files.model, files.test, "--bootstraps", 0)
    assert f"{known} of 30 rows" in " ".join(ran.err.split())


def test_groups_of_rows_of_numbers_are_the_lines_of_a_file(files, tmp_path):
    groups = tmp_path / "groups.txt"
    groups.write_text("".join(f"g{i // 10}\n" for i in range(30)))
    given = succeed("evaluate", files.model, files.test, "--json", "--groups", groups).json
    plain = succeed("evaluate", files.model, files.test, "--json").json
    assert given["p@1"]["value"] == plain["p@1"]["value"]
    assert given["p@1"] != plain["p@1"]
    groups.write_text("a\nb\n")
    ran = run("evaluate", files.model, files.test, "--groups", groups)
    assert ran.code == 1
    assert "has 2 lines, and there are 30 rows" in ran.err
    ran = run("evaluate", files.model, files.test, "--groups", "author")
    assert "no column author, and there is no file of this name" in ran.err
