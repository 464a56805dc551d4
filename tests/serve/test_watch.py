"""The file behind a server: whatever happens to it, answers are those of one model, or none."""

import logging
import os
import shutil
import time

import pytest
from fastapi.testclient import TestClient
from served import client, text_model

from smoothlink.errors import ModelFileError
from smoothlink.serve import Settings, create_app
from smoothlink.serve.prometheus import Shared
from smoothlink.serve.server import Served, bound, work
from smoothlink.serve.watch import Reloading, Watched, fingerprint

MAPPED, READ = 0, 1 << 30  # bytes up to which a model is read into memory


@pytest.fixture
def path(tmp_path):
    text_model().save(tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


@pytest.fixture
def other(tmp_path):
    text_model(final_ridge=100.0).save(tmp_path / "other.safetensors")
    return tmp_path / "other.safetensors"


def served(path, in_memory):
    watched = Watched(str(path), in_memory)
    return client(watched.model, check=watched.check)


def answers(app):
    return app.post("/predict", json={"texts": ["apple iron rain", "seven red"], "k": 5})


def test_models_have_answers_of_their_own(path, other):
    assert answers(served(path, READ)).json() != answers(served(other, READ)).json()


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
    before = answers(app).json()
    with caplog.at_level(logging.WARNING):
        change(path, other)
        for _ in range(3):
            assert answers(app).json() == before
        assert app.get("/health").status_code == 200
    assert [record.message for record in caplog.records if "smoothlink.serve" in record.name] == [
        f"{path} changed. The server goes on with the model that it loaded."
    ]


@pytest.mark.parametrize("change", [overwrite, truncate])
def test_nothing_is_answered_from_a_mapped_file_that_was_written_to(path, other, caplog, change):
    app, whole = served(path, MAPPED), path.read_bytes()
    before = answers(app).json()
    change(path, other)
    explain = {"text": "apple", "labels": ["fruit"]}
    for response in (answers(app), app.post("/explain", json=explain), app.get("/health")):
        assert response.status_code == 503
        assert "overwritten while it was served" in response.json()["reason"]
    assert "by mv, not cp" in caplog.text
    path.write_bytes(whole)
    assert answers(app).json() == before


def test_a_file_whose_time_alone_changed_is_the_same(path, caplog):
    app = served(path, MAPPED)
    os.utime(path, (1, 1))
    assert answers(app).status_code == 200
    assert caplog.text == ""


def test_damage_that_is_found_while_serving_is_told_without_the_path(caplog):
    def check():
        raise ModelFileError("/secret/m.safetensors is damaged")

    response = answers(client(text_model(), check=check))
    assert response.status_code == 503
    assert "secret" not in response.text
    assert "/secret/m.safetensors is damaged" in caplog.text


def test_a_process_that_is_started_later_serves_the_same_model_or_none(path, other, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    made = Served(str(path), Settings(), Shared(1), 2, fingerprint(str(path)))
    made()
    replace(path, other)
    with bound("127.0.0.1", 0) as listening, pytest.raises(SystemExit, match="changed since the server was started"):
        work(made, listening)


def test_a_changed_file_is_loaded_when_asked_and_a_broken_one_is_not(path, other, caplog):
    def make():
        watched = Watched(str(path), READ, verify="now")
        return create_app(watched.model, check=watched.check), watched

    app = TestClient(Reloading(make, every=0.05))
    before, after = answers(app).json(), answers(served(other, READ)).json()
    path.write_bytes(b"no model")
    wait(lambda: "The changed model is not served" in caplog.text)
    assert answers(app).json() == before
    replace(path, other)
    wait(lambda: answers(app).json() == after)


def wait(done):
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)
