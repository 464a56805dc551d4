"""`serve --updatable`: what is acknowledged is never lost, and all workers soon know it."""

import concurrent.futures
import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import psutil
import pytest
from commands import run
from served import TOPICS, client, text_model, vector_model
from small import FIXED

from smoothlink import TextSmoothLink
from smoothlink.data.matching import inside
from smoothlink.living.living_file import LivingFile

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and sockets are those of POSIX")
NEW = {"texts": ["quince tin quince tin"] * 40, "labels": [["band"]] * 40}  # whose label is new
RARE = {"texts": ["zyzzyva plum"], "labels": [["weevil"]]}  # a word and a label that no other row has


@functools.cache
def model():
    """Texts of two topics each, and one with a word and a label of its own."""
    rng = np.random.default_rng(2015)
    labels = [rng.choice(list(TOPICS), 2, replace=False).tolist() for _ in range(120)]
    texts = [" ".join(str(word) for topic in two for word in rng.choice(TOPICS[topic], 4)) for two in labels]
    made = TextSmoothLink(word_ngrams=(1, 1), char_ngrams=None, min_df=1, updatable=True, **FIXED)
    return made.fit([*texts, *RARE["texts"]], [*labels, *RARE["labels"]])


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "topics.safetensors"
    model().save(found)
    return found


class Served:
    """A running server."""

    def __init__(self, process, port, token=None):
        self.process, self.port, self.token = process, port, token

    def post(self, path, **body):
        headers = {"Content-Type": "application/json"}
        headers |= {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        sent = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(sent, timeout=60) as got:
            return json.load(got)

    def refusal(self, path, **body):
        with pytest.raises(urllib.error.HTTPError) as caught:
            self.post(path, **body)
        return caught.value.code, json.load(caught.value)["reason"]

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as got:
            return got.read().decode()

    def best(self, text):
        return self.post("/predict", texts=[text], k=1)["predictions"][0]["labels"][0]["label"]

    def children(self):
        """The updater, and the workers, if there are several."""
        spawned = [one for one in psutil.Process(self.process.pid).children() if "spawn_main" in " ".join(one.cmdline())]
        connected = {one.pid: [c for c in one.net_connections("unix") if c.laddr.endswith("/updater")] for one in spawned}
        listening = [one for one in spawned if any(c.status == "NONE" and c.laddr for c in connected[one.pid])]
        updater = min(listening, key=lambda one: one.create_time())
        return updater, [one for one in spawned if one != updater]


@contextlib.contextmanager
def served(path, *args, token=None):
    line = [sys.executable, "-m", "smoothlink", "serve", str(path), "--port", "0", "--updatable", *map(str, args)]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        said = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        assert found, said + process.stderr.read()
        yield Served(process, int(found.group(1)), token)
    finally:
        for one in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.kill()
        process.wait()
        process.stderr.close()


def until(condition, seconds):
    """Returns whether a condition came true within so many seconds."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def rows_of(path):
    """The rows that a model file and its journal hold."""
    with LivingFile(path) as living:
        return len(inside(living.model)._living.digests)


def test_a_new_label_is_soon_predicted_and_a_row_that_is_forgotten_leaves_no_bytes(path):
    with served(path) as server:
        assert server.post("/update", **NEW) == {"rows": 40, "new_labels": ["band"]}
        assert until(lambda: server.best("quince tin") == "band", 5)
        print(server.get("/metrics"))
        assert any(b"zyzzyva" in file.read_bytes() for file in path.parent.iterdir())
        told = server.post("/forget", **RARE)
        print(told, [f.name for f in path.parent.iterdir()])
        assert not any(b"zyzzyva" in file.read_bytes() for file in path.parent.iterdir())
        assert not any(b"weevil" in file.read_bytes() for file in path.parent.iterdir())
        print(server.children())
        print(psutil.Process(server.process.pid).children(recursive=True))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
    assert rows_of(path) == 160
