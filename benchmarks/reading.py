"""How fast XMC text is written and read, in MB of plain text per second: `python benchmarks/reading.py [--mb 100]`."""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from smoothlink.data.matrices_from_rows import csr
from smoothlink.data.read import Data, read, write


def text_like(n: int, d: int = 200_000, c: int = 50_000, per_row: int = 80, labels: int = 4, seed: int = 0) -> Data:
    """Unit rows of term weights with six decimals, as the XMC sets have them."""
    rng = np.random.default_rng(seed)

    def ids(count: int, columns: int) -> np.ndarray:  # distinct in a row: one from each of `count` equal ranges
        width = columns // count
        return (rng.integers(width, size=(n, count)) + width * np.arange(count)).ravel().astype(np.int32)

    values = rng.lognormal(size=(n, per_row))
    values = np.round(values / np.linalg.norm(values, axis=1, keepdims=True), 6).ravel()
    X = csr(np.arange(n + 1) * per_row, ids(per_row, d), values.astype(np.float32), d)
    return Data(X, csr(np.arange(n + 1) * labels, ids(labels, c), None, c))


def best(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest run: other work on the machine only ever adds to them."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=100, help="size of the generated file")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "train.txt", Path(folder) / "small.txt"
        write(text_like(100), small)  # compiles
        read(small, threads=1)
        data = text_like(int(options.mb * 1e6 / (small.stat().st_size / 100)))
        seconds = best(lambda: write(data, path), 1)
        size = path.stat().st_size / 1e6
        print(f"{size:.0f} MB, {data.X.shape[0]} rows, {data.X.nnz} values, {os.cpu_count()} cores")
        print(f"write              {size / seconds:7.0f} MB/s")
        for threads in (1, 2):
            seconds = best(partial(read, path, threads=threads), options.repeats)
            print(f"read, {threads} thread{'s' * (threads > 1)}    {size / seconds:9.0f} MB/s")
        write(text_like(4000), small, format="svmlight")
        seconds = best(lambda: load_svmlight_file(str(small), multilabel=True), 1)
        print(f"scikit-learn       {small.stat().st_size / 1e6 / seconds:7.0f} MB/s (svmlight text)")


if __name__ == "__main__":
    main()
