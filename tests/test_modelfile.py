"""Model files: a loaded model predicts bit for bit the same, and what makes no model is refused in words."""

import json
import os
import pickle
import re
import struct
import subprocess
import sys
import textwrap
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from small import classes, dense, fixed, multilabel, shown, words

import smoothlink
from smoothlink import (
    Cholesky,
    ConjugateGradient,
    Gaussian,
    InputKernel,
    Joint,
    Logistic,
    Matern,
    ModelFileError,
    PerLabel,
    Randomized,
    Softmax,
)
from smoothlink import safetensors_file as files
from smoothlink.modelfile import (
    CONFORMAL_ARRAYS,
    SCALES,
    SPARSE_ARRAYS,
    TREE_ARRAYS,
    TREE_START,
    default_dtype,
    digest,
    model_arrays,
    model_meta,
)
from smoothlink.steps.featurize import Features
from smoothlink.weights import ArrayWeights, open_shards, write_shard

DOCS = Path(__file__).parents[1] / "docs" / "file-format.md"
METHODS = ("predict", "predict_proba", "decision_function", "predict_topk", "predict_f1")


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(files.os, "fsync", lambda handle: None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.safetensors"


def labelled(name, rng):
    """Data for a model of each kind."""
    if name == "words":
        return words(rng)
    if name == "sparse words":
        X, Y = words(rng)
        return X, sp.csr_array(Y)
    if name == "multilabel":
        return multilabel(rng)
    X, y = classes(rng)
    ids = {
        "classes": np.array([0, 1, 2]),
        "texts": np.array(["a", "bé", "日本語"]),
        "objects": np.array(["a", "bb", "ccc"], dtype=object),
        "gaps": np.array([-5, 7, 10**12]),
        "bools": np.array([False, True, True]),
        "unsigned": np.array([3, 5, 2**64 - 1], np.uint64),
        "bytes": np.array([1, 2, 255], np.uint8),
        "floats": np.array([0.5, 1.0, 2.0], np.float32) * 2,
    }[name]
    return X, ids[y]


MODELS = {
    "calibrated": ("multilabel", {"calibrate": True}, True),
    "sparse words": ("sparse words", {"loss": "logistic", "calibrate": True, "normalize_embedding": True}, False),
    "softmax of texts": ("texts", {"loss": Softmax(passes=2), "scale": "variance"}, True),
    "squared classes": ("gaps", {"calibrate": True}, False),
    "objects": ("objects", {"kernel": "matern(2.5)"}, True),
    "bools": ("bools", {"scale": "none"}, True),
    "unsigned": ("unsigned", {"embedding": "random"}, False),
    "bytes": ("bytes", {"embedding": "principal"}, True),
    "floats": ("floats", {"solver": ConjugateGradient(tol=1e-5)}, True),
    "linear": ("multilabel", {"kernel": "linear", "embedding": "per_label"}, True),
    "none of words": ("words", {"embedding": "none", "scale": "unit"}, True),
    "landmarks": ("multilabel", {"input_kernel": InputKernel(bandwidth=2.0, features=20)}, False),
    "random inputs": ("words", {"input_kernel": InputKernel("laplacian", 2.0, 20, "random")}, True),
    "trees": ("multilabel", {"trees": True, "input_kernel": None}, True),
    "trees and landmarks": (
        "multilabel",
        {"trees": True, "input_kernel": InputKernel(bandwidth=2.0, features=20)},
        False,
    ),
    "linear first stage": ("words", {"embedding": PerLabel(LogisticRegression())}, False),
}  # each with whether it is mapped


@pytest.mark.parametrize("kind", MODELS)
def test_a_loaded_model_predicts_bit_for_bit_the_same(rng, path, kind):
    data, changes, mmap = MODELS[kind]
    X, y = labelled(data, rng)
    fitted = fixed(**changes).fit(X, y)
    fitted.save(path)
    loaded = smoothlink.load(path, mmap=mmap)
    for method in METHODS:
        found, expected = getattr(loaded, method)(X), getattr(fitted, method)(X)
        assert type(found) is type(expected)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(dense(found), dense(expected), err_msg=method)
    np.testing.assert_array_equal(loaded.predict_topk(X).indices, fitted.predict_topk(X).indices)
    np.testing.assert_array_equal(loaded.classes_, fitted.classes_)
    assert loaded.classes_.dtype == fitted.classes_.dtype
    np.testing.assert_array_equal(loaded.thresholds_, fitted.thresholds_)
    np.testing.assert_array_equal(dense(loaded.predict_f1(X, over="batch")), dense(fitted.predict_f1(X, over="batch")))
    assert loaded.n_features_in_ == fitted.n_features_in_
    for array in (fitted.model_.V.columns(), fitted.model_.features.R):
        assert array.flags.c_contiguous  # in the file too: BLAS may round another order otherwise
    assert (loaded.label_directions_ is None) == (fitted.label_directions_ is None)


def test_saving_what_was_loaded_makes_the_same_bytes(rng, path, tmp_path):
    X, y = labelled("texts", rng)
    fixed(loss="softmax").fit(X, y).save(path)
    again = tmp_path / "again.safetensors"
    smoothlink.load(path).save(again)
    assert again.read_bytes() == path.read_bytes()
    smoothlink.load(path).save(path)  # over the very file that is mapped
    assert again.read_bytes() == path.read_bytes()


def test_names_of_labels_and_features_are_kept(rng, path):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    fitted.label_names_ = ["ein", "zwei", "три", "four", "", "six"]
    fitted.feature_names_in_ = np.array([f"f{i}" for i in range(X.shape[1])], dtype=object)
    fitted.save(path)
    loaded = smoothlink.load(path)
    assert loaded.label_names_ == fitted.label_names_
    assert loaded.feature_names_in_.tolist() == fitted.feature_names_in_.tolist()
    fitted.label_names_ = ["too", "few"]
    with pytest.raises(ModelFileError, match="2 names for 6 labels"):
        fitted.save(path)
    assert smoothlink.load(path).label_names_ == loaded.label_names_  # nothing was written


def test_parameters_come_back(rng, path):
    X, Y = multilabel(rng)
    changes = {
        "solver": ConjugateGradient(tol=1e-4, iterations=77),
        "class_weight": {np.int64(2): 3, 1: 0.5},
        "rank": np.int64(3),
        "ridge": np.float32(0.5),
        "kernel": Matern(5.0, 1.5, np.int64(30)),
        "embedding": Randomized(power=2),
        "loss": Logistic(passes=2, batch_rows=50),
        "input_kernel": InputKernel(bandwidth=2.0, features=20),
        "random_state": 7,
    }
    fixed(**changes).fit(X, Y).save(path)
    loaded = smoothlink.load(path)
    assert shown(loaded) == shown(fixed(**changes))
    assert isinstance(loaded.solver, ConjugateGradient)
    assert clone(loaded).fit(X, Y).predict_proba(X) == pytest.approx(loaded.predict_proba(X))


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("random_state", np.random.RandomState(1), None),
        ("solver", Cholesky(), Cholesky()),
        ("class_weight", np.arange(1, 7), [1, 2, 3, 4, 5, 6]),
        ("class_weight", "balanced", "balanced"),
    ],
)
def test_parameters_that_json_does_not_know_are_kept_in_its_terms(rng, path, name, value, kept):
    X, Y = multilabel(rng)
    fixed(**{name: value}).fit(X, Y).save(path)
    assert smoothlink.load(path).get_params()[name] == kept


def test_a_path_is_kept_as_text(rng, path, tmp_path):
    fixed(checkpoint=tmp_path / "state").fit(*multilabel(rng)).save(path)
    assert smoothlink.load(path).checkpoint == str(tmp_path / "state")


def test_a_solver_of_ones_own_is_not_kept(rng, path):
    class Own(Cholesky):
        pass

    class Foreign:
        def prepare(self, rows, *, penalize_intercept=False):
            return Cholesky().prepare(rows, penalize_intercept=penalize_intercept)

    X, Y = multilabel(rng)
    fixed(solver=Foreign()).fit(X, Y).save(path)
    assert smoothlink.load(path).solver == "auto"
    fixed(solver=Own()).fit(X, Y).save(path)
    assert smoothlink.load(path).solver == "auto"


def test_a_linear_first_stage_is_in_the_weights_and_no_longer_a_parameter(rng, path):
    X, Y = multilabel(rng)
    fixed(embedding=PerLabel(LogisticRegression())).fit(X, Y).save(path)
    loaded = smoothlink.load(path)
    assert loaded.embedding.classifier is None
    assert loaded.model_.W.shape == (X.shape[1] + 1, Y.shape[1])


def test_a_first_stage_that_is_not_linear_cannot_be_saved_and_says_what_can(rng, path):
    X, Y = multilabel(rng)
    fitted = fixed(embedding=PerLabel(DecisionTreeClassifier(max_depth=2))).fit(X, Y)
    with pytest.raises(ModelFileError, match=r"DecisionTreeClassifier.*\n.*classifier with coef_.*pickle"):
        fitted.save(path)
    assert not path.exists()


@pytest.mark.parametrize("ids", [np.array([1, 2], dtype=object), np.array(["2020-01-01", "2021-01-01"], "M8[D]")])
def test_class_ids_that_a_file_cannot_hold_are_refused(rng, path, ids):
    X, y = classes(rng, c=2)
    fitted = fixed().fit(X, y)
    fitted.classes_ = ids
    with pytest.raises(ModelFileError, match="use numbers or text"):
        fitted.save(path)


def test_what_is_not_finite_in_the_summary_is_saved_as_nothing(rng, path):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    fitted.summary_["held_out_criterion"] = {"softmax": float("inf")}
    fitted.summary_["peak_memory_mb"]["fit"] = float("nan")
    fitted.save(path)
    assert smoothlink.load(path).summary_["held_out_criterion"] == {"softmax": None}
    assert smoothlink.load(path).summary_["peak_memory_mb"]["fit"] is None


def test_a_loaded_model_pickles(rng, path):
    X, Y = multilabel(rng)
    fixed().fit(X, Y).save(path)
    loaded = smoothlink.load(path)
    copy = pickle.loads(pickle.dumps(loaded))
    path.unlink()
    np.testing.assert_array_equal(copy.predict_proba(X), loaded.predict_proba(X))


def test_mapped_arrays_stay_on_disk(rng, path):
    X, Y = multilabel(rng)
    fixed().fit(X, Y).save(path)
    mapped, read = smoothlink.load(path), smoothlink.load(path, mmap=False)
    assert not mapped.model_.V.values.flags.writeable
    assert not mapped.model_.V.values.flags.owndata
    assert read.model_.V.values.flags.writeable


# Checksums of mapped arrays


@pytest.fixture
def sound(rng, path):
    """A model whose W is larger than what is always verified, and rows for it."""
    X, Y = words(rng, n=60, d=70_000)
    fixed(rank=4).fit(X, Y).save(path)
    return X


@pytest.fixture
def large(sound, path):
    """The same with one bit of W flipped."""
    W = files.load(path).arrays["W"]
    assert W.nbytes >= files.VERIFIED_BYTES
    whole = bytearray(path.read_bytes())
    place = whole.index(W.tobytes()) + W.nbytes // 2
    whole[place] ^= 1
    path.write_bytes(whole)
    return sound


def test_a_sound_large_array_is_compared_in_the_background_and_the_model_can_be_pickled(sound, path):
    loaded = smoothlink.load(path)
    copy = pickle.loads(pickle.dumps(loaded))
    assert not loaded.model_.verification.thread.is_alive()
    np.testing.assert_array_equal(copy.predict_proba(sound), loaded.predict_proba(sound))


def test_arrays_that_there_is_no_memory_to_compare_are_not_taken_for_sound(sound, path):
    def no_memory(name, values):
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        files.Verification(files.load(path).unchecked, no_memory).wait()


@pytest.mark.parametrize("verify", ["now", True])
def test_a_flipped_bit_in_a_large_array_is_found_at_loading(large, path, verify):
    with pytest.raises(ModelFileError, match="'W' does not match its checksum"):
        smoothlink.load(path, verify=verify)


def test_a_flipped_bit_in_a_large_array_is_found_in_the_background(large, path, tmp_path):
    loaded = smoothlink.load(path)
    loaded.model_.verification.thread.join()
    for method in METHODS:
        with pytest.raises(ModelFileError, match="'W' does not match its checksum"):
            getattr(loaded, method)(large)
    for copy in (lambda: smoothlink.load(path).save(tmp_path / "copy"), lambda: pickle.dumps(smoothlink.load(path))):
        with pytest.raises(ModelFileError, match="'W' does not match its checksum"):
            copy()
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("verify", ["never", False])
def test_what_is_never_verified_is_not_looked_at(large, path, verify):
    assert smoothlink.load(path, verify=verify).predict_proba(large).shape[0] == 60


def test_a_time_to_verify_that_there_is_not_is_refused(large, path):
    with pytest.raises(ValueError, match=r"verify is 'later'.*now"):
        smoothlink.load(path, verify="later")


# V in several files


def sharded(fitted, folder, names):
    """The same model with V in files of some labels each."""
    parts = np.array_split(fitted.model_.V.columns(), len(names), axis=1)
    for name, part in zip(names, parts, strict=True):
        write_shard(part, str(folder / name))
    fitted.model_ = replace(fitted.model_, V=open_shards(folder, names))
    return fitted


def names_of_a_run(stem, run):
    return [f"{stem}-V-{run}-{i}-of-00002.safetensors" for i in ("00001", "00002")]


def test_shards_of_another_model_under_the_right_names_are_refused(rng, path, tmp_path):
    X, Y = words(rng)
    names = names_of_a_run("m", "0123abcd")
    sharded(fixed().fit(X, Y), tmp_path, names).save(path)
    smoothlink.load(path, verify=True)
    sharded(fixed(final_ridge=100.0).fit(X, Y), tmp_path, names)
    refused(path, "those of another model")
    first = files.load(tmp_path / names[0]).arrays["V"]
    write_shard(first[:, :-1], str(tmp_path / names[0]))
    refused(path, "those of another model")


def test_shards_of_other_rows_than_the_model_are_refused(rng, path, tmp_path):
    X, Y = words(rng)
    names = names_of_a_run("m", "0123abcd")
    sharded(fixed().fit(X, Y), tmp_path, names).save(path)
    for name in names:
        write_shard(files.load(tmp_path / name).arrays["V"][:-1], str(tmp_path / name))
    crcs = [files.load(tmp_path / name).checksums["V"] for name in names]
    rewritten(path, shard_crc32=crcs)
    refused(path, "its arrays do not fit together: V is")


def test_what_a_shard_says_of_itself_means_nothing(rng, path, tmp_path):
    names = names_of_a_run("m", "0123abcd")
    sharded(fixed().fit(*words(rng)), tmp_path, names).save(path)
    known = digest(path)
    for meta in ({"shards": names[:1]}, {"shards": 3, "summary": []}):
        files.save(tmp_path / names[0], files.load(tmp_path / names[0], mmap=False).arrays, meta)
        assert digest(path) == known


def test_the_shards_of_the_replaced_model_go_when_the_new_file_is_there(rng, path, tmp_path, monkeypatch):
    X, Y = words(rng)
    old, new = names_of_a_run("m", "00000000"), names_of_a_run("m", "11111111")
    (tmp_path / "m-V-notes.safetensors").write_text("of somebody else")
    sharded(fixed().fit(X, Y), tmp_path, old).save(path)
    before = smoothlink.load(path).predict_proba(X)
    second = sharded(fixed(final_ridge=100.0).fit(X, Y), tmp_path, new)
    with monkeypatch.context() as full:
        full.setattr(
            "smoothlink.modelfile.save_file", lambda *_, **__: (_ for _ in ()).throw(ModelFileError("no room"))
        )
        with pytest.raises(ModelFileError, match="no room"):
            second.save(path)
    np.testing.assert_array_equal(smoothlink.load(path, verify=True).predict_proba(X), before)
    second.save(path)
    assert sorted(os.listdir(tmp_path)) == sorted([*new, "m-V-notes.safetensors", "m.safetensors"])
    fixed().fit(X, Y).save(path)  # whole again
    assert sorted(os.listdir(tmp_path)) == ["m-V-notes.safetensors", "m.safetensors"]


def test_a_model_is_saved_elsewhere_from_shards_that_were_removed(rng, path, tmp_path):
    X, Y = words(rng)
    sharded(fixed().fit(X, Y), tmp_path, names_of_a_run("m", "00000000")).save(path)
    first = smoothlink.load(path)
    fixed().fit(X, Y).save(path)
    first.save(tmp_path / "other.safetensors")
    other = smoothlink.load(tmp_path / "other.safetensors", verify=True)
    np.testing.assert_array_equal(other.predict_proba(X), first.predict_proba(X))
    assert [file.name for file in other.model_.V.files] == names_of_a_run("other", "00000000")


def test_a_sharded_model_of_0_1_0_loads_and_saves_under_names_of_a_run(rng, path, tmp_path):
    X, Y = words(rng)
    names = ["m-V-00001-of-00002.safetensors", "m-V-00002-of-00002.safetensors"]
    fitted = sharded(fixed().fit(X, Y), tmp_path, names)
    write_as_0_1(path, model_arrays(fitted, "float32"), meta_of_0_1(fitted) | {"shards": names}, version=4)
    loaded = smoothlink.load(path, verify=True)
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    loaded.save(path)
    assert not any((tmp_path / name).exists() for name in names)
    np.testing.assert_array_equal(smoothlink.load(path).predict_proba(X), fitted.predict_proba(X))


# Files of smoothlink 0.1


def write_as_0_1(path, arrays, meta, version):
    """A model file as smoothlink 0.1 wrote it: its description repeats the type and the shape of each array."""
    codes = {"float16": "F16", "float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64", "uint8": "U8"}
    ready = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    entries, described, begin = {}, {}, 0
    for name, array in sorted(ready.items(), key=lambda item: (-item[1].itemsize, item[0])):
        same = {"dtype": codes[array.dtype.name], "shape": list(array.shape)}
        entries[name] = {**same, "data_offsets": [begin, begin := begin + array.nbytes]}
        described[name] = {**same, "crc32": zlib.crc32(array.tobytes())}
    content = {"format": "smoothlink", "format_version": version, "versions": {}, "arrays": described, "meta": meta}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    text = json.dumps({**content, "crc32": zlib.crc32(text.encode())}, sort_keys=True, separators=(",", ":"))
    header = json.dumps({"__metadata__": {"smoothlink": text}, **entries}).encode()
    header += b" " * (-len(header) % 8)
    data = b"".join(ready[name].tobytes() for name in entries)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def meta_of_0_1(fitted):
    """The meta of a fitted model with the flat parameters of 0.1."""
    meta = model_meta(fitted)
    del meta["parameters_of"]
    return meta | {
        "parameters": {"rank": 4, "kernel": "gaussian", "n_features": 30, "loss": "squared", "device": "cpu"}
    }


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_a_model_of_0_1_predicts_the_same(rng, path, dtype):
    X, Y = words(rng)
    fitted = fixed(calibrate=True).fit(X, Y)
    fitted.save(path, dtype=dtype)
    expected = smoothlink.load(path).predict_proba(X)
    write_as_0_1(path, files.load(path, mmap=False).arrays, meta_of_0_1(fitted), version=1 if dtype is None else 2)
    loaded = smoothlink.load(path, verify=True)
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    assert loaded.kernel == Gaussian(features=30) or loaded.get_params()["kernel__features"] == 30
    loaded.save(path)
    np.testing.assert_array_equal(smoothlink.load(path).predict_proba(X), expected)


def test_a_flipped_bit_of_a_model_of_0_1_is_found(rng, path):
    X, Y = words(rng)
    fitted = fixed().fit(X, Y)
    fitted.save(path)
    write_as_0_1(path, files.load(path, mmap=False).arrays, meta_of_0_1(fitted), version=1)
    whole = bytearray(path.read_bytes())
    whole[-5] ^= 1
    path.write_bytes(whole)
    refused(path, "does not match its checksum")


# What is the same model


@pytest.mark.parametrize(("kind", "changes"), [("words", {"loss": "logistic"}), ("multilabel", {"trees": True})])
def test_equal_fits_make_equal_files_but_for_times_and_memory(rng, tmp_path, kind, changes):
    X, Y = labelled(kind, rng)
    seeds = {"a": 3, "b": 3, "other": 4}
    for name, seed in seeds.items():
        fixed(**changes, random_state=seed).fit(X, Y).save(tmp_path / name)
    first, second = (files.load(tmp_path / name) for name in "ab")
    assert {name: array.tobytes() for name, array in first.arrays.items()} == {
        name: array.tobytes() for name, array in second.arrays.items()
    }
    for loaded in (first, second):
        assert all(loaded.meta["summary"].pop(name) for name in ("seconds", "peak_memory_mb"))
    assert first.meta == second.meta
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "other")
    rewritten(tmp_path / "b", thresholds=second.arrays["thresholds"] + 1e-16 + 1)
    assert digest(tmp_path / "a") != digest(tmp_path / "b")


def test_a_model_in_shards_has_a_digest_of_all_files_whatever_their_names(rng, tmp_path):
    X, Y = words(rng)
    found = set()
    for run, ridge in (("0123abcd", 1.0), ("ffffffff", 1.0), ("00000000", 2.0)):
        fitted = sharded(fixed(final_ridge=ridge).fit(X, Y), tmp_path, names_of_a_run("m", run))
        fitted.set_params(final_ridge=1.0)
        fitted.summary_ = {}
        fitted.save(tmp_path / f"{run}.safetensors")
        found.add(digest(tmp_path / f"{run}.safetensors"))
    assert len(found) == 2


# What makes no model


@pytest.fixture
def saved(path):
    """A model with every optional array, in a file."""
    X, y = classes(np.random.default_rng(1))
    fitted = fixed(input_kernel=InputKernel(bandwidth=2.0, features=12, map="random"), scale="variance").fit(
        X, np.array(["a", "b", "c"])[y]
    )
    fitted.label_names_ = ["x", "y", "z"]
    fitted.feature_names_in_ = np.array(list("abcdef"), dtype=object)
    fitted.save(path)
    return path


def refused(path, message=None):
    with pytest.raises(ModelFileError, match=message) as raised:
        smoothlink.load(path)
    assert str(path) in str(raised.value)
    assert not isinstance(raised.value.__context__, AssertionError)


def rewritten(path, **changes):
    """The same file with arrays or meta replaced (None: left out), all checksums right."""
    loaded = files.load(path, mmap=False)
    arrays, meta = dict(loaded.arrays), dict(loaded.meta)
    for name, value in changes.items():
        place = arrays if name in arrays or isinstance(value, np.ndarray) else meta
        if value is None:
            del place[name]
        else:
            place[name] = value
    files.save(path, arrays, meta)


def every_array():
    X, y = classes(np.random.default_rng(1))
    fitted = fixed(input_kernel=InputKernel(bandwidth=2.0, features=12, map="random")).fit(
        X, np.array(["a", "b", "c"])[y]
    )
    fitted.label_names_ = ["x", "y", "z"]
    fitted.feature_names_in_ = np.array(list("abcdef"), dtype=object)
    return sorted(["V", *model_arrays(fitted, "float32")]), sorted(model_meta(fitted))


ARRAYS, META = every_array()


@pytest.mark.parametrize(
    "damage",
    [
        {"input_points": None},
        {"input_points": np.zeros((12, 5), np.float32)},
        {"landmarks": None},
        {"landmarks": ["gaussian", -1.0]},
        {"landmarks": ["linear", 1.0]},
        {"landmarks": ["round", 1.0]},
        {"landmarks": "gaussian"},
    ],
    ids=str,
)
def test_landmarks_that_make_no_kernel_are_refused(path, damage):
    X, y = classes(np.random.default_rng(1))
    fixed(input_kernel=InputKernel(bandwidth=2.0, features=12)).fit(X, y).save(path)
    rewritten(path, **damage)
    refused(path)
    loaded = files.load(path)
    files.save(path, loaded.arrays, loaded.meta | {"landmarks": None})
    refused(path)


def test_a_model_without_a_sketch_of_its_training_rows_loads_and_is_saved(saved, tmp_path):
    rewritten(saved, training_rows=None, training_rows_every=None)
    smoothlink.load(saved).save(tmp_path / "copy")
    assert smoothlink.load(tmp_path / "copy").training_rows_ is None


@pytest.mark.parametrize(
    "damage",
    [
        *({f"tree_{name}": None} for name in ("roots", "feature", "threshold", "children", "values", "start")),
        {"tree_start": np.zeros(1, np.float32)},
        {"trees": None},  # a start without a link
        {"tree_roots": np.array(0, np.int32)},
        {"tree_values": lambda found: found[:, :0], "tree_start": np.zeros(0, np.float32)},
        *(
            {"trees": wrong}
            for wrong in (["cubic", 1.0], ["identity", 0.0], ["identity", 1e39], ["identity"], "identity")
        ),
        {"tree_values": np.zeros((3, 2), np.float32)},
        {"tree_values": np.zeros(5, np.float32)},
        {"tree_roots": np.array([-1], np.int32)},
        {"tree_roots": np.array([[0]], np.int32)},
        {"tree_roots": np.array([1 << 30], np.int32)},
        {"tree_feature": lambda found: np.where(found >= 0, 6, found)},
        {"tree_children": np.zeros_like},  # each node its own child
        {"tree_children": lambda found: found + len(found)},
        {"dense": False},  # trees split columns of a table
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_trees_that_lead_nowhere_are_refused(path, damage):
    X, y = classes(np.random.default_rng(1))
    fixed(trees=True, input_kernel=None).fit(X, y).save(path)
    found = files.load(path, mmap=False).arrays
    rewritten(path, **{name: made(found[name]) if callable(made) else made for name, made in damage.items()})
    refused(path)


def test_trees_of_files_before_format_10_are_sums_without_a_link(path):
    X, y = classes(np.random.default_rng(1))
    fixed(trees=True, input_kernel=None).fit(X, y).save(path)
    trees = smoothlink.load(path).model_.trees
    assert trees.link == "softmax"
    rewritten(path, tree_start=None, trees=None)
    old = smoothlink.load(path).model_.trees
    np.testing.assert_allclose(
        old.predict(X[:, : old.d]), trees._replace(start=0 * trees.start, link="identity", gain=1.0).predict(X)
    )


OPTIONAL = {"U", "label_names_zlib", "feature_names_zlib"}  # which a model may lack


@pytest.mark.parametrize("name", [name for name in ARRAYS if name not in OPTIONAL])
def test_a_missing_array_is_refused(saved, name):
    rewritten(saved, **{name: None})
    refused(saved)


@pytest.mark.parametrize("name", sorted(set(META) - {"first", "parameters_of", "draws"}))  # which files of before lack
def test_a_missing_key_is_refused(saved, name):
    rewritten(saved, **{name: None})
    refused(saved, name)


def test_what_a_file_says_of_best_labels_is_kept_or_refused(saved):
    rewritten(saved, first=[0.25, 0.75])
    assert smoothlink.load(saved).model_.calibration.top1 == (0.25, 0.75)
    for wrong in ([0.0, -1.0], [0.0], ["a", 1.0], 3.0):
        rewritten(saved, first=wrong)
        refused(saved)


WRONG = ["longer", "flat", "scalar", "type", "empty"]
NUMBERS = [name for name in ARRAYS if not name.endswith("_zlib")]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [*(("V", wrong) for wrong in WRONG), *((name, WRONG[i % len(WRONG)]) for i, name in enumerate(NUMBERS))],
)
def test_arrays_that_do_not_fit_together_are_refused(saved, name, wrong):
    array = files.load(saved, mmap=False).arrays[name]
    changed = {
        "longer": lambda: np.concatenate([array, array[:1]] if len(array) else [array, np.ones((1, *array.shape[1:]))]),
        "flat": lambda: array.reshape(-1) if array.ndim > 1 else array[None],
        "scalar": lambda: np.zeros((), array.dtype),
        "type": lambda: array.astype(np.int32 if array.dtype != np.int32 else np.float32),
        "empty": lambda: array[..., :0] if array.size else np.ones((2, 2), array.dtype),
    }[wrong]()
    rewritten(saved, **{name: changed.astype(array.dtype) if wrong != "type" else changed})
    refused(saved)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_features_in", 5),
        ("n_features_in", -1),
        ("n_features_in", True),
        ("n_features_in", "6"),
        ("indicator", 1),
        ("sparse_labels", "no"),
        ("class_dtype", "no type"),
        ("class_dtype", "M8[D]"),
        ("class_dtype", 3),
        ("scale", "unit"),
        ("scale", "huge"),
        ("dense", 0),
        ("normalize", "x"),
        ("loss", "logistic"),
        ("loss", "hinge"),
        ("loss", 3),
        ("multiclass", "yes"),
        ("temperature", 0.0),
        ("temperature", "hot"),
        ("total", -1.0),
        ("summary", []),
        ("parameters", []),
        ("parameters", {"no_such_parameter": 1}),
        ("parameters", {"solver": {"solver": "Popen"}}),
        ("parameters", {"solver": {"solver": "ConjugateGradient", "color": "red"}}),
        ("parameters", {"class_weight": {"pairs": [1, 2]}}),
    ],
)
def test_keys_that_make_no_sense_are_refused(saved, key, value):
    rewritten(saved, **{key: value})
    refused(saved)


@pytest.mark.parametrize("key", ["label_names", "feature_names", "class_names"])
def test_a_wrong_number_of_names_is_refused(saved, key):
    rewritten(saved, **files.pack_names(["one"], key))
    refused(saved, f"1 {key}")


def test_files_of_other_kinds_are_refused(tmp_path):
    X, Y = multilabel(np.random.default_rng(1))
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(fixed().fit(X, Y)))
    np.savez(tmp_path / "a.npz", X=X)
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "a.txt").write_text("3 2 1\n0 0:1\n")
    (tmp_path / "empty").write_bytes(b"")
    header = json.dumps({"V": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "other.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    files.save(tmp_path / "no_model.safetensors", {"V": X}, {"what": "something else"})
    for path in tmp_path.iterdir():
        refused(path)
    refused(tmp_path / "missing.safetensors", "no file")
    refused(tmp_path, "folder")


def test_a_file_cut_short_anywhere_is_refused(saved):
    whole = saved.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 60).astype(int):
        saved.write_bytes(whole[:length])
        refused(saved)
    saved.write_bytes(whole + b"\0")
    refused(saved)


@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_changed_byte_is_found_or_harmless(saved, place, flip):
    whole = bytearray(saved.read_bytes())
    at = int(place * len(whole))
    whole[at] ^= flip
    damaged = saved.with_name("damaged.safetensors")
    damaged.write_bytes(whole)
    try:
        loaded = smoothlink.load(damaged)
    except ModelFileError:
        return
    # Spaces that pad the header may change into others; nothing else may.
    original = smoothlink.load(saved)
    X = np.eye(6)
    np.testing.assert_array_equal(loaded.predict_proba(X), original.predict_proba(X))


def test_loading_runs_no_code_of_the_file(saved):
    """Nothing that can execute (pickle, marshal, eval, imports by name) is called, and no module is loaded for it."""
    program = f"""
        import builtins, pickle, sys
        import smoothlink.estimator, smoothlink.modelfile

        def never(*arguments, **options):
            raise SystemExit("code was run")

        pickle.load = pickle.loads = pickle.Unpickler = never
        import marshal
        before = set(sys.modules)
        def watch(event, arguments):
            if event in ("exec", "compile", "marshal.loads", "pickle.find_class", "subprocess.Popen", "os.system"):
                print(event, str(arguments)[:200])
        sys.addaudithook(watch)
        smoothlink.load({os.fspath(saved)!r})
        smoothlink.load({os.fspath(saved)!r}, mmap=False)
        print(sorted(set(sys.modules) - before))
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# The documentation


def documented(section):
    """The first column of the tables of a section: `name` in backticks."""
    text = DOCS.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE))


def test_every_array_and_key_is_documented_and_nothing_else():
    X, y = classes(np.random.default_rng(1))
    numbers = fixed(calibrate=True).fit(X, y)
    names = {"label_names", "feature_names", "class_names"}
    arrays = {name.removesuffix("_zlib") for name in [*ARRAYS, *model_arrays(numbers, "float32")]}
    whole = {"R", "input_R", "input_points"}  # where they are stored, not drawn
    optional = {*SCALES, *SPARSE_ARRAYS, *TREE_ARRAYS, TREE_START, *CONFORMAL_ARRAYS}
    assert documented("Arrays of a model") == arrays | names | whole | optional
    keys = {"first", "threshold", "zero_based", "vocabulary", "dtype", "conformal", "reference", "sums", "trees"}
    assert documented("Meta of a model") == set(META) | keys


# Half precision

REAL = Path(os.environ.get("SMOOTHLINK_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.mark.parametrize("kind", ["calibrated", "sparse words", "softmax of texts", "none of words", "landmarks"])
def test_half_the_bytes_predict_almost_the_same(rng, path, kind):
    data, changes, mmap = MODELS[kind]
    X, y = labelled(data, rng)
    fitted = fixed(**changes).fit(X, y)
    fitted.save(path, dtype="float16")
    loaded = smoothlink.load(path, mmap=mmap)
    assert loaded.model_.V.values.dtype == np.float16
    scores = fitted.decision_function(X)
    np.testing.assert_allclose(loaded.decision_function(X), scores, atol=0.02 * np.abs(scores).max())
    single = loaded.predict_proba(X[:1])
    np.testing.assert_allclose(single, loaded.predict_proba(X)[:1], rtol=1e-3, atol=1e-5)
    again = path.with_name("again.safetensors")
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()
    loaded.save(again, dtype="float32")
    wide = smoothlink.load(again)
    assert wide.model_.V.values.dtype == np.float32
    np.testing.assert_array_equal(wide.model_.V, loaded.model_.V)
    np.testing.assert_allclose(wide.predict_proba(X), loaded.predict_proba(X), rtol=1e-3, atol=1e-5)


# Codes of 8 and 4 bits

COMPACT = ["float16", "int8", "int4"]
COMPACT_MODELS = {
    **{kind: MODELS[kind][:2] for kind in ("calibrated", "sparse words", "softmax of texts", "none of words")},
    **{kind: MODELS[kind][:2] for kind in ("landmarks", "random inputs", "trees and landmarks", "linear")},
    "joint": ("sparse words", {"ridge": "auto", "training": Joint(4, passes=2)}),
}


@pytest.mark.parametrize("kind", COMPACT_MODELS)
@pytest.mark.parametrize("dtype", COMPACT)
def test_every_prediction_from_fewer_bits_is_that_of_the_numbers_they_stand_for(rng, path, dtype, kind):
    """Saved as float32 again, codes are the same numbers: all that is asked of both files must agree."""
    data, changes = COMPACT_MODELS[kind]
    X, y = labelled(data, rng)
    fitted = fixed(**changes).fit(X, y)
    fitted.save(path, dtype=dtype)
    loaded = smoothlink.load(path)
    wide_path, again = path.with_name("wide.safetensors"), path.with_name("again.safetensors")
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()
    loaded.save(wide_path, dtype="float32")
    wide = smoothlink.load(wide_path)
    wide.save(again, dtype=dtype)
    back = smoothlink.load(again)
    np.testing.assert_array_equal(np.asarray(wide.model_.V), np.asarray(loaded.model_.V))
    np.testing.assert_array_equal(np.asarray(back.model_.V), np.asarray(loaded.model_.V))
    for rows in (X, X[:1], X[:3]):
        for method in ("predict_proba", "decision_function"):
            found, expected = getattr(loaded, method)(rows), getattr(wide, method)(rows)
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4, err_msg=method)
        np.testing.assert_allclose(
            np.sort(loaded.predict_topk(rows).data), np.sort(wide.predict_topk(rows).data), rtol=2e-4, atol=2e-4
        )
        for method in ("predict", "predict_f1"):
            assert dense(getattr(loaded, method)(rows)).shape == dense(getattr(wide, method)(rows)).shape
    for name, metric in loaded.evaluate(X, y, bootstraps=0).metrics.items():
        expected = wide.evaluate(X, y, bootstraps=0).metrics[name].value
        assert metric.value == pytest.approx(expected, rel=0.05, abs=0.05), name
    for one, other in zip(*(smoothlink.explain(model, X[:1], k=3) for model in (loaded, wide)), strict=True):
        assert one.label == other.label
        assert one.score == pytest.approx(other.score, abs=1e-3)
    copied = pickle.loads(pickle.dumps(loaded))
    np.testing.assert_array_equal(copied.predict_proba(X), loaded.predict_proba(X))


@pytest.mark.parametrize("dtype", COMPACT)
def test_linear_scores_move_by_no_more_than_the_stated_bound(rng, path, dtype):
    """Half a scale for each weight: the largest of its group over twice the largest code."""
    X, Y = words(rng, d=200)
    fitted = fixed(kernel="linear", embedding="none", scale="none").fit(X, Y)
    fitted.save(path, dtype=dtype)
    V = np.abs(np.asarray(fitted.model_.V))
    largest = np.stack([V[start : start + 64].max(axis=0) for start in range(0, len(V), 64)])
    steps = {"float16": 2.0**-11, "int8": 1 / 254, "int4": 1 / 14}[dtype]
    bound = 1.01 * steps * np.repeat(largest, 64, axis=0)[: len(V)]
    moved = np.abs(smoothlink.load(path).decision_function(X) - fitted.decision_function(X))
    allowed = np.column_stack([dense(X), np.ones(X.shape[0])]) @ bound
    assert (moved <= allowed + 1e-5).all()
    assert moved.max() > 0


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_codes_are_cut_changed_or_misfitting_only_with_an_error(rng, path, dtype):
    X, Y = labelled("sparse words", rng)
    fixed(ridge="auto", training=Joint(4, passes=2)).fit(X, Y).save(path, dtype=dtype)
    whole = path.read_bytes()
    stored = files.load(path, mmap=False).arrays
    for name in ("V", "V_scale", "W", "W_scale", "D_values", "D_scale", "D_labels"):
        changed = bytearray(whole)
        changed[whole.index(stored[name].tobytes()) + stored[name].nbytes // 2] ^= 1
        path.write_bytes(changed)
        refused(path, f"'{name}' does not match its checksum")
    path.write_bytes(whole[:-1])
    refused(path, "cut short")
    for name in ("V", "W", "D_values", "V_scale", "W_scale", "D_scale", "D_labels"):
        for wrong in (stored[name][:-1], stored[name].astype(np.float64), None):
            path.write_bytes(whole)
            rewritten(path, **{name: wrong})
            refused(path)
    path.write_bytes(whole)
    rewritten(path, D_labels=np.full_like(stored["D_labels"], 60_000))
    refused(path, "sparse weights")
    path.write_bytes(whole)
    rewritten(path, dtype="float8")
    refused(path, "dtype = 'float8'")


@pytest.mark.parametrize("dtype", [None, *COMPACT])
@pytest.mark.parametrize("part", ["V", "W", "sparse_weights"])
def test_weights_that_are_not_finite_are_not_saved(rng, path, dtype, part):
    X, Y = labelled("sparse words", rng)
    fitted = fixed(ridge="auto", training=Joint(4, passes=2)).fit(X, Y)
    if part == "sparse_weights":
        D = fitted.model_.sparse_weights
        wrong = D._replace(values=np.where(np.arange(D.size) == 5, np.nan, D.values).astype(np.float32))
    else:
        A = np.array(getattr(fitted.model_, part))
        A[1, 1] = np.inf
        wrong = ArrayWeights(A)
    fitted.model_ = replace(fitted.model_, **{part: wrong})
    with pytest.raises(ModelFileError, match="that are not finite"):
        fitted.save(path, dtype=dtype)
    assert not path.exists()


def test_a_fitted_model_is_stored_exactly_where_that_is_small_and_a_loaded_one_as_it_was(rng, path):
    fitted = fixed().fit(*multilabel(rng))
    assert default_dtype(fitted.model_) == "float32"
    assert default_dtype(fitted.model_, exact_bytes=100) == "float16"
    for dtype in ("float32", *COMPACT):
        fitted.save(path, dtype=dtype)
        smoothlink.load(path).save(path)
        assert files.load(path).meta["dtype"] == dtype


@pytest.mark.parametrize("dtype", ["float32", *COMPACT])
def test_pruning_leaves_out_the_smallest_sparse_weights(rng, path, dtype):
    X, Y = labelled("sparse words", rng)
    fitted = fixed(ridge="auto", training=Joint(4, passes=2)).fit(X, Y)
    D = fitted.model_.sparse_weights
    for share in (0.0, 0.4, 1.0):
        fitted.save(path, dtype=dtype, prune=share)
        loaded = smoothlink.load(path)
        kept = loaded.model_.sparse_weights
        assert kept.size == D.size - int(share * D.size)
        largest = np.sort(np.abs(D.values))[D.size - kept.size :]
        np.testing.assert_allclose(np.sort(np.abs(kept.weights())), largest, atol=0.01 * np.abs(D.values).max())
        assert loaded.predict_proba(X).shape == Y.shape
    for wrong in (-0.1, 1.1, "half"):
        with pytest.raises(ValueError, match="prune is"):
            fitted.save(path, prune=wrong)
    with pytest.raises(ModelFileError, match="no sparse weights"):
        fixed().fit(X, Y).save(path, prune=0.5)


# Random features from a seed


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "matern(2.5)"])
def test_random_features_are_drawn_again_from_what_the_file_holds(rng, path, kernel):
    X, Y = words(rng)
    fitted = fixed(kernel=kernel, input_kernel=InputKernel(kernel, 2.0, 20, "random")).fit(X, Y)
    fitted.save(path)
    arrays = files.load(path).arrays
    assert not arrays.keys() & {"R", "input_R"}
    assert arrays["R_factor"].shape == arrays["b"].shape
    loaded = smoothlink.load(path).model_
    np.testing.assert_array_equal(loaded.features.R, fitted.model_.features.R)
    np.testing.assert_array_equal(loaded.input_features.R, fitted.model_.input_features.R)


def test_frequencies_that_were_not_drawn_are_stored_whole(rng, path):
    X, Y = words(rng)
    fitted = fixed().fit(X, Y)
    features = fitted.model_.features
    fitted.model_ = replace(fitted.model_, features=Features(features.R * np.float32(1.25), features.b))
    fitted.save(path)
    np.testing.assert_array_equal(files.load(path).arrays["R"], features.R * np.float32(1.25))
    np.testing.assert_array_equal(smoothlink.load(path).predict_proba(X), fitted.predict_proba(X))


def test_a_generator_that_draws_other_numbers_is_noticed(saved):
    drawn = files.load(saved).meta["draws"]
    rewritten(saved, draws={**drawn, "R": {**drawn["R"], "crc32": drawn["R"]["crc32"] ^ 1}})
    refused(saved, r"random features \(R\) were drawn by smoothlink .*this version draws others")


@pytest.mark.parametrize(
    "damage",
    [
        *({"seed": wrong} for wrong in (-1, 2**53, 1.5, "a", None)),
        *({"distribution": wrong} for wrong in ("uniform", 3, None)),
        *({"shape": wrong} for wrong in ([4, 39], [5, 40], [4], [-4, 40], [4.0, 40], [1 << 31, 40], None)),
        {"crc32": "x"},
    ],
    ids=str,
)
def test_draws_that_make_no_features_are_refused(saved, damage):
    drawn = files.load(saved).meta["draws"]
    rewritten(saved, draws={**drawn, "R": {**drawn["R"], **damage}})
    refused(saved)


@pytest.mark.parametrize("wrong", [{}, [], {"R": []}, {"Q": {}}, 3], ids=str)
def test_lists_of_draws_that_make_no_model_are_refused(saved, wrong):
    rewritten(saved, draws=wrong)
    refused(saved)


def test_a_precision_that_no_file_has_is_refused(rng, path):
    with pytest.raises(ValueError, match="'float8'; possible are"):
        fixed().fit(*multilabel(rng)).save(path, dtype="float8")


@pytest.mark.parametrize(
    "damage", [{"V_scale": None}, {"V_scale": np.ones(2, np.float32)}, {"W_scale": np.ones(4)}], ids=str
)
def test_halves_without_fitting_scales_are_refused(rng, path, damage):
    fixed().fit(*multilabel(rng)).save(path, dtype="float16")
    rewritten(path, **damage)
    refused(path, "do not fit together")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int4"])
def test_predictions_read_the_mapped_file_and_copy_nothing_of_it(rng, path, dtype):
    X, Y = words(rng)
    fixed().fit(X, Y).save(path, dtype=dtype)
    loaded = smoothlink.load(path)
    model = loaded.model_
    V = stored_values(model.V)
    for array in (V, stored_values(model.W), model.counts):
        assert not array.flags.writeable
        assert not array.flags.owndata
        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert isinstance(base, np.memmap)
    for method in METHODS:
        getattr(loaded, method)(X)
        getattr(loaded, method)(X[[0]])
    loaded.predict_f1(X, over="batch")
    loaded.evaluate(X, Y, bootstraps=2)
    assert stored_values(model.V) is V


def stored_values(weights):
    return weights.codes.values if hasattr(weights, "codes") else weights.values


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real data in {REAL}; set SMOOTHLINK_DATA")
@pytest.mark.parametrize("name", ["bibtex", "delicious"])
def test_halves_lose_less_than_a_tenth_of_a_point_on_real_data(path, name):
    train, test = (smoothlink.read(REAL / name / f"{part}.txt.xz") for part in ("train", "test"))
    given_rank = fixed(rank=100, kernel__features=1000, final_ridge=0.01, calibrate=True, input_kernel=None)
    given_rank.fit(train.X, train.Y).save(path, dtype="float16")
    exact = given_rank.evaluate(test.X, test.Y, bootstraps=0).metrics
    found = smoothlink.load(path).evaluate(test.X, test.Y, bootstraps=0).metrics
    for key in ("p@1", "p@3", "p@5", "hamming", "macro_f1_alg4"):
        assert found[key].value == pytest.approx(exact[key].value, abs=1e-3), key
    assert found["logloss"].value == pytest.approx(exact["logloss"].value, rel=1e-3)


def test_maps_of_labels_are_saved_and_need_the_one_that_they_share(rng, tmp_path):
    X, Y = multilabel(rng, n=300)
    fitted = fixed(calibrate=True).fit(X, Y)
    fitted.save(tmp_path / "m.safetensors")
    loaded = smoothlink.load(tmp_path / "m.safetensors")
    assert loaded.model_.calibration.labels.shape == (5, Y.shape[1])
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    none = np.zeros(0)
    fitted.model_ = replace(fitted.model_, calibration=fitted.model_.calibration._replace(knots=none, values=none))
    fitted.save(tmp_path / "m.safetensors")
    with pytest.raises(ModelFileError, match="maps of labels, but not the one that they share"):
        smoothlink.load(tmp_path / "m.safetensors")
