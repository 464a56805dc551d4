"""`smoothlink reproduce`: every step of an experiment on small data, and pages that are what their records say."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import labelled, run, succeed

from smoothlink.experiments import NAMES, experiment
from smoothlink.experiments.data import Split, load
from smoothlink.experiments.flexibility import kernel_inputs
from smoothlink.experiments.methods import PRESETS, of_probabilities
from smoothlink.experiments.mulan import DEFAULTS, METRICS, SEARCHED
from smoothlink.steps.read import write

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of data sets with one of the names an experiment looks for."""
    place = tmp_path_factory.mktemp("data")
    data = labelled(np.random.default_rng(3), 90)
    for name in ("yeast", "rcv1-subset1"):
        (place / name).mkdir()
        for part, rows in (("train", slice(60)), ("test", slice(60, 90))):
            write(data._replace(X=data.X[rows], Y=data.Y[rows]), place / name / f"{part}.txt")
    return place


@pytest.fixture(scope="module")
def record(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    ran = succeed("reproduce", "mulan", "--quick", "--data", folder, "-o", out, "--json")
    page = (out / "docs" / "results" / "mulan.md").read_text()
    return ran.json, page, json.loads(next((out / "results").iterdir()).read_text())


def test_an_experiment_measures_every_method_with_an_interval(record):
    found = record[0]["sets"]["yeast"]
    assert set(found) == set(METRICS)
    for metric in METRICS:
        rows = found[metric]["methods"]
        assert {DEFAULTS, SEARCHED, *PRESETS} <= set(rows)
        for row in rows.values():
            assert row["low"] <= row["value"] <= row["high"]
        assert found[metric]["best_baseline"] in PRESETS
        best = min if metric == "hamming" else max
        baselines = {m: r["value"] for m, r in rows.items() if m in PRESETS}
        assert baselines[found[metric]["best_baseline"]] == best(baselines.values())


def test_a_difference_is_the_difference_of_the_values(record):
    for found in record[0]["sets"]["yeast"].values():
        rival = found["methods"][found["best_baseline"]]["value"]
        for method, difference in found["difference"].items():
            assert difference["value"] == pytest.approx(found["methods"][method]["value"] - rival, abs=1e-12)


def test_the_page_is_generated_from_the_record(record):
    printed, page, stored = record
    assert experiment("mulan").page(stored) == page
    assert stored == printed
    for method in PRESETS:
        assert method in page


def test_flexibility_compares_kernels_on_the_inputs_with_kernels_in_the_link(folder, tmp_path):
    found = succeed("reproduce", "flexibility", "--quick", "--data", folder, "-o", tmp_path, "--json").json
    assert len(found["methods"]) == 4
    assert {row["low"] <= row["value"] <= row["high"] for row in found["methods"].values()} == {True}
    assert experiment("flexibility").page(found) == (tmp_path / "docs" / "results" / "flexibility.md").read_text()


def test_the_bandwidth_of_input_kernels_is_chosen_on_training_rows(folder):
    split = load(folder, "rcv1-subset1")
    params = {"loss": "squared", "input_kernel": "gaussian", "input_features": 30}
    answer = kernel_inputs(split, 0, (0.5, 2.0), params)
    assert answer.settings["input_bandwidth"] in (0.5, 2.0)
    blind = Split(split.train, split.test._replace(Y=split.test.Y[::-1]))
    assert kernel_inputs(blind, 0, (0.5, 2.0), params).settings == answer.settings


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_pages_of_this_project_are_what_their_records_say(name):
    page = ROOT / "docs" / "results" / f"{name}.md"
    records = sorted((ROOT / "results").glob(f"{name}-*.json"))
    if not page.exists():
        pytest.skip(f"{name} has not been recorded")
    assert page.read_text() == experiment(name).page(json.loads(records[-1].read_text()))


def test_data_that_are_absent_are_named_with_their_place(tmp_path):
    ran = run("reproduce", "mulan", "--data", tmp_path, "-o", tmp_path)
    assert ran.code == 1
    assert "bibtex/train.txt" in ran.err
    assert str(tmp_path) in ran.err


def test_without_a_folder_of_data_the_command_says_how_to_give_one(tmp_path, monkeypatch):
    monkeypatch.delenv("SMOOTHLINK_DATA", raising=False)
    ran = run("reproduce", "mulan", "-o", tmp_path)
    assert ran.code == 1
    assert "--data" in ran.err


def test_an_unknown_experiment_is_a_usage_error(tmp_path):
    assert run("reproduce", "imagenet", "-o", tmp_path).code == 2


def test_probabilities_of_others_are_read_as_ours(folder):
    split = load(folder, "yeast")
    P = np.random.default_rng(0).random(split.test.Y.shape)
    found = of_probabilities(P, split)
    np.testing.assert_array_equal(found.sets.toarray(), P > 0.5)
    np.testing.assert_array_equal(found.topk.indices.reshape(len(P), -1)[:, 0], P.argmax(axis=1))
