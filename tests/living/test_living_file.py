"""A model file that is updated: generations, the journal, one writer, and files that are not what they should be."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import FIXED, labelled, run, succeed
from small import fixed, words

from smoothlink import DataError, ModelFileError, load, modelfile
from smoothlink.data.read import write
from smoothlink.living import store
from smoothlink.living.living_file import LivingFile
from smoothlink.living.update_journal import line_of


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


@pytest.fixture
def journal(saved):
    """The path of a model with three lines in its journal, and of the journal."""
    path, X, Y = saved
    with LivingFile(path) as living:
        living.update(X[100:105], Y[100:105])
        living.update(X[105:110], Y[105:110])
    return path, path.with_name("m.journal")


CHANGES = {
    "another number": lambda lines: [lines[0], lines[1].replace(b"1.0", b"2.0", 1), lines[2]],
    "another generation": lambda lines: [lines[0][:-4] + b'0"}', *lines[1:]],
    "a line less": lambda lines: [lines[0], lines[2]],
    "a line twice": lambda lines: [*lines, lines[2]],
    "other order": lambda lines: [lines[0], lines[2], lines[1]],
    "no checksum": lambda lines: [lines[0], lines[1][5:], lines[2]],
    "JSON that is nested deep": lambda lines: [*lines, b"[" * 100_000],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_journal_is_noticed(journal, change):
    path, file = journal
    file.write_bytes(b"".join(line + b"\n" for line in CHANGES[change](file.read_bytes().splitlines())))
    before = file.read_bytes()
    with pytest.raises(ModelFileError, match=r"m\.journal is damaged"):
        LivingFile(path)
    assert file.read_bytes() == before


def test_a_journal_cut_within_its_first_line_is_refused(journal):
    path, file = journal
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(ModelFileError, match="is damaged"):
        LivingFile(path)


def test_a_journal_of_0_9_0_which_has_no_checksums_is_replayed_and_continued(journal, rng):
    path, file = journal
    file.write_bytes(b"".join(line[9:] + b"\n" for line in file.read_bytes().splitlines()))
    X, Y = words(rng, n=7)
    with LivingFile(path) as living:
        assert living.model.summary_["rows"] == 110
        living.update(X, Y)
    with LivingFile(path) as living:
        assert living.model.summary_["rows"] == 117


FORGED = {
    "labels whose rows end before they begin": {"labels": [6, [0, 2, 3, 4, 5, 0], []]},
    "features whose rows end before they begin": {"sparse": [[0, 2, 3, 4, 5, 0], [], []]},
    "a label that is not there": {"labels": [7, [0, 0, 0, 0, 0, 1], [6]]},
    "rows of another width": {"width": 41},
    "dense rows": {"sparse": None, "dense": [[0.0] * 40] * 5},
    "weights below 0": {"weights": [-1.0] * 5},
    "fewer weights than rows": {"weights": [1.0] * 4},
    "numbers that are too large": {"width": 10**30},
    "names that are none": {"names": [None]},
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_journal_with_right_checksums_that_does_not_fit_the_model_is_refused(journal, forged):
    path, file = journal
    first, second, _ = (json.loads(line[9:]) for line in file.read_bytes().splitlines())
    record = {name: value for name, value in (second | FORGED[forged]).items() if value is not None}
    head, checksum = line_of(first)
    file.write_bytes(head + line_of(record, checksum)[0])
    with pytest.raises(ModelFileError, match="no update of this model"):
        LivingFile(path)


@pytest.mark.skipif(os.name != "posix", reason="there are named pipes on POSIX")
def test_a_pipe_in_place_of_a_journal_is_not_waited_for(journal):
    path, file = journal
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ModelFileError, match="not a file but a pipe"):
        LivingFile(path)


def test_thirty_thousand_labels_are_added_in_seconds(saved):
    path, X, _ = saved
    model = load(path)
    names = [f"{j}" for j in range(30_000)]
    named = fixed(updatable=True).fit(X, np.array(names[:3])[np.arange(X.shape[0]) % 3])
    begun = time.process_time()
    assert len(named.add_labels(names[3:]).classes_) == 30_000
    assert time.process_time() - begun < 5
    with pytest.raises(DataError, match="has the label '7' already"):
        named.add_labels(["x", "7"])
    with pytest.raises(ValueError, match="pass how many"):
        model.add_labels(["x"])


def test_what_killed_processes_left_of_sums_goes_with_the_next_save(saved):
    path, X, Y = saved
    left = [path.with_name(f".m-sums-{'0' * 15}{j}.safetensors.part") for j in range(2)]
    other = path.with_name(f".n-sums-{'0' * 16}.safetensors.part")
    for one in (*left, other):
        one.write_bytes(b"part")
    with LivingFile(path) as living:
        living.update(X[100:], Y[100:])
        living.save()
    assert not any(one.exists() for one in left)
    assert other.exists()


@pytest.mark.parametrize("after", [False, True])
def test_an_error_while_the_model_is_written_leaves_one_file_of_sums_which_is_its_own(saved, monkeypatch, after):
    path, X, Y = saved
    write = modelfile.save_file

    def fail(*given):
        if after:  # the model was replaced, and its folder could not be flushed
            write(*given)
        raise OSError(28, "No space left on device")

    with LivingFile(path) as living:
        living.update(X[100:], Y[100:])
        monkeypatch.setattr(modelfile, "save_file", fail)
        with pytest.raises(OSError, match="No space"):
            living.save()
    assert sums_file(path).exists()
    with LivingFile(path) as living:
        assert living.model.summary_["rows"] == 120


def test_sums_that_cannot_be_read_once_they_are_written_do_not_stay(saved, monkeypatch):
    path, X, Y = saved
    before = sums_file(path)

    def fail(*given):
        raise ModelFileError("it cannot be mapped")

    with LivingFile(path) as living:
        living.update(X[100:], Y[100:])
        monkeypatch.setattr(store, "load", fail)
        with pytest.raises(ModelFileError, match="mapped"):
            living.save()
        assert list(path.parent.glob("m-sums-*")) == [before]
        monkeypatch.undo()
        living.save()
    assert load(path).summary_["rows"] == 120


@pytest.mark.parametrize("command", ["vocabulary", "recalibrate"])
def test_a_model_is_not_replaced_by_a_command_while_it_is_updated(tmp_path, rng, command):
    data, path = labelled(rng), tmp_path / "m.safetensors"
    for name in ("a.txt", "b.txt"):
        write(data, tmp_path / name)
    (tmp_path / "names.tsv").write_text("label0\tA name\n")
    succeed("train", tmp_path / "a.txt", "-o", path, *FIXED, "--calibrate", "--updatable")
    args = [command, path, tmp_path / ("names.tsv" if command == "vocabulary" else "b.txt")]
    with LivingFile(path) as living:
        before = path.read_bytes()
        ran = run(*args)
        assert ran.code == 1
        assert "is being updated by another process" in ran.err
        assert path.read_bytes() == before
        assert "is being updated" in run(*args, "-o", path).err
        succeed(*args, "-o", tmp_path / "other.safetensors")
        living.save()
    before = path.read_bytes()
    succeed(*args)
    assert path.read_bytes() != before
    assert succeed("update", path, tmp_path / "b.txt", "--json").json["rows"] == 120


def test_an_error_after_rows_were_added_says_not_to_add_them_again(tmp_path, rng):
    data = labelled(rng)
    for name in ("a.txt", "b.txt"):
        write(data, tmp_path / name)
    succeed("train", tmp_path / "a.txt", "-o", tmp_path / "m.safetensors", *FIXED, "--updatable")
    ran = run("update", tmp_path / "m.safetensors", tmp_path / "b.txt", tmp_path / "c.txt")
    assert ran.code == 1
    assert "b.txt: the model or its journal has these rows: do not add them again." in ran.err
    assert succeed("update", tmp_path / "m.safetensors", tmp_path / "b.txt", "--json").json["rows"] == 180
    ran = run("update", tmp_path / "m.safetensors", tmp_path / "c.txt")
    assert "again." not in ran.err
