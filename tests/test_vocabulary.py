"""Names of labels from a controlled vocabulary: files of every format, models that store it, and all that shows it."""

import csv
import json
import re
import time
import warnings

import numpy as np
import pytest
from commands import prepared, run, succeed
from hypothesis import given
from hypothesis import strategies as st
from small import FIXED, documents, fixed, multilabel

import smoothlink
from smoothlink import DataError, ModelFileError, TextSmoothLink, read_vocabulary
from smoothlink import safetensors_file as files
from smoothlink.vocabulary import Vocabulary, display_names, from_file, label_text, to_arrays, to_meta

BASE = "http://www.yso.fi/onto/yso/"
TURTLE = f"""
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix yso: <{BASE}> .
yso: a skos:ConceptScheme ; skos:prefLabel "General Ontology"@en .
yso:p1 a skos:Concept ; skos:prefLabel "Mercury"@en, "elohopea"@fi ; skos:altLabel "quicksilver"@en .
yso:p2 a skos:Concept ; skos:prefLabel "Mercury"@en, "Merkurius"@fi .
yso:p3 a skos:Concept ; skos:prefLabel "vapaus"@fi ; skos:notation "17" .
yso:p4 a skos:Concept ; skos:prefLabel "wireless"@en, "langaton"@fi ; owl:deprecated true .
[] skos:prefLabel "nobody"@en .
"""
NAMES = {
    "en": {f"{BASE}p1": "Mercury", f"{BASE}p2": "Mercury", f"{BASE}p4": "wireless"},
    "fi": {f"{BASE}p1": "elohopea", f"{BASE}p2": "Merkurius", f"{BASE}p3": "vapaus", f"{BASE}p4": "langaton"},
}


def skos(path, format):
    import rdflib

    rdflib.Graph().parse(data=TURTLE, format="turtle").serialize(path, format=format, encoding="utf-8")
    return path


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Files


@pytest.mark.parametrize(
    ("name", "format"),
    [("v.ttl", "turtle"), ("v.nt", "nt"), ("v.rdf", "xml"), ("pretty.rdf", "pretty-xml"), ("unnamed", "xml")],
)
def test_skos_in_every_form_gives_preferred_names_and_what_is_deprecated(tmp_path, name, format):
    found = read_vocabulary(skos(tmp_path / name, format), "en")
    assert found.by_language == NAMES
    assert [found.deprecated(f"{BASE}p{i}") for i in (1, 2, 3, 4)] == [False, False, False, True]


LINES = [(concept, name, language) for language, names in NAMES.items() for concept, name in names.items()]
TABLES = {
    "lines.tsv": "".join(f"{i}\t{n}\t{k}\n" for i, n, k in LINES),
    "crlf.tsv": "\ufeff" + "".join(f"<{i}>\t{n}\t{k}\r\n\r\n" for i, n, k in LINES).replace("<", "").replace(">", ""),
    "heading.csv": "uri,name,lang\n" + "".join(f"{i},{n},{k}\n" for i, n, k in LINES),
    "semicolons.csv": "count;language;id;name\n" + "".join(f"3;{k};{i};{n}\n" for i, n, k in LINES),
    "names.json": json.dumps({i: {k: NAMES[k][i] for k in NAMES if i in NAMES[k]} for i in NAMES["fi"]}),
    "columns.csv": "uri,label_en,label_fi,notation\n"
    + "".join(f'"{i}","{NAMES["en"].get(i, "")}",{NAMES["fi"][i]},1\n' for i in NAMES["fi"]),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_and_json_give_the_same_names(tmp_path, name):
    assert read_vocabulary(written(tmp_path / name, TABLES[name]), "fi").by_language == NAMES


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("annif.tsv", f'<{BASE}p1>\tMercury, 12" disk\t17.3\n<{BASE}p2>\t  a  name \t\n'),
        ("plain.txt", f'{BASE}p1\tMercury, 12" disk\n{BASE}p2\ta name\n'),
        ("ours.csv", f'label,name\n{BASE}p1,"Mercury, 12"" disk"\n{BASE}p2,a name\n'),
        ("flat.json", json.dumps({f"{BASE}p1": 'Mercury, 12" disk', f"<{BASE}p2>": "a name"})),
    ],
)
def test_names_without_a_language_are_read(tmp_path, name, content):
    found = read_vocabulary(written(tmp_path / name, content))
    assert found.by_language == {"": {f"{BASE}p1": 'Mercury, 12" disk', f"{BASE}p2": "a name"}}
    assert found.name(f"<{BASE}p2>") == found.name(f"{BASE}p2") == "a name"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", "", "the file is empty"),
        ("a.tsv", "\n\n", "no id with a name"),
        ("a.tsv", "p1\tone\np2\n", "line 2 has no name for 'p2'.*first line names the columns"),
        ("a.tsv", "p1\tone\n\ttwo\n", "line 2 has no id"),
        ("a.tsv", "0\thttp://a\tlight reading\t203\n", "line 1 has 'light reading' in the column of languages"),
        ("a.tsv", b"p1\tna\xefve\n", "not UTF-8"),
        ("a.csv", 'id,name\np1,"abc\np2,x\n', "line 3 cannot be read"),
        ("a.json", "{", "is not JSON"),
        ("a.json", "[1]", "is not an object"),
        ("a.json", '{"p1": 3}', "has 3 for 'p1'"),
        ("a.json", '{"p1": {"prefLabel": "x"}}', "Possible are"),
        ("a.ttl", "@prefix x: <http", "is not Turtle: .*line 1"),
        ("a.rdf", "<rdf:RDF>", "is not RDF/XML"),
        ("a.rdf", '<!DOCTYPE r [<!ENTITY a "a"><!ENTITY b "&a;&a;">]><rdf:RDF>&b;</rdf:RDF>', "entities by other"),
        ("a.nt", "<a> <b>", "is not N-Triples"),
        ("a.ttl", '<http://a> <http://b> "c" .', "no skos:prefLabel"),
        ("a.bin", b"\x00\x01", "neither the name nor the content"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_named_in_a_sentence(tmp_path, name, content, said):
    with pytest.raises(DataError, match=f"(?s){re.escape(str(tmp_path / name))}.*{said}"):
        read_vocabulary(written(tmp_path / name, content))


def test_a_language_that_the_file_lacks_is_refused_with_those_it_has(tmp_path):
    with pytest.raises(DataError, match=r"'de'.\nPossible are fi \(4 names\), en \(3 names\)"):
        read_vocabulary(written(tmp_path / "v.tsv", TABLES["lines.tsv"]), "de")
    with pytest.raises(DataError, match="holds no names"):
        Vocabulary({"en": {}})
    with pytest.raises(DataError, match="no language: leave it out"):
        read_vocabulary(written(tmp_path / "plain.tsv", "p1\tone\n"), "en")


def test_skos_without_rdflib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rdflib", None)
    with pytest.raises(DataError, match=r"needs rdflib.\nType: pip install 'smoothlink\[vocabulary\]'"):
        read_vocabulary(written(tmp_path / "v.ttl", TURTLE))


def test_fifty_thousand_concepts_in_two_languages_load_in_about_a_second_and_add_a_few_megabytes(tmp_path):
    lines = (f"{BASE}p{i}\tsome name in {k} {i}\t{k}\n" for i in range(50_000) for k in ("en", "fi"))
    path = written(tmp_path / "large.tsv", "".join(lines))
    began = time.process_time()
    found = read_vocabulary(path, "fi")
    assert found.name(f"{BASE}p77") == "some name in fi 77"
    assert time.process_time() - began < 3  # on a busy machine
    arrays = to_arrays(found)
    assert sum(array.nbytes for array in arrays.values()) < 7e6
    assert from_file(arrays, to_meta(found)).by_language == found.by_language


# Names


def test_names_are_in_the_language_else_in_another_and_told_apart_by_the_end_of_the_id():
    labels = [f"{BASE}p{i}" for i in (1, 2, 3, 4)]
    found = Vocabulary(NAMES)
    assert found.names(labels) == ["elohopea", "Merkurius", "vapaus", "langaton"]  # fi has the most names
    english = found.in_language("EN")
    assert english.names(labels) == ["Mercury (p1)", "Mercury (p2)", "vapaus", "wireless"]
    assert english.name("p9") == "p9"
    assert english.name("wireless") == "wireless (not in the vocabulary)"
    assert english.missing([*labels, "p9", 3]) == ["p9", "3"]


words = st.text("ab /()", min_size=1, max_size=5)


@given(st.dictionaries(words, words, min_size=1, max_size=8), st.lists(words, max_size=4))
def test_no_two_labels_are_shown_alike(names, labels):
    found = Vocabulary({"en": names})
    shown = found.names(names)
    assert len(set(shown)) == len(names)
    unknown = set(labels) - {label.strip("<>") for label in names}
    assert not set(shown) & set(found.names(unknown))


def test_notes_count_what_is_missing_in_another_language_shared_and_deprecated():
    labels = [*(f"{BASE}p{i}" for i in (1, 3, 4)), "x", "y", "z"]
    notes = Vocabulary(NAMES, {f"{BASE}p4"}).in_language("en").notes(labels)
    assert notes == [
        "The vocabulary has no name for 3 of 6 labels, such as 'x' and 'y': labels without a name are shown as they "
        "are.",
        f"There is no name in en for 1 of 6 labels, such as '{BASE}p3': names in fi are shown.",
        "Other concepts have the same name as 1 of 6 labels: these are shown with the end of their id, such as "
        "'Mercury (p1)'.",
        "The vocabulary marks 1 of 6 labels as deprecated, such as 'wireless (deprecated)'.",
    ]
    assert Vocabulary(NAMES).notes([f"{BASE}p1"]) == ["The vocabulary has names in fi, which are shown, and in en."]
    assert Vocabulary({"": {"a": "b"}}).notes(["a"]) == []


def test_an_id_with_two_names_keeps_the_first_and_says_so(tmp_path):
    found = read_vocabulary(written(tmp_path / "v.tsv", "p1\tone\np1\tuno\np1\tone\n"))
    assert found.name("p1") == "one"
    assert "several names in one language for 1 id, such as 'p1'" in found.notes(["p1"])[0]


# Models


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(3)
    model = fixed().fit(*multilabel(rng, c=5))
    model.label_names_ = [f"{BASE}p{i}" for i in range(1, 6)]
    return model


def named(model, vocabulary):
    """Returns a copy of the model with a vocabulary, and the warnings."""
    from copy import copy

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return copy(model).set_vocabulary(vocabulary), [str(one.message) for one in caught]


def test_a_model_stores_its_vocabulary_whole(fitted, tmp_path):
    model, said = named(fitted, Vocabulary(NAMES, {f"{BASE}p4"}, "en", "yso.ttl"))
    assert any(f"no name for 1 of 5 labels, such as '{BASE}p5'" in note for note in said)
    model.save(tmp_path / "m.safetensors")
    found = smoothlink.load(tmp_path / "m.safetensors").vocabulary_
    assert (found.by_language, found.language, found.deprecated_ids, found.source) == (
        NAMES,
        "en",
        {f"{BASE}p4"},
        "yso.ttl",
    )
    model.set_vocabulary(None).save(tmp_path / "again.safetensors")
    fitted.save(tmp_path / "never.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "never.safetensors").read_bytes()
    assert smoothlink.load(tmp_path / "again.safetensors").vocabulary_ is None


@pytest.mark.parametrize(
    "change",
    [
        {"language": "de"},
        {"languages": ["en", "en"]},
        {"languages": "en"},
        {"source": 3},
        {"vocabulary_deprecated": np.zeros(3, bool)},
        {"vocabulary_deprecated": np.zeros(4, np.int8)},
        {"vocabulary_names_1_zlib": files.pack_names(["one"])["names_zlib"]},
        {"vocabulary_names_1_zlib": np.zeros(2, np.uint8)},
        {"vocabulary_names_0_zlib": None},
        {"vocabulary": None},
    ],
)
def test_a_vocabulary_that_does_not_fit_together_is_refused(fitted, tmp_path, change):
    path = tmp_path / "m.safetensors"
    named(fitted, Vocabulary(NAMES, language="en"))[0].save(path)
    loaded = files.load(path, mmap=False)
    arrays, meta = dict(loaded.arrays), dict(loaded.meta)
    for key, value in change.items():
        if key in arrays:
            arrays[key] = value
        elif key == "vocabulary":
            meta["vocabulary"] = []
        else:
            meta["vocabulary"] = {**meta["vocabulary"], key: value}
    files.save(path, {key: array for key, array in arrays.items() if array is not None}, meta)
    with pytest.raises(ModelFileError, match=re.escape(str(path))):
        smoothlink.load(path)


def test_a_vocabulary_that_names_no_label_is_refused_and_the_model_stays_as_it_was(fitted):
    with pytest.raises(DataError, match=f"labels are such as '{BASE}p1' and .*ids 'q1'.\nPass a vocabulary whose ids"):
        fitted.set_vocabulary(Vocabulary({"": {"q1": "x"}}))
    with pytest.raises(DataError, match="names already and need no vocabulary"):
        fitted.set_vocabulary(Vocabulary({"": {"q1": f"{BASE}p1"}}))
    assert fitted.vocabulary_ is None


def test_display_names_are_those_of_the_vocabulary_else_the_labels(fitted):
    assert display_names(fitted) == fitted.label_names_
    model, _ = named(fitted, Vocabulary(NAMES, language="en"))
    shown = ["Mercury (p1)", "Mercury (p2)", "vapaus", "wireless", f"{BASE}p5"]
    assert display_names(model) == [label_text(model, j) for j in range(5)] == shown


def test_text_models_and_class_numbers_have_names_too(rng, tmp_path):
    texts, labels = documents(60)
    model, said = named(TextSmoothLink(**FIXED).fit(texts, labels), Vocabulary({"": {"fruit": "Fruit and berries"}}))
    assert "Fruit and berries" in display_names(model)
    assert len(said) == 1
    model.save(tmp_path / "t.safetensors")
    assert display_names(smoothlink.load(tmp_path / "t.safetensors")) == display_names(model)
    assert model.predict(texts[:3]) == model.set_vocabulary(None).predict(texts[:3])
    numbers = fixed().fit(rng.standard_normal((30, 4)), np.arange(30) % 3)
    assert display_names(named(numbers, Vocabulary({"": {"0": "zero", "1": "one", "2": "two"}}))[0]) == [
        "zero",
        "one",
        "two",
    ]
    assert numbers.fit(rng.standard_normal((30, 4)), np.arange(30) % 3).vocabulary_ is None


def test_explanations_carry_the_name_and_take_it(fitted):
    model, _ = named(fitted, Vocabulary(NAMES, language="en"))
    row = np.ones((1, 10))
    (one,) = smoothlink.explain(model, row, labels=["vapaus"])
    assert (one.label, one.name, one.display_name) == (2, f"{BASE}p3", "vapaus")
    assert one == smoothlink.explain(model, row, labels=[f"{BASE}p3"])[0]
    assert {near.display_name for near in one.neighbours} <= set(display_names(model))
    assert [near.display_name for near in smoothlink.neighbours(fitted, [0])[0]] == [
        str(near.name) for near in smoothlink.neighbours(fitted, [0])[0]
    ]


# Commands


@pytest.fixture(scope="module")
def made(tmp_path_factory, pytestconfig):
    """Files whose labels are label0 .. label4, with a vocabulary and a model that stores it."""
    found = prepared(tmp_path_factory.mktemp("vocabulary"), pytestconfig.getoption("--seed"))
    lines = [
        ("label0", "Mercury", "en"),
        ("label1", "Mercury", "en"),
        ("label2", "Tin", "en"),
        ("label2", "Zinn", "de"),
    ]
    written(found.folder / "names.tsv", "".join("\t".join(line) + "\n" for line in [*lines, ("label3", "Blei", "de")]))
    return found


def with_names(made):
    path = made.folder / "named.safetensors"
    if not path.exists():
        succeed("vocabulary", made.model, made.folder / "names.tsv", "--language", "en", "-o", path)
    return path


def test_a_vocabulary_is_stored_in_a_model_without_training(made, tmp_path):
    ran = succeed("vocabulary", made.model, made.folder / "names.tsv", "--language", "de", "-o", tmp_path / "m")
    assert "There is no name in de for 2 of 5 labels, such as 'label0' and 'label1': names in en are shown." in ran.err
    found, known = smoothlink.load(tmp_path / "m"), smoothlink.load(made.model)
    assert display_names(found)[2:4] == ["Zinn", "Blei"]
    X = made.tested.X
    np.testing.assert_array_equal(found.predict_proba(X), known.predict_proba(X))
    succeed("vocabulary", tmp_path / "m", made.folder / "names.tsv", "--language", "en")  # in its own place
    assert display_names(smoothlink.load(tmp_path / "m"))[2:4] == ["Tin", "Blei"]


def test_training_checks_the_vocabulary_before_it_fits_and_stores_it(made, tmp_path):
    arguments = ("train", made.train, "-o", tmp_path / "m", "--rank", 4, "--effort", "quick")
    other = written(tmp_path / "other.tsv", "q1\tx\n")
    ran = run(*arguments, "--vocabulary", other)
    assert (ran.code, "No label of the model is an id in other.tsv" in ran.err) == (1, True)
    assert not (tmp_path / "m").exists()
    assert run(*arguments, "--vocabulary", tmp_path / "none.tsv").code == 1
    assert "name a file of them" in run(*arguments, "--language", "en").err.replace("\n", " ")
    ran = succeed(*arguments, "--vocabulary", made.folder / "names.tsv", "--language", "en")
    assert "no name for 1 of 5 labels, such as 'label4'" in ran.err
    assert display_names(smoothlink.load(tmp_path / "m"))[:2] == ["Mercury (label0)", "Mercury (label1)"]


def test_training_on_texts_notes_which_labels_are_deprecated(tmp_path):
    texts, labels = documents(40)
    rows = [{"text": text, "labels": names} for text, names in zip(texts, labels, strict=True)]
    written(tmp_path / "docs.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    concepts = "".join(f'<fruit{i}> skos:prefLabel "n{i}"@en .\n' for i in range(3))
    written(
        tmp_path / "v.ttl",
        f"@base <http://a/> . @prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n{concepts}"
        '<x> skos:prefLabel "iron"@en ; <http://www.w3.org/2002/07/owl#deprecated> "true" .',
    )
    renamed = (tmp_path / "docs.jsonl").read_text().replace('"metal"', '"http://a/x"')
    written(tmp_path / "docs.jsonl", renamed)
    arguments = ("train", tmp_path / "docs.jsonl", "-o", tmp_path / "m", "--effort", "quick", "--rank", 4)
    ran = succeed(*arguments, "--vocabulary", tmp_path / "v.ttl")
    assert "marks 1 of 4 labels as deprecated, such as 'iron (deprecated)'" in ran.err
    assert (
        "iron (deprecated) <http://a/x>: probability"
        in succeed("explain", tmp_path / "m", "--text", "zinc", "--labels", "iron (deprecated)").out
    )
    facts = succeed("info", tmp_path / "m", "--json").json
    assert facts["vocabulary"]["deprecated_labels"] == 1
    assert {"label": "http://a/x", "name": "iron (deprecated)"}.items() <= next(
        one for one in facts["most_frequent_labels"] if "/" in one["label"]
    ).items()


def test_explain_shows_names_with_the_label_behind_and_json_has_both(made):
    model = with_names(made)
    ran = succeed("explain", model, made.test, "--row", 3, "--labels", "Tin", "--labels", "label0")
    assert "Tin <label2>: probability" in ran.out
    assert "Mercury (label0) <label0>: probability" in ran.out
    (one,) = succeed("explain", model, made.test, "--row", 3, "--labels", "Tin", "--json").json["labels"]
    assert (one["label"], one["name"], one["number"]) == ("label2", "Tin", 2)
    assert all(near["label"] == f"label{near['number']}" for near in one["neighbours"])
    ran = succeed("explain", model, made.test, "--row", 3, "--labels", "label2", "--language", "de")
    assert "Zinn <label2>: probability" in ran.out


def test_info_describes_the_vocabulary(made):
    model = with_names(made)
    found = succeed("info", model, "--json").json
    assert found["vocabulary"] == {
        "languages": ["en", "de"],
        "language": "en",
        "source": "names.tsv",
        "concepts": 4,
        "missing_labels": 1,
        "deprecated_labels": 0,
    }
    assert {one["label"]: one["name"] for one in found["most_frequent_labels"]}["label2"] == "Tin"
    ran = succeed("info", model)
    assert "names.tsv: 4 concepts, in en, de (en is shown), 1 label without a name" in " ".join(ran.out.split())
    assert "Tin <label2>" in ran.out
    assert succeed("info", made.model, "--json").json["vocabulary"] is None
    assert run("info", made.test, "--vocabulary", made.folder / "names.tsv").code == 1
    assert "the model stores no names" in " ".join(run("info", made.model, "--language", "en").err.split())


def test_a_report_shows_names_and_its_json_has_labels_too(made, tmp_path):
    page = tmp_path / "r.html"
    ran = succeed("report", with_names(made), made.test, "-o", page, "--bootstraps", 0, "--json", "-q")
    assert {one["label"]: one["name"] for one in ran.json["labels"]}["label2"] == "Tin"
    assert "Mercury (label1)" in page.read_text()
    succeed("report", made.model, made.test, "-o", page, "--bootstraps", 0, "--vocabulary", made.folder / "names.tsv")
    assert "Mercury (label1)" in page.read_text()
    assert smoothlink.load(made.model).vocabulary_ is None


def test_models_are_compared_by_labels_whatever_names_they_have(made):
    found = succeed("compare", with_names(made), made.model, made.test, "--bootstraps", 0, "--json")
    assert found.json["metrics"]["p@1"]["difference"]["value"] == 0
    assert "different labels" not in found.err


def test_predictions_have_labels_and_names(made, tmp_path):
    model = with_names(made)
    rows = [json.loads(line) for line in succeed("predict", model, made.test, "-k", 5, "-q").out.splitlines()]
    names = dict(zip(smoothlink.load(model).label_names_, display_names(smoothlink.load(model)), strict=True))
    assert {one["label"]: one["name"] for one in rows[0]["labels"]} == names
    table = tmp_path / "p.csv"
    succeed("predict", model, made.test, "-k", 2, "-o", table, "-q")
    with table.open(newline="") as stream:
        for row, line in zip(rows, csv.DictReader(stream), strict=True):
            assert line["names"].split("|") == [one["name"] for one in row["labels"][:2]]
            assert line["labels"].split("|") == [one["label"] for one in row["labels"][:2]]
    long = succeed("predict", model, made.test, "-k", 1, "--long", "--output-format", "tsv", "-q").out.splitlines()
    assert long[0].split("\t") == ["row", "label", "name", "probability"]
    assert long[1].split("\t")[2] == rows[0]["labels"][0]["name"]


def test_a_vocabulary_of_the_command_line_replaces_that_of_the_model_also_for_a_folder_of_files(made, tmp_path):
    model, other = with_names(made), written(tmp_path / "other.json", json.dumps({"label2": "Stannum"}))
    options = ("--only", "Stannum", "--vocabulary", other, "-q")
    row = json.loads(succeed("predict", model, made.test, *options).out.splitlines()[0])
    assert [(one["label"], one["name"]) for one in row["labels"]] == [("label2", "Stannum")]
    succeed("predict", model, made.test, "--output-folder", tmp_path / "out", *options)
    assert json.loads((tmp_path / "out" / "test.jsonl").read_text().splitlines()[0]) == row
    (one,) = json.loads(succeed("predict", model, made.test, "--only", "Tin", "-q").out.splitlines()[0])["labels"]
    assert one["name"] == "Tin"  # the model itself did not change
    (one,) = json.loads(
        succeed("predict", model, made.test, "--only", "2", "--language", "de", "-q").out.splitlines()[0]
    )["labels"]
    assert one["name"] == "Zinn"
    assert "name" not in json.loads(succeed("predict", made.model, made.test, "-q").out.splitlines()[0])["labels"][0]


def test_data_frames_of_predictions_have_names(tmp_path):
    texts, labels = documents(60)
    model, _ = named(TextSmoothLink(**FIXED).fit(texts, labels), Vocabulary({"": {"fruit": "Fruit and berries"}}))
    frame = model.predict_topk(texts[:3], k=2, as_frame=True)
    assert list(frame.columns) == ["labels", "names", "probabilities"]
    assert frame["names"].tolist() == [model.vocabulary_.names(row) for row in frame["labels"]]
