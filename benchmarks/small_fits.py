"""Default fits of small sets with the package of several checkouts, on held-out training rows.

    python benchmarks/small_fits.py NAME ... [--tree FOLDER=LABEL ...] [--seeds 0,1] [--efforts full]

A third of the training rows of a set is held out, by the seed; test rows are not read. Each fit runs in a process of
its own with one thread, after a fit of a few rows, and reports processor seconds, those of each step, P@1, P@5
and how far its probabilities can be believed (`benchmarks/calibration.py`). Figures are added to
results/small_fits/figures.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import default_fit
import numpy as np

from results import results, store

SHOWN = ("p@1", "p@5", "ece_top", "ece_pairs", "logloss")


def measure(path: str, effort: str, seed: int) -> dict[str, Any]:
    """Returns the figures of one fit in this process."""
    import time

    import scipy.sparse as sp
    from calibration import measured

    import smoothlink

    data = smoothlink.read(path)
    X, Y = sp.csr_array(data.X), sp.csr_array(data.Y)
    order = np.random.default_rng(seed).permutation(X.shape[0])
    held, fitted = order[: len(order) // 3], np.sort(order[len(order) // 3 :])
    smoothlink.SmoothLinkClassifier(random_state=0).fit(X[:64], Y[:64])
    began = time.process_time()
    model = smoothlink.SmoothLinkClassifier(effort=effort, random_state=seed).fit(X[fitted], Y[fitted])
    seconds = time.process_time() - began
    found = measured(model, X[held], Y[held])
    chosen = {key: model.summary_[key] for key in default_fit.SHOWN if key in model.summary_}
    steps = {key: round(value, 3) for key, value in model.summary_["seconds"].items()}
    figures = {key: round(found[key], 5) for key in SHOWN}
    return {"processor_seconds": round(seconds, 2), **figures, "wall_seconds_by_step": steps, "chosen": chosen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--tree", action="append", help="FOLDER=LABEL")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--efforts", default="full")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/smoothlink-vectorised"))
    given = parser.parse_args()
    for name in given.names:
        path = str(default_fit.path_of(name, given.scratch))
        for seed in map(int, given.seeds.split(",")):
            for effort in given.efforts.split(","):
                for tree in given.tree or [f"{default_fit.ROOT}=after"]:
                    folder, _, label = tree.rpartition("=")
                    code = f"import small_fits as s; print(s.json.dumps(s.measure({path!r}, {effort!r}, {seed})))"
                    one = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "NUMBA", "OPENBLAS")}
                    places = f"{folder}/src{os.pathsep}{Path(__file__).parent}"
                    ran = subprocess.run(
                        [sys.executable, "-c", code],
                        env={**os.environ, **one, "PYTHONPATH": places},
                        capture_output=True,
                        text=True,
                    )
                    if ran.returncode:
                        sys.exit(f"{name} failed with {tree}:\n{ran.stderr}")
                    cell = json.loads(ran.stdout.splitlines()[-1])
                    store(results("small_fits"), f"{name}, seed {seed}, {effort}, {label}", cell)
                    shown = {key: cell[key] for key in ("processor_seconds", *SHOWN, "wall_seconds_by_step", "chosen")}
                    print(name, seed, effort, label, *shown.values(), flush=True)


if __name__ == "__main__":
    main()
