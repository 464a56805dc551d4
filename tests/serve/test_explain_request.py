"""Features are found in the text, and the words contribute what the features contribute."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served import text_model

from smoothlink import TextFeatures
from smoothlink.explanation import explain
from smoothlink.serve.explain_request import feature_spans, word_contributions

TEXTS = ["Apple iron apple, rain! Plum-pie", "  zinc\n\ttin  zinc ", "", "a I", "Ärger über Öl", "red", "x" * 40]
KINDS = [
    {"word_ngrams": (1, 1), "char_ngrams": None},
    {"word_ngrams": (1, 3), "char_ngrams": None},
    {"word_ngrams": None, "char_ngrams": (2, 5)},
    {"word_ngrams": (1, 2), "char_ngrams": (3, 4)},
    {"word_ngrams": (1, 2), "char_ngrams": (3, 4), "hashing": 512},
    {"word_ngrams": (1, 2), "strip_accents": "unicode", "lowercase": False},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_every_n_gram_of_a_text_is_found_as_often_as_it_is_counted(options):
    features = TextFeatures(min_df=1, **options).fit(TEXTS)
    for text in [*TEXTS, "apple rain apple", "Iron? iron: IRON apple pie"]:
        counted = features._counts([text])
        spans_of = feature_spans(features, text)
        assert {j: len(spans) for j, spans in spans_of.items()} == dict(zip(counted.indices, counted.data, strict=True))
        assert all(0 <= start < end <= len(text) for spans in spans_of.values() for start, end in spans)


def test_a_word_is_found_where_it_stands():
    features = TextFeatures(word_ngrams=(1, 2), min_df=1).fit(["apple iron"])
    names = features.get_feature_names_out().tolist()
    spans_of = feature_spans(features, "Iron, an APPLE iron")
    assert spans_of[names.index("iron")] == [(0, 4), (15, 19)]
    assert spans_of[names.index("apple iron")] == [(9, 19)]


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_any_text_has_spans_within_it(text):
    features = text_model().features_
    for spans in feature_spans(features, text).values():
        assert all(0 <= start < end <= len(text) for start, end in spans)


@pytest.mark.parametrize("changes", [{}, {"char_ngrams": (3, 4)}], ids=str)
def test_words_contribute_what_the_features_contribute(changes):
    model = text_model(**changes)
    text = "Apple iron apple. An unknown violet, snow: iron"
    for one in explain(model, text, k=3, top=None):
        added = {reason.feature: reason.added for reason in one.reasons}
        words = word_contributions(text, added, feature_spans(model.features_, text))
        assert sum(amount for _, amount in words) == pytest.approx(one.score - one.base, abs=1e-5)
        assert [span for span, _ in words] == sorted(span for span, _ in words)
