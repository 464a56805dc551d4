"""Texts that come to a model and go from it, and what their files hold afterwards."""

import zlib

import numpy as np
import pytest
from small import WORDS

from smoothlink import DataError, Gaussian, TextSmoothLink, load
from smoothlink.safetensors_file import load as load_file

RARE = "xylophonist apple zanzibar"
OPTIONS = {
    "updatable": True,
    "effort": "quick",
    "loss": "squared",
    "rank": 4,
    "ridge": 1.0,
    "kernel": Gaussian(bandwidth=2.0, features=40),
    "final_ridge": 0.1,
}


def documents(rng, n=80):
    kinds = [["fruit", "metal", "colour"][j] for j in rng.integers(0, 3, n)]
    texts = [" ".join(rng.choice(WORDS[kind].split(), 4)) + f" {kind}ish" for kind in kinds]
    return texts, [[kind] for kind in kinds]


@pytest.fixture
def fitted(rng):
    texts, labels = documents(rng)
    texts[7], labels[7] = RARE, ["secret", "fruit"]
    return TextSmoothLink(task="multilabel", **OPTIONS).fit(texts, labels), texts, labels


def all_bytes(folder):
    """The bytes of all files in a folder, what is compressed in them unpacked."""
    found = b""
    for path in folder.iterdir():
        found += path.read_bytes()
        if path.suffix == ".safetensors":
            for name, array in load_file(path).arrays.items():
                found += zlib.decompress(array.tobytes()) if name.endswith("_zlib") else b""
    return found


def test_a_forgotten_text_leaves_nothing_in_any_file(fitted, tmp_path):
    model, texts, _ = fitted
    model.save(tmp_path / "m.safetensors")
    assert b"xylophonist" in all_bytes(tmp_path)
    assert b"secret" in all_bytes(tmp_path)
    loaded = load(tmp_path / "m.safetensors").forget([RARE], [["fruit", "secret"]])
    loaded.save(tmp_path / "m.safetensors")
    assert len(list(tmp_path.iterdir())) == 2  # the former sums are gone
    left = all_bytes(tmp_path)
    for word in (b"xylophonist", b"zanzibar", b"secret", b"apple zanzibar"):
        assert word not in left
    assert b"apple" in left
    again = load(tmp_path / "m.safetensors")
    assert again.features_.n_columns == model.features_.n_columns
    assert not any(RARE in example.text for example in again.examples_)
    np.testing.assert_allclose(again.predict_proba(texts), loaded.predict_proba(texts), atol=1e-6)


def test_texts_bring_labels_by_name_and_say_how_many_words_are_unknown(fitted):
    model, _, _ = fitted
    model.update(["okapi tapir okapi", "tapir okapi"], [["rare"], ["rare"]])
    assert "rare" in model.classes_
    told = model.summary_["living"]
    assert told["labels_added"] == ["rare"]
    assert told["unknown_words"] == 1.0
    model.update(["apple pear", "pear apple plum"], ["rare", "rare"])
    assert model.summary_["living"]["unknown_words"] < 0.5


def test_what_was_never_there_is_refused_and_nothing_changes(fitted):
    model, texts, _ = fitted
    before = model.predict_proba(texts)
    for text, label in (("iron zinc iron", ["metal"]), (texts[0], ["nolabel"]), (RARE, ["secret"])):
        with pytest.raises(DataError, match="Nothing was changed"):
            model.forget([text], [label])
    np.testing.assert_array_equal(model.predict_proba(texts), before)


def test_partial_fit_of_texts(rng):
    texts, labels = documents(rng)
    model = TextSmoothLink(**OPTIONS).partial_fit(texts[:60], labels[:60], classes=["fruit", "metal", "colour", "late"])
    assert model.partial_fit(texts[60:], labels[60:]).summary_["rows"] == 80
    assert "late" in model.classes_
    with pytest.raises(ValueError, match="at least 10"):
        TextSmoothLink(**OPTIONS).partial_fit(texts[:3], labels[:3])


def test_labels_by_name(fitted):
    model, texts, _ = fitted
    before = model.predict_proba(texts)
    model.add_labels(["new", "newer"])
    assert model.classes_[-2:].tolist() == ["new", "newer"]
    np.testing.assert_allclose(model.predict_proba(texts)[:, :-2], before, atol=1e-4)
    with pytest.raises(ValueError, match="already"):
        model.add_labels(["new"])
