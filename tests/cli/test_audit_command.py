"""`smoothlink audit`: files are read as `train` reads them; pages, tables and JSON say the same."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from commands import run, succeed

from smoothlink.data.read import Data, write

WORDS = {"sea": "wave salt ship harbour", "hill": "rock summit snow path", "town": "street tram shop square"}


def docs(path, change=None):
    rng, lines = np.random.default_rng(0), []
    for i in range(60):
        name = list(WORDS)[i % 3]
        text = " ".join(rng.choice(WORDS[name].split(), 5))
        lines.append({"id": f"d{i}", "text": text, "labels": [name] if i != 4 else ["town"], **(change or {})})
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_json_page_and_table_have_the_planted_mistake_first(tmp_path):
    path, page, table = docs(tmp_path / "d.jsonl"), tmp_path / "a.html", tmp_path / "a.csv"
    found = succeed("audit", path, "--id", "id", "--limit", 2, "-o", page, "--csv", table, "--json").json
    assert found["rows"] == 60
    first = {one["finding"]: one for one in reversed(found["findings"])}
    assert (first["wrong"]["id"], first["wrong"]["label"]) == ("d4", "town")
    assert (first["missing"]["id"], first["missing"]["label"]) == ("d4", "hill")
    assert "d4" in page.read_text()
    assert table.read_text().splitlines()[1].startswith("d4,")
    succeed("train", table, "--text", "text", "--labels", "labels", "-o", tmp_path / "m", "--effort", "quick")


def test_vectors_are_audited_by_the_names_of_their_labels(tmp_path):
    rng = np.random.default_rng(0)
    Y = sp.csr_array(np.eye(3, dtype=np.float32)[np.arange(60) % 3])
    X = sp.csr_array((Y.toarray() @ np.eye(3, 9) + 0.1 * rng.random((60, 9))).astype(np.float32))
    Y = Y.tolil()
    Y[4] = [0, 0, 1]
    write(Data(X, sp.csr_array(Y), ["a", "b", "c"]), tmp_path / "train.txt")
    ran = succeed("audit", tmp_path / "train.txt", "--limit", 1, "--json")
    assert [(one["row"], one["label"]) for one in ran.json["findings"]] == [(4, "c"), (4, "b")]
    assert "Probably missing" in succeed("audit", tmp_path / "train.txt").out


def test_a_model_that_was_trained_on_the_rows_is_said_to_be(tmp_path):
    path, model = docs(tmp_path / "d.jsonl"), tmp_path / "m.safetensors"
    succeed("train", path, "-o", model, "--effort", "quick")
    ran = succeed("audit", path, "--model", model, "-o", tmp_path / "a.html")
    assert "trained on" in ran.err
    assert "Leave --model out" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--expected", "1"], "--expected"),
        (["--id", "key"], "no column key"),
        (["--labels", "tags"], "no column tags"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_options_that_mean_nothing_are_refused_in_a_sentence(tmp_path, words, said):
    ran = run("audit", docs(tmp_path / "d.jsonl"), *words)
    assert ran.code != 0
    assert said in ran.err


def test_data_without_labels_and_with_one_label_are_refused(tmp_path):
    none = run("audit", docs(tmp_path / "n.jsonl", {"labels": []}))
    assert none.code != 0
    assert "no row has a label" in none.err
    one = run("audit", docs(tmp_path / "o.jsonl", {"labels": ["a"]}))
    assert one.code != 0
    assert "All labels are the same" in one.err


def test_foreign_files_and_inputs_are_not_overwritten(tmp_path):
    path, other = docs(tmp_path / "d.jsonl"), tmp_path / "other.html"
    other.write_text("mine")
    for words in (["-o", other], ["--csv", other], ["-o", path]):
        assert run("audit", path, *words).code != 0
    assert other.read_text() == "mine"
