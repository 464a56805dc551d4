"""`smoothlink reproduce`: every step of an experiment on small data, and pages that are what their records say."""

import json
import shutil
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from commands import labelled, run, succeed
from generate.ages import without_age

from smoothlink.data.read import write
from smoothlink_paper import NAMES, experiment
from smoothlink_paper.data_sets import Split, load
from smoothlink_paper.methods import PRESETS, of_probabilities
from smoothlink_paper.record import compared, publish, published, stem, store
from smoothlink_paper.reproduce_flexibility import kernel_inputs
from smoothlink_paper.reproduce_mulan import DEFAULTS, METRICS, SEARCHED
from smoothlink_paper.runners import NO_PEERS, load_peers

ROOT = Path(__file__).resolve().parents[2]


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
    page = next((out / "results" / "mulan").glob("quick-*.md")).read_text()
    return ran.json, page, json.loads(next((out / "results" / "mulan").glob("*.json")).read_text())


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
    assert (
        experiment("flexibility").page(found)
        == next((tmp_path / "results" / "flexibility").glob("quick-*.md")).read_text()
    )


def test_an_experiment_runs_on_a_device_that_is_there(as_on_a_card, folder, tmp_path):
    given = ["reproduce", "flexibility", "--quick", "--data", folder, "-o", tmp_path, "--json", "--device"]
    found = succeed(*given, "torch").json["methods"]
    devices = [row["settings"].get("device") for row in found.values()]
    assert devices == [None, "torch", "torch", "torch"]  # scikit-learn's logistic regression stays on the host
    refused = run(*given, "moon")
    assert refused.code == 2
    assert "'moon' is none of 'cpu' (NumPy)" in refused.err


def test_the_bandwidth_of_input_kernels_is_chosen_on_training_rows(folder):
    split = load(folder, "rcv1-subset1")
    params = {"loss": "squared", "input_kernel": "gaussian", "input_kernel.features": 30}
    result = kernel_inputs(split, 0, (0.5, 2.0), params)
    assert result.settings["input_kernel.bandwidth"] in (0.5, 2.0)
    blind = Split(split.train, split.test._replace(Y=split.test.Y[::-1]))
    assert kernel_inputs(blind, 0, (0.5, 2.0), params).settings == result.settings


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_pages_of_this_project_are_what_their_records_say(name):
    page = ROOT / "docs" / "results" / f"{name}.md"
    assert without_age(page.read_text()) == experiment(name).page(json.loads(published(name, ROOT).read_text()))


@pytest.fixture
def checkout(tmp_path):
    """A folder with the published record, page and picture of Table 2."""
    for path in ("results/mulan", "docs/results"):
        (tmp_path / path).mkdir(parents=True)
    for path in (
        published("mulan", ROOT),
        *(ROOT / "docs" / "results" / f"mulan.{ending}" for ending in ("md", "svg")),
    ):
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    return tmp_path


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_quick_run_is_written_beside_the_published_page_and_record(folder, checkout):
    before = files(checkout)
    succeed("reproduce", "mulan", "--quick", "--data", folder, "-o", checkout)
    after = files(checkout)
    assert {path: after[path] for path in before} == before
    today = date.today().isoformat()
    assert {str(path) for path in after.keys() - before.keys()} == {
        f"results/mulan/quick-{today}.{ending}" for ending in ("json", "md", "svg")
    }
    page = after[Path(f"results/mulan/quick-{today}.md")].decode()
    assert f"](quick-{today}.svg)" in page
    assert "This is not the published run: it had few rows and trials (--quick)." in page
    assert published("mulan", checkout).name == published("mulan", ROOT).name


def fewer_trials(record):
    record["trials_allowed"] -= 1


def fewer_rows(record):
    record["rows"]["yeast"][0] -= 1


def fewer_sets(record):
    del record["sets"]["yeast"], record["rows"]["yeast"]


def fewer_methods(record):
    del record["sets"]["yeast"]["hamming"]["methods"]["omikuji"]


@pytest.mark.parametrize(
    ("less", "reason"),
    [
        (fewer_trials, "it had 39 trials, not 40"),
        (fewer_rows, "it had 1499 training and 917 test rows of yeast, not 1500 and 917"),
        (fewer_sets, "it lacked the data set yeast"),
        (fewer_methods, "it lacked 1 figures, such as sets / yeast / hamming / methods / omikuji"),
    ],
)
def test_a_run_with_less_than_the_published_one_is_written_beside_it(checkout, less, reason):
    before = files(checkout)
    record = json.loads(published("mulan", ROOT).read_text())
    less(record)
    record = compared(record, checkout, quick=False)
    assert record["lacks"] == [reason]
    made = [store(record, checkout), *publish(record, checkout, print)]
    beside = checkout / "results" / "mulan" / f"partial-{record['date']}"
    assert made == [beside.with_suffix(f".{ending}") for ending in ("json", "md", "svg")]
    assert {path: (checkout / path).read_bytes() for path in before} == before
    assert reason in made[1].read_text()


def test_a_run_with_as_much_as_the_published_one_takes_its_place(checkout):
    record = json.loads(published("mulan", ROOT).read_text())
    assert compared(record, checkout, quick=False) == record
    assert stem(record) == "mulan"


def test_without_a_checkout_peers_are_left_out_and_the_reason_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr("smoothlink_paper.runners.CHECKOUT", tmp_path)
    assert load_peers() is NO_PEERS
    assert NO_PEERS.absent("omikuji").startswith("omikuji was left out")
    assert "--peers" in NO_PEERS.absent("omikuji")


def test_the_peers_of_a_folder_are_those_in_its_package():
    peers = load_peers(ROOT / "benchmarks")
    assert Path(peers.__file__).parent == ROOT / "benchmarks" / "peers"
    assert load_peers() is peers


def test_a_folder_without_peers_is_refused(folder, tmp_path):
    ran = run("reproduce", "mulan", "--quick", "--data", folder, "-o", tmp_path, "--peers", tmp_path)
    assert ran.code == 1
    assert f"{tmp_path} has no peers to run" in ran.err
    assert run("reproduce", "link", "--data", folder, "-o", tmp_path, "--peers", tmp_path).code == 2


def test_without_a_name_the_experiments_are_listed():
    out = " ".join(succeed("reproduce").out.split())
    for name, about in NAMES.items():
        assert f"{name}: {about}" in out


def test_without_its_package_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "smoothlink_paper", None)
    ran = run("reproduce", "mulan")
    assert ran.code == 1
    assert "smoothlink_paper, which holds the experiments, is not installed" in ran.err


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
