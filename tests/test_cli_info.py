"""`smoothlink info` and `smoothlink convert`: what files hold, and the same data in other formats."""

import numpy as np
import pytest
from commands import left, prepared, run, succeed
from small import classes, fixed

import smoothlink
from smoothlink.data.formats import FORMATS
from smoothlink.synth import Shape, synthesise

NAMES = {
    "xmc": "x.txt",
    "xmc-new": "x_Xf.txt",
    "lshtc": "x.csv",
    "svmlight": "x.svm",
    "arff": "x.arff",
    "vw": "x.vw",
    "npz": "x.npz",
    "binary": "x.sl",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    return prepared(tmp_path_factory.mktemp("info"), pytestconfig.getoption("--seed"))


def test_facts_of_a_data_file_are_counted(files):
    found = succeed("info", files.test, "--json").json
    X, Y, names = files.tested[:3]
    counts = np.asarray(Y.sum(axis=0)).ravel()
    assert found | {"most_frequent_labels": None} == {
        "kind": "data",
        "path": str(files.test),
        "format": "xmc",
        "bytes": files.test.stat().st_size,
        "rows": 30,
        "features": 12,
        "labels": 5,
        "values": X.nnz,
        "density": pytest.approx(X.nnz / 360),
        "values_per_row": pytest.approx(X.nnz / 30),
        "labels_per_row": pytest.approx(Y.nnz / 30),
        "most_labels_per_row": np.diff(Y.indptr).max(),
        "rows_without_labels": (np.diff(Y.indptr) == 0).sum(),
        "rows_without_features": (np.diff(X.indptr) == 0).sum(),
        "labels_without_rows": (counts == 0).sum(),
        "task": "multilabel",
        "label_names": True,
        "feature_names": True,
        "most_frequent_labels": None,
    }
    assert {entry["label"]: entry["rows"] for entry in found["most_frequent_labels"]} == dict(
        zip(names, counts.astype(int).tolist(), strict=True)
    )


def test_the_most_frequent_labels_are_shown_first(files):
    ran = succeed("info", files.test)
    for word in ("xmc", "rows", "density", "labels per row", "rows without labels", "of labels and features"):
        assert word in ran.out
    best = succeed("info", files.test, "--json").json["most_frequent_labels"]
    assert [e["rows"] for e in best] == sorted((e["rows"] for e in best), reverse=True)
    assert ran.out.index(best[0]["label"]) < ran.out.index(best[-1]["label"])


def test_facts_of_a_model_are_its_parameters_and_summary(files):
    found = succeed("info", files.model, "--json").json
    model = smoothlink.load(files.model)
    assert found["kind"] == "model"
    assert found["summary"] == model.summary_
    assert found["versions"].keys() == {"smoothlink", "numpy", "python"}
    assert found["parameters"] == {
        "rank": 4,
        "ridge": 1.0,
        "kernel": "Gaussian(bandwidth=2.0, features=40)",
        "final_ridge": 0.1,
        "loss": "squared",
        "calibrate": False,
    }
    assert found["most_frequent_labels"][0]["label"] in model.label_names_


def test_a_model_is_shown_with_its_summary_and_labels(files):
    ran = succeed("info", files.model)
    for word in ("rank=4", "smoothlink", "captured share", "peak memory", "most frequent labels", "label0"):
        assert word in ran.out


def test_the_card_of_a_model_is_markdown(files, tmp_path):
    target = tmp_path / "a|b.safetensors"
    succeed("train", files.train, "-o", target, "-q", "--effort", "quick")
    card = succeed("info", target, "--card").out
    summary = smoothlink.load(target).summary_
    assert card.startswith("# Model card: a\\|b.safetensors\n")
    headings = [line for line in card.splitlines() if line.startswith("## ")]
    held = f"## On {summary['held_out_metrics']['rows']} held-out training rows"
    assert headings == ["## Data", held, "## Settings", "## Cost and versions", "## Limits"]
    for line in ("| training data | train.txt |", "| rows | 60 |", f"| date of training | {summary['date']} |"):
        assert line in card
    assert f"| p@1 | {summary['held_out_metrics']['p@1']:.4f} |" in card
    assert "- It knows 5 labels and predicts no other." in card
    assert "no rows were held out" in succeed("info", files.model, "--card").out
    ran = run("info", files.test, "--card")
    assert ran.code == 1
    assert "is not a model" in ran.err


def test_a_model_is_known_by_its_content_whatever_its_name(files, tmp_path, rng):
    X, y = classes(rng)
    fixed().fit(X, np.array(["red", "green", "blue"])[y], sample_weight=np.full(90, 0.3)).save(tmp_path / "model.bin")
    found = succeed("info", tmp_path / "model.bin", "--json").json
    assert found["kind"] == "model"
    assert {entry["label"] for entry in found["most_frequent_labels"]} == {"red", "green", "blue"}
    assert "blue" in succeed("info", tmp_path / "model.bin").out


def test_verify_says_whether_checksums_match(files, tmp_path):
    folder, whole = tmp_path / "a.sl", tmp_path / "m.safetensors"
    succeed("convert", files.test, folder)
    X, Y, *_ = synthesise(Shape(features=70_000, labels=6, features_per_row=10), 60)
    fixed(rank=4).fit(X, Y).save(whole)
    assert "all match" in succeed("info", "--verify", folder).out
    assert "all match" in succeed("info", "--verify", whole).out
    assert succeed("info", "--verify", files.test, "--json").json["checksums"] == "none in this format"
    assert "checksums" not in succeed("info", whole).out
    content = bytearray(whole.read_bytes())
    content[len(content) // 2] ^= 1  # in W, which is most of the file
    whole.write_bytes(content)
    succeed("info", whole)
    ran = run("info", "--verify", whole)
    assert ran.code == 1
    assert "'W' does not match its checksum" in ran.err


@pytest.mark.parametrize("name", ["missing.txt", "missing.safetensors", ""])
def test_what_cannot_be_described_is_said(tmp_path, name):
    ran = run("info", tmp_path / name)
    assert ran.code == 1
    assert str(tmp_path) in ran.err


@pytest.mark.parametrize("kind", FORMATS)
def test_data_survives_the_way_to_any_format_and_back(files, tmp_path, kind):
    (tmp_path / "back").mkdir()
    there, back = tmp_path / NAMES[kind], tmp_path / "back" / "x.txt"
    succeed("convert", files.test, there, "--to", kind, "-q")
    counts = ["--features", 12] if kind == "svmlight" else []
    ran = succeed("convert", there, back, "--format", kind, *counts)
    assert f"{back}:" in ran.err
    data = smoothlink.read(back)
    if kind in ("vw", "lshtc"):  # columns are numbered as they are met, or those that occur
        assert (data.X.sum(), data.Y.sum()) == (files.tested.X.sum(), files.tested.Y.sum())
        return
    assert abs(data.X - files.tested.X).max() == 0
    assert (data.Y != files.tested.Y).nnz == 0


def test_the_name_says_the_format_and_the_compression(files, tmp_path):
    found = succeed("convert", files.test, tmp_path / "x.svm.gz", "--json").json
    path = tmp_path / "x.svm.gz"
    assert found == {"path": str(path), "rows": 30, "features": 12, "labels": 5, "bytes": path.stat().st_size}
    assert succeed("info", path, "--json").json["format"] == "svmlight"


@pytest.mark.parametrize(
    ("target", "extra", "code", "said"),
    [
        ("x.csv", [], 1, "Pass --to with one of xmc"),
        ("x.txt", ["--to", "csv"], 2, "--to"),
        ("no/folder/x.txt", [], 1, "mkdir -p"),
        ("x.txt", ["--one-based"], 1, "--zero-based/--one-based means nothing"),
    ],
)
def test_what_cannot_be_converted_leaves_nothing(files, tmp_path, target, extra, code, said):
    ran = run("convert", files.test, tmp_path / target, *extra)
    assert ran.code == code
    assert said in ran.err
    assert left(tmp_path) == []


def test_a_model_is_converted_to_smaller_numbers(files, tmp_path):
    small = tmp_path / "small.safetensors"
    found = succeed("convert", files.model, small, "--dtype", "int8", "--json").json
    assert (found["dtype"], found["bytes"]) == ("int8", small.stat().st_size)
    assert found["bytes"] < found["bytes_before"] == files.model.stat().st_size
    assert "int8: W int8" in succeed("info", small).out
    assert succeed("info", small, "--json").json["stored"]["arrays"]["V"][0] == "int8"
    first, second = (succeed("predict", path, files.test, "-k", 1).out for path in (files.model, small))
    assert len(first.splitlines()) == len(second.splitlines())
    for target, extra, said in (
        (small, ["--dtype", "int9"], "none of float32"),
        (small, ["--prune", "0.5"], "no sparse weights"),
        (files.model, ["--dtype", "int8"], str(files.model)),
    ):
        ran = run("convert", files.model, target, *extra)
        assert ran.code in (1, 2)
        assert said in ran.err
    ran = run("convert", files.test, tmp_path / "x.txt", "--dtype", "int8")
    assert ran.code == 1
    assert "is not a model" in ran.err


def test_a_file_is_not_converted_into_itself(files):
    before = files.test.read_bytes()
    assert run("convert", files.test, files.test, "--to", "svmlight").code == 1
    assert files.test.read_bytes() == before
