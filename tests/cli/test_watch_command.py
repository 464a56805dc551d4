"""`smoothlink watch`: what it prints, its exit code, and the file in which it goes on."""

import json

import pytest
from commands import run, succeed
from small import documents

import smoothlink

SETTINGS = {"rank": 3, "ridge": 1.0, "final_ridge": 0.1, "loss": "squared", "char_ngrams": None, "min_df": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    texts, labels = documents(300)
    smoothlink.TextSmoothLink(**SETTINGS).fit(texts[:200], labels[:200]).save(folder / "model.safetensors")
    for name, rows in (
        ("monday", texts[200:250]),
        ("tuesday", texts[250:]),
        ("strange", [f"wolfram gneiss {text}" for text in texts[200:]]),
        ("nothing", []),
    ):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in rows)
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


def test_json_is_the_status_of_a_watch(folder):
    found = succeed("watch", folder / "model.safetensors", folder / "monday.jsonl", "--json", "--text", "text").json
    model = smoothlink.load(folder / "model.safetensors")
    texts = [json.loads(line)["text"] for line in (folder / "monday.jsonl").read_text().splitlines()]
    expected = smoothlink.Watch(model).add(texts)
    for name, value in expected._asdict().items():
        if name == "labels":
            assert found[name] == [shift._asdict() for shift in value]
        else:
            assert found[name] == (value if value == value else None)


def test_the_table_has_the_numbers_now_and_at_training(folder):
    ran = succeed("watch", folder / "model.safetensors", folder / "monday.jsonl", "--text", "text")
    for words in ("50 rows", "expected P@1", "expected micro-F1", "unknown words", "median length", "No alarm (1 %"):
        assert words in ran.out


def test_an_alarm_is_exit_code_3_and_says_why(folder):
    files = [folder / f"{name}.jsonl" for name in ("monday", "tuesday", "strange")]
    ran = run("watch", folder / "model.safetensors", *files, "--text", "text")
    assert ran.code == 3
    assert "Alarm" in ran.out
    assert "share of unknown words" in " ".join(ran.out.split())


def test_a_state_makes_two_calls_one_watch(folder, tmp_path):
    state, model, given = tmp_path / "watch.json", folder / "model.safetensors", ("--json", "--text", "text")
    succeed("watch", model, folder / "monday.jsonl", "--state", state, *given)
    twice = succeed("watch", model, folder / "tuesday.jsonl", "--state", state, *given).json
    once = succeed("watch", model, folder / "monday.jsonl", folder / "tuesday.jsonl", *given).json
    assert twice == once
    assert twice["rows"] == 100


def test_an_alarm_stays_in_the_state(folder, tmp_path):
    state, model = tmp_path / "watch.json", folder / "model.safetensors"
    for name, code in (("monday", 0), ("tuesday", 0), ("strange", 3), ("monday", 3)):
        assert run("watch", model, folder / f"{name}.jsonl", "--state", state, "--text", "text").code == code


def test_bad_input_is_one_sentence_and_leaves_the_state(folder, tmp_path):
    state, model = tmp_path / "watch.json", folder / "model.safetensors"
    succeed("watch", model, folder / "monday.jsonl", "--state", state, "--text", "text")
    before = state.read_bytes()
    ran = run("watch", model, folder / "nothing.jsonl", "--state", state, "--text", "text")
    assert ran.code == 1
    assert "nothing.jsonl" in ran.err
    ran = run("watch", model, folder / "monday.jsonl", "--state", state, "--false-alarms", "0.1", "--text", "text")
    assert ran.code == 2
    assert "goes on with what it began with" in " ".join(ran.err.replace("│", " ").split())
    assert state.read_bytes() == before
    state.write_bytes(before[:-9])
    ran = run("watch", model, folder / "monday.jsonl", "--state", state, "--text", "text")
    assert ran.code == 1
    assert "cut short" in ran.err
    other = tmp_path / "notes.json"
    other.write_text("{}")
    ran = run("watch", model, folder / "monday.jsonl", "--state", other, "--text", "text")
    assert ran.code == 1
    assert "not the state of a watch" in ran.err
    assert other.read_text() == "{}"


def test_a_model_without_held_out_rows_says_how_to_get_a_reference(folder, tmp_path):
    texts, labels = documents(100)
    smoothlink.TextSmoothLink(**SETTINGS, calibrate=False).fit(texts, labels).save(tmp_path / "old.safetensors")
    ran = run("watch", tmp_path / "old.safetensors", folder / "monday.jsonl", "--text", "text")
    assert ran.code == 1
    assert "--reference FILE" in ran.err
    found = run(
        *("watch", tmp_path / "old.safetensors", folder / "monday.jsonl", "--text", "text", "--json"),
        *("--reference", folder / "tuesday.jsonl"),
    )
    assert found.code == 0, found.err
    assert found.json["p1_before"] is None


def test_vectors_for_a_model_of_texts_are_an_error(folder, tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("1 3 2\n0 0:1\n")
    ran = run("watch", folder / "model.safetensors", path, "--format", "xmc")
    assert ran.code == 1
    assert "holds feature vectors, and the model was trained on texts" in ran.err
