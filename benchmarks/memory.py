"""Peak memory and processor seconds of whole processes that train: by the command, and from Python.

    python benchmarks/memory.py [SET ...]           # bibtex, delicious and cooking-stackexchange

Sets are read from $SMOOTHLINK_DATA, that of cooking questions from a folder that benchmarks/vectorise.py made, which
$SMOOTHLINK_VECTORISED names. Start-up, imports, reading and saving are included; compilation is not, since each
process runs twice and the first one fills the cache of compiled functions. The figures are in results/memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from results import DATA, results, store

SETS = ["bibtex", "delicious", "cooking-stackexchange"]
VECTORISED = Path(os.environ.get("SMOOTHLINK_VECTORISED", Path(tempfile.gettempdir()) / "smoothlink-vectorised"))
REPORT = "from resource import *; u = getrusage(RUSAGE_SELF); print('@', u.ru_maxrss, u.ru_utime + u.ru_stime)"
COMMAND = """
import atexit, sys
atexit.register(lambda: exec({report!r}))
from smoothlink.cli import main
main(["train", {file!r}, "-o", {model!r}, "--effort", {effort!r}])
"""
PYTHON = """
from smoothlink import SmoothLinkClassifier, read
data = read({file!r})
SmoothLinkClassifier(effort={effort!r}, random_state=0).fit(data.X, data.Y)
exec({report!r})
"""


def measure(code: str, **names: str) -> dict[str, float]:
    """Returns the peak in MB and the processor seconds of a process that runs the code."""
    done = subprocess.run(
        [sys.executable, "-c", code.format(report=REPORT, **names)], capture_output=True, text=True, check=True
    )
    peak, seconds = next(line for line in done.stdout.splitlines() if line.startswith("@ ")).split()[1:]
    return {"peak_mb": round(int(peak) / 1024, 1), "cpu": round(float(seconds), 1)}


def main() -> None:
    for name in sys.argv[1:] or SETS:
        vectorised = VECTORISED / name / "train.txt"
        file = str(vectorised if vectorised.exists() else DATA / name / "train.txt.xz")
        found: dict[str, Any] = {"command": f"python benchmarks/memory.py {name}"}
        with tempfile.TemporaryDirectory() as folder:
            for kind, code in (("train", COMMAND), ("fit", PYTHON)):
                for effort in ("full", "quick"):
                    names = {"file": file, "model": f"{folder}/{kind}-{effort}.smoothlink", "effort": effort}
                    measure(code, **names)
                    found[f"{kind}, {effort}"] = measure(code, **(names | {"model": f"{names['model']}2"}))
        store(results("memory"), name, found)
        print(name, found)


if __name__ == "__main__":
    main()
