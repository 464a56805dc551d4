"""The scripts in examples/ run as they are."""

import runpy
import sys

import pytest
from blocks import ROOT, blocks
from paged import small_corpus, write_rows

EXAMPLES = ROOT / "examples"


def run_script(name, monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", [name, *map(str, args)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_a_pipeline_is_searched(monkeypatch, capsys):
    monkeypatch.setattr("smoothlink.demo.corpus.build_corpus", small_corpus)
    assert "best parameters: {'smoothlinkclassifier__kernel__features'" in run_script(
        "sklearn_pipeline.py", monkeypatch, capsys
    )


def test_an_xmc_file_becomes_precision(monkeypatch, capsys, tmp_path):
    write_rows(tmp_path)
    out = run_script("xmc_to_precision.py", monkeypatch, capsys, tmp_path / "train.txt.xz", tmp_path / "test.txt.xz")
    assert [line.split()[0] for line in out.splitlines()[:4]] == ["p@1", "p@3", "p@5", "psp@5"]
    with pytest.raises(SystemExit, match="TRAIN TEST"):
        run_script("xmc_to_precision.py", monkeypatch, capsys)


def test_texts_become_a_server_that_answers(monkeypatch, capsys):
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    out = run_script("text_to_server.py", monkeypatch, capsys)
    best = dict(line.split(" -> ") for line in out.splitlines())
    assert set(best["a sourdough recipe"].split()[::2][:2]) == {"cooking", "bread"}
    assert best["a boat on the sea"].startswith("sea ")
    assert best["climbing in the mountains"].startswith("mountains ")


def test_every_script_is_on_the_page():
    page = ROOT / "docs" / "how-to" / "examples.md"
    told = {word for block in blocks(page) for word in block.text.split() if word.startswith("examples/")}
    assert told == {f"examples/{path.name}" for path in EXAMPLES.glob("*.py")}
