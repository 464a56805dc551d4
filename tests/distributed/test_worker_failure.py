"""Workers that die do not change a model; an error that ends a fit says what to do."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from distributed import Client, KilledWorker
from small import fixed, words

import smoothlink
from smoothlink import Gaussian, Logistic
from smoothlink.distributed.client import connect
from smoothlink.distributed.worker_failure import RETRIES, explain_errors, retry_lost_arrays
from smoothlink.errors import ClusterError
from smoothlink.solve import ConjugateGradient

RUNNING = SimpleNamespace(status="running")


def test_arrays_that_are_lost_are_sent_again():
    calls = []

    def send_and_compute():
        calls.append(1)
        if len(calls) <= RETRIES:
            raise asyncio.CancelledError
        return "result"

    assert retry_lost_arrays(RUNNING, send_and_compute) == "result"
    assert len(calls) == RETRIES + 1


@pytest.mark.parametrize(
    ("client", "error", "words"),
    [
        (RUNNING, KilledWorker("embed-sum", None, []), "Workers died again and again at embed-sum: .*memory"),
        (RUNNING, OSError("gone"), r"The scheduler of the cluster is lost \(OSError: gone\)"),
        (SimpleNamespace(status="closed"), None, r"The scheduler of the cluster is lost \(its client is closed\)"),
    ],
)
def test_errors_of_the_cluster_say_what_to_do(client, error, words):
    with pytest.raises(ClusterError, match=words), explain_errors(client):
        raise error


class Killer:
    """Kills a worker, with its process, some time after a step of a fit began; may do so again."""

    def __init__(self, found, step, delays):
        self.found, self.step, self.delays, self.died, self.threads = found, step, list(delays), [], []

    def __call__(self, step, share, words):
        if step == self.step and self.delays:
            delay = self.delays.pop(0)
            self.threads.append(threading.Thread(target=self.kill, args=(delay,)))
            self.threads[-1].start()

    def kill(self, delay):
        time.sleep(delay)
        pid = next(iter(self.found.client.run(os.getpid, on_error="ignore").values()), None)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self.died.append(pid)


def fit_while_workers_die(rng, step, delays, shards=None, **settings):
    """The same fit in one process and on two workers of which some die gives the same model."""
    X, Y = words(rng, n=400, d=200, c=30)
    settings = {"rank": 12, "kernel": Gaussian(2.0, 200), "calibrate": False, **settings}
    here = fixed(**settings).fit(X, Y)
    with connect("local:2") as found, smoothlink.cluster(found.client, shards=shards):
        killer, there = Killer(found, step, delays), fixed(**settings)
        there._notify = killer
        there.fit(X, Y)
        for thread in killer.threads:
            thread.join()
    assert killer.died
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)


CG = {"solver": ConjugateGradient(tol=1e-5)}


@pytest.mark.parametrize(
    ("step", "settings"),
    [
        ("embed", CG),
        pytest.param("featurize", {}, marks=pytest.mark.slow),
        pytest.param("fit", {"loss": Logistic(passes=6)}, marks=pytest.mark.slow),
    ],
    ids=["embed", "featurize", "fit"],
)
def test_a_worker_that_dies_in_any_step_does_not_change_the_model(rng, step, settings):
    fit_while_workers_die(rng, step, [0.05], **settings)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["embed", "fit"])
@pytest.mark.parametrize("number", range(4))
def test_workers_that_die_at_any_time_do_not_change_the_model(rng, step, number):
    delay = np.random.default_rng(number).uniform(0, 1.0)
    fit_while_workers_die(rng, step, [delay], loss=Logistic(passes=10), **CG)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_workers_that_die_while_they_solve_for_v_and_write_it_leave_whole_shards(rng, tmp_path, number):
    delay = np.random.default_rng(number).uniform(0, 0.5)
    fit_while_workers_die(rng, "fit", [delay], shards=tmp_path / "m.safetensors", kernel=Gaussian(2.0, 1500))
    names = sorted(path.name for path in tmp_path.iterdir() if "-V-" in path.name and path.suffix == ".safetensors")
    run = names[0].split("-")[2]
    assert names == [f"m-V-{run}-0000{i}-of-00002.safetensors" for i in (1, 2)]


@pytest.mark.slow
def test_a_worker_that_dies_costs_no_prediction(data, tmp_path):
    """Its file is predicted by another; what it had begun to write never takes the name of the output."""
    from smoothlink.data.read import write

    fixed().fit(data.X, data.Y).save(tmp_path / "m.safetensors")
    inputs = [tmp_path / f"part{i}.txt" for i in range(12)]
    for path in inputs:
        write(data, path)
    with connect("local:2") as found, smoothlink.cluster(found.client):
        pids = list(found.client.run(os.getpid).values())

        def kill(_):
            if pids:
                os.kill(pids.pop(), signal.SIGKILL)
                pids.clear()

        smoothlink.predict_files(tmp_path / "m.safetensors", inputs, tmp_path / "out", notify=kill)
    outputs = [(tmp_path / "out" / f"part{i}.jsonl").read_text() for i in range(12)]
    assert [len(text.splitlines()) for text in outputs] == [data.X.shape[0]] * 12


@pytest.fixture
def scheduler_process(tmp_path):
    """A scheduler and a worker in separate processes: the address, and the scheduler's process."""
    file, dask = tmp_path / "address.json", [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen(
        [*dask, "scheduler", "--port", "0", "--dashboard-address", ":0", "--scheduler-file", file], **quiet
    )
    worker = subprocess.Popen([*dask, "worker", "--scheduler-file", file, "--nthreads", "1", "--no-dashboard"], **quiet)
    for _ in range(200):
        if file.exists() and file.stat().st_size:
            break
        time.sleep(0.1)
    address = json.loads(file.read_text())["address"]
    with Client(address) as client:
        client.wait_for_workers(1, timeout=60)
    yield address, scheduler
    for process in (worker, scheduler):
        process.kill()
        process.wait()


def test_a_scheduler_by_its_address_is_used_and_its_loss_ends_the_fit_with_what_to_do(rng, scheduler_process):
    address, scheduler = scheduler_process
    X, Y = words(rng)
    with smoothlink.cluster(address):
        there = fixed().fit(X, Y)
    np.testing.assert_allclose(there.predict_proba(X), fixed().fit(X, Y).predict_proba(X), atol=1e-3)
    model = fixed()
    model._notify = lambda step, share, words: scheduler.kill() if (step, share) == ("featurize", 0.0) else None
    with smoothlink.cluster(address), pytest.raises(ClusterError, match=r"The scheduler of the cluster is lost"):
        model.fit(X, Y)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart as on Linux")
@pytest.mark.parametrize("victim", ["worker", "scheduler", "client"])
def test_a_fit_whose_cluster_loses_a_part_leaves_the_old_model_or_the_new_one(victim):
    campaign = Path(__file__).parents[1] / "torture" / "cluster.py"
    ran = subprocess.run([sys.executable, campaign, "--short", victim], capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(found) == 2, ran.stderr
    assert [one["failures"] for one in found] == [[], []]
