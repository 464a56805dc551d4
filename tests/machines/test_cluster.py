"""Rows on the workers of a cluster: the same sums, maps and fits as in one process, whoever dies on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from problems import relative_error, sparse_problem
from small import fixed, multilabel, words

pytest.importorskip("distributed", reason="Dask is not installed")

from smoothlink.fitting.cluster import Files, Spread, cluster_plan, cuts, spread_arrays, spread_files

import smoothlink
from smoothlink import Gaussian, Logistic, Softmax
from smoothlink.data.read import Data, write
from smoothlink.distributed.client import cluster, connected, mismatch
from smoothlink.distributed.rows_on_workers import library, reached
from smoothlink.distributed.tasks import Header
from smoothlink.errors import ClusterError, DataError, ModelFileError
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.embed import embed_rows, label_counts, xt_yq

LOSSES = {
    "squared": {"calibrate": True},
    "logistic": {"loss": Logistic(passes=2)},
    "softmax": {"loss": Softmax(passes=2)},
}


@pytest.fixture(scope="module", params=[1, 3])
def workers(request):
    with connected(f"local:{request.param}") as found:
        yield found


@pytest.fixture(scope="module")
def two():
    with connected("local:2") as found:
        yield found


def as_it_is(X):
    return X


@pytest.fixture
def problem(rng):
    return sparse_problem(rng)


def rows_of(found, p):
    """The rows of a problem, which have their constant already, on the workers."""
    rows = spread_arrays(found, p.X, p.Y).load(as_it_is, p.w.astype(np.float32), 7)
    rows.d = p.X.shape[1]
    return rows


def test_sums_are_those_of_one_process(workers, problem, rng):
    p = problem
    Q = rng.standard_normal((p.Y.shape[1], 3)).astype(np.float32)
    there, here = rows_of(workers, p), p.rows()
    out = (p.X.shape[1], 3)
    assert relative_error(there.sum(xt_yq, Q, out=out), here.sum(xt_yq, Q, out=out)) < 1e-6
    counts = [r.sum(label_counts, out=(p.Y.shape[1],), dtype=np.float64) for r in (there, here)]
    np.testing.assert_allclose(*counts)


def test_rows_stay_where_they_were_read(workers, problem, rng):
    """Dask would copy them to where larger arrays are, until each worker has all of them."""
    p, there = problem, rows_of(workers, problem)
    for m in range(3000, 3008):
        Q = rng.standard_normal((p.Y.shape[1], m)).astype(np.float32)
        there.sum(xt_yq, Q, out=(p.X.shape[1], m))
    there.map(embed_rows, rng.standard_normal((p.X.shape[1], 2)).astype(np.float32))[np.arange(5)]
    holders = workers.client.who_has(there.parts)
    assert [len(holders[part.key]) for part in there.parts] == [1] * len(there.parts)
    assert len({worker for found in holders.values() for worker in found}) == len(workers.workers)


def test_two_uses_of_one_client_do_not_mix_their_rows(two, rng):
    """Dask knows results by the names of tasks, and keeps those that somebody still holds."""
    outs = []
    for d in (30, 50):
        X, Y = words(rng, d=d)
        with smoothlink.cluster(two.client) as found:
            outs.append(spread_arrays(found, X, sp.csr_array(Y)).load(as_it_is, None, None))
    assert [rows.take(np.arange(5)).d for rows in outs] == [30, 50]


def test_columns_of_a_sum_may_go_some_at_a_time(two, problem, rng, monkeypatch):
    p = problem
    Q = rng.standard_normal((p.Y.shape[1], 150)).astype(np.float32)
    there, here = rows_of(two, p), p.rows()
    monkeypatch.setattr("smoothlink.distributed.rows_on_workers.PIECE", 1)
    assert there.columns(p.X.shape[1]) == 64
    before = sum(two.moved.values())
    d = p.X.shape[1]
    assert relative_error(there.columnwise(xt_yq, Q, d), here.columnwise(xt_yq, Q, d)) < 1e-6
    assert sum(two.moved.values()) - before >= 2 * 4 * 150 * d


def test_an_array_for_one_worker_goes_there_alone_and_through_the_scheduler_where_there_is_no_other_way(two, rng):
    A = rng.standard_normal((200, 200)).astype(np.float32)
    worker = two.workers[1]
    assert two.direct
    assert set(two.client.who_has(two.send(A, worker)).popitem()[1]) == {worker}
    two.direct = False
    try:
        future = two.send(A)
        assert len(two.client.who_has(future).popitem()[1]) == 1
        np.testing.assert_array_equal(two.gather(future), A)
    finally:
        two.direct = True
    assert not reached(["tcp://127.0.0.1:9"])


def test_many_workers_pass_an_array_on_in_waves(two, rng, monkeypatch):
    monkeypatch.setattr("smoothlink.distributed.rows_on_workers.FEW", 1)
    waves, submit = [], two.submit
    monkeypatch.setattr(two, "submit", lambda what, *more, **where: waves.append(where) or submit(what, *more, **where))
    two.send(rng.standard_normal((200, 200)).astype(np.float32))
    assert [where["worker"] for where in waves] == two.workers


def test_maps_stay_on_the_workers_and_rows_of_them_can_be_asked_for(workers, problem, rng):
    p = problem
    W = rng.standard_normal((p.X.shape[1], 4)).astype(np.float32)
    H, expected = rows_of(workers, p).map(embed_rows, W), p.rows().map(embed_rows, W)
    numbers = rng.permutation(len(expected))[:9]
    np.testing.assert_allclose(H[numbers], expected[numbers], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(H[3:8], expected[3:8], rtol=1e-5, atol=1e-5)
    assert H.shape == expected.shape


def test_rows_that_are_taken_are_those_of_one_process(workers, problem):
    p = problem
    numbers = np.arange(0, p.X.shape[0], 3)
    there, here = rows_of(workers, p).take(numbers), p.rows().take(numbers)
    assert (there.blocks[0].X.csr != here.blocks[0].X.csr).nnz == 0
    assert (there.blocks[0].Y.csr != here.blocks[0].Y.csr).nnz == 0
    np.testing.assert_allclose(there.w, here.w)


def test_other_weights_leave_the_rows_where_they_are(two, problem):
    p, rows = problem, rows_of(two, problem)
    w = p.w.astype(np.float32).copy()
    w[::2] = 0
    c = p.Y.shape[1]
    found = rows.weighted(w).sum(label_counts, out=(c,), dtype=np.float64)
    np.testing.assert_allclose(found, p.rows().weighted(w).sum(label_counts, out=(c,), dtype=np.float64))
    assert rows.weighted(w).parts is rows.parts


def test_conjugate_gradients_give_the_solution_of_one_process(two, problem):
    p = problem
    X, Y = p.dense
    B = (X.T @ (p.w[:, None] * Y)).astype(np.float32)
    solve = ConjugateGradient(tol=1e-6).prepare(rows_of(two, p)).at(0.3)
    assert relative_error(solve(B), p.solve(0.3)(B)) < 2e-4


def test_columns_of_a_solve_are_shared_out_with_the_same_solution(workers, problem):
    p = problem
    X, Y = p.dense
    B = (X.T @ (p.w[:, None] * Y)).astype(np.float32)
    rows = spread_arrays(workers, p.X, p.Y).load(as_it_is, p.w.astype(np.float32), 7, whole=True)
    rows.d = p.X.shape[1]
    solve, here = (ConjugateGradient(tol=1e-6).prepare(r).at(0.3) for r in (rows, p.rows()))
    assert relative_error(solve(B), here(B)) < 1e-4
    assert abs(solve.iterations - here.iterations) <= 1
    assert solve.residual <= 1.01e-6


@pytest.mark.parametrize("plan", ["rows", "columns"])
def test_a_plan_that_is_asked_for_gives_the_same_model(two, rng, plan):
    X, Y = words(rng)
    solver = ConjugateGradient(tol=1e-5)
    here = fixed(solver=solver).fit(X, Y)
    with smoothlink.cluster(two.client, plan=plan):
        there = fixed(solver=solver).fit(X, Y)
    assert there.summary_["shared_out"] == plan
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=2e-3)


def test_the_plan_shares_out_columns_where_x_fits_a_worker_and_solves_would_send_more(two):
    few, many = (
        Spread(two, [], np.zeros(1), Header(1000, 10**5, 10**4, entries, None, None)) for entries in (10**6, 10**10)
    )
    options = fixed(rank=200)._options()
    assert cluster_plan(few, options, "auto").by == "columns"
    assert cluster_plan(many, options, "auto").by == "rows"
    assert cluster_plan(many, options, "columns").why == "asked for"
    assert "2 workers share out columns (X fits a worker): each holds" in str(cluster_plan(few, options, "auto"))


def test_columns_are_shared_out_only_where_conjugate_gradients_solve(two):
    header = Header(10**5, 2000, 10**4, 10**6, None, None)
    spread = Spread(two, [], np.zeros(1), header)
    assert cluster_plan(spread, fixed(rank=200, solver="cg")._options(), "auto").by == "columns"
    assert cluster_plan(spread, fixed(rank=200, solver="cholesky")._options(), "auto").by == "rows"


def test_few_rows_with_many_features_are_solved_by_what_sums_allow(two, rng):
    X, Y = words(rng, n=60, d=900)
    here = fixed().fit(X, Y)
    with smoothlink.cluster(two.client):
        there = fixed().fit(X, Y)
    assert (here.summary_["solver"], there.summary_["solver"]) == ("DualCholesky", "ConjugateGradient")
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=2e-2)


def test_another_plan_is_refused(two):
    with (
        pytest.raises(ValueError, match="plan is 'labels'; possible are 'auto', 'rows', 'columns'"),
        cluster(two.client, plan="labels"),
    ):
        pass


def data_for(rng, loss):
    X, Y = words(rng)
    if loss == "softmax":
        Y = np.eye(6, dtype=int)[rng.integers(0, 6, len(Y))]
    return X, Y


@pytest.mark.parametrize("loss", LOSSES)
def test_a_fit_on_any_number_of_workers_is_that_of_one_process(workers, rng, loss):
    X, Y = data_for(rng, loss)
    here = fixed(**LOSSES[loss]).fit(X, Y)
    with smoothlink.cluster(workers.client):
        there = fixed(**LOSSES[loss]).fit(X, Y)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)
    assert there.summary_["workers"] == len(workers.workers)


@pytest.mark.parametrize(
    "settings", [{"effort": "quick"}, {"rank": "auto", "ridge": "auto", "kernel__bandwidth": "auto"}], ids=str
)
def test_what_is_auto_is_settled_on_a_cluster_as_in_one_process(two, rng, settings):
    X, Y = words(rng)
    here = fixed(**settings, calibrate=True).fit(X, Y)
    with smoothlink.cluster(two.client):
        there = fixed(**settings, calibrate=True).fit(X, Y)
    for name in ("rank", "ridge", "bandwidth", "final_ridge"):
        assert there.summary_[name] == here.summary_[name]
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("suffix", [".sl", ".txt"])
@pytest.mark.parametrize("count", [1, 3])
def test_workers_read_files_themselves(two, rng, tmp_path, suffix, count):
    X, Y = words(rng)
    Y = np.asarray(Y, np.float32)
    paths = []
    for i, part in enumerate(np.array_split(np.arange(X.shape[0]), count)):
        paths.append(tmp_path / f"part-{i}{suffix}")
        write(Data(X[part].astype(np.float32), sp.csr_array(Y[part])), paths[-1])
    with smoothlink.cluster(two.client):
        there = fixed().fit(Files.of(tmp_path / f"part-*{suffix}"))
    here = fixed().fit(X.astype(np.float32), sp.csr_array(Y))
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("suffix", [".sl", ".txt"])
def test_workers_fetch_what_is_in_a_store(two, rng, tmp_path, suffix):
    X, Y = words(rng)
    X, Y = X.astype(np.float32), sp.csr_array(np.asarray(Y, np.float32))
    for i, part in enumerate(np.array_split(np.arange(X.shape[0]), 2)):
        write(Data(X[part], Y[part]), tmp_path / f"part-{i}{suffix}")
    files = Files.of(f"file://{tmp_path}/part-*{suffix}")
    assert [path.rpartition("/")[2] for path in files.paths] == [f"part-0{suffix}", f"part-1{suffix}"]
    with smoothlink.cluster(two.client):
        there = fixed().fit(files)
    np.testing.assert_allclose(there.predict_proba(X), fixed().fit(X, Y).predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("loss", ["squared", Logistic(passes=2)], ids=str)
@pytest.mark.parametrize("settings", [{}, {"effort": "quick", "calibrate": True}], ids=str)
def test_workers_write_v_in_shards_that_a_model_is_served_from(workers, rng, tmp_path, loss, settings):
    X, Y = words(rng)
    settings = {"loss": loss, **settings}
    here = fixed(**settings).fit(X, Y)
    with smoothlink.cluster(workers.client, shards=tmp_path / "shards" / "a.safetensors"):
        there = fixed(**settings).fit(X, Y)
    count = len(workers.workers)
    names = sorted(path.name for path in (tmp_path / "shards").iterdir())
    run = names[0].split("-")[2]
    assert names == [f"a-V-{run}-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)
    there.save(tmp_path / "m.safetensors")
    shutil.rmtree(tmp_path / "shards")
    loaded = smoothlink.load(tmp_path / "m.safetensors", verify=True)
    np.testing.assert_allclose(loaded.predict_proba(X), here.predict_proba(X), atol=1e-3)
    np.testing.assert_array_equal(loaded.predict_topk(X, 3).indices, here.predict_topk(X, 3).indices)
    np.testing.assert_allclose(loaded.predict_proba(X, labels=[4, 0]), here.predict_proba(X)[:, [4, 0]], atol=1e-3)


def test_a_model_saved_beside_its_shards_copies_nothing(two, rng, tmp_path):
    path = tmp_path / "m.safetensors"
    with smoothlink.cluster(two.client, shards=path):
        fitted = fixed().fit(*words(rng))
    times = [file.stat().st_mtime_ns for file in sorted(tmp_path.glob("m-V-*"))]
    fitted.save(path)
    assert [file.stat().st_mtime_ns for file in sorted(tmp_path.glob("m-V-*"))] == times
    assert smoothlink.load(path).model_.V.shape == fitted.model_.V.shape


def test_a_second_fit_leaves_the_model_that_is_there_as_it_is_until_it_is_saved(two, rng, tmp_path):
    path, (X, Y) = tmp_path / "m.safetensors", words(rng)
    with smoothlink.cluster(two.client, shards=path):
        fixed().fit(X, Y).save(path)
        before, old = smoothlink.load(path).predict_proba(X), sorted(tmp_path.glob("m-V-*"))
        other = fixed(final_ridge=100.0).fit(X, Y)
        np.testing.assert_array_equal(smoothlink.load(path, verify=True).predict_proba(X), before)
        other.save(path)
    np.testing.assert_array_equal(smoothlink.load(path, verify=True).predict_proba(X), other.predict_proba(X))
    assert len(list(tmp_path.glob("m-V-*"))) == 2
    assert not any(file.exists() for file in old)


def test_a_dense_table_is_refused_with_what_to_do(two, rng):
    X, Y = multilabel(rng)
    with (
        smoothlink.cluster(two.client),
        pytest.raises(ValueError, match="scale is 'auto', and the columns of this"),
    ):
        fixed().fit(X, Y)


def test_shards_need_one_fit_of_independent_labels(two, rng, tmp_path):
    with smoothlink.cluster(two.client, shards=tmp_path / "a.safetensors"):
        for settings in ({"loss": "softmax"}, {"calibrate": True}):
            Y = np.eye(6, dtype=int)[rng.integers(0, 6, 90)] if "loss" in settings else words(rng)[1]
            with pytest.raises(ValueError, match="shards are written by one fit with squared or logistic loss"):
                fixed(**settings).fit(words(rng)[0], Y)


def test_a_model_whose_shard_is_missing_says_so(two, rng, tmp_path):
    X, Y = words(rng)
    with smoothlink.cluster(two.client, shards=tmp_path / "shards" / "a.safetensors"):
        fixed().fit(X, Y).save(tmp_path / "m.safetensors")
    missing = next(tmp_path.glob("m-V-*-00002-of-00002.safetensors"))
    missing.unlink()
    with pytest.raises(ModelFileError, match=missing.name):
        smoothlink.load(tmp_path / "m.safetensors")


def test_shards_are_not_saved_in_halves(two, rng, tmp_path):
    with smoothlink.cluster(two.client, shards=tmp_path / "shards" / "a.safetensors"):
        fitted = fixed().fit(*words(rng))
    with pytest.raises(ModelFileError, match="V is in shards, which stay in float32"):
        fitted.save(tmp_path / "h.safetensors", dtype="float16")


def test_data_folders_are_cut_where_shares_end_and_other_files_are_not():
    assert cuts(10, np.array([4, 8, 12]), True) == [(0, 4), (4, 8), (8, 10)]
    assert cuts(10, np.array([-2, 0, 10]), True) == [(0, 10)]
    assert cuts(10, np.array([4, 8]), False) == [(0, 10)]


# When it goes wrong


class Killer:
    """Kills a worker, with its process, some time after a stage of a fit began; may do so again."""

    def __init__(self, found, stage, delays):
        self.found, self.stage, self.delays, self.died, self.threads = found, stage, list(delays), [], []

    def __call__(self, stage, share):
        if stage == self.stage and self.delays:
            delay = self.delays.pop(0)
            self.threads.append(threading.Thread(target=self.kill, args=(delay,)))
            self.threads[-1].start()

    def kill(self, delay):
        time.sleep(delay)
        pid = next(iter(self.found.client.run(os.getpid, on_error="ignore").values()), None)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self.died.append(pid)


def fitted_while_dying(rng, stage, delays, shards=None, **settings):
    """The same fit in one process and on two workers of which some die."""
    X, Y = words(rng, n=400, d=200, c=30)
    settings = {"rank": 12, "kernel": Gaussian(2.0, 200), "calibrate": False, **settings}
    here = fixed(**settings).fit(X, Y)
    with connected("local:2") as found, smoothlink.cluster(found.client, shards=shards):
        killer, there = Killer(found, stage, delays), fixed(**settings)
        there._notify = killer
        there.fit(X, Y)
        for thread in killer.threads:
            thread.join()
    assert killer.died
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)


CG = {"solver": ConjugateGradient(tol=1e-5)}


@pytest.mark.parametrize(
    ("stage", "settings"),
    [
        ("embed", CG),
        pytest.param("featurize", {}, marks=pytest.mark.slow),
        pytest.param("fit", {"loss": Logistic(passes=6)}, marks=pytest.mark.slow),
    ],
    ids=["embed", "featurize", "fit"],
)
def test_a_worker_that_dies_in_any_stage_does_not_change_the_model(rng, stage, settings):
    fitted_while_dying(rng, stage, [0.05], **settings)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["embed", "fit"])
@pytest.mark.parametrize("time", range(4))
def test_workers_that_die_at_any_time_do_not_change_the_model(rng, stage, time):
    delay = np.random.default_rng(time).uniform(0, 1.0)
    fitted_while_dying(rng, stage, [delay], loss=Logistic(passes=10), **CG)


@pytest.mark.slow
@pytest.mark.parametrize("time", range(4))
def test_workers_that_die_while_they_solve_for_v_and_write_it_leave_whole_shards(rng, tmp_path, time):
    delay = np.random.default_rng(time).uniform(0, 0.5)
    fitted_while_dying(rng, "fit", [delay], shards=tmp_path / "m.safetensors", kernel=Gaussian(2.0, 1500))
    names = sorted(path.name for path in tmp_path.iterdir() if "-V-" in path.name and path.suffix == ".safetensors")
    run = names[0].split("-")[2]
    assert names == [f"m-V-{run}-0000{i}-of-00002.safetensors" for i in (1, 2)]


@pytest.fixture
def elsewhere(tmp_path):
    """A scheduler and a worker in processes of their own: the address, and the scheduler's process."""
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
    yield json.loads(file.read_text())["address"], scheduler
    for process in (worker, scheduler):
        process.kill()
        process.wait()


def wait_for_worker(address):
    with library("distributed").Client(address) as client:
        client.wait_for_workers(1, timeout=60)


def test_a_scheduler_elsewhere_is_used_and_when_it_is_lost_that_is_said_in_words(rng, elsewhere):
    address, scheduler = elsewhere
    wait_for_worker(address)
    X, Y = words(rng)
    with smoothlink.cluster(address):
        there = fixed().fit(X, Y)
    np.testing.assert_allclose(there.predict_proba(X), fixed().fit(X, Y).predict_proba(X), atol=1e-3)
    model = fixed()
    model._notify = lambda stage, share: scheduler.kill() if (stage, share) == ("featurize", 0.0) else None
    with smoothlink.cluster(address), pytest.raises(ClusterError, match=r"The scheduler of the cluster is lost"):
        model.fit(X, Y)


def test_an_address_where_nothing_answers_is_said_at_once(monkeypatch):
    monkeypatch.setattr("smoothlink.distributed.client.SECONDS", 0.5)
    with (
        pytest.raises(ClusterError, match=r"No scheduler answers at tcp://127.0.0.1:9 .*\nStart one with"),
        cluster("tcp://127.0.0.1:9"),
    ):
        pass


@pytest.mark.parametrize("name", ["local:0", "local:x", "local:-1"])
def test_other_local_clusters_are_refused(name):
    with pytest.raises(ClusterError, match="possible are local:N"), cluster(name):
        pass


def test_other_versions_are_named():
    said = str(mismatch("numpy", "2.0", "1.26", "tcp://a:1"))
    assert said == "The worker tcp://a:1 has numpy 1.26, and the client has 2.0.\nInstall the same version on both."


def test_a_file_that_no_worker_sees_is_named(two, tmp_path):
    with pytest.raises(ClusterError, match=r"No worker sees .*absent.sl.\nPut it where all workers can read it"):
        spread_files(two, Files.of(tmp_path / "absent.sl"))


def test_a_bad_line_is_said_before_work_starts(two, rng, tmp_path):
    X, Y = words(rng)
    write(Data(X.astype(np.float32), sp.csr_array(np.asarray(Y, np.float32))), tmp_path / "a.txt")
    lines = (tmp_path / "a.txt").read_text().splitlines()
    (tmp_path / "a.txt").write_text("\n".join([*lines[:-1], "0 3:x"]) + "\n")
    with smoothlink.cluster(two.client), pytest.raises(DataError, match=r"a.txt, line 91: "):
        fixed().fit(Files.of(tmp_path / "a.txt"))


def test_files_with_other_columns_are_refused(two, rng, tmp_path):
    X, Y = words(rng)
    Y = sp.csr_array(np.asarray(Y, np.float32))
    write(Data(X.astype(np.float32), Y), tmp_path / "a.sl")
    write(Data(X.astype(np.float32)[:, :20], Y), tmp_path / "b.sl")
    with pytest.raises(DataError, match=r"a.sl has 40 features and .*b.sl has 20; the files of one fit must agree"):
        spread_files(two, Files.of([tmp_path / "a.sl", tmp_path / "b.sl"]))


@pytest.mark.parametrize(
    "given", [{"device": "torch"}, {"memory": "2G"}, {"solver": "dual"}, {"training": "joint"}], ids=str
)
def test_what_a_cluster_cannot_do_is_refused(two, rng, given):
    name = next(iter(given))
    with smoothlink.cluster(two.client), pytest.raises(ValueError, match=f"{name} is .*, which a cluster cannot use"):
        fixed(**given).fit(*words(rng))


def test_files_need_a_cluster(tmp_path):
    with pytest.raises(ValueError, match="Files are for clusters"):
        fixed().fit(Files((str(tmp_path / "a.sl"),)))
