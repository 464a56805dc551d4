"""Commands replace an older output of their own kind, and any other file only with --force."""

import os

import pytest
from commands import FIXED, left, prepared, run, succeed
from paged import small_corpus

import smoothlink
from smoothlink.data import overwrite
from smoothlink.data.overwrite import writable
from smoothlink.errors import DataError

FOREIGN = "my own notes\n"
SHAPE = "--rows 5 --features 9 --labels 3 --features-per-row 2"
OWN_KIND = {  # command -> the file it writes, of a kind that is recognised
    f"train TRAIN {' '.join(FIXED)} -q -o m.safetensors": "m.safetensors",
    "tune TRAIN --trials 1 -q -o tuned.json": "tuned.json",
    "report MODEL TEST --bootstraps 0 -q -o r.html": "r.html",
    "compare MODEL MODEL TEST --bootstraps 0 -q -o c.html": "c.html",
}
DATA = {
    "predict MODEL TEST -q -o p.jsonl": "p.jsonl",
    "predict MODEL TEST -q --output-folder .": "test.jsonl",
    "split TEST -q --output-folder .": "test-test.txt",
    "convert TEST a.svm -q": "a.svm",
    "convert TEST a_Xf.txt -q": "a_Y.txt",
    f"synth s.npz -q {SHAPE}": "s.npz",
    f"synth s.npz -q {SHAPE} --test 2 --test-output t.npz": "t.npz",
    "demo -q --save d.jsonl": "d.jsonl",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    return prepared(tmp_path_factory.mktemp("overwrite"), pytestconfig.getoption("--seed"))


@pytest.fixture
def typed(files, tmp_path, monkeypatch):
    """Split a command, with the paths of model and data in it; the current folder is an empty one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("smoothlink.demo.corpus.build_corpus", small_corpus)
    paths = {"MODEL": files.model, "TEST": files.test, "TRAIN": files.train}
    return lambda command: [paths.get(word, word) for word in command.split()]


@pytest.mark.parametrize("command", [*OWN_KIND, *DATA])
def test_a_file_of_someone_else_is_overwritten_only_with_force(typed, tmp_path, command):
    target = tmp_path / {**OWN_KIND, **DATA}[command]
    target.write_text(FOREIGN)
    ran = run(*typed(command))
    assert ran.code == 1
    assert f"{target.name} is there already" in ran.err
    assert "pass --force" in ran.err
    assert target.read_text() == FOREIGN
    assert left(tmp_path) == [target.name]
    succeed(*typed(command), "--force")
    assert target.read_bytes() != FOREIGN.encode()


@pytest.mark.parametrize("command", list(OWN_KIND))
def test_an_older_output_of_the_same_kind_is_replaced(typed, command):
    succeed(*typed(command))
    succeed(*typed(command))


@pytest.mark.parametrize("command", ["convert TEST a.sl -q", "split TEST -q --output-folder ."])
def test_data_of_our_own_is_not_replaced_either(typed, command):
    succeed(*typed(command))
    assert "pass --force" in run(*typed(command)).err
    succeed(*typed(command), "--force")


@pytest.mark.parametrize(("first", "second"), [(0, 2), (1, 0), (2, 1), (3, 0)])
def test_an_output_of_another_kind_is_not_replaced(typed, tmp_path, first, second):
    ours, other = list(OWN_KIND)[first], list(OWN_KIND)[second]
    succeed(*typed(ours))
    os.rename(OWN_KIND[ours], OWN_KIND[other])
    before = (tmp_path / OWN_KIND[other]).read_bytes()
    assert "pass --force" in run(*typed(other)).err
    assert (tmp_path / OWN_KIND[other]).read_bytes() == before


def test_it_is_said_before_any_file_is_read(typed, tmp_path):
    (tmp_path / "r.html").write_text(FOREIGN)
    (tmp_path / "broken.safetensors").write_text("not a model")
    assert "r.html is there already" in run("report", "broken.safetensors", "nowhere.txt", "-o", "r.html").err


def test_force_never_overwrites_what_is_read(typed, files):
    before = files.test.read_bytes()
    ran = run(*typed("predict MODEL TEST --force --output-format xmc -o"), files.test)
    assert "written over what is read" in ran.err
    assert files.test.read_bytes() == before


def test_an_empty_file_may_be_written_to_and_a_device_never(tmp_path):
    (tmp_path / "made-by-mktemp").touch()
    assert writable(str(tmp_path / "made-by-mktemp"), kind="data")
    with pytest.raises(DataError, match="neither a file nor a folder"):
        writable(os.devnull, kind="data", force=True)


def test_predict_files_overwrites_with_force_too(files, tmp_path):
    args = files.model, files.test, tmp_path
    smoothlink.predict_files(*args)
    with pytest.raises(DataError, match="is there already"):
        smoothlink.predict_files(*args)
    assert smoothlink.predict_files(*args, force=True)[0].rows == 30


def test_a_place_where_nothing_can_be_written_is_refused(tmp_path, monkeypatch):
    places = {
        tmp_path / "no" / "a": "does not exist",
        tmp_path: "is a folder",
        os.devnull: "neither a file nor a folder",
    }
    for path, message in places.items():
        with pytest.raises(DataError, match=message):
            writable(str(path), kind="data")
    (tmp_path / "mine").write_text("x")
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(DataError, match="is not writable"):
            writable(str(tmp_path / "a"), kind="data")


def test_a_file_that_cannot_be_read_is_not_taken_for_an_older_output(tmp_path, monkeypatch):
    def fails(path):
        raise PermissionError

    (tmp_path / "m").write_text("x")
    monkeypatch.setitem(overwrite.OURS, "model", (fails, ""))
    with pytest.raises(DataError, match="is there already"):
        writable(str(tmp_path / "m"), kind="model")
