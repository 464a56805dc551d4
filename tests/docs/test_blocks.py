"""Every block of code on the pages runs, page by page, on small data under the names that the pages use.

`train` is run with `--effort quick` where a page does not say otherwise: the same path without the trials.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from blocks import PAGES, ROOT, RUN, SHOWN, blocks, check_options, plain, run_python, run_shell, smoothlink_calls
from commands import FIXED, succeed
from paged import small_corpus, some_rows, texts_and_labels, write_rows
from served import client

import smoothlink

# Pages for the first hour: their blocks run in an empty folder, one after the other. The others name files that a
# reader is expected to have.
FRESH = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "tutorial.md"]
PAGES_WITH_BLOCKS = [page for page in PAGES if any(block.kind in RUN and not block.why_not for block in blocks(page))]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The files that the pages name."""
    folder = tmp_path_factory.mktemp("pages")
    texts, labels = texts_and_labels()
    records = [{"title": text[:12], "body": text, "tags": row} for text, row in zip(texts, labels, strict=True)]
    for name, some in {"docs": records, "test": records[:40], "new": records[:5]}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in some))
    write_rows(folder)
    names = {"en": ["Solving", "Sparse arrays"], "fi": ["Ratkaiseminen", "Harvat taulukot"]}
    lines = [f"{i}\t{name}\t{k}\n" for k in names for i, name in zip(("scipy", "sparse"), names[k], strict=True)]
    (folder / "subjects.tsv").write_text("".join(lines))
    (folder / "wrong-header.txt").write_text("2 4 3\n0,3 0:1 2:0.5\n1 1:1\n")
    (folder / "broken.jsonl").write_text('{"text": "read a csv file", "labels": ["csv"]}\n{"text": "open a url"\n')
    train = ["train", folder / "docs.jsonl", "--text", "title,body", "--labels", "tags", *FIXED]
    succeed(*train[:-1], "-o", folder / "model.safetensors")  # calibrated
    succeed(*train, "-o", folder / "quick.safetensors")
    succeed("train", folder / "train.txt.xz", "-o", folder / "vectors.safetensors", *FIXED)
    (folder / "cut.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1000])
    return folder


@pytest.fixture
def here(prepared, tmp_path, monkeypatch):
    """A copy of them, which is the current folder."""
    for path in prepared.iterdir():
        shutil.copyfile(path, tmp_path / path.name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("smoothlink.demo.corpus.build_corpus", small_corpus)
    return tmp_path


@pytest.fixture
def namespace():
    """The names that Python blocks begin with: rows, texts, and the public names."""
    texts, labels = texts_and_labels()
    made = some_rows(120)
    public = {name: getattr(smoothlink, name) for name in ("SmoothLinkClassifier", "TextSmoothLink")}
    return {"X": made.X, "Y": made.Y, "texts": texts, "labels": labels, **public}


@pytest.fixture
def asked(here, monkeypatch):
    """A client of the page's model; httpx.post goes to it too."""
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    import httpx

    found = client(smoothlink.load("model.safetensors"))
    monkeypatch.setattr(httpx, "post", lambda url, **given: found.post(url.partition(":8000")[2], **given))
    return found


@pytest.mark.parametrize("page", FRESH, ids=lambda page: page.name)
def test_blocks_of_the_first_pages_run_in_an_empty_folder(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("smoothlink.demo.corpus.build_corpus", small_corpus)
    names = {}
    for block in blocks(page):
        if block.why_not is None and block.kind == "python":
            run_python(block, names)
        elif block.why_not is None and block.kind == "sh":
            run_shell(block, None, fresh=True)
    assert (tmp_path / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("page", FRESH, ids=lambda page: page.name)
def test_blocks_of_the_first_pages_run_as_printed(page, tmp_path):
    script = tmp_path / "smoothlink"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m smoothlink "$@"\n')
    script.chmod(0o755)
    folder = tmp_path / "empty"
    folder.mkdir()
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for block in blocks(page):
        if block.why_not is None and block.kind in RUN:
            command = [sys.executable, "-c", block.text] if block.kind == "python" else ["sh", "-ec", block.text]
            ran = subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=False)
            assert ran.returncode == 0, f"{block.where}: {ran.stderr}"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if page.name == "extreme.md" else page
        for page in PAGES_WITH_BLOCKS
        if page not in FRESH
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_blocks_of_a_page_run_in_their_order(page, asked, namespace):
    found = [block for block in blocks(page) if block.why_not is None]
    for block, after in zip(found, [*found[1:], None], strict=True):
        wrong = message_of(after)
        if block.kind == "python":
            printed = run_python(block, namespace)
            assert wrong is None or plain(wrong) in plain(printed), block.where
        elif block.kind == "sh":
            run_shell(block, asked, wrong)
    assert len(os.listdir()) > 5


def message_of(block):
    """What a block shows, where it is an error that the block before it must cause."""
    if block is None or block.kind != "text":
        return None
    return block.text if block.page.name == "faq.md" else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_what_it_is_and_those_not_run_say_why(page):
    for block in blocks(page):
        assert block.kind in RUN + SHOWN, f"{block.where}: {block.kind or 'no'} kind of block"
        if block.kind == "json":
            json.loads(block.text)
        if block.why_not is not None:
            assert block.kind in RUN, f"{block.where}: {block.kind} is never run"


def test_options_in_blocks_that_are_not_run_exist():
    seen = 0
    for page in PAGES:
        for block in blocks(page):
            if block.why_not is not None or block.kind not in RUN:
                for call in smoothlink_calls(block):
                    check_options(call)
                    seen += 1
    assert seen > 15


@pytest.mark.parametrize("call", [["train", "a.txt", "-o", "b", "--kernle", "x"], ["predict", "--top"], ["serve"]])
def test_options_that_do_not_exist_are_noticed(call):
    with pytest.raises(Exception, match=r"(?i)no such option|requires an argument|missing"):
        check_options(call)
