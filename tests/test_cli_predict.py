"""`smoothlink predict`: the model's own answers, in three spellings, whatever the columns of the file."""

import csv
import gzip
import io
import json
import os

import numpy as np
import pytest
import scipy.sparse as sp
from commands import FIXED, left, one_label_each, prepared, run, succeed

import smoothlink
from smoothlink.data import predictions as answers
from smoothlink.data.read import Data, write
from smoothlink.text.tables import kind_of, read_table


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    return prepared(tmp_path_factory.mktemp("predict"), pytestconfig.getoption("--seed"))


def bare(model):
    """The same model without feature names, so that scikit-learn does not miss them in arrays."""
    del model.feature_names_in_
    return model


def lines(ran):
    return [json.loads(line) for line in ran.out.splitlines()]


def sets(ran, names):
    """The label sets of JSON lines as a dense 0/1 array."""
    found = [{entry["label"] for entry in row["labels"]} for row in lines(ran)]
    return np.array([[name in row for name in names] for row in found])


def test_json_lines_are_the_ranking_of_the_model(files):
    model = bare(smoothlink.load(files.model))
    best = model.predict_topk(files.tested.X, k=3)
    said = lines(succeed("predict", files.model, files.test, "-k", 3))
    assert [row["row"] for row in said] == list(range(30))
    names = [[entry["label"] for entry in row["labels"]] for row in said]
    assert names == np.array(files.tested.label_names)[best.indices].reshape(30, 3).tolist()
    chances = [entry["probability"] for row in said for entry in row["labels"]]
    np.testing.assert_allclose(chances, best.data, atol=1e-6)


def test_five_labels_per_row_where_nothing_else_is_asked_for(files):
    assert {len(row["labels"]) for row in lines(succeed("predict", files.model, files.test))} == {5}


def test_long_tables_hold_row_label_and_probability(files):
    given = ("predict", files.model, files.test, "-k", 2, "--long", "--output-format", "tsv")
    heading, *rest = succeed(*given).out.splitlines()
    assert heading == "row\tlabel\tprobability"
    assert [line.split("\t")[0] for line in rest] == [str(i) for i in range(30) for _ in range(2)]
    assert {line.split("\t")[1] for line in rest} <= set(files.tested.label_names)
    assert all(0 <= float(line.split("\t")[2]) <= 1 for line in rest)


def test_xmc_lines_hold_label_numbers_under_a_header_and_can_be_read_again(files, tmp_path):
    target = tmp_path / "scores_Xf.txt"
    succeed("predict", files.model, files.test, "-k", 2, "--output-format", "xmc", "-o", target)
    heading, *rest = target.read_text().splitlines()
    assert heading == "30 5"
    assert len(rest) == 30
    (tmp_path / "scores_Y.txt").write_text("30 1\n" + "\n" * 30)
    again = smoothlink.read(target)
    best = bare(smoothlink.load(files.model)).predict_topk(files.tested.X, k=2)
    np.testing.assert_allclose(again.X.toarray(), best.toarray(), atol=1e-5)


def test_every_table_holds_the_same_lines_as_its_name_says(files, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in ("p.jsonl", "p.json", "p.csv", "p.tsv", "p.parquet", "p.csv.gz"):
        succeed("predict", files.model, files.test, "-k", 2, "--long", "-o", tmp_path / name)
    said = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert json.loads((tmp_path / "p.json").read_text()) == said
    whole = lines(succeed("predict", files.model, files.test, "-k", 2))
    expected = [(r["row"], e["label"], pytest.approx(e["probability"], abs=2e-6)) for r in whole for e in r["labels"]]
    assert [(r["row"], r["label"], r["probability"]) for r in said] == expected
    with (tmp_path / "p.csv").open(newline="") as file:
        comma = list(csv.reader(file))
    tab = [line.split("\t") for line in (tmp_path / "p.tsv").read_text().splitlines()]
    assert comma == tab
    assert comma[0] == ["row", "label", "probability"]
    assert [(int(r), n, float(p)) for r, n, p in comma[1:]] == expected
    table = parquet.read_table(tmp_path / "p.parquet").to_pylist()
    assert [(r["row"], r["label"], r["probability"]) for r in table] == expected
    assert gzip.decompress((tmp_path / "p.csv.gz").read_bytes()) == (tmp_path / "p.csv").read_bytes()


@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "p.parquet", "p.xlsx"])
def test_a_table_has_a_row_for_each_row_with_its_labels_and_probabilities(files, tmp_path, name):
    pytest.importorskip({"p.parquet": "pyarrow", "p.xlsx": "openpyxl"}.get(name, "csv"))
    succeed("predict", files.model, files.test, "-k", 2, "-o", tmp_path / name)
    table = read_table(tmp_path / name, kind_of(name))
    assert table.columns == ["row", "labels", "probabilities"]
    for (row, labels, probabilities), said in zip(
        table, lines(succeed("predict", files.model, files.test, "-k", 2)), strict=True
    ):
        joined = isinstance(labels, str)
        assert int(row) == said["row"]
        assert (labels.split("|") if joined else labels) == [entry["label"] for entry in said["labels"]]
        found = [float(p) for p in (probabilities.split("|") if joined else probabilities)]
        assert found == pytest.approx([entry["probability"] for entry in said["labels"]], abs=2e-6)


def test_labels_are_joined_by_a_separator_that_no_name_holds():
    join = answers.joining
    assert join(["a", "b"], None)(["a", "b"]) == "a|b"
    assert join(["a", "b"], ",")(["a", "b"]) == "a, b"
    assert join(["a, b"], ",")(["a, b", "c"]) == "a, b|c"
    assert join(["a|b"], None)(["a|b"]) == "a|b"
    assert join(["a|b", "c;d", "e,f"], None)(["a|b", "c"]) == ["a|b", "c"]


def test_a_format_whose_library_is_missing_says_what_to_install(files, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for output in (["-o", tmp_path / "p.xlsx"], ["--output-format", "xlsx", "--output-folder", tmp_path]):
        ran = run("predict", files.model, files.test, *output)
        assert ran.code == 1
        assert "needs openpyxl" in ran.err
        assert "pip install 'smoothlink[text]'" in ran.err
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (["-o", "p.xls"], "Possible endings are .jsonl"),
        (["-o", "p"], "pass --output-format"),
        (["-o", "p.csv", "--output-format", "tsv"], "p.csv is named as csv"),
        (["--output-format", "parquet"], "goes to a file"),
        (["-o", "-", "--output-format", "xlsx"], "goes to a file"),
        (["-o", "p.txt", "--long"], "labels by number only: --long means nothing"),
        (["-o", "p.txt", "--id", "isbn"], "labels by number only: --id means nothing"),
        (["-o", "p.csv", "--all-columns"], "holds rows of numbers, not columns: --all-columns means nothing"),
        (["-o", "p.csv", "--id", "isbn"], "holds feature vectors, and --id is for texts"),
    ],
)
def test_an_output_whose_format_is_not_clear_is_refused(files, tmp_path, monkeypatch, output, said):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    ran = run("predict", files.model, files.test, *output)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.err
    assert left(tmp_path) == []


def test_rows_come_from_standard_input_and_go_to_standard_output(files, monkeypatch):
    expected = succeed("predict", files.model, files.test).out
    for content in (files.test.read_bytes(), gzip.compress(files.test.read_bytes())):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert succeed("predict", files.model, "-", "-o", "-").out == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(files.test.read_bytes())))
    evaluated = succeed("evaluate", files.model, "-", "--json", "--bootstraps", 0).json
    assert evaluated == succeed("evaluate", files.model, files.test, "--json", "--bootstraps", 0).json
    assert "trained on feature vectors" in run("predict", files.model, "--document", "a").err


def test_json_means_json_lines(files):
    args = "predict", files.model, files.test, "--output-format", "tsv"
    assert succeed(*args, "--json").out == succeed(*args[:3]).out


def test_sets_are_those_of_predict(files):
    model = bare(smoothlink.load(files.model))
    said = sets(succeed("predict", files.model, files.test, "--sets"), files.tested.label_names)
    assert (said == model.predict(files.tested.X).toarray()).all()
    assert said.any()


def test_f1_sets_are_those_of_predict_f1(files):
    model = bare(smoothlink.load(files.model))
    said = sets(succeed("predict", files.model, files.test, "--f1"), files.tested.label_names)
    assert (said == model.predict_f1(files.tested.X).toarray()).all()


def test_a_threshold_keeps_all_labels_of_at_least_this_probability(files):
    model = bare(smoothlink.load(files.model))
    P = model.predict_proba(files.tested.X)
    ran = succeed("predict", files.model, files.test, "--threshold", 0.3)
    assert (sets(ran, files.tested.label_names) == (P >= 0.3)).all()
    for row in lines(ran):
        chances = [entry["probability"] for entry in row["labels"]]
        assert chances == sorted(chances, reverse=True)


def test_k_cuts_a_set(files):
    whole = lines(succeed("predict", files.model, files.test, "--threshold", 0))
    assert {len(row["labels"]) for row in whole} == {5}
    cut = lines(succeed("predict", files.model, files.test, "--threshold", 0, "-k", 2))
    assert [row["labels"] for row in cut] == [row["labels"][:2] for row in whole]


@pytest.mark.parametrize(
    "only", [["label1,label4"], ["1", "--only", "4"], ["label4", "--only", "label1", "--only", "1"]]
)
def test_only_asks_for_some_labels_by_name_or_number(files, only):
    model = bare(smoothlink.load(files.model))
    P = model.predict_proba(files.tested.X, labels=[1, 4])
    for row, p in zip(lines(succeed("predict", files.model, files.test, "--only", *only)), P, strict=True):
        assert {e["label"]: e["probability"] for e in row["labels"]} == pytest.approx(
            {"label1": p[0], "label4": p[1]}, abs=1e-6
        )
        assert row["labels"][0]["probability"] == pytest.approx(p.max(), abs=1e-6)


def test_rank_by_psp_lifts_rare_labels_in_either_way_of_asking(files):
    model = bare(smoothlink.load(files.model))
    best = (
        np.array(files.tested.label_names)[model.predict_topk(files.tested.X, k=5, rank_by="psp").indices]
        .reshape(30, 5)
        .tolist()
    )
    for extra in ([], ["--only", "0,1,2,3,4"]):
        said = lines(succeed("predict", files.model, files.test, "--rank-by", "psp", *extra))
        assert [[entry["label"] for entry in row["labels"]] for row in said] == best


def test_a_multiclass_set_is_the_one_best_label_even_if_another_is_asked_for(rng, tmp_path):
    data, path, target = one_label_each(rng), tmp_path / "train.txt", tmp_path / "m.safetensors"
    write(data, path)
    succeed("train", path, "-o", target, "-q", "--set", "kernel.features=30", "--ridge", 1, "--loss", "squared")
    best = smoothlink.load(target).predict_topk(data.X, k=1).indices
    said = lines(succeed("predict", target, path, "--sets"))
    assert [[entry["label"] for entry in row["labels"]] for row in said] == [[j] for j in best.tolist()]
    some = lines(succeed("predict", target, path, "--sets", "--only", "1"))
    assert [bool(row["labels"]) for row in some] == (best == 1).tolist()


def test_blocks_of_rows_do_not_change_the_answers(files, monkeypatch):
    def probabilities():
        said = lines(succeed("predict", files.model, files.test))
        return [{e["label"]: e["probability"] for e in row["labels"]} for row in said]

    whole = probabilities()
    monkeypatch.setattr("smoothlink.data.predictions.DEVICE_ROWS", 7)
    for row, before in zip(probabilities(), whole, strict=True):
        assert row == pytest.approx(before, abs=1e-5)


# Columns that are not the model's


def wider(data, extra):
    """The data with `extra` more features, of one value each."""
    more = sp.csr_array(np.eye(data.X.shape[0], extra, dtype=np.float32))
    return Data(sp.csr_array(sp.hstack([data.X, more])), data.Y)


def test_extra_features_are_ignored_with_a_count_and_strict_refuses_them(files, tmp_path):
    path = tmp_path / "wide.txt"
    write(wider(files.tested, 3), path)
    ran = succeed("predict", files.model, path)
    assert ran.out == succeed("predict", files.model, files.test).out
    assert f"{path} has 3 features unknown to the model, with 3 values: ignored." in ran.err
    refused = run("predict", files.model, path, "--strict", "-o", tmp_path / "out.jsonl")
    assert refused.code == 1
    assert "3 features unknown to the model" in refused.err
    assert left(tmp_path) == ["wide.txt"]
    assert run("predict", files.model, files.test, "--strict").code == 0


def test_features_that_the_file_lacks_are_zeros(files, tmp_path):
    path = tmp_path / "narrow.txt"
    write(Data(files.tested.X[:, :9], files.tested.Y), path)
    blank = files.tested.X.toarray()
    blank[:, 9:] = 0
    best = bare(smoothlink.load(files.model)).predict_topk(sp.csr_array(blank), k=1)
    said = lines(succeed("predict", files.model, path, "-k", 1))
    assert [row["labels"][0]["label"] for row in said] == [files.tested.label_names[j] for j in best.indices]


@pytest.mark.parametrize("name", ["test.vw", "test.arff", "test.npz"])
def test_columns_in_another_order_are_found_by_their_names(files, tmp_path, rng, name):
    """Each file names its columns; vw even numbers them as it meets them."""
    X, Y, labels, features = files.tested[:4]
    order = rng.permutation(X.shape[1])
    shuffled = Data(X[:, order], Y, labels, [features[j] for j in order])
    write(shuffled, tmp_path / name)
    assert lines(succeed("predict", files.model, tmp_path / name)) == lines(succeed("predict", files.model, files.test))


def test_a_file_of_names_needs_a_model_with_names(files, tmp_path):
    write(Data(files.tested.X, files.tested.Y), tmp_path / "train.txt")
    write(files.tested, tmp_path / "test.vw")
    succeed("train", tmp_path / "train.txt", "-o", tmp_path / "m.safetensors", "-q", *FIXED)
    ran = run("predict", tmp_path / "m.safetensors", tmp_path / "test.vw")
    assert ran.code == 1
    assert "the model has no feature names" in ran.err
    assert "taken by number" in succeed("predict", files.model, tmp_path / "train.txt").err


def test_labels_of_the_file_are_not_looked_at(files, tmp_path):
    text = files.test.read_text().splitlines()
    (tmp_path / "t.txt").write_text("\n".join([text[0], *(f"99 {line.partition(' ')[2]}" for line in text[1:])]) + "\n")
    assert succeed("predict", files.model, tmp_path / "t.txt").out == succeed("predict", files.model, files.test).out


# Files and failures


def test_a_file_named_gz_is_compressed(files, tmp_path):
    succeed("predict", files.model, files.test, "-o", tmp_path / "p.jsonl.gz")
    content = gzip.decompress((tmp_path / "p.jsonl.gz").read_bytes()).decode()
    assert content == succeed("predict", files.model, files.test).out


@pytest.mark.parametrize("trouble", [KeyboardInterrupt, ValueError])
def test_a_failure_half_way_leaves_the_old_file_as_it_was(files, tmp_path, monkeypatch, trouble):
    made, calls = answers.as_objects, []

    def failing(*args):
        calls.append(1)
        if len(calls) == 10:
            raise trouble
        return made(*args)

    monkeypatch.setattr(answers, "as_objects", failing)
    (tmp_path / "p.jsonl").write_text("old")
    ran = run("predict", files.model, files.test, "-o", tmp_path / "p.jsonl", "--force")
    assert ran.code == (130 if trouble is KeyboardInterrupt else 1)
    assert left(tmp_path) == ["p.jsonl"]
    assert (tmp_path / "p.jsonl").read_text() == "old"


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--f1", "--sets"], "exclude each other"),
        (["--threshold", "2"], "--threshold"),
        (["-k", "0"], "greater than or equal to 1"),
        (["--only", "nobody"], "the model knows no label 'nobody'"),
        (["--only", "5"], "the model knows no label '5'"),
        (["--output-format", "xml"], "--output-format"),
        (["--rank-by", "luck"], "--rank-by"),
        (["--document", "a"], "pass data files, - for standard input, or --document TEXT"),
    ],
)
def test_wrong_usage_is_said(files, extra, said):
    ran = run("predict", files.model, files.test, *extra)
    assert ran.code == 2
    assert said in " ".join(ran.err.replace("│", " ").split())
    assert ran.out == ""


@pytest.mark.parametrize("target", ["no/such/folder/p.jsonl", "model.safetensors", "test.txt"])
def test_an_output_that_cannot_be_is_refused(files, target):
    before = files.model.read_bytes(), files.test.read_bytes()
    ran = run("predict", files.model, files.test, "-o", files.folder / target)
    assert ran.code == 1
    assert target in ran.err
    assert before == (files.model.read_bytes(), files.test.read_bytes())


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="folders that refuse are for users of posix systems"
)
def test_a_folder_that_may_not_be_written_to_is_refused(files, tmp_path):
    tmp_path.chmod(0o500)
    assert "not writable" in run("predict", files.model, files.test, "-o", tmp_path / "p.jsonl").err


@pytest.mark.parametrize("damage", ["foreign", "cut", "changed", "missing"])
def test_a_model_file_that_is_none_is_refused(files, tmp_path, damage):
    content, path = files.model.read_bytes(), tmp_path / "m.safetensors"
    ruined = {"foreign": b"PK\x03\x04 not a model", "cut": content[:-9], "changed": content.replace(b"crc", b"crd")}
    if damage in ruined:
        path.write_bytes(ruined[damage])
    for command in ("predict", "evaluate"):
        ran = run(command, path, files.test)
        assert ran.code == 1
        assert str(path) in ran.err
        assert "Traceback" not in ran.err
        assert ran.out == ""
    assert run("info", path).code == 1
