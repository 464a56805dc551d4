"""Default fits where labels are many and rows few: seconds, processor-seconds, peak memory, P@1 and P@5 of test rows.

    python benchmarks/more_labels_than_rows.py [made] [citeulike-t]

"made" is a synthetic set of 5,600 rows, 30,000 features (60 per row) and 7,795 labels (4 per row), seed 0, with 1,000
test rows; citeulike-t (20,780 rows, 20,000 features, 52,946 labels) is read from $SMOOTHLINK_DATA. Each fit runs in a
process of its own, reading the data included in the memory but not in the seconds. On a busy machine half of the
processor-seconds is what two cores need at least. The figures are in results/more_labels_than_rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from results import DATA, results, store

CHILD = """
import json, re, sys, time
import smoothlink
from smoothlink.synth import Shape, synthesise
if sys.argv[1] == "made":
    made = synthesise(Shape(30_000, 7_795, 60, 4, seed=0), 6_600)
    X, Y, T, U = made.X[:5_600], made.Y[:5_600], made.X[5_600:], made.Y[5_600:]
else:
    train, test = (smoothlink.read(f"{sys.argv[2]}/{sys.argv[1]}/{part}.txt.xz") for part in ("train", "test"))
    X, Y, T, U = train.X, train.Y, test.X, test.Y
began, processor = time.perf_counter(), time.process_time()
model = smoothlink.SmoothLinkClassifier().fit(X, Y)
found = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - processor}
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
metrics = model.evaluate(T, U, bootstraps=0).metrics
found |= {key: 100 * float(metrics[key].value) for key in ("p@1", "p@5")}
found = {key: round(value, 2) for key, value in found.items()} | {"peak_mb": round(peak * 1024 / 1e6)}
steps = {key: round(value, 2) for key, value in model.summary_["seconds"].items()}
chosen = {key: model.summary_[key] for key in ("rank", "kernel", "solver", "loss")}
print(json.dumps(found | {"seconds_by_step": steps, "chosen": chosen}))
"""


def measure(name: str) -> dict[str, Any]:
    """Fits one set in a process of its own -> figures."""
    ran = subprocess.run([sys.executable, "-c", CHILD, name, str(DATA)], capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"{name} failed:\n{ran.stderr}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    for name in sys.argv[1:] or ["made", "citeulike-t"]:
        found = measure(name)
        command = f"python benchmarks/more_labels_than_rows.py {name}"
        store(results("more_labels_than_rows"), name, found | {"seed": 0, "command": command})
        print(name, found, flush=True)


if __name__ == "__main__":
    main()
