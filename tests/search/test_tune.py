"""`tune`: separate bests from one run, shared embeddings, a study that survives a kill, failures with reasons."""

import copy
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import optuna
import psutil
import pytest
import scipy.sparse as sp
from commands import prepared, run, succeed
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._storage import JournalOperation
from small import classes, words

from smoothlink import SmoothLinkClassifier
from smoothlink.fitting.memory import VALIDATED_LABELS
from smoothlink.metrics.names import shown_keys
from smoothlink.search import Space, tune
from smoothlink.search.processes import SearchRequest, run_worker, save_array
from smoothlink.search.study import open_study
from smoothlink.search.trials import TrialRunner

QUICK = Space(n_features=(20, 60), passes=3)
METRICS = ("hamming", "macro_f1_alg4", "p@1")


def problem(rng):
    X, Y = words(rng, n=80)
    return sp.csr_array(X, dtype=np.float32), sp.csr_array(Y, dtype=np.float32)


def searched(rng, **changes):
    X, Y = problem(copy.deepcopy(rng))  # the same data at every call of a test
    return tune(X, Y, **{"metrics": METRICS, "trials": 2, "space": QUICK} | changes)


def test_every_metric_has_its_own_best_settings_which_the_classifier_takes(rng):
    X, Y = problem(rng)
    result = tune(X, Y, metrics=METRICS, trials=6, space=QUICK)
    assert set(result.best) == set(METRICS)
    for best in result.best.values():
        fitted = SmoothLinkClassifier(**best.parameters).fit(X, Y)
        assert fitted.summary_["loss"] == best.params["loss"]
        assert 0 <= best.value <= 1
    assert result.finished + result.pruned == 6


def test_a_device_finds_the_settings_that_the_host_finds(as_on_a_card, rng):
    host, device = (searched(rng, device=name) for name in ("cpu", "torch"))
    assert host.finished == device.finished == 2
    for metric in METRICS:
        assert device.best[metric].value == pytest.approx(host.best[metric].value, abs=0.03)
    with pytest.raises(ValueError, match="device is 'gpu'; possible are 'cpu'"):
        searched(rng, device="gpu")


def test_the_same_seed_finds_the_same_settings_and_more_trials_none_worse(rng):
    X, Y = problem(rng)
    one, two, more = (tune(X, Y, metrics=METRICS, trials=n, space=QUICK, seed=5) for n in (3, 3, 6))
    assert one == two
    assert more.best["hamming"].value <= one.best["hamming"].value
    assert more.best["p@1"].value >= one.best["p@1"].value


def test_trials_with_one_ridge_share_its_embedding(rng):
    X, Y = problem(rng)
    space = Space(n_features=(20, 40), ridge=(1.0, 1.0), loss=("squared",), final_ridge=(1.0, 1.0))
    runner = TrialRunner.of(X, Y, ("p@1",), space, 0, False)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0), direction="maximize")
    embedded = []
    for _ in range(3):
        runner.run(study.ask())
        embedded.append(runner.plain.folds[0].embedded[1.0])
    assert embedded[0] is embedded[1] is embedded[2]


def test_multiclass_data_are_searched_with_softmax(rng):
    X, y = classes(rng)
    Y = sp.csr_array(np.eye(3, dtype=np.float32)[y])
    result = tune(
        X.astype(np.float32), Y, metrics=("error",), trials=4, space=Space(n_features=(20, 40), loss=("sgd",))
    )
    assert result.best["error"].params["loss"] == "softmax"
    assert result.best["error"].value < 0.5


def test_tpe_is_a_sampler_too_and_others_are_refused(rng):
    assert searched(rng, sampler="tpe").best
    with pytest.raises(ValueError, match="random"):
        searched(rng, sampler="grid")


def test_a_trial_that_fails_is_recorded_with_its_reason_and_the_search_goes_on(rng):
    """A momentum far above 1 makes the SGD diverge; the squared loss has none."""
    X, Y = problem(rng)
    wild = Space(n_features=(20, 40), momentum=(50.0, 60.0), passes=30)
    result = tune(X, Y, metrics=METRICS, trials=6, space=wild)
    assert result.failed
    assert all("the SGD diverged" in reason for reason in result.failed.values())
    assert result.finished + result.pruned + len(result.failed) == 6
    assert result.best["p@1"].params["loss"] == "squared"


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_error_of_a_trial_that_is_not_numerical_ends_the_search(rng, tmp_path, capfd, jobs):
    wrong = replace(QUICK, kernel=("round",))
    with pytest.raises(RuntimeError, match="ended with an error") as raised:
        searched(rng, space=wrong, trials=100, jobs=jobs, study=tmp_path / "study")
    assert "'round'" in str(raised.value.__cause__) + capfd.readouterr().err
    assert 1 <= started(tmp_path / "study") <= jobs


def test_a_study_goes_on_where_it_ended(rng, tmp_path):
    journal = tmp_path / "study"
    first = searched(rng, study=journal)
    with pytest.raises(ValueError, match="--resume"):
        searched(rng, study=journal)
    more = searched(rng, study=journal, resume=True, trials=4)
    assert first.finished + first.pruned == 2
    assert more.finished + more.pruned == 4
    assert more.best["hamming"].value <= first.best["hamming"].value


def test_a_disk_that_fills_up_as_a_trial_ends_is_what_the_error_says(rng, tmp_path, monkeypatch):
    append = JournalFileBackend.append_logs

    def full_at_its_end(self, logs):
        if any(log["op_code"] == JournalOperation.SET_TRIAL_STATE_VALUES and log["values"] for log in logs):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, logs)

    monkeypatch.setattr(JournalFileBackend, "append_logs", full_at_its_end)
    with pytest.raises(OSError, match="No space left"):
        searched(rng, study=tmp_path / "study", trials=2)


def test_a_failed_assertion_of_a_trial_is_not_taken_for_a_disk(rng, monkeypatch):
    def broken(self, trial):
        raise AssertionError("of ours")

    monkeypatch.setattr(TrialRunner, "run", broken)
    with pytest.raises(AssertionError, match="of ours"):
        searched(rng, trials=1)


@pytest.mark.slow
def test_processes_divide_the_trials_of_one_study_and_draw_different_settings(rng, tmp_path):
    X, Y = problem(rng)
    notified = []
    found = tune(
        X.toarray(),
        Y,
        metrics=METRICS,
        space=QUICK,
        study=tmp_path / "study",
        jobs=2,
        trials=3,
        notify=lambda *progress: notified.append(progress),
    )
    assert found.finished + found.pruned == 3
    assert notified[-1] == (3, found.best)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "study")))
    drawn = [t.params["bandwidth"] for t in optuna.load_study(study_name="smoothlink", storage=storage).trials]
    assert len(drawn) == len(set(drawn)) == 3


def test_the_value_of_a_trial_is_the_mean_over_its_holdouts(rng):
    X, Y = problem(rng)
    space = Space(n_features=(20, 20), loss=("squared",), final_ridge=(1.0, 1.0))
    runner = TrialRunner.of(X, Y, ("hamming",), space, 0, False, 3)
    drawn = {"ridge": 1.0, "rank": 3, "kernel": "gaussian", "bandwidth": 2.0, "n_features": 20}
    settings = runner.settings(runner.plain, drawn | {"label_smoothing": 1.0, "loss": "squared"})
    links = runner.links(runner.plain, settings)
    Vs = [next(runner.ridges(link, settings, drawn))[0] for link in links]
    uncalibrated = next(runner.validate(runner.plain, links, Vs, "squared"))
    wrong = [
        ((link.features(link.held) @ V > 0.5) != fold.held_labels.toarray()).mean()
        for link, V, fold in zip(links, Vs, runner.plain.folds, strict=True)
    ]
    assert len(wrong) == 3
    assert uncalibrated == (False, {"hamming": pytest.approx(np.mean(wrong), abs=1e-12)})
    held = np.concatenate([fold.held for fold in runner.plain.folds])
    assert len(held) == len(set(held))


def test_dense_tables_are_tried_through_kernels_and_text_is_not(rng):
    X, y = classes(rng)
    Y = sp.csr_array(np.eye(3, dtype=np.float32)[y])
    space = Space(n_features=(20, 40), loss=("squared",), input_kernel=("gaussian",), input_bandwidth=(0.7, 1.4))
    table = tune(X.astype(np.float32), Y, metrics=("error",), trials=3, space=space).best["error"]
    width = table.params["input_kernel.bandwidth"]
    assert table.params["input_kernel"] == "gaussian"
    assert 0.7 < width < 1.5
    assert SmoothLinkClassifier(**table.parameters).fit(X, y).summary_["input_bandwidth"] == width
    assert searched(rng, trials=1).best["p@1"].params["input_kernel"] is None


def test_dense_tables_are_tried_with_trees_and_text_is_not(rng):
    X, y = classes(rng, n=120)
    space = Space(n_features=(20, 40), loss=("squared",), trees=(True,), input_kernel=(None,))
    Y = sp.csr_array(np.eye(3, dtype=np.float32)[y])
    table = tune(X.astype(np.float32), Y, metrics=("error",), trials=2, space=space).best["error"]
    assert table.params["trees"] is True
    assert SmoothLinkClassifier(**table.parameters).fit(X, y).summary_["trees"] > 0
    assert searched(rng, trials=1).best["p@1"].params["trees"] is False


def test_nothing_can_be_resumed_without_a_study(rng):
    with pytest.raises(ValueError, match="--study"):
        searched(rng, resume=True)


def test_a_study_of_another_search_is_not_resumed(rng, tmp_path):
    X, Y = problem(rng)
    request = {"metrics": METRICS, "trials": 1, "space": QUICK, "study": tmp_path / "study"}
    tune(X, Y, **request)
    before = (tmp_path / "study").read_bytes()
    for change, message in (
        ({"metrics": ("p@1",)}, "metrics was .* and is ..p@1"),
        ({"space": Space(n_features=(20, 60), passes=4)}, "space of passes was 3 and is 4"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"holdouts": 2}, "holdouts was 1 and is 2"),
    ):
        with pytest.raises(ValueError, match=message):
            tune(X, Y, resume=True, **{**request, **change})
    with pytest.raises(ValueError, match="checksum of X was"):
        tune(X * 2, Y, resume=True, **request)
    with pytest.raises(ValueError, match="rows was 80 and is 70"):
        tune(X[:70], Y[:70], resume=True, **request)
    assert (tmp_path / "study").read_bytes().startswith(before)
    assert tune(X, Y, resume=True, **request | {"sampler": "tpe"}).finished == 1


def test_a_study_that_does_not_say_what_it_searched_is_resumed_with_a_warning(rng, tmp_path):
    X, Y = problem(rng)
    request = {"metrics": METRICS, "trials": 1, "space": QUICK, "study": tmp_path / "study"}
    tune(X, Y, **request)
    lines = (tmp_path / "study").read_text().splitlines(keepends=True)
    (tmp_path / "study").write_text("".join(line for line in lines if "checksum of X" not in line))
    with pytest.warns(UserWarning, match="earlier version"):
        tune(X, Y, resume=True, **request)
    with pytest.raises(ValueError, match="seed was 0"):
        tune(X, Y, resume=True, **request | {"seed": 1})


@pytest.mark.parametrize("torn", [b'{"op_code":6,"wor', b'{"op_code":6,' + b" " * 200_000])
def test_a_study_whose_last_line_was_cut_short_goes_on(rng, tmp_path, torn):
    journal = tmp_path / "study"
    searched(rng, study=journal)
    whole = journal.read_bytes()
    journal.write_bytes(whole + torn)
    for trials in (3, 4):
        found = searched(rng, study=journal, resume=True, trials=trials)
        assert found.finished + found.pruned == trials
    assert journal.read_bytes().startswith(whole)
    assert all(json.loads(line) for line in journal.read_bytes().splitlines())


@pytest.mark.skipif(sys.platform == "win32", reason="the lock of a killed process is waited for")
def test_a_lock_that_a_killed_search_left_is_not_waited_for(rng, tmp_path):
    journal = tmp_path / "study"
    searched(rng, study=journal, trials=1)
    kill_at_append = (
        "import os, signal, sys; from smoothlink.search.journal import JournalLock; "
        "JournalLock(sys.argv[1]).acquire(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", kill_at_append, str(journal)]).returncode == -signal.SIGKILL
    (tmp_path / "study.lock").touch()  # as earlier versions left it
    began = time.monotonic()
    searched(rng, study=journal, resume=True, trials=2)
    assert time.monotonic() - began < 20


def test_a_file_that_is_no_study_is_left_as_it_is(rng, tmp_path):
    (tmp_path / "notes").write_text("mine\nand mine")
    with pytest.raises(ValueError, match="not a study"):
        searched(rng, study=tmp_path / "notes", resume=True)
    assert (tmp_path / "notes").read_text() == "mine\nand mine"


@pytest.mark.slow
def test_a_killed_search_loses_no_finished_trial(tmp_path):
    files = prepared(tmp_path, 0)
    journal = tmp_path / "study"
    command = [sys.executable, "-m", "smoothlink", "tune", str(files.train), "-o", str(tmp_path / "tuned.json")]
    process = subprocess.Popen([*command, "--trials", "500", "--study", str(journal)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while finished(journal) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = finished(journal)
    assert before >= 2
    ran = succeed(
        "tune", files.train, "-o", tmp_path / "t.json", "--study", journal, "--resume", "--trials", before, "--json"
    )
    assert ran.json["finished"] + ran.json["pruned"] >= before - 1  # the trial under way was none yet


def finished(journal):
    """Trials that ended, by the journal's own lines (operation 6 sets a state, 1 is complete)."""
    if not journal.exists():
        return 0
    return sum('"op_code":6,' in line and '"state":1' in line for line in journal.read_text().splitlines())


def test_the_command_writes_settings_that_train_takes(tmp_path):
    files = prepared(tmp_path, 0)
    tuned = tmp_path / "tuned.json"
    shown = succeed("tune", files.train, "--metric", "hamming", "--metric", "p@1", "--trials", 1, "-o", tuned)
    assert "hamming" in shown.out
    assert "--params-for hamming" in shown.out
    assert set(json.loads(tuned.read_text())["best"]) == {"hamming", "p@1"}
    model = tmp_path / "m.safetensors"
    trained = succeed("train", files.train, "--params", tuned, "--params-for", "p@1", "-o", model, "--json").json
    assert trained["ridge"] == json.loads(tuned.read_text())["best"]["p@1"]["params"]["ridge"]


def test_what_cannot_be_searched_is_refused_with_what_can(tmp_path):
    files = prepared(tmp_path, 0)
    for args, code, message in (
        (["--metric", "p@2"], 2, "p@2"),
        (["--metric", "accuracy"], 2, "macro_f1_alg4"),
        (["--sampler", "grid"], 1, "random"),
    ):
        ran = run("tune", files.train, "-o", tmp_path / "t.json", "--trials", 1, *args)
        assert ran.code == code
        assert message in ran.err
    assert not (tmp_path / "t.json").exists()
    with pytest.raises(ValueError, match=r"'p@2' is not a metric; possible are p@1, p@3"):
        tune(sp.csr_array((3, 2)), sp.csr_array((3, 2)), metrics=("p@2",))


def test_every_metric_that_is_shown_can_be_tuned_for(rng):
    X, y = classes(rng)
    Y = sp.csr_array(np.eye(6, dtype=np.float32)[y])
    space = Space(n_features=(20, 20), loss=("squared",), final_ridge=(1.0, 1.0))
    result = tune(X.astype(np.float32), Y, metrics=shown_keys(), trials=1, space=space)
    assert list(result.best) == shown_keys()


def test_settings_of_another_file_or_metric_are_refused(tmp_path):
    files = prepared(tmp_path, 0)
    bad = tmp_path / "bad.json"
    bad.write_text("[]")
    assert run("train", files.train, "--params", bad, "-o", tmp_path / "m").code == 1
    bad.write_text(json.dumps({"best": {"p@1": {"params": {"ridge": 1.0}}, "hamming": {"params": {}}}}))
    assert run("train", files.train, "--params", bad, "-o", tmp_path / "m").code == 2
    bad.write_text(json.dumps({"best": {"p@1": {"params": {"rigde": 1.0}}}}))
    assert "rigde" in run("train", files.train, "--params", bad, "-o", tmp_path / "m").err


def test_trials_hold_copies_out_together(rng):
    X, Y = sp.csr_array(rng.poisson(0.5, (60, 12)), dtype=np.float32), sp.csr_array(rng.random((60, 3)) < 0.4)
    X, Y = (sp.vstack([A, A], format="csr") for A in (X, Y.astype(np.float32)))
    runner = TrialRunner.of(X, Y, ("p@1",), Space(), 0, False)
    (fold,) = runner.plain.folds
    held = fold.train.w == 0
    np.testing.assert_array_equal(held[:60], held[60:])
    assert held.any()


def test_a_process_of_a_search_takes_no_more_threads_than_numba_allows(rng, tmp_path):
    X, Y = problem(rng)
    for name, matrix in (("X", X), ("Y", Y)):
        save_array(tmp_path / name, matrix)
    request = SearchRequest(("hamming",), QUICK, 0, multiclass=False, holdouts=1, sampler="random")
    run_worker(tmp_path, request, tmp_path / "study", trials=1, number=0, threads=1000)
    assert len(open_study(tmp_path / "study", "random", 0, "hamming").trials) == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="temporary folders in use cannot be removed there")
def test_the_processes_of_a_killed_search_end_and_leave_no_copy_of_the_data(tmp_path):
    files = prepared(tmp_path, 0)
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "smoothlink", "tune", str(files.train), "-o", str(tmp_path / "tuned.json")]
    process = subprocess.Popen(
        [*command, "--trials", "5000", "--jobs", "2", "--study", str(tmp_path / "study")],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )
    until = time.monotonic() + 60
    while started(tmp_path / "study") < 1 and time.monotonic() < until:
        time.sleep(0.1)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert len(workers) >= 2
    assert not psutil.wait_procs(workers, timeout=20)[1]
    assert not list((tmp_path / "tmp").glob("smoothlink-*"))


def started(journal):
    """Returns how many trials have begun."""
    return journal.read_text().count('"op_code":4,') if journal.exists() else 0


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_search_fits_every_label_however_many_there_are(rng, loss):
    n, c = 60, VALIDATED_LABELS + 20
    X = sp.csr_array(rng.poisson(0.3, (n, 30)), dtype=np.float32)
    Y = sp.csr_array((np.ones(3 * n, np.float32), rng.integers(0, c, 3 * n), np.arange(0, 3 * n + 1, 3)), (n, c))
    Y.sum_duplicates()
    Y.data[:] = 1
    result = tune(X, Y, metrics=("p@1",), trials=2, space=replace(QUICK, loss=(loss,)))
    assert not result.failed
    assert result.best["p@1"].params["loss"] == loss


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("Unable to allocate 3 TiB"), r"Memory ran out\. No trial succeeded.*3 TiB\.\nEnd other programs"),
        (FloatingPointError("overflow"), r"No trial succeeded\. The first reason: FloatingPointError: overflow\."),
    ],
)
def test_a_search_without_a_trial_that_succeeded_says_why(tmp_path, monkeypatch, error, said):
    files = prepared(tmp_path, 0)

    def fails(*given):
        raise error

    monkeypatch.setattr(TrialRunner, "run", fails)
    ran = run("tune", files.train, "-o", tmp_path / "t.json", "--trials", 1)
    assert ran.code == 1
    assert re.search(said, ran.err)
    assert not (tmp_path / "t.json").exists()
