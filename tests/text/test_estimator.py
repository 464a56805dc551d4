"""TextSmoothLink: documents in, names out."""

import json
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from small import WORDS, documents, shown

import smoothlink
from smoothlink import Gaussian, ModelFileError, SmoothLinkClassifier, TextFeatures, TextSmoothLink
from smoothlink.errors import DataError
from smoothlink.steps.save import load as load_file
from smoothlink.steps.save import save as save_file

QUICK = {"effort": "quick", "kernel": Gaussian(features=64), "loss": "squared"}


@pytest.fixture(scope="module")
def fitted():
    return TextSmoothLink(**QUICK).fit(*documents())


def test_names_come_back(fitted):
    assert fitted.classes_.tolist() == sorted(WORDS)
    assert fitted.predict(["apple plum pear", "red iron blue zinc copper green"]) == [["fruit"], ["colour", "metal"]]
    best = fitted.predict_topk(["iron zinc"], k=2)[0]
    assert best[0][0] == "metal"
    assert len(best) == 2
    assert best[0][1] == pytest.approx(fitted.predict_proba(["iron zinc"], labels=["metal"])[0, 0])
    assert fitted.predict_proba([]).shape == (0, 4)
    assert fitted.predict([]) == fitted.predict_topk([]) == []


def test_it_is_the_classifier_on_the_features(fitted):
    texts, labels = documents()
    features = TextFeatures()
    X = features.fit_transform(texts)
    Y = np.array([[name in row for name in sorted(WORDS)] for row in labels], int)
    classifier = SmoothLinkClassifier(**QUICK).fit(X, Y)
    np.testing.assert_array_equal(fitted.predict_proba(texts), classifier.predict_proba(X))
    assert fitted.evaluate(texts, labels).metrics == classifier.evaluate(X, Y).metrics


def test_a_matrix_of_labels_is_the_lists_of_its_column_numbers():
    texts, labels = documents()
    Y = sp.csr_array(np.array([[name in row for name in sorted(WORDS)] for row in labels], int))
    by_matrix = TextSmoothLink(**QUICK).fit(texts, Y)
    by_number = TextSmoothLink(**QUICK).fit(texts, [Y[[row]].indices.tolist() for row in range(len(texts))])
    np.testing.assert_array_equal(by_matrix.predict_proba(texts), by_number.predict_proba(texts))
    assert by_matrix.classes_.tolist() == by_number.classes_.tolist() == ["0", "1", "2", "3"]
    assert by_matrix.score(texts, Y) == by_number.score(texts, Y)


def test_one_name_a_row_is_multiclass():
    texts, labels = documents()
    single = [row[0] if row else "none" for row in labels]
    model = TextSmoothLink(**QUICK).fit(texts, single)
    assert model.summary_["task"] == "multiclass"
    said = model.predict(texts)
    assert all(len(row) == 1 for row in said)
    assert model.score(texts, single) == pytest.approx(np.mean([a == [b] for a, b in zip(said, single, strict=True)]))


def test_a_saved_model_says_the_same_and_runs_no_code(fitted, tmp_path):
    path = tmp_path / "m.safetensors"
    fitted.source_ = {"text": ["title"], "labels": "tags"}
    fitted.save(path)
    again = smoothlink.load(path)
    texts, labels = documents(seed=1)
    assert isinstance(again, TextSmoothLink)
    np.testing.assert_array_equal(again.predict_proba(texts), fitted.predict_proba(texts))
    assert again.predict(texts) == fitted.predict(texts)
    assert again.examples_ == fitted.examples_
    assert again.source_ == fitted.source_
    assert shown(again) == shown(fitted)
    assert clone(again).fit(texts, labels).predict(texts)
    assert pickle.loads(pickle.dumps(again)).predict(texts) == fitted.predict(texts)


def test_half_precision_keeps_the_text_section(fitted, tmp_path):
    fitted.save(tmp_path / "m.safetensors", dtype="float16")
    again = smoothlink.load(tmp_path / "m.safetensors")
    np.testing.assert_allclose(again.predict_proba(["iron"]), fitted.predict_proba(["iron"]), atol=1e-2)


@pytest.mark.parametrize("spoil", ["blocks", "example_labels", "options"])
def test_a_text_section_that_makes_no_model_is_refused(fitted, tmp_path, spoil):
    path = tmp_path / "m.safetensors"
    fitted.save(path)
    loaded = load_file(path)
    meta = json.loads(json.dumps(loaded.meta))
    meta["text"][spoil] = {"blocks": [], "example_labels": [["x"]], "options": {"strange": 1}}[spoil]
    save_file(path, {name: np.array(a) for name, a in loaded.arrays.items()}, meta)
    with pytest.raises(ModelFileError, match="safetensors"):
        smoothlink.load(path)


def test_examples_are_short_training_texts_of_different_labels(fitted):
    texts, labels = documents()
    assert 1 <= len(fitted.examples_) <= 8
    assert all(sorted(labels[texts.index(text)]) == names for text, names in fitted.examples_)
    said = [name for _, names in fitted.examples_ for name in names]
    assert len(said) == len(set(said))
    assert TextSmoothLink(examples=0, **QUICK).fit(texts, labels).examples_ == []
    long = TextSmoothLink(**QUICK).fit([f"{text} {'and ' * 200}" for text in texts], labels)
    assert all(len(text) <= 500 for text, _ in long.examples_)


def test_grid_search_tunes_features_and_classifier():
    texts, labels = documents(80)
    model = TextSmoothLink(**QUICK)
    search = GridSearchCV(model, {"word_ngrams": [(1, 1), (1, 2)], "ridge": [1.0, 10.0]}, cv=2).fit(texts, labels)
    assert search.best_params_.keys() == {"word_ngrams", "ridge"}
    assert search.best_score_ > 0.5


def test_parameters_are_those_of_both_parts():
    names = TextSmoothLink().get_params().keys()
    assert names == {"examples", *TextFeatures().get_params(), *SmoothLinkClassifier().get_params()}
    assert not TextFeatures().get_params().keys() & SmoothLinkClassifier().get_params().keys()
    with pytest.raises(TypeError, match="ngrams"):
        TextSmoothLink(ngrams=3)


def test_ranking_by_propensity_is_that_of_the_classifier(fitted):
    texts, labels = documents()
    order = fitted.classifier_.predict_topk(fitted.transform(texts), k=4, rank_by="psp").indices.reshape(-1, 4)
    found = fitted.predict_topk(texts, k=4, rank_by="psp")
    assert [[name for name, _ in row] for row in found] == fitted.classes_[order].tolist()
    for ask in (
        lambda by: fitted.predict_topk(texts, rank_by=by),
        lambda by: fitted.evaluate(texts, labels, rank_by=by),
    ):
        with pytest.raises(ValueError, match="rank_by is 'luck'; possible are 'probability' or 'psp'"):
            ask("luck")


def test_a_model_that_is_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        TextSmoothLink().predict(["a"])


def test_labels_unknown_to_the_model_count_as_misses(fitted):
    assert fitted.evaluate(["iron zinc"], [["metal", "strange"]]).n_unknown_pairs == 1
    with pytest.raises(DataError, match="strange"):
        fitted.predict_proba(["iron"], labels=["strange"])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([["a"], ["b", 3]], "Row 1 mixes"),
        ([["a"], [2.5]], "of type float"),
        ([["a"], None], "Row 1 has the labels None"),
        ([["a"]], "There are 2 texts and labels of 1"),
    ],
)
def test_labels_that_cannot_be_used_are_refused_in_words(labels, message):
    with pytest.raises(DataError, match=message):
        TextSmoothLink().fit(["some text", "another"], labels)
