"""Seconds to fit bibtex at fixed settings, next to omikuji's on the same file in the same run.

    python benchmarks/fit_time.py [DATA/bibtex/train.txt.xz]

Each fit runs in a process of its own, with two threads, best of three; interpreter start, reading of the file by
smoothlink and compilation are left out (a first fit warms the compiled kernels), and omikuji's own loading likewise.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "fit_time.json"
SETTINGS = "rank=112, ridge=1.0, bandwidth=2.0, final_ridge=1e-2, n_features=2000, loss='squared'"

OURS = """
import sys, json, smoothlink
from smoothlink import SmoothLinkClassifier, read
data = read(sys.argv[1])
for _ in range(2):
    clf = SmoothLinkClassifier({settings}).fit(data.X, data.Y)
print(json.dumps(sum(clf.summary_["seconds"].values())))
"""

OMIKUJI = """
import sys, json, time, omikuji
hyper = omikuji.Model.default_hyper_param()
for _ in range(2):
    began = time.perf_counter()
    omikuji.Model.train_on_data(sys.argv[1], hyper, n_threads=2)
    seconds = time.perf_counter() - began
print(json.dumps(seconds))
"""


def measure(code: str, path: str) -> float:
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    root = Path(os.environ.get("SMOOTHLINK_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    source = sys.argv[1] if len(sys.argv) > 1 else str(root / "bibtex" / "train.txt.xz")
    from smoothlink import read, write

    with tempfile.TemporaryDirectory() as folder:
        plain = str(Path(folder) / "train.txt")
        write(read(source), plain)
        times: dict[str, list[float]] = {"smoothlink": [], "omikuji": []}
        for _ in range(3):  # in turn, so that both meet the same load
            times["smoothlink"].append(measure(OURS.format(settings=SETTINGS), plain))
            times["omikuji"].append(measure(OMIKUJI, plain))
    record = {"date": date.today().isoformat(), "settings": SETTINGS, "omikuji": version("omikuji"), "seconds": times}
    RESULT.write_text(json.dumps(record, indent=1) + "\n")
    for name, seconds in times.items():
        print(f"{name:11s} best {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s")
    print(f"ratio of the best: {min(times['smoothlink']) / min(times['omikuji']):.2f}")


if __name__ == "__main__":
    main()
