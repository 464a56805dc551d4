"""How many directions joint training needs: the evidence of decision 52.

    python benchmarks/joint_rank.py [--set yso-finna-en] [--device cuda] [--ranks 256 384 512] [--seeds 0 1 2]

Held-out training rows are scored, test rows are not read. Not calibrated: labels are ranked by their scores. On a
device batches are as large as on the host, so that both take the same steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from bench.circumstances import RESULTS, store
from bench.gpu_measure import device_name, versions
from bench.gpu_pack import data_folder, rows_of

from smoothlink import Joint, SmoothLinkClassifier
from smoothlink.joint.joint_training import NEGATIVES


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", default="yso-finna-en", metavar="SET")
    parser.add_argument("--data", metavar="FOLDER", help="where the data sets are, if not in $SMOOTHLINK_DATA")
    parser.add_argument("--device", default="cpu", metavar="NAME")
    parser.add_argument("--ranks", type=int, nargs="+", default=[256, 384, 512], metavar="K")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--held", type=int, default=20_000, metavar="ROWS", help="training rows that are held out")
    parser.add_argument("--results", type=Path, default=RESULTS / "joint_rank", metavar="FOLDER")
    given = parser.parse_args(words)
    train = rows_of(data_folder(given.data), given.set).train
    X, Y = sp.csr_array(train.X), sp.csr_array(train.Y)
    held, fitted = np.split(np.random.default_rng(123).permutation(X.shape[0]), [given.held])
    fitted = np.sort(fitted)
    training = Joint(batch_rows=NEGATIVES.batch_rows)
    sizes = f"--ranks {' '.join(map(str, given.ranks))} --seeds {' '.join(map(str, given.seeds))} --held {given.held}"
    found: dict[str, Any] = {
        "date": date.today().isoformat(),
        "command": f"python benchmarks/joint_rank.py --set {given.set} --device {given.device} {sizes}",
        "device": device_name(given.device),
        "versions": versions(given.device),
        "fits": [],
    }
    for seed in given.seeds:
        for rank in given.ranks:
            began = time.perf_counter()
            model = SmoothLinkClassifier(
                training=training, rank=rank, random_state=seed, device=given.device, calibrate=False
            ).fit(X[fitted], Y[fitted])
            seconds = time.perf_counter() - began
            metrics = model.evaluate(X[held], Y[held], bootstraps=1).metrics
            figures = {key: round(100 * metrics[key].value, 2) for key in ("p@1", "p@5")}
            found["fits"].append({"rank": rank, "seed": seed, **figures, "seconds": round(seconds, 1)})
            print(found["fits"][-1], flush=True)
            store(found, given.results / f"{given.set}.json")


if __name__ == "__main__":
    main()
