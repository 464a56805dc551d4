"""A plan keeps within its budget by the least costly steps, or says what is needed; what it counts is what is held."""

import dataclasses
import os
import re
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from commands import run
from small import FIXED, fixed, multilabel, words

import smoothlink
from smoothlink import InputKernel, SmoothLinkClassifier
from smoothlink.data.read import write
from smoothlink.fitting.checkpoint import check_disk
from smoothlink.fitting.memory import USES_X, JointSizes, Plan, Sizes, file_bytes, make_plan, needs, solve_bytes
from smoothlink.fitting.prepare import plan_memory, sizes_of
from smoothlink.fitting.settings import TrainingData
from smoothlink.machines.rows import Rows
from smoothlink.parameters import memory_bytes
from smoothlink.solve import Cholesky, ConjugateGradient, DualCholesky
from smoothlink.steps.embed import label_embedding
from smoothlink.synth import Shape, synthesise

MIDDLE = Sizes(200_000, 100_001, 20_000, 8_200_000, 600_000, 300, 320, 2001, held=20_000, resident=250 << 20)
LARGE = Sizes(1_000_000, 500_001, 100_000, 41_000_000, 3_000_000, 300, 320, 2001, held=100_000, resident=250 << 20)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("4G", 4 << 30), ("500M", 500 << 20), ("1.5g", 3 << 29), ("2GiB", 2 << 30), ("64 kB", 1 << 16), (123, 123)],
)
def test_memory_is_bytes_with_or_without_a_unit(text, meant):
    assert memory_bytes(text) == meant


@pytest.mark.parametrize("wrong", ["", "G", "4X", "-1G", "0", 0, -3, True, 1.5j, "4G 3M", []])
def test_other_texts_are_refused(wrong, rng):
    with pytest.raises(ValueError, match=r"memory is .*possible are a number of bytes"):
        fixed(memory=wrong).fit(*multilabel(rng))


def test_without_a_budget_nothing_is_planned(rng):
    asked = fixed(block_rows=100)._request()
    data = TrainingData(*words(rng), None, False)
    assert plan_memory(data, asked, dense=False, resident=lambda: 0) == Plan(block_rows=100)
    assert Plan().for_summary() is None


JOINT = JointSizes(512, 96, 100_000, 50_000_000, 200 << 20)


@pytest.mark.parametrize("sizes", [MIDDLE, LARGE, LARGE._replace(joint=JOINT)])
@pytest.mark.parametrize("memory", [1 << 29, 1 << 30, 3 << 29, 2 << 30, 4 << 30, 8 << 30, 64 << 30])
@pytest.mark.parametrize("search", [1, 0])
def test_a_plan_needs_no_more_than_its_budget(sizes, memory, search):
    sizes = sizes._replace(search_folds=search)
    try:
        plan = make_plan(memory, sizes)
    except ValueError as error:
        least = memory_bytes(re.search(r"memory='(.*)'", str(error))[1])
        assert memory < least
        make_plan(least, sizes)  # what it says is enough
        return
    assert plan.needs == needs(sizes, plan)
    assert max(plan.needs.values()) <= plan.expected <= 0.95 * memory
    assert max(need for stage, need in plan.needs.items() if stage in USES_X) + plan.kept <= 0.95 * memory
    assert plan.disk == file_bytes(sizes, plan)


def test_the_plan_says_what_goes_at_a_time():
    assert str(make_plan(8 << 30, LARGE)) == (
        "Memory: 3.94G of 8.00G expected, most to fit; X stays in memory, blocks have 65,536 rows."
    )
    assert re.fullmatch(
        r"Memory: 1\.41G of 1\.50G expected, most to embed; 16M of X stays in memory, blocks have 8,192 rows, "
        r"solves go 8 columns at a time, V goes 12,500 labels at a time, files take 2\.61G\.",
        str(make_plan(3 << 29, LARGE)),
    )
    assert make_plan(3 << 29, LARGE).for_summary()["expected"] == pytest.approx(1.41 * (1 << 30), rel=0.01)


def test_the_plan_of_joint_training_says_so_or_what_it_would_need():
    said = str(make_plan(8 << 30, LARGE._replace(joint=JOINT)))
    assert re.fullmatch(
        r"Memory: \S+G of 8\.00G expected, most to fit; weights are trained jointly, and read X from a file, "
        r"blocks have 65,536 rows, files take \S+\.",
        said,
    )
    with pytest.raises(ValueError, match=r"joint training needs at least \S+ \(to fit\)\.\n.*sparse_weights=False"):
        make_plan(1 << 30, LARGE._replace(joint=JOINT))
    assert "Joint training needs 3.00G, so training is stepwise." in str(Plan(2 << 30, joint_needs=3 << 30))


@pytest.mark.parametrize("training", ["auto", "joint"])
def test_a_budget_decides_whether_auto_trains_jointly_and_refuses_joint_training(rng, training):
    X = sp.random_array((30_000, 20_000), density=3e-3, format="csr", rng=rng, dtype=np.float32)
    Y = sp.random_array((30_000, 20_000), density=5e-4, format="csr", rng=rng, dtype=np.float32)

    def plan(memory):
        request = SmoothLinkClassifier(training=training, memory=memory)._request()
        return plan_memory(TrainingData(X, Y, None, False), request, dense=False, resident=lambda: 200 << 20)

    assert plan("8G").joint
    if training == "joint":
        with pytest.raises(ValueError, match=r"memory is 1\.00G, and joint training needs at least") as told:
            plan("1G")
        least = re.search(r"memory='(.*)'", str(told.value))[1]
        assert plan(least).joint  # what it says is enough
    else:
        stepwise = plan("1G")
        assert not stepwise.joint
        assert re.search(r" Joint training needs [\d.]+G, so training is stepwise\.$", str(stepwise))


@pytest.mark.parametrize("given", [{"trees": True}, {"input_kernel": InputKernel(bandwidth=1.0)}])
def test_trees_and_kernels_of_x_are_fitted_within_a_budget_that_holds_them_or_refused_with_what_they_need(rng, given):
    X, Y = multilabel(rng, n=300)
    whole, within = fixed(**given).fit(X, Y), fixed(memory="3G", **given).fit(X, Y)
    np.testing.assert_allclose(within.predict_proba(X), whole.predict_proba(X), rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match=r"memory is 50M, and this fit needs at least .*\nAllow memory="):
        fixed(memory="50M", **given).fit(X, Y)


def test_a_table_of_a_budget_without_room_for_kernels_and_trees_is_fitted_without_them(rng):
    X, Y = multilabel(rng, n=6_000, d=300)
    request = SmoothLinkClassifier(memory="1G")._request()

    def plan(memory):
        data = TrainingData(X.astype(np.float32), sp.csr_array(Y, dtype=np.float32), None, False)
        asked = dataclasses.replace(request, memory=memory)
        return plan_memory(data, asked, dense=True, table=True, resident=lambda: 200 << 20)

    assert plan("4G").table
    assert not plan("500M").table


def test_a_large_budget_is_spent_on_comfort():
    plan = make_plan(64 << 30, LARGE)
    assert (plan.columns, plan.label_group, plan.embedding_in_file, plan.disk) == (None, None, False, 0)
    assert plan.kept > 20 * LARGE.entries


def test_less_memory_never_means_larger_parts():
    plans = [make_plan(memory << 27, LARGE) for memory in range(12, 64, 4)]
    for name, most in (("columns", 64), ("label_group", LARGE.c), ("block_rows", 0), ("search_rows", 0)):
        sizes = [getattr(plan, name) or most for plan in plans]
        assert sizes == sorted(sizes), name


def test_what_the_user_sets_is_not_planned():
    assert make_plan(4 << 30, LARGE, 5000).block_rows == 5000
    with pytest.raises(ValueError, match=r"needs at least .*\nAllow memory="):
        make_plan(1 << 30, MIDDLE._replace(loss="logistic"))
    assert not make_plan(1 << 30, MIDDLE._replace(loss="auto")).sgd
    assert make_plan(64 << 30, MIDDLE._replace(loss="auto")).sgd
    wide = MIDDLE._replace(d=500_001)
    assert make_plan(5 << 28, wide).columns < 64
    with pytest.raises(ValueError, match="needs at least"):
        make_plan(5 << 28, wide._replace(auto=False))


def test_a_factor_that_would_fill_the_budget_is_not_made():
    table = MIDDLE._replace(d=15_000, solver="cholesky")
    assert not make_plan(2 << 30, table).factors
    assert make_plan(64 << 30, table).factors
    with pytest.raises(ValueError, match=r"needs at least .*\(to embed\)"):
        make_plan(2 << 30, table._replace(auto=False))


def test_sizes_follow_the_options(rng):
    X, Y = words(rng, n=90, d=40, c=6)

    def sizes(**changes):
        data = TrainingData(sp.csr_array(X), sp.csr_array(Y), None, False)
        return sizes_of(data, fixed(memory="2G", **changes)._request(), dense=False, resident=0)

    z = sizes()
    assert (z.n, z.d, z.c, z.entries, z.labels) == (90, 41, 6, X.nnz + 90, Y.sum())
    assert (z.rank, z.probes, z.features, z.held, z.search_folds, z.saves) == (4, 6, 41, 0, 0, False)
    assert sizes(calibrate=True, holdout=0.5)[:8] == z[:8]
    assert (sizes(calibrate=True, holdout=0.5).held, sizes(calibrate=True, holdout=0.5).folds) == (45, 2)
    assert sizes(ridge="auto").search_folds == 10
    assert sizes(rank="adaptive").spare == 6
    assert sizes(embedding="per_label").rank == 6
    assert sizes(embedding="none").rank == 40
    assert sizes(checkpoint="state").saves
    assert [sizes(solver=s).solver for s in ("cg", Cholesky(), DualCholesky())] == ["cg", "cholesky", "dual"]
    assert sizes(solver=ConjugateGradient(group=8, preconditioner="diagonal")).group == 8
    assert sizes(solver=ConjugateGradient(group=8, rank=20)).group == 8 + 30
    with pytest.raises(ValueError, match=r"memory goes with the solvers of smoothlink\.solve"):
        fixed(memory="2G", solver=SimpleNamespace(prepare=Cholesky().prepare)).fit(X, Y)


@pytest.mark.parametrize("group", [64, 16])
def test_the_embedding_holds_what_is_counted(rng, group):
    n, d, c, k = 500, 30_000, 8_000, 60
    X = sp.random_array((n, d), density=20 / d, format="csr", rng=rng, dtype=np.float32)
    Y = sp.random_array((n, c), density=3 / c, format="csr", rng=rng, dtype=np.float32)
    rows = Rows.of(X, Y)
    solve = ConjugateGradient(tol=1e-1, group=group, preconditioner="diagonal").prepare(rows).at(1.0)
    label_embedding(rows, 1, solve, rng)  # prepares the products
    z = Sizes(n, d, c, X.nnz, Y.nnz, k, k + 20, 1, group=group)
    tracemalloc.start()
    found = label_embedding(rows, k, solve, rng)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.W.shape == (d, k)
    assert solve_bytes(z, Plan(), n) == pytest.approx(held, rel=0.15)


def test_a_disk_that_is_too_full_is_told_before_the_fit(tmp_path):
    with pytest.raises(ValueError, match=r"would write files of \d+\.00G, and .* has room for"):
        check_disk(tmp_path, Plan(2 << 30, kept=0, disk=1 << 60))


# In a process of its own, whose peak is its own: ru_maxrss would start at the peak of this one.
CHILD = """
import resource, sys
budget, room, path, model = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
resource.setrlimit(resource.RLIMIT_AS, (room, room))
from smoothlink.cli import main
try:
    main(["train", path, "-o", model, "--memory", str(budget), *sys.argv[5:]])
except SystemExit as end:
    if end.code:
        raise
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1])
"""

SHAPES = {
    "many features": Shape(features=150_000, labels=2_000, features_per_row=20, labels_per_row=2),
    "many labels": Shape(features=3_000, labels=40_000, features_per_row=20, labels_per_row=2),
}
SETTINGS = [
    w
    for name, v in ({**FIXED, "rank": 60, "kernel.bandwidth": 2.0, "kernel.features": 300}).items()
    for w in ("--set", f"{name}={v}")
    if name not in ("kernel", "calibrate")
]


@pytest.fixture(scope="module", params=["many labels", pytest.param("many features", marks=pytest.mark.slow)])
def data(request, tmp_path_factory):
    """A set whose solves, or whose V, would hold far more than the least that a fit can do with."""
    path = tmp_path_factory.mktemp("plan") / "a.sl"
    write(synthesise(SHAPES[request.param], 4_000), path)
    return path


def train_within(budget, data, model, *options, settings=SETTINGS):
    """Training in a child, whose address space is limited too.

    Address space is more than memory: besides the budget it counts mapped files, the code of all libraries and 8 MB
    of stack and 64 MB of allocator arena for each thread, used or not. 4 GiB leave room for these on any machine of
    up to 16 cores and would still stop a fit that holds everything twice over.
    """
    threads = {"OPENBLAS_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "4"}
    args = [str(budget), str(budget + (4 << 30)), str(data), str(model), *settings, *options]
    return subprocess.run(
        [sys.executable, "-c", CHILD, *args], capture_output=True, text=True, env=os.environ | threads, check=False
    )


def peak_within(budget, data, model, *options, **others):
    """The peak resident bytes of it."""
    ran = train_within(budget, data, model, *options, **others)
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"of \d\S+ expected, most to", ran.stderr)
    return int(ran.stdout.split()[-1]) << 10


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not say its peak memory")
def test_the_peak_stays_within_the_least_budget_and_the_model_is_the_same(data, tmp_path):
    refused = train_within(100 << 20, data, tmp_path / "a")
    tight, roomy = memory_bytes(re.search(r"--memory (\S+)\)", refused.stderr)[1]), 4 << 30
    assert refused.returncode
    peak = peak_within(tight, data, tmp_path / "a", "--dtype", "float16")
    larger = peak_within(roomy, data, tmp_path / "b")
    assert peak <= tight
    assert peak < larger <= roomy  # so the plan did something
    a, b = (smoothlink.load(tmp_path / name) for name in "ab")
    assert a.summary_["plan"]["columns"] or a.summary_["plan"]["label_group"]
    X = sp.random_array((50, a.n_features_in_), density=1e-3, rng=np.random.default_rng(0), format="csr")
    some = np.arange(0, len(a.classes_), 10)
    P, Q = (model.predict_proba(X, labels=some) for model in (a, b))
    assert np.corrcoef(P.ravel(), Q.ravel())[0, 1] > 0.97  # conjugate gradients end at a residual of 1e-3


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not say its peak memory")
def test_the_peak_of_joint_training_stays_within_the_least_budget_and_the_model_is_the_same(tmp_path):
    path, joint = tmp_path / "a.sl", ("--training", "joint")
    shape = Shape(features=60_000, labels=8_000, features_per_row=20, labels_per_row=2)
    write(synthesise(shape, 20_000), path)
    refused = train_within(100 << 20, path, tmp_path / "a", *joint, settings=())
    assert "joint training needs at least" in refused.stderr
    tight = memory_bytes(re.search(r"--memory (\S+)\)", refused.stderr)[1])
    assert peak_within(tight, path, tmp_path / "a", *joint, settings=()) <= tight
    assert peak_within(4 << 30, path, tmp_path / "b", *joint, settings=()) <= 4 << 30
    a, b = (smoothlink.load(tmp_path / name) for name in "ab")
    X = sp.random_array((50, a.n_features_in_), density=1e-3, rng=np.random.default_rng(0), format="csr")
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), rtol=1e-3, atol=1e-5)


def test_too_small_a_budget_is_refused_before_anything_starts(data, tmp_path):
    ran = run("train", data, "-o", tmp_path / "m.safetensors", "--memory", "100M", *SETTINGS)
    assert ran.code == 1
    assert "memory is 100M, and this fit needs at least" in ran.err
    assert re.search(r"Allow memory='[\d.]+[MG]' \(--memory [\d.]+[MG]\)", ran.err)
    assert not (tmp_path / "m.safetensors").exists()
