"""Growth: exponents of exact power laws, the points of each size, and a run of made and of real ones."""

import json

import growth
import peers
import pytest
from bench.growth import AXES, along, exponent, exponents
from bench.page import page
from bench.pictures import growth_curves

BASE = {"n": 100, "d": 50, "c": 20, "k": 4, "s": 30}


def point(**changes):
    """Seconds n^1 d^0.5 / 100 and memory beyond the floor as s^2."""
    sizes = {**BASE, **changes}
    seconds = sizes["n"] * sizes["d"] ** 0.5 / 100
    watched = {"load_before": 0.5, "load_after": 1.5, "cores": 2, "other_cores": 0.25}
    stages = {"embed": 0.75 * seconds, "fit": 0.2 * seconds, "scale": 0.05 * seconds}
    return {"sizes": sizes, "seconds": seconds, "stages": stages, "solver": "Cholesky"} | {
        "peak_mb": 150.0 + sizes["s"] ** 2 / 10,
        **watched,
    }


@pytest.fixture
def record():
    points = [point(), *(point(**{axis: BASE[axis] << step}) for axis in AXES for step in (1, 2))]
    about = {"base": BASE, "settings": {"loss": "squared"}, "features_per_row": 40, "labels_per_row": 3, "seed": 0}
    about |= {"threads": 2, "cores": 2, "versions": {"smoothlink": "0.1.0"}, "date": "2026-01-02"}
    return about | {"command": "python benchmarks/growth.py", "floor_mb": 150.0, "points": points}


def test_exponents_of_power_laws_are_their_powers(record):
    found = {axis: exponents(record, axis) for axis in AXES}
    assert found["n"]["seconds"] == pytest.approx(1.0)
    assert found["d"]["embed"] == pytest.approx(0.5)
    assert found["c"]["seconds"] == pytest.approx(0.0, abs=1e-12)
    assert found["s"]["memory"] == pytest.approx(2.0)


def test_a_line_cannot_be_laid_through_one_size_or_through_nothing():
    assert exponent([5.0, 5.0], [1.0, 2.0]) is None
    assert exponent([5.0, 10.0], [0.0, 2.0]) is None


def test_points_along_a_size_differ_from_the_base_in_it_alone(record):
    assert [p["sizes"]["d"] for p in along(record, "d")] == [50, 100, 200]
    assert all(p["sizes"]["n"] == 100 for p in along(record, "d"))


def test_the_section_holds_exponents_points_and_circumstances(record):
    text = page({}, record)
    assert "| training rows (n) | 100 | 400 | 1.00 | 1.00 | 1.00 | 0.00 |" in text
    assert "of which embed | of which fit | memory" in text  # scale takes no more than a twentieth
    assert "| 400 | 50 | 20 | 4 | 30 | Cholesky | 28.28 | 21.21 | 5.66 | 240 | 0.5 to 1.5 | 0.25 |" in text
    assert "Measured 2026-01-02 on 2 cores, 2 threads, seed 0, by `python benchmarks/growth.py`" in text
    assert "beyond\nthe 150 MB" in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + len(AXES) + 1 + len(record["points"])


def test_the_picture_has_two_panels_a_size(record):
    made = growth_curves(record)
    assert [ax.get_xlabel() for ax in made.axes[len(AXES) :]] == [f"{name} ({axis})" for axis, name in AXES.items()]
    assert made.axes[0].lines[0].get_xydata()[:, 0].tolist() == [100, 200, 400]
    assert made.axes[0].get_title() == "exponent 1.00"


def test_each_size_is_doubled_alone():
    found = list(growth.wanted(BASE, ["n", "s"], 3))
    assert found == [BASE, BASE | {"n": 200}, BASE | {"n": 400}, BASE | {"s": 60}, BASE | {"s": 120}]


@pytest.mark.slow
def test_points_that_are_stored_are_not_measured_again(tmp_path, monkeypatch, capsys):
    asked = []

    def report(name, split, seed, **given):
        asked.append((split.train.X.shape, split.train.Y.shape[1], given["rank"], given["kernel.features"]))
        selected = {"seconds": {"embed": 1.0}, "solver": "Cholesky"}
        return peers.Report(None, "", 0.0, 2.0, 0.0, 0.0, 200.0 + len(asked), 0, selected)

    monkeypatch.setattr(peers, "report", report)
    words = ["--shrink", "400", "--steps", "2", "--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    growth.main([*words, "--axes", "n"])
    assert asked == [((500, 300), 20, 5, 20), ((100, 50), 8, 8, 8), ((200, 50), 8, 8, 8)]
    growth.main([*words, "--axes", "n", "c"])
    assert asked[3:] == [((100, 50), 16, 8, 8)]
    growth.main([*words, "--axes", "n", "--seed", "1"])  # another seed: all anew
    assert len(asked) == 7
    assert len(json.loads((tmp_path / "growth" / "figures.json").read_text())["points"]) == 2
    assert "## Growth" in (tmp_path / "page.md").read_text()


def test_a_point_during_which_kernels_were_compiled_is_measured_again(monkeypatch):
    compiled = [3, 0]

    def report(*args, **given):
        left = compiled.pop(0)
        selected = {"seconds": {}, "solver": "Cholesky", "compiled": left}
        return peers.Report(None, "", 0.0, 10.0 if left else 2.0, 0.0, 0.0, 200.0, 0, selected)

    monkeypatch.setattr(peers, "report", report)
    assert growth.measured(growth.TINY, 0, 2)["seconds"] == 2.0
    assert compiled == []


@pytest.mark.slow
def test_a_small_run_measures_seconds_and_memory(tmp_path):
    words = ["--shrink", "100", "--steps", "2", "--axes", "n"]
    growth.main([*words, "--results", str(tmp_path), "--page", str(tmp_path / "page.md")])
    points = json.loads((tmp_path / "growth" / "figures.json").read_text())["points"]
    assert [p["sizes"]["n"] for p in points] == [400, 800]
    assert all(p["seconds"] > 0 and p["peak_mb"] > 20 and p["stages"] for p in points)
