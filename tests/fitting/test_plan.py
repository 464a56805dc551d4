"""A plan keeps within its budget by the least costly steps, or says what is needed; what it counts is what is held."""

import os
import re
import resource
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from small import FIXED

import smoothlink
from smoothlink.fitting.plan import CODE, Plan, Sizes, make_plan, needs, parse_memory
from smoothlink.steps.read import write
from smoothlink.synth import Shape, synthesise

MIDDLE = Sizes(200_000, 100_001, 20_000, 8_000_000, 600_000, 300, 320, 2000, dense=False, held=20_000)
LARGE = Sizes(1_000_000, 500_001, 100_000, 40_000_000, 3_000_000, 300, 320, 2000, dense=False, held=100_000)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("4G", 4 << 30), ("500M", 500 << 20), ("1.5g", 3 << 29), ("2GiB", 2 << 30), ("64 kB", 1 << 16), (123, 123)],
)
def test_memory_is_bytes_with_or_without_a_unit(text, meant):
    assert parse_memory(text) == meant


@pytest.mark.parametrize("wrong", ["", "G", "4X", "-1G", "0", 0, -3, True, 1.5j, "4G 3M", []])
def test_other_texts_are_refused(wrong):
    with pytest.raises(ValueError, match=r"memory is .*possible are None, a number of bytes"):
        parse_memory(wrong)


def test_without_a_budget_nothing_is_planned():
    assert make_plan(None, LARGE) == Plan()
    assert make_plan(None, LARGE, 100).block_rows == 100
    assert Plan().told() is None


@pytest.mark.parametrize("sizes", [MIDDLE, LARGE])
@pytest.mark.parametrize("memory", [1 << 30, 3 << 29, 2 << 30, 3 << 30, 4 << 30, 8 << 30, 64 << 30])
@pytest.mark.parametrize("search", [True, False])
def test_a_plan_needs_no_more_than_its_budget(sizes, memory, search):
    sizes = sizes._replace(search=search)
    try:
        plan = make_plan(memory, sizes)
    except ValueError as error:
        least = parse_memory(re.search(r"memory='(.*)'", str(error))[1])
        assert memory < least
        make_plan(least, sizes)  # what it says is enough
        return
    assert max(needs(sizes, plan).values()) + plan.kept <= 0.95 * memory
    assert plan.needs == needs(sizes, plan)
    assert f"Plan for {memory / (1 << 30):.2f}G" in str(plan)


def test_a_large_budget_is_spent_on_comfort():
    plan = make_plan(256 << 30, LARGE)
    assert plan.columns is None
    assert plan.label_group is None
    assert not plan.embedding_in_file
    assert plan.kept > 16 * LARGE.entries


def test_less_memory_never_means_larger_parts():
    plans = [make_plan(memory << 28, LARGE) for memory in range(16, 64, 4)]
    for name, most in (("columns", LARGE.probes), ("label_group", LARGE.c), ("block_rows", 0), ("search_rows", 0)):
        sizes = [getattr(plan, name) or most for plan in plans]
        assert sizes == sorted(sizes), name


def test_what_the_user_sets_is_not_planned():
    assert make_plan(4 << 30, LARGE, 5000).block_rows == 5000
    sizes = MIDDLE._replace(loss="logistic")
    with pytest.raises(ValueError, match=r"needs at least .*\nAllow memory="):
        make_plan(1 << 30, sizes)
    assert not make_plan(3 << 29, MIDDLE._replace(loss="auto")).descent
    assert make_plan(64 << 30, MIDDLE._replace(loss="auto")).descent


def test_a_factor_that_would_fill_the_budget_is_not_made():
    table = MIDDLE._replace(d=15_000)
    assert not make_plan(2 << 30, table).cholesky
    assert make_plan(64 << 30, table).cholesky
    assert replace(make_plan(64 << 30, table), kept=0).memory == 64 << 30


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


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A set whose solves would hold arrays of 72 MB at once."""
    path = tmp_path_factory.mktemp("plan") / "a.sl"
    shape = Shape(features=150_000, labels=5_000, features_per_row=20, labels_per_row=2)
    write(synthesise(shape, 4_000), path)
    return path


def train_within(budget, data, model, *options):
    """Peak resident bytes of training in a child, whose address space is limited too.

    Address space is more than memory: besides the budget it counts mapped files, the code of all libraries and 8 MB
    of stack and 64 MB of allocator arena for each thread, used or not. 4 GiB leave room for these on any machine of
    up to 16 cores and would still stop a fit that holds everything twice over.
    """
    room = budget + (4 << 30)
    settings = {**FIXED, "rank": 100, "n_features": 300, "calibrate": True}
    words = [w for name, v in settings.items() if name != "calibrate" for w in (f"--{name.replace('_', '-')}", str(v))]
    threads = {"OPENBLAS_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "4"}
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(budget), str(room), str(data), str(model), *words, *options],
        capture_output=True,
        text=True,
        env=os.environ | threads,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout.split()[-1]) << 10, ran.stderr


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not say its peak memory")
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="address space cannot be limited")
def test_the_peak_stays_within_the_budget_and_the_model_is_the_same(data, tmp_path):
    tight, roomy = 620 << 20, 4 << 30
    peak, said = train_within(tight, data, tmp_path / "a.safetensors")
    assert peak <= tight
    assert "Plan for 620M" in said
    larger, _ = train_within(roomy, data, tmp_path / "b.safetensors")
    assert peak < larger <= roomy  # so the plan did something
    a, b = (smoothlink.load(tmp_path / f"{name}.safetensors") for name in "ab")
    assert a.summary_["plan"]["columns"] < 120
    rng = np.random.default_rng(0)
    X = sp.random_array((50, 150_000), density=1e-3, rng=rng, format="csr")
    P, Q = a.predict_proba(X, labels=np.arange(0, 5_000, 10)), b.predict_proba(X, labels=np.arange(0, 5_000, 10))
    assert np.corrcoef(P.ravel(), Q.ravel())[0, 1] > 0.99


def test_too_small_a_budget_is_refused_before_anything_starts(data, tmp_path):
    from commands import run

    ran = run("train", data, "-o", tmp_path / "m.safetensors", "--memory", "300M", "--rank", "100")
    assert ran.code == 1
    assert "memory is 300M, and this fit needs at least" in ran.err
    assert "Allow memory=" in ran.err
    assert not (tmp_path / "m.safetensors").exists()
    assert CODE < 300 << 20
