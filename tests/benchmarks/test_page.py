"""The page of the benchmarks says what its cells hold, and nothing else."""

import json
from itertools import pairwise

import peers
import pytest
from bench.cells import METHODS, METRICS, SETS, Conditions, fingerprint, holds, measure, stored_cells
from bench.circumstances import PAGE, RESULTS, read, source, store, without_paths
from bench.compare import comparison, standing
from bench.page import NOTHING, page, publish
from bench.pictures import LOOKS, accuracy_against_seconds
from commands import labelled
from generate.ages import without_age

from smoothlink_paper.data_sets import Split

SELECTED = {
    "rank": 7,
    "ridge": 0.5,
    "final_ridge": 0.1,
    "loss": "squared",
    "seconds": {"choose": 1.5, "fit": 0.25},
    "compiled": 0,
}


def cell(method, p1, *, low=0.02, high=0.02, seconds=2.0, run="now", **changes):
    """A measured cell; every metric has the same value and interval."""
    metric = {"value": p1, "low": p1 - low, "high": p1 + high}
    costs = {"prepare_seconds": 0.1, "train_seconds": seconds, "rows_per_second": 1000.0, "row_milliseconds": 0.5}
    return {
        "set": "bibtex",
        "method": method,
        "seed": 0,
        "threads": 2,
        "limit": 3600.0,
        "at_most_rows": None,
        "date": "2026-01-02",
        "run": run,
        "cores": 2,
        "load_before": 0.25,
        "load_after": 1.75,
        "other_cores": 0.04,
        "shape": {"rows": 4880, "test_rows": 2515, "features": 1836, "labels": 159},
        "versions": {"python": "3.11.7", method: "1.2.3"},
        "metrics": dict.fromkeys(METRICS, metric),
        "costs": {**costs, "peak_mb": 100.0 * seconds, "model_mb": 3.0},
        "selected": SELECTED if method == "smoothlink" else {},
    } | changes


def without_figures(method, note):
    return {k: v for k, v in cell(method, 0.5).items() if k not in ("metrics", "costs", "selected")} | {"note": note}


def test_a_row_for_every_cell_and_the_best_of_each_column_in_bold():
    cells = {"smoothlink": cell("smoothlink", 0.66), "omikuji": cell("omikuji", 0.64)}
    text = page({"bibtex": cells}, None)
    assert "| smoothlink | **66.00** [64.00, 68.00] |" in text
    assert "| omikuji | 64.00 [62.00, 66.00] |" in text
    assert "| omikuji | 2.00 | 1,000 | 0.50 | 200 | 3.0 | 0.2 to 1.8 | 0.04 |" in text
    assert "4,880 training rows, 2,515 test rows, 1,836 features, 159 labels. Time limit: 3,600 s per method." in text
    chosen = "rank 7, ridge 0.5, final ridge 0.1, loss squared; seconds: choose 1.50, fit 0.25."
    assert f"smoothlink's learner: Algorithm 3. It selected {chosen}" in text
    for said in ("Measured 2026-01-02 on 2 cores, 2 threads each, seed 0", "omikuji 1.2.3", "--methods smoothlink"):
        assert said in text


def test_joint_training_is_named_as_the_learner_of_a_set():
    ours = cell("smoothlink", 0.66, selected=SELECTED | {"final_ridge": 0.0})
    assert "smoothlink's learner: joint, sampled negatives." in page({"bibtex": {"smoothlink": ours}}, None)


def test_a_method_that_was_stopped_says_how_busy_the_cores_were():
    stopped = {**without_figures("omikuji", "stopped after 60 s"), "stopped_after": 60.0}
    text = page({"bibtex": {"omikuji": stopped}}, None)
    assert "| omikuji | stopped after 60 s; other work kept 0.04 of 2 cores busy |" in text


def test_methods_that_were_not_run_on_a_set_are_named():
    text = page({"bibtex": {m: cell(m, 0.5) for m in METHODS if m not in ("pecos", "sklearn-ridge")}}, None)
    assert "Not run here: PECOS XR-Linear; scikit-learn ridge on dense unit rows." in text


def test_figures_of_algorithm_3_in_the_introduction_stand_on_the_pages_that_it_names():
    introduction = page({}, None).split("has Algorithm 3 in a row of its own")[1].split("\n\n")[0]
    for figure, name in {
        "25.19": "results/lshtc.md",
        "27.01": "benchmarks-gpu.md",
        "33.41": "benchmarks-gpu.md",
    }.items():
        assert figure in introduction
        assert f"({name}" in introduction
        assert figure in (PAGE.parent / name).read_text()


def test_costs_of_another_run_than_smoothlinks_are_marked():
    cells = {"smoothlink": cell("smoothlink", 0.66), "omikuji": cell("omikuji", 0.6)}
    assert "†" not in page({"bibtex": cells}, None).split("## bibtex")[1]
    later = {"smoothlink": cells["smoothlink"], "omikuji": cells["omikuji"] | {"run": "later"}}
    assert "| omikuji † |" in page({"bibtex": later}, None).split("## bibtex")[1]


def test_a_cell_without_figures_keeps_its_row_with_the_reason():
    notes = {"omikuji": "not run: pip install it", "napkinxc-br": "stopped after 3600 s"}
    cells = {"smoothlink": cell("smoothlink", 0.66)} | {m: without_figures(m, note) for m, note in notes.items()}
    text = page({"bibtex": cells}, None)
    assert "| omikuji | not run: pip install it |" in text
    assert "| napkinXC BR | stopped after 3600 s |" in text
    assert text.count("| napkinXC BR |") == 1  # it has no costs


def test_every_line_of_a_table_has_as_many_cells_as_its_head():
    cells = {"smoothlink": cell("smoothlink", 0.6), "omikuji": without_figures("omikuji", "stopped after 9 s")}
    lines = page({"bibtex": cells, "aloi": {"omikuji": cell("omikuji", 0.5)}}, None).splitlines()
    for before, line in pairwise(lines):
        if before.startswith("|") and line.startswith("|"):
            assert before.count("|") == line.count("|"), line


@pytest.mark.parametrize(
    ("theirs", "verdict"), [(0.65, "best"), (0.66, "best"), (0.68, "within"), (0.6801, "behind by 2.01")]
)
def test_ours_is_best_within_its_interval_of_the_best_or_behind(theirs, verdict):
    others = {"omikuji": cell("omikuji", theirs), "pecos": cell("pecos", 0.5)}
    expected = f"66.00, {verdict} (omikuji {100 * theirs:.2f})"
    assert standing(cell("smoothlink", 0.66), others, "p@1") == expected


def test_seconds_are_a_multiple_of_omikujis_and_other_runs_are_marked():
    ours = cell("smoothlink", 0.66, seconds=3.0)
    same = comparison({"bibtex": {"smoothlink": ours, "omikuji": cell("omikuji", 0.6)}})
    assert "| 1.50 (3.0 s) | 1.50 | 1.0 | 1.0 |" in same[-2]
    other = comparison({"bibtex": {"smoothlink": ours, "omikuji": cell("omikuji", 0.6, run="before")}})
    assert "| 1.50 (3.0 s) † |" in other[-4]
    assert other[-2].startswith("†")
    assert comparison({"bibtex": {"omikuji": cell("omikuji", 0.6)}}) == []


def test_a_trial_says_that_its_figures_mean_nothing():
    assert "at most 50 rows" in page({"bibtex": {"omikuji": cell("omikuji", 0.6, at_most_rows=50)}}, None)


def test_without_cells_the_page_says_what_to_type():
    assert NOTHING in page({}, None)


def test_the_page_of_this_project_is_what_its_cells_say():
    remedy = "write it again: python benchmarks/compare_peers.py --page-only"
    assert without_age(PAGE.read_text()) == page(
        stored_cells(RESULTS),
        read(RESULTS / "growth" / "figures.json"),
        negatives=read(RESULTS / "sampled_negatives" / "figures.json"),
        floors=read(RESULTS / "floors" / "figures.json"),
        one_row=read(RESULTS / "one_row" / "figures.json"),
    ), remedy
    for picture in ("benchmarks", "benchmarks-growth"):
        assert (f"]({picture}.svg)" in PAGE.read_text()) == PAGE.with_name(f"{picture}.svg").exists(), remedy


def test_stored_cells_come_in_the_order_of_the_tables(tmp_path):
    for name, method in (("zoo", "omikuji"), ("aloi", "pecos"), ("aloi", "smoothlink"), ("bibtex", "pecos")):
        store(cell(method, 0.5, set=name), tmp_path / "peers" / name / f"{method}.json")
    found = stored_cells(tmp_path)
    assert list(found) == ["bibtex", "aloi", "zoo"]
    assert list(found["aloi"]) == ["smoothlink", "pecos"]
    publish(tmp_path, tmp_path / "docs" / "page.md", lambda words: None)
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["page.md", "page.svg"]


def test_the_picture_has_a_panel_a_set_with_each_method_at_its_seconds():
    cells = {"smoothlink": cell("smoothlink", 0.66, seconds=3.0), "omikuji": cell("omikuji", 0.6)}
    cells["pecos"] = without_figures("pecos", "stopped")
    made = accuracy_against_seconds(dict.fromkeys(SETS, cells))
    shown = [ax for ax in made.axes if ax.get_visible()]
    assert [ax.get_title() for ax in shown] == list(SETS)
    points = {tuple(line.get_xydata()[0]) for line in shown[0].lines if len(line.get_xydata())}
    assert points == {(3.0, 66.0), (2.0, 60.0)}
    assert [text.get_text() for text in made.legends[0].get_texts()] == ["smoothlink", "omikuji"]
    assert set(LOOKS) == set(METHODS)


def test_a_stored_cell_holds_while_nothing_that_matters_has_changed():
    stored = cell("omikuji", 0.6)
    wanted = {key: stored[key] for key in ("set", "method", "seed", "threads", "versions")}
    assert holds(stored, wanted, 60)
    assert not holds(None, wanted, 60)
    assert not holds(stored, {**wanted, "versions": {"omikuji": "2"}}, 60)
    assert not holds(stored, {**wanted, "data": "other rows"}, 60)
    gone = {key: value for key, value in wanted.items() if key != "versions"}
    assert holds(stored, gone, 60)  # what cannot be measured now stays as it was


def test_a_cell_that_was_stopped_holds_for_limits_up_to_its_own():
    stored = {**without_figures("omikuji", "stopped after 60 s"), "stopped_after": 60.0}
    wanted = {"method": "omikuji", "versions": stored["versions"]}
    assert holds(stored, wanted, 60)
    assert holds(stored, wanted, 30)
    assert not holds(stored, wanted, 61)
    assert not holds(without_figures("omikuji", "failed"), wanted, 60)


def test_notes_name_no_places_of_the_machine():
    said = "made up failed. OSError: /home/me/.venv/bin/python: no and/or 1/2 of https://example.org/a/b"
    assert without_paths(said) == "made up failed. OSError: ...: no and/or 1/2 of https://example.org/a/b"


def test_a_digest_of_the_source_stands_for_the_version_between_releases():
    assert len(source()) == 12
    assert source.__wrapped__() == source()


def test_other_rows_have_another_fingerprint(rng):
    data = labelled(rng, 30)
    split = Split(data, data)
    assert fingerprint(split) == fingerprint(Split(data, data))
    fewer = Split(data._replace(X=data.X[:29], Y=data.Y[:29]), data)
    assert fingerprint(fewer) != fingerprint(split)


def test_an_absent_stopped_or_failed_peer_becomes_a_note(rng, monkeypatch):
    data = labelled(rng, 30)
    split, asked = Split(data, data), Conditions("now", limit=5.0)

    def outcome(error):
        def report(*args, **kwargs):
            raise error

        monkeypatch.setattr(peers, "report", report)
        return measure("made", split, "sklearn-ridge", asked)

    stopped = outcome(peers.PeerStopped("It was stopped after 5 s."))
    assert (stopped["note"], stopped["stopped_after"]) == ("stopped after 5 s", 5.0)
    failed = outcome(peers.PeerFailed(f"{METHODS['sklearn-ridge']} failed.\n  Its last lines:\n  ValueError: no luck"))
    assert failed["note"] == "failed. ValueError: no luck"
    assert "metrics" not in failed
    monkeypatch.setattr(peers, "absent", lambda name: f"{name} cannot be run (/a/b/python: none): install it.")
    assert measure("made", split, "pecos", asked)["note"].endswith("(...: none): install it.")
    json.dumps(stopped)


def test_sampled_negatives_are_compared_with_all_labels():
    rows = [
        {"negatives": 30, "p@1": 0.78, "p@5": 0.45, "logloss": 8.4, "seconds": 3.0},
        {"negatives": 600, "p@1": 0.79, "p@5": 0.46, "logloss": 8.0, "seconds": 9.0},
    ]
    record = {
        "date": "2026-01-02",
        "seed": 0,
        "command": "python benchmarks/sampled_negatives.py",
        "sets": {"debtags": rows},
    }
    text = page({}, None, negatives=record)
    assert "| debtags | 30 | 78.00 | -1.00 | 45.00 | 8.400 | +5.0 % | 3.0 |" in text
    assert "| debtags | all 600 | 79.00 |  | 46.00 | 8.000 |  | 9.0 |" in text


def test_costs_stand_beside_those_of_the_first_release():
    text = page({"bibtex": {"smoothlink": cell("smoothlink", 0.66)}}, None)
    assert "| bibtex | 10.6 → 2.0 | 0.21 → 0.50 | 651 → 200 | 5.0 → 3.0 | 66.24 → 66.00 | 30.48 → 66.00 |" in text


def test_a_stage_stands_beside_its_floor():
    seconds = {"choose": 1.0, "calibrate": 0.5, "embed": 0.3, "fit": 0.2}
    found = {"seconds": seconds, "floors": {"embed": 0.1, "featurize": 0.2, "fit": 0.1}}
    record = {"date": "2026-01-02", "machine": "two cores", "flops": 150e9, "bandwidth": 12e9}
    record |= {"command": "python benchmarks/floors.py", "sets": {"bibtex": found}}
    text = page({}, None, floors=record)
    assert "| bibtex |  | 1.00 | 0.50 | 0.30 (3.0) |  | 0.20 (2.0) | 2.00 | 75 % |" in text
    assert "150 GFLOP/s" in text


def test_one_row_stands_beside_the_scan_and_omikuji():
    took = {method: {"processor_ms": ms} for method, ms in (("smoothlink", 1.4), ("scan", 3.8), ("omikuji", 2.3))}
    found = {"labels": 25147, "one_row": took, "ratio_to_omikuji": 0.609, "codes_seconds": 0.51, "codes_mb": 15.0}
    text = page({}, None, one_row={"date": "2026-01-02", "sets": {"yso-finna-en": found}})
    assert "| yso-finna-en | 25,147 | 1.40 | 3.80 | 2.30 | 0.61 | 0.51 | 15.0 |" in text
