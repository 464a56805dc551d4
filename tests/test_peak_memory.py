"""What a whole process takes to train on a small set: imports, compiled loops and the fit."""

import subprocess
import sys

import pytest

TRAIN = """
import atexit

def peak():  # ru_maxrss would begin with that of the process that started this one
    return next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1]

atexit.register(lambda: print("peak", peak()))
from smoothlink.cli import main
main(["train", "train.txt", "-o", "model{number}.smoothlink"])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say their peak memory")
def test_the_command_trains_on_a_set_of_the_size_of_bibtex_in_450_mb(tmp_path):
    shape = {"rows": 4880, "features": 1836, "labels": 159, "features-per-row": 68, "labels-per-row": 2.4}
    options = [f"--{name}={value}" for name, value in shape.items()]
    subprocess.run([sys.executable, "-m", "smoothlink", "synth", "train.txt", *options], cwd=tmp_path, check=True)
    peaks = []
    for number in range(2):  # the first one may compile
        code = TRAIN.format(number=number)
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split("peak")[-1]) / 1024)
    assert min(peaks) < 450
