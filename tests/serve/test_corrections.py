"""Corrections that the server stores: whole lines that train takes, or a sentence."""

import json
import resource
import threading

import pytest
from commands import run
from served import client, text_model

from smoothlink.data.atomic import append_line
from smoothlink.serve import ServerSettings
from smoothlink.serve.corrections import FILE


def correction(text="apple", labels=("fruit",), **more):
    return {"text": text, "labels": list(labels), **more}


def test_a_correction_is_a_line_with_its_model_and_time(tmp_path):
    with client(text_model(), ServerSettings(store=str(tmp_path)), name="topics") as made:
        assert made.get("/model").json()["stores"]
        assert made.post("/corrections", json=correction(id="7", file="a.xlsx")).json() == {"status": "ok"}
        assert made.post("/corrections", json=correction("Öl\nrain", [])).status_code == 200
    first, second = map(json.loads, (tmp_path / FILE).read_text("utf-8").splitlines())
    assert (first["text"], first["labels"], first["id"], first["file"]) == ("apple", ["fruit"], "7", "a.xlsx")
    assert first["model"] == "topics"
    assert first["time"].endswith("+00:00")
    assert (second["text"], second["labels"], second["id"]) == ("Öl\nrain", [], None)


def test_without_a_folder_nothing_can_be_stored(texts):
    assert not texts.get("/model").json()["stores"]
    assert texts.post("/corrections", json=correction()).status_code == 404


@pytest.mark.parametrize("body", [{}, correction(labels=[3]), correction(text=None), {**correction(), "path": "/etc"}])
def test_what_is_not_a_correction_is_refused(tmp_path, body):
    with client(text_model(), ServerSettings(store=str(tmp_path))) as made:
        assert made.post("/corrections", json=body).status_code == 422
    assert not (tmp_path / FILE).exists()


def test_a_full_disk_is_a_sentence_and_leaves_whole_lines(tmp_path):
    with client(text_model(), ServerSettings(store=str(tmp_path))) as made:
        made.post("/corrections", json=correction())
        before = (tmp_path / FILE).read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
        try:
            response = made.post("/corrections", json=correction("plum"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert response.status_code == 507
        assert "still in the page" in response.json()["reason"]
        assert (tmp_path / FILE).read_bytes() == before
        assert made.post("/corrections", json=correction("plum")).status_code == 200


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / FILE).mkdir()
    with client(text_model(), ServerSettings(store=str(tmp_path))) as made:
        response = made.post("/corrections", json=correction())
    assert response.status_code == 507
    assert "could not store" in response.json()["reason"]


def test_a_torn_line_is_cut_before_the_next(tmp_path):
    path = tmp_path / FILE
    path.write_bytes(b'{"a": 1}\n{"b')
    append_line(path, b'{"c": 3}\n')
    assert path.read_bytes() == b'{"a": 1}\n{"c": 3}\n'


def test_lines_of_many_writers_stay_whole(tmp_path):
    path, line = tmp_path / FILE, b"x" * 50_000 + b"\n"
    writers = [threading.Thread(target=lambda: [append_line(path, line) for _ in range(5)]) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_bytes() == line * 40


def test_serve_checks_the_folder_before_it_starts(tmp_path):
    model = tmp_path / "topics.safetensors"
    text_model().save(model)
    (tmp_path / "file").write_text("")
    ran = run("serve", model, "--store", tmp_path / "file")
    assert ran.code == 1
    assert "Name a folder that you may write to." in ran.err
