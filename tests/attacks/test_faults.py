"""The short form of `make torture`: what is left after a step under the writing of a file fails or kills, or memory
runs out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).parents[1] / "torture"


@pytest.mark.skipif(sys.platform != "linux", reason="forks of this process and limits of files are those of Linux")
@pytest.mark.parametrize(
    "commands",
    [
        ["folder", "update"],
        pytest.param(
            ["train", "updatable", "forget", "add-labels", "refresh", "recalibrate-own", "serve", "watch"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_command_that_fails_or_dies_at_any_step_leaves_the_old_output_or_the_new_one(commands):
    ran = subprocess.run(
        [sys.executable, TORTURE / "faults.py", "--short", *commands], capture_output=True, text=True, check=False
    )
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [found["command"] for found in results] == commands, ran.stderr
    for found in results:
        assert found["failures"] == []
        assert found["steps"] >= 4
        assert found["refused"] > 0 < found["killed"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are those of Linux")
@pytest.mark.parametrize(
    "command", ["npz", *(pytest.param(name, marks=pytest.mark.slow) for name in ("train", "update"))]
)
def test_a_command_whose_memory_runs_out_says_so_and_leaves_the_old_output_or_the_new_one(command):
    ran = subprocess.run(
        [sys.executable, TORTURE / "allocations.py", "--short", command], capture_output=True, text=True, check=False
    )
    found = json.loads(ran.stdout or "{}")
    assert found, ran.stderr
    assert found["failures"] == []
    assert found["steps"] >= 3
    assert found["refused"] > 3
    assert found["passed"] > 0
    assert "killed" not in found


@pytest.mark.slow
def test_forged_models_are_refused_in_words_or_predict():
    ran = subprocess.run(
        [sys.executable, TORTURE / "forged_models.py", "--files", "500"], capture_output=True, text=True, check=False
    )
    found = json.loads(ran.stdout or "{}")
    assert found, ran.stderr
    assert found["failures"] == {}
    assert found["refused"] > 100 < found["loaded"]
