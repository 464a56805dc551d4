"""The short form of the server's torture: a reload, a killed worker, hostile clients, and a stop under load."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from served import TOPICS, text_model

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serve_torture.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it counts memory as Linux does, and sends from 127.0.0.2")
def test_no_request_is_lost_and_each_gets_the_response_of_one_model(tmp_path):
    models = [tmp_path / "first.safetensors", tmp_path / "second.safetensors"]
    text_model().save(models[0])
    text_model(final_ridge=100.0).save(models[1])
    (tmp_path / "texts").write_text("\n".join(f"{a} {b}" for a in TOPICS["fruit"] for b in TOPICS["metal"]))
    given = ["--models", *map(str, models), "--texts", str(tmp_path / "texts")]
    options = ["--seconds", "26", "--rate", "40", "--kill", "15", "--reload", "9", "--output", str(tmp_path / "found")]
    ran = subprocess.run([sys.executable, str(SCRIPT), *given, *options], capture_output=True)
    assert ran.returncode == 0, ran.stdout.decode() + ran.stderr.decode()
    counts = json.loads((tmp_path / "found").read_text())["counts"]
    assert counts["workers killed"] == 1
    assert counts["models replaced"] == 2
    assert min(counts["model 0"], counts["model 1"]) > 0
    assert {"lost", "of neither model"}.isdisjoint(counts)
