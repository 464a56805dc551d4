"""`smoothlink reproduce odp`: the loader of ODP's files, methods in processes of their own, and the page."""

import json
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from commands import run, succeed

from smoothlink.data.read import write
from smoothlink.errors import SmoothLinkError
from smoothlink.metrics.evaluate import Predictions
from smoothlink.synth import Shape, synthesise
from smoothlink_paper import experiment, runners
from smoothlink_paper import reproduce_odp as odp
from smoothlink_paper.data_sets import Split
from smoothlink_paper.large_sets import (
    best_labels,
    load_note,
    nearest_neighbour,
    run_in_subprocesses,
    run_peer,
    some_rows,
)
from smoothlink_paper.reproduce_odp import LARGE, LINK, NEAREST, OURS, SENSING, SQUARED, TREE
from smoothlink_paper.result import Result
from smoothlink_paper.runners import NoPeers, PeerFailed

SHAPE = Shape(60, 8, 6, multiclass=True)
FIXED = {"rank": 4, "kernel": "linear", "ridge": 1.0, "final_ridge": 0.1, "loss": "squared", "calibrate": False}


@pytest.fixture(autouse=True)
def no_tree(monkeypatch, tmp_path):
    """Vowpal Wabbit is absent, whether or not it is installed."""
    monkeypatch.setattr(NoPeers, "absent", lambda self, name: f"{name} cannot be run here.")
    monkeypatch.setattr(runners, "CHECKOUT", tmp_path / "nowhere")


@pytest.fixture(scope="module")
def split():
    return Split(synthesise(SHAPE, 300), synthesise(SHAPE, 100, start=300))


@pytest.fixture
def folder(split, tmp_path):
    (tmp_path / "aloi").mkdir()
    for part, data in zip(("train", "test"), split, strict=True):
        write(data, tmp_path / "aloi" / f"{part}.txt")
    return tmp_path


def test_the_experiment_measures_every_method_and_its_page_is_its_record(folder, tmp_path):
    found = succeed("reproduce", "odp", "--quick", "--data", folder, "-o", tmp_path, "--json").json
    assert set(found["sets"]) == {"aloi", "synthetic"}
    assert set(found["sets"]["aloi"]["methods"]) == {OURS, SENSING, SQUARED, LINK, LARGE, NEAREST}
    for one in found["sets"].values():
        for row in one["methods"].values():
            assert row["low"] <= row["value"] <= row["high"]
        difference = one["difference"]
        expected = one["methods"][difference["of"]]["value"] - one["methods"][difference["to"]]["value"]
        assert difference["value"] == pytest.approx(expected, abs=1e-12)
        assert one["notes"] == [f"{TREE} cannot be run here."]
    page = next((tmp_path / "results" / "odp").glob("quick-*.md")).read_text()
    assert page == experiment("odp").page(json.loads(next((tmp_path / "results" / "odp").glob("*.json")).read_text()))
    assert "cannot be run here" in page
    assert "[83.21, 83.39]" in page


def test_the_best_baseline_is_the_one_with_the_least_error(split, folder):
    one = odp.one_set(split, "aloi", True, 0, 1e13, lambda what: None)
    baselines = {m: row["value"] for m, row in one["methods"].items() if m in (SENSING, NEAREST)}
    assert baselines[one["difference"]["to"]] == min(baselines.values())


def test_a_softmax_that_costs_too_much_gives_way_to_the_squared_loss_and_the_page_says_so(folder):
    found = odp.run(folder, trials=1, quick=True, seed=0, notify=lambda what: None, softmax_flops=10.0)
    assert {
        row["settings"]["loss"] for m, row in found["sets"]["aloi"]["methods"].items() if m not in (NEAREST, LARGE)
    } == {"squared"}
    assert "given way to the squared loss" in odp.page(found)


def test_odp_is_read_by_name_with_the_columns_of_its_training_file(tmp_path):
    (tmp_path / "odp").mkdir()
    (tmp_path / "odp" / "train.vw").write_text("2 | 7:0.5 9:1\n1 | 9:2\n2 | 7:1\n")
    (tmp_path / "odp" / "test.vw").write_text("1 | 11:3 9:1\n5 | 7:1\n")
    split = odp.load_odp(tmp_path)
    assert split.train.label_names == ["1", "2"]
    np.testing.assert_array_equal(split.train.Y.toarray(), [[0, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(split.test.X.toarray(), [[0, 1], [1, 0]])  # 11 is unknown to the training file
    np.testing.assert_array_equal(split.test.Y.toarray(), [[1, 0, 0], [0, 0, 1]])  # class 5 comes behind


def test_odp_is_run_where_it_is_at_hand(split, tmp_path):
    (tmp_path / "odp").mkdir()
    for part, data in zip(("train", "test"), split, strict=True):
        write(data, tmp_path / "odp" / f"{part}.vw")
    found = odp.run(tmp_path, trials=1, quick=True, seed=0, notify=lambda what: None)
    assert set(found["sets"]) == {"odp", "synthetic"}
    assert set(found["sets"]["odp"]["methods"]) == {OURS, SENSING, SQUARED}
    assert "93.46" in odp.page(found)


def test_half_of_odp_is_refused(tmp_path):
    (tmp_path / "odp").mkdir()
    (tmp_path / "odp" / "train.vw").write_text("2 | 7\n1 | 9\n")
    ran = run("reproduce", "odp", "--data", tmp_path, "-o", tmp_path)
    assert ran.code == 1
    assert "odp/test.vw" in ran.err


def test_absent_data_are_named_with_their_place(tmp_path):
    ran = run("reproduce", "odp", "--data", tmp_path, "-o", tmp_path)
    assert ran.code == 1
    for words in ("odp/train.vw", "odp/test.vw", "aloi/train.txt", str(tmp_path)):
        assert words in ran.err


def test_the_synthetic_set_has_the_shape_of_odp_divided():
    split = odp.synthetic(400, 0)
    assert (split.train.X.shape, split.test.X.shape[0]) == ((2165, 1057), 1232)
    assert split.train.Y.shape[1] == 262


@pytest.mark.slow
def test_a_process_of_its_own_gives_the_same_answer_and_its_peak_memory(split):
    method = partial(best_labels, **FIXED)
    told = []
    found = run_in_subprocesses(split, {"ours": method}, 0, told.append)["ours"]
    here = method(split, 0)
    assert told == ["ours"]
    np.testing.assert_array_equal(found.predictions.topk.indices, here.predictions.topk.indices)
    assert 20 < found.peak_mb < 5000


def test_the_nearest_neighbour_of_a_training_row_is_itself(split):
    result = nearest_neighbour(Split(split.train, split.train), 0)
    same = split.train.Y[np.arange(300), result.predictions.topk.indices]
    assert same.mean() > 0.97  # equal rows may have other labels


class OnePeer:
    """Runs every peer by a function."""

    def __init__(self, report):
        self.report = report

    def absent(self, name):
        return None


def test_a_peer_that_is_there_becomes_a_row(split):
    result = Result(Predictions(topk=best_labels(split, 0, **FIXED).predictions.topk), 1.5, {})
    peers = OnePeer(lambda name, split, seed, **how: SimpleNamespace(result=result, memory_mb=77.0))
    assert run_peer(TREE, split, 0, peers, lambda what: None) == result._replace(peak_mb=77.0)
    one = odp.one_set(split, "synthetic", True, 0, 1e13, lambda what: None, peers)
    assert one["methods"][TREE]["peak_memory_mb"] == 77.0
    assert one["notes"] == []


def test_a_row_that_was_measured_later_is_named_below_the_table(folder):
    found = odp.run(folder, trials=1, quick=True, seed=0, notify=lambda what: None)
    before = odp.page(found).splitlines()
    found["sets"]["aloi"]["methods"][OURS] |= {"date": "2026-01-02", "load_average": 1.5}
    new = [line for line in odp.page(found).splitlines() if line not in before]
    assert new == [f"Measured later than the others: {OURS} (2026-01-02, load average 1.5)."]


def test_a_peer_that_fails_becomes_a_line(split):
    def fail(*_, **__):
        raise PeerFailed("it does not fit:\nsorry")

    assert run_peer(TREE, split, 0, OnePeer(fail), lambda what: None) == "it does not fit: sorry"


def test_some_rows_are_the_same_for_the_same_seed(split):
    a, b, other = (some_rows(split.train, 50, seed) for seed in (0, 0, 1))
    assert a.X.shape[0] == a.Y.shape[0] == 50
    assert (a.X != b.X).nnz == 0
    assert (a.X != other.X).nnz > 0


def test_a_process_that_is_killed_is_reported_with_its_method(split, monkeypatch):
    def killed(self, *_):
        raise BrokenProcessPool("gone")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", killed)
    with pytest.raises(SmoothLinkError, match="ours was ended from outside"):
        run_in_subprocesses(split, {"ours": partial(best_labels, **FIXED)}, 0, lambda what: None)


@pytest.mark.parametrize(("load", "lines"), [(None, 0), (0.1, 0), (5.0, 2)])
def test_seconds_measured_in_a_crowd_are_marked(load, lines):
    assert len(load_note({"load_average": load})) == lines
