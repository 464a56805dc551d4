"""`smoothlink update`, `forget`, `add-labels` and `refresh`."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from commands import FIXED, run
from small import WORDS, words

from smoothlink import load
from smoothlink.data.read import Data, write


@pytest.fixture
def texts(rng, tmp_path):
    kinds = [["fruit", "metal", "colour"][j] for j in rng.integers(0, 3, 60)]
    rows = [{"text": " ".join(rng.choice(WORDS[kind].split(), 4)), "labels": [kind]} for kind in kinds]
    rows[0] = {"text": "okapi apple tapir", "labels": ["fruit", "rare"]}
    files = {"train": rows[:50], "new": [*rows[50:], {"text": "iron zinc", "labels": ["late"]}], "first": rows[:1]}
    for name, part in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    given = ["--updatable", "--task", "multilabel", *FIXED]
    assert run("train", tmp_path / "train.jsonl", "-o", tmp_path / "m.safetensors", *given).code == 0
    return tmp_path


def test_texts_come_and_go_by_command(texts):
    model = texts / "m.safetensors"
    ran = run("update", model, texts / "new.jsonl", "--json")
    assert ran.code == 0
    assert (ran.json["rows_added"], ran.json["labels_added"], ran.json["rows"]) == (11, ["late"], 61)
    ran = run("forget", model, texts / "first.jsonl")
    assert ran.code == 0
    assert "1 row removed" in ran.err
    assert "embedding" in ran.err
    assert "rare" not in load(model).classes_
    (texts / "names.txt").write_text("one\ntwo\n")
    assert run("add-labels", model, texts / "names.txt").code == 0
    assert load(model).classes_[-2:].tolist() == ["one", "two"]
    assert "sums" in run("info", model).out


def test_a_row_that_is_not_there_is_one_message_and_the_files_stay(texts):
    before = {path.name: path.read_bytes() for path in texts.glob("*.safetensors")}
    (texts / "never.jsonl").write_text(json.dumps({"text": "zinc zinc", "labels": ["fruit"]}) + "\n")
    ran = run("forget", texts / "m.safetensors", texts / "never.jsonl")
    assert ran.code != 0
    assert "Nothing was changed" in ran.err
    assert {path.name: path.read_bytes() for path in texts.glob("*.safetensors")} == before


def test_vectors_come_by_command_and_unknown_features_are_left_out_with_a_note(rng, tmp_path):
    X, Y = words(rng, n=100)
    data = Data(sp.csr_array(X), sp.csr_array(Y.astype(np.float32)))
    write(data._replace(X=data.X[:80], Y=data.Y[:80]), tmp_path / "train.txt")
    wide = sp.csr_array(sp.hstack([data.X[80:], np.ones((20, 1))]))
    write(data._replace(X=wide, Y=sp.csr_array(sp.hstack([data.Y[80:], np.ones((20, 1))]))), tmp_path / "new.txt")
    model = tmp_path / "m.safetensors"
    assert run("train", tmp_path / "train.txt", "-o", model, "--updatable", *FIXED).code == 0
    ran = run("update", model, tmp_path / "new.txt")
    assert ran.code == 0, ran.err
    assert "1 feature unknown to the model" in ran.err
    assert load(model).model_.counts[6] == 20


def test_a_model_without_sums_is_refused_with_what_to_type(rng, tmp_path):
    X, Y = words(rng)
    write(Data(sp.csr_array(X), sp.csr_array(Y.astype(np.float32))), tmp_path / "train.txt")
    assert run("train", tmp_path / "train.txt", "-o", tmp_path / "m.safetensors", *FIXED).code == 0
    ran = run("update", tmp_path / "m.safetensors", tmp_path / "train.txt")
    assert ran.code != 0
    assert "--updatable" in ran.err


def test_a_refresh_reads_files_as_those_of_the_training_and_replaces_the_model_at_once(texts):
    model = texts / "m.safetensors"
    assert run("update", model, texts / "new.jsonl").code == 0
    generation = next(texts.glob("m-sums-*")).name
    ran = run("refresh", model, texts / "train.jsonl", texts / "new.jsonl", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["rows"], ran.json["rows_new"], ran.json["rows_gone"]) == (61, 0, 0)
    assert [path.name != generation for path in texts.glob("m-sums-*")] == [True]
    assert load(model).summary_["data"] == ["train.jsonl", "new.jsonl"]
    ran = run("refresh", model, texts / "train.jsonl")
    assert "11 that it had are not among them" in ran.err
    assert "late" in load(model).classes_  # without rows
    assert run("forget", model, texts / "first.jsonl").code == 0  # it can still be updated


def test_a_refresh_that_fails_leaves_all_files(texts):
    model = texts / "m.safetensors"
    before = {path.name: path.read_bytes() for path in texts.iterdir()}
    (texts / "other.jsonl").write_text(json.dumps({"body": "iron", "labels": ["metal"]}) + "\n")
    (texts / "none.jsonl").write_text("")
    (texts / "empty.jsonl").write_text(json.dumps({"text": "", "labels": ["metal"]}) + "\n")
    (texts / "vectors.txt").write_text("1 3 2\n0 1:1.0\n")
    for name, sentence in (
        ("other.jsonl", "no column text"),
        ("none.jsonl", "none.jsonl"),
        ("empty.jsonl", "no document with text"),
        ("vectors.txt", "feature vectors"),
    ):
        ran = run("refresh", model, texts / name)
        assert ran.code != 0
        assert sentence in ran.err
        assert "Traceback" not in ran.err
    after = {path.name: path.read_bytes() for path in texts.iterdir()}
    assert {name: after[name] for name in before} == before


def test_vectors_are_refreshed_with_the_columns_of_the_model(rng, tmp_path):
    X, Y = words(rng, n=100)
    data = Data(sp.csr_array(X), sp.csr_array(Y.astype(np.float32)))
    write(data._replace(X=data.X[:80], Y=data.Y[:80]), tmp_path / "train.txt")
    write(data._replace(X=data.X[80:], Y=data.Y[80:]), tmp_path / "new.txt")
    wide = sp.csr_array(sp.hstack([data.X[80:], np.ones((20, 1))]))
    write(data._replace(X=wide, Y=data.Y[80:]), tmp_path / "wide.txt")
    model = tmp_path / "m.safetensors"
    assert run("train", tmp_path / "train.txt", "-o", model, *FIXED).code == 0
    ran = run("refresh", model, tmp_path / "train.txt", tmp_path / "new.txt")
    assert ran.code == 0, ran.err
    assert "to 100 rows; it had 80" in ran.err
    np.testing.assert_array_equal(load(model).model_.counts, Y.sum(axis=0))
    ran = run("refresh", model, tmp_path / "wide.txt", "--strict")
    assert ran.code != 0
    assert "1 feature unknown to the model" in ran.err
    assert load(model).model_.total == 100
