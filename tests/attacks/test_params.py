"""Settings in a file, for `train --params`, set nothing but the model, and are refused in words."""

import json
import os

import pytest
from commands import labelled, run
from hostile import limited

from smoothlink.data.read import write


@pytest.fixture
def train(tmp_path, rng):
    """`train --params` with a file of this content."""
    write(labelled(rng, 40), tmp_path / "a.txt")

    def train(content):
        path = tmp_path / "p.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return run("train", tmp_path / "a.txt", "-o", tmp_path / "m.safetensors", "--effort", "quick", "--params", path)

    return train


@pytest.mark.parametrize(
    "params", [{"checkpoint": "/tmp/elsewhere"}, {"memory": "1K"}, {"device": "cuda:7"}, {"verbose": True}], ids=str
)
def test_a_file_of_settings_does_not_say_what_is_written_where_and_on_which_machine(train, tmp_path, params):
    ran = train({"best": {"p@1": {"params": {"ridge": 1.0} | params}}})
    assert ran.code == 1
    assert f"sets {next(iter(params))}, which is no result of a search" in ran.err
    assert not (tmp_path / "m.safetensors").exists()


NOT_SETTINGS = [
    *("[" * 100_000, "{}", "[]", "null", "", "\0", '{"best": []}', '{"best": {"a": 1}}'),
    *('{"best": {"a": {"params": 1}}}', '{"best": {"a": {"params": {}}, "b": {"params": {}}}}'),
]
HOSTILE = [
    *({"ridge": "much"}, {"ridge": float("nan")}, {"ridge": -1}, {"rank": "\x1b[2J"}, {"kernel": {"a": 1}}),
    *({"kernel": "os.system"}, {"kernel": ["gaussian"]}, {"kernel.features": 1e300}, {"kernel.features": -5}, {"": 1}),
    *({"loss": None}, {"loss": "logistic", "loss.passes": "x"}, {"trees": "yes"}, {"class_weight": {"0": "a"}}),
    *({"embedding": "per_label", "embedding.classifier": "sklearn.svm.SVC"}, {"random_state": "now"}, {"holdout": 7}),
    *({"kernel.": 1}, {"a.b.c": 1}, {"__class__": 1}, {"kernel.__init__": 1}, {"kernel.features": [1]}, {"rigde": 1}),
]
FILES = [*NOT_SETTINGS, *({"best": {"a": {"params": params}}} for params in HOSTILE)]


@pytest.mark.parametrize("content", FILES, ids=range(len(FILES)))
def test_settings_that_mean_nothing_are_refused_in_words(train, tmp_path, content):
    ran = train(content)
    assert ran.code in (1, 2)
    assert "bug in smoothlink" not in ran.err
    assert "Traceback" not in ran.err
    assert "\x1b[2J" not in ran.err
    assert not (tmp_path / "m.safetensors").exists()


def test_settings_from_a_pipe_are_not_waited_for(tmp_path):
    (tmp_path / "a.txt").write_text("1 1 1\n0 0:1\n")
    os.mkfifo(tmp_path / "p.json")
    with limited():
        ran = run("train", tmp_path / "a.txt", "-o", tmp_path / "m", "--params", tmp_path / "p.json")
    assert "is a pipe or a device" in ran.err
