"""`smoothlink check`: each thing that is wrong in a file is found, with examples; in a clean file nothing is."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from commands import run, succeed

from smoothlink.data.read import Data, write

WORDS = [
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda",
    "red orange yellow green blue indigo violet black white grey brown",
    "one two three four five six seven eight nine ten eleven",
    "north east south west up down left right front back middle",
]


def lines(path, rows):
    path.write_text("\n".join(json.dumps(dict(zip(("text", "labels"), row, strict=True))) for row in rows))
    return path


def clean():
    return [(text, ["a", "b"] if i % 2 else ["c"]) for i, text in enumerate(WORDS)]


def kinds(*words):
    return {finding["kind"]: finding for finding in succeed("check", *words, "--json").json["findings"]}


def test_nothing_is_found_in_clean_data(tmp_path):
    path = lines(tmp_path / "d.jsonl", clean() + [(f"{i} words of another kind {i * 7}", ["a", "c"]) for i in range(9)])
    ran = succeed("check", path, "--strict")
    assert "Nothing looks wrong." in ran.out
    assert succeed("check", path, "--json").json == {
        "data": {"path": str(path), "rows": 13, "labels": 3},
        "findings": [],
    }


@pytest.mark.parametrize(
    ("kind", "more", "cases", "example"),
    [
        ("spellings", [("x y", ["New York", "a"]), ("y z", ["new-york", "a"])], 2, "'New York' (1 row)"),
        ("spellings", [("x y", ["e-mail", "X", "X++", "1.2", "12"]), ("y z", ["Email"])], 2, "'e-mail'"),
        ("without labels", [("x y", []), ("z", ["a"])], 1, "row 4 'x y'"),
        ("empty", [(" ", ["a"])], 1, "row 4"),
        ("copies", [("x  Y", ["a"]), ("X y", ["a"]), ("x y", ["a"])], 2, "row 4 and row 5 'x Y'"),
        ("conflicting copies", [("x y", ["a", "b"]), ("x y", ["a"])], 2, "row 4 and row 5 'x y'; differ in 'b'"),
        ("near copies", [(f"{WORDS[0]} {WORDS[1]} more", ["a"]), (f"{WORDS[0]} {WORDS[1]} less", ["a"])], 2, "alike"),
        ("labels with one row", [("x y", ["once"])], 1, "'once'"),
        ("labels in labels", [(f"x {i}", [f"a; {v}", "a"]) for i, v in enumerate("bcbcdd")], 3, "'a; b'"),
        ("languages", [(f"der Hund und die Katze sind nicht das Haus {i}", ["a"]) for i in range(4)], 4, "row 9"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_found_and_shown(tmp_path, kind, more, cases, example):
    rows = clean()
    if kind == "languages":
        rows += [(f"this is the text of a row that was in English {i}", ["c"]) for i in range(5)]
    path = lines(tmp_path / "d.jsonl", rows + more)
    found = kinds(path)[kind]
    assert found["cases"] == cases
    assert example in " ".join(found["examples"])
    ran = run("check", path, "--strict")
    assert ran.code == 1
    assert found["remedy"].split(".")[0] in " ".join(ran.out.split())
    assert " ".join(found["examples"][0].split()) in " ".join(ran.out.split())


def test_a_separator_that_is_not_clear_is_a_finding_and_no_error(tmp_path):
    table = tmp_path / "d.csv"
    table.write_text('text,tags\none,"a, b"\ntwo,c\nthree,d\nfour,e\n')
    assert run("train", table, "--labels", "tags", "-o", tmp_path / "m.safetensors").code == 1
    found = kinds(table, "--labels", "tags")["separator"]
    assert found["examples"] == ["'a, b'"]
    assert '--label-separator ","' in found["remedy"]
    assert "separator" not in kinds(table, "--labels", "tags", "--label-separator", ",")


def test_labels_are_cut_as_training_cuts_them(tmp_path):
    table = tmp_path / "d.csv"
    table.write_text("text,tags\n" + "".join(f"{text},a|b\n{text} x,b|c\n{text} y,c|a\n" for text in WORDS))
    ran = succeed("check", table, "--labels", "tags")
    assert "12 documents, 3 labels, 2.0 per document" in " ".join(ran.out.split())
    assert "separated by '|'" in ran.err


def test_copies_and_labels_across_train_and_test_are_found(tmp_path):
    rows = [*clean(), (f"{WORDS[0]} {WORDS[1]} more", ["a"])]
    train = lines(tmp_path / "train.jsonl", rows)
    near = f"{WORDS[0]} {WORDS[1]} less"
    test = lines(tmp_path / "test.jsonl", [(rows[0][0].upper(), ["c"]), (near, ["new"]), ("all else", ["a"])])
    found = kinds(train, test)
    assert found["copies in test"]["cases"] == found["near copies in test"]["cases"] == 1
    assert found["copies in test"]["examples"][0].startswith("row 0 ")
    assert "row 1 " in found["near copies in test"]["examples"][0]
    assert (found["labels only in test"]["cases"], found["labels only in test"]["examples"]) == (1, ["'new'"])
    assert not {"copies in test", "near copies in test", "labels only in test"} & kinds(train).keys()


def test_vectors_are_checked_as_far_as_it_makes_sense(tmp_path, rng):
    X = sp.csr_array(rng.random((8, 5)).astype(np.float32))
    X = sp.csr_array(sp.vstack([X, X[[0]], X[[1]], sp.csr_array((1, 5), dtype=np.float32)]))
    Y = np.tile([[1, 0, 0], [1, 1, 0]], (6, 1))[:11].astype(np.float32)
    Y[3], Y[8], Y[9] = 0, Y[0], [0, 0, 1]
    write(Data(X, sp.csr_array(Y), ["a", "A", "c"]), tmp_path / "d.npz")
    write(Data(X[[2, 4]], sp.csr_array(Y[[2, 4]]), ["a", "A", "c"]), tmp_path / "t.npz")
    found = kinds(tmp_path / "d.npz", tmp_path / "t.npz")
    assert {kind: finding["cases"] for kind, finding in found.items()} == {
        "spellings": 2,
        "without labels": 1,
        "empty": 1,
        "conflicting copies": 2,
        "copies": 1,
        "copies in test": 2,
        "labels with one row": 1,
    }
    assert found["conflicting copies"]["examples"] == ["row 1 and row 9; differ in 'a', 'A', 'c'"]
    assert found["empty"]["examples"] == ["row 10"]


@pytest.mark.parametrize("words", [["missing.csv"], ["MODEL"]])
def test_what_cannot_be_read_is_said(tmp_path, words):
    (tmp_path / "MODEL").write_text("no data at all\n")
    ran = run("check", *(tmp_path / word for word in words))
    assert ran.code == 1
    assert words[0] in ran.err
    assert "Traceback" not in ran.err


def test_a_share_of_all_is_100_percent(tmp_path):
    path = lines(tmp_path / "d.jsonl", [(text, [f"label {i}"]) for i, text in enumerate(WORDS)])
    assert "Labels with one document: 4 of 4 (100 %)" in succeed("check", path).out
