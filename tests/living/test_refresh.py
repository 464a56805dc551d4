"""Models that are fitted anew with the settings that their fit selected."""

import numpy as np
import pytest
import scipy.sparse as sp
from small import WORDS, classes, multilabel, shown, words

from smoothlink import DataError, Gaussian, InputKernel, Joint, Logistic, SmoothLinkClassifier, TextSmoothLink, load
from smoothlink.living.refresh import selected_parameters

SELECTED = ("rank", "ridge", "kernel", "bandwidth", "random_features", "final_ridge", "loss", "passes", "input_kernel")


def settings(model):
    return {name: model.summary_[name] for name in SELECTED}


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (words, {}),
        (words, {"loss": "logistic"}),
        (words, {"loss": Logistic(learning_rate=0.5), "kernel": "linear"}),
        (words, {"effort": "quick"}),
        (words, {"embedding": "none", "kernel": "laplacian"}),
        (words, {"training": Joint(negatives=3, passes=2)}),
        (multilabel, {"input_kernel": InputKernel("gaussian")}),
        (multilabel, {"updatable": False}),
        (classes, {}),
    ],
)
def test_a_refresh_is_a_fit_with_the_settings_that_were_selected(rng, make, given):
    X, y = make(rng, n=240)
    model = SmoothLinkClassifier(**{"updatable": True, **given}).fit(X[:160], y[:160])
    before, selected = settings(model), selected_parameters(model, len(model.classes_))
    parameters, by = shown(model), model.summary_["chosen_by"] | {"scale": ""}
    model.refresh(X[40:], y[40:])
    assert settings(model) == before
    assert (shown(model), model.summary_["chosen_by"] | {"scale": ""}) == (parameters, by)
    assert model.summary_["rows"] == 200
    again = SmoothLinkClassifier(**selected).fit(X[40:], y[40:])
    np.testing.assert_allclose(model.predict_proba(X), again.predict_proba(X), atol=1e-6)
    model.refresh(X[40:], y[40:])  # from the summary of a refresh
    np.testing.assert_allclose(model.predict_proba(X), again.predict_proba(X), atol=1e-6)


def test_regression_of_x_itself_stays_that(rng):
    X = rng.standard_normal((600, 4))
    Y = (X @ rng.standard_normal((4, 3)) + 0.1 * rng.standard_normal((600, 3)) > 0).astype(int)
    model = SmoothLinkClassifier(trees=False).fit(X, Y)
    assert model.summary_["chosen_by"]["rank"] == "every column"  # else this tests nothing
    before = settings(model)
    assert settings(model.refresh(X[100:], Y[100:])) == before
    assert settings(model.refresh(X, Y)) == before


def test_the_embedding_follows_and_the_model_stays_updatable(rng, tmp_path):
    X, Y = words(rng, n=200)
    model = SmoothLinkClassifier(updatable=True, effort="quick", loss="squared").fit(X[:100], Y[:100])
    W = np.array(model.model_.W.columns())
    model.save(tmp_path / "m.safetensors")
    first = next(tmp_path.glob("m-sums-*"))
    model = load(tmp_path / "m.safetensors").refresh(X, Y)
    assert not np.array_equal(model.model_.W.columns(), W)
    told = model.summary_["living"]
    assert (told["rows_before"], told["rows"], told["rows_new"], told["rows_gone"]) == (100, 200, 100, 0)
    model.save(tmp_path / "m.safetensors")
    assert len(list(tmp_path.glob("m-sums-*"))) == 1
    assert not first.exists()
    again = load(tmp_path / "m.safetensors").forget(X[150:], Y[150:])
    assert again.summary_["rows"] == 150


def test_labels_keep_their_numbers_and_removed_ones_go(rng):
    X, Y = words(rng, n=120)
    Y[:, 2] = 0
    Y[7, 2] = 1
    model = SmoothLinkClassifier(updatable=True, effort="quick", loss="squared").fit(X, Y)
    model.label_names_ = list("abcdef")
    model.forget(X[[7]], Y[[7]]).add_labels(["later"])
    assert "(removed 2)" in model.label_names_
    left = np.delete(np.arange(120), 7)
    wider = np.column_stack([Y, np.zeros(120), Y[:, 0]])[left].astype(np.float32)
    model._refresh(X[left], sp.csr_array(wider), ["new"], None, None)
    assert model.label_names_ == ["a", "b", "d", "e", "f", "later", "new"]
    assert model.summary_["living"]["labels_added"] == ["new"]
    np.testing.assert_array_equal(model.model_.counts[:3], Y[left][:, [0, 1, 3]].sum(axis=0))
    assert model.model_.counts[5] == 0  # which no row has yet


def test_classes_that_came_and_went(rng):
    X, y = classes(rng, n=120)
    ids = np.array(["x", "y", "z"], object)[y]
    model = SmoothLinkClassifier(updatable=True, effort="quick", loss="squared").fit(X, ids)
    model.add_labels(["waits"])
    ids[-1] = "new"
    model.refresh(X, ids)
    assert model.classes_.tolist() == ["new", "waits", "x", "y", "z"]
    assert set(model.predict(X)) <= {"new", "x", "y", "z"}
    assert model.score(X, ids) > 0.5


@pytest.mark.parametrize("updatable", [False, True])
def test_what_cannot_be_fitted_leaves_the_model_as_it_was(rng, updatable):
    X, Y = words(rng)
    model = SmoothLinkClassifier(updatable=updatable, effort="quick").fit(X, Y)
    before, summary = model.predict_proba(X), dict(model.summary_)
    for rows, labels, words_of_error in (
        (X[:, :-1], Y, "features"),
        (X[:0], Y[:0], "0 sample"),
        (X, Y[:-1], "as many"),
        (X, Y[:, :-1], "a column for each"),
        (X, 0 * Y, "nothing to learn"),
    ):
        with pytest.raises(ValueError, match=words_of_error):
            model.refresh(rows, labels)
        assert model.summary_ == summary
        np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_guarantee_is_computed_anew_from_rows_of_the_new_fit_or_is_void(rng):
    X, Y = words(rng, n=300)
    model = SmoothLinkClassifier(conformal=0.2, effort="quick").fit(X[:200], Y[:200])
    assert model.refresh(X, Y).summary_["conformal_rows"] > 40
    assert model.predict_set(X, coverage=0.5).shape == Y.shape
    other = SmoothLinkClassifier(effort="quick").fit(X[:200], Y[:200]).recalibrate_sets(X[200:], Y[200:])
    with pytest.raises(ValueError, match="void: the model was fitted anew"):
        other.refresh(X, Y).predict_set(X, coverage=0.5)


def sentences(rng, n=120):
    kinds = [["fruit", "metal", "colour"][j] for j in rng.integers(0, 3, n)]
    return [" ".join(rng.choice(WORDS[kind].split(), 4)) for kind in kinds], [[kind] for kind in kinds]


def test_texts_are_learnt_with_new_words_and_the_same_kinds_of_ngrams(rng, tmp_path):
    texts, labels = sentences(rng)
    model = TextSmoothLink(updatable=True, effort="quick", loss="squared", kernel=Gaussian(features=40))
    model.fit(texts, labels)
    share = model.features_.ngrams._replace(char_share=0.75)
    model.features_._keep(
        [block._replace(share=0.75 if block.kind == "characters" else 0.25) for block in model.features_.blocks_],
        model.features_.idf_,
    )
    model.update(["okapi tapir okapi"] * 3, [["rare"]] * 3)
    assert model.summary_["living"]["unknown_words"] == 1.0
    model.save(tmp_path / "m.safetensors")
    model = load(tmp_path / "m.safetensors").refresh([*texts, *["okapi tapir okapi"] * 3], [*labels, *[["rare"]] * 3])
    assert model.features_.ngrams == share
    assert model.features_.unknown_share(["okapi tapir"]) == 0.0
    assert model.predict_topk(["okapi tapir okapi"], k=1)[0][0][0] == "rare"
    told = model.summary_["living"]
    assert told["features"]["after"] > told["features"]["before"]
    assert model.word_ngrams == "auto"
    assert model.forget(texts[:1], labels[:1]).summary_["rows"] == 122
    for texts_given, labels_given in (([], []), (texts, labels[:3])):
        with pytest.raises(DataError, match="labels for each"):
            model.refresh(texts_given, labels_given)


def test_a_lost_file_of_sums_is_made_anew(rng, tmp_path):
    X, Y = words(rng)
    SmoothLinkClassifier(updatable=True, effort="quick", loss="squared").fit(X, Y).save(tmp_path / "m.safetensors")
    next(tmp_path.glob("m-sums-*")).unlink()
    model = load(tmp_path / "m.safetensors").refresh(X, Y)
    assert "rows_new" not in model.summary_["living"]
    assert model.forget(X[:1], Y[:1]).summary_["rows"] == 89
