"""Workers write the decoder V in shards, from which a model predicts as if it had been fitted in one process."""

import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small import fixed, words

import smoothlink
from smoothlink import Logistic
from smoothlink.errors import ModelFileError
from smoothlink.fitting import holdout


@pytest.mark.parametrize(
    "settings",
    [{}, {"loss": Logistic(passes=2)}, {"loss": Logistic(passes=2), "effort": "quick", "calibrate": True}],
    ids=["squared", "logistic", "quick"],
)
def test_a_model_in_shards_predicts_as_that_of_one_process(workers, rng, tmp_path, monkeypatch, settings):
    monkeypatch.setattr(holdout, "QUICK_ROWS", 0)  # shards are fitted once, however few rows there are
    X, Y = words(rng)
    here = fixed(**settings).fit(X, Y)
    with smoothlink.cluster(workers.client, shards=tmp_path / "shards" / "a.safetensors"):
        there = fixed(**settings).fit(X, Y)
    count = len(workers.workers)
    names = sorted(path.name for path in (tmp_path / "shards").glob("a-*"))
    run = names[0].split("-")[2]
    assert names == [f"a-V-{run}-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)
    there.save(tmp_path / "m.safetensors")
    shutil.rmtree(tmp_path / "shards")
    loaded = smoothlink.load(tmp_path / "m.safetensors", verify=True)
    np.testing.assert_allclose(loaded.predict_proba(X), here.predict_proba(X), atol=1e-3)
    np.testing.assert_array_equal(loaded.predict_topk(X, 3).indices, here.predict_topk(X, 3).indices)
    np.testing.assert_allclose(loaded.predict_proba(X, labels=[4, 0]), here.predict_proba(X)[:, [4, 0]], atol=1e-3)


def test_a_model_saved_beside_its_shards_copies_nothing(workers, rng, tmp_path):
    path = tmp_path / "m.safetensors"
    with smoothlink.cluster(workers.client, shards=path):
        fitted = fixed().fit(*words(rng))
    times = [file.stat().st_mtime_ns for file in sorted(tmp_path.glob("m-V-*"))]
    fitted.save(path)
    assert [file.stat().st_mtime_ns for file in sorted(tmp_path.glob("m-V-*"))] == times
    assert smoothlink.load(path).model_.V.shape == fitted.model_.V.shape


def test_a_second_fit_leaves_the_model_file_as_it_is_until_it_is_saved(workers, rng, tmp_path):
    path, (X, Y) = tmp_path / "m.safetensors", words(rng)
    with smoothlink.cluster(workers.client, shards=path):
        fixed().fit(X, Y).save(path)
        before, old = smoothlink.load(path).predict_proba(X), sorted(tmp_path.glob("m-V-*"))
        other = fixed(final_ridge=100.0).fit(X, Y)
        np.testing.assert_array_equal(smoothlink.load(path, verify=True).predict_proba(X), before)
        other.save(path)
    np.testing.assert_array_equal(smoothlink.load(path, verify=True).predict_proba(X), other.predict_proba(X))
    assert len(list(tmp_path.glob("m-V-*"))) == len(workers.workers)
    assert not any(file.exists() for file in old)


def test_a_fit_that_fails_leaves_no_shards(workers, rng, tmp_path, monkeypatch):
    def fails(folder, names):
        assert sorted(names) == sorted(path.name for path in folder.glob("m-*"))
        raise ModelFileError("no room")

    monkeypatch.setattr("smoothlink.distributed.decoder.open_shards", fails)
    with (
        smoothlink.cluster(workers.client, shards=tmp_path / "m.safetensors"),
        pytest.raises(ModelFileError, match="no room"),
    ):
        fixed().fit(*words(rng))
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal, sys
import numpy as np
import smoothlink
from small import fixed, words
from smoothlink.distributed import decoder
from smoothlink.weights import open_shards

def die(*given):
    open_shards(*given)
    os.kill(os.getpid(), signal.SIGKILL)

X, Y = words(np.random.default_rng(0))
with smoothlink.cluster(sys.argv[1], shards=sys.argv[2]):
    model = fixed().fit(X, Y)
    model.save(sys.argv[2])
    decoder.open_shards = die
    fixed().fit(X, Y)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks")
def test_shards_of_a_killed_fit_go_with_the_next_one_unless_the_model_names_them(address, workers, rng, tmp_path):
    path, tests = tmp_path / "m.safetensors", str(Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    killed = subprocess.run([sys.executable, "-c", KILLED, address, path], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    count = len(workers.workers)
    assert len(list(tmp_path.glob("m-V-*.safetensors"))) == 2 * count
    X, Y = words(rng)
    with smoothlink.cluster(workers.client, shards=path):
        fitted = fixed().fit(X, Y)
        named = smoothlink.load(path, verify=True).model_.V.files
        new = fitted.model_.V.files
        assert {*tmp_path.glob("m-V-*.safetensors")} == {*named, *new}
        assert [mark.name for mark in tmp_path.glob(".m-V-????????.part")] == [f".{new[0].name[:12]}.part"]
        other = fixed().fit(X, Y)  # which leaves the shards of a fit that is not saved yet
    assert all(shard.exists() for shard in new)
    fitted.save(path)
    del fitted, other
    gc.collect()
    assert not list(tmp_path.glob(".m-V-????????.part"))


def test_a_fit_with_shards_goes_on_from_its_checkpoint(workers, rng, tmp_path):
    X, Y = words(rng)
    with smoothlink.cluster(workers.client, shards=tmp_path / "m.safetensors"):
        first = fixed(checkpoint=tmp_path / "state").fit(X, Y)
        again = fixed(checkpoint=tmp_path / "state").fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(X), first.predict_proba(X))


def test_shards_need_one_fit_of_independent_labels(workers, rng, tmp_path):
    with smoothlink.cluster(workers.client, shards=tmp_path / "a.safetensors"):
        for settings in ({"loss": "softmax"}, {"calibrate": True}):
            with pytest.raises(ValueError, match="shards are written by one fit with squared or logistic loss"):
                fixed(**settings).fit(*words(rng))


def test_a_missing_shard_is_named_and_shards_are_not_saved_in_halves(workers, rng, tmp_path):
    with smoothlink.cluster(workers.client, shards=tmp_path / "shards" / "a.safetensors"):
        fitted = fixed().fit(*words(rng))
    with pytest.raises(ModelFileError, match="V is in shards, which stay in float32"):
        fitted.save(tmp_path / "h.safetensors", dtype="float16")
    fitted.save(tmp_path / "m.safetensors")
    missing = next(tmp_path.glob("m-V-*-00002-of-*.safetensors"))
    missing.unlink()
    with pytest.raises(ModelFileError, match=missing.name):
        smoothlink.load(tmp_path / "m.safetensors")
