"""Commands on a cluster: the model, predictions and metrics of one process, from files that the workers read."""

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from commands import FIXED, labelled, left, one_label_each, run, succeed

import smoothlink
from smoothlink import Gaussian
from smoothlink.cli.train_command import ONE_LABEL
from smoothlink.data.read import Data, write
from smoothlink.distributed import input_files
from smoothlink.errors import DataError


def rows(data, part):
    return data._replace(X=data.X[part], Y=data.Y[part])


def written(data, folder, name, cuts):
    """The data in one file, and in parts of it."""
    write(data, folder / f"{name}.txt")
    for i, (start, stop) in enumerate(zip([0, *cuts], [*cuts, data.X.shape[0]], strict=True)):
        write(rows(data, slice(start, stop)), folder / f"{name}-{i}.txt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, pytestconfig):
    """train.txt and test.txt, the same rows in train-*.txt and test-*.txt, and a model of the first."""
    folder = tmp_path_factory.mktemp("cluster")
    data = labelled(np.random.default_rng([2015, pytestconfig.getoption("--seed")]), 150)
    written(rows(data, slice(100)), folder, "train", [30, 60])
    written(rows(data, slice(100, 150)), folder, "test", [5, 30])
    succeed("train", folder / "train.txt", "-o", folder / "model.safetensors", *FIXED)
    return folder


def probabilities(path, X):
    model = smoothlink.load(path)
    if hasattr(model, "feature_names_in_"):
        del model.feature_names_in_
    return model.predict_proba(X)


def refused(*args):
    ran = run(*args)
    assert ran.code == 1
    assert "Traceback" not in ran.err
    return ran.err


# Training


def test_files_that_workers_read_give_the_model_of_one_process(folder, address, tmp_path):
    ran = succeed("train", folder / "train-*.txt", "-o", tmp_path / "m", "--cluster", address, *FIXED)
    assert "3 workers, partitioned by" in ran.err
    assert "Dashboard: http" in ran.err
    known, model = smoothlink.load(folder / "model.safetensors"), smoothlink.load(tmp_path / "m")
    assert model.label_names_ == known.label_names_
    assert list(model.feature_names_in_) == list(known.feature_names_in_)
    assert model.summary_["workers"] == 3
    X = smoothlink.read(folder / "test.txt").X
    expected = probabilities(folder / "model.safetensors", X)
    np.testing.assert_allclose(probabilities(tmp_path / "m", X), expected, atol=1e-4)


def test_processes_of_this_machine_are_a_cluster_too(folder, tmp_path):
    files = [folder / f"train-{i}.txt" for i in range(3)]
    ran = succeed("train", *files, "-o", tmp_path / "m", "--cluster", "local:1", "--json", *FIXED)
    assert (ran.json["workers"], ran.json["rows"]) == (1, 100)


def test_several_files_without_a_cluster_are_one(folder, tmp_path):
    succeed("train", folder / "train-*.txt", "-o", tmp_path / "m", *FIXED)
    found, known = (np.asarray(smoothlink.load(p).model_.V) for p in (tmp_path / "m", folder / "model.safetensors"))
    np.testing.assert_array_equal(found, known)
    message = refused("train", folder / "train-*.txt", "-o", tmp_path / "m", "--memory", "2G", *FIXED)
    assert "--memory plans the reading of one file, and there are 3" in message


def test_what_is_partitioned_can_be_forced(folder, address, tmp_path):
    args = ["train", folder / "train-*.txt", "-o", tmp_path / "m", *FIXED, "--cluster-plan", "rows"]
    assert "3 workers, partitioned by rows (as requested)" in succeed(*args, "--cluster", address).err
    assert run(*args).code == 2


def test_workers_write_the_decoder_in_parts_beside_the_model(folder, address, tmp_path):
    args = ["train", folder / "train-*.txt", "-o", tmp_path / "m.safetensors", *FIXED, "--shards"]
    assert run(*args).code == 2
    assert run(*args, "--cluster", address, "--dtype", "int8").code == 2
    succeed(*args, "--cluster", address, "--no-calibrate")
    first, *others, model = left(tmp_path)
    assert re.fullmatch(r"m-V-[0-9a-f]{8}-00001-of-00003\.safetensors", first)
    assert (others, model) == ([first.replace("-00001-", f"-0000{i}-") for i in (2, 3)], "m.safetensors")
    succeed("train", folder / "train-*.txt", "-o", tmp_path / "whole", *FIXED, "--no-calibrate")
    X = smoothlink.read(folder / "test.txt").X
    expected = probabilities(tmp_path / "whole", X)
    np.testing.assert_allclose(probabilities(tmp_path / "m.safetensors", X), expected, atol=1e-4)


def test_names_can_come_from_files_of_their_own(folder, address, tmp_path):
    (tmp_path / "topics").write_text("a\nb\nc\nd\ne\n")
    args = ["train", folder / "train-*.txt", "-o", tmp_path / "m", "--cluster", address, *FIXED]
    succeed(*args, "--label-names", tmp_path / "topics")
    assert smoothlink.load(tmp_path / "m").label_names_ == list("abcde")
    (tmp_path / "topics").write_text("a\nb\n")
    assert "There are 2 label names, and the data has 5 labels" in refused(*args, "--label-names", tmp_path / "topics")


def test_one_label_in_every_row_means_multiclass_and_is_said(rng, address, tmp_path):
    data = one_label_each(rng)
    written(data._replace(X=sp.csr_array(abs(data.X.toarray()))), tmp_path, "t", [20])
    settings = ["--rank", 2, "--ridge", 1, "--set", "kernel.features=20", "--loss", "squared", "--scale", "none"]
    args = ["train", tmp_path / "t-*.txt", "-o", tmp_path / "m", "--cluster", address, *settings]
    assert ONE_LABEL in succeed(*args).err
    assert smoothlink.load(tmp_path / "m").model_.multiclass


# Predicting


def test_each_input_has_its_own_output_whoever_predicts_it(folder, address, tmp_path):
    model = folder / "model.safetensors"
    args = ["predict", model, folder / "test-?.txt", "-k", 3, "--output-folder"]
    there, here = succeed(*args, tmp_path / "there", "--cluster", address), succeed(*args, tmp_path / "here")
    assert "3 workers. Dashboard: http" in there.err
    names = ["test-0.jsonl", "test-1.jsonl", "test-2.jsonl"]
    assert left(tmp_path / "there") == left(tmp_path / "here") == names
    for i, name in enumerate(names):
        expected = succeed("predict", model, folder / f"test-{i}.txt", "-k", 3).out
        assert (tmp_path / "here" / name).read_text() == expected
        predicted = [json.loads(line) for line in (tmp_path / "there" / name).read_text().splitlines()]
        assert [row["labels"][0]["label"] for row in predicted] == [
            json.loads(line)["labels"][0]["label"] for line in expected.splitlines()
        ]
        assert f"{name}: {len(predicted)} rows." in there.err
        assert f"{name}: {len(predicted)} rows." in here.err


def test_outputs_are_returned_in_the_order_of_their_inputs(workers, folder, tmp_path):
    notified = []
    with smoothlink.cluster(workers.client):
        found = smoothlink.predict_files(
            folder / "model.safetensors",
            [folder / "test-*.txt", folder / "train.txt"],
            tmp_path / "out",
            sets=True,
            output_format="tsv",
            notify=notified.append,
        )
    assert [os.path.basename(w.path) for w in found] == ["test-0.tsv", "test-1.tsv", "test-2.tsv", "train.tsv"]
    assert [w.rows for w in found] == [5, 25, 20, 100]
    assert sorted(notified) == sorted(found)
    assert all(os.path.exists(w.path) for w in found)


def test_inputs_may_be_in_a_store(folder, address, tmp_path):
    model, store = folder / "model.safetensors", f"file://{folder}/test-*.txt"
    succeed("predict", model, store, "--output-folder", tmp_path, "--cluster", address)
    assert left(tmp_path) == ["test-0.jsonl", "test-1.jsonl", "test-2.jsonl"]
    ran = succeed("evaluate", model, store, "--json", "--bootstraps", 0, "--cluster", address)
    assert ran.json["rows"] == 50


def test_what_is_said_of_an_input_comes_from_the_worker(folder, address, tmp_path):
    data = smoothlink.read(folder / "test.txt")
    more = sp.csr_array(np.eye(50, 3, dtype=np.float32))
    write(Data(sp.csr_array(sp.hstack([data.X, more])), data.Y), tmp_path / "wide.txt")
    args = ["predict", folder / "model.safetensors", tmp_path / "wide.txt", "--output-folder", tmp_path / "out"]
    ran = succeed(*args, "--cluster", address)
    assert "has 3 features unknown to the model, with 3 values: ignored." in ran.err
    assert "3 features unknown to the model" in refused(*args, "--cluster", address, "--strict", "--force")


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_bad_file_is_named_and_leaves_nothing_half_written(folder, address, tmp_path, where):
    (tmp_path / "bad.txt").write_text("1 12 5\n0 0:x\n")
    extra = ["--cluster", address] if where == "there" else []
    args = ["predict", folder / "model.safetensors", folder / "test-0.txt", tmp_path / "bad.txt"]
    message = refused(*args, "--output-folder", tmp_path / "out", *extra)
    assert f"{tmp_path / 'bad.txt'}, line 2" in message
    for _ in range(100):  # a worker that has begun the other file ends it
        if left(tmp_path / "out") in ([], ["test-0.jsonl"]):
            break
        time.sleep(0.1)
    assert left(tmp_path / "out") in ([], ["test-0.jsonl"])


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([], "3 inputs: name a folder"),
        (["--output", "x", "--output-folder", "y"], "exclude each other"),
    ],
)
def test_several_inputs_go_to_a_folder(folder, extra, message):
    ran = run("predict", folder / "model.safetensors", folder / "test-*.txt", *extra)
    assert ran.code == 2
    assert message in " ".join(ran.err.replace("│", " ").split())


def test_outputs_that_cannot_be_are_refused_before_work_starts(folder, tmp_path):
    model, text = folder / "model.safetensors", (folder / "test.txt").read_text()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test.txt").write_text(text)
    twins = [tmp_path / "a" / "test.txt", tmp_path / "b" / "test.txt"]
    assert "would both be written to" in refused("predict", model, *twins, "--output-folder", tmp_path / "out")
    args = ["predict", model, twins[0], "--output-format", "xmc", "--output-folder"]
    assert "over what is read" in refused(*args, tmp_path / "a")
    assert "Name a folder of yours" in refused(*args, twins[1])
    assert not (tmp_path / "out").exists()


# Measuring


def metrics(ran):
    return {k: v["value"] if isinstance(v, dict) else v for k, v in ran.json.items()}


@pytest.mark.parametrize("where", ["here", "there"])
def test_metrics_are_those_of_all_rows_together(folder, address, where):
    """Among them Algorithm 4, whose cuts depend on every row, and intervals, which draw from all rows."""
    command = ["evaluate", folder / "model.safetensors", "--json", "--bootstraps", 50]
    extra = ["--cluster", address] if where == "there" else []
    known, found = succeed(*command, folder / "test.txt"), succeed(*command, folder / "test-*.txt", *extra)
    assert metrics(found) == pytest.approx(metrics(known), rel=1e-5)
    assert found.json["macro_f1_alg4"] == pytest.approx(known.json["macro_f1_alg4"], rel=1e-5)
    assert found.json["rows"] == 50


def test_labels_unknown_to_the_model_are_counted_once_over_all_files(folder, address, tmp_path):
    data = smoothlink.read(folder / "test.txt")
    for i, new in enumerate((["x", "y"], ["y", "z", "x"])):
        part = rows(data, slice(25 * i, 25 * i + 25))
        more = sp.csr_array(np.eye(25, len(new), dtype=np.float32))
        Y = sp.csr_array(sp.hstack([part.Y, more]))
        write(Data(part.X, Y, [*data.label_names, *new], data.feature_names), tmp_path / f"t{i}.npz")
    args = ["evaluate", folder / "model.safetensors", tmp_path / "t*.npz", "--json", "--bootstraps", 0]
    for ran in (succeed(*args), succeed(*args, "--cluster", address)):
        assert (ran.json["unknown_labels"], ran.json["unknown_pairs"]) == (3, 5)
        assert "3 labels unknown to the model, in 5 pairs" in ran.err


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_a_multiclass_model_is_measured_on_a_cluster_as_in_one_process(rng, workers, tmp_path, loss):
    written(one_label_each(rng, 90), tmp_path, "t", [20, 50])
    settings = ["--rank", 2, "--ridge", 1, "--set", "kernel.features=20", "--loss", loss]
    settings += [] if loss == "squared" else ["--set", "loss.passes=2"]
    succeed("train", tmp_path / "t.txt", "-o", tmp_path / "m", *settings)
    for rank_by in ("probability", "psp"):
        known = smoothlink.evaluate_files(tmp_path / "m", tmp_path / "t.txt", bootstraps=0, rank_by=rank_by)
        with smoothlink.cluster(workers.client):
            found = smoothlink.evaluate_files(tmp_path / "m", tmp_path / "t-*.txt", bootstraps=0, rank_by=rank_by)
        for key, metric in known.metrics.items():
            assert found.metrics[key].value == pytest.approx(metric.value, rel=1e-3), key


# A client that is killed


def client(folder, address, tmp_path, **options):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(smoothlink.__file__)), os.environ.get("PYTHONPATH", "")])
    settings = [word if word != "squared" else "logistic" for word in FIXED]
    args = ["train", folder / "train-*.txt", "-o", tmp_path / "m", "--cluster", address, "--verbose", 1]
    args += [*settings, "--set", "loss.passes=3", "--checkpoint", tmp_path / "state"]
    command = [sys.executable, "-m", "smoothlink", *map(str, args)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, text=True, **options)


@pytest.mark.slow
def test_a_fit_whose_client_is_killed_goes_on_from_its_checkpoint(folder, workers, address, tmp_path):
    with client(folder, address, tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        for line in process.stderr:
            if line.strip() == "smoothlink: fit":
                process.kill()
                break
        assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "m").exists()
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    kept = (tmp_path / "state" / "embed.npz").stat().st_mtime_ns
    settings = [word if word != "squared" else "logistic" for word in FIXED]
    args = ["train", folder / "train-*.txt", *settings, "--set", "loss.passes=3"]
    state = ["--checkpoint", tmp_path / "state", "--cluster", address]
    message = refused(*args, "-o", tmp_path / "m", *state, "--ridge", 2)
    assert "is of another fit: ridge was 1.0 and is 2.0" in message
    succeed(*args, "-o", tmp_path / "m", *state)
    assert (tmp_path / "state" / "embed.npz").stat().st_mtime_ns == kept
    succeed(*args, "-o", tmp_path / "undisturbed", "--cluster", address)
    succeed(*args, "-o", tmp_path / "fewer", "--checkpoint", tmp_path / "copy", "--cluster", "local:1")
    known = np.asarray(smoothlink.load(tmp_path / "undisturbed").model_.V)
    for name, tolerance in (("m", 1e-6), ("fewer", 1e-3)):  # other workers add in another order
        np.testing.assert_allclose(smoothlink.load(tmp_path / name).model_.V.columns(), known, atol=tolerance)


# Bad input, refused before work starts


@contextlib.contextmanager
def blind(found, path):
    """One worker does not see a file."""

    def hide(name):
        input_files.real, input_files.missing_paths = (
            input_files.missing_paths,
            lambda paths: [p for p in paths if p == name],
        )

    def restore():
        input_files.missing_paths = input_files.real

    first = found.workers[0]
    found.client.run(hide, str(path), workers=[first])
    try:
        yield first
    finally:
        found.client.run(restore, workers=[first])


def commands(folder, tmp_path):
    model, out = folder / "model.safetensors", tmp_path / "out"
    return {
        "train": ["train", folder / "train-*.txt", "-o", tmp_path / "m", *FIXED],
        "predict": ["predict", model, folder / "train-*.txt", "--output-folder", out],
        "evaluate": ["evaluate", model, folder / "train-*.txt"],
    }


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "predict", "evaluate"])
def test_an_address_without_a_scheduler_is_named(folder, tmp_path, command):
    message = refused(*commands(folder, tmp_path)[command], "--cluster", "tcp://127.0.0.1:9")
    assert "No scheduler responds at tcp://127.0.0.1:9" in message
    assert "dask scheduler" in message
    assert left(tmp_path) == []


@pytest.mark.parametrize("command", ["train", "predict", "evaluate"])
def test_a_file_that_only_some_workers_see_is_named_with_one_that_does_not(folder, workers, address, tmp_path, command):
    with blind(workers, folder / "train-1.txt") as worker:
        message = refused(*commands(folder, tmp_path)[command], "--cluster", address)
    assert f"The worker {worker} does not see {folder / 'train-1.txt'}.\nPut it where all workers" in message
    assert left(tmp_path) == []


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_model_that_only_some_workers_see_is_named(folder, workers, address, tmp_path, command):
    with blind(workers, folder / "model.safetensors") as worker:
        message = refused(*commands(folder, tmp_path)[command], "--cluster", address)
    assert f"The worker {worker} does not see {folder / 'model.safetensors'}." in message
    assert left(tmp_path) == []


def test_a_part_of_a_model_that_only_some_workers_see_is_named(folder, workers, address, tmp_path):
    settings = {"rank": 4, "ridge": 1.0, "kernel": Gaussian(2.0, 40), "final_ridge": 0.1, "loss": "squared"}
    with smoothlink.cluster(workers.client, shards=tmp_path / "shards" / "a.safetensors"):
        files = smoothlink.Files.of(folder / "train-*.txt")
        model = smoothlink.SmoothLinkClassifier(**settings, calibrate=False).fit(files)
    model.save(tmp_path / "sharded")
    args = ["evaluate", tmp_path / "sharded", folder / "test-*.txt", "--json", "--bootstraps", 0]
    assert metrics(succeed(*args, "--cluster", address)) == pytest.approx(metrics(succeed(*args)), rel=1e-5)
    part = next(tmp_path.glob("sharded-V-*-00002-of-*"))
    with blind(workers, part) as worker:
        assert f"The worker {worker} does not see {part}." in refused(*args, "--cluster", address)


def test_a_folder_that_only_some_workers_see_is_named(folder, workers, address, tmp_path):
    with blind(workers, tmp_path / "out") as worker:
        message = refused(*commands(folder, tmp_path)["predict"], "--cluster", address)
    assert f"The worker {worker} does not see {tmp_path / 'out'}." in message


def test_workers_with_another_version_are_named_with_both(folder, workers, address, tmp_path):
    ours = importlib.metadata.version("smoothlink")

    def change():
        importlib.metadata.real, importlib.metadata.version = importlib.metadata.version, lambda name: "0.0.1"

    def restore():
        importlib.metadata.version = importlib.metadata.real

    workers.client.run(change)
    try:
        message = refused(*commands(folder, tmp_path)["train"], "--cluster", address)
    finally:
        workers.client.run(restore)
    assert f"has smoothlink 0.0.1, and the client has {ours}.\nInstall the same version on both." in message
    assert left(tmp_path) == []


def test_without_dask_that_is_said(folder, tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr("smoothlink.distributed.importlib.import_module", absent)
    message = refused(*commands(folder, tmp_path)["train"], "--cluster", "local:2")
    assert "Dask is not installed.\npip install 'smoothlink[cluster]'" in message


@pytest.mark.parametrize("where", ["here", "there"])
def test_files_with_other_headers_are_refused_by_what_differs(folder, address, tmp_path, where):
    data = smoothlink.read(folder / "train.txt")
    extra = ["--cluster", address] if where == "there" else []
    write(Data(data.X, data.Y), tmp_path / "a.txt")
    write(Data(data.X[:, :9], data.Y), tmp_path / "b.txt")
    args = ["train", "-o", tmp_path / "m", *FIXED, *extra]
    message = refused(*args, tmp_path / "a.txt", tmp_path / "b.txt")
    assert "a.txt has 12 features and " in message
    assert "b.txt has 9; the files of one fit must agree" in message
    for name, labels in (("c", data.label_names), ("d", data.label_names[::-1])):
        write(data._replace(label_names=labels), tmp_path / f"{name}.npz")
    message = refused(*args, tmp_path / "c.npz", tmp_path / "d.npz")
    assert "d.npz have different label names; the files of one fit must agree" in message
    assert "m" not in left(tmp_path)


NOTHING = {
    "no rows": ("0 2 2\n", "has no rows"),
    "no labels": ("2 2 2\n 0:1\n 1:1\n", "nothing to learn"),
    "a malformed number": ("1 2 2\n0 0:x\n", "line 2"),
}


@pytest.mark.parametrize(("content", "message"), NOTHING.values(), ids=NOTHING)
def test_files_that_teach_nothing_are_refused(address, tmp_path, content, message):
    (tmp_path / "t.txt").write_text(content)
    args = ["train", tmp_path / "t.txt", "-o", tmp_path / "m", "--scale", "unit"]
    assert message in refused(*args, "--cluster", address)
    assert left(tmp_path) == ["t.txt"]


def test_options_that_mean_one_file_or_no_cluster_are_refused(folder, address, tmp_path):
    train, predict, evaluate = (commands(folder, tmp_path)[name] for name in ("train", "predict", "evaluate"))
    for args in (train, predict, evaluate):
        assert "holds the labels of one file, and there are 3" in refused(*args, "--labels-file", tmp_path / "y")
    assert "class_weight is 'balanced'" in refused(*train, "--cluster", address, "--class-weight", "balanced")
    assert "No file fits" in refused("train", tmp_path / "*.txt", "-o", tmp_path / "m")


@pytest.mark.torch
def test_a_device_is_refused_on_a_cluster(folder, address, tmp_path):
    for args in (commands(folder, tmp_path)[name] for name in ("predict", "evaluate")):
        message = refused(*args, "--cluster", address, "--device", "torch")
        assert "device is 'torch', which a cluster cannot do" in message


def test_no_data_file_is_refused(folder, tmp_path):
    with pytest.raises(DataError, match="No data file was named"):
        smoothlink.predict_files(folder / "model.safetensors", [], tmp_path)


def test_a_model_is_loaded_once_by_a_command(folder, tmp_path, monkeypatch):
    shutil.copy(folder / "model.safetensors", tmp_path / "m.safetensors")
    paths, load = [], smoothlink.load
    monkeypatch.setattr("smoothlink.file_prediction.load", lambda path: paths.append(path) or load(path))
    succeed("evaluate", tmp_path / "m.safetensors", folder / "test.txt", "--bootstraps", 0)
    succeed("predict", tmp_path / "m.safetensors", folder / "test.txt", "--output-folder", tmp_path / "out")
    assert paths == [str(tmp_path / "m.safetensors")]
