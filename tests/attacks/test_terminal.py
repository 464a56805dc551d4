"""Names in files do not steer the terminal: controls are shown as escapes."""

import contextlib
import io
import json

import pytest
from commands import run, succeed
from small import documents

from smoothlink import TextSmoothLink
from smoothlink.cli import main
from smoothlink.errors import printable

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e"
CONTROLS = [c for c in EVIL if not c.isalnum() and c not in "]; ["]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def assert_clean(text):
    assert not [c for c in CONTROLS if c in text]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table and a model whose labels, columns and words hold controls."""
    made = tmp_path_factory.mktemp("terminal")
    texts, labels = documents(60)
    named = [[f"{name}{EVIL}" for name in row] or ["none"] for row in labels]
    rows = [{"text": f"{text} {EVIL}", "labels": row} for text, row in zip(texts, named, strict=True)]
    (made / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (made / "b.jsonl").write_text(json.dumps({f"text{EVIL}": "a b c d", f"tags{EVIL}": ["a"]}) + "\n")
    TextSmoothLink(effort="quick").fit([row["text"] for row in rows], named).save(made / "m.safetensors")
    return made


@pytest.mark.parametrize(
    "command",
    [
        *(["info", "a.jsonl"], ["info", "m.safetensors"], ["info", "m.safetensors", "--card"]),
        *(["info", "a.jsonl", "--json"], ["info", "m.safetensors", "--json"], ["check", "a.jsonl"]),
        *(["explain", "m.safetensors", "--text", f"iron {EVIL}"], ["evaluate", "m.safetensors", "a.jsonl"]),
        *(["split", "a.jsonl"], ["train", "a.jsonl", "-o", "n.safetensors", "--effort", "quick", "--force"]),
    ],
    ids=lambda command: " ".join(command[:2] + command[3:])[:40].encode("ascii", "ignore").decode(),
)
def test_names_are_shown_without_controls(folder, monkeypatch, command):
    monkeypatch.chdir(folder)
    ran = succeed(*command)
    assert_clean(ran.out)
    assert_clean(ran.err)


def test_names_in_messages_are_shown_without_controls(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for command in (["info", "b.jsonl"], ["info", f"no{EVIL}.txt"], ["predict", "m.safetensors", "b.jsonl"]):
        ran = run(*command)
        assert ran.code != 0
        assert_clean(ran.out + ran.err)
    assert r"\x1b" in ran.err
    (folder / "p.json").write_text(json.dumps({"best": {f"a{EVIL}": {"params": {}}, "b": {"params": {}}}}))
    ran = run("train", "a.jsonl", "-o", "n.safetensors", "--params", "p.json")
    assert_clean(ran.out + ran.err)


def test_json_with_controls_as_escapes_is_the_same_json(folder, monkeypatch):
    monkeypatch.chdir(folder)
    found = json.loads(succeed("info", "a.jsonl", "--json").out)
    assert any(EVIL in entry["label"] for entry in found["most_frequent_labels"])


def test_predictions_hold_the_names_as_they_are_and_show_no_controls_on_a_terminal(folder, monkeypatch):
    monkeypatch.chdir(folder)
    command = ["predict", "m.safetensors", "a.jsonl", "-k", "1", "--output-format", "tsv"]
    assert EVIL in succeed(*command).out
    with contextlib.redirect_stdout(Terminal()) as out, pytest.raises(SystemExit):
        main([*command, "--quiet"])
    assert r"\x1b" in out.getvalue()
    assert_clean(out.getvalue())


def test_line_ends_and_tabs_and_other_letters_stay():
    text = "a\tb\nc é 漢 \U0001f600 \u00a0 [bold]"
    assert printable(text) == text
    assert printable("\x1b[31m\x9b\u202e") == r"\x1b[31m\x9b\u202e"
