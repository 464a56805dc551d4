"""Numbers beside texts: they are features of the model, saved with it, read from files and taken by the service."""

import json
import pickle

import numpy as np
import pytest
from commands import run, succeed
from paged import texts_and_labels
from served import client
from sklearn.base import clone

from smoothlink import DataError, Document, TextFeatures, TextSmoothLink, explain, load


def numbered(n=120):
    """Documents whose words say nothing of half of the labels, which the numbers decide."""
    texts, labels = texts_and_labels(n)
    rng = np.random.default_rng(7)
    V = rng.normal(size=(n, 3)) * [1, 100, 0.01] + [5, 2000, 0]
    labels = [[*row, "late" if v[1] > 2000 else "early"] for row, v in zip(labels, V, strict=True)]
    return texts, V, labels


def documents(texts, V):
    return [Document(text, row) for text, row in zip(texts, V, strict=True)]


@pytest.fixture(scope="module")
def trained():
    texts, V, labels = numbered()
    return TextSmoothLink(effort="quick").fit(documents(texts, V), labels)


@pytest.mark.parametrize("hashing", [None, 64])
def test_the_features_are_those_of_the_text_and_the_standardised_numbers_each_of_unit_length(hashing):
    texts, V, _ = numbered(30)
    features = TextFeatures(hashing=hashing)
    X = features.fit_transform(documents(texts, V)).toarray()
    words = TextFeatures(hashing=hashing).fit_transform(texts).toarray()
    Z = (V - V.mean(axis=0)) / V.std(axis=0)
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    np.testing.assert_allclose(X, np.hstack([words, Z]) / np.sqrt(2), atol=2e-4)
    np.testing.assert_allclose(features.transform(documents(texts, V)).toarray(), X, atol=1e-6)
    assert features.n_columns == X.shape[1] == len(features.get_feature_names_out())
    assert features.get_feature_names_out()[-3:].tolist() == ["number0", "number1", "number2"]


def test_numbers_that_are_not_known_count_as_their_mean():
    texts, V, _ = numbered(30)
    features = TextFeatures().fit(documents(texts, V))
    mean = features.transform([Document(texts[0], V.mean(axis=0).astype(np.float32))]).toarray()
    np.testing.assert_allclose(features.transform([Document(texts[0])]).toarray(), mean, atol=1e-4)
    partly = features.transform([Document(texts[0], [V[0, 0], np.nan, V[0, 2]])]).toarray()[0, -3:]
    assert partly[1] == 0
    assert partly[0] != 0


def test_labels_that_the_numbers_decide_are_learnt(trained):
    texts, V, labels = numbered(300)
    new, truth = documents(texts[120:], V[120:]), labels[120:]
    late = [dict(row)["late"] > dict(row)["early"] for row in trained.predict_topk(new, k=8)]
    assert np.mean([guess == ("late" in row) for guess, row in zip(late, truth, strict=True)]) > 0.9
    plain = TextSmoothLink(effort="quick").fit(texts[:120], labels[:120])
    assert (
        trained.evaluate(new, truth).metrics["micro_f1"].value
        > plain.evaluate(texts[120:], truth).metrics["micro_f1"].value
    )


def test_a_saved_model_a_pickled_one_and_pickled_documents_predict_the_same(trained, tmp_path):
    texts, V, labels = numbered(20)
    found = documents(texts, V)
    expected = trained.predict_proba(found)
    trained.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "model.safetensors").predict_proba(found), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(trained)).predict_proba(found), expected)
    np.testing.assert_array_equal(trained.predict_proba(pickle.loads(pickle.dumps(found))), expected)
    assert clone(trained).fit(found, labels).features_.numbers_ is not None


def test_explanations_name_the_numbers(trained):
    texts, V, _ = numbered(1)
    found = explain(trained, Document(texts[0], V[0]), labels=["late"], top=None)[0]
    assert "number1" in {reason.name for reason in found.reasons}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["plain text"], "Text 0 comes without numbers, and the model was trained with 3"),
        ([Document("a", [1.0, 2.0, 3.0]), Document("b", [1.0])], "Document 1 has 1 number beside its text, and others"),
    ],
)
def test_a_model_with_numbers_refuses(trained, texts, message):
    with pytest.raises(DataError, match=message):
        trained.predict(texts)


def test_numbers_must_be_numbers_and_a_model_without_them_refuses_some():
    for wrong, message in ((["a"], "numbers of a document are"), ([[1.0]], "2 dimensions"), ([np.inf], "infinite")):
        with pytest.raises(DataError, match=message):
            Document("text", wrong)
    texts, labels = texts_and_labels(40)
    model = TextSmoothLink(effort="quick").fit(texts, labels)
    with pytest.raises(DataError, match="trained without any"):
        model.predict([Document("text", [1.0])])
    assert model.predict([Document(texts[0])]) == model.predict([texts[0]])


# Files


def write_files(folder):
    """The same documents with a list of numbers in JSON lines, and with columns of numbers in a table."""
    texts, V, labels = numbered()
    rows = list(zip(texts, V.round(6).tolist(), labels, strict=True))
    lines = [json.dumps({"title": t, "embedding": v, "tags": row}) + "\n" for t, v, row in rows]
    (folder / "docs.jsonl").write_text("".join(lines))
    table = [f'"{t}",{v[0]},{v[1]},{v[2]},{"|".join(row)}\n' for t, v, row in rows]
    (folder / "docs.csv").write_text("title,first,year,third,tags\n" + "".join(table))
    return texts, V.round(6), labels


@pytest.mark.parametrize(("name", "columns"), [("docs.jsonl", "embedding"), ("docs.csv", "first,year,third")])
def test_files_with_numbers_train_and_predict_as_python_does(tmp_path, name, columns):
    texts, V, labels = write_files(tmp_path)
    path, model = tmp_path / name, tmp_path / "model.safetensors"
    given = "--text", "title", "--labels", "tags", "--numbers", columns, "--label-separator", "|"
    succeed("train", path, *given, "-o", model, "--effort", "quick")
    ours = TextSmoothLink(effort="quick").fit(documents(texts, V), labels)
    loaded = load(model)
    np.testing.assert_allclose(
        loaded.predict_proba(documents(texts, V)), ours.predict_proba(documents(texts, V)), atol=1e-5
    )
    ran = succeed("predict", model, path, "-k", "1")
    first = [json.loads(line)["labels"][0]["label"] for line in ran.out.splitlines()]
    assert first == [row[0][0] for row in loaded.predict_topk(documents(texts, V), k=1)]
    assert '"p@1"' in succeed("evaluate", model, path, "--json").out
    assert succeed("explain", model, "--text", texts[0]).code == 0


def test_columns_and_cells_that_hold_no_numbers_are_named(tmp_path):
    write_files(tmp_path)
    given = "--text", "title", "--labels", "tags", "-o", tmp_path / "m", "--effort", "quick"
    ran = run("train", tmp_path / "docs.jsonl", *given, "--numbers", "vector")
    assert ran.code == 1
    assert "has no column vector; it has title, embedding, tags" in ran.err
    ran = run("train", tmp_path / "docs.csv", *given, "--label-separator", "|", "--numbers", "title")
    assert ran.code == 1
    assert "docs.csv, line 2:" in ran.err
    assert "is no number and no list of numbers" in ran.err


def test_empty_cells_are_numbers_that_are_not_known(tmp_path):
    write_files(tmp_path)
    lines = (tmp_path / "docs.csv").read_text().splitlines()
    cells = lines[1].rsplit(",", 4)
    lines[1] = ",".join([cells[0], cells[1], "", cells[3], cells[4]])
    (tmp_path / "holes.csv").write_text("\n".join(lines) + "\n")
    given = "--text", "title", "--labels", "tags", "--numbers", "first,year,third", "--label-separator", "|"
    succeed("train", tmp_path / "holes.csv", *given, "-o", tmp_path / "m", "--effort", "quick")


# The service


def test_the_service_takes_numbers_beside_texts(trained):
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    texts, V, _ = numbered(2)
    server = client(trained)
    asked = {"texts": texts, "numbers": V.tolist(), "k": 8}
    found = server.post("/predict", json=asked).json()["predictions"]
    for row, expected in zip(found, trained.predict_topk(documents(texts, V), k=8), strict=True):
        assert {label["label"]: label["probability"] for label in row["labels"]} == pytest.approx(
            dict(expected), abs=1e-5
        )
    unknown = server.post("/predict", json={"texts": texts, "k": 8}).json()["predictions"][0]["labels"]
    expected = dict(trained.predict_topk([Document(texts[0])], k=8)[0])
    assert {label["label"]: label["probability"] for label in unknown} == pytest.approx(expected, abs=1e-5)
    explained = server.post("/explain", json={"text": texts[0], "numbers": V[0].tolist(), "labels": ["late"]}).json()
    assert "number1" in {feature["feature"] for feature in explained["explanations"][0]["features"]}
    wrong = server.post("/predict", json={"texts": texts, "numbers": [[1.0], None]})
    assert wrong.status_code == 422
    assert "A text has 1 number beside it, and this model takes 3" in wrong.text
    assert server.post("/predict", json={"texts": texts, "numbers": [[1.0]]}).status_code == 422
