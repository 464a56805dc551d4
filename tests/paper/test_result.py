"""Results that are kept: taken again for the same rows, settings and code, and for no other."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from commands import labelled, run, succeed

from smoothlink.data.read import write
from smoothlink.metrics.evaluate import Predictions
from smoothlink_paper import record, result
from smoothlink_paper.data_sets import Split
from smoothlink_paper.methods import ours, peer
from smoothlink_paper.result import Result, keep_in, kept, recall

FIXED = {"effort": "quick", "rank": 3, "kernel.features": 20}


@pytest.fixture
def split():
    data = labelled(np.random.default_rng(5), 60)
    return Split(*(data._replace(X=data.X[part], Y=data.Y[part]) for part in (slice(40), slice(40, 60))))


def same(one: Result, other: Result) -> bool:
    for a, b in zip(one.predictions, other.predictions, strict=True):
        if a is None or b is None:
            if a is not b:
                return False
        elif not np.array_equal(*(A.toarray() if sp.issparse(A) else A for A in (a, b))):
            return False
    return one[1:] == other[1:]


def test_a_kept_result_is_the_one_that_was_made(split, tmp_path):
    with keep_in(tmp_path) as taken:
        made = ours(split, 0, **FIXED)
        assert taken == []
        assert same(ours(split, 0, **FIXED), made)
        assert len(taken) == 1


def test_a_result_of_other_settings_rows_or_code_is_not_taken(split, tmp_path, monkeypatch):
    calls = []

    @kept
    def fit(split, seed, **params):
        calls.append(params)
        return Result(Predictions(), 1.0, params)

    with keep_in(tmp_path):
        for _ in range(2):
            fit(split, 0, rank=3)
        assert len(calls) == 1
        fit(split, 0, rank=4)
        fit(split, 1, rank=3)
        fit(Split(split.test, split.train), 0, rank=3)
        assert len(calls) == 4
        monkeypatch.setattr(result, "source", lambda: "another one")
        fit(split, 0, rank=3)
        assert len(calls) == 5


def test_a_result_of_a_peer_is_taken_whatever_our_code_is(split, tmp_path, monkeypatch):
    class Peers:
        calls = 0

        def run(self, name, split, seed, *, limit=None, **settings):
            self.calls += 1
            return Result(Predictions(), 1.0, settings)

    with keep_in(tmp_path):
        peers = Peers()
        peer(peers, "a", split, 0, ridge=1.0)
        monkeypatch.setattr(result, "source", lambda: "another one")
        peer(peers, "a", split, 0, ridge=1.0)
        assert peers.calls == 1
        peer(peers, "a", split, 0, ridge=2.0)
        peer(peers, "b", split, 0, ridge=1.0)
        assert peers.calls == 3


def test_nothing_is_kept_without_a_folder(split, tmp_path):
    calls = []
    for _ in range(2):
        recall(split, "a", lambda: calls.append(1) or Result(Predictions(), 1.0, {}))
    assert len(calls) == 2


def test_an_experiment_goes_on_with_what_it_kept_and_says_so(tmp_path):
    data = labelled(np.random.default_rng(3), 90)
    (tmp_path / "data" / "rcv1-subset1").mkdir(parents=True)
    for part, rows in (("train", slice(60)), ("test", slice(60, 90))):
        write(data._replace(X=data.X[rows], Y=data.Y[rows]), tmp_path / "data" / "rcv1-subset1" / f"{part}.txt")
    given = ["reproduce", "flexibility", "--quick", "--data", tmp_path / "data", "-o", tmp_path, "--json"]
    first = succeed(*given, "--keep", tmp_path / "kept").json
    again = succeed(*given, "--keep", tmp_path / "kept").json
    assert "kept" not in first
    assert sum(again["kept"].values()) == len(list((tmp_path / "kept").iterdir()))
    assert again["methods"] == first["methods"]
    page = next((tmp_path / "results" / "flexibility").glob("*.md")).read_text()
    assert "some were made before" in page


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    ran = run("reproduce", "flexibility", "--quick", "--data", tmp_path, "--keep", tmp_path / "file")
    assert ran.code != 0
    assert "file: File exists" in ran.err


def test_the_digest_of_the_code_leaves_out_comments_docstrings_and_blank_space(tmp_path):
    def written(text: str) -> str:
        path = Path(tmp_path / "a.py")
        path.write_text(text)
        return record.statements(path)

    plain = written('def f(x):\n    "Doc."\n    return x + 1\n')
    assert written("def f(x):\n    # why\n    return x  +  1  # how\n") == plain
    assert written("def f(x):\n    return x + 2\n") != plain
