"""`smoothlink serve --updatable` with 3,000 random features and 25,147 labels, as yso-finna-en has.

    python benchmarks/serve_updates.py make FOLDER      a made model of this size, with its sums (1 GB, some minutes)
    python benchmarks/serve_updates.py FOLDER           figures -> results/serve_updates/figures.json

Milliseconds until an update of one row is acknowledged, and seconds until the server predicts with it; what one
prediction takes meanwhile and without updates; rows per second in batches. One worker with one thread.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp

from results import results, versions

D, S, C, ROWS, LABELS_PER_ROW, ENTRIES = 20_000, 3_000, 25_147, 12_000, 5, 40
SEED = 0
PREDICTIONS, UPDATES, INTERVAL = 200, 25, 0.5  # requests, and seconds between updates
BATCHES, BATCH_ROWS = 8, 500


def made_rows(rng: np.random.Generator, n: int) -> tuple[sp.csr_array, sp.csr_array]:
    """Returns rows with features and labels of Zipf's frequencies, which have nothing to do with each other."""
    columns = np.minimum((D ** rng.random((n, ENTRIES))).astype(np.int32), D - 1)
    labels = np.minimum((C ** rng.random((n, LABELS_PER_ROW))).astype(np.int32), C - 1)
    labels[:, 0] = rng.integers(0, C, n)
    X, Y = (
        sp.csr_array((np.ones(found.size, np.float32), found.ravel(), np.arange(n + 1) * found.shape[1]), (n, width))
        for found, width in ((columns, D), (labels, C))
    )
    for matrix in (X, Y):
        matrix.sum_duplicates()
        matrix.data[:] = 1
    return X, Y


def make(path: Path) -> None:
    from smoothlink import SmoothLinkClassifier
    from smoothlink.choices import Gaussian

    X, Y = made_rows(np.random.default_rng(SEED), ROWS)
    model = SmoothLinkClassifier(
        rank=64,
        ridge=1.0,
        kernel=Gaussian(bandwidth=2.0, features=S),
        final_ridge=0.1,
        loss="squared",
        training="stepwise",
        calibrate=False,
        updatable=True,
        random_state=SEED,
        verbose=1,
    )
    began = time.perf_counter()
    model.fit(X, Y).save(path)
    print(f"{time.perf_counter() - began:.0f} s, {sorted((f.name, f.stat().st_size) for f in path.parent.iterdir())}")


class Connection:
    """A client of the server."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        text = response.read()
        assert response.status == 200, text
        return json.loads(text)

    def metric(self, name: str) -> float:
        self.connection.request("GET", "/metrics")
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.connection.getresponse().read().decode(), re.MULTILINE)
        return float(found.group(1)) if found else 0.0


def vectors(X: sp.csr_array) -> list[dict[str, Any]]:
    parts = [slice(X.indptr[i], X.indptr[i + 1]) for i in range(X.shape[0])]
    return [{"indices": X.indices[part].tolist(), "values": X.data[part].tolist()} for part in parts]


def names(Y: sp.csr_array) -> list[list[str]]:
    return [[str(j) for j in Y.indices[Y.indptr[i] : Y.indptr[i + 1]]] for i in range(Y.shape[0])]


def processor(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def predict(client: Connection, rows: list[dict[str, Any]], server: psutil.Process) -> dict[str, float]:
    """Returns what predictions of one row take, one after the other."""
    before, taken = processor(server), []
    for row in rows:
        began = time.perf_counter()
        client.post("/predict", {"vectors": [row], "k": 5})
        taken.append(1000 * (time.perf_counter() - began))
    return {
        "median_ms": statistics.median(taken),
        "least_ms": min(taken),
        "processor_ms": 1000 * (processor(server) - before) / len(rows),
    }


def measure(path: Path) -> dict[str, Any]:
    rng = np.random.default_rng(SEED + 1)
    X, Y = made_rows(rng, PREDICTIONS + UPDATES + BATCHES * BATCH_ROWS)
    rows, labels = vectors(X), names(Y)
    asked, sent = rows[:PREDICTIONS], slice(PREDICTIONS, PREDICTIONS + UPDATES)
    line = [sys.executable, "-m", "smoothlink", "serve", str(path), "--updatable", "--port", "0", "--threads", "1"]
    began = time.perf_counter()
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        said = process.stderr.readline()  # type: ignore[union-attr]
        port = int(re.search(r":(\d+)", said).group(1))  # type: ignore[union-attr]
        found: dict[str, Any] = {"load_before": os.getloadavg()[0], "cores": os.cpu_count()}
        client, server = Connection(port), psutil.Process(process.pid)
        predict(client, asked[:20], server)
        found["start_seconds"] = time.perf_counter() - began
        updater = max(server.children(), key=lambda one: one.memory_info().rss)
        found["prediction"] = {"without_updates": predict(client, asked, server)}
        acknowledged, stop = list[float](), threading.Event()

        def update() -> None:
            other = Connection(port)
            for i in range(sent.start, sent.stop):
                start = time.perf_counter()
                other.post("/update", {"vectors": [rows[i]], "labels": [labels[i]]})
                acknowledged.append(1000 * (time.perf_counter() - start))
                time.sleep(INTERVAL)
            stop.set()

        thread, before = threading.Thread(target=update), processor(updater)
        thread.start()
        taken = []
        while not stop.is_set():
            taken.append(predict(client, asked[:20], server))
        thread.join()
        found["prediction"]["meanwhile"] = {
            "median_ms": statistics.median(one["median_ms"] for one in taken),
            "least_ms": min(one["least_ms"] for one in taken),
            "processor_ms": statistics.mean(one["processor_ms"] for one in taken),
        }
        wait_visible(client, UPDATES)
        seconds = client.metric("smoothlink_visible_seconds_sum")
        found["one_row"] = {
            "acknowledged_median_ms": statistics.median(acknowledged),
            "acknowledged_least_ms": min(acknowledged),
            "acknowledged_most_ms": max(acknowledged),
            "visible_mean_seconds": seconds / UPDATES,
            "updater_processor_ms": 1000 * (processor(updater) - before) / UPDATES,
        }
        before, began = processor(updater), time.perf_counter()
        for i in range(BATCHES):
            part = slice(sent.stop + i * BATCH_ROWS, sent.stop + (i + 1) * BATCH_ROWS)
            client.post("/update", {"vectors": rows[part], "labels": labels[part]})
        acked, used = time.perf_counter() - began, processor(updater) - before
        wait_visible(client, UPDATES + BATCHES)
        found["batches"] = {
            "rows": BATCHES * BATCH_ROWS,
            "acknowledged_rows_per_second": BATCHES * BATCH_ROWS / acked,
            "updater_processor_seconds_until_acknowledged": used,
            "visible_after_seconds": time.perf_counter() - began,
            "updater_processor_seconds_until_visible": processor(updater) - before,
        }
        found["load_after"] = os.getloadavg()[0]
        return found
    finally:
        for one in psutil.Process(process.pid).children(recursive=True):
            one.kill()
        process.kill()
        process.wait()


def wait_visible(client: Connection, count: int) -> None:
    end = time.monotonic() + 600
    while client.metric("smoothlink_visible_seconds_count") < count and time.monotonic() < end:
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="[make] FOLDER")
    words = parser.parse_args().words
    path = Path(words[-1]) / "made.safetensors"
    if words[0] == "make":
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
        return
    found = measure(path)
    stated = {"command": "python benchmarks/serve_updates.py FOLDER", "seed": SEED, "date": date.today().isoformat()}
    target = results("serve_updates")
    target.parent.mkdir(parents=True, exist_ok=True)
    size = {"random_features": S, "labels": C, "features": D, "training_rows": ROWS, "workers": 1, "threads": 1}
    target.write_text(json.dumps({**stated, "versions": versions(), "model": size, **found}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
