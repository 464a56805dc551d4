"""The page's files: few, small, complete in themselves."""

import re

from served import client, text_model

from smoothlink.serve.page_files import page_files

MOST = 100_000  # bytes


def test_the_page_weighs_less_than_100_kb():
    assert sum(len(file.body) for file in page_files().values()) < MOST


def test_the_page_names_no_other_server_and_carries_no_code_in_its_html():
    for name, file in page_files().items():
        text = file.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.findall(r"(?:https?:)?//[\w-]+\.", text), name
        if name.endswith(".html"):
            assert not re.findall(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", text), name


def test_all_files_that_the_page_names_are_served():
    found = page_files()
    named = set()
    for name, file in found.items():
        text = file.body.decode()
        named |= set(re.findall(r'(?:href|src)="page/([\w.]+)"', text))
        named |= set(re.findall(r'from "\./([\w.]+)"', text)) if name.endswith(".js") else set()
    assert named == {name for name in found if not name.endswith(".html")}


def test_a_file_is_sent_once_and_then_only_if_it_changed():
    with client(text_model()) as made:
        first = made.get("/page/main.js")
        assert first.headers["content-type"].startswith("text/javascript")
        again = made.get("/page/main.js", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert made.get("/page/../app.py").status_code == 404


def test_the_description_tells_of_every_path():
    with client(text_model()) as made:
        described = made.get("/openapi.json").json()
        assert set(described["paths"]) == {"/predict", "/explain", "/labels", "/model", "/health", "/metrics"}
        assert made.get("/docs").headers["content-type"].startswith("text/html")
