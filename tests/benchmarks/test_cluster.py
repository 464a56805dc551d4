"""The benchmark of local workers and the cost model: what they measure and say, and that pages are their cells'."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed", reason="Dask is not installed")

import cluster
from bench import cluster_fit
from bench.cluster_joint_page import joint_section
from bench.cluster_page import NOTHING, page, stored_cells, table
from bench.scaling import Machine, Shape, Traffic, bar, stages
from bench.scaling_page import ESTIMATES, MOVED, OPERATIONS, rates
from bench.scaling_page import page as scaling_page
from generate.ages import without_age

Z = Shape(n=5000, d=700, c=90, per_row=20, labels_per_row=3, k=30, s=80, iterations=7)
UNIT = Machine(1.0, 1.0, 1.0, 1.0)


def letters(workers):
    e, y = Z.entries, Z.n * Z.labels_per_row
    known = {"n": Z.n, "d": Z.d, "c": Z.c, "k": Z.k, "l": Z.oversample, "s": Z.s, "t": Z.iterations}
    return {**known, "e": e, "y": y, "W": workers}


@pytest.mark.parametrize("plan", ["rows", "columns"])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_formulas_of_the_page_are_the_model(plan, workers):
    for stage in stages(Z, UNIT, workers, plan):
        for name, formulas in (("work", OPERATIONS), ("moved", MOVED[plan])):
            if stage.name in formulas:
                expected = eval(formulas[stage.name], letters(workers))
                assert getattr(stage, name) == pytest.approx(expected), (stage.name, name)


def test_a_tree_takes_as_many_hops_as_its_height_and_a_shared_link_every_transfer():
    there_and_back = Traffic(out=10, back=10)
    assert there_and_back.moved(8) == 160
    assert there_and_back.seconds(8, UNIT) == 80
    assert there_and_back.seconds(8, UNIT._replace(shared=True)) == 160


def test_what_workers_fetch_from_each_other_goes_over_all_links_at_once():
    fetched = Traffic(fetched=10, turned=16)
    assert fetched.moved(1) == 0
    assert fetched.moved(8) == 7 * (10 + 2)
    assert fetched.seconds(8, UNIT) == 7 * (10 + 2) / 8
    assert fetched.seconds(8, UNIT._replace(shared=True)) == 7 * (10 + 2)


def cell(plan, workers, seconds):
    _, embed, featurize, _ = stages(Z, UNIT, max(1, workers), "columns" if plan == "here" else plan)
    return {
        "plan": plan,
        "workers": workers,
        "date": "2026-01-02",
        "command": "python benchmarks/cluster.py",
        "versions": {"numpy": "2"},
        "cores": 2,
        "other_cores": 0.1,
        "seed": 0,
        "trial": False,
        "shape": {"rows": 5000, "features": 699, "labels": 90, "features_per_row": 20, "labels_per_row": 3},
        "settings": {"rank": 30, "n_features": 80},
        "seconds": seconds,
        "stages": {"embed": seconds / 2, "featurize": seconds / 4, "fit": 0.5},
        "held": {"embed-product": 4_000_000, "embed-map": 5_000_000, "featurize-add": 6_000_000},
        "wire": {"embed": int(1.5 * embed.moved), "featurize": int(featurize.moved)},
        "bytes_moved": {"embed": int(embed.moved), "featurize": int(featurize.moved)},
        "solver_iterations": 7,
    }


@pytest.fixture
def folder(tmp_path):
    for plan, workers, seconds in (("here", 0, 10.0), ("rows", 1, 30.0), ("rows", 2, 16.0), ("columns", 1, 20.0)):
        (tmp_path / f"{plan}-{workers}.json").write_text(json.dumps(cell(plan, workers, seconds)))
    return tmp_path


def test_the_page_tells_times_speed_up_bytes_and_memory(folder):
    cells = stored_cells(folder)
    said = page(cells)
    assert "| rows, 2 workers | 16.0 | 1.60 | 1.88 | 8.0 | 4.0 |" in said
    z = Z._replace(d=700)
    assert f"| rows, 2 workers | {20 * z.entries / 2e6:.0f} | 4 | {bar(z, 2, 'rows') / 1e6:.0f} | 5 | 6 |" in said
    assert "rows, 2 workers" in table(cells)
    assert table({}) == NOTHING


def test_rates_are_those_that_explain_the_fits_on_one_worker_and_on_two(folder):
    cells = stored_cells(folder)
    machine = rates(cells)._replace(shared=True, cores=2)
    plain, two = stages(Z, machine, 1, "columns"), stages(Z, machine, 2, "rows")
    assert plain[1].computing == pytest.approx(10.0)
    assert plain[2].computing == pytest.approx(5.0)
    assert two[1].seconds == pytest.approx(8.0, rel=0.01)
    assert "| rows, 2 workers | " in scaling_page(cells)
    assert rates({}) == ESTIMATES


def test_stored_pages_are_written_from_the_stored_cells():
    cells = stored_cells(cluster.CELLS)
    assert without_age((cluster.PAGES / "benchmarks-cluster.md").read_text()) == page(cells) + joint_section(
        cluster.CELLS
    )
    assert (cluster.PAGES / "scaling.md").read_text() == scaling_page(cells)


def test_the_section_on_joint_training_tells_times_and_accuracy(tmp_path):
    assert joint_section(tmp_path) == ""
    (tmp_path / "joint").mkdir()
    for workers, seconds, p1 in ((0, 10.0, 0.25), (2, 14.0, 0.2489)):
        figures = {"workers": workers, "seconds": seconds, "processor_seconds": 2 * seconds, "p@1": p1, "p@5": 0.1}
        figures |= {"set": "made", "held_out": 100, "bytes_moved": {"fit": 3e9} if workers else None}
        figures["stages"] = {"embed": 1.0, "fit": seconds - 2, "calibrate": 1.0}
        (tmp_path / "joint" / f"{workers}.json").write_text(json.dumps(cell("here", workers, seconds) | figures))
    said = joint_section(tmp_path)
    assert "| one process | 10.0 | 1.00 | 20.0 | 1.0 | 8.0 | 1.0 | 25.00 | 10.00 |  |" in said
    assert "| 2 workers | 14.0 | 1.40 | 28.0 | 1.0 | 12.0 | 1.0 | 24.89 | 10.00 | 3.0 |" in said


def test_a_trial_must_not_replace_real_cells(capsys):
    with pytest.raises(SystemExit):
        cluster.main(["--scale", "0.1"])
    assert "pass --results FOLDER too" in capsys.readouterr().err


def test_peaks_are_known_by_the_name_of_a_task(monkeypatch):
    held = iter([500, 300, 900])
    monkeypatch.setattr(cluster_fit, "resident", lambda: 100)
    monkeypatch.setattr(cluster_fit, "forget", lambda: 2)
    monkeypatch.setattr(cluster_fit, "peak_and_forget", lambda: next(held))
    plugin = cluster_fit.Peaks()
    plugin.setup(None)
    for key in (
        "embed-sum-00000000000000000000000a",
        "embed-sum-00000000000000000000000b",
        "embed-columns 1/2-00000000000000000000000c",
    ):
        plugin.transition(key, "executing", "memory")
    plugin.transition("embed-sum-00000000000000000000000d", "waiting", "ready")
    assert cluster_fit.noted(SimpleNamespace(plugins={"peaks": plugin})) == {"embed-sum": 400, "embed-columns": 800}


@pytest.mark.slow
def test_a_small_run_writes_a_cell_for_each_fit(tmp_path):
    cluster.main(["--scale", "0.005", "--workers", "2", "--plans", "rows,columns", "--results", str(tmp_path)])
    cells = stored_cells(tmp_path)
    assert list(cells) == [("here", 0), ("rows", 2), ("columns", 2)]
    moved = cells["rows", 2]
    assert moved["wire"]["embed"] > moved["bytes_moved"]["embed"] / 2 > 0
    assert moved["held"]["embed-product"] > 0
    assert "This was a trial" in page(cells)
