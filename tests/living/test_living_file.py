"""A model file that is updated: generations, the journal, one writer, and files that are not what they should be."""

import os
import subprocess
import sys

import numpy as np
import pytest
from small import fixed, words

from smoothlink import ModelFileError, load
from smoothlink.living.living_file import LivingFile


@pytest.fixture
def saved(rng, tmp_path):
    X, Y = words(rng, n=120)
    path = tmp_path / "m.safetensors"
    fixed(updatable=True, calibrate=True).fit(X[:100], Y[:100]).save(path)
    return path, X, Y


def sums_file(path):
    (found,) = path.parent.glob("m-sums-*.safetensors")
    return found


def test_what_was_acknowledged_is_there_after_a_kill(saved):
    path, X, Y = saved
    living = LivingFile(path)
    living.update(X[100:110], Y[100:110])
    living.add_labels(1)
    living.update(X[110:], np.column_stack([Y[110:], np.ones(10)]))
    expected = living.model.predict_proba(X)
    living.close()  # nothing was saved
    with LivingFile(path) as again:
        np.testing.assert_allclose(again.model.predict_proba(X), expected, atol=1e-6)
        again.save()
    np.testing.assert_allclose(load(path).predict_proba(X), expected, atol=1e-6)
    with LivingFile(path) as last:
        assert last.model.summary_["rows"] == 120


def test_a_torn_line_of_the_journal_is_cut(saved):
    path, X, Y = saved
    with LivingFile(path) as living:
        living.update(X[100:105], Y[100:105])
        living.update(X[105:110], Y[105:110])
    journal = path.with_name("m.journal")
    journal.write_bytes(journal.read_bytes()[:-20])
    with LivingFile(path) as living:
        assert living.model.summary_["rows"] == 105
        living.update(X[110:], Y[110:])
    with LivingFile(path) as living:
        assert living.model.summary_["rows"] == 115


def test_a_journal_of_another_generation_is_not_replayed(saved):
    path, X, Y = saved
    with LivingFile(path) as living:
        living.update(X[100:], Y[100:])
        lines = path.with_name("m.journal").read_bytes()
        living.save()
    path.with_name("m.journal").write_bytes(lines)  # a kill before it was emptied
    with LivingFile(path) as living:
        assert living.model.summary_["rows"] == 120


def test_a_model_that_is_saved_again_as_it_is_keeps_its_generation_and_its_journal(saved):
    path, X, Y = saved
    with LivingFile(path) as living:
        living.update(X[100:], Y[100:])
    load(path).save(path)  # as `smoothlink vocabulary` does
    with LivingFile(path) as living:
        assert living.model.summary_["rows"] == 120


def test_forgetting_leaves_no_row_in_the_journal(saved):
    path, X, Y = saved
    with LivingFile(path) as living:
        living.update(X[100:], Y[100:])
        living.forget(X[100:], Y[100:])
        assert path.with_name("m.journal").read_text().count("\n") == 1
    with LivingFile(path) as living:
        assert len(living.classifier._living.digests) == 100


def test_a_second_process_is_told_in_one_sentence(saved):
    path, *_ = saved
    code = f"from smoothlink.living.living_file import LivingFile; LivingFile({str(path)!r})"
    with LivingFile(path):
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert "is being updated by another process" in found.stderr


def test_the_model_predicts_without_its_sums_and_says_that_they_are_missing(saved):
    path, X, Y = saved
    before = load(path).predict_proba(X)
    sums_file(path).unlink()
    model = load(path)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    with pytest.raises(ModelFileError, match="are not there: it predicts, but cannot be updated"):
        model.update(X[:1], Y[:1])
    with pytest.warns(UserWarning, match="saved without sums"):
        model.save(path)


@pytest.mark.parametrize("damage", ["cut", "byte", "other", "model", "empty"])
def test_sums_that_are_damaged_or_of_another_generation_are_refused_and_the_model_stays(saved, damage):
    path, X, Y = saved
    file = sums_file(path)
    content = bytearray(file.read_bytes())
    if damage == "cut":
        content = content[:-100]
    elif damage == "byte":
        content[len(content) // 2] ^= 1
    elif damage == "other":
        load(path).update(X[100:101], Y[100:101]).save(path)
        file = sums_file(path)  # of the next generation, whose content will be that of the former
    elif damage == "model":
        content = path.read_bytes()
    else:
        content = b""
    file.write_bytes(content)
    before, model = path.read_bytes(), load(path)
    with pytest.raises(ModelFileError) as error:
        model.update(X[100:], Y[100:])
    assert len(str(error.value).splitlines()) <= 2
    assert path.read_bytes() == before
    assert model.predict_proba(X).shape == (120, 6)


def test_weights_in_16_bits_leave_updates_exact(saved):
    path, X, Y = saved
    whole = load(path).update(X[100:], Y[100:])
    load(path).save(path, dtype="float16")
    half = load(path).update(X[100:], Y[100:])
    np.testing.assert_allclose(half.model_.V.columns(), whole.model_.V.columns(), atol=1e-6)
