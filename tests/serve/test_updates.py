"""`serve --updatable`: what is acknowledged is never lost, and all workers soon know it."""

import concurrent.futures
import contextlib
import copy
import functools
import json
import os
import re
import resource
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
from smoothlink.modelfile import load
from smoothlink.serve import ServerSettings
from smoothlink.serve.updater import Updater, start
from smoothlink.serve.updates import UpdateClient

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and sockets are those of POSIX")
SOON = 20  # seconds on a busy machine; benchmarks/serve_updates.py measures how long it takes
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
        """The updater, which is started first, and the workers, if there are several."""
        children = psutil.Process(self.process.pid).children()
        spawned = [one for one in children if "spawn_main" in " ".join(one.cmdline())]
        updater, *workers = sorted(spawned, key=lambda one: one.create_time())
        return updater, workers


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


def label_counts(path):
    with LivingFile(path) as living:
        classifier = inside(living.model)
        return dict(zip(classifier.label_names_, classifier._living.label_rows.tolist(), strict=True))


@contextlib.contextmanager
def updating(path, folder, settings=None, **more):
    """The application and its updater in this process."""
    folder.mkdir()
    updater = Updater(str(path), folder, **more)
    start(updater)
    updates = UpdateClient(str(folder), load)
    try:
        with client(updates.model, settings, name="topics", updates=updates) as made:
            yield made, updater
    finally:
        updater.living.close()


def best(made, text):
    return made.post("/predict", json={"texts": [text], "k": 1}).json()["predictions"][0]["labels"][0]["label"]


def metric(made, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", made.get("/metrics").text, re.M).group(1))


def test_a_new_label_is_predicted_soon_and_counted(path, tmp_path):
    with updating(path, tmp_path / "shared") as (made, _):
        assert made.get("/model").json()["updatable"]
        response = made.post("/update", json=NEW)
        assert response.json() == {"rows": 40, "new_labels": ["band"]}
        assert until(lambda: best(made, "quince tin") == "band", SOON)
        (found,) = made.get("/labels?q=band").json()["labels"]
        assert found == {"label": "band", "name": "band", "number": 6, "count": 40}
        assert until(lambda: metric(made, "smoothlink_visible_seconds_count") == 1, SOON)
        assert metric(made, 'smoothlink_changes_total{kind="update"}') == 1
        assert metric(made, 'smoothlink_changed_rows_total{kind="update"}') == 40
    assert rows_of(path) == 161
    expected = copy.deepcopy(model()).update(NEW["texts"], NEW["labels"])
    with LivingFile(path) as living:
        found = living.model.predict_proba(["quince tin", "red fog"])
    np.testing.assert_allclose(found, expected.predict_proba(["quince tin", "red fog"]), atol=1e-6)


def test_a_row_that_is_forgotten_is_in_no_file_when_it_is_acknowledged(path, tmp_path):
    shared = tmp_path / "shared"

    def files():
        return [file for folder in (path.parent, shared) for file in folder.iterdir() if file.is_file()]

    def holds(text):
        """In bytes as they are, or in a vocabulary, which is packed."""
        models = [load(file) for file in files() if file.suffix == ".safetensors" and "-sums-" not in file.name]
        terms = {term for one in models for block in one.features_.blocks_ for term in block.terms}
        return text in terms or any(text.encode() in file.read_bytes() for file in files())

    with updating(path, shared) as (made, _):
        made.post("/update", json=NEW)
        assert holds("zyzzyva")
        assert holds("weevil")
        told = made.post("/forget", json=RARE).json()
        assert (told["rows"], told["labels_removed"], told["features_removed"]) == (1, 1, 1)
        assert "until the model is trained again" in told["approximate"]
        assert not holds("zyzzyva")
        assert not holds("weevil")
        assert made.post("/forget", json=RARE).status_code == 422
        assert until(lambda: made.get("/labels?q=weevil").json()["total"] == 0, SOON)
    assert rows_of(path) == 160
    assert label_counts(path)["band"] == 40


def test_updates_of_many_clients_at_once_are_all_there(path, tmp_path):
    """Some bring the same new label."""

    def send(i):
        return made.post("/update", json={"texts": [f"red fog {i}"], "labels": [[f"label {i % 3}", "fruit"]]})

    with updating(path, tmp_path / "shared") as (made, _), concurrent.futures.ThreadPoolExecutor(8) as threads:
        before = label_counts_of(made)
        responses = list(threads.map(send, range(24)))
    assert all(response.status_code == 200 for response in responses)
    assert sum(len(response.json()["new_labels"]) for response in responses) == 3
    assert rows_of(path) == 145
    counts = label_counts(path)
    assert [counts[f"label {i}"] for i in range(3)] == [8, 8, 8]
    assert counts["fruit"] == before["fruit"] + 24


def label_counts_of(made):
    return {one["label"]: one["count"] for one in made.get("/labels").json()["labels"]}


def test_the_journal_is_emptied_into_the_model_file_when_nothing_comes(path, tmp_path):
    with updating(path, tmp_path / "shared", save_after=0.05) as (made, updater):
        made.post("/update", json=NEW)
        assert until(lambda: updater.living.journal.path.read_bytes().count(b"\n") == 1, SOON)
        assert until(lambda: best(made, "quince tin") == "band", SOON)
    assert rows_of(path) == 161


WRONG = [
    ({"texts": ["a"]}, "labels: Field required"),
    ({"texts": ["a"], "labels": []}, "0 lists of labels and 1 rows; they must be as many"),
    ({"texts": ["a"], "labels": [["x"], ["y"]]}, "2 lists of labels and 1 rows; they must be as many"),
    ({"texts": ["a"], "labels": ["x"]}, "labels.0: Input should be a valid list"),
    ({"texts": ["a"], "labels": [[3]]}, "labels.0.0: Input should be a valid string"),
    ({"texts": ["a"], "labels": [[""]]}, "labels.0.0: String should have at least 1 character"),
    ({"labels": []}, 'send either "texts" or "vectors"'),
    ({"vectors": [{"indices": [0], "values": [1]}], "labels": [["x"]]}, 'This model takes texts: send {"texts"'),
    ({"texts": ["a"], "labels": [["x"]], "weights": [-1]}, "weights: Extra inputs are not permitted"),
    ({"texts": ["a"], "numbers": [[1.0]], "labels": [["x"]]}, "A text has 1 number beside it"),
]


def test_wrong_bodies_are_refused_in_words_and_leave_the_model_as_it_is(path, tmp_path):
    with updating(path, tmp_path / "shared", ServerSettings(max_rows=2, max_body=2000)) as (made, _):
        for route in ("/update", "/forget"):
            for body, reason in WRONG:
                response = made.post(route, json=body)
                assert response.status_code == 422
                assert reason in response.json()["reason"]
            assert made.post(route, json={"texts": ["a"] * 3, "labels": [["x"]] * 3}).status_code == 413
            assert made.post(route, json={"texts": ["a" * 2000], "labels": [["x"]]}).status_code == 413
            plain = made.post(route, content=json.dumps({"texts": ["a"], "labels": [["x"]]}).encode(), headers={})
            assert plain.status_code == 415
        for body, reason in [
            ({"texts": ["red fog"], "labels": [["fruit"]]}, "the model has no such row with these labels"),
            ({"texts": ["red fog"], "labels": [["okapi"]]}, "No row of the model has the label 'okapi'"),
        ]:
            refused = made.post("/forget", json=body)
            assert refused.status_code == 422
            assert reason in refused.json()["reason"]
    assert rows_of(path) == 121


def test_vectors_are_learnt_and_forgotten_by_label(tmp_path):
    path = tmp_path / "words.safetensors"
    vector_model(updatable=True).save(path)
    row = {"vectors": [{"indices": [3, 5], "values": [1.0, 2.0]}], "labels": [["2", "4"]]}
    with updating(path, tmp_path / "shared") as (made, updater):
        before = rows = len(updater.living.classifier._living.digests)
        for route, change in (("/update", 1), ("/forget", -1)):
            assert made.post(route, json=row).json()["rows"] == 1
            rows += change
            assert until(lambda: len(updater.living.classifier._living.digests) == rows, SOON)  # noqa: B023
        refused = made.post("/update", json={**row, "labels": [["okapi"]]})
        assert refused.status_code == 422
        assert "numbers from 0 to 5, and not 'okapi'" in refused.json()["reason"]
    with LivingFile(path) as living:
        assert len(living.classifier._living.digests) == before


def test_without_the_option_there_is_no_such_path(texts):
    assert not texts.get("/model").json()["updatable"]
    for route in ("/update", "/forget"):
        assert texts.post(route, json=NEW).status_code == 404


def test_without_the_token_nothing_is_changed(path, tmp_path):
    with updating(path, tmp_path / "shared", ServerSettings(token="s3cret")) as (made, _):
        for headers in ({}, {"Authorization": "Bearer other"}):
            for route in ("/update", "/forget"):
                assert made.post(route, json=NEW, headers=headers).status_code == 401
        assert made.post("/update", json=NEW, headers={"Authorization": "Bearer s3cret"}).status_code == 200
    assert rows_of(path) == 161


def test_a_full_disk_is_a_sentence_and_the_journal_stays_whole(path, tmp_path):
    with updating(path, tmp_path / "shared") as (made, updater):
        size = updater.living.journal.path.stat().st_size
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))
        try:
            response = made.post("/update", json=NEW)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert response.status_code == 507
        assert "Nothing was changed" in response.json()["reason"]
        assert made.post("/update", json=NEW).status_code == 200
    assert rows_of(path) == 161


def test_the_command_says_what_is_missing(path, tmp_path):
    plain = tmp_path / "plain.safetensors"
    text_model().save(plain)
    ran = run("serve", path, "--updatable", "--host", "0.0.0.0")
    assert ran.code == 1
    assert "whoever reaches this address could change the model" in ran.err
    assert "--token-file" in ran.err
    ran = run("serve", path, "--updatable", "--reload")
    assert ran.code == 1
    assert "without --reload" in ran.err


# With processes of their own


@pytest.mark.slow
def test_a_model_without_sums_is_refused_at_the_start(tmp_path):
    plain = tmp_path / "plain.safetensors"
    text_model().save(plain)
    ran = run("serve", plain, "--updatable", "--port", "0")
    assert ran.code == 1
    assert "--updatable" in ran.err


@pytest.mark.slow
def test_what_was_acknowledged_survives_the_kill_of_any_process(path):
    with served(path, "--workers", 2) as server:
        assert server.post("/update", **NEW)["rows"] == 40
        updater, workers = server.children()
        updater.kill()

        def update():
            with contextlib.suppress(urllib.error.HTTPError, urllib.error.URLError, ConnectionError):
                return server.post("/update", texts=["red fog"], labels=[["weather"]])["rows"] == 1

        assert until(update, 60)
        time.sleep(6)  # a worker that dies sooner could never start
        workers[0].kill()
        assert until(update, 60)
        for _ in range(20):  # both workers
            assert until(lambda: server.best("quince tin") == "band", SOON)
        everything = psutil.Process(server.process.pid).children(recursive=True)
        server.process.kill()
        for one in everything:
            one.kill()
        server.process.wait()
        assert not psutil.wait_procs(everything, SOON)[1]
    assert rows_of(path) == 121 + 40 + 2


@pytest.mark.slow
def test_sigterm_ends_the_server_with_all_that_was_acknowledged(path):
    with served(path) as server:
        server.post("/update", **NEW)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    assert rows_of(path) == 161
