"""The running server: how it starts, stops and restarts its workers, and what happens when its model file changes."""

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
import uvicorn
from fastapi.testclient import TestClient
from plain_server import HANGING
from served import client, listening, text_model

from smoothlink.errors import ModelFileError, SmoothLinkError
from smoothlink.serve import ServerSettings
from smoothlink.serve.prometheus import MULTIPROCESS_FOLDER
from smoothlink.serve.server import (
    STOPPING_SIGNALS,
    AppFactory,
    ModelFileContent,
    WatchedModel,
    Workers,
    fingerprint,
    listen,
)

PLAIN_SERVER = Path(__file__).parents[1] / "plain_server.py"
POST = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PREDICT = {"texts": ["apple iron rain", "seven red"], "k": 5}
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
            return workers_of(process)

        for killed in range(2):
            for _ in range(40):
                send(port, "/predict", {"texts": ["apple"]}, **header)
            assert f'status="200"}} {40 + 40 * killed}.0\n' in send(port, "/metrics", **header)
            if not killed:
                wait_for_all(workers(), port)
                workers()[0].kill()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            send(port, "/metrics")
        wait(lambda: len(workers()) == 2)
        wait_for_all(workers(), port)
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
def plain_server(*arguments, response="ok"):
    """Two workers that serve: the supervisor, its workers and the port."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and a process inherits that
    try:
        started = [sys.executable, str(PLAIN_SERVER), *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(started, text=True, env=environment, **pipes)
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        port = int(process.stdout.readline())
        assert send(port, "/") == response
        workers = psutil.Process(process.pid).children()
        wait_for_all(workers_of(process), port)
        yield process, workers, port
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def workers_of(supervisor):
    """Returns the worker processes; the supervisor has another child, which tracks what they share."""
    found = []
    for child in psutil.Process(supervisor.pid).children():
        with suppress(psutil.NoSuchProcess):  # it ended just now
            found += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    return found


def wait_for_all(workers, port):
    """Waits until each of the workers accepts connections."""
    with ExitStack() as connections:

        def all_do():
            connections.enter_context(socket.create_connection(("127.0.0.1", port)))
            return all(any(one.status == "ESTABLISHED" for one in worker.net_connections()) for worker in workers)

        wait(all_do)


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
    return app.post("/predict", json=PREDICT)


def served_by(port):
    return json.loads(send(port, "/predict", PREDICT))


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


def lines_of(stream):
    """Returns the list that the lines of a stream are added to as they come."""
    lines = []
    threading.Thread(target=lambda: lines.extend(iter(stream.readline, "")), daemon=True).start()
    return lines


def test_with_reload_workers_are_replaced_one_after_the_other_and_no_request_is_cut(tmp_path):
    file = tmp_path / "content"
    file.write_text("first")
    with plain_server(file, response="first") as (process, _, port):
        lines, former, ended = lines_of(process.stderr), workers_of(process), threading.Event()
        file.write_text("broken")
        wait(lambda: any("The changed model is not served: its process ended with code 3." in one for one in lines))

        def responses():
            got = {send(port, "/")}
            while not ended.is_set():
                got.add(send(port, "/"))
            return got

        with ThreadPoolExecutor(4) as threads:
            running = [threads.submit(responses) for _ in range(4)]
            file.write_text("second")
            wait(lambda: any("The model file changed: the new model is served." in one for one in lines))
            assert not psutil.wait_procs(former, timeout=60)[1]
            ended.set()
            assert {response for one in running for response in one.result()} == {"first", "second"}
        assert {send(port, "/") for _ in range(10)} == {"second"}
        wait(lambda: len(workers_of(process)) == 2)


def test_a_file_that_changes_again_while_workers_are_replaced_is_served_by_all_in_the_end(tmp_path):
    file = tmp_path / "content"
    file.write_text("first")
    with plain_server(file, response="first") as (process, _, port):
        file.write_text("slow")
        wait(lambda: len(workers_of(process)) == 3)
        file.write_text("third")
        wait(lambda: {send(port, "/") for _ in range(20)} == {"third"})
        wait(lambda: len(workers_of(process)) == 2)
        assert {send(port, "/") for _ in range(20)} == {"third"}


def test_a_server_that_ends_while_a_worker_starts_leaves_no_process(tmp_path):
    file = tmp_path / "content"
    file.write_text("first")
    with plain_server(file, response="first") as (process, _, _):
        file.write_text("slow")
        wait(lambda: len(workers_of(process)) == 3)
        workers = workers_of(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not psutil.wait_procs(workers, timeout=20)[1]


@pytest.mark.slow
def test_a_server_that_follows_a_file_replaces_a_killed_worker_even_if_the_next_cannot_start(tmp_path):
    file = tmp_path / "content"
    file.write_text("first")
    with plain_server(file, response="first") as (process, _, port):
        lines = lines_of(process.stderr)
        file.write_text("broken")
        wait(lambda: any("not served" in one for one in lines))
        workers_of(process)[0].kill()
        wait(lambda: sum("another one is started" in one for one in lines) >= 2)
        assert send(port, "/") == "first"
        file.write_text("third")
        wait(lambda: {send(port, "/") for _ in range(20)} == {"third"})


@pytest.mark.slow
def test_with_reload_a_changed_model_is_served_and_what_is_no_model_is_not(tmp_path):
    path, other = tmp_path / "topics.safetensors", tmp_path / "other.safetensors"
    text_model().save(path)
    text_model(final_ridge=100.0).save(other)
    before, after = (predict(served(one, READ)).json() for one in (path, other))
    with command(path, "--reload") as (process, port):
        lines = lines_of(process.stderr)
        wait(lambda: served_by(port) == before)
        path.write_bytes(b"no model")
        wait(lambda: any("waits for another model file" in one for one in lines))
        assert served_by(port) == before
        replace(path, other)
        wait(lambda: served_by(port) == after)


def test_a_changed_file_has_another_content_once_it_is_no_longer_written(path, other):
    now = [0.0]
    file = ModelFileContent(str(path), seconds=1.0, clock=lambda: now[0])
    first, second = fingerprint(str(path)), fingerprint(str(other))

    def look_at(seconds):
        now[0] = seconds
        return file.look()

    assert look_at(0.0) == first
    os.utime(path, (1, 1))
    assert (look_at(1.0), look_at(3.0)) == (first, first)
    path.write_bytes(b"no")
    assert (look_at(4.0), look_at(4.9)) == (first, first)
    shutil.copyfile(other, path)
    assert (look_at(5.0), look_at(5.9)) == (first, first)
    assert look_at(6.0) == second
    path.unlink()
    assert (look_at(7.0), look_at(9.0)) == (second, second)


def wait(done):
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)
