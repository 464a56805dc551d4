"""Cells measured for real, on a tiny set: our own method and one of scikit-learn's."""

import json
import platform
from pathlib import Path

import compare_peers
import growth
import pytest
from bench.cells import METRICS
from commands import labelled

from smoothlink.data.read import write


@pytest.fixture
def place(rng, tmp_path):
    """A folder of data with one tiny set."""
    data = labelled(rng, 120)
    (tmp_path / "data" / "tiny").mkdir(parents=True)
    for part, rows in (("train", slice(80)), ("test", slice(80, 120))):
        write(data._replace(X=data.X[rows], Y=data.Y[rows]), tmp_path / "data" / "tiny" / f"{part}.txt")
    return tmp_path


def options(place, *more):
    where = {"--data": place / "data", "--results": place / "results", "--page": place / "page.md"}
    where["--vectorised"] = place / "vectorised"
    return [*(str(word) for pair in where.items() for word in pair), *more]


@pytest.mark.slow
def test_a_run_stores_its_cells_writes_the_page_and_measures_nothing_twice(place, capsys):
    methods = ("--sets", "tiny", "--methods", "smoothlink", "sklearn-ridge", "--rows", "60")
    compare_peers.main(options(place, *methods))
    first = capsys.readouterr().out
    assert first.count("trained in") == 2
    cells = {path.stem: json.loads(path.read_text()) for path in (place / "results").rglob("*.json")}
    assert set(cells) == {"smoothlink", "sklearn-ridge"}
    for cell in cells.values():
        assert cell["shape"] == {"rows": 60, "test_rows": 40, "features": 12, "labels": 5}
        for key in METRICS:
            metric = cell["metrics"][key]
            assert 0 < metric["low"] <= metric["value"] <= metric["high"] <= 1
        assert min(value for key, value in cell["costs"].items() if key != "prepare_seconds") > 0
        assert cell["load_before"] is None or cell["load_before"] >= 0
        assert not any(word in json.dumps(cell) for word in (str(place), str(Path.home()), platform.node() or "?"))
    assert cells["smoothlink"]["data"] == cells["sklearn-ridge"]["data"]
    assert cells["smoothlink"]["selected"]["compiled"] == 0
    assert {"smoothlink", "source", "numba"} <= set(cells["smoothlink"]["versions"])
    assert "## tiny" in (place / "page.md").read_text()
    assert "](page.svg)" in (place / "page.md").read_text()
    assert (place / "page.svg").exists()
    compare_peers.main(options(place, *methods))
    assert capsys.readouterr().out.count("there already") == 2
    before = (place / "page.md").read_text()
    (place / "page.md").unlink()
    compare_peers.main(options(place, "--page-only"))
    assert (place / "page.md").read_text() == before


def test_a_set_that_is_absent_is_named_after_all_others_were_run(place, capsys):
    with pytest.raises(SystemExit) as end:
        compare_peers.main(options(place, "--sets", "absent", "debtags", "--methods", "omikuji"))
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert "The data set absent is not in" in said
    assert "debtags/train.tsv is not in" in said
    assert (place / "page.md").exists()


def test_trial_figures_cannot_replace_real_ones(capsys):
    for script, words in ((compare_peers, ["--rows", "10"]), (growth, ["--shrink", "10"])):
        with pytest.raises(SystemExit) as end:
            script.main(words)
        assert end.value.code == 2
        assert "pass --results and --page too" in capsys.readouterr().err
