"""`smoothlink reproduce lshtc`: Kaggle's file, text made rows, sizes that fit in memory, and the page."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import run, succeed

from smoothlink.errors import DataError
from smoothlink.fitting.holdout import fold_numbers
from smoothlink.synth import Shape, synthesise
from smoothlink_paper import experiment, runners
from smoothlink_paper import reproduce_lshtc as lshtc
from smoothlink_paper.reproduce_lshtc import GAUSSIAN, LAPLACIAN, LINEAR, METRICS, PEER, affordable, chosen, load_lshtc
from smoothlink_paper.runners import NoPeers
from smoothlink_paper.text_sets import vectorised

NAME = "yso-finna-en"


@pytest.fixture(autouse=True)
def no_peer(monkeypatch, tmp_path):
    """omikuji is absent, whether or not it is installed."""
    monkeypatch.setattr(NoPeers, "absent", lambda self, name: f"{name} cannot be run here.")
    monkeypatch.setattr(runners, "CHECKOUT", tmp_path / "nowhere")


def texts(folder, n=120, seed=0):
    """A text set in the form of yso-finna-en, of made rows whose features became words."""
    data = synthesise(Shape(40, 9, 5, 2, seed=seed), 2 * n)
    place = folder / NAME
    place.mkdir(parents=True)
    lines = []
    for i in range(2 * n):
        labels, words = (M.indices[M.indptr[i] : M.indptr[i + 1]] for M in (data.Y, data.X))
        lines.append(",".join(map(str, labels)) + "\t" + " ".join(f"word{w}" for w in words))
    (place / "train.tsv").write_text("\n".join(lines[:n]) + "\n")
    (place / "test.tsv").write_text("\r\n".join(lines[n:]))
    (place / "labels.tsv").write_text("".join(f"{j}\thttp://x/{j}\tsubject {j}\t3\n" for j in range(9)))
    return data


def test_the_experiment_measures_every_kernel_and_its_page_is_its_record(tmp_path):
    texts(tmp_path)
    found = succeed("reproduce", "lshtc", "--quick", "--data", tmp_path, "-o", tmp_path, "--json").json
    assert set(found["methods"]) == {LAPLACIAN, GAUSSIAN, LINEAR}
    for row in found["methods"].values():
        for metric in METRICS:
            assert row[metric]["low"] <= row[metric]["value"] <= row[metric]["high"]
    assert found["notes"] == [f"{PEER} cannot be run here."]
    difference, rows = found["difference"], found["methods"]
    expected = rows[difference["of"]]["p@1"]["value"] - rows[difference["to"]]["p@1"]["value"]
    assert difference["value"] == pytest.approx(expected, abs=1e-12)
    page = next((tmp_path / "results" / "lshtc").glob("quick-*.md")).read_text()
    assert page == experiment("lshtc").page(
        json.loads(next((tmp_path / "results" / "lshtc").glob("*.json")).read_text())
    )
    assert "53.39" in page
    assert "cannot be run here" in page


def test_kaggles_file_is_cut_by_hash_and_divided_by_words(tmp_path):
    rows = [f"{7 + i % 3}, 900 {5 + i % 4}:{1 + i % 2} 100000:3" for i in range(40)]
    path = tmp_path / "train.csv"
    path.write_text("Data\n" + "\n".join(rows) + "\n")
    split = load_lshtc(path, 0)
    assert (split.train.X.shape, split.test.X.shape) == ((30, 5), (10, 5))
    assert split.train.label_names == ["7", "8", "9", "900"]
    assert split.train.feature_names == ["5", "6", "7", "8", "100000"]
    for part in split:
        np.testing.assert_allclose(np.asarray(part.X.sum(axis=1)).ravel(), 1, rtol=1e-6)
        np.testing.assert_array_equal(part.Y.sum(axis=1), 2)
    first = int(np.flatnonzero(fold_numbers(40, 0.25, 0) == 0)[0])
    assert split.test.Y.toarray()[0, first % 3] == 1


def test_lshtc_is_run_where_it_is_at_hand(tmp_path):
    data = synthesise(Shape(40, 9, 5, 2), 160)
    (tmp_path / "lshtc").mkdir()
    lines = ["Data"]
    for i in range(160):
        labels, words = (M.indices[M.indptr[i] : M.indptr[i + 1]] for M in (data.Y, data.X))
        lines.append(", ".join(str(3 * j + 1) for j in labels) + " " + " ".join(f"{w}:1" for w in words))
    (tmp_path / "lshtc" / "train.csv").write_text("\n".join(lines) + "\n")
    found = lshtc.run(tmp_path, trials=1, quick=True, seed=0, notify=lambda what: None)
    assert found["set"] == "lshtc"
    assert found["shape"][:2] == [120, 40]
    assert "53.39" in lshtc.page(found)


def test_texts_become_unit_rows_over_the_words_of_the_training_part(tmp_path):
    made = texts(tmp_path)
    split = vectorised(tmp_path, NAME)
    assert split.train.X.shape[1] == split.test.X.shape[1] == len(split.train.feature_names)
    assert all(word.startswith("word") for word in split.train.feature_names)
    assert split.train.label_names[3] == "subject 3"
    np.testing.assert_array_equal(split.train.Y.toarray(), made.Y[:120].toarray())
    np.testing.assert_array_equal(split.test.Y.toarray(), made.Y[120:].toarray())
    lengths = np.asarray(split.train.X.multiply(split.train.X).sum(axis=1)).ravel()
    np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-5)
    assert vectorised(tmp_path, NAME, 10).test.X.shape[0] == 10


def test_a_label_that_is_not_listed_is_refused(tmp_path):
    texts(tmp_path)
    (tmp_path / NAME / "labels.tsv").write_text("0\tx\tonly\t1\n")
    with pytest.raises(DataError, match="outside"):
        vectorised(tmp_path, NAME)


def test_sizes_fit_in_memory_and_keep_the_authors_proportion():
    small, large = affordable(10**6, 10**6, 10**5, 8e9, 4000), affordable(10**6, 10**6, 10**5, 1e12, 4000)
    assert large.features == 4000
    assert large.rank == 800
    assert small.expected_gb <= 8
    assert small.rank == small.features // 5
    assert small.features < large.features


def test_settings_are_chosen_on_training_rows_within_the_trials(tmp_path):
    texts(tmp_path)
    split = vectorised(tmp_path, NAME)
    settings, tried = chosen(split, "gaussian", "auto", 4, 0, {})
    assert 1 < len(tried) <= 4
    best = min(tried, key=lambda point: tried[point])
    assert tried[tuple(settings[name] for name in ("kernel.bandwidth", "ridge", "final_ridge"))] == tried[best]
    blind = split._replace(test=split.test._replace(Y=split.test.Y[::-1]))
    assert chosen(blind, "gaussian", "auto", 4, 0, {})[0] == settings


def test_absent_data_are_named_with_their_place(tmp_path):
    ran = run("reproduce", "lshtc", "--data", tmp_path, "-o", tmp_path)
    assert ran.code == 1
    for words in ("lshtc/train.csv", f"{NAME}'s train.tsv", str(tmp_path)):
        assert words in ran.err
    texts(tmp_path)
    (tmp_path / NAME / "test.tsv").unlink()
    ran = run("reproduce", "lshtc", "--data", tmp_path, "-o", tmp_path)
    assert ran.code == 1
    assert f"{NAME}/test.tsv" in ran.err


def test_free_memory_is_told_where_linux_is_not(monkeypatch):
    def fail(self):
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", fail)
    assert lshtc.free_memory() > 1e8
    monkeypatch.setattr(lshtc.os, "sysconf", lambda name: int("no number"))
    assert lshtc.free_memory() == 8e9
