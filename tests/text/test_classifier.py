"""TextSmoothLink: documents in, names out."""

import json
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from small import WORDS, documents, shown

import smoothlink
from smoothlink import Gaussian, ModelFileError, SmoothLinkClassifier, TextFeatures, TextSmoothLink
from smoothlink.errors import DataError
from smoothlink.safetensors_file import load as load_file
from smoothlink.safetensors_file import save as save_file

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


@pytest.mark.parametrize(
    "options",
    [
        *({"token_pattern": wrong} for wrong in ("(", "(a)(b)", "a{999999999999}", "(?<=a+)b", None, 3, [1, 2])),
        *({"strip_accents": wrong} for wrong in ("both", 1e-320, True, {})),
    ],
    ids=str,
)
def test_options_of_texts_that_are_not_possible_are_refused_at_loading(fitted, tmp_path, options):
    path = tmp_path / "m.safetensors"
    fitted.save(path)
    loaded = load_file(path, mmap=False)
    loaded.meta["text"]["options"] |= options
    save_file(path, loaded.arrays, loaded.meta)
    with pytest.raises(ModelFileError, match="options that are not possible"):
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
    assert names == {"examples", "label_separator", *TextFeatures().get_params(), *SmoothLinkClassifier().get_params()}
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
        ([["a"]], "There are 2 texts and labels for 1"),
    ],
)
def test_labels_that_cannot_be_used_are_refused_in_words(labels, message):
    with pytest.raises(DataError, match=message):
        TextSmoothLink().fit(["some text", "another"], labels)


def cells(mark=", "):
    texts, labels = documents()
    return texts, [mark.join(row) for row in labels]


def test_cells_of_labels_are_cut_as_lists_are_given_and_the_guess_is_said(fitted, tmp_path):
    texts, joined = cells()
    with pytest.warns(UserWarning, match="Labels are separated by ',', it seems; label_separator= says otherwise"):
        model = TextSmoothLink(**QUICK).fit(texts, joined)
    np.testing.assert_array_equal(model.predict_proba(texts), fitted.predict_proba(texts))
    assert model.score(texts, joined) == model.score(texts, documents()[1]) == fitted.score(texts, documents()[1])
    model.save(tmp_path / "m.safetensors")
    again = smoothlink.load(tmp_path / "m.safetensors")
    assert again.evaluate(texts[:1], joined[:1]).metrics == fitted.evaluate(texts[:1], documents()[1][:1]).metrics
    assert str(again.get_params()) == str(model.get_params())


@pytest.mark.parametrize(("separator", "mark"), [(",", ", "), (" ", " "), ("list", None)])
def test_a_separator_that_is_given_is_used_without_a_word(fitted, separator, mark, recwarn):
    texts, labels = documents()
    joined = cells(mark)[1] if mark else [repr(row) for row in labels]
    model = TextSmoothLink(label_separator=separator, **QUICK).fit(texts, joined)
    assert not [w for w in recwarn if issubclass(w.category, UserWarning) and "label" in str(w.message)]
    np.testing.assert_array_equal(model.predict_proba(texts), fitted.predict_proba(texts))
    assert model.score(texts, joined) == fitted.score(texts, labels)


def test_cells_that_may_be_lists_are_one_label_each_with_a_warning():
    texts = documents(4)[0]
    places = ["Paris, France", "Rome, Italy", "Lima, Peru", "Oslo"]
    with pytest.warns(UserWarning, match="Pass label_separator=',' if it does, label_separator='none' if not"):
        model = TextSmoothLink(**QUICK).fit(texts, places)
    assert model.classes_.tolist() == sorted(places)
    with pytest.raises(ValueError, match="label_separator is None; possible are 'auto', 'none'"):
        TextSmoothLink(label_separator=None).fit(texts, places)


def test_labels_that_look_wrong_are_noted_and_stripped():
    texts, labels = documents()
    with pytest.warns(UserWarning, match="had spaces around, such as ' fruit'"):
        model = TextSmoothLink(**QUICK).fit(texts, [[f" {name}" for name in row] for row in labels])
    assert model.classes_.tolist() == sorted(WORDS)
    with pytest.warns(UserWarning, match=r"Lists hold labels such as .*, each read as one label"):
        TextSmoothLink(**QUICK).fit(texts, [[", ".join(row)] if row else [] for row in labels])


class Frame:
    """A table as pandas and polars have it: iterating gives the names of its columns."""

    ndim = 2

    def __init__(self, columns):
        self.held = columns
        self.columns = list(columns)
        self.shape = (len(next(iter(columns.values()))), len(columns))

    def __iter__(self):
        return iter(self.columns)

    def __getitem__(self, name):
        return self.held[name]


class Dataset:
    """A table as Hugging Face's datasets have it: iterating gives records."""

    def __init__(self, columns):
        self.held = columns
        self.column_names = list(columns)

    def __iter__(self):
        return ({name: column[i] for name, column in self.held.items()} for i in range(len(self)))

    def __len__(self):
        return len(next(iter(self.held.values())))

    def __getitem__(self, name):
        return self.held[name]


def module(name, table):
    return lambda columns: getattr(pytest.importorskip(name), table)(columns)


TABLES = {
    "dict": dict,
    "columns": Frame,
    "column_names": Dataset,
    "pyarrow": module("pyarrow", "table"),
    "pandas": module("pandas", "DataFrame"),
    "polars": module("polars", "DataFrame"),
}
tables = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


@pytest.fixture(scope="module")
def columns():
    texts = documents()[0]
    return {"title": [text.split(" ", 1)[0] for text in texts], "body": [text.split(" ", 1)[1] for text in texts]}


@pytest.fixture(scope="module")
def of_columns(columns):
    """A model of the columns of a table."""
    return TextSmoothLink(**QUICK).fit(columns, documents()[1])


@tables
def test_a_table_is_read_by_the_columns_that_the_model_was_trained_on(table, columns, of_columns, tmp_path):
    texts = [f"{title}\n{body}" for title, body in zip(columns["title"], columns["body"], strict=True)]
    labels = documents()[1]
    model = TextSmoothLink(**QUICK).fit(table(columns), labels)
    expected = model.predict_proba(texts)
    np.testing.assert_array_equal(expected, of_columns.predict_proba(texts))
    model.save(tmp_path / "m.safetensors")
    model = smoothlink.load(tmp_path / "m.safetensors")
    wider = table({"id": list(range(len(texts))), "body": columns["body"], "title": columns["title"]})
    np.testing.assert_array_equal(model.predict_proba(wider), expected)
    assert len(model.predict(wider)) == len(texts)
    assert model.evaluate(wider, labels).metrics == model.evaluate(texts, labels).metrics
    with pytest.raises(DataError, match="columns id, body came, and the model was trained on the text in title, body"):
        model.predict(table({"id": [1], "body": ["a"]}))


@tables
def test_a_table_of_one_column_is_its_texts_for_a_model_of_a_list(table, fitted):
    texts = documents()[0]
    assert fitted.predict(table({"t": texts})) == fitted.predict(texts)
    np.testing.assert_array_equal(
        fitted.features_.transform(table({"t": texts})).toarray(), fitted.transform(texts).toarray()
    )
    with pytest.raises(DataError, match=r"columns a, b came, and it is not known which .*\n.*table\['a'\]"):
        fitted.predict(table({"a": texts, "b": texts}))


@tables
def test_columns_that_are_no_text_are_not_learnt_from(table, columns):
    labels = [row[0] if row else "none" for row in documents()[1]]
    with pytest.raises(DataError, match="column year of title, year holds 1987, of type int, not text"):
        TextSmoothLink(**QUICK).fit(table({"title": columns["title"], "year": [1987] * 200}), labels)
    with pytest.raises(DataError, match="column tag of title, tag holds the labels"):
        TextSmoothLink(**QUICK).fit(table({"title": columns["title"], "tag": labels}), labels)


def test_a_table_is_no_list_of_labels(columns):
    with pytest.raises(DataError, match="labels came as a table with the columns title, body, not all of 0 and 1"):
        TextSmoothLink(**QUICK).fit(columns["title"], columns)


def marks(rows, *, reverse=False):
    """The labels of each row as columns of 0 and 1."""
    return {name: [int(name in row) for row in rows] for name in sorted(WORDS, reverse=reverse)}


@tables
def test_the_columns_of_a_table_of_0_and_1_name_the_labels(table, fitted, tmp_path):
    texts, labels = documents()
    model = TextSmoothLink(**QUICK).fit(texts, table(marks(labels)))
    assert model.classes_.tolist() == sorted(WORDS)
    np.testing.assert_array_equal(model.predict_proba(texts), fitted.predict_proba(texts))
    shuffled = table({**marks(labels, reverse=True), "unheard-of": [1] + [0] * (len(texts) - 1)})
    found = model.evaluate(texts, shuffled, bootstraps=0)
    assert found.n_unknown_pairs == 1
    truth = [[*row, *(["unheard-of"] if i == 0 else [])] for i, row in enumerate(labels)]
    assert {key: metric.value for key, metric in found.metrics.items()} == pytest.approx(
        {key: metric.value for key, metric in fitted.evaluate(texts, truth, bootstraps=0).metrics.items()}, nan_ok=True
    )
    X = model.transform(texts)
    classifier = SmoothLinkClassifier(**QUICK).fit(X, table(marks(labels)))
    assert classifier.label_names_ == sorted(WORDS)
    assert classifier.evaluate(X, shuffled, bootstraps=0).metrics.keys() == found.metrics.keys()
    assert classifier.evaluate(X, shuffled, bootstraps=0).metrics["p@1"] == found.metrics["p@1"]
    classifier.save(tmp_path / "m.safetensors")
    assert smoothlink.load(tmp_path / "m.safetensors").label_names_ == sorted(WORDS)


def test_numbered_columns_and_those_of_other_types_are_read_as_a_matrix():
    pandas = pytest.importorskip("pandas")
    texts, labels = documents()
    frame = pandas.DataFrame(marks(labels))
    assert TextSmoothLink(**QUICK).fit(texts, frame.to_numpy()).classes_.tolist() == ["0", "1", "2", "3"]
    numbered = pandas.DataFrame(frame.to_numpy())
    assert SmoothLinkClassifier(**QUICK).fit(np.eye(200, 4) + 0.1, numbered).label_names_ is None
    for kind in ("boolean", "Int64", bool):
        assert TextSmoothLink(**QUICK).fit(texts, frame.astype(kind)).classes_.tolist() == sorted(WORDS)
    with pytest.raises(DataError, match="several columns fruit"):
        TextSmoothLink(**QUICK).fit(texts, pandas.concat([frame, frame[["fruit"]]], axis=1))


@pytest.mark.parametrize("form", [np.array, sp.csr_array, "pandas", "polars"])
def test_a_model_of_a_0_1_matrix_predicts_one_so_that_scikit_learn_can_score_it(form, fitted, tmp_path):
    texts, labels = documents()
    Y = np.array([[name in row for name in sorted(WORDS)] for row in labels], int)
    y = module(form, "DataFrame")(marks(labels)) if isinstance(form, str) else form(Y)
    model = TextSmoothLink(**QUICK).fit(texts, y)
    model.save(tmp_path / "m.safetensors")
    for one in (model, smoothlink.load(tmp_path / "m.safetensors")):
        for method in ("predict", "predict_f1"):
            found = getattr(one, method)(texts)
            assert sp.issparse(found) == (form is sp.csr_array)
            dense = found.toarray() if sp.issparse(found) else found
            names = [[name for name, one in zip(sorted(WORDS), row, strict=True) if one] for row in dense]
            assert names == getattr(fitted, method)(texts)
            assert getattr(one, method)([]).shape == (0, 4)
    if form is sp.csr_array:  # which scikit-learn's cross-validation does not take
        assert f1_score(y, model.predict(texts), average="micro") > 0.5
    else:
        assert cross_val_score(TextSmoothLink(**QUICK), texts, y, scoring="f1_micro", cv=3).min() > 0.5


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_the_best_labels_come_as_a_data_frame_that_joins_the_texts(library, fitted):
    frame = pytest.importorskip(library)
    texts = documents(5)[0]
    best = fitted.predict_topk(texts, k=2)
    given = frame.DataFrame({"text": texts})
    given = given.set_index(frame.Index(list("abcde"))) if library == "pandas" else given
    found = fitted.predict_topk(given, k=2, as_frame=True)
    assert type(found) is frame.DataFrame
    assert list(found.columns) == ["labels", "probabilities"]
    assert [list(row) for row in found["labels"]] == [[name for name, _ in row] for row in best]
    assert [list(row) for row in found["probabilities"]] == [[p for _, p in row] for row in best]
    if library == "pandas":
        assert given.join(found).columns.tolist() == ["text", "labels", "probabilities"]
        X = frame.DataFrame(fitted.transform(texts).toarray(), index=given.index).add_prefix("f")
        classifier = SmoothLinkClassifier(**QUICK).fit(X, marks(documents(5)[1]))
        rows = classifier.predict_topk(X, k=2, as_frame=True)
        assert rows.index.tolist() == list("abcde")
        assert set(rows["labels"].iloc[0]) <= set(WORDS)
    assert len(fitted.predict_topk([], as_frame=True)) == 0
    with pytest.raises(ValueError, match="as_frame is 'polars'; possible are True or False"):
        fitted.predict_topk(["x"], as_frame="polars")


def test_a_model_of_a_named_column_reads_it_in_a_table(fitted):
    class Series(list):
        name = "text"

    model = TextSmoothLink(**QUICK).fit(Series(documents()[0]), documents()[1])
    texts = documents(20, seed=2)[0]
    assert model.predict({"id": range(20), "text": texts}) == fitted.predict(texts)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"title": "iron", "body": "zinc"}, "holds 'iron', of type str, where a list of texts belongs"),
        ({"title": ["iron"], "body": ["a", "b"]}, r"different lengths \(title: 1, body: 2\)"),
        ({}, "A table without columns came"),
        (Frame({"title": ["a"], "body": [{"x": 1}]}), "Row 0 of title, body: the text is a dict"),
        (np.array([["a", "b"]]), "An array of 1 x 2 values came"),
        ([{"title": "iron", "body": "zinc"}], "Text 0 is {'title': 'iron', 'body': 'zinc'}, of type dict"),
    ],
)
def test_what_is_no_table_of_texts_is_refused_in_words(of_columns, given, message):
    with pytest.raises(DataError, match=message):
        of_columns.predict(given)
