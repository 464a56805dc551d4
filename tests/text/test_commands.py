"""Commands on raw-text files."""

import importlib.util
import io
import json

import numpy as np
import pytest
from commands import run, succeed
from small import documents

import smoothlink
from smoothlink import Gaussian
from smoothlink.text.tables import KINDS, NEEDS, read_table, write_table

FAST = ["--effort", "quick", "--loss", "squared", "--set", "kernel.features=64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """docs.jsonl with titles and bodies, and a model of it."""
    folder = tmp_path_factory.mktemp("texts")
    texts, labels = documents(240)
    rows = [{"title": t, "body": f"and {t}", "tags": names} for t, names in zip(texts, labels, strict=True)]
    rows += [{"title": None, "tags": ["fruit"]}, {"title": "iron", "tags": None}]
    (folder / "docs.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    ran = succeed("train", folder / "docs.jsonl", "--text", "title,body", "--labels", "tags", *out(folder), *FAST)
    assert "1 without text, left out" in ran.err
    assert "without labels, kept as rows that have none" in ran.err
    return folder


def out(folder):
    return "-o", folder / "model.safetensors"


def test_training_from_a_file_is_fitting_its_documents(folder):
    texts, labels = documents(240)
    mine = smoothlink.TextSmoothLink(effort="quick", loss="squared", kernel=Gaussian(features=64))
    mine.fit([*(f"{t}\nand {t}" for t in texts), "iron"], [*labels, []])
    model = smoothlink.load(folder / "model.safetensors")
    np.testing.assert_array_equal(model.predict_proba(texts), mine.predict_proba(texts))


def test_predict_prints_names_for_every_row_of_the_columns_it_was_trained_on(folder):
    ran = succeed("predict", folder / "model.safetensors", folder / "docs.jsonl", "-k", 2)
    rows = [json.loads(line) for line in ran.out.splitlines()]
    model = smoothlink.load(folder / "model.safetensors")
    texts = documents(240)[0]
    said = model.predict_topk([f"{t}\nand {t}" for t in texts], k=2)
    assert len(rows) == 242
    assert [entry["label"] for entry in rows[0]["labels"]] == [name for name, _ in said[0]]
    assert "1 without text" in ran.err


def test_predict_takes_other_formats_and_columns(folder, tmp_path):
    (tmp_path / "new.tsv").write_text("7\tiron zinc copper\n8\tapple plum\n")
    ran = succeed("predict", folder / "model.safetensors", tmp_path / "new.tsv", "--text", 2, "--sets")
    assert [json.loads(line)["labels"][0]["label"] for line in ran.out.splitlines()] == ["metal", "fruit"]
    into = succeed(
        *("predict", folder / "model.safetensors", tmp_path / "new.tsv", "--text", 2, "--sets"),
        *("--output-folder", tmp_path / "out"),
    )
    assert (tmp_path / "out" / "new.jsonl").read_text() == ran.out, into.err


def typed(monkeypatch, text):
    """Puts text on standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """A folder with a model of a CSV file with ids, in a spreadsheet's words."""
    folder = tmp_path_factory.mktemp("books")
    texts, labels = documents(240)
    rows = [[f"B{i}", text, "; ".join(names)] for i, (text, names) in enumerate(zip(texts, labels, strict=True))]
    write_table(folder / "books.csv", "csv", ["Signatur", "Titel", "Thema"], rows, delimiter=";")
    how = ("--text", "Titel", "--labels", "Thema", "--id", "Signatur", *out(folder), *FAST)
    succeed("train", folder / "books.csv", *how)
    return folder


def kinds_installed():
    return [kind for kind in KINDS if importlib.util.find_spec(NEEDS.get(kind, "csv")) is not None]


@pytest.mark.parametrize("kind", kinds_installed())
def test_predictions_carry_the_id_or_all_columns_from_any_table_to_any_other(books, tmp_path, kind):
    rows = [["X1", "iron zinc copper", 3], ["X2", "apple plum pear", 4]]
    write_table(tmp_path / f"new.{kind}", kind, ["Signatur", "Titel", "Jahr"], rows)
    given = ("predict", books / "model.safetensors", tmp_path / f"new.{kind}", "--threshold", 0.5)
    for to in kinds_installed():
        succeed(*given, "-o", tmp_path / f"by_id-{kind}.{to}")
        table = read_table(tmp_path / f"by_id-{kind}.{to}", to)
        assert table.columns == ["Signatur", "labels", *([] if to == "jsonl" else ["probabilities"])]
        found = list(table)
        assert [row[0] for row in found] == ["X1", "X2"]
        assert all(name in str(row[1]) for name, row in zip(("metal", "fruit"), found, strict=True))
        succeed(*given, "--all-columns", "--long", "-o", tmp_path / f"all-{kind}.{to}")
        table = read_table(tmp_path / f"all-{kind}.{to}", to)
        assert table.columns == ["Signatur", "Titel", "Jahr", "label", "probability"]
        assert [[str(cell) for cell in row[:4]] for row in table] == [
            ["X1", "iron zinc copper", "3", "metal"],
            ["X2", "apple plum pear", "4", "fruit"],
        ]


def test_a_table_of_predictions_can_be_trained_on_and_predicted_again(books, tmp_path):
    given = ("predict", books / "model.safetensors", books / "books.csv", "--threshold", 0.5, "--all-columns")
    succeed(*given, "-o", tmp_path / "tagged.csv")
    columns = read_table(tmp_path / "tagged.csv", "csv").columns
    assert columns == ["Signatur", "Titel", "Thema", "labels", "probabilities"]
    succeed("train", tmp_path / "tagged.csv", "--text", "Titel", *out(tmp_path), *FAST)
    found = smoothlink.load(tmp_path / "model.safetensors")
    assert found.classes_.tolist() == smoothlink.load(books / "model.safetensors").classes_.tolist()
    given = ("predict", tmp_path / "model.safetensors", tmp_path / "tagged.csv", "--all-columns")
    header = succeed(*given, "--output-format", "csv").out.splitlines()[0]
    assert header.endswith(",labels,probabilities,predicted_labels,predicted_probabilities")


def test_an_id_that_is_not_there_is_refused_where_it_was_typed_and_else_noted(books, tmp_path):
    (tmp_path / "new.csv").write_text("ISBN,Titel\n7,iron\n")
    given = ("predict", books / "model.safetensors", tmp_path / "new.csv")
    ran = succeed(*given)
    assert json.loads(ran.out)["row"] == 0
    assert "It has no column Signatur: rows are numbered." in ran.err
    assert json.loads(succeed(*given, "--id", "ISBN").out)["ISBN"] == "7"
    ran = run(*given, "--id", "Signatur")
    assert (ran.code, "has no column Signatur; it has ISBN, Titel.\nPass another --id." in ran.err) == (1, True)


def test_columns_are_in_every_file_of_a_folder(books, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"Signatur,Titel,n\n{name}1,iron zinc,5\n")
    given = ("predict", books / "model.safetensors", tmp_path / "*.csv", "--output-folder", tmp_path / "out")
    succeed(*given, "--all-columns", "--output-format", "tsv", "-k", 1)
    for name in ("a", "b"):
        heading, line = (tmp_path / "out" / f"{name}.tsv").read_text().splitlines()
        assert heading == "Signatur\tTitel\tn\tlabels\tprobabilities"
        assert line.startswith(f"{name}1\tiron zinc\t5\tmetal\t")


def test_a_text_may_be_typed_piped_or_stand_on_a_line(books, tmp_path, monkeypatch):
    model, texts = books / "model.safetensors", ["iron, zinc", "12:30 apple | plum"]
    typed_in = succeed("predict", model, "--document", texts[0], "--document", texts[1], "-k", 1).out
    assert [json.loads(line)["labels"][0]["label"] for line in typed_in.splitlines()] == ["metal", "fruit"]
    (tmp_path / "new.txt").write_text("\n".join([texts[0], texts[1], ""]))
    assert succeed("predict", model, tmp_path / "new.txt", "-k", 1).out == typed_in
    into = ("--output-folder", tmp_path / "out")
    succeed("predict", model, tmp_path / "new.txt", "-k", 1, *into)
    assert (tmp_path / "out" / "new.jsonl").read_text() == typed_in
    (tmp_path / "gaps.txt").write_text("iron\n\nplum\n")
    gaps = succeed("predict", model, tmp_path / "gaps.txt", "-k", 1)
    assert [json.loads(line)["row"] for line in gaps.out.splitlines()] == [0, 1, 2]
    assert "1 without text" in gaps.err
    typed(monkeypatch, "\n".join(texts))
    assert succeed("predict", model, "-", "--format", "lines", "-k", 1, "-o", "-").out == typed_in
    typed(monkeypatch, "Signatur,Titel\nX,iron zinc\n")
    assert json.loads(succeed("predict", model, "-", "--format", "csv", "-k", 1).out)["Signatur"] == "X"
    typed(monkeypatch, json.dumps({"Titel": "iron zinc", "Signatur": "X"}))
    ran = succeed("predict", model, "-", "-k", 1)
    assert json.loads(ran.out)["Signatur"] == "X"
    assert "standard input: 1 document." in ran.err
    typed(monkeypatch, "neither this nor that\n")
    ran = run("predict", model, "-")
    assert ran.code == 1
    assert "standard input: the format is not clear" in ran.err
    assert "For one text on each line pass --format lines" in ran.err
    assert "Pass --format with one of" in ran.err
    typed(monkeypatch, "")
    assert "standard input" in run("predict", model, "-").err
    assert run("split", "-", "--format", "csv").code == 2


def test_training_reads_standard_input_and_other_encodings(books, tmp_path, monkeypatch):
    content = (books / "books.csv").read_text().replace("red", "größer")
    typed(monkeypatch, content)
    how = ("--text", "Titel", "--labels", "Thema", "--label-separator", ";", *out(tmp_path), *FAST)
    succeed("train", "-", "--format", "csv", *how)
    expected = smoothlink.load(tmp_path / "model.safetensors").predict_proba(["größer iron"])
    for encoding, given in (("utf-16", ()), ("cp1252", ("--encoding", "cp1252"))):
        (tmp_path / "a.csv").write_bytes(content.encode(encoding))
        ran = succeed("train", tmp_path / "a.csv", *how, *given, "--force")
        assert ("It is UTF-16." in ran.err) == (encoding == "utf-16")
        found = smoothlink.load(tmp_path / "model.safetensors").predict_proba(["größer iron"])
        np.testing.assert_array_equal(found, expected)
    ran = run("train", tmp_path / "a.csv", *how, "--force")
    assert ran.code == 1
    assert "it is 'größer'. If that is right, pass --encoding cp1252." in ran.err


def test_columns_of_0_and_1_are_trained_on_and_evaluated(tmp_path):
    texts, labels = documents(240)
    names = ["colour", "fruit", "metal"]
    rows = [[t, *(int(name in row) for name in names)] for t, row in zip(texts, labels, strict=True)]
    write_table(tmp_path / "a.csv", "csv", ["text", *(f"is_{name}" for name in names)], rows)
    ran = succeed("train", tmp_path / "a.csv", "--labels", "is_*", *out(tmp_path), *FAST)
    assert "The columns is_colour, is_fruit, is_metal hold 0 and 1: each is a label." in ran.err.replace("\n", " ")
    assert smoothlink.load(tmp_path / "model.safetensors").classes_.tolist() == [f"is_{name}" for name in names]
    found = succeed("evaluate", tmp_path / "model.safetensors", tmp_path / "a.csv", "--json", "--bootstraps", 0).json
    assert found["unknown_labels"] == 0
    assert found["p@1"]["value"] > 0.7


def test_evaluate_measures_all_rows_and_counts_unknown_labels(folder, tmp_path):
    model = smoothlink.load(folder / "model.safetensors")
    texts, labels = documents(60, seed=3)
    labels[0] = [*labels[0], "unheard-of"]
    path = tmp_path / "test.jsonl"
    path.write_text(
        "\n".join(json.dumps({"title": t, "body": "", "tags": n}) for t, n in zip(texts, labels, strict=True))
    )
    found = succeed("evaluate", folder / "model.safetensors", path, "--json", "--bootstraps", 0).json
    assert found["p@1"]["value"] == model.evaluate(texts, labels, bootstraps=0).metrics["p@1"].value
    assert found["unknown_labels"] == found["unknown_pairs"] == 1


def test_info_tells_of_texts(folder):
    told = succeed("info", folder / "docs.jsonl", "--text", "title,body", "--labels", "tags", "--json").json
    assert (told["rows"], told["rows_without_text"], told["labels"]) == (242, 1, 4)
    assert told["text_columns"] == ["title", "body"]
    of_model = succeed("info", folder / "model.safetensors", "--json").json
    assert of_model["text"]["source"]["labels"] == ["tags"]
    assert "runs of 3 to 5 characters" in succeed("info", folder / "model.safetensors").out


def test_valid_shows_what_to_expect_and_fits_all_rows(folder, tmp_path):
    given = ("train", folder / "docs.jsonl", "--text", "title,body", "--labels", "tags", *FAST)
    ran = succeed(*given, "--valid", 0.25, *out(tmp_path), "--json")
    assert ran.json["expected"]["rows"] == pytest.approx(60, abs=1)
    assert ran.json["expected"]["p@1"]["value"] > 0.7
    texts = documents()[0]
    plain, held = (smoothlink.load(place / "model.safetensors") for place in (folder, tmp_path))
    np.testing.assert_array_equal(plain.predict_proba(texts), held.predict_proba(texts))
    assert "of a model that was fitted without them" in succeed(*given, "--valid", 0.25, *out(tmp_path)).out


def test_valid_of_rows_of_numbers_shows_what_to_expect(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{label} {label}:1 {2 + rng.integers(4)}:{rng.random():.4f}" for label in rng.integers(0, 2, 100)]
    (tmp_path / "rows.txt").write_text("\n".join(["100 6 2", *rows]))
    given = ("--effort", "quick", "--task", "multilabel", "--loss", "squared")
    ran = succeed("train", tmp_path / "rows.txt", *out(tmp_path), *given, "--valid", 0.2, "--json")
    assert ran.json["expected"]["rows"] == 20
    assert ran.json["expected"]["p@1"]["value"] == 1
    assert ran.json["rows"] == 100


def test_options_of_the_features_reach_the_model(folder, tmp_path):
    given = ("--word-ngrams", "1,1", "--char-ngrams", "2,3", "--keep-case", "--examples", 0, "--max-features", 50)
    common = ("train", folder / "docs.jsonl", "--text", "title", "--labels", "tags", *FAST, *out(tmp_path))
    succeed(*common, *given, "--drop-unlabelled")
    model = smoothlink.load(tmp_path / "model.safetensors")
    assert [(b.kind, b.ngrams) for b in model.features_.blocks_] == [("words", (1, 1)), ("characters", (2, 3))]
    assert not model.features_.lowercase
    assert model.examples_ == []
    assert model.summary_["rows"] == 216
    succeed(*common, "--hashing", 512, "--word-ngrams", "none", "--char-ngrams", "3,3")
    assert smoothlink.load(tmp_path / "model.safetensors").features_.n_columns == 512


def test_a_model_of_a_file_reads_its_columns_in_a_table(folder):
    model = smoothlink.load(folder / "model.safetensors")
    texts = documents(20)[0]
    table = {"title": texts, "body": [f"and {t}" for t in texts], "tags": [[]] * 20}
    assert model.predict(table) == model.predict([f"{t}\nand {t}" for t in texts])


def test_labels_in_cells_are_told_apart_by_a_guess_or_not_at_all(tmp_path):
    texts, labels = documents(240)
    path, common = tmp_path / "a.tsv", ("--text", 1, "--labels", 2, *out(tmp_path), *FAST)
    path.write_text("".join(f"{t}\t{', '.join(names)}\n" for t, names in zip(texts, labels, strict=True)))
    few = tmp_path / "few.tsv"
    few.write_text("iron\tmetal, rare\n")
    assert "Labels are separated by ',', it seems" in succeed("train", path, few, *common).err.replace("\n", " ")
    model = smoothlink.load(tmp_path / "model.safetensors")
    assert model.classes_.tolist() == ["colour", "fruit", "metal", "rare"]
    assert model.label_separator == model.source_["separator"] == ","
    path.write_text("".join(f"{t}\tplace {i}, land {i % 9}\n" for i, t in enumerate(texts)))
    (tmp_path / "model.safetensors").unlink()
    ran = run("train", path, *common)
    assert ran.code == 1
    assert '--label-separator ","' in ran.err
    assert "'place 0, land 0' and 'place 1, land 1'" in ran.err
    assert not (tmp_path / "model.safetensors").exists()
    succeed("train", path, *common, "--label-separator", "none")
    assert len(smoothlink.load(tmp_path / "model.safetensors").classes_) == 240


def test_tune_searches_on_texts(folder, tmp_path):
    ran = succeed(
        *("tune", folder / "docs.jsonl", "--text", "title", "--labels", "tags", "--trials", 2),
        *("-o", tmp_path / "p.json", "--json"),
    )
    assert ran.json["finished"] + ran.json["pruned"] == 2


@pytest.mark.parametrize(
    "name", ["docs.jsonl", "docs.tsv", "docs.csv", "docs.txt", "docs", "docs.parquet", "docs.xlsx", "docs.svm"]
)
def test_split_writes_each_document_to_one_part_as_it_was(tmp_path, name):
    texts, labels = documents(100)
    path = tmp_path / name
    how, units = written(path, texts, labels)
    ran = succeed("split", path, "--parts", "0.7,0.3", "--names", "a,b", *how, "--json")
    parts = [part["path"] for part in ran.json["parts"]]
    assert [part["rows"] for part in ran.json["parts"]] == [70, 30]
    assert sorted(unit for part in parts for unit in units(part)) == sorted(units(path))
    assert all(part["most_rows_off"] <= 2 for part in ran.json["parts"])
    assert "labels within 1 row" in succeed("split", path, "--output-folder", folder_for(tmp_path), *how).out.replace(
        "\n", " "
    )


def folder_for(tmp_path):
    (tmp_path / "other").mkdir()
    return tmp_path / "other"


def written(path, texts, labels):
    """Writes documents as the name says; the options to read them, and what gives the documents of a file."""
    from pathlib import Path

    def lines(part):
        return [line for line in Path(part).read_text().splitlines() if line != "text,labels"]

    pairs = list(zip(texts, labels, strict=True))
    match path.suffix:
        case ".jsonl":
            path.write_text("\n".join(json.dumps({"t": t, "labels": n}) for t, n in pairs))
        case ".tsv":
            path.write_text("".join(f'"{t}\t{",".join(n)}\n' for t, n in pairs))
            return ("--text", 1, "--labels", 2), lines
        case ".csv":
            path.write_text("text,labels\n" + "".join(f'"{t}, x",{"|".join(n)}\n' for t, n in pairs))
        case ".txt":
            path.write_text("".join(f"{' '.join(f'__label__{j}' for j in n)} {t}\n" for t, n in pairs if n))
            path.write_text("__label__x y\n" + path.read_text() + "z\n" * (99 - sum(map(bool, labels))))
        case ".parquet":
            pyarrow = pytest.importorskip("pyarrow")
            from pyarrow import parquet

            parquet.write_table(pyarrow.table({"text": texts, "labels": labels}), path)
            return (), lambda part: [str(row) for row in parquet.read_table(part).to_pylist()]
        case ".xlsx":
            pytest.importorskip("openpyxl")
            write_table(path, "xlsx", ["text", "labels"], [[t, "|".join(n)] for t, n in pairs])
            return (), lambda part: [str(row) for row in read_table(part, "xlsx")]
        case ".svm":
            numbers = {name: j for j, name in enumerate(sorted({j for n in labels for j in n}))}
            path.write_text(
                "".join(f"{','.join(str(numbers[j]) for j in sorted(n))} 1:{i}\n" for i, (_, n) in enumerate(pairs, 1))
            )
            return (), lambda part: [line.split(":")[-1] for line in lines(part)]
        case _:
            path.mkdir()
            for i, (t, n) in enumerate(pairs):
                (path / f"{i}.txt").write_text(f"{t} {i}")
                (path / f"{i}.key").write_text("\n".join(n))
            return (), lambda part: [file.read_text() for file in Path(part).iterdir()]
    return (), lines


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["train", "docs.jsonl", "-o", "x.safetensors"],
            "hold the text and the labels, such as: --text title --labels tags",
        ),
        (["train", "docs.jsonl", "--text", "titel", "--labels", "tags", "-o", "x.safetensors"], "title, tags"),
        (["train", "rows.txt", "--text", "title", "-o", "x.safetensors"], "the format is not clear"),
        (
            ["train", "rows.txt", "--char-ngrams", "2,3", "-o", "x.safetensors"],
            "holds feature vectors, and --char-ngrams is for texts",
        ),
        (
            ["train", "rows.txt", "--labels", "tags", "-o", "x.safetensors"],
            "--labels tags is neither auto nor a number",
        ),
        (["train", "rows.txt", "--label-prefix", "x:", "-o", "x.safetensors"], "--label-prefix is for texts"),
        (["train", "rows.txt", "--no-header", "-o", "x.safetensors"], "--header/--no-header is for texts"),
        (["train", "docs.jsonl", "--label-names", "n", "-o", "x.safetensors"], "--label-names means nothing"),
        (["train", "docs.jsonl", "--one-based", "-o", "x.safetensors"], "--zero-based/--one-based means nothing"),
        (["train", "rows.txt", "docs.jsonl", "-o", "x.safetensors"], "docs.jsonl holds texts"),
        (["predict", "rows.safetensors", "docs.jsonl"], "trained on feature vectors"),
        (["convert", "docs.jsonl", "x.txt"], "holds texts"),
        (["train", "docs.jsonl", "--cluster", "local:1", "-o", "x.safetensors"], "cannot be read on a cluster"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(folder, tmp_path, args, message):
    (tmp_path / "rows.txt").write_text("4 2 2\n0 0:1\n1 1:1\n0 0:2\n1 1:3\n")
    (tmp_path / "docs.jsonl").write_text('{"title": "a word", "tags": ["x"]}\n')
    if args[0] == "predict":
        fixed = (
            "--rank",
            2,
            "--ridge",
            1,
            "--set",
            "kernel.bandwidth=1",
            "--set",
            "kernel.features=4",
            "--final-ridge",
            1,
            "--loss",
            "squared",
        )
        succeed("train", tmp_path / "rows.txt", "-o", tmp_path / "rows.safetensors", *fixed, "--no-calibrate")
    ran = run(*(tmp_path / arg if "." in str(arg) else arg for arg in args))
    assert ran.code == 1
    assert message in ran.err


@pytest.mark.parametrize(
    "wrong",
    [
        ("train", "--word-ngrams", "one"),
        ("train", "--strip-accents", "all"),
        ("train", "--valid", "0.9"),
        ("train", "--valid", "0.1", "--cluster", "local:2"),
        ("split", "--parts", "0.8"),
        ("split", "--parts", "0.8,0.1"),
        ("split", "--names", "one"),
    ],
)
def test_a_wrong_value_is_wrong_usage(folder, wrong):
    command, *options = wrong
    output = () if command == "split" else ("-o", folder / "x.safetensors")
    assert run(command, folder / "docs.jsonl", *output, *options).code == 2


def grouped_file(path, count=60):
    """Documents of authors who each wrote three, beginning with exact copies."""
    texts, labels = documents(count)
    texts = [texts[i % 20] for i in range(40)] + texts[40:]
    labels = [labels[i % 20] for i in range(40)] + labels[40:]
    rows = [
        {"text": t, "labels": n, "author": f"a{i // 3}"} for i, (t, n) in enumerate(zip(texts, labels, strict=True))
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return rows


def rows_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("options", "key"), [((), "text"), (("--groups", "author"), "author")])
def test_split_keeps_copies_or_groups_in_one_part(tmp_path, options, key):
    rows = grouped_file(tmp_path / "docs.jsonl")
    succeed("split", tmp_path / "docs.jsonl", "--parts", "0.6,0.4", *options)
    parts = [rows_in(tmp_path / f"docs-{name}.jsonl") for name in ("train", "test")]
    assert sum(map(len, parts)) == len(rows)
    assert not {row[key] for row in parts[0]} & {row[key] for row in parts[1]}


def test_train_notes_copies_and_takes_groups(tmp_path):
    grouped_file(tmp_path / "docs.jsonl")
    ran = succeed("train", tmp_path / "docs.jsonl", *out(tmp_path), *FAST)
    assert "are copies of others: copies count as one row" in " ".join(ran.err.split())
    plain = smoothlink.load(tmp_path / "model.safetensors")
    ran = succeed(
        "train", tmp_path / "docs.jsonl", *out(tmp_path), *FAST, "--groups", "author", "--valid", 0.3, "--force"
    )
    grouped = smoothlink.load(tmp_path / "model.safetensors")
    texts = [row["text"] for row in rows_in(tmp_path / "docs.jsonl")]
    assert np.abs(grouped.predict_proba(texts) - plain.predict_proba(texts)).max() > 0
    ran = succeed("evaluate", tmp_path / "model.safetensors", tmp_path / "docs.jsonl", "--groups", "author")
    assert "all 60 rows occur in the training data" in " ".join(ran.err.split())


def test_what_is_wrong_with_groups_is_said_in_a_sentence(tmp_path):
    path = tmp_path / "docs.jsonl"
    rows = grouped_file(path)
    model = out(tmp_path)
    ran = run("train", path, *model, *FAST, "--groups", "writer")
    assert "has no column writer; it has text, labels, author" in ran.err
    rows[4]["author"] = None
    path.write_text("\n".join(json.dumps(row) for row in rows))
    for command in (("train", path, *model, *FAST), ("split", path)):
        ran = run(*command, "--groups", "author")
        assert ran.code == 1
        assert "line 5: the column author has no value, as in 1 of 60 rows" in ran.err


def test_the_same_text_with_other_numbers_is_no_copy(tmp_path):
    path = tmp_path / "docs.jsonl"
    rows = [{"text": "a sample", "size": i % 15, "labels": ["fruit"]} for i in range(30)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    succeed("split", path, "--numbers", "size", "--parts", "0.6,0.4")
    parts = [rows_in(tmp_path / f"docs-{name}.jsonl") for name in ("train", "test")]
    assert not {row["size"] for row in parts[0]} & {row["size"] for row in parts[1]}


def test_a_file_of_one_row_again_and_again_is_said_to_be_one(tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text("\n".join([json.dumps({"text": "an apple and a pear", "labels": ["fruit"]})] * 30))
    ran = run("split", path)
    assert ran.code == 1
    assert "all its rows are the same" in ran.err
    ran = run("train", path, *out(tmp_path), *FAST)
    assert "All 30 rows have the same features" in " ".join(ran.err.split())
