"""The options of `smoothlink serve`: addresses, tokens, libraries and threads."""

import socket
import stat

import pytest
from commands import run
from served import text_model

from smoothlink.cli.screen import Screen
from smoothlink.cli.serve_command import default_threads, host_names, read_token
from smoothlink.serve.server import listen


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("serve") / "topics.safetensors"
    text_model().save(path)
    return path


def test_a_port_that_is_taken_is_an_error(model):
    with listen("127.0.0.1", 0) as taken:
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


def test_a_token_that_others_can_read_gets_a_note(tmp_path, capsys):
    path = tmp_path / "token"
    path.write_text("abc\n")
    path.chmod(stat.S_IRUSR | stat.S_IROTH)
    assert read_token(str(path), Screen()) == "abc"
    assert "chmod 600" in capsys.readouterr().err


def test_errors_of_missing_libraries_and_hosts_say_what_to_type(model, monkeypatch):
    ran = run("serve", model, "--host", "no.such.host.invalid")
    assert ran.code == 1
    assert "--host 127.0.0.1" in ran.err
    monkeypatch.setattr("smoothlink.cli.serve_command.find_spec", lambda name: None if name == "fastapi" else name)
    ran = run("serve", model)
    assert ran.code == 1
    assert "smoothlink[serve]" in ran.err


def test_small_models_use_one_thread_and_large_ones_the_cores_divided_by_the_processes(monkeypatch):
    class Large:
        class model_:  # noqa: N801
            V = type("V", (), {"shape": (4001, 25_000)})

    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert default_threads(text_model(), 1) == 1
    assert [default_threads(Large(), workers) for workers in (1, 3, 16)] == [8, 2, 1]


def test_the_server_is_called_by_addresses_by_this_machine_and_by_the_names_that_are_given():
    here = socket.gethostname().lower()
    assert host_names("127.0.0.1", ["Tags.Example.org."]) == ("localhost", here, "127.0.0.1", "tags.example.org")
