"""Pictures of records: what is drawn is what the record holds, and an SVG is the same bytes each time."""

import errno
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from smoothlink_paper import NAMES, experiment
from smoothlink_paper.plots import INK, OURS, Curve, band, canvas, curves, dot, image, intervals, save
from smoothlink_paper.record import publish, published

ROOT = Path(__file__).resolve().parents[2]


def metric(value):
    return {"value": value, "low": value - 1.0, "high": value + 2.0}


def whiskers(ax):
    """The ends of all horizontal or vertical lines, sorted."""
    return sorted(tuple(map(tuple, segment)) for lines in ax.collections for segment in lines.get_segments())


def test_a_row_is_a_dot_at_its_value_with_a_whisker_over_its_interval():
    _, axes = canvas(1, 1, 4, 2)
    ax = axes[0, 0]
    intervals(ax, [dot("theirs", metric(5.0)), dot("ours", metric(3.0), strong=True)])
    points = {line.get_color(): tuple(line.get_xydata()[0]) for line in ax.lines}
    assert points == {INK: (5.0, 0.0), OURS: (3.0, 1.0)}
    assert whiskers(ax) == [((2.0, 1.0), (5.0, 1.0)), ((4.0, 0.0), (7.0, 0.0))]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["theirs", "ours"]
    assert [text.get_fontweight() for text in ax.get_yticklabels()] == ["normal", "bold"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row is on top


def test_a_row_without_a_value_keeps_its_place_and_draws_nothing(tmp_path):
    made, axes = canvas(1, 1, 4, 2)
    intervals(axes[0, 0], [dot("absent", None), dot("there", metric(1.0))], names=False)
    (line,) = axes[0, 0].lines
    assert np.isnan(line.get_xdata()[0])
    assert line.get_xydata()[1].tolist() == [1.0, 1.0]
    assert axes[0, 0].get_xlim()[0] > -1  # not a number does not count for the axis
    save(made, tmp_path / "a.png")


def test_a_band_reaches_from_end_to_end_of_its_interval():
    _, axes = canvas(1, 1, 4, 2)
    band(axes[0, 0], 0.2, 0.5, "the paper's interval")
    (patch,) = axes[0, 0].patches
    assert (patch.get_x(), patch.get_x() + patch.get_width()) == pytest.approx((0.2, 0.5))


def test_a_curve_passes_through_its_values_and_has_a_tick_at_each():
    _, axes = canvas(1, 1, 4, 2)
    ax = axes[0, 0]
    curves(ax, [Curve("gaussian", [125, 250], [metric(1.0), metric(2.0)], "#000000")])
    assert ax.lines[0].get_xydata().tolist() == [[125, 1.0], [250, 2.0]]
    assert ax.lines[0].get_label() == "gaussian"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["125", "250"]
    ((x, low), (_, high)), *others = whiskers(ax)
    assert (low, high) == (1.0, 4.0)  # of the last point, at its right
    assert x > 250
    assert not others


def test_a_page_shows_its_picture_with_words_for_those_who_cannot_see_it():
    assert image("link", "curves") == "![curves](link.svg)"


def stored():
    """The published record of each experiment."""
    for name in sorted(NAMES):
        path = published(name, ROOT)
        if path is not None:
            yield name, json.loads(path.read_text())


RECORDS = dict(stored())


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_the_same_record_gives_the_same_bytes(name, tmp_path):
    paths = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for path in paths:
        save(experiment(name).plot(RECORDS[name]), path)
    one, two = (path.read_bytes() for path in paths)
    assert one == two
    assert len(one) < 100_000
    assert RECORDS[name]["date"] not in one.decode()


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_the_stored_page_and_its_picture_stand_side_by_side(name):
    page = ROOT / "docs" / "results" / f"{name}.md"
    remedy = f"write both again: smoothlink_paper.record.publish(record in results/{name}/, Path('.'), print)"
    assert f"]({name}.svg)" in page.read_text(), remedy
    assert page.with_suffix(".svg").exists(), remedy


def test_every_method_of_table_2_has_a_line_in_the_picture():
    record = RECORDS["mulan"]
    made = experiment("mulan").plot(record)
    assert len(made.axes) == 2 * len(record["sets"])
    methods = {m for found in record["sets"].values() for rows in found.values() for m in rows["methods"]}
    for ax in (made.axes[0], made.axes[len(record["sets"])]):
        assert {text.get_text() for text in ax.get_yticklabels()} == methods


def test_every_curve_of_the_links_is_in_the_picture():
    record = RECORDS["link"]
    made, grown = experiment("link").plot(record), record["curves"]
    for number, ax in enumerate(made.axes):
        by = ("by_features", "by_rank")[number // 3]
        key = ("hamming", "p@1", "macro_f1_alg4")[number % 3]
        drawn = {line.get_label(): line.get_xydata() for line in ax.lines}
        for link, points in grown[by].items():
            np.testing.assert_allclose(drawn[link], [[p["at"], p["metrics"][key]["value"]] for p in points])
    named = [text.get_text() for text in made.legends[0].get_texts()]
    assert len(named) == len(set(named))
    assert {*grown["by_rank"], "identity"} <= set(named)


def test_without_matplotlib_the_page_is_written_and_the_note_says_what_to_install(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    notes = []
    made = publish(RECORDS["flexibility"], tmp_path, notes.append)
    assert [path.name for path in made] == ["flexibility.md"]
    assert "](flexibility.svg)" in made[0].read_text()
    assert "smoothlink[report]" in notes[0]


def test_a_page_or_picture_that_cannot_be_written_whole_leaves_the_older_ones(tmp_path, monkeypatch):
    record, full = RECORDS["flexibility"], OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    page, picture = publish(record, tmp_path, print)
    older = page.read_bytes(), picture.read_bytes()

    def fsync(handle):
        raise full

    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        publish(record, tmp_path, print)
    with pytest.raises(OSError, match="No space left"):
        save(experiment("flexibility").plot(record), picture)
    assert (page.read_bytes(), picture.read_bytes()) == older
    assert set(page.parent.iterdir()) == {page, picture}


def test_another_missing_module_is_not_taken_for_matplotlib(tmp_path, monkeypatch):
    def broken(record):
        raise ModuleNotFoundError("No module named 'elsewhere'", name="elsewhere")

    monkeypatch.setattr(experiment("flexibility"), "plot", broken)
    with pytest.raises(ModuleNotFoundError, match="elsewhere"):
        publish(RECORDS["flexibility"], tmp_path, print)
