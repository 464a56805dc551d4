"""The running server: how it starts, stops and restarts its workers, and what happens when its model file changes."""

import gc
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import weakref
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
import uvicorn
from fastapi.testclient import TestClient
from plain_server import HANGING
from served import client, listening, text_model

from smoothlink.errors import ModelFileError, SmoothLinkError
from smoothlink.serve import ServerSettings, create_app
from smoothlink.serve.prometheus import MULTIPROCESS_FOLDER
from smoothlink.serve.server import (
    SHORT_LIFE,
    STOPPING_SIGNALS,
    AppFactory,
    ReloadingApp,
    WatchedModel,
    Workers,
    fingerprint,
    listen,
)

PLAIN_SERVER = Path(__file__).parents[1] / "plain_server.py"
POST = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
MAPPED, READ = 0, 1 << 30  # bytes up to which a model is read into memory
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("serve") / "topics.safetensors"
    text_model().save(path)
    return path


@contextmanager
def command(model, *args):
    """`smoothlink serve` in a process of its own: the process and its address."""
    line = [sys.executable, "-m", "smoothlink", "serve", str(model), "--port", "0", *args]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, line + process.stderr.read()
        yield process, int(found.group(1))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def send(port, path, body=None, **headers):
    headers |= {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers), timeout=60
    ) as got:
        return got.read().decode()


def test_sigterm_finishes_what_is_running(model):
    body = json.dumps({"texts": ["apple iron"], "k": 1}).encode()
    head = f"{POST}Content-Length: {len(body)}\r\n\r\n"
    with command(model) as (process, port):
        assert send(port, "/health") == '{"status":"ok"}'
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(head.encode() + body[:10])
            time.sleep(0.2)  # until the server has read the head
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            connection.sendall(body[10:])
            response = connection.makefile("rb").read().decode()
        assert response.startswith("HTTP/1.1 200 OK")
        assert '"label"' in response
        assert process.wait(20) == 0
        with pytest.raises(OSError, match="refused"):
            send(port, "/health")


@pytest.mark.slow
def test_workers_share_a_port_and_their_counts_and_are_replaced_by_the_same_model_or_none(tmp_path):
    path, token = tmp_path / "topics.safetensors", tmp_path / "token"
    text_model().save(path)
    token.write_text("s3cret\n")
    token.chmod(0o600)
    header = {"Authorization": "Bearer s3cret"}
    with command(path, "--workers", "2", "--token-file", token) as (process, port):

        def workers():
            children = psutil.Process(process.pid).children()
            return [child for child in children if "spawn_main" in " ".join(child.cmdline())]

        for killed in range(2):
            for _ in range(40):
                send(port, "/predict", {"texts": ["apple"]}, **header)
            assert f'status="200"}} {40 + 40 * killed}.0\n' in send(port, "/metrics", **header)
            if not killed:
                time.sleep(6)  # a worker that dies sooner could never start
                workers()[0].kill()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            send(port, "/metrics")
        time.sleep(8)
        assert len(workers()) == 2
        text_model(final_ridge=100.0).save(path)
        workers()[0].kill()
        assert process.wait(120) == 1
        assert "changed since the server was started" in (message := process.stderr.read())
        assert "all are stopped" in message


@pytest.mark.slow
def test_sigterm_stops_all_workers(model):
    with command(model, "--workers", "2") as (process, port):
        send(port, "/predict", {"texts": ["apple"]})
        workers = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
        assert not psutil.wait_procs(workers, timeout=10)[1]


@contextmanager
def plain_server():
    """Two workers that serve: the supervisor, its workers and the port."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and a process inherits that
    try:
        started = [sys.executable, str(PLAIN_SERVER)]
        process = subprocess.Popen(started, stdout=subprocess.PIPE, text=True, env=environment)
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        port = int(process.stdout.readline())
        assert send(port, "/") == "ok"
        workers = psutil.Process(process.pid).children()
        wait(lambda: sum(psutil.pid_exists(one.pid) and bool(one.net_connections()) for one in workers) >= 2)
        yield process, workers, port
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_workers_end_when_their_supervisor_does(number):
    with plain_server() as (process, workers, port):
        process.send_signal(number)
        assert not psutil.wait_procs(workers, timeout=20)[1]
        with pytest.raises(OSError, match="refused"):
            send(port, "/")


@pytest.mark.slow
def test_workers_that_were_stopped_with_their_supervisor_go_on_with_it():
    with plain_server() as (process, workers, port):
        for one in (process, *workers):
            one.send_signal(signal.SIGSTOP)
        time.sleep(HANGING + 1)
        process.send_signal(signal.SIGCONT)
        time.sleep(1)  # in which it looks at its workers
        for one in workers:
            one.send_signal(signal.SIGCONT)
        assert send(port, "/") == "ok"
        assert psutil.Process(process.pid).children() == workers


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced():
    with plain_server() as (process, workers, port):
        time.sleep(SHORT_LIFE)
        workers[-1].send_signal(signal.SIGSTOP)
        wait(lambda: workers[-1] not in psutil.Process(process.pid).children())
        assert send(port, "/") == "ok"


class EndsWhileAsked:
    """An application whose worker ends before it gives a sign of life, and after it was asked for one."""

    def __reduce__(self):
        return exec, ("import os, time; time.sleep(3); os._exit(7)",)


@pytest.mark.parametrize(
    ("factory", "code"),
    [(partial(os._exit, 7), 7), (partial(signal.raise_signal, signal.SIGKILL), signal.SIGKILL), (EndsWhileAsked(), 7)],
)
def test_workers_that_cannot_start_are_not_started_for_ever(factory, code, tmp_path, monkeypatch):
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    handlers = {number: signal.getsignal(number) for number in STOPPING_SIGNALS}
    try:
        with listen("127.0.0.1", 0) as listening, pytest.raises(SmoothLinkError, match=f"code -?{code:d}"):
            Workers(uvicorn.Config(factory, factory=True, workers=1), [listening]).run()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_what_is_not_http_is_refused_in_json(address, rng):
    port = int(address.rsplit(":", 1)[1])
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(rng.bytes(20) + b"\r\n\r\n")
            head, _, body = connection.makefile("rb").read().decode().partition("\r\n\r\n")
            assert head.startswith("HTTP/1.1 400 ")
            assert json.loads(body)["status"] == 400
    assert "ok" in send(port, "/health")


def test_a_request_that_does_not_arrive_is_given_up():
    with listening(text_model(), ServerSettings(timeout=0.2)) as address:
        with socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1])), timeout=5) as connection:
            connection.sendall(f"{POST}Content-Length: 100\r\n\r\n{{".encode())
            response = connection.makefile("rb").read().decode()
        assert response.startswith("HTTP/1.1 408 ")
        assert "within 0.2 s" in response


@pytest.fixture
def path(tmp_path):
    text_model().save(tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


@pytest.fixture
def other(tmp_path):
    text_model(final_ridge=100.0).save(tmp_path / "other.safetensors")
    return tmp_path / "other.safetensors"


def served(path, in_memory):
    watched = WatchedModel(str(path), in_memory)
    return client(watched.model, check=watched.check)


def predict(app):
    return app.post("/predict", json={"texts": ["apple iron rain", "seven red"], "k": 5})


def test_the_two_models_predict_differently(path, other):
    assert predict(served(path, READ)).json() != predict(served(other, READ)).json()


def overwrite(path, other):
    shutil.copyfile(other, path)


def truncate(path, other):
    os.truncate(path, 1000)


def replace(path, other):
    other.rename(path)


def remove(path, other):
    path.unlink()


@pytest.mark.parametrize(
    ("in_memory", "change"),
    [(READ, overwrite), (READ, truncate), (READ, replace), (READ, remove), (MAPPED, replace), (MAPPED, remove)],
)
def test_a_changed_file_is_logged_once_and_the_model_is_served_as_before(path, other, caplog, in_memory, change):
    app = served(path, in_memory)
    before = predict(app).json()
    with caplog.at_level(logging.WARNING):
        change(path, other)
        for _ in range(3):
            assert predict(app).json() == before
        assert app.get("/health").status_code == 200
    assert [record.message for record in caplog.records if "smoothlink.serve" in record.name] == [
        f"{path} changed. The server goes on with the model that it loaded."
    ]


@pytest.mark.parametrize("change", [overwrite, truncate])
def test_requests_are_refused_when_a_mapped_file_was_written_to(path, other, caplog, change):
    app, whole = served(path, MAPPED), path.read_bytes()
    before = predict(app).json()
    change(path, other)
    explain = {"text": "apple", "labels": ["fruit"]}
    reads = [app.get(path) for path in ("/health", "/labels", "/model")]
    for response in (predict(app), app.post("/explain", json=explain), *reads):
        assert response.status_code == 503
        assert "overwritten while it was served" in response.json()["reason"]
    assert "by mv, not cp" in caplog.text
    path.write_bytes(whole)
    assert predict(app).json() == before


def test_a_file_whose_time_alone_changed_is_the_same(path, caplog):
    app = served(path, MAPPED)
    os.utime(path, (1, 1))
    assert predict(app).status_code == 200
    assert caplog.text == ""


def test_damage_that_is_found_while_serving_is_reported_without_the_path(caplog):
    def check():
        raise ModelFileError("/secret/m.safetensors is damaged")

    response = predict(client(text_model(), check=check))
    assert response.status_code == 503
    assert "secret" not in response.text
    assert "/secret/m.safetensors is damaged" in caplog.text


def test_a_process_that_is_started_later_serves_the_same_model_or_none(path, other):
    factory = AppFactory(str(path), ServerSettings(), 2, fingerprint(str(path)))
    factory()
    replace(path, other)
    with pytest.raises(SystemExit, match="changed since the server was started"):
        factory()


def test_with_reload_a_process_that_is_started_later_waits_for_a_model(path, other, caplog):
    factory = AppFactory(str(path), ServerSettings(reload=True), 2, fingerprint(str(path)))
    path.write_bytes(b"no model")
    threading.Thread(target=lambda: (wait(lambda: "waits for another" in caplog.text), replace(path, other))).start()
    assert predict(TestClient(factory())).status_code == 200
    assert caplog.text.count("waits for another") == 1


def test_with_reload_a_server_does_not_start_with_a_broken_file(path):
    path.write_bytes(b"no model")
    with pytest.raises(SystemExit, match="is not a safetensors file"):
        AppFactory(str(path), ServerSettings(reload=True), 2, fingerprint(str(path)))()


def test_with_reload_a_changed_file_is_served_and_a_broken_one_is_not(path, other, caplog):
    def make():
        watched = WatchedModel(str(path), READ, verify="now")
        return create_app(watched.model, check=watched.check), watched

    app = TestClient(ReloadingApp(make, interval=0.05))
    before, after = predict(app).json(), predict(served(other, READ)).json()
    path.write_bytes(b"no model")
    wait(lambda: "The changed model is not served" in caplog.text)
    assert predict(app).json() == before
    replace(path, other)
    wait(lambda: predict(app).json() == after)


def test_a_model_that_was_replaced_is_not_kept_in_memory(path):
    def use():
        watched = WatchedModel(str(path), READ)
        app = TestClient(create_app(watched.model, check=watched.check))
        answers = [predict(app), app.post("/explain", json={"text": "apple"}), app.get("/labels"), app.get("/model")]
        assert {answer.status_code for answer in answers} == {200}
        return weakref.ref(watched.model)

    used = use()
    gc.collect()
    assert used() is None


def wait(done):
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)
