"""`smoothlink report` and `smoothlink compare`: pages and JSON from files."""

import csv
import json

import pytest
from commands import FIXED, prepared, run, succeed

import smoothlink
from smoothlink.text import documents
from smoothlink.text.documents import open_documents


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    files = prepared(tmp_path_factory.mktemp("report"), pytestconfig.getoption("--seed"))
    succeed(
        "train",
        files.train,
        "-o",
        files.folder / "other.safetensors",
        *FIXED,
        "--rank",
        1,
        "--set",
        "kernel.features=9",
    )
    return files


def test_a_page_is_written_with_the_names_of_labels_and_features(files, tmp_path):
    ran = succeed("report", files.model, files.test, "-o", tmp_path / "r.html", "--bootstraps", 20)
    html = (tmp_path / "r.html").read_text("utf-8")
    assert "r.html: " in ran.err
    assert ran.out == ""
    for name in ("model.safetensors", "test.txt", "label2", "word3"):
        assert name in html


def test_json_has_the_numbers_of_evaluate_and_of_the_figures(files, tmp_path):
    page = tmp_path / "r.html"
    found = succeed("report", files.model, files.test, "-o", page, "-q", "--json", "--bootstraps", 20).json
    expected = succeed("evaluate", files.model, files.test, "--json", "--bootstraps", 20).json
    assert {key: found[key] for key in expected} == expected
    assert len(found["labels"]) == 5
    assert sum(group["labels"] for group in found["by_frequency"]) == 5
    assert len(found["thresholds"]["f1"]) == len(found["thresholds"]["thresholds"]) == 99
    assert 0 <= found["ece_pairs"] <= 1


def test_the_table_of_labels_is_written_as_csv_and_overwrites_nothing(files, tmp_path):
    table = tmp_path / "labels.csv"
    given = ["report", files.model, files.test, "-o", tmp_path / "r.html", "--bootstraps", 0, "--labels-csv", table]
    found = succeed(*given, "--json").json
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [row["label"] for row in found["labels"]] == files.tested.label_names
    assert [float(row["average_probability"]) for row in rows] == [
        row["average_probability"] for row in found["labels"]
    ]
    ran = run(*given)
    assert ran.code == 1
    assert "labels.csv" in ran.err
    succeed(*given, "--force")


def test_texts_of_a_file_are_on_the_page_with_the_numbers_of_evaluate(tmp_path, monkeypatch):
    pairs = [
        ("numpy arrays & sums", ["array"]),
        ("open a socket", ["net"]),
        ("sum an array of sockets", ["array", "net"]),
    ]
    lines = [json.dumps({"text": f"{text} number {i}", "labels": labels}) for i in range(10) for text, labels in pairs]
    (tmp_path / "d.jsonl").write_text("\n".join(lines))
    model = tmp_path / "m.safetensors"
    words = ("--char-ngrams", "none", "--set", "kernel.features=20")
    succeed("train", tmp_path / "d.jsonl", "-o", model, "-q", "--effort", "quick", *words)
    read, given = [], ("--bootstraps", 5, "--json", "-q")
    monkeypatch.setattr(
        documents, "open_documents", lambda *args, **how: read.append(args) or open_documents(*args, **how)
    )
    found = succeed("report", model, tmp_path / "d.jsonl", "-o", tmp_path / "r.html", *given).json
    assert len(read) == 1  # the file is parsed once
    expected = succeed("evaluate", model, tmp_path / "d.jsonl", *given).json
    assert {key: found[key] for key in expected} == expected
    html = (tmp_path / "r.html").read_text("utf-8")
    assert "number 3" in html or "number 7" in html or "number 1" in html
    found = succeed("explain", model, "--text", "a socket", "-k", 1, "--json").json["labels"][0]
    assert found["name"] == "net"
    assert found["reasons"][0]["name"] == "socket"
    assert run("explain", model, tmp_path / "d.jsonl", "--row", 0).code == 2
    same = succeed("compare", model, model, tmp_path / "d.jsonl", "--json", "--bootstraps", 5).json
    assert same["metrics"]["p@1"]["difference"]["value"] == 0


def test_compare_shows_differences_and_writes_a_page(files, tmp_path):
    given = [files.model, files.folder / "other.safetensors", files.test, "--bootstraps", 30]
    found = succeed("compare", *given, "--json").json
    models = [smoothlink.load(path) for path in given[:2]]
    for model in models:
        del model.feature_names_in_
    values = [model.evaluate(files.tested.X, files.tested.Y, bootstraps=0).metrics["p@1"].value for model in models]
    assert found["metrics"]["p@1"]["difference"]["value"] == pytest.approx(values[0] - values[1])
    assert sum(found["top_label_right"].values()) == found["rows"] == 30
    ran = succeed("compare", *given, "-o", tmp_path / "c.html")
    assert f"{values[0] - values[1]:+.4f}" in next(line for line in ran.out.splitlines() if line.split()[:1] == ["p@1"])
    assert "Top label right: both" in ran.out
    assert "other" in (tmp_path / "c.html").read_text("utf-8")


def test_models_of_one_name_are_told_apart(files, tmp_path):
    (tmp_path / files.model.name).write_bytes(files.model.read_bytes())
    found = succeed("compare", files.model, tmp_path / files.model.name, files.test, "--json", "--bootstraps", 0).json
    assert found["first"] == f"{files.model} (A)"
    assert found["metrics"]["p@1"]["difference"]["low"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "MODEL", "TEST", "-o", "nowhere/r.html"], "the folder"),
        (["report", "MODEL", "TEST", "-o", "TEST"], "written over what is read"),
        (["report", "MODEL", "missing.txt"], "missing.txt"),
        (["compare", "MODEL", "TEST", "TEST"], "test.txt"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(files, words, said):
    places = {"MODEL": files.model, "TEST": files.test}
    ran = run(*(places.get(word, word) for word in words))
    assert ran.code == 1
    assert said in ran.err
