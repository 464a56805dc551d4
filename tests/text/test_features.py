"""Documents -> X, against scikit-learn."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from smoothlink import TextFeatures
from smoothlink.errors import DataError, ModelFileError

TEXTS = [
    "The cat sat on the mat, the very mat of the cat.",
    "A dog chased the cat across Ångström's lawn!",
    "Dogs and cats; cats and dogs: DOGS.",
    "",
    "ein völlig anderer Text über Hunde",
    "the mat",
]
NEW = ["the dog on the mat mat mat", "nothing known zzz", "", "CAT über"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sublinear_tf": False},
        {"use_idf": False},
        {"lowercase": False},
        {"strip_accents": "unicode"},
        {"token_pattern": r"\w+"},
        {"min_df": 2},
        {"max_features": 4},
    ],
)
def test_words_are_the_rows_of_scikit_learn(options):
    mine = TextFeatures(word_ngrams=(1, 2), char_ngrams=None, **options)
    its = TfidfVectorizer(ngram_range=(1, 2), **{"sublinear_tf": True, "dtype": np.float32, **options})
    np.testing.assert_allclose(mine.fit_transform(TEXTS).toarray(), its.fit_transform(TEXTS).toarray(), atol=1e-6)
    np.testing.assert_allclose(mine.transform(NEW).toarray(), its.transform(NEW).toarray(), atol=1e-6)
    assert mine.get_feature_names_out().tolist() == its.get_feature_names_out().tolist()


def test_two_kinds_of_ngrams_are_two_unit_blocks_side_by_side():
    mine = TextFeatures(word_ngrams=(1, 1), char_ngrams=(2, 3)).fit(TEXTS)
    its = [
        TfidfVectorizer(sublinear_tf=True).fit(TEXTS),
        TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 3)).fit(TEXTS),
    ]
    both = normalize(sp.hstack([vectorizer.transform(NEW) for vectorizer in its], format="csr"))
    np.testing.assert_allclose(mine.transform(NEW).toarray(), both.toarray(), atol=1e-6)


@pytest.mark.parametrize("options", [{"char_ngrams": (2, 4)}, {"hashing": 64}, {"hashing": 64, "char_ngrams": 3}])
def test_fitting_and_transforming_at_once_is_one_after_the_other(options):
    features = TextFeatures(**options)
    at_once = features.fit_transform(TEXTS)
    assert (abs(at_once - features.transform(TEXTS))).max() < 1e-6
    assert at_once.dtype == np.float32
    assert at_once.has_sorted_indices


@pytest.mark.parametrize("options", [{"char_ngrams": (2, 4)}, {"hashing": 64}, {"use_idf": False}])
def test_arrays_and_json_make_the_same_features(options):
    features = TextFeatures(**options).fit(TEXTS)
    for again in (TextFeatures.from_arrays(*features.to_arrays()), pickle.loads(pickle.dumps(features))):
        assert again.get_params() == features.get_params()
        assert abs(again.transform(NEW) - features.transform(NEW)).sum() == 0
        assert again.get_feature_names_out().tolist() == features.get_feature_names_out().tolist()
    assert clone(features).get_params() == features.get_params()


def test_features_that_do_not_fit_together_are_refused():
    arrays, meta = TextFeatures().fit(TEXTS).to_arrays()
    with pytest.raises(ModelFileError, match="do not fit together"):
        TextFeatures.from_arrays(arrays, {**meta, "blocks": [{**meta["blocks"][0], "width": 3}]})
    with pytest.raises(ModelFileError, match="weights"):
        TextFeatures.from_arrays({**arrays, "text_idf": arrays["text_idf"][:2]}, meta)


def test_hashing_takes_a_stream_and_loses_nothing_but_names():
    by_name, hashed = TextFeatures(min_df=1), TextFeatures(hashing=2**20)
    A, B = by_name.fit_transform(TEXTS), hashed.fit_transform(text for text in TEXTS)
    assert B.shape == (len(TEXTS), 2 * 2**20)
    np.testing.assert_allclose((A @ A.T).toarray(), (B @ B.T).toarray(), atol=1e-6)


def test_terms_are_the_ngrams_behind_the_columns_of_a_row():
    features = TextFeatures(word_ngrams=(1, 2), char_ngrams=(3, 3)).fit(TEXTS)
    names = features.get_feature_names_out()
    found = features.terms("the mat")
    assert {j for j, _ in found} == set(features.transform(["the mat"]).indices.tolist())
    assert all(names[j] == term for j, term in found)
    assert (names.tolist().index("the mat"), "the mat") in found


def test_short_texts_have_features_of_characters_too():
    long = [f"{text} {'and more of the same words ' * 20}" for text in TEXTS]
    kinds = {name: [b.kind for b in TextFeatures().fit(texts).blocks_] for name, texts in (("s", TEXTS), ("l", long))}
    assert kinds == {"s": ["words", "characters"], "l": ["words"]}
    streamed = TextFeatures(hashing=64).fit(text for text in long)
    assert [(b.kind, b.width) for b in streamed.blocks_] == [("words", 64)]
    assert [b.kind for b in TextFeatures(word_ngrams=None).fit(long).blocks_] == ["characters"]


def test_texts_without_words_are_rows_without_features():
    X = TextFeatures().fit(TEXTS).transform(["", "zzz"])
    assert X.shape[0] == 2
    assert X.nnz == 0


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "One text was passed"),
        (["a b", None], "Text 1 is no text"),
        (["a b", 3.5], "of type float"),
        (["", " "], "No text has an n-gram"),
    ],
)
def test_what_is_no_text_is_refused_in_words(texts, message):
    with pytest.raises(DataError, match=message):
        TextFeatures().fit(texts)


@pytest.mark.parametrize(
    "options",
    [
        {"word_ngrams": None, "char_ngrams": None},
        {"word_ngrams": (2, 1)},
        {"char_ngrams": "words"},
        {"min_df": 0},
        {"max_features": 1.5},
        {"hashing": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=r"possible are|no feature"):
        TextFeatures(**options).fit(TEXTS)
