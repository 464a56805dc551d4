"""The n-grams of texts, chosen on held-out texts."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

from smoothlink import TextSmoothLink, load
from smoothlink.text.choose_ngrams import kernel, smoother
from smoothlink.text.features import CHARACTERS, SINGLE_WORDS, TextFeatures

LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))


def made_texts(rng, *, endings, n=900, stems=30):
    """Texts of three stems, which are their labels; with `endings` each has another ending wherever it occurs."""
    words = ["".join(rng.choice(LETTERS, 6)) for _ in range(stems)]
    said = [rng.choice(stems, 3, replace=False) for _ in range(n)]
    end = (lambda: "".join(rng.choice(LETTERS, 4))) if endings else (lambda: "")
    Y = np.zeros((n, stems), np.float32)
    for row, stem in enumerate(said):
        Y[row, stem] = 1
    return [" ".join(words[stem] + end() for stem in row) for row in said], sp.csr_array(Y)


def kinds(features):
    return {block.kind: block.ngrams for block in features.blocks_}


def test_characters_are_chosen_where_no_word_occurs_twice(rng):
    features = TextFeatures()
    features.fit_transform(*made_texts(rng, endings=True))
    assert kinds(features)["characters"] == CHARACTERS
    assert features.chosen_by_ == "held-out texts"


def test_single_words_are_chosen_where_they_say_all(rng):
    features = TextFeatures()
    features.fit_transform(*made_texts(rng, endings=False))
    assert kinds(features) == {"words": SINGLE_WORDS}


def test_without_labels_and_with_few_texts_a_rule_decides(rng):
    texts, Y = made_texts(rng, endings=False)
    for some, labels in ((texts, None), (texts[:200], Y[:200])):
        features = TextFeatures()
        features.fit_transform(some, labels)
        assert features.chosen_by_ == "rule"
        assert kinds(features) == {"words": (1, 2), "characters": (3, 5)}


def test_given_ngrams_are_kept(rng):
    texts, Y = made_texts(rng, endings=True)
    features = TextFeatures(word_ngrams=(1, 2), char_ngrams=None)
    features.fit_transform(texts, Y)
    assert kinds(features) == {"words": (1, 2)}


def test_characters_have_the_chosen_share_of_each_row_and_the_file_keeps_it(rng, tmp_path):
    texts, Y = made_texts(rng, endings=True)
    model = TextSmoothLink(random_state=0, rank=4, ridge=1.0, final_ridge=0.1, loss="squared", kernel="linear")
    model.fit([f"{text} same" for text in texts], Y)
    words, characters = model.features_.blocks_
    assert words.share + characters.share == 1
    X = model.transform([f"{texts[0]} same"]).toarray()[0]
    assert np.sum(X[words.width :] ** 2) == pytest.approx(characters.share, abs=1e-5)
    assert model.summary_["ngrams"] == model.features_.description
    assert model.summary_["chosen_by"]["ngrams"] == "held-out texts"
    model.save(tmp_path / "model.safetensors")
    assert (load(tmp_path / "model.safetensors").transform(texts[:5]) != model.transform(texts[:5])).nnz == 0


def test_held_out_texts_are_scored_as_by_scikit_learns_ridge(rng):
    A = sp.random_array((60, 40), density=0.2, rng=rng, format="csr")
    Y = (rng.random((40, 3)) < 0.4).astype(float)
    wanted = Ridge(alpha=0.7, solver="cholesky").fit(A[:40].toarray(), Y).predict(A[40:].toarray())
    np.testing.assert_allclose(smoother(*kernel(A[:40], A[40:]), 0.7) @ Y, wanted, atol=1e-8)
