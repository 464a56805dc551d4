"""Measures default and quick fits on held-out training rows: processor seconds, P@1, P@5, and what was chosen.

    python benchmarks/default_fit.py NAME ... [--tree FOLDER=LABEL ...] [--efforts full,quick] [--scratch FOLDER]

Every fifth training row of a set (of a random order, seed 7) is held out; test rows are not read. Each fit runs in a
process of its own with one thread, after a small fit that loads compiled loops. --tree names a checkout whose package
is measured, and the label of its figures; by default this one, as "after". Sets are read from $SMOOTHLINK_DATA, those
of text as benchmarks/vectorise.py wrote them to --scratch. Figures are added to results/choose/figures.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "choose" / "figures.json"
SHOWN = ("rank", "ridge", "bandwidth", "final_ridge", "loss", "passes", "random_features", "input_kernel", "trees")

CHILD = """
import json, sys, time
import smoothlink
import numpy as np
path, effort = sys.argv[1:]
data = smoothlink.read(path)
rng = np.random.default_rng(0)
few = rng.permutation(data.X.shape[0])[:300]
smoothlink.SmoothLinkClassifier(effort="quick").fit(data.X[few], data.Y[few])
order = np.random.default_rng(7).permutation(data.X.shape[0])
held, train = order[: len(order) // 5], np.sort(order[len(order) // 5 :])
X, Y = data.X[train], data.Y[train]
began = time.process_time()
model = smoothlink.SmoothLinkClassifier(effort=effort).fit(X, Y)
seconds = time.process_time() - began
metrics = model.evaluate(data.X[held], data.Y[held], bootstraps=0).metrics
found = {key: round(100 * float(metrics[key].value), 2) for key in ("p@1", "p@5") if key in metrics}
chosen = {key: model.summary_[key] for key in %r if key in model.summary_}
steps = {key: round(value, 3) for key, value in model.summary_["seconds"].items()}
print(json.dumps({"processor_seconds": round(seconds, 2), **found, "wall_seconds_by_step": steps, "chosen": chosen,
    "held_out_criterion": model.summary_["held_out_criterion"], "rows": len(train),
    "version": smoothlink.__version__, "package": smoothlink.__file__}))
"""


def path_of(name: str, scratch: Path) -> Path:
    """Returns the training file of a set."""
    folders = scratch / name, Path(os.environ["SMOOTHLINK_DATA"]) / name
    found = (folder / f"train.txt{end}" for folder in folders for end in ("", ".xz"))
    return next(path for path in found if path.exists())


def measure(tree: Path, path: Path, effort: str) -> dict[str, object]:
    """Fits in a process of its own with the package of a tree -> figures."""
    one = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**os.environ, **one, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-c", CHILD % (SHOWN,), str(path), effort]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{path} failed with effort {effort}:\n{ran.stderr}")
    found: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    if not Path(str(found.pop("package"))).is_relative_to(tree):
        sys.exit(f"smoothlink was not loaded from {tree / 'src'}.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--tree", action="append", help="FOLDER=LABEL")
    parser.add_argument("--efforts", default="full,quick")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/smoothlink-vectorised"))
    arguments = parser.parse_args()
    trees = [tree.rpartition("=")[::2] for tree in arguments.tree or [f"{ROOT}=after"]]
    for name in arguments.names:
        for effort in arguments.efforts.split(","):
            for folder, label in trees:
                cell = measure(Path(folder), path_of(name, arguments.scratch), effort)
                figures = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
                figures.setdefault(name, {})[f"{effort}, {label}"] = cell | {"date": str(date.today()), "threads": 1}
                RESULTS.parent.mkdir(parents=True, exist_ok=True)
                RESULTS.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
                shown = {key: cell[key] for key in ("processor_seconds", "p@1", "p@5", "accuracy") if key in cell}
                print(name, effort, label, shown, flush=True)


if __name__ == "__main__":
    main()
