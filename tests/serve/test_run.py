"""The command: where it listens, what it says, how it stops, and several processes."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import psutil
import pytest
from commands import run
from served import listening, text_model

from smoothlink.cli.serve_command import settled_threads
from smoothlink.errors import SmoothLinkError
from smoothlink.serve import Settings
from smoothlink.serve.server import bound
from smoothlink.serve.workers import supervise

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
        told = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", told)
        assert found, told + process.stderr.read()
        yield process, int(found.group(1))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def ask(port, path, body=None, **headers):
    headers |= {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers), timeout=20
    ) as got:
        return got.read().decode()


def test_sigterm_finishes_what_is_running(model):
    body = json.dumps({"texts": ["apple iron"], "k": 1}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with command(model) as (process, port):
        assert ask(port, "/health") == '{"status":"ok"}'
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(head.encode() + body[:10])
            time.sleep(0.2)  # until the server has read the head
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            connection.sendall(body[10:])
            answer = connection.makefile("rb").read().decode()
        assert answer.startswith("HTTP/1.1 200 OK")
        assert '"label"' in answer
        assert process.wait(20) == 0
        with pytest.raises(OSError, match="refused"):
            ask(port, "/health")


@pytest.mark.slow
def test_several_processes_share_a_port_and_their_counts_and_are_replaced(model, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o600)
    mine = {"Authorization": "Bearer s3cret"}
    with command(model, "--workers", "2", "--token-file", token) as (process, port):
        for _ in range(40):
            ask(port, "/predict", {"texts": ["apple"]}, **mine)
        assert 'status="200"} 40' in ask(port, "/metrics", **mine)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(port, "/metrics")
        time.sleep(5)  # what dies sooner is taken for broken
        children = [
            child for child in psutil.Process(process.pid).children() if "spawn_main" in " ".join(child.cmdline())
        ]
        assert len(children) == 2
        children[0].kill()
        for _ in range(40):
            ask(port, "/predict", {"texts": ["apple"]}, **mine)
        assert 'status="200"} 80' in ask(port, "/metrics", **mine)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.parametrize(("end", "code"), [(os._exit, 7), (signal.raise_signal, signal.SIGKILL)])
def test_processes_that_cannot_start_are_not_started_for_ever(end, code):
    with pytest.raises(SmoothLinkError, match=f"code -?{code:d}"):
        supervise(1, end, (code,))


def test_what_is_not_http_is_refused_in_json(rng):
    with listening(text_model()) as address:
        port = int(address.rsplit(":", 1)[1])
        for _ in range(30):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(rng.bytes(20) + b"\r\n\r\n")
                head, _, body = connection.makefile("rb").read().decode().partition("\r\n\r\n")
                assert head.startswith("HTTP/1.1 400 ")
                assert json.loads(body)["status"] == 400
        assert "ok" in ask(port, "/health")


def test_a_request_that_does_not_arrive_is_given_up():
    with listening(text_model(), Settings(timeout=0.2)) as address:
        with socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1])), timeout=5) as connection:
            head = (
                b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
            )
            connection.sendall(head)
            answer = connection.makefile("rb").read().decode()
        assert answer.startswith("HTTP/1.1 408 ")
        assert "within 0.2 s" in answer


def test_a_port_that_is_taken_says_so(model):
    with bound("127.0.0.1", 0) as taken:
        ran = run("serve", model, "--port", taken.getsockname()[1])
    assert ran.code == 1
    assert "--port 0" in ran.err


@pytest.mark.parametrize("token", ["", "two words", "größe"])
def test_a_file_without_a_token_is_refused(model, tmp_path, token):
    path = tmp_path / "token"
    path.write_text(token, encoding="utf-8")
    ran = run("serve", model, "--token-file", path)
    assert ran.code == 1
    assert "openssl rand" in ran.err


def test_a_token_that_others_can_read_is_told(tmp_path, capsys):
    from smoothlink.cli.screen import Screen
    from smoothlink.cli.serve_command import read_token

    path = tmp_path / "token"
    path.write_text("abc\n")
    path.chmod(stat.S_IRUSR | stat.S_IROTH)
    assert read_token(str(path), Screen()) == "abc"
    assert "chmod 600" in capsys.readouterr().err


def test_missing_libraries_and_hosts_say_what_to_type(model, monkeypatch):
    ran = run("serve", model, "--host", "no.such.host.invalid")
    assert ran.code == 1
    assert "--host 127.0.0.1" in ran.err
    monkeypatch.setattr("smoothlink.cli.serve_command.find_spec", lambda name: None if name == "fastapi" else name)
    ran = run("serve", model)
    assert ran.code == 1
    assert "smoothlink[serve]" in ran.err


def test_small_models_are_asked_by_one_thread_and_the_cores_are_shared_out(monkeypatch):
    class Large:
        class model_:  # noqa: N801
            V = type("V", (), {"shape": (4001, 25_000)})

    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert settled_threads(text_model(), 1) == 1
    assert [settled_threads(Large(), workers) for workers in (1, 3, 16)] == [8, 2, 1]
