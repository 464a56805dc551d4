"""Hostile model files with right checksums, each with its verdict."""

import json
import os
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from commands import run
from small import fixed, multilabel, words

import smoothlink
from smoothlink import InputKernel, Joint, ModelFileError
from smoothlink import safetensors_file as files
from smoothlink.data.read import Data, write
from smoothlink.weights import UNBOUNDED, open_shards, write_shard


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Model files that between them hold every array of numbers."""
    folder, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(1)
    X, Y = multilabel(rng)
    S, labels = words(rng)
    inputs = InputKernel(bandwidth=2.0, features=12, map="random")
    models = {
        "trees": fixed(trees=True, input_kernel=inputs, scale="variance", calibrate=True).fit(X, Y),
        "points": fixed(input_kernel=InputKernel(bandwidth=2.0, features=12)).fit(X, Y),
        "sparse": fixed(ridge="auto", training=Joint(4, passes=1)).fit(S, labels),
    }
    for name, model in models.items():
        for dtype in ("float32", "float16", "int8", "int4"):
            model.save(folder / f"{name}-{dtype}", dtype=dtype)
    return folder


def numbers(folder):
    """The arrays of numbers in each file, each once."""
    found = {}
    for path in sorted(folder.iterdir()):
        for name, array in files.load(path).arrays.items():
            if (array.dtype.kind == "f" or name.endswith("_scale")) and array.size:
                found.setdefault((name, array.dtype.str), path)
    return found


def test_no_array_of_a_model_may_hold_nan_and_thresholds_alone_infinity(made, tmp_path):
    path, found = tmp_path / "m", numbers(made)
    expected = (
        "W V U D_values D_scale V_scale b R_factor input_points input_b tree_values tree_threshold thresholds counts "
        "calibration_labels scale_shift"
    )
    assert set(expected.split()) <= {name for name, _ in found}
    for (name, dtype), source in found.items():
        loaded = files.load(source, mmap=False)
        for wrong in (np.nan, np.inf, -np.inf):
            array = loaded.arrays[name].copy()
            array.reshape(-1)[-1] = np.float32(wrong).view(np.uint32) >> 16 if dtype == "<u2" else wrong
            files.save(path, {**loaded.arrays, name: array}, loaded.meta)
            if name in UNBOUNDED and not np.isnan(wrong):
                smoothlink.load(path)
                continue
            with pytest.raises(ModelFileError, match=f"{name}.*not finite"):
                smoothlink.load(path)


def test_nan_in_a_large_mapped_array_is_found_in_the_background(rng, tmp_path):
    X, Y = words(rng, n=60, d=70_000)
    fixed(rank=4).fit(X, Y).save(tmp_path / "m")
    loaded = files.load(tmp_path / "m", mmap=False)
    W = loaded.arrays["W"]
    assert W.nbytes >= files.VERIFIED_BYTES
    W[W.shape[0] // 2, 1] = np.nan
    files.save(tmp_path / "m", {**loaded.arrays, "W": W}, loaded.meta)
    with pytest.raises(ModelFileError, match=r"'W' holds numbers that are not finite"):
        smoothlink.load(tmp_path / "m", verify="now")
    mapped = smoothlink.load(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"'W' holds numbers that are not finite"):
        mapped.model_.verification.wait()
    with pytest.raises(ModelFileError, match=r"'W' holds numbers that are not finite"):
        mapped.predict_proba(X)


def test_a_small_file_cannot_ask_for_any_amount_of_memory(made, tmp_path):
    """The random features of a forged number of columns would take 96 GiB."""
    loaded = files.load(made / "trees-float32", mmap=False)
    forged = {"n_features_in": 1 << 31, "scale": "none"}
    draws = loaded.meta["draws"] | {"input_R": loaded.meta["draws"]["input_R"] | {"shape": [(1 << 31) + 10, 12]}}
    arrays = {name: array for name, array in loaded.arrays.items() if not name.startswith("scale_")}
    arrays |= dict.fromkeys(("scale_shift", "scale_factor"), np.zeros(0))
    for columns in range(1 << 31, (1 << 31) + 40):  # with and without what trees predict
        draws["input_R"]["shape"][0] = columns
        files.save(tmp_path / "m", arrays, loaded.meta | forged | {"draws": draws})
        with pytest.raises(ModelFileError, match="draws of input_R"):
            smoothlink.load(tmp_path / "m")


def test_sparse_weights_of_dense_rows_are_refused(made, tmp_path):
    loaded = files.load(made / "sparse-float32", mmap=False)
    files.save(tmp_path / "m", loaded.arrays, loaded.meta | {"dense": True})
    with pytest.raises(ModelFileError, match="sparse weights"):
        smoothlink.load(tmp_path / "m")


# Shards


@pytest.fixture
def sharded(rng, tmp_path):
    """A model file whose V is in two shards, and their names."""
    fitted, names = fixed().fit(*words(rng)), [f"m-V-0123abcd-{i}-of-00002.safetensors" for i in ("00001", "00002")]
    for name, part in zip(names, np.array_split(fitted.model_.V.columns(), 2, axis=1), strict=True):
        write_shard(part, str(tmp_path / name))
    fitted.model_ = replace(fitted.model_, V=open_shards(tmp_path, names))
    fitted.save(tmp_path / "m.safetensors")
    smoothlink.load(tmp_path / "m.safetensors")
    return tmp_path, names


def refused(folder, message):
    with pytest.raises(ModelFileError, match=message) as raised:
        smoothlink.load(folder / "m.safetensors")
    assert "m.safetensors" in str(raised.value)


def saved(V, path, **meta):
    files.save(path, {"V": V}, meta)


SHARDS = {
    "missing": (lambda path: os.unlink(path), "There is no file"),
    "a pipe": (lambda path: (os.unlink(path), os.mkfifo(path)), "a pipe or a device"),
    "a folder": (lambda path: (os.unlink(path), os.mkdir(path)), "is a folder"),
    "a link to itself": (lambda path: (os.unlink(path), os.symlink(path.name, path)), "Cannot read"),
    "empty": (lambda path: path.write_bytes(b""), "cut short"),
    "cut short": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "cut short"),
    "of more labels": (lambda path: saved(np.zeros((9, 99), np.float32), path), "do not fit together|another model"),
    "of other numbers": (lambda path: saved(files.load(path).arrays["V"] + 1, path), "another model"),
    "of no dimension": (lambda path: saved(np.float32(1), path), "do not fit together"),
    "of another type": (lambda path: saved(files.load(path).arrays["V"].astype("f8"), path), "do not fit together"),
    "of NaN": (lambda path: saved(files.load(path).arrays["V"] * np.nan, path), "not finite"),
    "without V": (lambda path: files.save(path, {"W": np.zeros(3)}, {}), "do not fit together"),
    "the model file": (lambda path: path.write_bytes((path.parent / "m.safetensors").read_bytes()), "not fit together"),
}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes")
@pytest.mark.parametrize("name", SHARDS)
@pytest.mark.parametrize("which", [0, 1])
def test_a_hostile_shard_is_refused(sharded, name, which):
    folder, names = sharded
    damage, message = SHARDS[name]
    damage(folder / names[which])
    refused(folder, message)


@pytest.mark.parametrize(
    "changes",
    [
        {"shards": []},
        {"shards": "m"},
        {"shards": [3, 4]},
        {"shards": ["../m-V-0123abcd-00001-of-00002.safetensors"] * 2},
        {"shards": ["/etc/passwd"]},
        {"shards": [""]},
        {"shards": [".."]},
        {"shards": ["a\0b"]},
        {"shard_labels": [1, 2]},
        {"shard_labels": None},
        {"shard_crc32": [0, 0]},
        {"shard_crc32": {}},
        {"shards": "swapped"},
        {"shards": "twice"},
    ],
    ids=json.dumps,
)
def test_a_model_file_with_another_list_of_shards_is_refused(sharded, changes):
    folder, names = sharded
    loaded = files.load(folder / "m.safetensors", mmap=False)
    lists = {"swapped": names[::-1], "twice": names[:1] * 2}
    changes = {key: lists.get(value, value) if isinstance(value, str) else value for key, value in changes.items()}
    files.save(folder / "m.safetensors", loaded.arrays, loaded.meta | changes)
    refused(folder, ".")


@pytest.mark.parametrize("names", [3, None, {"m": 1}, [3], ["../m-V-notes"], ["m-V-/../x"]], ids=json.dumps)
def test_a_model_is_saved_over_one_whose_list_of_shards_is_none_and_removes_nothing(rng, tmp_path, names):
    (tmp_path / "folder").mkdir()
    (tmp_path / "m-V-notes").touch()
    fitted, path = fixed().fit(*words(rng)), tmp_path / "folder" / "m"
    fitted.save(path)
    loaded = files.load(path, mmap=False)
    files.save(path, loaded.arrays, loaded.meta | {"shards": names})
    fitted.save(path)
    smoothlink.load(path)
    assert (tmp_path / "m-V-notes").exists()


def test_a_name_that_leads_out_of_the_folder_never_opens_a_file(sharded, monkeypatch):
    folder, _ = sharded
    loaded = files.load(folder / "m.safetensors", mmap=False)
    files.save(folder / "m.safetensors", loaded.arrays, loaded.meta | {"shards": ["../secret"]})
    (folder.parent / "secret").write_bytes((folder / "m.safetensors").read_bytes())
    opened = []
    monkeypatch.setattr(files, "open_regular", lambda path, real=files.open_regular: opened.append(path) or real(path))
    refused(folder, "no list of file names")
    assert opened == [folder / "m.safetensors"]


# Commands


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A folder with rows, and a model for them with a flipped bit in a large array."""
    folder = tmp_path_factory.mktemp("damaged")
    X, Y = words(np.random.default_rng(1), n=60, d=70_000)
    write(Data(sp.csr_array(X), sp.csr_array(Y)), str(folder / "rows.txt"))
    fixed(rank=4).fit(X, Y).save(folder / "m.safetensors")
    W = files.load(folder / "m.safetensors").arrays["W"]
    whole = bytearray((folder / "m.safetensors").read_bytes())
    whole[whole.index(W.tobytes()) + W.nbytes // 2] ^= 1
    (folder / "m.safetensors").write_bytes(whole)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "predict m.safetensors rows.txt -o out.jsonl",
        "predict m.safetensors rows.txt --output-folder out",
        "predict m.safetensors rows.txt",
        "evaluate m.safetensors rows.txt --bootstraps 0",
        "report m.safetensors rows.txt -o out.html",
        "compare m.safetensors m.safetensors rows.txt -o out.html",
        "explain m.safetensors rows.txt --row 0",
        "convert m.safetensors out.safetensors --dtype int8",
        "info m.safetensors --verify",
    ],
)
def test_no_command_ends_well_with_a_damaged_model(damaged, command, monkeypatch):
    """However short it is: the comparison in the background is waited for, as if it were slow."""
    compare = files.Verification._compare
    monkeypatch.setattr(files.Verification, "_compare", lambda *given: (time.sleep(0.1), compare(*given)))
    monkeypatch.chdir(damaged)
    ran = run(*command.split())
    assert ran.code == 1, ran.out
    assert "does not match its checksum" in ran.err
    written = [path for path in damaged.rglob("*") if path.is_file() and path.name not in ("m.safetensors", "rows.txt")]
    assert written == []
