"""The large run, made small: what it reports is there, agrees with itself and names no place of this machine."""

import json

import large
import pytest


@pytest.mark.slow
def test_a_small_run_reports_memory_and_time_beside_their_floors(tmp_path, capsys):
    folder = tmp_path / "data"
    folder.mkdir()
    words = ["--scale", "0.001", "--memory", "2G", "--rank", "10", "--features", "50"]
    large.main([*words, "--folder", str(folder), "--results", str(tmp_path / "large.json")])
    found = json.loads((tmp_path / "large.json").read_text())
    memory, stages = found["memory"], found["stages"]
    assert memory["promised"] == 2 << 30
    assert 0 < memory["peak"] <= memory["promised"]
    assert found["sizes"]["rows"] == 1000
    assert set(stages) == {"scale", "choose", "calibrate", "embed", "featurize", "fit"}
    assert found["floor"] == pytest.approx(sum(stage["floor"] for stage in stages.values()), abs=0.1)
    assert str(tmp_path) not in (tmp_path / "large.json").read_text()
    assert "promised 2.00G, expected" in capsys.readouterr().out


def test_floors_grow_with_what_is_counted():
    sizes = {"rows": 10**6, "features": 10**5, "labels": 10**4, "x_entries": 4 * 10**7, "rank": 100}
    rates = {"float32": 1e11, "float64": 5e10, "copy": 1e10}
    one = large.floors({**sizes, "random_features": 999}, [100, 200, 100, 200], 20_000, rates)
    two = large.floors({**sizes, "random_features": 1999}, [100, 200, 300, 200], 20_000, rates)
    assert one["featurize"] == pytest.approx(10**6 * 1000 * (200 + 1000) / 1e11)
    assert one["fit"] == pytest.approx((2 * 1000**2 * 10**4 + 1000**3 / 3) / 5e10)
    assert two["embed"] / one["embed"] == pytest.approx((500 + 240) / (300 + 240))
    assert two["calibrate"] > one["calibrate"]
