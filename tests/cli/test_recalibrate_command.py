"""Guarantees on the command line: `train --conformal`, `predict --guarantee-...` and `recalibrate`."""

import json

import pytest
from commands import run, succeed
from small import documents

import smoothlink
from smoothlink.conformal import Conformal


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Labelled texts to train on and others, and a model with conformal rows."""
    folder = tmp_path_factory.mktemp("guarantees")
    texts, labels = documents(n=700)
    for name, part in (("train", slice(0, 500)), ("new", slice(500, 700))):
        rows = [
            {"text": f"{text} {i}", "labels": row}
            for i, (text, row) in enumerate(zip(texts[part], labels[part], strict=True))
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    succeed(
        "train", folder / "train.jsonl", "-o", folder / "model.safetensors", "--effort", "quick", "--conformal", 0.4
    )
    return folder


def rows(ran):
    return [json.loads(line) for line in ran.out.splitlines()]


def texts_of(path):
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("promise", ["coverage", "recall"])
def test_sets_are_those_of_predict_set(files, tmp_path, promise):
    model = smoothlink.load(files / "model.safetensors")
    expected = [sorted(row) for row in model.predict_set(texts_of(files / "new.jsonl"), **{promise: 0.9})]
    given = files / "model.safetensors", files / "new.jsonl", f"--guarantee-{promise}", 0.9
    found = rows(succeed("predict", *given))
    assert [sorted(one["label"] for one in row["labels"]) for row in found] == expected
    succeed("predict", *given, "--output-folder", tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert lines == found


def test_released_rows_and_the_queue_are_those_of_review(files):
    model = smoothlink.load(files / "model.safetensors")
    texts = texts_of(files / "new.jsonl")
    review = model.review(texts, precision=0.9)
    found = rows(succeed("predict", files / "model.safetensors", files / "new.jsonl", "--guarantee-precision", 0.9))
    assert [row["released"] for row in found] == review.released.tolist()
    queue = sorted((row for row in found if row["review"] is not None), key=lambda row: row["review"])
    assert [row["row"] for row in queue] == review.queue.tolist()
    assert [row["review"] for row in queue] == list(range(1, len(queue) + 1))
    assert [sorted(one["label"] for one in row["labels"]) for row in found] == [sorted(x) for x in model.predict(texts)]
    assert 0 < len(queue) < len(found)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--guarantee-coverage", 1], "above 0 and below 1"),
        (["--guarantee-coverage", 0.9, "--guarantee-recall", 0.9], "--guarantee-recall does not go with it"),
        (["--guarantee-recall", 0.9, "-k", 3], "--top does not go with it"),
        (["--guarantee-recall", 0.9, "--only", "fruit"], "--only does not go with it"),
        (["--guarantee-coverage", 0.9999], "needs 9,999 conformal rows"),
        (["--guarantee-precision", 0.9, "--long"], "Leave --long out"),
        (["--guarantee-precision", 0.9, "--output-format", "xmc"], "--guarantee-precision means nothing"),
    ],
)
def test_what_cannot_be_promised_is_said_before_anything_is_read(files, options, reason):
    ran = run("predict", files / "model.safetensors", files / "new.jsonl", *options)
    assert ran.code
    assert reason in " ".join(ran.err.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split())


def test_new_rows_renew_a_guarantee(files, tmp_path):
    model = smoothlink.load(files / "model.safetensors")
    model.classifier_.conformal_ = Conformal.voided("rows were added.")
    model.save(path := tmp_path / "model.safetensors")
    given = "predict", path, files / "new.jsonl", "--guarantee-coverage", 0.9
    assert "void: rows were added." in run(*given).err
    assert "guarantees from 200 rows" in succeed("recalibrate", path, files / "new.jsonl").err
    succeed(*given)
    assert smoothlink.load(path).conformal_.n == 200
    said = succeed("recalibrate", path, files / "train.jsonl", "-o", tmp_path / "other.safetensors").err
    assert "are among those that the model was trained on" in said
